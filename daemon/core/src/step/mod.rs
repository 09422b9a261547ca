//! A step: the part of one job on one node, as a state machine.
//!
//! It owns what a rank can see of its launcher: the PMI dialogue (`pmi`), the `fence`'s local half, the key-value store, what only
//! the head can answer (`calls`), where ranks listen (`listening`), where those of other frameworks meet (`meeting`), how its ranks are started (`start`), the way its
//! output takes (`streams`, `lines`) and the verdict over its end (`exits`). Ranks that run already are `members`, of one `kin`, who go into
//! shared memory `together`. It is a leaf of the daemons' tree and keeps everything that must not be lost until it is answered,
//! so that any daemon above may die and come back.

mod bound;
mod calls;
mod exits;
mod fence;
mod guard;
mod kin;
mod lines;
mod listening;
mod meeting;
mod members;
mod pmi;
mod start;
mod streams;
mod together;

use std::time::Duration;

use bytes::Bytes;
use rsd_proto::pmi::v1::Spawn;
use rsd_proto::v1::{self as wire, Down, LaunchBody, Up, down, up};

use crate::kvs::Kvs;
use crate::outbox::{Inbox, Outbox};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, Tuning};

pub use bound::{Bound, MemoryBinding};
pub use calls::SpawnWish;
pub use guard::{LAUNCHERS, Mapped, has_lost_us, is_mpi, matters};
pub use members::MemberStart;
pub use start::RankStart;

use calls::Calls;
use exits::Ending;
use fence::{Fence, Waiter};
use guard::Guard;
use kin::Compared;
use lines::Lines;
use listening::Listening;
use meeting::Meeting;

/// The index of a rank among those of its node, from 0.
pub type Local = usize;

/// One of a rank's output streams.
pub use rsd_proto::v1::Stream;

/// What happens to a step.
#[derive(Debug)]
pub enum Input {
    /// Begin: every rank is to be started.
    Start,
    /// A port of this node that is free and stays so for the job's ranks; or why there is none, as a sentence.
    Port(Result<u16, String>),
    /// A rank is about to run without what it was to be bound to: why, as a sentence.
    Unbound(Local, String),
    /// A rank that is about to run has a socket that listens at this port.
    Listening(Local, u16),
    /// A rank runs.
    Started(Local),
    /// A rank could not be started: why, as a sentence.
    StartFailed(Local, String),
    /// A rank sent this on its PMI connection.
    Pmi(Local, Bytes),
    /// A rank's PMI connection is closed.
    PmiClosed(Local),
    /// A rank wrote this.
    Output(Local, Stream, Bytes),
    /// A rank's stream is at its end, or nobody can write it any more.
    OutputClosed(Local, Stream),
    /// A rank took this many bytes of its standard input.
    StdinWritten(Local, u64),
    /// A rank reads its standard input no longer.
    StdinClosed(Local),
    /// The job that [`Effect::Describe`] asked about; else why there is none, as a sentence.
    Described(Local, Box<Result<SpawnWish, String>>),
    /// A member has connected to its PMI server, perhaps anew.
    Attached(Local),
    /// A member's process has ended.
    Gone(Local),
    /// What a rank and its children have mapped, for [`Effect::Look`].
    Mapped(Mapped),
    /// A rank's process ended.
    Exited(Local, Status),
    /// What the ranks left running has been killed.
    Swept,
    /// Writing a rank's output file failed: why, as a sentence.
    OutputFileFailed(Local, String),
    /// The link to the daemon is there (again).
    LinkUp,
    /// The link to the daemon is cut.
    LinkDown,
    /// A message from the daemon.
    Down(Down),
    /// Time has passed.
    Tick,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// What the shell of a step is to do.
#[derive(Debug)]
pub enum Effect {
    /// Find a port for the job's ranks, and say [`Input::Port`].
    FindPort,
    /// Start a rank.
    Spawn(RankStart),
    /// Wait for a member: for its connection, and for the end of its process.
    Await(MemberStart),
    /// A rank, one of program `app`, wants to spawn a job: with its environment and directory that is what
    /// [`Input::Described`] is to say.
    #[expect(missing_docs, reason = "said above")]
    Describe { local: Local, app: usize, spawn: Spawn },
    /// Write to a rank's PMI connection.
    PmiSend(Local, Bytes),
    /// Close a rank's PMI connection.
    PmiClose(Local),
    /// Write to a rank's standard input.
    StdinWrite(Local, Bytes),
    /// Close a rank's standard input behind what was written.
    StdinClose(Local),
    /// See what a rank and the processes below it have mapped, but for those below [`LAUNCHERS`]; then say [`Input::Mapped`].
    Look(Local),
    /// Send a signal to a rank's process group.
    Signal(Local, i32),
    /// Kill whatever still runs below this step, then say [`Input::Swept`].
    Sweep,
    /// Append to the output file of a rank.
    OutputFile(Local, Stream, Bytes),
    /// Send to the daemon.
    Up(Up),
    /// The step is over: the process may exit.
    Exit,
}

/// One node's part of one job.
#[derive(Debug)]
pub struct Step {
    job: JobId,
    node: NodeId,
    map: TaskMap,
    launch: LaunchBody,
    /// Of which group the ranks are members.
    group: Option<String>,
    tuning: Tuning,
    ranks: Vec<Rank>,
    kvs: Kvs,
    fence: Fence,
    calls: Calls,
    listening: Listening,
    guard: Guard,
    /// Of a spawned job: it was said that all ranks here run.
    begun: bool,
    meeting: Meeting,
    compared: Compared,
    outbox: Outbox<Vec<wire::Record>>,
    /// Records of this round, not yet in the outbox.
    fresh: Vec<wire::Record>,
    stdin: Inbox,
    stdin_acked: u64,
    ending: Ending,
    /// Ranks that run unbound and why, until all have started.
    unbound: Vec<(Local, String)>,
    /// Where ranks listen for those on other nodes; empty if nobody knows.
    address: String,
    /// What the user should know, to be sent on every new link.
    notices: Vec<String>,
    link_up: bool,
    attached_before: bool,
    /// With the link cut: when to give up.
    orphaned_at: Option<Duration>,
}

/// One local rank.
#[derive(Debug)]
struct Rank {
    rank: u32,
    app: usize,
    part: bound::Part,
    phase: Phase,
    pmi: pmi::Conn,
    /// Its own number for the last fence that it has passed by the gRPC service; 0: none that it may ask for again.
    passed: u64,
    /// Where it listens for ranks of other nodes; 0: nowhere.
    port: u16,
    lines: [Lines; 2],
    stdin: StdinState,
    verdict: exits::Verdict,
    /// It runs already, and is not ours.
    member: Option<members::Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Exited(Status),
    NeverRan,
    /// A member that is no longer in the epoch.
    Left,
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Phase::Exited(_) | Phase::NeverRan | Phase::Left)
    }
}

