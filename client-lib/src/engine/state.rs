//! What the engine remembers of each send, receive and message.

use std::sync::Arc;

use super::calls::Outcome;
use super::frame::{Envelope, Frame, Region};
use super::matching::Seen;
use super::slab::Id;
use super::transport::Peer;
use crate::memory::Buffer;

/// A send or receive that was not over at once.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) state: RequestState,
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
///
/// What a short message does not need is boxed: the rest is copied often.
#[derive(Debug)]
pub(super) enum RequestState {
    /// A receive that waits for a message.
    Posted { entry: u32, buffer: Buffer },
    /// A receive whose long message is announced and has to be fetched, or is being read by the transport.
    Matched(Box<Matched>),
    /// A receive of a long message that comes in parts.
    Incoming(Box<Incoming>),
    /// A receive into whose memory the transport is writing an eager message.
    Landing { from: Peer, envelope: Envelope, len: usize },
    /// A send of an eager message that waits in the peer's backlog for room.
    Queued(Box<Waiting>),
    /// A send of which the receiver has been told, and that it has to answer.
    Announced(Box<Announced>),
    /// A send of a long message in parts.
    Streaming(Box<Streaming>),
    /// A send to this process itself that waits for its receive; the buffer is with the message.
    Own,
    /// Over.
    Finished(Outcome),
}

#[derive(Debug)]
pub(super) struct Matched {
    pub(super) message: Announcement,
    pub(super) buffer: Buffer,
}

impl Matched {
    /// How many bytes of the message are received: what does not fit is left out.
    pub(super) fn wanted(&self) -> usize {
        self.message.len.min(self.buffer.len() as u64) as usize
    }
}

/// Of the `end` bytes wanted, `at` are here.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) message: Announcement,
    pub(super) buffer: Buffer,
    pub(super) at: usize,
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) to: Peer,
    pub(super) frame: Frame,
    pub(super) buffer: Buffer,
}

#[derive(Debug)]
pub(super) struct Announced {
    pub(super) to: Peer,
    pub(super) buffer: Buffer,
    pub(super) region: Option<Region>,
}

/// Of the `end` bytes asked for, `at` are sent.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) to: Peer,
    /// The receiver's number.
    pub(super) receive: u32,
    pub(super) buffer: Buffer,
    pub(super) at: usize,
    pub(super) end: usize,
}

impl RequestState {
    /// Whether it is a send that is not over.
    pub(super) fn is_sending(&self) -> bool {
        match self {
            Self::Queued(_) | Self::Announced(_) | Self::Streaming(_) | Self::Own => true,
            Self::Posted { .. } | Self::Matched(_) | Self::Incoming(_) => false,
            Self::Landing { .. } | Self::Finished(_) => false,
        }
    }

    /// Whether it is a send that is not over before this peer has answered.
    pub(super) fn awaits_answer_of(&self, peer: Peer) -> bool {
        match self {
            Self::Announced(it) => it.to == peer,
            Self::Queued(it) => it.to == peer && !matches!(it.frame, Frame::Eager { .. }),
            Self::Posted { .. } | Self::Matched(_) | Self::Incoming(_) | Self::Landing { .. } => false,
            Self::Streaming(_) | Self::Own | Self::Finished(_) => false,
        }
    }

    /// The peer that it cannot do without.
    pub(super) fn depends_on(&self) -> Option<Peer> {
        match self {
            Self::Matched(it) => Some(it.message.from),
            Self::Incoming(it) => Some(it.message.from),
            Self::Landing { from, .. } => Some(*from),
            Self::Queued(it) => Some(it.to),
            Self::Announced(it) => Some(it.to),
            Self::Streaming(it) => Some(it.to),
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
    Ready(Box<Announcement>),
    /// Its bytes are in this process's own memory, of a request in state `Own`.
    Own(Box<(Id, Buffer)>),
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Sync { bytes, .. } => bytes.len() as u64,
            Self::Ready(message) => message.len,
            Self::Own(own) => own.1.len() as u64,
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
    /// A member from which nothing will come any more, as far as receives have to know of it: receives from anybody fail.
    pub(super) lost: Option<Peer>,
    /// Whether receives from a member that has finalized fail by themselves. The user's do not: they may be cancelled, and it is
    /// only whoever waits for one that waits in vain.
    pub(super) strict: bool,
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
