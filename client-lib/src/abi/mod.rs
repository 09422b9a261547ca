//! The C boundary: the MPI 5.0 standard ABI as types, constants and exported functions.
//!
//! `cargo xtask abi` generates [`constants`] and the exported functions from tables (`abi/*.tsv`). A
//! handle is a number ([`handle`]), a status is 32 bytes ([`status`]).

pub mod constants;
pub mod handle;
pub mod status;

pub use handle::{
    CommHandle, DatatypeHandle, ErrhandlerHandle, FileHandle, GroupHandle, InfoHandle, MessageHandle, OpHandle,
    RequestHandle, SessionHandle, WinHandle,
};
pub use status::Status;
