//! What the ranks of jobs wait for: the reports of steps, and how they are merged on the way up.
//!
//! Nothing is sent without a request. It goes down the tree; each daemon merges the answers of its steps and children into
//! one message. Ranks whose nodes have completed the same fences are counted together, and only the first missing ranks are named,
//! so the answer about a job has about the same size for any number of nodes.

use std::collections::{BTreeMap, BTreeSet};

use rsd_proto::v1::{RanksWaiting, StoppingNode, WaitReport};

use crate::{JobId, NodeId};

/// The most ranks that an answer about a job names.
pub(crate) const MISSING_MAX: usize = 64;

/// Merged reports.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// By job and number of the next fence.
    steps: BTreeMap<(JobId, u64), RanksWaiting>,
    silent: BTreeSet<NodeId>,
    stopping: BTreeMap<NodeId, StoppingNode>,
}

impl Merged {
    pub(crate) fn add(&mut self, report: WaitReport) {
        self.silent.extend(report.silent);
        report.stopping.into_iter().for_each(|node| self.add_stopping(node));
        report.steps.into_iter().for_each(|step| self.add_ranks(step));
    }

    pub(crate) fn add_ranks(&mut self, step: RanksWaiting) {
        let RanksWaiting { job, fence, inside, waiting_ms, starting, alive, missing, unattached, silent, blocked } =
            step;
        let all = self.steps.entry((job, fence)).or_insert(RanksWaiting { job, fence, ..RanksWaiting::default() });
        // A step says these numbers of itself.
        all.inside = all.inside.saturating_add(inside);
        all.waiting_ms = all.waiting_ms.max(waiting_ms);
        all.starting = all.starting.saturating_add(starting);
        all.alive = all.alive.saturating_add(alive);
        all.unattached.extend(unattached);
        all.silent.extend(silent);
        all.missing.extend(missing);
        all.missing.sort_by_key(|rank| rank.rank);
        all.missing.truncate(MISSING_MAX);
        all.blocked.extend(blocked);
        all.blocked.truncate(MISSING_MAX);
    }

    pub(crate) fn add_silent(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.silent.extend(nodes);
    }

    pub(crate) fn add_stopping(&mut self, node: StoppingNode) {
        self.stopping.insert(node.node, node);
    }

    pub(crate) fn into_report(self, probe: u64) -> WaitReport {
        WaitReport {
            probe,
            steps: self.steps.into_values().collect(),
            silent: self.silent.into_iter().collect(),
            stopping: self.stopping.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::RankWaiting;

    use super::*;

    fn step(job: JobId, fence: u64, ranks: std::ops::Range<u32>) -> RanksWaiting {
        let missing = ranks.map(|rank| RankWaiting { rank, ..RankWaiting::default() });
        RanksWaiting { job, fence, inside: 1, waiting_ms: 5, missing: missing.collect(), ..RanksWaiting::default() }
    }

    #[test]
    fn numbers_that_no_job_has_are_merged_to_the_largest() {
        let wrong = RanksWaiting { inside: u32::MAX, starting: u32::MAX, alive: u32::MAX, ..step(7, 1, 0..1) };
        let mut merged = Merged::default();
        merged.add(WaitReport { probe: 1, steps: vec![wrong.clone(), wrong.clone()], ..WaitReport::default() });
        let ranks = &merged.into_report(1).steps[0];
        assert_eq!((ranks.inside, ranks.starting, ranks.alive), (u32::MAX, u32::MAX, u32::MAX));
    }

    #[test]
    fn nodes_in_the_same_fence_are_counted_together_and_the_first_missing_ranks_are_named() {
        let mut merged = Merged::default();
        merged.add(WaitReport {
            probe: 1,
            steps: vec![step(7, 2, 50..150), step(7, 1, 0..3)],
            silent: vec![4],
            stopping: Vec::new(),
        });
        merged.add_ranks(RanksWaiting { waiting_ms: 9, ..step(7, 2, 0..20) });
        merged.add_silent([3, 4]);
        let report = merged.into_report(8);
        assert_eq!((report.probe, report.silent), (8, vec![3, 4]));
        let [first, second] = &report.steps[..] else { panic!("{:?}", report.steps) };
        assert_eq!((first.fence, first.inside, first.missing.len()), (1, 1, 3));
        assert_eq!((second.fence, second.inside, second.waiting_ms), (2, 2, 9));
        let named: Vec<u32> = second.missing.iter().map(|rank| rank.rank).collect();
        assert_eq!(named, (0..20).chain(50..94).collect::<Vec<_>>());
    }
}
