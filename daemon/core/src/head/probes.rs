//! Pending requests for the nodes' loads, each answered by one report of the tree.

use std::collections::BTreeMap;

use crate::contract::ReqId;

/// All pending probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    waiting: BTreeMap<u64, ReqId>,
    last: u64,
}

impl Probes {
    /// Begins a probe; returns its number.
    pub(super) fn begin(&mut self, req: ReqId) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, req);
        self.last
    }

    /// Ends a probe, whether or not all nodes have answered. Returns the request.
    pub(super) fn end(&mut self, number: u64) -> Option<ReqId> {
        self.waiting.remove(&number)
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.keys().map(|probe| format!("probe {probe}"))
    }
}
