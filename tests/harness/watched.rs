//! Waits for conditions with a deadline.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A value that one thread changes while others wait for it to change.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.look());
        self.changed.notify_all();
    }

    pub(crate) fn look(&self) -> MutexGuard<'_, T> {
        self.value.lock().expect("no thread panics while it holds the lock")
    }

    /// Waits until `find` finds something; `None` if the deadline passes first.
    pub(crate) fn wait<R>(&self, deadline: Duration, mut find: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let end = Instant::now() + deadline;
        let mut value = self.look();
        loop {
            if let Some(found) = find(&value) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            (value, _) = self.changed.wait_timeout(value, left).expect("no thread panics while it holds the lock");
        }
    }
}

/// Calls `find` repeatedly until it finds something.
///
/// # Panics
/// If it finds nothing within `deadline`.
#[track_caller]
pub fn eventually<R>(what: &str, deadline: Duration, mut find: impl FnMut() -> Option<R>) -> R {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
