//! A step: the part of one job on one node, as a state machine.
//!
//! A step is a rank's only view of its launcher. It has the PMI `engine` with its codecs (`pmi1`, `pmi2`, `service`), the local half of the
//! `fence`, on which the `ring` rides, the KVS, into which keys of other nodes may be fetched (`held`), the values that stay `on_node`,
//! requests that only the head can answer (`calls`), what its ranks wait for (`waits`), the ranks of lost nodes
//! (`losses`), processes of other nodes and jobs (`others`; tests examine these in `probe`), the addresses of ranks (`listening`) and of other frameworks (`meeting`),
//! PMIx, which Open MPI speaks (`pmix`), the start of ranks (`start`), whose `programs` must use one MPI library, the cutting and acknowledging of output (`streams`, `lines`) and the judgement of exits
//! (`exits`), and what they have `used`. Ranks that already run are `members`; their libraries must be of one `kin`, and they enter shared memory
//! `together`. A step is a leaf of the daemons' tree. It keeps everything that must not be lost until it is answered, so that any
//! daemon above may fail and restart.

mod alone;
mod bound;
mod calls;
mod dialect;
mod engine;
mod exits;
mod fence;
mod guard;
mod held;
mod kin;
mod last_output;
mod lines;
mod listening;
mod losses;
mod meeting;
mod members;
mod on_node;
mod others;
mod pmi;
mod pmi1;
mod pmi2;
mod pmix;
#[doc(hidden)]
pub mod probe;
mod programs;
mod ring;
mod service;
mod start;
mod streams;
mod together;
mod used;
mod waits;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::pmi::v1::Spawn;
use rsd_proto::pmix::Hello;
use rsd_proto::v1::{self as wire, Down, LaunchBody, Up, down, up};

use crate::addresses::interface_of;
use crate::kvs::Kvs;
use crate::outbox::{Inbox, Outbox};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, Tuning};

pub use bound::{Bound, MemoryBinding};
pub use calls::SpawnWish;
pub use guard::{LAUNCHERS, Links, Mapped, MappedBy, Reach, matters};
pub use members::MemberStart;
pub use pmix::{Client, Removal, Removed};
pub use programs::Linked;
pub use start::RankStart;

use calls::Calls;
use dialect::Asker;
use exits::Ending;
use fence::Fence;
use guard::Guard;
use held::Fetching;
use kin::Compared;
use lines::Lines;
use listening::Listening;
use meeting::Meeting;
use on_node::OnNode;
use others::Others;
use pmix::Pmix;

/// The index of a rank among those of its node, from 0.
pub type Local = usize;

/// One of a rank's output streams.
pub use rsd_proto::v1::Stream;

/// An event that a step handles.
#[derive(Debug)]
pub enum Input {
    /// Start every rank.
    Start,
    /// The MPI library that each program of the job would load on this node, in their order; None: unknown or none. The answer to
    /// [`Effect::FindLibraries`].
    Linked(Vec<Option<Linked>>),
    /// A free port of this node, reserved for the job's ranks, or a sentence that says why none was found.
    Port(Result<u16, String>),
    /// A sentence for the user about how the ranks run here.
    Remark(String),
    /// A rank is about to run unbound; the sentence says why.
    Unbound(Local, String),
    /// A rank that is about to run has a socket that listens on this port.
    Listening(Local, u16),
    /// A rank is running, as the process with this pid.
    Started(Local, u32),
    /// A rank could not be started; the sentence says why.
    StartFailed(Local, String),
    /// A rank sent these bytes on its PMI connection.
    Pmi(Local, Bytes),
    /// A rank's PMI connection has closed.
    PmiClosed(Local),
    /// A process of the user with this uid has connected to the PMIx server and said which one it is.
    PmixHello(Client, Hello, u32),
    /// A PMIx client sent these bytes.
    Pmix(Client, Bytes),
    /// A PMIx client's connection has closed.
    PmixClosed(Client),
    /// A rank wrote these bytes.
    Output(Local, Stream, Bytes),
    /// A rank's stream has ended: no process can write to it.
    OutputClosed(Local, Stream),
    /// A rank has read this many more bytes of its standard input.
    StdinWritten(Local, u64),
    /// A rank has closed its standard input.
    StdinClosed(Local),
    /// The answer to [`Effect::Describe`] with this number: the job, or a sentence that says why the request is invalid.
    Described(u64, Box<Result<SpawnWish, String>>),
    /// A member has connected to its PMI server, perhaps again.
    Attached(Local),
    /// A member's process has ended or is exiting; may be reported twice.
    Gone(Local),
    /// The files that a rank and its children have mapped, for [`Effect::Look`].
    Mapped(Mapped),
    /// What a program of the job would load, for [`Effect::FindLinks`].
    Links(usize, Links),
    /// What an ended process has used: a rank, before its [`Input::Exited`], or a process that a rank has left.
    Used(Option<Local>, wire::Usage),
    /// A rank's process ended.
    Exited(Local, Status),
    /// The processes that the ranks left running have ended.
    Swept,
    /// Writing a rank's output file failed; the sentence says why.
    OutputFileFailed(Local, String),
    /// The link to the daemon is up.
    LinkUp,
    /// The link to the daemon is down.
    LinkDown,
    /// A message from the daemon.
    Down(Down),
    /// Time has passed.
    Tick,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The process exited with this code.
    Exited(i32),
    /// The process was killed by this signal.
    Signaled(i32),
}

