//! The nodes' loads, gathered by the tree: each daemon asks its children, and sends one report when all have answered or its time has passed. A
//! child has less time than its parent, so what it has arrives in time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_proto::v1::{self as wire, Down, LoadOfNode, LoadReport, down, up};

use super::Node;
use crate::Now;
use crate::between::{Outputs, Report};
use crate::contract::{Effect, LinkId};
use crate::timers::Timers;

/// All unanswered requests, by number.
#[derive(Debug, Default)]
pub(super) struct Loads {
    probes: BTreeMap<u64, Probe>,
    timers: Timers<u64>,
}

#[derive(Debug)]
struct Probe {
    /// The children whose answer is missing, and whether this node's is.
    pending: BTreeSet<LinkId>,
    own_is_missing: bool,
    loads: Vec<LoadOfNode>,
}

impl Loads {
    /// Handles a closed link, which will not answer.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        for probe in self.probes.values_mut() {
            probe.pending.remove(&link);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.probes.keys().map(|probe| format!("request {probe} for loads"))
    }

    fn next_due(&mut self, now: Duration) -> Option<LoadReport> {
        let is_complete = |probe: &Probe| probe.pending.is_empty() && !probe.own_is_missing;
        let complete = self.probes.iter().find(|(_, probe)| is_complete(probe)).map(|(number, _)| *number);
        let probe = complete.or_else(|| self.timers.pop_due(now))?;
        self.timers.cancel(&probe);
        let loads = self.probes.remove(&probe)?.loads;
        Some(LoadReport { probe, loads })
    }
}

impl Node {
    pub(super) fn on_load_probe(&mut self, now: Now, probe: wire::LoadProbe, out: &mut Outputs<Report>) {
        let pending: BTreeSet<LinkId> = self.tree.links().collect();
        let below = wire::LoadProbe { within_ms: probe.within_ms * 3 / 4, ..probe };
        self.to_links(pending.iter().copied(), &Down { body: Some(down::Body::LoadProbe(below)) }, out);
        out.push(Effect::MeasureLoad { probe: probe.probe });
        self.loads.probes.insert(probe.probe, Probe { pending, own_is_missing: true, loads: Vec::new() });
        self.loads.timers.set(probe.probe, now.mono + Duration::from_millis(probe.within_ms));
    }

    /// Handles the answer of a child.
    pub(super) fn on_loads(&mut self, link: LinkId, report: LoadReport) {
        if let Some(probe) = self.loads.probes.get_mut(&report.probe).filter(|probe| probe.pending.contains(&link)) {
            probe.pending.remove(&link);
            probe.loads.extend(report.loads);
        }
    }

    /// Handles the result of measuring this node's load.
    pub(crate) fn on_load(&mut self, probe: u64, mut load: wire::NodeLoad) {
        load.steps = self.steps.len() as u32;
        if let Some(probe) = self.loads.probes.get_mut(&probe) {
            probe.own_is_missing = false;
            probe.loads.push(LoadOfNode { node: self.me.node, load: Some(load) });
        }
    }

    /// Answers the requests that are complete, or whose deadline has passed.
    pub(super) fn settle_loads(&mut self, now: Now, out: &mut Outputs<Report>) {
        while let Some(report) = self.loads.next_due(now.mono) {
            self.pass_up(up::Body::Load(report), out);
        }
    }
}
