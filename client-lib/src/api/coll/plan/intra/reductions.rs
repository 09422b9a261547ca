//! Operations that combine, on an intracommunicator.

use std::ffi::{c_int, c_void};

use super::super::arguments::{
    apart, at_root_in_place, is_in_place, memory, result, there_is, to_be_scattered, too_many, vectors,
};
use super::super::{On, Plan, Varied, What, combining};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::api::args;
use crate::api::ints::Ints;
use crate::coll::operands::Memory;
use crate::coll::{Call, Vector};
use crate::error::{MpiError, MpiResult};
use crate::runtime::State;

/// `MPI_Reduce`.
pub(in crate::api::coll) unsafe fn reduce(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, communicator, members } = on;
    let root = args::root(communicator, root)?;
    let is_root = root == members.here.rank;
    let in_place = at_root_in_place(sendbuf, is_root)?;
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe {
        let send = if in_place { Memory::NONE } else { memory(state, sendbuf, count, datatype)? };
        (send, if is_root { result(state, recvbuf, count, datatype)? } else { Memory::NONE })
    };
    let check = match is_root {
        true => apart((sendbuf, datatype), send.len(), (recvbuf, datatype), recv.len()),
        false => Ok(()),
    };
    combining(state, check, comm, members, send, recv, count, datatype, op, &|vector, commutes| {
        What::Call(Call::Reduce { root, vector, commutes, in_place })
    })
}

/// `MPI_Allreduce`.
pub(in crate::api::coll) unsafe fn allreduce(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let in_place = is_in_place(sendbuf);
    // SAFETY: the caller's promise.
    let (send, recv, check) = unsafe { vectors(state, sendbuf, recvbuf, count, datatype)? };
    combining(state, check, comm, members, send, recv, count, datatype, op, &|vector, commutes| {
        What::Call(Call::Allreduce { vector, commutes, in_place })
    })
}

/// `MPI_Scan`.
pub(in crate::api::coll) unsafe fn scan(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let in_place = is_in_place(sendbuf);
    // SAFETY: the caller's promise.
    let (send, recv, check) = unsafe { vectors(state, sendbuf, recvbuf, count, datatype)? };
    combining(state, check, comm, members, send, recv, count, datatype, op, &|vector, _| {
        What::Call(Call::Scan { vector, in_place })
    })
}

/// `MPI_Exscan`: rank 0 has no result.
pub(in crate::api::coll) unsafe fn exscan(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let in_place = is_in_place(sendbuf);
    // SAFETY: the caller's promise.
    let (send, recv, check) = unsafe {
        if members.here.rank == 0 && !in_place {
            (memory(state, sendbuf, count, datatype)?, Memory::NONE, Ok(()))
        } else {
            vectors(state, sendbuf, recvbuf, count, datatype)?
        }
    };
    combining(state, check, comm, members, send, recv, count, datatype, op, &|vector, _| {
        What::Call(Call::Exscan { vector, in_place })
    })
}

/// `MPI_Reduce_scatter_block`.
pub(in crate::api::coll) unsafe fn reduce_scatter_block(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let in_place = is_in_place(sendbuf);
    let all = recvcount.checked_mul(i64::from(members.here.size)).ok_or_else(|| too_many(recvcount))?;
    // SAFETY: the caller's promise.
    let (send, recv, check) = unsafe { to_be_scattered(state, sendbuf, recvbuf, all, recvcount, datatype)? };
    combining(state, check, comm, members, send, recv, recvcount, datatype, op, &|block, commutes| {
        What::Call(Call::ReduceScatterBlock { block, commutes, in_place })
    })
}

/// `MPI_Reduce_scatter`.
pub(in crate::api::coll) unsafe fn reduce_scatter(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Ints,
    datatype: DatatypeHandle,
    op: OpHandle,
    on: On<'_>,
) -> MpiResult<Plan> {
    let On { comm, members, .. } = on;
    let here = members.here;
    let in_place = is_in_place(sendbuf);
    there_is(recvcounts, "counts")?;
    // SAFETY: the caller's promise.
    let counts = unsafe { recvcounts.to_vec(here.size as usize) };
    if let Some(negative) = counts.iter().find(|count| **count < 0) {
        return Err(MpiError::count(format!("negative count {negative}")));
    }
    let all = counts.iter().try_fold(0_i64, |sum, count| sum.checked_add(*count)).ok_or_else(|| too_many(i64::MAX))?;
    // SAFETY: the caller's promise.
    let (send, recv, check) =
        unsafe { to_be_scattered(state, sendbuf, recvbuf, all, counts[here.rank as usize], datatype)? };
    let counts: Box<[u64]> = counts.iter().map(|count| count.unsigned_abs()).collect();
    combining(state, check, comm, members, send, recv, all, datatype, op, &|vector, commutes| {
        let mut end = 0;
        let parts = counts.iter().map(|count| {
            let len = count * vector.unit;
            end += len;
            (end - len, len)
        });
        let parts = parts.collect();
        let longest = Vector { count: counts.iter().copied().max().unwrap_or(0), ..vector };
        What::Varied(Varied::ReduceScatter { longest, counts: counts.clone(), parts, commutes, in_place })
    })
}
