//! Flow control at work: counts what is stored, gives orders to peers and follows theirs. `flow` has the rule.

use super::core::Core;
use super::frame::{Envelope, Frame};
#[cfg(test)]
use super::operations::Engine;
use super::peers::Standing;
use super::state::Kind;
use super::transport::Peer;

impl Core {
    /// Counts a message that is being stored.
    #[inline]
    pub(super) fn count_stored(&mut self, from: Peer, cost: usize) {
        if cost == 0 || from == self.me {
            return;
        }
        self.flow.stored += cost;
        let share = self.flow.share();
        let relation = self.peers.relation(from);
        relation.stored += cost;
        if relation.stored > share && !relation.is_held {
            self.hold(from, true);
        }
    }

    /// Counts a stored message that has been received or dropped.
    #[inline]
    pub(super) fn count_removed(&mut self, from: Peer, cost: usize) {
        if cost == 0 || from == self.me {
            return;
        }
        self.flow.stored = self.flow.stored.saturating_sub(cost);
        let share = self.flow.share();
        let relation = self.peers.relation(from);
        relation.stored = relation.stored.saturating_sub(cost);
        if relation.is_held && relation.stored <= share / 4 {
            self.hold(from, false);
        }
    }

    /// Tells a peer whether to announce its messages.
    #[cold]
    fn hold(&mut self, peer: Peer, is_on: bool) {
        let relation = self.peers.relation(peer);
        relation.is_held = is_on;
        if relation.standing == Standing::Present && !relation.told_bye {
            self.say(peer, Frame::Hold { is_on });
        }
    }

    /// The peer orders to announce messages, or not to any more.
    #[cold]
    pub(super) fn on_hold(&mut self, from: Peer, is_on: bool) {
        let relation = self.peers.relation(from);
        relation.must_announce = is_on;
        relation.review();
    }

    /// Whether a message that is short enough to be sent whole must be announced nevertheless. The library's own exchanges never are:
    /// they are few, and may not depend on their receiver.
    pub(super) fn must_announce(&self, to: Peer, envelope: Envelope) -> bool {
        self.peers.get(to).is_some_and(|relation| relation.must_announce)
            && self.contexts.get(envelope.context).is_some_and(|open| match open.kind {
                Kind::User | Kind::Collective => true,
                Kind::Own => false,
                Kind::Partitioned => envelope.tag > 0,
            })
    }
}

#[cfg(test)]
impl<T> Engine<T> {
    /// Sets other limits.
    pub(crate) fn limit_stored(&mut self, most: usize, floor: usize) {
        (self.core.flow.most, self.core.flow.floor) = (most, floor);
    }

    /// How many bytes are stored.
    pub(crate) fn stored(&self) -> usize {
        self.core.flow.stored
    }
}
