//! Whether the members of a communicator share memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Node;
use crate::transport::Hearing;

/// How far a communicator has come with that.
#[derive(Debug)]
pub enum Near {
    /// So many calls have been made that it would have served.
    Untried(u32),
    /// It cannot be, or did not come off.
    Never,
    /// They do.
    Ready(Box<Shared>),
    /// They do, and a call is using it.
    Busy,
}

impl Default for Near {
    fn default() -> Self {
        Self::Untried(0)
    }
}

/// Memory that is shared, and the bell for those who sleep.
#[derive(Debug)]
pub struct Shared {
    /// This process's view.
    pub node: Node,
    /// Ends this process's sleep.
    pub hearing: Hearing,
    /// This process's leave to have it.
    pub permit: Permit,
}

/// One of the areas that a process may be part of at a time: each takes descriptors, of which a process has few.
#[derive(Debug)]
pub struct Permit(());

impl Permit {
    const MOST: usize = 64;

    /// None if there are enough.
    pub fn take() -> Option<Self> {
        let one_more = |taken: usize| (taken < Self::MOST).then_some(taken + 1);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok().then_some(Self(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

static TAKEN: AtomicUsize = AtomicUsize::new(0);

#[cfg(test)]
mod tests {
    use super::Permit;

    #[test]
    fn a_process_is_part_of_so_many_areas_at_most() {
        let mut taken: Vec<Permit> = std::iter::from_fn(Permit::take).collect();
        assert_eq!(taken.len(), Permit::MOST);
        taken.pop();
        assert!(Permit::take().is_some());
    }
}
