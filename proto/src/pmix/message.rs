//! The frames of a connection: a header and a payload, after the first message.
//!
//! ```text
//! ┌───────────────┬───────────┬────────────────┬──────────┬─────────
//! │ index: 4 bytes│ tag: 4    │ length: 4      │ unused: 4│ payload …
//! └───────────────┴───────────┴────────────────┴──────────┴─────────   big-endian
//! ```

use bytes::{Buf, Bytes, BytesMut};

use super::error::WireError;
use super::{HELLO_MAX, PAYLOAD_MAX};

/// The length of a header.
pub(super) const HEADER_BYTES: usize = 16;

/// A message after the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The number of a request and its reply; 0: an event.
    pub tag: u32,
    /// The payload, in the connection's codec.
    pub payload: Bytes,
}

impl Message {
    /// Returns the header of a message with this tag and a payload of `length` bytes.
    pub fn header(tag: u32, length: usize) -> [u8; HEADER_BYTES] {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut header = [0; HEADER_BYTES];
        header[4..8].copy_from_slice(&tag.to_be_bytes());
        header[8..12].copy_from_slice(&length.to_be_bytes());
        header
    }

    /// Returns the message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        [&Message::header(self.tag, self.payload.len()), &self.payload[..]].concat()
    }
}

/// Decodes the bytes of a connection into messages. As an iterator, it yields `None` until more bytes are fed. After an error it
/// yields nothing more.
#[derive(Debug, Default)]
pub struct MessageDecoder {
    bytes: BytesMut,
    closed: bool,
}

impl MessageDecoder {
    /// Takes the bytes of a read. At most a message of [`PAYLOAD_MAX`] bytes and what one read returns is kept.
    pub fn feed(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

impl Iterator for MessageDecoder {
    type Item = Result<Message, WireError>;

    fn next(&mut self) -> Option<Result<Message, WireError>> {
        let header = self.bytes.first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (tag, length) = (word(4), word(8));
        if length as usize > PAYLOAD_MAX {
            *self = MessageDecoder { closed: true, bytes: BytesMut::new() };
            return Some(Err(WireError::Long(length)));
        }
        if self.bytes.len() < HEADER_BYTES + length as usize {
            return None;
        }
        self.bytes.advance(HEADER_BYTES);
        let payload = self.bytes.split_to(length as usize).freeze();
        Some(Ok(Message { tag, payload }))
    }
}

/// Returns the length that the header of a first message announces; None: the header is incomplete. Its numbers are in the sender's byte
/// order, which is this machine's.
pub(super) fn hello_length(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    if length as usize > HELLO_MAX { Err(WireError::LongHello(length)) } else { Ok(Some(length as usize)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_any_pieces() {
        let messages = [(7, &b"abc"[..]), (0, b""), (u32::MAX, b"\0\0")];
        let messages = messages.map(|(tag, payload)| Message { tag, payload: payload.into() });
        let bytes = messages.iter().flat_map(Message::encode).collect::<Vec<_>>();
        for piece in [1, 5, 16, 100] {
            let (mut decoder, mut decoded) = (MessageDecoder::default(), Vec::new());
            for piece in bytes.chunks(piece) {
                decoder.feed(piece);
                decoded.extend(decoder.by_ref().map(Result::unwrap));
            }
            assert_eq!(decoded, messages);
        }
    }

    #[test]
    fn nothing_is_decoded_after_a_message_that_is_too_long() {
        let mut decoder = MessageDecoder::default();
        decoder.feed(&Message::header(1, PAYLOAD_MAX + 1));
        assert_eq!(decoder.next(), Some(Err(WireError::Long(PAYLOAD_MAX as u32 + 1))));
        decoder.feed(&Message { tag: 1, payload: Bytes::new() }.encode());
        assert_eq!(decoder.next(), None);
        assert!(decoder.bytes.is_empty());
    }
}
