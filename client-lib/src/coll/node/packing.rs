//! Short data of many members, packed: calls that read the data of all members read few lines.
//!
//! Short data travel in their members' marks, one line from each member. Of many members that count their arrivals in groups, the last one of
//! a group to arrive copies its group's data to the place after those of the groups before, and adds the group to the counter of all afterwards:
//!
//! ```text
//!  packs of an operation:   | member 0 | 1 | … | 11 |       | 12 | … | 23 |      | …       blocks as long as those of the call
//!  copied by the last of:   |        group 0                |     group 1        | …       16 bytes for each member
//! ```
//!
//! So 128 blocks of 8 bytes are read from 22 lines, two for each group. The last members of the groups copy at the same time. Every element is
//! still combined by one member in the order of ranks: packing adds nothing up. The place of a group is the same for all lengths: those that
//! do not depend on a member that passes another length, by mistake, get their results.
//!
//! A member that waits only for those before it does not learn that all have arrived. So in these calls, the last member of a group *tells*
//! that the group is complete ([`super::counting`]), and the sum of its signs: a member looks at one line of each group before its own. But
//! where it reads the data in the marks, it looks for the arrivals there, too.
//!
//! The packs of operation k are used again as its marks are, by operation k + 32. They take 512 bytes of memory for each member.

use super::counting::{Prefix, Sign};
#[cfg(not(loom))]
use super::mailboxes::place;
use super::mailboxes::{Awaited, Packed};
use super::work::kind;
use super::{Node, PACKED, SMALL};

impl Node {
    /// The last member of a group does this before its group is counted; `signs`: the sum of its members' signs.
    #[inline(always)]
    pub(super) fn complete_group(&self, number: u64, stamp: u64, signs: u64) {
        if self.shape().packs() && (len_of(stamp).is_some() || is_told(stamp)) {
            self.pack_and_tell(number, stamp, signs);
        }
    }

    #[inline(never)]
    fn pack_and_tell(&self, number: u64, stamp: u64, signs: u64) {
        if let Some(len) = len_of(stamp) {
            self.pack(number, len);
        }
        if is_told(stamp) {
            self.counters(number).tell(self.membership, number, signs);
            self.wake();
        }
    }

    /// Copies what the members of this one's group have left.
    fn pack(&self, number: u64, len: usize) {
        let group = self.membership.neighbours();
        for (nth, member) in (0..).zip(group.clone()) {
            self.with_data(number, member, len, |from| {
                // SAFETY: both have `len` bytes: the group's part of the packs has `PACKED` for each member, whatever lengths others pass. The
                // members of the group have arrived and do not change theirs; nothing but this member uses the group's part before it adds
                // the group to the counter of all, or tells that it is complete.
                self.with_pack_mut(number, group.start, nth, len, |to| unsafe { copy(from.cast(), to, len) });
            });
        }
    }

    /// The blocks, of `len` bytes in the call, that are packed once the awaited members have arrived.
    #[inline(always)]
    pub(super) fn packed(&self, number: u64, len: usize, awaited: Awaited) -> Packed {
        if !self.shape().packs() || !(1..=PACKED).contains(&len) {
            return Packed::NONE;
        }
        let members = match awaited {
            Awaited::All => self.size(),
            Awaited::Before(_) => self.prefix.members,
            Awaited::None | Awaited::One(_) => 0,
        };
        Packed::new(self.area.packs(number).as_ptr().cast(), members, self.prefix.each)
    }

    /// Whether the members before this one have arrived at an operation. If a group does not tell, because its last member has called
    /// something else, all learn of that once all have arrived.
    #[inline(never)]
    pub(super) fn have_arrived_before(&mut self, number: u64, me: u32) -> bool {
        let Prefix { groups, members, .. } = self.prefix_in(self.stamp(number, self.rank));
        if !(0..groups).all(|group| self.counters(number).told(group, number).is_some()) {
            return self.all_arrived(number);
        }
        (members..me).all(|member| self.has_arrived(number, member))
    }

    /// The first member before this one that has left a different stamp.
    #[inline(never)]
    pub(super) fn differing_before(&self, number: u64, me: u32, own: u64, differ: fn(u64, u64) -> bool) -> Option<u32> {
        let (Prefix { groups, members, each }, sign) = (self.prefix_in(own), Sign::of(own));
        let is_alike = |group| {
            let signs = self.counters(number).told(group, number);
            signs.is_some_and(|signs| sign.is_of_all(signs, u64::from(each)))
        };
        let first = if (0..groups).all(is_alike) { members } else { 0 };
        (first..me).find(|member| differ(self.stamp(number, *member), own))
    }

