//! Errors in bytes from a peer, and in messages that cannot be encoded.

use super::BODY_MAX;

/// Why a peer's bytes are not PMI-2. The text quotes the peer's bytes; excerpts are escaped and short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A frame that does not begin with a length.
    #[error("invalid frame, expected six bytes with its length: \"{excerpt}\"")]
    BadLength {
        /// The six bytes.
        excerpt: String,
    },
    /// More than one frame of the greatest length without waiting for a reply.
    #[error("more bytes wait to be decoded than one frame of {BODY_MAX} bytes has")]
    BacklogTooLong,
    /// A body that is not `key=value;…`.
    #[error("invalid body, expected key=value; \"{excerpt}\"")]
    BadPair {
        /// The beginning of the rest.
        excerpt: String,
    },
    /// A body that does not begin with a command.
    #[error("invalid body, expected a command: \"{excerpt}\"")]
    NoCommand {
        /// The beginning of the body.
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
    /// A value that is not a number or a truth value, as expected.
    #[error("{command}: invalid {field}={excerpt}")]
    BadValue {
        /// The command.
        command: String,
        /// Its key.
        field: &'static str,
        /// The beginning of the value.
        excerpt: String,
    },
    /// A spawn message whose counts do not match what it has.
    #[error("invalid spawn message: {what} is {found}, expected {expected}")]
    SpawnOutOfOrder {
        /// The name of the number.
        what: &'static str,
        /// The number received.
        found: u32,
        /// The number expected.
        expected: u32,
    },
    /// A reply to no request that there is.
    #[error("unexpected reply {command}")]
    UnexpectedReply {
        /// The command of the reply.
        command: String,
    },
    /// A message that does not fit into a frame.
    #[error("the message is longer than {BODY_MAX} bytes")]
    TooLong,
}
