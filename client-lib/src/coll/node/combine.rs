//! Reductions over shared memory: which member combines which part of what all have left.
//!
//! With two members, each combines both vectors into its own memory. With more, the last one to arrive combines a short vector for
//! all; of a longer one, each member combines a slice. Slices take one operation more, but all cores take part: the operation that
//! brings piece k of the vectors also brings the slices of the result of piece k - 1.
//!
//! ```text
//!  operation:      k                          k + 1                                k + 2
//!  leaves:         piece k                    piece k + 1, own slice of result k   piece k + 2, own slice of result k + 1
//!  then reads:     result k - 1               result k                             result k + 1
//! ```
//!
//! A scan has another result for each member. Where it goes in slices, the member that combines a slice overwrites what each member has left
//! with that member's result, and once all have arrived at operation k + 1, each takes its own result from its own slot.
//!
//! Every element is combined by one member, in the order of ranks, so all members get the same bits.

use std::mem::MaybeUninit;

use super::mailboxes::{Awaited, Mailboxes, Packed};
use super::way::{PART, slice};
use super::work::{Work, awaited, write};
use super::{Arrival, Node};
use crate::coll::choice::Call;
use crate::copy::copy;
use crate::memory::Buffer;
use crate::shared_memory::sync::{reads, writes};

