//! Guards the state: one thread at a time may use it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A mutex that costs a few plain memory accesses once the user has promised that no two threads call at a time.
///
/// Some functions may be called by any thread even then (`MPI_Info_create`, `MPI_Session_init` and others): *visitors*. The first of
/// them clears `alone` and makes every thread of the process pass a full barrier (`membarrier(2)`). A thread that enters without the
/// mutex stores `inside` and reads `alone` once more. So either that thread sees the visitor and takes the mutex, or the visitor sees
/// it and waits until it has left. The thread pays nothing for that as long as there are no visitors.
#[derive(Debug)]
pub(super) struct Lock {
    /// Whether threads enter without the mutex: the user has promised it, and there are no visitors.
    alone: AtomicBool,
    /// 1 while a thread is inside without the mutex.
    inside: AtomicU32,
    /// The mutex: 0 free, 1 held, 2 held and another thread waits.
    word: AtomicU32,
    /// Whether the thread inside has entered with the mutex.
    held: AtomicBool,
    /// How often a thread has entered with the mutex.
    entries: AtomicU32,
    terms: Mutex<Terms>,
}

#[derive(Debug)]
struct Terms {
    /// The user has promised that no two threads call at a time.
    promised: bool,
    visitors: u32,
}

/// How often a visitor looks whether the thread that is inside has left.
const LOOK: Duration = Duration::from_micros(20);

impl Lock {
    pub(super) const fn new() -> Self {
        Self {
            alone: AtomicBool::new(false),
            inside: AtomicU32::new(0),
            word: AtomicU32::new(0),
            held: AtomicBool::new(false),
            entries: AtomicU32::new(0),
            terms: Mutex::new(Terms { promised: false, visitors: 0 }),
        }
    }

    /// Called with the lock held, at the end of initialisation and of finalization.
    pub(super) fn set_alone(&self, alone: bool) {
        let mut terms = self.terms.lock().unwrap_or_else(PoisonError::into_inner);
        // A kernel that offers no barrier leaves the mutex as the only way.
        terms.promised = alone && barrier_is_there();
        self.alone.store(terms.promised && terms.visitors == 0, Ordering::Relaxed);
    }

    /// Whether no two threads make calls at a time.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn acquire(&self) {
        if self.alone.load(Ordering::Relaxed) {
            if self.inside.load(Ordering::Relaxed) != 0 {
                entered_twice();
            }
            self.inside.store(1, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.alone.load(Ordering::Relaxed) {
                return;
            }
            self.inside.store(0, Ordering::Release);
        }
        if self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.acquire_slowly();
        }
        if self.inside.load(Ordering::Acquire) != 0 {
            self.wait_for_exit();
        }
        self.held.store(true, Ordering::Relaxed);
        self.entries.store(self.entries.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// How often a thread has entered with the mutex.
    pub(super) fn entries(&self) -> u32 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether a thread is inside.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) != 0 || self.held.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn release(&self) {
        // `inside` does not tell: another thread may just be finding out that it has to use the mutex.
        if !self.held.load(Ordering::Relaxed) {
            return self.inside.store(0, Ordering::Release);
        }
        self.held.store(false, Ordering::Relaxed);
        if self.word.swap(0, Ordering::Release) == 2 {
            futex_wake(&self.word, 1);
        }
    }

    /// Begins a visit: until [`Lock::leave`], all threads use the mutex.
    #[cold]
    pub(super) fn visit(&self) {
        let mut terms = self.terms.lock().unwrap_or_else(PoisonError::into_inner);
        terms.visitors += 1;
        if self.alone.swap(false, Ordering::SeqCst) {
            barrier();
        }
    }

    /// Ends a visit, after the lock has been released.
    #[cold]
    pub(super) fn leave(&self) {
        let mut terms = self.terms.lock().unwrap_or_else(PoisonError::into_inner);
        terms.visitors -= 1;
        if terms.visitors == 0 && terms.promised {
            self.alone.store(true, Ordering::Release);
        }
    }

    /// Whether other threads wait for the lock.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 2
            || (!self.alone.load(Ordering::Relaxed) && !self.held.load(Ordering::Relaxed))
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

    /// Waits, with the mutex held, until the thread has left that entered without it.
    #[cold]
    fn wait_for_exit(&self) {
        while self.inside.load(Ordering::Acquire) != 0 {
            std::thread::sleep(LOOK);
        }
    }
}

/// Prepares [`barrier`]; returns whether the kernel offers it.
#[expect(unsafe_code, reason = "there is no safe wrapper")]
fn barrier_is_there() -> bool {
    // SAFETY: takes numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
}

/// Every running thread of this process passes a full barrier before this returns.
#[expect(unsafe_code, reason = "there is no safe wrapper")]
fn barrier() {
    // SAFETY: takes numbers and touches no memory.
    unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
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
    fn visitors_exclude_the_thread_that_is_promised_to_be_alone() {
        let counted = Counted { lock: Lock::new(), count: UnsafeCell::new(0) };
        counted.lock.set_alone(true);
        let add = |counted: &Counted| {
            counted.lock.acquire();
            #[expect(unsafe_code, reason = "the test exercises the lock")]
            // SAFETY: the lock is held.
            unsafe {
                *counted.count.get() += 1;
            }
            counted.lock.release();
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let counted = &counted;
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        counted.lock.visit();
                        add(counted);
                        counted.lock.leave();
                    }
                });
            }
            for _ in 0..200_000 {
                add(&counted);
            }
        });
        assert_eq!(counted.count.into_inner(), 204_000);
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
