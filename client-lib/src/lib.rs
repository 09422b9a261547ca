//! The thin MPI library of rsd: `libmpi_abi.so.1`, the MPI 5.0 standard ABI.
//!
//! It is loaded into other people's programs, so it has no threads of its own, no async runtime and no global state but one.
//! From the outside in:
//!
//! - [`abi`]: constants, handles, the exported functions, all generated from tables; [`api`]: what they do, by chapter.
//! - [`object`]: what handles stand for; [`datatype`]: layouts and the pack engine.
//! - [`op`]: operations of reductions.
//! - [`coll`]: collective operations as schedules of messages.
//! - [`engine`]: matching and protocol, pure: simulated as whole worlds in one thread.
//! - [`memory`]: what the user lends for a message.
//! - [`transport`]: shared memory and TCP.
//! - [`runtime`]: the one global state, how calls come in, how they wait; start and end.
//! - [`bootstrap`]: how a process finds out who it is, and exchanges addresses, under any PMI-1 launcher.

pub mod abi;
pub mod api;
pub mod bootstrap;
pub mod coll;
pub mod datatype;
pub mod engine;
pub mod error;
mod exports;
pub mod memory;
pub mod object;
pub mod op;
pub mod runtime;
pub mod settings;
pub mod shared_memory;
pub mod transport;
