//! The nodes as the head knows them: joining, away, lost, and how loaded they are.

use std::collections::{BTreeMap, HashMap};

use rsd_proto::v1::{self as wire, Down, NodeInfo, down};

use crate::head::job::Job;
use crate::head::offers::Node;
use crate::head::{LOAD_DEADLINE, Probe};
use crate::node::tree;
use crate::rsd::{Effect, ReqId, Rsd};
use crate::{JobId, NodeId, Now};

impl Rsd {
    /// A joiner knocks: gives it (the first of `nodes`) its id and name, or says where else to knock.
    pub(crate) fn admit(&mut self, now: Now, nodes: &mut [NodeInfo]) -> Option<wire::Redirect> {
        let (me, dvm, arity) = (self.me.node, self.dvm.clone(), self.tuning.arity);
        let room = self.children.len() < arity;
        let head = self.head.as_mut()?;
        let below: Vec<NodeId> = nodes.iter().map(|node| node.node).collect();
        let joiner = nodes.first_mut()?;
        if joiner.node == 0 {
            joiner.node = head.memory.next_node;
            head.memory.next_node += 1;
        }
        head.memory.next_node = head.memory.next_node.max(joiner.node + 1);
        joiner.name = free_name(&head.nodes, joiner);
        joiner.joined_ms = now.unix_ms;
        if room {
            return None;
        }
        let parent = roomiest(&head.nodes, me, arity, joiner.node, &below)?;
        let parent_addr = head.nodes[&parent].info.listen.clone();
        joiner.parent = parent;
        // Its place is taken until it comes or its grace is over.
        head.insert_node(joiner.clone(), Some(now.mono));
        Some(wire::Redirect { node: joiner.node, name: joiner.name.clone(), dvm, parent, parent_addr })
    }

    pub(crate) fn nodes_are_up(&mut self, now: Now, nodes: Vec<NodeInfo>, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let mut back = Vec::new();
        for mut info in nodes {
            if let Some(known) = head.nodes.get(&info.node) {
                info.joined_ms = known.info.joined_ms;
                info.name = known.info.name.clone();
            } else {
                info.name = free_name(&head.nodes, &info);
                info.joined_ms = now.unix_ms;
            }
            head.memory.next_node = head.memory.next_node.max(info.node + 1);
            back.push(info.node);
            head.insert_node(info, None);
        }
        head.try_queue = true;
        out.push(Effect::Remember(head.memory));
        self.relaunch(&back, out);
    }

    /// Nodes that came (back) may have missed the launch of a job or its kill; those that have not know the repeat.
    fn relaunch(&mut self, nodes: &[NodeId], out: &mut Vec<Effect>) {
        let Some(head) = &self.head else { return };
        let concerned = |job: &&Job| job.map.nodes().iter().any(|node| nodes.contains(node));
        let jobs: Vec<JobId> = head.alive().filter(concerned).map(|job| job.id).collect();
        for id in jobs {
            let Some(launch) = self.head.as_ref().and_then(|head| head.jobs[&id].launch.clone()) else { continue };
            self.to_children_with(nodes, &Down { body: Some(down::Body::Launch(launch)) }, out);
            if let Some(kill) = self.relays.get(&id).and_then(|relay| relay.kill.clone()) {
                self.to_children_with(nodes, &Down { body: Some(down::Body::Kill(kill)) }, out);
            }
        }
    }

    pub(crate) fn nodes_are_away(&mut self, now: Now, nodes: &[NodeId]) {
        let Some(head) = &mut self.head else { return };
        head.lobby.nodes_are_away(now.mono, nodes);
        for node in nodes {
            if let Some(node) = head.nodes.get_mut(node) {
                node.away.get_or_insert(now.mono);
            }
        }
    }

