//! Handles incoming frames: matches messages, checks numbers, advances requests. Work that needs the transport is left
//! as an errand or in a peer's backlog.

use super::calls::Outcome;
use super::core::{Core, fill, sent_whole, settled, take_buffer};
use super::frame::{Envelope, Frame};
use super::slab::Id;
use super::state::{
    Announcement, Content, Context, Early, Errand, Incoming, Matched, Message, Request, RequestState, Streaming,
};
use super::transport::{Landing, Peer, PullRefused, Sink};
use crate::error::MpiError;
use crate::memory::{Arrived, Buffer};

/// The destination of a message that has arrived.
pub(super) enum Match {
    /// This receive gets it; it is still in state `Posted`, but in no list.
    Posted(Id),
    /// It waits for a receive.
    Unexpected,
    /// It waits for its context to be opened.
    Early,
    /// Its context is closed to it.
    Refused,
}

/// The payload of a frame.
pub(super) enum Whole<'a> {
    /// It is invalid after the call.
    Lent(Arrived<'a>),
    /// The transport has collected it.
    Own(Vec<u8>),
}

impl Whole<'_> {
    #[inline]
    fn arrived(&self) -> Arrived<'_> {
        match self {
            Self::Lent(bytes) => *bytes,
            Self::Own(bytes) => Arrived::new(bytes),
        }
    }
}

/// The sender is not the member of the communicator that it claims to be.
pub(super) struct NotAMember;

impl Sink for Core {
    #[inline]
    fn on_frame(&mut self, from: Peer, frame: Frame, payload: Arrived<'_>) {
        if self.peers.is_lost(from) {
            return;
        }
        match frame {
            Frame::Eager { envelope } => {
                self.on_eager(from, envelope, None, Whole::Lent(payload), false);
            }
            Frame::EagerSync { envelope, send } => {
                self.on_eager(from, envelope, Some(send), Whole::Lent(payload), false);
            }
            Frame::Ready { envelope, send, len, region } => {
                self.on_ready(Announcement { from, envelope, send, len, region });
            }
            Frame::Clear { send, receive, len } => self.on_clear(from, send, receive, len),
            Frame::Part { receive } => self.on_part(from, receive, payload),
            Frame::Done { send } => self.on_done(from, send, None),
            Frame::Dropped { send, is_revoked } => self.on_done(from, send, Some(is_revoked)),
            Frame::Note { context, number } => self.on_note(from, context, number, payload),
            Frame::Hold { is_on } => self.on_hold(from, is_on),
            Frame::Signed { envelope, .. } if self.contexts.get(envelope.context).is_none() => {
                self.keep_signed_early(from, frame, envelope.context, payload);
            }
            Frame::Signed { envelope, .. } => self.on_signed(from, frame, envelope, payload),
            Frame::Bye => self.on_bye(from),
        }
    }

    #[inline]
    fn on_frame_unless_early(&mut self, from: Peer, frame: &Frame, payload: Arrived<'_>) -> bool {
        let may_leave = self.finished != self.finished_before;
        match *frame {
            Frame::Eager { envelope } if !self.peers.is_lost(from) => {
                self.on_eager(from, envelope, None, Whole::Lent(payload), may_leave)
            }
            Frame::EagerSync { envelope, send } if !self.peers.is_lost(from) => {
                self.on_eager(from, envelope, Some(send), Whole::Lent(payload), may_leave)
            }
            _no_message_to_match => {
                self.on_frame(from, *frame, payload);
                true
            }
        }
    }

    fn room(&mut self, len: usize) -> Vec<u8> {
        let mut room = self.spare.take(len);
        room.reserve_exact(len);
        room
    }

    fn on_collected(&mut self, from: Peer, frame: Frame, payload: Vec<u8>) {
        match frame {
            Frame::Eager { envelope } if !self.peers.is_lost(from) => {
                self.on_eager(from, envelope, None, Whole::Own(payload), false);
            }
            _not_kept => {
                self.on_frame(from, frame, Arrived::new(&payload));
                self.recycle(payload);
            }
        }
    }

    fn receives(&self) -> u64 {
        self.receives
    }

