//! Completion: waiting for requests, testing, freeing and cancelling them (MPI 5.0 §3.7 to §3.9).

#![expect(unsafe_code, reason = "the C boundary")]

mod ending;
mod generalized;
mod results;
mod several;

use std::ffi::c_int;

use super::args::{check_place, put, put_status};
use crate::abi::{RequestHandle, Status};
use crate::error::{MpiError, MpiResult};
use crate::object::requests::{Active, Request, Start};
use crate::runtime::{Runtime, State};

use ending::{End, end, interrupted, is_over_already, known, wait_for};
pub(super) use ending::{any_active, is_active, is_over, look, poll};
pub use generalized::{grequest_complete, grequest_start};
pub(super) use results::nth;
use results::{one, store_end};
pub use several::{testall, testany, testsome, waitall, waitany, waitsome};

/// `MPI_Wait`.
///
/// # Safety
///
/// The caller must meet the standard's requirements; this applies to all functions here.
#[inline]
pub unsafe fn wait(rt: &Runtime, request: *mut RequestHandle, status: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let end = if is_over_already(handle) {
        Some(End::Plain(Status::EMPTY))
    } else {
        let mut guard = rt.lock();
        known(&guard, handle)?;
        // SAFETY: the caller's promise.
        unsafe { wait_for(&mut guard, handle, status) }
    };
    // SAFETY: the caller's promise.
    unsafe {
        match end {
            None => request.write(RequestHandle::NULL),
            Some(end) => store_end(end, request, status)?,
        }
    }
    Ok(())
}

/// `MPI_Test`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn test(rt: &Runtime, request: *mut RequestHandle, flag: *mut c_int, status: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let end = if is_over_already(handle) {
        Some(End::Plain(Status::EMPTY))
    } else {
        let mut guard = rt.lock();
        known(&guard, handle)?;
        let found = poll(&mut guard, |state| end(state, handle));
        found.or_else(|| interrupted(&guard, handle).map(|finished| End::Other(Box::new(finished))))
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(end.as_ref().is_some_and(|end| !end.is_pending())))?;
        end.map_or(Ok(()), |end| store_end(end, request, status))
    }
}

/// `MPI_Request_get_status`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn request_get_status(
    rt: &Runtime,
    request: RequestHandle,
    flag: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    let mut guard = rt.lock();
    known(&guard, request)?;
    let over = poll(&mut guard, |state| is_over(state, request).then_some(())).is_some();
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(over))? };
    if !over {
        return Ok(());
    }
    let (seen, query) = look(&guard, request);
    drop(guard);
    let seen = match query {
        Some(general) => {
            let (status, error) = general.ask();
            error?;
            status
        }
        None => seen,
    };
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    Ok(())
}

/// `MPI_Request_free`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn request_free(rt: &Runtime, request: *mut RequestHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let mut guard = rt.lock();
    known(&guard, handle)?;
    if handle == RequestHandle::NULL {
        return Err(MpiError::request("the request is MPI_REQUEST_NULL"));
    }
    let mut general = None;
    if handle != RequestHandle::sent() {
        match guard.requests.get_mut(handle) {
            Some(Request::General(it)) if !it.complete => it.freed = true,
            _ => match guard.requests.take(handle) {
                Some(Request::Message { id, .. }) => guard.engine.forget(id),
                Some(Request::Exchange(exchange)) => exchange.forget(&mut guard.engine),
                Some(Request::Persistent(it)) => {
                    match it.active {
                        Some(Active::Message(id)) => guard.engine.forget(id),
                        Some(Active::Collective(_) | Active::Over(_)) | None => {}
                    }
                    if let Start::Collective(id) = it.start {
                        guard.collectives.forget(id);
                    }
                }
                Some(Request::Collective { id, .. }) => guard.collectives.forget(id),
                Some(Request::Posted { id, .. }) => guard.outboxes.forget(id),
                Some(Request::Partitioned { id, .. }) => {
                    let State { partitions, engine, .. } = &mut *guard;
                    partitions.free(engine, id);
                }
                Some(Request::Creation { id, .. }) => guard.comms.creations.forget(id),
                Some(Request::Recovery { id, .. }) => guard.recovery.forget(id),
                Some(Request::General(it)) => general = Some(it),
                Some(Request::Over { .. } | Request::Flush { .. }) | None => {}
            },
        }
    }
    drop(guard);
    // SAFETY: the caller's promise.
    unsafe { put(request, RequestHandle::NULL)? };
    general.map_or(Ok(()), |general| general.release())
}

