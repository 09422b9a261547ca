//! Requests for what ranks wait for, which this daemon has passed on to its children and steps.

use std::collections::BTreeMap;
use std::time::Duration;

use rsd_proto::v1::{RanksWaiting, WaitReport};

use crate::contract::LinkId;
use crate::timers::Timers;
use crate::waits::Merged;
use crate::{JobId, NodeId};

/// All unanswered requests, by number.
#[derive(Debug, Default)]
pub(super) struct Asked {
    probes: BTreeMap<u64, Probe>,
    timers: Timers<u64>,
}

#[derive(Debug)]
struct Probe {
    /// The links whose answer is missing.
    pending: BTreeMap<LinkId, Behind>,
    merged: Merged,
}

/// What a link leads to.
#[derive(Debug)]
pub(super) enum Behind {
    /// A child, and these nodes with it.
    Child(Vec<NodeId>),
    /// This node's step of a job.
    Step(JobId),
}

impl Asked {
    /// Begins a request. `merged` has what is known without asking.
    pub(super) fn begin(&mut self, probe: u64, deadline: Duration, pending: BTreeMap<LinkId, Behind>, merged: Merged) {
        self.probes.insert(probe, Probe { pending, merged });
        self.timers.set(probe, deadline);
    }

    /// Takes in the answer of a link.
    pub(super) fn answered(&mut self, link: LinkId, report: WaitReport) {
        if let Some(probe) = self.probes.get_mut(&report.probe)
            && probe.pending.remove(&link).is_some()
        {
            probe.merged.add(report);
        }
    }

    /// Handles a closed link, which will not answer.
    pub(super) fn forget_link(&mut self, me: NodeId, link: LinkId) {
        for probe in self.probes.values_mut() {
            if let Some(behind) = probe.pending.remove(&link) {
                probe.give_up(me, behind);
            }
        }
    }

    /// Removes and returns a request that is answered, or whose deadline has passed. `me` is this node.
    pub(super) fn next_due(&mut self, now: Duration, me: NodeId) -> Option<WaitReport> {
        let complete = self.probes.iter().find(|(_, probe)| probe.pending.is_empty()).map(|(number, _)| *number);
        let number = complete.or_else(|| self.timers.pop_due(now))?;
        self.timers.cancel(&number);
        let mut probe = self.probes.remove(&number)?;
        for behind in std::mem::take(&mut probe.pending).into_values() {
            probe.give_up(me, behind);
        }
        Some(probe.merged.into_report(number))
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.probes.keys().map(|probe| format!("request {probe} for waits"))
    }
}

impl Probe {
    fn give_up(&mut self, me: NodeId, behind: Behind) {
        match behind {
            Behind::Child(nodes) => self.merged.add_silent(nodes),
            Behind::Step(job) => {
                self.merged.add_ranks(RanksWaiting { job, silent: vec![me], ..RanksWaiting::default() });
            }
        }
    }
}
