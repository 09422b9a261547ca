//! Step processes and their ranks, as the shell around [`Step`] runs them.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_core::sentences::{StepEnd, step_lost};
use rsd_core::step::{Effect, Input, RankStart, SpawnWish, Status, Stream};
use rsd_core::taskmap::TaskMap;
use rsd_core::uplink::Backoff;
use rsd_core::{JobId, Step};
use rsd_proto::pmi::v1::{Spawn, SpawnSegment};
use rsd_proto::v1::{self as wire, Down, Hello, LaunchBody, Up, down, hello, up};

use crate::dialects::Dialect;
use crate::ranks::{Act, Op, Rank, port};
use crate::usage;
use crate::world::{Event, Lower, MachineId, Pid, Way, World};

pub(crate) use rsd_core::step::Local;

#[derive(Debug)]
pub(crate) struct StepProc {
    pub(crate) machine: MachineId,
    pub(crate) job: JobId,
    pub(crate) namespace: String,
    /// Whether its ranks are members of a group.
    pub(crate) of_group: bool,
    core: Step,
    size: u32,
    program: Vec<usize>,
    pub(crate) ranks: Vec<Option<RankProc>>,
    /// Output of the ranks' pipes, read only while the core wants it.
    output: VecDeque<Input>,
    link: Option<u64>,
    dialing: Option<u64>,
    backoff: Backoff,
    tick: Option<Duration>,
    over: bool,
}

#[derive(Debug)]
pub(crate) struct RankProc {
    pub(crate) rank: Rank,
    reads_stdin: bool,
    /// When the last bytes arrive: PMI to the step, PMI to the rank, output, input.
    last: [Duration; 4],
}

const PMI_UP: usize = 0;
const PMI_DOWN: usize = 1;
const OUTPUT: usize = 2;
const STDIN: usize = 3;

/// An event of a rank.
#[derive(Debug)]
pub(crate) enum RankEvent {
    Run,
    Pmi(Bytes),
    Stdin(Bytes),
    StdinEnd,
    Signal(i32),
    Wake,
    /// The launcher has closed the connection.
    HungUp,
    /// The fence call was answered; true: the fence is complete.
    CallAnswered(bool),
    /// The head's answer to its request.
    Answer(Box<wire::NameResult>),
    /// An event, by its data.
    Told(Bytes),
}

impl World {
    pub(crate) fn boot_step(&mut self, pid: Pid, machine: MachineId, launch: Bytes) {
        let launch = wire::Launch::decode(launch).expect("the written launch decodes");
        let job = launch.job;
        if self.machines[machine].steps.get(&job) != Some(&pid) {
            return; // killed before it began
        }
        let map = TaskMap::try_from(launch.map.expect("a launch has a map")).expect("the map is valid");
        let body = LaunchBody::decode(launch.body).expect("the body decodes");
        let spec = body.spec.clone().expect("a launch has a spec");
        let of_group = !launch.group.is_empty();
        let group_program = self.group_program;
        let number = |app: &wire::App| match of_group {
            true => group_program,
            false => String::from_utf8_lossy(&app.argv[1]).parse().expect("argv[1] is a program"),
        };
        let (size, node) = (map.size(), self.node(machine));
        let namespace = body.namespace.clone();
        let mut core = Step::new(job, node, map, body, &self.machines[machine].inventory, self.tuning)
            .expect("the launch is consistent");
        if of_group {
            let epoch = wire::GroupEpoch::decode(launch.group).expect("the group decodes");
            core = core.of_members(&epoch, 1000).expect("the group fits the launch");
        }
        let step = StepProc {
            machine,
            job,
            namespace,
            of_group,
            core,
            size,
            program: spec.apps.iter().map(number).collect(),
            ranks: Vec::new(),
            output: VecDeque::new(),
            link: None,
            dialing: None,
            backoff: Backoff::of_step(),
            tick: None,
            over: false,
        };
        self.steps.insert(pid, step);
        self.after(Duration::ZERO, Event::StepDial(pid));
        self.feed_step(pid, Input::Start);
    }

    /// Ends the process, and its ranks with it.
    pub(crate) fn end_step(&mut self, pid: Pid) {
        let Some(machine) = (0..self.machines.len()).find(|id| self.machines[*id].steps.values().any(|of| *of == pid))
        else {
            return;
        };
        self.steps.remove(&pid);
        let steps = &mut self.machines[machine].steps;
        let job = *steps.iter().find(|(_, of)| **of == pid).expect("just found").0;
        steps.remove(&job);
        self.break_wires_of(|wire| wire.lower == Lower::Step(pid));
        if let Some(daemon) = self.machines[machine].daemon {
            let delay = self.delay();
            self.after(delay, Event::StepLost { pid: daemon, job, why: step_lost(StepEnd::Unknown) });
        }
    }