impl Work<'_> {
    /// Combines this member's slice of the piece that all have left at the operation before.
    pub(super) fn combine_slice(&self, node: &Node, number: u64) {
        let (_, len) = self.cut.piece(self.index - 1);
        let part = slice(len, self.cut.unit, node.rank, node.size());
        if part.1 == 0 {
            return;
        }
        if matches!(self.call, Call::Scan { .. } | Call::Exscan { .. }) {
            return self.combine_prefixes(node, number, len, part);
        }
        let left = Left::unpacked(number, node.size(), len);
        node.with_result(number, len, |result| {
            self.combine(node, left, part, result.cast::<u8>().wrapping_add(part.0));
        });
    }

    /// Replaces bytes (offset, length) of the `whole` that each member has left by what it gets in a scan or exscan. Operands are combined in the same
    /// way as by [`combine`], so the bits do not depend on the length of the vector, whatever the operation does with values that are not numbers.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    fn combine_prefixes(&self, node: &Node, number: u64, whole: usize, (at, len): (usize, usize)) {
        let Some(reduction) = self.reduction else { return };
        let is_exclusive = matches!(self.call, Call::Exscan { .. });
        let (unit, size) = (self.cut.unit, node.size());
        let step = PART / unit * unit;
        let mut parts = [const { Part::new() }; 2];
        // What the members before have left, combined; and room for the same with the next one.
        let [mut sum, mut next] = parts.each_mut().map(Part::start);
        for from in (0..len).step_by(step) {
            let (at, len) = (at + from, step.min(len - from));
            let count = len / unit;
            node.with_data(number, 0, whole, |first| {
                let first = first.cast::<u8>().wrapping_add(at);
                reads(first, len);
                // SAFETY: the part lies within the member's data, and `sum` has room for `step` bytes.
                unsafe { sum.copy_from_nonoverlapping(first, len) }
            });
            for member in 1..size {
                node.with_data_mut(number, member, whole, |data| {
                    let data = data.cast::<u8>().wrapping_add(at);
                    reads(data, len);
                    writes(data, len);
                    // SAFETY: the part lies within the member's data; only this member uses it until all have arrived at the next operation.
                    // `sum` and `next` have room for `step` bytes, and `sum` has `len`.
                    unsafe {
                        if !is_exclusive {
                            reduction.apply(data, sum, count);
                            data.copy_from_nonoverlapping(sum, len);
                            return;
                        }
                        if member + 1 < size {
                            next.copy_from_nonoverlapping(sum, len);
                            reduction.apply(data, next, count);
                        }
                        data.copy_from_nonoverlapping(sum, len);
                    }
                    std::mem::swap(&mut sum, &mut next);
                });
            }
        }
    }

    /// Takes what this member gets of a scan's piece, if this operation brings one.
    pub(super) fn take_prefix(&self, node: &Node, number: u64) {
        let Some(before) = self.index.checked_sub(1) else { return };
        let (at, len) = self.cut.piece(before);
        if matches!(self.call, Call::Scan { .. }) || node.rank > 0 {
            let recv = &self.operands.recv.buffer;
            node.with_data(number - 1, node.rank, len, |data| write(recv, at, data));
        }
    }

    /// The last member to arrive combines a vector that is not cut into slices.
    pub(super) fn combine_for_all(&self, node: &Node, number: u64) {
        if !self.cut.is_sliced {
            let (_, len) = self.cut.piece(self.index);
            let packed = node.packed(number, self.cut.block(), Awaited::All);
            let left = Left { packed, ..Left::unpacked(number, node.size(), len) };
            node.with_result(number, len, |result| self.combine(node, left, (0, len), result.cast()));
        }
    }

    /// Takes the result of a reduction, or of its piece, if this operation brings one.
    #[inline]
    pub(super) fn take_result(&self, node: &Node, number: u64) {
        let recv = &self.operands.recv.buffer;
        if !node.is_counted() {
            return self.combine_first(node, number, node.size());
        }
        let (number, piece) = match self.cut.is_sliced {
            false => (number, self.cut.piece(self.index)),
            true if self.index == 0 => return,
            true => (number - 1, self.cut.piece(self.index - 1)),
        };
        node.with_result_of(number, piece.1, |result| write(recv, piece.0, result));
    }

    /// Combines the piece that the first members have left, into the user's memory.
    pub(super) fn combine_first(&self, mail: &impl Mailboxes, number: u64, members: u32) {
        let (at, len) = self.cut.piece(self.index);
        let packed = mail.packed(number, self.cut.block(), awaited(self.call, mail.rank()));
        let left = Left { packed, ..Left::unpacked(number, members, len) };
        self.combine_for_user(mail, left, (0, len), at);
    }

    /// Leaves what a reduce-scatter combines: all parts at their places if they fit, otherwise a piece of each part.
    #[inline]
    pub(super) fn leave_parts(&self, mail: &mut impl Mailboxes, stamp: u64, own: &Buffer) -> (u64, Arrival) {
        if self.are_parts_whole(mail) {
            return mail.arrive(stamp, own.len(), false, |slot| slot.fill(own, 0));
        }
        let (piece, members) = (self.cut.piece(0).1, mail.size());
        mail.arrive(stamp, piece * members as usize, false, |slot| {
            for member in 0..members {
                let (first, len) = self.part_of(member);
                let (from, len) = self.cut.piece_of(len, self.index);
                slot.part(member as usize * piece, len).fill(own, first + from);
            }
        })
    }

    /// Combines this member's part, or a piece of it, into the user's memory.
    pub(super) fn combine_part(&self, mail: &impl Mailboxes, number: u64) {
        let (first, len) = self.part_of(mail.rank());
        let (at, len) = self.cut.piece_of(len, self.index);
        if self.are_parts_whole(mail) {
            let all = self.all_parts(mail.size());
            return self.combine_for_user(mail, Left::unpacked(number, mail.size(), all), (first, len), 0);
        }
        let piece = self.cut.piece(0).1;
        let left = Left::unpacked(number, mail.size(), piece * mail.size() as usize);
        self.combine_for_user(mail, left, (mail.rank() as usize * piece, len), at);
    }

    fn are_parts_whole(&self, mail: &impl Mailboxes) -> bool {
        self.cut.is_whole() && self.all_parts(mail.size()) <= mail.shape().slot
    }

    fn part_of(&self, member: u32) -> (usize, usize) {
        part_of(self.parts, self.cut.block(), member)
    }

    fn all_parts(&self, members: u32) -> usize {
        let (at, len) = self.part_of(members - 1);
        at + len
    }

    /// Combines bytes (offset, length) of what the first members have left, into the user's memory from byte `at` on.
    fn combine_for_user(&self, mail: &impl Mailboxes, left: Left, part: (usize, usize), at: usize) {
        let recv = &self.operands.recv.buffer;
        let has_room = left.members > 0 && recv.len() >= at + part.1;
        let (Some(result), true) = (recv.as_contiguous(), has_room) else { return };
        self.combine(mail, left, part, result.wrapping_add(at));
    }

    /// Combines bytes (offset, length) of what the first members have left, in rank order, into `result`, which has room for them.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    fn combine(&self, mail: &impl Mailboxes, left: Left, part: (usize, usize), result: *mut u8) {
        let Some(reduction) = self.reduction else { return };
        let count = part.1 / self.cut.unit;
        // SAFETY: `combine` passes the addresses of so many elements.
        combine(mail, left, part, result, move |from, into| unsafe { reduction.apply(from, into, count) });
    }
}

