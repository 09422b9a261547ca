//! A job's task map for people: ranges of ranks per node.

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::THREADS_MAX;
use rsd_proto::v1::{BindingRun, Block, JobInfo, NodeBinding, Range, RankBinding, TaskMap};

/// One node's ranks, as inclusive ranges in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRanks {
    pub(crate) node: u32,
    pub(crate) name: String,
    pub(crate) ranges: Vec<(u32, u32)>,
}

impl NodeRanks {
    pub(crate) fn count(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }
}

/// Returns the nodes in order of their first rank. Cost: one step per block and node.
pub(crate) fn by_node(map: &TaskMap, names: &[String]) -> Vec<NodeRanks> {
    let name = |at: usize, node: u32| names.get(at).cloned().unwrap_or_else(|| format!("node {node}"));
    let mut nodes: Vec<NodeRanks> = (map.nodes.iter().enumerate())
        .map(|(at, &node)| NodeRanks { node, name: name(at, node), ranges: Vec::new() })
        .collect();
    let mut next = 0_u32;
    for Block { first_node, nodes: count, ranks_per_node } in &map.blocks {
        for node in nodes.iter_mut().skip(*first_node as usize).take(*count as usize).filter(|_| *ranks_per_node > 0) {
            let last = next.saturating_add(ranks_per_node - 1);
            match node.ranges.last_mut() {
                Some(range) if range.1.checked_add(1) == Some(next) => range.1 = last,
                Some(_) | None => node.ranges.push((next, last)),
            }
            next = last.saturating_add(1);
        }
    }
    nodes
}

/// Returns the bindings of a job's ranks, node by node in the order of its task map; empty if the daemon did not send them.
pub(crate) fn bindings(info: &JobInfo) -> impl Iterator<Item = &NodeBinding> {
    let run = |run: &BindingRun| (info.bindings.get(run.binding as usize), run.nodes as usize);
    info.binding_runs
        .iter()
        .map(run)
        .map_while(|(binding, nodes)| Some((binding?, nodes)))
        .flat_map(|(binding, nodes)| std::iter::repeat_n(binding, nodes))
}

/// Returns the hardware threads that a rank is bound to, by logical index; empty if it is unbound.
pub(crate) fn threads(binding: &RankBinding) -> CpuSet {
    set(&binding.threads)
}

/// Returns the set that the ranges of a message describe, limited to the threads that a node can have.
pub(crate) fn set(ranges: &[Range]) -> CpuSet {
    let most = THREADS_MAX as u32;
    ranges.iter().flat_map(|range| range.first..range.first.saturating_add(range.count.min(most))).collect()
}

/// Returns a set as `0-3,8`.
pub(crate) fn list(set: &CpuSet) -> String {
    ranges(&set.ranges().into_iter().map(|range| (range.start, range.end - 1)).collect::<Vec<_>>())
}

/// Returns ranges as `0-3,8,10-11`.
pub(crate) fn ranges(ranges: &[(u32, u32)]) -> String {
    let one = |&(first, last): &(u32, u32)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Returns the name of the node with this id, or `node ID` if it is unknown.
pub(crate) fn node_name(map: Option<&TaskMap>, names: &[String], node: u32) -> String {
    let at = map.and_then(|map| map.nodes.iter().position(|&id| id == node));
    at.and_then(|at| names.get(at)).cloned().unwrap_or_else(|| format!("node {node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(nodes: &[u32], blocks: &[(u32, u32, u32)]) -> TaskMap {
        let block =
            |&(first_node, nodes, ranks_per_node): &(u32, u32, u32)| Block { first_node, nodes, ranks_per_node };
        TaskMap { nodes: nodes.to_vec(), blocks: blocks.iter().map(block).collect() }
    }

    fn shown(map: &TaskMap) -> Vec<String> {
        let names = ["n0".to_owned(), "n1".to_owned()];
        by_node(map, &names).iter().map(|node| format!("{}: {}", node.name, ranges(&node.ranges))).collect()
    }

    #[test]
    fn blocks_become_ranges() {
        assert_eq!(shown(&map(&[0, 4], &[(0, 2, 4)])), ["n0: 0-3", "n1: 4-7"]);
        assert_eq!(shown(&map(&[0, 4], &[(0, 2, 1), (0, 2, 1), (0, 1, 1)])), ["n0: 0,2,4", "n1: 1,3"]);
        assert_eq!(shown(&map(&[0, 4, 9], &[(0, 3, 1)])), ["n0: 0", "n1: 1", "node 9: 2"]);
    }

    #[test]
    fn adjacent_ranges_are_joined() {
        assert_eq!(shown(&map(&[0, 4], &[(0, 1, 2), (0, 1, 3), (1, 1, 1)])), ["n0: 0-4", "n1: 5"]);
    }

    #[test]
    fn an_invalid_map_does_not_panic() {
        assert_eq!(shown(&map(&[0], &[(7, 3, 1), (0, 9, u32::MAX), (0, 1, 5), (0, 1, 0)])).len(), 1);
        assert!(shown(&TaskMap::default()).is_empty());
    }

    #[test]
    fn ranks_become_ranges() {
        assert_eq!(ranges(&rsd_proto::ranges::of([0, 1, 2, 5, 7, 8])), "0-2,5,7-8");
        assert_eq!(ranges(&rsd_proto::ranges::of([])), "");
    }

    #[test]
    fn nodes_are_named_if_the_name_is_known() {
        let names = ["n0".to_owned(), "n4".to_owned()];
        assert_eq!(node_name(Some(&map(&[0, 4], &[])), &names, 4), "n4");
        assert_eq!(node_name(Some(&map(&[0, 4], &[])), &names, 5), "node 5");
        assert_eq!(node_name(None, &names, 0), "node 0");
    }
}
