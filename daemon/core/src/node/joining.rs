//! How daemons and steps attach, disconnect, reconnect and leave.

use std::net::IpAddr;
use std::time::Duration;

use rsd_proto::v1::{self as wire, Down, NodeInfo, down, hello::Who, up};

use super::{Node, STOP_DEADLINE, Stopping, members};
use crate::addresses::{self, machine_of};
use crate::between::{Loss, Outputs, Report};
use crate::calls::Answer;
use crate::contract::{Approach, Effect, HEAD, LinkId, ReqId, in_ms, may_be_namespace};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, sentences};

/// Returns where the head is, which is the last of the daemons above.
pub(super) fn addresses_of_head(above: &[wire::Ancestor]) -> Vec<String> {
    above.iter().rev().find(|above| above.node == HEAD).map(|head| head.addresses.clone()).unwrap_or_default()
}

/// Where standbys will be the head.
#[derive(Debug)]
pub(super) enum Standbys {
    /// The head is in this daemon, and knows them.
    Here(Vec<NodeInfo>),
    /// The parent has told their addresses.
    Told(Vec<wire::Ancestor>),
}

impl Node {
    pub(crate) fn on_hello(&mut self, now: Now, link: LinkId, hello: wire::Hello, uid: u32, out: &mut Outputs<Report>) {
        match hello.who {
            Some(Who::Step(step)) => self.on_step_hello(now, link, step, uid, out),
            Some(Who::Node(node)) if self.stopping.is_none() => self.on_node_hello(now, link, node, out),
            Some(Who::Node(_)) | None => out.push(Effect::Close { link }),
        }
    }

    fn on_step_hello(&mut self, now: Now, link: LinkId, step: wire::StepHello, uid: u32, out: &mut Outputs<Report>) {
        let job = step.job;
        let welcome = wire::Welcome { node: self.me.node, dvm: self.dvm.clone(), ..Default::default() };
        out.send(link, down::Body::Welcome(welcome));
        // To a process of another user, the job does not exist. And a step of another DVM, to which this daemon belonged before, may have
        // the number of a job of this one.
        let ours = self.steps.is_of(job, uid)
            && (may_be_namespace(&step.namespace, &self.dvm, job) || self.members.are_of(job, &step.namespace));
        let known = ours && self.relays.contains(job);
        match step.map.map(TaskMap::try_from) {
            // The job is over or unknown: the step has missed its release.
            _ if !known => out.send(link, down::Body::Release(wire::Release { job })),
            Some(Ok(_)) => {
                self.overdue.attached(job, step.pid);
                if let Some(before) = self.steps.attach(job, link) {
                    out.push(Effect::Close { link: before });
                }
                let refused = self.pmi_calls.detached(job);
                self.refuse_pmi_calls(job, refused, out);
                for body in self.pmi_calls.attached(job) {
                    out.send(link, body);
                }
                self.members.on_pmi_port(job, step.pmi_port);
                self.send_cut_off(now, link, out);
                if let Some(kill) = self.relays.get(job).and_then(|relay| relay.kill.clone()) {
                    out.send(link, down::Body::Kill(kill));
                }
                for body in self.steps.take_held(job) {
                    out.send(link, body);
                }
                let me = self.me.node;
                if let Some(relay) = self.relays.get_mut(job) {
                    relay.held.on_moved(me);
                }
            }
            Some(Err(_)) | None => out.push(Effect::Close { link }),
        }
    }

