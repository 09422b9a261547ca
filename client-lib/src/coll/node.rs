//! Collectives among processes of one node, over memory that they share.
//!
//! Every operation is one step: a member *arrives* at it, leaves its data in its slot, and waits for what it needs: for
//! one other member, or for all. Nothing is sent, matched or scheduled.
//!
//! ```text
//!  head:    | broken | sleepers | round 0 | … | round 31 | groups 0 | … | groups 31 |     lines of 128 bytes
//!  round:   | arrivals: u64 |  | done: u64 | verdict: u64 | result: 48 bytes |
//!  groups:  | arrivals: u64 |  | told: u64 | signs: u64 | …      a line for each group
//!  marks:   | member 0: 0 1 … 31 | member 1: 0 1 … 31 | …       64 bytes each
//!  mark:    | number + 1: u64 | stamp: u64 | data: 48 bytes |
//!  packs:   | 0 | 1 | … | 31 |                                  16 bytes for each member, if data are packed
//!  notes:   | member 0: 0 1 … 31 | … | results: 0 1 … 31 |      2 KiB each
//!  posts:   of non-blocking operations: see [`Outbox`]
//!  slots:   | member 0: 0 1 2 3 | … | results: 0 1 2 3 |        each as long as the longest data
//! ```
//!
//! Operation k uses the marks, the packs, the notes and the round k modulo 32, and the slots k modulo 4. A member that arrives at k + 1 has read
//! everything that it needed from k. So once all members have arrived at k - 31, the marks of k - 32 are free, and once they have arrived at
//! k - 3, the slots of k - 4. An operation waits for that before it begins; it rarely has to. Data of up to 48 bytes travel in the same line as
//! the mark, those of up to 2 KiB in a note: ranks that share cores can thus be far apart before one has to give its core to another.
//!
//! Two members watch each other's marks: one line from core to core. With more members, arrivals are *counted*: each member
//! adds one to `arrivals` ([`counting`]), the last one computes the result and sets `done`, and all wait for that one line. So an operation
//! takes little work even if many members share a core, and most members run only once. The counters also tell whether all have made the same
//! call; only if not, the last one looks at the stamps. A barrier of members that share cores is ended by the
//! first member instead of the last one to arrive ([`Node::end_barrier`]).
//!
//! A member about to sleep adds itself to `sleepers` and looks again. A member that has published something reads `sleepers`
//! afterwards, with a full barrier in between on both sides, and wakes all sleepers at once.
//!
//! Blocks longer than a slot are sent in pieces, one operation each; the longest are read directly from their owner's memory
//! ([`Pull`]), of two members from 32 KiB on.
//!
//! Lengths are never read from the shared memory: the stamps detect members that disagree, and a member that writes garbage
//! corrupts results but can reach nothing else.

#![expect(
    unsafe_code,
    reason = "slots are written and read through pointers; the protocol defines which member may do so"
)]

mod area;
mod brief;
mod combine;
mod counting;
mod faster;
#[cfg(test)]
#[cfg(not(loom))]
mod growth;
mod handover;
mod mailboxes;
mod meeting;
#[cfg(test)]
mod models;
mod offers;
mod outbox;
mod packing;
mod pull;
mod sharing;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod uneven;
mod way;
mod work;

pub use area::{Area, Shape};
pub use brief::{Block, Brief, Met, PartsBrief, UnevenBrief, VariedBrief, fits};
pub use handover::{Guest, Host};
pub use outbox::{Begun, Outbox};
pub use pull::Pull;
pub use sharing::{Permit, Shared, Sharing};
pub use uneven::{Rest, Uneven, UnevenWork};
pub use way::{Way, way};
pub use work::{Work, refuse};

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use counting::{Counters, Groups, Membership, Prefix, Sign};

use crate::memory::Room;
use crate::shared_memory::sync::{AtomicU32, AtomicU64, Line, Ordering, UnsafeCell, fence, writes};

