//! An operation on a datatype, which combines operands.

#![expect(unsafe_code, reason = "calls user functions on user memory")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::builtin::Builtin;
use super::kernel::{Kernel, kernel};
use super::operation::{OpRef, UserOp};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::datatype::{Datatype, Element};
use crate::error::{MpiError, MpiResult};

/// The loop for a predefined operation on a predefined datatype; `None` if either is something else, or they do not go together.
#[inline]
pub fn loop_for(op: OpHandle, datatype: DatatypeHandle) -> Option<Kernel> {
    let (op, element) = (Builtin::of(op)?, Element::of(datatype)?);
    if op.accepts(element.class()) { kernel(op, element.repr()) } else { None }
}

/// Combines elements of one datatype with one operation.
#[derive(Debug, Clone)]
pub struct Reduction {
    how: How,
    commutes: bool,
}

#[derive(Debug, Clone)]
enum How {
    Kernel(Kernel),
    User {
        op: Arc<UserOp>,
        datatype: DatatypeHandle,
        extent: isize,
        /// Only kept.
        hold: Option<Arc<()>>,
    },
}

type UserFunction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut DatatypeHandle);
type LargeUserFunction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut DatatypeHandle);

impl Reduction {
    /// Fails with class `MPI_ERR_OP` if the operation is not defined for the datatype: predefined operations accept
    /// only predefined datatypes. A user function receives the handle.
    pub fn new(op: &OpRef, datatype: &Datatype, handle: DatatypeHandle) -> MpiResult<Self> {
        let how = match op {
            OpRef::Builtin(op) => {
                let Some(element) = datatype.element() else {
                    let text =
                        format!("{} is not defined for derived datatypes: create an operation for it", op.name());
                    return Err(MpiError::op(text));
                };
                op.check(element)?;
                How::Kernel(kernel(*op, element.repr()).ok_or_else(|| op.unsupported(element))?)
            }
            OpRef::User(op) => {
                let extent = datatype.layout().extent();
                How::User { op: Arc::clone(op), datatype: handle, extent, hold: None }
            }
        };
        Ok(Self { how, commutes: op.commutes() })
    }

    /// With what keeps the datatype's handle valid for the user function.
    pub fn holding(mut self, hold: Option<Arc<()>>) -> Self {
        if let How::User { hold: kept, .. } = &mut self.how {
            *kept = hold;
        }
        self
    }

    /// Whether the operands may be combined in any order.
    #[inline]
    pub fn commutes(&self) -> bool {
        self.commutes
    }

    /// Whether [`Reduction::apply`] calls a user function, which may call the library: its state must be unlocked.
    #[inline]
    pub fn calls_user(&self) -> bool {
        matches!(self.how, How::User { .. })
    }

    /// Sets `inout[i] = input[i] op inout[i]` for `count` elements laid out by the datatype, one extent apart.
    ///
    /// # Safety
    ///
    /// The elements' memory must be readable, and that of `inout` writable, at these addresses.
    #[inline]
    pub unsafe fn apply(&self, input: *const u8, inout: *mut u8, count: usize) {
        match &self.how {
            // SAFETY: the caller's promise.
            How::Kernel(kernel) => unsafe { kernel.run(input, inout, count) },
            // SAFETY: the caller's promise.
            How::User { op, datatype, extent, .. } => unsafe { call(op, *datatype, *extent, input, inout, count) },
        }
    }
}

/// Calls the function, several times if the count does not fit its type.
unsafe fn call(op: &UserOp, datatype: DatatypeHandle, extent: isize, input: *const u8, inout: *mut u8, count: usize) {
    let limit = if op.large { i64::MAX as usize } else { c_int::MAX as usize };
    let mut done = 0;
    while done < count {
        let now = (count - done).min(limit);
        let offset = extent.wrapping_mul(done as isize);
        let input = input.wrapping_offset(offset).cast_mut().cast::<c_void>();
        let inout = inout.wrapping_offset(offset).cast::<c_void>();
        let mut datatype = datatype;
        // SAFETY: the user has passed the address as a function of this type to MPI_Op_create, or of the other type to
        // MPI_Op_create_c; the caller guarantees the elements.
        unsafe {
            if op.large {
                let function = std::mem::transmute::<*const c_void, LargeUserFunction>(op.function);
                let mut len = now as i64;
                function(input, inout, &raw mut len, &raw mut datatype);
            } else {
                let function = std::mem::transmute::<*const c_void, UserFunction>(op.function);
                let mut len = now as c_int;
                function(input, inout, &raw mut len, &raw mut datatype);
            }
        }
        done += now;
    }
}

#[cfg(test)]
mod tests;
