//! Buffers for buffered sends (MPI 5.0 §3.6).

#![expect(unsafe_code, reason = "the C boundary")]

use std::ffi::c_void;

use super::args::{check_place, put};
use super::completion::add;
use super::ints::IntsOut;
use crate::abi::constants::MPI_BUFFER_AUTOMATIC;
use crate::abi::{CommHandle, RequestHandle, SessionHandle};
use crate::error::{MpiError, MpiResult};
use crate::object::buffered::Owner;
use crate::object::requests::Request;
use crate::runtime::{Runtime, State};

/// `MPI_Buffer_attach`.
///
/// # Safety
///
/// The caller must meet the standard's requirements; this applies to all functions here.
pub unsafe fn buffer_attach(rt: &Runtime, buffer: *mut c_void, size: i64) -> MpiResult {
    attach(rt, Owner::Process, buffer, size)
}

/// `MPI_Comm_attach_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn comm_attach_buffer(rt: &Runtime, comm: CommHandle, buffer: *mut c_void, size: i64) -> MpiResult {
    rt.lock().comms.get(comm)?;
    attach(rt, Owner::Comm(comm), buffer, size)
}

/// `MPI_Buffer_detach`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn buffer_detach(rt: &Runtime, buffer_addr: *mut c_void, size: IntsOut) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { detach(rt, Owner::Process, buffer_addr, size) }
}

/// `MPI_Comm_detach_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn comm_detach_buffer(rt: &Runtime, comm: CommHandle, buffer_addr: *mut c_void, size: IntsOut) -> MpiResult {
    rt.lock().comms.get(comm)?;
    // SAFETY: the caller's promise.
    unsafe { detach(rt, Owner::Comm(comm), buffer_addr, size) }
}

/// `MPI_Buffer_flush`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn buffer_flush(rt: &Runtime) -> MpiResult {
    flush(rt, Owner::Process);
    Ok(())
}

/// `MPI_Comm_flush_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn comm_flush_buffer(rt: &Runtime, comm: CommHandle) -> MpiResult {
    rt.lock().comms.get(comm)?;
    flush(rt, Owner::Comm(comm));
    Ok(())
}

/// `MPI_Session_attach_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn session_attach_buffer(rt: &Runtime, session: SessionHandle, buffer: *mut c_void, size: i64) -> MpiResult {
    rt.lock().sessions.get(session)?;
    attach(rt, Owner::Session(session), buffer, size)
}

/// `MPI_Session_detach_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn session_detach_buffer(
    rt: &Runtime,
    session: SessionHandle,
    buffer_addr: *mut c_void,
    size: IntsOut,
) -> MpiResult {
    rt.lock().sessions.get(session)?;
    // SAFETY: the caller's promise.
    unsafe { detach(rt, Owner::Session(session), buffer_addr, size) }
}

/// `MPI_Session_flush_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn session_flush_buffer(rt: &Runtime, session: SessionHandle) -> MpiResult {
    rt.lock().sessions.get(session)?;
    flush(rt, Owner::Session(session));
    Ok(())
}

/// `MPI_Buffer_iflush`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn buffer_iflush(rt: &Runtime, request: *mut RequestHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { start_flush(rt, Owner::Process, request) }
}

/// `MPI_Comm_iflush_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn comm_iflush_buffer(rt: &Runtime, comm: CommHandle, request: *mut RequestHandle) -> MpiResult {
    rt.lock().comms.get(comm)?;
    // SAFETY: the caller's promise.
    unsafe { start_flush(rt, Owner::Comm(comm), request) }
}

/// `MPI_Session_iflush_buffer`.
///
/// # Safety
///
/// See [`buffer_attach`].
pub unsafe fn session_iflush_buffer(rt: &Runtime, session: SessionHandle, request: *mut RequestHandle) -> MpiResult {
    rt.lock().sessions.get(session)?;
    // SAFETY: the caller's promise.
    unsafe { start_flush(rt, Owner::Session(session), request) }
}

unsafe fn start_flush(rt: &Runtime, owner: Owner, request: *mut RequestHandle) -> MpiResult {
    check_place(request)?;
    let mut state = rt.lock();
    let until = state.buffered.sent();
    let handle = add(&mut state, Request::Flush { owner, until })?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

fn attach(rt: &Runtime, owner: Owner, buffer: *mut c_void, size: i64) -> MpiResult {
    if buffer.addr() == MPI_BUFFER_AUTOMATIC {
        // Whatever its size is said to be.
        return rt.lock().buffered.attach(owner, buffer, None);
    }
    let size = usize::try_from(size).map_err(|_| MpiError::arg(format!("invalid buffer size {size}")))?;
    if buffer.is_null() && size > 0 {
        return Err(MpiError::buffer("the buffer is null"));
    }
    rt.lock().buffered.attach(owner, buffer, Some(size))
}

/// Waits for the messages that are in the buffer now, not for those of other threads that follow.
fn flush(rt: &Runtime, owner: Owner) {
    let mut guard = rt.lock();
    let until = guard.buffered.sent();
    guard.wait(|State { buffered, engine, .. }| buffered.is_flushed(owner, until, engine).then_some(()));
}

unsafe fn detach(rt: &Runtime, owner: Owner, buffer_addr: *mut c_void, size: IntsOut) -> MpiResult {
    if buffer_addr.is_null() || size.is_null() {
        return Err(MpiError::arg("a result pointer is null"));
    }
    let mut guard = rt.lock();
    // With the same guard, so that no other thread sends a message in between.
    guard.wait(|State { buffered, engine, .. }| (!buffered.is_busy(owner, engine)).then_some(()));
    let (address, length) = guard.buffered.detach(owner).unwrap_or((std::ptr::null_mut(), Some(0)));
    drop(guard);
    // SAFETY: the caller's promise: the address of an address.
    unsafe {
        put(buffer_addr.cast::<*mut c_void>(), address)?;
        size.put(0, length.map_or(0, |length| length as i64))
    }
}
