//! An open connection to a peer: frames out, frames in.
//!
//! A frame goes from the user's memory to the socket in one call. The rest that the socket does not accept is copied, and later
//! polls send it; until it is sent, only small frames are accepted, so a link queues at most one frame and [`GATHER`] bytes.
//! A read goes directly to the user's memory if the current frame belongs there, and otherwise to a scratch buffer that all
//! links share. A long payload is cut if the link has rails ([`super::rails`]).

use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use super::admission::Standing;
use super::end::{End, Got};
use super::lanes::{LONG, Lanes};
use super::loss::Loss;
use super::private::Private;
use super::queue::Queue;

use super::socket;
use super::wire::{Control, Incoming, Start, Wanted};
use crate::engine::{Frame, Peer, Refusal, Sink};
use crate::memory::Payload;

/// The most bytes of small frames that are queued for a busy socket.
const GATHER: usize = 64 << 10;

/// Frames up to this length are copied and sent as one piece.
const SMALL: usize = 512;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Private<TcpStream>,
    pub(super) peer: Peer,
    pub(super) address: SocketAddr,
    /// Whether this process has dialled it.
    pub(super) dialled: bool,
    /// Whether the peer is on another host.
    pub(super) is_far: bool,
    pub(super) standing: Standing,
    incoming: Incoming,
    queue: Queue,
    /// Made when rails are first wanted.
    pub(super) lanes: Option<Box<Lanes>>,
    /// The number of bytes given to the main connection.
    pub(super) sent: u64,
    /// Made when first needed.
    pub(super) loss: Option<Box<Loss>>,
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

impl Link {
    pub(super) fn new(socket: TcpStream, peer: Peer, address: SocketAddr, dialled: bool) -> Self {
        // Without a connection, it does not matter.
        let is_far = socket::is_near(&socket).is_ok_and(|is_near| !is_near);
        Self {
            socket: Private::new(socket),
            peer,
            address,
            dialled,
            is_far,
            standing: Standing::default(),
            incoming: Incoming::new(peer),
            queue: Queue::default(),
            lanes: None,
            sent: 0,
            loss: None,
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
        match (&*self.socket).read(&mut [0; 512]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Got::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Got::Full),
            // This process's farewell may still be on its way.
            Ok(0) if self.is_sending() && self.broken.is_none() => Ok(Got::Nothing),
            // The padding after the peer's farewell.
            Ok(1..) => Ok(Got::Full),
            Ok(0) | Err(_) => Err(End::Orderly),
        }
    }

