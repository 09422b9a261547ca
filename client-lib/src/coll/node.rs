//! Collectives among processes of one node, over memory that they share.
//!
//! Every operation is one step for everybody: a member *arrives* at it, leaving what it has to say in its slot, and waits
//! for what it needs: one other member, or all. Nothing is sent, matched or scheduled.
//!
//! ```text
//!  head:    | broken | sleepers | round 0 | … | round 3 |     lines of 128 bytes
//!  round:   | arrivals: u64 |  | done: u64 | verdict: u64 | result: 48 bytes |
//!  marks:   | member 0: 0 1 2 3 | member 1: 0 1 2 3 | …       64 bytes each
//!  mark:    | number + 1: u64 | stamp: u64 | data: 48 bytes |
//!  slots:   | member 0: 0 1 2 3 | … | results: 0 1 2 3 |      each as long as the longest data
//! ```
//!
//! Operation k uses the marks, slots and round k modulo 4. Who arrives at k + 1 has read all that it wanted of k, so when all
//! have arrived at k - 3 the memory of k - 4 is free: that is what an operation waits for before it begins, and it is seldom a
//! wait. Data of up to 48 bytes travel in the line that tells of them.
//!
//! Two members look at each other's marks: one line from core to core. More of them are *counted*: each adds one to `arrivals`, the
//! last one computes what is to be computed and says `done`, and everybody waits for that one line. So the work of an
//! operation is little however many members share a core, and most of them run once.
//!
//! A member about to sleep adds itself to `sleepers` and looks again; who has told something that others wait for looks at
//! `sleepers` afterwards, with a full barrier in between on both sides, and rings for all of them at once.
//!
//! Blocks longer than a slot go in pieces, an operation each; the longest are read out of the memory of who has them ([`Pull`]).
//!
//! Lengths are never taken from the memory: members that disagree are told by the stamps, and one that writes garbage garbles
//! results but reaches nothing else.

#![expect(unsafe_code, reason = "slots are written and read through pointers; the protocol says by whom")]

mod area;
mod handover;
#[cfg(test)]
mod models;
mod pull;
mod sharing;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod work;

pub use area::{Area, Shape};
pub use handover::{Guest, Host};
pub use pull::Pull;
pub use sharing::{Near, Permit, Shared};
pub use work::{Way, Work, way};

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::shared_memory::sync::{AtomicU32, AtomicU64, Line, Ordering, UnsafeCell, fence};

/// How many operations can be in the memory at a time.
#[cfg(not(loom))]
pub(super) const DEPTH: u64 = 4;
#[cfg(loom)]
pub(super) const DEPTH: u64 = 2;

/// So much data fits beside the number that tells of it.
pub(super) const SMALL: usize = 48;

#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    /// Rank + 1 of a member that has died.
    broken: Line<AtomicU32>,
    sleepers: Line<AtomicU32>,
    rounds: [Round; DEPTH as usize],
}

#[derive(Debug)]
#[repr(C)]
struct Round {
    arrivals: Line<AtomicU64>,
    done: Line<Done>,
}

#[derive(Debug)]
#[repr(C)]
struct Done {
    /// Number of the last operation at which all have arrived, + 1.
    number: AtomicU64,
    /// Rank + 1 of a member that has called something else.
    verdict: AtomicU64,
    result: UnsafeCell<[u8; SMALL]>,
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Mark {
    number: AtomicU64,
    stamp: AtomicU64,
    data: UnsafeCell<[u8; SMALL]>,
}

/// One member's view.
pub struct Node {
    area: Area,
    rank: u32,
    /// The number of the operation that this member arrives at next.
    next: u64,
    /// All have arrived at the operations before this one, as far as is known here.
    known: u64,
    /// Rings for all who sleep.
    ring: Box<dyn Fn() + Send>,
    /// Whether members read each other's memory, which all of them know.
    pulls: bool,
    /// This process's number, and by which the others see that it is the one whose memory they read.
    pid: u32,
    word: Box<u64>,
    /// Process numbers that were found to be those of the members; 0 if not looked at yet.
    checked: Box<[i32]>,
}

/// What an arrival leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Wait for what is needed.
    Wait,
    /// This member is the last one that is counted: it computes and then says [`Node::finish`].
    Last,
}

impl Node {
    /// The view of the member with this rank; `ring` wakes all members that sleep. They read each other's memory if
    /// [`Node::pull`] says so.
    pub fn new(area: Area, rank: u32, ring: Box<dyn Fn() + Send>) -> Self {
        let word = RandomState::new().build_hasher().finish();
        let checked = vec![0; area.shape().members as usize];
        let (pid, word) = (std::process::id(), Box::new(word));
        Self { area, rank, next: 0, known: 0, ring, pulls: false, pid, word, checked: checked.into() }
    }

    /// Whether members read each other's memory: all have to say the same.
    pub fn pull(&mut self, pulls: bool) {
        self.pulls = pulls;
    }

    /// Whether they do.
    pub fn pulls(&self) -> bool {
        self.pulls
    }

    /// How many members.
    pub fn size(&self) -> u32 {
        self.area.shape().members
    }

    /// So much data one member can say at once.
    pub fn room(&self) -> usize {
        self.area.shape().slot
    }

    /// Whether arrivals are counted, and the last one computes.
    #[inline]
    fn is_counted(&self) -> bool {
        self.size() > 2
    }

