//! The tree of daemons: joining, being sent elsewhere, vanishing, coming back, leaving.
//!
//! Children dial; a parent never does. The head gives out node ids and names and, when it has children enough, sends a
//! joiner on to a node with room. A child that loses its parent knocks there again, then at the head.

use std::collections::BTreeMap;

use rsd_proto::v1::{self as wire, Down, NodeInfo, Up, down, hello::Who, up};

use crate::rsd::{Effect, LinkId, Rsd};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, sentences};

/// A daemon directly below.
#[derive(Debug)]
pub(crate) struct Child {
    node: NodeId,
    /// It and everyone below it, by its own account: a child that has not yet noticed that a node has moved away counts
    /// it still, and [`Rsd::via`] says which account is the latest.
    pub(crate) nodes: BTreeMap<NodeId, NodeInfo>,
}

impl Rsd {
    pub(crate) fn on_hello(&mut self, now: Now, link: LinkId, hello: wire::Hello, out: &mut Vec<Effect>) {
        match hello.who {
            Some(Who::Step(step)) => self.on_step_hello(link, step, out),
            Some(Who::Node(node)) if self.stopping.is_none() => self.on_node_hello(now, link, node, out),
            Some(Who::Node(_)) | None => out.push(Effect::Close { link }),
        }
    }

    fn on_step_hello(&mut self, link: LinkId, step: wire::StepHello, out: &mut Vec<Effect>) {
        let job = step.job;
        let welcome = wire::Welcome { node: self.me.node, dvm: self.dvm.clone(), ..Default::default() };
        send(link, down::Body::Welcome(welcome), out);
        let known = self.steps.contains_key(&job) && self.relays.contains_key(&job);
        match step.map.map(TaskMap::try_from) {
            // A job that is over, or none of ours: the step has missed its release.
            _ if !known => send(link, down::Body::Release(wire::Release { job }), out),
            Some(Ok(_)) => {
                if let Some(Some(before)) = self.steps.insert(job, Some(link)) {
                    out.push(Effect::Close { link: before });
                }
                self.on_step_attached(job, link, out);
                self.members.on_pmi_port(job, step.pmi_port);
                if let Some(kill) = self.relays.get(&job).and_then(|relay| relay.kill.clone()) {
                    send(link, down::Body::Kill(kill), out);
                }
            }
            Some(Err(_)) | None => out.push(Effect::Close { link }),
        }
    }

    fn on_node_hello(&mut self, now: Now, link: LinkId, hello: wire::NodeHello, out: &mut Vec<Effect>) {
        let mut nodes = hello.nodes;
        if nodes.is_empty() {
            out.push(Effect::Close { link });
            return;
        }
        let ours = hello.dvm == self.dvm && nodes[0].node != 0;
        if ours {
            // Who knocks again has lost the link that it had.
            let before = self.children.iter().find(|(_, child)| child.node == nodes[0].node).map(|(link, _)| *link);
            if let Some(before) = before {
                self.on_link_closed(now, before, out);
                out.push(Effect::Close { link: before });
            }
        }
        // A node that we are below ourselves would be cut off from the head together with us.
        let in_a_circle = nodes.iter().any(|node| node.node == self.me.node);
        if self.head.is_some() {
            if !ours {
                // Its children, if it has any, knock again themselves.
                nodes.truncate(1);
                nodes[0].node = 0;
            }
            if let Some(redirect) = self.admit(now, &mut nodes) {
                send(link, down::Body::Redirect(redirect), out);
                out.push(Effect::Close { link });
                return;
            }
        } else if !(ours && hello.redirected) || in_a_circle {
            let redirect = wire::Redirect {
                node: if ours { nodes[0].node } else { 0 },
                name: nodes[0].name.clone(),
                dvm: self.dvm.clone(),
                parent: 0,
                parent_addr: self.head_addr.clone(),
            };
            send(link, down::Body::Redirect(redirect), out);
            out.push(Effect::Close { link });
            return;
        }
        nodes[0].parent = self.me.node;
        let welcome = wire::Welcome {
            node: nodes[0].node,
            dvm: self.dvm.clone(),
            name: nodes[0].name.clone(),
            parent: self.me.node,
            version: rsd_proto::VERSION.into(),
        };
        self.children.insert(link, Child { node: nodes[0].node, nodes: BTreeMap::new() });
        send(link, down::Body::Welcome(welcome), out);
        self.on_nodes_up(now, link, nodes, out);
    }

    /// These nodes are below this child now, whatever was known of them before.
    pub(crate) fn on_nodes_up(&mut self, now: Now, link: LinkId, nodes: Vec<NodeInfo>, out: &mut Vec<Effect>) {
        if nodes.iter().any(|node| node.node == self.me.node) {
            // Two nodes have taken each other for parents at the same time.
            self.on_link_closed(now, link, out);
            out.push(Effect::Close { link });
            return;
        }
        if let Some(child) = self.children.get_mut(&link) {
            child.nodes.extend(nodes.iter().map(|node| (node.node, node.clone())));
        }
        self.via.extend(nodes.iter().map(|node| (node.node, link)));
        self.recount_all();
        self.announce(now, nodes, out);
    }

