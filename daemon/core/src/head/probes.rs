//! Requests for the nodes' loads that wait until the nodes have answered.

use std::collections::BTreeMap;

use crate::contract::ReqId;

/// All that wait.
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
    /// Begins a probe that so many nodes must answer; returns its number.
    pub(super) fn begin(&mut self, req: ReqId, missing: u32) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, Probe { req, missing });
        self.last
    }

    /// A node has answered. Returns the request if it was the last one.
    pub(super) fn answered(&mut self, number: u64) -> Option<ReqId> {
        let probe = self.waiting.get_mut(&number)?;
        probe.missing = probe.missing.saturating_sub(1);
        if probe.missing == 0 { self.end(number) } else { None }
    }

    /// The probe waits no longer.
    pub(super) fn end(&mut self, number: u64) -> Option<ReqId> {
        self.waiting.remove(&number).map(|probe| probe.req)
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.keys().map(|probe| format!("probe {probe}"))
    }
}
