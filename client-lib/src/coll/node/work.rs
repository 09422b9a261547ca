//! The operations over shared memory: what a member leaves, which members it waits for, what it reads.

use super::{Arrival, Node, REVOKED};
use crate::coll::choice::Call;
use crate::coll::halving::Vector;
use crate::coll::operands::Operands;
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::op::Reduction;

/// A call in progress. [`Work::poll`] continues it.
#[derive(Debug)]
pub struct Work<'a> {
    call: Call,
    operands: &'a Operands,
    reduction: Option<&'a Reduction>,
    /// Bytes of a block that are done; a long block takes several operations.
    done: usize,
    /// The operation that it waits for.
    waits: Option<u64>,
}

/// How a call is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through slots: [`Work`].
    Slots,
    /// Directly from memory to memory: [`super::Pull`].
    Pull,
}

/// The longest block for all members that goes through slots in pieces. A piece that all members read is still in the
/// cache; two copies then take a third of the time of one copy by the kernel (measured with 2 to 16 members on two
/// cores).
const PIECED: u64 = 4 << 20;

/// The longest block for a single member that goes through slots. Each byte of a longer one is read only once, and the
/// pieces for each member become short.
const PIECED_FOR_EACH: u64 = 64 << 10;

/// How to execute a call over memory with slots of `room` bytes, among members that can or cannot read each other's
/// memory (`pulls`); `None` if it needs messages. All members get the same answer.
pub fn way(
    call: Call,
    size: u32,
    room: usize,
    pulls: bool,
    reduction: Option<&Reduction>,
    is_dense: bool,
) -> Option<Way> {
    if size < 2 {
        return None;
    }
    let (room, members) = (room as u64, u64::from(size));
    // A user function must be called with nothing locked; elements with holes are combined in the user's own memory.
    let fits = |len: u64| (0 < len && len <= room).then_some(Way::Slots);
    let in_pieces = |len: u64, most: u64| if len <= most { Some(Way::Slots) } else { pulls.then_some(Way::Pull) };
    let combines = |len: u64| {
        if is_dense && reduction.is_some_and(|it| it.commutes() && !it.calls_user()) { fits(len) } else { None }
    };
    match call {
        Call::Barrier => Some(Way::Slots),
        Call::Bcast { len, .. } => (0 < len && len <= 16 * room).then_some(Way::Slots),
        Call::Gather { block, .. } => fits(block),
        Call::Scatter { block, .. } => fits(block.saturating_mul(members)),
        Call::Allgather { block: 0, .. } | Call::Alltoall { block: 0, .. } => None,
        Call::Allgather { block, .. } => in_pieces(block, PIECED),
        Call::Alltoall { block, .. } => {
            let pieces = 16 * share(room as usize, size) as u64;
            let most = if members == 2 || !pulls { PIECED } else { PIECED_FOR_EACH.min(pieces) };
            in_pieces(block, most)
        }
        Call::Reduce { vector, .. }
        | Call::Allreduce { vector, .. }
        | Call::Scan { vector, .. }
        | Call::Exscan { vector, .. } => combines(vector.len()),
        Call::ReduceScatterBlock { block, .. } => combines(block.len().saturating_mul(members)),
    }
}

/// The part of a member's slot for each other member, in an exchange in pieces.
fn share(room: usize, members: u32) -> usize {
    let share = room / (members as usize - 1);
    // Pieces begin at cache lines.
    if share >= 64 { share & !63 } else { share }
}

/// The members that a member waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    None,
    One(u32),
    All,
}

impl<'a> Work<'a> {
    /// For a call for which [`way`] returned [`Way::Slots`].
    pub fn new(call: Call, operands: &'a Operands, reduction: Option<&'a Reduction>) -> Self {
        Self { call, operands, reduction, done: 0, waits: None }
    }

    /// Continues the call; returns the result once it is over.
    #[inline]
    pub fn poll(&mut self, node: &mut Node) -> Option<MpiResult> {
        loop {
            let awaited = self.awaited(node.rank);
            let number = match self.waits {
                Some(number) => number,
                None => {
                    if !node.has_room() {
                        return node.broken().map(|rank| Err(died(rank)));
                    }
                    let number = self.arrive(node);
                    self.waits = Some(number);
                    number
                }
            };
            let is_there = match awaited {
                Awaited::None => true,
                Awaited::One(member) => node.has_arrived(number, member),
                Awaited::All => node.all_arrived(number),
            };
            if !is_there {
                return node.broken().map(|rank| Err(died(rank)));
            }
            self.waits = None;
            if let Err(error) = self.read(node, number) {
                return Some(Err(error));
            }
            let len = match self.call {
                Call::Bcast { len, .. } => len,
                Call::Allgather { block, .. } | Call::Alltoall { block, .. } => block,
                _ => return Some(Ok(())),
            };
            self.done += self.piece(node, len).1;
            if self.done as u64 >= len {
                return Some(Ok(()));
            }
        }
    }

