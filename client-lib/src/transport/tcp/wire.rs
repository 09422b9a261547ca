//! Encodes and decodes frames on a byte stream, without I/O.
//!
//! ```text
//! 0        4        8              8+h    32 (48 if h is 40)        s+p          a multiple of 64
//! | p: u32 | h: u32 | head          | 0 … | payload                 | 0 …        |   the next frame
//! ```
//!
//! `h` is 16, 24 or 40, `p` at most [`FRAME_MAX`], and 0 for kinds without a payload; anything else is invalid and ends the
//! connection. Words are in the machine's byte order, which the handshake has compared. A message of any length is many
//! frames, so no length here comes near 4 GiB.
//!
//! The zeros speed up the kernel's copying: a processor whose `rep movsb` writes 1 to 15 bytes ahead of where it reads, modulo a
//! page, is slow there (AMD Zen 4: 2.7 GB/s instead of 45). User memory begins at multiples of 16, often 16 bytes into a page,
//! and the kernel's at pages: payloads 32 bytes after multiples of 64 are never that near.

use crate::engine::frame::{BadFrame, Frame, HEAD_MAX, Sort};
use crate::engine::{Landing, Peer, Sink};
use crate::memory::{Arrived, Room};

/// The longest payload of a frame, whatever limits the sender has: a receiver may have to buffer this much.
pub(super) const FRAME_MAX: usize = 4 << 20;

const PREFIX: usize = 8;

/// The longest prefix and head.
pub(super) const START_MAX: usize = PREFIX + HEAD_MAX;

const PAYLOAD_AT: usize = 32;
const UNIT: usize = 64;

/// The padding between a payload and the next frame.
const ZEROS: [u8; UNIT] = [0; UNIT];

/// Where the payload begins, after a head of this length.
#[inline]
const fn start_len(head: usize) -> usize {
    if PREFIX + head > PAYLOAD_AT { START_MAX } else { PAYLOAD_AT }
}

/// The number of zeros after a frame that would end here.
#[inline]
const fn padding(end: usize) -> usize {
    end.next_multiple_of(UNIT) - end
}

/// The bytes before a payload, and the padding after it.
#[derive(Debug)]
pub(super) struct Start {
    bytes: [u8; START_MAX],
    len: usize,
    padding: usize,
}

