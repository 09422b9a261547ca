//! Which ranks of a communicator share a node.
//!
//! Nodes are numbered by their first ranks, so all members that know the same nodes number them alike. A rank's *place* is its
//! index among the ranks of its node, in rank order; its *position* is its index if all ranks stand node by node.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The nodes of all ranks of a communicator.
#[derive(Debug, Clone)]
pub struct Layout {
    nodes: u32,
    size: u32,
    /// The ranks of the fullest node.
    most: u32,
    is_crowded: bool,
    /// `None`: ranks 0 … `most` - 1 are on node 0, the next on node 1, and so on.
    map: Option<Arc<Map>>,
}

#[derive(Debug)]
struct Map {
    /// `starts[node]`: the position of its first rank; at the end, the number of ranks.
    starts: Vec<u32>,
    /// `order[position]`: the rank.
    order: Vec<u32>,
    /// `positions[rank]`.
    positions: Vec<u32>,
    /// `nodes[rank]`.
    nodes: Vec<u32>,
    is_in_order: bool,
}

impl PartialEq for Layout {
    /// Whether they are known to be the same; copies are.
    fn eq(&self, other: &Self) -> bool {
        let maps = match (&self.map, &other.map) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (Some(_), None) | (None, Some(_)) => false,
        };
        let facts = |layout: &Self| (layout.nodes, layout.size, layout.most, layout.is_crowded);
        maps && facts(self) == facts(other)
    }
}

impl Layout {
    /// Blocks of `each` consecutive ranks on each of `nodes` nodes.
    pub const fn blocks(nodes: u32, each: u32) -> Self {
        Self { nodes, size: nodes * each, most: each, is_crowded: false, map: None }
    }

    /// All ranks on one node.
    pub const fn together(size: u32) -> Self {
        Self::blocks(1, size)
    }

    /// Each rank on a node of its own.
    pub const fn apart(size: u32) -> Self {
        Self::blocks(size, 1)
    }

    /// The layout of ranks whose nodes have these names, in rank order.
    pub fn of<N: Eq + Hash>(names: impl IntoIterator<Item = N>) -> Self {
        let mut numbers = HashMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let mut nodes = Vec::new();
        for (rank, name) in names.into_iter().enumerate() {
            let node = *numbers.entry(name).or_insert(members.len());
            if node == members.len() {
                members.push(Vec::new());
            }
            members[node].push(rank as u32);
            nodes.push(node as u32);
        }
        let order = members.concat();
        let mut starts = vec![0];
        starts.extend(members.iter().scan(0, |end, node| {
            *end += node.len() as u32;
            Some(*end)
        }));
        let size = order.len() as u32;
        let most = members.iter().map(|node| node.len() as u32).max().unwrap_or(0);
        let is_in_order = order.is_sorted();
        let count = members.len() as u32;
        if is_in_order && size == count * most {
            return Self::blocks(count, most);
        }
        let mut positions = vec![0; order.len()];
        for (position, rank) in order.iter().enumerate() {
            positions[*rank as usize] = position as u32;
        }
        let map = Map { starts, order, positions, nodes, is_in_order };
        Self { nodes: count, size, most, is_crowded: false, map: Some(Arc::new(map)) }
    }

    /// The same layout, of ranks of which some share processors or not.
    #[must_use]
    pub fn crowded(self, is_crowded: bool) -> Self {
        Self { is_crowded, ..self }
    }

    /// Whether there is a machine that runs more of the job's ranks than it has processors. All ranks know the same.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The number of ranks on the fullest node.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Whether all nodes have the same number of ranks.
    pub fn is_even(&self) -> bool {
        self.size == self.nodes * self.most
    }

    /// Whether each node has consecutive ranks.
    pub fn is_in_order(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.is_in_order)
    }

    /// The node of a rank.
    pub fn node(&self, rank: u32) -> u32 {
        self.map.as_ref().map_or_else(|| rank / self.most, |map| map.nodes[rank as usize])
    }

    /// The position of a rank.
    pub fn position(&self, rank: u32) -> u32 {
        self.map.as_ref().map_or(rank, |map| map.positions[rank as usize])
    }

    /// The rank at a position.
    pub fn at(&self, position: u32) -> u32 {
        self.map.as_ref().map_or(position, |map| map.order[position as usize])
    }

    /// The position of the first rank of a node; of `nodes()`: the number of ranks.
    pub fn start(&self, node: u32) -> u32 {
        self.map.as_ref().map_or(node * self.most, |map| map.starts[node as usize])
    }

    /// The number of ranks on a node.
    pub fn on(&self, node: u32) -> u32 {
        self.start(node + 1) - self.start(node)
    }

    /// The place of a rank on its node.
    pub fn place(&self, rank: u32) -> u32 {
        self.position(rank) - self.start(self.node(rank))
    }

    /// The rank at a place of a node.
    pub fn rank(&self, node: u32, place: u32) -> u32 {
        self.at(self.start(node) + place)
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn nodes_are_numbered_by_their_first_ranks() {
        let layout = Layout::of(["b", "a", "b", "c", "a", "b"]);
        assert_eq!((layout.size(), layout.nodes(), layout.most()), (6, 3, 3));
        assert!(!layout.is_even() && !layout.is_in_order());
        let nodes: Vec<u32> = (0..6).map(|rank| layout.node(rank)).collect();
        assert_eq!(nodes, [0, 1, 0, 2, 1, 0]);
        let order: Vec<u32> = (0..6).map(|position| layout.at(position)).collect();
        assert_eq!(order, [0, 2, 5, 1, 4, 3]);
        for rank in 0..6 {
            assert_eq!(layout.at(layout.position(rank)), rank);
            assert_eq!(layout.rank(layout.node(rank), layout.place(rank)), rank);
        }
        assert_eq!([0, 1, 2].map(|node| layout.on(node)), [3, 2, 1]);
    }

    #[test]
    fn blocks_need_no_map() {
        let layout = Layout::of([7, 7, 3, 3, 9, 9]);
        assert!(layout == Layout::blocks(3, 2));
        assert_eq!((layout.node(3), layout.place(3), layout.rank(2, 1)), (1, 1, 5));
        let uneven = Layout::of([0, 0, 1]);
        assert!(uneven.is_in_order() && !uneven.is_even());
        assert!(uneven == uneven.clone() && uneven != Layout::of([0, 0, 1]));
    }
}
