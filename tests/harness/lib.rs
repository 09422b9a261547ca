//! The harness of the system tests: the built daemons and clients, in their own directories.
//!
//! In reading order:
//!
//! - [`Dvm`]: daemons on this machine, and the check that they leave nothing behind.
//! - [`Call`], [`Running`], [`Ended`]: a command with a deadline, while it runs, and after it has exited.
//! - [`Mpi`], [`plain`], [`python`]: compiled test programs.
//! - [`built`]: the programs under test, checked to be up to date.
//! - [`processes`]: facts from `/proc`.

pub mod built;
mod call;
mod dvm;
mod leftovers;
mod prefix;
pub mod processes;
mod programs;
mod watched;

pub use call::{Call, Ended, Running};
pub use dvm::{Dvm, Options};
pub use programs::{Mpi, client, hydra, intel, mpi4py_for_the_abi, plain, python};
pub use watched::eventually;
