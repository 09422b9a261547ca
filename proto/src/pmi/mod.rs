//! The process management interface (PMI) that MPI libraries use: converts bytes to messages and messages to bytes. It has no I/O
//! and no job state: the caller decides the reply to a request.
//!
//! - [`v1`]: PMI-1 text, both halves. Every connection starts with it; a client requests PMI-2 in its first
//!   `init` (`version: 2`) and switches to frames after the reply.
//! - [`v2`]: PMI-2 frames, both halves.
//! - [`dialogue`]: a server's connection, on which either may come.
//! - [`mapping`]: the mapping of ranks to nodes, as the string that every MPI requests first.
//! - [`environment`]: the variables that a launcher sets, and those that ranks must not inherit.
//! - [`listening`]: rsd's extension of PMI by which ranks connect without an exchange of addresses.
//! - [`losses`]: rsd's extension of PMI that tells ranks which others are lost.
//! - [`sets`]: rsd's extension of PMI that describes the process sets a rank belongs to.
//!
//! The rules kept here were observed on the wire of the peers: MPICH 3.x to 5.x, MVAPICH2, Intel MPI.

pub mod dialogue;
pub mod environment;
pub mod listening;
pub mod losses;
pub mod mapping;
pub mod sets;
pub mod spawning;
pub mod v1;
pub mod v2;
