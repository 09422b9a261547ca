//! The sender's pool of cells: memory in its own segment for payloads that do not fit a slot.
//!
//! The receiver copies directly from the cell and then frees it by setting its state. Once all cells are in use, the sender
//! checks the states only when it has no free cell left for a peer, so a cell stays in the receiver's cache for at most one round through the pool.
//!
//! The memory of a cell costs nothing before the cell is used, and the first use costs several times as much as any later one (the kernel finds
//! and clears pages, for both sides). So cells that were used before are used again first. Others join one in eight short messages; and longer
//! ones while other messages are on their way, if sender and receivers have cores of their own ([`Class::next_while_fresh`]). So the memory of most large
//! cells is not needed in processes that send one longer message at a time, or share their cores. Once one has joined, all others will: the
//! kernel finds the memory of all at once, so that one message is late for it and not one for each cell.
//!
//! A peer gets another cell only while it has fewer than are free: a peer that receives nothing holds half of the pool at most, n such
//! peers n/(n+1) of it, and there is always a cell for one that receives (Choudhury and Hahne, dynamic queue length thresholds).

use std::collections::VecDeque;

use super::choice::Way;
use super::geometry::{CellHead, Geometry, LARGE, SMALL};
use super::segment::Segment;
use crate::hint;
use crate::shared_memory::sync::{Ordering, fence_after_rmw};

/// States of a cell.
pub(super) const FREE: u32 = 0;
pub(super) const BUSY: u32 = 1;
/// As busy, and the sender may sleep until the cell is freed.
const AWAITED: u32 = 2;

