//! Errors in bytes from a peer, and in messages that cannot be encoded.

use super::{BACKLOG_MAX, LINE_MAX, SPAWN_MAX};

/// Why a peer's bytes are not PMI-1. The text quotes the peer's bytes; excerpts are escaped and short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No line feed within [`LINE_MAX`] bytes.
    #[error("a line is longer than {LINE_MAX} bytes")]
    LineTooLong,
    /// More than [`BACKLOG_MAX`] bytes without waiting for a reply.
    #[error("more than {BACKLOG_MAX} bytes wait to be decoded")]
    BacklogTooLong,
    /// A line without a command.
    #[error("invalid line, expected a command: \"{excerpt}\"")]
    NoCommand {
        /// The beginning of the line.
        excerpt: String,
    },
    /// A command without one of its values.
    #[error("{command}: {field}= is missing")]
    Missing {
        /// The command.
        command: String,
        /// The missing key.
        field: &'static str,
    },
    /// A value that is not a number of the expected type.
    #[error("{command}: invalid number {field}={excerpt}")]
    BadNumber {
        /// The command.
        command: String,
        /// Its key.
        field: &'static str,
        /// The beginning of the value.
        excerpt: String,
    },
    /// A `put` whose words are not `kvsname=`, `key=`, `value=` in this order.
    #[error("invalid put, expected kvsname= key= value= in this order: \"{excerpt}\"")]
    MalformedPut {
        /// The beginning of the line.
        excerpt: String,
    },
    /// A `group=` that is not `<members>:<tag>`.
    #[error("barrier_in: invalid group={excerpt}")]
    MalformedGroup {
        /// The beginning of the value.
        excerpt: String,
    },
    /// A spawn message longer than [`SPAWN_MAX`].
    #[error("invalid spawn message: it is longer than {SPAWN_MAX} bytes")]
    SpawnTooLong,
    /// A spawn line that is not `key=value`.
    #[error("invalid spawn line, expected key=value: \"{excerpt}\"")]
    MalformedSpawn {
        /// The beginning of the line.
        excerpt: String,
    },
    /// Segments of a spawn message out of order, or a missing argument.
    #[error("invalid spawn message: {what} is {found}, expected {expected}")]
    SpawnOutOfOrder {
        /// The name of the number.
        what: &'static str,
        /// The number received.
        found: u32,
        /// The number expected.
        expected: u32,
    },
    /// A reply that no server sends, or that is out of order.
    #[error("unexpected reply {command}")]
    UnexpectedReply {
        /// The command of the reply.
        command: String,
    },
}

/// Why a request cannot be encoded: PMI-1 has no form for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A word that contains a space, a line feed or a NUL.
    #[error("{field} contains a space, a line feed or a NUL")]
    NotAWord {
        /// The key of the word.
        field: &'static str,
    },
    /// A value at the end of the line that contains a line feed or a NUL.
    #[error("{field} contains a line feed or a NUL")]
    NotALine {
        /// The key of the value.
        field: &'static str,
    },
    /// The request exceeds its limit.
    #[error("the request is longer than {max} bytes")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// A spawn message without a segment, or with a segment that starts no process or has an empty key.
    #[error("invalid spawn message: it {0}")]
    BadSpawn(&'static str),
}

/// The beginning of a peer's bytes, escaped for a log line.
pub(in crate::pmi) fn excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("{}{more}", bytes[..bytes.len().min(SHOWN)].escape_ascii())
}
