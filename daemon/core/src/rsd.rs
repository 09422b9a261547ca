//! A daemon, as a state machine: a node of the tree that passes jobs down and their fences, output and ends up; and, on the
//! head, the owner of jobs and placement.
//!
//! - `node/tree`: who is below, and how children join, leave, vanish and come back.
//! - `relay`: a job as every daemon sees it; `locations`: where its ranks listen.
//! - `head`: what only the head does: nodes, placement, the queue. `job`: one job's life. `bound`: the cpus it has.
//! - `members`: processes of this node that wait for a place in a named group; `lobby`, `groups`: the groups, on the head.
//! - `family`: jobs that ranks spawn. `names`: what ranks publish and look up, on the head; `questions`: what steps ask is done once.
//! - `blobs`: what the processes of a job leave for each other by name, on the head. `calls`: what clients ask.
//! - `kept`: what a head knows again after a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use rsd_proto::join;
use rsd_proto::v1::{self as wire, Down, NodeInfo, Up, down, up};

use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, Tuning};

pub use crate::calls::{Answer, Call, PmiOp, Refused};
pub use crate::head::Memory;
pub use crate::head::groups::GroupCall;
pub use crate::head::values::{Entry, KvCall, KvOp};

use crate::head::Head;
use crate::node::members::Members;
use crate::node::relay::Relay;

/// The shell's number for a stream from a child or a step; never used twice.
pub type LinkId = u64;
/// The shell's number for a request that waits for its [`Answer`].
pub type ReqId = u64;
/// The shell's number for a process that waits for a place in a group; never used twice.
pub type MemberId = u64;

/// What happens to a daemon.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum Input {
    /// A child or a step has connected and said who it is.
    Hello { link: LinkId, hello: wire::Hello },
    /// A message from a child or a step.
    Up { link: LinkId, up: Up },
    /// A child's or a step's stream is at its end.
    LinkClosed { link: LinkId },
    /// The parent has taken us in.
    Welcome(wire::Welcome),
    /// Someone above sends us to another parent.
    Redirected(wire::Redirect),
    /// A message from the parent.
    Down(Down),
    /// The stream to the parent is at its end.
    ParentLost,
    /// A step could not be started, or its process is gone: why, as a sentence.
    StepLost { job: JobId, why: String },
    /// This node's load, measured because of [`Effect::MeasureLoad`].
    Load { probe: u64, load: wire::NodeLoad },
    /// A process of this node wants a place in a named group; who it is, is filled in but for the node.
    Join { member: MemberId, join: Box<wire::GroupJoin> },
    /// It has closed its connection, or has ended.
    MemberGone { member: MemberId },
    /// A client asks.
    Call { req: ReqId, call: Call },
    /// What [`Effect::Keep`] had before a restart, in that order: a head's first input.
    Kept(Vec<wire::Kept>),
    /// Time has passed.
    Tick,
}

/// What the shell of a daemon is to do.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum Effect {
    /// Send to a child or a step.
    Down { link: LinkId, down: Down },
    /// Send to the parent.
    Up(Up),
    /// End a child's or a step's stream, behind what was sent.
    Close { link: LinkId },
    /// Start this node's step of a job.
    StartStep(wire::Launch),
    /// The job is over here: forget what was kept to find its step again.
    ForgetStep(JobId),
    /// Measure this node's load and say [`Input::Load`].
    MeasureLoad { probe: u64 },
    /// Tell a process that waits; anything but `Wait` is the last, and closes its connection.
    Member { member: MemberId, event: join::Event },
    /// Answer a request.
    Answer { req: ReqId, answer: Answer },
    /// Append to a job's log.
    Log { job: JobId, event: Box<wire::JobEvent> },
    /// Throw a job's log away.
    DropLog(JobId),
    /// Write down what must survive a restart.
    Remember(Memory),
    /// Write this down behind what is written already, whole or not at all, before what follows is done.
    Keep(Vec<wire::Kept>),
    /// Nothing of what was written down is to be known again: the DVM is being stopped.
    ForgetKept,
    /// Write down who we are now (joined daemons).
    Identity { node: NodeId, dvm: String, name: String },
    /// All is done: the process may exit.
    Exit,
}

