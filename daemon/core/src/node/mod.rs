//! A node's part of a daemon, which every daemon has. A node of the tree passes jobs down, and their fences, output and exits up.
//!
//! A node has a parent. At the root of the tree the parent is the head, which gets [`Report`]s instead of messages on a stream.
//!
//! - [`tree`]: children, and the nodes below them. [`joining`]: how daemons and steps attach, disconnect, reconnect and leave.
//! - [`relay`]: a job in this daemon; [`relays`]: all of them; [`locations`]: where a job's ranks listen;
//!   [`gathered`]: facts about nodes; [`offers`]: results of fences that only others have; [`held`]: results that do not go to all nodes,
//!   and [`puts`], their keys; [`failures`]: failures of ranks, collected.
//! - [`steps`]: the steps of this node. [`pmi_calls`]: requests of its ranks over gRPC. [`members`]: its processes that wait for
//!   a place in a group.
//!   [`overdue`]: steps that must end their ranks and may hang.
//! - [`counts`]: what this node counts, for its metrics.
//! - [`passing`]: messages from below and from above. [`of_steps`]: what a step may send. [`waits`], [`asked`]: requests for what
//!   ranks wait for; [`loads`]: for the loads of nodes.

mod asked;
mod counts;
mod failures;
mod gathered;
mod held;
mod joining;
mod loads;
mod locations;
mod members;
mod of_steps;
mod offers;
mod overdue;
mod passing;
mod pmi_calls;
mod puts;
mod relay;
mod relays;
mod steps;
mod tree;
mod waits;

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_proto::v1::{self as wire, Down, NodeInfo, Up, down, up};

use crate::between::{Order, Outputs, Report};
use crate::calls::{Caller, PmiOp, Refused, exit};
use crate::contract::{Effect, KnownStep, LinkId, MemberId, ReqId, Start, may_be_namespace};
use crate::{JobId, NodeId, Now, STOP_PATIENCE, Tuning, sentences};

use asked::Asked;
use counts::Counts;
use failures::Failures;
use joining::Standbys;
use loads::Loads;
use members::{Members, Settled};
use overdue::{Due, Overdue};
use pmi_calls::PmiCalls;
use relays::Relays;
use steps::Steps;
use tree::Tree;

/// How many jobs that are over a node remembers.
const OVER_MAX: usize = 4096;
/// How long a daemon waits for its jobs after a forced stop.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// A node of the tree.
#[derive(Debug)]
pub(crate) struct Node {
    me: NodeInfo,
    dvm: String,
    /// The head's addresses, for daemons that dial this daemon by mistake.
    head_addrs: Vec<String>,
    /// Whether the head, in this daemon, is its parent.
    is_root: bool,
    /// The port on which this daemon listens until it has joined; 0: none.
    connect_back: u16,
    parent_up: bool,
    /// Since when there is no way to the head; None: there is one.
    cut_off_since: Option<Duration>,
    /// The daemons above this one: its parent first, the head last.
    above: Vec<wire::Ancestor>,
    /// The highest epoch of a head that this daemon has heard of: the one that it obeys.
    epoch: wire::HeadEpoch,
    standbys: Standbys,
    arity: usize,
    tree: Tree,
    relays: Relays,
    steps: Steps,
    pmi_calls: PmiCalls,
    members: Members,
    asked: Asked,
    loads: Loads,
    failures: Failures,
    overdue: Overdue,
    counts: Counts,
    /// The last jobs whose steps here were released.
    over: BTreeSet<JobId>,
    stopping: Option<Stopping>,
    /// A request to stop this daemon, without force, that waits for jobs that may be ending, and until when.
    asked_to_stop: Option<(ReqId, Duration)>,
}

/// Set when the daemon must end: after its jobs, or at the deadline.
#[derive(Debug)]
struct Stopping {
    req: Option<ReqId>,
    /// For the answer: the nodes that do not know that the DVM is being stopped.
    unreached: Vec<String>,
    deadline: Duration,
}

