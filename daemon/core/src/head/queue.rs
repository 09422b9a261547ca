//! The queue: jobs that wait for placement, in order of submission.

use std::collections::BTreeSet;

use crate::place::Refusal;
use crate::{JobId, sentences};

/// The queue. Job numbers grow, so their order is the order of submission.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeSet<JobId>,
    /// The queued jobs that need no free slot, because they may oversubscribe.
    may_pass: BTreeSet<JobId>,
    /// Whether a change may let a job start.
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

    /// Returns the next job after this one. If a job waits for slots (`blocked`), only later jobs that need no free slot can start.
    pub(super) fn next(&self, behind: JobId, blocked: bool) -> Option<JobId> {
        let jobs = if blocked { &self.may_pass } else { &self.waiting };
        jobs.range(behind + 1..).next().copied()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.iter().map(|job| format!("job {job} in the queue"))
    }
}

/// The most bytes of a reason: it may quote long host lists.
const REASON_BYTES_MAX: usize = 4 << 10;

/// Returns why a job waits, in one line.
pub(super) fn waiting(refusal: &Refusal) -> String {
    let mut line = refusal.to_string().lines().next().unwrap_or_default().to_owned();
    sentences::cut(&mut line, REASON_BYTES_MAX);
    line
}
