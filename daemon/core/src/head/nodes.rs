//! The nodes of the DVM as the head knows them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use rsd_proto::v1::{self as wire, KeptNode, Label, NodeInfo, NodeState};

use super::marks::Marks;
use super::places::Places;
use crate::addresses::{booted, is_out_of_reach, machine_of, may_be_parent_of, outward};
use crate::contract::HEAD;
use crate::place::Gpu;
use crate::place::cpuset::CpuSet;
use crate::place::topology::{Kind, Topology};
use crate::{NodeId, plan, sentences};

/// The address of all machines to themselves.
const LOOPBACK: &str = "127.0.0.1";

/// All nodes that have not left.
#[derive(Debug)]
pub(super) struct Nodes {
    by_id: BTreeMap<NodeId, Node>,
    names: HashMap<String, NodeId>,
    alike: Alike,
    slots: u32,
    /// What users have said about nodes, also about nodes that have left.
    marks: BTreeMap<NodeId, Marks>,
    /// A node of an unknown machine counts as a machine of its own.
    machines: HashMap<String, Machine>,
    places: Places,
    /// For a name that several nodes have requested: all lower numbers are taken.
    numbers: HashMap<String, u32>,
}

/// The nodes of one machine.
#[derive(Debug, Default)]
struct Machine {
    nodes: u32,
    /// To how many of them a connection back has succeeded, and failed.
    reached: u32,
    closed: u32,
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
    pub(super) fn new(me: NodeInfo, arity: usize) -> Nodes {
        let (by_id, names, alike) = (BTreeMap::new(), HashMap::new(), Alike::default());
        let (marks, machines, numbers) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        let places = Places::new(arity);
        let mut nodes = Nodes { by_id, names, alike, slots: 0, marks, machines, places, numbers };
        nodes.insert(me, false);
        nodes
    }

    /// Adds a node, or replaces its description.
    pub(super) fn insert(&mut self, info: NodeInfo, is_away: bool) {
        self.forget(info.node);
        let marks = self.marks(info.node);
        let node = self.alike.node(info, is_away, marks);
        self.slots += node.slots();
        self.machines.entry(node.machine()).or_default().count(&node.info, |count| *count += 1);
        self.names.insert(node.info.name.clone(), node.info.node);
        self.places.put(node.info.node, node.info.parent, may_be_parent(&node));
        self.by_id.insert(node.info.node, node);
    }