    fn on_node_hello(&mut self, now: Now, link: LinkId, hello: wire::NodeHello, out: &mut Outputs<Report>) {
        let mut nodes = hello.nodes;
        if nodes.is_empty() {
            return out.push(Effect::Close { link });
        }
        let ours = hello.dvm == self.dvm && nodes[0].node != 0;
        if ours && nodes[0].node == self.me.node {
            // Its own address, or a circle of daemons that name each other as the DVM to join.
            out.send(link, down::Body::Refused(wire::Refused { why: sentences::joins_itself() }));
            return out.push(Effect::Close { link });
        }
        if ours && let Some(before) = self.tree.link_of_child(nodes[0].node) {
            // A child that dials again has lost its previous link.
            self.on_link_closed(before, out);
            out.push(Effect::Close { link: before });
        }
        if let Some(later) = hello.epoch.filter(|epoch| epoch.number > self.epoch.number) {
            // The child is right not to obey this daemon, which has obeyed a head that is none any more.
            self.learn_epoch(later, out);
            return out.push(Effect::Close { link });
        }
        let has_room = self.tree.children_len() < self.arity;
        // If this node is below the child, a link would cut off both from the head.
        let in_a_circle = nodes.iter().any(|node| node.node == self.me.node);
        if self.is_root {
            if !ours {
                // Its children, if any, dial again.
                nodes.truncate(1);
                nodes[0].node = 0;
            }
            return out.send_message(Report::Knock { link, nodes, has_room, unreachable: hello.unreachable });
        }
        // Without room, the head knows where an orphan finds some.
        let welcome = ours && (hello.redirected || hello.orphan && has_room);
        if !welcome || in_a_circle {
            let redirect = wire::Redirect {
                node: if ours { nodes[0].node } else { 0 },
                name: nodes[0].name.clone(),
                dvm: self.dvm.clone(),
                parent: 0,
                parent_addrs: self.usable_from(machine_of(&nodes[0]), &self.head_addrs),
                reached: nodes[0].reached.clone(),
            };
            out.send(link, down::Body::Redirect(redirect));
            return out.push(Effect::Close { link });
        }
        self.admit(now, link, nodes, out);
    }

    /// Accepts a child, the first of `nodes`.
    pub(super) fn admit(&mut self, now: Now, link: LinkId, mut nodes: Vec<NodeInfo>, out: &mut Outputs<Report>) {
        let Some(child) = nodes.first_mut() else { return };
        child.parent = self.me.node;
        let welcome = wire::Welcome {
            node: child.node,
            dvm: self.dvm.clone(),
            name: child.name.clone(),
            parent: self.me.node,
            version: rsd_proto::VERSION.into(),
            reached: child.reached.clone(),
            epoch: self.epoch.number,
        };
        let child_machine = machine_of(child);
        self.tree.add_child(link, child.node);
        out.send(link, down::Body::Welcome(welcome));
        out.send(link, self.ancestors_for(child_machine));
        self.send_cut_off(now, link, out);
        self.on_nodes_up(link, nodes, out);
    }

    /// Returns the message that names the daemons above a child on this machine.
    fn ancestors_for(&self, machine: &str) -> down::Body {
        let ancestor = |node, addresses| wire::Ancestor { node, addresses, ..wire::Ancestor::default() };
        let me = ancestor(self.me.node, addresses::dialable(&self.me, machine));
        let above = self.above.iter().map(|above| ancestor(above.node, self.usable_from(machine, &above.addresses)));
        let above = std::iter::once(me).chain(above).collect();
        let standbys = match &self.standbys {
            Standbys::Here(heads) => {
                let seen = heads.iter().map(|head| addresses::of_standby(head, machine));
                seen.filter(|standby| !standby.addresses.is_empty()).collect()
            }
            Standbys::Told(told) => {
                let usable = |told: &wire::Ancestor| wire::Ancestor {
                    addresses: self.usable_from(machine, &told.addresses),
                    daemon: self.usable_from(machine, &told.daemon),
                    ..told.clone()
                };
                told.iter().map(usable).collect()
            }
        };
        let epoch = Some(self.epoch.clone());
        down::Body::Ancestors(wire::Ancestors { dvm: self.dvm.clone(), above, epoch, standbys })
    }

    /// Handles that the head here is this one, with these standbys.
    pub(super) fn on_reign(&mut self, epoch: wire::HeadEpoch, standbys: Vec<NodeInfo>, out: &mut Outputs<Report>) {
        self.epoch = epoch;
        self.standbys = Standbys::Here(standbys);
        self.tell_children(out);
    }