/// One daemon.
#[derive(Debug)]
pub struct Rsd {
    pub(crate) me: NodeInfo,
    pub(crate) dvm: String,
    /// Where the head listens, for children that knock at the wrong door.
    pub(crate) head_addr: String,
    pub(crate) tuning: Tuning,
    pub(crate) children: BTreeMap<LinkId, crate::node::tree::Child>,
    /// The child through which each node below is reached.
    pub(crate) via: HashMap<NodeId, LinkId>,
    /// Steps of this node, by job; the link is absent while a step is starting or coming back. One whose relay is gone is
    /// sent away when it comes.
    pub(crate) steps: BTreeMap<JobId, Option<LinkId>>,
    pub(crate) relays: BTreeMap<JobId, Relay>,
    pub(crate) head: Option<Head>,
    pub(crate) parent_up: bool,
    /// Nodes below us that the parent was told of by [`Rsd::hello`].
    pub(crate) told: BTreeSet<NodeId>,
    /// gRPC Pmi requests under way to a local step.
    pub(crate) pmi_calls: BTreeMap<u64, crate::calls::PmiRequest>,
    pub(crate) next_pmi_call: u64,
    pub(crate) members: Members,
    pub(crate) stopping: Option<Stopping>,
}

#[derive(Debug)]
pub(crate) struct Stopping {
    pub(crate) req: Option<ReqId>,
    pub(crate) deadline: Duration,
}

/// Who a daemon is when it starts.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Name, inventory, listening address, version and pid; the id that it had before, or 0.
    pub me: NodeInfo,
    /// The DVM that it belonged to, or, for a head, belongs to.
    pub dvm: String,
    /// For a joined daemon: the address that it was told to join.
    pub head_addr: Option<String>,
    /// For a head: what it remembers.
    pub memory: Memory,
    /// Steps that ran here before a restart and may come back.
    pub steps: Vec<KnownStep>,
}

/// A step that ran before its daemon was restarted.
#[derive(Debug, Clone)]
pub struct KnownStep {
    /// Its job.
    pub job: JobId,
    /// The job's.
    pub map: TaskMap,
    /// `Launch.group`.
    pub group: bytes::Bytes,
}

impl Rsd {
    /// A daemon with nobody below or above it yet.
    pub fn new(now: Now, start: Start, tuning: Tuning) -> Rsd {
        let Start { me, dvm, head_addr, memory, steps } = start;
        let is_head = head_addr.is_none();
        let mut rsd = Rsd {
            me,
            dvm,
            head_addr: head_addr.unwrap_or_default(),
            tuning,
            children: BTreeMap::new(),
            via: HashMap::new(),
            steps: BTreeMap::new(),
            relays: BTreeMap::new(),
            head: None,
            parent_up: false,
            told: BTreeSet::new(),
            pmi_calls: BTreeMap::new(),
            next_pmi_call: 1,
            members: Members::default(),
            stopping: None,
        };
        if is_head {
            rsd.me.node = 0;
            rsd.me.joined_ms = now.unix_ms;
            rsd.head = Some(Head::new(memory, rsd.me.clone()));
        }
        for KnownStep { job, map, group } in steps {
            rsd.steps.insert(job, None);
            if !is_head {
                if !group.is_empty() {
                    rsd.epoch_is_here(job, &map, &group);
                }
                rsd.ensure_relay(job, map);
            } // else its step is sent away when it comes, unless the job is an epoch that was kept
        }
        rsd
    }

