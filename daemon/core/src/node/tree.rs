//! The tree as a daemon sees it: its children, and the child through which each node below is reached.
//!
//! Children dial; a parent never does. The head gives out node ids and names and, when it has enough children, redirects a daemon
//! that joins to a node with room. A child that loses its parent dials it again, then the head.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rsd_proto::v1::NodeInfo;

use crate::NodeId;
use crate::contract::LinkId;

/// What is below a daemon.
#[derive(Debug, Default)]
pub(super) struct Tree {
    children: BTreeMap<LinkId, Child>,
    /// The child through which each node below is reached.
    via: HashMap<NodeId, LinkId>,
    /// Nodes below that the parent was told of in the hello.
    told: BTreeSet<NodeId>,
}

/// A daemon directly below.
#[derive(Debug)]
struct Child {
    node: NodeId,
    /// The child and all nodes below it, by its own account: a child that has not noticed yet that a node has moved away still
    /// counts it, and [`Tree::via`] says which account is the latest.
    nodes: BTreeMap<NodeId, NodeInfo>,
}

/// What became of nodes that a child has withdrawn.
#[derive(Debug)]
pub(super) struct Withdrawn {
    /// No child reaches these.
    pub(super) lost: Vec<NodeId>,
    /// Another child counts these.
    pub(super) found: BTreeMap<LinkId, Vec<NodeInfo>>,
}

impl Tree {
    pub(super) fn add_child(&mut self, link: LinkId, node: NodeId) {
        self.children.insert(link, Child { node, nodes: BTreeMap::new() });
    }

    pub(super) fn remove_child(&mut self, link: LinkId) {
        self.children.remove(&link);
    }

    pub(super) fn has_child(&self, link: LinkId) -> bool {
        self.children.contains_key(&link)
    }

    pub(super) fn children_len(&self) -> usize {
        self.children.len()
    }

    /// The link of a child, by its node.
    pub(super) fn link_of_child(&self, node: NodeId) -> Option<LinkId> {
        self.children.iter().find(|(_, child)| child.node == node).map(|(link, _)| *link)
    }

    /// The nodes below this child, by its own account.
    pub(super) fn nodes_of(&self, link: LinkId) -> Vec<NodeId> {
        self.children.get(&link).into_iter().flat_map(|child| child.nodes.keys().copied()).collect()
    }

    /// These nodes are below this child now, whatever was known of them before.
    pub(super) fn add_nodes(&mut self, link: LinkId, nodes: &[NodeInfo]) {
        if let Some(child) = self.children.get_mut(&link) {
            child.nodes.extend(nodes.iter().map(|node| (node.node, node.clone())));
        }
        self.via.extend(nodes.iter().map(|node| (node.node, link)));
    }

    /// These nodes have left the DVM: no account of them counts any more.
    pub(super) fn forget(&mut self, nodes: &[NodeId]) {
        for child in self.children.values_mut() {
            nodes.iter().for_each(|node| drop(child.nodes.remove(node)));
        }
    }

    /// A child has withdrawn its account of these nodes.
    pub(super) fn withdraw(&mut self, link: LinkId, nodes: &[NodeId]) -> Withdrawn {
        if let Some(child) = self.children.get_mut(&link) {
            nodes.iter().for_each(|node| drop(child.nodes.remove(node)));
        }
        let mut withdrawn = Withdrawn { lost: Vec::new(), found: BTreeMap::new() };
        for node in nodes.iter().copied() {
            if self.via.get(&node) != Some(&link) {
                continue;
            }
            // The withdrawn account may have been the older one, which arrived late by another way.
            match self.children.iter().find_map(|(link, child)| Some((*link, child.nodes.get(&node)?.clone()))) {
                Some((other, info)) => {
                    self.via.insert(node, other);
                    withdrawn.found.entry(other).or_default().push(info);
                }
                None => {
                    self.via.remove(&node);
                    withdrawn.lost.push(node);
                }
            }
        }
        withdrawn
    }

    /// All nodes below.
    fn below(&self) -> impl Iterator<Item = NodeInfo> + '_ {
        let nodes = self.children.iter().flat_map(|(link, child)| child.nodes.values().map(move |node| (link, node)));
        nodes.filter(|(link, node)| self.via.get(&node.node) == Some(link)).map(|(_, node)| node.clone())
    }

    /// All nodes below, of which the parent is told now.
    pub(super) fn tell(&mut self) -> Vec<NodeInfo> {
        self.told = self.via.keys().copied().collect();
        self.below().collect()
    }

    /// The nodes that have come and gone since [`Tree::tell`].
    pub(super) fn changes(&mut self) -> (Vec<NodeInfo>, Vec<NodeId>) {
        let told = std::mem::take(&mut self.told);
        let come = self.below().filter(|node| !told.contains(&node.node)).collect();
        let gone = told.into_iter().filter(|node| !self.via.contains_key(node)).collect();
        (come, gone)
    }

    /// The child through which a node is reached.
    pub(super) fn via(&self, node: NodeId) -> Option<LinkId> {
        self.via.get(&node).copied()
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.children.keys().copied()
    }

    /// The children through which these nodes are reached.
    pub(super) fn links_to(&self, nodes: &[NodeId]) -> BTreeSet<LinkId> {
        nodes.iter().filter_map(|node| self.via(*node)).collect()
    }
}