    fn announce(&mut self, now: Now, nodes: Vec<NodeInfo>, out: &mut Vec<Effect>) {
        if self.head.is_some() {
            self.nodes_are_up(now, nodes, out);
        } else {
            self.pass_up(Up { body: Some(up::Body::NodesUp(wire::NodesUp { nodes })) }, out);
        }
    }

    pub(crate) fn on_nodes_away(&mut self, now: Now, link: LinkId, nodes: Vec<NodeId>, out: &mut Vec<Effect>) {
        let nodes = self.drop_nodes(now, link, nodes, out);
        if nodes.is_empty() {
        } else if self.head.is_some() {
            self.nodes_are_away(now, &nodes);
        } else {
            self.pass_up(Up { body: Some(up::Body::NodesAway(wire::NodesAway { nodes })) }, out);
        }
    }

    pub(crate) fn on_nodes_gone(&mut self, now: Now, link: LinkId, nodes: Vec<NodeId>, out: &mut Vec<Effect>) {
        for child in self.children.values_mut() {
            child.nodes.retain(|node, _| !nodes.contains(node));
        }
        let nodes = self.drop_nodes(now, link, nodes, out);
        if nodes.is_empty() {
        } else if self.head.is_some() {
            self.nodes_are_lost(now, &nodes, sentences::node_stopped, out);
        } else {
            self.pass_up(Up { body: Some(up::Body::NodesGone(wire::NodesGone { nodes })) }, out);
        }
    }

    /// Forgets nodes that were reached through this link; returns those that are reached no more.
    fn drop_nodes(&mut self, now: Now, link: LinkId, nodes: Vec<NodeId>, out: &mut Vec<Effect>) -> Vec<NodeId> {
        if let Some(child) = self.children.get_mut(&link) {
            child.nodes.retain(|node, _| !nodes.contains(node));
        }
        let (mut lost, mut found) = (Vec::new(), BTreeMap::<LinkId, Vec<NodeInfo>>::new());
        let reached: Vec<NodeId> = nodes.into_iter().filter(|node| self.via.get(node) == Some(&link)).collect();
        for node in reached {
            // The account that is withdrawn may have been the older one, come late by another way.
            match self.children.iter().find_map(|(link, child)| Some((*link, child.nodes.get(&node)?.clone()))) {
                Some((other, info)) => {
                    self.via.insert(node, other);
                    found.entry(other).or_default().push(info);
                }
                None => {
                    self.via.remove(&node);
                    lost.push(node);
                }
            }
        }
        self.recount_all();
        for (other, infos) in found {
            // What was sent to them meanwhile went the wrong way.
            self.announce(now, infos, out);
            send(other, down::Body::Resync(wire::Resync {}), out);
        }
        lost
    }

    pub(crate) fn on_link_closed(&mut self, now: Now, link: LinkId, out: &mut Vec<Effect>) {
        self.relays.values_mut().for_each(|relay| relay.locations.forget_link(link));
        if let Some(child) = self.children.get(&link) {
            let nodes: Vec<NodeId> = child.nodes.keys().copied().collect();
            self.on_nodes_away(now, link, nodes, out);
            self.children.remove(&link);
            return;
        }
        let job = self.steps.iter().find(|(_, step)| **step == Some(link)).map(|(job, _)| *job);
        if let Some(job) = job {
            self.on_step_detached(job, out);
            if self.relays.contains_key(&job) {
                // It comes back, or the shell says that its process is gone.
                self.steps.insert(job, None);
            } else {
                self.steps.remove(&job);
                out.push(Effect::ForgetStep(job));
            }
        }
    }

    /// The parent took us in, for the first time or again.
    pub(crate) fn on_welcome(&mut self, now: Now, welcome: wire::Welcome, out: &mut Vec<Effect>) {
        self.become_node(now, welcome.node, welcome.name, welcome.dvm, out);
        self.me.parent = welcome.parent;
        self.parent_up = true;
        self.tell_changes(out);
        self.resync(out);
    }

    /// Tells the parent who has come and gone below since it was told who is there.
    fn tell_changes(&mut self, out: &mut Vec<Effect>) {
        let told = std::mem::take(&mut self.told);
        let nodes: Vec<NodeInfo> = self.below().filter(|node| !told.contains(&node.node)).collect();
        if !nodes.is_empty() {
            self.pass_up(Up { body: Some(up::Body::NodesUp(wire::NodesUp { nodes })) }, out);
        }
        let nodes: Vec<NodeId> = told.into_iter().filter(|node| !self.via.contains_key(node)).collect();
        if !nodes.is_empty() {
            self.pass_up(Up { body: Some(up::Body::NodesAway(wire::NodesAway { nodes })) }, out);
        }
    }

