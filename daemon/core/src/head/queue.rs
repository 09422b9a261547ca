//! The jobs that wait for their place, in order of submission.

use std::collections::BTreeSet;

use crate::JobId;
use crate::place::Refusal;

/// The queue. Numbers of jobs grow, so their order is that of submission.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeSet<JobId>,
    /// Of these, the jobs that need no free slot, because they may oversubscribe.
    may_pass: BTreeSet<JobId>,
    /// Something has changed that may let a job start.
    pub(super) try_again: bool,
}

impl Queue {
    pub(super) fn push(&mut self, job: JobId, may_pass: bool) {
        self.waiting.insert(job);
        if may_pass {
            self.may_pass.insert(job);
        }
    }

    pub(super) fn remove(&mut self, job: JobId) {
        self.waiting.remove(&job);
        self.may_pass.remove(&job);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next job behind this one. Behind a job that waits for slots (`blocked`) only jobs that need none free may start.
    pub(super) fn next(&self, behind: JobId, blocked: bool) -> Option<JobId> {
        let jobs = if blocked { &self.may_pass } else { &self.waiting };
        jobs.range(behind + 1..).next().copied()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.iter().map(|job| format!("job {job} in the queue"))
    }
}

/// Why a job waits, in one line.
pub(super) fn waiting(refusal: &Refusal) -> String {
    refusal.to_string().lines().next().unwrap_or_default().to_owned()
}
