//! How ranks exit, and what that means for the job.
//!
//! A rank exits normally if it exits with 0 after finalize, or without having used PMI. Any other exit is reported once,
//! immediately. It is *fatal*, and ends the job, if other ranks could wait for this one forever: it aborted, died or exited
//! between init and finalize (in a spawned job: without init), could not be started, broke the PMI protocol, or exited while
//! other ranks of its node wait in a fence. Exits that follow an order to kill are secondary.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, OnRankLoss, rank_exit::How, up};

use super::last_output::LastOutput;
use super::{Effect, Local, Phase, Status, StdinState, Step};
use crate::calls::exit::ALONE;
use crate::contract::NO_FENCE_NEEDS_IT;
use crate::{Now, sentences};

/// How long the report of a dead rank waits for the end of its output: a child may hold the streams open.
const DRAIN: Duration = Duration::from_millis(50);
/// How long a rank may take to flush and exit after an abort; old clients never exit.
const ABORT_GRACE: Duration = Duration::from_millis(100);
/// How long a rank may take to exit after it closed its PMI connection without finalize.
const HANGUP_GRACE: Duration = Duration::from_secs(5);
/// How long ranks of a node that are in MPI may wait for a rank that exited without MPI.
const ABSENCE: Duration = Duration::from_secs(3);
const STDERR_TAIL_BYTES: usize = 4 << 10;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The facts about the exit of one rank.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    stderr_tail: VecDeque<u8>,
    pub(super) aborted: Option<i32>,
    /// What it said about its abort.
    pub(super) said: Option<String>,
    /// It has aborted without a code, which its exit status may show.
    abort_is_silent: bool,
    /// Why it broke the protocol or could not be started.
    pub(super) fault: Option<Fault>,
    /// When to kill it if it is still running.
    pub(super) kill_at: Option<Duration>,
    /// Its PMI connection is closed, and it has not finalized.
    hung_up: bool,
    /// When to report its exit, even if its streams are still open.
    report_at: Option<Duration>,
    pub(super) was_told: bool,
    report: Option<wire::RankExit>,
    /// When its exit was complete.
    judged: Option<Duration>,
}

#[derive(Debug)]
pub(super) enum Fault {
    NotStarted(String),
    Protocol(String),
    /// Its MPI library cannot reach rsd.
    Alone(String),
}

impl Verdict {
    pub(super) fn saw_stderr(&mut self, bytes: &[u8]) {
        self.stderr_tail.extend(bytes);
        let excess = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
        self.stderr_tail.drain(..excess);
    }

    /// Returns the last complete lines written.
    fn last_stderr(&self) -> Bytes {
        let bytes: Vec<u8> = self.stderr_tail.iter().copied().collect();
        let cut = if bytes.len() < STDERR_TAIL_BYTES {
            0
        } else {
            bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1)
        };
        Bytes::copy_from_slice(&bytes[cut..])
    }
}

/// The end of the step.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// When KILL follows the TERM that was sent.
    kill_at: Option<Duration>,
    killing: bool,
    /// The head's reason for the kill.
    why: Option<String>,
    sweep_asked: bool,
    pub(super) swept: bool,
    /// When the exit of a rank that did not use MPI becomes fatal, because other ranks of this node are in MPI.
    absent_at: Option<Duration>,
    pub(super) last_output: LastOutput,
    done: Option<wire::Done>,
    pub(super) released: bool,
    pub(super) orphaned: bool,
    exited: bool,
}

impl Ending {
    /// Returns whether the job is being ended.
    pub(super) fn is_killing(&self) -> bool {
        self.killing
    }

    /// Records why the job is being ended, unless a reason is known.
    pub(super) fn set_why(&mut self, why: String) {
        self.why.get_or_insert(why);
    }

    /// Returns why the job is being ended.
    pub(super) fn why(&self) -> String {
        self.why.clone().filter(|why| !why.is_empty()).unwrap_or_else(|| sentences::JOB_IS_BEING_ENDED.to_owned())
    }
}

impl super::Rank {
    /// Returns whether the rank exited without ending the job, which does not count it as lost.
    pub(super) fn left_quietly(&self) -> bool {
        self.verdict.judged.is_some() && !self.verdict.report.as_ref().is_some_and(|report| report.fatal || report.lost)
    }

