//! An open connection to a peer: frames out, frames in.
//!
//! A frame goes from the user's memory to the socket in one call. What the socket does not take of it is copied and sent from
//! there by later polls; until that is out only small frames are taken, so a link holds at most one frame and [`GATHER`] bytes.
//! A read goes straight to the user's memory if the frame that is under way belongs there, and to a scratch buffer that all
//! links share otherwise.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use super::socket;
use super::wire::{BadStream, Incoming, Start};
use crate::engine::{Frame, Peer, Refusal, Sink};
use crate::memory::Payload;

/// As many bytes of small frames wait for a busy socket.
const GATHER: usize = 64 << 10;

/// Frames up to this length are copied to be sent as one piece.
const SMALL: usize = 512;

/// Buffers that have held more than this are shared once they are empty.
const KEEP: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: TcpStream,
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
    incoming: Incoming,
    /// `out[sent..]` is to be sent before anything else.
    out: Vec<u8>,
    sent: usize,
    /// The last frame has been taken for sending.
    said_bye: bool,
    /// Nothing more comes.
    ended: bool,
    /// Why nothing can be sent any more; what has come before is still read.
    broken: Option<io::Error>,
    /// So many more polls read from the socket without being told that there is something.
    pub(super) heat: u32,
    /// Whether it is among those that are polled.
    pub(super) polled: bool,
    /// Both sides have said farewell: whatever comes is not passed on, and the connection is closed once the peer has closed it.
    left: bool,
}

/// What a read has brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Nothing,
    /// As much as was there.
    Some,
    /// As much as there was room for: there may be more.
    Full,
}

/// Why a link is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// Both have said all they had to say.
    #[error("it has finalized")]
    Orderly,
    #[error("it closed the connection without having finalized: its process has ended")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Bad(#[from] BadStream),
    #[error("its host has acknowledged nothing for half a minute")]
    Silent,
}

impl Link {
    pub(super) fn new(socket: TcpStream, peer: Peer, address: SocketAddr) -> Self {
        Self {
            socket,
            peer,
            address,
            incoming: Incoming::new(peer),
            out: Vec::new(),
            sent: 0,
            said_bye: false,
            ended: false,
            broken: None,
            heat: 0,
            polled: false,
            left: false,
        }
    }

    /// As [`Link::left`].
    pub(super) fn is_left(&self) -> bool {
        self.left
    }

