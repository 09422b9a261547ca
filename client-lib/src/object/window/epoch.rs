//! Epochs: when operations may be called (MPI 5.0 §12.5).

use std::collections::BTreeMap;

/// What a process may do to the memory of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    None,
    /// Everything, until the next fence.
    Fence,
    /// It has started access to these members.
    Started(Vec<u32>),
    /// It has locked the memory of these members; whether a lock was really taken.
    Locked(BTreeMap<u32, bool>),
    /// It has locked the memory of all; `taken[rank]`: whether the lock was really taken. Without `checks` none is needed.
    LockedAll {
        /// See above.
        taken: Vec<bool>,
        /// Whether others may lock.
        checks: bool,
    },
}

impl Access {
    /// Whether operations on this member may be called.
    pub fn permits(&self, target: u32) -> bool {
        match self {
            Self::None => false,
            Self::Fence | Self::LockedAll { .. } => true,
            Self::Started(targets) => targets.contains(&target),
            Self::Locked(targets) => targets.contains_key(&target),
        }
    }

    /// Whether another epoch may begin: one between fences counts only once it is used.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::None | Self::Fence)
    }
}

/// The members that may use this process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// Their ranks.
    pub origins: Vec<u32>,
}
