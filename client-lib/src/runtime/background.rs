//! The thread that makes progress while the program computes: its start and its end. [`super::serving`] is what it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

use super::lock::{futex_wait, futex_wake};
use crate::error::{MpiError, MpiResult};

/// It calls none of the user's functions, but the driver of a device, of which nothing is known. What is not used takes no memory.
const STACK: usize = 2 << 20;

/// The thread.
#[derive(Debug)]
pub(super) struct Background {
    thread: JoinHandle<()>,
    end: Arc<End>,
}

impl Background {
    /// Starts it. It takes no signals: those are for the program's threads.
    pub(super) fn start(run: fn(&End)) -> MpiResult<Self> {
        let failed =
            |error: std::io::Error| MpiError::no_mem(format!("failed to start the thread for progress: {error}"));
        let end = Arc::new(End::default());
        let its_end = Arc::clone(&end);
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(|errno| failed(errno.into()))?;
        let thread = std::thread::Builder::new().name("rsd-mpi".into()).stack_size(STACK).spawn(move || run(&its_end));
        // It fails only for an invalid mask.
        let _ = before.thread_set_mask();
        thread.map(|thread| Self { thread, end }).map_err(failed)
    }

    /// Tells it to end.
    pub(super) fn stop(&self) {
        self.end.0.store(1, Ordering::Release);
        futex_wake(&self.end.0, 1);
    }

    /// Waits until it has ended.
    pub(super) fn join(self) {
        // It has no result, and a panic has been reported.
        let _ = self.thread.join();
    }
}

/// Tells one thread when it must end: the next one may have been started by then.
#[derive(Debug, Default)]
pub(super) struct End(AtomicU32);

impl End {
    /// Whether the thread must end.
    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Sleeps for a while, or until the thread must end.
    pub(super) fn pause(&self, time: Duration) {
        futex_wait(&self.0, 0, Some(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_ends_although_the_next_one_has_been_started() {
        fn run(end: &End) {
            while !end.has_come() {
                end.pause(Duration::from_secs(60));
            }
        }
        let first = Background::start(run).unwrap();
        first.stop();
        let second = Background::start(run).unwrap();
        first.join();
        assert!(!second.end.has_come() && !second.thread.is_finished());
        second.stop();
        second.join();
    }
}
