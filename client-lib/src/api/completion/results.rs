//! The user's requests and statuses: where they are, and how results are stored there.

use std::ffi::c_int;

use super::super::args::{put, put_empty_status, put_status};
use super::ending::End;
use crate::abi::constants::{MPI_ERR_IN_STATUS, MPI_SUCCESS, MPI_UNDEFINED};
use crate::abi::{RequestHandle, Status};
use crate::error::{MpiError, MpiResult};
use crate::object::requests::Finished;
use crate::runtime::Guard;

#[inline]
pub(super) unsafe fn one(request: *mut RequestHandle) -> MpiResult<RequestHandle> {
    if request.is_null() {
        return Err(MpiError::request("the request pointer is null"));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { request.read() })
}

pub(super) unsafe fn array<'a>(count: c_int, requests: *mut RequestHandle) -> MpiResult<&'a mut [RequestHandle]> {
    match usize::try_from(count) {
        Err(_) => Err(MpiError::arg(format!("invalid number of requests: {count}"))),
        Ok(0) => Ok(&mut []),
        Ok(_) if requests.is_null() => Err(MpiError::request("the array of requests is null")),
        // SAFETY: the caller guarantees this many requests, which nothing else uses during the call.
        Ok(count) => Ok(unsafe { std::slice::from_raw_parts_mut(requests, count) }),
    }
}

/// The status of one of several requests: null if the user ignores them.
pub(in crate::api) fn nth(statuses: *mut Status, index: usize) -> *mut Status {
    if statuses.is_null() { statuses } else { statuses.wrapping_add(index) }
}

/// Stores how a request has ended; its error is the call's.
#[inline]
pub(super) unsafe fn store_end(end: End, request: *mut RequestHandle, status: *mut Status) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        match end {
            End::Plain(seen) => {
                request.write(RequestHandle::NULL);
                put_status(status, seen);
                Ok(())
            }
            End::Other(finished) => store(*finished, request, status),
        }
    }
}

/// Stores the result of a completed request; its error is the call's.
#[inline]
unsafe fn store(finished: Finished, request: *mut RequestHandle, status: *mut Status) -> MpiResult {
    if finished.gone {
        // SAFETY: the caller's promise.
        unsafe { request.write(RequestHandle::NULL) };
    }
    let mut seen = finished.status;
    let mut result = finished.error.map_or(Ok(()), Err);
    if let Some(general) = finished.general {
        // The error of the function that is called last counts (MPI 5.0 §13.2).
        let (queried, _) = general.ask();
        seen = queried;
        result = general.release();
    }
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    result
}

/// Notes the error of one of several requests in its status, if the call fails: only then are the error fields set (MPI 5.0 §3.7.5).
#[inline]
pub(super) unsafe fn note_error(statuses: *mut Status, index: usize, class: c_int, call_fails: bool) {
    let status = nth(statuses, index);
    if call_fails && !status.is_null() {
        // SAFETY: the caller's promise.
        unsafe { (&raw mut (*status).error).write(class) };
    }
}

/// Makes the handle of one of several requests null after its status has been stored.
///
/// # Safety
///
/// There is a status at this index, or none at all.
#[inline]
pub(super) unsafe fn release_one_of_many(
    request: &mut RequestHandle,
    statuses: *mut Status,
    index: usize,
    call_fails: bool,
) {
    *request = RequestHandle::NULL;
    // SAFETY: the caller's promise.
    unsafe { note_error(statuses, index, MPI_SUCCESS, call_fails) };
}

/// Stores the result of one of several requests, whose status is the `index`-th; an error goes into its status, and the call returns
/// `MPI_ERR_IN_STATUS`.
#[inline]
pub(super) unsafe fn store_one_of_many(
    guard: &mut Guard<'_>,
    end: End,
    request: &mut RequestHandle,
    statuses: *mut Status,
    index: usize,
    failed: &mut Option<MpiError>,
) {
    match end {
        // SAFETY: the caller's promise.
        End::Plain(seen) => unsafe {
            put_status(nth(statuses, index), seen);
            release_one_of_many(request, statuses, index, failed.is_some());
        },
        // SAFETY: as above.
        End::Other(finished) => unsafe { store_finished(guard, *finished, request, statuses, index, failed) },
    }
}

unsafe fn store_finished(
    guard: &mut Guard<'_>,
    finished: Finished,
    request: &mut RequestHandle,
    statuses: *mut Status,
    index: usize,
    failed: &mut Option<MpiError>,
) {
    let status = nth(statuses, index);
    let on = finished.error.as_ref().and_then(|error| error.on);
    // Functions of a generalized request are called with the state unlocked.
    let unlocks = finished.general.is_some();
    // SAFETY: the caller's promise.
    let store_it = || unsafe { store(finished, request, status) };
    let result = if unlocks { guard.unlocked(store_it) } else { store_it() };
    let class = result.as_ref().err().map_or(MPI_SUCCESS, |error| error.class);
    if class != MPI_SUCCESS && failed.is_none() {
        // Those before it have succeeded.
        for before in 0..index {
            // SAFETY: the caller's promise.
            unsafe { note_error(statuses, before, MPI_SUCCESS, true) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { note_error(statuses, index, class, failed.is_some() || class != MPI_SUCCESS) };
    if let (Err(error), None) = (result, &failed) {
        let text = format!("one of the operations failed ({}): see the statuses", error.text);
        *failed = Some(MpiError { on, ..MpiError::new(MPI_ERR_IN_STATUS, text) });
    }
}

pub(super) unsafe fn store_any(
    found: Option<(usize, End)>,
    requests: &mut [RequestHandle],
    index: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe {
        match found {
            Some((at, end)) => {
                put(index, at as c_int)?;
                store_end(end, &raw mut requests[at], status)
            }
            None => {
                put(index, MPI_UNDEFINED)?;
                put_empty_status(status);
                Ok(())
            }
        }
    }
}
