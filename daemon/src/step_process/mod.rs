//! `rsd step`: the process around [`rsd_core::Step`]. It owns a node's ranks of one job, outlives its daemon, and connects to the
//! daemon that runs in its state directory.
//!
//! It has one thread: tasks read the ranks' pipes and sockets and the link, and one loop feeds the core and performs its effects.
//! Output arrives in a bounded queue that is read only while the state machine wants more. All other events arrive in another
//! queue, so that a rank that floods its output does not delay other ranks' fences.

mod link;
mod linked;
mod mapped;
mod members;
mod pmi_socket;
mod pmix_port;
mod port;
mod ranks;
mod spawning;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, geteuid};
use prost::Message;
use rsd_config::ports::PortRange;
use rsd_core::leftovers::{self, Leftovers};
use rsd_core::step::{Effect, Input, Local, Mapped, RankStart, SpawnWish, Status};
use rsd_core::taskmap::TaskMap;
use rsd_core::{JobId, NodeId, Step};
use rsd_proto::pmi::v1::Spawn;
use rsd_proto::pmix::fabric::Devices;
use rsd_proto::transport::parts::split;
use rsd_proto::v1::{GroupEpoch, Inherited, JobSpec, Launch, LaunchBody, Up, stdin_target, up};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as Arrivals, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{debug, error_span, warn};

use crate::clock::Clock;
use crate::descriptors::{self, Room};
use crate::disk::state_dir;
use crate::disk::step_files::{self, StepFile};
use crate::options::StepOptions;
use crate::owner::Owner;
use crate::reap::{self, Ended, Exit};
use crate::spawn::{self, Adopted};
use link::Line;
use members::{Knock, Members};
use pmix_port::{Arrival, PmixPort};
use port::KeptPort;
use ranks::{Ranks, Started};

/// The number of ranks that are started at a time; while they start, each of their pipes and sockets is open twice.
const SPAWN_CHUNK: usize = 64;
/// The most output messages that wait for the state machine.
const OUTPUT_QUEUE: usize = 16;

/// A report of a step's task to its loop.
#[derive(Debug)]
enum Event {
    Input(Input),
    /// The link is up; this sends on it.
    LinkUp(mpsc::UnboundedSender<Up>),
    /// A member of a group has connected.
    Knock(Knock),
    /// A PMIx client has connected.
    PmixArrival(Arrival),
}

pub(crate) fn main(options: StepOptions) -> anyhow::Result<()> {
    let settings = crate::settings::settings()?;
    // An order that arrives is valid while this process lives.
    let daemon = Pid::parent();
    let given = match &options.user {
        Some(owner) => match become_owner(owner)? {
            None => return Ok(()),
            given => given,
        },
        None => None,
    };
    spawn::seal_inherited().context("list inherited descriptors")?;
    // A signal to the daemon's terminal or process group must not reach this process.
    nix::unistd::setsid().context("leave the daemon's session")?;
    reap::become_subreaper().context("become a subreaper")?;
    if let Some(files) = options.nofile {
        descriptors::lower(files);
    }
    let level = options.logging.log.as_deref().unwrap_or(&settings.log.level);
    crate::logging::start(level, options.logging.log_format.unwrap_or(settings.log.format))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let tuning = crate::settings::tuning(&settings);
    tokio::task::LocalSet::new().block_on(&runtime, async {
        // Everything that does not need the order is done before it arrives, because a launch waits for the rest.
        let first_line = link::open(&options.state_dir).await.ok();
        let signals = Signals::listen()?;
        let inventory = state_dir::inventory(&options.state_dir);
        let devices = Devices::look(Path::new("/"), SystemTime::now());
        spawn::map_own_text();
        let order = match options.order.as_deref() {
            Some([job, node]) => Some((*job, NodeId::try_from(*node).context("read the order")?)),
            Some(_) | None => wait_for_order().await?,
        };
        let Some((job, node)) = order else { return Ok(()) };
        // All lines of this process are about one job. (It has one thread, so the span is around everything that follows.)
        let _about = error_span!("step", job, node).entered();
        let taken = match given {
            Some(given) => Some(given),
            None => step_files::take_step(&options.state_dir, job, || Pid::parent() == daemon && !is_order_over())?,
        };
        let Some((launch, file)) = taken else { return Ok(()) };
        let map = launch.map.context("the launch has no map")?;
        let map = TaskMap::try_from(map).map_err(|error| anyhow!("the launch's map: {error}"))?;
        let ranks = map.count_on(node).into();
        let body = LaunchBody::decode(launch.body).context("read the launch")?;
        let mut core = Step::new(job, node, map, body.clone(), &inventory, tuning).map_err(|error| anyhow!(error))?;
        let of_group = !launch.group.is_empty();
        if of_group {
            let epoch = GroupEpoch::decode(launch.group).context("read the launch's group")?;
            core = core.of_members(&epoch, nix::unistd::geteuid().as_raw()).map_err(|error| anyhow!(error))?;
        }
        let inherited = body.spec.as_ref().and_then(|spec| spec.inherited.as_ref());
        let room = match of_group {
            true => Room::Enough, // members have their own pipes
            false => descriptors::make_room(ranks, body.spec.as_ref().map_or(0, files_of_each_rank)),
        };
        let adopted = spawn::adopt(inherited.unwrap_or(&Inherited::default()), room);
        // The daemon has validated it.
        let ports = inventory.port_range.parse().unwrap_or_default();
        run(&options.state_dir, core, body, file, adopted, ports, of_group, signals, devices, first_line).await
    })
}

