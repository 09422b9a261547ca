//! Which queued jobs start. Jobs start in the order of the queue; while its first job waits for room, a later one may only start if it does
//! not delay the first (*backfill*).
//!
//! The head knows when running jobs end at the latest: at their time limits. So it knows from when on the first job fits at the latest
//! ([`Forecast`]). A later job may start now if it fits and, by its own time limit, has ended by then; or if the first job fits at that time
//! all the same. When running jobs without a time limit are in the first job's way, nothing is known; then a later job may only start on
//! nodes that the first one cannot use. A job without a time limit counts as one that never ends.
//!
//! What is promised: the first job starts no later than its forecast, and the forecast never gets later while it is first, unless nodes are
//! lost or drained. A running job that ends before its limit may leave room that a job needs which has started in the meantime.
//!
//! A job that may oversubscribe needs no free slot. When it passes another job, it holds none.
//!
//! Cost: one placement for the first job; for the forecast, one for each doubling of the number of running jobs, only when there is a job
//! that may pass; and one or two for each such job, of which at most [`PASSING_MAX`] are looked at.

use std::collections::HashSet;
use std::time::Duration;

use super::job::Job;
use super::ledger::Ledger;
use super::life::Life;
use super::queue::waiting;
use super::{Head, offers, stdin};
use crate::between::{Order, Outputs};
use crate::place::{self, Placement};
use crate::{JobId, NodeId, Now, sentences};

/// How many jobs behind the first one are looked at.
const PASSING_MAX: usize = 100;
/// How much longer than its limit and its grace a job may take, for messages on their way.
const LATENCY: Duration = Duration::from_secs(1);

/// The first job of the queue, which waits for room.
#[derive(Debug)]
struct First {
    job: JobId,
    forecast: Option<Forecast>,
}

/// When a job fits at the latest, if all running jobs use up their time limits.
#[derive(Debug)]
pub(super) struct Forecast {
    /// None: jobs without a time limit are in its way, or nodes that take no jobs.
    pub(super) at: Option<Duration>,
    /// The job whose limit that is.
    pub(super) last: Option<JobId>,
    /// What jobs hold at that time.
    ledger: Ledger,
}

impl Head {
    /// Starts the jobs that may start now.
    pub(super) fn run_queue(&mut self, now: Now, out: &mut Outputs<Order>) {
        let (mut behind, mut first, mut looked_at) = (None, None, 0);
        while let Some(next) = self.queue.next(behind) {
            behind = Some(next);
            if first.is_some() {
                if !self.may_fit(next.job) {
                    continue;
                }
                looked_at += 1;
                if looked_at > PASSING_MAX {
                    break;
                }
            }
            while self.try_to_start(now, next.job, &mut first, out) {}
        }
    }

    /// Returns whether there may be room for a job: it is not worth a placement if there are fewer free slots than ranks.
    fn may_fit(&self, id: JobId) -> bool {
        let Some(Life::Queued(pending)) = self.jobs.get(id).map(Job::life) else { return true };
        let ranks: u64 = pending.wanted.apps.iter().map(|app| u64::from(app.n.unwrap_or(1))).sum();
        let free = u64::from(self.nodes.slots().saturating_sub(self.ledger.total()));
        ranks <= free || pending.wanted.oversubscribe
    }

    /// Starts a job, or an element of an array. Returns whether another element may start, too.
    fn try_to_start(&mut self, now: Now, id: JobId, first: &mut Option<First>, out: &mut Outputs<Order>) -> bool {
        let Some(job) = self.jobs.get_mut(id) else { return false };
        let is_array = job.array.is_some();
        if let Some((has_next, is_full, has_waiting, limit)) =
            job.array.as_ref().map(|own| (own.next().is_some(), own.is_full(), own.has_waiting(), own.indexes.limit))
            && !has_next
        {
            if !has_waiting {
                self.queue.remove(id);
            } else if let Some(pending) = job.pending_mut() {
                pending.reason = match is_full {
                    true => format!("{limit} of its elements run, and no more may run at the same time (%{limit})"),
                    false => "its other elements are held: rsctl release starts them".to_owned(),
                };
            }
            return false;
        }
        let Some(pending) = job.pending_mut() else {
            self.queue.remove(id);
            return false;
        };
        match offers::place(&self.nodes, &self.ledger, &pending.wanted) {
            Ok(mut placement) => {
                if let Some(missing) = stdin::reader_missing(&pending.spec, &placement.map) {
                    self.fail_unplaced(now, id, missing, out);
                    return false;
                }
                if let Some(first) = first
                    && !self.may_pass(now, first, id, &mut placement)
                {
                    return false;
                }
                match is_array {
                    true => self.start_element(now, id, placement, out),
                    false => {
                        self.queue.remove(id);
                        self.start_job(now, id, placement, out);
                    }
                }
                is_array
            }
            Err(refusal) if refusal.fits_when_idle() => {
                pending.reason = waiting(&refusal);
                first.get_or_insert(First { job: id, forecast: None });
                false
            }
            Err(_) if !self.returning.is_empty() => {
                first.get_or_insert(First { job: id, forecast: None });
                false
            }
            Err(refusal) => {
                self.fail_unplaced(now, id, refusal.to_string(), out);
                false
            }
        }
    }