    /// The groups before this member's own that tell that they are complete in a call with this stamp.
    #[inline(always)]
    fn prefix_in(&self, stamp: u64) -> Prefix {
        if is_told(stamp) { self.prefix } else { Prefix::default() }
    }

    /// Passes where a block of `len` bytes is packed to `body`: that of the nth member of the group that begins with `first`.
    #[cfg(not(loom))]
    #[inline(always)]
    fn with_pack_mut<R>(&self, number: u64, first: u32, nth: u32, len: usize, body: impl FnOnce(*mut u8) -> R) -> R {
        let packs = self.area.packs(number).as_ptr().cast_mut().cast::<u8>();
        let to = packs.wrapping_add(place(first, nth, len));
        crate::shared_memory::sync::writes(to, len);
        body(to)
    }

    /// As above, in a cell for each member.
    #[cfg(loom)]
    fn with_pack_mut<R>(&self, number: u64, first: u32, nth: u32, _: usize, body: impl FnOnce(*mut u8) -> R) -> R {
        self.area.packs(number)[(first + nth) as usize].with_mut(|pack| body(pack.cast()))
    }
}

/// Copies `len` bytes; most often the length is that of a number.
///
/// # Safety
///
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            4 => to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read()),
            8 => to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read()),
            _ => to.copy_from_nonoverlapping(from, len),
        }
    }
}

/// The length of the blocks that are packed in a call with this stamp; `None` if it packs nothing. Members that read packs find the same
/// ([`Node::packed`]): those of calls in which each member leaves one block, read by members that need all of them, or the first ones.
#[inline(always)]
fn len_of(stamp: u64) -> Option<usize> {
    use kind::{ALLGATHER, ALLREDUCE, EXSCAN, GATHER, REDUCE, SCAN};
    let leaves_one_for_all = matches!(kind::of(stamp), GATHER | ALLGATHER | REDUCE | ALLREDUCE | SCAN | EXSCAN);
    let len = stamp as u32 as usize;
    (leaves_one_for_all && (1..=PACKED).contains(&len)).then_some(len)
}

/// Whether groups tell that they are complete in a call with this stamp: members wait only for those before them, and do not read marks.
#[inline(always)]
fn is_told(stamp: u64) -> bool {
    let len = stamp as u32 as usize;
    matches!(kind::of(stamp), kind::SCAN | kind::EXSCAN) && (len <= PACKED || len > SMALL)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::work::{REFUSED, stamp};
    use super::*;
    use crate::coll::choice::Call;
    use crate::coll::halving::Vector;

    #[test]
    fn the_blocks_are_packed_that_many_members_read() {
        let (root, in_place, commutes) = (70, false, true);
        for block in [1, 8, 15, 16, 17, 48, 49, 1 << 20, (1 << 32) + 8] {
            let vector = Vector { count: block, unit: 1 };
            let packs = [
                Call::Gather { root, block, in_place },
                Call::Allgather { block, in_place },
                Call::Reduce { root, vector, commutes, in_place },
                Call::Allreduce { vector, commutes, in_place },
                Call::Scan { vector, in_place },
                Call::Exscan { vector, in_place },
            ];
            for call in packs {
                let expected = (block <= PACKED as u64).then_some(block as usize);
                // What a length of more than 32 bits leaves is packed, too, but not read.
                let is_cut = block > 1 << 32;
                assert!(len_of(stamp(call)) == expected || is_cut, "{call:?}");
                let waits_for_first = matches!(call, Call::Scan { .. } | Call::Exscan { .. });
                assert_eq!(is_told(stamp(call)), waits_for_first && !(17..=48).contains(&block), "{call:?}");
            }
            let others = [
                Call::Barrier,
                Call::Bcast { root, len: block },
                Call::Scatter { root, block, in_place },
                Call::Alltoall { block, in_place },
                Call::ReduceScatterBlock { block: vector, commutes, in_place },
            ];
            for call in others {
                assert!(len_of(stamp(call)).is_none() && !is_told(stamp(call)), "{call:?}");
            }
        }
        assert!(len_of(REFUSED).is_none() && !is_told(REFUSED));
    }
}