/// An action that a step requests of its process.
#[derive(Debug)]
pub enum Effect {
    /// Find the MPI library that each program of the job would load, and report [`Input::Linked`] before any other input.
    FindLibraries,
    /// Reserve a port for the job's ranks, and report [`Input::Port`].
    FindPort,
    /// Start a rank.
    Spawn(RankStart),
    /// Watch for a member's connection, and for the end of its process.
    Await(MemberStart),
    /// A rank of program `app` wants to spawn a job: complete the request with the rank's environment and directory, and report
    /// [`Input::Described`].
    #[expect(missing_docs, reason = "described above")]
    Describe { number: u64, local: Local, app: usize, spawn: Spawn },
    /// Write to a rank's PMI connection.
    PmiSend(Local, Bytes),
    /// Close a rank's PMI connection.
    PmiClose(Local),
    /// Write to a PMIx client's connection.
    PmixSend(Client, Bytes),
    /// Remove files of ranks that have ended; what is not there, or not the user's, is left alone.
    Remove(Vec<Removal>),
    /// Close a PMIx client's connection after what was written. Its end need not be reported.
    PmixClose(Client),
    /// Write to a rank's standard input.
    StdinWrite(Local, Bytes),
    /// Close a rank's standard input after what was written.
    StdinClose(Local),
    /// Look at what a rank and its descendants have mapped, except descendants of [`LAUNCHERS`]; then report [`Input::Mapped`].
    Look(Local),
    /// Find out which MPI libraries a program of the job would load, by its index; then report [`Input::Links`].
    FindLinks(usize),
    /// Send a signal to a rank's process group.
    Signal(Local, i32),
    /// End all remaining descendants of the step process, then report [`Input::Swept`].
    Sweep,
    /// Append to the output file of a rank.
    OutputFile(Local, Stream, Bytes),
    /// Write this sentence to the log.
    Warn(String),
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
    /// The group whose members the ranks are, if any.
    group: Option<String>,
    tuning: Tuning,
    ranks: Vec<Rank>,
    kvs: Kvs,
    on_node: OnNode,
    fence: Fence,
    fetching: Fetching,
    calls: Calls,
    others: Others,
    pmix: Pmix,
    listening: Listening,
    guard: Guard,
    /// For a spawned job: whether the start of all ranks here was reported.
    begun: bool,
    meeting: Meeting,
    compared: Compared,
    outbox: Outbox<Vec<wire::Record>>,
    /// Output records of this round, not yet in the outbox.
    fresh: Vec<wire::Record>,
    stdin: Inbox,
    stdin_acked: u64,
    ending: Ending,
    used: wire::Usage,
    /// The ranks that run unbound, and why; reported when all have started.
    unbound: Vec<(Local, String)>,
    /// The address at which ranks listen for ranks of other nodes; empty if unknown.
    address: String,
    /// Notices for the user, sent on every new link.
    notices: Vec<String>,
    link_up: bool,
    attached_before: bool,
    /// The lost nodes without which the job continues, and why they are lost.
    lost: BTreeMap<NodeId, String>,
    /// The lost ranks of other nodes, and of this one, without which it continues, and how they ended.
    lost_ranks: BTreeMap<u32, String>,
    /// When to give up if the link is still down.
    orphaned_at: Option<Duration>,
    /// When to give up if the daemon has no way to the head until then.
    cut_off_at: Option<Duration>,
}

/// One local rank.
#[derive(Debug)]
struct Rank {
    rank: u32,
    app: usize,
    part: bound::Part,
    phase: Phase,
    /// Its process; 0: unknown.
    pid: u32,
    /// Whether its MPI library is told about lost ranks.
    wants_losses: bool,
    pmi: pmi::Conn,
    /// The rank's own number for the last fence that it passed over gRPC, in case it repeats the request; 0: none.
    passed: u64,
    /// The port at which it listens for ranks of other nodes; 0: none.
    port: u16,
    lines: [Lines; 2],
    stdin: StdinState,
    verdict: exits::Verdict,
    /// Set if rsd did not start the process.
    member: Option<members::Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Exited(Status),
    NeverRan,
    /// A member that has left the epoch.
    Left,
}