    /// Returns whether a job may start at this place although the first of the queue waits.
    fn may_pass(&mut self, now: Now, first: &mut First, id: JobId, placement: &mut Placement) -> bool {
        let (Some(Life::Queued(waits)), Some(job)) = (self.jobs.get(first.job).map(Job::life), self.jobs.get(id))
        else {
            return false;
        };
        let Life::Queued(pending) = job.life() else { return false };
        let takes_gpus = placement.bindings.iter().any(|ranks| ranks.iter().any(|rank| !rank.gpus.is_empty()));
        if pending.spec.oversubscribe && !placement.exclusive && !takes_gpus && pending.wanted.needs.is_empty() {
            placement.used.clear();
            return true;
        }
        let mut forecast = match first.forecast.take() {
            Some(forecast) => forecast,
            None => self.forecast(now, &waits.wanted),
        };
        let limit = (pending.spec.timeout_ms > 0).then(|| Duration::from_millis(pending.spec.timeout_ms));
        let ends = limit.map(|limit| now.mono + limit + Duration::from_millis(job.grace_ms) + LATENCY);
        let why_not = match (forecast.at, ends) {
            (Some(at), Some(ends)) if ends <= at => None,
            (Some(_), _) => {
                let mut then = forecast.ledger.clone();
                then.hold(id, placement, &pending.wanted.needs);
                let delays = offers::place(&self.nodes, &then, &waits.wanted).is_err();
                if !delays {
                    // The next one to pass must not count on this room.
                    forecast.ledger = then;
                }
                delays.then_some(match limit {
                    Some(_) => "it would delay job",
                    None => "without a time limit (--timeout), it could delay job",
                })
            }
            (None, _) => {
                let usable: Option<HashSet<NodeId>> = offers::candidates(&self.nodes, &self.ledger, &waits.wanted);
                let overlaps =
                    usable.is_none_or(|usable| placement.map.nodes().iter().any(|node| usable.contains(node)));
                let shares = self.ledger.reserved.share(&waits.wanted, &pending.wanted);
                (overlaps || shares).then_some("it could delay job")
            }
        };
        first.forecast = Some(forecast);
        if let (Some(why), Some(pending)) = (why_not, self.jobs.get_mut(id).and_then(Job::pending_mut)) {
            pending.reason =
                format!("it fits now, but {why} {}, which is before it", crate::attempts::number(first.job));
        }
        why_not.is_none()
    }

    /// Returns when a request fits at the latest.
    pub(super) fn forecast(&self, now: Now, wanted: &place::Request) -> Forecast {
        let end_of = |id: JobId| match self.jobs.get(id)?.life() {
            Life::Running { until, .. } => *until,
            Life::Ending { .. } => Some(now.mono),
            Life::Queued(_) | Life::Outlived { .. } | Life::Ended(_) => None,
        };
        let mut ends: Vec<(Duration, JobId)> =
            self.ledger.jobs().filter_map(|id| Some((end_of(id)?.max(now.mono), id))).collect();
        ends.sort_unstable();
        let after = |count: usize| {
            let mut ledger = self.ledger.clone();
            ends[..count].iter().for_each(|(_, id)| ledger.free(*id));
            ledger
        };
        let fits = |count: usize| offers::place(&self.nodes, &after(count), wanted).is_ok();
        if !fits(ends.len()) {
            return Forecast { at: None, last: None, ledger: after(ends.len()) };
        }
        // The fewest ends that are enough.
        let (mut few, mut enough) = (0, ends.len());
        while few < enough {
            let middle = few + (enough - few) / 2;
            if fits(middle) { enough = middle } else { few = middle + 1 }
        }
        let last = enough.checked_sub(1).map(|at| ends[at]);
        let at = last.map_or(now.mono, |(at, _)| at);
        // All that end at the same time have ended.
        let all = ends.partition_point(|(end, _)| *end <= at);
        Forecast { at: Some(at), last: last.map(|(_, id)| id), ledger: after(all) }
    }

    /// Returns why a job waits that may fit when the nodes have reconnected that an earlier head knew.
    pub(super) fn awaits_nodes(&self) -> String {
        sentences::nodes_return(self.returning.len())
    }
}
