//! `MPI_Status`: 32 bytes that the caller owns.

use std::ffi::c_int;

use super::constants::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL, MPI_SUCCESS};

/// `MPI_Status`. The last five words belong to the library: the number of bytes received (two words, low first), whether the
/// operation was cancelled, and two spare ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Status {
    /// Rank of the sender.
    pub source: c_int,
    /// Tag of the message.
    pub tag: c_int,
    /// Error class, if a call fills in several statuses.
    pub error: c_int,
    internal: [c_int; 5],
}

impl Status {
    /// The status of an operation on no process or of a null request: `MPI_ANY_SOURCE`, `MPI_ANY_TAG`, no bytes.
    pub const EMPTY: Self = Self::new(MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    /// The status of a receive from `MPI_PROC_NULL`.
    pub const PROC_NULL: Self = Self::new(MPI_PROC_NULL, MPI_ANY_TAG, 0);

    /// The status of a message of `bytes` bytes.
    pub const fn new(source: c_int, tag: c_int, bytes: u64) -> Self {
        let internal = [bytes as u32 as c_int, (bytes >> 32) as u32 as c_int, 0, 0, 0];
        Self { source, tag, error: MPI_SUCCESS, internal }
    }

    /// The number of received bytes, packed.
    pub const fn bytes(&self) -> u64 {
        (self.internal[0] as u32 as u64) | ((self.internal[1] as u32 as u64) << 32)
    }

    /// For `MPI_Status_set_elements`.
    pub fn set_bytes(&mut self, bytes: u64) {
        (self.internal[0], self.internal[1]) = (bytes as u32 as c_int, (bytes >> 32) as u32 as c_int);
    }

    /// Whether the operation was cancelled.
    pub const fn cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    /// For `MPI_Cancel` and `MPI_Status_set_cancelled`.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[2] = c_int::from(cancelled);
    }
}

const _: () = assert!(size_of::<Status>() == 32);