    fn expects(&self, _: Peer, frame: &Frame) -> bool {
        let (Frame::Eager { envelope } | Frame::EagerSync { envelope, .. }) = frame else { return false };
        let context = self.contexts.get(envelope.context);
        context.is_some_and(|context| self.posted.find(&context.seen, *envelope).is_some())
    }

    fn is_early(&self, from: Peer, frame: &Frame) -> bool {
        let (Frame::Eager { envelope } | Frame::EagerSync { envelope, .. }) = frame else { return false };
        let refuses = |context: &Context| context.refuses(envelope.tag);
        self.finished != self.finished_before
            && self.contexts.get(envelope.context).is_some_and(|context| !refuses(context))
            && !self.expects(from, frame)
    }

    fn landing(&mut self, from: Peer, frame: &Frame, len: usize) -> Option<Landing> {
        if len == 0 || self.peers.is_lost(from) {
            return None;
        }
        match *frame {
            Frame::Eager { envelope } | Frame::EagerSync { envelope, .. } => self.land_eager(from, envelope, len),
            Frame::Part { receive } => {
                let id = self.requests.find(receive)?;
                match &self.requests.get(id)?.state {
                    RequestState::Incoming(it) if it.message.from == from && len <= it.end - it.at => {
                        it.buffer.landing(it.at, len).map(|(buffer, at)| Landing { buffer, at })
                    }
                    _other => None,
                }
            }
            Frame::Ready { .. } | Frame::Clear { .. } | Frame::Done { .. } | Frame::Bye => None,
            Frame::Dropped { .. } | Frame::Note { .. } | Frame::Hold { .. } | Frame::Signed { .. } => None,
        }
    }

    fn on_landed(&mut self, from: Peer, frame: Frame, len: usize) {
        if self.peers.is_lost(from) {
            return;
        }
        match frame {
            Frame::Eager { .. } => self.on_landed_eager(from, None),
            Frame::EagerSync { send, .. } => self.on_landed_eager(from, Some(send)),
            Frame::Part { receive } => self.on_part_here(from, receive, len, None),
            Frame::Ready { .. } | Frame::Clear { .. } | Frame::Done { .. } | Frame::Bye => {}
            Frame::Dropped { .. } | Frame::Note { .. } | Frame::Hold { .. } | Frame::Signed { .. } => {}
        }
    }

    fn on_pulled(&mut self, from: Peer, token: u32, result: Result<(), PullRefused>) {
        let Some(id) = self.requests.find(token) else { return };
        match self.requests.get(id).map(|request| &request.state) {
            Some(RequestState::Matched(matched)) if matched.message.from == from => self.on_fetched(id, result),
            _other => {}
        }
    }

    fn on_lost(&mut self, peer: Peer, reason: &str) {
        self.lose(peer, reason);
    }
}

impl Core {
    /// Handles a message that came whole. Returns false if it `may_leave` the message and does so, because no receive waits for it.
    #[inline]
    pub(super) fn on_eager(
        &mut self,
        from: Peer,
        envelope: Envelope,
        sync: Option<u32>,
        payload: Whole<'_>,
        may_leave: bool,
    ) -> bool {
        match self.match_posted(from, envelope) {
            Ok(Match::Posted(id)) => {
                self.receive_posted(id, envelope, payload.arrived());
                if let Whole::Own(bytes) = payload {
                    self.recycle(bytes);
                }
                if let Some(send) = sync {
                    self.say(from, Frame::Done { send });
                }
            }
            Ok(Match::Unexpected) if may_leave => return false,
            Ok(Match::Unexpected) => {
                let bytes = match payload {
                    Whole::Lent(bytes) => self.keep_bytes(bytes),
                    Whole::Own(bytes) => bytes,
                };
                let content = match sync {
                    None => Content::Bytes(bytes),
                    Some(send) => Content::Sync { bytes, send },
                };
                self.keep(Message { from, envelope, content });
            }
            Ok(Match::Early) => {
                let frame = match sync {
                    None => Frame::Eager { envelope },
                    Some(send) => Frame::EagerSync { envelope, send },
                };
                self.keep_early(envelope.context, Early { from, frame, payload: payload.arrived().to_vec() });
            }
            Ok(Match::Refused) => sync.into_iter().for_each(|send| self.refuse(from, envelope.context, send)),
            Err(NotAMember) => self.lose_intruder(from, envelope),
        }
        true
    }