impl Start {
    #[inline]
    pub(super) fn new(frame: &Frame, payload: usize) -> Self {
        let mut head = [0; HEAD_MAX];
        let head_len = frame.encode(Room::new(&mut head));
        let mut bytes = [0; START_MAX];
        bytes[..4].copy_from_slice(&(payload as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(head_len as u32).to_ne_bytes());
        bytes[8..].copy_from_slice(&head);
        let len = start_len(head_len);
        Self { bytes, len, padding: padding(len + payload) }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(super) fn padding(&self) -> &'static [u8] {
        &ZEROS[..self.padding]
    }
}

/// Bytes that are not valid frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadStream {
    #[error("invalid frame: head of {0} bytes")]
    Head(u32),
    #[error("invalid frame: payload of {0} bytes")]
    Payload(u32),
    #[error("invalid frame: unknown head")]
    Frame(#[from] BadFrame),
    #[error("invalid frame: payload of {0} bytes in a kind without payload")]
    NoPayload(u32),
}

/// The received bytes of the current frame.
#[derive(Debug)]
pub(super) struct Incoming {
    peer: Peer,
    start: [u8; START_MAX],
    started: usize,
    payload: Option<Underway>,
    /// The number of zeros still to come before the next frame.
    skip: usize,
    bye: bool,
}

/// A payload that is not complete yet.
#[derive(Debug)]
struct Underway {
    frame: Frame,
    len: usize,
    done: usize,
    into: Into,
}

#[derive(Debug)]
enum Into {
    /// The user's memory: read directly there if it consists of few pieces, otherwise copied from what was read.
    Landing { landing: Landing, straight: bool },
    /// The library's memory, because no receive has matched the message yet.
    Collected(Vec<u8>),
}

impl Incoming {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, start: [0; START_MAX], started: 0, payload: None, skip: 0, bye: false }
    }

    /// Whether the peer has said that nothing more will arrive.
    pub(super) fn bye(&self) -> bool {
        self.bye
    }

    /// Whether a frame has begun and not ended.
    pub(super) fn is_within_a_frame(&self) -> bool {
        self.started > 0 || self.payload.is_some()
    }

    /// Takes the next bytes of the stream, split anywhere.
    #[inline]
    pub(super) fn feed<S: Sink>(&mut self, mut bytes: &[u8], sink: &mut S) -> Result<(), BadStream> {
        while !bytes.is_empty() {
            if self.payload.is_some() {
                bytes = self.continue_payload(bytes, sink);
                continue;
            }
            if self.skip > 0 {
                let now = self.skip.min(bytes.len());
                self.skip -= now;
                bytes = &bytes[now..];
                continue;
            }
            let before = self.started;
            let (frame, start, payload) = if before == 0 {
                match parse(bytes)? {
                    Some(found) => found,
                    None => {
                        self.start[..bytes.len()].copy_from_slice(bytes);
                        self.started = bytes.len();
                        return Ok(());
                    }
                }
            } else {
                let more = bytes.len().min(START_MAX - before);
                self.start[before..before + more].copy_from_slice(&bytes[..more]);
                match parse(&self.start[..before + more])? {
                    Some(found) => {
                        self.started = 0;
                        found
                    }
                    None => {
                        self.started = before + more;
                        return Ok(());
                    }
                }
            };
            self.skip = padding(start + payload);
            bytes = &bytes[start - before..];
            if payload <= bytes.len() {
                self.bye |= frame == Frame::Bye;
                sink.on_frame(self.peer, frame, Arrived::new(&bytes[..payload]));
                bytes = &bytes[payload..];
            } else {
                self.begin_payload(frame, payload, sink);
            }
        }
        Ok(())
    }

    /// Where the next bytes of the stream belong, if that is the user's memory: the landing, how many of its bytes are
    /// filled, and how many are not.
    #[inline]
    pub(super) fn wanted(&self) -> Option<(&Landing, usize, usize)> {
        match &self.payload {
            Some(Underway { len, done, into: Into::Landing { landing, straight: true }, .. }) => {
                Some((landing, *done, len - done))
            }
            _ => None,
        }
    }

    /// Records that the next `count` bytes of the stream, at most the wanted number, have been read into the landing.
    #[inline]
    pub(super) fn landed<S: Sink>(&mut self, count: usize, sink: &mut S) {
        if let Some(underway) = &mut self.payload {
            underway.done += count.min(underway.len - underway.done);
            self.end_payload(sink);
        }
    }

    fn begin_payload<S: Sink>(&mut self, frame: Frame, len: usize, sink: &mut S) {
        let fits = |landing: &Landing| landing.at.checked_add(len).is_some_and(|end| end <= landing.buffer.len());
        let into = match sink.landing(self.peer, &frame, len).filter(fits) {
            Some(landing) => {
                let straight = is_coarse(&landing, len);
                Into::Landing { landing, straight }
            }
            None => Into::Collected(sink.room(len)),
        };
        self.payload = Some(Underway { frame, len, done: 0, into });
    }

    fn continue_payload<'a, S: Sink>(&mut self, bytes: &'a [u8], sink: &mut S) -> &'a [u8] {
        let Some(underway) = &mut self.payload else { return bytes };
        let (now, rest) = bytes.split_at(bytes.len().min(underway.len - underway.done));
        match &mut underway.into {
            Into::Landing { landing, .. } => landing.buffer.write(landing.at + underway.done, now),
            Into::Collected(collected) => collected.extend_from_slice(now),
        }
        underway.done += now.len();
        self.end_payload(sink);
        rest
    }

    fn end_payload<S: Sink>(&mut self, sink: &mut S) {
        if let Some(Underway { frame, len, into, .. }) = self.payload.take_if(|underway| underway.done == underway.len)
        {
            match into {
                Into::Landing { .. } => sink.on_landed(self.peer, frame, len),
                Into::Collected(collected) => sink.on_collected(self.peer, frame, collected),
            }
        }
    }
}

/// Whether one system call can fill a good part of the payload's memory: its list of pieces is limited.
fn is_coarse(landing: &Landing, len: usize) -> bool {
    const PIECES: usize = 16;
    const ENOUGH: usize = 16 << 10;
    let (mut pieces, mut named) = (0, 0);
    landing.buffer.pieces(landing.at, len, |_, piece| {
        pieces += 1;
        named += piece;
        pieces < PIECES
    });
    named >= len.min(ENOUGH)
}

/// The frame that starts here, the offset and the length of its payload; `None` if there are too few bytes.
#[inline]
fn parse(bytes: &[u8]) -> Result<Option<(Frame, usize, usize)>, BadStream> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let Some(payload) = word(0) else { return Ok(None) };
    if payload as usize > FRAME_MAX {
        return Err(BadStream::Payload(payload));
    }
    let Some(head) = word(4) else { return Ok(None) };
    if !matches!(head, 16 | 24 | 40) {
        return Err(BadStream::Head(head));
    }
    let start = start_len(head as usize);
    if bytes.len() < start {
        return Ok(None);
    }
    let (frame, len) = Frame::decode(&bytes[PREFIX..PREFIX + head as usize])?;
    if len != head as usize {
        return Err(BadStream::Head(head));
    }
    let carries = match frame {
        Frame::Eager { .. } | Frame::EagerSync { .. } | Frame::Part { .. } | Frame::Note { .. } => true,
        Frame::Ready { .. } | Frame::Clear { .. } | Frame::Done { .. } | Frame::Dropped { .. } => false,
        Frame::Hold { .. } | Frame::Signed { sort: Sort::Ready { .. }, .. } | Frame::Bye => false,
        Frame::Signed { sort: Sort::Whole | Sort::Sync { .. }, .. } => true,
    };
    if payload > 0 && !carries {
        return Err(BadStream::NoPayload(payload));
    }
    Ok(Some((frame, start, payload as usize)))
}

#[cfg(test)]
mod tests;
