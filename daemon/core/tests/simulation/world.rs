//! A whole DVM in one thread: machines with daemons, steps and ranks, the links between them, and the clock.
//!
//! The world does what the shells around [`Rsd`] and [`Step`] do. The seed decides every delay, every order between links and
//! every cut. Messages are encoded and decoded on their way, and keep their order only within a link.

mod clients;
mod daemons;
mod heads;
mod uplinks;
mod wires;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_core::rsd::{Answer, Call, Effect, Input, KeptJobs, KnownStep, LinkId, Logged, Memory, ReqId, Start, jobs_of};
use rsd_core::sentences::{StepEnd, step_lost};
use rsd_core::step;
use rsd_core::taskmap::TaskMap;
use rsd_core::uplink;
use rsd_core::{JobId, NodeId, Now, Rsd, Tuning, Uplink};
use rsd_proto::v1::{self as wire, Down, JobEvent, NodeInfo, Up, down, job_event, up};

use crate::members::Process;
use crate::ranks::Op;
use crate::rng::Rng;
use crate::steps::{Local, RankEvent, StepProc};

use clients::Feed;
pub(crate) use clients::submission;
pub(crate) use wires::{Lower, Way};
use wires::{Wire, WireEnds, kind_up};

pub(crate) type MachineId = usize;
/// The number of a process, daemon or step; never reused.
pub(crate) type Pid = u64;
type WireId = u64;

const UPLINK_LIMITS: uplink::Limits =
    uplink::Limits { dial_deadline: Duration::from_secs(5), retry_max: Duration::from_millis(500) };
/// The pause after which a daemon that gave up joining is started again, as a service manager does.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// The most events of a run; more are a storm.
const EVENTS_MAX: u64 = 3_000_000;

pub(crate) type Program = Rc<dyn Fn(u32, u32, &mut Rng) -> Vec<Op>>;

/// An event that is due at some time.
#[derive(Debug)]
pub(crate) enum Event {
    Deliver {
        wire: WireId,
        way: Way,
        packet: Option<Bytes>,
    },
    /// An end of a wire notices that it is cut.
    Broken {
        wire: WireId,
        way: Way,
    },
    UplinkTick(Pid),
    /// A daemon listens from now on.
    PortOpened(Pid),
    Tick(Pid),
    Load {
        pid: Pid,
        probe: u64,
    },
    StepLost {
        pid: Pid,
        job: JobId,
        why: String,
    },
    StepBoot {
        pid: Pid,
        machine: MachineId,
        launch: Bytes,
    },
    StepDial(Pid),
    StepTick(Pid),
    StepSettle(Pid),
    StepInput(Pid, step::Input),
    Rank(Pid, Local, RankEvent),
    Restart(MachineId),
    Reconnect(MachineId),
    Fault(Fault),
    Feed(JobId),
    /// The head's thread for logs writes a log.
    WriteLog(Pid, JobId),
    /// A process requests a place in a group.
    Join(u64),
    /// A process connects to its PMI server.
    Attach(u64),
    /// A process ends.
    End(u64),
}

/// A fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// A random link between two daemons is cut.
    CutAnyLink,
    /// The link of a random step is cut.
    CutAnyStep,
    /// The daemon is killed with SIGKILL, and a new one starts after this time.
    Restart(MachineId, Duration),
    /// The daemon's machine loses power.
    Lose(MachineId),
    /// The same, and its neighbours learn nothing: they notice its silence after ten seconds.
    PowerOff(MachineId),
    KillStep(MachineId),
    /// The machine has no network for this time; the links' ends notice it independently.
    Isolate(MachineId, Duration),
}

