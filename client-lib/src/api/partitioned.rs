//! Partitioned communication (MPI 5.0 §4).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::args::{self, put};
use super::completion::{add, check_room, poll};
use crate::abi::constants::MPI_ANY_TAG;
use crate::abi::{CommHandle, DatatypeHandle, InfoHandle, RequestHandle};
use crate::engine::Source;
use crate::error::{MpiError, MpiResult};
use crate::object::partitioned::{PARTITIONS_MAX, Side, context_of};
use crate::object::requests::{PartitionedId, Request};
use crate::runtime::{Runtime, State};

/// `MPI_Psend_init`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn psend_init(
    rt: &Runtime,
    buf: *const c_void,
    partitions: c_int,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    tag: c_int,
    comm: CommHandle,
    info: InfoHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    check_room(&guard, request)?;
    // SAFETY: the caller's promise.
    let side = unsafe { side(&guard, buf, partitions, count, datatype, dest, tag, comm, info)? };
    let State { partitions, engine, .. } = &mut *guard;
    let id = partitions.sender(engine, side);
    // SAFETY: the caller's promise.
    unsafe { put(request, add(&mut guard, Request::Partitioned { id, comm })?) }
}

/// `MPI_Precv_init`.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
pub unsafe fn precv_init(
    rt: &Runtime,
    buf: *mut c_void,
    partitions: c_int,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    info: InfoHandle,
    request: *mut RequestHandle,
) -> MpiResult {
    let mut guard = rt.lock();
    check_room(&guard, request)?;
    // SAFETY: the caller's promise.
    let side = unsafe { side(&guard, buf, partitions, count, datatype, source, tag, comm, info)? };
    let State { partitions, engine, .. } = &mut *guard;
    let id = partitions.receiver(engine, side);
    // SAFETY: the caller's promise.
    unsafe { put(request, add(&mut guard, Request::Partitioned { id, comm })?) }
}

/// Checks the arguments of both.
#[expect(clippy::too_many_arguments, reason = "the standard's argument list")]
unsafe fn side(
    state: &State,
    buf: *const c_void,
    partitions: c_int,
    count: i64,
    datatype: DatatypeHandle,
    rank: c_int,
    tag: c_int,
    comm_handle: CommHandle,
    info: InfoHandle,
) -> MpiResult<Side> {
    let comm = state.comms.get(comm_handle)?;
    let partitions = usize::try_from(partitions).ok().filter(|count| *count <= PARTITIONS_MAX);
    let Some(partitions) = partitions else {
        return Err(MpiError::arg(format!("invalid number of partitions: it must be 0 to {PARTITIONS_MAX}")));
    };
    if tag == MPI_ANY_TAG {
        return Err(MpiError::tag("partitioned communication does not accept MPI_ANY_TAG"));
    }
    let tag = args::tag(tag)?;
    let other = match args::source(comm, rank)? {
        Some(Source::Any) => {
            return Err(MpiError::rank("partitioned communication does not accept MPI_ANY_SOURCE"));
        }
        Some(Source::Rank(rank)) => Some((rank, comm.parties.place_of_named(rank))),
        None => None,
    };
    // Hints: none is known, but the handle must be valid.
    state.infos.hints(info)?;
    if count < 0 {
        return Err(MpiError::count(format!("invalid count {count}")));
    }
    let total = count.checked_mul(partitions as i64).ok_or_else(|| {
        MpiError::count(format!("{partitions} partitions of {count} elements exceed the address space"))
    })?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { args::buffer(state, buf, total, datatype)? };
    Ok(Side {
        comm: comm_handle,
        members: Arc::clone(comm.parties.all()),
        context: context_of(comm.collective_context()),
        place: comm.parties.place(),
        other,
        tag,
        buffer,
        partitions,
    })
}

/// `MPI_Pready`.
pub unsafe fn pready(rt: &Runtime, partition: c_int, request: RequestHandle) -> MpiResult {
    ready(rt, request, &[(partition, partition)])
}

/// `MPI_Pready_range`: both ends are included.
pub unsafe fn pready_range(
    rt: &Runtime,
    partition_low: c_int,
    partition_high: c_int,
    request: RequestHandle,
) -> MpiResult {
    if partition_low > partition_high {
        let text = format!("invalid range of partitions: {partition_low} to {partition_high}");
        return Err(MpiError::arg(text));
    }
    ready(rt, request, &[(partition_low, partition_high)])
}

/// `MPI_Pready_list`.
pub unsafe fn pready_list(
    rt: &Runtime,
    length: c_int,
    array_of_partitions: *const c_int,
    request: RequestHandle,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let list = unsafe { args::elements(length, array_of_partitions, "partitions")? };
    let ranges: Vec<(c_int, c_int)> = list.iter().map(|part| (*part, *part)).collect();
    ready(rt, request, &ranges)
}

fn ready(rt: &Runtime, request: RequestHandle, ranges: &[(c_int, c_int)]) -> MpiResult {
    let mut guard = rt.lock();
    let (id, comm) = partitioned(&guard, request)?;
    for (low, high) in ranges {
        let State { partitions, engine, .. } = &mut *guard;
        if partitions.release(engine, id, *low, *high).map_err(|error| error.on(comm))? {
            // Another thread may wait for the request.
            guard.wake_others();
        }
    }
    Ok(())
}

/// `MPI_Parrived`: true for a null request, as for an inactive one.
pub unsafe fn parrived(rt: &Runtime, request: RequestHandle, partition: c_int, flag: *mut c_int) -> MpiResult {
    args::check_place(flag)?;
    if request == RequestHandle::NULL {
        // SAFETY: the caller's promise.
        return unsafe { put(flag, 1) };
    }
    let mut guard = rt.lock();
    let (id, comm) = partitioned(&guard, request)?;
    let look = |state: &mut State| match state.partitions.has_arrived(id, partition) {
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(error.on(comm))),
    };
    let arrived = poll(&mut guard, look).transpose()?;
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(arrived.is_some())) }
}

fn partitioned(state: &State, request: RequestHandle) -> MpiResult<(PartitionedId, CommHandle)> {
    match state.requests.get(request) {
        Some(Request::Partitioned { id, comm }) => Ok((*id, *comm)),
        Some(_) => Err(MpiError::request("not a partitioned request")),
        None => Err(MpiError::request("invalid, null or freed request")),
    }
}
