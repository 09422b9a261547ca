//! Members of a group's epoch: ranks that already ran, and that this step has not started.
//!
//! A member connects over TCP and presents its `PMI_ID`; from then on it is a rank as any other. The step has no access to its
//! output, standard input and exit status. For the step, a member ends when it sends finalize or abort, when its connection
//! closes, when its process ends before it has connected, or when it does not connect in time.
//!
//! **rsd never signals a process it did not start**: where a rank would be killed, the step fails a member's requests and closes
//! its connection.

use std::time::Duration;

use rsd_proto::join::BY_OTHER;
use rsd_proto::pmi::v1::Reply as Line;
use rsd_proto::v1::{GroupEpoch, rank_exit::How};

use super::dialect::Reply;
use super::exits::Fault;
use super::kin::{Kin, Shown};
use super::pmi1;
use super::together::Way;
use super::{Effect, Local, Phase, Step};
use crate::Now;
use crate::sentences::{self, member as sentence};

/// How long after the start of the epoch a member may take to connect.
const ATTACH: Duration = Duration::from_secs(60);
/// The end of a connection and of its process may be seen in either order: within this time they count as one event.
const TOGETHER: Duration = Duration::from_millis(50);

/// When members with rsd's library are cut off after the epoch broke; the library then checks which peers are dead. Other
/// libraries would crash in finalize without their connection, and get the whole grace.
const LET_GO: Duration = Duration::from_millis(500);

/// A member that will connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStart {
    /// The index of the rank on this node.
    pub local: Local,
    /// The `PMI_ID` that it will present.
    pub pmi_id: u32,
    /// Its process; 0: unknown on this node.
    pub pid: u32,
    /// The start time of the process by the kernel, because another process may reuse its pid.
    pub started: u64,
    /// The uid of its process.
    pub uid: u32,
    /// Whether another process requested its place.
    pub by_other: bool,
}

/// The additional state of a rank that is a member.
#[derive(Debug)]
pub(super) struct Member {
    start: MemberStart,
    other_uid: Option<u32>,
    /// When it counts as missing if it has not connected.
    missed_at: Option<Duration>,
    connected: bool,
    pub(super) way: Way,
    /// What is known of its MPI library.
    pub(super) shown: Shown,
    /// Whether its process has ended.
    gone: bool,
    /// When it counts as ended after its connection closed between init and finalize.
    over_at: Option<Duration>,
}

impl Member {
    /// Returns whether its process belongs to this user.
    pub(super) fn belongs_to(&self, uid: u32) -> bool {
        self.start.uid == uid
    }

    /// Returns the uid of its process if it differs from the daemons' uid.
    pub(super) fn other_uid(&self) -> Option<u32> {
        self.other_uid
    }
}

impl Step {
    /// Turns this into the step of ranks that are running already; `own_uid` is the daemons'. Fails with a sentence if the epoch
    /// does not match the launch.
    pub fn of_members(mut self, epoch: &GroupEpoch, own_uid: u32) -> Result<Step, String> {
        if epoch.members.len() != self.map.size() as usize {
            return Err("invalid launch: it and its group disagree on the number of members".into());
        }
        self.group = Some(epoch.name.clone()).filter(|name| !name.is_empty());
        for (local, rank) in self.ranks.iter_mut().enumerate() {
            let told = epoch
                .members
                .get(rank.rank as usize)
                .ok_or("invalid launch: it has ranks that are not in its group")?;
            rank.pid = told.pid;
            let start = MemberStart {
                local,
                pmi_id: told.pmi_id,
                pid: told.pid,
                started: told.started,
                uid: told.uid,
                by_other: told.by_other,
            };
            let other_uid = (told.uid != own_uid).then_some(told.uid);
            rank.member = Some(Member {
                start,
                other_uid,
                missed_at: None,
                connected: false,
                way: Way::Ahead,
                shown: Shown::default(),
                gone: false,
                over_at: None,
            });
            rank.lines.iter_mut().for_each(|lines| drop(lines.close()));
        }
        Ok(self)
    }

    /// Returns whether the ranks are members of a group.
    pub(super) fn has_members(&self) -> bool {
        self.ranks.first().is_some_and(|rank| rank.member.is_some())
    }

    pub(super) fn await_members(&mut self, now: Now, out: &mut Vec<Effect>) {
        for member in self.ranks.iter_mut().filter_map(|rank| rank.member.as_mut()) {
            // A member of another framework need not connect if the step can watch its process.
            let needs_mpi =
                self.launch.spec.as_ref().is_none_or(|spec| spec.export.is_empty()) || member.start.pid == 0;
            member.missed_at = needs_mpi.then_some(now.mono + ATTACH);
            out.push(Effect::Await(member.start.clone()));
        }
    }

    /// Handles that a member has connected, perhaps again: the newest connection counts.
    pub(super) fn on_attached(&mut self, local: Local, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        let Some(member) = rank.member.as_mut().filter(|_| !rank.phase.is_over()) else {
            out.push(Effect::PmiClose(local));
            return;
        };
        (member.connected, member.missed_at, member.over_at) = (true, None, None);
        if let Way::Held(_) = member.way {
            // Its request was on the previous connection.
            member.way = Way::Ahead;
        }
        rank.phase = Phase::Running;
        rank.pmi.begin_anew();
        self.forget_calls(local);
        self.forget_on_node(local);
        self.forget_fetches(local);
    }

