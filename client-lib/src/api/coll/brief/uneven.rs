//! The v forms, whose blocks have lengths and places of their own.

use std::ffi::{c_int, c_void};

use super::{bytes, complete, node, plain, rank, vectors};
use crate::abi::constants::MPI_IN_PLACE;
use crate::abi::{CommHandle, DatatypeHandle, OpHandle};
use crate::api::ints::Ints;
use crate::coll::Here;
use crate::coll::node::{Block, PartsBrief, Uneven, UnevenBrief, VariedBrief};
use crate::datatype::forgettable_size;
use crate::device;
use crate::error::MpiResult;
use crate::op::loop_for;
use crate::runtime::Guard;

/// One block for each member.
#[derive(Clone, Copy)]
struct Blocks {
    start: *mut u8,
    counts: Ints,
    displs: Ints,
    size: usize,
}

impl Blocks {
    /// `None` if they may be unusual: of another than a basic datatype, in a device's memory, long, or wrong.
    ///
    /// # Safety
    ///
    /// The arrays must have an element for each of the `members`, unless they are null.
    #[inline(always)]
    unsafe fn new(
        address: *const c_void,
        counts: Ints,
        displs: Ints,
        datatype: DatatypeHandle,
        members: u32,
    ) -> Option<Self> {
        if counts.is_null() || displs.is_null() {
            return None;
        }
        let blocks = Self { start: plain(address)?, counts, displs, size: forgettable_size(datatype)? };
        let is_usual = |member: u32| {
            // SAFETY: the caller's promise.
            let (count, displacement) = unsafe { (counts.get(member as usize), displs.get(member as usize)) };
            let (block, is_near) = (blocks.at(member).0.cast_const(), displacement.unsigned_abs() < FARTHEST);
            let is_there = is_near && block.addr() >= FIRST && !device::may_hold(block);
            (0..=LONGEST).contains(&count) && (is_there || count == 0)
        };
        (0..members).all(is_usual).then_some(blocks)
    }

    #[inline(always)]
    fn at(self, member: u32) -> Block {
        // SAFETY: as `new` has been promised.
        let (count, displacement) = unsafe { (self.counts.get(member as usize), self.displs.get(member as usize)) };
        let offset = (displacement as isize).wrapping_mul(self.size as isize);
        (self.start.wrapping_offset(offset), count as usize * self.size)
    }
}

/// More elements are never few bytes.
const LONGEST: i64 = 1 << 16;

/// No program's memory reaches so many elements from any address.
const FARTHEST: u64 = 1 << 48;

/// Lower addresses are mistakes.
const FIRST: usize = 4096;

/// `MPI_Gatherv`.
pub(in crate::api::coll) unsafe fn gatherv(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (me, size) = place(guard, comm)?;
    let root = rank(root, Here::new(me, size))?;
    let call = Uneven::Gather { root, in_place: false };
    if me != root {
        let own = (plain(sendbuf)?, any_bytes(sendcount, sendtype)?);
        // SAFETY: the caller's promise; this member gets nothing.
        return unsafe { run(guard, comm, call, move |_| own, |_| (std::ptr::null_mut(), 0)) };
    }
    // SAFETY: the caller's promise.
    let blocks = unsafe { Blocks::new(recvbuf, recvcounts, displs, recvtype, size)? };
    let own = own_block(sendbuf, sendcount, sendtype, blocks, recvbuf, me)?;
    // SAFETY: the caller's promise.
    unsafe { run(guard, comm, call, move |_| own, move |member| blocks.at(member)) }
}

/// `MPI_Scatterv`.
pub(in crate::api::coll) unsafe fn scatterv(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcounts: Ints,
    displs: Ints,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (me, size) = place(guard, comm)?;
    let root = rank(root, Here::new(me, size))?;
    let call = Uneven::Scatter { root, in_place: false };
    if me != root {
        let own = (plain(recvbuf)?, any_bytes(recvcount, recvtype)?);
        // SAFETY: the caller's promise; this member gives nothing.
        return unsafe { run(guard, comm, call, |_| (std::ptr::null_mut(), 0), move |_| own) };
    }
    // SAFETY: the caller's promise.
    let blocks = unsafe { Blocks::new(sendbuf, sendcounts, displs, sendtype, size)? };
    let own = own_block(recvbuf, recvcount, recvtype, blocks, sendbuf, me)?;
    // SAFETY: the caller's promise.
    unsafe { run(guard, comm, call, move |member| blocks.at(member), move |_| own) }
}