    fn awaited(&self, me: u32) -> Awaited {
        match self.call {
            Call::Bcast { root, .. } | Call::Scatter { root, .. } if root != me => Awaited::One(root),
            Call::Gather { root, .. } | Call::Reduce { root, .. } if root == me => Awaited::All,
            Call::Bcast { .. } | Call::Scatter { .. } | Call::Gather { .. } | Call::Reduce { .. } => Awaited::None,
            Call::Barrier
            | Call::Allgather { .. }
            | Call::Alltoall { .. }
            | Call::Allreduce { .. }
            | Call::ReduceScatterBlock { .. }
            | Call::Scan { .. }
            | Call::Exscan { .. } => Awaited::All,
        }
    }

    /// For a call in pieces: the bytes (offset, length) of a block that belong to this operation.
    #[inline]
    fn piece(&self, node: &Node, block: u64) -> (usize, usize) {
        let most = if let Call::Alltoall { .. } = self.call { share(node.room(), node.size()) } else { node.room() };
        (self.done, (block as usize - self.done).min(most))
    }

    /// Leaves this member's data for the others, and computes if it is the last one.
    #[inline]
    fn arrive(&self, node: &mut Node) -> u64 {
        let (stamp, me) = (stamp(self.call), node.rank);
        let Operands { send, recv, .. } = self.operands;
        let (send, recv) = (&send.buffer, &recv.buffer);
        let own = |in_place: bool| if in_place { recv } else { send };
        let (number, arrival) = match self.call {
            Call::Barrier => node.arrive(stamp, 0, false, |_| ()),
            Call::Bcast { root, len } if root == me => {
                let (at, len) = self.piece(node, len);
                node.arrive(stamp, len, true, |slot| recv.read(at, slot))
            }
            Call::Scatter { root, .. } if root == me => node.arrive(stamp, send.len(), true, |slot| send.read(0, slot)),
            Call::Bcast { .. } | Call::Scatter { .. } => node.arrive(stamp, 0, false, |_| ()),
            // The root copies its own block directly.
            Call::Gather { root, .. } if root == me => node.arrive(stamp, 0, false, |_| ()),
            Call::Gather { .. } => node.arrive(stamp, send.len(), false, |slot| send.read(0, slot)),
            Call::Allgather { block, in_place } => {
                let (from, len) = self.piece(node, block);
                let (buffer, at) = if in_place { (recv, me as usize * block as usize) } else { (send, 0) };
                node.arrive(stamp, len, false, |slot| buffer.read(at + from, slot))
            }
            Call::Alltoall { block, in_place } => {
                let (from, len) = self.piece(node, block);
                let (buffer, block) = (own(in_place), block as usize);
                let (before, after) = (me as usize * block, (me as usize + 1) * block);
                let others = node.size() as usize - 1;
                node.arrive(stamp, others * len, false, |slot| {
                    if len == block {
                        let (lower, upper) = slot.split_at_mut(before);
                        buffer.read(0, lower);
                        buffer.read(after, upper);
                        return;
                    }
                    for (index, piece) in slot.chunks_exact_mut(len).enumerate() {
                        let member = index + usize::from(index >= me as usize);
                        buffer.read(member * block + from, piece);
                    }
                })
            }
            Call::Reduce { root, in_place, .. } => {
                let buffer = own(in_place && root == me);
                node.arrive(stamp, buffer.len(), false, |slot| buffer.read(0, slot))
            }
            Call::Allreduce { in_place, .. }
            | Call::ReduceScatterBlock { in_place, .. }
            | Call::Scan { in_place, .. }
            | Call::Exscan { in_place, .. } => {
                let buffer = own(in_place);
                node.arrive(stamp, buffer.len(), false, |slot| buffer.read(0, slot))
            }
        };
        if arrival == Arrival::Last {
            let verdict = self.compute(node, number);
            node.finish(number, verdict);
        }
        number
    }

