//! What a handle of an operation stands for.

#![expect(unsafe_code, reason = "functions of the user's may be called from any thread")]

use std::ffi::c_void;
use std::sync::Arc;

use super::builtin::Builtin;

/// What a handle stands for.
#[derive(Debug, Clone)]
pub enum OpRef {
    /// A predefined operation.
    Builtin(Builtin),
    /// A function of the user's.
    User(Arc<UserOp>),
}

/// An operation of the user's (MPI 5.0 §6.9.5).
#[derive(Debug)]
pub struct UserOp {
    /// `MPI_User_function *`, or `MPI_User_function_c *` if `large`.
    pub(super) function: *const c_void,
    pub(super) large: bool,
    commutes: bool,
}

// SAFETY: the address of a function, which the user has made for calling from whatever thread calls the library.
unsafe impl Send for UserOp {}
// SAFETY: as above; nothing is changed.
unsafe impl Sync for UserOp {}

impl UserOp {
    /// A function that is not null; `large` if its length is an `MPI_Count`.
    pub fn new(function: *const c_void, large: bool, commutes: bool) -> Self {
        Self { function, large, commutes }
    }
}

impl OpRef {
    /// Whether the order of operands may be changed.
    pub fn commutes(&self) -> bool {
        match self {
            Self::Builtin(_) => true,
            Self::User(op) => op.commutes,
        }
    }
}
