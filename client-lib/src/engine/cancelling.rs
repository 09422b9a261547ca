//! Taking requests back (MPI 5.0 §3.8.4): receives without a message, sends of which nothing has left. A send that its receiver has
//! heard of cannot be taken back; it goes on from a copy, so that the caller need not wait for the receiver.

use super::calls::{Outcome, RequestId};
use super::core::Core;
use super::operations::Engine;
use super::peers::Queued;
use super::slab::Id;
use super::state::{Content, Message, Request, RequestState};
use super::transport::{Peer, Transport};

impl<T: Transport> Engine<T> {
    /// Cancels a request; returns whether it was cancelled, and thereby complete: a receive without a matching message can be, and a send
    /// of which nothing has left this process.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        self.end_loans();
        match self.core.requests.get(id.0).map(|request| &request.state) {
            Some(RequestState::Own) => return self.core.cancel_own(id.0),
            Some(RequestState::Queued(it)) => {
                let to = it.to;
                return self.core.cancel_queued(id.0, to);
            }
            _ => {}
        }
        let Some(Request { state: RequestState::Posted { entry, .. }, .. }) = self.core.requests.get(id.0) else {
            return false;
        };
        let entry = *entry;
        let Some(context) = self.core.contexts.get_mut(self.core.posted.asks(entry).0) else { return false };
        self.core.posted.remove(&mut context.seen, entry);
        self.core.finish(id.0, Outcome::cancelled());
        true
    }

    /// Makes a send that cannot be cancelled independent of its caller: it goes on from a copy of the message. Returns its outcome; the
    /// request is then no longer valid. `None` if it is no such send, or there is no memory for a copy.
    pub fn detach(&mut self, id: RequestId) -> Option<Outcome> {
        self.end_loans();
        let Self { core, transport } = self;
        let request = core.requests.get_mut(id.0)?;
        let (to, buffer, region) = match &mut request.state {
            RequestState::Announced(it) => (it.to, &mut it.buffer, it.region.take()),
            RequestState::Streaming(it) => (it.to, &mut it.buffer, None),
            RequestState::Posted { .. } | RequestState::Matched(_) | RequestState::Incoming(_) => return None,
            RequestState::Landing { .. } | RequestState::Finished(_) => return None,
            RequestState::Queued(_) | RequestState::OnLoan(_) | RequestState::Own => return None,
        };
        let Ok((copy, lent)) = buffer.copied() else {
            if let RequestState::Announced(it) = &mut request.state {
                it.region = region;
            }
            return None;
        };
        *buffer = lent;
        if let Some(region) = region {
            transport.retract(to, region);
        }
        let outcome = Outcome::sent(copy.len());
        self.forget_with(id, copy);
        Some(outcome)
    }
}

impl Core {
    /// Cancels a send to this process itself.
    fn cancel_own(&mut self, send: Id) -> bool {
        let is_it = |message: &Message| matches!(&message.content, Content::Own(own) if own.0 == send);
        let Some((id, context)) =
            self.messages.iter().find(|(_, it)| is_it(it)).map(|(id, it)| (id, it.envelope.context))
        else {
            return false;
        };
        let Some(context) = self.contexts.get_mut(context) else { return false };
        if !self.unexpected.contains(&context.seen, id.slot) {
            // A matched probe has taken it.
            return false;
        }
        self.unexpected.remove(&mut context.seen, id.slot);
        self.messages.discard(id);
        self.finish(send, Outcome::cancelled());
        true
    }

    /// Cancels a send that waits for room.
    fn cancel_queued(&mut self, send: Id, to: Peer) -> bool {
        let backlog = &mut self.peers.relation(to).backlog;
        let Some(at) = backlog.iter().position(|queued| matches!(queued, Queued::Lent(id) if *id == send)) else {
            return false;
        };
        backlog.remove(at);
        self.finish(send, Outcome::cancelled());
        true
    }
}