    /// Handles that a rank has connected to the PMIx server. A member may have other connections.
    pub(super) fn on_client_attached(&mut self, local: Local) {
        let rank = &mut self.ranks[local];
        if let Some(member) = &mut rank.member {
            (member.connected, member.missed_at, member.over_at) = (true, None, None);
            rank.phase = Phase::Running;
        }
    }

    /// Handles that a member's process has ended.
    pub(super) fn on_gone(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        let Some(member) = &mut rank.member else { return };
        member.gone = true;
        // The connection may have been passed to another process.
        if !member.connected {
            self.member_is_over(now, local, out);
        }
    }

    /// Handles that a member's connection has closed.
    pub(super) fn on_member_hung_up(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        let Some(member) = &mut rank.member else { return };
        member.connected = false;
        if rank.pmi.is_active() && !member.gone && rank.verdict.aborted.is_none() {
            member.over_at = Some(now.mono + TOGETHER);
        } else if rank.pmi.has_spoken() || member.gone {
            self.member_is_over(now, local, out);
        } else {
            // It had not used PMI yet, and may connect again.
            member.missed_at.get_or_insert(now.mono + ATTACH);
        }
    }

    pub(super) fn member_is_over(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        let rank = &mut self.ranks[local];
        if rank.phase.is_over() {
            return;
        }
        rank.phase = Phase::Left;
        rank.verdict.kill_at = None;
        if let Some(member) = &mut rank.member {
            (member.missed_at, member.over_at) = (None, None);
            if let Way::Held(_) = member.way {
                member.way = Way::Past;
            }
        }
        // Before the report, which ends the epoch.
        self.tell_lost(local, out);
        self.report_exit_if_known(now, local, out);
    }

    /// Cuts a member off in a case in which a rank would be killed.
    pub(super) fn cut_off(&mut self, now: Now, local: Local, out: &mut Vec<Effect>) {
        if self.ending.is_killing() && self.uses_ours(local) && !self.ranks[local].pmi.is_in_frames() {
            // The member can show this reason to its user.
            pmi1::send(local, &Line::Failed(self.ending.why()), out);
        }
        out.push(Effect::PmiClose(local));
        self.close_pmix(local, out);
        self.member_is_over(now, local, out);
    }

    /// Fails all pending requests of a broken epoch, so that the members can end by themselves.
    pub(super) fn fail_waiting(&mut self, out: &mut Vec<Effect>) {
        for asker in std::mem::take(&mut self.fence.waiting) {
            self.answer(&asker, Reply::Failed(self.ending.why()), out);
        }
        self.fail_on_node(out);
        self.fail_fetches(out);
        self.settle_mapping(out);
        self.fail_calls(out);
    }

    /// Returns when a member of a broken epoch is cut off, if that is before the grace has passed.
    pub(super) fn let_go_at(&self, now: Now, local: Local) -> Option<Duration> {
        self.uses_ours(local).then_some(now.mono + LET_GO)
    }

    /// Returns whether a member's MPI library is rsd's. That library works without a process manager, and checks its peers when
    /// its connection closes.
    fn uses_ours(&self, local: Local) -> bool {
        self.ranks[local].member.as_ref().is_some_and(|member| member.shown.kin == Some(Kin::Ours))
    }

    pub(super) fn settle_members(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !self.has_members() {
            return;
        }
        let due = |at: Option<Duration>| at.is_some_and(|at| at <= now.mono);
        for local in 0..self.ranks.len() {
            let rank = &mut self.ranks[local];
            let Some(member) = &rank.member else { continue };
            if due(member.over_at) {
                self.member_is_over(now, local, out);
            } else if due(member.missed_at) && !rank.phase.is_over() {
                let why = sentence::never_attached(member.start.pid, ATTACH);
                rank.verdict.fault.get_or_insert(Fault::NotStarted(why));
                self.member_is_over(now, local, out);
            }
        }
    }

    pub(super) fn member_deadlines(&self) -> impl Iterator<Item = Duration> {
        let members = self.ranks.iter().filter(|rank| !rank.phase.is_over()).filter_map(|rank| rank.member.as_ref());
        members.flat_map(|member| [member.missed_at, member.over_at]).flatten()
    }

    /// Returns how a member ended, with rsctl's exit code for it. None: it ended without a failure.
    pub(super) fn judge_member(&self, local: Local, member: &Member) -> Option<(How, i32)> {
        let rank = &self.ranks[local];
        let pid = member.start.pid;
        match (&rank.verdict.fault, rank.verdict.aborted) {
            (_, Some(code)) => Some((How::Aborted(code), code)),
            (Some(Fault::NotStarted(why)), None) => Some((How::Failed(why.clone()), 247)),
            (Some(Fault::Protocol(why) | Fault::Alone(why)), None) => Some((How::Failed(sentence::did(pid, why)), 1)),
            (None, None) if rank.pmi.is_finalized() => None,
            (None, None) if rank.verdict.was_told => Some((How::Failed(sentence::cut_off(pid)), 1)),
            (None, None) if !rank.pmi.has_spoken() && !self.launch_spec().export.is_empty() => None,
            (None, None) if !rank.pmi.has_spoken() => {
                let hint = if member.start.by_other { BY_OTHER } else { "" };
                Some((How::Failed(sentence::ended_before_init(pid, hint)), 1))
            }
            (None, None) if member.gone => Some((How::Failed(sentence::ended_without_finalize(pid)), 1)),
            (None, None) => Some((How::Failed(sentence::did(pid, sentences::HUNG_UP)), 1)),
        }
    }
}
