//! Writes the reply to a plan request.

use std::collections::HashMap;
use std::sync::Arc;

use rsd_proto::v1::{self as wire, PlanReply, plan_reply::Outcome};

use super::{bindings, ranges};
use crate::NodeId;
use crate::place::topology::Topology;
use crate::place::{NodeOffer, Placement, Refusal, Shortage};

/// The reply for the outcome of a request on these nodes. `gpus` returns a node's GPUs with the fields that placement does not use.
pub fn reply(
    nodes: &[NodeOffer],
    outcome: &Result<Placement, Refusal>,
    gpus: impl Fn(NodeId) -> Vec<wire::Gpu>,
) -> PlanReply {
    let outcome = match outcome {
        Ok(placement) => Outcome::Plan(plan(nodes, placement, &gpus)),
        Err(refusal) => Outcome::Refused(refused(nodes, refusal)),
    };
    PlanReply { outcome: Some(outcome) }
}

fn plan(nodes: &[NodeOffer], placement: &Placement, gpus: &dyn Fn(NodeId) -> Vec<wire::Gpu>) -> wire::Plan {
    let offers: HashMap<NodeId, &NodeOffer> = nodes.iter().map(|node| (node.id, node)).collect();
    let mut topologies: Vec<Arc<Topology>> = Vec::new();
    let mut index: HashMap<*const Topology, u32> = HashMap::new();
    let bound = placement.binding_runs.iter().flat_map(|(count, index)| (0..*count).map(move |_| *index));
    let bound = bound.chain(std::iter::repeat(0));
    let of = placement.map.nodes().iter().filter_map(|id| offers.get(id).copied());
    let shown = of.zip(bound).map(|(offer, binding)| wire::PlanNode {
        topology: *index.entry(Arc::as_ptr(&offer.topology)).or_insert_with(|| {
            topologies.push(Arc::clone(&offer.topology));
            topologies.len() as u32 - 1
        }),
        binding,
        gpus: gpus(offer.id),
        ..slots_of(offer)
    });
    let shown = shown.collect();
    let policy = &placement.policy;
    wire::Plan {
        map: Some((&placement.map).into()),
        nodes: shown,
        app_sizes: placement.app_sizes.clone(),
        topologies: topologies.iter().map(|topology| (&**topology).into()).collect(),
        bindings: bindings(placement).0,
        map_by: policy.map_by.to_string(),
        rank_by: policy.rank_by.map(|rank_by| rank_by.to_string()).unwrap_or_default(),
        bind_to: policy.bind_to.map(|bind_to| bind_to.to_string()).unwrap_or_default(),
        notices: placement.notices.clone(),
    }
}

/// Returns a node's offer: all of a [`wire::PlanNode`] except the indexes and the GPUs.
pub fn slots_of(offer: &NodeOffer) -> wire::PlanNode {
    wire::PlanNode {
        name: offer.name.clone(),
        slots: offer.slots,
        slots_reason: offer.slots_reason.clone(),
        in_use: offer.in_use,
        usable: ranges(&offer.usable),
        taken: ranges(&offer.taken),
        ..Default::default()
    }
}

fn refused(nodes: &[NodeOffer], refusal: &Refusal) -> wire::PlanRefusal {
    let text = refusal.to_string();
    let Some(Shortage { asked, free, rows, fixes, .. }) = refusal.shortage() else {
        return wire::PlanRefusal { text, ..Default::default() };
    };
    // Only the nodes that the text lists; it counts the others.
    let shown = nodes.iter().filter(|node| rows.iter().any(|row| row.name == node.name));
    wire::PlanRefusal {
        text,
        asked: *asked,
        free: Some(*free),
        nodes: shown.map(slots_of).collect(),
        fixes: fixes.clone(),
    }
}
