//! The thin MPI library of rsd: `libmpi_abi.so.1`, the MPI 5.0 standard ABI.
//!
//! It is loaded into other people's programs, so it has no threads of its own, no async runtime and exactly one global state.
//! From the outside in:
//!
//! - [`abi`]: constants, handles and the exported functions, all generated from tables; [`api`]: their implementation, by
//!   chapter of the standard.
//! - [`object`]: the objects behind the handles; [`datatype`]: layouts and the pack engine.
//! - [`op`]: reduction operations.
//! - [`coll`]: collective operations as schedules of messages.
//! - [`engine`]: matching and protocol, without I/O: tests simulate whole worlds in one thread.
//! - [`memory`]: the memory that the user lends for a message.
//! - [`transport`]: shared memory and TCP.
//! - [`runtime`]: the one global state, how calls enter it and wait; startup and finalization.
//! - [`bootstrap`]: how a process learns its rank and exchanges addresses, under any PMI-1 launcher.

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
