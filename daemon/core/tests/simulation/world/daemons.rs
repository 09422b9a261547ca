//! Daemons: what their shells do, from start to end.

use super::*;

impl World {
    pub(super) fn start_daemon(&mut self, id: MachineId) {
        if self.machines[id].daemon.is_some() {
            return;
        }
        let (pid, now, is_head) = (self.id(), self.now(), id == 0);
        let join = self.address(self.machines[id].joins);
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
            connect_back: if is_head { 0 } else { 1 },
            memory: machine.memory,
            steps: launches.collect(),
            serves_all: false,
        };
        let gone: Vec<JobId> =
            machine.launches.keys().filter(|job| !machine.steps.contains_key(job)).copied().collect();
        let listens = self.machines[id].opens.is_none();
        self.machines[id].listens = listens;
        let listen = if listens { self.listen(id) } else { String::new() };
        let me = NodeInfo { listen, may_listen: true, ..start.me };
        let core = Rsd::new(now, Start { me, ..start }, self.tuning);
        let above = self.machines[id].above.clone();
        let uplink = Uplink::new(now, join, above, UPLINK_LIMITS, pid);
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
        if is_head {
            let before = std::mem::take(&mut self.machines[id].kept);
            self.handle(pid, Input::Kept { records: before, logs: Vec::new() });
            self.machines[id].kept = self.daemons[&pid].core.kept();
        }
        for job in gone {
            self.after(Duration::ZERO, Event::StepLost { pid, job, why: step_lost(StepEnd::WhileDaemonWasDown) });
        }
        if !is_head {
            self.after(Duration::ZERO, Event::UplinkTick(pid));
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
                self.after(delay, Event::StepBoot { machine, launch: file });
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
                self.logs.entry(job).or_default().push(event);
            }
            Effect::DropLog(job) => drop(self.logs.remove(&job)),
            Effect::Remember(memory) => self.machines[machine].memory = memory,
            Effect::Keep(kept) => self.machines[machine].kept.extend(kept),
            Effect::ForgetKept => self.machines[machine].kept.clear(),
            Effect::OpenPort => {
                if self.machines[machine].opens != Some(Opens::Never) {
                    let delay = self.rng.within(Duration::from_millis(5));
                    self.after(delay, Event::PortOpened(pid));
                }
            }
            Effect::Identity { node, dvm, name, .. } => self.machines[machine].identity = (node, dvm, name),
            Effect::Ancestors(ancestors) => self.machines[machine].above = ancestors.above,
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
                self.daemons.remove(&pid);
                (self.machines[machine].daemon, self.machines[machine].kept) = (None, Vec::new());
                self.hang_up_on_processes(pid);
                self.fail_calls_to(pid);
            }
        }
    }

    /// Ends the process; its peers notice later.
    pub(super) fn end_daemon(&mut self, pid: Pid) {
        let Some(daemon) = self.daemons.remove(&pid) else { return };
        self.machines[daemon.machine].daemon = None;
        self.break_wires_of(|wire| wire.upper == pid || wire.lower == Lower::Daemon(pid));
        self.hang_up_on_processes(pid);
        self.fail_calls_to(pid);
    }

    pub(super) fn fail_calls_to(&mut self, pid: Pid) {
        for (_, (_, step, local)) in self.callers.extract_if(.., |_, (daemon, ..)| *daemon == pid).collect::<Vec<_>>() {
            self.after(Duration::ZERO, Event::Rank(step, local, RankEvent::CallAnswered(false)));
        }
    }
}