/// A machine: its disk and its processes.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) inventory: wire::Inventory,
    /// Whether the kernel refuses every binding.
    pub(crate) refuses_binding: bool,
    /// Whether its port changes with every restart.
    port_moves: bool,
    /// The machine whose daemon it joins.
    joins: MachineId,
    incarnation: u64,
    /// Whether its daemon listens only when the head requests it, and whether it then does.
    opens: Option<Opens>,
    listens: bool,
    isolated: bool,
    /// In a partition, machines reach only those on the same side.
    side: u8,
    /// Whether its daemon is a head that was promoted: it shares the address of a standby.
    is_promoted: bool,
    /// The epochs of the heads that its daemon has obeyed, in order.
    pub(crate) obeyed: Vec<u64>,
    pub(crate) daemon: Option<Pid>,
    pub(crate) steps: BTreeMap<JobId, Pid>,
    identity: (NodeId, String, String),
    above: Vec<wire::Ancestor>,
    standbys: Vec<wire::Ancestor>,
    epoch: wire::HeadEpoch,
    memory: Memory,
    kept: Vec<wire::Kept>,
    pub(crate) launches: BTreeMap<JobId, Bytes>,
}

/// What a daemon does that is to open a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opens {
    Always,
    Never,
}

/// What a head has appended to a log.
#[derive(Debug, Default)]
struct UnwrittenLog {
    events: Vec<JobEvent>,
    written: u64,
    is_scheduled: bool,
}

#[derive(Debug)]
struct Daemon {
    machine: MachineId,
    core: Rsd,
    links: HashMap<LinkId, WireId>,
    next_link: LinkId,
    parent: Option<WireId>,
    uplink: Uplink,
    /// The uplink's attempt that is in progress.
    dialing: Option<WireId>,
    tick: Option<Duration>,
}

/// The observed actions of a rank.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) written: [Vec<u8>; 2],
    pub(crate) stdin: Vec<u8>,
    /// The part of its node that it was started with, and its variables.
    pub(crate) bound: step::Bound,
    pub(crate) env: Vec<String>,
    /// Whether it has finished its script.
    pub(crate) finished: bool,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64)>>,
    events: HashMap<u64, Event>,
    scheduled: u64,
    handled: u64,
    next_id: u64,
    pub(crate) tuning: Tuning,
    pub(crate) machines: Vec<Machine>,
    daemons: BTreeMap<Pid, Daemon>,
    pub(crate) steps: BTreeMap<Pid, StepProc>,
    wires: BTreeMap<WireId, Wire>,
    programs: Vec<Program>,
    pub(crate) records: BTreeMap<(JobId, u32), Record>,
    pub(crate) logs: BTreeMap<JobId, Vec<JobEvent>>,
    /// What is not in the logs yet.
    unwritten: BTreeMap<(Pid, JobId), UnwrittenLog>,
    /// The machine of the head: of two, the later one.
    pub(crate) head: MachineId,
    /// The heads that have heard of a later one, and have ended.
    pub(crate) stepped_down: Vec<MachineId>,
    answers: HashMap<ReqId, Answer>,
    /// The waiting callers of ranks: their daemon, step and number there.
    callers: BTreeMap<ReqId, (Pid, Pid, Local)>,
    feeds: BTreeMap<JobId, Feed>,
    fed: HashMap<ReqId, JobId>,
    /// Processes that rsd did not start.
    pub(crate) processes: BTreeMap<u64, Process>,
    /// The program that they run as members of an epoch.
    pub(crate) group_program: usize,
    /// Whether some ranks speak PMI-2 although their script does not need it.
    pub(crate) mixes_dialects: bool,
    /// The relevant files that every rank has mapped.
    pub(crate) mapped: step::Mapped,
    /// What every program would load.
    pub(crate) links: step::Links,
    /// Messages between daemons: kind, sending machine, receiving machine.
    pub(crate) traffic: Vec<(&'static str, MachineId, MachineId)>,
    /// Why daemons gave up joining, and the number of attempts.
    pub(crate) given_up: Vec<String>,
    pub(crate) dials: u64,
    /// What steps have written to their logs.
    pub(crate) warnings: Vec<String>,
    /// The longest time until a cut is noticed.
    pub(crate) notice: Duration,
    trace: bool,
    /// Whether each state of the journal is replayed: the result must be the state of the head.
    pub(crate) checks_journal: bool,
}

