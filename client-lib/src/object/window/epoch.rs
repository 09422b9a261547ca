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
    Locked(Locked),
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
            Self::Locked(locked) => locked.contains(target),
        }
    }

    /// Whether another epoch may begin: one between fences counts only once it is used.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::None | Self::Fence)
    }
}

/// Locks of members' memory. One alone, as most programs have, takes no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locked {
    one: Option<(u32, bool)>,
    more: BTreeMap<u32, bool>,
}

impl Locked {
    /// Whether this member's memory is locked.
    #[inline]
    pub fn contains(&self, target: u32) -> bool {
        self.one.is_some_and(|(one, _)| one == target) || self.more.contains_key(&target)
    }

    /// Adds one that is not there; `taken`: whether the lock is really taken.
    #[inline]
    pub fn insert(&mut self, target: u32, taken: bool) {
        match self.one {
            None => self.one = Some((target, taken)),
            Some(_) => drop(self.more.insert(target, taken)),
        }
    }

    /// Removes one; returns whether the lock was really taken.
    #[inline]
    pub fn remove(&mut self, target: u32) -> Option<bool> {
        match self.one.take_if(|(one, _)| *one == target) {
            Some((_, taken)) => Some(taken),
            None => self.more.remove(&target),
        }
    }

    /// Whether nothing is locked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }
}

/// The members that may use this process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// Their ranks.
    pub origins: Vec<u32>,
}