/// `MPI_Cancel`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn cancel(rt: &Runtime, request: *mut RequestHandle) -> MpiResult {
    // SAFETY: the caller's promise.
    let handle = unsafe { one(request)? };
    let mut guard = rt.lock();
    known(&guard, handle)?;
    let id = match guard.requests.get(handle) {
        Some(Request::Message { id, .. }) => Some(*id),
        Some(Request::Persistent(it)) => match &it.active {
            Some(Active::Message(id)) => Some(*id),
            Some(Active::Over(_) | Active::Collective(_)) => None,
            None => return Err(MpiError::request("the request is not active")),
        },
        Some(Request::Collective { .. } | Request::Posted { .. }) => {
            return Err(MpiError::request("a collective operation cannot be cancelled"));
        }
        Some(Request::Creation { .. } | Request::Recovery { .. }) => {
            return Err(MpiError::request("a collective operation cannot be cancelled"));
        }
        Some(Request::Partitioned { .. }) => {
            return Err(MpiError::request("a partitioned operation cannot be cancelled"));
        }
        Some(Request::Flush { .. }) => return Err(MpiError::request("a buffer flush cannot be cancelled")),
        Some(Request::Exchange(_)) => {
            return Err(MpiError::request("a combined send and receive cannot be cancelled"));
        }
        Some(Request::General(it)) => {
            let general = it.clone();
            drop(guard);
            return general.call_cancel();
        }
        Some(Request::Over { .. }) => None,
        None if handle == RequestHandle::NULL => return Err(MpiError::request("the request is MPI_REQUEST_NULL")),
        None => None,
    };
    if let Some(id) = id {
        // If it is too late, the operation completes normally; a send without waiting for its receiver.
        if !guard.engine.cancel(id)
            && let Some(outcome) = guard.engine.detach(id)
        {
            match guard.requests.get_mut(handle) {
                Some(Request::Persistent(it)) => it.active = Some(Active::Over(Some(outcome))),
                Some(request) => {
                    if let Request::Message { receives, comm, .. } = *request {
                        *request = Request::Over { outcome: Some(outcome), receives, comm };
                    }
                }
                None => {}
            }
        }
    }
    Ok(())
}

/// `MPI_Test_cancelled`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn test_cancelled(_: &Runtime, status: *const Status, flag: *mut c_int) -> MpiResult {
    if status.is_null() {
        return Err(MpiError::arg("the status is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from((*status).cancelled())) }
}

/// `MPI_Status_set_cancelled`.
///
/// # Safety
///
/// See [`wait`].
pub unsafe fn status_set_cancelled(_: &Runtime, status: *mut Status, flag: c_int) -> MpiResult {
    if status.is_null() {
        return Err(MpiError::arg("the status is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { (*status).set_cancelled(flag != 0) };
    Ok(())
}

/// Adds a request; returns its handle.
#[inline]
pub fn add(state: &mut State, request: Request) -> MpiResult<RequestHandle> {
    state.requests.add(request).ok_or_else(too_many)
}

/// Whether there is room for a request and a place for its handle. Checked before anything is started, because a start cannot be undone.
#[inline]
pub(super) fn check_room(state: &State, place: *const RequestHandle) -> MpiResult {
    check_place(place)?;
    if state.requests.has_room() { Ok(()) } else { Err(too_many()) }
}

#[cold]
fn too_many() -> MpiError {
    MpiError::no_mem("too many requests (two million)")
}