    /// The last member checks that all have called the same function, and combines the operands for all.
    fn compute(&self, node: &Node, number: u64) -> u64 {
        let stamp = stamp(self.call);
        let differing = (0..node.size()).find(|member| node.stamp(number, *member) != stamp);
        if let Some(differing) = differing {
            return u64::from(differing) + 1;
        }
        if let Call::Allreduce { vector, .. } | Call::Reduce { vector, .. } = self.call {
            node.with_result(number, vector.len() as usize, |result| {
                self.combine(node, number, 0..node.size(), vector, (0, vector), result.cast());
            });
        }
        0
    }

    /// Reads the data that it waited for.
    #[inline]
    fn read(&self, node: &Node, number: u64) -> MpiResult {
        let (me, size) = (node.rank, node.size());
        let Operands { send, recv, .. } = self.operands;
        let (send, recv) = (&send.buffer, &recv.buffer);
        self.agreed(node, number)?;
        match self.call {
            Call::Barrier => {}
            Call::Bcast { root, len } if root != me => {
                let (at, len) = self.piece(node, len);
                take(node, number, root, len, (0, len), recv, at);
            }
            Call::Scatter { root, block, .. } if root != me => {
                let block = block as usize;
                take(node, number, root, size as usize * block, (me as usize * block, block), recv, 0);
            }
            Call::Scatter { block, in_place, .. } => {
                let own = send.part(me as usize * block as usize, block as usize);
                if !in_place {
                    crate::coll::operands::copy(&own, &recv.part(0, own.len()));
                }
            }
            Call::Gather { root, block, in_place } if root == me => {
                let block = block as usize;
                for member in (0..size).filter(|member| *member != me) {
                    take(node, number, member, block, (0, block), recv, member as usize * block);
                }
                if !in_place {
                    crate::coll::operands::copy(send, &recv.part(me as usize * block, send.len()));
                }
            }
            Call::Bcast { .. } | Call::Gather { .. } => {}
            Call::Allgather { block, in_place } => {
                let (from, len) = self.piece(node, block);
                let block = block as usize;
                for member in (0..size).filter(|member| *member != me) {
                    take(node, number, member, len, (0, len), recv, member as usize * block + from);
                }
                if !in_place && from == 0 {
                    crate::coll::operands::copy(send, &recv.part(me as usize * block, send.len()));
                }
            }
            Call::Alltoall { block, in_place } => {
                let (from, len) = self.piece(node, block);
                let block = block as usize;
                let whole = (size as usize - 1) * len;
                for member in (0..size).filter(|member| *member != me) {
                    // Each member skips its own block.
                    let at = if me < member { me } else { me - 1 } as usize * len;
                    take(node, number, member, whole, (at, len), recv, member as usize * block + from);
                }
                if !in_place && from == 0 {
                    let at = me as usize * block;
                    crate::coll::operands::copy(&send.part(at, block), &recv.part(at, block));
                }
            }
            Call::Reduce { root, .. } if root != me => {}
            Call::Allreduce { vector, .. } | Call::Reduce { vector, .. } => {
                if node.is_counted() {
                    node.with_result_of(number, vector.len() as usize, |result| write(recv, 0, result));
                } else {
                    self.combine_for_user(node, number, size, vector, (0, vector));
                }
            }
            Call::ReduceScatterBlock { block, .. } => {
                let whole = Vector { count: block.count * u64::from(size), ..block };
                self.combine_for_user(node, number, size, whole, (u64::from(me) * block.count, block));
            }
            Call::Scan { vector, .. } => self.combine_for_user(node, number, me + 1, vector, (0, vector)),
            Call::Exscan { .. } if me == 0 => {}
            Call::Exscan { vector, .. } => self.combine_for_user(node, number, me, vector, (0, vector)),
        }
        Ok(())
    }

    /// Whether the members that this one depends on have called the same function.
    #[inline]
    fn agreed(&self, node: &Node, number: u64) -> MpiResult {
        let differing = match self.awaited(node.rank) {
            Awaited::None => None,
            Awaited::One(member) => (node.stamp(number, member) != stamp(self.call)).then_some(member),
            Awaited::All => return agreed(node, number, stamp(self.call)),
        };
        differing.map_or(Ok(()), |member| Err(disagrees(node, number, member)))
    }

