//! How jobs end: from a failure, a kill or the exit of the last rank to the verdict. A job with a family passes through here twice,
//! see [`super::family`].

use std::time::Duration;

use rsd_proto::v1::{self as wire, JobState, RankExit, Usage, down, group_change, job_event, kept, rank_exit};

use super::job::Job;
use super::life::{Event, Life, Why};
use super::rank_set::RankSet;
use super::{Due, Head, ends, feed};
use crate::between::{Loss, Order, Outputs};
use crate::{JobId, NodeId, Now, exits, sentences};

/// How long a job's nodes have after its last KILL to report that its ranks have ended.
const LAST_WORDS: Duration = Duration::from_secs(20);

impl Head {
    /// Changes a job's state and its deadline. Returns false if the event changes nothing.
    pub(super) fn advance(&mut self, id: JobId, event: Event) -> bool {
        let Some(job) = self.jobs.get_mut(id) else { return false };
        let moved = job.apply(event);
        if moved {
            self.timers.put(Due::Job(id), job.life().deadline());
        }
        moved
    }

    // --- failures ---

    /// Handles the failure of a rank, or of a run of ranks.
    pub(super) fn on_rank_failed(&mut self, now: Now, id: JobId, exit: RankExit, out: &mut Outputs<Order>) {
        let (nodes, Some(job)) = (&self.nodes, self.jobs.get_mut(id)) else { return };
        if !job.has_ranks() || *exits::ranks(&exit).end() >= job.map.size() {
            return;
        }
        // The job has continued without the ranks of a lost node; that they end when it returns is no news.
        let is_late = exit.fatal && job.lost_ranks() > 0;
        if is_late && exit.more > 0 {
            let single =
                |rank| RankExit { rank, more: 0, node: job.map.node_of(rank).unwrap_or(exit.node), ..exit.clone() };
            let singles: Vec<RankExit> = exits::ranks(&exit).map(single).collect();
            return singles.into_iter().for_each(|exit| self.on_rank_failed(now, id, exit, out));
        }
        if is_late && job.has_lost(exit.node) {
            return;
        }
        let news = job.take_exit(now, &exit, |node| nodes.is_away(node));
        if news.is_empty() {
            return;
        }
        let reason = sentences::exit_on(job.node_name(exit.node), &exit);
        let grace_ms = job.grace_ms;
        for new in news {
            let ended = exits::ranks(&new);
            if new.lost {
                self.on_ranks_lost(now, id, &new, out);
            }
            out.log(now, id, job_event::Body::RankExit(new));
            self.ranks_are_over(id, &RankSet::run(*ended.start(), *ended.end()), out);
        }
        if exit.fatal {
            self.answer_spawn(now, id, Err(sentences::exit(&exit)), out);
            self.kill(now, id, Why::Failed, reason, grace_ms, out);
            self.fail_family(now, id, &RankExit { more: 0, ..exit }, out);
        }
    }