impl World {
    /// Returns a whole DVM: machine 0 is the head, and all others join it at random moments.
    pub(crate) fn new(seed: u64, nodes: usize, slots: u32, tuning: Tuning) -> World {
        let inventory = wire::Inventory { slots, slots_reason: "--slots".into(), ..Default::default() };
        World::of(seed, vec![inventory; nodes], tuning)
    }

    /// Returns a DVM of machines with these inventories.
    pub(crate) fn of(seed: u64, inventories: Vec<wire::Inventory>, tuning: Tuning) -> World {
        World::made(seed, inventories, tuning, false)
    }

    /// The same as [`World::new`], with daemons of which most listen only when the head requests it, and some not even then.
    pub(crate) fn lazy(seed: u64, nodes: usize, slots: u32, tuning: Tuning) -> World {
        let inventory = wire::Inventory { slots, ..Default::default() };
        World::made(seed, vec![inventory; nodes], tuning, true)
    }

    fn made(seed: u64, inventories: Vec<wire::Inventory>, tuning: Tuning, lazy: bool) -> World {
        let nodes = inventories.len();
        let mut world = World {
            rng: Rng::new(seed),
            now: Duration::from_secs(1),
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            scheduled: 0,
            handled: 0,
            next_id: 1,
            tuning,
            machines: Vec::new(),
            daemons: BTreeMap::new(),
            steps: BTreeMap::new(),
            wires: BTreeMap::new(),
            programs: Vec::new(),
            records: BTreeMap::new(),
            logs: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            head: 0,
            stepped_down: Vec::new(),
            answers: HashMap::new(),
            callers: BTreeMap::new(),
            feeds: BTreeMap::new(),
            fed: HashMap::new(),
            processes: BTreeMap::new(),
            group_program: 0,
            mixes_dialects: false,
            mapped: step::Mapped::default(),
            links: step::Links::default(),
            traffic: Vec::new(),
            given_up: Vec::new(),
            dials: 0,
            warnings: Vec::new(),
            notice: Duration::from_millis(2),
            trace: std::env::var_os("SIMULATION_TRACE").is_some(),
            checks_journal: false,
        };
        for (machine, mut inventory) in inventories.into_iter().enumerate() {
            let host = format!("10.0.{}.{}", machine / 256, machine % 256);
            inventory.addresses = vec![wire::NodeAddress { host, interface: "eth0".into() }];
            let port_moves = machine > 0 && world.rng.chance(2);
            let name = format!("n{machine}");
            let opens = match lazy && machine > 0 {
                true => world.rng.pick(&[None, Some(Opens::Always), Some(Opens::Always), Some(Opens::Never)]).flatten(),
                false => None,
            };
            world.machines.push(Machine { name, inventory, port_moves, opens, ..Machine::default() });
            let at = if machine == 0 { Duration::ZERO } else { world.rng.within(Duration::from_millis(100)) };
            world.after(at, Event::Restart(machine));
        }
        world.machines[0].identity = (0, "d0".into(), "n0".into());
        world.run();
        assert_eq!(world.nodes_up(), nodes, "all nodes have joined");
        world
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono: self.now, unix_ms: 1_700_000_000_000 + self.now.as_millis() as u64 }
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn at(&mut self, at: Duration, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse((at.max(self.now), self.scheduled)));
        self.events.insert(self.scheduled, event);
    }

    /// Returns the delay of a message: mostly microseconds, now and then long enough for all others to overtake it.
    pub(crate) fn delay(&mut self) -> Duration {
        let max = if self.rng.chance(24) { 5_000 } else { 150 };
        Duration::from_micros(5 + self.rng.below(max))
    }

    /// Runs until no event is pending.
    pub(crate) fn run(&mut self) {
        self.run_while(|_| true);
    }

    /// Runs until the condition fails or no event is pending.
    pub(crate) fn run_while(&mut self, goes_on: impl Fn(&World) -> bool) {
        while goes_on(self) {
            let Some(Reverse((at, number))) = self.queue.pop() else { return };
            let Some(event) = self.events.remove(&number) else { continue };
            if self.is_stale(&event, at) {
                continue;
            }
            self.now = at;
            self.handled += 1;
            assert!(self.handled < EVENTS_MAX, "the DVM does not come to rest: {event:?}");
            if self.trace {
                eprintln!("{:>12?} {}", self.now, self.described(&event));
            }
            self.happen(event);
        }
    }

    /// Returns whether an event is a tick that is no longer needed; it does not advance the time.
    fn is_stale(&mut self, event: &Event, at: Duration) -> bool {
        match event {
            Event::Tick(pid) => {
                let Some(daemon) = self.daemons.get_mut(pid) else { return true };
                let due = daemon.core.next_deadline();
                if due.is_some_and(|due| due <= at) {
                    return false;
                }
                daemon.tick = None;
                self.schedule_tick(*pid);
                true
            }
            Event::StepTick(pid) => !self.is_step_due(*pid, at),
            Event::UplinkTick(pid) => {
                let due = self.daemons.get(pid).and_then(|daemon| daemon.uplink.next_deadline());
                due.is_none_or(|due| due > at)
            }
            _ => false,
        }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        // An event at the end advances the clock to that time.
        self.at(end, Event::Feed(JobId::MAX));
        self.run_while(|world| world.now < end);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver { wire, way, packet } => self.deliver(wire, way, packet),
            Event::Broken { wire, way } => self.notice(wire, way),
            Event::UplinkTick(pid) => self.feed_uplink(pid, uplink::Input::Tick),
            Event::Tick(pid) => self.tick(pid),
            Event::Load { pid, probe } => {
                self.handle(pid, Input::Load { probe, load: wire::NodeLoad { load1: 0.5, ..Default::default() } });
            }
            Event::StepLost { pid, job, why } => self.handle(pid, Input::StepLost { job, why }),
            Event::StepBoot { pid, machine, launch } => self.boot_step(pid, machine, launch),
            Event::StepDial(pid) => self.dial_step(pid),
            Event::StepTick(pid) => self.tick_step(pid),
            Event::StepSettle(pid) => self.settle_step(pid),
            Event::StepInput(pid, input) => self.feed_step(pid, input),
            Event::Rank(pid, local, event) => self.rank_event(pid, local, event),
            Event::Restart(machine) => self.start_daemon(machine),
            Event::Reconnect(machine) => self.machines[machine].isolated = false,
            Event::Fault(fault) => self.fail(fault),
            Event::Feed(job) => self.feed(job),
            Event::WriteLog(pid, job) => self.write_log(pid, job),
            Event::PortOpened(pid) => {
                if let Some(machine) = self.daemons.get(&pid).map(|daemon| daemon.machine) {
                    self.machines[machine].listens = true;
                    self.handle(pid, Input::PortOpened { listen: self.listen(machine) });
                }
            }
            Event::Join(process) => self.knock(process),
            Event::Attach(process) => self.attach(process),
            Event::End(process) => self.end_process(process),
        }
    }

    /// Adds a machine without a daemon.
    pub(crate) fn add_machine(&mut self) -> MachineId {
        let inventory = self.machines[0].inventory.clone();
        let name = format!("n{}", self.machines.len());
        self.machines.push(Machine { name, inventory, ..Machine::default() });
        self.machines.len() - 1
    }

    /// Has the machine's daemon, from its next start on, join the DVM at another machine's daemon. Starts it if it does not run.
    pub(crate) fn join_at(&mut self, machine: MachineId, named: MachineId) {
        (self.machines[machine].joins, self.machines[named].port_moves) = (named, false);
        self.after(Duration::ZERO, Event::Restart(machine));
    }

    pub(crate) fn forget_ancestors(&mut self, machine: MachineId) {
        self.machines[machine].above.clear();
    }

    // --- faults ---

    pub(crate) fn kill_daemon(&mut self, machine: MachineId) {
        if let Some(pid) = self.machines[machine].daemon {
            self.end_daemon(pid);
        }
    }

    fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::CutAnyLink | Fault::CutAnyStep => {
                let steps = matches!(fault, Fault::CutAnyStep);
                let whole = |wire: &Wire| wire.cut == [None; 2] && matches!(wire.lower, Lower::Step(_)) == steps;
                let ids: Vec<WireId> = self.wires.iter().filter(|(_, wire)| whole(wire)).map(|(id, _)| *id).collect();
                if let Some(id) = self.rng.pick(&ids) {
                    self.cut(id);
                }
            }
            Fault::Restart(machine, after) => {
                self.kill_daemon(machine);
                self.after(after, Event::Restart(machine));
            }
            Fault::Lose(machine) => {
                for pid in self.machines[machine].steps.values().copied().collect::<Vec<_>>() {
                    self.end_step(pid);
                }
                self.kill_daemon(machine);
            }
            Fault::PowerOff(machine) => {
                let here = self.machines[machine].daemon;
                self.machines[machine].isolated = true;
                let ids: Vec<WireId> = self
                    .wires
                    .iter()
                    .filter(|(_, wire)| Some(wire.upper) == here || here.map(Lower::Daemon) == Some(wire.lower))
                    .map(|(id, _)| *id)
                    .collect();
                ids.into_iter().for_each(|id| self.fall_silent(id));
                self.fail(Fault::Lose(machine));
            }
            Fault::KillStep(machine) => {
                let pids: Vec<Pid> = self.machines[machine].steps.values().copied().collect();
                if let Some(pid) = self.rng.pick(&pids) {
                    self.end_step(pid);
                }
            }
            Fault::Isolate(machine, time) => {
                self.machines[machine].isolated = true;
                let here = self.machines[machine].daemon;
                let across = |ends: &WireEnds| match ends.lower {
                    Lower::Daemon(pid) => Some(pid) == here || Some(ends.upper) == here,
                    Lower::Step(_) => false,
                };
                self.break_wires_of(across);
                self.after(time, Event::Reconnect(machine));
            }
        }
    }

    // --- queries ---

    pub(crate) fn core(&self, machine: MachineId) -> Option<&Rsd> {
        self.machines[machine].daemon.and_then(|pid| self.daemons.get(&pid)).map(|daemon| &daemon.core)
    }

    pub(crate) fn nodes(&mut self) -> Vec<NodeInfo> {
        let req = self.call(self.head, Call::ListNodes { load: false });
        match self.answered(req) {
            Some(Answer::Nodes(nodes)) => nodes,
            other => panic!("nodes: {other:?}"),
        }
    }

    pub(crate) fn nodes_up(&mut self) -> usize {
        self.nodes().iter().filter(|node| node.state() == wire::NodeState::Up).count()
    }

    /// Returns the machine of a node, by the name that it started with.
    pub(crate) fn machine(&mut self, node: NodeId) -> MachineId {
        (0..self.machines.len()).find(|id| self.machines[*id].identity.0 == node).expect("every node is a machine")
    }

    pub(crate) fn node(&self, machine: MachineId) -> NodeId {
        self.machines[machine].identity.0
    }

    /// Returns the number of messages of a kind between daemons.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.traffic.iter().filter(|(of, ..)| *of == kind).count()
    }

    fn described(&self, event: &Event) -> String {
        let Event::Deliver { wire, way, packet: Some(bytes) } = event else { return format!("{event:?}") };
        let Some(found) = self.wires.get(wire) else { return format!("{event:?}") };
        let message = match way {
            Way::Up => format!("{:?}", Up::decode(bytes.clone())),
            Way::Down => format!("{:?}", Down::decode(bytes.clone())),
        };
        let upper = self.daemons.get(&found.upper).map(|daemon| daemon.machine);
        let lower = self.machine_of(found.lower);
        format!("wire {wire} {way:?} {:?}={lower:?} of {upper:?} cut {:?}: {message}", found.lower, found.cut)
    }
}
