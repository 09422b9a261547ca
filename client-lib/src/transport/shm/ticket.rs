//! Tickets: they assign the pieces of a long message to its two ends ([`super::share`]).
//!
//! Proof: `RUSTFLAGS="--cfg loom" cargo test -p rsd-mpi --release --lib loom_`

use crate::shared_memory::sync::{AtomicU32, AtomicU64, Line, Ordering, fence_after_rmw};

/// The most copies of one receiver that can be in progress at a time.
pub(super) const TICKETS: usize = 16;

/// Assigns the pieces of a message to its two ends.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ticket {
    turn: AtomicU64,
    done: AtomicU32,
    failed: AtomicU32,
}

/// A ticket alone on its cache lines.
pub(super) type TicketLine = Line<Ticket>;

impl Ticket {
    /// Begins a new copy; the previous one must be over for both ends.
    pub(super) fn open(&self, number: u32) {
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.turn.store(u64::from(number) << 32, Ordering::Release);
    }

    /// Claims the next piece of this copy, for the caller to copy.
    pub(super) fn claim(&self, number: u32, pieces: u32) -> Option<u32> {
        let mut turn = self.turn.load(Ordering::Acquire);
        loop {
            let next = turn as u32;
            if (turn >> 32) as u32 != number || next >= pieces {
                return None;
            }
            match self.turn.compare_exchange_weak(turn, turn + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(next),
                Err(now) => turn = now,
            }
        }
    }

    /// Ends the assignment of pieces; returns how many were assigned.
    pub(super) fn close(&self, number: u32, pieces: u32) -> u32 {
        let before = self.turn.swap(u64::from(number) << 32 | u64::from(u32::MAX), Ordering::AcqRel);
        (before as u32).min(pieces)
    }

    /// Records that the sender has written a piece, or failed to.
    pub(super) fn finish(&self, written: bool) {
        if !written {
            self.failed.store(1, Ordering::Relaxed);
        }
        self.done.fetch_add(1, Ordering::AcqRel);
        fence_after_rmw(); // `done` before the receiver's `asleep`
    }

    /// `None` until the sender has finished this many pieces; then whether all of them were written.
    pub(super) fn outcome(&self, theirs: u32) -> Option<bool> {
        (self.done.load(Ordering::Acquire) >= theirs).then(|| self.failed.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;