    /// These nodes are not coming back: their jobs fail.
    pub(crate) fn nodes_are_lost(
        &mut self,
        now: Now,
        nodes: &[NodeId],
        why: impl Fn(&str) -> String,
        out: &mut Vec<Effect>,
    ) {
        for node in nodes {
            let Some(gone) = self.head.as_mut().and_then(|head| head.nodes.remove(node)) else { continue };
            let why = why(&gone.info.name);
            let alive = self.head.iter().flat_map(|head| head.alive());
            let jobs: Vec<JobId> = alive.filter(|job| job.map.count_on(*node) > 0).map(|job| job.id).collect();
            for id in jobs {
                self.give_up_nodes(now, id, &[*node], &why, out);
            }
        }
        if let Some(head) = &mut self.head {
            head.lobby.nodes_are_lost(nodes);
            head.try_queue = true;
        }
    }

    pub(crate) fn give_up_nodes(&mut self, now: Now, id: JobId, nodes: &[NodeId], why: &str, out: &mut Vec<Effect>) {
        for node in nodes {
            let Some(relay) = self.relays.get_mut(&id) else { return };
            if relay.is_done(*node) {
                continue;
            }
            relay.lose(*node);
            let exits = tree::lost_ranks(relay.map.ranks_on(*node), *node, why);
            for exit in exits {
                self.on_rank_failed(now, wire::RankFailed { job: id, exit: Some(exit) }, out);
            }
        }
    }

    pub(crate) fn list_nodes(&mut self, now: Now, req: ReqId, load: bool, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let missing = head.nodes.values().filter(|node| node.away.is_none()).count() as u32;
        let probe = head.next_probe;
        head.next_probe += 1;
        for node in head.nodes.values_mut() {
            node.info.load = None;
        }
        let deadline = if load { now.mono + LOAD_DEADLINE } else { now.mono };
        head.probes.insert(probe, Probe { req, deadline, missing });
        if load {
            out.push(Effect::MeasureLoad { probe });
            self.to_children(&Down { body: Some(down::Body::LoadProbe(wire::LoadProbe { probe })) }, out);
        }
    }

    pub(crate) fn on_load(&mut self, mut report: wire::LoadReport, out: &mut Vec<Effect>) {
        if report.node == self.me.node
            && let Some(load) = &mut report.load
        {
            load.steps = self.steps.len() as u32;
        }
        let Some(head) = &mut self.head else {
            return self.pass_up(wire::Up { body: Some(wire::up::Body::Load(report)) }, out);
        };
        if let Some(node) = head.nodes.get_mut(&report.node) {
            node.info.load = report.load;
        }
        if let Some(probe) = head.probes.get_mut(&report.probe) {
            probe.missing = probe.missing.saturating_sub(1);
        }
    }
}

/// The name that a node asked for, with a number behind it if another has it.
fn free_name(nodes: &BTreeMap<NodeId, Node>, joiner: &NodeInfo) -> String {
    let taken = |name: &str| nodes.values().any(|node| node.info.node != joiner.node && node.info.name == name);
    let numbered = (2..).map(|number| format!("{}-{number}", joiner.name));
    let mut names = std::iter::once(joiner.name.clone()).chain(numbered);
    names.find(|name| !taken(name)).expect("there are more numbers than nodes")
}

/// The node nearest to the root that can take one more child, and is not `below` the joiner, nor was when last heard of.
fn roomiest(
    nodes: &BTreeMap<NodeId, Node>,
    head: NodeId,
    arity: usize,
    joiner: NodeId,
    below: &[NodeId],
) -> Option<NodeId> {
    let mut children: HashMap<NodeId, usize> = HashMap::new();
    for node in nodes.values().filter(|node| node.info.node != head) {
        *children.entry(node.info.parent).or_default() += 1;
    }
    let above = |node: &NodeId| nodes.get(node).map(|found| found.info.parent);
    let way_up = |node| std::iter::successors(Some(node), above).take(nodes.len()).take_while(|node| *node != head);
    let fits = |node: &&Node| {
        let id = node.info.node;
        let open = node.away.is_none() && !node.info.listen.is_empty();
        let room = children.get(&id).copied().unwrap_or(0) < arity;
        id != head && open && room && !below.contains(&id) && !way_up(id).any(|node| node == joiner)
    };
    nodes.values().filter(fits).map(|node| node.info.node).min_by_key(|id| (way_up(*id).count(), *id))
}