/// Takes the job's launch, which is the file at standard input, and becomes the job's user. None: the launch is not for this process. If
/// the process cannot do this, it tells the daemon why on its standard output.
fn become_owner(owner: &Owner) -> anyhow::Result<Option<(Launch, StepFile)>> {
    let given = || std::io::stdin().as_fd().try_clone_to_owned().map(File::from).context("open standard input");
    let taken = spawn::make_log_append_only()
        .context("open the daemon's log again")
        .and_then(|()| step_files::take_given(&given()?))
        .and_then(|launch| spawn::become_user(owner).map(|()| launch));
    let Some(launch) = taken.inspect_err(|error| println!("{error:#}"))? else { return Ok(None) };
    // Becoming the user has closed all files but the standard streams.
    let file = StepFile::given(given()?);
    spawn::detach_streams().context("detach from the daemon's streams")?;
    Ok(Some((launch, file)))
}

/// The files that a rank of the job needs in its step, besides the pipes that all ranks need.
fn files_of_each_rank(spec: &JobSpec) -> u64 {
    let reads_stdin =
        spec.stdin.as_ref().is_some_and(|stdin| matches!(stdin.target, Some(stdin_target::Target::All(true))));
    2 * u64::from(!spec.output_dir.is_empty()) + u64::from(reads_stdin)
}

/// Whether the daemon that gave the order holds the pipe no longer: it has ended, or another program has taken its place.
fn is_order_over() -> bool {
    let stdin = std::io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR;
    poll(&mut polled, PollTimeout::ZERO).is_ok() && polled[0].revents().is_some_and(|events| events.intersects(closed))
}

/// Waits for the order, a job and this node's id. None: the daemon has ended first.
async fn wait_for_order() -> anyhow::Result<Option<(JobId, NodeId)>> {
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().context("open standard input")?;
    let stdin = BufReader::new(pipe::Receiver::from_owned_fd(stdin).context("open standard input")?);
    let Some(order) = stdin.lines().next_line().await.context("wait for an order")? else { return Ok(None) };
    let words = order.split_once(' ').and_then(|(job, node)| Some((job.parse().ok()?, node.parse().ok()?)));
    words.map(Some).with_context(|| format!("invalid order {order:?}: expected a job and a node"))
}

/// The signals that a step handles or ignores.
struct Signals {
    child: Arrivals,
    /// Signals that may stop the daemon, but not its ranks.
    _ignored: [Arrivals; 3],
}

impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("watch for signals");
        Ok(Signals {
            child: listen(SignalKind::child())?,
            _ignored: [
                listen(SignalKind::terminate())?,
                listen(SignalKind::interrupt())?,
                listen(SignalKind::hangup())?,
            ],
        })
    }
}

