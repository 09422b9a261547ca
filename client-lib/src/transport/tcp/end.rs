//! What a read from a link's connections may yield, and why a link ends.

use std::io;
use std::net::SocketAddr;

use super::wire::BadStream;

/// The result of a read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Got {
    Nothing,
    /// All data that had arrived.
    Some,
    /// As much data as there was room for: there may be more.
    Full,
}

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// Both sides have said farewell.
    #[error("it has finalized")]
    Orderly,
    #[error("it closed the connection without finalizing MPI: its process has exited")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Bad(#[from] BadStream),
    #[error("its host has not acknowledged any data for 30 s")]
    Silent,
    #[error("its connection at {0}: its host has not acknowledged any data for 30 s")]
    RailSilent(SocketAddr),
}
