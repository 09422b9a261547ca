//! The sender's pool of cells: memory in its own segment for payloads that do not fit a slot.
//!
//! The receiver copies straight out of the cell and then gives it back by its state. The sender looks there only when it has
//! no free cell left, so a cell rests in the receiver's cache no longer than one round through the pool.

use std::collections::VecDeque;

use super::segment::{Geometry, LARGE, SMALL, Segment};
use super::sync::{AtomicU32, Ordering, fence_after_rmw};

/// States of a cell.
const FREE: u32 = 0;
const BUSY: u32 = 1;
/// As busy, and the sender may sleep until it is given back.
const AWAITED: u32 = 2;

/// Gives a peer's cell back; whether its owner waits for that.
#[inline]
pub(super) fn give_back(state: &AtomicU32) -> bool {
    let before = state.swap(FREE, Ordering::AcqRel);
    fence_after_rmw(); // the state before the owner's `asleep`
    before == AWAITED
}

/// The cells of one's own segment.
#[derive(Debug)]
pub(super) struct Pool {
    small: Class,
    large: Class,
}

#[derive(Debug)]
struct Class {
    free: VecDeque<u32>,
    /// With the link that each was sent over, oldest first.
    busy: VecDeque<(u32, u16)>,
    /// Somebody has asked in vain.
    starved: bool,
}

impl Pool {
    pub(super) fn new(geometry: Geometry) -> Self {
        let class = |range: std::ops::Range<u32>| Class {
            busy: VecDeque::with_capacity(range.len()),
            free: range.collect(),
            starved: false,
        };
        let small = geometry.small;
        Self { small: class(0..small), large: class(small..small + geometry.large) }
    }

    /// A cell for `len` bytes on their way over a link. If there is none, all that are out are marked so that whoever gives
    /// one back rings.
    #[inline]
    pub(super) fn take(&mut self, segment: &Segment, len: usize, link: u16) -> Option<u32> {
        let class = match len {
            0..=SMALL => &mut self.small,
            _ if len <= LARGE => &mut self.large,
            _ => return None,
        };
        if class.free.is_empty() && !class.collect(segment) {
            class.await_all(segment);
            return None;
        }
        let cell = class.free.pop_front()?;
        segment.cell_state(cell)?.store(BUSY, Ordering::Relaxed);
        class.busy.push_back((cell, link));
        Some(cell)
    }

    /// The cell that was taken last has not been sent after all.
    pub(super) fn undo(&mut self, cell: u32) {
        for class in [&mut self.small, &mut self.large] {
            if class.busy.back().is_some_and(|(last, _)| *last == cell) {
                class.busy.pop_back();
                class.free.push_front(cell);
            }
        }
    }

    /// Whether a `take` that was refused would succeed now.
    pub(super) fn has_refilled(&mut self, segment: &Segment) -> bool {
        let [small, large] = [&mut self.small, &mut self.large].map(|class| class.starved && class.collect(segment));
        small || large
    }

    /// The peer will give nothing back any more.
    pub(super) fn reclaim(&mut self, gone: u16) {
        for class in [&mut self.small, &mut self.large] {
            let Class { free, busy, .. } = class;
            busy.retain(|(cell, link)| {
                if *link == gone {
                    free.push_back(*cell);
                }
                *link != gone
            });
        }
    }
}

impl Class {
    /// Fetches what has been given back; whether there was any.
    fn collect(&mut self, segment: &Segment) -> bool {
        while let Some((cell, _)) = self.busy.front().filter(|(cell, _)| is_free(segment, *cell)) {
            self.free.push_back(*cell);
            self.busy.pop_front();
        }
        if self.free.is_empty() {
            // The oldest is still out: one slow receiver does not keep the others' cells.
            let Self { free, busy, .. } = self;
            busy.retain(|(cell, _)| {
                let back = is_free(segment, *cell);
                if back {
                    free.push_back(*cell);
                }
                !back
            });
        }
        self.starved &= self.free.is_empty();
        !self.free.is_empty()
    }

    #[cold]
    fn await_all(&mut self, segment: &Segment) {
        self.starved = true;
        for state in self.busy.iter().filter_map(|(cell, _)| segment.cell_state(*cell)) {
            let _ = state.compare_exchange(BUSY, AWAITED, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[inline]
fn is_free(segment: &Segment, cell: u32) -> bool {
    segment.cell_state(cell).is_some_and(|state| state.load(Ordering::Acquire) == FREE)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_when_they_are_given_back_or_their_receiver_is_gone() {
        let geometry = Geometry { slots: 2, small: 3, large: 1 };
        let (segment, _) = Segment::create(geometry).unwrap();
        let mut pool = Pool::new(geometry);
        assert_eq!([0, 1, 2].map(|link| pool.take(&segment, 100, link)), [Some(0), Some(1), Some(2)]);
        assert_eq!(pool.take(&segment, 100, 0), None);
        assert_eq!(pool.take(&segment, LARGE, 0), Some(3));
        assert_eq!(pool.take(&segment, LARGE + 1, 0), None);
        assert!(!pool.has_refilled(&segment));
        // The refusal has asked to be told.
        assert!(give_back(segment.cell_state(1).unwrap()));
        assert!(pool.has_refilled(&segment));
        assert!(!pool.has_refilled(&segment));
        assert_eq!(pool.take(&segment, SMALL, 0), Some(1));
        assert!(!give_back(segment.cell_state(1).unwrap()));
        pool.reclaim(2);
        assert_eq!(pool.take(&segment, 1, 0), Some(2));
        pool.undo(2);
        assert_eq!(pool.take(&segment, 1, 0), Some(2));
        assert_eq!(pool.take(&segment, 1, 0), Some(1));
        assert_eq!(pool.take(&segment, 1, 0), None);
    }
}