/// How many operations the memory holds at a time, and how many of them may have data in slots: more of these would not stay in the cache.
#[cfg(not(loom))]
pub(super) const DEPTH: u64 = 32;
#[cfg(not(loom))]
pub(super) const SLOTS: u64 = 4;
/// How many non-blocking operations may be in progress before a member has to wait with its data.
#[cfg(not(loom))]
pub(super) const POSTS: u64 = 16;
#[cfg(loom)]
pub(super) const DEPTH: u64 = 2;
#[cfg(loom)]
pub(super) const POSTS: u64 = 2;
#[cfg(loom)]
pub(super) const SLOTS: u64 = 2;

/// Data of up to this many bytes fit in the mark.
pub(super) const SMALL: usize = 48;
/// The longest block that is packed: a line then has those of four members. To pack blocks twice as long, 32 members make as many moves as that
/// saves.
pub(super) const PACKED: usize = 16;

/// Data of up to this many bytes fit in a note.
pub(super) const NOTE: usize = 2048;

/// The most bytes that a member posts in a non-blocking operation: longer data travel as messages.
pub(super) const LETTER: usize = 32 << 10;

/// Stands for a dead member's rank if the communicator is revoked.
const REVOKED: u32 = u32::MAX - 1;

#[derive(Debug)]
#[repr(C)]
pub(super) struct Head {
    /// Rank + 1 of a member that has died; 0 if none.
    broken: Line<AtomicU32>,
    sleepers: Line<AtomicU32>,
    rounds: [Round; DEPTH as usize],
    groups: [Groups; DEPTH as usize],
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
    /// Number + 1 of the last operation at which all have arrived.
    number: AtomicU64,
    /// Rank + 1 of a member that has called a different function; 0 if none.
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

/// 16 bytes, the longest block that is packed.
pub(super) type Pack = UnsafeCell<[u8; PACKED]>;

/// One member's view of the shared memory.
pub struct Node {
    area: Area,
    rank: u32,
    membership: Membership,
    prefix: Prefix,
    /// The part of a slot for each other member.
    share: usize,
    /// The number of this member's next operation.
    next: u64,
    /// The number of operations at which all members are known to have arrived.
    known: u64,
    /// Wakes all members that sleep.
    ring: Box<dyn Fn() + Send>,
    /// Whether members read each other's memory. All members agree on this.
    pulls: bool,
    /// This process's pid, and the word by which the others verify that they read the right process's memory.
    pid: u32,
    word: Box<u64>,
    /// The verified pid of each member; 0 if not verified yet.
    checked: Box<[i32]>,
    faster: faster::Faster,
    /// The barrier at which this member has arrived and that it ends, and its stamp: see [`Node::end_barrier`].
    ending: Option<(u64, u64)>,
    /// An operation at which this member has arrived, and that [`UnevenWork`] goes on with.
    resumed: Option<u64>,
}

/// The next action after an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Wait for the data that is needed.
    Wait,
    /// This member is the last to arrive: it computes, then calls [`Node::finish`]. Whether all have left the same stamp.
    Last { are_alike: bool },
}

impl Node {
    /// The view of the member with this rank; `ring` wakes all members that sleep. Members read each other's memory if
    /// [`Node::pull`] says so.
    pub fn new(area: Area, rank: u32, ring: Box<dyn Fn() + Send>) -> Self {
        let word = RandomState::new().build_hasher().finish();
        let checked = vec![0; area.shape().members as usize];
        let (pid, word) = (std::process::id(), Box::new(word));
        let membership = Membership::of(rank, area.shape());
        Self {
            membership,
            prefix: if area.shape().packs() { membership.prefix() } else { Prefix::default() },
            share: way::share(area.shape().slot, area.shape().members),
            area,
            rank,
            next: 0,
            known: 0,
            ring,
            pulls: false,
            pid,
            word,
            checked: checked.into(),
            faster: Default::default(),
            ending: None,
            resumed: None,
        }
    }

    /// Sets whether members read each other's memory. All members must set the same.
    pub fn pull(&mut self, pulls: bool) {
        self.pulls = pulls;
    }

    /// Whether members read each other's memory.
    pub fn pulls(&self) -> bool {
        self.pulls
    }

