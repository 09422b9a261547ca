//! What communicators need to survive the loss of members: notes beside the messages, contexts that are revoked or closed, and
//! acknowledged losses.

use super::calls::{Note, Outcome, RequestId, Source};
use super::core::Core;
use super::flow;
use super::frame::Frame;
use super::operations::Engine;
use super::peers::Queued;
use super::state::{Content, Kind, RequestState, Trouble};
use super::transport::{Peer, Transport};
use crate::error::MpiError;
use crate::memory::Arrived;

impl<T: Transport> Engine<T> {
    /// Sends a note about a communicator to a peer: in order with all other frames. It may not be longer than an eager message.
    pub fn note(&mut self, to: Peer, context: u32, number: u32, bytes: Vec<u8>) {
        self.core.queue(to, Queued::Note { frame: Frame::Note { context, number }, bytes });
        self.core.flush(&mut self.transport);
    }

    /// Whether a note has arrived, or a peer was lost or has finalized, since the last [`Engine::take_notes`].
    #[inline]
    pub fn has_news(&self) -> bool {
        self.core.has_news
    }

    /// The notes that have arrived, in the order of arrival.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.core.has_news = false;
        std::mem::take(&mut self.core.notes)
    }

    /// How many peers were lost or have finalized.
    pub fn departures(&self) -> u64 {
        self.core.peers.departures
    }

    /// Changes when a peer is lost or a context is revoked.
    #[inline]
    pub fn alarms(&self) -> u64 {
        self.core.alarms
    }

    /// Changes when a peer is lost or has finalized.
    pub fn partings(&self) -> u64 {
        self.core.partings
    }

    /// Whether a peer is lost or has finalized.
    pub fn has_gone(&self, peer: Peer) -> bool {
        self.core.peers.is_lost(peer) || self.core.peers.has_finalized(peer)
    }

    /// The lost peers, in the order in which this process has learned of it.
    pub fn losses(&self) -> &[Peer] {
        &self.core.peers.lost
    }

    /// Closes a context to all messages: receives fail and what arrives is dropped, now and later. Messages whose receive has begun
    /// are not affected.
    pub fn revoke(&mut self, context: u32) {
        let core = &mut self.core;
        let Some(open) = core.contexts.get_mut(context) else { return };
        open.is_revoked = true;
        open.review(&core.peers);
        core.alarms += 1;
        core.drop_refused(context);
        core.fail_troubled();
        core.flush(&mut self.transport);
    }

    /// Keeps a context open after its communicator is freed: late messages are refused, and their members are none as far as
    /// [`Engine::is_member`] is concerned.
    pub fn abandon(&mut self, context: u32) {
        if let Some(open) = self.core.contexts.get_mut(context) {
            open.is_abandoned = true;
        }
    }

    /// Whether a context is open and revoked.
    pub fn is_revoked(&self, context: u32) -> bool {
        self.core.contexts.get(context).is_some_and(|open| open.is_revoked)
    }

    /// Whether a context is open and a member of it is lost.
    pub fn has_dead(&self, context: u32) -> bool {
        self.core.contexts.get(context).is_some_and(|open| open.dead.is_some())
    }

    /// From now on, the losses of these members do not affect receives from any source in a context.
    pub fn acknowledge(&mut self, context: u32, lost: Vec<Peer>) {
        if let Some(open) = self.core.contexts.get_mut(context) {
            open.acknowledged = lost;
            open.review(&self.core.peers);
        }
    }

    /// Why a receive from any source may never complete, if a member is lost and the user has not acknowledged it.
    pub fn interruption(&self, id: RequestId) -> Option<MpiError> {
        let RequestState::Posted { entry, .. } = self.core.requests.get(id.0)?.state else { return None };
        let (context, source) = self.core.posted.asks(entry);
        let open = self.core.contexts.get(context).filter(|open| open.kind == Kind::User)?;
        open.lost.filter(|_| source == Source::Any).map(|peer| self.core.peers.failure(peer))
    }

    /// Fails a receive that is interrupted ([`Engine::interruption`]).
    pub fn interrupt(&mut self, id: RequestId) {
        let (Some(error), Some(RequestState::Posted { entry, .. })) =
            (self.interruption(id), self.core.requests.get(id.0).map(|request| &request.state))
        else {
            return;
        };
        let entry = *entry;
        if let Some(context) = self.core.contexts.get_mut(self.core.posted.asks(entry).0) {
            self.core.posted.remove(&mut context.seen, entry);
            self.core.finish(id.0, Outcome::failed(error));
        }
    }
}