    #[inline]
    fn mark(&self, number: u64, member: u32) -> &Mark {
        &self.area.marks()[(u64::from(member) * DEPTH + number % DEPTH) as usize]
    }

    #[inline]
    fn round(&self, number: u64) -> &Round {
        &self.area.head().rounds[(number % DEPTH) as usize]
    }

    /// Whether the memory for the next operation is free.
    #[inline]
    fn has_room(&mut self) -> bool {
        self.next < DEPTH || self.all_arrived(self.next - DEPTH + 1)
    }

    /// Whether all have arrived at an operation, and what is to be computed there is.
    #[inline]
    fn all_arrived(&mut self, number: u64) -> bool {
        if self.known > number {
            return true;
        }
        let all = if self.is_counted() {
            self.round(number).done.0.number.load(Ordering::Acquire) > number
        } else {
            (0..self.size()).all(|member| member == self.rank || self.has_arrived(number, member))
        };
        if all {
            self.known = number + 1;
        }
        all
    }

    /// Whether a member has arrived at an operation.
    #[inline]
    fn has_arrived(&self, number: u64, member: u32) -> bool {
        self.mark(number, member).number.load(Ordering::Acquire) > number
    }

    /// Arrives at the next operation, for which there is room, with `len` bytes of data that `fill` writes. `stamp` says what
    /// is called. Somebody may wait for this member alone if it is `awaited`.
    #[inline]
    fn arrive(&mut self, stamp: u64, len: usize, awaited: bool, fill: impl FnOnce(&mut [u8])) -> (u64, Arrival) {
        let number = self.next;
        self.next += 1;
        let mark = self.mark(number, self.rank);
        if len > 0 {
            // SAFETY: a member's own mark and slot are nobody else's between `has_room` and the number.
            self.with_data_mut(number, self.rank, len, |data| fill(unsafe { &mut *data }));
        }
        mark.stamp.store(stamp, Ordering::Relaxed);
        mark.number.store(number + 1, Ordering::Release);
        if !self.is_counted() {
            self.wake();
            return (number, Arrival::Wait);
        }
        if awaited {
            self.wake();
        }
        let members = u64::from(self.size());
        let before = self.round(number).arrivals.0.fetch_add(1, Ordering::AcqRel);
        let last = before + 1 == members.wrapping_mul(number / DEPTH + 1);
        (number, if last { Arrival::Last } else { Arrival::Wait })
    }

    /// The last one has computed what was to be computed.
    #[inline]
    fn finish(&mut self, number: u64, verdict: u64) {
        let done = &self.round(number).done.0;
        done.verdict.store(verdict, Ordering::Relaxed);
        done.number.store(number + 1, Ordering::Release);
        self.known = number + 1;
        self.wake();
    }

    /// Rank + 1 of a member that has called something else, as the last one has found; 0 if there is none.
    fn verdict(&self, number: u64) -> u64 {
        self.round(number).done.0.verdict.load(Ordering::Relaxed)
    }

    /// What a member has called.
    #[inline]
    fn stamp(&self, number: u64, member: u32) -> u64 {
        self.mark(number, member).stamp.load(Ordering::Relaxed)
    }

    /// What a member has left at an operation that it has arrived at: `len` bytes, at most the room of a slot.
    #[inline]
    fn with_data<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            return self.mark(number, member).data.with(|data| body(std::ptr::slice_from_raw_parts(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts(self.area.slot(member, number % DEPTH), len))
    }

    #[inline]
    fn with_data_mut<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*mut [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            let data = &self.mark(number, member).data;
            return data.with_mut(|data| body(std::ptr::slice_from_raw_parts_mut(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts_mut(self.area.slot(member, number % DEPTH), len))
    }

    /// The result of an operation: the last one writes it before [`Node::finish`], the others read it once all have arrived.
    #[inline]
    fn with_result<R>(&self, number: u64, len: usize, body: impl FnOnce(*mut [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            let result = &self.round(number).done.0.result;
            return result.with_mut(|data| body(std::ptr::slice_from_raw_parts_mut(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts_mut(self.area.slot(self.size(), number % DEPTH), len))
    }

    /// As [`Node::with_result`], to read.
    #[inline]
    fn with_result_of<R>(&self, number: u64, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            let result = &self.round(number).done.0.result;
            return result.with(|data| body(std::ptr::slice_from_raw_parts(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts(self.area.slot(self.size(), number % DEPTH), len))
    }

    /// After telling something: wakes those that sleep.
    #[inline]
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.area.head().sleepers.0.load(Ordering::Relaxed) != 0 {
            (self.ring)();
        }
    }

    /// Before a sleep, after which everything that is waited for has to be looked at once more; and after it.
    pub fn announce_sleep(&self, asleep: bool) {
        let sleepers = &self.area.head().sleepers.0;
        if asleep {
            sleepers.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        } else {
            sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A member has died: nothing more comes of this memory.
    pub fn declare_broken(&self, rank: u32) {
        self.area.head().broken.0.store(rank.wrapping_add(1), Ordering::Release);
        (self.ring)();
    }

    /// The member that has died.
    #[inline]
    pub fn broken(&self) -> Option<u32> {
        self.area.head().broken.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("rank", &self.rank).field("next", &self.next).finish_non_exhaustive()
    }
}