/// What a rank that reads the client's standard input has taken of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StdinState {
    /// It reads /dev/null.
    Null,
    Open {
        written: u64,
    },
    Closed,
}

impl Step {
    /// The part of `job` on `node`, of which `inventory` tells; nothing started. Fails with a sentence when the launch does not
    /// fit together, which is the sender's fault.
    pub fn new(
        job: JobId,
        node: NodeId,
        map: TaskMap,
        launch: LaunchBody,
        inventory: &wire::Inventory,
        tuning: Tuning,
    ) -> Result<Step, String> {
        let here = map.count_on(node) as usize;
        let kvs = Kvs::preset(&launch.preput);
        let (parts, notice) = bound::parts(node, &map, &launch, inventory, here)?;
        let ranks = start::local_ranks(node, &map, &launch, parts, tuning)?;
        let meeting = Meeting::new(&launch, inventory)?;
        Ok(Step {
            job,
            node,
            map,
            launch,
            group: None,
            tuning,
            ranks,
            kvs,
            fence: Fence { epoch: 1, waiting: Vec::new(), sent: Vec::new() },
            calls: Calls::default(),
            listening: Listening::default(),
            guard: Guard::default(),
            begun: false,
            meeting,
            compared: Compared::default(),
            outbox: Outbox::new(tuning.output_window),
            fresh: Vec::new(),
            stdin: Inbox::default(),
            stdin_acked: 0,
            ending: Ending::default(),
            unbound: Vec::new(),
            notices: notice.into_iter().collect(),
            address: inventory.address.clone(),
            link_up: false,
            attached_before: false,
            orphaned_at: None,
        })
    }

