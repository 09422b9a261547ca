//! The thread that makes progress while the program computes: its start and its end. [`super::serving`] is what it does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};

use super::lock::{futex_wait, futex_wake};
use crate::error::{MpiError, MpiResult};

/// It calls few functions, and none of the user's.
const STACK: usize = 256 << 10;

static ENDS: AtomicU32 = AtomicU32::new(0);

/// The thread.
#[derive(Debug)]
pub(super) struct Background(JoinHandle<()>);

impl Background {
    /// Starts it. It takes no signals: those are for the program's threads.
    pub(super) fn start(run: fn()) -> MpiResult<Self> {
        let failed =
            |error: std::io::Error| MpiError::no_mem(format!("failed to start the thread for progress: {error}"));
        ENDS.store(0, Ordering::Relaxed);
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(|errno| failed(errno.into()))?;
        let thread = std::thread::Builder::new().name("rsd-mpi".into()).stack_size(STACK).spawn(run);
        // It fails only for an invalid mask.
        let _ = before.thread_set_mask();
        thread.map(Self).map_err(failed)
    }

    /// Tells it to end.
    pub(super) fn stop(&self) {
        ENDS.store(1, Ordering::Release);
        futex_wake(&ENDS, 1);
    }

    /// Waits until it has ended.
    pub(super) fn join(self) {
        // It has no result, and a panic has been reported.
        let _ = self.0.join();
    }
}

/// Whether the thread must end.
pub(super) fn ends() -> bool {
    ENDS.load(Ordering::Acquire) != 0
}

/// Sleeps for a while, or until the thread must end.
pub(super) fn pause(time: Duration) {
    futex_wait(&ENDS, 0, Some(time));
}
