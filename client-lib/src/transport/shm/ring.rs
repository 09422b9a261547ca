//! The ring in which a process receives: many senders, one receiver, no lock.
//!
//! ```text
//!  tail (senders claim here)      head (the receiver is done up to here)      asleep, starved
//!  └ 128 bytes                    └ 128 bytes                                 └ 128 bytes
//!
//!  slot, 64 bytes:  | position + 1: u32 | note: u32 | data: 56 bytes |
//! ```
//!
//! A sender claims a position by adding one to `tail`, fills the slot of that position (modulo the slots), and publishes it by
//! writing its first eight bytes at once. A frame that does not fit one slot takes up to [`LONGEST`], whose positions are claimed
//! together; its first slot is published last. Up to that length, a frame moves fewer lines than a cell would, and processors fetch
//! neighbouring lines together. The receiver polls only the next slot: an idle poll reads one cache line, which stays
//! in its cache until a sender writes there. The receiver updates `head` only after each quarter of the ring, and senders read
//! it only when the room they know of is used up; so in the steady state a message moves one line from core to core.
//!
//! A receiver that finds the ring empty goes back to the first slot, by moving `tail` on to that one's next position, so that messages that come one at a
//! time use few slots: their lines stay in both processes' nearest caches. (From farther caches, a message of four lines takes a quarter longer.)
//!
//! Before it sleeps, the receiver sets `asleep` and then looks at `tail`; a sender moves `tail` and then looks at `asleep`. With
//! a full barrier between the two on both sides, at least one of them sees the other. A sender without room does the same
//! with `starved` and `head`.
//!
//! The memory is shared with processes that may write anything to it: positions are only ever used modulo the number of slots,
//! and the content of a slot is copied once before it is examined. This module does not interpret the content.
//!
//! Proof: `RUSTFLAGS="--cfg loom" cargo test -p rsd-mpi --release --lib loom_`

#![expect(
    unsafe_code,
    reason = "slots are written and read through pointers; the ring defines which process may do so"
)]

use super::NO_LINK;
use crate::hint;
use crate::memory::Room;
use crate::shared_memory::sync::{AtomicU32, AtomicU64, Line, Ordering, UnsafeCell, fence, fence_after_rmw};

/// Bytes of data in a slot.
pub(super) const DATA: usize = 56;

/// The most slots of a frame.
pub(super) const LONGEST: usize = 5;

/// How many slots a frame of this many bytes takes, head and payload together, if it goes in slots.
#[inline(always)]
pub(super) fn slots_of(len: usize) -> usize {
    if len <= DATA { 1 } else { len.div_ceil(DATA) }
}

/// The word of a slot that continues the frame before it. Its note names a link that does not exist: if the rest of a frame is not taken with
/// its beginning, its slots are dropped as strays.
#[inline(always)]
fn continuation(position: u64) -> u64 {
    u64::from(u32::from(NO_LINK) << 16) << 32 | u64::from(position.wrapping_add(1) as u32)
}

/// How far ahead of its use a slot is prefetched: far enough that the polling receiver does not take it back.
const AHEAD: u64 = 8;

/// How many slots ahead a receiver prefetches when it finds several published in a row.
const FETCH: u64 = 4;

/// Once so many slots have been used, a receiver that finds none published goes back to the first slot. So many stay in the nearest cache of both
/// processes, beside the program's own data: there, the receiver polls its own copy of a line until the sender takes the line to write it.
#[cfg(not(loom))]
const HOT: u64 = 64;
#[cfg(loom)]
const HOT: u64 = 2;

/// How often the receiver goes back before all slots must have been used once. A slot's word tells positions apart that differ by less than 2^32, and
/// an old word stays where a slot is not used.
#[cfg(not(loom))]
const REWINDS: u32 = 1 << 16;
#[cfg(loom)]
const REWINDS: u32 = 1;

