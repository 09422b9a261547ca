//! Receives whose message has arrived, but has not been taken from the transport yet: it goes straight to the user's memory, without a request.
//! So a receive whose message is already there costs a third less.

use super::calls::{Outcome, Source, TagMatch};
use super::core::{Core, fill};
use super::frame::{Envelope, Frame};
use super::operations::Engine;
use super::transport::{Peer, Transport};
use crate::memory::{Arrived, Buffer};

/// After this many messages in a row without a poll, a receive is posted: then its wait polls.
const IN_A_ROW: u32 = 16;

/// A receive that could be posted.
struct Wanted {
    context: u32,
    source: Source,
    tag: TagMatch,
}

impl Wanted {
    /// Whether a message from this peer is for this receive, provided that no other receive of its context is posted.
    #[inline(always)]
    fn suits(&self, core: &Core, from: Peer, envelope: Envelope) -> bool {
        let Some(context) = core.contexts.get(self.context) else { return false };
        envelope.context == self.context
            && match self.source {
                Source::Rank(rank) => envelope.rank == rank,
                Source::Any => true,
            }
            && match self.tag {
                TagMatch::Value(tag) => envelope.tag == tag,
                TagMatch::Any => true,
            }
            && context.members.get(envelope.rank as usize) == Some(&from)
            && !core.peers.is_lost(from)
    }
}

impl<T: Transport> Engine<T> {
    /// Receives a message if it is the next one that the transport has, and no receive of its context is posted. The caller has found no message
    /// that is stored, and nothing that speaks against the receive.
    ///
    /// It looks once: to look again and again for a message that is about to arrive would take the line away from its sender.
    #[inline]
    pub(super) fn catch(&mut self, context: u32, source: Source, tag: TagMatch, buffer: &Buffer) -> Option<Outcome> {
        let wanted = Wanted { context, source, tag };
        if self.has_backlog() || self.lends() {
            return None; // a poll is due
        }
        let Self { core, transport } = self;
        let context = core.contexts.get(wanted.context)?;
        if context.seen.has_posted() || core.caught >= IN_A_ROW {
            return None;
        }
        let from = match wanted.source {
            Source::Rank(rank) => Some(*context.members.get(rank as usize)?),
            Source::Any => None,
        };
        let mut outcome = None;
        transport.catch(from, |from, frame, payload: Arrived<'_>| match *frame {
            Frame::Eager { envelope } if wanted.suits(core, from, envelope) => {
                outcome = Some(fill(buffer, envelope, payload));
                core.traffic.receive(payload.len() as u64);
                core.caught += 1;
                true
            }
            _other => false,
        });
        outcome
    }
}
