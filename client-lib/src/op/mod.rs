//! Operations of reductions: which there are, on what types they work, and the loops that combine (MPI 5.0 §6.9).
//!
//! An [`OpRef`] is what a handle of [`Ops`] stands for: one of the [`Builtin`] ones, a table with the standard's rules, or a
//! function of the user's. Together with a datatype it becomes a [`Reduction`], which combines memory with memory: by a loop
//! for the very type (`kernel`), so that the compiler can use vector instructions, or by calling the function.

mod builtin;
#[cfg(target_arch = "x86_64")]
mod extended;
mod kernel;
mod operation;
mod reduction;

pub use builtin::Builtin;
pub use operation::{OpRef, UserOp};
pub use reduction::Reduction;