/// The words beside the slots. All zero is an empty ring.
#[derive(Debug)]
#[repr(C)]
pub(super) struct RingHead {
    tail: Line<AtomicU64>,
    head: Line<AtomicU64>,
    sleep: Line<Sleep>,
}

#[derive(Debug)]
#[repr(C)]
struct Sleep {
    asleep: AtomicU32,
    starved: AtomicU32,
}

/// Room for one frame, or a part of a longer one. All zero is a slot that was never written.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Position + 1 in the lower half, the note in the upper half.
    word: AtomicU64,
    data: UnsafeCell<SlotData>,
}

/// The data of a slot, as copied by the receiver.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct SlotData(pub(super) [u8; DATA]);

impl SlotData {
    /// The word at a place.
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }
}

/// A ring in some process's memory. The number of slots is a power of two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring<'a> {
    pub(super) head: &'a RingHead,
    pub(super) slots: &'a [Slot],
}

/// The receiver's private record of its position.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    next: u64,
    /// How many slots the frame has that was taken last.
    taken: u64,
    /// The value last stored in `head`.
    reported: u64,
    rewinding: Rewinding,
}

/// When the receiver goes back to the first slot.
#[derive(Debug, Default)]
struct Rewinding {
    /// Not before this position.
    from: u64,
    /// The first slot's position, from which on all slots have been used in turn.
    start: u64,
    /// How often the receiver has gone back since all slots were last used.
    count: u32,
}

impl Receiver {
    /// Takes the frame that was taken last once more the next time. Its room must not have been given yet.
    pub(super) fn put_back(&mut self) {
        self.next -= std::mem::take(&mut self.taken);
    }

    /// The position to take next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }
}