    /// The head says who we are and where to go.
    pub(crate) fn on_redirected(&mut self, now: Now, redirect: wire::Redirect, out: &mut Vec<Effect>) {
        if redirect.node == 0 {
            self.head_addr = redirect.parent_addr; // that was not the head
        } else {
            self.become_node(now, redirect.node, redirect.name, redirect.dvm, out);
            self.me.parent = redirect.parent;
        }
    }

    fn become_node(&mut self, now: Now, node: NodeId, name: String, dvm: String, out: &mut Vec<Effect>) {
        if dvm != self.dvm || node != self.me.node {
            // What is below belongs to whom we were, and has to knock again.
            out.extend(self.children.keys().map(|link| Effect::Close { link: *link }));
            let stale: Vec<JobId> = self.relays.keys().copied().collect();
            for job in stale {
                self.release(now, job, out);
            }
        }
        (self.me.node, self.me.name, self.dvm) = (node, name.clone(), dvm.clone());
        out.push(Effect::Identity { node, dvm, name });
    }

    /// The way up is new, here or above: everything unanswered goes again.
    pub(crate) fn resync(&mut self, out: &mut Vec<Effect>) {
        for (job, relay) in &mut self.relays {
            relay.forget_sent();
            let resume = wire::Resume { job: *job, map: Some((&relay.map).into()) };
            if self.parent_up {
                out.push(Effect::Up(Up { body: Some(up::Body::Resume(resume)) }));
                if let Some(exit) = relay.step_lost.clone() {
                    let failed = wire::RankFailed { job: *job, exit: Some(exit) };
                    out.push(Effect::Up(Up { body: Some(up::Body::RankFailed(failed)) }));
                }
            }
        }
        let down = Down { body: Some(down::Body::Resync(wire::Resync {})) };
        self.to_children(&down, out);
        for job in self.steps.keys() {
            self.to_step(*job, down.clone(), out);
        }
        self.resend_members(out);
    }

    /// A step that will never speak again: speaks for it.
    pub(crate) fn on_step_lost(&mut self, now: Now, job: JobId, why: String, out: &mut Vec<Effect>) {
        let Some(step) = self.steps.get_mut(&job) else { return };
        if let Some(link) = step.take() {
            out.push(Effect::Close { link });
        }
        self.drop_pmi_calls(job, out);
        let node = self.me.node;
        let Some(relay) = self.relays.get_mut(&job) else {
            self.steps.remove(&job);
            out.push(Effect::ForgetStep(job));
            return;
        };
        relay.step_gone = true;
        if relay.is_done(node) {
            return;
        }
        let exits: Vec<wire::RankExit> = lost_ranks(relay.map.ranks_on(node), node, &why);
        relay.step_lost = exits.first().cloned();
        relay.done(wire::Done { job, nodes: vec![node], exits, fences: vec![0] });
        if let Some(first) = relay.step_lost.clone() {
            let failed = wire::RankFailed { job, exit: Some(first) };
            if self.head.is_some() {
                self.on_rank_failed(now, failed, out);
            } else {
                self.pass_up(Up { body: Some(up::Body::RankFailed(failed)) }, out);
            }
        }
    }

    // --- leaving ---

    /// The parent stops the DVM.
    pub(crate) fn on_stop(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.to_children(&Down { body: Some(down::Body::Stop(wire::Stop {})) }, out);
        let jobs: Vec<JobId> = self.relays.keys().copied().collect();
        for job in jobs {
            self.release(now, job, out);
        }
        self.begin_stop(now, None);
    }

    /// Says good-bye above, sends everyone below away, and ends.
    pub(crate) fn leave(&mut self, out: &mut Vec<Effect>) {
        let Some(stopping) = self.stopping.take() else { return };
        self.dismiss_members(out);
        if self.head.is_some() {
            self.to_children(&Down { body: Some(down::Body::Stop(wire::Stop {})) }, out);
        } else {
            let gone = wire::NodesGone { nodes: vec![self.me.node] };
            self.pass_up(Up { body: Some(up::Body::NodesGone(gone)) }, out);
        }
        if let Some(req) = stopping.req {
            out.push(Effect::Answer { req, answer: crate::rsd::Answer::Stopped });
        }
        out.extend(self.children.keys().map(|link| Effect::Close { link: *link }));
        out.push(Effect::Exit);
    }

    fn recount_all(&mut self) {
        let jobs: Vec<JobId> = self.relays.keys().copied().collect();
        for job in jobs {
            self.recount(job);
        }
    }
}

/// Ranks whose end nobody saw.
pub(crate) fn lost_ranks(ranks: impl Iterator<Item = u32>, node: NodeId, why: &str) -> Vec<wire::RankExit> {
    let lost = |rank| wire::RankExit {
        rank,
        node,
        how: Some(wire::rank_exit::How::Failed(why.to_owned())),
        fatal: true,
        code: u32::from(crate::calls::exit::NODE_LOST),
        ..Default::default()
    };
    ranks.map(lost).collect()
}

fn send(link: LinkId, body: down::Body, out: &mut Vec<Effect>) {
    out.push(Effect::Down { link, down: Down { body: Some(body) } });
}
