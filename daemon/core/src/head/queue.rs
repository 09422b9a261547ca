//! The queue: jobs that wait for placement, by priority, and of one priority in order of submission.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::place::Refusal;
use crate::{JobId, sentences};

/// A job's place in the queue. Job numbers grow, so their order is the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    priority: Reverse<i32>,
    number: JobId,
    pub(super) job: JobId,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeSet<Place>,
    places: HashMap<JobId, Place>,
    /// Whether a change may let a job start.
    pub(super) try_again: bool,
}

impl Queue {
    pub(super) fn push(&mut self, job: JobId, priority: i32) {
        self.remove(job);
        let place = Place { priority: Reverse(priority), number: crate::attempts::number(job), job };
        self.waiting.insert(place);
        self.places.insert(job, place);
    }

    pub(super) fn remove(&mut self, job: JobId) {
        if let Some(place) = self.places.remove(&job) {
            self.waiting.remove(&place);
        }
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.places.contains_key(&job)
    }

    /// Returns whether no job waits that a new one of this priority may not overtake.
    pub(super) fn is_free_for(&self, priority: i32) -> bool {
        self.waiting.first().is_none_or(|first| first.priority.0 < priority)
    }

    /// Returns the next job after this one.
    pub(super) fn next(&self, behind: Option<Place>) -> Option<Place> {
        match behind {
            None => self.waiting.first().copied(),
            Some(place) => {
                self.waiting.range((std::ops::Bound::Excluded(place), std::ops::Bound::Unbounded)).next().copied()
            }
        }
    }

    /// Returns the jobs before this one, the first of the queue first.
    pub(super) fn before(&self, job: JobId) -> impl Iterator<Item = JobId> + '_ {
        self.places.get(&job).into_iter().flat_map(|place| self.waiting.range(..place)).map(|place| place.job)
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.iter().map(|place| format!("job {} in the queue", place.job))
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
