//! The resources that nodes offer, and the placement of a job on them.

use std::sync::Arc;

use rsd_proto::v1::{self as wire, JobSpec};

use super::ledger::Ledger;
use super::nodes::{Node, Nodes};
use crate::contract::HEAD;
use crate::place::cpuset::CpuSet;
use crate::place::{self, NodeOffer};
use crate::plan;

/// Which resources are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// The free resources of connected nodes.
    Now,
    /// The same, and unreachable nodes as if they were full.
    WithAway,
    /// All resources of connected nodes.
    Idle,
}

/// Returns where a job goes now, or why it cannot be placed. A node whose link is cut takes no job, but a job that needs it can
/// wait until it reconnects.
pub(super) fn place(
    nodes: &Nodes,
    ledger: &Ledger,
    wanted: &place::Request,
) -> Result<place::Placement, place::Refusal> {
    let refusal = match place::place(&offers(nodes, ledger, Asked::Now), wanted, HEAD) {
        Ok(placement) => return Ok(placement),
        Err(refusal) if refusal.fits_when_idle() => return Err(refusal),
        Err(refusal) => refusal,
    };
    let wanted = place::Request { oversubscribe: false, ..wanted.clone() };
    match place::place(&offers(nodes, ledger, Asked::WithAway), &wanted, HEAD) {
        Err(with_away) if with_away.fits_when_idle() => Err(with_away),
        Ok(_) | Err(_) => Err(refusal),
    }
}

/// Returns where a job would go. `idle`: as if no other job were running.
pub(super) fn plan(nodes: &Nodes, ledger: &Ledger, spec: &JobSpec, idle: bool) -> wire::PlanReply {
    let offers = offers(nodes, ledger, if idle { Asked::Idle } else { Asked::Now });
    let outcome = plan::request(spec).and_then(|wanted| match idle {
        true => place::place(&offers, &wanted, HEAD),
        false => place(nodes, ledger, &wanted),
    });
    let inventory = |node| nodes.get(node).and_then(|node| node.info.inventory.as_ref());
    plan::reply(&offers, &outcome, |node| inventory(node).map(|found| found.gpus.clone()).unwrap_or_default())
}

fn offers(nodes: &Nodes, ledger: &Ledger, asked: Asked) -> Vec<NodeOffer> {
    let offer = |node: &Node| {
        let id = node.info.node;
        let slots = node.slots();
        let reason = node.info.inventory.as_ref().map_or("", |inventory| inventory.slots_reason.as_str());
        let (used, (taken, gpus_taken)) = match asked {
            Asked::Now | Asked::WithAway => (ledger.in_use(id), ledger.taken(id)),
            Asked::Idle => (0, (CpuSet::EMPTY, CpuSet::EMPTY)),
        };
        NodeOffer {
            id,
            name: node.info.name.clone(),
            slots,
            slots_reason: if node.is_away { "its link is down".into() } else { reason.into() },
            in_use: if node.is_away { used.max(slots) } else { used },
            topology: Arc::clone(&node.topology),
            usable: node.usable.clone(),
            taken,
            gpus: Arc::clone(&node.gpus),
            gpus_taken,
        }
    };
    let is_wanted = |node: &&Node| !node.is_away || asked == Asked::WithAway;
    nodes.all().filter(is_wanted).map(offer).collect()
}