    /// Handles the announcement of a long message.
    pub(super) fn on_ready(&mut self, message: Announcement) {
        let Announcement { from, envelope, send, len, region } = message;
        match self.match_posted(from, envelope) {
            Ok(Match::Posted(id)) => {
                let buffer = self.posted_buffer(id).map_or(Buffer::EMPTY, take_buffer);
                self.set(id, RequestState::Matched(Box::new(Matched { message, buffer })));
                self.fetches.push_back(id);
            }
            Ok(Match::Unexpected) => self.keep(Message { from, envelope, content: Content::Ready(Box::new(message)) }),
            Ok(Match::Early) => {
                let frame = Frame::Ready { envelope, send, len, region };
                self.keep_early(envelope.context, Early { from, frame, payload: Vec::new() });
            }
            Ok(Match::Refused) => self.refuse(from, envelope.context, send),
            Err(NotAMember) => self.lose_intruder(from, envelope),
        }
    }

    /// Removes the receive that gets this message from the posted ones.
    #[inline]
    pub(super) fn match_posted(&mut self, from: Peer, envelope: Envelope) -> Result<Match, NotAMember> {
        let Some(context) = self.contexts.get_mut(envelope.context) else { return Ok(Match::Early) };
        if context.members.get(envelope.rank as usize) != Some(&from) {
            return Err(NotAMember);
        }
        let Some(slot) = self.posted.take(&mut context.seen, envelope) else {
            return Ok(if context.refuses(envelope.tag) { Match::Refused } else { Match::Unexpected });
        };
        match self.requests.at(slot) {
            Some((id, _)) => Ok(Match::Posted(id)),
            None => unreachable!("only receives in state posted are in the lists of posted ones"),
        }
    }

    /// Completes a receive in state `Posted` with a message whose bytes are here.
    #[inline]
    fn receive_posted(&mut self, id: Id, envelope: Envelope, payload: Arrived<'_>) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let RequestState::Posted { buffer, .. } = &request.state else { return };
        let len = payload.len();
        if len <= buffer.len() && buffer.is_on_host() {
            // The usual outcome is written word by word: copying one that was put together elsewhere reads more at once than was written just
            // before, and that stalls the processor.
            payload.copy_to(buffer, 0, len);
            let (source, tag, bytes) = (envelope.rank, envelope.tag, len as u64);
            request.state = RequestState::Finished(Outcome { source, tag, bytes, cancelled: false, error: None });
        } else {
            request.state = RequestState::Finished(fill(buffer, envelope, payload));
        }
        self.traffic.receive(len as u64);
        self.finished += 1;
        if request.forgotten {
            self.drop_forgotten(id);
        }
    }

    /// The memory of a receive in state `Posted`.
    #[inline]
    pub(super) fn posted_buffer(&mut self, id: Id) -> Option<&mut Buffer> {
        match &mut self.requests.get_mut(id)?.state {
            RequestState::Posted { buffer, .. } => Some(buffer),
            _other => None,
        }
    }

    /// Lets the transport write an eager message directly into the memory of its receive, if it fits.
    fn land_eager(&mut self, from: Peer, envelope: Envelope, len: usize) -> Option<Landing> {
        let context = self.contexts.get_mut(envelope.context)?;
        if context.members.get(envelope.rank as usize) != Some(&from) {
            return None;
        }
        let (entry, slot) = self.posted.find(&context.seen, envelope)?;
        let (id, request) = self.requests.at_mut(slot)?;
        let RequestState::Posted { buffer, .. } = &request.state else { return None };
        if len > buffer.len() || !buffer.is_on_host() {
            return None;
        }
        let landing = Landing { buffer: buffer.clone(), at: 0 };
        request.state = RequestState::Landing { from, envelope, len };
        self.posted.remove(&mut context.seen, entry);
        self.peers.relation(from).landing = Some(id);
        Some(landing)
    }

