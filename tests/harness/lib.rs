//! The harness of the system tests: real daemons and clients, as built, in directories of their own.
//!
//! In reading order:
//!
//! - [`Dvm`]: daemons on this machine, and that nothing is left of them.
//! - [`Call`], [`Running`], [`Ended`]: a command with a deadline, while it runs, and how it ended.
//! - [`Mpi`], [`plain`], [`python`]: programs for it to run.
//! - [`built`]: the programs under test, fresh.
//! - [`processes`]: what `/proc` tells.

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
