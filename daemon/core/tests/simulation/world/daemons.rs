//! Daemons: what their shells do, from start to end.

use std::collections::BTreeSet;

use rsd_proto::v1::kept::What;
use rsd_proto::v1::kept_job::State;

use super::*;

impl World {
    pub(super) fn start_daemon(&mut self, id: MachineId) {
        if self.machines[id].daemon.is_some() {
            return;
        }
        let is_head = id == 0 || self.machines[id].is_promoted;
        let (pid, now) = (self.id(), self.now());
        let join = self.address(self.machines[id].joins);
        self.drop_orders(id);
        let machine = &mut self.machines[id];
        machine.incarnation += 1;
        machine.daemon = Some(pid);
        let (node, dvm, name) = machine.identity.clone();
        let launches = machine.launches.iter().map(|(job, bytes)| {
            let launch = wire::Launch::decode(bytes.clone()).expect("the written launch decodes");
            let map = TaskMap::try_from(launch.map.expect("a launch has a map")).expect("the map is valid");
            KnownStep { job: *job, map, group: launch.group, owner: launch.owner }
        });
        let inventory = machine.inventory.clone();
        let start = Start {
            me: NodeInfo {
                node,
                name: if name.is_empty() { machine.name.clone() } else { name },
                inventory: Some(inventory),
                ..Default::default()
            },
            dvm,
            head_addr: (!is_head).then(|| join.clone()),
            above: machine.above.clone(),
            epoch: machine.epoch.clone(),
            standbys: machine.standbys.clone(),
            connect_back: if is_head { 0 } else { 1 },
            memory: machine.memory,
            steps: launches.collect(),
            serves_all: false,
            resources: Vec::new(),
        };
        let gone: Vec<JobId> =
            machine.launches.keys().filter(|job| !machine.steps.contains_key(job)).copied().collect();
        let listens = self.machines[id].opens.is_none();
        self.machines[id].listens = listens;
        let listen = if listens { self.listen(id) } else { String::new() };
        let me = NodeInfo { listen, may_listen: true, ..start.me };
        let core = Rsd::new(now, Start { me, ..start }, self.tuning);
        let Machine { above, standbys, epoch, .. } = &self.machines[id];
        let known = uplink::Known { above: above.clone(), standbys: standbys.clone(), epoch: epoch.number };
        let uplink = Uplink::new(now, join, known, UPLINK_LIMITS, pid);
        let daemon = Daemon {
            machine: id,
            core,
            links: HashMap::new(),
            next_link: 1,
            parent: None,
            uplink,
            dialing: None,
            tick: None,
        };
        self.daemons.insert(pid, daemon);
        if is_head && id != self.head {
            // An earlier head, whose logs are not the DVM's any more.
            let records = self.machines[id].kept.clone();
            self.handle(pid, Input::Kept { records, logs: Vec::new() });
        } else if is_head {
            let records = self.machines[id].kept.clone();
            let KeptJobs { alive, ended, ended_unplaced } = jobs_of(&records);
            self.logs.retain(|job, _| alive.contains(job) || ended.contains(job));
            let log = |job: &JobId| logged(*job, self.logs.get(job).map_or(&[], Vec::as_slice));
            let without_end = ended_unplaced.iter().map(log).filter(|log| !log.events.last().is_some_and(has_ended));
            let logs = alive.iter().map(log).chain(without_end).collect();
            self.handle(pid, Input::Kept { records, logs });
            self.machines[id].kept = self.daemons[&pid].core.kept();
            self.feed_again();
        }
        for job in gone {
            self.after(Duration::ZERO, Event::StepLost { pid, job, why: step_lost(StepEnd::WhileDaemonWasDown) });
        }
        if !is_head {
            self.after(Duration::ZERO, Event::UplinkTick(pid));
        }
    }

    /// Deletes launches that no step has taken: each step that has not begun may have ended with the daemon that ordered it.
    fn drop_orders(&mut self, id: MachineId) {
        let begun = |pid| self.steps.contains_key(pid);
        let waiting: Vec<JobId> =
            self.machines[id].steps.iter().filter(|(_, pid)| !begun(*pid)).map(|(job, _)| *job).collect();
        for job in waiting {
            if self.rng.chance(2) {
                self.machines[id].steps.remove(&job);
                self.machines[id].launches.remove(&job);
            }
        }
    }

