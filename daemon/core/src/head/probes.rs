//! Pending requests for the nodes' loads.

use std::collections::BTreeMap;

use crate::contract::ReqId;

/// All pending probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    waiting: BTreeMap<u64, Probe>,
    last: u64,
}

#[derive(Debug)]
struct Probe {
    req: ReqId,
    missing: u32,
}

impl Probes {
    /// Begins a probe that waits for `missing` nodes; returns its number.
    pub(super) fn begin(&mut self, req: ReqId, missing: u32) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, Probe { req, missing });
        self.last
    }

    /// Records the answer of a node. Returns the request if all nodes have answered.
    pub(super) fn answered(&mut self, number: u64) -> Option<ReqId> {
        let probe = self.waiting.get_mut(&number)?;
        probe.missing = probe.missing.saturating_sub(1);
        if probe.missing == 0 { self.end(number) } else { None }
    }

    /// Ends a probe, whether or not all nodes have answered.
    pub(super) fn end(&mut self, number: u64) -> Option<ReqId> {
        self.waiting.remove(&number).map(|probe| probe.req)
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.keys().map(|probe| format!("probe {probe}"))
    }
}
