//! The map of ranks to nodes, run-length encoded.
//!
//! ```text
//! nodes  [n0 n1 n2]               node ids, in the order of their first ranks
//! blocks (first_node, nodes, ranks_per_node), in rank order
//!
//! 2 nodes, 4 ranks each, by slot:  (0,2,4)                     n0: 0-3        n1: 4-7
//! 2 nodes, 4 ranks each, by node:  (0,2,1) (0,2,1) … 4 times   n0: 0 2 4 6    n1: 1 3 5 7
//! ```
//!
//! Nodes with equal counts cost one block by slot, or one block per round by node, however many nodes there are. A map from the
//! wire is validated: every method below returns an answer and costs no more than the size of the map.

use std::collections::HashMap;
use std::ops::Range;

use rsd_proto::pmi::mapping;
use rsd_proto::v1 as wire;
use thiserror::Error;

use crate::NodeId;

pub use rsd_proto::v1::Block;

/// The most ranks that a map can hold.
pub const RANKS_MAX: u32 = 1 << 24;

/// The map of a job's ranks to nodes. The default has no ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskMap {
    nodes: Vec<NodeId>,
    /// The indexes of `nodes`, by id; empty if the ids ascend.
    by_id: Vec<u32>,
    blocks: Vec<Block>,
    /// `starts[i]` is the first rank of `blocks[i]`.
    starts: Vec<u32>,
    size: u32,
}

impl TaskMap {
    /// Returns the number of ranks of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the job's nodes, in the order of their first ranks; each has a rank.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the index of a node in [`nodes`](Self::nodes). Cost: a binary search.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        match self.by_id.is_empty() {
            true => self.nodes.binary_search(&node).ok(),
            false => {
                let at = self.by_id.binary_search_by_key(&node, |index| self.nodes[*index as usize]).ok()?;
                Some(self.by_id[at] as usize)
            }
        }
    }

    /// Returns whether a node has ranks of the job.
    pub fn has(&self, node: NodeId) -> bool {
        self.position(node).is_some()
    }

    /// Returns the runs, in rank order; `first_node` indexes [`nodes`](Self::nodes).
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the ranks on a node, ascending; none for a node that is not in the job.
    pub fn ranks_on(&self, node: NodeId) -> impl Iterator<Item = u32> + '_ {
        self.runs_on(node).flatten()
    }

    /// Returns the ranks on a node as ascending ranges with gaps between them.
    pub fn ranges_on(&self, node: NodeId) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for run in self.runs_on(node) {
            match ranges.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => ranges.push(run),
            }
        }
        ranges
    }

    /// Returns the number of ranks on a node.
    pub fn count_on(&self, node: NodeId) -> u32 {
        self.runs_on(node).map(|run| run.end - run.start).sum()
    }

    /// Returns each node with its number of ranks, in the order of [`nodes`](Self::nodes). Cost: one pass over nodes and blocks.
    pub fn counts(&self) -> Vec<(NodeId, u32)> {
        // Holds only the differences between successive nodes, so that long blocks cost as little as short ones.
        let mut steps = vec![0i64; self.nodes.len() + 1];
        for block in &self.blocks {
            steps[block.first_node as usize] += i64::from(block.ranks_per_node);
            steps[(block.first_node + block.nodes) as usize] -= i64::from(block.ranks_per_node);
        }
        let mut count = 0;
        let counts = self.nodes.iter().zip(steps).map(|(node, step)| {
            count += step;
            (*node, u32::try_from(count).expect("counts sum up to the size"))
        });
        counts.collect()
    }

    /// Returns the node of a rank. Cost: a binary search over the blocks.
    pub fn node_of(&self, rank: u32) -> Option<NodeId> {
        self.index_of(rank).map(|index| self.nodes[index as usize])
    }

    /// Returns a rank's index among the ranks of its node.
    pub fn local_rank(&self, rank: u32) -> Option<u32> {
        let index = self.index_of(rank)?;
        let before = self.runs_of(index).take_while(|run| run.start <= rank).map(|run| run.end.min(rank) - run.start);
        Some(before.sum())
    }

    /// Returns the blocks in the form of `PMI_process_mapping`.
    pub fn pmi_blocks(&self) -> Vec<mapping::Block> {
        let block = |Block { first_node, nodes, ranks_per_node }: &Block| mapping::Block {
            first_node: *first_node,
            nodes: *nodes,
            ranks_per_node: *ranks_per_node,
        };
        self.blocks.iter().map(block).collect()
    }

    fn index_of(&self, rank: u32) -> Option<u32> {
        if rank >= self.size {
            return None;
        }
        let at = self.starts.partition_point(|start| *start <= rank) - 1;
        let block = self.blocks[at];
        Some(block.first_node + (rank - self.starts[at]) / block.ranks_per_node)
    }

    fn runs_on(&self, node: NodeId) -> impl Iterator<Item = Range<u32>> + '_ {
        let index = self.position(node);
        index.into_iter().flat_map(|index| self.runs_of(index as u32))
    }

    fn runs_of(&self, index: u32) -> impl Iterator<Item = Range<u32>> + '_ {
        self.blocks.iter().zip(&self.starts).filter_map(move |(block, start)| {
            let nth = index.checked_sub(block.first_node).filter(|nth| *nth < block.nodes)?;
            let first = start + nth * block.ranks_per_node;
            Some(first..first + block.ranks_per_node)
        })
    }

    /// Appends a block that the caller has checked.
    fn append(&mut self, block: Block) {
        self.starts.push(self.size);
        self.size += block.nodes * block.ranks_per_node;
        self.blocks.push(block);
    }
}

