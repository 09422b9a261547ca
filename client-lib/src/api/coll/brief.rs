//! The short cut of blocking collectives on short data over a node's shared memory.
//!
//! Most calls of most programs have valid arguments, a basic datatype, a few bytes in the host's memory, and members on one node. For these,
//! a plan with its operands costs more than the operation. The functions here take the same arguments as those of [`super::plan`], and
//! return `None` for every call that is not of this kind, or that is wrong: then nothing has happened, and the plan says what is wrong.

mod uneven;

use std::ffi::{c_int, c_void};

use super::intranode::{polls, wait};
use crate::abi::constants::MPI_IN_PLACE;
use crate::abi::{CommHandle, DatatypeHandle, OpHandle};
use crate::coll::node::{Brief, Met, Node, Sharing, fits};
use crate::coll::{Call, Here, Members, Vector};
use crate::datatype::forgettable_size;
use crate::device;
use crate::error::{MpiError, MpiResult};
use crate::op::{Kernel, loop_for};
use crate::runtime::Guard;

/// Calls the function of this name, if there is one, and returns its result if it has one.
macro_rules! attempt {
    (alltoallw $arguments:tt) => {};
    (neighbor_allgather $arguments:tt) => {};
    (neighbor_allgatherv $arguments:tt) => {};
    (neighbor_alltoall $arguments:tt) => {};
    (neighbor_alltoallv $arguments:tt) => {};
    (neighbor_alltoallw $arguments:tt) => {};
    ($name:ident ($($argument:expr),*)) => {
        // SAFETY: the caller's promise.
        if let Some(result) = unsafe { brief::$name($($argument),*) } {
            return result;
        }
    };
}
pub(super) use attempt;
pub(super) use uneven::{allgatherv, alltoallv, gatherv, reduce_scatter, scatterv};

/// `MPI_Barrier`.
pub(super) unsafe fn barrier(guard: &mut Guard<'_>, comm: CommHandle) -> Option<MpiResult> {
    // SAFETY: a barrier reads and writes no data.
    unsafe { run::<1>(guard, comm, |_| Some((Call::Barrier, std::ptr::null(), std::ptr::null_mut(), None))) }
}

/// `MPI_Bcast`.
pub(super) unsafe fn bcast(
    guard: &mut Guard<'_>,
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (data, len) = (plain(buffer)?, bytes(count, datatype)?);
    // SAFETY: the caller's promise.
    unsafe { run::<2>(guard, comm, |here| Some((Call::Bcast { root: rank(root, here)?, len }, data, data, None))) }
}