    fn tell_children(&self, out: &mut Outputs<Report>) {
        for child in self.tree.children() {
            out.send(child.link, self.ancestors_for(machine_of(&child.info)));
        }
    }

    /// Handles that there is a head with a higher epoch than the one that this daemon obeys.
    fn learn_epoch(&mut self, later: wire::HeadEpoch, out: &mut Outputs<Report>) {
        if self.is_root {
            return out.push(Effect::StepDown(later));
        }
        self.epoch = later;
        self.keep_ancestors(out);
    }

    fn keep_ancestors(&self, out: &mut Outputs<Report>) {
        let standbys = match &self.standbys {
            Standbys::Here(_) => Vec::new(),
            Standbys::Told(told) => told.clone(),
        };
        let (dvm, above, epoch) = (self.dvm.clone(), self.above.clone(), Some(self.epoch.clone()));
        out.push(Effect::Ancestors(wire::Ancestors { dvm, above, epoch, standbys }));
    }

    /// Returns those of the addresses that lead to the same daemon from this machine. A loopback address leads there only if this
    /// daemon, which uses it, is on the same machine.
    fn usable_from(&self, machine: &str, addresses: &[String]) -> Vec<String> {
        let same = !machine.is_empty() && machine_of(&self.me) == machine;
        addresses.iter().filter(|address| same || !addresses::is_loopback(address)).cloned().collect()
    }

    /// Handles that the daemons above this one are these, its parent first. The uplink passes on only those of a head that is not too old.
    pub(super) fn on_ancestors(&mut self, ancestors: wire::Ancestors, out: &mut Outputs<Report>) {
        let wire::Ancestors { mut above, epoch, standbys, .. } = ancestors;
        let epoch = epoch.filter(|epoch| epoch.number > self.epoch.number);
        if epoch.is_some() {
            self.head_addrs = addresses_of_head(&above);
        }
        let epoch = epoch.unwrap_or_else(|| self.epoch.clone());
        // The head may not know at which address others reach it.
        if let Some(head) = above.first_mut().filter(|parent| parent.node == HEAD) {
            let new: Vec<String> =
                self.head_addrs.iter().filter(|address| !head.addresses.contains(address)).cloned().collect();
            head.addresses.extend(new);
        }
        let are_known = matches!(&self.standbys, Standbys::Told(told) if *told == standbys);
        if above == self.above && epoch == self.epoch && are_known {
            return;
        }
        (self.above, self.epoch, self.standbys) = (above, epoch, Standbys::Told(standbys));
        self.keep_ancestors(out);
        self.tell_children(out);
    }

    /// Records that these nodes are below this child now, and no longer where they were.
    pub(super) fn on_nodes_up(&mut self, link: LinkId, nodes: Vec<NodeInfo>, out: &mut Outputs<Report>) {
        if nodes.iter().any(|node| node.node == self.me.node) {
            // Two nodes have chosen each other as parents at the same time.
            self.on_link_closed(link, out);
            return out.push(Effect::Close { link });
        }
        self.tree.add_nodes(link, &nodes);
        self.recount(&nodes.iter().map(|node| node.node).collect::<Vec<_>>());
        self.pass_up(up::Body::NodesUp(wire::NodesUp { nodes }), out);
    }

    pub(super) fn on_nodes_away(&mut self, link: LinkId, nodes: Vec<NodeId>, out: &mut Outputs<Report>) {
        let nodes = self.withdraw(link, nodes, out);
        if !nodes.is_empty() {
            self.pass_up(up::Body::NodesAway(wire::NodesAway { nodes }), out);
        }
    }

    pub(super) fn on_nodes_gone(&mut self, link: LinkId, nodes: Vec<NodeId>, out: &mut Outputs<Report>) {
        self.tree.forget(&nodes);
        let nodes = self.withdraw(link, nodes, out);
        if !nodes.is_empty() {
            self.pass_up(up::Body::NodesGone(wire::NodesGone { nodes }), out);
        }
    }