    // --- the core and its effects ---

    pub(crate) fn feed_step(&mut self, pid: Pid, input: Input) {
        let Some(mut step) = self.steps.remove(&pid) else { return };
        match input {
            Input::Output(..) | Input::OutputClosed(..) => step.output.push_back(input),
            input => self.step_inputs(pid, &mut step, vec![input]),
        }
        if self.rng.chance(3) {
            // The shell handles all pending inputs before it settles.
            let delay = self.rng.within(Duration::from_micros(50));
            self.after(delay, Event::StepSettle(pid));
        } else {
            self.settle(pid, &mut step);
        }
        self.keep_step(pid, step);
    }

    pub(crate) fn settle_step(&mut self, pid: Pid) {
        let Some(mut step) = self.steps.remove(&pid) else { return };
        self.settle(pid, &mut step);
        self.keep_step(pid, step);
    }

    fn step_inputs(&mut self, pid: Pid, step: &mut StepProc, mut inputs: Vec<Input>) {
        let now = self.now();
        let mut effects = Vec::new();
        while let Some(input) = inputs.pop() {
            step.core.handle(now, input, &mut effects);
            for effect in effects.drain(..) {
                inputs.extend(self.perform_step(pid, step, effect));
            }
        }
        self.tell_ranks(pid, step);
    }

    /// Passes on what the step has got for its ranks in the place of a PMIx server.
    fn tell_ranks(&mut self, pid: Pid, step: &mut StepProc) {
        let probe = step.core.probe();
        let (answers, events) = (std::mem::take(&mut probe.answers), std::mem::take(&mut probe.events));
        for (ticket, result) in answers {
            self.send_to_rank(pid, step, ticket as Local, PMI_DOWN, RankEvent::Answer(Box::new(result)));
        }
        for event in events {
            for local in 0..step.ranks.len() {
                self.send_to_rank(pid, step, local, PMI_DOWN, RankEvent::Told(event.data.clone()));
            }
        }
    }

    fn settle(&mut self, pid: Pid, step: &mut StepProc) {
        loop {
            let now = self.now();
            let mut effects = Vec::new();
            step.core.settle(now, &mut effects);
            for effect in effects {
                if let Some(input) = self.perform_step(pid, step, effect) {
                    self.step_inputs(pid, step, vec![input]);
                }
            }
            self.tell_ranks(pid, step);
            if !step.core.wants_output() {
                return;
            }
            let Some(input) = step.output.pop_front() else { return };
            self.step_inputs(pid, step, vec![input]);
        }
    }

    fn keep_step(&mut self, pid: Pid, step: StepProc) {
        if step.over {
            if step.link.is_none() {
                self.machines[step.machine].launches.remove(&step.job);
            }
            let started = step.ranks.iter().flatten().filter(|_| !step.of_group);
            let alive: Vec<u32> = started.filter(|r| r.rank.alive).map(|r| r.rank.rank).collect();
            assert!(alive.is_empty(), "the step of job {} exited while ranks {alive:?} were running", step.job);
            return self.end_step(pid);
        }
        self.steps.insert(pid, step);
        self.schedule_step_tick(pid);
    }

    fn schedule_step_tick(&mut self, pid: Pid) {
        let Some(step) = self.steps.get_mut(&pid) else { return };
        let Some(deadline) = step.core.next_deadline() else { return };
        if step.tick.is_none_or(|tick| deadline < tick) {
            step.tick = Some(deadline);
            self.at(deadline, Event::StepTick(pid));
        }
    }

    /// Returns whether a step has something to do at this time; otherwise sets its clock again.
    pub(crate) fn is_step_due(&mut self, pid: Pid, at: Duration) -> bool {
        let Some(step) = self.steps.get_mut(&pid) else { return false };
        if step.core.next_deadline().is_some_and(|due| due <= at) {
            return true;
        }
        step.tick = None;
        self.schedule_step_tick(pid);
        false
    }

    pub(crate) fn tick_step(&mut self, pid: Pid) {
        if let Some(step) = self.steps.get_mut(&pid) {
            step.tick = None;
            self.feed_step(pid, Input::Tick);
        }
    }

