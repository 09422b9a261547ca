//! What can be wrong with bytes from a peer, and with a message of our own.

use super::{BACKLOG_MAX, LINE_MAX, SPAWN_MAX};

/// Why the bytes of a peer are not PMI-1. The text says what the peer sent; excerpts are escaped and short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No line feed within [`LINE_MAX`] bytes.
    #[error("a line is longer than {LINE_MAX} bytes")]
    LineTooLong,
    /// More than [`BACKLOG_MAX`] bytes without waiting for a reply.
    #[error("more than {BACKLOG_MAX} bytes wait to be decoded")]
    BacklogTooLong,
    /// A line that names no command.
    #[error("a line names no command: \"{excerpt}\"")]
    NoCommand {
        /// How the line begins.
        excerpt: String,
    },
    /// A command without one of its values.
    #[error("{command} lacks {field}=")]
    Missing {
        /// The command.
        command: String,
        /// The key that must be there.
        field: &'static str,
    },
    /// A value that is not a number of the expected kind.
    #[error("{command} has a bad number {field}={excerpt}")]
    BadNumber {
        /// The command.
        command: String,
        /// Its key.
        field: &'static str,
        /// How the value begins.
        excerpt: String,
    },
    /// A `put` whose words are not `kvsname=`, `key=`, `value=` in this order.
    #[error("put is not kvsname= key= value= in this order: \"{excerpt}\"")]
    MalformedPut {
        /// How the line begins.
        excerpt: String,
    },
    /// A `group=` that is not `<members>:<tag>`.
    #[error("barrier_in has a malformed group={excerpt}")]
    MalformedGroup {
        /// How the value begins.
        excerpt: String,
    },
    /// A spawn message beyond [`SPAWN_MAX`].
    #[error("a spawn message is longer than {SPAWN_MAX} bytes")]
    SpawnTooLong,
    /// A spawn line that is not `key=value`.
    #[error("a spawn line is not key=value: \"{excerpt}\"")]
    MalformedSpawn {
        /// How the line begins.
        excerpt: String,
    },
    /// Segments of a spawn message that do not follow one another, or an argument that is missing.
    #[error("a spawn message has {what} {found} where {expected} is due")]
    SpawnOutOfOrder {
        /// What is counted.
        what: &'static str,
        /// What came.
        found: u32,
        /// What must come.
        expected: u32,
    },
    /// A reply that no server sends, or not at this point.
    #[error("an unexpected reply {command}")]
    UnexpectedReply {
        /// The command of the reply.
        command: String,
    },
}

/// Why a request cannot be written: PMI-1 has no way to say it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A word with a space, a line feed or a NUL in it.
    #[error("{field} holds a space, a line feed or a NUL")]
    NotAWord {
        /// The key of the word.
        field: &'static str,
    },
    /// A value to the end of the line with a line feed or a NUL in it.
    #[error("{field} holds a line feed or a NUL")]
    NotALine {
        /// The key of the value.
        field: &'static str,
    },
    /// The request is longer than its bound.
    #[error("the request is longer than {max} bytes")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// A spawn message without a segment, or with one that starts no process or has an unnamed key.
    #[error("a spawn message {0}")]
    BadSpawn(&'static str),
}

/// The beginning of a peer's bytes, fit for a log line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("{}{more}", bytes[..bytes.len().min(SHOWN)].escape_ascii())
}