    /// Returns whether the rank has died, and its job continues without it.
    pub(super) fn is_lost(&self) -> bool {
        self.verdict.report.as_ref().is_some_and(|report| report.lost)
    }
}

impl Step {
    pub(super) fn on_started(&mut self, local: Local, pid: u32, out: &mut Vec<Effect>) {
        (self.ranks[local].phase, self.ranks[local].pid) = (Phase::Running, pid);
        if self.ending.killing {
            // The kill arrived while the rank was being started.
            out.push(Effect::Signal(local, SIGKILL));
        }
    }

    pub(super) fn on_start_failed(&mut self, now: Now, local: Local, why: String, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        rank.phase = Phase::NeverRan;
        rank.stdin = if rank.stdin == StdinState::Null { StdinState::Null } else { StdinState::Closed };
        for lines in &mut rank.lines {
            lines.close();
        }
        rank.verdict.fault = Some(Fault::NotStarted(why));
        self.report_exit_if_known(now, local, out);
    }

    pub(super) fn on_exited(&mut self, now: Now, local: Local, status: Status, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        rank.phase = Phase::Exited(status);
        rank.verdict.report_at = Some(now.mono + DRAIN);
        rank.verdict.kill_at = None;
        self.on_stdin_closed(local, out);
        self.report_exit_if_known(now, local, out);
    }

    /// Handles a rank's abort: its code is final, and the rank gets [`ABORT_GRACE`] to flush.
    pub(super) fn on_abort(&mut self, now: Now, local: Local, code: i32, is_known: bool) {
        let verdict = &mut self.ranks[local].verdict;
        verdict.abort_is_silent = !is_known && verdict.aborted.is_none();
        verdict.aborted.get_or_insert(code);
        verdict.kill_at.get_or_insert(now.mono + ABORT_GRACE);
    }

    /// Handles an invalid request of a rank, which would wait for an answer forever.
    pub(super) fn on_protocol_fault(&mut self, now: Now, local: Local, why: String, out: &mut Vec<Effect>) {
        let verdict = &mut self.ranks[local].verdict;
        verdict.fault.get_or_insert(Fault::Protocol(why));
        verdict.kill_at = Some(now.mono);
        out.push(Effect::PmiClose(local));
    }

    pub(super) fn on_pmi_closed(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        if self.has_members() {
            return self.on_member_hung_up(now, local, out);
        }
        // A PMIx client has connections of its own, and may close descriptors that it does not know.
        if !self.pmix.serves(local) {
            self.on_hung_up(now, local);
        }
    }

    /// Handles that a rank's process manager has lost its connection to it.
    pub(super) fn on_hung_up(&mut self, now: Now, local: Local) {
        let rank = &mut self.ranks[local];
        if rank.pmi.is_active() && rank.phase == Phase::Running && rank.verdict.aborted.is_none() {
            // Usually the rank is dying, and its exit status will say more.
            rank.verdict.hung_up = true;
            rank.verdict.kill_at.get_or_insert(now.mono + HANGUP_GRACE);
        }
    }

    pub(super) fn on_output_file_failed(&mut self, now: Now, local: Local, why: String, out: &mut Vec<Effect>) {
        self.ranks[local].verdict.fault.get_or_insert(Fault::NotStarted(why));
        if self.ranks[local].phase == Phase::Running {
            self.ranks[local].verdict.kill_at = Some(now.mono);
        }
        self.settle_exits(now, out);
    }

