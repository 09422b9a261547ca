//! The table of operation handles.

use std::ffi::c_void;
use std::sync::Arc;

use super::table::{Objects, Table};
use crate::abi::OpHandle;
use crate::abi::handle::Handle;
use crate::error::{MpiError, MpiResult};
use crate::op::{Builtin, OpRef, UserOp};

/// Operations by handle.
#[derive(Debug, Default)]
pub struct Ops {
    made: Table<OpHandle, Arc<UserOp>>,
}

impl Ops {
    /// The handles that the program has got.
    pub fn made(&self) -> &dyn Objects {
        &self.made
    }

    /// The operation of a handle. Fails with class `MPI_ERR_OP` for an invalid handle.
    #[inline]
    pub fn resolve(&self, handle: OpHandle) -> MpiResult<OpRef> {
        match Builtin::of(handle) {
            Some(op) => Ok(OpRef::Builtin(op)),
            None => self.made.get(handle).map(|op| OpRef::User(Arc::clone(op))).ok_or_else(|| invalid(handle)),
        }
    }

    /// Returns a handle for a function; `large` if its length argument is an `MPI_Count`.
    pub fn create(&mut self, function: *const c_void, large: bool, commutes: bool) -> MpiResult<OpHandle> {
        if function.is_null() {
            return Err(MpiError::arg("the function is null"));
        }
        self.made
            .add(Arc::new(UserOp::new(function, large, commutes)))
            .ok_or_else(|| MpiError::no_mem("too many operations (two million)"))
    }

    /// Frees a handle; reductions in progress keep the operation. Predefined operations cannot be freed.
    pub fn free(&mut self, handle: OpHandle) -> MpiResult {
        if let Some(op) = Builtin::of(handle) {
            return Err(MpiError::op(format!("{} cannot be freed", op.name())));
        }
        self.made.take(handle).map(drop).ok_or_else(|| invalid(handle))
    }
}

#[cold]
fn invalid(handle: OpHandle) -> MpiError {
    if handle == OpHandle::NULL {
        MpiError::op("the operation is MPI_OP_NULL")
    } else if handle.place().is_some() {
        MpiError::op("the operation has been freed")
    } else {
        MpiError::op(format!("{:#x} is not an operation", handle.0))
    }
}
