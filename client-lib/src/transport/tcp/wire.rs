//! Encodes and decodes frames on a byte stream, without I/O.
//!
//! ```text
//! 0        4        8              8+h    32 (48 if h is 40)        s+p          a multiple of 64
//! | p: u32 | h: u32 | head          | 0 … | payload                 | 0 …        |   the next frame
//! ```
//!
//! `h` is 16, 24 or 40, `p` at most [`FRAME_MAX`], and 0 for kinds without a payload; anything else but a record ([`control`]) is
//! invalid and ends the connection. Words are in the machine's byte order, which the handshake has compared. A message of any length is many
//! frames, so no length here comes near 4 GiB.
//!
//! The zeros speed up the kernel's copying: a processor whose `rep movsb` writes 1 to 15 bytes ahead of where it reads, modulo a
//! page, is slow there (AMD Zen 4: 2.7 GB/s instead of 45). User memory begins at multiples of 16, often 16 bytes into a page,
//! and the kernel's at pages: payloads 32 bytes after multiples of 64 are never that near.
//!
//! With rails ([`super::rails`]), a record may say that the next payload comes in slices: `p` is the length of all of them, the first
//! follows the head here, and each other one follows the previous one of its rail, without anything between them. The frame is
//! delivered when all slices are complete, and until then what follows it here is kept.

mod control;

pub(super) use control::{Control, Cut, LANES_MAX, Offer, RECORD};

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
        Self::of_slice(frame, payload, payload)
    }

    /// Of a frame of whose payload the first `main` bytes follow.
    #[inline]
    pub(super) fn of_slice(frame: &Frame, payload: usize, main: usize) -> Self {
        let mut head = [0; HEAD_MAX];
        let head_len = frame.encode(Room::new(&mut head));
        let mut bytes = [0; START_MAX];
        bytes[..4].copy_from_slice(&(payload as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(head_len as u32).to_ne_bytes());
        bytes[8..].copy_from_slice(&head);
        let len = start_len(head_len);
        Self { bytes, len, padding: padding(len + main) }
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
    #[error("invalid record between frames")]
    Record,
    #[error("invalid frame: its slices are not its payload")]
    Cut,
    #[error("invalid record between frames: rail {0} is not open")]
    Rail(u8),
    #[error("invalid record between frames: nothing was asked or offered")]
    Unexpected,
}

/// The received bytes of the current frame.
#[derive(Debug)]
pub(super) struct Incoming {
    peer: Peer,
    start: [u8; RECORD],
    started: usize,
    payload: Option<Underway>,
    /// The number of zeros still to come before the next frame.
    skip: usize,
    bye: bool,
    /// Bytes of long messages that the peer was asked for, except those in complete frames.
    outstanding: u64,
    /// Made with the first record.
    rails: Option<Box<Rails>>,
}

/// A payload that is not complete yet.
#[derive(Debug)]
struct Underway {
    frame: Frame,
    len: usize,
    /// The length of what arrives on the main connection, which are the first bytes.
    main: usize,
    /// Of these, how many have arrived.
    done: usize,
    /// How many bytes are still to arrive on rails.
    missing: usize,
    into: Into,
}

impl Underway {
    fn is_complete(&self) -> bool {
        self.done == self.main && self.missing == 0
    }
}

/// What is known of the rails.
#[derive(Debug, Default)]
struct Rails {
    /// Records for the owner.
    heard: Vec<Control>,
    /// `open[rail]`.
    open: [bool; LANES_MAX],
    /// The slices of the next payload.
    cut: Option<Cut>,
    /// `slices[rail]` of the current payload.
    slices: [Slice; LANES_MAX],
    /// What has arrived on the main connection behind a payload that is not complete.
    held: Vec<u8>,
}

/// A part of a payload: which bytes, and how many of them have arrived.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    at: usize,
    len: usize,
    done: usize,
}