    /// Handles one input and performs its effects.
    pub(crate) fn handle(&mut self, pid: Pid, input: Input) {
        let now = self.now();
        let Some(daemon) = self.daemons.get_mut(&pid) else { return };
        let mut effects = Vec::new();
        daemon.core.handle(now, input, &mut effects);
        let rank = |effect: &Effect| match effect {
            Effect::Keep(_) | Effect::ForgetKept => 0,
            Effect::StartStep(_) => 1,
            _ => 2,
        };
        assert!(effects.is_sorted_by_key(rank), "what is kept comes first, then launches: {effects:?}");
        for effect in effects {
            self.perform(pid, effect);
        }
        self.schedule_tick(pid);
    }

    pub(super) fn schedule_tick(&mut self, pid: Pid) {
        let Some(daemon) = self.daemons.get_mut(&pid) else { return };
        let Some(deadline) = daemon.core.next_deadline() else { return };
        if daemon.tick.is_none_or(|tick| deadline < tick) {
            daemon.tick = Some(deadline);
            self.at(deadline, Event::Tick(pid));
        }
    }

    pub(super) fn tick(&mut self, pid: Pid) {
        if let Some(daemon) = self.daemons.get_mut(&pid) {
            daemon.tick = None;
            self.handle(pid, Input::Tick);
        }
    }

    pub(super) fn perform(&mut self, pid: Pid, effect: Effect) {
        let Some(daemon) = self.daemons.get_mut(&pid) else { return };
        let machine = daemon.machine;
        match effect {
            Effect::Down { link, down } => {
                if let Some(wire) = daemon.links.get(&link).copied() {
                    self.count_down(wire, machine, &down);
                    self.send(wire, Way::Down, Some(down.encode_to_vec().into()));
                }
            }
            Effect::Up(up) => {
                if let Some(wire) = daemon.parent {
                    let above = self.wires.get(&wire).and_then(|wire| self.daemons.get(&wire.upper));
                    if let Some(above) = above {
                        self.traffic.push((kind_up(&up), machine, above.machine));
                    }
                    self.send(wire, Way::Up, Some(up.encode_to_vec().into()));
                }
            }
            Effect::Close { link } => {
                if let Some(wire) = daemon.links.remove(&link) {
                    self.send_eof(wire, Way::Down);
                }
            }
            Effect::StartStep(launch) => {
                let file = Bytes::from(launch.encode_to_vec());
                self.machines[machine].launches.insert(launch.job, file.clone());
                let pid = self.id();
                self.machines[machine].steps.insert(launch.job, pid);
                let delay = self.rng.within(Duration::from_millis(3));
                self.after(delay, Event::StepBoot { pid, machine, launch: file });
            }
            Effect::KillStep { job, .. } => {
                if let Some(step) = self.machines[machine].steps.get(&job).copied() {
                    self.end_step(step);
                }
            }
            Effect::ForgetStep(job) => drop(self.machines[machine].launches.remove(&job)),
            Effect::MeasureLoad { probe } => self.after(Duration::ZERO, Event::Load { pid, probe }),
            Effect::Member { member, event } => self.send_to_process(pid, member, event),
            Effect::Answer { req, answer } => self.answer(req, answer),
            Effect::Log { job, event } => {
                let event = JobEvent::decode(&*event.encode_to_vec()).expect("what was encoded decodes");
                let unwritten = self.unwritten.entry((pid, job)).or_default();
                unwritten.events.push(event);
                if !std::mem::replace(&mut unwritten.is_scheduled, true) {
                    let delay = self.delay();
                    self.after(delay, Event::WriteLog(pid, job));
                }
            }
            Effect::DropLog(job) => {
                if machine == self.head {
                    self.logs.remove(&job);
                }
                self.unwritten.remove(&(pid, job));
            }
            Effect::Remember(memory) => self.machines[machine].memory = memory,
            Effect::Keep(kept) => {
                self.machines[machine].kept.extend(kept);
                if self.checks_journal {
                    self.check_journal(pid);
                }
            }
            Effect::ForgetKept => self.machines[machine].kept = self.daemons[&pid].core.kept(),
            Effect::OpenPort => {
                if self.machines[machine].opens != Some(Opens::Never) {
                    let delay = self.rng.within(Duration::from_millis(5));
                    self.after(delay, Event::PortOpened(pid));
                }
            }
            Effect::Identity { node, dvm, name, .. } => self.machines[machine].identity = (node, dvm, name),
            Effect::Ancestors(ancestors) => {
                let epoch = ancestors.epoch.unwrap_or_default();
                let machine = &mut self.machines[machine];
                machine.obeyed.push(epoch.number);
                (machine.above, machine.standbys, machine.epoch) = (ancestors.above, ancestors.standbys, epoch);
            }
            Effect::StepDown(epoch) => {
                assert!(epoch.number > 0, "the first head replaces none");
                self.stepped_down.push(machine);
                self.end_daemon(pid);
            }
            Effect::Exit => {
                // After its last messages.
                let ends = self.wires.iter().filter_map(|(id, wire)| match wire {
                    wire if wire.upper == pid => Some((*id, Way::Down)),
                    wire if wire.lower == Lower::Daemon(pid) => Some((*id, Way::Up)),
                    _ => None,
                });
                for (wire, way) in ends.collect::<Vec<_>>() {
                    self.send_eof(wire, way);
                }
                let daemon = self.daemons.remove(&pid).expect("it is about to exit");
                (self.machines[machine].daemon, self.machines[machine].kept) = (None, daemon.core.kept());
                self.hang_up_on_processes(pid);
                self.fail_calls_to(pid);
            }
        }
    }