#[expect(clippy::too_many_arguments, reason = "everything that a step process stands on, once")]
async fn run(
    state_dir: &Path,
    mut core: Step,
    launch: LaunchBody,
    file: StepFile,
    adopted: Adopted,
    ports: PortRange,
    of_group: bool,
    mut signals: Signals,
    devices: Devices,
    first_line: Option<Line>,
) -> anyhow::Result<()> {
    let (events, mut inbox) = mpsc::unbounded_channel();
    let (output, mut output_inbox) = mpsc::channel(OUTPUT_QUEUE);

    let members = match of_group {
        true => Some(Members::listen(ports, events.clone()).context("listen for the group's members")?),
        false => None,
    };
    let pmix = match &members {
        Some(members) => {
            let (port, server) = PmixPort::of_members(members.port(), core.ranks_here(), events.clone());
            core = core.serve_pmix(server);
            Some(port)
        }
        None => match PmixPort::listen(&launch, core.ranks_here(), devices, events.clone()) {
            Ok((port, server)) => {
                core = core.serve_pmix(server);
                Some(port)
            }
            Err(error) => {
                warn!(%error, "cannot listen for PMIx clients: Open MPI will not find rsd");
                None
            }
        },
    };
    let namespace = launch.namespace.clone();
    let mut process = StepProcess {
        hello: core.hello(std::process::id(), members.as_ref().map_or(0, Members::port)),
        core,
        clock: Clock::start(),
        ranks: Ranks::new(state_dir, launch, adopted.of_ranks, ports, events.clone(), output),
        members,
        pmix,
        pids: HashMap::new(),
        up: None,
        sweep: None,
        namespace,
        state_dir: state_dir.to_owned(),
        file,
        starts: Vec::new(),
        ports,
        port: None,
        over: false,
    };
    tokio::task::spawn_local(link::keep(state_dir.to_owned(), process.hello.clone(), events, first_line));
    tokio::task::yield_now().await;
    process.take(adopted.notices.into_iter().map(Input::Remark).chain([Input::Start])).await;

    while !process.over {
        let deadline = process.next_deadline();
        tokio::select! {
            event = inbox.recv() => {
                // The senders live in this function's tasks; the queue cannot be closed.
                let Some(event) = event else { break };
                process.on_event(event);
                while let Ok(event) = inbox.try_recv() {
                    process.on_event(event);
                }
            }
            input = output_inbox.recv(), if process.core.wants_output() => {
                if let Some(input) = input {
                    process.take([input]).await;
                }
            }
            _ = signals.child.recv() => {
                // What a rank sent before it ended comes first: an abort explains its exit.
                while let Ok(event) = inbox.try_recv() {
                    process.on_event(event);
                }
                process.reap();
            }
            () = tokio::time::sleep_until(deadline.into()) => {
                process.tick();
            }
        }
        process.take([]).await;
    }
    // The daemon usually shares this core, and must still report the end.
    std::thread::yield_now();
    Ok(())
}

struct StepProcess {
    core: Step,
    hello: rsd_proto::v1::StepHello,
    clock: Clock,
    ranks: Ranks,
    /// The members, in the epoch of a group.
    members: Option<Members>,
    pmix: Option<PmixPort>,
    pids: HashMap<Pid, Local>,
    up: Option<mpsc::UnboundedSender<Up>>,
    /// Set while leftover processes of the ranks are being ended.
    sweep: Option<Leftovers>,
    namespace: String,
    state_dir: PathBuf,
    file: StepFile,
    /// Ranks that are started together.
    starts: Vec<RankStart>,
    /// The port that is reserved for rank 0.
    ports: PortRange,
    port: Option<KeptPort>,
    over: bool,
}

impl StepProcess {
    /// Handles inputs and their consequences until none are left.
    async fn take(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let mut effects = Vec::new();
        let now = self.clock.now();
        for input in inputs {
            self.core.handle(now, input, &mut effects);
        }
        self.core.settle(now, &mut effects);
        while !effects.is_empty() || !self.starts.is_empty() {
            for effect in std::mem::take(&mut effects) {
                if let Some(input) = self.perform(effect) {
                    self.core.handle(self.clock.now(), input, &mut effects);
                }
            }
            let starts = std::mem::take(&mut self.starts);
            if let (Some(port), false) = (&mut self.port, starts.is_empty()) {
                port.let_go();
            }
            for starts in starts.chunks(SPAWN_CHUNK) {
                for (local, started) in self.ranks.spawn(starts) {
                    let input = match started {
                        Ok(Started { pid, port, unbound }) => {
                            self.pids.insert(pid, local);
                            self.core.handle(self.clock.now(), Input::Listening(local, port), &mut effects);
                            if let Some(why) = unbound {
                                self.core.handle(self.clock.now(), Input::Unbound(local, why), &mut effects);
                            }
                            Input::Started(local, pid.as_raw() as u32)
                        }
                        Err(why) => Input::StartFailed(local, why),
                    };
                    self.core.handle(self.clock.now(), input, &mut effects);
                }
                debug!(ranks = starts.len(), "started");
                // Starting many ranks takes long, so this lets the link and the first ranks make progress.
                tokio::task::yield_now().await;
            }
            self.core.settle(self.clock.now(), &mut effects);
        }
    }