    /// Both have said farewell: once everything is out, the peer is told that nothing follows.
    pub(super) fn leave(&mut self) {
        self.left = true;
        if !self.is_sending() {
            // Whatever may go wrong, the peer learns by the end of this process.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// In place of reading, after the farewells.
    fn await_close(&mut self) -> Result<Got, End> {
        match (&self.socket).read(&mut [0; 8]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Got::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Got::Full),
            Ok(_) | Err(_) => Err(End::Orderly),
        }
    }

    /// Sends a frame, if there is room; `spare` is memory that has been used before.
    #[inline]
    pub(super) fn try_send(&mut self, frame: &Frame, payload: Payload<'_>, spare: &mut Vec<u8>) -> Result<(), Refusal> {
        if self.broken.is_some() || self.said_bye {
            return Err(Refusal::Lost);
        }
        let start = Start::new(frame, payload.len());
        let total = start.as_bytes().len() + payload.len() + start.padding().len();
        if self.is_sending() {
            if self.out.len() - self.sent + total > GATHER {
                return Err(Refusal::Full);
            }
            self.keep(&start, payload);
        } else if total <= SMALL {
            // One piece costs the kernel less than three.
            let mut piece = [0; SMALL];
            let at = start.as_bytes().len();
            piece[..at].copy_from_slice(start.as_bytes());
            payload.copy_to(&mut piece[at..at + payload.len()]);
            let sent = self.send(&[IoSlice::new(&piece[..total])], total)?;
            if sent < total {
                std::mem::swap(&mut self.out, spare);
                self.out.extend_from_slice(&piece[sent..total]);
            }
        } else if let Some(bytes) = payload.as_bytes() {
            let pieces = [IoSlice::new(start.as_bytes()), IoSlice::new(bytes), IoSlice::new(start.padding())];
            let sent = self.send(&pieces, total)?;
            if sent < total {
                std::mem::swap(&mut self.out, spare);
                let mut skip = sent;
                for piece in pieces {
                    self.out.extend_from_slice(piece.get(skip..).unwrap_or(&[]));
                    skip = skip.saturating_sub(piece.len());
                }
            }
        } else {
            // Memory with holes is packed first.
            std::mem::swap(&mut self.out, spare);
            self.keep(&start, payload);
            self.flush(spare);
        }
        self.said_bye = *frame == Frame::Bye;
        if self.broken.is_some() { Err(Refusal::Lost) } else { Ok(()) }
    }

    /// Sends as much as there is room for. If there is none, small frames are kept (0 is returned), and others refused.
    #[inline]
    fn send(&mut self, pieces: &[IoSlice<'_>], total: usize) -> Result<usize, Refusal> {
        match socket::send(&self.socket, pieces) {
            Ok(sent) => Ok(sent),
            Err(error) if error.kind() == ErrorKind::WouldBlock && total > GATHER => Err(Refusal::Full),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => {
                self.broken = Some(error);
                Err(Refusal::Lost)
            }
        }
    }

    /// Copies a frame, to be sent later.
    fn keep(&mut self, start: &Start, payload: Payload<'_>) {
        self.out.extend_from_slice(start.as_bytes());
        let at = self.out.len();
        self.out.resize(at + payload.len(), 0);
        payload.copy_to(&mut self.out[at..]);
        self.out.extend_from_slice(start.padding());
    }

    /// Whether something waits for room in the socket.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// How many bytes wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends what waits, as much as there is room for; whether any was.
    pub(super) fn flush(&mut self, spare: &mut Vec<u8>) -> bool {
        if !self.is_sending() || self.broken.is_some() {
            return false;
        }
        match socket::send(&self.socket, &[IoSlice::new(&self.out[self.sent..])]) {
            Ok(sent) => self.sent += sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => {
                self.broken = Some(error);
                return true;
            }
        }
        if self.sent == self.out.len() {
            if self.left {
                let _ = self.socket.shutdown(Shutdown::Write);
            }
            self.out.clear();
            self.sent = 0;
            if self.out.capacity() > spare.capacity() {
                std::mem::swap(&mut self.out, spare);
            }
            if self.out.capacity() > KEEP {
                self.out = Vec::new();
            }
        }
        true
    }

    /// Reads once and passes on what is whole.
    #[inline]
    pub(super) fn read<S: Sink>(&mut self, scratch: &mut [u8], sink: &mut S) -> Result<Got, End> {
        if self.left {
            return self.await_close();
        }
        if self.ended {
            return self.nothing();
        }
        let wanted = self.incoming.wanted();
        let (read, room, straight) = match wanted {
            Some((landing, filled, left)) => {
                // What follows is most often the start of the next part: not much of that should be copied twice.
                let ahead = &mut scratch[..AHEAD];
                let at = landing.at + filled;
                (landing.buffer.read_from(self.socket.as_fd(), at, left, ahead), left + AHEAD, left)
            }
            None => ((&self.socket).read(scratch), scratch.len(), 0),
        };
        let count = match read {
            Ok(0) => return self.end(),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return self.nothing(),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Got::Full),
            Err(_) if self.incoming.bye() => return Err(End::Orderly),
            Err(error) => return Err(self.broken.take().unwrap_or(error).into()),
        };
        let ahead = count.saturating_sub(straight);
        if straight > 0 {
            self.incoming.landed(count - ahead, sink);
        }
        self.incoming.feed(&scratch[..ahead], sink)?;
        Ok(if count == room { Got::Full } else { Got::Some })
    }

    /// Nothing has come; if nothing can or will be sent either, that is all there is.
    fn nothing(&mut self) -> Result<Got, End> {
        match self.broken.take() {
            Some(_) if self.incoming.bye() => Err(End::Orderly),
            Some(error) => Err(error.into()),
            None if self.ended && self.said_bye && !self.is_sending() => Err(End::Orderly),
            None => Ok(Got::Nothing),
        }
    }

    /// The peer has closed its direction.
    fn end(&mut self) -> Result<Got, End> {
        if !self.incoming.bye() || self.incoming.is_within_a_frame() {
            return Err(End::Closed);
        }
        self.ended = true;
        self.nothing()
    }
}

/// As many bytes are read past a payload that goes straight to the user's memory.
const AHEAD: usize = 4 << 10;