    fn perform_step(&mut self, pid: Pid, step: &mut StepProc, effect: Effect) -> Option<Input> {
        match effect {
            Effect::FindLibraries => return Some(Input::Linked(Vec::new())),
            Effect::FindPort => return Some(Input::Port(Ok(23_456))),
            Effect::Spawn(start) => return Some(self.spawn(pid, step, &start)),
            Effect::Describe { number, spawn, .. } => {
                return Some(Input::Described(number, Box::new(Ok(wish(spawn)))));
            }
            Effect::PmiSend(local, bytes) => self.send_to_rank(pid, step, local, PMI_DOWN, RankEvent::Pmi(bytes)),
            Effect::Await(start) => {
                let dead = self.processes.get(&start.started).is_none_or(|process| process.dead);
                return dead.then_some(Input::Gone(start.local));
            }
            Effect::PmiClose(local) => {
                self.send_from_rank(pid, step, local, PMI_UP, Input::PmiClosed(local));
                if step.of_group {
                    self.send_to_rank(pid, step, local, PMI_DOWN, RankEvent::HungUp);
                }
            }
            Effect::StdinWrite(local, bytes) => self.send_to_rank(pid, step, local, STDIN, RankEvent::Stdin(bytes)),
            Effect::StdinClose(local) => self.send_to_rank(pid, step, local, STDIN, RankEvent::StdinEnd),
            Effect::Signal(local, signal) => {
                assert!(!step.of_group, "signal {signal} to a process that rsd did not start");
                let delay = self.delay();
                self.after(delay, Event::Rank(pid, local, RankEvent::Signal(signal)));
            }
            // The simulated ranks speak PMI-1 only; `tests/pmix` has PMIx clients.
            Effect::PmixSend(..) | Effect::PmixClose(_) | Effect::Remove(_) => unreachable!("no rank speaks PMIx"),
            Effect::Look(_) => return Some(Input::Mapped(self.mapped.clone())),
            Effect::FindLinks(app) => return Some(Input::Links(app, self.links.clone())),
            Effect::Sweep => {
                let delay = self.rng.within(Duration::from_millis(4));
                self.after(delay, Event::StepInput(pid, Input::Swept));
            }
            Effect::Warn(why) => self.warnings.push(why),
            Effect::OutputFile(..) => {}
            Effect::Up(up) => {
                if let Some(link) = step.link {
                    self.send(link, Way::Up, Some(up.encode_to_vec().into()));
                }
            }
            Effect::Exit => step.over = true,
        }
        None
    }

    // --- its link ---

    pub(crate) fn dial_step(&mut self, pid: Pid) {
        let Some(step) = self.steps.get(&pid) else { return };
        let Some(upper) = self.machines[step.machine].daemon else { return self.step_link_lost(pid, false) };
        let hello = Hello {
            version: rsd_proto::VERSION.into(),
            who: Some(hello::Who::Step(
                step.core.hello(u32::try_from(pid).expect("few processes"), if step.of_group { 4000 } else { 0 }),
            )),
        };
        let wire = self.connect(Lower::Step(pid), upper);
        if let Some(step) = self.steps.get_mut(&pid) {
            step.dialing = Some(wire);
        }
        self.send(wire, Way::Up, Some(Up { body: Some(up::Body::Hello(hello)) }.encode_to_vec().into()));
    }

    pub(crate) fn step_from_above(&mut self, pid: Pid, wire: u64, down: Option<Down>) {
        let Some(step) = self.steps.get_mut(&pid) else { return };
        if step.dialing != Some(wire) && step.link != Some(wire) {
            return;
        }
        match down {
            Some(Down { body: Some(down::Body::Welcome(_)) }) => {
                (step.link, step.dialing) = (Some(wire), None);
                self.feed_step(pid, Input::LinkUp);
            }
            Some(down) => self.feed_step(pid, Input::Down(down)),
            None => {
                self.send_eof(wire, Way::Up);
                self.step_link_lost(pid, true);
            }
        }
    }

    fn step_link_lost(&mut self, pid: Pid, in_order: bool) {
        let Some(step) = self.steps.get_mut(&pid) else { return };
        (step.link, step.dialing) = (None, None);
        if in_order {
            step.backoff.reset();
        }
        let pause = step.backoff.pause();
        self.after(pause, Event::StepDial(pid));
        self.feed_step(pid, Input::LinkDown);
    }

    // --- ranks ---