    /// Tells the other nodes of ranks that have died in a job that continues.
    fn on_ranks_lost(&mut self, now: Now, id: JobId, exit: &RankExit, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id).filter(|job| matches!(job.life(), Life::Running { .. })) else { return };
        let text = sentences::continues_after(job.node_name(exit.node), exit);
        if !job.has_told(&text) {
            out.log(now, id, job_event::Body::Notice(text));
        }
        out.order(down::Body::NodesLost(ends::ranks_lost(id, exit)));
    }

    /// Handles that all ranks of one node have ended while ranks of other nodes wait for them in a fence.
    pub(super) fn on_stuck(&mut self, now: Now, id: JobId, rank: u32, fence: u64, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id).filter(|job| matches!(job.life(), Life::Running { .. })) else { return };
        // A rank that has exited with an error is the cause.
        let exited_well = || RankExit {
            rank,
            node: job.map.node_of(rank).unwrap_or(0),
            how: Some(rank_exit::How::Exited(0)),
            code: 1,
            ..Default::default()
        };
        let cause = job.cause().cloned().unwrap_or_else(exited_well);
        let exit = RankExit { note: sentences::missed_fence(fence), fatal: true, ..cause };
        self.on_rank_failed(now, id, exit, out);
    }

    /// Handles that these nodes will not report the exits of their ranks.
    pub(super) fn on_given_up(&mut self, now: Now, id: JobId, nodes: &[NodeId], why: &str, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let continues = matches!(job.life(), Life::Running { .. }) && job.lose_nodes(nodes, why);
        for node in nodes {
            let Some(job) = self.jobs.get(id) else { return };
            for exit in sentences::lost_ranks(job.map.ranges_on(*node), *node, why) {
                self.on_rank_failed(now, id, RankExit { fatal: !continues, ..exit }, out);
            }
        }
        if continues && let Some(job) = self.jobs.get(id) {
            for node in nodes {
                let text = sentences::continues_without(job.map.ranks_on(*node), why);
                if !job.has_told(&text) {
                    out.log(now, id, job_event::Body::Notice(text));
                }
            }
            self.keep_job(id);
            let (nodes, why) = (nodes.to_vec(), why.to_owned());
            out.order(down::Body::NodesLost(wire::NodesLost { job: id, nodes: nodes.clone(), why, ranks: Vec::new() }));
            nodes.iter().for_each(|node| self.step_is_lost(id, *node, out));
        }
    }

    // --- kills ---

    /// Handles that a job's deadline has passed.
    pub(super) fn on_job_due(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id) else { return };
        match job.life() {
            Life::Running { .. } | Life::Outlived { .. } => {
                self.kill(now, id, Why::TimedOut, "its time limit has passed".into(), job.grace_ms, out);
            }
            Life::Ending { .. } => {
                let (nodes, why) = (job.map.nodes().to_vec(), sentences::kill_unconfirmed());
                out.send_message(Order::GiveUp { job: id, nodes, why, loss: Loss::Ends });
            }
            Life::Queued(_) => self.on_waited_enough(now, id, out),
            Life::Ended(_) => {}
        }
    }

    /// Ends a job because a client cancels it or the DVM is being stopped.
    pub(super) fn cancel(&mut self, now: Now, id: JobId, grace_ms: Option<u64>, why: &str, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id) else { return };
        let grace_ms = grace_ms.unwrap_or(job.grace_ms);
        self.kill(now, id, Why::Cancelled, why.to_owned(), grace_ms, out);
    }

    /// Sends TERM, and KILL after the grace. A later call can only shorten the grace. A queued job ends at once.
    pub(super) fn kill(
        &mut self,
        now: Now,
        id: JobId,
        why: Why,
        reason: String,
        grace_ms: u64,
        out: &mut Outputs<Order>,
    ) {
        if self.jobs.get(id).is_some_and(|job| !job.is_over() && job.array.is_some()) {
            return self.kill_array(now, id, why, (reason, Some(grace_ms)), out);
        }
        if self.cancel_again(id, &reason) {
            return;
        }
        let kill = wire::Kill { job: id, grace_ms, reason: reason.clone(), nodes: Vec::new() };
        let until = now.mono + Duration::from_millis(grace_ms) + LAST_WORDS;
        if !self.advance(id, Event::Killed { why, until, kill: kill.clone() }) {
            return;
        }
        let Some(job) = self.jobs.get(id) else { return };
        if job.is_over() {
            return self.conclude(now, id, out);
        }
        match job.kept_kill() {
            Some(kept) => self.keep(kept::What::Kill(kept)),
            None => self.keep_job(id), // its ranks have ended, and jobs that they spawned are ended now
        }
        if self.jobs.get_mut(id).is_some_and(Job::logs_killing) {
            out.log(now, id, job_event::Body::Killing(job_event::Killing { reason, grace_ms }));
        }
        out.order(down::Body::Kill(kill));
        self.kill_spawned(now, id, grace_ms, out);
    }

    // --- ends ---

    /// Handles that all nodes have reported the exits of their ranks.
    pub(super) fn on_over(
        &mut self,
        now: Now,
        id: JobId,
        reported: &[RankExit],
        usage: &[(NodeId, Usage)],
        out: &mut Outputs<Order>,
    ) {
        if let Some(job) = self.jobs.get_mut(id).filter(|job| job.has_ranks()) {
            job.take_usage(usage);
            for exit in reported {
                job.take_exit(now, exit, |_| false);
            }
            job.settle_losses();
            let began = job.cause().map_or(Ok(()), |cause| Err(sentences::exit(cause)));
            self.answer_spawn(now, id, began, out);
            self.ranks_ended(now, id, out);
        }
        // Until a job's end is recorded, its steps keep what they know of it.
        if self.jobs.get(id).is_none_or(|job| job.again.is_none() && (!job.is_over() || job.end_is_kept)) {
            out.order(down::Body::Release(wire::Release { job: id }));
        }
    }

    /// Handles that all ranks of a job have ended: frees its slots, and ends the job unless jobs of its family are still running.
    fn ranks_ended(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        self.names.of(self.realm_of_job(id)).forget(id);
        self.ledger.free(id);
        self.jobs.ranks_ended(id);
        self.queue.try_again = true;
        let family_lives = self.jobs.has_family(id);
        let failed = self.jobs.get(id).is_some_and(|job| job.cause().is_some());
        self.advance(id, Event::RanksEnded { family_lives, failed });
        self.requests_are_over(id, out);
        self.end_epoch(id);
        match family_lives {
            true => {
                self.keep_job(id);
                self.settle_stdin(id, out);
            }
            false => self.conclude(now, id, out),
        }
    }

    /// Ends a job: logs the verdict and drops everything that is kept for the job.
    pub(super) fn conclude(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        if self.begins_again(now, id, out) {
            return;
        }
        let Some(job) = self.jobs.get_mut(id) else { return };
        let ended = job.finish(now);
        self.timers.cancel(&Due::Owner(id));
        let was_launched = job.map.size() > 0;
        out.log(now, id, ended);
        if !was_launched {
            self.end_is_written(id, out); // no step has anything that its log may lack
        }
        self.queue.remove(id);
        self.end_after(id);
        let mut answers = Vec::new();
        self.values.job_is_over(id, &mut answers);
        answers.into_iter().for_each(|(req, answer)| out.answer(req, answer));
        self.settle_stdin(id, out);
        self.jobs.retire(id);
        self.forget_old(now, self.owner_uid(id), out);
        self.end_in_family(now, id, out);
    }

    /// Ends a family's root after the last other job of the family has ended.
    pub(super) fn end_outlived(&mut self, now: Now, root: JobId, out: &mut Outputs<Order>) {
        let failed = self.jobs.get(root).is_some_and(|job| job.cause().is_some());
        if self.advance(root, Event::FamilyEnded { failed }) {
            self.conclude(now, root, out);
        }
    }

    /// Fails a queued job that can never be placed, because a node that it needs has left.
    pub(super) fn fail_unplaced(&mut self, now: Now, id: JobId, why: String, out: &mut Outputs<Order>) {
        if self.jobs.get(id).is_some_and(|job| job.array.is_some()) {
            return self.fail_waiting(now, id, why, out);
        }
        if let Some(job) = self.jobs.get_mut(id) {
            job.fail_unplaced(why);
            self.timers.cancel(&Due::Job(id));
            self.conclude(now, id, out);
        }
    }

    /// Records the end of an epoch in its group, if the job is an epoch.
    fn end_epoch(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id) else { return };
        let cause = job.cause().map(sentences::exit);
        let state = match job.life() {
            Life::Ended(state) => *state,
            Life::Queued(_) | Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } => match cause {
                Some(_) => JobState::Failed,
                None => JobState::Done,
            },
        };
        let realm = self.realm(job.owner_uid());
        let end = feed::epoch_end(state, cause.as_deref());
        if let Some((group, epoch)) = self.lobbies.of(realm).over(id, state, cause) {
            let change = Some(group_change::Change::EpochEnded(end));
            self.feed.group(realm, wire::GroupChange { group, epoch, job: id, change });
        }
    }
}