    /// Sends TERM to all ranks now and KILL after `grace_ms`; a second call can only shorten the grace.
    pub(super) fn kill(&mut self, now: Now, grace_ms: u64, out: &mut Vec<Effect>) {
        let kill_at = now.mono + Duration::from_millis(grace_ms);
        let first = !std::mem::replace(&mut self.ending.killing, true);
        self.ending.kill_at = Some(self.ending.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        if first && self.has_members() {
            self.fail_waiting(out);
        }
        for local in 0..self.ranks.len() {
            let let_go_at = self.let_go_at(now, local);
            let rank = &mut self.ranks[local];
            if rank.phase.is_over() {
                continue;
            }
            rank.verdict.was_told = true;
            rank.verdict.kill_at = rank.verdict.kill_at.into_iter().chain(let_go_at).min();
            if rank.member.is_none() && first && grace_ms > 0 && rank.phase == Phase::Running {
                out.push(Effect::Signal(local, SIGTERM));
            }
        }
        self.give_up_meeting(now, out);
    }

    /// Ends all ranks because of a fault that no rank caused.
    pub(super) fn fail_all(&mut self, now: Now, why: &str, out: &mut Vec<Effect>) {
        for local in 0..self.ranks.len() {
            self.on_protocol_fault(now, local, why.to_owned(), out);
        }
    }

    /// Handles the head's release of the job: ends everything that is left of it.
    pub(super) fn on_release(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.ending.released = true;
        self.kill(now, 0, out);
    }

    /// Reports a rank's end once it has ended and its output has been read.
    pub(super) fn report_exit_if_known(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        let drained = rank.lines.iter().all(|lines| !lines.is_open());
        let waited = rank.verdict.report_at.is_some_and(|at| at <= now.mono);
        if rank.verdict.judged.is_some() || !rank.phase.is_over() || !(drained || waited) {
            return;
        }
        if self.check_alone(local, out) {
            return;
        }
        let verdict = &mut self.ranks[local].verdict;
        (verdict.judged, verdict.report_at) = (Some(now.mono), None);
        self.ranks[local].verdict.report = self.judge(local);
        self.send_report(local, out);
        if let Some(report) = self.ranks[local].verdict.report.clone().filter(|report| report.lost) {
            self.on_own_rank_lost(now, local, &report, out);
        }
        self.check_fence(out);
        self.check_on_node(out);
    }

    fn judge(&self, local: Local) -> Option<wire::RankExit> {
        let rank = &self.ranks[local];
        if let Some(member) = &rank.member {
            let (how, code) = self.judge_member(local, member)?;
            let (secondary, fatal) = (rank.verdict.was_told, !rank.verdict.was_told);
            let code = u32::try_from(shell_code(code)).unwrap_or(1);
            let (rank, node, how) = (rank.rank, self.node, Some(how));
            return Some(wire::RankExit { rank, node, how, secondary, fatal, code, ..Default::default() });
        }
        let between = rank.pmi.has_spoken() && !rank.pmi.is_finalized();
        let told = rank.verdict.was_told;
        // The spawner waits for this rank's MPI_Init.
        let silent = self.launch.spawned && !rank.pmi.has_spoken();
        let (how, code, fatal, note) = match (&rank.verdict.fault, rank.verdict.aborted, rank.phase) {
            (_, Some(_), Phase::Exited(Status::Exited(own))) if rank.verdict.abort_is_silent && own != 0 => {
                (How::Aborted(own), shell_code(own), true, String::new())
            }
            (_, Some(code), _) => {
                (How::Aborted(code), shell_code(code), true, rank.verdict.said.clone().unwrap_or_default())
            }
            (Some(Fault::NotStarted(why)), None, _) => (How::Failed(why.clone()), 247, true, String::new()),
            (Some(Fault::Alone(why)), None, _) => (How::Failed(why.clone()), ALONE.into(), true, String::new()),
            (fault, None, Phase::Exited(Status::Signaled(signal))) => {
                let note = match fault {
                    Some(Fault::Protocol(why)) => why.clone(),
                    Some(Fault::NotStarted(_) | Fault::Alone(_)) | None => String::new(),
                };
                let code = if fault.is_some() { 1 } else { 128 + signal };
                (How::Signaled(signal), code, rank.pmi.has_spoken() || fault.is_some() || silent, note)
            }
            (fault, None, Phase::Exited(Status::Exited(code))) => {
                let note = match fault {
                    Some(Fault::Protocol(why)) if between => why.clone(),
                    _ if between => sentences::WITHOUT_FINALIZE.to_owned(),
                    _ if silent => sentences::WITHOUT_INIT_FOR_SPAWNER.to_owned(),
                    _ => String::new(),
                };
                if code == 0 && !between && !silent {
                    return None;
                }
                (How::Exited(code), shell_code(code), between || silent, note)
            }
            (Some(Fault::Protocol(why)), None, _) => (How::Failed(why.clone()), 1, true, String::new()),
            (None, None, Phase::Starting | Phase::Running | Phase::NeverRan | Phase::Left) => {
                (How::Failed(sentences::NEVER_STARTED.into()), 247, true, String::new())
            }
        };
        // An exit after the order to kill is a consequence, not a separate failure.
        let fatal = fatal && !told;
        let lost = fatal && self.survives(local);
        Some(wire::RankExit {
            rank: rank.rank,
            node: self.node,
            how: Some(how),
            secondary: told,
            note,
            // A rank that was killed because of another is never the first failure, whose lines are shown.
            stderr_tail: if told { Bytes::new() } else { rank.verdict.last_stderr() },
            fatal: fatal && !lost,
            lost,
            code: u32::try_from(code).unwrap_or(1),
            ..wire::RankExit::default()
        })
    }

    /// Returns whether the job continues after the death of this rank. It does not after an abort, which is meant to end it, nor
    /// without a rank that never was in MPI.
    fn survives(&self, local: Local) -> bool {
        let rank = &self.ranks[local];
        let may_be_missed = match &rank.verdict.fault {
            Some(Fault::NotStarted(_) | Fault::Alone(_)) => false,
            Some(Fault::Protocol(_)) | None => rank.verdict.aborted.is_none() && rank.pmi.has_spoken(),
        };
        may_be_missed && self.launch_spec().on_rank_loss() == OnRankLoss::Continue
    }

    /// Reports a failure at once. What follows from the order to kill is reported when all ranks here have ended.
    fn send_report(&self, local: Local, out: &mut Vec<Effect>) {
        if let Some(exit) = self.ranks[local].verdict.report.clone().filter(|exit| !exit.secondary) {
            let failed = wire::RankFailed { job: self.job, exit: Some(exit), others: Vec::new() };
            self.send(up::Body::RankFailed(failed), out);
        }
    }

    /// Checks whether ranks wait in a fence for a rank that has exited and can never enter it.
    pub(super) fn check_fence(&mut self, out: &mut Vec<Effect>) {
        if self.fence.waiting.is_empty() || self.ending.killing {
            return;
        }
        let waiting = self.fence.waiting.len();
        let Some(local) = self.ranks.iter().position(super::Rank::left_quietly) else { return };
        let note = sentences::missing_in_barrier(self.ranks[local].pmi.is_finalized(), waiting);
        self.condemn(local, note, out);
    }

    /// Makes the exit of a rank without MPI fatal after [`ABSENCE`] while other ranks of its node are in MPI. MPI libraries also
    /// wait for each other in shared memory, which the step cannot observe.
    fn settle_absence(&mut self, now: Now, out: &mut Vec<Effect>) {
        let absent = self.ranks.iter().position(|rank| rank.left_quietly() && !rank.pmi.has_spoken());
        let in_mpi = self.ranks.iter().filter(|rank| rank.phase == Phase::Running && rank.pmi.is_active()).count();
        let (Some(local), false) = (absent, in_mpi == 0 || self.ending.killing) else {
            self.ending.absent_at = None;
            return;
        };
        if *self.ending.absent_at.get_or_insert(now.mono + ABSENCE) <= now.mono {
            self.condemn(local, sentences::missing_in_mpi(in_mpi), out);
        }
    }

    /// Turns the normal exit of a rank into the job's failure.
    fn condemn(&mut self, local: Local, note: String, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        let status = match rank.phase {
            Phase::Exited(Status::Exited(code)) => How::Exited(code),
            Phase::Exited(Status::Signaled(signal)) => How::Signaled(signal),
            Phase::Left => How::Failed(sentences::LEFT_THE_EPOCH.into()),
            Phase::Starting | Phase::Running | Phase::NeverRan => return,
        };
        let before = rank.verdict.report.take();
        rank.verdict.report = Some(wire::RankExit {
            rank: rank.rank,
            node: self.node,
            how: Some(status),
            secondary: false,
            note,
            stderr_tail: rank.verdict.last_stderr(),
            fatal: true,
            code: before.map_or(1, |report| report.code.max(1)),
            ..wire::RankExit::default()
        });
        self.send_report(local, out);
    }

    /// Does everything that is due.
    pub(super) fn settle_exits(&mut self, now: Now, out: &mut Vec<Effect>) {
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now.mono);
        if due(self.ending.kill_at) {
            self.ending.kill_at = None;
            for local in 0..self.ranks.len() {
                if self.ranks[local].member.is_some() {
                    self.cut_off(now, local, out);
                } else if self.ranks[local].phase == Phase::Running {
                    out.push(Effect::Signal(local, SIGKILL));
                }
            }
        }
        for local in 0..self.ranks.len() {
            if due(self.ranks[local].verdict.kill_at) {
                let rank = &mut self.ranks[local];
                rank.verdict.kill_at = None;
                if rank.member.is_some() {
                    self.cut_off(now, local, out);
                } else if rank.phase == Phase::Running {
                    if rank.verdict.hung_up {
                        rank.verdict.fault.get_or_insert(Fault::Protocol(sentences::HUNG_UP.into()));
                    }
                    out.push(Effect::Signal(local, SIGKILL));
                }
            }
            if due(self.ranks[local].verdict.report_at) {
                self.report_exit_if_known(now, local, out);
            }
        }
        self.settle_absence(now, out);
        self.settle_sweep(now, out);
    }

