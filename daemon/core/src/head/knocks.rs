//! Where a daemon that joins gets its place in the tree of daemons.
//!
//! The head takes children until it has `tree.arity` of them. Then it redirects to the node nearest to the root that has room and can be
//! reached from the joining daemon's machine. A node without children does not listen: the head asks it to open a port, and the
//! joining daemons wait until the node reports the port, or until the deadline. If no node can take a child, the head takes it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rsd_proto::v1::{self as wire, NodeInfo, down};

use super::{Due, Head};
use crate::addresses::{dialable, machine_of};
use crate::between::{Order, Outputs};
use crate::contract::LinkId;
use crate::{NodeId, Now};

/// How long a node may take to open a port. The joining daemons wait that long, so it is shorter than the deadline of their attempts.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);

/// The daemons that wait for a parent.
#[derive(Debug, Default)]
pub(super) struct Knocks {
    /// In the order of their arrival.
    waiting: BTreeMap<u64, Knock>,
    arrived: u64,
    of_link: HashMap<LinkId, u64>,
    of_node: HashMap<NodeId, u64>,
    /// The node that is opening a port.
    opening: Option<NodeId>,
}

/// A daemon that waits.
#[derive(Debug)]
struct Knock {
    link: LinkId,
    nodes: Vec<NodeInfo>,
    /// The nodes that it has failed to reach.
    unreachable: Vec<NodeId>,
}

impl Knocks {
    fn push(&mut self, knock: Knock) {
        self.arrived += 1;
        self.of_link.insert(knock.link, self.arrived);
        self.of_node.extend(knock.nodes.first().map(|joiner| (joiner.node, self.arrived)));
        self.waiting.insert(self.arrived, knock);
    }

    fn remove(&mut self, number: Option<u64>) {
        let Some((number, knock)) = number.and_then(|number| self.waiting.remove_entry(&number)) else { return };
        self.of_link.remove(&knock.link);
        if let Some(joiner) = knock.nodes.first().filter(|joiner| self.of_node.get(&joiner.node) == Some(&number)) {
            self.of_node.remove(&joiner.node);
        }
    }

    fn take(&mut self) -> impl Iterator<Item = Knock> + use<> {
        self.of_link.clear();
        self.of_node.clear();
        std::mem::take(&mut self.waiting).into_values()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.values().map(|knock| format!("joining daemon on link {}", knock.link))
    }
}

impl Head {
    /// Handles a daemon's connection: gives it its id and name, and a parent.
    pub(super) fn on_knock(
        &mut self,
        now: Now,
        link: LinkId,
        mut nodes: Vec<NodeInfo>,
        has_room: bool,
        unreachable: Vec<NodeId>,
        out: &mut Outputs<Order>,
    ) {
        let excluded: Vec<NodeId> = nodes.iter().map(|node| node.node).chain(unreachable.iter().copied()).collect();
        let Some(joiner) = nodes.first_mut() else { return };
        if joiner.node == 0 {
            joiner.node = self.memory.next_node;
            self.memory.next_node += 1;
        }
        self.memory.next_node = self.memory.next_node.max(joiner.node.saturating_add(1));
        joiner.name = self.nodes.free_name(joiner);
        joiner.joined_ms = now.unix_ms;
        let parent = if has_room { None } else { self.nodes.roomiest(joiner, &excluded) };
        let Some(parent) = parent else { return out.send_message(Order::Admit { link, nodes }) };
        let (parent, addresses) = (parent.info.node, dialable(&parent.info, machine_of(joiner)));
        if addresses.is_empty() {
            self.knocks.push(Knock { link, nodes, unreachable });
            return self.ask_to_open(now, parent, out);
        }
        joiner.parent = parent;
        let redirect = wire::Redirect {
            node: joiner.node,
            name: joiner.name.clone(),
            dvm: self.dvm.clone(),
            parent,
            parent_addrs: addresses,
            reached: joiner.reached.clone(),
        };
        // Its place is reserved until it attaches or its grace has passed.
        let node = joiner.node;
        self.keep_node(joiner);
        self.nodes.insert(joiner.clone(), true);
        self.timers.set(Due::Node(node), now.mono + self.tuning.reattach_grace);
        out.send_message(Order::Redirect { link, redirect });
    }

    /// Asks a node to open a port, one node at a time.
    fn ask_to_open(&mut self, now: Now, node: NodeId, out: &mut Outputs<Order>) {
        if self.knocks.opening.is_none() {
            self.knocks.opening = Some(node);
            self.timers.set(Due::Open(node), now.mono + OPEN_DEADLINE);
            out.order(down::Body::OpenPort(wire::OpenPort { node }));
        }
    }

    /// Handles that a node has reported its state, perhaps the port that it has opened.
    pub(super) fn on_reported(&mut self, now: Now, node: NodeId, out: &mut Outputs<Order>) {
        let listens = self.nodes.get(node).is_some_and(|node| !node.info.listen.is_empty());
        if listens && self.knocks.opening == Some(node) {
            self.opening_over(now, node, out);
        }
    }

    /// Handles that a node will not open a port, or has not done so in time.
    pub(super) fn on_not_opened(&mut self, now: Now, node: NodeId, out: &mut Outputs<Order>) {
        if self.knocks.opening == Some(node) {
            self.nodes.never_listens(node);
            self.opening_over(now, node, out);
        }
    }

    /// Handles that these nodes are lost: the deadline of one that is opening a port is now.
    pub(super) fn opener_is_lost(&mut self, nodes: &[NodeId]) {
        if let Some(node) = self.knocks.opening.filter(|opening| nodes.contains(opening)) {
            self.timers.set(Due::Open(node), Duration::ZERO);
        }
    }

    /// Handles that these nodes are attached. One that still waits here has given up and found its former parent: the head does not yet
    /// know that its connection is closed. An answer now would record a place that the node never takes, and after the grace, the loss
    /// of a node that is up.
    pub(super) fn have_places(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            let number = self.knocks.of_node.get(node).copied();
            self.knocks.remove(number);
        }
    }

    fn opening_over(&mut self, now: Now, node: NodeId, out: &mut Outputs<Order>) {
        self.timers.cancel(&Due::Open(node));
        self.knocks.opening = None;
        for Knock { link, nodes, unreachable } in self.knocks.take() {
            self.on_knock(now, link, nodes, false, unreachable, out);
        }
    }

    /// Handles that a daemon no longer waits for its place.
    pub(super) fn on_withdrawn(&mut self, link: LinkId) {
        let number = self.knocks.of_link.get(&link).copied();
        self.knocks.remove(number);
    }
}
