//! Pauses between attempts.

use std::time::Duration;

/// The first pause after a failure; each further failure doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Pauses that double up to a limit.
#[derive(Debug, Clone)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Returns the pauses of a step that has lost its daemon: the daemon may be back within milliseconds, or in an hour.
    pub fn of_step() -> Backoff {
        Backoff::up_to(Duration::from_millis(500))
    }

    pub(super) fn up_to(max: Duration) -> Backoff {
        Backoff { next: PAUSE_MIN.min(max), max }
    }

    /// Returns the pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// Resets to the shortest pause, after a successful attempt.
    pub fn reset(&mut self) {
        self.next = PAUSE_MIN.min(self.max);
    }
}

/// Spreads the attempts of daemons that have lost one parent at the same time. The numbers follow from a seed (xorshift64*).
#[derive(Debug, Clone)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) fn new(seed: u64) -> Jitter {
        Jitter(seed | 1)
    }

    /// Returns a time between half of `pause` and `pause`.
    pub(super) fn of(&mut self, pause: Duration) -> Duration {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let share = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32; // 31 bits
        pause / 2 + (pause / 2).mul_f64(f64::from(share) / f64::from(u32::MAX >> 1))
    }
}
