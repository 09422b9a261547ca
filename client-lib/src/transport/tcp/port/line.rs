//! A connection between two processes before their groups are introduced: messages of words.
//!
//! ```text
//! | count: u32 | !count: u32 | count words of 64 bits |     in the machine's byte order, which the handshake has compared
//! ```

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use super::socket;

/// One end.
#[derive(Debug)]
pub struct Line {
    socket: TcpStream,
    /// `out[sent..]` is still to be sent.
    out: Vec<u8>,
    sent: usize,
    /// The bytes of the next message that have arrived.
    came: Vec<u8>,
}

/// A message of more words is rejected: this many suffice for the introductions of 2^24 processes.
const WORDS_MAX: usize = 1 << 28;

/// Memory for a message grows as it arrives, not by its announced length.
const CHUNK: usize = 64 << 10;

const HEAD: usize = 8;

impl Line {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, out: Vec::new(), sent: 0, came: Vec::new() }
    }

    /// Readable when there is something to receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message, or as much of it as there is room for: later polls send the rest.
    pub fn send(&mut self, words: &[u64]) -> io::Result<()> {
        let count = words.len() as u32;
        self.out.extend_from_slice(&count.to_ne_bytes());
        self.out.extend_from_slice(&(!count).to_ne_bytes());
        words.iter().for_each(|word| self.out.extend_from_slice(&word.to_ne_bytes()));
        self.flush().map(|_| ())
    }

    /// Whether everything has been sent.
    pub fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match socket::send(&self.socket, &[IoSlice::new(&self.out[self.sent..])]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Returns the next message once it is complete. The end of the line and an invalid message are errors.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u64>>> {
        self.flush()?;
        loop {
            let missing = self.missing()?;
            if missing == 0 {
                let words =
                    self.came[HEAD..].chunks_exact(8).filter_map(|it| it.try_into().ok().map(u64::from_ne_bytes));
                let words = words.collect();
                self.came.clear();
                return Ok(Some(words));
            }
            let before = self.came.len();
            self.came.resize(before + missing.min(CHUNK), 0);
            let read = (&self.socket).read(&mut self.came[before..]);
            self.came.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// How many bytes of the message are known to be missing: no byte after it is read.
    fn missing(&self) -> io::Result<usize> {
        let Some(head) = self.came.first_chunk::<HEAD>() else { return Ok(HEAD - self.came.len()) };
        let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let count = word(0);
        if word(4) != !count || count as usize > WORDS_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "it sent an invalid message"));
        }
        Ok(HEAD + 8 * count as usize - self.came.len())
    }
}
