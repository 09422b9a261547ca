//! Whether the members of a communicator share memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Node;
use crate::transport::Watched;

/// The progress of a communicator towards shared memory.
#[derive(Debug)]
pub enum Sharing {
    /// The number of calls so far that could have used it.
    Untried(u32),
    /// It is impossible, or the attempt failed.
    Never,
    /// The members share memory.
    Ready(Box<Shared>),
    /// The members share memory, and a call is using it.
    Busy,
}

impl Default for Sharing {
    fn default() -> Self {
        Self::Untried(0)
    }
}

/// The shared memory, and the bell for members that sleep.
#[derive(Debug)]
pub struct Shared {
    /// This process's view of the memory.
    pub node: Node,
    /// Ends this process's sleep.
    pub watched: Watched,
    /// This process's permit to take part.
    pub permit: Permit,
}

/// A permit to take part in one more area. A process holds a limited number: each area takes descriptors, which are
/// limited.
#[derive(Debug)]
pub struct Permit(());

impl Permit {
    const MOST: usize = 64;

    /// Takes a permit; `None` if the process already has the most it may have.
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
    fn a_process_takes_part_in_a_limited_number_of_areas() {
        let mut taken: Vec<Permit> = std::iter::from_fn(Permit::take).collect();
        assert_eq!(taken.len(), Permit::MOST);
        taken.pop();
        assert!(Permit::take().is_some());
    }
}
