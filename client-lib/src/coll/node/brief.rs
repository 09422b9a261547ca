//! Short calls on data that lie in one piece of the host's memory: what [`super::Work`] does for every call, in a fraction of its
//! instructions. Members may execute the same call in either way: what they leave for each other is the same.

mod uneven;

use std::ops::Range;

pub use uneven::{Block, PartsBrief, UnevenBrief, VariedBrief};

use super::combine::{Left, combine};
use super::mailboxes::{Awaited, Mailboxes, Packed};
use super::way::is_sliced;
use super::work::{agreed_among, awaited, blocks, differ, stamp};
use super::{Arrival, NOTE, Node, Shape};
use crate::coll::choice::Call;
use crate::copy::copy;
use crate::error::MpiResult;
use crate::op::Kernel;
use crate::shared_memory::sync::reads;

/// The longest block. Every call whose blocks are not longer takes one operation over slots, so long as what a member leaves fits there.
const MOST: usize = 4096;

/// A call, and the addresses of its data. Each function that makes one has a copy of the code for itself, with its number, in which the
/// compiler knows the kind of the call; the copy with number 0 serves all.
#[derive(Debug, Clone, Copy)]
pub struct Brief<const FUNCTION: u8> {
    call: Call,
    send: *const u8,
    recv: *mut u8,
    kernel: Option<Kernel>,
}

/// What [`Brief::poll`] remembers: the operation that it waits for.
#[derive(Debug, Default)]
pub struct Met(Option<u64>);

impl<const FUNCTION: u8> Brief<FUNCTION> {
    /// A call that [`fits`]. `send`: what this member gives, also if that lies where its result goes; `recv`: where its result goes. A
    /// broadcast's root has its data in `send`. `kernel` combines elements of the vector's unit, if the call combines.
    ///
    /// # Safety
    ///
    /// Until the call is over, `send` must be readable and `recv` writable for the bytes that the call gives to this member and gets from it.
    #[inline(always)]
    pub unsafe fn new(call: Call, send: *const u8, recv: *mut u8, kernel: Option<Kernel>) -> Self {
        Self { call, send, recv, kernel }
    }

