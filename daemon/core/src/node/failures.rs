//! Failures of ranks, on their way up. The first one of a job passes at once. Those that follow within [`PAUSE`] are collected, and sent as runs
//! of ranks that have failed in the same way: the head gets few messages when a million ranks fail together.

use std::collections::HashMap;
use std::time::Duration;

use rsd_proto::v1::{RankExit, RankFailed, up};

use super::Node;
use crate::between::{Outputs, Report};
use crate::timers::Timers;
use crate::{JobId, Now, exits};

/// How long a daemon collects failures after it has passed on one.
const PAUSE: Duration = Duration::from_millis(20);

/// Failures that wait.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// With the times of their arrival. A job is here while its failures are collected.
    collected: HashMap<JobId, Vec<(Duration, RankExit)>>,
    timers: Timers<JobId>,
}

impl Failures {
    /// Takes in failures. Returns those to send now.
    fn take(&mut self, now: Duration, job: JobId, failed: Vec<RankExit>) -> Vec<RankExit> {
        match self.collected.get_mut(&job) {
            Some(collected) => {
                collected.extend(failed.into_iter().map(|exit| (now, exit)));
                Vec::new()
            }
            None => {
                self.collected.insert(job, Vec::new());
                self.timers.set(job, now + PAUSE);
                exits::merged(failed)
            }
        }
    }

    /// Returns what was collected of a job.
    fn flush(&mut self, now: Duration, job: JobId) -> Vec<RankExit> {
        let Some(collected) = self.collected.get_mut(&job) else { return Vec::new() };
        let aged = std::mem::take(collected).into_iter().map(|(since, exit)| {
            let held = u64::try_from(now.saturating_sub(since).as_micros()).unwrap_or(u64::MAX);
            RankExit { ago_us: exit.ago_us.saturating_add(held), ..exit }
        });
        exits::merged(aged.collect())
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.collected.remove(&job);
        self.timers.cancel(&job);
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }
}

impl Node {
    pub(super) fn on_rank_failed(&mut self, now: Now, failed: RankFailed, out: &mut Outputs<Report>) {
        let RankFailed { job, exit, others } = failed;
        let failed: Vec<RankExit> = exit.into_iter().chain(others).collect();
        let ready = match self.is_root || !self.relays.contains(job) {
            true => failed,
            false => self.failures.take(now.mono, job, failed),
        };
        self.send_failures(job, ready, out);
    }

    /// Sends the failures of a job that were collected, before a report that all ranks of nodes have ended.
    pub(super) fn flush_failures(&mut self, now: Now, job: JobId, out: &mut Outputs<Report>) {
        let failed = self.failures.flush(now.mono, job);
        self.send_failures(job, failed, out);
    }

    pub(super) fn settle_failures(&mut self, now: Now, out: &mut Outputs<Report>) {
        while let Some(job) = self.failures.timers.pop_due(now.mono) {
            let failed = self.failures.flush(now.mono, job);
            match failed.is_empty() {
                true => self.failures.forget(job),
                false => self.failures.timers.set(job, now.mono + PAUSE),
            }
            self.send_failures(job, failed, out);
        }
    }

    fn send_failures(&self, job: JobId, failed: Vec<RankExit>, out: &mut Outputs<Report>) {
        let mut failed = failed.into_iter();
        if let Some(exit) = failed.next() {
            let failed = RankFailed { job, exit: Some(exit), others: failed.collect() };
            self.pass_up(up::Body::RankFailed(failed), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_passes_at_once_and_those_that_follow_are_sent_together() {
        let mut failures = Failures::default();
        let exit = |rank| vec![RankExit { rank, secondary: true, ..RankExit::default() }];
        let at = Duration::from_millis;
        assert_eq!(failures.take(at(0), 1, exit(7)), exit(7));
        for rank in 0..5 {
            assert_eq!(failures.take(at(10), 1, exit(rank)), []);
        }
        assert_eq!(failures.take(at(10), 2, exit(3)).len(), 1, "of another job");
        assert_eq!(failures.next_deadline(), Some(at(20)));
        let sent = failures.flush(at(20), 1);
        assert_eq!(sent, [RankExit { more: 4, ago_us: 10_000, ..exit(0).remove(0) }]);
        failures.forget(1);
        failures.forget(2);
        assert!(failures.collected.is_empty() && failures.next_deadline().is_none());
    }
}