impl Node {
    pub(crate) fn new(now: Now, start: Start, tuning: Tuning) -> Node {
        let Start { me, dvm, head_addr, above, epoch, standbys, connect_back, steps, .. } = start;
        let is_root = head_addr.is_none();
        // What the user has said may be older than a head that has taken over.
        let told = if epoch.number > 0 { joining::addresses_of_head(&above) } else { Vec::new() };
        let head_addrs = if told.is_empty() { head_addr.into_iter().collect() } else { told };
        let mut node = Node {
            me,
            dvm,
            head_addrs,
            is_root,
            connect_back,
            parent_up: false,
            cut_off_since: (!is_root).then_some(now.mono),
            above,
            epoch,
            standbys: if is_root { Standbys::Here(Vec::new()) } else { Standbys::Told(standbys) },
            arity: tuning.arity,
            tree: Tree::default(),
            relays: Relays::new(tuning.replicated_max),
            steps: Steps::default(),
            pmi_calls: PmiCalls::default(),
            members: Members::default(),
            asked: Asked::default(),
            loads: Loads::default(),
            failures: Failures::default(),
            overdue: Overdue::default(),
            counts: Counts::default(),
            over: BTreeSet::new(),
            stopping: None,
            asked_to_stop: None,
        };
        for KnownStep { job, map, group, owner } in steps {
            let owner = owner.map(|owner| owner.uid);
            node.steps.expect(job, owner);
            if !is_root {
                node.epoch_begun(job, &map, &group);
                node.ensure_relay(job, map, owner);
            } // else the step is released when it attaches, unless the head has kept its job
        }
        node
    }

    pub(crate) fn id(&self) -> NodeId {
        self.me.node
    }

    pub(crate) fn step_links(&self) -> Vec<LinkId> {
        self.steps.attached().collect()
    }

    /// Handles an order of the head.
    pub(crate) fn on_order(&mut self, now: Now, order: Order, out: &mut Outputs<Report>) {
        match order {
            Order::Down(body) => self.on_down(now, Down { body: Some(body) }, out),
            Order::Repeat { nodes, body } => {
                self.to_links(self.tree.links_to(&nodes), &Down { body: Some(body) }, out);
            }
            Order::LaunchElsewhere(launch) => self.relay_launch(&launch, out),
            Order::Reign { epoch, standbys } => self.on_reign(epoch, standbys, out),
            Order::GiveUp { job, nodes, why, loss } => self.give_up(job, nodes, why, loss, out),
            Order::Admit { link, nodes } => self.admit(now, link, nodes, out),
            Order::Redirect { link, redirect } => {
                out.send(link, down::Body::Redirect(redirect));
                out.push(Effect::Close { link });
            }
            Order::Stop { req, unreached } => self.begin_stop(now, Some(req), unreached),
        }
    }

    /// Forwards everything that is ready, and settles members whose answer has arrived or is overdue.
    pub(crate) fn settle(&mut self, now: Now, out: &mut Outputs<Report>) {
        self.advance_relays(now, out);
        self.settle_asked(now, out);
        self.settle_loads(now, out);
        self.settle_failures(now, out);
        self.watch_steps(now, out);
        if self.members.next_deadline().is_none_or(|at| at > now.mono) {
            return;
        }
        let about = self.me.inventory.clone().unwrap_or_default();
        for settled in self.members.settle(now, self.me.node, &about) {
            match settled {
                Settled::Go(member, go) => out.push(Effect::Member { member, event: rsd_proto::join::Event::Go(go) }),
                Settled::Silent(member, join) => {
                    self.send_leave(*join, out);
                    out.push(Effect::Member { member, event: members::head_is_silent() });
                }
            }
        }
    }

