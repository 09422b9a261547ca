//! Checks the arguments of functions, and returns errors of the standard's classes.

#![expect(unsafe_code, reason = "addresses that C passes")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::constants::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL, MPI_ROOT};
use crate::abi::{DatatypeHandle, Status};
use crate::coll::inter::Root;
use crate::datatype::{Datatype, Element, basic_size, forgettable_size, is_tracked};
use crate::device;
use crate::engine::{Peer, Source, TAG_MAX, TagMatch};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::comm::Communicator;
use crate::runtime::State;

/// Memory for `count` elements.
///
/// # Safety
///
/// As the standard requires of the user: the library may use the memory until the operation is over.
#[inline(always)]
pub unsafe fn buffer(state: &State, address: *const c_void, count: i64, datatype: DatatypeHandle) -> MpiResult<Buffer> {
    if let (Ok(count), Some(size)) = (u32::try_from(count), forgettable_size(datatype))
        && !address.is_null()
        && !device::may_hold(address.cast())
    {
        // SAFETY: the caller's promise.
        return Ok(unsafe { Buffer::contiguous(address.cast_mut().cast(), count as usize * size) });
    }
    // SAFETY: the caller's promise.
    unsafe { unusual_buffer(state, address, count, datatype) }
}

/// As [`buffer`], for more than 2^32 elements, types with a layout, and invalid arguments.
#[inline(never)]
unsafe fn unusual_buffer(
    state: &State,
    address: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> MpiResult<Buffer> {
    let Ok(count) = usize::try_from(count) else { return Err(negative(count)) };
    let placed = |buffer: Buffer, first: *const c_void| match device::find(first.cast())? {
        Some(found) if !buffer.is_empty() => buffer.on_device(found),
        Some(_) | None => Ok(buffer),
    };
    if let Some(size) = basic_size(datatype) {
        let Some(len) = count.checked_mul(size).filter(|len| *len <= isize::MAX as usize) else {
            return Err(MpiError::count(format!("{count} elements of {size} bytes exceed the address space")));
        };
        if address.is_null() && len > 0 {
            return Err(MpiError::buffer(format!("the buffer is null, for {count} elements")));
        }
        if let Some(element) = Element::of(datatype).filter(|_| is_tracked()) {
            // SAFETY: the caller's promise.
            return placed(
                unsafe { Buffer::new(address.cast_mut().cast(), count, Datatype::predefined(element).layout()) },
                address,
            );
        }
        // SAFETY: the caller's promise.
        return placed(unsafe { Buffer::contiguous(address.cast_mut().cast(), len) }, address);
    }
    // Nothing needs no datatype: other libraries accept this, and programs rely on it.
    if count == 0 && datatype == DatatypeHandle::NULL {
        // SAFETY: no bytes.
        return Ok(unsafe { Buffer::contiguous(std::ptr::null_mut(), 0) });
    }
    let datatype = state.types.resolve_committed(datatype)?;
    let begins = (address.addr() as i64).wrapping_add(datatype.true_lb());
    if count > 0 && datatype.size() > 0 && is_null_page(begins) {
        return Err(MpiError::buffer(format!(
            "the buffer is null, or an address below {NULL_PAGE}, for {count} elements"
        )));
    }
    if datatype.size().checked_mul(count).is_none_or(|len| len > isize::MAX as usize) {
        return Err(MpiError::count(format!("{count} elements of {} bytes exceed the address space", datatype.size())));
    }
    // SAFETY: the caller's promise. The address may be MPI_BOTTOM: then the layout has absolute addresses.
    let buffer = unsafe { Buffer::new(address.cast_mut().cast(), count, datatype.layout()) };
    placed(buffer, std::ptr::without_provenance(begins as usize))
}

/// The system maps nothing below this address, so data there is a mistake of the program (a null pointer with `MPI_BOTTOM`, say).
const NULL_PAGE: i64 = 4096;

/// Whether there can be no memory at this address.
pub fn is_null_page(address: i64) -> bool {
    (0..NULL_PAGE).contains(&address)
}

#[cold]
fn negative(count: i64) -> MpiError {
    MpiError::count(format!("invalid count {count}"))
}

/// The destination of a message: `None` for `MPI_PROC_NULL`.
#[inline]
pub fn destination(comm: &Communicator, rank: c_int) -> MpiResult<Option<Peer>> {
    match usize::try_from(rank).ok().and_then(|rank| comm.peers.get(rank)) {
        Some(peer) => Ok(Some(*peer)),
        None if rank == MPI_PROC_NULL => comm.must_be_usable().map(|()| None),
        None => Err(no_such_rank(comm, rank)),
    }
}

/// The source of a message: `None` for `MPI_PROC_NULL`.
#[inline]
pub fn source(comm: &Communicator, rank: c_int) -> MpiResult<Option<Source>> {
    match u32::try_from(rank) {
        Ok(rank) if (rank as usize) < comm.peers.len() => Ok(Some(Source::Rank(rank))),
        _ if rank == MPI_ANY_SOURCE => Ok(Some(Source::Any)),
        _ if rank == MPI_PROC_NULL => comm.must_be_usable().map(|()| None),
        _ => Err(no_such_rank(comm, rank)),
    }
}

/// A rank that must be one of those that messages of the communicator name.
pub fn rank(comm: &Communicator, rank: c_int) -> MpiResult<u32> {
    let found = u32::try_from(rank).ok().filter(|rank| (*rank as usize) < comm.peers.len());
    found.ok_or_else(|| no_such_rank(comm, rank))
}

/// The root of a collective of an intracommunicator.
#[inline]
pub fn root(comm: &Communicator, rank: c_int) -> MpiResult<u32> {
    let root = u32::try_from(rank).ok().filter(|rank| (*rank as usize) < comm.peers.len());
    comm.must_be_usable()?;
    root.ok_or_else(|| MpiError::root(format!("the root {}", no_rank(comm, rank))))
}

/// The root of a collective of an intercommunicator.
pub fn root_of_sides(comm: &Communicator, rank: c_int) -> MpiResult<Root> {
    comm.must_be_usable()?;
    match u32::try_from(rank) {
        Ok(rank) if (rank as usize) < comm.peers.len() => Ok(Root::Remote(rank)),
        _ if rank == MPI_ROOT => Ok(Root::This),
        _ if rank == MPI_PROC_NULL => Ok(Root::Beside),
        _ => Err(MpiError::root(format!("the root {}, and not MPI_ROOT or MPI_PROC_NULL", no_rank(comm, rank)))),
    }
}

#[cold]
fn no_such_rank(comm: &Communicator, rank: c_int) -> MpiError {
    comm.must_be_usable().err().unwrap_or_else(|| MpiError::rank(no_rank(comm, rank)))
}

fn no_rank(comm: &Communicator, rank: c_int) -> String {
    let whose = if comm.remote().is_some() { "other group of the intercommunicator" } else { "communicator" };
    format!("{rank} is not a rank of the {whose} (0 to {})", comm.parties.named().len() - 1)
}

/// The tag of a message to send.
#[inline]
pub fn tag(tag: c_int) -> MpiResult<c_int> {
    if tag >= 0 { Ok(tag) } else { Err(MpiError::tag(format!("invalid tag {tag}: it must be 0 to {TAG_MAX}"))) }
}

/// The tag of a receive or probe.
#[inline]
pub fn tag_match(tag: c_int) -> MpiResult<TagMatch> {
    match tag {
        0.. => Ok(TagMatch::Value(tag)),
        MPI_ANY_TAG => Ok(TagMatch::Any),
        _ => Err(MpiError::tag(format!("invalid tag {tag}: it must be 0 to {TAG_MAX}, or MPI_ANY_TAG"))),
    }
}

/// Stores a result; fails with class `MPI_ERR_ARG` if the pointer is null.
///
/// # Safety
///
/// The pointer must be null or valid for a write.
#[inline]
pub unsafe fn put<T>(place: *mut T, value: T) -> MpiResult {
    if place.is_null() {
        return Err(MpiError::arg("a result pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a status unless the user passes `MPI_STATUS_IGNORE`; the error field is unchanged (MPI 5.0 §3.2.5).
///
/// # Safety
///
/// The pointer must be null or valid for a write.
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

/// Stores the empty status, whose error field is set (MPI 5.0 §3.7.3), unless the user passes `MPI_STATUS_IGNORE`.
///
/// # Safety
///
/// The pointer must be null or valid for a write.
pub unsafe fn put_empty_status(place: *mut Status) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(Status::EMPTY) };
    }
}

/// An array of `count` elements; fails with class `MPI_ERR_ARG` if `count` is negative, or the array is null although not empty.
///
/// # Safety
///
/// The array must have these elements, and not change.
pub unsafe fn elements<'a, T>(count: c_int, array: *const T, what: &str) -> MpiResult<&'a [T]> {
    match usize::try_from(count) {
        Err(_) => Err(MpiError::arg(format!("invalid number of {what}: {count}"))),
        Ok(0) => Ok(&[]),
        Ok(_) if array.is_null() => Err(MpiError::arg(format!("the array of {what} is null"))),
        // SAFETY: the caller's promise.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts(array, count) }),
    }
}

/// A text that C passes, without its terminating 0; fails with class `MPI_ERR_ARG` if it is null.
///
/// # Safety
///
/// It must be null, or end with a byte of 0 and not change.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> MpiResult<&'a [u8]> {
    if text.is_null() {
        return Err(MpiError::arg(format!("the {what} is null")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Stores a text with a terminating 0 in `room` bytes, truncated if necessary; returns its length without the 0.
///
/// # Safety
///
/// The pointer must be null or valid for `room` bytes.
pub unsafe fn put_text(place: *mut c_char, room: usize, text: &[u8]) -> MpiResult<c_int> {
    if place.is_null() || room == 0 {
        return Err(MpiError::arg("a text pointer is null"));
    }
    let len = text.len().min(room - 1);
    // SAFETY: the caller's promise.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), len);
        place.add(len).write(0);
    }
    Ok(len as c_int)
}

/// Fails with class `MPI_ERR_ARG` if a result pointer is null: for functions that must know before they begin.
pub fn check_place<T>(place: *const T) -> MpiResult {
    if place.is_null() { Err(MpiError::arg("a result pointer is null")) } else { Ok(()) }
}