/// `MPI_Alltoallv`.
pub(in crate::api::coll) unsafe fn alltoallv(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcounts: Ints,
    sdispls: Ints,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    rdispls: Ints,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (me, size) = place(guard, comm)?;
    if sendbuf == recvbuf {
        return None;
    }
    // SAFETY: the caller's promise.
    let (to, from) = unsafe {
        let to = Blocks::new(sendbuf, sendcounts, sdispls, sendtype, size)?;
        (to, Blocks::new(recvbuf, recvcounts, rdispls, recvtype, size)?)
    };
    if to.at(me).1 != from.at(me).1 {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        run(
            guard,
            comm,
            Uneven::Alltoall { in_place: false },
            move |member| to.at(member),
            move |member| from.at(member),
        )
    }
}

/// `MPI_Allgatherv`.
pub(in crate::api::coll) unsafe fn allgatherv(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    displs: Ints,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (me, size) = place(guard, comm)?;
    // SAFETY: the caller's promise.
    let blocks = unsafe { Blocks::new(recvbuf, recvcounts, displs, recvtype, size)? };
    let (own, _) = own_block(sendbuf, sendcount, sendtype, blocks, recvbuf, me)?;
    // SAFETY: the caller's promise.
    let brief = unsafe { VariedBrief::new(own, move |member| blocks.at(member), node(guard, comm)?)? };
    complete(guard, comm, move |node, met| brief.poll(node, met), move |node, met| brief.poll(node, met))
}

/// `MPI_Reduce_scatter`.
pub(in crate::api::coll) unsafe fn reduce_scatter(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (kernel, unit) = (loop_for(op, datatype)?, forgettable_size(datatype)?);
    let ((send, recv), (_, size)) = (vectors(sendbuf, recvbuf)?, place(guard, comm)?);
    // SAFETY: the caller's promise; it is called if the array is not null, for members.
    let count = move |member: u32| unsafe { recvcounts.get(member as usize) };
    if recvcounts.is_null() || !(0..size).all(|member| (0..=LONGEST).contains(&count(member))) {
        return None;
    }
    // SAFETY: the caller's promise.
    let brief =
        unsafe { PartsBrief::new(send, recv, kernel, unit, |member| count(member) as usize, node(guard, comm)?)? };
    complete(guard, comm, move |node, met| brief.poll(node, met), move |node, met| brief.poll(node, met))
}

/// Executes a call whose blocks are usual for this member. `None`: it has turned out to be unusual.
///
/// # Safety
///
/// As for [`UnevenBrief::new`].
#[inline(always)]
unsafe fn run<To, From>(guard: &mut Guard<'_>, comm: CommHandle, call: Uneven, to: To, from: From) -> Option<MpiResult>
where
    To: Fn(u32) -> Block + Copy,
    From: Fn(u32) -> Block + Copy,
{
    // SAFETY: the caller's promise.
    let brief = unsafe { UnevenBrief::new(call, to, from, node(guard, comm)?)? };
    let result = complete(guard, comm, move |node, met| brief.poll(node, met), move |node, met| brief.poll(node, met))?;
    let is_rooted = matches!(call, Uneven::Gather { .. } | Uneven::Scatter { .. });
    match result {
        Ok(false) => return None,
        // As for all calls that may have to move a rest by messages.
        Ok(true) | Err(_) if is_rooted => {
            if let Ok(communicator) = guard.comms.get_mut(comm) {
                communicator.collectives = communicator.collectives.wrapping_add(1);
            }
        }
        Ok(true) | Err(_) => {}
    }
    Some(result.map(|_| ()))
}

/// This member's rank and the number of members, if they share memory.
#[inline(always)]
fn place(guard: &mut Guard<'_>, comm: CommHandle) -> Option<(u32, u32)> {
    node(guard, comm).map(|node| (node.rank(), node.size()))
}

/// As [`bytes`]; there may be none.
#[inline(always)]
fn any_bytes(count: i64, datatype: DatatypeHandle) -> Option<usize> {
    bytes(count, datatype).map(|bytes| bytes as usize)
}

/// The block of this member that it exchanges with itself, other than that among the `blocks` at `buffer`; that one if it is in its place.
#[inline(always)]
fn own_block(
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    blocks: Blocks,
    buffer: *const c_void,
    me: u32,
) -> Option<Block> {
    if address.addr() == MPI_IN_PLACE {
        return Some(blocks.at(me));
    }
    let own = (plain(address)?, any_bytes(count, datatype)?);
    (address != buffer && own.1 == blocks.at(me).1).then_some(own)
}
