//! The thin MPI library of rsd: `libmpi_abi.so.1`, the MPI 5.0 standard ABI.
//!
//! It is loaded into other people's programs, so it has no threads of its own (unless the user asks for one), no async runtime and exactly one
//! global state.
//! Its modules are layers, and each uses only lower ones (`cargo xtask layers` checks that). From the highest to the lowest:
//!
//! - `exports`: the exported functions, generated from tables.
//! - [`api`]: their implementation, by chapter of the standard.
//! - [`runtime`]: the one global state, how calls enter it and wait; startup and finalization, connect and disconnect.
//! - [`object`]: the objects behind the handles.
//! - [`coll`]: collective operations as schedules of messages, and through memory that the processes of a node share.
//! - [`transport`]: shared memory and TCP.
//! - [`shared_memory`]: what both of these do with memory of several processes.
//! - [`engine`]: matching and protocol, without I/O: tests simulate whole worlds in one thread.
//! - [`memory`]: the memory that the user lends for a message; [`op`]: reduction operations.
//! - [`device`]: memory of CUDA devices.
//! - [`datatype`]: layouts and the pack engine; [`settings`]: what the user has set.
//! - [`bootstrap`], a crate that rsd's PMI libraries use too: how a process learns its rank and exchanges addresses, under any PMI-1
//!   launcher.
//! - [`error`]: what a call fails with.
//! - [`copy`]: copies of bytes.
//! - [`abi`]: the constants, handles and the status of the standard ABI.

pub mod abi;
pub mod api;
pub mod coll;
pub mod copy;
pub mod datatype;
pub mod device;
pub mod engine;
pub mod error;
mod exports;
mod hint;
pub mod memory;
pub mod object;
pub mod op;
pub mod runtime;
pub mod settings;
pub mod shared_memory;
pub mod transport;

#[doc(inline)]
pub use rsd_bootstrap as bootstrap;
