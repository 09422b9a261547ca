//! The operations over shared memory: what a member leaves, which members it waits for, what it reads.

use super::faster::ANNOUNCED;
use super::mailboxes::{Awaited, Mailboxes, Packed};
use super::way::{Cut, class};
use super::{Arrival, NOTE, Node, Shape};
use crate::coll::choice::Call;
use crate::coll::operands::Operands;
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::op::Reduction;
use crate::shared_memory::sync::reads;

/// A call in progress. [`Work::poll`] continues it. A long block takes several operations.
///
/// The blocks of a call may differ in length from member to member where every member knows all lengths: then the operands name each
/// block by its member ([`Operands::recv_from`]), and the call has the longest length. For a reduce-scatter, `parts` has the first byte
/// and the length of each member's part.
#[derive(Debug)]
pub struct Work<'a> {
    pub(super) call: Call,
    pub(super) operands: &'a Operands,
    pub(super) reduction: Option<&'a Reduction>,
    pub(super) parts: Option<&'a [(u64, u64)]>,
    pub(super) cut: Cut,
    /// The class of the call, if a member announces which way is faster for it.
    class: Option<u32>,
    /// How many operations of the call are over.
    pub(super) index: usize,
    /// The operation that it waits for.
    waits: Option<u64>,
}

impl<'a> Work<'a> {
    /// For a call for which [`super::way()`] returned [`super::Way::Slots`], over this memory.
    pub fn new(
        call: Call,
        operands: &'a Operands,
        reduction: Option<&'a Reduction>,
        parts: Option<&'a [(u64, u64)]>,
        shape: Shape,
    ) -> Self {
        let cut = Cut::of(call, shape);
        let class = class(call, shape.members);
        Self { call, operands, reduction, parts, cut, class, index: 0, waits: None }
    }

    /// Continues the call; returns the result once it is over.
    #[inline]
    pub fn poll(&mut self, node: &mut Node) -> Option<MpiResult> {
        loop {
            let (mut waits, awaited) = (self.waits, self.awaited(node));
            let agrees = self.agrees(node);
            let met = node.meet(&mut waits, awaited, self.is_short(node), |node| self.arrive(node));
            self.waits = waits;
            let number = match met? {
                Ok(number) => number,
                Err(error) => return Some(Err(error)),
            };
            if let Err(error) = agreed_among(node, number, awaited, stamp(self.call)) {
                return Some(Err(error));
            }
            if let Some(class) = agrees {
                node.adopt(number, self.call, class);
            }
            self.read(node, number);
            self.index += 1;
            if self.index >= self.cut.operations() {
                return Some(Ok(()));
            }
        }
    }

    /// Whether what a member leaves fits in a note.
    #[inline]
    fn is_short(&self, node: &Node) -> bool {
        self.cut.block().saturating_mul(blocks(self.call, node.size())) <= NOTE
    }

    fn awaited(&self, node: &Node) -> Awaited {
        // If it is not the last operation, all must agree that there is another one.
        if self.cut.is_sliced || self.index == 0 && !self.cut.is_whole() || self.agrees(node).is_some() {
            return Awaited::All;
        }
        awaited(self.call, node.rank)
    }

    /// The class of the call, if all wait for all at this operation, so that they can agree on its way.
    fn agrees(&self, node: &Node) -> Option<u32> {
        // Once for each call: waiting for all ends the overlap of its operations.
        let class = self.class.filter(|_| self.index == 0 && node.pulls())?;
        let wait_anyway = match self.call {
            Call::Allgather { .. } | Call::Alltoall { .. } => true,
            _rooted => self.cut.is_sliced || !self.cut.is_whole(),
        };
        (wait_anyway || node.is_due(self.waits.unwrap_or(node.next), self.call, class)).then_some(class)
    }

    /// Leaves this member's data for the others, and computes if it is the last one.
    #[inline]
    fn arrive(&self, node: &mut Node) -> u64 {
        let stamp = node.announcing(stamp(self.call), self.call, self.class);
        if self.cut.is_sliced && self.index > 0 {
            self.combine_slice(node, node.next - 1);
        }
        let (number, arrival) = self.leave(node, stamp);
        if let Call::Barrier = self.call {
            node.end_barrier(number, arrival, stamp);
        } else {
            let own = self::stamp(self.call);
            node.finish_checked(number, arrival, |stamp| differ(stamp, own), |node| self.compute(node, number));
        }
        number
    }