    /// Combines a part of what the first members have left, in rank order, into the user's memory.
    fn combine_for_user(&self, node: &Node, number: u64, members: u32, whole: Vector, part: (u64, Vector)) {
        let recv = &self.operands.recv.buffer;
        let (Some(result), true) = (recv.as_contiguous(), recv.len() as u64 >= part.1.len()) else { return };
        self.combine(node, number, 0..members, whole, part, result);
    }

    /// Combines `part` (first element, length) of vectors of length `whole` into `result`, which has room for it.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    fn combine(
        &self,
        node: &Node,
        number: u64,
        members: std::ops::Range<u32>,
        whole: Vector,
        (first, part): (u64, Vector),
        result: *mut u8,
    ) {
        let Some(reduction) = self.reduction else { return };
        let (at, len) = ((first * part.unit) as usize, part.len() as usize);
        for member in members.clone() {
            node.with_data(number, member, whole.len() as usize, |data| {
                let from = data.cast::<u8>().wrapping_add(at);
                // SAFETY: the part lies within a member's data, which that member does not change until all have read
                // it; only this member uses `result`. Predefined operations commute, so they may be applied from the
                // right.
                unsafe {
                    if member == members.start {
                        result.copy_from(from, len);
                    } else {
                        reduction.apply(from, result, part.count as usize);
                    }
                }
            });
        }
    }
}

/// Copies bytes (offset, length) of the `whole` that a member has left into a buffer.
#[inline]
fn take(node: &Node, number: u64, member: u32, whole: usize, (from, len): (usize, usize), into: &Buffer, at: usize) {
    node.with_data(number, member, whole, |data| {
        write(into, at, std::ptr::slice_from_raw_parts(data.cast::<u8>().wrapping_add(from), len));
    });
}

#[inline]
#[expect(unsafe_code, reason = "a member's data are read through a pointer")]
fn write(into: &Buffer, at: usize, data: *const [u8]) {
    // SAFETY: the bytes lie within a slot; their member has finished writing and does not change them before this
    // member arrives at the next operation. A process that breaks this rule only corrupts what is read.
    into.write(at, unsafe { &*data });
}

/// Identifies a call: members with different stamps have called different functions.
pub(super) fn stamp(call: Call) -> u64 {
    let (kind, root, len) = match call {
        Call::Barrier => (1, 0, 0),
        Call::Bcast { root, len } => (2, root, len),
        Call::Gather { root, block, .. } => (3, root, block),
        Call::Scatter { root, block, .. } => (4, root, block),
        Call::Allgather { block, .. } => (5, 0, block),
        Call::Alltoall { block, .. } => (6, 0, block),
        Call::Reduce { root, vector, .. } => (7, root, vector.len()),
        Call::Allreduce { vector, .. } => (8, 0, vector.len()),
        Call::ReduceScatterBlock { block, .. } => (9, 0, block.len()),
        Call::Scan { vector, .. } => (10, 0, vector.len()),
        Call::Exscan { vector, .. } => (11, 0, vector.len()),
    };
    kind << 56 | u64::from(root) << 32 | (len & 0xffff_ffff)
}

/// The stamp of a member whose arguments are invalid.
const REFUSED: u64 = 14 << 56;

/// Takes part in a call, of either way, without data: this member's arguments are invalid. Those that depend on it notice it.
pub fn refuse(node: &mut Node) -> Option<MpiResult> {
    if !node.has_room() {
        return node.broken().map(|rank| Err(died(rank)));
    }
    let (number, arrival) = node.arrive(REFUSED, 0, true, |_| ());
    if arrival == Arrival::Last {
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
        (0..node.size()).find(|member| node.stamp(number, *member) != stamp)
    };
    differing.map_or(Ok(()), |member| Err(disagrees(node, number, member)))
}

#[cold]
pub(super) fn died(rank: u32) -> MpiError {
    if rank == REVOKED {
        return MpiError::was_revoked();
    }
    MpiError::proc_aborted(format!("rank {rank} of the communicator has died"))
}

#[cold]
fn disagrees(node: &Node, number: u64, rank: u32) -> MpiError {
    if rank != node.rank && rank < node.size() && node.stamp(number, rank) == REFUSED {
        return MpiError::other(format!("rank {rank} abandoned this operation: its arguments are invalid"))
            .secondhand();
    }
    MpiError::truncate(format!(
        "rank {rank} called a different collective function, or passed a different length or root"
    ))
}
