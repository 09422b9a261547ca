//! The state between this process and each peer: frames that wait for room, long messages in progress, whether the peer
//! lives.

use std::collections::VecDeque;
use std::sync::Arc;

use super::frame::Frame;
use super::slab::Id;
use super::transport::Peer;
use crate::error::MpiError;

/// The peers with any state; most have none.
#[derive(Debug, Default)]
pub(super) struct Peers {
    relations: Vec<Option<Box<Relation>>>,
    /// Peers with something to send.
    pub(super) busy: Vec<Peer>,
    /// The lost peers, in the order in which this process has learned of their losses.
    pub(super) lost: Vec<Peer>,
    /// How many peers were lost or have finalized.
    pub(super) departures: u64,
}

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Relation {
    /// Frames that wait for room, in order.
    pub(super) backlog: VecDeque<Queued>,
    /// The cost of the copied messages in the backlog.
    pub(super) copied: usize,
    /// Long messages that are sent in parts, in turn.
    pub(super) streams: VecDeque<Id>,
    /// Whether a part is next although there are frames.
    pub(super) part_next: bool,
    /// The receive into whose memory the transport is writing an eager message.
    pub(super) landing: Option<Id>,
    pub(super) standing: Standing,
    /// The cost of its messages that are stored here.
    pub(super) stored: usize,
    /// Whether it has been told to announce its messages.
    pub(super) is_held: bool,
    /// Whether it has told this process to announce messages.
    pub(super) must_announce: bool,
    /// Whether messages to it are signed.
    pub(super) is_checked: bool,
    /// Whether messages to it take more than the usual steps: see [`Relation::review`].
    is_barred: bool,
    /// Whether this process has said farewell to the peer, and the peer's is awaited.
    pub(super) told_bye: bool,
    /// Whether it is among the busy peers.
    busy: bool,
}

/// Whether the peer can be reached.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    #[default]
    Present,
    /// It has said [`Frame::Bye`].
    Finalized,
    /// It is lost for this reason.
    Lost(Arc<str>),
}

/// A frame that waits for room.
#[derive(Debug)]
pub(super) enum Queued {
    /// A frame without payload.
    Head(Frame),
    /// An eager message whose bytes were copied: the send is complete.
    Copied { frame: Frame, bytes: Vec<u8> },
    /// An eager message in the user's memory, of a request in state `Queued`.
    Lent(Id),
    /// A frame with a payload that is no message.
    Note { frame: Frame, bytes: Vec<u8> },
}

/// The cost of a copied message: its bytes, and the overhead of keeping it.
#[inline]
pub(super) fn copied_cost(len: usize) -> usize {
    len + 64
}

impl Peers {
    /// Whether an eager message may go to the peer at once, as far as the engine knows.
    #[inline]
    pub(super) fn is_clear(&self, peer: Peer) -> bool {
        match self.get(peer) {
            None => true,
            Some(relation) => relation.backlog.is_empty() && !relation.is_barred,
        }
    }

    #[inline]
    pub(super) fn get(&self, peer: Peer) -> Option<&Relation> {
        self.relations.get(peer.0 as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn is_lost(&self, peer: Peer) -> bool {
        self.get(peer).is_some_and(Relation::is_lost)
    }

    /// Whether the peer has said farewell.
    #[inline]
    pub(super) fn has_finalized(&self, peer: Peer) -> bool {
        self.get(peer).is_some_and(|relation| relation.standing == Standing::Finalized)
    }

    /// The state of a peer, created if it has none.
    pub(super) fn relation(&mut self, peer: Peer) -> &mut Relation {
        let at = peer.0 as usize;
        if at >= self.relations.len() {
            self.relations.resize_with(at + 1, || None);
        }
        self.relations[at].get_or_insert_default()
    }

    /// Drops the state of this peer, which has nothing to send.
    pub(super) fn forget(&mut self, peer: Peer) {
        self.busy.retain(|busy| *busy != peer);
        self.lost.retain(|lost| *lost != peer);
        if let Some(relation) = self.relations.get_mut(peer.0 as usize) {
            *relation = None;
        }
    }

    /// Records that there is something to send to this peer.
    pub(super) fn mark_busy(&mut self, peer: Peer) {
        let relation = self.relation(peer);
        if !relation.busy {
            relation.busy = true;
            self.busy.push(peer);
        }
    }

    /// Removes the `at`-th busy peer if nothing is left to send to it; returns whether it was removed.
    pub(super) fn rest(&mut self, at: usize) -> bool {
        let peer = self.busy[at];
        let relation = self.relation(peer);
        if relation.backlog.is_empty() && relation.streams.is_empty() {
            relation.busy = false;
            self.busy.swap_remove(at);
            return true;
        }
        false
    }

    /// Peers with state.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Peer, &Relation)> {
        let known = self.relations.iter().enumerate();
        known.filter_map(|(at, relation)| relation.as_deref().map(|relation| (Peer(at as u32), relation)))
    }

    /// The error of an operation that depends on this peer.
    #[cold]
    pub(super) fn failure(&self, peer: Peer) -> MpiError {
        let number = peer.0;
        match self.get(peer).map(|relation| &relation.standing) {
            Some(Standing::Lost(reason)) => MpiError::proc_aborted(format!("process {number} is lost: {reason}")),
            Some(Standing::Finalized) => MpiError::proc_aborted(format!("process {number} has finalized")),
            Some(Standing::Present) | None => MpiError::proc_aborted(format!("process {number} is unreachable")),
        }
    }
}

impl Relation {
    /// Call it when the standing, or what the peer has asked for, has changed.
    pub(super) fn review(&mut self) {
        self.is_barred = self.is_lost() || self.must_announce || self.is_checked;
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        match self.standing {
            Standing::Lost(_) => true,
            Standing::Present | Standing::Finalized => false,
        }
    }
}
