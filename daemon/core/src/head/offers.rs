//! The resources that nodes offer, and the placement of a job on them.

use std::collections::HashSet;
use std::sync::Arc;

use rsd_proto::v1::{self as wire, JobSpec};

use super::ledger::Ledger;
use super::nodes::{Node, Nodes};
use super::resources;
use crate::NodeId;
use crate::calls::{Refused, exit};
use crate::contract::HEAD;
use crate::place::cpuset::CpuSet;
use crate::place::{self, NodeOffer};
use crate::plan;

/// Which resources are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The free resources of connected nodes that are not drained.
    Now,
    /// The same, and unreachable and drained nodes as if they were full.
    WithClosed,
    /// All resources of connected nodes that are not drained.
    Idle,
}

/// Returns where a job goes now, or why it cannot be placed. A drained node and one whose link is cut take no job, but a job that
/// needs them can wait until they are resumed or reconnect.
pub(super) fn place(
    nodes: &Nodes,
    ledger: &Ledger,
    wanted: &place::Request,
) -> Result<place::Placement, place::Refusal> {
    let divided = ledger.reserved.divide(wanted)?;
    let wanted = divided.as_ref().unwrap_or(wanted);
    let refusal = match place::place(&offers(nodes, ledger, Asked::Now), wanted, HEAD) {
        Ok(placement) => return Ok(placement),
        Err(refusal) if refusal.fits_when_idle() => return Err(refusal),
        Err(refusal) => refusal,
    };
    let wanted = place::Request { oversubscribe: false, ..wanted.clone() };
    match place::place(&offers(nodes, ledger, Asked::WithClosed), &wanted, HEAD) {
        Err(with_closed) if with_closed.fits_when_idle() => Err(with_closed),
        Ok(_) | Err(_) => Err(refusal),
    }
}

/// Returns the nodes on which a job may run at all; None: all.
pub(super) fn candidates(nodes: &Nodes, ledger: &Ledger, wanted: &place::Request) -> Option<HashSet<NodeId>> {
    let offers = offers(nodes, ledger, Asked::WithClosed);
    place::candidates(&offers, wanted, HEAD).map(|found| found.into_iter().collect())
}

/// Returns where a job would go. `idle`: as if no other job were running.
pub(super) fn plan(nodes: &Nodes, ledger: &Ledger, spec: &JobSpec, idle: bool) -> wire::PlanReply {
    let offers = offers(nodes, ledger, if idle { Asked::Idle } else { Asked::Now });
    let outcome = plan::request(spec).and_then(|wanted| match idle {
        true => {
            let divided = ledger.reserved.divide(&wanted)?;
            place::place(&offers, divided.as_ref().unwrap_or(&wanted), HEAD)
        }
        false => place(nodes, ledger, &wanted),
    });
    let inventory = |node| nodes.get(node).and_then(|node| node.info.inventory.as_ref());
    plan::reply(&offers, &outcome, |node| inventory(node).map(|found| found.gpus.clone()).unwrap_or_default())
}

/// Returns the node that a word of a user names: a name or an address as in a host list, `+n2` or `+id2`.
pub(super) fn find(nodes: &Nodes, ledger: &Ledger, word: &str) -> Result<NodeId, Refused> {
    let offers = offers(nodes, ledger, Asked::WithClosed);
    place::find(&offers, word, HEAD).map_err(|refusal| Refused::new(exit::USAGE, refusal.to_string()))
}

fn offers(nodes: &Nodes, ledger: &Ledger, asked: Asked) -> Vec<NodeOffer> {
    let offer = |node: &Node| {
        let id = node.info.node;
        let slots = node.slots();
        let reason = node.info.inventory.as_ref().map_or("", |inventory| inventory.slots_reason.as_str());
        let (used, (taken, gpus_taken)) = match asked {
            Asked::Now | Asked::WithClosed => (ledger.in_use(id), ledger.taken(id)),
            Asked::Idle => (0, (CpuSet::EMPTY, CpuSet::EMPTY)),
        };
        NodeOffer {
            id,
            name: node.info.name.clone(),
            slots,
            slots_reason: match (node.is_away, node.is_drained) {
                (true, _) => "its link is down".into(),
                (false, true) => format!("drained; rsctl node resume {}", node.info.name),
                (false, false) => reason.into(),
            },
            in_use: if node.is_open() { used } else { used.max(slots) },
            topology: Arc::clone(&node.topology),
            usable: node.usable.clone(),
            taken,
            gpus: Arc::clone(&node.gpus),
            gpus_taken,
            aliases: Arc::clone(&node.aliases),
            labels: Arc::clone(&node.labels),
            stocks: resources::stocks(node.info.inventory.as_ref(), |name| match asked {
                Asked::Now | Asked::WithClosed => ledger.reserved.held(id, name),
                Asked::Idle => 0,
            }),
        }
    };
    let is_wanted = |node: &&Node| node.is_open() || asked == Asked::WithClosed;
    nodes.all().filter(is_wanted).map(offer).collect()
}
