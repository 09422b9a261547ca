//! The lock of one member's memory: a word in memory that the processes of its node share (`MPI_Win_lock`).
//!
//! ```text
//!  word:    | holder: rank + 1, 0 if none (32 bits) | processes that share it (32 bits) |
//!  wanting: | processes that wait for it alone |
//! ```
//!
//! A process that cannot have it now tries again. While one wants it alone, no other process begins to share it. Otherwise the order is that of
//! chance: a process that keeps its turn while it sleeps would stop all others.

use crate::shared_memory::sync::{AtomicU32, AtomicU64, Ordering};

/// See the module.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Lock {
    word: AtomicU64,
    wanting: AtomicU32,
}

impl Lock {
    #[cfg(test)]
    fn new() -> Self {
        Self { word: AtomicU64::new(0), wanting: AtomicU32::new(0) }
    }

    /// Takes it for the member of this rank, alone or with others, if it is free.
    #[inline]
    pub(super) fn try_take(&self, rank: u32, alone: bool) -> bool {
        if alone {
            let own = (u64::from(rank) + 1) << 32;
            return self.word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok();
        }
        let mut word = self.word.load(Ordering::Relaxed);
        while word >> 32 == 0 && self.wanting.load(Ordering::Relaxed) == 0 {
            match self.word.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Before this member waits for it alone, and once it has it or gives up.
    pub(super) fn want(&self, wants: bool) {
        if wants {
            self.wanting.fetch_add(1, Ordering::Relaxed);
        } else {
            self.wanting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Releases it for the member of this rank, which has it: a read-modify-write, after which [`crate::shared_memory::sync::fence_after_rmw`]
    /// is a full barrier.
    #[inline]
    pub(super) fn release(&self, rank: u32) {
        let own = (u64::from(rank) + 1) << 32;
        if self.word.load(Ordering::Relaxed) == own {
            self.word.swap(0, Ordering::AcqRel);
        } else {
            self.word.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn some_share_it_or_one_has_it_alone() {
        let lock = Lock::new();
        assert!(lock.try_take(0, false) && lock.try_take(1, false));
        assert!(!lock.try_take(2, true));
        lock.release(0);
        assert!(!lock.try_take(2, true));
        lock.release(1);
        assert!(lock.try_take(2, true));
        assert!(!lock.try_take(0, false) && !lock.try_take(1, true));
        lock.release(2);
        assert!(lock.try_take(0, false));
    }

    #[test]
    fn no_more_processes_share_it_while_one_wants_it_alone() {
        let lock = Lock::new();
        assert!(lock.try_take(0, false));
        lock.want(true);
        assert!(!lock.try_take(1, false));
        lock.release(0);
        assert!(!lock.try_take(1, false) && lock.try_take(2, true));
        lock.want(false);
        lock.release(2);
        assert!(lock.try_take(1, false));
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::*;

    /// What a process writes alone, all see that have the lock later, and no other process has the lock at that time.
    #[test]
    fn loom_the_memory_belongs_to_those_that_have_the_lock() {
        loom::model(|| {
            let all = Arc::new((Lock::new(), UnsafeCell::new(0_u32)));
            let writes = |all: &(Lock, UnsafeCell<u32>), rank: u32| {
                if all.0.try_take(rank, true) {
                    // SAFETY: loom checks that there is no other access.
                    all.1.with_mut(|place| unsafe { *place += 1 });
                    all.0.release(rank);
                }
            };
            let other = Arc::clone(&all);
            let writer = loom::thread::spawn(move || writes(&other, 1));
            let third = Arc::clone(&all);
            let reader = loom::thread::spawn(move || {
                if third.0.try_take(2, false) {
                    // SAFETY: as above.
                    third.1.with(|place| unsafe { assert!(*place <= 2) });
                    third.0.release(2);
                }
            });
            writes(&all, 0);
            writer.join().unwrap();
            reader.join().unwrap();
        });
    }
}
