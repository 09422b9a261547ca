//! The objects behind operation handles.

#![expect(unsafe_code, reason = "any thread may call user functions")]

use std::ffi::c_void;
use std::sync::Arc;

use super::builtin::Builtin;

/// The object behind an operation handle.
#[derive(Debug, Clone)]
pub enum OpRef {
    /// A predefined operation.
    Builtin(Builtin),
    /// A user function.
    User(Arc<UserOp>),
}

/// A user-defined operation (MPI 5.0 §6.9.5).
#[derive(Debug)]
pub struct UserOp {
    /// `MPI_User_function *`, or `MPI_User_function_c *` if `large`.
    pub(super) function: *const c_void,
    pub(super) large: bool,
    commutes: bool,
}

// SAFETY: the address of a function, which the user has provided for calls from any thread that calls the library.
unsafe impl Send for UserOp {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for UserOp {}

impl UserOp {
    /// The operation of a function that is not null; `large` if its length argument is an `MPI_Count`.
    pub fn new(function: *const c_void, large: bool, commutes: bool) -> Self {
        Self { function, large, commutes }
    }
}

impl OpRef {
    /// Whether the operands may be combined in any order.
    pub fn commutes(&self) -> bool {
        match self {
            Self::Builtin(_) => true,
            Self::User(op) => op.commutes,
        }
    }
}
