//! Access to the fields of a status, and queries of several requests that do not change them (MPI 5.0 §3.2.5, §3.7.5).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_int;

use super::args::{check_place, elements, put, put_empty_status, put_status};
use super::completion::{any_active, is_active, is_over, look, nth, poll, request_get_status};
use crate::abi::constants::MPI_UNDEFINED;
use crate::abi::{RequestHandle, Status};
use crate::error::{MpiError, MpiResult};
use crate::runtime::{Runtime, State};

macro_rules! fields {
    ($($get:ident $set:ident $field:ident $text:literal;)*) => {$(
        #[doc = concat!("`MPI_Status_get_", $text, "`.")]
        pub unsafe fn $get(_: &Runtime, status: *const Status, value: *mut c_int) -> MpiResult {
            is_there(status)?;
            // SAFETY: the caller's promise.
            unsafe { put(value, (&raw const (*status).$field).read()) }
        }

        #[doc = concat!("`MPI_Status_set_", $text, "`.")]
        pub unsafe fn $set(_: &Runtime, status: *mut Status, value: c_int) -> MpiResult {
            is_there(status)?;
            // SAFETY: the caller's promise.
            unsafe { (&raw mut (*status).$field).write(value) };
            Ok(())
        }
    )*};
}

fields! {
    status_get_source status_set_source source "source";
    status_get_tag status_set_tag tag "tag";
    status_get_error status_set_error error "error";
}

fn is_there(status: *const Status) -> MpiResult {
    if status.is_null() { Err(MpiError::arg("the status is null")) } else { Ok(()) }
}

/// `MPI_Request_get_status_all`.
pub unsafe fn request_get_status_all(
    rt: &Runtime,
    count: c_int,
    requests: *const RequestHandle,
    flag: *mut c_int,
    statuses: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { elements(count, requests, "requests")? };
    let all = {
        let mut guard = rt.lock();
        any_active(&guard, requests)?;
        poll(&mut guard, |state| requests.iter().all(|it| is_over(state, *it)).then_some(())).is_some()
    };
    for (index, request) in requests.iter().enumerate().filter(|_| all) {
        // SAFETY: there is a status for each request, or none at all.
        unsafe { store(rt, *request, nth(statuses, index))? };
    }
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(all)) }
}

/// `MPI_Request_get_status_any`.
pub unsafe fn request_get_status_any(
    rt: &Runtime,
    count: c_int,
    requests: *const RequestHandle,
    index: *mut c_int,
    flag: *mut c_int,
    status: *mut Status,
) -> MpiResult {
    // SAFETY: the caller's promise.
    let requests = unsafe { elements(count, requests, "requests")? };
    let (active, found) = {
        let mut guard = rt.lock();
        let active = any_active(&guard, requests)?;
        let first = |state: &mut State| requests.iter().position(|it| is_active(state, *it) && is_over(state, *it));
        (active, if active { poll(&mut guard, first) } else { None })
    };
    // SAFETY: the caller's promise.
    unsafe {
        put(flag, c_int::from(!active || found.is_some()))?;
        match found {
            Some(at) => {
                put(index, at as c_int)?;
                store(rt, requests[at], status)
            }
            None => {
                if !active {
                    put_empty_status(status);
                }
                put(index, MPI_UNDEFINED)
            }
        }
    }
}

/// `MPI_Request_get_status_some`.
pub unsafe fn request_get_status_some(
    rt: &Runtime,
    count: c_int,
    requests: *const RequestHandle,
    found_count: *mut c_int,
    indices: *mut c_int,
    statuses: *mut Status,
) -> MpiResult {
    check_place(found_count)?;
    // SAFETY: the caller's promise.
    let requests = unsafe { elements(count, requests, "requests")? };
    let (active, found) = {
        let mut guard = rt.lock();
        let active = any_active(&guard, requests)?;
        let mut found = Vec::new();
        // Messages that have arrived in the meantime are checked in any case.
        let _ = poll(&mut guard, |state| {
            let over = |(at, it): (usize, &RequestHandle)| (is_active(state, *it) && is_over(state, *it)).then_some(at);
            found = requests.iter().enumerate().filter_map(over).collect();
            (!found.is_empty()).then_some(())
        });
        (active, found)
    };
    for (place, at) in found.iter().enumerate() {
        // SAFETY: the caller guarantees room for an index and a status for each request.
        unsafe {
            put(indices.wrapping_add(place), *at as c_int)?;
            store(rt, requests[*at], nth(statuses, place))?;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put(found_count, if active { found.len() as c_int } else { MPI_UNDEFINED }) }
}

/// The status of a completed request. A generalized request's function supplies it.
unsafe fn store(rt: &Runtime, request: RequestHandle, status: *mut Status) -> MpiResult {
    let (seen, general) = look(&rt.lock(), request);
    if general.is_some() {
        let mut flag = 0;
        // SAFETY: the caller's promise.
        return unsafe { request_get_status(rt, request, &raw mut flag, status) };
    }
    // SAFETY: the caller's promise.
    unsafe { put_status(status, seen) };
    Ok(())
}
