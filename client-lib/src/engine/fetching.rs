//! Fetches long messages that have been announced: from the sender's memory, or in parts.
//!
//! A receive that finds such a message does not read it: perhaps the program sends something next, which the peer could fetch at the same
//! time. Each long send then fetches one, and each call that makes progress fetches all.

use super::calls::Outcome;
use super::core::{Core, settled, take_buffer};
use super::frame::Frame;
use super::operations::Engine;
use super::slab::Id;
use super::state::{Incoming, Request, RequestState};
use super::transport::{PullRefused, Pulled, Transport};

impl<T: Transport> Engine<T> {
    /// Declares whether a receive may leave an announced message to a later call. Not if another thread makes progress: it may be asleep.
    pub fn set_deferring(&mut self, defers: bool) {
        self.core.defers = defers;
    }

    /// Fetches the long messages for which receives wait, one after the other; in between, peers get what they wait for. Returns whether there
    /// was any that did not have to wait.
    #[cold]
    pub(super) fn fetch(&mut self) -> bool {
        let mut came = false;
        for _ in 0..self.core.fetches.len() {
            let is_begun = self.core.fetch_next(&mut self.transport);
            if is_begun {
                came |= self.transport.poll(&mut self.core) | self.core.flush(&mut self.transport);
            }
            came |= is_begun;
        }
        came
    }
}

impl Core {
    /// Requests a message that can only come in parts, and leaves one that this process can read for later.
    pub(super) fn fetch_or_defer(&mut self, id: Id) {
        match self.requests.get(id) {
            Some(Request { state: RequestState::Matched(it), .. })
                if it.message.region.is_none() && it.wanted() > 0 =>
            {
                self.on_fetched(id, Err(PullRefused));
            }
            _readable => self.fetches.push_back(id),
        }
    }

    /// Fetches the first of the long messages for which receives wait, unless it must wait; returns whether this has begun.
    pub(super) fn fetch_next<T: Transport>(&mut self, transport: &mut T) -> bool {
        let Some(id) = self.fetches.pop_front() else { return false };
        let is_begun = self.fetch(id, transport);
        if !is_begun {
            self.fetches.push_back(id);
        }
        self.flush(transport);
        is_begun
    }

    /// Fetches a long message: from the sender's memory if it can be read, otherwise in parts. Returns false if it must be tried again.
    fn fetch<T: Transport>(&mut self, id: Id, transport: &mut T) -> bool {
        let Some(Request { state: RequestState::Matched(matched), .. }) = self.requests.get(id) else { return true };
        let (from, end) = (matched.message.from, matched.wanted());
        let pulled = match matched.message.region {
            _ if end == 0 => Ok(Pulled::Now),
            None => Err(PullRefused),
            Some(region) => transport.pull(from, region, &matched.buffer, end, id.number()),
        };
        match pulled {
            Ok(Pulled::Now) => self.on_fetched(id, Ok(())),
            Ok(Pulled::Later) => {}
            Ok(Pulled::NotYet) => return false,
            Err(refused) => self.on_fetched(id, Err(refused)),
        }
        true
    }

    /// The message of a request in state `Matched` has been read, or must be requested in parts.
    pub(super) fn on_fetched(&mut self, id: Id, result: Result<(), PullRefused>) {
        let Some(Request { state: RequestState::Matched(matched), .. }) = self.requests.get_mut(id) else { return };
        let (message, end) = (matched.message, matched.wanted());
        match result {
            Ok(()) => {
                let room = matched.buffer.len();
                let outcome = Outcome::received(message.envelope.rank, message.envelope.tag, message.len, room);
                let outcome = settled(&matched.buffer, outcome);
                self.traffic.receive(outcome.bytes);
                self.finish(id, outcome);
                self.say(message.from, Frame::Done { send: message.send });
            }
            Err(PullRefused) => {
                let buffer = take_buffer(&mut matched.buffer).streamed();
                self.set(id, RequestState::Incoming(Box::new(Incoming { message, buffer, at: 0, end })));
                self.say(message.from, Frame::Clear { send: message.send, receive: id.number(), len: end as u64 });
            }
        }
    }
}