    /// Removes a node that has left; returns its name.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<String> {
        self.places.remove(id);
        self.forget(id)
    }

    /// Forgets a node's description, but not its place.
    fn forget(&mut self, id: NodeId) -> Option<String> {
        let node = self.by_id.remove(&id)?;
        self.slots -= node.slots();
        let machine = node.machine();
        if let Some(known) = self.machines.get_mut(&machine) {
            known.count(&node.info, |count| *count -= 1);
            if known.nodes == 0 {
                self.machines.remove(&machine);
            }
        }
        if self.names.get(&node.info.name) == Some(&id) {
            self.names.remove(&node.info.name);
            if let Some((base, number)) = numbered(&node.info.name)
                && let Some(first) = self.numbers.get_mut(base)
            {
                *first = number.min(*first);
            }
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
        let Some(known) = self.by_id.get_mut(&node) else { return false };
        self.places.open(node, false);
        !std::mem::replace(&mut known.is_away, true)
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
    pub(super) fn free_name(&mut self, wanted: &NodeInfo) -> String {
        let is_free = |name: &String| self.names.get(name).is_none_or(|node| *node == wanted.node);
        if is_free(&wanted.name) {
            return wanted.name.clone();
        }
        let own = self.by_id.get(&wanted.node).map(|node| &node.info.name);
        if let Some(own) = own.filter(|own| numbered(own).is_some_and(|(base, _)| base == wanted.name)) {
            return own.clone();
        }
        let first = self.numbers.get(&wanted.name).copied().unwrap_or(2);
        let named = (first..).map(|number| (number, format!("{}-{number}", wanted.name)));
        let (number, name) =
            named.into_iter().find(|(_, name)| is_free(name)).expect("there are more numbers than nodes");
        self.numbers.insert(wanted.name.clone(), number);
        name
    }

    /// Returns where the programs of a job on these nodes listen for each other; empty: unknown. Loopback, if all nodes of the DVM
    /// are on one machine; a job may later connect to jobs on the others, so it uses loopback only where no other address is.
    pub(super) fn addresses(&self, nodes: &[NodeId]) -> Vec<String> {
        let info = |node| self.by_id.get(node).map(|node| &node.info);
        let head_listens = info(&HEAD).is_some_and(|head| !head.listen.is_empty());
        if self.machines.len() == 1 {
            return vec![if head_listens { LOOPBACK.to_owned() } else { String::new() }; nodes.len()];
        }
        let addresses: Vec<String> = nodes.iter().map(|node| info(node).map_or("", outward).to_owned()).collect();
        match addresses.iter().any(String::is_empty) && self.on_one_machine(nodes) {
            true => vec![LOOPBACK.to_owned(); nodes.len()],
            false => addresses,
        }
    }

    /// Returns those of a job's nodes whose ranks cannot be dialled from other machines; none, if the job has only one machine. A node
    /// to which no connection back was tried, because its parent is on the same machine, is like the other nodes of its machine.
    pub(super) fn dial_out(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        if self.machines.len() == 1 || self.on_one_machine(nodes) {
            return Vec::new();
        }
        let is_closed = |node: &Node| match node.info.reached {
            Some(_) => is_out_of_reach(&node.info),
            None => {
                self.machines.get(&node.machine()).is_some_and(|machine| machine.closed > 0 && machine.reached == 0)
            }
        };
        nodes.iter().copied().filter(|node| self.by_id.get(node).is_some_and(is_closed)).collect()
    }

    /// Whether there is a machine that runs more of these ranks than it has processors that the daemons on it may use. False if a node's
    /// daemon has another version than the head's, which may not pass that on.
    pub(super) fn are_crowded(&self, ranks: &[(NodeId, u32)]) -> bool {
        let Some(version) = self.by_id.get(&HEAD).map(|head| &head.info.version) else { return false };
        let mut machines: HashMap<&str, (u32, HashSet<u32>)> = HashMap::new();
        let mut is_any = false;
        for (node, ranks) in ranks {
            let Some(node) = self.by_id.get(node).filter(|node| node.info.version == *version) else { return false };
            match booted(&node.info) {
                "" => is_any |= *ranks > node.usable.len(),
                machine => {
                    let (all, usable) = machines.entry(machine).or_default();
                    *all += ranks;
                    usable.extend(node.topology.os_threads(&node.usable));
                }
            }
        }
        is_any || machines.values().any(|(ranks, usable)| *ranks as usize > usable.len())
    }

    fn on_one_machine(&self, nodes: &[NodeId]) -> bool {
        let mut machines = nodes.iter().map(|node| self.by_id.get(node).map(|node| machine_of(&node.info)));
        let first = machines.next().flatten().filter(|machine| !machine.is_empty());
        nodes.len() < 2 || first.is_some_and(|first| machines.all(|machine| machine == Some(first)))
    }

    /// Returns a sentence for a job on these nodes if some of them may not be reachable for ranks of the others.
    pub(super) fn reach_notice(&self, nodes: &[NodeId]) -> Option<String> {
        if self.machines.len() == 1 || self.on_one_machine(nodes) {
            return None;
        }
        let names = |is: fn(&NodeInfo) -> bool| -> Vec<&str> {
            let infos = nodes.iter().filter_map(|node| Some(&self.by_id.get(node)?.info));
            infos.filter(|info| is(info)).map(|info| info.name.as_str()).collect()
        };
        let unknown = names(|info| outward(info).is_empty());
        let closed = names(|info| !outward(info).is_empty() && is_out_of_reach(info));
        match (&*unknown, &*closed) {
            ([], []) => None,
            ([], closed) => Some(sentences::nodes_out_of_reach(closed)),
            (unknown, _) => Some(sentences::nodes_without_address(unknown)),
        }
    }

    /// Records that a node does not open a port for children.
    pub(super) fn never_listens(&mut self, node: NodeId) {
        if let Some(node) = self.by_id.get_mut(&node) {
            node.info.may_listen = false;
            let may = may_be_parent(node);
            self.places.open(node.info.node, may);
        }
    }

    /// Returns the node nearest to the root that can take the joiner as a child, perhaps after it has opened a port. Leaves out the
    /// `excluded` nodes, and those that were below them by the last report. Cost: looks at nodes with room until one fits.
    pub(super) fn roomiest(&self, joiner: &NodeInfo, excluded: &[NodeId]) -> Option<&Node> {
        let fits = |node: &&Node| {
            may_be_parent_of(&node.info, machine_of(joiner))
                && !self.places.way_up(node.info.node).any(|node| excluded.contains(&node))
        };
        self.places.roomy().filter_map(|node| self.by_id.get(&node)).find(fits)
    }

    /// Forgets the loads before they are measured again.
    pub(super) fn forget_loads(&mut self) {
        self.by_id.values_mut().for_each(|node| node.info.load = None);
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

impl Machine {
    /// Changes the counts to which a node belongs.
    fn count(&mut self, info: &NodeInfo, change: impl Fn(&mut u32)) {
        change(&mut self.nodes);
        match info.reached.as_deref() {
            Some("") => change(&mut self.closed),
            Some(_) => change(&mut self.reached),
            None => {}
        }
    }
}

impl Node {
    fn machine(&self) -> String {
        match machine_of(&self.info) {
            "" => format!("of node {}", self.info.node),
            machine => machine.to_owned(),
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.info.inventory.as_ref().map_or(0, |inventory| inventory.slots)
    }

    /// Whether it takes ranks now.
    pub(super) fn is_open(&self) -> bool {
        !self.is_away && !self.is_drained
    }

    /// Returns the other words by which users name it: its host name and its addresses.
    fn aliases(info: &NodeInfo) -> Arc<[String]> {
        let Some(inventory) = &info.inventory else { return Arc::default() };
        let addresses = inventory.addresses.iter().map(|address| &address.host);
        let words = std::iter::once(&inventory.hostname).chain(addresses);
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

/// Whether daemons of some machine may join at a node.
fn may_be_parent(node: &Node) -> bool {
    !node.is_away && (node.info.may_listen || !node.info.listen.is_empty())
}

/// Returns the parts of a name with a number.
fn numbered(name: &str) -> Option<(&str, u32)> {
    let (base, number) = name.rsplit_once('-')?;
    Some((base, number.parse().ok()?))
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

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{Inventory, NodeInfo};

    use super::*;

    fn info(node: NodeId, machine: &str, reached: Option<&str>) -> NodeInfo {
        let inventory = Inventory { machine: machine.into(), slots: 1, ..Inventory::default() };
        let (name, reached) = (format!("n{node}"), reached.map(str::to_owned));
        NodeInfo { node, name, reached, inventory: Some(inventory), ..NodeInfo::default() }
    }

    #[test]
    fn nodes_that_cannot_be_dialled_from_other_machines_are_found() {
        let mut nodes = Nodes::new(info(0, "head", Some("10.0.0.1")), 32);
        nodes.insert(info(1, "a", Some("10.0.0.2")), false);
        nodes.insert(info(2, "w", Some("")), false);
        // No connection back to these was tried: their parent is on the same machine.
        for (node, machine) in [(3, "w"), (4, "a"), (5, "head"), (6, "")] {
            nodes.insert(info(node, machine, None), false);
        }
        let none: [NodeId; 0] = [];
        assert_eq!(nodes.dial_out(&[0, 1, 2, 3, 4, 5, 6]), [2, 3]);
        assert_eq!(nodes.dial_out(&[2, 3]), none, "they share a machine");
        assert_eq!(nodes.dial_out(&[0, 1]), none);
        nodes.insert(info(2, "w", Some("10.0.0.3")), false);
        assert_eq!(nodes.dial_out(&[0, 2, 3]), none, "it has come back with an open port");
        nodes.insert(info(2, "w", Some("")), false);
        nodes.remove(2);
        assert_eq!(nodes.dial_out(&[0, 3]), none);
        for node in [1, 3, 4, 6] {
            nodes.remove(node);
        }
        assert_eq!((nodes.machines.len(), nodes.dial_out(&[0, 5])), (1, none.to_vec()));
    }

    #[test]
    fn ranks_that_share_the_processors_of_a_machine_are_found() {
        let on = |node, machine: &str, cpus: u32, usable: &[wire::Range]| {
            let mut info = info(node, machine, None);
            let inventory = info.inventory.get_or_insert_default();
            inventory.topology = Some((&Topology::regular(&[(Kind::Core, cpus)]).expect("a machine")).into());
            inventory.usable = usable.to_vec();
            info
        };
        let mut nodes = Nodes::new(on(0, "boot1/a", 4, &[]), 32);
        for (node, machine, usable) in [
            (1, "boot1/a", &[][..]),
            (2, "boot1/b", &[]),
            (3, "boot2/a", &[]),
            (5, "", &[wire::Range { first: 0, count: 2 }]),
        ] {
            nodes.insert(on(node, machine, 4, usable), false);
        }
        for (ranks, are_crowded) in [
            (&[(0, 4)][..], false),
            (&[(0, 2), (1, 2), (3, 4)], false),
            (&[(0, 2), (1, 3)], true),
            (&[(0, 2), (2, 3)], true),
            (&[(0, 1), (3, 5)], true),
            (&[(0, 2), (3, 4), (5, 2)], false),
            (&[(0, 2), (5, 3)], true),
            (&[(0, 9), (77, 1)], false),
        ] {
            assert_eq!(nodes.are_crowded(ranks), are_crowded, "{ranks:?}");
        }
        // Its daemon may not know that it must pass this on.
        nodes.insert(NodeInfo { version: "0.0.1".into(), ..on(6, "boot3/a", 1, &[]) }, false);
        assert!(!nodes.are_crowded(&[(0, 9), (6, 1)]));
        assert!(nodes.are_crowded(&[(0, 9), (1, 1)]));
    }

    #[test]
    fn a_taken_name_gets_the_lowest_free_number() {
        let mut nodes = Nodes::new(NodeInfo { name: "box".into(), ..info(0, "a", None) }, 32);
        let join = |nodes: &mut Nodes, node| {
            let wanted = NodeInfo { name: "box".into(), ..info(node, "a", None) };
            let name = nodes.free_name(&wanted);
            nodes.insert(NodeInfo { name: name.clone(), ..wanted }, false);
            name
        };
        assert_eq!([1, 2, 3].map(|node| join(&mut nodes, node)), ["box-2", "box-3", "box-4"]);
        nodes.remove(2);
        assert_eq!([5, 6].map(|node| join(&mut nodes, node)), ["box-3", "box-5"]);
        nodes.remove(0);
        assert_eq!(join(&mut nodes, 7), "box");
    }
}
