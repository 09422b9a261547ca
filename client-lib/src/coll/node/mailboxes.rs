//! Where the members of a call leave data for each other, in a blocking call ([`Node`]) or a non-blocking one ([`super::outbox`]).

use std::ops::Range;

use super::{Arrival, Node, PACKED, Shape};
use crate::memory::Room;

/// The members that a member waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    None,
    One(u32),
    /// The members before this one.
    Before(u32),
    All,
}

/// The packed blocks of the first members: those of a group follow each other, and each group has a place of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    start: *const u8,
    members: u32,
    /// How many members a group has; not 0.
    each: u32,
}

/// Each member leaves data at each operation; the others read them.
pub(super) trait Mailboxes {
    /// The dimensions of the memory.
    fn shape(&self) -> Shape;

    /// This member's rank.
    fn rank(&self) -> u32;

    /// As [`Node::arrive`].
    fn arrive(&mut self, stamp: u64, len: usize, awaited: bool, fill: impl FnOnce(Room<'_>)) -> (u64, Arrival);

    /// As [`Node::with_data`].
    fn with_data<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R;

    /// As [`Node::packed`].
    #[inline(always)]
    fn packed(&self, _number: u64, _len: usize, _awaited: Awaited) -> Packed {
        Packed::NONE
    }

    /// What a member has called.
    fn stamp(&self, number: u64, member: u32) -> u64;

    /// The number of members.
    #[inline(always)]
    fn size(&self) -> u32 {
        self.shape().members
    }

    /// The index of this member's block among those that another member leaves for all others: each member skips its own block.
    #[inline(always)]
    fn index_at(&self, member: u32) -> usize {
        if self.rank() < member { self.rank() as usize } else { self.rank() as usize - 1 }
    }

    /// The first of the awaited members whose stamp at an operation differs.
    #[inline(always)]
    fn differing(&self, number: u64, awaited: Awaited, differs: impl Fn(u64) -> bool) -> Option<u32> {
        let does = |member: &u32| differs(self.stamp(number, *member));
        match awaited {
            Awaited::None => None,
            Awaited::One(member) => Some(member).filter(does),
            Awaited::Before(me) => (0..me).find(does),
            Awaited::All => (0..self.size()).find(does),
        }
    }
}

impl Packed {
    pub(super) const NONE: Self = Self { start: std::ptr::null(), members: 0, each: 1 };

    #[inline(always)]
    pub(super) fn new(start: *const u8, members: u32, each: u32) -> Self {
        Self { start, members, each: each.max(1) }
    }

    /// How many members they are of.
    #[inline(always)]
    pub(super) fn members(self) -> u32 {
        self.members
    }

    /// The members of each group, and the block of its first one.
    #[inline(always)]
    pub(super) fn groups(self) -> impl Iterator<Item = (Range<u32>, *const u8)> {
        (0..self.members).step_by(self.each as usize).map(move |first| {
            let end = self.members.min(first + self.each);
            (first..end, self.start.wrapping_add(place(first, 0, 0)))
        })
    }

    /// The block of one of these members; all have `len` bytes.
    #[inline(always)]
    pub(super) fn block(self, member: u32, len: usize) -> *const u8 {
        let nth = member % self.each;
        self.start.wrapping_add(place(member - nth, nth, len))
    }
}

/// Where the block of a group's nth member begins in the packs of an operation. The place of the group does not depend on `len`, the length of
/// its blocks, so that a member that passes another length cannot change the blocks of other groups.
#[inline(always)]
pub(super) fn place(first: u32, nth: u32, len: usize) -> usize {
    first as usize * PACKED + nth as usize * len
}

impl Mailboxes for Node {
    #[inline(always)]
    fn shape(&self) -> Shape {
        self.area.shape()
    }

    #[inline(always)]
    fn rank(&self) -> u32 {
        self.rank
    }

    #[inline(always)]
    fn arrive(&mut self, stamp: u64, len: usize, awaited: bool, fill: impl FnOnce(Room<'_>)) -> (u64, Arrival) {
        Node::arrive(self, stamp, len, awaited, fill)
    }

    #[inline(always)]
    fn with_data<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R {
        Node::with_data(self, number, member, len, body)
    }

    #[inline(always)]
    fn packed(&self, number: u64, len: usize, awaited: Awaited) -> Packed {
        Node::packed(self, number, len, awaited)
    }

    #[inline(always)]
    fn stamp(&self, number: u64, member: u32) -> u64 {
        Node::stamp(self, number, member)
    }
}