    fn on_landed_eager(&mut self, from: Peer, sync: Option<u32>) {
        let Some(id) = self.peers.relation(from).landing.take() else { return };
        let Some(Request { state: RequestState::Landing { envelope, len, .. }, .. }) = self.requests.get(id) else {
            return;
        };
        let outcome = Outcome::received(envelope.rank, envelope.tag, *len as u64, *len);
        self.traffic.receive(outcome.bytes);
        self.finish(id, outcome);
        if let Some(send) = sync {
            self.say(from, Frame::Done { send });
        }
    }

    /// The receiver requests a message in parts.
    fn on_clear(&mut self, from: Peer, send: u32, receive: u32, len: u64) {
        let Some(id) = self.requests.find(send) else {
            return self.reject(from, "it requested an unknown message");
        };
        let Some(request) = self.requests.get_mut(id) else { return };
        let RequestState::Announced(announced) = &mut request.state else {
            return self.reject(from, "it requested a message that was not announced");
        };
        if announced.to != from || len > announced.buffer.len() as u64 {
            return self.reject(from, "it requested more bytes than were announced");
        }
        let (buffer, region) = (take_buffer(&mut announced.buffer), announced.region.take());
        if let Some(region) = region {
            self.errands.push_back(Errand::Withdraw(from, region));
        }
        if len == 0 {
            return self.finish(id, Outcome::sent(buffer.len()));
        }
        let streaming = Streaming { to: from, receive, buffer: buffer.streamed(), at: 0, end: len as usize };
        self.set(id, RequestState::Streaming(Box::new(streaming)));
        self.peers.relation(from).streams.push_back(id);
        self.peers.mark_busy(from);
    }

    /// The receiver has received what it needs of a message, or has dropped it: then, whether its context is revoked there.
    fn on_done(&mut self, from: Peer, send: u32, dropped: Option<bool>) {
        let Some(id) = self.requests.find(send) else {
            return self.reject(from, "it acknowledged an unknown message");
        };
        let Some(request) = self.requests.get_mut(id) else { return };
        let RequestState::Announced(announced) = &mut request.state else {
            return self.reject(from, "it acknowledged a message that was not announced");
        };
        if announced.to != from {
            return self.reject(from, "it acknowledged a message to another process");
        }
        let (sent, context, region) = (sent_whole(&announced.buffer), announced.context, announced.region.take());
        if let Some(region) = region {
            self.errands.push_back(Errand::Withdraw(from, region));
        }
        let outcome = match dropped {
            None => sent,
            Some(true) => Outcome::failed(MpiError::was_revoked()),
            Some(false) => Outcome::failed(self.dropped(context)),
        };
        self.finish(id, outcome);
    }

    #[inline]
    fn on_part(&mut self, from: Peer, receive: u32, payload: Arrived<'_>) {
        self.on_part_here(from, receive, payload.len(), Some(payload));
    }

    /// Handles the next `len` bytes of a long message: `payload`, or already in place.
    #[inline]
    fn on_part_here(&mut self, from: Peer, receive: u32, len: usize, payload: Option<Arrived<'_>>) {
        let Some(id) = self.requests.find(receive) else {
            return self.reject(from, "it sent part of a message without a receive");
        };
        let Some(Request { state: RequestState::Incoming(incoming), .. }) = self.requests.get_mut(id) else {
            return self.reject(from, "it sent part of a message that was not requested");
        };
        let Incoming { message, buffer, at, end } = &mut **incoming;
        if message.from != from || len == 0 || len > *end - *at {
            return self.reject(from, "it sent more bytes of a message than were requested");
        }
        match payload {
            Some(payload) => payload.copy_to(buffer, *at, len),
            None => buffer.landed(*at, len),
        }
        *at += len;
        if *at == *end {
            let Envelope { rank, tag, .. } = message.envelope;
            let outcome = settled(buffer, Outcome::received(rank, tag, message.len, buffer.len()));
            self.traffic.receive(outcome.bytes);
            self.finish(id, outcome);
        }
    }
}
