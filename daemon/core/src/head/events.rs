//! Events that processes send to processes on other nodes and of other jobs. The head numbers the events for each job, and repeats
//! the latest ones for a step that has reconnected.

use std::collections::{BTreeMap, VecDeque};

use prost::Message;
use rsd_proto::v1 as wire;

use crate::JobId;

/// How many events for a job are kept, and how many bytes of them.
const KEPT_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The latest events for each job.
#[derive(Debug, Default)]
pub(super) struct Events(BTreeMap<JobId, VecDeque<wire::Notify>>);

impl Events {
    /// Takes in an event for a job; returns the message for its steps.
    pub(super) fn add(&mut self, job: JobId, number: u64, event: wire::Event) -> wire::Notify {
        let kept = self.0.entry(job).or_default();
        let previous = kept.back().map_or(0, |last| last.number);
        let notify = wire::Notify { job, number, nodes: Vec::new(), event: Some(event), previous };
        kept.push_back(notify.clone());
        let bytes = |notify: &wire::Notify| notify.encoded_len();
        let mut sum: usize = kept.iter().map(bytes).sum();
        while kept.len() > 1 && (kept.len() > KEPT_MAX || sum > KEPT_BYTES_MAX) {
            sum -= kept.pop_front().as_ref().map_or(0, bytes);
        }
        if let Some(oldest) = kept.front_mut() {
            oldest.previous = 0;
        }
        notify
    }

    /// Returns the kept events of a job with larger numbers.
    pub(super) fn after(&self, job: JobId, seen: u64) -> impl Iterator<Item = &wire::Notify> {
        self.0.get(&job).into_iter().flatten().filter(move |notify| notify.number > seen)
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.0.keys().map(|job| format!("events for job {job}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &Events, seen: u64) -> Vec<u64> {
        events.after(1, seen).map(|notify| notify.number).collect()
    }

    #[test]
    fn the_latest_events_are_repeated_to_those_that_have_not_seen_them() {
        let mut events = Events::default();
        for number in [5, 6, 9] {
            events.add(1, number, wire::Event::default());
        }
        let previous: Vec<u64> = events.after(1, 0).map(|notify| notify.previous).collect();
        assert_eq!(previous, [0, 5, 6]);
        assert_eq!((numbers(&events, 0), numbers(&events, 6), numbers(&events, 9)), (vec![5, 6, 9], vec![9], vec![]));
        for number in 10..1000 {
            events.add(1, number, wire::Event::default());
        }
        assert_eq!(numbers(&events, 0).len(), KEPT_MAX);
        assert_eq!(events.after(1, 0).next().map(|notify| notify.previous), Some(0), "no earlier one will come");
        let large = wire::Event { data: vec![0; KEPT_BYTES_MAX].into(), ..Default::default() };
        events.add(1, 1000, large);
        assert_eq!(numbers(&events, 0), [1000]);
        events.forget(1);
        assert_eq!(events.leftovers().count(), 0);
    }
}