    /// Ends the process; its peers notice later.
    pub(super) fn end_daemon(&mut self, pid: Pid) {
        let Some(daemon) = self.daemons.remove(&pid) else { return };
        self.machines[daemon.machine].daemon = None;
        self.unwritten.retain(|(of, _), _| *of != pid);
        self.break_wires_of(|wire| wire.upper == pid || wire.lower == Lower::Daemon(pid));
        self.hang_up_on_processes(pid);
        self.fail_calls_to(pid);
    }

    pub(super) fn fail_calls_to(&mut self, pid: Pid) {
        for (_, (_, step, local)) in self.callers.extract_if(.., |_, (daemon, ..)| *daemon == pid).collect::<Vec<_>>() {
            self.after(Duration::ZERO, Event::Rank(step, local, RankEvent::CallAnswered(false)));
        }
    }

    /// Replays the journal as it is now: a head that begins with it has the state of this one.
    fn check_journal(&self, pid: Pid) {
        let (daemon, machine) = (&self.daemons[&pid], &self.machines[self.daemons[&pid].machine]);
        // Something is due: a head that begins now does it at once, this one with its next input. The journal has milliseconds.
        let soon = self.now().mono + Duration::from_millis(1);
        if daemon.core.next_deadline().is_some_and(|deadline| deadline <= soon) {
            return;
        }
        let launches = machine.launches.keys().map(|job| KnownStep {
            job: *job,
            map: TaskMap::default(),
            group: Bytes::new(),
            owner: None,
        });
        let me = NodeInfo { inventory: Some(machine.inventory.clone()), name: "n0".into(), ..Default::default() };
        let (memory, steps) = (machine.memory, launches.collect());
        let start = Start { me, dvm: machine.identity.1.clone(), memory, steps, ..Start::default() };
        let mut next = Rsd::new(self.now(), start, self.tuning);
        let records = machine.kept.clone();
        let alive = jobs_of(&records).alive;
        let logs = self.logs.iter().filter(|(job, _)| alive.contains(job)).map(|(job, log)| logged(*job, log));
        let mut effects = Vec::new();
        let logs: Vec<Logged> = logs.collect();
        let ended = logs.iter().filter(|log| log.events.last().is_some_and(has_ended)).map(|log| log.job);
        let ended: BTreeSet<JobId> = ended.collect();
        next.handle(self.now(), Input::Kept { records, logs }, &mut effects);
        let described = |core: &Rsd| -> BTreeSet<String> {
            let kept = core.kept();
            // The log of a job may have its end already, and the journal not yet.
            let kept = kept.iter().filter(|kept| !job_of(kept).is_some_and(|job| ended.contains(&job)));
            // So may what follows from it for arrays and for jobs that wait.
            let kept = kept.filter(|kept| ended.is_empty() || !follows_from_ends(kept));
            let kept = kept.filter(|kept| !is_of_start(kept));
            kept.cloned().map(without_reason).map(|kept| format!("{kept:?}")).collect()
        };
        let (here, there) = (described(&daemon.core), described(&next));
        let differs: Vec<_> = here.symmetric_difference(&there).collect();
        assert!(differs.is_empty(), "the journal does not tell of the state: {differs:#?}");
    }

