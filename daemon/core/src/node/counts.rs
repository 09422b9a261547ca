//! What a node counts while it works, for its metrics: fences, and connections that were made again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Node;
use crate::JobId;
use crate::metrics::{Durations, Family};

/// The most open fences that are measured.
const OPEN_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// From the first contribution to a fence until its result goes down; at the daemon that has all contributions.
    fences: Durations,
    /// When the first contributions to open fences arrived.
    open: BTreeMap<(JobId, u64), Duration>,
    welcomes: u64,
    resumes: u64,
}

impl Counts {
    /// A contribution to a fence has arrived.
    pub(super) fn entered(&mut self, now: Duration, job: JobId, fence: u64) {
        if self.open.len() < OPEN_MAX {
            self.open.entry((job, fence)).or_insert(now);
        }
    }

    /// This daemon has all contributions.
    pub(super) fn complete(&mut self, now: Duration, job: JobId, fence: u64) {
        if let Some(began) = self.open.get(&(job, fence)) {
            self.fences.add(now.saturating_sub(*began));
        }
        self.passed(job, fence);
    }

    /// A fence is complete, and all earlier ones.
    pub(super) fn passed(&mut self, job: JobId, fence: u64) {
        while let Some(open) = self.open.range((job, 0)..=(job, fence)).next().map(|(key, _)| *key) {
            self.open.remove(&open);
        }
    }

    /// The parent has accepted this daemon, perhaps again.
    pub(super) fn welcomed(&mut self) {
        self.welcomes += 1;
    }

    /// A step or a child has reported a job after its link was cut.
    pub(super) fn resumed(&mut self) {
        self.resumes += 1;
    }
}

impl Node {
    /// Returns the metrics of this daemon.
    pub(crate) fn metrics(&self) -> Vec<Family> {
        let links = [
            ("parent", f64::from(u8::from(self.parent_up))),
            ("child", self.tree.children_len() as f64),
            ("step", self.steps.attached().count() as f64),
        ];
        let steps = self.steps.len() as f64;
        let Counts { fences, welcomes, resumes, open: _ } = &self.counts;
        let again = welcomes.saturating_sub(1) as f64;
        vec![
            Family::gauge("rsd_steps", "Jobs that have a step on this node.", steps),
            Family::gauges("rsd_links", "Open links to other daemons and to steps.", "kind", links),
            Family::counter("rsd_parent_reconnects_total", "How often the link to the parent was made again.", again),
            Family::counter(
                "rsd_job_resumes_total",
                "How often a step or a daemon below has reported a job again, after a cut link.",
                *resumes as f64,
            ),
            Family::histogram(
                "rsd_fence_seconds",
                "Time from the first contribution to a fence to its result, where the last contribution arrived.",
                fences,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_measured_where_it_completes_and_forgotten_where_it_passes() {
        let mut counts = Counts::default();
        let at = Duration::from_millis;
        counts.entered(at(10), 7, 3);
        counts.entered(at(20), 7, 3);
        counts.entered(at(20), 8, 1);
        counts.complete(at(40), 7, 3);
        counts.passed(8, 2);
        assert!(counts.open.is_empty());
        let text = crate::metrics::text(&[Family::histogram("rsd_x_seconds", "x", &counts.fences)]);
        assert!(text.contains("rsd_x_seconds_sum 0.03\nrsd_x_seconds_count 1\n"), "{text}");
    }
}