    /// Takes one input and appends what is to be done about it.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        let (first, was_stopping) = (out.len(), self.stopping.is_some());
        match input {
            Input::Hello { link, hello } => self.on_hello(now, link, hello, out),
            Input::Up { link, up } => self.on_up(now, link, up, out),
            Input::LinkClosed { link } => self.on_link_closed(now, link, out),
            Input::Welcome(welcome) => self.on_welcome(now, welcome, out),
            Input::Redirected(redirect) => self.on_redirected(now, redirect, out),
            Input::Down(down) => self.on_down(now, down, out),
            Input::ParentLost => self.parent_up = false,
            Input::StepLost { job, why } => self.on_step_lost(now, job, why, out),
            Input::Load { probe, load } => {
                let report = wire::LoadReport { probe, node: self.me.node, load: Some(load) };
                self.on_load(report, out);
            }
            Input::Join { member, join } => self.on_join(now, member, *join, out),
            Input::MemberGone { member } => self.on_member_gone(now, member, out),
            Input::Call { req, call } => self.on_call(now, req, call, out),
            Input::Kept(records) => self.on_kept(now, records, out),
            Input::Tick => {}
        }
        self.settle(now, out);
        if let Some(head) = &mut self.head {
            let changes = head.take_changes();
            match (&self.stopping, was_stopping) {
                (Some(_), false) => out.insert(first, Effect::ForgetKept),
                (None, false) if !changes.is_empty() => out.insert(first, Effect::Keep(changes)),
                (Some(_) | None, _) => {}
            }
        }
    }

    /// When [`Input::Tick`] is wanted at the latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        let stopping = self.stopping.as_ref().map(|stopping| stopping.deadline);
        let head = self.head.as_ref().and_then(|head| head.next_deadline(&self.tuning));
        [head, stopping, self.members.next_deadline()].into_iter().flatten().min()
    }

    /// What this daemon tells a parent first.
    pub fn hello(&mut self, redirected: bool) -> wire::Hello {
        self.told = self.via.keys().copied().collect();
        let nodes = std::iter::once(self.me.clone()).chain(self.below()).collect();
        let who = wire::NodeHello { nodes, dvm: self.dvm.clone(), redirected };
        wire::Hello { version: rsd_proto::VERSION.into(), who: Some(wire::hello::Who::Node(who)) }
    }

    pub(crate) fn below(&self) -> impl Iterator<Item = NodeInfo> + '_ {
        let nodes = self.children.iter().flat_map(|(link, child)| child.nodes.values().map(move |node| (link, node)));
        nodes.filter(|(link, node)| self.via.get(&node.node) == Some(link)).map(|(_, node)| node.clone())
    }

    /// Its node id, the head's being 0.
    pub fn node(&self) -> NodeId {
        self.me.node
    }

    /// What it still keeps for jobs, one word or two each; nothing when all are over.
    #[doc(hidden)]
    pub fn leftovers(&self) -> Vec<String> {
        let steps = self.steps.keys().map(|job| format!("step of job {job}"));
        let relays = self.relays.iter().map(|(job, relay)| format!("relay of job {job}: {relay:?}"));
        let calls = self.pmi_calls.keys().map(|call| format!("PMI call {call}"));
        let head = self.head.iter().flat_map(Head::leftovers);
        steps.chain(relays).chain(calls).chain(self.members.leftovers()).chain(head).collect()
    }

    /// Whether it owns the jobs.
    pub fn is_head(&self) -> bool {
        self.head.is_some()
    }

    pub(crate) fn settle(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.advance_relays(now, out);
        self.settle_head(now, out);
        self.settle_members(now, out);
        if let Some(stopping) = &self.stopping {
            let idle = self.steps.is_empty() && self.relays.is_empty();
            if idle || stopping.deadline <= now.mono {
                self.leave(out);
            }
        }
    }

    // --- jobs as they pass by ---

    pub(crate) fn on_down(&mut self, now: Now, down: Down, out: &mut Vec<Effect>) {
        let Some(body) = down.body.clone() else { return };
        match body {
            down::Body::Launch(launch) => self.on_launch(now, launch, out),
            down::Body::FenceDown(fence) => self.pass_fence_down(fence, out),
            down::Body::Locations(wire::Locations { job, ports }) => {
                if let Some(relay) = self.relays.get_mut(&job) {
                    relay.locations.on_answer(relay.map.nodes(), ports);
                }
            }
            down::Body::Signal(wire::Signal { job, .. }) => self.to_job(job, &down, out),
            down::Body::Kill(kill) => self.pass_kill(kill, out),
            down::Body::Release(wire::Release { job }) => self.release(now, job, out),
            down::Body::GroupState(state) => self.on_group_state(now, state, out),
            down::Body::OutputAck(wire::OutputAck { job, node, .. })
            | down::Body::Stdin(wire::Stdin { job, node, .. })
            | down::Body::NameResult(wire::NameResult { job, node, .. })
            | down::Body::SpawnResult(wire::SpawnResult { job, node, .. }) => self.to_node(job, node, down, out),
            down::Body::LoadProbe(wire::LoadProbe { probe }) => {
                out.push(Effect::MeasureLoad { probe });
                self.to_children(&down, out);
            }
            down::Body::Resync(_) => self.resync(out),
            down::Body::Stop(_) => self.on_stop(now, out),
            // The shell takes the first two from the stream before they come here; calls never cross daemons.
            down::Body::Welcome(_) | down::Body::Redirect(_) | down::Body::PmiCall(_) => {}
        }
    }

    pub(crate) fn on_launch(&mut self, now: Now, launch: wire::Launch, out: &mut Vec<Effect>) {
        let map = match launch.map.clone().map(TaskMap::try_from) {
            Some(Ok(map)) => map,
            Some(Err(_)) | None => return, // the head never sends such a thing
        };
        let job = launch.job;
        self.ensure_relay(job, map.clone());
        if !launch.group.is_empty() {
            self.epoch_is_here(job, &map, &launch.group);
        }
        self.to_children_of(&map, &Down { body: Some(down::Body::Launch(launch.clone())) }, out);
        if map.count_on(self.me.node) == 0 {
            return;
        }
        match self.steps.entry(job) {
            // A repeat after a cut link.
            std::collections::btree_map::Entry::Occupied(_) => {}
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(None);
                if self.stopping.is_some() {
                    self.on_step_lost(now, job, crate::sentences::daemon_stopping(), out);
                } else {
                    out.push(Effect::StartStep(launch));
                }
            }
        }
    }

    pub(crate) fn pass_fence_down(&mut self, fence: wire::FenceDown, out: &mut Vec<Effect>) {
        let Some(relay) = self.relays.get_mut(&fence.job) else { return };
        relay.fence_down(&fence);
        let job = fence.job;
        self.to_job(job, &Down { body: Some(down::Body::FenceDown(fence)) }, out);
    }

    pub(crate) fn pass_kill(&mut self, kill: wire::Kill, out: &mut Vec<Effect>) {
        let job = kill.job;
        if let Some(relay) = self.relays.get_mut(&job) {
            relay.kill = Some(kill.clone());
        }
        self.to_job(job, &Down { body: Some(down::Body::Kill(kill)) }, out);
    }

    pub(crate) fn release(&mut self, now: Now, job: JobId, out: &mut Vec<Effect>) {
        self.epoch_is_over(now, job, out);
        self.to_job(job, &Down { body: Some(down::Body::Release(wire::Release { job })) }, out);
        let relay = self.relays.remove(&job);
        if relay.is_some_and(|relay| relay.step_gone) && self.steps.remove(&job).is_some() {
            out.push(Effect::ForgetStep(job));
        } // else its link closes, or it is told when it comes back, or the shell says that its process is gone
    }

    pub(crate) fn on_up(&mut self, now: Now, link: LinkId, up: Up, out: &mut Vec<Effect>) {
        let is_open = self.children.contains_key(&link) || self.steps.values().any(|step| *step == Some(link));
        if !is_open {
            return;
        }
        let Some(body) = up.body.clone() else { return };
        match body {
            up::Body::FenceUp(fence) => self.on_fence_up(link, fence, out),
            up::Body::Located(wire::Located { job, nodes, ports }) => {
                if let Some(relay) = self.relays.get_mut(&job) {
                    relay.locations.add(nodes, ports);
                }
            }
            up::Body::Locate(wire::Locate { job }) => {
                if let Some(relay) = self.relays.get_mut(&job) {
                    relay.locations.ask(link);
                }
            }
            up::Body::Done(done) => {
                // A report may be late, having been lost on a way that this has not gone.
                for exit in done.exits.iter().filter(|_| self.head.is_some()).cloned().collect::<Vec<_>>() {
                    self.on_rank_failed(now, wire::RankFailed { job: done.job, exit: Some(exit) }, out);
                }
                if let Some(relay) = self.relays.get_mut(&done.job) {
                    relay.done(done);
                }
            }
            up::Body::Resume(resume) => self.on_resume(link, resume, out),
            up::Body::NodesUp(nodes) => self.on_nodes_up(now, link, nodes.nodes, out),
            up::Body::NodesAway(nodes) => self.on_nodes_away(now, link, nodes.nodes, out),
            up::Body::NodesGone(nodes) => self.on_nodes_gone(now, link, nodes.nodes, out),
            up::Body::PmiResult(result) => self.on_pmi_result(result, out),
            up::Body::RankFailed(failed) => match self.head {
                Some(_) => self.on_rank_failed(now, failed, out),
                None => self.pass_up(up, out),
            },
            up::Body::Output(output) => match self.head {
                Some(_) => self.on_output(now, output, out),
                None => self.pass_up(up, out),
            },
            up::Body::StdinAck(ack) => match self.head {
                Some(_) => self.on_stdin_ack(ack, out),
                None => self.pass_up(up, out),
            },
            up::Body::Notice(notice) => match self.head {
                Some(_) => self.on_notice(now, &notice, out),
                None => self.pass_up(up, out),
            },
            up::Body::GroupJoin(join) => match self.head {
                Some(_) => self.on_group_join(now, join, out),
                None => self.pass_up(up, out),
            },
            up::Body::GroupLeave(leave) => match self.head {
                Some(_) => self.on_group_leave(now, leave, out),
                None => self.pass_up(up, out),
            },
            up::Body::Master(master) => self.members.on_master(master),
            up::Body::Load(report) => self.on_load(report, out),
            up::Body::NameCall(call) => match self.head {
                Some(_) => self.on_name_call(call, out),
                None => self.pass_up(up, out),
            },
            up::Body::SpawnCall(call) => match self.head {
                Some(_) => self.on_spawn_call(now, call, out),
                None => self.pass_up(up, out),
            },
            up::Body::Begun(wire::Begun { job, nodes }) => {
                if let Some(relay) = self.relays.get_mut(&job) {
                    relay.begun(nodes);
                }
            }
            up::Body::Hello(_) => {} // only ever the first, which the shell takes
        }
    }

    pub(crate) fn on_fence_up(&mut self, link: LinkId, fence: wire::FenceUp, out: &mut Vec<Effect>) {
        let Some(relay) = self.relays.get_mut(&fence.job) else { return };
        if let Some(missed) = relay.fence_up(fence) {
            out.push(Effect::Down { link, down: Down { body: Some(down::Body::FenceDown(missed)) } });
        }
    }

    pub(crate) fn on_resume(&mut self, link: LinkId, resume: wire::Resume, out: &mut Vec<Effect>) {
        let job = resume.job;
        if self.head.as_ref().is_some_and(|head| !head.has_ranks(job)) {
            let release = down::Body::Release(wire::Release { job });
            out.push(Effect::Down { link, down: Down { body: Some(release) } });
            return;
        }
        let Some(Ok(map)) = resume.map.clone().map(TaskMap::try_from) else { return };
        self.ensure_relay(job, map);
        self.pass_up(Up { body: Some(up::Body::Resume(resume)) }, out);
    }

    pub(crate) fn advance_relays(&mut self, now: Now, out: &mut Vec<Effect>) {
        let jobs: Vec<JobId> = self.relays.keys().copied().collect();
        for job in jobs {
            while let Some(step) = self.relays.get_mut(&job).and_then(Relay::advance) {
                match step {
                    crate::node::relay::Step::FenceUp(fence) => {
                        self.pass_up(Up { body: Some(up::Body::FenceUp(fence)) }, out)
                    }
                    crate::node::relay::Step::Located(located) => {
                        self.pass_up(Up { body: Some(up::Body::Located(located)) }, out)
                    }
                    crate::node::relay::Step::Locate => {
                        self.pass_up(Up { body: Some(up::Body::Locate(wire::Locate { job })) }, out)
                    }
                    crate::node::relay::Step::Locations { to, ports } => {
                        let down = Down { body: Some(down::Body::Locations(wire::Locations { job, ports })) };
                        out.extend(to.into_iter().map(|link| Effect::Down { link, down: down.clone() }));
                    }
                    crate::node::relay::Step::Begun(_) if self.head.is_some() => self.on_begun(now, job, out),
                    crate::node::relay::Step::Begun(begun) => {
                        self.pass_up(Up { body: Some(up::Body::Begun(begun)) }, out)
                    }
                    crate::node::relay::Step::Done(done) => self.pass_up(Up { body: Some(up::Body::Done(done)) }, out),
                    crate::node::relay::Step::FenceDown(fence) => {
                        self.to_job(job, &Down { body: Some(down::Body::FenceDown(fence)) }, out);
                    }
                    crate::node::relay::Step::Stuck { rank, epoch } => self.on_stuck(now, job, rank, epoch, out),
                    crate::node::relay::Step::Over(exits) => {
                        self.on_job_over(now, job, exits, out);
                        self.release(now, job, out);
                    }
                }
            }
            // Those that have moved away say it all again elsewhere.
            if self.relays.get(&job).is_some_and(Relay::is_deserted) {
                self.relays.remove(&job);
            }
        }
    }

    pub(crate) fn ensure_relay(&mut self, job: JobId, map: TaskMap) {
        let is_head = self.head.is_some();
        self.relays.entry(job).or_insert_with(|| Relay::new(job, map, is_head));
        self.recount(job);
    }

    /// The tree or the steps changed: counts again who can speak for a job.
    pub(crate) fn recount(&mut self, job: JobId) {
        let Some(relay) = self.relays.get_mut(&job) else { return };
        let (me, via) = (self.me.node, &self.via);
        relay.set_here(|node| node == me || via.contains_key(&node));
    }

    // --- sending ---

    pub(crate) fn pass_up(&self, up: Up, out: &mut Vec<Effect>) {
        if self.parent_up {
            out.push(Effect::Up(up));
        }
    }

    pub(crate) fn to_children(&self, down: &Down, out: &mut Vec<Effect>) {
        out.extend(self.children.keys().map(|link| Effect::Down { link: *link, down: down.clone() }));
    }

    pub(crate) fn to_children_of(&self, map: &TaskMap, down: &Down, out: &mut Vec<Effect>) {
        self.to_children_with(map.nodes(), down, out);
    }

    pub(crate) fn to_children_with(&self, nodes: &[NodeId], down: &Down, out: &mut Vec<Effect>) {
        let links: BTreeSet<LinkId> = nodes.iter().filter_map(|node| self.via.get(node).copied()).collect();
        out.extend(links.into_iter().map(|link| Effect::Down { link, down: down.clone() }));
    }

    /// To every daemon and step that has a part in the job.
    pub(crate) fn to_job(&self, job: JobId, down: &Down, out: &mut Vec<Effect>) {
        let Some(relay) = self.relays.get(&job) else { return };
        self.to_children_of(&relay.map, down, out);
        self.to_step(job, down.clone(), out);
    }

    pub(crate) fn to_step(&self, job: JobId, down: Down, out: &mut Vec<Effect>) {
        if let Some(Some(link)) = self.steps.get(&job) {
            out.push(Effect::Down { link: *link, down });
        }
    }

    pub(crate) fn to_node(&self, job: JobId, node: NodeId, down: Down, out: &mut Vec<Effect>) {
        if node == self.me.node {
            self.to_step(job, down, out);
        } else if let Some(link) = self.via.get(&node) {
            out.push(Effect::Down { link: *link, down });
        }
    }
}
