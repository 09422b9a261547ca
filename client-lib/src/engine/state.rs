//! The engine's record of each send, receive and message.

use std::sync::Arc;

use super::calls::{Outcome, Source, TagMatch};
use super::frame::{Envelope, Frame, Region};
use super::matching::Seen;
use super::peers::Peers;
use super::slab::Id;
use super::transport::{Loan, Peer};
use crate::datatype::Sign;
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
///          OnLoan ─→ Finished                              (eager, not copied)
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
    /// A send of an eager message that the receiver may read from the sender's memory. It ends at the next poll, or at the first one after the
    /// receiver has finished, if that is reading.
    OnLoan(Box<OnLoan>),
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
pub(super) struct OnLoan {
    pub(super) to: Peer,
    pub(super) loan: Loan,
    pub(super) buffer: Buffer,
}

#[derive(Debug)]
pub(super) struct Announced {
    pub(super) to: Peer,
    /// The context of the message.
    pub(super) context: u32,
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
            Self::Queued(_) | Self::OnLoan(_) | Self::Announced(_) | Self::Streaming(_) | Self::Own => true,
            Self::Posted { .. } | Self::Matched(_) | Self::Incoming(_) => false,
            Self::Landing { .. } | Self::Finished(_) => false,
        }
    }

    /// Whether it is a send that this peer must answer.
    pub(super) fn awaits_answer_of(&self, peer: Peer) -> bool {
        match self {
            Self::Announced(it) => it.to == peer,
            Self::Queued(it) => it.to == peer && !matches!(it.frame.without_sign().0, Frame::Eager { .. }),
            Self::Posted { .. } | Self::Matched(_) | Self::Incoming(_) | Self::Landing { .. } => false,
            Self::OnLoan(_) | Self::Streaming(_) | Self::Own | Self::Finished(_) => false,
        }
    }

    /// The memory of a receive in state `Posted`.
    pub(super) fn posted_buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Posted { buffer, .. } => Some(buffer),
            _other => None,
        }
    }

    /// The peer without which it cannot complete.
    pub(super) fn depends_on(&self) -> Option<Peer> {
        match self {
            Self::Matched(it) => Some(it.message.from),
            Self::Incoming(it) => Some(it.message.from),
            Self::Landing { from, .. } => Some(*from),
            Self::Queued(it) => Some(it.to),
            Self::OnLoan(it) => Some(it.to),
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
    /// A signed message, of which only the rest is here.
    Signed(Box<(Sign, Content)>),
    /// The bytes are in this process's own memory, of a request in state `Own`.
    Own(Box<(Id, Buffer)>),
}

impl Content {
    /// The sender's number of the request, if it waits for an answer.
    pub(super) fn send(&self) -> Option<u32> {
        match self {
            Self::Sync { send, .. } => Some(*send),
            Self::Ready(message) => Some(message.send),
            Self::Signed(signed) => signed.1.send(),
            Self::Bytes(_) | Self::Own(_) => None,
        }
    }

    /// The send of this process whose message it is.
    pub(super) fn own(&self) -> Option<Id> {
        match self {
            Self::Own(own) => Some(own.0),
            Self::Signed(signed) => signed.1.own(),
            Self::Bytes(_) | Self::Sync { .. } | Self::Ready(_) => None,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Sync { bytes, .. } => bytes.len() as u64,
            Self::Ready(message) => message.len,
            Self::Own(own) => own.1.len() as u64,
            Self::Signed(signed) => signed.1.len(),
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
    pub(super) kind: Kind,
    /// Whether anything below is set: the only field that messages look at.
    pub(super) is_hurt: bool,
    /// No message is sent or received any more (`MPIX_Comm_revoke`).
    pub(super) is_revoked: bool,
    /// The communicator is freed, and the context only open so that its late messages are refused.
    pub(super) is_abandoned: bool,
    /// A member from which nothing more will arrive, as far as it affects receives from any source.
    pub(super) lost: Option<Peer>,
    /// The first member that was lost.
    pub(super) dead: Option<Peer>,
    /// The lost members that the user has acknowledged: they do not affect receives from any source.
    pub(super) acknowledged: Vec<Peer>,
}

/// Whose messages a context has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The user's. A receive from a member that has finalized does not fail by itself: it may be cancelled, and only a blocking wait
    /// for it can never end. A receive from any source stays posted when a member is lost: others may still send.
    User,
    /// The library's. Receives name their source and are never cancelled: they fail when that has finalized.
    Own,
    /// As `Own`, those of partitioned requests.
    Partitioned,
    /// As `Own`, those of a communicator's collectives. When a member is lost, it is closed to their messages, whose tags are not
    /// negative: of an operation that one member gives up at its start, another one would wait for messages forever.
    Collective,
}

/// Why a receive fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The communicator is revoked.
    Revoked,
    /// This peer is lost, or has finalized.
    Gone(Peer),
}

impl Context {
    pub(super) fn new(members: Arc<[Peer]>, kind: Kind) -> Self {
        Self {
            members,
            seen: Seen::default(),
            kind,
            is_hurt: false,
            is_revoked: false,
            is_abandoned: false,
            lost: None,
            dead: None,
            acknowledged: Vec::new(),
        }
    }

    /// Takes in that members are lost or have finalized.
    #[cold]
    pub(super) fn review(&mut self, peers: &Peers) {
        let is_over = |peer: &&Peer| {
            (peers.is_lost(**peer) && !self.acknowledged.contains(peer))
                || (self.kind != Kind::User && peers.has_finalized(**peer))
        };
        self.lost = self.members.iter().find(is_over).copied();
        self.dead = self.dead.or_else(|| self.members.iter().copied().find(|peer| peers.is_lost(*peer)));
        self.is_hurt = self.is_revoked || self.lost.is_some() || self.dead.is_some();
    }

    /// Whether it is closed to messages with this tag.
    #[inline]
    pub(super) fn refuses(&self, tag: i32) -> bool {
        self.is_hurt && (self.is_revoked || (tag >= 0 && self.kind == Kind::Collective && self.dead.is_some()))
    }

    /// Why a receive fails, if it does.
    #[inline]
    pub(super) fn trouble(&self, source: Source, tag: TagMatch, peers: &Peers) -> Option<Trouble> {
        if self.is_hurt { self.find_trouble(source, tag, peers) } else { None }
    }

    #[cold]
    fn find_trouble(&self, source: Source, tag: TagMatch, peers: &Peers) -> Option<Trouble> {
        if self.is_revoked {
            return Some(Trouble::Revoked);
        }
        let is_collective = self.kind == Kind::Collective && matches!(tag, TagMatch::Value(0..));
        if let (true, Some(dead)) = (is_collective, self.dead) {
            return Some(Trouble::Gone(dead));
        }
        let gone = match (source, self.kind) {
            (Source::Any, Kind::User) => None,
            (Source::Any, Kind::Own | Kind::Partitioned | Kind::Collective) => self.lost,
            (Source::Rank(rank), kind) => self
                .members
                .get(rank as usize)
                .copied()
                .filter(|peer| peers.is_lost(*peer) || (kind != Kind::User && peers.has_finalized(*peer))),
        };
        gone.map(Trouble::Gone)
    }
}

/// Work that needs the transport, done after it has been polled.
#[derive(Debug)]
pub(super) enum Errand {
    /// The peer no longer needs the region.
    Withdraw(Peer, Region),
    /// Cut off a peer that sent an invalid frame.
    Cut(Peer),
}
