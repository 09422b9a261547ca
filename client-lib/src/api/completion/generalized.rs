//! Generalized requests, which the user completes (MPI 5.0 §13.2).

use std::ffi::{c_int, c_void};

use super::super::args::put;
use super::add;
use crate::abi::constants::MPI_SUCCESS;
use crate::abi::{RequestHandle, Status};
use crate::error::{MpiError, MpiResult};
use crate::object::requests::{Generalized, Request};
use crate::runtime::Runtime;

/// `MPI_Grequest_start`.
///
/// # Safety
///
/// See [`super::wait`].
pub unsafe fn grequest_start(
    rt: &Runtime,
    query: *const c_void,
    free: *const c_void,
    cancel: *const c_void,
    extra_state: *mut c_void,
    request: *mut RequestHandle,
) -> MpiResult {
    if query.is_null() || free.is_null() || cancel.is_null() {
        return Err(MpiError::arg("a function of the generalized request is null"));
    }
    let general = Generalized { query, free, cancel, extra_state, complete: false, freed: false };
    let handle = add(&mut rt.lock(), Request::General(Box::new(general)))?;
    // SAFETY: the caller's promise.
    unsafe { put(request, handle) }
}

/// `MPI_Grequest_complete`.
///
/// # Safety
///
/// See [`super::wait`].
pub unsafe fn grequest_complete(rt: &Runtime, request: RequestHandle) -> MpiResult {
    let mut guard = rt.lock();
    let Some(Request::General(general)) = guard.requests.get_mut(request) else {
        return Err(MpiError::request("not a generalized request"));
    };
    general.complete = true;
    if !general.freed {
        guard.wake_others();
        return Ok(());
    }
    let general = general.clone();
    let _ = guard.requests.take(request);
    drop(guard);
    general.release()
}
impl Generalized {
    /// Calls the user's query function; returns the status, and the result for the call that asked.
    pub(super) fn ask(&self) -> (Status, MpiResult) {
        type Query = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
        let mut status = Status::EMPTY;
        // SAFETY: the user has passed the address as a function of this type.
        let code = unsafe {
            let query = std::mem::transmute::<*const c_void, Query>(self.query);
            query(self.extra_state, &raw mut status)
        };
        (status, of_user(code, "query"))
    }

    /// Calls the user's free function.
    pub(super) fn release(&self) -> MpiResult {
        type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
        // SAFETY: the user has passed the address as a function of this type.
        let code = unsafe { std::mem::transmute::<*const c_void, Free>(self.free)(self.extra_state) };
        of_user(code, "free")
    }

    /// Calls the user's cancel function.
    pub(super) fn call_cancel(&self) -> MpiResult {
        type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
        // SAFETY: the user has passed the address as a function of this type.
        let code = unsafe {
            std::mem::transmute::<*const c_void, Cancel>(self.cancel)(self.extra_state, c_int::from(self.complete))
        };
        of_user(code, "cancel")
    }
}

fn of_user(code: c_int, which: &str) -> MpiResult {
    match code {
        MPI_SUCCESS => Ok(()),
        code => Err(MpiError::new(code, format!("the {which} function of the generalized request returned {code}"))),
    }
}
