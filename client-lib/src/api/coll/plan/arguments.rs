//! The blocks of a collective operation in memory, and the checks on them.

use std::ffi::c_void;

use crate::abi::DatatypeHandle;
use crate::abi::constants::MPI_IN_PLACE;
use crate::api::args;
use crate::api::ints::Ints;
use crate::coll::Here;
use crate::coll::operands::Memory;
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::runtime::State;

#[inline]
pub(super) fn is_in_place(address: *const c_void) -> bool {
    address.addr() == MPI_IN_PLACE
}

pub(super) fn not_in_place(address: *const c_void) -> MpiResult {
    if is_in_place(address) {
        return Err(MpiError::buffer("this function does not accept MPI_IN_PLACE in this argument"));
    }
    Ok(())
}

/// Whether the root passes `MPI_IN_PLACE`, which no other rank may.
pub(super) fn at_root_in_place(address: *const c_void, is_root: bool) -> MpiResult<bool> {
    if is_in_place(address) && !is_root {
        return Err(MpiError::buffer("only the root may pass MPI_IN_PLACE"));
    }
    Ok(is_in_place(address))
}

/// Memory that the user lends for elements.
pub(super) unsafe fn memory(
    state: &State,
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<Memory> {
    not_in_place(address)?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { args::buffer(state, address, count, datatype)? };
    Ok(Memory::new(address.cast_mut().cast(), buffer))
}

/// Memory for a result.
pub(super) unsafe fn result(
    state: &State,
    address: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<Memory> {
    // SAFETY: the caller's promise.
    unsafe { memory(state, address, count, datatype) }
}

/// Memory for one block per rank.
pub(super) unsafe fn blocks(
    state: &State,
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    here: Here,
) -> MpiResult<Memory> {
    let all = count.checked_mul(i64::from(here.size)).ok_or_else(|| too_many(count))?;
    // SAFETY: the caller's promise.
    unsafe { memory(state, address, all, datatype) }
}

/// Operands and results of the same length; no operands if in place. Also returns whether they are apart.
pub(super) unsafe fn vectors(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<(Memory, Memory, MpiResult)> {
    // SAFETY: the caller's promise.
    unsafe { to_be_scattered(state, sendbuf, recvbuf, count, count, datatype) }
}

/// Operands of one length and results of another; in place, the operands lie where the results go. Also returns whether they are apart.
pub(super) unsafe fn to_be_scattered(
    state: &State,
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    all: i64,
    own: i64,
    datatype: DatatypeHandle,
) -> MpiResult<(Memory, Memory, MpiResult)> {
    if is_in_place(sendbuf) {
        // SAFETY: the caller's promise.
        return Ok((Memory::NONE, unsafe { result(state, recvbuf, all, datatype)? }, Ok(())));
    }
    // SAFETY: the caller's promise.
    let (send, recv) = unsafe { (memory(state, sendbuf, all, datatype)?, result(state, recvbuf, own, datatype)?) };
    let check = apart((sendbuf, datatype), send.len(), (recvbuf, datatype), recv.len());
    Ok((send, recv, check))
}

/// The datatypes of several blocks; if each has its own, displacements are in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Types {
    One(DatatypeHandle),
    Each(*const DatatypeHandle),
}

/// Memory for one block per rank, each with its own length and place.
pub(super) unsafe fn places(
    state: &State,
    address: *const c_void,
    counts: Ints,
    displs: Ints,
    types: Types,
    here: Here,
) -> MpiResult<Box<[Buffer]>> {
    there_is(counts, "counts")?;
    there_is(displs, "displacements")?;
    let (datatype, extent) = match types {
        Types::One(datatype) => (datatype, state.types.resolve_committed(datatype)?.extent()),
        Types::Each(types) if types.is_null() => return Err(MpiError::datatype("the array of datatypes is null")),
        Types::Each(_) => (DatatypeHandle::NULL, 1),
    };
    let place = |rank: usize| {
        let datatype = match types {
            Types::One(_) => datatype,
            // SAFETY: the caller's promise; the array is not null.
            Types::Each(types) => unsafe { types.add(rank).read() },
        };
        // SAFETY: the caller's promise; the arrays are not null.
        let (count, displacement) = unsafe { (counts.get(rank), displs.get(rank)) };
        // With MPI_BOTTOM, displacements that have the size of an address are addresses.
        let is_bottom = matches!((types, displs), (Types::Each(_), Ints::Wide(_)));
        let is_basic = crate::datatype::basic_size(datatype).is_some();
        if count > 0 && address.is_null() && displacement != 0 && is_basic && !is_bottom {
            return Err(MpiError::buffer(format!("the buffer is null, for {count} elements of rank {rank}")));
        }
        // Where nothing is, any displacement will do.
        let displacement = if count == 0 { 0 } else { displacement };
        let offset = displacement.checked_mul(extent).and_then(|offset| isize::try_from(offset).ok());
        let offset = offset.ok_or_else(|| MpiError::arg(format!("the displacement {displacement} is too large")))?;
        let address = address.wrapping_byte_offset(offset);
        if count > 0 && is_basic && args::is_null_page(address.addr() as i64) {
            return Err(MpiError::buffer(format!("the elements of rank {rank} are at address {}", address.addr())));
        }
        // SAFETY: the caller's promise.
        unsafe { args::buffer(state, address, count, datatype) }
    };
    let mut places = Vec::with_capacity(here.size as usize);
    for rank in 0..here.size as usize {
        places.push(place(rank)?);
    }
    Ok(places.into())
}

pub(super) fn lens(buffers: &[Buffer]) -> Vec<u64> {
    buffers.iter().map(|buffer| buffer.len() as u64).collect()
}

/// The total length of all blocks.
pub(super) fn total(blocks: &[Buffer]) -> MpiResult<u64> {
    let mut lens = blocks.iter().map(|block| block.len() as u64);
    lens.try_fold(0_u64, u64::checked_add).ok_or_else(|| too_many(i64::MAX))
}

pub(super) fn there_is(array: Ints, what: &str) -> MpiResult {
    if array.is_null() {
        return Err(MpiError::arg(format!("the array of {what} is null")));
    }
    Ok(())
}

/// The send and receive buffers must not be the same memory (MPI 5.0 §6.2.3). Different derived types may name different bytes from one
/// address on.
pub(super) fn apart(
    (send, sendtype): (*const c_void, DatatypeHandle),
    send_len: u64,
    (recv, recvtype): (*const c_void, DatatypeHandle),
    recv_len: u64,
) -> MpiResult {
    let is_basic = |datatype| crate::datatype::basic_size(datatype).is_some();
    let are_alike = sendtype == recvtype || (is_basic(sendtype) && is_basic(recvtype));
    if send == recv && send_len > 0 && recv_len > 0 && !send.is_null() && are_alike {
        return Err(MpiError::buffer("the send and receive buffers are the same: pass MPI_IN_PLACE"));
    }
    Ok(())
}

/// The bytes that a rank sends to itself must fit where it receives them.
pub(super) fn fits(sent: u64, room: u64) -> MpiResult {
    if sent > room {
        return Err(MpiError::truncate(format!("this rank sends itself {sent} bytes, but receives at most {room}")));
    }
    Ok(())
}

/// As [`fits`], where the other ranks expect as many bytes as this one receives from itself.
pub(super) fn equal(sent: u64, room: u64) -> MpiResult {
    fits(sent, room)?;
    if sent < room {
        return Err(MpiError::count(format!(
            "this rank sends {sent} bytes, but receives {room} from each rank, also from itself"
        )));
    }
    Ok(())
}

#[cold]
pub(super) fn too_many(count: i64) -> MpiError {
    MpiError::count(format!("{count} elements per rank exceed the address space"))
}
