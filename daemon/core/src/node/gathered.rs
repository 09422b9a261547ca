//! What nodes have reported about one thing: facts, which may arrive repeatedly and by any way.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::NodeId;

/// What nodes have reported about one thing, on its way up.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) inside: BTreeSet<NodeId>,
    contributions: Vec<Contribution>,
    /// How many nodes the parent knows of.
    pub(super) sent: usize,
}

#[derive(Debug)]
struct Contribution {
    nodes: Vec<NodeId>,
    batches: Vec<Bytes>,
}

impl Gathered {
    /// Takes a contribution if it has something new; it replaces the contributions that it includes.
    pub(super) fn add(&mut self, nodes: Vec<NodeId>, batches: Vec<Bytes>) {
        let known = nodes.iter().filter(|node| self.inside.contains(node)).count();
        if known == nodes.len() {
            return;
        }
        if known > 0 {
            let new: BTreeSet<NodeId> = nodes.iter().copied().collect();
            self.contributions.retain(|before| !before.nodes.iter().all(|node| new.contains(node)));
        }
        self.inside.extend(&nodes);
        self.contributions.push(Contribution { nodes, batches });
    }

    pub(super) fn batches(&self) -> Vec<Bytes> {
        self.contributions.iter().flat_map(|contribution| contribution.batches.iter().cloned()).collect()
    }
}