    fn spawn(&mut self, pid: Pid, step: &mut StepProc, start: &RankStart) -> Input {
        let Some(program) = step.program.get(start.app) else { panic!("no program {}", start.app) };
        let script = self.script(*program, start.rank, step.size);
        step.ranks.resize_with(step.ranks.len().max(start.local + 1), || None);
        let record = self.records.entry((step.job, start.rank)).or_default();
        (record.bound, record.env) = (start.bound.clone(), start.env.clone());
        if script.is_empty() {
            return Input::StartFailed(start.local, "unknown program".into());
        }
        if self.machines[step.machine].refuses_binding && !start.bound.cpus.is_empty() {
            let why = "its cpuset has changed".to_owned();
            if start.bound.required {
                return Input::StartFailed(start.local, why);
            }
            let now = self.now();
            step.core.handle(now, Input::Unbound(start.local, why), &mut Vec::new());
        }
        if start.listen.is_some() {
            let now = self.now();
            let listening = Input::Listening(start.local, port(start.rank));
            step.core.handle(now, listening, &mut Vec::new());
        }
        let (stubborn, dialect) = (self.rng.chance(6), self.dialect(&script, step.job, start.rank));
        let rank = Rank::new(start.rank, script, start.reads_stdin, stubborn, dialect);
        step.ranks[start.local] = Some(RankProc { rank, reads_stdin: start.reads_stdin, last: [self.now; 4] });
        let delay = self.delay();
        self.after(delay, Event::Rank(pid, start.local, RankEvent::Run));
        Input::Started(start.local, 1000 + start.rank)
    }

    fn dialect(&self, script: &[Op], job: JobId, rank: u32) -> Dialect {
        let is_two = self.mixes_dialects && (job + u64::from(rank)).is_multiple_of(2);
        match is_two || script.iter().any(Op::is_of_two) {
            true => Dialect::two(),
            false => Dialect::one(),
        }
    }

    /// Connects a member's process, which then runs its program.
    pub(crate) fn attach_member(&mut self, job: JobId, machine: MachineId, local: Local, number: u32) -> Option<Pid> {
        let pid = *self.machines[machine].steps.get(&job)?;
        let mut step = self.steps.remove(&pid)?;
        let script = self.script(self.group_program, number, step.size);
        step.ranks.resize_with(step.ranks.len().max(local + 1), || None);
        let dialect = self.dialect(&script, job, number);
        let mut rank = Rank::new(number, script, false, false, dialect);
        rank.gives_up = true;
        step.ranks[local] = Some(RankProc { rank, reads_stdin: false, last: [self.now; 4] });
        self.steps.insert(pid, step);
        self.feed_step(pid, Input::Attached(local));
        let delay = self.delay();
        self.after(delay, Event::Rank(pid, local, RankEvent::Run));
        Some(pid)
    }

    pub(crate) fn rank_lives(&self, pid: Pid, local: Local) -> bool {
        let rank = self.steps.get(&pid).and_then(|step| step.ranks.get(local)?.as_ref());
        rank.is_some_and(|proc| proc.rank.alive)
    }

    fn arrival(&mut self, step: &mut StepProc, local: Local, what: usize) -> Option<Duration> {
        let delay = self.delay();
        let rank = step.ranks.get_mut(local)?.as_mut()?;
        rank.last[what] = rank.last[what].max(self.now + delay);
        Some(rank.last[what])
    }

    fn send_to_rank(&mut self, pid: Pid, step: &mut StepProc, local: Local, what: usize, event: RankEvent) {
        if let Some(at) = self.arrival(step, local, what) {
            self.at(at, Event::Rank(pid, local, event));
        }
    }

    fn send_from_rank(&mut self, pid: Pid, step: &mut StepProc, local: Local, what: usize, input: Input) {
        if let Some(at) = self.arrival(step, local, what) {
            self.at(at, Event::StepInput(pid, input));
        }
    }

    pub(crate) fn rank_event(&mut self, pid: Pid, local: Local, event: RankEvent) {
        let Some(mut step) = self.steps.remove(&pid) else { return };
        let key = |rank: &Rank| (step.job, rank.rank);
        let mut acts = Vec::new();
        let mut told = None;
        if let Some(Some(RankProc { rank, .. })) = step.ranks.get_mut(local)
            && rank.alive
        {
            acts = match event {
                RankEvent::Run => rank.go(),
                RankEvent::Pmi(bytes) => rank.on_pmi(&bytes),
                RankEvent::Stdin(bytes) => {
                    told = Some(Input::StdinWritten(local, bytes.len() as u64));
                    self.records.entry(key(rank)).or_default().stdin.extend_from_slice(&bytes);
                    Vec::new()
                }
                RankEvent::StdinEnd => {
                    told = Some(Input::StdinClosed(local));
                    rank.on_stdin_end()
                }
                RankEvent::Signal(signal) if signal == 9 || !rank.stubborn => {
                    vec![Act::End(Status::Signaled(signal))]
                }
                RankEvent::Signal(_) => Vec::new(),
                RankEvent::Wake => rank.on_wake(),
                RankEvent::HungUp => vec![Act::End(Status::Signaled(13))],
                RankEvent::CallAnswered(done) => rank.on_call_answered(done),
                RankEvent::Answer(result) => rank.on_answer(&result),
                RankEvent::Told(data) => rank.on_event(data),
            };
        }
        for act in acts {
            self.act(pid, &mut step, local, act);
        }
        self.steps.insert(pid, step);
        if let Some(input) = told {
            self.feed_step(pid, input);
        }
    }

