//! Reduction operations, the types they accept, and the loops that combine elements (MPI 5.0 §6.9).
//!
//! An [`OpRef`] is the object behind an operation handle: one of the [`Builtin`] operations, a table with the standard's rules,
//! or a user function. Together with a datatype it becomes a [`Reduction`], which combines memory with memory: by a loop for
//! the specific type (`kernel`), so that the compiler can use vector instructions, or by calling the function.

mod builtin;
#[cfg(target_arch = "x86_64")]
mod extended;
mod kernel;
mod operation;
mod reduction;

pub use builtin::Builtin;
pub use kernel::Kernel;
pub use operation::{OpRef, UserOp};
pub use reduction::{Reduction, loop_for};