/// `MPI_Gather`.
pub(super) unsafe fn gather(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> Option<MpiResult> {
    let call = |here: Here| {
        let root = rank(root, here)?;
        if here.rank != root {
            let block = bytes(sendcount, sendtype)?;
            let send = plain(sendbuf)?.cast_const();
            return Some((Call::Gather { root, block, in_place: false }, send, std::ptr::null_mut(), None));
        }
        let (recv, block) = (plain(recvbuf)?, bytes(recvcount, recvtype)?);
        let own = own_block((sendbuf, sendcount, sendtype), recv, block, here)?;
        Some((Call::Gather { root, block, in_place: false }, own, recv, None))
    };
    // SAFETY: the caller's promise.
    unsafe { run::<3>(guard, comm, call) }
}

/// `MPI_Scatter`.
pub(super) unsafe fn scatter(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: CommHandle,
) -> Option<MpiResult> {
    let call = |here: Here| {
        let root = rank(root, here)?;
        if here.rank != root {
            let block = bytes(recvcount, recvtype)?;
            return Some((Call::Scatter { root, block, in_place: false }, std::ptr::null(), plain(recvbuf)?, None));
        }
        let (send, block) = (plain(sendbuf)?, bytes(sendcount, sendtype)?);
        let recv = if recvbuf.addr() == MPI_IN_PLACE { std::ptr::null_mut() } else { plain(recvbuf)? };
        let is_sound = recv.is_null() || recv != send && bytes(recvcount, recvtype)? == block;
        is_sound.then_some((Call::Scatter { root, block, in_place: false }, send.cast_const(), recv, None))
    };
    // SAFETY: the caller's promise.
    unsafe { run::<4>(guard, comm, call) }
}

/// `MPI_Allgather`.
pub(super) unsafe fn allgather(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (recv, block) = (plain(recvbuf)?, bytes(recvcount, recvtype)?);
    let call = |here: Here| {
        let own = own_block((sendbuf, sendcount, sendtype), recv, block, here)?;
        Some((Call::Allgather { block, in_place: false }, own, recv, None))
    };
    // SAFETY: the caller's promise.
    unsafe { run::<5>(guard, comm, call) }
}

/// `MPI_Alltoall`.
pub(super) unsafe fn alltoall(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (send, recv, block) = (plain(sendbuf)?, plain(recvbuf)?, bytes(recvcount, recvtype)?);
    if send == recv || bytes(sendcount, sendtype)? != block {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { run::<6>(guard, comm, |_| Some((Call::Alltoall { block, in_place: false }, send, recv, None))) }
}

/// `MPI_Reduce`.
pub(super) unsafe fn reduce(
    guard: &mut Guard<'_>,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    comm: CommHandle,
) -> Option<MpiResult> {
    let (vector, kernel) = (vector(count, datatype)?, loop_for(op, datatype)?);
    let call = |here: Here| {
        let root = rank(root, here)?;
        let (send, recv) = match here.rank == root {
            true => vectors(sendbuf, recvbuf)?,
            false => (plain(sendbuf)?.cast_const(), std::ptr::null_mut()),
        };
        Some((Call::Reduce { root, vector, commutes: true, in_place: false }, send, recv, Some(kernel)))
    };
    // SAFETY: the caller's promise.
    unsafe { run::<7>(guard, comm, call) }
}

macro_rules! combining {
    ($($number:literal $name:ident $function:literal $call:ident { $vector:ident $(, $field:ident: $value:expr)* };)*) => {$(
        #[doc = concat!("`MPI_", $function, "`.")]
        pub(super) unsafe fn $name(
            guard: &mut Guard<'_>,
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: i64,
            datatype: DatatypeHandle,
            op: OpHandle,
            comm: CommHandle,
        ) -> Option<MpiResult> {
            let ($vector, kernel, (send, recv)) =
                (vector(count, datatype)?, loop_for(op, datatype)?, vectors(sendbuf, recvbuf)?);
            let call = Call::$call { $vector, in_place: false $(, $field: $value)* };
            // SAFETY: the caller's promise.
            unsafe { run::<$number>(guard, comm, |_| Some((call, send, recv, Some(kernel)))) }
        }
    )*};
}

combining! {
    8 allreduce "Allreduce" Allreduce { vector, commutes: true };
    9 reduce_scatter_block "Reduce_scatter_block" ReduceScatterBlock { block, commutes: true };
    10 scan "Scan" Scan { vector };
    11 exscan "Exscan" Exscan { vector };
}

/// Executes a call: what it is, and where this member's data and its result lie. `None`: it is not short, or cannot use shared memory.
///
/// # Safety
///
/// As for [`Brief::new`]. Each function passes a number of its own, for a copy of the code.
#[inline(always)]
unsafe fn run<const FUNCTION: u8>(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    call: impl FnOnce(Here) -> Option<(Call, *const u8, *mut u8, Option<Kernel>)>,
) -> Option<MpiResult> {
    let node = node(guard, comm)?;
    let (call, send, recv, kernel) = call(Here::new(node.rank(), node.size()))?;
    if !fits(call, node.shape()) {
        return None;
    }
    // SAFETY: the caller's promise.
    let brief = unsafe { Brief::<FUNCTION>::new(call, send, recv, kernel) };
    let any = brief.any();
    complete(guard, comm, move |node, met| brief.poll(node, met), move |node, met| any.poll(node, met))
}

/// Polls by `poll` until the call is over, and if that takes long, by `again`; returns what they return. Pass two closures even if they do the
/// same: one that is called from two places would not become part of the caller.
#[inline(always)]
fn complete<T, P, A>(guard: &mut Guard<'_>, comm: CommHandle, poll: P, again: A) -> Option<MpiResult<T>>
where
    P: Fn(&mut Node, &mut Met) -> Option<MpiResult<T>>,
    A: Fn(&mut Node, &mut Met) -> Option<MpiResult<T>>,
{
    let (polls, node, mut met) = (polls(guard), node(guard, comm)?, Met::default());
    for _ in 0..polls {
        if let Some(result) = poll(node, &mut met) {
            return Some(result);
        }
    }
    // What another function gets the address of would not stay in registers.
    let mut later = met;
    Some(wait_for(guard, comm, &mut move |node| again(node, &mut later)))
}

/// The memory that the members of a communicator share, if they do.
#[inline(always)]
fn node<'a>(guard: &'a mut Guard<'_>, comm: CommHandle) -> Option<&'a mut Node> {
    let communicator = guard.comms.get_mut(comm).ok()?;
    match &mut communicator.sharing {
        Sharing::Ready(shared) if !communicator.is_revoked => Some(&mut shared.node),
        Sharing::Ready(_) | Sharing::Untried(_) | Sharing::Never | Sharing::Busy => None,
    }
}

/// Waits for the end of a call that has not ended at once.
#[cold]
#[inline(never)]
fn wait_for<T>(
    guard: &mut Guard<'_>,
    comm: CommHandle,
    poll: &mut dyn FnMut(&mut Node) -> Option<MpiResult<T>>,
) -> MpiResult<T> {
    let communicator = guard.comms.get_mut(comm)?;
    let (parties, context) = (&communicator.parties, communicator.collective_context());
    let here = Here::new(parties.place(), parties.all().len() as u32);
    let members = Members { context, here, peers: parties.all().clone() };
    let Sharing::Ready(mut shared) = std::mem::replace(&mut communicator.sharing, Sharing::Busy) else {
        return Err(MpiError::intern("the shared memory of a communicator is gone"));
    };
    let result = wait(guard, &members, &mut shared.node, poll);
    if let Ok(communicator) = guard.comms.get_mut(comm) {
        communicator.sharing = Sharing::Ready(shared);
    }
    result
}

/// An address of elements in the host's memory; `None` if it may be anything else.
#[inline(always)]
fn plain(address: *const c_void) -> Option<*mut u8> {
    let is_usual = address.addr() > MPI_IN_PLACE && !device::may_hold(address.cast());
    is_usual.then_some(address.cast_mut().cast())
}

/// The bytes of elements of a basic datatype; `None` if it may be anything else, or there are none, or very many.
#[inline(always)]
fn bytes(count: i64, datatype: DatatypeHandle) -> Option<u64> {
    vector(count, datatype).map(Vector::len)
}

#[inline(always)]
fn vector(count: i64, datatype: DatatypeHandle) -> Option<Vector> {
    let count = u64::from(u32::try_from(count).ok()?);
    Some(Vector { count, unit: forgettable_size(datatype)? as u64 })
}

#[inline(always)]
fn rank(root: c_int, here: Here) -> Option<u32> {
    u32::try_from(root).ok().filter(|root| *root < here.size)
}

/// Where the operands lie, and where the result goes.
#[inline(always)]
fn vectors(sendbuf: *const c_void, recvbuf: *mut c_void) -> Option<(*const u8, *mut u8)> {
    let recv = plain(recvbuf)?;
    if sendbuf.addr() == MPI_IN_PLACE {
        return Some((recv, recv));
    }
    Some((plain(sendbuf)?.cast_const(), recv)).filter(|(send, _)| *send != recv)
}

/// Where this member's block lies that goes with those of all others to `recv`.
#[inline(always)]
fn own_block(
    (sendbuf, count, datatype): (*const c_void, i64, DatatypeHandle),
    recv: *mut u8,
    block: u64,
    here: Here,
) -> Option<*const u8> {
    if sendbuf.addr() == MPI_IN_PLACE {
        return Some(recv.wrapping_add(here.rank as usize * block as usize));
    }
    let send = plain(sendbuf)?;
    (send != recv && bytes(count, datatype)? == block).then_some(send)
}