impl<'a> Ring<'a> {
    #[inline(always)]
    fn slot(self, position: u64) -> &'a Slot {
        &self.slots[(position as usize) & (self.slots.len() - 1)]
    }

    /// Whether there is room for a frame of `count` slots, according to `known_head` or, if that is not enough, to the receiver's `head`.
    #[inline]
    pub(super) fn has_room(self, count: usize, known_head: &mut u64) -> bool {
        self.is_free(self.head.tail.0.load(Ordering::Relaxed), count, known_head)
    }

    #[inline(always)]
    fn is_free(self, position: u64, count: usize, known_head: &mut u64) -> bool {
        let before = (self.slots.len() - count) as i64;
        // The receiver may have gone back to the first slot since `position` was read.
        let used = |head: u64| position.wrapping_sub(head) as i64;
        if used(*known_head) <= before {
            return true;
        }
        *known_head = self.head.head.0.load(Ordering::Acquire);
        used(*known_head) <= before
    }

    /// Whether there is room for a frame of any length; if not, the receiver will ring the doorbell once there is more.
    pub(super) fn await_room(self, known_head: &mut u64) -> bool {
        self.head.sleep.0.starved.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_room(LONGEST.min(self.slots.len()), known_head)
    }

    /// Claims so many positions, at most [`LONGEST`], passing each candidate for the first one to `intend` before it is tried; `None` if there
    /// is no room. The caller must publish them soon.
    #[inline]
    pub(super) fn claim(self, count: usize, known_head: &mut u64, mut intend: impl FnMut(u64)) -> Option<u64> {
        // A sender that sees the tail after the receiver has gone back also sees the `head` that the receiver stored before that.
        let mut tail = self.head.tail.0.load(Ordering::Acquire);
        loop {
            if !self.is_free(tail, count, known_head) {
                return None;
            }
            intend(tail);
            let next = tail.wrapping_add(count as u64);
            match self.head.tail.0.compare_exchange_weak(tail, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    fence_after_rmw(); // `tail` before `asleep`, which is read in `wake`
                    return Some(tail);
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Fills the slot of a claimed position and publishes it.
    #[inline(always)]
    pub(super) fn publish(self, position: u64, note: u32, fill: impl FnOnce(Room<'_>)) {
        let slot = self.slot(position);
        // SAFETY: the data of a slot. Only the sender that claimed it uses it until it is published; a peer that breaks this rule corrupts
        // only the frames that it receives.
        slot.data.with_mut(|data| fill(unsafe { Room::shared(data.cast(), DATA) }));
        let word = u64::from(note) << 32 | u64::from(position.wrapping_add(1) as u32);
        slot.word.store(word, Ordering::Release);
    }

    /// As [`Ring::publish`], for a frame of several slots: the data of each.
    #[inline(always)]
    pub(super) fn publish_long(self, position: u64, note: u32, pieces: &[[u8; DATA]]) {
        let mut next = position;
        for piece in &pieces[1..] {
            next = next.wrapping_add(1);
            let slot = self.slot(next);
            // SAFETY: as in `publish`.
            slot.data.with_mut(|data| unsafe { Room::shared(data.cast(), DATA) }.put(0, *piece));
            slot.word.store(continuation(next), Ordering::Relaxed); // the first slot's word publishes it
        }
        self.publish(position, note, |data| data.put(0, pieces[0]));
    }

    /// After publishing: returns whether the caller must wake the receiver.
    #[inline(always)]
    pub(super) fn wake(self) -> bool {
        self.head.sleep.0.asleep.load(Ordering::Relaxed) != 0 && self.head.sleep.0.asleep.swap(0, Ordering::AcqRel) != 0
    }

    /// Takes the next slot's note and data, if it has been published.
    #[inline(always)]
    pub(super) fn take(self, receiver: &mut Receiver) -> Option<(u32, SlotData)> {
        let slot = self.slot(receiver.next);
        let word = slot.word.load(Ordering::Acquire);
        if word as u32 != receiver.next.wrapping_add(1) as u32 {
            return None;
        }
        // SAFETY: a published slot belongs to the receiver until `head` passes it, and any bytes are a `SlotData`; the
        // read is volatile so that later checks apply to this copy, whatever a peer writes afterwards.
        let data = slot.data.with(|data| unsafe { read(data) });
        receiver.next += 1;
        receiver.taken = 1;
        Some(((word >> 32) as u32, data))
    }

    /// Takes the other slots of the frame that was taken last, one for each piece. False if the frame is not so long.
    #[inline(always)]
    pub(super) fn take_rest(self, receiver: &mut Receiver, pieces: &mut [[u8; DATA]]) -> bool {
        for piece in pieces {
            let slot = self.slot(receiver.next);
            if slot.word.load(Ordering::Relaxed) != continuation(receiver.next) {
                return false;
            }
            // SAFETY: as in `take`.
            *piece = slot.data.with(|data| unsafe { read(data) }).0;
            receiver.next += 1;
            receiver.taken += 1;
        }
        true
    }

    /// Whether the next slot has been published.
    pub(super) fn is_published(self, receiver: &Receiver) -> bool {
        let word = self.slot(receiver.next).word.load(Ordering::Acquire);
        word as u32 == receiver.next.wrapping_add(1) as u32
    }

    /// Prefetches a slot shortly after the next one: for use when the previous slot was already published, because then
    /// a sender is probably that far ahead.
    #[inline(always)]
    pub(super) fn fetch_ahead(self, receiver: &Receiver) {
        hint::reading(self.slot(receiver.next.wrapping_add(FETCH)));
    }

    #[inline(always)]
    fn index(self, position: u64) -> u64 {
        position & (self.slots.len() as u64 - 1)
    }

    /// Prefetches as many later slots as a frame had that has been published at a position: their lines are in the receiver's cache. The first slots only
    /// if frames follow one another: otherwise the receiver polls them before they are written, and takes the lines back.
    #[inline(always)]
    pub(super) fn fetch_to_write(self, position: u64, count: usize, follows: bool) {
        for at in 0..count as u64 {
            let ahead = position.wrapping_add(AHEAD + at);
            if follows || self.index(ahead) >= HOT {
                hint::writing(self.slot(ahead));
            }
        }
    }

    /// For when the next slot has not been published: goes back to the first slot if the ring is empty and [`HOT`] slots have been
    /// used. Returns whether a sender waits for room.
    #[inline(always)]
    pub(super) fn rewind(self, receiver: &mut Receiver) -> bool {
        receiver.next >= receiver.rewinding.from && self.try_to_rewind(receiver)
    }

    #[cold]
    fn try_to_rewind(self, receiver: &mut Receiver) -> bool {
        let (next, slots) = (receiver.next, self.slots.len() as u64);
        let first = next - self.index(next);
        let Rewinding { from, start, count } = &mut receiver.rewinding;
        if first - *start >= slots {
            // All slots have been used since.
            (*start, *count) = (first, 0);
        }
        let most = REWINDS.min(((1 << 30) / slots) as u32);
        let earliest = match *count < most && slots >= 2 * HOT {
            true => first + HOT,
            false => first + slots,
        };
        if next < earliest {
            *from = earliest;
            return false;
        }
        // With this head, a sender that sees the new tail finds room for a frame, even if it does not see the head reported below yet.
        self.head.head.0.store(next, Ordering::Release);
        let again = first + slots;
        if self.head.tail.0.compare_exchange(next, again, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            *from = next + HOT / 2;
            return false;
        }
        (receiver.next, receiver.taken) = (again, 0);
        (*start, *from, *count) = (again, again + HOT, *count + 1);
        self.report(receiver)
    }

    /// Publishes the room in a quarter of the ring once that much has been taken; returns whether a sender waits for
    /// it.
    #[inline(always)]
    pub(super) fn give_room(self, receiver: &mut Receiver) -> bool {
        receiver.next - receiver.reported >= (self.slots.len() as u64).div_ceil(4) && self.report(receiver)
    }

    fn report(self, receiver: &mut Receiver) -> bool {
        receiver.reported = receiver.next;
        self.head.head.0.store(receiver.next, Ordering::Release);
        fence(Ordering::SeqCst);
        let starved = &self.head.sleep.0.starved;
        let any = starved.load(Ordering::Relaxed) != 0 && starved.swap(0, Ordering::AcqRel) != 0;
        fence(Ordering::SeqCst); // `head` before the `asleep` of the woken senders
        any
    }

    /// Skips the next slot: the process that claimed it died before publishing it.
    pub(super) fn skip(self, receiver: &mut Receiver) {
        receiver.taken = 0;
        receiver.next += 1;
    }

    /// The position that will be claimed next.
    pub(super) fn tail(self) -> u64 {
        self.head.tail.0.load(Ordering::Acquire)
    }

    /// Asks senders to ring the doorbell from now on; returns false, without asking, if a position is already claimed.
    pub(super) fn prepare_sleep(self, receiver: &Receiver) -> bool {
        self.head.sleep.0.asleep.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let idle = self.head.tail.0.load(Ordering::Relaxed) == receiver.next;
        if !idle {
            self.awake();
        }
        idle
    }

    /// Declares that senders need not ring.
    pub(super) fn awake(self) {
        self.head.sleep.0.asleep.store(0, Ordering::Relaxed);
    }
}

/// Copies data from shared memory, reading each word once.
///
/// # Safety
///
/// `data` must be readable.
#[inline(always)]
unsafe fn read(data: *const SlotData) -> SlotData {
    let mut words = [0u64; DATA / 8];
    for (index, word) in words.iter_mut().enumerate() {
        // SAFETY: `SlotData` is that many aligned words, which the caller guarantees to be readable.
        *word = unsafe { data.cast::<u64>().add(index).read_volatile() };
    }
    // SAFETY: both are 56 bytes, and any value is valid.
    unsafe { std::mem::transmute::<[u64; DATA / 8], SlotData>(words) }
}

#[cfg(test)]
#[cfg(loom)]
#[path = "ring/models.rs"]
mod models;

#[cfg(test)]
#[cfg(not(loom))]
#[path = "ring/tests.rs"]
mod tests;