/// Where the next bytes of a connection belong.
#[derive(Debug)]
pub(super) enum Wanted<'a> {
    /// They are to be fed.
    Any,
    /// Into this landing, from this place on and so many.
    Landing(&'a Landing, usize, usize),
    /// So many, which are to be fed.
    Some(usize),
    /// Here.
    Here(&'a mut [u8]),
    /// None must be read now.
    Nothing,
}

#[derive(Debug)]
enum Into {
    /// The user's memory: read directly there if it consists of few pieces, otherwise copied from what was read.
    Landing { landing: Landing, straight: bool },
    /// The library's memory, because no receive has matched the message yet.
    Collected(Vec<u8>),
    /// The same for slices: as long as the whole payload from the beginning.
    Placed(Vec<u8>),
}

impl Incoming {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, start: [0; RECORD], started: 0, payload: None, skip: 0, bye: false, outstanding: 0, rails: None }
    }

    /// Whether the peer has said that nothing more will arrive.
    pub(super) fn bye(&self) -> bool {
        self.bye
    }

    /// Records that the peer has been asked for so many bytes of long messages.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.outstanding = self.outstanding.saturating_add(bytes);
    }

    /// The number of these bytes in frames that are not complete.
    #[inline]
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// A payload is complete.
    #[inline]
    fn count(&mut self, frame: &Frame, len: usize) {
        if let Frame::Part { .. } = frame {
            self.outstanding = self.outstanding.saturating_sub(len as u64);
        }
    }

    /// Whether a part of a long message has begun and not ended.
    pub(super) fn is_within_a_part(&self) -> bool {
        self.payload.as_ref().is_some_and(|underway| matches!(underway.frame, Frame::Part { .. }))
    }

    /// Whether a frame has begun and not ended.
    pub(super) fn is_within_a_frame(&self) -> bool {
        self.started > 0 || self.payload.is_some() || self.rails.as_ref().is_some_and(|rails| rails.cut.is_some())
    }

    /// From now on, slices may arrive on this rail.
    pub(super) fn open_rail(&mut self, rail: u8) {
        self.rails.get_or_insert_default().open[usize::from(rail)] = true;
    }

    /// Whether records have arrived for the owner.
    #[inline]
    pub(super) fn has_heard(&self) -> bool {
        self.rails.as_ref().is_some_and(|rails| !rails.heard.is_empty())
    }

    /// The records that have arrived since the last call.
    pub(super) fn heard(&mut self) -> Vec<Control> {
        self.rails.as_mut().map(|rails| std::mem::take(&mut rails.heard)).unwrap_or_default()
    }

    /// Takes the next bytes of the stream, split anywhere.
    #[inline]
    pub(super) fn feed<S: Sink>(&mut self, mut bytes: &[u8], sink: &mut S) -> Result<(), BadStream> {
        while !bytes.is_empty() {
            if let Some(underway) = &self.payload {
                if underway.done == underway.main {
                    self.rails.get_or_insert_default().held.extend_from_slice(bytes);
                    return Ok(());
                }
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
            let (found, start) = if before == 0 {
                match parse(bytes)? {
                    Some(found) => found,
                    None => {
                        self.start[..bytes.len()].copy_from_slice(bytes);
                        self.started = bytes.len();
                        return Ok(());
                    }
                }
            } else {
                let more = bytes.len().min(RECORD - before);
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
            let (frame, payload) = match found {
                Found::Frame(frame, payload) => (frame, payload),
                Found::Control(control) => {
                    self.on_control(control)?;
                    bytes = &bytes[start - before..];
                    continue;
                }
            };
            bytes = &bytes[start - before..];
            if let Some(cut) = self.rails.as_mut().and_then(|rails| rails.cut.take()) {
                self.skip = padding(start + cut[0] as usize);
                self.begin_slices(frame, payload, &cut, sink)?;
                continue;
            }
            self.skip = padding(start + payload);
            if payload <= bytes.len() {
                self.bye |= frame == Frame::Bye;
                self.count(&frame, payload);
                sink.on_frame(self.peer, frame, Arrived::new(&bytes[..payload]));
                bytes = &bytes[payload..];
            } else {
                self.begin_payload(frame, payload, sink);
            }
        }
        Ok(())
    }

    fn on_control(&mut self, control: Control) -> Result<(), BadStream> {
        let rails = self.rails.get_or_insert_default();
        match control {
            // A cut is for a frame.
            _ if rails.cut.is_some() => return Err(BadStream::Cut),
            Control::Cut(cut) => {
                if let Some(rail) = (1..LANES_MAX).find(|rail| cut[*rail] > 0 && !rails.open[*rail]) {
                    return Err(BadStream::Rail(rail as u8));
                }
                rails.cut = Some(cut);
            }
            Control::Want | Control::Offer(_) | Control::Joined(_) => rails.heard.push(control),
        }
        Ok(())
    }

    /// Where the next bytes of the main connection belong.
    #[inline]
    pub(super) fn wanted(&self) -> Wanted<'_> {
        match &self.payload {
            Some(underway) if underway.done == underway.main => Wanted::Nothing,
            Some(Underway { main, done, into: Into::Landing { landing, straight: true }, .. }) => {
                Wanted::Landing(landing, landing.at + done, main - done)
            }
            Some(_) | None => Wanted::Any,
        }
    }

    /// Records that the next `count` bytes of the main connection, at most the wanted number, have been read into the landing.
    #[inline]
    pub(super) fn landed<S: Sink>(&mut self, count: usize, sink: &mut S) {
        if let Some(underway) = &mut self.payload {
            underway.done += count.min(underway.main - underway.done);
            self.end_payload(sink);
        }
    }

    /// Where the next bytes of a rail belong.
    pub(super) fn wanted_of(&mut self, rail: u8) -> Wanted<'_> {
        let (Some(underway), Some(rails)) = (&mut self.payload, &self.rails) else { return Wanted::Nothing };
        let Slice { at, len, done } = rails.slices[usize::from(rail)];
        match &mut underway.into {
            _ if done == len => Wanted::Nothing,
            Into::Landing { landing, straight: true } => Wanted::Landing(landing, landing.at + at + done, len - done),
            Into::Landing { .. } | Into::Collected(_) => Wanted::Some(len - done),
            Into::Placed(placed) => Wanted::Here(&mut placed[at + done..at + len]),
        }
    }

    /// Takes the next bytes of a rail, at most the wanted number.
    pub(super) fn feed_of<S: Sink>(&mut self, rail: u8, bytes: &[u8], sink: &mut S) -> Result<(), BadStream> {
        if let (Some(underway), Some(rails)) = (&mut self.payload, &self.rails) {
            let slice = rails.slices[usize::from(rail)];
            let (at, bytes) = (slice.at + slice.done, &bytes[..bytes.len().min(slice.len - slice.done)]);
            match &mut underway.into {
                Into::Landing { landing, .. } => landing.buffer.write(landing.at + at, bytes),
                Into::Placed(placed) | Into::Collected(placed) => placed[at..at + bytes.len()].copy_from_slice(bytes),
            }
        }
        self.landed_of(rail, bytes.len(), sink)
    }

    /// Records that the next `count` bytes of a rail, at most the wanted number, have been read to where they belong.
    pub(super) fn landed_of<S: Sink>(&mut self, rail: u8, count: usize, sink: &mut S) -> Result<(), BadStream> {
        let (Some(underway), Some(rails)) = (&mut self.payload, &mut self.rails) else { return Ok(()) };
        let slice = &mut rails.slices[usize::from(rail)];
        let count = count.min(slice.len - slice.done);
        slice.done += count;
        underway.missing -= count;
        if !underway.is_complete() {
            return Ok(());
        }
        let held = std::mem::take(&mut rails.held);
        self.end_payload(sink);
        self.feed(&held, sink)
    }

    fn begin_slices<S: Sink>(&mut self, frame: Frame, len: usize, cut: &Cut, sink: &mut S) -> Result<(), BadStream> {
        if len == 0 || cut.iter().map(|len| *len as usize).sum::<usize>() != len {
            return Err(BadStream::Cut);
        }
        self.begin_payload(frame, len, sink);
        if let (Some(underway), Some(rails)) = (&mut self.payload, &mut self.rails) {
            let mut at = 0;
            for (slice, len) in rails.slices.iter_mut().zip(cut) {
                let len = *len as usize;
                *slice = Slice { at, len, done: 0 };
                at += len;
            }
            underway.main = cut[0] as usize;
            underway.missing = len - underway.main;
            if let Into::Collected(collected) = &mut underway.into {
                let mut placed = std::mem::take(collected);
                placed.resize(len, 0);
                underway.into = Into::Placed(placed);
            }
        }
        Ok(())
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
        self.payload = Some(Underway { frame, len, main: len, done: 0, missing: 0, into });
    }

    fn continue_payload<'a, S: Sink>(&mut self, bytes: &'a [u8], sink: &mut S) -> &'a [u8] {
        let Some(underway) = &mut self.payload else { return bytes };
        let (now, rest) = bytes.split_at(bytes.len().min(underway.main - underway.done));
        match &mut underway.into {
            Into::Landing { landing, .. } => landing.buffer.write(landing.at + underway.done, now),
            Into::Collected(collected) => collected.extend_from_slice(now),
            Into::Placed(placed) => placed[underway.done..underway.done + now.len()].copy_from_slice(now),
        }
        underway.done += now.len();
        self.end_payload(sink);
        rest
    }

    fn end_payload<S: Sink>(&mut self, sink: &mut S) {
        if let Some(Underway { frame, len, into, .. }) = self.payload.take_if(|underway| underway.is_complete()) {
            self.count(&frame, len);
            match into {
                Into::Landing { .. } => sink.on_landed(self.peer, frame, len),
                Into::Collected(collected) | Into::Placed(collected) => {
                    sink.on_collected(self.peer, frame, collected);
                }
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

/// What starts at some place of a stream.
enum Found {
    /// A frame, and the length of its payload.
    Frame(Frame, usize),
    Control(Control),
}

/// What starts here, and its length without a payload; `None` if there are too few bytes.
#[inline]
fn parse(bytes: &[u8]) -> Result<Option<(Found, usize)>, BadStream> {
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let Some(payload) = word(0) else { return Ok(None) };
    if payload as usize > FRAME_MAX {
        return Err(BadStream::Payload(payload));
    }
    let Some(head) = word(4) else { return Ok(None) };
    if !matches!(head, 16 | 24 | 40) {
        return if head == control::MARK { parse_control(bytes) } else { Err(BadStream::Head(head)) };
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
    Ok(Some((Found::Frame(frame, payload as usize), start)))
}

#[cold]
fn parse_control(bytes: &[u8]) -> Result<Option<(Found, usize)>, BadStream> {
    let Some(bytes) = bytes.first_chunk() else { return Ok(None) };
    Ok(Some((Found::Control(Control::decode(bytes).ok_or(BadStream::Record)?), RECORD)))
}

#[cfg(test)]
mod tests;