/// Builds a map rank by rank, or run by run. Ranks are numbered in the order of the pushes.
#[derive(Debug, Default)]
pub struct TaskMapBuilder {
    nodes: Vec<NodeId>,
    indexes: HashMap<NodeId, u32>,
    blocks: Vec<Block>,
    /// The run that is being extended: the index of its node, and its number of ranks.
    open: Option<(u32, u32)>,
    ranks: u64,
}

impl TaskMapBuilder {
    /// Appends `count` ranks on `node`. Cost: constant; memory is used only where the pattern breaks.
    pub fn push(&mut self, node: NodeId, count: u32) {
        self.ranks = self.ranks.saturating_add(u64::from(count));
        if count == 0 || self.ranks > u64::from(RANKS_MAX) {
            return;
        }
        let index = self.index(node);
        match &mut self.open {
            Some((open, ranks)) if *open == index => *ranks += count,
            open => {
                if let Some(run) = open.replace((index, count)) {
                    self.close(run);
                }
            }
        }
    }

    /// Returns the map of all pushed ranks.
    pub fn build(mut self) -> Result<TaskMap, TooManyRanks> {
        if self.ranks > u64::from(RANKS_MAX) {
            return Err(TooManyRanks { ranks: self.ranks });
        }
        if let Some(run) = self.open.take() {
            self.close(run);
        }
        let mut map = TaskMap { by_id: by_id(&self.nodes), nodes: self.nodes, ..TaskMap::default() };
        for block in self.blocks {
            map.append(block);
        }
        Ok(map)
    }

    fn index(&mut self, node: NodeId) -> u32 {
        // In rounds over the nodes, the next rank is usually on the same node or the next one.
        if let Some((open, _)) = self.open {
            let near = [open, open + 1].into_iter().find(|index| self.nodes.get(*index as usize) == Some(&node));
            if let Some(index) = near {
                return index;
            }
        }
        *self.indexes.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        })
    }

    fn close(&mut self, (index, ranks): (u32, u32)) {
        match self.blocks.last_mut() {
            Some(last) if last.ranks_per_node == ranks && last.first_node + last.nodes == index => last.nodes += 1,
            _ => self.blocks.push(Block { first_node: index, nodes: 1, ranks_per_node: ranks }),
        }
    }
}

impl From<&TaskMap> for wire::TaskMap {
    fn from(map: &TaskMap) -> wire::TaskMap {
        wire::TaskMap { nodes: map.nodes.clone(), blocks: map.blocks.clone() }
    }
}

impl TryFrom<wire::TaskMap> for TaskMap {
    type Error = TaskMapError;

    fn try_from(wire: wire::TaskMap) -> Result<TaskMap, TaskMapError> {
        let by_id = by_id(&wire.nodes);
        let same = |pair: &&[u32]| wire.nodes[pair[0] as usize] == wire.nodes[pair[1] as usize];
        if let Some(twice) = by_id.windows(2).find(same) {
            return Err(TaskMapError::NodeTwice { node: wire.nodes[twice[0] as usize] });
        }
        let mut map = TaskMap { nodes: wire.nodes, by_id, ..TaskMap::default() };
        let mut seen = 0;
        for (at, block) in wire.blocks.into_iter().enumerate() {
            let end = u64::from(block.first_node) + u64::from(block.nodes);
            if block.nodes == 0 || block.ranks_per_node == 0 || end > map.nodes.len() as u64 {
                return Err(TaskMapError::BadBlock { at });
            }
            if u64::from(block.first_node) > seen {
                return Err(TaskMapError::OutOfOrder { at });
            }
            seen = seen.max(end);
            let ranks = u64::from(block.nodes) * u64::from(block.ranks_per_node);
            let ranks = ranks.saturating_add(u64::from(map.size));
            if ranks > u64::from(RANKS_MAX) {
                return Err(TooManyRanks { ranks }.into());
            }
            map.append(block);
        }
        match map.nodes.get(seen as usize) {
            Some(node) => Err(TaskMapError::NodeWithoutRank { node: *node }),
            None if map.size == 0 => Err(TaskMapError::Empty),
            None => Ok(map),
        }
    }
}