/// Frees a peer's cell; returns whether its owner waits for that.
#[inline]
pub(super) fn give_back(cell: &CellHead, spent: Option<u64>) -> bool {
    if let Some(ticks) = spent {
        cell.spent.store(u32::try_from(ticks).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
    let before = cell.state.swap(FREE, Ordering::AcqRel);
    fence_after_rmw(); // the state before the owner's `asleep`
    before == AWAITED
}

/// The cells of the process's own segment.
#[derive(Debug)]
pub(super) struct Pool {
    small: Class,
    large: Class,
    /// The number of the first large cell.
    first_large: u32,
    /// How many bytes of each large cell were filled so far.
    filled: Vec<usize>,
    /// Whether the process shares its core with peers, so that it gains nothing by having many cells in use at a time.
    is_crowded: bool,
    /// The costs of timed cells for both sides, and the link of each.
    pub(super) costs: Vec<(u16, Timed)>,
}

#[derive(Debug)]
struct Class {
    /// Those that were taken before, oldest first.
    free: VecDeque<u32>,
    /// Those that were not.
    fresh: std::ops::Range<u32>,
    /// Of so many cells taken, one is fresh although others are free: with more cells, their states are read less often, and together. 0 for none.
    grows_every: u32,
    /// How many were taken since one was fresh.
    taken: u32,
    /// Whether the first one has just joined although others were free, and whether one has.
    joins: bool,
    have_joined: bool,
    /// Oldest first.
    busy: VecDeque<Trip>,
    /// `held[link]`: how many cells are busy for it.
    held: Vec<u32>,
    /// The links whose last request for a cell was refused.
    refused: Vec<u16>,
    /// How many requests for a cell were refused since the last one succeeded.
    refusals: u32,
}

/// A cell in use.
#[derive(Debug)]
struct Trip {
    cell: u32,
    link: u16,
    timed: Option<Timed>,
    /// It stays taken until the sender has redeemed the loan, although the receiver may have freed it.
    is_lent: bool,
}

/// The sender's cost of filling a cell; the receiver adds its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timed {
    /// Whether it is compared with an offer, or with the other way to fill a cell.
    pub(super) is_whole: bool,
    pub(super) way: Way,
    pub(super) len: usize,
    pub(super) ticks: u64,
}

/// The cost that decides how cells are filled, in ticks. A cell that was filled past the caches must be fetched from memory to fill it through
/// them, so a single try of that never looks as good as it would be: past the caches must cost a fifth less.
pub(super) fn weighed(timed: &Timed) -> u64 {
    match timed.way {
        Way::First => timed.ticks,
        Way::Second => timed.ticks.saturating_add(timed.ticks / 4),
    }
}

/// See [`Class::grows_every`].
const GROWS_EVERY: u32 = 8;

/// Bytes of a cell that are prefetched: no more than a core can have in flight at once.
const FETCHED: usize = 1024;
const LINE: usize = 64;

/// After this many refusals, all cells are checked and not only the oldest.
const LOOK_AT_ALL_EVERY: u32 = 64;

impl Pool {
    pub(super) fn new(geometry: Geometry) -> Self {
        let class = |range: std::ops::Range<u32>, grows_every| Class {
            busy: VecDeque::with_capacity(range.len()),
            free: VecDeque::with_capacity(range.len()),
            fresh: range,
            grows_every,
            taken: 0,
            joins: false,
            have_joined: false,
            held: Vec::new(),
            refused: Vec::new(),
            refusals: 0,
        };
        let Geometry { small, large, .. } = geometry;
        Self {
            small: class(0..small, GROWS_EVERY),
            large: class(small..small + large, 0),
            first_large: small,
            filled: vec![0; large as usize],
            is_crowded: false,
            costs: Vec::new(),
        }
    }

    /// Says whether the process shares its core with peers.
    pub(super) fn set_crowded(&mut self, is_crowded: bool) {
        self.is_crowded = is_crowded;
    }

    /// Takes a cell for `len` bytes to be sent over a link, if there is one.
    #[inline]
    pub(super) fn take(&mut self, segment: &Segment, len: usize, link: u16) -> Option<u32> {
        let class = match len {
            0..=SMALL => &mut self.small,
            _ if len <= LARGE => &mut self.large,
            _ => return None,
        };
        if !class.admits(link) && !class.refill(segment, &mut self.costs, link) {
            return None;
        }
        let cell = class.next(segment, &mut self.costs, self.is_crowded)?;
        segment.cell_head(cell)?.state.store(BUSY, Ordering::Relaxed);
        class.busy.push_back(Trip { cell, link, timed: None, is_lent: false });
        *class.held_by(link) += 1;
        if std::mem::take(&mut class.joins) {
            let fresh = cell..class.fresh.end;
            self.populate(segment, fresh);
        }
        Some(cell)
    }

    /// Prefetches the small cell that will be taken next, as far as another message of `len` bytes would fill it: its
    /// lines are in the cache of its last receiver.
    #[inline]
    pub(super) fn fetch_next(&self, segment: &Segment, len: usize) {
        // Nothing is to be had of a fresh one, whose memory is not there yet.
        let Some(&cell) = self.small.free.front() else { return };
        let (Some(head), Some(data)) = (segment.cell_head(cell), segment.cell_room(cell, len.min(FETCHED))) else {
            return;
        };
        hint::writing(head);
        for at in (0..data.len()).step_by(LINE) {
            hint::writing(data.start().wrapping_add(at));
        }
    }

    /// Has the kernel find the memory of cells that were not used yet.
    #[cold]
    fn populate(&mut self, segment: &Segment, fresh: std::ops::Range<u32>) {
        if segment.populate(fresh.clone()) {
            let large = fresh.filter_map(|cell| cell.checked_sub(self.first_large));
            large.for_each(|large| self.filled[large as usize] = LARGE);
        }
    }

    /// Counts so much of a large cell as filled; returns whether it was before. If not, most of what it costs to fill it is the kernel's first look
    /// at its memory.
    pub(super) fn was_filled(&mut self, cell: u32, len: usize) -> bool {
        let large = cell.checked_sub(self.first_large);
        let Some(filled) = large.and_then(|large| self.filled.get_mut(large as usize)) else { return false };
        let before = *filled;
        *filled = before.max(len);
        before >= len
    }

    /// Collects the oldest large cells if they are free, and what the timed ones have cost.
    pub(super) fn collect(&mut self, segment: &Segment) {
        self.large.take_back(segment, &mut self.costs);
    }

    /// Marks the most recently taken cell as timed.
    pub(super) fn time(&mut self, cell: u32, timed: Timed) {
        for class in [&mut self.small, &mut self.large] {
            if let Some(trip) = class.busy.back_mut().filter(|trip| trip.cell == cell) {
                trip.timed = Some(timed);
            }
        }
    }

    /// Sets whether a cell is lent.
    pub(super) fn set_lent(&mut self, cell: u32, is_lent: bool) {
        // Messages that are lent do not fit small cells.
        if let Some(trip) = self.large.busy.iter_mut().rev().find(|trip| trip.cell == cell) {
            trip.is_lent = is_lent;
        }
    }

    /// Returns the most recently taken cell, which was not sent.
    pub(super) fn undo(&mut self, cell: u32) {
        for class in [&mut self.small, &mut self.large] {
            if class.busy.back().is_some_and(|last| last.cell == cell) {
                class.busy.pop_back().iter().for_each(|trip| *class.held_by(trip.link) -= 1);
                class.free.push_front(cell);
            }
        }
    }

    /// Returns whether a `take` that was refused would succeed now. If not, the process that frees a cell will ring the
    /// doorbell.
    pub(super) fn await_refill(&mut self, segment: &Segment) -> bool {
        let Self { small, large, costs, .. } = self;
        let [small, large] =
            [small, large].map(|class| !class.refused.is_empty() && class.await_refill(segment, costs));
        small || large
    }

    /// Reclaims the cells of a peer that will free nothing any more.
    pub(super) fn reclaim(&mut self, gone: u16) {
        for class in [&mut self.small, &mut self.large] {
            let Class { free, busy, .. } = class;
            busy.retain(|trip| {
                if trip.link == gone {
                    free.push_back(trip.cell);
                }
                trip.link != gone
            });
            *class.held_by(gone) = 0;
            class.refused.retain(|link| *link != gone);
        }
    }
}

impl Class {
    /// Whether a link may have one more cell, as far as is known.
    #[inline]
    fn admits(&self, link: u16) -> bool {
        (self.held.get(link as usize).copied().unwrap_or(0) as usize) < self.free.len() + self.fresh.len()
    }

    /// The cell to use next.
    #[inline]
    fn next(&mut self, segment: &Segment, costs: &mut Vec<(u16, Timed)>, is_crowded: bool) -> Option<u32> {
        if self.fresh.is_empty() { self.free.pop_front() } else { self.next_while_fresh(segment, costs, is_crowded) }
    }

    fn next_while_fresh(&mut self, segment: &Segment, costs: &mut Vec<(u16, Timed)>, is_crowded: bool) -> Option<u32> {
        self.taken += 1;
        self.take_back(segment, costs);
        // Messages in a row between two cores were measured to take up to twice as long with the few cells that suffice as with all: most likely
        // because a cell that was read just now is still in the other core's cache.
        let are_many = !is_crowded && !self.busy.is_empty();
        let grows = are_many || (self.grows_every > 0 && self.taken >= self.grows_every);
        if !grows && self.free.is_empty() {
            // One slow receiver must not make the messages to others take a fresh cell each.
            self.look_at_all(segment, costs);
        }
        match self.free.pop_front_if(|_| !grows) {
            Some(cell) => Some(cell),
            None => {
                self.taken = 0;
                self.joins = grows && !self.have_joined;
                self.have_joined |= grows;
                self.fresh.next()
            }
        }
    }

    #[inline]
    fn held_by(&mut self, link: u16) -> &mut u32 {
        let at = link as usize;
        if at >= self.held.len() {
            self.held.resize(at + 1, 0);
        }
        &mut self.held[at]
    }

    /// Takes back the oldest cells, up to the first that is not free.
    fn take_back(&mut self, segment: &Segment, costs: &mut Vec<(u16, Timed)>) {
        while let Some(trip) = self.busy.pop_front() {
            if !is_free(segment, &trip, costs) {
                self.busy.push_front(trip);
                break;
            }
            self.free.push_back(trip.cell);
            *self.held_by(trip.link) -= 1;
        }
    }

    /// Collects the cells that were freed; returns whether the link may have one now.
    fn refill(&mut self, segment: &Segment, costs: &mut Vec<(u16, Timed)>, link: u16) -> bool {
        self.take_back(segment, costs);
        if self.admits(link) {
            self.refusals = 0;
            self.refused.retain(|refused| *refused != link);
            return true;
        }
        // The oldest cell is still in use, but one slow receiver must not block the cells of others.
        self.refusals += 1;
        if self.refusals % LOOK_AT_ALL_EVERY == 1 {
            self.look_at_all(segment, costs);
            if self.admits(link) {
                self.refused.retain(|refused| *refused != link);
                return true;
            }
        }
        if !self.refused.contains(&link) {
            self.refused.push(link);
        }
        false
    }

    fn look_at_all(&mut self, segment: &Segment, costs: &mut Vec<(u16, Timed)>) {
        let Self { free, busy, held, .. } = self;
        let before = free.len();
        busy.retain(|trip| {
            let back = is_free(segment, trip, costs);
            if back {
                free.push_back(trip.cell);
                held[trip.link as usize] -= 1;
            }
            !back
        });
        if free.len() > before {
            self.refusals = 0;
        }
    }

    fn await_refill(&mut self, segment: &Segment, costs: &mut Vec<(u16, Timed)>) -> bool {
        for head in self.busy.iter().filter_map(|trip| segment.cell_head(trip.cell)) {
            // A cell that was freed in the meantime stays free.
            let _ = head.state.compare_exchange(BUSY, AWAITED, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.look_at_all(segment, costs);
        // A link is reported once: its next request is admitted, or refused again.
        let refused = std::mem::take(&mut self.refused);
        let before = refused.len();
        self.refused = refused.into_iter().filter(|link| !self.admits(*link)).collect();
        self.refused.len() < before
    }
}

#[inline]
fn is_free(segment: &Segment, trip: &Trip, costs: &mut Vec<(u16, Timed)>) -> bool {
    if trip.is_lent {
        return false;
    }
    let Some(head) = segment.cell_head(trip.cell).filter(|head| head.state.load(Ordering::Acquire) == FREE) else {
        return false;
    };
    if let Some(timed) = trip.timed {
        let ticks = timed.ticks.saturating_add(u64::from(head.spent.load(Ordering::Relaxed)));
        costs.push((trip.link, Timed { ticks, ..timed }));
    }
    true
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_receiver_that_takes_nothing_leaves_cells_for_others() {
        let geometry = Geometry { slots: 2, small: 64, large: 64 };
        let (segment, _) = Segment::create(geometry).unwrap();
        let mut pool = Pool::new(geometry);
        let mut most = |link| std::iter::from_fn(|| pool.take(&segment, 100, link)).count();
        assert_eq!([0, 1, 2, 3].map(&mut most), [32, 16, 8, 4]);
        assert_eq!(most(0), 0);
        assert!(!pool.await_refill(&segment), "all that were refused would be refused again");
        // Then 5 are free, and link 3 has 4 of its own.
        give_back(segment.cell_head(40).unwrap(), None);
        assert!(pool.await_refill(&segment));
        assert!(pool.take(&segment, 100, 3).is_some() && pool.take(&segment, 100, 0).is_none());
    }

    #[test]
    fn large_cells_join_while_messages_are_on_their_way_and_small_ones_one_by_one() {
        let geometry = Geometry { slots: 2, small: 64, large: 64 };
        let (segment, _) = Segment::create(geometry).unwrap();
        let mut pool = Pool::new(geometry);
        let mut used = |len: usize, turns: u32, at_a_time: u32| {
            let mut used = HashSet::new();
            for _ in 0..turns {
                let cells: Vec<u32> = (0..at_a_time).map(|_| pool.take(&segment, len, 0).unwrap()).collect();
                cells.iter().for_each(|cell| _ = give_back(segment.cell_head(*cell).unwrap(), None));
                used.extend(cells);
            }
            used.len() as u32
        };
        assert_eq!(used(LARGE, 1000, 1), 1);
        assert_eq!(used(SMALL, 80, 1), 1 + 79 / GROWS_EVERY, "short messages soon have all, in turn");
        assert_eq!(used(SMALL, 1000, 1), 64);
        assert_eq!(used(LARGE, 40, 2), 40 + 1, "the second message of each turn is on its way beside the first one");
        assert_eq!(used(LARGE, 1000, 2), 64);
        let mut pool = Pool::new(geometry);
        pool.set_crowded(true);
        for _ in 0..100 {
            let cells = [(); 5].map(|()| pool.take(&segment, LARGE, 0).unwrap());
            assert!(cells.iter().all(|cell| *cell < 64 + 5), "no more than are on their way: {cells:?}");
            cells.iter().for_each(|cell| _ = give_back(segment.cell_head(*cell).unwrap(), None));
        }
        // The oldest one is not freed: the others are used again nevertheless.
        let stuck = pool.take(&segment, LARGE, 1).unwrap();
        for _ in 0..100 {
            let cell = pool.take(&segment, LARGE, 0).unwrap();
            assert!(cell != stuck && cell < 64 + 5, "{cell}");
            give_back(segment.cell_head(cell).unwrap(), None);
        }
    }

    #[test]
    fn the_memory_of_all_cells_is_found_when_the_first_one_joins() {
        let geometry = Geometry { slots: 2, small: 64, large: 64 };
        let new = || (Segment::create(geometry).unwrap(), Pool::new(geometry));
        let kib = |fd: &std::os::fd::OwnedFd| nix::sys::stat::fstat(fd).unwrap().st_blocks / 2;
        let ((segment, fd), mut pool) = new();
        let send = |pool: &mut Pool, len: usize, at_a_time: usize| {
            let cells: Vec<u32> = (0..at_a_time).map(|_| pool.take(&segment, len, 0).unwrap()).collect();
            cells.iter().for_each(|cell| _ = give_back(segment.cell_head(*cell).unwrap(), None));
        };
        (0..GROWS_EVERY - 1).for_each(|_| send(&mut pool, SMALL, 1));
        (0..100).for_each(|_| send(&mut pool, LARGE, 1));
        assert!(kib(&fd) <= 12, "the heads of two cells: {}", kib(&fd));
        (0..2).for_each(|_| send(&mut pool, SMALL, 1));
        let old_kernel = !segment.populate(0..1);
        assert!(old_kernel || (256..=272).contains(&kib(&fd)), "{}", kib(&fd));
        assert!(!pool.was_filled(64 + 1, 1), "large ones were not");
        send(&mut pool, LARGE, 2);
        assert!(old_kernel || kib(&fd) >= 2048 + 256 - 32, "{}", kib(&fd));
        assert_eq!(pool.was_filled(64 + 63, LARGE), !old_kernel);
        // Where processes share cores, no more large ones are needed than are on their way.
        let ((segment, fd), mut pool) = new();
        pool.set_crowded(true);
        (0..9).for_each(|_| _ = pool.take(&segment, LARGE, 0));
        assert!(kib(&fd) <= 9 * 4, "{}", kib(&fd));
    }

    #[test]
    fn it_is_known_how_far_a_large_cell_was_filled() {
        let mut pool = Pool::new(Geometry { slots: 2, small: 3, large: 2 });
        assert!(!pool.was_filled(3, 8192));
        assert!(pool.was_filled(3, 5000) && pool.was_filled(3, 8192));
        assert!(!pool.was_filled(3, 8193) && pool.was_filled(3, 8193));
        assert!(!pool.was_filled(4, 8192), "another one");
        assert!(!pool.was_filled(2, 1) && !pool.was_filled(2, 1), "short ones are not counted");
    }

    #[test]
    fn a_lent_cell_is_not_taken_again_before_its_sender_has_looked_at_it() {
        let geometry = Geometry { slots: 2, small: 1, large: 2 };
        let (segment, _) = Segment::create(geometry).unwrap();
        let mut pool = Pool::new(geometry);
        let lent = pool.take(&segment, LARGE, 0).unwrap();
        pool.set_lent(lent, true);
        give_back(segment.cell_head(lent).unwrap(), None);
        let other = pool.take(&segment, LARGE, 1).unwrap();
        assert_ne!(other, lent);
        for _ in 0..2 * LOOK_AT_ALL_EVERY {
            assert_eq!(pool.take(&segment, LARGE, 2), None);
        }
        assert!(!pool.await_refill(&segment));
        pool.set_lent(lent, false);
        assert!(pool.await_refill(&segment));
        assert_eq!(pool.take(&segment, LARGE, 2), Some(lent));
    }

    #[test]
    fn cells_return_when_they_are_freed_or_their_receiver_is_gone() {
        let geometry = Geometry { slots: 2, small: 3, large: 1 };
        let (segment, _) = Segment::create(geometry).unwrap();
        let mut pool = Pool::new(geometry);
        assert_eq!([0, 1, 2].map(|link| pool.take(&segment, 100, link)), [Some(0), Some(1), Some(2)]);
        assert_eq!(pool.take(&segment, 100, 7), None);
        assert_eq!(pool.take(&segment, LARGE, 0), Some(3));
        assert_eq!(pool.take(&segment, LARGE + 1, 0), None);
        assert!(!pool.await_refill(&segment));
        assert!(give_back(segment.cell_head(1).unwrap(), None));
        assert!(pool.await_refill(&segment));
        assert!(!pool.await_refill(&segment));
        assert_eq!(pool.take(&segment, SMALL, 7), Some(1));
        assert!(!give_back(segment.cell_head(1).unwrap(), None));
        pool.reclaim(2);
        assert_eq!(pool.take(&segment, 1, 8), Some(2));
        pool.undo(2);
        assert_eq!(pool.take(&segment, 1, 5), Some(2));
        pool.time(2, Timed { is_whole: false, way: Way::Second, len: 1, ticks: 100 });
        assert_eq!(pool.take(&segment, 1, 8), Some(1));
        assert_eq!(pool.take(&segment, 1, 9), None);
        assert!(pool.costs.is_empty());
        give_back(segment.cell_head(2).unwrap(), Some(23));
        assert!(pool.await_refill(&segment));
        let (link, timed) = pool.costs[0];
        assert_eq!((link, timed.way, timed.ticks), (5, Way::Second, 123));
    }
}
