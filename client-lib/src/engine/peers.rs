//! What stands between this process and each peer: frames that wait for room, long messages under way, whether it lives.

use std::collections::VecDeque;
use std::sync::Arc;

use super::frame::{Envelope, Frame};
use super::slab::Id;
use super::transport::Peer;
use crate::error::MpiError;

/// Peers of which there is something to remember; of most there is nothing.
#[derive(Debug, Default)]
pub(super) struct Peers {
    relations: Vec<Option<Box<Relation>>>,
    /// Those with something to send.
    pub(super) busy: Vec<Peer>,
}

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Relation {
    /// Frames that wait for room, in order.
    pub(super) backlog: VecDeque<Queued>,
    /// What the messages in the backlog that are copies count for.
    pub(super) copied: usize,
    /// Long messages being sent in parts, by turns.
    pub(super) streams: VecDeque<Id>,
    /// Whether a part comes next when there are frames, too.
    pub(super) part_next: bool,
    /// The receive to whose memory the transport is writing an eager message.
    pub(super) landing: Option<Id>,
    pub(super) standing: Standing,
    /// Whether it has been told that we finalize, and its own word is waited for.
    pub(super) told_bye: bool,
    /// Whether it is among the busy.
    busy: bool,
}

/// Whether there is a peer at the other end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    #[default]
    Present,
    /// It has said [`Frame::Bye`].
    Finalized,
    /// For this reason.
    Lost(Arc<str>),
}

/// A frame that waits for room.
#[derive(Debug)]
pub(super) enum Queued {
    /// One without payload.
    Head(Frame),
    /// An eager message whose bytes are ours: the send is over.
    Copied { envelope: Envelope, bytes: Vec<u8> },
    /// An eager message in the user's memory, of a request in state `Queued`.
    Lent(Id),
}

/// What a copied message counts for: its bytes, and what it costs to keep it.
#[inline]
pub(super) fn copied_cost(len: usize) -> usize {
    len + 64
}

impl Peers {
    /// Whether an eager message may go to the peer at once, as far as is known here.
    #[inline]
    pub(super) fn is_clear(&self, peer: Peer) -> bool {
        match self.get(peer) {
            None => true,
            Some(relation) => relation.backlog.is_empty() && !relation.is_lost(),
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

    /// Whether the peer has said that nothing more will come from it.
    #[inline]
    pub(super) fn has_finalized(&self, peer: Peer) -> bool {
        self.get(peer).is_some_and(|relation| relation.standing == Standing::Finalized)
    }

    /// Makes a relation if there is none.
    pub(super) fn relation(&mut self, peer: Peer) -> &mut Relation {
        let at = peer.0 as usize;
        if at >= self.relations.len() {
            self.relations.resize_with(at + 1, || None);
        }
        self.relations[at].get_or_insert_default()
    }

    /// Nothing is remembered of this peer; it has nothing to send.
    pub(super) fn forget(&mut self, peer: Peer) {
        self.busy.retain(|busy| *busy != peer);
        if let Some(relation) = self.relations.get_mut(peer.0 as usize) {
            *relation = None;
        }
    }

    /// There is something to send to this peer.
    pub(super) fn mark_busy(&mut self, peer: Peer) {
        let relation = self.relation(peer);
        if !relation.busy {
            relation.busy = true;
            self.busy.push(peer);
        }
    }

    /// Takes the `at`-th of the busy off the list if there is nothing to send to it any more; whether so.
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

    /// Peers with a relation.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Peer, &Relation)> {
        let known = self.relations.iter().enumerate();
        known.filter_map(|(at, relation)| relation.as_deref().map(|relation| (Peer(at as u32), relation)))
    }

    /// Why what depends on this peer fails.
    #[cold]
    pub(super) fn failure(&self, peer: Peer) -> MpiError {
        let number = peer.0;
        match self.get(peer).map(|relation| &relation.standing) {
            Some(Standing::Lost(reason)) => MpiError::proc_aborted(format!("process {number} is lost: {reason}")),
            Some(Standing::Finalized) => MpiError::proc_aborted(format!("process {number} has finalized")),
            Some(Standing::Present) | None => MpiError::proc_aborted(format!("process {number} cannot be reached")),
        }
    }
}

impl Relation {
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        match self.standing {
            Standing::Lost(_) => true,
            Standing::Present | Standing::Finalized => false,
        }
    }
}