    /// Leaves this member's data for the others.
    #[inline]
    pub(super) fn leave(&self, mail: &mut impl Mailboxes, stamp: u64) -> (u64, Arrival) {
        let me = mail.rank();
        let Operands { send, recv, .. } = self.operands;
        let (send, recv) = (&send.buffer, &recv.buffer);
        let own = |in_place: bool| if in_place { recv } else { send };
        let (from, len) = self.cut.piece(self.index);
        match self.call {
            Call::Barrier => mail.arrive(stamp, 0, false, |_| ()),
            Call::Bcast { root, .. } if root == me => mail.arrive(stamp, len, true, |slot| slot.fill(recv, from)),
            Call::Scatter { root, block, .. } if root == me => {
                self.leave_for_each(mail, stamp, send, block as usize, true)
            }
            Call::Bcast { .. } | Call::Scatter { .. } => mail.arrive(stamp, 0, false, |_| ()),
            // The root copies its own block directly.
            Call::Gather { root, .. } if root == me => mail.arrive(stamp, 0, false, |_| ()),
            Call::Gather { .. } => mail.arrive(stamp, len, false, |slot| slot.fill(send, from)),
            Call::Allgather { in_place, .. } => {
                let (buffer, at, block) =
                    if in_place { self.operands.place_of(me, self.cut.block()) } else { (send, 0, send.len()) };
                let (from, len) = self.cut.piece_of(block, self.index);
                mail.arrive(stamp, len, false, |slot| slot.fill(buffer, at + from))
            }
            Call::Alltoall { block, in_place } => {
                self.leave_for_each(mail, stamp, own(in_place), block as usize, false)
            }
            Call::Reduce { root, in_place, .. } => {
                mail.arrive(stamp, len, false, |slot| slot.fill(own(in_place && root == me), from))
            }
            Call::Allreduce { in_place, .. } => mail.arrive(stamp, len, false, |slot| slot.fill(own(in_place), from)),
            Call::Scan { in_place, .. } | Call::Exscan { in_place, .. } => {
                mail.arrive(stamp, len, !self.cut.is_sliced, |slot| slot.fill(own(in_place), from))
            }
            Call::ReduceScatterBlock { in_place, .. } => self.leave_parts(mail, stamp, own(in_place)),
        }
    }

    /// Leaves a piece for each other member, one after the other.
    #[inline]
    fn leave_for_each(
        &self,
        mail: &mut impl Mailboxes,
        stamp: u64,
        buffer: &Buffer,
        block: usize,
        awaited: bool,
    ) -> (u64, Arrival) {
        let (from, len) = self.cut.piece(self.index);
        let (me, others) = (mail.rank() as usize, mail.size() as usize - 1);
        mail.arrive(stamp, others * len, awaited, |slot| {
            if len == block {
                let below = me * block;
                slot.part(0, below).fill(buffer, 0);
                slot.part(below, others * block - below).fill(buffer, below + block);
                return;
            }
            for index in 0..others {
                let member = index + usize::from(index >= me);
                slot.part(index * len, len).fill(buffer, member * block + from);
            }
        })
    }

    /// The last member combines the operands for all.
    fn compute(&self, node: &Node, number: u64) {
        if let Call::Allreduce { .. } | Call::Reduce { .. } = self.call {
            self.combine_for_all(node, number);
        }
    }

    /// Reads the data that it waited for.
    #[inline]
    fn read(&self, node: &Node, number: u64) {
        match self.call {
            Call::Reduce { root, .. } if root != node.rank => {}
            Call::Allreduce { .. } | Call::Reduce { .. } => self.take_result(node, number),
            Call::Scan { .. } | Call::Exscan { .. } if self.cut.is_sliced => self.take_prefix(node, number),
            _moved_or_combined_by_each => self.read_left(node, number),
        }
    }

    /// Reads what the others have left; each member combines for itself.
    #[inline]
    pub(super) fn read_left(&self, mail: &impl Mailboxes, number: u64) {
        let (me, size) = (mail.rank(), mail.size());
        let Operands { send, recv, .. } = self.operands;
        let (send, recv) = (&send.buffer, &recv.buffer);
        let (from, len) = self.cut.piece(self.index);
        let is_first = self.index == 0;
        match self.call {
            Call::Barrier => {}
            Call::Bcast { root, .. } if root != me => take(mail, number, root, len, (0, len), recv, from),
            Call::Scatter { root, .. } if root != me => self.take_own(mail, number, root, recv, from),
            Call::Scatter { block, in_place, .. } => {
                let own = send.part(me as usize * block as usize, block as usize);
                if !in_place && is_first {
                    own.copy_over(recv, 0);
                }
            }
            Call::Gather { root, block, in_place } if root == me => {
                let (block, packed) = (block as usize, mail.packed(number, self.cut.block(), Awaited::All));
                for member in (0..size).filter(|member| *member != me) {
                    self.take_block(mail, number, member, packed, len, (recv, member as usize * block + from));
                }
                if !in_place && is_first {
                    send.copy_over(recv, me as usize * block);
                }
            }
            Call::Bcast { .. } | Call::Gather { .. } => {}
            Call::Allgather { in_place, .. } => {
                let packed = mail.packed(number, self.cut.block(), Awaited::All);
                for member in (0..size).filter(|member| *member != me) {
                    let (buffer, at, block) = self.operands.place_of(member, self.cut.block());
                    let (from, len) = self.cut.piece_of(block, self.index);
                    self.take_block(mail, number, member, packed, len, (buffer, at + from));
                }
                if !in_place && is_first {
                    let (buffer, at, _) = self.operands.place_of(me, self.cut.block());
                    send.copy_over(buffer, at);
                }
            }
            Call::Alltoall { block, in_place } => {
                let block = block as usize;
                for member in (0..size).filter(|member| *member != me) {
                    self.take_own(mail, number, member, recv, member as usize * block + from);
                }
                if !in_place && is_first {
                    let at = me as usize * block;
                    send.part(at, block).copy_over(recv, at);
                }
            }
            Call::Reduce { root, .. } if root != me => {}
            Call::Allreduce { .. } | Call::Reduce { .. } => self.combine_first(mail, number, size),
            Call::ReduceScatterBlock { .. } => self.combine_part(mail, number),
            Call::Scan { .. } => self.combine_first(mail, number, me + 1),
            Call::Exscan { .. } => self.combine_first(mail, number, me),
        }
    }

