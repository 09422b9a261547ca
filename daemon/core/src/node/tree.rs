//! A daemon's view of the tree: its children, and the child through which each node below is reached.
//!
//! Children dial; a parent never does. The head assigns node ids and names. When it has enough children, it redirects a daemon
//! that joins to a node with room. A child that loses its parent dials it again, then the head.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rsd_proto::v1::NodeInfo;

use crate::NodeId;
use crate::contract::LinkId;

/// The nodes below a daemon.
#[derive(Debug, Default)]
pub(super) struct Tree {
    children: BTreeMap<LinkId, Child>,
    /// The child through which each node below is reached.
    via: HashMap<NodeId, LinkId>,
    /// The nodes below that the hello reported to the parent.
    reported: BTreeSet<NodeId>,
}

/// A child of a daemon.
#[derive(Debug)]
struct Child {
    node: NodeId,
    /// The child and all nodes below it, by the child's reports. A child may still count a node that has moved away;
    /// [`Tree::via`] says whose report is the latest.
    nodes: BTreeMap<NodeId, NodeInfo>,
}

/// A child and its link.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) link: LinkId,
    pub(super) info: NodeInfo,
}

/// The state of nodes that a child no longer reaches.
#[derive(Debug)]
pub(super) struct Withdrawn {
    /// No other child reaches these.
    pub(super) lost: Vec<NodeId>,
    /// Another child reaches these.
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

    /// Returns the link of a child, by its node.
    pub(super) fn link_of_child(&self, node: NodeId) -> Option<LinkId> {
        self.children.iter().find(|(_, child)| child.node == node).map(|(link, _)| *link)
    }

    /// Returns the nodes below this child, by the child's reports.
    pub(super) fn nodes_of(&self, link: LinkId) -> Vec<NodeId> {
        self.children.get(&link).into_iter().flat_map(|child| child.nodes.keys().copied()).collect()
    }

    /// Records that these nodes are below this child now, and no longer where they were.
    pub(super) fn add_nodes(&mut self, link: LinkId, nodes: &[NodeInfo]) {
        if let Some(child) = self.children.get_mut(&link) {
            child.nodes.extend(nodes.iter().map(|node| (node.node, node.clone())));
        }
        self.via.extend(nodes.iter().map(|node| (node.node, link)));
    }

    /// Forgets nodes that have left the DVM, in the reports of all children.
    pub(super) fn forget(&mut self, nodes: &[NodeId]) {
        for child in self.children.values_mut() {
            nodes.iter().for_each(|node| drop(child.nodes.remove(node)));
        }
    }

    /// Records that a child no longer reaches these nodes.
    pub(super) fn withdraw(&mut self, link: LinkId, nodes: &[NodeId]) -> Withdrawn {
        if let Some(child) = self.children.get_mut(&link) {
            nodes.iter().for_each(|node| drop(child.nodes.remove(node)));
        }
        let mut withdrawn = Withdrawn { lost: Vec::new(), found: BTreeMap::new() };
        for node in nodes.iter().copied() {
            if self.via.get(&node) != Some(&link) {
                continue;
            }
            // The child's report may be older than another child's report that arrived before it.
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

    /// Returns all nodes below.
    fn below(&self) -> impl Iterator<Item = NodeInfo> + '_ {
        let nodes = self.children.iter().flat_map(|(link, child)| child.nodes.values().map(move |node| (link, node)));
        nodes.filter(|(link, node)| self.via.get(&node.node) == Some(link)).map(|(_, node)| node.clone())
    }

    /// Returns all nodes below and records that the parent gets them now.
    pub(super) fn report(&mut self) -> Vec<NodeInfo> {
        self.reported = self.via.keys().copied().collect();
        self.below().collect()
    }

    /// Returns the nodes that have been added and removed since [`Tree::report`].
    pub(super) fn changes(&mut self) -> (Vec<NodeInfo>, Vec<NodeId>) {
        let reported = std::mem::take(&mut self.reported);
        let come = self.below().filter(|node| !reported.contains(&node.node)).collect();
        let gone = reported.into_iter().filter(|node| !self.via.contains_key(node)).collect();
        (come, gone)
    }

    /// Returns the link of the child through which a node is reached.
    pub(super) fn via(&self, node: NodeId) -> Option<LinkId> {
        self.via.get(&node).copied()
    }

    /// Returns the ids of all nodes below.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.via.keys().copied()
    }

    /// Returns the children by their links.
    pub(super) fn children(&self) -> Vec<Attached> {
        let children = self.children.iter();
        let attached = children.filter_map(|(link, child)| Some((*link, child.nodes.get(&child.node)?.clone())));
        attached.map(|(link, info)| Attached { link, info }).collect()
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.children.keys().copied()
    }

    /// Returns the links of the children through which these nodes are reached.
    pub(super) fn links_to<'a>(&self, nodes: impl IntoIterator<Item = &'a NodeId>) -> BTreeSet<LinkId> {
        let mut links = BTreeSet::new();
        for link in nodes.into_iter().filter_map(|node| self.via(*node)) {
            links.insert(link);
            if links.len() == self.children.len() {
                break; // a job on all nodes
            }
        }
        links
    }
}