    /// The dimensions of the memory.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.area.shape()
    }

    /// This member's rank.
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of members.
    #[inline]
    pub fn size(&self) -> u32 {
        self.area.shape().members
    }

    /// How many bytes one member can leave in one operation.
    #[inline]
    pub fn room(&self) -> usize {
        self.area.shape().slot
    }

    /// The next [`UnevenWork`] goes on with this operation, at which this member has arrived.
    #[cold]
    fn resume(&mut self, number: u64) {
        self.resumed = Some(number);
    }

    /// Whether arrivals are counted, so that the last member computes.
    #[inline]
    fn is_counted(&self) -> bool {
        self.size() > 2
    }

    #[inline(always)]
    fn mark(&self, number: u64, member: u32) -> &Mark {
        &self.area.marks()[(u64::from(member) * DEPTH + number % DEPTH) as usize]
    }

    #[inline(always)]
    fn round(&self, number: u64) -> &Round {
        &self.area.head().rounds[(number % DEPTH) as usize]
    }

    #[inline(always)]
    fn counters(&self, number: u64) -> Counters<'_> {
        Counters { all: &self.round(number).arrivals, groups: &self.area.head().groups[(number % DEPTH) as usize] }
    }

    /// Whether the memory for the next operation is free; `is_short`: what this member leaves fits in a note. A member that is as far ahead
    /// of the others as the marks allow waits until it is only half as far ahead: then one look at their lines serves several operations.
    #[inline(always)]
    fn has_room(&mut self, is_short: bool) -> bool {
        if is_short {
            return self.next < DEPTH || self.known + DEPTH > self.next + 1 || self.all_arrived(self.next - DEPTH / 2);
        }
        self.next < SLOTS || self.all_arrived(self.next - SLOTS + 1)
    }

    /// Whether all have arrived at an operation and its result has been computed.
    #[inline(always)]
    fn all_arrived(&mut self, number: u64) -> bool {
        if self.known > number {
            return true;
        }
        let all = if self.is_counted() {
            self.round(number).done.0.number.load(Ordering::Acquire) > number || self.ends_now(number)
        } else {
            (0..self.size()).all(|member| member == self.rank || self.has_arrived(number, member))
        };
        if all {
            self.known = number + 1;
        }
        all
    }

    /// Whether a member has arrived at an operation.
    #[inline(always)]
    fn has_arrived(&self, number: u64, member: u32) -> bool {
        self.mark(number, member).number.load(Ordering::Acquire) > number
    }

    /// Arrives at the next operation, whose memory must be free, with `len` bytes of data that `fill` writes. `stamp`
    /// identifies the call. `awaited` says that another member may wait for this member alone.
    #[inline(always)]
    fn arrive(&mut self, stamp: u64, len: usize, awaited: bool, fill: impl FnOnce(Room<'_>)) -> (u64, Arrival) {
        debug_assert!(self.resumed.is_none(), "an operation that goes on ends before the next one begins");
        let number = self.next;
        self.next += 1;
        let mark = self.mark(number, self.rank);
        if len > 0 {
            self.with_data_mut(number, self.rank, len, |data| {
                let data = data.cast::<u8>();
                if len > SMALL {
                    writes(data, len);
                }
                // SAFETY: a member's own mark and slot are used by no other member between `has_room` and the number.
                fill(unsafe { Room::shared(data, len) });
            });
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
        let complete = |signs| self.complete_group(number, stamp, signs);
        let last = self.counters(number).count(self.membership, Sign::of(stamp), complete);
        (number, last.map_or(Arrival::Wait, |are_alike| Arrival::Last { are_alike }))
    }

    /// Publishes that the last member has computed the result.
    #[inline]
    fn finish(&mut self, number: u64, verdict: u64) {
        self.counters(number).reset();
        let done = &self.round(number).done.0;
        done.verdict.store(verdict, Ordering::Relaxed);
        done.number.store(number + 1, Ordering::Release);
        self.known = number + 1;
        self.wake();
    }

    /// Rank + 1 of a member that has called a different function, as found by the last member; 0 if there is none.
    fn verdict(&self, number: u64) -> u64 {
        self.round(number).done.0.verdict.load(Ordering::Relaxed)
    }

    /// The stamp of a member's call.
    #[inline]
    fn stamp(&self, number: u64, member: u32) -> u64 {
        self.mark(number, member).stamp.load(Ordering::Relaxed)
    }

    /// Passes the `len` bytes that a member has left at an operation to `body`; the member must have arrived, and `len`
    /// be at most the room of a slot.
    #[inline]
    fn with_data<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            return self.mark(number, member).data.with(|data| body(std::ptr::slice_from_raw_parts(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts(self.room_of(number, member, len), len))
    }

    /// As [`Node::with_data`], for writing: before the member has arrived, only for itself; afterwards, for the one that combines this part of
    /// a scan.
    #[inline]
    fn with_data_mut<R>(&self, number: u64, member: u32, len: usize, body: impl FnOnce(*mut [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            let data = &self.mark(number, member).data;
            return data.with_mut(|data| body(std::ptr::slice_from_raw_parts_mut(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts_mut(self.room_of(number, member, len), len))
    }

    /// Where data lie that do not fit in a mark: those of a member, or the result, for the number of members.
    #[inline(always)]
    fn room_of(&self, number: u64, member: u32, len: usize) -> *mut u8 {
        if len <= NOTE { self.area.note(member, number) } else { self.area.slot(member, number) }
    }

    /// Passes the memory for an operation's result to `body`: the last member writes it before [`Node::finish`]; the
    /// others read it once all have arrived.
    #[inline]
    fn with_result<R>(&self, number: u64, len: usize, body: impl FnOnce(*mut [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            let result = &self.round(number).done.0.result;
            return result.with_mut(|data| body(std::ptr::slice_from_raw_parts_mut(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts_mut(self.room_of(number, self.size(), len), len))
    }

    /// As [`Node::with_result`], for reading.
    #[inline]
    fn with_result_of<R>(&self, number: u64, len: usize, body: impl FnOnce(*const [u8]) -> R) -> R {
        let len = len.min(self.room());
        if len <= SMALL {
            let result = &self.round(number).done.0.result;
            return result.with(|data| body(std::ptr::slice_from_raw_parts(data.cast(), len)));
        }
        body(std::ptr::slice_from_raw_parts(self.room_of(number, self.size(), len), len))
    }

    /// Wakes the members that sleep; called after something was published.
    #[inline]
    fn wake(&self) {
        self.area.head().wake(&self.ring);
    }

    /// Called before a sleep, after which everything that is waited for must be checked once more, and again after the
    /// sleep.
    pub fn announce_sleep(&self, asleep: bool) {
        self.area.head().announce_sleep(asleep);
    }

    /// Records that the communicator is revoked: this memory can no longer be used.
    pub fn revoke(&self) {
        self.declare_broken(REVOKED);
    }

    /// Records that a member has died: this memory can no longer be used.
    pub fn declare_broken(&self, rank: u32) {
        self.area.head().declare_broken(rank);
        (self.ring)();
    }

    /// The rank of the member that has died; [`REVOKED`] if the communicator is revoked.
    #[inline]
    pub fn broken(&self) -> Option<u32> {
        self.area.head().broken()
    }
}

impl Head {
    /// Wakes the members that sleep by `ring`.
    #[inline]
    fn wake(&self, ring: &dyn Fn()) {
        fence(Ordering::SeqCst);
        if self.sleepers.0.load(Ordering::Relaxed) != 0 {
            ring();
        }
    }

    fn announce_sleep(&self, asleep: bool) {
        if asleep {
            self.sleepers.0.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        } else {
            self.sleepers.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn declare_broken(&self, rank: u32) {
        self.broken.0.store(rank.wrapping_add(1), Ordering::Release);
        fence(Ordering::SeqCst); // before what the caller changes next: see `Node::died_meanwhile`
    }

    #[inline]
    fn broken(&self) -> Option<u32> {
        self.broken.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("rank", &self.rank).field("next", &self.next).finish_non_exhaustive()
    }
}
