//! Taking leave of peers: farewells both ways, and peers that come and go.

use super::calls::Source;
use super::flow;
use super::frame::Frame;
use super::operations::Engine;
use super::peers::Standing;
use super::state::{Errand, RequestState};
use super::transport::{Peer, Transport};
use crate::error::MpiError;

/// The state of the farewell to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// This process has not said farewell.
    Untold,
    /// The farewell waits for room.
    Telling,
    /// This process has said farewell, and the peer has not.
    Told,
    /// Both have said farewell, or the peer is lost.
    Over,
}

impl<T: Transport> Engine<T> {
    /// Says farewell to peers: no more frames will come from here. Call it once the engine is [`Engine::quiet`].
    pub fn say_bye(&mut self, peers: &[Peer]) {
        self.end_loans();
        let me = self.core.me;
        for &peer in peers.iter().filter(|peer| **peer != me) {
            if !std::mem::replace(&mut self.core.peers.relation(peer).told_bye, true) {
                self.core.say(peer, Frame::Bye);
            }
        }
        self.core.flush(&mut self.transport);
    }

    /// Removes the record of lost messages whose sends have succeeded; returns an error that names one of their receivers among those
    /// that `matters` accepts.
    pub fn take_undelivered(&mut self, matters: impl Fn(Peer) -> bool) -> Option<MpiError> {
        let peers = std::mem::take(&mut self.core.undelivered);
        let lost = peers.into_iter().find(|peer| matters(*peer))?;
        let reason = self.core.peers.failure(lost);
        Some(MpiError::proc_aborted(format!(
            "messages that were sent without an error have not been delivered: {reason}"
        )))
    }

    /// Declares peers as lost, for this reason. Messages lost to them are then not an error.
    pub fn declare_lost(&mut self, peer: Peer, reason: &str) {
        if peer != self.core.me {
            self.core.lose(peer, reason);
            self.core.errands.push_back(Errand::Cut(peer));
            self.core.undelivered.retain(|lost| *lost != peer);
            self.core.flush(&mut self.transport);
        }
    }

    /// The number of peers that got a farewell, have not answered with theirs, and are not lost.
    pub fn byes_missing(&self) -> usize {
        let farewelled = self.core.peers.iter().filter(|(_, relation)| relation.told_bye);
        farewelled.filter(|(_, relation)| relation.standing == Standing::Present).count()
    }

    /// The state of the farewell to a peer.
    pub fn farewell(&self, peer: Peer) -> Farewell {
        let Some(relation) = self.core.peers.get(peer) else { return Farewell::Untold };
        match relation.standing {
            Standing::Lost(_) => Farewell::Over,
            _ if !relation.told_bye => Farewell::Untold,
            _ if !relation.backlog.is_empty() || !relation.streams.is_empty() => Farewell::Telling,
            Standing::Present => Farewell::Told,
            Standing::Finalized => Farewell::Over,
        }
    }

    /// Declares that peers from this number on are foreign: they come and go.
    pub fn set_foreign(&mut self, from: Peer) {
        self.core.foreign = from;
    }

    /// Foreign peers that have gone, by a farewell or because they were lost.
    #[inline]
    pub fn disconnected(&mut self) -> &mut Vec<Peer> {
        &mut self.core.disconnected
    }

    /// Whether a peer is a member of an open communicator.
    pub fn is_member(&self, peer: Peer) -> bool {
        self.core.contexts.values().any(|context| !context.is_abandoned && context.members.contains(&peer))
    }

    /// Whether neither side has said farewell, and the peer is not lost.
    pub fn is_present(&self, peer: Peer) -> bool {
        let relation = self.core.peers.get(peer);
        relation.is_none_or(|relation| relation.standing == Standing::Present && !relation.told_bye)
    }

    /// Whether frames for a peer wait for room.
    pub fn is_busy(&self, peer: Peer) -> bool {
        self.core.peers.get(peer).is_some_and(|relation| !relation.backlog.is_empty() || !relation.streams.is_empty())
    }

    /// Peers that this process waits for, or that have yet to accept something: named sources, including that of the
    /// last unsuccessful probe since the previous call; for receives from any source, foreign peers or, if `all_members`,
    /// all members.
    pub fn awaited(&mut self, all_members: bool) -> Vec<Peer> {
        let mut awaited = Vec::new();
        let mut asked: Vec<(u32, Source)> = self.core.probed.take().into_iter().collect();
        for (_, request) in self.core.requests.iter() {
            match request.state {
                RequestState::Posted { entry, .. } => asked.push(self.core.posted.asks(entry)),
                ref state => awaited.extend(state.depends_on()),
            }
        }
        for (context, source) in asked {
            let members = self.core.contexts.get(context).map_or(&[][..], |context| &context.members);
            let comes_and_goes = |peer: &Peer| all_members || *peer >= self.core.foreign;
            match source {
                Source::Any => awaited.extend(members.iter().copied().filter(comes_and_goes)),
                Source::Rank(rank) => awaited.extend(members.get(rank as usize)),
            }
        }
        awaited.retain(|peer| *peer != self.core.me);
        awaited.sort_unstable();
        awaited.dedup();
        awaited
    }

    /// Forgets a peer: nothing more is exchanged with it, and its number may become that of another peer. Operations in
    /// progress with it fail.
    pub fn forget_peer(&mut self, peer: Peer) {
        self.core.lose(peer, "it was disconnected");
        self.core.flush(&mut self.transport);
        let frames = self.core.early.values_mut();
        let dropped: Vec<_> = frames.flat_map(|frames| frames.extract_if(.., |early| early.from == peer)).collect();
        dropped.iter().for_each(|early| self.core.count_removed(peer, flow::cost_of(early.payload.len())));
        self.core.early.retain(|_, frames| !frames.is_empty());
        self.core.peers.forget(peer);
        self.core.disconnected.retain(|parted| *parted != peer);
    }
}
