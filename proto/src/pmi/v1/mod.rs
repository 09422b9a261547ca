//! PMI-1: lines of text, `cmd=<command> <key>=<value> …`, one request outstanding per connection.
//!
//! The server half decodes [`Request`]s with a [`RequestDecoder`] and encodes [`Reply`]s; the client half does the opposite
//! with a [`ReplyDecoder`]. Both decoders accept bytes as they arrive (one by one, or many lines in one read) and are bounded: a
//! line by [`LINE_MAX`], a spawn message by [`SPAWN_MAX`], all pending bytes by [`BACKLOG_MAX`]. After an
//! error a decoder yields nothing more: the connection is unusable.
//!
//! Values of keys pass verbatim in both directions, with `=`, `\` and spaces. No client escapes values. Some clients unescape what
//! they read, and all cut a value at the first space; that concerns only the ranks of a job, which share one library.
//!
//! Clients up to MPICH 4.1 and MVAPICH2 read a reply into 1,024 bytes and split it into `key=value` words. So replies that the
//! server itself composes are always shorter than [`REPLY_LINE_MAX`], without spaces and without empty values. A value
//! that a rank put is not cut to that length: such clients keep their own values short enough, and newer ones use
//! [`VALLEN_MAX`] to the last byte.

mod error;
mod lines;
mod reply;
mod request;
mod spawn;
#[cfg(test)]
mod transcripts;
mod words;

pub(super) use error::excerpt;
pub use error::{EncodeError, WireError};
pub use reply::{Reply, ReplyDecoder};
pub use request::{Group, Request, RequestDecoder};
pub use spawn::{Spawn, SpawnSegment};

/// The announced limit for a job's name, with its end byte.
pub const KVSNAME_MAX: usize = 256;
/// The announced limit for a key, with its end byte.
pub const KEYLEN_MAX: usize = 64;
/// The announced limit for a value, with its end byte. It must be even: writer and reader of segmented values round it
/// differently, and an assertion in MPICH 5 fails on an odd limit.
pub const VALLEN_MAX: usize = 1024;

/// The longest line that is decoded, without its line feed.
pub const LINE_MAX: usize = 64 << 10;
/// The longest line that the server itself composes, without its line feed.
pub const REPLY_LINE_MAX: usize = 1023;
/// The longest spawn message, all lines together: about the kernel's limit for the arguments of one program.
pub const SPAWN_MAX: usize = 1 << 20;
/// The most bytes that a decoder holds. Clients wait for each reply, so a correct client stays far below.
pub const BACKLOG_MAX: usize = 1 << 20;
