//! Messages from above and from below, and how relays handle them.

use rsd_proto::v1::{self as wire, Down, Up, down, up};

use super::held::Outgoing;
use super::relay::Ripe;
use super::{Node, OVER_MAX, of_steps};
use crate::between::{Outputs, Report};
use crate::contract::{Effect, LinkId};
use crate::taskmap::TaskMap;
use crate::{JobId, Now, sentences};

impl Node {
    pub(crate) fn on_down(&mut self, now: Now, down: Down, out: &mut Outputs<Report>) {
        let Some(body) = down.body else { return };
        match body {
            down::Body::Launch(launch) => self.on_launch(launch, out),
            down::Body::FenceDown(fence) => {
                let Some(relay) = self.relays.get_mut(fence.job) else { return };
                let is_news = relay.fence_down(&fence);
                self.counts.passed(fence.job, fence.epoch);
                if is_news {
                    self.to_job(fence.job, down::Body::FenceDown(fence), out);
                }
            }
            down::Body::WantResult(wire::WantResult { job, epoch }) => {
                if !self.relays.get_mut(job).is_some_and(|relay| relay.want_result(epoch)) {
                    self.pass_up(up::Body::Passed(wire::Passed { job, epoch: 0 }), out);
                }
            }
            down::Body::Held(held) => {
                let to = self.relays.answered(&held);
                self.to_links(to, &Down { body: Some(down::Body::Held(held)) }, out);
            }
            down::Body::Collect(wire::Collect { job, held, again }) => {
                if let Some(relay) = self.relays.get_mut(job) {
                    relay.held.collect(held, again);
                }
            }
            down::Body::Check(wire::Check { job }) => self.on_check(job, out),
            down::Body::Locations(wire::Locations { job, ports }) => {
                if let Some(relay) = self.relays.get_mut(job) {
                    relay.locations.on_answer(relay.map.nodes(), ports);
                }
            }
            down::Body::Signal(signal) => self.to_job(signal.job, down::Body::Signal(signal), out),
            down::Body::Kill(kill) if !kill.nodes.is_empty() => self.kill_on(kill, out),
            down::Body::Kill(kill) => {
                if let Some(relay) = self.relays.get_mut(kill.job) {
                    relay.kill = Some(kill.clone());
                }
                if self.steps.contains(kill.job) {
                    self.overdue.watch(now, kill.job);
                }
                self.to_job(kill.job, down::Body::Kill(kill), out);
            }
            down::Body::Release(wire::Release { job }) => self.release(job, out),
            down::Body::NodesLost(lost) => self.to_job(lost.job, down::Body::NodesLost(lost), out),
            down::Body::Fetch(wire::Fetch { job, node, .. }) => self.send_to_steps(job, &[node], body, out),
            down::Body::WatchEnds(wire::WatchEnds { job, ref nodes }) => {
                let nodes = nodes.clone();
                self.send_to_steps(job, &nodes, body, out);
            }
            down::Body::Notify(wire::Notify { job, ref nodes, .. }) => {
                let nodes = nodes.clone();
                self.send_to_steps(job, &nodes, body, out);
            }
            down::Body::GroupState(state) => self.on_group_state(now, state, out),
            down::Body::OutputAck(wire::OutputAck { job, node, .. })
            | down::Body::Stdin(wire::Stdin { job, node, .. })
            | down::Body::NameResult(wire::NameResult { job, node, .. })
            | down::Body::SpawnResult(wire::SpawnResult { job, node, .. }) => self.to_node(job, node, body, out),
            down::Body::LoadProbe(probe) => self.on_load_probe(now, probe, out),
            down::Body::WaitProbe(probe) => self.on_wait_probe(now, probe, out),
            down::Body::Resync(_) => self.resync(out),
            down::Body::OpenPort(wire::OpenPort { node }) if node == self.me.node => out.push(Effect::OpenPort),
            down::Body::OpenPort(open) => {
                let via = self.tree.via(open.node);
                via.iter().for_each(|link| out.send(*link, down::Body::OpenPort(open)));
            }
            down::Body::Stop(_) => self.on_stop(now, out),
            down::Body::Leave(leave) => self.on_leave(now, leave, out),
            down::Body::CutOff(wire::CutOff { ms }) => self.on_cut_off(now, ms, out),
            down::Body::Ancestors(ancestors) => self.on_ancestors(ancestors, out),
            // The shell and the uplink take the first three from the stream; calls never cross daemons.
            down::Body::Welcome(_)
            | down::Body::Redirect(_)
            | down::Body::Refused(_)
            | down::Body::PmiCall(_)
            | down::Body::Ping(_)
            | down::Body::Part(_) => {}
        }
    }