    /// Forgets nodes that were reached through this link. Returns the nodes that no other child reaches.
    fn withdraw(&mut self, link: LinkId, nodes: Vec<NodeId>, out: &mut Outputs<Report>) -> Vec<NodeId> {
        let withdrawn = self.tree.withdraw(link, &nodes);
        self.recount(&nodes);
        for (other, nodes) in withdrawn.found {
            // Messages sent to them in the meantime went to the wrong child.
            self.pass_up(up::Body::NodesUp(wire::NodesUp { nodes }), out);
            out.send(other, down::Body::Resync(wire::Resync {}));
        }
        withdrawn.lost
    }

    fn recount(&mut self, nodes: &[NodeId]) {
        let (me, tree) = (self.me.node, &self.tree);
        self.relays.recount(nodes, |node| node == me || tree.via(node).is_some());
    }

    pub(crate) fn on_link_closed(&mut self, link: LinkId, out: &mut Outputs<Report>) {
        self.relays.forget_link(link);
        self.asked.forget_link(self.me.node, link);
        self.loads.forget_link(link);
        if self.tree.has_child(link) {
            self.on_nodes_away(link, self.tree.nodes_of(link), out);
            return self.tree.remove_child(link);
        }
        let Some(job) = self.steps.job_of(link) else {
            if self.is_root {
                out.send_message(Report::Withdrawn { link });
            }
            return;
        };
        let comes_back = self.relays.contains(job);
        let refused = if comes_back { self.pmi_calls.detached(job) } else { self.pmi_calls.step_gone(job) };
        self.refuse_pmi_calls(job, refused, out);
        if comes_back {
            // The step reconnects, or the shell reports that its process has ended.
            self.steps.detach(job);
        } else {
            self.overdue.forget(job);
            self.steps.remove(job);
            out.push(Effect::ForgetStep(job));
        }
    }

    // --- the parent ---

    /// Returns the first message to a parent.
    pub(crate) fn hello(&mut self, approach: Approach) -> wire::Hello {
        let nodes = std::iter::once(self.me.clone()).chain(self.tree.report()).collect();
        let Approach { redirected, orphan, unreachable } = approach;
        let (dvm, connect_back) = (self.dvm.clone(), self.connect_back.into());
        let epoch = Some(self.epoch.clone()).filter(|epoch| epoch.number > 0);
        let node = wire::NodeHello { nodes, dvm, redirected, orphan, unreachable, connect_back, epoch };
        wire::Hello { version: rsd_proto::VERSION.into(), who: Some(Who::Node(node)) }
    }

    /// Handles that the parent has accepted this daemon, for the first time or again.
    pub(crate) fn on_welcome(&mut self, welcome: wire::Welcome, out: &mut Outputs<Report>) {
        self.on_reached(welcome.reached);
        self.become_node(welcome.node, welcome.name, welcome.dvm, out);
        self.me.parent = welcome.parent;
        self.parent_up = true;
        self.counts.welcomed();
        let (nodes, gone) = self.tree.changes();
        if !nodes.is_empty() {
            self.pass_up(up::Body::NodesUp(wire::NodesUp { nodes }), out);
        }
        if !gone.is_empty() {
            self.pass_up(up::Body::NodesAway(wire::NodesAway { nodes: gone }), out);
        }
        self.resync(out);
    }

    pub(crate) fn on_parent_lost(&mut self, now: Now, out: &mut Outputs<Report>) {
        self.parent_up = false;
        self.on_cut_off(now, 0, out);
    }

    /// Handles that the way to the head has been cut for this long.
    pub(super) fn on_cut_off(&mut self, now: Now, ms: u64, out: &mut Outputs<Report>) {
        self.cut_off_since.get_or_insert(now.mono.saturating_sub(Duration::from_millis(ms)));
        for link in self.tree.links().chain(self.steps.attached()).collect::<Vec<_>>() {
            self.send_cut_off(now, link, out);
        }
    }

    /// Tells a child or a step for how long the way to the head has been cut, if it is.
    fn send_cut_off(&self, now: Now, link: LinkId, out: &mut Outputs<Report>) {
        if let Some(since) = self.cut_off_since {
            let ms = in_ms(now.mono.saturating_sub(since));
            out.send(link, down::Body::CutOff(wire::CutOff { ms }));
        }
    }

