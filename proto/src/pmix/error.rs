//! Why a peer's bytes are not PMIx.

use super::{DEPTH_MAX, HELLO_MAX, ITEMS_MAX, PAYLOAD_MAX};

/// Why a peer's bytes are not PMIx.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end within an item.
    #[error("the message ends within an item")]
    Short,
    /// A number that its type cannot hold.
    #[error("{0} is outside the range of its type")]
    OutOfRange(i128),
    /// Another number of items than the message announces or its form requires.
    #[error("{found} items, expected {expected}")]
    Count {
        /// The number in the message.
        found: i64,
        /// The required number.
        expected: u64,
    },
    /// A string without its end byte, or with one inside.
    #[error("a string without an end byte at its end")]
    Unterminated,
    /// A name that is not UTF-8, is empty, or is too long.
    #[error("an invalid name of a namespace or a key")]
    Name,
    /// A data type that is not decoded.
    #[error("data type {0} is not supported")]
    DataType(u16),
    /// An integer that is described by another type than on this platform.
    #[error("an integer of data type {0}, which this platform does not use here")]
    Described(u16),
    /// Values nested too deeply.
    #[error("values are nested more than {DEPTH_MAX} deep")]
    Deep,
    /// Too many values.
    #[error("a message has more than {ITEMS_MAX} values")]
    Items,
    /// A payload that is too long.
    #[error("a message of {0} bytes; the longest may have {PAYLOAD_MAX}")]
    Long(u32),
    /// A first message that is too long.
    #[error("a first message of {0} bytes; the longest may have {HELLO_MAX}")]
    LongHello(u32),
    /// The first message of a kind of client that is not served.
    #[error("a tool or a launcher (kind {0}) instead of a rank")]
    NotARank(u8),
    /// A codec that the server has not offered.
    #[error("unknown codec {0:?}, expected v3 or v41 or a later one")]
    Codec(String),
    /// A buffer whose items describe themselves.
    #[error("a buffer of type {0}: only buffers without descriptions are supported, which release builds of PMIx use")]
    Buffer(u8),
    /// Bytes after the end of a message.
    #[error("{0} bytes follow the end of the message")]
    Trailing(usize),
}
