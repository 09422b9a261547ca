//! PMI-2: frames of six length digits and a body `cmd=<command>;<key>=<value>;…`, one request outstanding per thread.
//!
//! The connection starts with one line of PMI-1, by which the client requests PMI-2. The server half decodes [`Asked`] requests with a
//! [`RequestDecoder`] and encodes [`Reply`]s; the client half does the opposite with a [`ReplyDecoder`]. Both decoders accept bytes as
//! they arrive and are bounded by [`BODY_MAX`], the most that six digits can announce. After an error a decoder yields nothing more:
//! the connection is unusable.
//!
//! MPICH writes the length on the right, Slurm's library on the left; both are decoded, and the former is written. A `;` in a value is
//! doubled, as Slurm, MPICH up to 4.0 and MVAPICH2 do; later versions of MPICH cut a value at its first `;`, so the server itself writes
//! none. Slurm's library fails on values of more than 1,024 bytes.

mod error;
mod frames;
mod pairs;
mod reply;
mod request;
mod spawn;
#[cfg(test)]
mod transcripts;

pub use error::WireError;
pub use reply::{Reply, ReplyDecoder};
pub use request::{Asked, Echo, Request, RequestDecoder, Verb};

use super::v1;

/// The answer to the line by which a client requests PMI-2.
pub const ACCEPTED: v1::Reply = v1::Reply::ResponseToInit { version: 2, subversion: 0, rc: 0 };

/// The limit for a key, with its end byte; compiled into the clients.
pub const KEYLEN_MAX: usize = 64;
/// The limit for a value, with its end byte; compiled into the clients.
pub const VALLEN_MAX: usize = 1024;
/// The longest body of a frame.
pub const BODY_MAX: usize = 999_999;