    /// Takes the `len` bytes that a member has left for all to a place in a buffer, from where they are packed if they are.
    #[inline]
    fn take_block(
        &self,
        mail: &impl Mailboxes,
        number: u64,
        member: u32,
        packed: Packed,
        len: usize,
        (into, at): (&Buffer, usize),
    ) {
        if member >= packed.members() {
            return take(mail, number, member, len, (0, len), into, at);
        }
        let block = self.cut.block();
        write(into, at, std::ptr::slice_from_raw_parts(packed.block(member, block), len.min(block)));
    }

    /// Takes the piece that a member has left for this one among those for all others.
    #[inline]
    fn take_own(&self, mail: &impl Mailboxes, number: u64, member: u32, into: &Buffer, at: usize) {
        let (_, len) = self.cut.piece(self.index);
        let whole = (mail.size() as usize - 1) * len;
        take(mail, number, member, whole, (mail.index_at(member) * len, len), into, at);
    }
}

/// The members that a member waits for in the only operation of a call.
#[inline(always)]
pub(super) fn awaited(call: Call, me: u32) -> Awaited {
    match call {
        Call::Bcast { root, .. } | Call::Scatter { root, .. } if root != me => Awaited::One(root),
        Call::Gather { root, .. } | Call::Reduce { root, .. } if root == me => Awaited::All,
        Call::Bcast { .. } | Call::Scatter { .. } | Call::Gather { .. } | Call::Reduce { .. } => Awaited::None,
        Call::Barrier | Call::Allgather { .. } | Call::Alltoall { .. } => Awaited::All,
        Call::Allreduce { .. } | Call::ReduceScatterBlock { .. } => Awaited::All,
        Call::Scan { .. } | Call::Exscan { .. } => Awaited::Before(me),
    }
}

/// How many blocks a member leaves at most.
#[inline(always)]
pub(super) fn blocks(call: Call, members: u32) -> usize {
    match call {
        Call::Scatter { .. } | Call::Alltoall { .. } | Call::ReduceScatterBlock { .. } => members as usize,
        Call::Barrier | Call::Bcast { .. } | Call::Gather { .. } | Call::Allgather { .. } => 1,
        Call::Reduce { .. } | Call::Allreduce { .. } | Call::Scan { .. } | Call::Exscan { .. } => 1,
    }
}

/// Whether the awaited members have left the same stamp as this member at an operation.
#[inline(always)]
pub(super) fn agreed_among(node: &Node, number: u64, awaited: Awaited, own: u64) -> MpiResult {
    if awaited == Awaited::All {
        return agreed(node, number, own);
    }
    let differing = match awaited {
        Awaited::Before(me) if node.shape().packs() => node.differing_before(number, me, own, differ),
        Awaited::None | Awaited::One(_) | Awaited::Before(_) | Awaited::All => {
            node.differing(number, awaited, |stamp| differ(stamp, own))
        }
    };
    differing.map_or(Ok(()), |member| Err(disagrees(node, number, member)))
}

/// Copies bytes (offset, length) of the `whole` that a member has left into a buffer.
#[inline]
pub(super) fn take(
    mail: &impl Mailboxes,
    number: u64,
    member: u32,
    whole: usize,
    (from, len): (usize, usize),
    into: &Buffer,
    at: usize,
) {
    mail.with_data(number, member, whole, |data| {
        write(into, at, std::ptr::slice_from_raw_parts(data.cast::<u8>().wrapping_add(from), len));
    });
}