    fn act(&mut self, pid: Pid, step: &mut StepProc, local: Local, act: Act) {
        let Some(Some(RankProc { rank, reads_stdin, .. })) = step.ranks.get_mut(local) else { return };
        let (job, number, reads_stdin) = (step.job, rank.rank, *reads_stdin);
        match act {
            Act::Pmi(mut bytes) => {
                while !bytes.is_empty() {
                    let whole = self.rng.chance(2);
                    let at = if whole { bytes.len() } else { 1 + self.rng.index(bytes.len()) };
                    let rest = bytes.split_off(at);
                    let input = Input::Pmi(local, std::mem::replace(&mut bytes, rest).into());
                    self.send_from_rank(pid, step, local, PMI_UP, input);
                }
            }
            Act::Write(stream, bytes) => {
                let record = self.records.entry((job, number)).or_default();
                record.written[stream as usize].extend_from_slice(&bytes);
                self.send_from_rank(pid, step, local, OUTPUT, Input::Output(local, stream, bytes.into()));
            }
            Act::Ask(op) => {
                let mut effects = Vec::new();
                step.core.probe_ask(local as u64, op, &mut effects);
                effects.into_iter().for_each(|effect| drop(self.perform_step(pid, step, effect)));
            }
            Act::Commit(what, data) => {
                let mut effects = Vec::new();
                step.core.probe_commit(number, what.into(), data.into(), &mut effects);
                effects.into_iter().for_each(|effect| drop(self.perform_step(pid, step, effect)));
            }
            Act::Sleep(time) => self.after(time, Event::Rank(pid, local, RankEvent::Wake)),
            Act::CallFence(attempt) => self.call_fence(step, pid, local, (number, attempt)),
            Act::End(status) => {
                rank.alive = false;
                if rank.has_finished() {
                    self.records.entry((job, number)).or_default().finished = true;
                }
                self.send_from_rank(pid, step, local, PMI_UP, Input::PmiClosed(local));
                if step.of_group {
                    let delay = self.delay();
                    return self.after(delay, Event::StepInput(pid, Input::Gone(local)));
                }
                for stream in [Stream::Stdout, Stream::Stderr] {
                    self.send_from_rank(pid, step, local, OUTPUT, Input::OutputClosed(local, stream));
                }
                if reads_stdin {
                    self.send_from_rank(pid, step, local, STDIN, Input::StdinClosed(local));
                }
                let delay = self.delay();
                self.after(delay, Event::StepInput(pid, Input::Used(Some(local), usage::of_rank(number))));
                self.after(delay, Event::StepInput(pid, Input::Exited(local, status)));
            }
        }
    }
}

/// Completes a spawn request as the shell does: the program's name is its number.
fn wish(spawn: Spawn) -> SpawnWish {
    let says = |segment: &SpawnSegment, key: &[u8]| {
        let found = segment.info.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    };
    let soft = |segment: &SpawnSegment| wire::Soft {
        triplets: says(segment, b"soft")
            .map(|most| wire::Triplet { first: 1, last: most.parse().expect("a number"), stride: 1 })
            .into_iter()
            .collect(),
    };
    let app = |segment: &SpawnSegment| wire::App {
        argv: vec!["program".into(), segment.execname.clone().into()],
        n: Some(segment.nprocs),
        ..Default::default()
    };
    SpawnWish {
        spec: wire::JobSpec { apps: spawn.segments.iter().map(app).collect(), ..Default::default() },
        soft: spawn.segments.iter().map(soft).collect(),
        preput: spawn.preput.into_iter().map(|(key, value)| (key.into(), value.into())).collect(),
        apart: spawn.segments.iter().any(|segment| says(segment, b"rsd_apart").is_some()),
        random: Bytes::from_static(&[9; 44]),
    }
}
