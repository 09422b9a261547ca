//! Initialization and finalization, and where the process runs (MPI 5.0 §9.1, §11.2 to §11.6).

#![expect(unsafe_code, reason = "the C boundary")]

use std::ffi::{c_char, c_int};

use super::args::put;
use super::attr;
use crate::abi::CommHandle;
use crate::abi::constants::{MPI_MAX_PROCESSOR_NAME, MPI_THREAD_SINGLE};
use crate::error::{MpiError, MpiResult};
use crate::runtime::{self, Phase, Runtime, of_no_object};

/// `MPI_Init`. The program's arguments are neither read nor changed.
///
/// # Safety
///
/// The caller must meet the standard's requirements; this applies to all functions here.
pub unsafe fn init(rt: &Runtime, _argc: *mut c_int, _argv: *mut *mut *mut c_char) -> MpiResult {
    runtime::init(rt, MPI_THREAD_SINGLE).map(drop)
}

/// `MPI_Init_thread`.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn init_thread(
    rt: &Runtime,
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> MpiResult {
    if provided.is_null() {
        return Err(MpiError::arg("the thread level pointer is null"));
    }
    let level = runtime::init(rt, required)?;
    // SAFETY: the caller's promise.
    unsafe { put(provided, level) }
}

/// `MPI_Finalize`.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn finalize(rt: &Runtime) -> MpiResult {
    if rt.phase() != Phase::Running {
        return Err(MpiError::other("the world model is not initialized: call MPI_Init before MPI_Finalize"));
    }
    let deleted = attr::delete_at_end(rt);
    // The communicators that have it will be gone when an error is raised.
    let (errhandler, _) = of_no_object(&rt.lock());
    let result = runtime::finalize(rt).and(deleted);
    if result.is_err() {
        rt.lock().initial_errhandler = errhandler;
    }
    result
}

/// `MPI_Initialized`.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn initialized(rt: &Runtime, flag: *mut c_int) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(rt.phase() != Phase::Before)) }
}

/// `MPI_Finalized`.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn finalized(rt: &Runtime, flag: *mut c_int) -> MpiResult {
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(rt.phase() == Phase::After)) }
}

/// `MPI_Query_thread`.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn query_thread(rt: &Runtime, provided: *mut c_int) -> MpiResult {
    let level = rt.visit().world.as_ref().map_or(MPI_THREAD_SINGLE, |world| world.thread_level);
    // SAFETY: the caller's promise.
    unsafe { put(provided, level) }
}

/// `MPI_Is_thread_main`.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn is_thread_main(rt: &Runtime, flag: *mut c_int) -> MpiResult {
    let main = rt.visit().world.as_ref().is_some_and(|world| world.main_thread == std::thread::current().id());
    // SAFETY: the caller's promise.
    unsafe { put(flag, c_int::from(main)) }
}

/// `MPI_Abort`: aborts the whole job, whatever the communicator.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn abort(rt: &Runtime, _comm: CommHandle, errorcode: c_int) -> MpiResult {
    runtime::die(rt, &format!("MPI_Abort was called with error code {errorcode}"), errorcode, false)
}

/// `MPI_Get_processor_name`: the host's name.
///
/// # Safety
///
/// See [`init`].
pub unsafe fn get_processor_name(_: &Runtime, name: *mut c_char, resultlen: *mut c_int) -> MpiResult {
    if name.is_null() {
        return Err(MpiError::arg("the name pointer is null"));
    }
    let host = nix::unistd::gethostname().unwrap_or_default().into_encoded_bytes();
    let len = host.len().min(MPI_MAX_PROCESSOR_NAME as usize - 1);
    // SAFETY: the caller guarantees room for MPI_MAX_PROCESSOR_NAME bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(host.as_ptr().cast(), name, len);
        name.add(len).write(0);
        put(resultlen, len as c_int)
    }
}
