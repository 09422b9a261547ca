//! Steps that must end their ranks, and whether they still run. A step may wait in the kernel for a file server that does not answer;
//! then it would neither end its ranks nor report. A step that leaves a question unanswered is killed, and the daemon ends its ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::timers::Timers;
use crate::{JobId, Now};

/// The pause between an answer and the next question.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a step may take to answer. On a busy machine it may not run for a second or two.
const ANSWER: Duration = Duration::from_secs(10);

/// The steps that are watched.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    watched: BTreeSet<JobId>,
    timers: Timers<JobId>,
    asked: BTreeSet<JobId>,
    /// The process ids of all steps that have attached.
    pids: BTreeMap<JobId, u32>,
}

/// What must be done about a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ask(JobId),
    /// `pid` is 0 if the step has never attached.
    GiveUp {
        job: JobId,
        pid: u32,
    },
}

impl Overdue {
    /// Records the process of a step.
    pub(super) fn attached(&mut self, job: JobId, pid: u32) {
        self.pids.insert(job, pid);
    }

    /// Watches a step from now on.
    pub(super) fn watch(&mut self, now: Now, job: JobId) {
        if self.watched.insert(job) {
            self.timers.set(job, now.mono + PAUSE);
        }
    }

    /// Records that a step has answered.
    pub(super) fn answered(&mut self, now: Now, job: JobId) {
        if self.asked.remove(&job) {
            self.timers.set(job, now.mono + PAUSE);
        }
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.watched.remove(&job);
        self.timers.cancel(&job);
        self.asked.remove(&job);
        self.pids.remove(&job);
    }

    pub(super) fn next(&mut self, now: Now) -> Option<Due> {
        let job = self.timers.pop_due(now.mono)?;
        if self.asked.remove(&job) {
            let pid = self.pids.get(&job).copied().unwrap_or(0);
            return Some(Due::GiveUp { job, pid });
        }
        self.asked.insert(job);
        self.timers.set(job, now.mono + ANSWER);
        Some(Due::Ask(job))
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.pids.keys().map(|job| format!("the process of the step of job {job}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now { mono: Duration::from_secs(seconds), unix_ms: 0 }
    }

    #[test]
    fn a_step_that_answers_is_asked_again_and_one_that_does_not_is_given_up() {
        let mut overdue = Overdue::default();
        overdue.attached(7, 70);
        overdue.watch(at(0), 7);
        overdue.watch(at(3), 7);
        assert_eq!(overdue.next(at(4)), None);
        assert_eq!(overdue.next(at(5)), Some(Due::Ask(7)));
        overdue.answered(at(6), 7);
        overdue.answered(at(6), 7);
        assert_eq!(overdue.next(at(11)), Some(Due::Ask(7)));
        assert_eq!((overdue.next(at(20)), overdue.next_deadline()), (None, Some(Duration::from_secs(21))));
        assert_eq!(overdue.next(at(21)), Some(Due::GiveUp { job: 7, pid: 70 }));
        assert_eq!((overdue.next(at(99)), overdue.next_deadline()), (None, None));
        overdue.forget(7);
        assert_eq!(overdue.leftovers().count(), 0);
    }
}
