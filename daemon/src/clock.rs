//! The clock that the shell passes to the state machines.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rsd_core::Now;

/// The core's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono: self.origin.elapsed(), unix_ms: unix_ms() }
    }

    pub(crate) fn instant(&self, mono: Duration) -> Instant {
        self.origin + mono
    }
}

/// Returns the time since the machine was started, with the time that it slept.
pub(crate) fn since_boot() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    time.map(Duration::from).expect("Linux has had this clock since 2.6.39")
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
