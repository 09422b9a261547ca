//! Guards the state: one thread at a time may use it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A mutex that costs two plain memory accesses once the user has promised that no two threads call at a time.
#[derive(Debug)]
pub(super) struct Lock {
    /// Set after initialisation below `MPI_THREAD_MULTIPLE`.
    alone: AtomicBool,
    /// 0 free, 1 held, 2 held and another thread waits.
    word: AtomicU32,
}

impl Lock {
    pub(super) const fn new() -> Self {
        Self { alone: AtomicBool::new(false), word: AtomicU32::new(0) }
    }

    /// Called with the lock held, at the end of initialisation and of finalization.
    pub(super) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// Whether no two threads make calls at a time.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn acquire(&self) {
        if self.alone.load(Ordering::Relaxed) {
            let before = self.word.load(Ordering::Relaxed);
            self.word.store(1, Ordering::Relaxed);
            if before != 0 {
                entered_twice();
            }
        } else if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.acquire_slowly();
        }
    }

    #[inline]
    pub(super) fn release(&self) {
        if self.alone.load(Ordering::Relaxed) {
            // A thread may have begun to wait before the lock switched to a single thread.
            let waited_for = self.word.load(Ordering::Relaxed) == 2;
            self.word.store(0, Ordering::Relaxed);
            if waited_for {
                futex_wake(&self.word, 1);
            }
        } else if self.word.swap(0, Ordering::Release) == 2 {
            futex_wake(&self.word, 1);
        }
    }

    /// Whether other threads wait for the lock.
    pub(super) fn is_wanted(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 2
    }

    #[cold]
    fn acquire_slowly(&self) {
        for _ in 0..100 {
            std::hint::spin_loop();
            if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        while self.word.swap(2, Ordering::Acquire) != 0 {
            futex_wait(&self.word, 2, None);
        }
    }
}

/// The program has promised a single thread and calls from two threads at once (or from a signal handler), or this
/// library has called itself.
#[cold]
fn entered_twice() {
    const TEXT: &str = "rsd-mpi: MPI is called by two threads at once, but the program asked for a thread level below \
                        MPI_THREAD_MULTIPLE (MPI_Init asks for MPI_THREAD_SINGLE): call \
                        MPI_Init_thread(…, MPI_THREAD_MULTIPLE, …)";
    eprintln!("{TEXT}");
    std::process::abort();
}

/// Sleeps while the word is `expected`, at most this long, until woken.
#[expect(unsafe_code, reason = "the futex system call takes addresses")]
pub(super) fn futex_wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    let limit = limit
        .map(|limit| libc::timespec { tv_sec: limit.as_secs() as libc::time_t, tv_nsec: limit.subsec_nanos().into() });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the limit live as long as the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, expected, limit);
    }
}

/// Wakes up to this many threads that sleep on the word.
#[expect(unsafe_code, reason = "the futex system call takes an address")]
pub(super) fn futex_wake(word: &AtomicU32, threads: i32) {
    // SAFETY: for a wake-up the kernel uses the address only to find waiters.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Counted {
        lock: Lock,
        count: UnsafeCell<u64>,
    }

    #[expect(unsafe_code, reason = "the test exercises the lock")]
    // SAFETY: the count is accessed only with the lock held.
    unsafe impl Sync for Counted {}

    #[test]
    fn threads_exclude_each_other() {
        let counted = Counted { lock: Lock::new(), count: UnsafeCell::new(0) };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let counted = &counted;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        counted.lock.acquire();
                        #[expect(unsafe_code, reason = "the test exercises the lock")]
                        // SAFETY: the lock is held.
                        unsafe {
                            *counted.count.get() += 1;
                        }
                        counted.lock.release();
                    }
                });
            }
        });
        assert_eq!(counted.count.into_inner(), 80_000);
    }

    #[test]
    fn a_single_thread_can_take_the_lock_repeatedly() {
        let lock = Lock::new();
        lock.acquire();
        lock.set_alone(true);
        lock.release();
        lock.acquire();
        lock.release();
        lock.acquire();
        lock.set_alone(false);
        lock.release();
        lock.acquire();
        assert!(!lock.is_wanted());
        lock.release();
    }
}
