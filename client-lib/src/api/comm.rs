//! Communicators (MPI 5.0 §7.4).

#![expect(unsafe_code, reason = "the border to C")]

use std::ffi::c_int;

use super::args::put;
use crate::abi::CommHandle;
use crate::error::MpiResult;
use crate::runtime::Runtime;

/// `MPI_Comm_size`.
///
/// # Safety
///
/// As the standard demands of its caller; so for all functions here.
pub unsafe fn comm_size(rt: &Runtime, comm: CommHandle, size: *mut c_int) -> MpiResult {
    let found = rt.lock().comms.get(comm)?.size();
    // SAFETY: the caller's promise.
    unsafe { put(size, found as c_int) }
}

/// `MPI_Comm_rank`.
///
/// # Safety
///
/// See [`comm_size`].
pub unsafe fn comm_rank(rt: &Runtime, comm: CommHandle, rank: *mut c_int) -> MpiResult {
    let found = rt.lock().comms.get(comm)?.rank;
    // SAFETY: the caller's promise.
    unsafe { put(rank, found as c_int) }
}
