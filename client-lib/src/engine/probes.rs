//! Looking for a message without receiving it.

use super::calls::{MessageId, Probed, Source, TagMatch};
use super::core::{Core, not_open};
use super::frame::Envelope;
use super::operations::Engine;
use super::slab::Id;
use super::state::Trouble;
use super::transport::Transport;
use crate::error::{MpiError, MpiResult};

impl<T: Transport> Engine<T> {
    /// Returns the message that [`Engine::recv`] would receive now, without taking it.
    pub fn probe(&mut self, context: u32, source: Source, tag: TagMatch) -> MpiResult<Option<Probed>> {
        Ok(self.find_probed(context, source, tag)?.map(|(_, probed)| probed))
    }

    /// As [`Engine::probe`]; from now on only [`Engine::mrecv`] receives the message.
    pub fn mprobe(&mut self, context: u32, source: Source, tag: TagMatch) -> MpiResult<Option<(MessageId, Probed)>> {
        let found = self.find_probed(context, source, tag)?;
        if let Some((message, _)) = found
            && let Some(open) = self.core.contexts.get_mut(context)
        {
            self.core.unexpected.remove(&mut open.seen, message.0.slot);
        }
        Ok(found)
    }

    /// The next message with a tag, from any member; from now on only [`Engine::mrecv`] receives it. Unlike a probe of the user's, this
    /// does not count as waiting for one.
    pub fn next_message(&mut self, context: u32, tag: TagMatch) -> MpiResult<Option<(MessageId, Probed)>> {
        let Some(id) = self.core.find_message(context, Source::Any, tag)? else {
            return self.core.may_come(context, Source::Any, tag).map(|()| None);
        };
        let Some(message) = self.core.messages.get(id) else { return Ok(None) };
        let Envelope { rank, tag, .. } = message.envelope;
        let probed = Probed { source: rank, tag, bytes: message.content.len() };
        if let Some(open) = self.core.contexts.get_mut(context) {
            self.core.unexpected.remove(&mut open.seen, id.slot);
        }
        Ok(Some((MessageId(id), probed)))
    }

    /// Why no more messages of this source will arrive, if it is a peer that has finalized.
    pub fn dried_up(&self, context: u32, source: Source) -> Option<MpiError> {
        let peer = self.core.contexts.get(context)?.finalized(source, &self.core.peers, self.core.silent())?;
        Some(self.core.peers.failure(peer))
    }

    fn find_probed(&mut self, context: u32, source: Source, tag: TagMatch) -> MpiResult<Option<(MessageId, Probed)>> {
        let Some(id) = self.core.find_message(context, source, tag)? else {
            self.core.probed = Some((context, source));
            return self.core.may_come(context, source, tag).map(|()| None);
        };
        Ok(self.core.messages.get(id).map(|message| {
            let Envelope { rank, tag, .. } = message.envelope;
            (MessageId(id), Probed { source: rank, tag, bytes: message.content.len() })
        }))
    }
}

impl Core {
    /// The message that a receive would get now.
    #[inline]
    fn find_message(&mut self, context: u32, source: Source, tag: TagMatch) -> MpiResult<Option<Id>> {
        let Some(open) = self.contexts.get_mut(context) else { return Err(not_open(context)) };
        if self.unexpected.is_empty() {
            return Ok(None);
        }
        let messages = &self.messages;
        let envelope_of = |slot| messages.at(slot).map(|(_, message)| message.envelope);
        let found = self.unexpected.find(&mut open.seen, context, source, tag, envelope_of);
        Ok(found.and_then(|slot| self.messages.at(slot)).map(|(id, _)| id))
    }

    /// Whether a message of this source may still arrive; otherwise the error.
    #[inline]
    fn may_come(&self, context: u32, source: Source, tag: TagMatch) -> MpiResult {
        let Some(open) = self.contexts.get(context) else { return Err(not_open(context)) };
        if !open.is_hurt {
            return Ok(());
        }
        let trouble = open.trouble(source, tag, &self.peers);
        // A receive from any source may wait until a loss is acknowledged; a probe fails.
        let trouble = trouble.or_else(|| open.lost.filter(|_| source == Source::Any).map(Trouble::Gone));
        trouble.map_or(Ok(()), |trouble| Err(self.explain(trouble)))
    }
}
