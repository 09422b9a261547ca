//! The loop around [`rsd_core::Rsd`]: it takes events from one queue, and performs the effects of each event in order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rsd_core::rsd::{Answer, Call, Effect, Input, KeptJobs, LinkId, MemberId, Memory, Refused, ReqId, jobs_of};
use rsd_core::{JobId, Rsd};
use rsd_proto::join;
use rsd_proto::transport::exit;
use rsd_proto::transport::parts::split;
use rsd_proto::v1::{HeadEpoch, Kept, NodeLoad, Up};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::disk::job_log::JobLogs;
use crate::disk::journal::Journal;
use crate::disk::state_dir::{Identity, StateDir};
use crate::disk::step_files;
use crate::door::{Door, Event};
use crate::downs::Downs;
use crate::failed::Failed;
use crate::inventory::load;
use crate::metrics::pace::Pace;
use crate::reach::TcpPort;
use crate::standby::copies::Copies;
use crate::steps::Steps;
use crate::upgrade::Successor;
use crate::way_up::WayUp;

/// How many job numbers are reserved on disk at a time. Replacing a file makes the kernel write it at once, which would slow
/// down a short job. After a crash, the rest of the reserved numbers stays unused.
const JOB_NUMBERS_AHEAD: u64 = 32;

/// A running daemon.
pub(crate) struct Shell {
    core: Rsd,
    clock: Clock,
    state_dir: Arc<StateDir>,
    /// The identity on disk. Its `next_job` may be ahead of the number of the next job.
    identity: Identity,
    /// Whether the last write of the identity has succeeded.
    is_saved: bool,
    next_job: JobId,
    logs: Arc<JobLogs>,
    journal: Journal,
    steps: Steps,
    door: Door,
    links: HashMap<LinkId, Downs>,
    parent: Option<mpsc::UnboundedSender<Up>>,
    waiting: HashMap<ReqId, oneshot::Sender<Answer>>,
    /// Those of them that submit jobs and will follow them.
    follow: HashSet<ReqId>,
    members: HashMap<MemberId, mpsc::UnboundedSender<join::Event>>,
    /// A joined daemon's way to the head.
    way_up: Option<WayUp>,
    port: TcpPort,
    /// As `NodeInfo.reached`.
    reached: Option<String>,
    /// Gets the daemon's place once, when it has its node id.
    ready: Option<oneshot::Sender<Placed>>,
    pace: Pace,
    /// A joined daemon's uplink gets the highest epoch of a head that this daemon has heard of.
    epochs: watch::Sender<u64>,
    copies: Copies,
    /// What waits until the standbys have the records up to this number.
    held: VecDeque<(u64, Effect)>,
    /// What has come since this head decides nothing more; None: it decides.
    frozen: Option<Vec<Event>>,
    /// What takes this daemon's place.
    successor: Option<Successor>,
    /// Why this daemon ends, if that is a failure.
    ended: Option<Failed>,
    over: bool,
}

/// A daemon's place in its DVM.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) identity: Identity,
    /// As `NodeInfo.reached`.
    pub(crate) reached: Option<String>,
}

impl Shell {
    #[expect(clippy::too_many_arguments, reason = "called once, with everything that the loop needs")]
    pub(crate) fn new(
        core: Rsd,
        clock: Clock,
        state_dir: Arc<StateDir>,
        identity: Identity,
        logs: Arc<JobLogs>,
        door: Door,
        way_up: Option<WayUp>,
        port: TcpPort,
        ready: oneshot::Sender<Placed>,
        (journal, before): (Journal, Vec<Kept>),
        (copies, epochs): (Copies, watch::Sender<u64>),
    ) -> Shell {
        let steps = Steps::new(Arc::clone(&state_dir), door.clone());
        let mut shell = Shell {
            core,
            clock,
            state_dir,
            next_job: identity.next_job,
            identity,
            is_saved: true,
            logs,
            journal,
            steps,
            door,
            links: HashMap::new(),
            parent: None,
            waiting: HashMap::new(),
            follow: HashSet::new(),
            members: HashMap::new(),
            way_up,
            port,
            reached: None,
            ready: Some(ready),
            pace: Pace::default(),
            epochs,
            copies,
            held: VecDeque::new(),
            frozen: None,
            successor: None,
            ended: None,
            over: false,
        };
        let is_head = shell.core.is_head();
        let jobs = if is_head { jobs_of(&before) } else { KeptJobs::default() };
        let logs = shell.logs.restore(&jobs, shell.clock.now().unix_ms);
        if is_head {
            shell.write_identity();
            shell.handle(Input::Kept { records: before, logs });
            let _ = shell.journal.rewrite(&shell.core.kept()); // after a failure, the next change writes the file
            shell.report_ready();
        }
        shell
    }

