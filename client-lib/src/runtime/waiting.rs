//! The state of a process's waits ([`super::wait`]).

use std::time::Duration;

use super::spread::Spread;
use crate::transport::Bell;

/// How calls of this process wait.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The time to poll without yielding.
    pub(super) spin: Duration,
    /// The user has set it.
    pub(super) is_set: bool,
    /// The time to yield between polls after that.
    pub(super) yield_for: Duration,
    /// Wakes the thread that sleeps on the descriptors, if there is one.
    pub(super) sleeper: Option<Bell>,
    /// The number of threads that wait for it.
    pub(super) others: u32,
    /// How many requests had ended when the sleeping threads were last woken.
    pub(super) reported: u64,
    /// Whether yields reach the other ranks of this node, because all belong to one session.
    pub(super) yields_reach: bool,
    /// How often a thread has slept.
    pub(super) sleeps: u64,
    /// Where this process begins, if it shares its core.
    pub(super) spread: Option<Box<Spread>>,
}

impl Waiting {
    /// Chooses by the user's setting, or by whether ranks share cores.
    pub(super) fn choose(&mut self, spin: Option<Duration>, oversubscribed: bool) {
        self.is_set = spin.is_some();
        self.spin = spin.unwrap_or(if oversubscribed { Duration::ZERO } else { SPIN });
    }

    /// Whether a thread sleeps in a call.
    pub(super) fn has_sleeper(&self) -> bool {
        self.sleeper.is_some() || self.others > 0
    }

    /// Called before a yield.
    #[inline]
    pub(super) fn keep_apart(&mut self) {
        self.spread.take_if(|spread| spread.go_back());
    }

    /// It has turned out that ranks share cores.
    pub(super) fn share_cores(&mut self) {
        if !self.is_set {
            self.spin = Duration::ZERO;
        }
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            spin: Duration::ZERO,
            is_set: false,
            yield_for: YIELD,
            sleeper: None,
            others: 0,
            reported: 0,
            yields_reach: false,
            sleeps: 0,
            spread: None,
        }
    }
}

/// The polling time of a rank with a core of its own: waking up costs some microseconds, and work between messages
/// rarely takes a millisecond.
const SPIN: Duration = Duration::from_millis(1);

/// The time that a rank that shares its core polls and yields before it sleeps: waking a sleeper costs more than a turn
/// of the scheduler, unless many ranks wait for a distant event.
const YIELD: Duration = Duration::from_micros(200);