    /// Returns the latest time at which [`Node::settle`] must be called.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let stopping = self.stopping.as_ref().map(|stopping| stopping.deadline);
        let of_steps = self.members.next_deadline().into_iter().chain(self.overdue.next_deadline());
        let requests = self.asked.next_deadline().into_iter().chain(self.loads.next_deadline());
        let asked = self.asked_to_stop.map(|(_, end)| end);
        stopping.into_iter().chain(asked).chain(of_steps).chain(requests).chain(self.failures.next_deadline()).min()
    }

    /// Asks steps that must end their ranks whether they still run, and gives up those that do not answer.
    fn watch_steps(&mut self, now: Now, out: &mut Outputs<Report>) {
        while let Some(due) = self.overdue.next(now) {
            match due {
                Due::Ask(job) => {
                    let link = self.steps.link(job);
                    link.iter().for_each(|link| out.send(*link, down::Body::Ping(wire::Ping { job })));
                }
                Due::GiveUp { job, pid } => out.push(Effect::KillStep { job, pid, uid: self.steps.owner(job) }),
            }
        }
    }

    /// Describes the entries that are still kept for jobs, for tests.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let steps = self.steps.jobs().map(|job| format!("step of job {job}"));
        let asked = self.pmi_calls.leftovers().chain(self.asked.leftovers()).chain(self.loads.leftovers());
        let of_steps = steps.chain(self.members.leftovers()).chain(self.overdue.leftovers());
        of_steps.chain(self.relays.leftovers()).chain(asked).collect()
    }

    // --- clients' requests ---

    pub(crate) fn status(&self) -> wire::StatusReply {
        wire::StatusReply {
            dvm: self.dvm.clone(),
            name: self.me.name.clone(),
            node: self.me.node,
            head: self.is_root,
            version: rsd_proto::VERSION.into(),
            pid: self.me.pid,
            listen: self.me.listen.clone(),
            parent: self.head_addrs.first().cloned().unwrap_or_default(),
            connected: self.parent_up,
            slots: self.me.inventory.as_ref().map_or(0, |inventory| inventory.slots),
            jobs: self.steps.len() as u32,
            inventory: self.me.inventory.clone(),
            ..Default::default()
        }
    }

    /// Handles a client's request to stop this daemon, which is not the head.
    pub(crate) fn on_shutdown(&mut self, now: Now, req: ReqId, force: bool, out: &mut Outputs<Report>) {
        let busy: Vec<JobId> = self.steps.jobs().collect();
        if !busy.is_empty() && !force {
            if self.asked_to_stop.is_none() {
                self.asked_to_stop = Some((req, now.mono + STOP_PATIENCE));
                return;
            }
            return out.refuse(req, sentences::jobs_are_running(&busy));
        }
        if let Some((asked, _)) = self.asked_to_stop.take() {
            out.refuse(asked, sentences::jobs_are_running(&busy));
        }
        self.stop_alone(now, Some(req), out);
    }

    /// Answers a client's request to stop this daemon that waits for jobs, as soon as they have ended here or the deadline has passed.
    pub(super) fn settle_asked_to_stop(&mut self, now: Now, out: &mut Outputs<Report>) {
        let Some((req, end)) = self.asked_to_stop else { return };
        let busy: Vec<JobId> = self.steps.jobs().collect();
        if busy.is_empty() {
            self.asked_to_stop = None;
            self.stop_alone(now, Some(req), out);
        } else if end <= now.mono {
            self.asked_to_stop = None;
            out.refuse(req, sentences::jobs_are_running(&busy));
        }
    }

    /// Stops this daemon, while the DVM goes on.
    fn stop_alone(&mut self, now: Now, req: Option<ReqId>, out: &mut Outputs<Report>) {
        self.hand_over(out);
        // The last message to the parent tells the head.
        for job in self.steps.jobs().collect::<Vec<_>>() {
            self.release(job, out);
        }
        self.begin_stop(now, req, Vec::new());
    }

    /// Handles the head's order to stop a node here or below.
    pub(super) fn on_leave(&mut self, now: Now, leave: wire::Leave, out: &mut Outputs<Report>) {
        if leave.node != self.me.node {
            self.tree.via(leave.node).iter().for_each(|link| out.send(*link, down::Body::Leave(leave)));
        } else if !self.is_root {
            self.stop_alone(now, None, out);
        }
    }

    pub(crate) fn on_pmi_request(
        &mut self,
        req: ReqId,
        caller: Caller,
        (job, rank): (JobId, u32),
        of: &str,
        op: PmiOp,
        out: &mut Outputs<Report>,
    ) {
        if !(self.steps.is_of(job, caller.uid) && self.relays.contains(job)) {
            let text = format!("job {job} has no ranks on this node: ask the daemon that RSD_SOCKET names");
            return out.refuse(req, Refused::new(exit::NO_SUCH_JOB, text));
        }
        if !may_be_namespace(of, &self.dvm, job) {
            let text = format!("job {job} has another namespace: see RSD_PMI_NAMESPACE");
            return out.refuse(req, Refused::new(exit::NO_SUCH_JOB, text));
        }
        // A rank may send a request before its step has attached.
        let link = self.steps.link(job);
        let body = self.pmi_calls.add(req, (job, rank, of), op, link.is_some());
        link.iter().for_each(|link| out.send(*link, body.clone()));
    }

    fn refuse_pmi_calls(&self, job: JobId, requests: Vec<ReqId>, out: &mut Outputs<Report>) {
        for req in requests {
            out.refuse(req, Refused::new(exit::NO_SUCH_JOB, format!("job {job} is over on this node")));
        }
    }

    // --- members ---

    /// Handles a process's request for a place. `join` lacks the fields that only this daemon knows.
    pub(crate) fn on_join(&mut self, now: Now, member: MemberId, mut join: wire::GroupJoin, out: &mut Outputs<Report>) {
        (join.node, join.member) = (self.me.node, member);
        if self.stopping.is_some() {
            return out.push(Effect::Member { member, event: members::stopping() });
        }
        self.members.join(now, member, join.clone());
        self.pass_up(up::Body::GroupJoin(join), out);
    }

    /// Handles that a member's connection is closed: the member has ended, or has its last message.
    pub(crate) fn on_member_gone(&mut self, member: MemberId, out: &mut Outputs<Report>) {
        if let Some(join) = self.members.remove(member) {
            self.send_leave(join, out);
        }
    }

    fn send_leave(&self, join: wire::GroupJoin, out: &mut Outputs<Report>) {
        let wire::GroupJoin { token, uid, .. } = join;
        self.pass_up(up::Body::GroupLeave(wire::GroupLeave { node: self.me.node, token, uid }), out);
    }

    // --- sending ---

    /// Sends to the parent, if it is connected.
    fn pass_up(&self, body: up::Body, out: &mut Outputs<Report>) {
        if self.is_root {
            out.send_message(Report::Up(body));
        } else if self.parent_up {
            out.push(Effect::Up(Up { body: Some(body) }));
        }
    }

    fn to_links(&self, links: impl IntoIterator<Item = u64>, down: &Down, out: &mut Outputs<Report>) {
        out.extend(links.into_iter().map(|link| Effect::Down { link, down: down.clone() }));
    }

    /// Sends to every daemon and step that takes part in the job.
    fn to_job(&self, job: JobId, body: down::Body, out: &mut Outputs<Report>) {
        let Some(relay) = self.relays.get(job) else { return };
        let links = self.tree.links_to(relay.here()).into_iter().chain(self.steps.link(job));
        self.to_links(links, &Down { body: Some(body) }, out);
    }

    /// Sends to the job's steps on these nodes, or to all of them if there are none. A step of this node gets it when it attaches.
    fn send_to_steps(&mut self, job: JobId, nodes: &[NodeId], body: down::Body, out: &mut Outputs<Report>) {
        let Some(relay) = self.relays.get(job) else { return };
        let all = nodes.is_empty();
        let is_here = if all { relay.map.has(self.me.node) } else { nodes.contains(&self.me.node) };
        let links = if all { self.tree.links_to(relay.here()) } else { self.tree.links_to(nodes) };
        let own = if is_here { self.steps.link_for(job, &body) } else { None };
        self.to_links(links.into_iter().chain(own), &Down { body: Some(body) }, out);
    }

    /// Sends to a node's step of the job.
    fn to_node(&self, job: JobId, node: NodeId, body: down::Body, out: &mut Outputs<Report>) {
        let link = if node == self.me.node { self.steps.link(job) } else { self.tree.via(node) };
        link.iter().for_each(|link| out.send(*link, body.clone()));
    }
}