    /// Handles a redirect. The head sends this daemon's id and name and the parent to dial; another daemon sends the head's
    /// address.
    pub(crate) fn on_redirected(&mut self, redirect: wire::Redirect, out: &mut Outputs<Report>) {
        // Daemons that name each other as the one to join would send each other back and forth.
        if redirect.parent == HEAD && !redirect.parent_addrs.contains(&self.me.listen) {
            self.head_addrs.clone_from(&redirect.parent_addrs);
        }
        self.on_reached(redirect.reached);
        if redirect.node != 0 {
            self.become_node(redirect.node, redirect.name, redirect.dvm, out);
            self.me.parent = redirect.parent;
        }
    }

    /// Takes the result of the connection back, of which there is one.
    fn on_reached(&mut self, reached: Option<String>) {
        if reached.is_some() {
            self.me.reached = reached;
        }
        self.connect_back = 0;
    }

    /// Handles that this daemon has opened a port for children.
    pub(crate) fn on_port_opened(&mut self, listen: String, out: &mut Outputs<Report>) {
        self.me.listen = listen;
        self.pass_up(up::Body::NodesUp(wire::NodesUp { nodes: vec![self.me.clone()] }), out);
    }

    /// Handles that a daemon on another machine has reached the head: the first address that works so is the best one.
    pub(crate) fn on_reached_at(&mut self, ip: IpAddr, out: &mut Outputs<Report>) {
        if self.is_root && self.me.reached.is_none() && !ip.is_loopback() {
            self.me.reached = Some(ip.to_string());
            self.pass_up(up::Body::NodesUp(wire::NodesUp { nodes: vec![self.me.clone()] }), out);
        }
    }

    fn become_node(&mut self, node: NodeId, name: String, dvm: String, out: &mut Outputs<Report>) {
        if dvm != self.dvm {
            self.over.clear();
            self.epoch = wire::HeadEpoch::default();
            self.standbys = Standbys::Told(Vec::new());
        }
        if dvm != self.dvm || node != self.me.node {
            self.above.clear();
            // The children belong to this daemon's previous node id and must dial again.
            out.extend(self.tree.links().map(|link| Effect::Close { link }));
            for job in self.relays.jobs() {
                self.release(job, out);
            }
        }
        (self.me.node, self.me.name, self.dvm) = (node, name.clone(), dvm.clone());
        let reached = self.me.reached.clone();
        out.push(Effect::Identity { node, dvm, name, reached });
    }

    /// Sends everything unanswered again, because the way to the head has changed, here or above.
    pub(super) fn resync(&mut self, out: &mut Outputs<Report>) {
        self.cut_off_since = None;
        for job in self.relays.jobs() {
            let Some(relay) = self.relays.get_mut(job) else { continue };
            relay.forget_sent();
            let resume = wire::Resume { job, map: Some((&relay.map).into()), ..Default::default() };
            let lost = relay.step_lost.clone();
            self.pass_up(up::Body::Resume(resume), out);
            if lost.is_some() {
                self.pass_up(up::Body::RankFailed(wire::RankFailed { job, exit: lost, others: Vec::new() }), out);
            }
        }
        let links = self.tree.links().chain(self.steps.attached());
        self.to_links(links, &Down { body: Some(down::Body::Resync(wire::Resync {})) }, out);
        for join in self.members.joins() {
            let join = wire::GroupJoin { node: self.me.node, ..join.clone() };
            self.pass_up(up::Body::GroupJoin(join), out);
        }
    }

    // --- ends ---

