//! What a job has used: as its nodes have reported it, and the output that the head has received.

use std::collections::BTreeMap;

use rsd_proto::v1::{JobInfo, JobUsage, Usage};

use crate::taskmap::TaskMap;
use crate::{NodeId, usage};

/// What the ranks of one job have used.
#[derive(Debug, Default)]
pub(super) struct Used {
    /// By node of the task map. Empty until all ranks have ended, and for members of groups.
    nodes: Vec<Usage>,
    /// Until its ranks have ended, the job's streams know more.
    pub(super) output_bytes: u64,
}

impl Used {
    pub(super) fn new(map: &TaskMap, reports: &[(NodeId, Usage)], output_bytes: u64) -> Used {
        let reports: BTreeMap<NodeId, Usage> = reports.iter().copied().collect();
        let fitted = |node: &NodeId| {
            let report = reports.get(node).copied().unwrap_or_default();
            // A step is a program of the job's user: what it says must fit.
            let first = map.ranks_on(*node).next().unwrap_or(0);
            let peak_rank = if map.node_of(report.peak_rank) == Some(*node) { report.peak_rank } else { first };
            Usage { ranks: report.ranks.min(map.count_on(*node)), peak_rank, ..report }
        };
        Used { nodes: map.nodes().iter().map(fitted).collect(), output_bytes }
    }

    /// What is known of a job that ended under an earlier head.
    pub(super) fn restore(info: &JobInfo) -> Used {
        let nodes = info.usage.as_ref().map(|usage| usage.nodes.clone()).unwrap_or_default();
        Used { nodes, output_bytes: info.output_bytes }
    }

    /// What is known of members of groups, which rsd has not started.
    pub(super) fn of_members(output_bytes: u64) -> Used {
        Used { nodes: Vec::new(), output_bytes }
    }

    /// Returns what clients see, without the nodes one by one.
    pub(super) fn in_total(&self, map: &TaskMap) -> Option<JobUsage> {
        let mut total = Usage::default();
        self.nodes.iter().filter(|used| used.known).for_each(|used| usage::add(&mut total, used));
        let unknown = map.nodes().iter().zip(&self.nodes).filter(|(_, used)| !used.known).map(|(node, _)| *node);
        (!self.nodes.is_empty()).then(|| JobUsage { total: Some(total), unknown: unknown.collect(), nodes: Vec::new() })
    }

    /// As [`Used::in_total`], with the nodes.
    pub(super) fn in_full(&self, map: &TaskMap) -> Option<JobUsage> {
        self.in_total(map).map(|total| JobUsage { nodes: self.nodes.clone(), ..total })
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1;

    use super::*;

    fn map() -> TaskMap {
        let block = v1::Block { first_node: 0, nodes: 3, ranks_per_node: 2 };
        v1::TaskMap { nodes: vec![9, 3, 5], blocks: vec![block] }.try_into().unwrap()
    }

    fn used(peak_bytes: u64, peak_rank: u32) -> Usage {
        Usage { ranks: 2, user_us: 100, peak_bytes, peak_rank, known: true, ..Default::default() }
    }

    #[test]
    fn nodes_add_up_and_a_node_without_a_report_is_unknown() {
        let map = map();
        // Reports come by id, and not in the order of the job.
        let used = Used::new(&map, &[(3, used(10, 2)), (5, Usage::default()), (9, used(20, 1))], 7);
        let full = used.in_full(&map).unwrap();
        let total = full.total.unwrap();
        assert_eq!((total.ranks, total.user_us, total.peak_bytes, total.peak_rank), (4, 200, 20, 1));
        assert_eq!(full.unknown, [5]);
        assert_eq!(full.nodes.iter().map(|node| node.peak_bytes).collect::<Vec<_>>(), [20, 10, 0]);
        assert!(used.in_total(&map).unwrap().nodes.is_empty());
        assert_eq!(Used::default().in_total(&map), None);
    }

    #[test]
    fn a_step_that_reports_nonsense_harms_nothing() {
        let map = map();
        let wrong = Usage { ranks: u32::MAX, user_us: u64::MAX, ..used(u64::MAX, 77) };
        let total = Used::new(&map, &[(9, wrong), (3, wrong), (77, wrong)], 0).in_total(&map).unwrap().total.unwrap();
        assert_eq!((total.ranks, total.user_us, total.peak_rank), (4, u64::MAX, 0));
    }
}
