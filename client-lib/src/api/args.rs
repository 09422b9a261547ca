//! What a function makes of its arguments: checked, or an error of the standard's class.

#![expect(unsafe_code, reason = "addresses that C passes")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::constants::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL, MPI_ROOT};
use crate::abi::{DatatypeHandle, Status};
use crate::coll::inter::Root;
use crate::datatype::basic_size;
use crate::engine::{Peer, Source, TAG_MAX, TagMatch};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::comm::Communicator;
use crate::runtime::State;

/// Memory for `count` elements.
///
/// # Safety
///
/// As the standard demands of the user: the memory is the library's until the operation is over.
#[inline(always)]
pub unsafe fn buffer(state: &State, address: *const c_void, count: i64, datatype: DatatypeHandle) -> MpiResult<Buffer> {
    if let (Ok(count), Some(size)) = (u32::try_from(count), basic_size(datatype))
        && !address.is_null()
    {
        // SAFETY: the caller's promise.
        return Ok(unsafe { Buffer::contiguous(address.cast_mut().cast(), count as usize * size) });
    }
    // SAFETY: the caller's promise.
    unsafe { unusual_buffer(state, address, count, datatype) }
}

/// As [`buffer`], for more than 2^32 elements, types with a layout, and what may be wrong.
#[inline(never)]
unsafe fn unusual_buffer(
    state: &State,
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<Buffer> {
    let Ok(count) = usize::try_from(count) else { return Err(negative(count)) };
    if let Some(size) = basic_size(datatype) {
        let Some(len) = count.checked_mul(size).filter(|len| *len <= isize::MAX as usize) else {
            return Err(MpiError::count(format!("{count} elements of {size} bytes are more than memory can be")));
        };
        if address.is_null() && len > 0 {
            return Err(MpiError::buffer(format!("the buffer is null, for {count} elements")));
        }
        // SAFETY: the caller's promise.
        return Ok(unsafe { Buffer::contiguous(address.cast_mut().cast(), len) });
    }
    let datatype = state.types.resolve_committed(datatype)?;
    if datatype.size().checked_mul(count).is_none_or(|len| len > isize::MAX as usize) {
        return Err(MpiError::count(format!(
            "{count} elements of {} bytes are more than memory can be",
            datatype.size()
        )));
    }
    // SAFETY: the caller's promise. The address may be MPI_BOTTOM: the layout then has absolute ones.
    Ok(unsafe { Buffer::new(address.cast_mut().cast(), count, datatype.layout()) })
}

#[cold]
fn negative(count: i64) -> MpiError {
    MpiError::count(format!("the count is {count}"))
}

/// Where a message goes: none for `MPI_PROC_NULL`.
#[inline]
pub fn destination(comm: &Communicator, rank: c_int) -> MpiResult<Option<Peer>> {
    match usize::try_from(rank).ok().and_then(|rank| comm.peers.get(rank)) {
        Some(peer) => Ok(Some(*peer)),
        None if rank == MPI_PROC_NULL => Ok(None),
        None => Err(no_such_rank(comm, rank)),
    }
}

/// Where a message comes from: none for `MPI_PROC_NULL`.
#[inline]
pub fn source(comm: &Communicator, rank: c_int) -> MpiResult<Option<Source>> {
    match u32::try_from(rank) {
        Ok(rank) if (rank as usize) < comm.peers.len() => Ok(Some(Source::Rank(rank))),
        _ if rank == MPI_ANY_SOURCE => Ok(Some(Source::Any)),
        _ if rank == MPI_PROC_NULL => Ok(None),
        _ => Err(no_such_rank(comm, rank)),
    }
}

/// A rank that is meant as one, of whom messages of the communicator name.
pub fn rank(comm: &Communicator, rank: c_int) -> MpiResult<u32> {
    let found = u32::try_from(rank).ok().filter(|rank| (*rank as usize) < comm.peers.len());
    found.ok_or_else(|| no_such_rank(comm, rank))
}

/// The root of a collective of an intracommunicator.
#[inline]
pub fn root(comm: &Communicator, rank: c_int) -> MpiResult<u32> {
    let root = u32::try_from(rank).ok().filter(|rank| (*rank as usize) < comm.peers.len());
    root.ok_or_else(|| MpiError::root(format!("the root {}", no_rank(comm, rank))))
}

/// The root of a collective of an intercommunicator.
pub fn root_of_sides(comm: &Communicator, rank: c_int) -> MpiResult<Root> {
    match u32::try_from(rank) {
        Ok(rank) if (rank as usize) < comm.peers.len() => Ok(Root::Remote(rank)),
        _ if rank == MPI_ROOT => Ok(Root::This),
        _ if rank == MPI_PROC_NULL => Ok(Root::Beside),
        _ => Err(MpiError::root(format!("the root {}, nor MPI_ROOT or MPI_PROC_NULL", no_rank(comm, rank)))),
    }
}

#[cold]
fn no_such_rank(comm: &Communicator, rank: c_int) -> MpiError {
    MpiError::rank(no_rank(comm, rank))
}

fn no_rank(comm: &Communicator, rank: c_int) -> String {
    let whose = if comm.remote().is_some() { "other group of the intercommunicator" } else { "communicator" };
    format!("{rank} is not a rank of the {whose} (0 to {})", comm.peers.len() - 1)
}

/// The tag of a message to send.
#[inline]
pub fn tag(tag: c_int) -> MpiResult<c_int> {
    if tag >= 0 { Ok(tag) } else { Err(MpiError::tag(format!("the tag is {tag}: it must be 0 to {TAG_MAX}"))) }
}

/// The tag to look for.
#[inline]
pub fn tag_match(tag: c_int) -> MpiResult<TagMatch> {
    match tag {
        0.. => Ok(TagMatch::Value(tag)),
        MPI_ANY_TAG => Ok(TagMatch::Any),
        _ => Err(MpiError::tag(format!("the tag is {tag}: it must be 0 to {TAG_MAX}, or MPI_ANY_TAG"))),
    }
}

/// Puts a result where the user wants it; an error of class `MPI_ERR_ARG` if that is nowhere.
///
/// # Safety
///
/// The place must be null or have room.
#[inline]
pub unsafe fn put<T>(place: *mut T, value: T) -> MpiResult {
    if place.is_null() {
        return Err(MpiError::arg("the place for a result is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Puts a status unless the user passes `MPI_STATUS_IGNORE`; the error field stays as it is (MPI 5.0 §3.2.5).
///
/// # Safety
///
/// The place must be null or have room.
#[inline]
pub unsafe fn put_status(place: *mut Status, status: Status) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            let error = (&raw mut (*place).error).read();
            place.write(status);
            (&raw mut (*place).error).write(error);
        }
    }
}

/// An array of `count` elements; an error of class `MPI_ERR_ARG` if there are fewer than none, or some but no array.
///
/// # Safety
///
/// The array must have them, and stay as it is.
pub unsafe fn elements<'a, T>(count: c_int, array: *const T, what: &str) -> MpiResult<&'a [T]> {
    match usize::try_from(count) {
        Err(_) => Err(MpiError::arg(format!("the number of {what} is {count}"))),
        Ok(0) => Ok(&[]),
        Ok(_) if array.is_null() => Err(MpiError::arg(format!("the array of {what} is null"))),
        // SAFETY: the caller's promise.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(array, count) }),
    }
}

/// A text that C passes, without its end; an error of class `MPI_ERR_ARG` if it is null.
///
/// # Safety
///
/// It must be null, or end with a byte of 0 and stay as it is.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> MpiResult<&'a [u8]> {
    if text.is_null() {
        return Err(MpiError::arg(format!("the {what} is null")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Puts a text with its end where there is room for `room` bytes, and how long it is without it; what does not fit is cut.
///
/// # Safety
///
/// The place must be null or have the room.
pub unsafe fn put_text(place: *mut c_char, room: usize, text: &[u8]) -> MpiResult<c_int> {
    if place.is_null() || room == 0 {
        return Err(MpiError::arg("the place for a text is null"));
    }
    let len = text.len().min(room - 1);
    // SAFETY: the caller's promise.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), len);
        place.add(len).write(0);
    }
    Ok(len as c_int)
}

/// An error of class `MPI_ERR_ARG` if a result is to be put nowhere: for functions that must find out before they begin.
pub fn check_place<T>(place: *const T) -> MpiResult {
    if place.is_null() { Err(MpiError::arg("the place for a result is null")) } else { Ok(()) }
}