    /// Runs until the daemon is stopped, or until another program takes its place: returns that. An error: it has ended because another daemon is the head.
    pub(crate) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Event>) -> Result<Option<Successor>, Failed> {
        while !self.over {
            let wait = self.core.next_deadline().map(|at| self.clock.instant(at));
            let wait = wait.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let wait = self.logs.patience_ends().map_or(wait, |at| at.min(wait));
            let refill = self.steps.refill_at().unwrap_or(wait);
            let event = tokio::select! {
                biased;
                event = inbox.recv() => event,
                () = tokio::time::sleep_until(refill.into()), if refill < wait => {
                    self.steps.refill();
                    continue;
                }
                () = tokio::time::sleep_until(wait.into()) => Some(Event::Input(Input::Tick)),
            };
            let Some(event) = event else { break };
            let began = Instant::now();
            self.on_event(event);
            self.pace.worked(began);
            self.logs.give_up_hung(Instant::now());
        }
        if self.core.is_head() && self.identity.next_job != self.next_job {
            self.identity.next_job = self.next_job;
            self.write_identity();
        }
        self.ended.map_or(Ok(self.successor), Err)
    }

    fn on_event(&mut self, event: Event) {
        if let Some(frozen) = &mut self.frozen {
            match event {
                Event::Thaw => {
                    let waited = self.frozen.take().unwrap_or_default();
                    return waited.into_iter().for_each(|event| self.on_event(event));
                }
                Event::Copied
                | Event::HandedOver { .. }
                | Event::StepDown(_)
                | Event::Terminate
                | Event::Upgrade(_) => {}
                event => return frozen.push(event),
            }
        }
        match event {
            Event::Input(input) => {
                match &input {
                    Input::LinkClosed { link } => drop(self.links.remove(link)),
                    Input::ParentLost => self.parent = None,
                    Input::StepLost { job, .. } => self.steps.on_step_ended(*job),
                    Input::MemberGone { member } => drop(self.members.remove(member)),
                    _ => {}
                }
                self.handle(input);
            }
            Event::Link { link, down } => drop(self.links.insert(link, down)),
            Event::Parent(up) => self.parent = Some(up),
            Event::HelloWanted { approach, hello } => drop(hello.send(self.core.hello(approach))),
            Event::Call { req, caller, call, answer, at } => {
                self.pace.waited(at);
                self.waiting.insert(req, answer);
                if matches!(&call, Call::Submit { spec, .. } if spec.attached) {
                    self.follow.insert(req);
                }
                self.handle(Input::Call { req, caller, call });
            }
            Event::CallerGone(req) => {
                self.waiting.remove(&req);
                self.handle(Input::CallerGone { req });
            }
            Event::Join { member, join, client } => {
                self.members.insert(member, client);
                self.handle(Input::Join { member, join });
            }
            Event::DirectoryCreated => self.write_everything(),
            Event::Sync(waits) => self.journal.sync(waits),
            Event::Terminate => self.over = true,
            Event::Upgrade(successor) => (self.successor, self.over) = (Some(successor), true),
            Event::Follow { node, to, logs, id } => {
                let memory = Memory { next_job: self.identity.next_job, next_node: self.identity.next_node };
                let _ = id.send(self.copies.add(node, to, logs, &self.core.kept(), memory)); // the standby may be gone
            }
            Event::Copied => self.release_held(),
            Event::Freeze { force, frozen } => {
                let jobs = self.core.jobs_here();
                let answer = match jobs {
                    1.. if !force => Err(format!(
                        "{jobs} {} ranks on the head's node, which end with it: wait for them, or use --force",
                        if jobs == 1 { "job has" } else { "jobs have" }
                    )),
                    _ => Ok(()),
                };
                self.frozen = answer.is_ok().then(Vec::new);
                let _ = frozen.send(answer); // the standby may be gone; then it thaws
            }
            Event::Thaw => {}
            Event::HandedOver { node } => {
                self.release_held();
                self.copies.give_up_lease();
                let text = format!(
                    "this daemon was the head, and has handed over to node {node}: start it with rsd start --join HOST:PORT to have it as \
                     a node, with --standby as a standby"
                );
                (self.ended, self.over) = (Some(Failed::new(exit::RUNS_ALREADY, text)), true);
            }
            Event::StepDown(epoch) => self.step_down(&epoch),
        }
    }

    fn handle(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.handle(self.clock.now(), input, &mut effects);
        for effect in effects {
            self.perform_or_hold(effect);
        }
        self.door.tell_last_event(self.core.last_event());
    }

    /// Performs an effect when the standbys in step have the records from which it follows. Records themselves are written at once.
    fn perform_or_hold(&mut self, effect: Effect) {
        let is_record = matches!(effect, Effect::Keep(_) | Effect::Remember(_) | Effect::ForgetKept);
        let number = self.copies.number();
        if is_record || self.held.is_empty() && self.copies.committed() >= number && self.copies.may_act() {
            self.perform(effect);
        } else {
            self.held.push_back((number, effect));
        }
    }

    fn release_held(&mut self) {
        let committed = self.copies.committed();
        while self.copies.may_act()
            && let Some((_, effect)) = self.held.pop_front_if(|(number, _)| *number <= committed)
        {
            self.perform(effect);
        }
    }

    /// A later head has taken over.
    fn step_down(&mut self, epoch: &HeadEpoch) {
        if let Err(error) = self.state_dir.write_later_epoch(epoch) {
            error!(error = format!("{error:#}"), "cannot write that a later head has taken over");
        }
        error!(
            epoch = epoch.number,
            "another daemon is the head of this DVM now: this one ends, and its steps with it"
        );
        (self.ended, self.over) = (Some(replaced(epoch.number)), true);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Down { link, down } => {
                let Some(downs) = self.links.get(&link) else { return };
                let mut is_read = true;
                split(down, |down| is_read &= downs.send(Ok(down)));
                if !is_read {
                    warn!(link, "a step does not read its messages: closed its link");
                    self.links.remove(&link);
                    self.door.send(Event::Input(Input::LinkClosed { link }));
                }
            }
            Effect::Up(up) => {
                if let Some(parent) = &self.parent {
                    split(up, |up| {
                        let _ = parent.send(up);
                    });
                }
            }
            Effect::Close { link } => drop(self.links.remove(&link)),
            Effect::StartStep(launch) => {
                if let Err(error) = self.steps.start(self.core.node(), &launch) {
                    error!(job = launch.job, error = format!("{error:#}"), "cannot start a step process");
                    let why = format!("cannot start its step process: {error:#}");
                    self.door.send(Event::Input(Input::StepLost { job: launch.job, why }));
                }
            }
            Effect::KillStep { job, pid, uid } => self.steps.kill(job, pid, uid),
            Effect::ForgetStep(job) => step_files::forget(self.state_dir.path(), job),
            Effect::MeasureLoad { probe } => {
                let load = load::sample();
                let load = NodeLoad {
                    load1: load.load1,
                    memory_used_bytes: load.memory_used_bytes,
                    daemon_rss_bytes: load.daemon_rss_bytes,
                    steps: 0, // filled in by the core
                };
                self.door.send(Event::Input(Input::Load { probe, load }));
            }
            Effect::Answer { req, answer } => {
                let mut answer = self.unless_unsaved(answer);
                if let (true, Answer::Submitted(job)) = (self.follow.remove(&req), &answer) {
                    self.logs.expect_follower(*job);
                }
                if let Answer::Metrics(families) = &mut answer {
                    families.extend(self.pace.families());
                }
                if let Some(waiting) = self.waiting.remove(&req) {
                    let _ = waiting.send(answer); // the caller may have disconnected
                }
            }
            Effect::Member { member, event } => {
                let client = match &event {
                    join::Event::Wait(_) => self.members.get(&member).cloned(),
                    join::Event::Go(_) | join::Event::Error { .. } => self.members.remove(&member),
                };
                if let Some(client) = client {
                    let _ = client.send(event); // the client may have disconnected
                }
            }
            Effect::Log { job, event } => {
                debug!(job, ?event, "job");
                self.logs.append(job, *event);
            }
            Effect::DropLog(job) => self.logs.drop_log(job),
            Effect::Remember(memory) => {
                self.next_job = memory.next_job;
                if self.identity.next_job < memory.next_job || self.identity.next_node != memory.next_node {
                    self.identity.next_job = memory.next_job + JOB_NUMBERS_AHEAD;
                    self.identity.next_node = memory.next_node;
                    self.write_identity();
                    let Identity { next_job, next_node, .. } = self.identity;
                    self.copies.numbers(Memory { next_job, next_node });
                }
            }
            Effect::Keep(kept) => {
                let Shell { core, journal, .. } = self;
                journal.append(&kept, || core.kept());
                self.copies.append(&kept);
            }
            Effect::StepDown(epoch) => self.step_down(&epoch),
            Effect::OpenPort => {
                if let Some(at) = self.port.open_for_children() {
                    self.door.send(Event::Input(Input::PortOpened { listen: at.to_string() }));
                }
            }
            Effect::Identity { node, dvm, name, reached } => {
                self.reached = reached;
                let identity = Identity { dvm, node, name, ..self.identity.clone() };
                if identity != self.identity || self.ready.is_some() {
                    info!(node, dvm = identity.dvm, name = identity.name, "this daemon has its node id");
                    self.identity = identity;
                    self.write_identity();
                }
                self.report_ready();
            }
            Effect::Ancestors(ancestors) => {
                if let Some(way_up) = &self.way_up {
                    way_up.learn(&ancestors.above, &ancestors.standbys);
                }
                let epoch = ancestors.epoch.as_ref().map_or(0, |epoch| epoch.number);
                self.epochs.send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
                if let Err(error) = self.state_dir.write_ancestors(&ancestors) {
                    warn!(error = format!("{error:#}"), "cannot write which daemons are above this one");
                }
            }
            // Only what a stopped DVM leaves: the jobs that have ended.
            Effect::ForgetKept => {
                let kept = self.core.kept();
                self.journal.rewrite(&kept);
                self.copies.replace(&kept);
            }
            Effect::Exit => {
                self.over = true;
                if self.core.is_head() {
                    let _ = self.journal.rewrite(&self.core.kept()); // after a failure, the file has more than is needed
                }
            }
        }
    }

    /// Writes the daemon's files into a new state directory. Steps write theirs when they connect again.
    fn write_everything(&mut self) {
        self.write_identity();
        if self.core.is_head() {
            let _ = self.journal.rewrite(&self.core.kept()); // after a failure, the next change rewrites the file
        }
        for link in self.core.step_links() {
            self.links.remove(&link);
        }
    }

    /// A node's id and the use of a token are answered only after they are on disk: else the next head would give both again.
    fn unless_unsaved(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Redeemed { .. } if !(self.is_saved && self.journal.is_saved()) => Answer::Refused(Refused {
                exit_code: exit::SYSTEM,
                text: "the head cannot write its records, so it admits no one (see its log)".into(),
            }),
            answer => answer,
        }
    }

    fn write_identity(&mut self) {
        let written = self.state_dir.write_identity(&self.identity);
        self.is_saved = written.is_ok();
        if let Err(error) = written {
            error!(error = format!("{error:#}"), "cannot write the identity of this daemon");
        }
    }

    fn report_ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            self.port.joined();
            let placed = Placed { identity: self.identity.clone(), reached: self.reached.clone() };
            let _ = ready.send(placed); // the receiver is dropped only when the process ends
        }
    }
}

/// Why a head ends that has been replaced.
pub(crate) fn replaced(epoch: u64) -> Failed {
    let text = format!(
        "this daemon was the head of its DVM, and another machine is the head now (epoch {epoch}): its nodes obey this one no more. Start \
         it with rsd start --join HOST:PORT to have it as a node, with --standby as a standby"
    );
    Failed::new(exit::RUNS_ALREADY, text)
}
