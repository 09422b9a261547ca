//! The nodes of the DVM as the head knows them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use rsd_proto::v1::{self as wire, KeptNode, Label, NodeInfo, NodeState};

use super::marks::Marks;
use crate::contract::HEAD;
use crate::place::Gpu;
use crate::place::cpuset::CpuSet;
use crate::place::topology::{Kind, Topology};
use crate::{NodeId, plan};

/// All nodes that have not left.
#[derive(Debug)]
pub(super) struct Nodes {
    by_id: BTreeMap<NodeId, Node>,
    names: HashMap<String, NodeId>,
    alike: Alike,
    slots: u32,
    /// What users have said about nodes, also about nodes that have left.
    marks: BTreeMap<NodeId, Marks>,
}

/// A node of the DVM.
#[derive(Debug)]
pub(super) struct Node {
    /// The node's description, without its topology.
    pub(super) info: NodeInfo,
    /// Whether its link is cut.
    pub(super) is_away: bool,
    /// Whether it takes no new ranks.
    pub(super) is_drained: bool,
    pub(super) labels: Arc<[(String, String)]>,
    /// Other words by which users name it.
    pub(super) aliases: Arc<[String]>,
    /// Its processor; a single thread if the node reports no valid topology.
    pub(super) topology: Arc<Topology>,
    pub(super) usable: CpuSet,
    pub(super) gpus: Arc<[Gpu]>,
}

/// Values shared by equal nodes.
#[derive(Debug, Default)]
struct Alike {
    topologies: HashSet<Arc<Topology>>,
    gpus: HashSet<Arc<[Gpu]>>,
}

impl Nodes {
    /// Returns the table with only the head's node.
    pub(super) fn new(me: NodeInfo) -> Nodes {
        let (by_id, names, alike) = (BTreeMap::new(), HashMap::new(), Alike::default());
        let mut nodes = Nodes { by_id, names, alike, slots: 0, marks: BTreeMap::new() };
        nodes.insert(me, false);
        nodes
    }

    /// Adds a node, or replaces its description.
    pub(super) fn insert(&mut self, info: NodeInfo, is_away: bool) {
        self.remove(info.node);
        let marks = self.marks(info.node);
        let node = self.alike.node(info, is_away, marks);
        self.slots += node.slots();
        self.names.insert(node.info.name.clone(), node.info.node);
        self.by_id.insert(node.info.node, node);
    }