    /// Continues the call; returns the result once it is over.
    #[inline(always)]
    pub fn poll(self, node: &mut Node, met: &mut Met) -> Option<MpiResult> {
        let (size, awaited) = (node.size(), awaited(self.call, node.rank));
        let is_short = self.block() * blocks(self.call, size) <= NOTE;
        let number = match node.meet(&mut met.0, awaited, is_short, move |node| self.arrive(node))? {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        if awaited != Awaited::None
            && let Err(error) = agreed_among(node, number, awaited, stamp(self.call))
        {
            return Some(Err(error));
        }
        self.read(node, number);
        Some(Ok(()))
    }

    /// The same call in the copy of the code that serves all.
    pub fn any(self) -> Brief<0> {
        let Self { call, send, recv, kernel } = self;
        Brief { call, send, recv, kernel }
    }

    /// The bytes of a block.
    #[inline(always)]
    fn block(self) -> usize {
        block(self.call) as usize
    }

    /// Leaves this member's data for the others, and computes if it is the last one.
    #[inline(always)]
    fn arrive(self, node: &mut Node) -> u64 {
        let (own, me, others, len) = (stamp(self.call), node.rank, node.size() as usize - 1, self.block());
        let (number, arrival) = match self.call {
            Call::Bcast { root, .. } if root == me => self.leave(node, len, true),
            Call::Gather { root, .. } if root != me => self.leave(node, len, false),
            Call::Scatter { root, .. } if root == me => self.leave_for_each(node, others, len, true),
            Call::Alltoall { .. } => self.leave_for_each(node, others, len, false),
            Call::Barrier | Call::Bcast { .. } | Call::Gather { .. } | Call::Scatter { .. } => {
                node.arrive(own, 0, false, |_| ())
            }
            Call::Allgather { .. } | Call::Reduce { .. } | Call::Allreduce { .. } => self.leave(node, len, false),
            Call::Scan { .. } | Call::Exscan { .. } => self.leave(node, len, true),
            Call::ReduceScatterBlock { .. } => self.leave(node, len * (others + 1), false),
        };
        if let Call::Barrier = self.call {
            node.end_barrier(number, arrival, own);
        } else {
            node.finish_checked(number, arrival, |stamp| differ(stamp, own), |node| self.compute(node, number));
        }
        number
    }

    #[inline(always)]
    fn leave(self, node: &mut Node, len: usize, awaited: bool) -> (u64, Arrival) {
        // SAFETY: the slot has room for `len` bytes, which this member gives.
        node.arrive(stamp(self.call), len, awaited, |slot| unsafe { copy(self.send, slot.start(), len) })
    }

    /// Leaves a block for each other member, one after the other.
    #[inline(always)]
    fn leave_for_each(self, node: &mut Node, others: usize, len: usize, awaited: bool) -> (u64, Arrival) {
        let below = node.rank as usize * len;
        node.arrive(stamp(self.call), others * len, awaited, |slot| {
            // SAFETY: the slot has room for the blocks of the others, which this member gives.
            unsafe {
                copy(self.send, slot.start(), below);
                copy(self.send.add(below + len), slot.start().add(below), others * len - below);
            }
        })
    }

    /// The last member combines the operands for all.
    #[inline(always)]
    fn compute(self, node: &Node, number: u64) {
        if let Call::Allreduce { .. } | Call::Reduce { .. } = self.call {
            let len = self.block();
            let packed = node.packed(number, len, Awaited::All);
            let left = Left { packed, ..Left::unpacked(number, node.size(), len) };
            node.with_result(number, len, |result| self.combine(node, left, 0, result.cast()));
        }
    }

    /// Combines a block, `at` bytes into what each of the first members has left, into `result`.
    #[inline(always)]
    fn combine(self, node: &Node, left: Left, at: usize, result: *mut u8) {
        let (Some(kernel), Some(count), len) = (self.kernel, elements(self.call), self.block()) else { return };
        // SAFETY: `combine` passes the addresses of `len` bytes of elements.
        combine(node, left, (at, len), result, move |from, into| unsafe { kernel.run(from, into, count) });
    }

    /// Reads the data that it waited for.
    #[inline(always)]
    fn read(self, node: &Node, number: u64) {
        let (me, size, len) = (node.rank, node.size(), self.block());
        let at = |member: u32| member as usize * len;
        match self.call {
            Call::Barrier => {}
            Call::Bcast { root, .. } if root != me => self.take(node, number, root, len, 0, 0),
            Call::Scatter { root, .. } if root != me => self.take_own(node, number, root, 0),
            Call::Scatter { .. } => self.keep(at(me), 0),
            Call::Gather { root, .. } if root != me => {}
            Call::Gather { .. } | Call::Allgather { .. } => {
                let packed = node.packed(number, len, Awaited::All);
                if packed.members() == size {
                    self.take_packed(node, packed);
                } else {
                    for member in (0..size).filter(|member| *member != me) {
                        self.take(node, number, member, len, 0, at(member));
                    }
                }
                self.keep(0, at(me));
            }
            Call::Alltoall { .. } => {
                for member in (0..size).filter(|member| *member != me) {
                    self.take_own(node, number, member, at(member));
                }
                self.keep(at(me), at(me));
            }
            Call::Bcast { .. } => {}
            Call::Reduce { root, .. } if root != me => {}
            Call::Allreduce { .. } | Call::Reduce { .. } if node.is_counted() => {
                node.with_result_of(number, len, |result| {
                    reads(result.cast(), len);
                    // SAFETY: this member gets the result, of `len` bytes.
                    unsafe { copy(result.cast(), self.recv, len) }
                });
            }
            Call::Allreduce { .. } | Call::Reduce { .. } => {
                self.combine(node, Left::unpacked(number, size, len), 0, self.recv);
            }
            Call::ReduceScatterBlock { .. } => {
                self.combine(node, Left::unpacked(number, size, size as usize * len), at(me), self.recv);
            }
            Call::Scan { .. } | Call::Exscan { .. } => {
                let members = if let Call::Scan { .. } = self.call { me + 1 } else { me };
                let packed = node.packed(number, len, Awaited::Before(me));
                self.combine(node, Left { packed, ..Left::unpacked(number, members, len) }, 0, self.recv);
            }
        }
    }

    /// Takes a block, `from` bytes into the `whole` that a member has left, to byte `to` of the result.
    #[inline(always)]
    fn take(self, node: &Node, number: u64, member: u32, whole: usize, from: usize, to: usize) {
        node.with_data(number, member, whole, |data| {
            let data = data.cast::<u8>().wrapping_add(from);
            reads(data, self.block());
            // SAFETY: the block lies within the member's data, and within what this member gets.
            unsafe { copy(data, self.recv.add(to), self.block()) }
        });
    }

    /// Takes the packed blocks of all members but this one.
    #[inline(always)]
    fn take_packed(self, node: &Node, packed: Packed) {
        for (group, blocks) in packed.groups() {
            if group.contains(&node.rank) {
                self.take_blocks(group.start..node.rank, blocks);
                let next = node.rank + 1;
                self.take_blocks(next..group.end, packed.block(next, self.block()));
            } else {
                self.take_blocks(group, blocks);
            }
        }
    }

    /// Takes blocks that follow each other from `start` on.
    #[inline(always)]
    fn take_blocks(self, members: Range<u32>, start: *const u8) {
        let len = members.len() * self.block();
        reads(start, len);
        // SAFETY: the blocks lie in the packs of the operation, and within what this member gets.
        unsafe { copy(start, self.recv.add(members.start as usize * self.block()), len) };
    }

    /// Takes the block that a member has left for this one among those for all others.
    #[inline(always)]
    fn take_own(self, node: &Node, number: u64, member: u32, to: usize) {
        let (others, index) = (node.size() as usize - 1, node.index_at(member));
        self.take(node, number, member, others * self.block(), index * self.block(), to);
    }

    /// Copies this member's block for itself, unless it is in its place.
    #[inline(always)]
    fn keep(self, from: usize, to: usize) {
        let (from, to) = (self.send.wrapping_add(from), self.recv.wrapping_add(to));
        if !to.is_null() && from != to {
            // SAFETY: both lie within what this member gives and gets.
            unsafe { copy(from, to, self.block()) }
        }
    }
}

/// Whether a call is short enough over memory of this shape: it takes one operation.
#[inline(always)]
pub fn fits(call: Call, shape: Shape) -> bool {
    let (block, room) = (block(call), shape.slot as u64);
    let is_short = (1..=MOST as u64).contains(&block) && block < room;
    let is_whole = is_short && !is_sliced(call, shape) && block * blocks(call, shape.members) as u64 <= room;
    matches!(call, Call::Barrier) || is_whole
}

#[inline(always)]
fn block(call: Call) -> u64 {
    match call {
        Call::Barrier => 0,
        Call::Bcast { len, .. } => len,
        Call::Gather { block, .. } | Call::Scatter { block, .. } => block,
        Call::Allgather { block, .. } | Call::Alltoall { block, .. } => block,
        Call::Reduce { vector, .. } | Call::Allreduce { vector, .. } => vector.len(),
        Call::Scan { vector, .. } | Call::Exscan { vector, .. } => vector.len(),
        Call::ReduceScatterBlock { block, .. } => block.len(),
    }
}

/// The number of elements that the call combines; `None` if it combines none.
#[inline(always)]
fn elements(call: Call) -> Option<usize> {
    match call {
        Call::Reduce { vector, .. } | Call::Allreduce { vector, .. } => Some(vector.count as usize),
        Call::Scan { vector, .. } | Call::Exscan { vector, .. } => Some(vector.count as usize),
        Call::ReduceScatterBlock { block, .. } => Some(block.count as usize),
        Call::Barrier | Call::Bcast { .. } | Call::Gather { .. } | Call::Scatter { .. } => None,
        Call::Allgather { .. } | Call::Alltoall { .. } => None,
    }
}