    fn settle_sweep(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !self.ranks.iter().all(|rank| rank.phase.is_over()) {
            return;
        }
        if !std::mem::replace(&mut self.ending.sweep_asked, true) {
            out.push(Effect::Sweep);
        }
        if self.ending.swept {
            self.settle_last_output(now, out);
        }
    }

    /// Reports that all ranks have exited and all output was sent, and exits when the head releases the step.
    pub(super) fn settle_end(&mut self, out: &mut Vec<Effect>) {
        let over = self.ending.swept
            && self
                .ranks
                .iter()
                .all(|rank| rank.verdict.judged.is_some() && rank.lines.iter().all(|lines| !lines.is_open()));
        if !over || self.ending.exited {
            return;
        }
        self.settle_output(out);
        // After the last acknowledgement: a receiver of this report has all output of this node.
        if self.ending.done.is_none() && self.outbox.is_drained() {
            let exits = self.ranks.iter().filter_map(|rank| rank.verdict.report.clone()).collect();
            let fence = match self.ranks.iter().all(super::Rank::is_lost) {
                true => NO_FENCE_NEEDS_IT,
                false => self.fence.sent.last().map_or(0, |sent| sent.epoch),
            };
            let (nodes, usage) = (vec![self.node], vec![self.usage()]);
            let done = wire::Done { job: self.job, nodes, exits, fences: vec![fence], usage };
            self.send(up::Body::Done(done.clone()), out);
            self.ending.done = Some(done);
        }
        if self.ending.released || self.ending.orphaned {
            self.ending.exited = true;
            out.push(Effect::Exit);
        }
    }

    pub(super) fn resend_exits(&mut self, now: Now, out: &mut Vec<Effect>) {
        // The report of the whole step is merged with others on its way up, and may wait; a failure must not.
        for local in 0..self.ranks.len() {
            let Verdict { report, judged, .. } = &mut self.ranks[local].verdict;
            if let (Some(report), Some(since)) = (report, judged) {
                report.ago_us = u64::try_from(now.mono.saturating_sub(*since).as_micros()).unwrap_or(u64::MAX);
            }
            self.send_report(local, out);
        }
        if let Some(done) = &self.ending.done {
            self.send(up::Body::Done(done.clone()), out);
        }
    }

    pub(super) fn exit_deadlines(&self) -> impl Iterator<Item = Duration> {
        let ranks = self.ranks.iter().flat_map(|rank| [rank.verdict.kill_at, rank.verdict.report_at]).flatten();
        self.ending
            .kill_at
            .into_iter()
            .chain(self.ending.absent_at)
            .chain(self.ending.last_output.deadline())
            .chain(ranks)
    }
}

/// Returns the code that a shell would show: 1 to 255, never 0 for a failure.
fn shell_code(code: i32) -> i32 {
    match code & 0xff {
        0 => 1,
        low => low,
    }
}
