//! The clients whose jobs end with them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rsd_core::JobId;

/// The connections of clients whose jobs end with them. A client that comes back has two until the loss of the first is noticed.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<HashMap<JobId, usize>>);

impl Owners {
    pub(super) fn enter(&self, job: JobId) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(job).or_default() += 1;
    }

    pub(super) fn count(&self, job: JobId) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&job).copied().unwrap_or(0)
    }

    /// Returns whether it was the last one.
    pub(super) fn leave(&self, job: JobId) -> bool {
        let mut owners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = owners.get_mut(&job).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            owners.remove(&job);
        }
        left == 0
    }
}