    /// Writes what was appended to a log, as the shell's thread for logs does.
    pub(super) fn write_log(&mut self, pid: Pid, job: JobId) {
        if !self.daemons.contains_key(&pid) {
            return; // it was killed before
        }
        let Some(unwritten) = self.unwritten.get_mut(&(pid, job)) else { return };
        unwritten.is_scheduled = false;
        unwritten.written += unwritten.events.len() as u64;
        let (events, written) = (std::mem::take(&mut unwritten.events), unwritten.written);
        if self.daemons[&pid].machine == self.head {
            self.logs.entry(job).or_default().extend(events);
        }
        self.handle(pid, Input::LogWritten { log: job, events: written, lost_bytes: 0 });
    }
}

/// Returns what a new head learns of a log.
fn logged(job: JobId, log: &[JobEvent]) -> Logged {
    let mut logged = Logged { job, ..Logged::default() };
    for event in log {
        match &event.body {
            Some(job_event::Body::Output(output)) => {
                let end = logged.output.entry((output.job, output.node)).or_default();
                *end = output.end.max(*end);
            }
            Some(_) | None => logged.events.push(event.clone()),
        }
    }
    logged
}

fn has_ended(event: &JobEvent) -> bool {
    matches!(event.body, Some(job_event::Body::Ended(_) | job_event::Body::Requeued(_)))
}

/// Returns the job that a record is about.
fn job_of(kept: &wire::Kept) -> Option<JobId> {
    match kept.what.as_ref()? {
        // Without the number of the attempt.
        What::Job(job) => Some(job.job & ((1 << 42) - 1)),
        What::Ended(info) => Some(info.job),
        What::Epoch(epoch) => epoch.launch.as_ref().map(|launch| launch.job),
        What::Kill(kill) => Some(kill.job & ((1 << 42) - 1)),
        What::Name(name) => Some(name.job),
        What::Value(value) => Some(value.job),
        What::Answer(answer) => Some(answer.job),
        What::Data(data) => Some(data.job),
        _ => None,
    }
}

/// Returns whether a record changes when other jobs end.
fn follows_from_ends(kept: &wire::Kept) -> bool {
    match &kept.what {
        Some(What::Array(_)) => true,
        Some(What::Job(wire::KeptJob { state: Some(State::Queued(queued)), .. })) => {
            queued.spec.as_ref().is_some_and(|spec| !spec.after.is_empty() || !spec.array.is_empty() || spec.hold)
        }
        Some(What::Ended(info)) => info.array.is_some() || !info.after.is_empty(),
        Some(What::Event(_)) => true,
        _ => false,
    }
}

/// Returns whether a record tells of the start of a head, or of what a head finds out anew when it starts: why a job waits, and which ranks
/// were lost with the machine of an earlier head.
fn is_of_start(kept: &wire::Kept) -> bool {
    use wire::job_change::Change;
    let Some(What::Event(wire::KeptEvent { event: Some(event), .. })) = &kept.what else { return false };
    match &event.what {
        Some(wire::dvm_event::What::HeadStarted(_)) => true,
        Some(wire::dvm_event::What::Job(job)) => {
            matches!(job.change, Some(Change::Queued(_) | Change::RankFailed(_)))
        }
        _ => false,
    }
}

/// Returns a record without what changes later: the reason why a job is queued, and what is known of the cause of its end.
fn without_reason(mut kept: wire::Kept) -> wire::Kept {
    if let Some(What::Kill(kill)) = &mut kept.what {
        kill.cause = None;
    }
    if let Some(What::Job(wire::KeptJob { state: Some(State::Queued(queued)), .. })) = &mut kept.what {
        queued.reason.clear();
    }
    kept
}
