//! What a process remembers of how it waits ([`super::wait`]).

use std::time::Duration;

use crate::transport::Bell;

/// How waiting goes in this process.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Polls this long before anything else.
    pub(super) spin: Duration,
    /// Then yields this long between polls.
    pub(super) yield_for: Duration,
    /// By what the thread that sleeps on the descriptors is woken, if there is one.
    pub(super) sleeper: Option<Bell>,
    /// Threads that wait for it.
    pub(super) others: u32,
    /// How many requests had ended when sleeping threads were last told.
    pub(super) told: u64,
}

impl Waiting {
    /// Chooses by what the user says, or by whether ranks share cores.
    pub(super) fn choose(&mut self, spin: Option<Duration>, oversubscribed: bool) {
        self.spin = spin.unwrap_or(if oversubscribed { Duration::ZERO } else { SPIN });
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self { spin: Duration::ZERO, yield_for: YIELD, sleeper: None, others: 0, told: 0 }
    }
}

/// A rank with a core of its own polls this long: waking up costs some microseconds, work between messages rarely a
/// millisecond.
const SPIN: Duration = Duration::from_millis(1);

/// A rank that shares its core polls and yields this long before it sleeps: waking a sleeper costs more than a turn of the
/// scheduler, until many ranks wait for something far away.
const YIELD: Duration = Duration::from_micros(200);
