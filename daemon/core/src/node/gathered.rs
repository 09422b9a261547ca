//! The reports of nodes about one subject. A report states a fact, so it may arrive repeatedly and through any daemon.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::NodeId;

/// The reports of nodes about one subject, on their way up.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) inside: BTreeSet<NodeId>,
    contributions: Vec<Contribution>,
    /// How many nodes the parent has reports of.
    pub(super) sent: usize,
}

#[derive(Debug)]
struct Contribution {
    nodes: Vec<NodeId>,
    batches: Vec<Bytes>,
    marks: Marks,
}

/// What contributions to a fence say beside their batches.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// `FenceUp.can_fetch`.
    pub(super) can_fetch: bool,
    /// `FenceUp.batch_nodes`.
    pub(super) batch_nodes: Vec<NodeId>,
    /// `FenceUp.held`.
    pub(super) held: u64,
    /// `FenceUp.is_held`.
    pub(super) is_held: bool,
}

impl Gathered {
    /// Takes a contribution if it adds a node. It replaces the contributions that it includes.
    pub(super) fn add(&mut self, nodes: Vec<NodeId>, batches: Vec<Bytes>, marks: Marks) {
        let known = nodes.iter().filter(|node| self.inside.contains(node)).count();
        if known == nodes.len() {
            return;
        }
        if known > 0 {
            let new: BTreeSet<NodeId> = nodes.iter().copied().collect();
            self.contributions.retain(|before| !before.nodes.iter().all(|node| new.contains(node)));
        }
        self.inside.extend(&nodes);
        self.contributions.push(Contribution { nodes, batches, marks });
    }

    /// Returns the length of all batches.
    pub(super) fn bytes(&self) -> u64 {
        let batches = self.contributions.iter().flat_map(|contribution| &contribution.batches);
        batches.map(|batch| batch.len() as u64).sum()
    }

    pub(super) fn batches(&self) -> Vec<Bytes> {
        self.contributions.iter().flat_map(|contribution| contribution.batches.iter().cloned()).collect()
    }

    pub(super) fn batches_len(&self) -> usize {
        self.contributions.iter().map(|contribution| contribution.batches.len()).sum()
    }

    /// Returns what all contributions say together.
    pub(super) fn marks(&self) -> Marks {
        let all = || self.contributions.iter().map(|contribution| &contribution.marks);
        Marks {
            can_fetch: all().all(|marks| marks.can_fetch),
            batch_nodes: all().flat_map(|marks| marks.batch_nodes.iter().copied()).collect(),
            held: all().map(|marks| marks.held).max().unwrap_or(0),
            is_held: all().any(|marks| marks.is_held),
        }
    }
}
