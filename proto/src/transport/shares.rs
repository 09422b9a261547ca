//! What each user has of something that is limited, so that no user can take what others need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The superuser, who is not limited.
const ROOT: u32 = 0;

/// Counts by uid, with a limit for each user except root.
#[derive(Debug, Clone)]
pub struct Shares {
    taken: Arc<Mutex<HashMap<u32, usize>>>,
    most: usize,
}

impl Shares {
    /// Returns counts that allow each user `most`.
    pub fn new(most: usize) -> Shares {
        Shares { taken: Arc::default(), most }
    }

    /// Counts one more of this user until the result is dropped. None: the user has as many as allowed, and `beyond` more.
    pub fn take(&self, uid: u32, beyond: usize) -> Option<Share> {
        let mut taken = self.taken();
        let count = taken.entry(uid).or_default();
        if uid != ROOT && *count >= self.most.saturating_add(beyond) {
            return None;
        }
        *count += 1;
        let is_over = uid != ROOT && *count > self.most;
        drop(taken);
        Some(Share { of: self.clone(), uid, is_over })
    }

    /// Returns how many each user may have.
    pub fn most(&self) -> usize {
        self.most
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the things that a user has.
#[derive(Debug)]
pub struct Share {
    of: Shares,
    uid: u32,
    is_over: bool,
}

impl Share {
    /// Whether the user has more than allowed with it.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_its_own_limit_and_root_none() {
        let shares = Shares::new(2);
        let taken: Vec<_> = (0..4).map(|_| shares.take(1000, 1)).collect();
        let over: Vec<_> = taken.iter().map(|share| share.as_ref().map(Share::is_over)).collect();
        assert_eq!(over, [Some(false), Some(false), Some(true), None]);
        assert!(shares.take(1001, 0).is_some_and(|share| !share.is_over()));
        let roots: Vec<_> = (0..9).map(|_| shares.take(0, 0)).collect();
        assert!(roots.iter().all(|share| share.as_ref().is_some_and(|share| !share.is_over())));
        drop((taken, roots));
        assert!(shares.taken().is_empty());
        assert!(shares.take(1000, 0).is_some());
    }
}