    /// Removes a node that has left; returns its name.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<String> {
        let node = self.by_id.remove(&id)?;
        self.slots -= node.slots();
        if self.names.get(&node.info.name) == Some(&id) {
            self.names.remove(&node.info.name);
        }
        Some(node.info.name)
    }

    /// Returns what users have said about a node.
    pub(super) fn marks(&self, node: NodeId) -> Marks {
        self.marks.get(&node).cloned().unwrap_or_default()
    }

    /// Replaces what users have said about a node.
    pub(super) fn mark(&mut self, node: NodeId, marks: Marks) {
        if let Some(known) = self.by_id.get_mut(&node) {
            (known.is_drained, known.labels) = (marks.drained, marks.labels.clone().into_iter().collect());
        }
        match marks.is_empty() {
            true => drop(self.marks.remove(&node)),
            false => drop(self.marks.insert(node, marks)),
        }
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = KeptNode> + '_ {
        self.marks.iter().map(|(node, marks)| marks.kept(*node))
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Node> {
        self.by_id.get(&node)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Node> {
        self.by_id.values()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the number of slots of all nodes.
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Records that the link to a node is cut. Returns false if that is already known, or the node is unknown.
    pub(super) fn set_away(&mut self, node: NodeId) -> bool {
        self.by_id.get_mut(&node).is_some_and(|node| !std::mem::replace(&mut node.is_away, true))
    }

    pub(super) fn is_away(&self, node: NodeId) -> bool {
        self.by_id.get(&node).is_some_and(|node| node.is_away)
    }

    /// Returns the node's name, for messages.
    pub(super) fn name(&self, node: NodeId) -> String {
        self.by_id.get(&node).map_or_else(|| format!("node {node}"), |node| node.info.name.clone())
    }

    pub(super) fn named(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// Returns the name that a node requests, with a number appended if another node has it.
    pub(super) fn free_name(&self, wanted: &NodeInfo) -> String {
        let is_free = |name: &String| self.names.get(name).is_none_or(|node| *node == wanted.node);
        let numbered = (2..).map(|number| format!("{}-{number}", wanted.name));
        let mut names = std::iter::once(wanted.name.clone()).chain(numbered);
        names.find(is_free).expect("there are more numbers than nodes")
    }

    /// Returns whether each of these nodes has an address at which the others reach it.
    pub(super) fn all_can_listen(&self, nodes: &[NodeId]) -> bool {
        let address = |node| self.by_id.get(node).and_then(|node| Some(&node.info.inventory.as_ref()?.address));
        nodes.iter().all(|node| address(node).is_some_and(|address| !address.is_empty()))
    }

    /// Returns the node nearest to the root that can take another child. Leaves out the `excluded` nodes, and those that were below
    /// the joiner by the last report. Cost: looks at every node.
    pub(super) fn roomiest(&self, arity: usize, joiner: NodeId, excluded: &[NodeId]) -> Option<&Node> {
        let mut children: HashMap<NodeId, usize> = HashMap::new();
        for node in self.by_id.values().filter(|node| node.info.node != HEAD) {
            *children.entry(node.info.parent).or_default() += 1;
        }
        let above = |node: &NodeId| self.by_id.get(node).map(|found| found.info.parent);
        let len = self.by_id.len();
        let way_up = |node| std::iter::successors(Some(node), above).take(len).take_while(|node| *node != HEAD);
        let fits = |node: &&Node| {
            let id = node.info.node;
            let open = !node.is_away && !node.info.listen.is_empty();
            let room = children.get(&id).copied().unwrap_or(0) < arity;
            id != HEAD && open && room && !excluded.contains(&id) && !way_up(id).any(|node| node == joiner)
        };
        self.by_id.values().filter(fits).min_by_key(|node| (way_up(node.info.node).count(), node.info.node))
    }

    /// Forgets the loads before they are measured again. Returns how many nodes will report.
    pub(super) fn forget_loads(&mut self) -> u32 {
        self.by_id.values_mut().for_each(|node| node.info.load = None);
        self.by_id.values().filter(|node| !node.is_away).count() as u32
    }

    pub(super) fn set_load(&mut self, node: NodeId, load: Option<wire::NodeLoad>) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.info.load = load;
        }
    }

    /// Returns all nodes, as users see them.
    pub(super) fn infos(&self, in_use: impl Fn(NodeId) -> u32) -> Vec<NodeInfo> {
        self.by_id.values().map(|node| node.seen(in_use(node.info.node))).collect()
    }

    /// Returns a node, as users see it.
    pub(super) fn info(&self, node: NodeId, in_use: u32) -> Option<NodeInfo> {
        self.by_id.get(&node).map(|node| node.seen(in_use))
    }
}

impl Node {
    pub(super) fn slots(&self) -> u32 {
        self.info.inventory.as_ref().map_or(0, |inventory| inventory.slots)
    }

    /// Whether it takes ranks now.
    pub(super) fn is_open(&self) -> bool {
        !self.is_away && !self.is_drained
    }

    /// Returns the other words by which users name it: its host name and its address.
    fn aliases(info: &NodeInfo) -> Arc<[String]> {
        let Some(inventory) = &info.inventory else { return Arc::default() };
        let words = [&inventory.hostname, &inventory.address].into_iter();
        words.filter(|word| !word.is_empty() && **word != info.name).cloned().collect()
    }

    fn seen(&self, slots_in_use: u32) -> NodeInfo {
        let labels = self.labels.iter().map(|(key, value)| Label { key: key.clone(), value: value.clone() });
        NodeInfo {
            state: if self.is_away { NodeState::Away } else { NodeState::Up }.into(),
            slots_in_use,
            drained: self.is_drained,
            labels: labels.collect(),
            ..self.info.clone()
        }
    }
}

impl Alike {
    /// Makes a node of its description, which is validated here.
    fn node(&mut self, mut info: NodeInfo, is_away: bool, marks: Marks) -> Node {
        let inventory = info.inventory.get_or_insert_default();
        let told = inventory.topology.take();
        let topology = told
            .and_then(|told| Topology::try_from(&told).ok())
            .unwrap_or_else(|| Topology::regular(&[(Kind::Core, 1)]).expect("one core is a machine"));
        let usable = match plan::cpu_set(&inventory.usable, topology.threads()) {
            none if none.is_empty() => topology.all(),
            some => some,
        };
        let gpus = plan::gpus(&inventory.gpus, topology.threads());
        let (topology, gpus) = (shared(&mut self.topologies, Arc::new(topology)), shared(&mut self.gpus, gpus.into()));
        let (is_drained, labels, aliases) = (marks.drained, marks.labels.into_iter().collect(), Node::aliases(&info));
        Node { info, is_away, is_drained, labels, aliases, topology, usable, gpus }
    }
}

/// Returns the known equal value, or adds this one. Drops values that no node uses any more.
fn shared<T: ?Sized + Eq + Hash>(known: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if let Some(known) = known.get(&new) {
        return Arc::clone(known);
    }
    known.retain(|known| Arc::strong_count(known) > 1);
    known.insert(Arc::clone(&new));
    new
}
