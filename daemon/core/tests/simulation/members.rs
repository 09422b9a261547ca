//! Running processes that join groups, as `rsctl group exec` does: they join, wait, reconnect with their token when their daemon
//! is restarted, and connect to their PMI server after `go`.

use std::time::Duration;

use rsd_core::rsd::{Input, MemberId};
use rsd_core::step;
use rsd_proto::join::{Event as JoinEvent, Go};
use rsd_proto::v1::GroupJoin;

use crate::steps::RankEvent;
use crate::world::{Event, MachineId, Pid, World};

const RETRY: Duration = Duration::from_millis(100);

const KNOCKS: u32 = 100;

/// Returns the error that rsctl itself reports.
pub(crate) fn lost_daemon() -> JoinEvent {
    JoinEvent::Error { code: 242, text: "lost the daemon".into() }
}

/// A process on a machine.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) machine: MachineId,
    /// The request.
    join: GroupJoin,
    token: Option<String>,
    /// The daemon at which it waits, and its number there.
    waits_at: Option<(Pid, MemberId)>,
    /// The numbers of present and requested members that the daemon has reported.
    pub(crate) news: Vec<(u32, u32)>,
    /// The final answers; there must be one.
    pub(crate) answers: Vec<JoinEvent>,
    /// Its step, after it has connected.
    step: Option<Pid>,
    pub(crate) dead: bool,
    /// Whether it does nothing after `go`.
    pub(crate) lazy: bool,
    /// How often it found no daemon.
    knocks: u32,
}

impl Process {
    pub(crate) fn go(&self) -> Option<&Go> {
        match &self.answers[..] {
            [JoinEvent::Go(go)] => Some(go),
            _ => None,
        }
    }

    pub(crate) fn refusal(&self) -> (u8, &str) {
        match &self.answers[..] {
            [JoinEvent::Error { code, text }] => (*code, text),
            other => panic!("it was not refused once: {other:?}"),
        }
    }
}

impl World {
    /// Starts a process that joins after this time.
    pub(crate) fn process(&mut self, machine: MachineId, after: Duration, join: GroupJoin) -> u64 {
        let id = self.id();
        let pid = u32::try_from(id).expect("few processes");
        let join = GroupJoin { pid, started: id, ..join };
        self.processes.insert(id, Process { machine, join, ..Process::default() });
        self.after(after, Event::Join(id));
        id
    }

    pub(crate) fn knock(&mut self, id: u64) {
        let member = self.id();
        let Some(process) = self.processes.get_mut(&id).filter(|process| !process.dead && process.answers.is_empty())
        else {
            return;
        };
        let Some(daemon) = self.machines[process.machine].daemon else {
            process.knocks += 1;
            return match process.knocks > KNOCKS {
                true => process.answers.push(lost_daemon()),
                false => self.after(RETRY, Event::Join(id)),
            };
        };
        let token = process.token.clone().unwrap_or_else(|| format!("t{member}"));
        process.waits_at = Some((daemon, member));
        let pmi_id = u32::try_from(member % 3).expect("small"); // these collide, so that the head must make them unique
        let join = GroupJoin { token, pmi_id, ..process.join.clone() };
        self.handle(daemon, Input::Join { member, join: Box::new(join) });
    }

    pub(crate) fn send_to_process(&mut self, daemon: Pid, member: MemberId, event: JoinEvent) {
        let found = self.processes.iter_mut().find(|(_, process)| process.waits_at == Some((daemon, member)));
        let Some((id, process)) = found else { return };
        let id = *id;
        match event {
            JoinEvent::Wait(wait) => {
                process.news.push((wait.have, wait.want));
                process.token = Some(wait.token);
            }
            JoinEvent::Go(_) => {
                process.answers.push(event);
                process.waits_at = None;
                let delay = self.rng.within(Duration::from_millis(50));
                self.after(delay, Event::Attach(id));
            }
            JoinEvent::Error { .. } => {
                process.answers.push(event);
                process.waits_at = None;
            }
        }
    }

    /// Handles the end of a daemon: processes with a token reconnect.
    pub(crate) fn hang_up_on_processes(&mut self, daemon: Pid) {
        let mut back = Vec::new();
        for (id, process) in &mut self.processes {
            if process.waits_at.take_if(|(at, _)| *at == daemon).is_none() {
                continue;
            }
            if process.token.is_some() {
                back.push(*id);
            } else {
                process.answers.push(lost_daemon());
            }
        }
        back.into_iter().for_each(|id| self.after(RETRY, Event::Join(id)));
    }

    pub(crate) fn attach(&mut self, id: u64) {
        let Some(process) = self.processes.get(&id).filter(|process| !process.dead && !process.lazy) else { return };
        let Some(go) = process.go() else { return };
        let (job, machine, rank) = (go.job, process.machine, go.rank);
        let local = go.local_rank as usize;
        let step = self.attach_member(job, machine, local, rank);
        if let Some(process) = self.processes.get_mut(&id) {
            process.step = step;
        }
    }

    /// Returns whether the process is connected to its step and has not ended.
    pub(crate) fn member_lives(&self, id: u64) -> bool {
        let Some(process) = self.processes.get(&id) else { return false };
        let (Some(step), Some(go)) = (process.step, process.go()) else { return false };
        self.rank_lives(step, go.local_rank as usize)
    }

    /// Ends the process in whatever state it is.
    pub(crate) fn end_process(&mut self, id: u64) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.dead = true;
        let (waits_at, step, machine) = (process.waits_at.take(), process.step, process.machine);
        let went = process.go().map(|go| (go.job, go.local_rank as usize));
        if let Some((daemon, member)) = waits_at {
            self.handle(daemon, Input::MemberGone { member });
        } else if let (Some(pid), Some((_, local))) = (step, went) {
            self.after(Duration::ZERO, Event::Rank(pid, local, RankEvent::Signal(9)));
        } else if let Some((job, local)) = went
            && let Some(pid) = self.machines[machine].steps.get(&job).copied()
        {
            self.after(Duration::ZERO, Event::StepInput(pid, step::Input::Gone(local)));
        }
    }
}