    fn on_launch(&mut self, launch: wire::Launch, out: &mut Outputs<Report>) {
        // The head never sends a launch without a valid map.
        let Some(Ok(map)) = launch.map.clone().map(TaskMap::try_from) else { return };
        let job = launch.job;
        if self.stopping.is_some() && self.steps.contains(job) && !self.relays.contains(job) {
            return; // a repeat of a job that was released here, and whose step is about to end
        }
        self.epoch_begun(job, &map, &launch.group);
        let owner = launch.owner.as_ref().map(|owner| owner.uid);
        self.relay_launch(&launch, out);
        if map.count_on(self.me.node) == 0 || !self.steps.expect(job, owner) {
            return; // no ranks on this node, or a repeat after a cut link
        }
        if self.over.contains(&job) {
            // An earlier head has released it, and could not tell this one: it must not run twice.
            self.on_step_lost(job, sentences::over_before(), out);
        } else if self.stopping.is_some() {
            self.on_step_lost(job, sentences::daemon_stopping(), out);
        } else {
            self.steps.launch(job);
            out.push(Effect::StartStep(launch));
        }
    }

    /// Passes a launch on, and starts nothing here.
    pub(super) fn relay_launch(&mut self, launch: &wire::Launch, out: &mut Outputs<Report>) {
        let Some(Ok(map)) = launch.map.clone().map(TaskMap::try_from) else { return };
        self.ensure_relay(launch.job, map, launch.owner.as_ref().map(|owner| owner.uid));
        let links = self.relays.get(launch.job).map(|relay| self.tree.links_to(relay.here())).unwrap_or_default();
        self.to_links(links, &Down { body: Some(down::Body::Launch(launch.clone())) }, out);
    }

    /// Passes on an order to end a job's ranks on some nodes.
    fn kill_on(&mut self, kill: wire::Kill, out: &mut Outputs<Report>) {
        let job = kill.job;
        let mut links = self.tree.links_to(&kill.nodes);
        if kill.nodes.contains(&self.me.node) {
            links.extend(self.steps.link(job));
            if let Some(relay) = self.relays.get_mut(job) {
                relay.kill = Some(kill.clone());
            }
        }
        self.to_links(links, &Down { body: Some(down::Body::Kill(kill)) }, out);
    }

    pub(super) fn epoch_begun(&mut self, job: JobId, map: &TaskMap, group: &[u8]) {
        if !group.is_empty() && map.count_on(self.me.node) > 0 {
            self.members.epoch_begun(job, map, group);
        }
    }

    pub(super) fn ensure_relay(&mut self, job: JobId, map: TaskMap, owner: Option<u32>) {
        let here = std::iter::once(self.me.node).chain(self.tree.nodes());
        self.relays.ensure(job, map, owner, self.is_root, here);
    }

    /// Handles that the head has released a job: its step is released and nothing is kept here for the job.
    pub(super) fn release(&mut self, job: JobId, out: &mut Outputs<Report>) {
        for join in self.members.epoch_over(job) {
            self.pass_up(up::Body::GroupJoin(join), out);
        }
        self.to_job(job, down::Body::Release(wire::Release { job }), out);
        let relay = self.relays.remove(job);
        self.failures.forget(job);
        if relay.as_ref().is_some_and(|relay| relay.map.count_on(self.me.node) > 0) {
            self.over.insert(job);
            if self.over.len() > OVER_MAX {
                self.over.pop_first();
            }
        }
        self.counts.passed(job, u64::MAX);
        if relay.is_some_and(|relay| relay.step_gone) && self.steps.remove(job) {
            self.overdue.forget(job);
            out.push(Effect::ForgetStep(job));
        } // else its link closes, or it reconnects and is released, or the shell reports that its process has ended
    }

    /// Handles the head's message for a member on this node or below.
    fn on_group_state(&mut self, now: Now, state: wire::GroupState, out: &mut Outputs<Report>) {
        if state.node == self.me.node {
            let told = self.members.on_state(now, state);
            out.extend(told.map(|(member, event)| Effect::Member { member, event }));
        } else if let Some(link) = self.tree.via(state.node) {
            out.send(link, down::Body::GroupState(state));
        }
    }

