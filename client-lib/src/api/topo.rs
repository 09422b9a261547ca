//! The parts of process topologies (MPI 5.0 §8) that need no topology.

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::c_int;

use super::args::put;
use crate::abi::CommHandle;
use crate::abi::constants::{MPI_ERR_DIMS, MPI_UNDEFINED};
use crate::error::{MpiError, MpiResult};
use crate::object::dims;
use crate::runtime::Runtime;

/// `MPI_Topo_test`: no communicator has a topology yet.
pub unsafe fn topo_test(rt: &Runtime, comm: CommHandle, status: *mut c_int) -> MpiResult {
    rt.lock().comms.get(comm)?;
    // SAFETY: the caller's promise.
    unsafe { put(status, MPI_UNDEFINED) }
}

/// `MPI_Dims_create`.
pub unsafe fn dims_create(_: &Runtime, nnodes: c_int, ndims: c_int, dims: *mut c_int) -> MpiResult {
    let count = usize::try_from(ndims).ok().filter(|count| *count == 0 || !dims.is_null());
    let Some(count) = count else {
        return Err(MpiError::new(MPI_ERR_DIMS, format!("invalid dimensions: {ndims}, or a null array")));
    };
    // SAFETY: the caller guarantees this many dimensions, which nothing else uses during the call.
    let dims = if count == 0 { &mut [][..] } else { unsafe { std::slice::from_raw_parts_mut(dims, count) } };
    dims::create(nnodes, dims)
}