/// The part of the vector (first byte, length) that belongs to a member in a reduce-scatter: that of `parts`, or a block like all others.
pub(super) fn part_of(parts: Option<&[(u64, u64)]>, block: usize, member: u32) -> (usize, usize) {
    match parts {
        Some(parts) => parts.get(member as usize).map_or((0, 0), |(at, len)| (*at as usize, *len as usize)),
        None => (member as usize * block, block),
    }
}

/// Room for [`PART`] bytes, aligned for elements of any type.
#[repr(align(64))]
struct Part([MaybeUninit<u8>; PART]);

impl Part {
    const fn new() -> Self {
        Self([MaybeUninit::uninit(); PART])
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// What the first members have left at an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    pub(super) number: u64,
    pub(super) members: u32,
    /// The bytes of each member.
    pub(super) whole: usize,
    /// Those that are packed.
    pub(super) packed: Packed,
}

impl Left {
    #[inline(always)]
    pub(super) fn unpacked(number: u64, members: u32, whole: usize) -> Self {
        Self { number, members, whole, packed: Packed::NONE }
    }
}

/// Combines bytes (offset, length) of what the first members have left, in rank order, into `result`, which has room for them:
/// `apply(from, into)` combines the elements of one of them with what is there.
#[inline(always)]
pub(super) fn combine(
    mail: &impl Mailboxes,
    left: Left,
    part: (usize, usize),
    result: *mut u8,
    apply: impl Fn(*const u8, *mut u8) + Copy,
) {
    if left.packed.members() > 0 {
        return combine_packed(mail, left, part, result, apply);
    }
    for member in 0..left.members {
        mail.with_data(left.number, member, left.whole, |data| add(member, data.cast(), part, result, apply));
    }
}

/// As [`combine`], if data are packed: apart, so that few members do not pay for it.
#[inline(never)]
fn combine_packed(
    mail: &impl Mailboxes,
    Left { number, members, whole, packed }: Left,
    part: (usize, usize),
    result: *mut u8,
    apply: impl Fn(*const u8, *mut u8) + Copy,
) {
    for (group, blocks) in packed.groups() {
        for (nth, member) in group.enumerate() {
            add(member, blocks.wrapping_add(nth * whole), part, result, apply);
        }
    }
    for member in packed.members()..members {
        mail.with_data(number, member, whole, |data| add(member, data.cast(), part, result, apply));
    }
}

/// Combines bytes (offset, length) of what one member has left with those of the members before it.
#[inline(always)]
#[expect(unsafe_code, reason = "elements at addresses")]
fn add(member: u32, data: *const u8, (at, len): (usize, usize), result: *mut u8, apply: impl Fn(*const u8, *mut u8)) {
    let from = data.wrapping_add(at);
    reads(from, len);
    writes(result, len);
    // The part lies within a member's data, which that member does not change until all have read it; only this member uses this part of
    // `result`. Predefined operations commute, so they may be applied from the right.
    if member == 0 {
        // SAFETY: as above.
        unsafe { copy(from, result, len) };
    } else {
        apply(from, result);
    }
}