/// Returns the indexes of nodes in the order of their ids; empty if the ids ascend.
fn by_id(nodes: &[NodeId]) -> Vec<u32> {
    if nodes.is_sorted_by(|a, b| a < b) {
        return Vec::new();
    }
    let mut by_id: Vec<u32> = (0..nodes.len() as u32).collect();
    by_id.sort_unstable_by_key(|index| nodes[*index as usize]);
    by_id
}

/// The map has more ranks than [`RANKS_MAX`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the map has {ranks} ranks; the limit is {RANKS_MAX}")]
pub struct TooManyRanks {
    /// The number of ranks.
    pub ranks: u64,
}

/// Why the map is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say what the text says")]
pub enum TaskMapError {
    /// The map has no ranks.
    #[error("the map has no ranks")]
    Empty,
    /// The map has too many ranks.
    #[error(transparent)]
    TooManyRanks(#[from] TooManyRanks),
    /// A node id occurs twice.
    #[error("node {node} is named twice in the map")]
    NodeTwice { node: NodeId },
    /// A node is in no block.
    #[error("node {node} has no rank in the map")]
    NodeWithoutRank { node: NodeId },
    /// A block is empty or reaches beyond the nodes.
    #[error("block {at} of the map is empty or goes beyond its nodes")]
    BadBlock { at: usize },
    /// Nodes are not numbered by first rank.
    #[error("block {at} of the map skips a node")]
    OutOfOrder { at: usize },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map(runs: &[(NodeId, u32)]) -> TaskMap {
        let mut builder = TaskMapBuilder::default();
        for (node, count) in runs {
            builder.push(*node, *count);
        }
        builder.build().unwrap()
    }

    fn blocks(map: &TaskMap) -> Vec<(u32, u32, u32)> {
        map.blocks().iter().map(|block| (block.first_node, block.nodes, block.ranks_per_node)).collect()
    }

    fn refused(nodes: &[NodeId], blocks: &[(u32, u32, u32)]) -> TaskMapError {
        let block = |(first_node, nodes, ranks_per_node): &(u32, u32, u32)| Block {
            first_node: *first_node,
            nodes: *nodes,
            ranks_per_node: *ranks_per_node,
        };
        let wire = wire::TaskMap { nodes: nodes.to_vec(), blocks: blocks.iter().map(block).collect() };
        TaskMap::try_from(wire).unwrap_err()
    }

    #[test]
    fn equal_nodes_are_one_block_by_slot_and_one_per_round_by_node() {
        let by_slot = map(&[(7, 4), (3, 4)]);
        assert_eq!(blocks(&by_slot), [(0, 2, 4)]);
        assert_eq!(by_slot.nodes(), [7, 3]);
        assert_eq!(by_slot.ranks_on(3).collect::<Vec<_>>(), [4, 5, 6, 7]);

        let by_node = map(&[(7, 1), (3, 1), (7, 1), (3, 1)]);
        assert_eq!(blocks(&by_node), [(0, 2, 1), (0, 2, 1)]);
        assert_eq!(by_node.ranks_on(7).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(by_node.ranges_on(3), [1..2, 3..4]);
        assert_eq!(by_node.local_rank(3), Some(1));
        assert_eq!(by_node.counts(), [(7, 2), (3, 2)]);
    }

    #[test]
    fn runs_pushed_in_pieces_are_one_run() {
        assert_eq!(blocks(&map(&[(0, 1), (0, 2), (1, 3), (2, 0), (1, 1)])), [(0, 1, 3), (1, 1, 4)]);
        assert_eq!(map(&[(0, 2), (1, 1), (0, 1)]).ranges_on(0), [0..2, 3..4]);
    }

    #[test]
    fn ten_thousand_nodes_stay_small_in_both_orders() {
        let mut by_slot = TaskMapBuilder::default();
        (0..10_000).for_each(|node| by_slot.push(node, 128));
        assert_eq!(blocks(&by_slot.build().unwrap()), [(0, 10_000, 128)]);

        let mut by_node = TaskMapBuilder::default();
        (0..128).for_each(|_| (0..10_000).for_each(|node| by_node.push(node, 1)));
        let by_node = by_node.build().unwrap();
        assert_eq!(by_node.blocks().len(), 128);
        assert_eq!(by_node.node_of(1_279_999), Some(9_999));
        assert_eq!(by_node.count_on(5_000), 128);
    }

    #[test]
    fn nodes_and_ranks_outside_the_map_have_nothing() {
        let map = map(&[(0, 2)]);
        assert_eq!((map.count_on(9), map.node_of(2), map.local_rank(2)), (0, None, None));
        assert_eq!(TaskMap::default().node_of(0), None);
    }

    #[test]
    fn too_many_ranks_are_an_error_not_an_overflow() {
        let mut builder = TaskMapBuilder::default();
        builder.push(0, u32::MAX);
        builder.push(1, u32::MAX);
        assert_eq!(builder.build().unwrap_err(), TooManyRanks { ranks: 2 * u64::from(u32::MAX) });
    }

    #[test]
    fn maps_from_the_wire_are_checked() {
        let most = u32::MAX;
        assert_eq!(refused(&[], &[]), TaskMapError::Empty);
        assert_eq!(refused(&[4], &[]), TaskMapError::NodeWithoutRank { node: 4 });
        assert_eq!(refused(&[4, 4], &[(0, 2, 1)]), TaskMapError::NodeTwice { node: 4 });
        assert_eq!(refused(&[4], &[(0, 0, 1)]), TaskMapError::BadBlock { at: 0 });
        assert_eq!(refused(&[4], &[(0, 1, 0)]), TaskMapError::BadBlock { at: 0 });
        assert_eq!(refused(&[4], &[(0, 1, 1), (most, most, 1)]), TaskMapError::BadBlock { at: 1 });
        assert_eq!(refused(&[4, 5], &[(1, 1, 1), (0, 1, 1)]), TaskMapError::OutOfOrder { at: 0 });
        assert_eq!(refused(&[4], &[(0, 1, most)]), TooManyRanks { ranks: u64::from(most) }.into());
        let full = (0, 1, RANKS_MAX);
        assert_eq!(refused(&[4], &[full, full]), TooManyRanks { ranks: 2 * u64::from(RANKS_MAX) }.into());
    }

    proptest! {
        #[test]
        fn a_map_holds_the_ranks_that_were_pushed(runs in prop::collection::vec((0u32..6, 0u32..4), 1..40)) {
            let expected: Vec<NodeId> =
                runs.iter().flat_map(|(node, count)| std::iter::repeat_n(*node, *count as usize)).collect();
            let map = map(&runs);
            prop_assert_eq!(map.size() as usize, expected.len());
            for (rank, node) in expected.iter().enumerate() {
                prop_assert_eq!(map.node_of(rank as u32), Some(*node));
                let local = expected[..rank].iter().filter(|other| *other == node).count();
                prop_assert_eq!(map.local_rank(rank as u32), Some(local as u32));
            }
            prop_assert_eq!(map.position(99), None);
            for (node, count) in map.counts() {
                prop_assert_eq!(map.position(node).map(|at| map.nodes()[at]), Some(node));
                let ranks: Vec<u32> = map.ranks_on(node).collect();
                prop_assert!(ranks.is_sorted() && ranks.iter().all(|rank| expected[*rank as usize] == node));
                prop_assert_eq!((ranks.len() as u32, map.count_on(node)), (count, count));
                prop_assert_eq!(map.ranges_on(node).into_iter().flatten().collect::<Vec<_>>(), ranks);
            }
            if map.size() > 0 {
                prop_assert_eq!(TaskMap::try_from(wire::TaskMap::from(&map)), Ok(map.clone()));
                let indexes: Vec<u32> = expected
                    .iter()
                    .map(|node| map.nodes().iter().position(|other| other == node).unwrap() as u32)
                    .collect();
                prop_assert_eq!(mapping::expand(&map.pmi_blocks(), map.size()), Ok(indexes));
            }
        }

        #[test]
        fn every_map_from_the_wire_is_valid_or_refused(
            nodes in prop::collection::vec(0u32..5, 0..4),
            blocks in prop::collection::vec((0u32..4, 0u32..4, 0u32..3), 0..5),
        ) {
            let block = |(first_node, nodes, ranks_per_node)| Block { first_node, nodes, ranks_per_node };
            let wire = wire::TaskMap { nodes, blocks: blocks.into_iter().map(block).collect() };
            if let Ok(map) = TaskMap::try_from(wire) {
                let mut ranks: Vec<u32> = map.nodes().iter().flat_map(|node| map.ranks_on(*node)).collect();
                ranks.sort_unstable();
                prop_assert_eq!(ranks, (0..map.size()).collect::<Vec<_>>());
                prop_assert!(map.counts().iter().all(|(_, count)| *count > 0));
            }
        }
    }
}
