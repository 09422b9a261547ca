//! The process management interface (PMI) that MPI libraries speak: bytes in, messages out, and the other way round. No
//! I/O, no state of a job: what a request is answered with is the caller's.
//!
//! - [`v1`]: PMI-1 text, both halves. Every connection starts with it; a client that wants PMI-2 says so in its first
//!   `init` (`version: 2`) and changes to frames after the reply. The frames are not decoded yet; their module is `v2`.
//! - [`mapping`]: which rank is on which node, as the string that every MPI asks for first.
//! - [`environment`]: the variables that a launcher sets and must not pass on.
//! - [`listening`]: what our own server and our own library say besides PMI, so that starting needs no exchange.
//! - [`sets`]: what our own server tells of the sets that processes belong to.
//!
//! The rules kept here are those of the peers as observed on the wire: MPICH 3.x to 5.x, MVAPICH2, Intel MPI.

pub mod environment;
pub mod listening;
pub mod mapping;
pub mod sets;
pub mod spawning;
pub mod v1;