    /// Records that the peer has been asked for so many bytes of long messages.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.incoming.expect(bytes);
    }

    /// The number of these bytes in frames that are not complete.
    #[inline]
    pub(super) fn outstanding(&self) -> u64 {
        self.incoming.outstanding()
    }

    /// Whether a part of a long message has begun and not ended.
    pub(super) fn is_within_a_part(&self) -> bool {
        self.incoming.is_within_a_part()
    }

    /// Whether nothing can be sent any more.
    pub(super) fn is_closing(&self) -> bool {
        self.broken.is_some() || self.said_bye
    }

    /// As [`Loss::is_lossy`].
    pub(super) fn is_lossy(&self) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.is_lossy())
    }

    /// Sends a frame, if there is room; `spare` is a buffer for reuse.
    #[inline]
    pub(super) fn try_send(&mut self, frame: &Frame, payload: Payload<'_>, spare: &mut Vec<u8>) -> Result<(), Refusal> {
        if self.is_closing() {
            return Err(Refusal::Lost);
        }
        if payload.len() >= LONG
            && let Some(sent) = self.send_cut(frame, payload, spare)
        {
            return sent;
        }
        let start = Start::new(frame, payload.len());
        let total = start.as_bytes().len() + payload.len() + start.padding().len();
        if !self.queue.is_empty() {
            if self.queue.len() + total > GATHER {
                return Err(Refusal::Full);
            }
            keep(self.queue.end(spare), &start, payload);
        } else if total <= SMALL {
            // One piece costs the kernel less than three.
            let mut piece = [0; SMALL];
            let at = start.as_bytes().len();
            piece[..at].copy_from_slice(start.as_bytes());
            payload.copy_to(&mut piece[at..at + payload.len()]);
            self.send_pieces(&[IoSlice::new(&piece[..total])], total, spare)?;
        } else if let Some(bytes) = payload.as_bytes() {
            let pieces = [IoSlice::new(start.as_bytes()), IoSlice::new(bytes), IoSlice::new(start.padding())];
            self.send_pieces(&pieces, total, spare)?;
        } else {
            // Memory with holes is packed first.
            keep(self.queue.end(spare), &start, payload);
            self.flush(spare);
        }
        self.sent += total as u64;
        self.said_bye = *frame == Frame::Bye;
        if self.broken.is_some() { Err(Refusal::Lost) } else { Ok(()) }
    }

    /// Sends a long frame in slices; `None` if all of it goes on the main connection.
    #[cold]
    fn send_cut(&mut self, frame: &Frame, payload: Payload<'_>, spare: &mut Vec<u8>) -> Option<Result<(), Refusal>> {
        let lanes = self.lanes.as_mut()?;
        if !self.queue.is_empty() || lanes.is_sending() {
            return Some(Err(Refusal::Full));
        }
        let cut = lanes.divide(payload.len(), &self.socket)?;
        let packed;
        let bytes = match payload.as_bytes() {
            Some(bytes) => bytes,
            None => {
                let mut copy = vec![0; payload.len()];
                payload.copy_to(&mut copy);
                packed = copy;
                &packed
            }
        };
        let first = &bytes[..cut[0] as usize];
        let start = Start::of_slice(frame, bytes.len(), first.len());
        let record = Control::Cut(cut).encode();
        let pieces = [&record, start.as_bytes(), first, start.padding()].map(IoSlice::new);
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        if let Err(refusal) = self.send_pieces(&pieces, total, spare) {
            return Some(Err(refusal));
        }
        self.sent += total as u64;
        if let Some(lanes) = &mut self.lanes
            && let Err(error) = lanes.send(bytes, &cut, spare)
        {
            self.broken = Some(error);
            return Some(Err(Refusal::Lost));
        }
        Some(Ok(()))
    }

    /// Sends a record between frames, or nothing if nothing is sent any more.
    pub(super) fn say(&mut self, record: Control, spare: &mut Vec<u8>) {
        if self.is_closing() {
            return;
        }
        let bytes = record.encode();
        let pieces = [IoSlice::new(&bytes)];
        if self.queue.is_empty() {
            // A failure is reported by the next read.
            let _ = self.send_pieces(&pieces, bytes.len(), spare);
        } else {
            self.queue.keep(&pieces, 0, spare);
        }
    }

    /// Sends as much as there is room for, and queues the rest. If there is no room at all, small frames are queued, and other
    /// frames are refused.
    #[inline]
    fn send_pieces(&mut self, pieces: &[IoSlice<'_>], total: usize, spare: &mut Vec<u8>) -> Result<(), Refusal> {
        let sent = match socket::send(&self.socket, pieces) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock && total > GATHER => return Err(Refusal::Full),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => {
                self.broken = Some(error);
                return Err(Refusal::Lost);
            }
        };
        if sent < total {
            self.queue.keep(pieces, sent, spare);
        }
        Ok(())
    }

    /// Whether data are queued for a socket.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        !self.queue.is_empty() || self.lanes.as_ref().is_some_and(|lanes| lanes.is_sending())
    }

    /// The number of queued bytes.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Sends queued data, as much as there is room for; returns whether any was sent.
    pub(super) fn flush(&mut self, spare: &mut Vec<u8>) -> bool {
        if !self.is_sending() || self.broken.is_some() {
            return false;
        }
        let main = self.queue.flush(&self.socket, spare);
        let rails = self.lanes.as_mut().map_or(Ok(false), |lanes| lanes.flush(spare));
        match main.and_then(|main| Ok(main | rails?)) {
            Ok(moved) => {
                if moved && self.left && !self.is_sending() {
                    let _ = self.socket.shutdown(Shutdown::Write);
                }
                moved
            }
            Err(error) => {
                self.broken = Some(error);
                true
            }
        }
    }

    /// The records that have arrived since the last call.
    #[inline]
    pub(super) fn has_heard(&self) -> bool {
        self.incoming.has_heard()
    }

    /// As [`Incoming::heard`].
    pub(super) fn heard(&mut self) -> Vec<Control> {
        self.incoming.heard()
    }

    /// As [`Incoming::open_rail`].
    pub(super) fn open_rail(&mut self, rail: u8) {
        self.incoming.open_rail(rail);
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
        let from_rails = match &self.lanes {
            Some(lanes) => lanes.read(&mut self.incoming, scratch, sink)?,
            None => Got::Nothing,
        };
        match self.read_main(scratch, sink)?.max(from_rails) {
            Got::Nothing => self.nothing(),
            got => Ok(got),
        }
    }

    #[inline]
    fn read_main<S: Sink>(&mut self, scratch: &mut [u8], sink: &mut S) -> Result<Got, End> {
        let (read, room, straight) = match self.incoming.wanted() {
            Wanted::Landing(landing, at, left) => {
                // The next bytes are usually the start of the next part: not many of those should be copied twice.
                let ahead = &mut scratch[..AHEAD];
                (landing.buffer.read_from(self.socket.as_fd(), at, left, ahead), left + AHEAD, left)
            }
            Wanted::Any | Wanted::Some(_) | Wanted::Here(_) => ((&*self.socket).read(scratch), scratch.len(), 0),
            Wanted::Nothing => return Ok(Got::Nothing),
        };
        let count = match read {
            Ok(0) => return self.end(),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Got::Nothing),
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
        Ok(Got::Nothing)
    }
}

/// How many bytes are read beyond a payload that goes directly to the user's memory.
const AHEAD: usize = 4 << 10;

/// Copies a frame, to be sent later.
fn keep(end: &mut Vec<u8>, start: &Start, payload: Payload<'_>) {
    end.extend_from_slice(start.as_bytes());
    let at = end.len();
    end.resize(at + payload.len(), 0);
    payload.copy_to(&mut end[at..]);
    end.extend_from_slice(start.padding());
}
