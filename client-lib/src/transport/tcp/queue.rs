//! Bytes that a socket has not accepted yet.

use std::io::{self, ErrorKind, IoSlice};
use std::net::TcpStream;

use super::socket;

/// Buffers that have held more than this are shared once they are empty.
const KEEP: usize = 64 << 10;

/// `bytes[sent..]` must be sent before anything else.
#[derive(Debug, Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    sent: usize,
}

impl Queue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The number of bytes to be sent.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The end, for more bytes; `spare` is a buffer for reuse.
    #[inline]
    pub(super) fn end(&mut self, spare: &mut Vec<u8>) -> &mut Vec<u8> {
        if self.bytes.is_empty() {
            std::mem::swap(&mut self.bytes, spare);
        }
        &mut self.bytes
    }

    /// Appends what follows the first `skip` bytes of these pieces.
    #[inline]
    pub(super) fn keep(&mut self, pieces: &[IoSlice<'_>], mut skip: usize, spare: &mut Vec<u8>) {
        let end = self.end(spare);
        for piece in pieces {
            end.extend_from_slice(piece.get(skip..).unwrap_or(&[]));
            skip = skip.saturating_sub(piece.len());
        }
    }

    /// Sends as much as there is room for; returns whether there was any.
    pub(super) fn flush(&mut self, socket: &TcpStream, spare: &mut Vec<u8>) -> io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        match socket::send(socket, &[IoSlice::new(&self.bytes[self.sent..])]) {
            Ok(sent) => self.sent += sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            if self.bytes.capacity() > spare.capacity() {
                std::mem::swap(&mut self.bytes, spare);
            }
            if self.bytes.capacity() > KEEP {
                self.bytes = Vec::new();
            }
        }
        Ok(true)
    }
}