#[inline]
#[expect(unsafe_code, reason = "a member's data are read through a pointer")]
pub(super) fn write(into: &Buffer, at: usize, data: *const [u8]) {
    reads(data.cast(), data.len());
    // SAFETY: the bytes lie within a slot; their member (and in a scan, those that combine slices) has finished writing and does not change
    // them before this member arrives at the next operation. A process that breaks this rule only corrupts what is read: no reference to them exists.
    unsafe { into.copy_from(at, data.cast(), data.len()) }
}

/// The kinds of calls, as they stand in the highest byte of a stamp. Those of [`super::uneven`] begin at 16.
pub(super) mod kind {
    pub(in super::super) const BARRIER: u64 = 1;
    pub(in super::super) const BCAST: u64 = 2;
    pub(in super::super) const GATHER: u64 = 3;
    pub(in super::super) const SCATTER: u64 = 4;
    pub(in super::super) const ALLGATHER: u64 = 5;
    pub(in super::super) const ALLTOALL: u64 = 6;
    pub(in super::super) const REDUCE: u64 = 7;
    pub(in super::super) const ALLREDUCE: u64 = 8;
    pub(in super::super) const REDUCE_SCATTER_BLOCK: u64 = 9;
    pub(in super::super) const SCAN: u64 = 10;
    pub(in super::super) const EXSCAN: u64 = 11;

    /// The kind of the call that has this stamp.
    #[inline(always)]
    pub(in super::super) fn of(stamp: u64) -> u64 {
        stamp >> 56
    }

    /// Whether a member may announce something in the stamp of such a call.
    #[inline(always)]
    pub(in super::super) fn announces(stamp: u64) -> bool {
        matches!(of(stamp), BCAST | GATHER | REDUCE | ALLGATHER | ALLTOALL)
    }
}

/// Identifies a call: members with different stamps have called different functions.
#[inline(always)]
pub(super) fn stamp(call: Call) -> u64 {
    let (kind, root, len) = match call {
        Call::Barrier => (kind::BARRIER, 0, 0),
        Call::Bcast { root, len } => (kind::BCAST, root, len),
        Call::Gather { root, block, .. } => (kind::GATHER, root, block),
        Call::Scatter { root, block, .. } => (kind::SCATTER, root, block),
        Call::Allgather { block, .. } => (kind::ALLGATHER, 0, block),
        Call::Alltoall { block, .. } => (kind::ALLTOALL, 0, block),
        Call::Reduce { root, vector, .. } => (kind::REDUCE, root, vector.len()),
        Call::Allreduce { vector, .. } => (kind::ALLREDUCE, 0, vector.len()),
        Call::ReduceScatterBlock { block, .. } => (kind::REDUCE_SCATTER_BLOCK, 0, block.len()),
        Call::Scan { vector, .. } => (kind::SCAN, 0, vector.len()),
        Call::Exscan { vector, .. } => (kind::EXSCAN, 0, vector.len()),
    };
    kind << 56 | u64::from(root) << 32 | (len & 0xffff_ffff)
}

/// Whether two stamps are of different calls.
#[inline]
pub(super) fn differ(one: u64, other: u64) -> bool {
    (one ^ other) & if kind::announces(other) { !ANNOUNCED } else { u64::MAX } != 0
}

/// The stamp of a member whose arguments are invalid.
pub(super) const REFUSED: u64 = 14 << 56;

/// Takes part in a call, of either way, without data: this member's arguments are invalid. Those that depend on it notice it.
pub fn refuse(node: &mut Node) -> Option<MpiResult> {
    if !node.has_room(true) {
        return node.died();
    }
    let (number, arrival) = node.arrive(REFUSED, 0, true, |_| ());
    if let Arrival::Last { .. } = arrival {
        let verdict = u64::from(node.rank) + 1;
        node.finish(number, verdict);
    }
    Some(Ok(()))
}

/// Whether all members left the same stamp at an operation at which all have arrived.
#[inline]
pub(super) fn agreed(node: &Node, number: u64, stamp: u64) -> MpiResult {
    let differing = if node.is_counted() {
        node.verdict(number).checked_sub(1).map(|member| member as u32)
    } else {
        node.differing(number, Awaited::All, |other| differ(other, stamp))
    };
    differing.map_or(Ok(()), |member| Err(disagrees(node, number, member)))
}

#[cold]
pub(super) fn disagrees(mail: &impl Mailboxes, number: u64, rank: u32) -> MpiError {
    if rank != mail.rank() && rank < mail.size() && mail.stamp(number, rank) == REFUSED {
        return MpiError::other(format!("rank {rank} abandoned this operation: its arguments are invalid"))
            .secondhand();
    }
    MpiError::truncate(format!(
        "rank {rank} called a different collective function, or passed a different length or root"
    ))
}
