//! Who copies which piece of a long message that both ends copy ([`super::share`]).
//!
//! Proof: `RUSTFLAGS="--cfg loom" cargo test -p rsd-mpi --release --lib loom_`

use crate::shared_memory::sync::{AtomicU32, AtomicU64, Line, Ordering, fence_after_rmw};

/// How many copies of one receiver can go on at a time.
pub(super) const TICKETS: usize = 16;

/// Who copies which piece of a message.
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
    /// A new copy begins; nobody has anything to do with the one before any more.
    pub(super) fn open(&self, number: u32) {
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.turn.store(u64::from(number) << 32, Ordering::Release);
    }

    /// The next piece of this copy, for the caller to copy.
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

    /// No further piece is given out; how many have been.
    pub(super) fn close(&self, number: u32, pieces: u32) -> u32 {
        let before = self.turn.swap(u64::from(number) << 32 | u64::from(u32::MAX), Ordering::AcqRel);
        (before as u32).min(pieces)
    }

    /// The sender has written a piece, or failed to.
    pub(super) fn finish(&self, written: bool) {
        if !written {
            self.failed.store(1, Ordering::Relaxed);
        }
        self.done.fetch_add(1, Ordering::AcqRel);
        fence_after_rmw(); // `done` before the receiver's `asleep`
    }

    /// Whether the sender has finished so many pieces, and if so, whether they are all there.
    pub(super) fn outcome(&self, theirs: u32) -> Option<bool> {
        (self.done.load(Ordering::Acquire) >= theirs).then(|| self.failed.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models;
