//! Processes that fork. The child shares its parent's connections and memory with the peers, so it must not use the library: for it, MPI
//! has been finalized, and a call ends the child with a sentence, not the job.

#![expect(unsafe_code, reason = "pthread_atfork calls back")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Mode, Phase, RUNTIME};
use crate::transport;

static FORKED: AtomicBool = AtomicBool::new(false);

/// What a child that calls MPI is told.
pub(super) const TEXT: &str = "this process was forked from a process that has initialized MPI: only that one may call MPI; start \
                               programs that use MPI with MPI_Comm_spawn";

/// From now on children are marked.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function only stores to atomics and closes descriptors, which a child may do. Without memory for the entry,
        // children are not marked.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Whether this process is a child that was forked while the library was open.
pub(super) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    if RUNTIME.mode.swap(Mode::Closed as u8, Ordering::Relaxed) != Mode::Closed as u8 {
        FORKED.store(true, Ordering::Relaxed);
        RUNTIME.phase.store(Phase::After as u8, Ordering::Relaxed);
        transport::close_in_child();
    }
}
