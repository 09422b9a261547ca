//! How fast the daemon's loop is: how long clients' requests wait in its queue, and how long it works.

use std::time::{Duration, Instant};

use rsd_core::metrics::{Durations, Family};

#[derive(Debug, Default)]
pub(crate) struct Pace {
    waits: Durations,
    busy: Duration,
    events: u64,
    /// The longest time for one event.
    longest: Duration,
}

impl Pace {
    /// Counts a client's request that was made at `at` and is handled now.
    pub(crate) fn waited(&mut self, at: Instant) {
        self.waits.add(at.elapsed());
    }

    /// Counts an event that the loop began to handle at `began` and has handled now.
    pub(crate) fn worked(&mut self, began: Instant) {
        let took = began.elapsed();
        self.busy += took;
        self.events += 1;
        self.longest = self.longest.max(took);
    }

    pub(crate) fn families(&self) -> [Family; 4] {
        [
            Family::histogram(
                "rsd_loop_lag_seconds",
                "How long clients' requests waited before the daemon's loop took them.",
                &self.waits,
            ),
            Family::counter(
                "rsd_loop_busy_seconds_total",
                "Time that the daemon's loop has worked.",
                self.busy.as_secs_f64(),
            ),
            Family::counter("rsd_loop_events_total", "Events that the daemon's loop has handled.", self.events as f64),
            Family::gauge(
                "rsd_loop_event_max_seconds",
                "The longest time that the loop has worked on one event since its start.",
                self.longest.as_secs_f64(),
            ),
        ]
    }
}
