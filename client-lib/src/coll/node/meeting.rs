//! How a call meets the other members at an operation: it arrives, and waits for those on which it depends. The last member to arrive finds
//! out whether all have called the same function.

use super::counting::Sign;
use super::mailboxes::{Awaited, Mailboxes};
use super::{Arrival, Node, REVOKED};
use crate::error::{MpiError, MpiResult};
use crate::hint;
use crate::shared_memory::sync::{Ordering, fence};

/// An operation that is never reached.
const NEVER: u64 = 1 << 62;

impl Node {
    /// Continues an operation: arrives at it by `arrive` when its memory is free, and returns its number once the awaited members have
    /// arrived, too. `waits` has the number in between. `is_short`: what this member leaves fits in a note. The error is that a member has died
    /// meanwhile.
    #[inline(always)]
    pub(super) fn meet(
        &mut self,
        waits: &mut Option<u64>,
        awaited: Awaited,
        is_short: bool,
        arrive: impl FnOnce(&mut Self) -> u64,
    ) -> Option<MpiResult<u64>> {
        let is_first = waits.is_none();
        let number = match *waits {
            Some(number) => number,
            None if !self.has_room(is_short) => return self.died(),
            None => *waits.insert(arrive(self)),
        };
        if !self.is_there(number, awaited) {
            return self.died();
        }
        if is_first && let Awaited::One(member) = awaited {
            // It is ahead, so the line of the next operation is probably written, too.
            hint::reading(self.mark(number + 1, member));
        }
        *waits = None;
        Some(Ok(number))
    }

    /// Whether the awaited members have arrived at an operation.
    #[inline(always)]
    fn is_there(&mut self, number: u64, awaited: Awaited) -> bool {
        match awaited {
            Awaited::None => true,
            Awaited::One(member) => self.has_arrived(number, member),
            Awaited::Before(me) if self.shape().packs() => self.have_arrived_before(number, me),
            Awaited::Before(me) => (0..me).all(|member| self.has_arrived(number, member)),
            Awaited::All => self.all_arrived(number),
        }
    }

    /// The error of a call that will never end, if a member has died.
    #[inline(always)]
    pub(super) fn died<T>(&mut self) -> Option<MpiResult<T>> {
        self.broken().map(|rank| Err(self.leave(rank)))
    }

    /// The error of a call in which memory was read until now, if a member has died: another one may have noticed that, and left the call.
    pub(super) fn died_meanwhile(&mut self) -> Option<MpiError> {
        fence(Ordering::SeqCst);
        self.broken().map(|rank| self.leave(rank))
    }

    /// Leaves a call that may have gone further with some members than with others. This member no longer knows at which operation they are, so
    /// it never finds room for another one: all its later calls fail, too.
    #[cold]
    fn leave(&mut self, dead: u32) -> MpiError {
        self.next = NEVER;
        died(dead)
    }

    /// After an arrival at a barrier: the last member to arrive ends it, but if members share cores, the first member does. What follows a
    /// barrier often begins with the first member, a broadcast's root, say. If it leaves the barrier first, the others find its data as soon
    /// as they run; otherwise the last one to arrive goes on alone, and has to give its core to the first one and get it back.
    #[inline(always)]
    pub(super) fn end_barrier(&mut self, number: u64, arrival: Arrival, own: u64) {
        let is_first_to_end = self.is_counted() && !self.area.shape().in_groups;
        match arrival {
            Arrival::Wait if self.rank == 0 && is_first_to_end => self.ending = Some((number, own)),
            Arrival::Wait => {}
            // If it has called something else, it does not know of the barrier.
            Arrival::Last { .. } if self.rank > 0 && is_first_to_end && self.stamp(number, 0) == own => self.wake(),
            Arrival::Last { .. } => self.finish_checked(number, arrival, |stamp| stamp != own, |_| ()),
        }
    }

    /// Whether this member ends a barrier because all have arrived.
    #[inline]
    pub(super) fn ends_now(&mut self, number: u64) -> bool {
        let Some((ending, own)) = self.ending.filter(|(ending, _)| *ending == number) else { return false };
        let Some(are_alike) = self.counters(ending).completed(self.membership, Sign::of(own)) else { return false };
        self.ending = None;
        self.finish_checked(number, Arrival::Last { are_alike }, |stamp| stamp != own, |_| ());
        true
    }

    /// Ends an operation if this member is the last to arrive: if no member's stamp differs, `compute` makes the result; otherwise the others
    /// learn which member called a different function.
    #[inline]
    pub(super) fn finish_checked(
        &mut self,
        number: u64,
        arrival: Arrival,
        differs: impl Fn(u64) -> bool,
        compute: impl FnOnce(&Self),
    ) {
        let Arrival::Last { are_alike } = arrival else { return };
        let differing = match are_alike && !differs(self.stamp(number, self.rank)) {
            true => None,
            false => self.differing(number, Awaited::All, differs),
        };
        if differing.is_none() {
            compute(self);
        }
        self.finish(number, differing.map_or(0, |member| u64::from(member) + 1));
    }
}

#[cold]
pub(super) fn died(rank: u32) -> MpiError {
    if rank == REVOKED {
        return MpiError::was_revoked();
    }
    MpiError::proc_aborted(format!("rank {rank} of the communicator has died"))
}