    /// Takes one input at a time and appends what is to be done about it.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => self.on_start(now, out),
            Input::Port(found) => self.on_port(now, found, out),
            Input::Unbound(local, why) => self.on_unbound(local, why),
            Input::Listening(local, port) => self.ranks[local].port = port,
            Input::Started(local) => self.on_started(now, local, out),
            Input::StartFailed(local, why) => self.on_start_failed(now, local, why, out),
            Input::Pmi(local, bytes) => self.on_pmi(now, local, &bytes, out),
            Input::PmiClosed(local) => self.on_pmi_closed(now, local, out),
            Input::Described(local, wish) => self.on_described(local, *wish, out),
            Input::Attached(local) => self.on_attached(local, out),
            Input::Gone(local) => self.on_gone(now, local, out),
            Input::Output(local, stream, bytes) => self.on_output(local, stream, &bytes, out),
            Input::OutputClosed(local, stream) => self.on_output_closed(now, local, stream, out),
            Input::StdinWritten(local, bytes) => self.on_stdin_written(local, bytes, out),
            Input::StdinClosed(local) => self.on_stdin_closed(local, out),
            Input::Mapped(mapped) => self.on_mapped(&mapped, out),
            Input::Exited(local, status) => self.on_exited(now, local, status, out),
            Input::Swept => self.ending.swept = true,
            Input::OutputFileFailed(local, why) => self.on_output_file_failed(now, local, why, out),
            Input::LinkUp => {
                self.link_up = true;
                self.orphaned_at = None;
                self.resync(now, out);
            }
            Input::LinkDown => {
                self.link_up = false;
                for (_, waiter) in &mut self.fence.waiting {
                    if let Waiter::Call { attempt, .. } = *waiter {
                        *waiter = Waiter::Nobody { attempt };
                    }
                }
                self.orphaned_at.get_or_insert(now.mono + self.tuning.orphan_deadline);
            }
            Input::Down(down) => self.on_down(now, down, out),
            Input::Tick => {}
        }
    }

    /// After a batch of inputs: sends the batch's output and does what is due by time or by the ranks' state.
    pub fn settle(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.settle_notice(out);
        self.settle_listening(out);
        self.settle_begun(out);
        self.settle_output(out);
        self.settle_members(now, out);
        self.settle_guard(now, out);
        self.settle_exits(now, out);
        if self.orphaned_at.is_some_and(|at| at <= now.mono) {
            self.orphaned_at = None;
            self.ending.orphaned = true;
            let grace = self.tuning.kill_grace.as_millis();
            let grace_ms = self.launch_spec().kill_grace_ms.unwrap_or(u64::try_from(grace).unwrap_or(u64::MAX));
            self.kill(now, grace_ms, out);
        }
        self.settle_end(out);
    }

    /// When [`Input::Tick`] is wanted at the latest.
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadlines = self.exit_deadlines().chain(self.member_deadlines());
        deadlines.chain(self.guard_deadline()).chain(self.orphaned_at).min()
    }

    /// Whether the shell may read more output: false while too much is on its way.
    pub fn wants_output(&self) -> bool {
        self.outbox.is_open()
    }

    /// What the daemon is told first on every new link. `pmi_port`: where members find their PMI server; 0 for other ranks.
    pub fn hello(&self, pid: u32, pmi_port: u16) -> wire::StepHello {
        wire::StepHello { job: self.job, pid, map: Some((&self.map).into()), pmi_port: pmi_port.into() }
    }

    fn launch_spec(&self) -> &wire::JobSpec {
        self.launch.spec.as_ref().expect("Step::new refused a launch without a spec")
    }

    fn on_down(&mut self, now: Now, down: Down, out: &mut Vec<Effect>) {
        let Some(body) = down.body else { return };
        match body {
            down::Body::FenceDown(fence) => self.on_fence_down(now, fence, out),
            down::Body::Signal(signal) => self.on_signal(signal, out),
            down::Body::Kill(kill) => {
                self.ending.tell(kill.reason);
                self.kill(now, kill.grace_ms, out);
            }
            down::Body::Release(_) => self.on_release(now, out),
            down::Body::OutputAck(ack) => self.outbox.ack(ack.offset),
            down::Body::Stdin(stdin) => self.on_stdin(stdin, out),
            down::Body::PmiCall(call) => self.on_pmi_call(call, out),
            down::Body::SpawnResult(result) => self.on_spawn_result(result, out),
            down::Body::NameResult(result) => self.on_name_result(result, out),
            down::Body::Locations(locations) => self.on_locations(locations, out),
            down::Body::Resync(_) => self.resync(now, out),
            // These are between daemons.
            down::Body::Welcome(_)
            | down::Body::Redirect(_)
            | down::Body::Launch(_)
            | down::Body::LoadProbe(_)
            | down::Body::GroupState(_)
            | down::Body::Stop(_) => {}
        }
    }

    /// Sends everything unanswered again, in the order in which it was sent first.
    fn resync(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.attached_before {
            self.send(up::Body::Resume(wire::Resume { job: self.job, map: Some((&self.map).into()) }), out);
        }
        self.attached_before = true;
        self.send_notices(out);
        self.send_listening(out);
        self.send_begun(out);
        self.send_master(out);
        for fence in self.fence.sent.clone() {
            self.send(up::Body::FenceUp(fence), out);
        }
        self.ask_again(out);
        for (offset, records) in self.outbox.unacked() {
            let records = records.clone();
            let output = wire::Output { job: self.job, node: self.node, offset, records };
            out.push(Effect::Up(Up { body: Some(up::Body::Output(output)) }));
        }
        self.resend_exits(now, out);
        self.send_stdin_ack(true, out);
    }

    /// Sends if there is a link; what matters is kept and sent by [`Step::resync`] when there is one again.
    fn send(&self, body: up::Body, out: &mut Vec<Effect>) {
        if self.link_up {
            out.push(Effect::Up(Up { body: Some(body) }));
        }
    }

    fn on_signal(&mut self, signal: wire::Signal, out: &mut Vec<Effect>) {
        for (local, rank) in self.ranks.iter().enumerate() {
            if rank.member.is_none()
                && rank.phase == Phase::Running
                && signal.rank.is_none_or(|wanted| wanted == rank.rank)
            {
                out.push(Effect::Signal(local, signal.signal));
            }
        }
    }
}