    fn on_event(&mut self, event: Event) {
        let input = match event {
            Event::Input(Input::LinkDown) => {
                self.up = None;
                Input::LinkDown
            }
            Event::Input(Input::PmiClosed(local)) => {
                // The kernel closes the files of a process before it reports the end: the end is the reason.
                if self.members.as_ref().is_some_and(|members| members.is_exiting(local)) {
                    self.handle(Input::Gone(local));
                }
                Input::PmiClosed(local)
            }
            Event::Input(input) => input,
            Event::LinkUp(up) => {
                if let Err(error) = self.file.restore() {
                    warn!(%error, "cannot create the file of this step's launch again: a restarted daemon will not know the step");
                }
                self.up = Some(up);
                Input::LinkUp
            }
            Event::Knock(knock) => return self.let_in(knock),
            Event::PmixArrival(arrival) => return self.let_in_client(arrival),
        };
        self.handle(input);
    }

    /// A connection that belongs to no member is not answered.
    fn let_in(&mut self, knock: Knock) {
        let Some(local) = self.members.as_ref().and_then(|members| members.find(&knock)) else {
            return debug!(uid = knock.uid, "dropped a connection that belongs to no member");
        };
        match self.ranks.attach(local, knock.stream) {
            Ok(()) => {
                self.handle(Input::Attached(local));
                self.handle(Input::Pmi(local, knock.bytes));
            }
            Err(error) => warn!(%error, "cannot serve a member"),
        }
    }

    /// Serves a PMIx client; the core decides whether it is a rank of this step.
    fn let_in_client(&mut self, arrival: Arrival) {
        let (stream, hello, uid, rest) = arrival.take();
        if let Some(client) = self.pmix.as_mut().and_then(|pmix| pmix.serve(stream)) {
            self.handle(Input::PmixHello(client, hello, uid));
            self.handle(Input::Pmix(client, rest));
        }
    }

