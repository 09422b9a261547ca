//! User-defined operations, and reductions within one process (MPI 5.0 §6.9).

#![expect(unsafe_code, reason = "the C boundary")]
#![expect(clippy::missing_safety_doc, reason = "callers guarantee what the standard requires of them")]

use std::ffi::{c_int, c_void};

use super::args::{self, put};
use crate::abi::constants::{MPI_ERR_ARG, MPI_IN_PLACE};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::coll::operands::{Memory, Operands};
use crate::error::{MpiError, MpiResult};
use crate::op::Reduction;
use crate::runtime::Runtime;

/// `MPI_Op_create`.
pub unsafe fn op_create(
    rt: &Runtime,
    user_fn: *const c_void,
    large: bool,
    commute: c_int,
    op: *mut OpHandle,
) -> MpiResult {
    if op.is_null() {
        return Err(MpiError::new(MPI_ERR_ARG, "the operation pointer is null"));
    }
    let made = rt.lock().ops.create(user_fn, large, commute != 0)?;
    // SAFETY: the caller's promise.
    unsafe { put(op, made) }
}

/// `MPI_Op_free`.
pub unsafe fn op_free(rt: &Runtime, op: *mut OpHandle) -> MpiResult {
    if op.is_null() {
        return Err(MpiError::arg("the operation pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe {
        rt.lock().ops.free(op.read())?;
        put(op, OpHandle::NULL)
    }
}

/// `MPI_Op_commutative`.
pub unsafe fn op_commutative(rt: &Runtime, op: OpHandle, commute: *mut c_int) -> MpiResult {
    let commutes = rt.lock().ops.resolve(op)?.commutes();
    // SAFETY: the caller's promise.
    unsafe { put(commute, commutes.into()) }
}

/// `MPI_Reduce_local`. The state is unlocked while operands are combined: a user function may call the library.
pub unsafe fn reduce_local(
    rt: &Runtime,
    inbuf: *const c_void,
    inoutbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
) -> MpiResult {
    let state = rt.lock();
    let lend = |address: *const c_void| {
        if address.addr() == MPI_IN_PLACE {
            return Err(MpiError::buffer("MPI_Reduce_local does not accept MPI_IN_PLACE"));
        }
        // SAFETY: the caller's promise.
        let buffer = unsafe { args::buffer(&state, address, count, datatype)? };
        Ok(Memory::new(address.cast_mut().cast(), buffer))
    };
    let (send, recv) = (lend(inbuf)?, lend(inoutbuf)?);
    if inbuf == inoutbuf.cast_const() && count > 0 {
        return Err(MpiError::buffer("MPI_Reduce_local needs two buffers"));
    }
    let (count, elements) = (count as usize, state.types.get_committed(datatype)?);
    let reduction = Reduction::new(&state.ops.resolve(op)?, &elements, datatype)?;
    drop(state);
    let operands = Operands { send, recv, elements: Some(elements), ..Operands::default() }.on_host(true)?;
    operands.load()?;
    let (left, right) = operands.addresses();
    // SAFETY: the caller's promise.
    unsafe { reduction.apply(left, right, count) };
    operands.store()
}