    pub(crate) fn on_up(&mut self, now: Now, link: LinkId, up: Up, out: &mut Outputs<Report>) {
        let step = self.steps.job_of(link);
        let Some(body) = up.body else { return };
        let may_send = match step {
            Some(job) => of_steps::may_send(self.me.node, job, &body),
            None => self.tree.has_child(link),
        };
        if !may_send {
            return;
        }
        match body {
            up::Body::FenceUp(fence) => {
                let me = self.me.node;
                let (job, epoch) = (fence.job, fence.epoch);
                let missed = self.relays.get_mut(fence.job).and_then(|relay| match step {
                    Some(_) => relay.fence_up_of_step(link, me, fence),
                    None => relay.fence_up(fence),
                });
                if missed.is_none() && self.relays.contains(job) {
                    self.counts.entered(now.mono, job, epoch);
                }
                missed.into_iter().for_each(|fence| out.send(link, down::Body::FenceDown(fence)));
            }
            up::Body::Passed(wire::Passed { job, epoch }) => {
                let missed = self.relays.passed(job, link, epoch);
                missed.into_iter().for_each(|fence| out.send(link, down::Body::FenceDown(fence)));
            }
            up::Body::GetHeld(get) => self.relays.want(link, get, step.is_some()),
            up::Body::NodesPut(put) => {
                if let Some(relay) = self.relays.get_mut(put.job) {
                    relay.held.add(put);
                }
            }
            up::Body::Located(wire::Located { job, nodes, ports }) => {
                if let Some(relay) = self.relays.get_mut(job) {
                    relay.locations.add(nodes, ports);
                }
            }
            up::Body::Locate(wire::Locate { job }) => self.relays.ask(job, link),
            up::Body::Done(done) => {
                if self.is_root {
                    // The report of a rank's exit may have been lost in a daemon that this message did not pass.
                    let failed = wire::RankFailed { job: done.job, exit: None, others: done.exits.clone() };
                    self.on_rank_failed(now, failed, out);
                }
                if let Some(relay) = self.relays.get_mut(done.job) {
                    relay.done(done);
                }
            }
            up::Body::Resume(resume) => self.on_resume(link, resume, out),
            up::Body::NodesUp(nodes) => self.on_nodes_up(link, nodes.nodes, out),
            up::Body::NodesAway(nodes) => self.on_nodes_away(link, nodes.nodes, out),
            up::Body::NodesGone(nodes) => self.on_nodes_gone(link, nodes.nodes, out),
            up::Body::PmiResult(result) => {
                if let Some(req) = step.and_then(|job| self.pmi_calls.answered(job, result.call)) {
                    out.answer(req, crate::calls::Answer::Pmi(Box::new(result)));
                }
            }
            up::Body::Master(master) => self.members.on_master(master),
            up::Body::Waits(report) => self.asked.answered(link, report),
            up::Body::Pong(_) => {
                if let Some(job) = step {
                    self.overdue.answered(now, job);
                }
            }
            up::Body::Begun(wire::Begun { job, nodes }) => {
                if let Some(relay) = self.relays.get_mut(job) {
                    relay.begun(nodes);
                }
            }
            up::Body::RankFailed(failed) => self.on_rank_failed(now, failed, out),
            up::Body::Load(report) => self.on_loads(link, report),
            up::Body::Output(_)
            | up::Body::StdinAck(_)
            | up::Body::Notice(_)
            | up::Body::GroupJoin(_)
            | up::Body::GroupLeave(_)
            | up::Body::NameCall(_)
            | up::Body::Fetched(_)
            | up::Body::RanksEnded(_)
            | up::Body::SpawnCall(_)
            | up::Body::Missed(_) => self.pass_up(body, out),
            up::Body::Hello(_) | up::Body::Part(_) => {} // the shell handles them
        }
    }

    fn on_resume(&mut self, link: LinkId, resume: wire::Resume, out: &mut Outputs<Report>) {
        let job = resume.job;
        if self.is_root && !self.relays.contains(job) {
            // The job is unknown to the head, or the head has released it.
            return out.send(link, down::Body::Release(wire::Release { job }));
        }
        self.counts.resumed();
        let owner = self.steps.owner(job);
        let is_known = self.relays.contains(job);
        let mut resume = resume;
        match self.relays.get_mut(job) {
            Some(relay) => relay.own_by(owner),
            None => {
                let Some(Ok(map)) = resume.map.clone().map(TaskMap::try_from) else { return };
                self.ensure_relay(job, map, owner);
            }
        }
        // The daemons above know the job if this one does. The head itself is concerned only by steps.
        if is_known {
            resume.map = None;
        }
        if resume.node.is_some() || !self.is_root && !is_known {
            self.pass_up(up::Body::Resume(resume), out);
        }
    }

