//! An open connection to a peer: frames out, frames in.
//!
//! A frame goes from the user's memory to the socket in one call. The rest that the socket does not accept is copied, and later
//! polls send it; until it is sent, only small frames are accepted, so a link queues at most one frame and [`GATHER`] bytes.
//! A read goes directly to the user's memory if the current frame belongs there, and otherwise to a scratch buffer that all
//! links share.

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use super::private::Private;
use super::socket;
use super::wire::{BadStream, Incoming, Start};
use crate::engine::{Frame, Peer, Refusal, Sink};
use crate::memory::Payload;

/// The most bytes of small frames that are queued for a busy socket.
const GATHER: usize = 64 << 10;

/// Frames up to this length are copied and sent as one piece.
const SMALL: usize = 512;

/// Buffers that have held more than this are shared once they are empty.
const KEEP: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Private<TcpStream>,
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
    incoming: Incoming,
    /// `out[sent..]` must be sent before anything else.
    out: Vec<u8>,
    sent: usize,
    /// The last frame has been accepted for sending.
    said_bye: bool,
    /// Nothing more arrives.
    ended: bool,
    /// Why nothing can be sent any more; data that have already arrived are still read.
    broken: Option<io::Error>,
    /// The number of further polls that read from the socket without a report.
    pub(super) heat: u32,
    /// Whether this link is among those that are polled.
    pub(super) polled: bool,
    /// Both sides have said farewell: arriving data are ignored, and the connection is closed once the peer has closed
    /// it.
    left: bool,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Got {
    Nothing,
    /// All data that had arrived.
    Some,
    /// As much data as there was room for: there may be more.
    Full,
}

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    /// Both sides have said farewell.
    #[error("it has finalized")]
    Orderly,
    #[error("it closed the connection without finalizing MPI: its process has exited")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Bad(#[from] BadStream),
    #[error("its host has not acknowledged any data for 30 s")]
    Silent,
}

impl Link {
    pub(super) fn new(socket: TcpStream, peer: Peer, address: SocketAddr) -> Self {
        Self {
            socket: Private::new(socket),
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

    /// After both farewells: once everything is sent, tells the peer that nothing follows.
    pub(super) fn leave(&mut self) {
        self.left = true;
        if !self.is_sending() {
            // If this fails, the peer learns it from the end of this process.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
    }

    /// Replaces reading after the farewells.
    fn await_close(&mut self) -> Result<Got, End> {
        match (&*self.socket).read(&mut [0; 8]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Got::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Got::Full),
            Ok(_) | Err(_) => Err(End::Orderly),
        }
    }

    /// Sends a frame, if there is room; `spare` is a buffer for reuse.
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

    /// Sends as much as there is room for. If there is none, queues small frames (and returns 0) and refuses others.
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

    /// Whether data are queued for the socket.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// The number of queued bytes.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Sends queued data, as much as there is room for; returns whether any was sent.
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

    /// Reads once and delivers the complete frames.
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
                // The next bytes are usually the start of the next part: not many of those should be copied twice.
                let ahead = &mut scratch[..AHEAD];
                let at = landing.at + filled;
                (landing.buffer.read_from(self.socket.as_fd(), at, left, ahead), left + AHEAD, left)
            }
            None => ((&*self.socket).read(scratch), scratch.len(), 0),
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

    /// No data have arrived; if nothing can or will be sent either, the link is over.
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

/// How many bytes are read beyond a payload that goes directly to the user's memory.
const AHEAD: usize = 4 << 10;
