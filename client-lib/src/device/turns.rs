//! Whether this process shares its device with another one.
//!
//! Copies within a device go through its queue of kernels. Without NVIDIA's multi-process service, processes take turns on that queue,
//! and a turn takes about 150 us, where the copy itself takes 10. A copy to the host and one back take another way (the copy engines), so
//! for short data they are faster then. How long the last copies have waited tells.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long copies within a device have waited lately, in nanoseconds: a moving mean.
static WAIT: AtomicU32 = AtomicU32::new(0);
static USES: AtomicU32 = AtomicU32::new(0);
static LEARNT: AtomicU32 = AtomicU32::new(0);

/// The first copies say little: the driver loads its code for them.
const COLD: u32 = 2;

/// Once in so many uses, the device is tried although the other way has been faster.
const TRY_EVERY: u32 = 64;

/// What a copy within a device takes without waiting: measured with an H200, as all costs here.
fn device_ns(len: usize) -> u64 {
    9_000 + len as u64 / 1_000
}

/// What a copy to the host and one back take: each 6.5 us, and the processor copies 10 bytes in a nanosecond.
fn host_ns(len: usize) -> u64 {
    13_000 + len as u64 / 5
}

/// Whether a copy of this length within a device should go by way of the host.
pub(super) fn prefer_the_host(len: usize) -> bool {
    let wait = WAIT.load(Ordering::Relaxed);
    let is_faster = host_ns(len) < device_ns(len) + u64::from(wait);
    is_faster && !USES.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRY_EVERY)
}

/// Records that a copy within a device took this long.
pub(super) fn learn(elapsed: Duration, len: usize) {
    if LEARNT.fetch_add(1, Ordering::Relaxed) < COLD {
        return;
    }
    let waited = (elapsed.as_nanos() as u64).saturating_sub(device_ns(len)).min(400_000) as u32;
    let before = WAIT.load(Ordering::Relaxed);
    WAIT.store(before - before / 4 + waited / 4, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_avoid_a_device_that_makes_them_wait() {
        assert!(!prefer_the_host(8), "it has not waited yet");
        for _ in 0..10 {
            learn(Duration::from_micros(150), 8);
        }
        let by_host = |len| (0..640).filter(|_| prefer_the_host(len)).count();
        assert_eq!((by_host(8), by_host(256 << 10), by_host(2 << 20)), (630, 630, 0));
        // The other process has gone.
        for _ in 0..20 {
            learn(Duration::from_micros(10), 8);
        }
        assert_eq!(by_host(8), 0);
    }
}