    /// Handles one input and performs its effects. Ranks to start wait for the next [`StepProcess::take`].
    fn handle(&mut self, input: Input) {
        let mut effects = Vec::new();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.core.handle(self.clock.now(), input, &mut effects);
            inputs.extend(effects.drain(..).filter_map(|effect| self.perform(effect)));
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            // `take` starts them together.
            Effect::Spawn(start) => self.starts.push(start),
            Effect::FindLibraries => return Some(Input::Linked(self.ranks.libraries())),
            Effect::FindPort => {
                let found = KeptPort::find(self.ports).map_err(|error| error.to_string());
                let port = found.map(|found| self.port.insert(found).number());
                return Some(Input::Port(port));
            }
            Effect::Await(start) => {
                if let Some(members) = &mut self.members {
                    members.expect(&start);
                }
            }
            Effect::Describe { number, local, app, spawn } => {
                return Some(Input::Described(number, Box::new(self.describe(local, app, spawn))));
            }
            Effect::PmiSend(local, bytes) => self.ranks.pmi_send(local, &bytes),
            Effect::PmiClose(local) => self.ranks.pmi_close(local),
            Effect::PmixSend(client, bytes) => {
                if let Some(pmix) = &mut self.pmix {
                    pmix.send(client, &bytes);
                }
            }
            Effect::Remove(removals) => removals.iter().for_each(pmix_port::remove),
            Effect::PmixClose(client) => {
                if let Some(pmix) = &mut self.pmix {
                    pmix.close(client);
                }
            }
            Effect::StdinWrite(local, bytes) => self.ranks.stdin_write(local, bytes),
            Effect::StdinClose(local) => self.ranks.stdin_close(local),
            Effect::Look(local) => {
                let pid = self.pids.iter().find(|(_, of)| **of == local).map(|(pid, _)| *pid);
                return Some(Input::Mapped(pid.map_or_else(Mapped::default, mapped::look)));
            }
            Effect::FindLinks(app) => return Some(Input::Links(app, self.ranks.links(app))),
            Effect::Signal(local, number) => self.signal(local, number),
            Effect::Warn(why) => warn!(job = self.hello.job, "{why}"),
            Effect::Sweep => {
                debug!("all ranks have ended");
                self.sweep = Some(Leftovers::new(self.clock.now(), leftovers::GRACE));
                return self.sweep_on();
            }
            Effect::OutputFile(local, stream, bytes) => {
                if let Err(why) = self.ranks.write_file(local, stream, &bytes) {
                    return Some(Input::OutputFileFailed(local, why));
                }
            }
            Effect::Up(up) => {
                if let (Some(up::Body::Master(_)), Some(port)) = (&up.body, &mut self.port) {
                    // Members already run.
                    port.let_go();
                }
                if let Some(link) = &self.up {
                    split(up, |up| {
                        // If the link breaks now, its task reports that, and everything is sent again on the next link.
                        let _ = link.send(up);
                    });
                }
            }
            Effect::Exit => {
                debug!(job = self.hello.job, "the step is over");
                if self.up.is_none() || self.file.was_restored() {
                    step_files::forget(&self.state_dir, self.hello.job);
                }
                self.over = true;
            }
        }
        None
    }

    /// Describes the job that a rank requests to spawn.
    fn describe(&self, local: Local, app: usize, spawn: Spawn) -> Result<SpawnWish, String> {
        let random = crate::random::random::<44>().map_err(|error| format!("cannot read random bytes: {error}"))?;
        let started =
            self.pids.iter().find(|(_, of)| **of == local).and_then(|(pid, _)| u32::try_from(pid.as_raw()).ok());
        let pid = started.or_else(|| self.members.as_ref().and_then(|members| members.pid(local)));
        let spawner = self.ranks.spawner(app, pid);
        spawning::wish(spawn, spawner, Bytes::copy_from_slice(&random), |path| std::fs::read_to_string(path))
    }

    fn signal(&mut self, local: Local, number: i32) {
        let Some(pid) = self.pids.iter().find(|(_, of)| **of == local).map(|(pid, _)| *pid) else { return };
        let Ok(signal) = Signal::try_from(number) else { return };
        // The rank leads its process group; if it has left the group, only the rank is signalled.
        if killpg(pid, signal).is_err() {
            let _ = kill(pid, signal);
        }
        if matches!(signal, Signal::SIGTERM | Signal::SIGKILL) {
            // A stopped process receives TERM only when it continues.
            let _ = killpg(pid, Signal::SIGCONT);
        }
    }

    fn reap(&mut self) {
        if self.sweep.is_some() {
            if let Some(input) = self.sweep_on() {
                self.handle(input);
            }
            return;
        }
        let ended = reap::reap_all();
        self.on_ended(ended);
    }

    fn on_ended(&mut self, ended: Vec<Ended>) {
        for Ended { pid, exit, used } in ended {
            // Other processes were left by ranks and became children of this process.
            let local = self.pids.remove(&pid);
            self.handle(Input::Used(local, used));
            let Some(local) = local else { continue };
            let status = match exit {
                Exit::Exited(code) => Status::Exited(code),
                Exit::Signaled(signal) => Status::Signaled(signal),
            };
            for bytes in self.ranks.pmi_rest(local) {
                self.handle(Input::Pmi(local, bytes));
            }
            self.handle(Input::Exited(local, status));
        }
    }

    /// Looks for leftover processes of the ranks; returns [`Input::Swept`] when none are left.
    fn sweep_on(&mut self) -> Option<Input> {
        let leftovers = self.sweep.as_mut()?;
        let (ended, look) = reap::look();
        leftovers.collected(ended.iter().map(|ended| ended.pid.as_raw()));
        let mut actions = Vec::new();
        leftovers.handle(self.clock.now(), look, &mut actions);
        self.on_ended(ended);
        if reap::perform(actions) {
            return None;
        }
        self.sweep = None;
        reap::remove_mpich_shm(geteuid().as_raw(), &self.namespace);
        if let Some(pmix) = &mut self.pmix {
            pmix.remove_directories();
        }
        Some(Input::Swept)
    }

    fn next_deadline(&self) -> Instant {
        let sweep = self.sweep.as_ref().map(Leftovers::next_deadline);
        let next = self.core.next_deadline().into_iter().chain(sweep).min();
        next.map_or_else(|| Instant::now() + Duration::from_secs(3600), |at| self.clock.instant(at))
    }

    fn tick(&mut self) {
        let due = self.sweep.as_ref().is_some_and(|leftovers| leftovers.next_deadline() <= self.clock.now().mono);
        if let Some(input) = due.then(|| self.sweep_on()).flatten() {
            self.handle(input);
        }
    }
}
