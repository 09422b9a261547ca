//! Progress while the program computes (`RSD_MPI_PROGRESS=thread`): a thread that continues long messages, one-sided operations of other
//! nodes and non-blocking collectives as long as no thread of the program is in the library.
//!
//! ```text
//!  watching ── three looks without a call ──▶ serving ── something has arrived ──▶ serving
//!     ▲                                          │
//!     └────────── a thread makes calls ──────────┘
//! ```
//!
//! While it watches, it only looks every so often whether a thread of the program is in the library. So a program that communicates keeps its
//! fast path: it takes no lock, and its peers ring no bell. While it serves, it is a visitor of the lock ([`super::lock`]), and sleeps like a
//! call that waits. It calls no function of the user, since these may expect the program's thread: a collective with an operation of the user
//! waits for the program at that point.

use std::time::Duration;

use super::background::End;
use super::{Guard, Moment, RUNTIME};

/// Between two looks, and the longest time when the program sleeps in calls again and again.
const PERIOD: Duration = Duration::from_micros(100);
const PERIOD_MAX: Duration = Duration::from_millis(2);
/// After so many looks without a call, the program probably computes.
const LOOKS: u32 = 3;

/// The thread's life.
pub(super) fn run(end: &End) {
    let (mut idle, mut period) = (0, PERIOD);
    while !end.has_come() {
        end.pause(period);
        idle = if RUNTIME.lock.is_inside() { 0 } else { idle + 1 };
        if idle >= LOOKS && !end.has_come() {
            idle = 0;
            // A program that sleeps in a call makes progress by itself.
            let mut guard = RUNTIME.visit();
            guard.waiting.awake += 1;
            let has_slept = serve(&mut guard, end);
            guard.waiting.awake -= 1;
            guard.hand_over();
            drop(guard);
            period = if has_slept { PERIOD } else { (2 * period).min(PERIOD_MAX) };
        }
    }
}

/// Continues what is in progress until a thread of the program makes calls; returns whether it has slept meanwhile.
fn serve(guard: &mut Guard<'_>, end: &End) -> bool {
    let mut entries = RUNTIME.lock.entries();
    let mut has_slept = false;
    loop {
        while guard.progress() {
            guard.let_others_in();
        }
        if entries != RUNTIME.lock.entries() || !guard.resting.is_empty() {
            return has_slept;
        }
        let stop = guard.sleep(&mut |_, moment| moment == Moment::Sleep && end.has_come());
        // The sleep gives the lock away, and takes it again.
        entries = entries.wrapping_add(1);
        has_slept = true;
        if stop || end.has_come() {
            return has_slept;
        }
    }
}