    /// Handles that nodes at or below this daemon may have missed a launch. A daemon that has it passes the message on. One that lacks it
    /// gets the launch, which then goes to all nodes below: without ranks of its own, it needs the launch to pass other orders on.
    fn on_check(&mut self, job: JobId, out: &mut Outputs<Report>) {
        let me = self.me.node;
        match self.relays.get(job).filter(|relay| !relay.map.has(me) || self.steps.contains(job)) {
            Some(relay) => {
                let links = self.tree.links_to(relay.here());
                self.to_links(links, &Down { body: Some(down::Body::Check(wire::Check { job })) }, out);
            }
            None => self.pass_up(up::Body::Missed(wire::Missed { job, node: me }), out),
        }
    }

    pub(super) fn advance_relays(&mut self, now: Now, out: &mut Outputs<Report>) {
        while let Some((job, ripe)) = self.relays.advance() {
            match ripe {
                Ripe::FenceUp(fence) => self.pass_up(up::Body::FenceUp(fence), out),
                Ripe::Passed { fence } => self.pass_up(up::Body::Passed(wire::Passed { job, epoch: fence }), out),
                Ripe::WantResult { to, fence } => {
                    out.send(to, down::Body::WantResult(wire::WantResult { job, epoch: fence }));
                }
                Ripe::Held(outgoing) => self.send_held(job, outgoing, out),
                Ripe::Located(located) => self.pass_up(up::Body::Located(located), out),
                Ripe::Locate => self.pass_up(up::Body::Locate(wire::Locate { job }), out),
                Ripe::Locations { to, ports } => {
                    let body = down::Body::Locations(wire::Locations { job, ports });
                    self.to_links(to, &Down { body: Some(body) }, out);
                }
                Ripe::Begun(begun) => self.pass_up(up::Body::Begun(begun), out),
                Ripe::Done(done) => {
                    self.flush_failures(now, job, out);
                    self.pass_up(up::Body::Done(done), out);
                }
                Ripe::FenceDown(fence) => {
                    self.counts.complete(now.mono, job, fence.epoch);
                    let Some(relay) = self.relays.get(job) else { continue };
                    let links = self.tree.links_to(relay.here()).into_iter().chain(self.steps.link(job));
                    let lacking: Vec<LinkId> = links.filter(|link| !relay.offers.has(*link, fence.epoch)).collect();
                    self.to_links(lacking, &Down { body: Some(down::Body::FenceDown(fence)) }, out);
                }
                Ripe::TooLarge { fence, bytes } => self.refuse_fence(job, fence, bytes, out),
                Ripe::Stuck { rank, fence } => out.send_message(Report::Stuck { job, rank, fence }),
                Ripe::Over { exits, usage } => out.send_message(Report::Over { job, exits, usage }),
            }
        }
    }

    fn send_held(&mut self, job: JobId, outgoing: Outgoing, out: &mut Outputs<Report>) {
        match outgoing {
            Outgoing::Answer { to, answer } => self.to_links(to, &Down { body: Some(down::Body::Held(answer)) }, out),
            Outgoing::Ask(get) => self.pass_up(up::Body::GetHeld(get), out),
            Outgoing::Collected(put) => self.pass_up(up::Body::NodesPut(put), out),
            Outgoing::Collect { nodes, held, again } => {
                let me = self.me.node;
                let mut links = self.tree.links_to(&nodes);
                let own = self.steps.link(job).filter(|_| nodes.contains(&me));
                links.extend(own);
                let order = down::Body::Collect(wire::Collect { job, held, again });
                self.to_links(links, &Down { body: Some(order) }, out);
                let has_step = self.steps.contains(job);
                if let Some(relay) = self.relays.get_mut(job).filter(|_| nodes.contains(&me))
                    && (relay.step_gone || !has_step)
                {
                    // What its ranks have put is lost.
                    relay.held.add(wire::NodesPut { job, held, nodes: vec![me], puts: Vec::new() });
                }
            }
            Outgoing::TooLarge { .. } => {} // the relay reports it
        }
    }

    /// Reports that a job cannot complete a fence, because of the limit on what this daemon keeps for its user. The head ends the job.
    fn refuse_fence(&mut self, job: JobId, fence: u64, bytes: u64, out: &mut Outputs<Report>) {
        let Some(relay) = self.relays.get(job) else { return };
        let first = relay.map.nodes().first().copied();
        let ranks = first.and_then(|node| Some((node, relay.map.ranks_on(node).next()?)));
        let Some((node, rank)) = ranks else { return };
        let exit = sentences::fence_too_large(rank, node, fence, bytes);
        self.pass_up(up::Body::RankFailed(wire::RankFailed { job, exit: Some(exit), others: Vec::new() }), out);
    }
}
