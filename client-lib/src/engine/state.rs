//! The engine's record of each send, receive and message.

use std::sync::Arc;

use super::calls::Outcome;
use super::frame::{Envelope, Frame, Region};
use super::matching::Seen;
use super::slab::Id;
use super::transport::Peer;
use crate::memory::Buffer;

/// A send or receive that did not complete at once.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) state: RequestState,
    /// The outcome will not be asked for.
    pub(super) forgotten: bool,
}

/// The state of a request:
///
/// ```text
/// receive: Posted ─→ Matched ─→ Incoming ─→ Finished      (a long message; pulled: straight from Matched)
///             └──→ Landing ─────────────────────↑          (an eager one; from a ring: straight from Posted)
/// send:    Announced ─→ Streaming ─→ Finished              (long; pulled or synchronous: straight from Announced)
///          Queued ─→ Announced, Finished                   (eager, without room)
///          Own ─→ Finished                                 (to this process itself)
/// ```
///
/// States that a short message does not need are boxed: the rest is copied often.
#[derive(Debug)]
pub(super) enum RequestState {
    /// A receive that waits for a message.
    Posted { entry: u32, buffer: Buffer },
    /// A receive whose long message is announced and must be fetched, or is being read by the transport.
    Matched(Box<Matched>),
    /// A receive of a long message that comes in parts.
    Incoming(Box<Incoming>),
    /// A receive into whose memory the transport is writing an eager message.
    Landing { from: Peer, envelope: Envelope, len: usize },
    /// A send of an eager message that waits in the peer's backlog for room.
    Queued(Box<Waiting>),
    /// A send that was announced to the receiver, which must answer.
    Announced(Box<Announced>),
    /// A send of a long message in parts.
    Streaming(Box<Streaming>),
    /// A send to this process itself that waits for its receive; the buffer is with the message.
    Own,
    /// Complete.
    Finished(Outcome),
}

#[derive(Debug)]
pub(super) struct Matched {
    pub(super) message: Announcement,
    pub(super) buffer: Buffer,
}

impl Matched {
    /// How many bytes of the message are received: the excess is dropped.
    pub(super) fn wanted(&self) -> usize {
        self.message.len.min(self.buffer.len() as u64) as usize
    }
}

/// `at` of the `end` wanted bytes have arrived.
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

/// `at` of the `end` requested bytes have been sent.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) to: Peer,
    /// The receiver's number of the request.
    pub(super) receive: u32,
    pub(super) buffer: Buffer,
    pub(super) at: usize,
    pub(super) end: usize,
}

impl RequestState {
    /// Whether it is a pending send.
    pub(super) fn is_sending(&self) -> bool {
        match self {
            Self::Queued(_) | Self::Announced(_) | Self::Streaming(_) | Self::Own => true,
            Self::Posted { .. } | Self::Matched(_) | Self::Incoming(_) => false,
            Self::Landing { .. } | Self::Finished(_) => false,
        }
    }

    /// Whether it is a send that this peer must answer.
    pub(super) fn awaits_answer_of(&self, peer: Peer) -> bool {
        match self {
            Self::Announced(it) => it.to == peer,
            Self::Queued(it) => it.to == peer && !matches!(it.frame, Frame::Eager { .. }),
            Self::Posted { .. } | Self::Matched(_) | Self::Incoming(_) | Self::Landing { .. } => false,
            Self::Streaming(_) | Self::Own | Self::Finished(_) => false,
        }
    }

    /// The peer without which it cannot complete.
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

/// A message that no receive has matched yet.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: Peer,
    pub(super) envelope: Envelope,
    pub(super) content: Content,
}

/// The content of a message, as far as it is here.
#[derive(Debug)]
pub(super) enum Content {
    /// All bytes.
    Bytes(Vec<u8>),
    /// All bytes; the sender waits for a confirmation.
    Sync { bytes: Vec<u8>, send: u32 },
    /// Only the announcement.
    Ready(Box<Announcement>),
    /// The bytes are in this process's own memory, of a request in state `Own`.
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
    /// The sender's number of the request.
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
    /// The peers behind the ranks that messages come from.
    pub(super) members: Arc<[Peer]>,
    pub(super) seen: Seen,
    /// A member from which nothing more will arrive, as far as it affects receives: those from any source fail.
    pub(super) lost: Option<Peer>,
    /// Whether receives from a member that has finalized fail by themselves. The user's receives do not: they may be
    /// cancelled, and only a blocking wait for one can never end.
    pub(super) strict: bool,
}

/// Work that needs the transport, done after it has been polled.
#[derive(Debug)]
pub(super) enum Errand {
    /// Fetch the message of a request in state `Matched`.
    Fetch(Id),
    /// The peer no longer needs the region.
    Withdraw(Peer, Region),
    /// Cut off a peer that sent an invalid frame.
    Cut(Peer),
}
