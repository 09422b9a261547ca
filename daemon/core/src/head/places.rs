//! Where daemons can join: the tree of daemons as the head knows it, and the nodes that have room for a child.
//!
//! Cost: logarithmic in the number of nodes, for a node that comes or goes without children; otherwise for each node below it.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::NodeId;
use crate::contract::HEAD;

/// All nodes but the head, by their places.
#[derive(Debug)]
pub(super) struct Places {
    /// The most children of a node.
    arity: usize,
    places: HashMap<NodeId, Place>,
    /// The nodes below each parent, also below one that is unknown.
    below: HashMap<NodeId, BTreeSet<NodeId>>,
    /// The nodes that may get a child, by their distance from the root.
    roomy: BTreeSet<(u32, NodeId)>,
}

#[derive(Debug)]
struct Place {
    parent: NodeId,
    depth: u32,
    /// Whether it may be a parent at all.
    is_open: bool,
}

impl Places {
    pub(super) fn new(arity: usize) -> Places {
        Places { arity, places: HashMap::new(), below: HashMap::new(), roomy: BTreeSet::new() }
    }

    /// Adds a node, or changes its parent and whether it may be a parent.
    pub(super) fn put(&mut self, node: NodeId, parent: NodeId, is_open: bool) {
        if node == HEAD {
            return;
        }
        let before = self.places.insert(node, Place { parent, depth: 0, is_open });
        if let Some(before) = &before {
            self.roomy.remove(&(before.depth, node));
        }
        if let Some(before) = before.filter(|before| before.parent != parent) {
            self.detach(node, before.parent);
        }
        self.below.entry(parent).or_default().insert(node);
        self.refresh(parent);
        self.settle(node);
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        let Some(place) = self.places.remove(&node) else { return };
        self.roomy.remove(&(place.depth, node));
        self.detach(node, place.parent);
        let orphans: Vec<NodeId> = self.below.get(&node).into_iter().flatten().copied().collect();
        orphans.into_iter().for_each(|orphan| self.settle(orphan));
    }

    /// Records whether a node may be a parent.
    pub(super) fn open(&mut self, node: NodeId, is_open: bool) {
        if let Some(place) = self.places.get_mut(&node) {
            place.is_open = is_open;
            self.refresh(node);
        }
    }

    /// Returns the nodes that may get a child, those nearest to the root first.
    pub(super) fn roomy(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.roomy.iter().map(|(_, node)| *node)
    }

    /// Returns a node and those above it, without the head.
    pub(super) fn way_up(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let above = |node: &NodeId| self.places.get(node).map(|place| place.parent);
        // Two nodes may name each other for a moment.
        let most = self.places.len() + 1;
        std::iter::successors(Some(node), move |node| above(node)).take(most).take_while(|node| *node != HEAD)
    }

    fn detach(&mut self, node: NodeId, parent: NodeId) {
        if let Some(below) = self.below.get_mut(&parent) {
            below.remove(&node);
            if below.is_empty() {
                self.below.remove(&parent);
            }
        }
        self.refresh(parent);
    }

    /// Finds the distance from the root again, of a node and of all that are below it.
    fn settle(&mut self, node: NodeId) {
        let mut open = vec![node];
        let mut seen = HashSet::new();
        while let Some(node) = open.pop() {
            let Some(parent) = self.places.get(&node).map(|place| place.parent) else { continue };
            if !seen.insert(node) {
                continue;
            }
            let above = match parent {
                HEAD => 0,
                // An unknown parent is counted as a child of the head.
                parent => self.places.get(&parent).map_or(1, |place| place.depth),
            };
            if let Some(place) = self.places.get_mut(&node) {
                self.roomy.remove(&(place.depth, node));
                place.depth = above.saturating_add(1);
            }
            self.refresh(node);
            open.extend(self.below.get(&node).into_iter().flatten());
        }
    }

    fn refresh(&mut self, node: NodeId) {
        let Some(place) = self.places.get(&node) else { return };
        let children = self.below.get(&node).map_or(0, BTreeSet::len);
        match place.is_open && children < self.arity {
            true => self.roomy.insert((place.depth, node)),
            false => self.roomy.remove(&(place.depth, node)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roomy(places: &Places) -> Vec<NodeId> {
        places.roomy().collect()
    }

    #[test]
    fn the_nodes_nearest_to_the_root_come_first_as_long_as_they_have_room() {
        let mut places = Places::new(2);
        for (node, parent) in [(1, HEAD), (2, HEAD), (3, 1), (4, 3)] {
            places.put(node, parent, true);
        }
        assert_eq!(roomy(&places), [1, 2, 3, 4]);
        places.put(5, 1, false);
        assert_eq!(roomy(&places), [2, 3, 4], "1 is full, and 5 cannot be a parent");
        places.open(2, false);
        assert_eq!(roomy(&places), [3, 4]);
        assert_eq!(places.way_up(4).collect::<Vec<_>>(), [4, 3, 1]);
        places.remove(5);
        places.put(3, 2, true);
        assert_eq!(roomy(&places), [1, 3, 4], "3 has moved, and 4 with it");
        places.remove(2);
        places.put(1, 3, true);
        assert_eq!(places.way_up(1).collect::<Vec<_>>(), [1, 3, 2]);
        for node in [1, 3, 4, 5] {
            places.remove(node);
        }
        assert!(places.places.is_empty() && places.below.is_empty() && places.roomy.is_empty());
    }

    #[test]
    fn two_nodes_that_name_each_other_are_no_endless_way() {
        let mut places = Places::new(2);
        places.put(1, 2, true);
        places.put(2, 1, true);
        assert!(places.way_up(1).count() <= 3);
        places.put(2, HEAD, true);
        assert_eq!(places.roomy.iter().copied().collect::<Vec<_>>(), [(1, 2), (2, 1)]);
    }
}