    /// Handles the end of a step's process. If its ranks' exits are unreported, this daemon reports them.
    pub(crate) fn on_step_lost(&mut self, job: JobId, why: String, out: &mut Outputs<Report>) {
        if !self.steps.contains(job) {
            return;
        }
        self.overdue.forget(job);
        if let Some(link) = self.steps.detach(job) {
            out.push(Effect::Close { link });
        }
        let refused = self.pmi_calls.step_gone(job);
        self.refuse_pmi_calls(job, refused, out);
        let node = self.me.node;
        let Some(relay) = self.relays.get_mut(job) else {
            self.steps.remove(job);
            return out.push(Effect::ForgetStep(job));
        };
        relay.step_gone = true;
        relay.held.on_moved(node);
        if relay.is_done(node) {
            return;
        }
        let exits = sentences::lost_ranks(relay.map.ranges_on(node), node, &why);
        let first = exits.first().cloned();
        relay.step_lost = first.clone();
        relay.done(wire::Done { job, nodes: vec![node], exits, fences: vec![0], usage: Vec::new() });
        if first.is_some() {
            self.pass_up(up::Body::RankFailed(wire::RankFailed { job, exit: first, others: Vec::new() }), out);
        }
    }

    /// Stops waiting for these nodes to report the exits of a job's ranks, as the head orders.
    pub(super) fn give_up(
        &mut self,
        job: JobId,
        nodes: Vec<NodeId>,
        why: String,
        loss: Loss,
        out: &mut Outputs<Report>,
    ) {
        let Some(relay) = self.relays.get_mut(job) else { return };
        let mut nodes = nodes;
        nodes.retain(|node| relay.lose(*node, loss));
        out.send_message(Report::GivenUp { job, nodes, why });
    }

    /// Handles the parent's order to stop the DVM.
    pub(super) fn on_stop(&mut self, now: Now, out: &mut Outputs<Report>) {
        self.to_links(self.tree.links(), &Down { body: Some(down::Body::Stop(wire::Stop {})) }, out);
        for job in self.relays.jobs() {
            self.release(job, out);
        }
        self.begin_stop(now, None, Vec::new());
    }

    /// Sends the children to the daemon above, before this daemon stops.
    pub(super) fn hand_over(&mut self, out: &mut Outputs<Report>) {
        for child in self.tree.children() {
            let usable = |addresses: &[String]| self.usable_from(machine_of(&child.info), addresses);
            let mut above = self.above.iter().map(|above| (above.node, usable(&above.addresses)));
            let above = above.find(|(_, addresses)| !addresses.is_empty());
            let (parent, parent_addrs) = above.unwrap_or_else(|| (HEAD, usable(&self.head_addrs)));
            let redirect = wire::Redirect {
                node: child.info.node,
                name: child.info.name,
                dvm: self.dvm.clone(),
                parent,
                parent_addrs,
                reached: None,
            };
            out.send(child.link, down::Body::Redirect(redirect));
            out.push(Effect::Close { link: child.link });
            self.on_link_closed(child.link, out);
        }
    }

    pub(super) fn begin_stop(&mut self, now: Now, req: Option<ReqId>, unreached: Vec<String>) {
        self.stopping.get_or_insert(Stopping { req, unreached, deadline: now.mono + STOP_DEADLINE });
    }

    /// Ends this daemon if it is stopping and its jobs are over or the deadline has passed; notifies the parent and the children.
    pub(crate) fn leave_if_stopped(&mut self, now: Now, out: &mut Outputs<Report>) {
        self.settle_asked_to_stop(now, out);
        let idle = self.steps.is_empty() && self.relays.is_empty();
        let Some(stopping) = self.stopping.take_if(|stopping| idle || stopping.deadline <= now.mono) else { return };
        out.extend(self.members.dismiss().map(|member| Effect::Member { member, event: members::stopping() }));
        if self.is_root {
            self.to_links(self.tree.links(), &Down { body: Some(down::Body::Stop(wire::Stop {})) }, out);
        } else {
            self.pass_up(up::Body::NodesGone(wire::NodesGone { nodes: vec![self.me.node] }), out);
        }
        if let Some(req) = stopping.req {
            out.answer(req, Answer::Stopping { unreached: stopping.unreached });
        }
        out.extend(self.tree.links().map(|link| Effect::Close { link }));
        out.push(Effect::Exit);
    }
}
