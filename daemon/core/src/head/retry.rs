//! Attempts: a job that has failed may be started again, as often as its user allows. It keeps its number, its place among the jobs of its
//! priority, its log and its token; each attempt has a new namespace and its own ranks.
//!
//! To daemons and steps, each attempt is a job of its own: its id is the job's number with the number of the attempt in the bits above. So a
//! message about an earlier attempt, which a node may send that was away for a while, can never be mistaken for one about the present
//! attempt. Users see only the number.
//!
//! As with the end of a job, the order is: the log has the failure, then the journal has the next attempt, and then the steps of the failed
//! one may forget it. A head that starts finds the failure in the log, or gets it again from the steps.

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Attempt, JobSpec, JobState, RankExit, StdinTarget, down, job_event, stdin_target};

use super::job::Job;
use super::life::{Pending, Why};
use super::{Due, Head};
use crate::attempts::{Again, RETRIES_MAX, attempt, id_of, number};
use crate::between::{Order, Outputs};
use crate::calls::{Refused, exit};
use crate::{JobId, Now, plan, sentences};

impl Head {
    /// Returns whether a job that has ended starts again, and begins with that: its log gets the failure.
    pub(super) fn begins_again(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) -> bool {
        let is_stopping = self.is_stopping();
        let array_ends = self
            .jobs
            .get(id)
            .and_then(|job| self.jobs.get(job.element?.array))
            .is_some_and(|array| array.is_over() || array.array.as_ref().is_some_and(|own| own.ending));
        let Some(job) = self.jobs.get_mut(id) else { return false };
        let (Some(spec), Some(cause)) = (job.last_spec(), job.cause().cloned()) else { return false };
        let may = !is_stopping && !array_ends && !job.joined && job.spawned.is_none();
        if !may || job.life().state() != JobState::Failed || attempt(id) >= spec.retries || !is_retried(&spec, &cause) {
            return false;
        }
        let (next, attempts) = (attempt(id) + 1, spec.retries + 1);
        let reason = format!(
            "attempt {next} of {attempts} has failed: {}",
            sentences::exit_on(job.node_name(cause.node), &cause)
        );
        let ended = Attempt {
            attempt: next - 1,
            started_ms: job.started_at(),
            ended_ms: now.unix_ms,
            node_name: job.node_name(cause.node).to_owned(),
            cause: Some(RankExit { stderr_tail: Bytes::new(), ..cause.clone() }),
        };
        job.again = Some(Box::new(Again { ended: ended.clone(), cancelled: None }));
        let requeued = job_event::Requeued { next, attempts, cause: Some(cause), reason, ended: Some(ended) };
        out.log(now, id, job_event::Body::Requeued(requeued));
        self.timers.cancel(&Due::Job(id));
        let mut answers = Vec::new();
        self.values.job_is_over(id, &mut answers);
        answers.into_iter().for_each(|(req, answer)| out.answer(req, answer));
        self.settle_stdin(id, out);
        true
    }

    /// Notes that a job is cancelled that is about to start again. Returns whether it is.
    pub(super) fn cancel_again(&mut self, id: JobId, reason: &str) -> bool {
        let again = self.jobs.get_mut(id).and_then(|job| job.again.as_mut());
        again.map(|again| again.cancelled.get_or_insert_with(|| reason.to_owned())).is_some()
    }

    /// Takes in, after a restart, that the log of a job has a failure after which it starts again.
    pub(super) fn restore_again(&mut self, mut job: Job, ended: Attempt) {
        let id = job.id;
        job.end_attempt(Again { ended, cancelled: None });
        self.jobs.insert(job);
        self.again.push(id);
    }

    /// Starts jobs again whose logs have their failures: as new attempts in the queue.
    pub(super) fn settle_again(&mut self, now: Now, out: &mut Outputs<Order>) {
        for id in std::mem::take(&mut self.again) {
            self.start_again(now, id, out);
        }
    }

    fn start_again(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(mut old) = self.jobs.take(id) else { return };
        let (number, next) = (number(id), attempt(id) + 1);
        let (Some((spec, secret)), Some(again)) = (old.take_launched(), old.again.take()) else { return };
        let spec = attempt_spec(spec, next);
        let Ok(wanted) = plan::request(&spec) else { return };
        let new = id_of(number, next);
        let reason = format!("attempt {next} has failed: it starts again as soon as there is room");
        let pending = Pending { spec, wanted, secret, preput: Vec::new(), reason };
        // As that of the attempt before, with the id of this one.
        let base = old.namespace.strip_suffix(&id.to_string()).unwrap_or(&old.namespace);
        let namespace = format!("{base}{new}");
        let began = Now { unix_ms: old.lifetime().0, ..now };
        let mut job = Job::new(began, new, old.owner().cloned(), pending, namespace, old.grace_ms);
        job.attempts = old.attempts.into_iter().chain([again.ended]).collect();
        job.lost_bytes = old.lost_bytes;
        if let Some(at) = self.timers.at(&Due::Owner(id)) {
            self.timers.cancel(&Due::Owner(id));
            self.timers.set(Due::Owner(new), at);
        }
        self.jobs.insert(job);
        self.keep_job(new);
        // Only now its steps may forget the attempt.
        out.order(down::Body::Release(wire::Release { job: id }));
        self.begin_waiting(now, new);
        if let Some(reason) = again.cancelled {
            let grace_ms = self.jobs.get(new).map_or(0, |job| job.grace_ms);
            self.kill(now, new, Why::Cancelled, reason, grace_ms, out);
        }
    }
}

/// Returns the specification of an attempt.
fn attempt_spec(mut spec: JobSpec, next: u32) -> JobSpec {
    (spec.attempt, spec.queue_deadline_ms, spec.hold) = (next, 0, false);
    spec.after.clear();
    // What the client sent has been read.
    spec.stdin = Some(StdinTarget { target: Some(stdin_target::Target::None(true)) });
    if !spec.output_dir.is_empty() {
        spec.output_overwrite = true;
    }
    super::elements::set_variable(&mut spec, "RSD_ATTEMPT", (next + 1).to_string());
    spec
}

/// Returns whether a failure is one after which the job starts again.
fn is_retried(spec: &JobSpec, cause: &RankExit) -> bool {
    let Some(on) = &spec.retry_on else { return true };
    let is_loss = sentences::is_loss(cause);
    (on.node_loss && is_loss) || (on.failure && !is_loss) || on.codes.contains(&cause.code)
}

/// Refuses more attempts than there may be.
pub(super) fn check(spec: &JobSpec) -> Result<(), Refused> {
    match spec.retries <= RETRIES_MAX {
        true => Ok(()),
        false => {
            let text = format!("--retry {}: a job is started again at most {RETRIES_MAX} times", spec.retries);
            Err(Refused::new(exit::USAGE, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_after_which_failures_it_starts_again() {
        let on = |node_loss, failure, codes: &[u32]| JobSpec {
            retry_on: Some(wire::RetryOn { node_loss, failure, codes: codes.to_vec() }),
            ..JobSpec::default()
        };
        let exited = |code| RankExit { code, how: Some(wire::rank_exit::How::Exited(1)), ..RankExit::default() };
        assert!(is_retried(&JobSpec::default(), &exited(1)));
        assert!(is_retried(&on(false, true, &[]), &exited(1)) && !is_retried(&on(true, false, &[]), &exited(1)));
        assert!(is_retried(&on(true, false, &[75]), &exited(75)));
    }
}