impl Core {
    #[cold]
    pub(super) fn on_note(&mut self, from: Peer, context: u32, number: u32, bytes: Arrived<'_>) {
        self.notes.push(Note { from, context, number, bytes: bytes.to_vec() });
        self.has_news = true;
        // Threads that sleep check whether it was for them.
        self.finished += 1;
    }

    /// Drops the unexpected messages to which a context is closed.
    #[cold]
    pub(super) fn drop_refused(&mut self, context: u32) {
        let Some(open) = self.contexts.get_mut(context) else { return };
        let pending: Vec<u32> = self.unexpected.all(&open.seen).collect();
        let mut dropped = Vec::new();
        for slot in pending {
            let Some((id, message)) = self.messages.at(slot) else { continue };
            if open.refuses(message.envelope.tag) {
                self.unexpected.remove(&mut open.seen, slot);
                dropped.extend(self.messages.remove(id));
            }
        }
        for message in dropped {
            self.count_removed(message.from, flow::cost(&message.content));
            let content = match message.content {
                Content::Signed(signed) => signed.1,
                content => content,
            };
            match content {
                Content::Bytes(bytes) => self.recycle(bytes),
                Content::Sync { send, .. } => self.refuse(message.from, context, send),
                Content::Ready(announced) => self.refuse(announced.from, context, announced.send),
                Content::Own(own) => self.finish(own.0, Outcome::failed(self.dropped(context))),
                Content::Signed(_) => {}
            }
        }
    }

    /// Tells a sender that its message is dropped.
    #[cold]
    pub(super) fn refuse(&mut self, to: Peer, context: u32, send: u32) {
        let is_revoked = self.contexts.get(context).is_some_and(|open| open.is_revoked);
        self.say(to, Frame::Dropped { send, is_revoked });
    }

    /// Fails the posted receives that can no longer get a message.
    #[cold]
    pub(super) fn fail_troubled(&mut self) {
        let mut failed = Vec::new();
        for (id, request) in self.requests.iter() {
            let RequestState::Posted { entry, .. } = request.state else { continue };
            let (number, source) = self.posted.asks(entry);
            let Some(context) = self.contexts.get_mut(number) else { continue };
            if let Some(trouble) = context.trouble(source, self.posted.tag(entry), &self.peers) {
                self.posted.remove(&mut context.seen, entry);
                failed.push((id, trouble));
            }
        }
        for (id, trouble) in failed {
            let error = self.explain(trouble);
            self.finish(id, Outcome::failed(error));
        }
    }

    #[cold]
    pub(super) fn explain(&self, trouble: Trouble) -> MpiError {
        match trouble {
            Trouble::Revoked => MpiError::was_revoked(),
            Trouble::Gone(peer) => self.peers.failure(peer),
        }
    }

    /// The error of a send whose message was dropped, here or by the receiver.
    #[cold]
    pub(super) fn dropped(&self, context: u32) -> MpiError {
        match self.contexts.get(context) {
            Some(open) if open.kind == Kind::Collective && !open.is_revoked => match open.dead {
                Some(peer) => self.peers.failure(peer),
                None => MpiError::proc_aborted(
                    "the receiver has given up the operation: a member of the communicator has died",
                ),
            },
            Some(_) | None => MpiError::was_revoked(),
        }
    }
}
