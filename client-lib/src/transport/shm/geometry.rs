//! The places of slots and cells in a segment (drawn in [`super::segment`]).

use std::mem::size_of;

use super::ring::{LONGEST, Slot};
use crate::shared_memory::sync::{AtomicU32, AtomicU64};

/// Bytes of data in a small cell.
pub(super) const SMALL: usize = 4096;
/// Bytes of data in a large cell.
pub(super) const LARGE: usize = 32768;

/// Bytes in front of the slots.
pub(super) const HEAD_BYTES: usize = 4096;
pub(super) const CELL_HEAD: usize = size_of::<CellHead>();

/// The numbers of slots and cells. Both sides of a link must have the same numbers, or the link is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// A power of two.
    pub(super) slots: u32,
    pub(super) small: u32,
    pub(super) large: u32,
}

impl Geometry {
    /// Returns the geometry if a segment can have it; `None` if `slots` is not a power of two, too few for a frame, or a number is too large.
    pub(super) fn checked(self) -> Option<Self> {
        let slots = self.slots.is_power_of_two() && (LONGEST as u32..=1 << 20).contains(&self.slots);
        let sound = slots && self.small <= 1 << 16 && self.large <= 1 << 14;
        sound.then_some(self)
    }

    pub(super) fn cells_at(self) -> usize {
        HEAD_BYTES + self.slots as usize * size_of::<Slot>()
    }

    /// The offset of a cell's head, and the size of its data; `None` if there is no such cell.
    #[inline]
    pub(super) fn cell(self, cell: u32) -> Option<(usize, usize)> {
        let small = cell.min(self.small) as usize;
        let base = self.cells_at() + small * (CELL_HEAD + SMALL);
        if cell < self.small {
            return Some((base, SMALL));
        }
        let large = cell - self.small;
        (large < self.large).then(|| (base + large as usize * (CELL_HEAD + LARGE), LARGE))
    }

    pub(super) fn total(self) -> usize {
        self.cells_at() + self.small as usize * (CELL_HEAD + SMALL) + self.large as usize * (CELL_HEAD + LARGE)
    }
}

/// The head of a cell; its data follow.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct CellHead {
    pub(super) state: AtomicU32,
    /// The ticks that the receiver spent on the data, if it was asked to measure.
    pub(super) spent: AtomicU32,
    /// Where a message that is offered lies in its sender's memory ([`super::lend`]).
    pub(super) lent: AtomicU64,
}