impl Phase {
    fn is_over(self) -> bool {
        matches!(self, Phase::Exited(_) | Phase::NeverRan | Phase::Left)
    }
}

/// A rank's standard input.
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
    /// Returns the step of `job` on `node`, which `inventory` describes; no rank is started. Fails with a sentence if the launch
    /// is inconsistent, which is an error of its sender.
    pub fn new(
        job: JobId,
        node: NodeId,
        map: TaskMap,
        launch: LaunchBody,
        inventory: &wire::Inventory,
        tuning: Tuning,
    ) -> Result<Step, String> {
        let here = map.count_on(node) as usize;
        let kvs = Kvs::preset(&launch.preput, map.nodes().len());
        let (parts, notice) = bound::parts(node, &map, &launch, inventory, here)?;
        let ranks = start::local_ranks(node, &map, &launch, parts, tuning)?;
        let at = map.position(node);
        let address = at.and_then(|at| launch.node_addresses.get(at)).cloned().unwrap_or_default();
        let meeting = Meeting::new(&launch, interface_of(inventory, &address).to_owned())?;
        Ok(Step {
            job,
            node,
            map,
            launch,
            group: None,
            tuning,
            ranks,
            kvs,
            on_node: OnNode::default(),
            fence: Fence { number: 1, waiting: Vec::new(), since: Duration::ZERO, sent: Vec::new() },
            fetching: Fetching::default(),
            calls: Calls::default(),
            others: Others::default(),
            pmix: Pmix::default(),
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
            used: wire::Usage::default(),
            unbound: Vec::new(),
            notices: notice.into_iter().collect(),
            address,
            link_up: false,
            attached_before: false,
            lost: BTreeMap::new(),
            lost_ranks: BTreeMap::new(),
            orphaned_at: None,
            cut_off_at: None,
        })
    }

    /// Handles one input and appends its effects, in the order in which they must be performed.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => self.on_start(now, out),
            Input::Linked(linked) => self.on_linked(now, &linked, out),
            Input::Port(found) => self.on_port(now, found, out),
            Input::Remark(text) => self.notify_user(text, out),
            Input::Unbound(local, why) => self.on_unbound(local, why),
            Input::Listening(local, port) => self.ranks[local].port = port,
            Input::Started(local, pid) => self.on_started(local, pid, out),
            Input::StartFailed(local, why) => self.on_start_failed(now, local, why, out),
            Input::Pmi(local, bytes) => self.on_pmi(now, local, &bytes, out),
            Input::PmiClosed(local) => self.on_pmi_closed(now, local, out),
            Input::PmixHello(client, hello, uid) => self.on_pmix_hello(now, client, &hello, uid, out),
            Input::Pmix(client, bytes) => self.on_pmix(now, client, &bytes, out),
            Input::PmixClosed(client) => self.on_pmix_gone(now, client, out),
            Input::Described(number, wish) => self.on_described(number, *wish, out),
            Input::Attached(local) => self.on_attached(local, out),
            Input::Gone(local) => self.on_gone(now, local, out),
            Input::Output(local, stream, bytes) => self.on_output(local, stream, &bytes, out),
            Input::OutputClosed(local, stream) => self.on_output_closed(now, local, stream, out),
            Input::StdinWritten(local, bytes) => self.on_stdin_written(local, bytes, out),
            Input::StdinClosed(local) => self.on_stdin_closed(local, out),
            Input::Mapped(mapped) => self.on_mapped(now, &mapped, out),
            Input::Links(app, links) => self.on_links(now, app, &links, out),
            Input::Used(local, used) => self.on_used(local, used),
            Input::Exited(local, status) => self.on_exited(now, local, status, out),
            Input::Swept => self.ending.swept = true,
            Input::OutputFileFailed(local, why) => self.on_output_file_failed(now, local, why, out),
            Input::LinkUp => {
                self.link_up = true;
                (self.orphaned_at, self.cut_off_at) = (None, None);
                self.resync(now, out);
            }
            Input::LinkDown => {
                self.link_up = false;
                self.fence.waiting.iter_mut().for_each(Asker::disconnect);
                self.forget_fetches_of_calls();
                self.orphaned_at.get_or_insert(now.mono + self.tuning.orphan_deadline);
            }
            Input::Down(down) => self.on_down(now, down, out),
            Input::Tick => {}
        }
    }

    /// Sends the output of a batch of inputs and does what is due. Must be called after each batch.
    pub fn settle(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.settle_notice(out);
        self.settle_listening(out);
        self.settle_begun(out);
        self.settle_output(out);
        self.settle_members(now, out);
        self.settle_held(now, out);
        self.settle_others(now, out);
        self.settle_pmix(now, out);
        self.settle_guard(now, out);
        self.settle_exits(now, out);
        self.settle_alone(now, out);
        self.settle_end(out);
    }

    /// Returns the latest time at which [`Input::Tick`] must be passed.
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadlines = self.exit_deadlines().chain(self.member_deadlines());
        let deadlines = deadlines.chain(self.pmix_deadline()).chain(self.held_deadline());
        deadlines.chain(self.guard_deadline()).chain(self.orphaned_at).chain(self.cut_off_at).min()
    }

    /// Returns whether the step process may read more output: false while too much is unacknowledged.
    pub fn wants_output(&self) -> bool {
        self.outbox.is_open()
    }

    /// Returns the number of ranks of this step.
    pub fn ranks_here(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns the first message on every new link. `pmi_port`: the port of the members' PMI server; 0 for other ranks.
    pub fn hello(&self, pid: u32, pmi_port: u16) -> wire::StepHello {
        let namespace = self.launch.namespace.clone();
        wire::StepHello { job: self.job, pid, map: Some((&self.map).into()), pmi_port: pmi_port.into(), namespace }
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
                self.ending.set_why(kill.reason);
                self.kill(now, kill.grace_ms, out);
            }
            down::Body::Release(_) => self.on_release(now, out),
            down::Body::OutputAck(ack) => self.outbox.ack(ack.offset),
            down::Body::Stdin(stdin) => self.on_stdin(stdin, out),
            down::Body::PmiCall(call) => self.on_pmi_call(now, call, out),
            down::Body::SpawnResult(result) => self.on_spawn_result(result, out),
            down::Body::NameResult(result) => {
                if !self.on_ticket_result(now, &result, out) {
                    self.on_name_result(result, out);
                }
            }
            down::Body::Fetch(fetch) => self.on_fetch_request(now, fetch, out),
            down::Body::WatchEnds(_) => self.on_ends_wanted(out),
            down::Body::Notify(notify) => self.on_notify(now, notify, out),
            down::Body::NodesLost(lost) => self.on_nodes_lost(&lost, out),
            down::Body::Locations(locations) => self.on_locations(locations, out),
            down::Body::Held(held) => self.on_held(now, held, out),
            down::Body::Collect(collect) => self.on_collect(&collect, out),
            down::Body::WaitProbe(probe) => self.on_wait_probe(now, &probe, out),
            down::Body::Resync(_) => {
                self.cut_off_at = None;
                self.resync(now, out);
            }
            down::Body::CutOff(wire::CutOff { ms }) => self.on_cut_off(now, ms),
            down::Body::Ping(wire::Ping { job }) => self.send(up::Body::Pong(wire::Pong { job }), out),
            // These are messages between daemons.
            down::Body::Welcome(_)
            | down::Body::Redirect(_)
            | down::Body::Refused(_)
            | down::Body::Ancestors(_)
            | down::Body::Leave(_)
            | down::Body::Launch(_)
            | down::Body::Check(_)
            | down::Body::WantResult(_)
            | down::Body::LoadProbe(_)
            | down::Body::GroupState(_)
            | down::Body::Part(_)
            | down::Body::OpenPort(_)
            | down::Body::Stop(_) => {}
        }
    }

    /// Sends everything unanswered again, in the original order.
    fn resync(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.attached_before {
            let (map, node) = (Some((&self.map).into()), Some(self.node));
            let (events_seen, output_acked) = (self.events_seen(), self.outbox.acked());
            let resume = wire::Resume { job: self.job, map, node, events_seen, output_acked };
            self.send(up::Body::Resume(resume), out);
        }
        self.attached_before = true;
        self.send_notices(out);
        self.send_listening(out);
        self.send_begun(out);
        self.send_master(out);
        for fence in self.fence.sent.clone() {
            let has_result = fence.epoch < self.fence.number;
            self.send(up::Body::FenceUp(wire::FenceUp { has_result, ..fence }), out);
        }
        self.ask_again(out);
        self.resend_held(out);
        self.send_ends(out);
        for (offset, records) in self.outbox.unacked() {
            let records = records.clone();
            let output = wire::Output { job: self.job, node: self.node, offset, records };
            out.push(Effect::Up(Up { body: Some(up::Body::Output(output)) }));
        }
        self.resend_exits(now, out);
        self.send_stdin_ack(true, out);
    }

    /// Sends if the link is up. Messages that must not be lost are also kept, and [`Step::resync`] sends them again on the next
    /// link.
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
