//! What the engine remembers of each send, receive and message.

use std::sync::Arc;

use super::frame::{Envelope, Frame, Region};
use super::matching::Seen;
use super::request::Outcome;
use super::slab::Id;
use super::transport::Peer;
use crate::memory::Buffer;

/// A send or receive that was not over at once.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) state: State,
    /// Nobody asks for its outcome.
    pub(super) forgotten: bool,
}

/// Where a request stands:
///
/// ```text
/// receive: Posted ─→ Matched ─→ Incoming ─→ Finished      (a long message; pulled: straight from Matched)
///             └──→ Landing ─────────────────────↑          (an eager one; from a ring: straight from Posted)
/// send:    Announced ─→ Streaming ─→ Finished              (long; pulled or synchronous: straight from Announced)
///          Queued ─→ Announced, Finished                   (eager, without room)
///          Own ─→ Finished                                 (to this process itself)
/// ```
#[derive(Debug)]
pub(super) enum State {
    /// A receive that waits for a message.
    Posted { entry: u32, buffer: Buffer },
    /// A receive whose long message is announced and has to be fetched.
    Matched { message: Announcement, buffer: Buffer },
    /// A receive of a long message: of the `end` bytes wanted, `at` are here.
    Incoming { message: Announcement, buffer: Buffer, at: usize, end: usize },
    /// A receive into whose memory the transport is writing an eager message.
    Landing { from: Peer, envelope: Envelope, len: usize },
    /// A send of an eager message that waits in the peer's backlog for room.
    Queued { to: Peer, frame: Frame, buffer: Buffer },
    /// A send of which the receiver has been told, and that it has to answer.
    Announced { to: Peer, buffer: Buffer, region: Option<Region> },
    /// A send of a long message that the receiver has asked for: of `end` bytes, `at` are sent.
    Streaming { to: Peer, receive: u32, buffer: Buffer, at: usize, end: usize },
    /// A send to this process itself that waits for its receive; the buffer is with the message.
    Own,
    /// Over.
    Finished(Outcome),
}

impl State {
    /// Whether it is a send that is not over.
    pub(super) fn is_sending(&self) -> bool {
        match self {
            Self::Queued { .. } | Self::Announced { .. } | Self::Streaming { .. } | Self::Own => true,
            Self::Posted { .. } | Self::Matched { .. } | Self::Incoming { .. } => false,
            Self::Landing { .. } | Self::Finished(_) => false,
        }
    }

    /// The peer that it cannot do without, and whether it is a send.
    pub(super) fn depends_on(&self) -> Option<Peer> {
        match self {
            Self::Matched { message, .. } | Self::Incoming { message, .. } => Some(message.from),
            Self::Landing { from, .. } => Some(*from),
            Self::Queued { to, .. } | Self::Announced { to, .. } | Self::Streaming { to, .. } => Some(*to),
            Self::Posted { .. } | Self::Own | Self::Finished(_) => None,
        }
    }
}

/// A message that no receive has asked for yet.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: Peer,
    pub(super) envelope: Envelope,
    pub(super) content: Content,
}

/// What is here of it.
#[derive(Debug)]
pub(super) enum Content {
    /// All bytes.
    Bytes(Vec<u8>),
    /// All bytes; the sender waits to hear of it.
    Sync { bytes: Vec<u8>, send: u32 },
    /// Only word of it.
    Ready { send: u32, len: u64, region: Option<Region> },
    /// Its bytes are in this process's own memory, of a request in state `Own`.
    Own { send: Id, buffer: Buffer },
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Sync { bytes, .. } => bytes.len() as u64,
            Self::Ready { len, .. } => *len,
            Self::Own { buffer, .. } => buffer.len() as u64,
        }
    }
}

/// A long message that a peer has announced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Announcement {
    pub(super) from: Peer,
    pub(super) envelope: Envelope,
    /// The sender's number.
    pub(super) send: u32,
    pub(super) len: u64,
    pub(super) region: Option<Region>,
}

/// A frame for a context that is not open here yet.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) from: Peer,
    pub(super) frame: Frame,
    pub(super) payload: Vec<u8>,
}

/// An open context.
#[derive(Debug)]
pub(super) struct Context {
    /// Whom the ranks of messages received stand for.
    pub(super) members: Arc<[Peer]>,
    pub(super) seen: Seen,
    /// A member that is lost: receives from anybody fail.
    pub(super) lost: Option<Peer>,
}

/// What needs the transport, and is done after it has been polled.
#[derive(Debug)]
pub(super) enum Errand {
    /// Fetch the message of a request in state `Matched`.
    Fetch(Id),
    /// The peer is done with the region.
    Withdraw(Peer, Region),
    /// Listen no more to a peer that makes no sense.
    Cut(Peer),
}
