//! Handles incoming frames: matches messages, checks numbers, advances requests. Work that needs the transport is left
//! as an errand or in a peer's backlog.

use std::collections::{HashMap, VecDeque};

use super::calls::{Note, Outcome, Source};
use super::contexts::Contexts;
use super::flow::{self, Flow};
use super::frame::{Envelope, Frame};
use super::matching::{Posted, Unexpected};
use super::peers::{Peers, Queued, Standing};
use super::slab::{Id, Slab};
use super::spare::Spare;
use super::state::{
    Announcement, Content, Context, Early, Errand, Incoming, Kind, Matched, Message, Request, RequestState, Streaming,
};
use super::traffic::Traffic;
use super::transport::{Landing, Peer, PullRefused, Sink};
use crate::error::MpiError;
use crate::memory::{Arrived, Buffer};

/// The engine without its transport.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) me: Peer,
    pub(super) requests: Slab<Request>,
    pub(super) contexts: Contexts,
    pub(super) posted: Posted,
    pub(super) unexpected: Unexpected,
    pub(super) messages: Slab<Message>,
    /// Frames for contexts that are not open yet, because a peer may have made the communicator earlier.
    pub(super) early: HashMap<u32, Vec<Early>>,
    pub(super) peers: Peers,
    pub(super) errands: VecDeque<Errand>,
    pub(super) spare: Spare,
    /// The number of requests that have ended.
    pub(super) finished: u64,
    /// That number when the last poll began.
    pub(super) finished_before: u64,
    /// The number of receives that have been started.
    pub(super) receives: u64,
    /// The library's own memory, lent to requests whose outcome will not be asked for.
    pub(super) kept: Vec<(Id, Box<[u8]>)>,
    /// Peers from this number on are foreign: their end is noted in `parted`.
    pub(super) foreign: Peer,
    pub(super) disconnected: Vec<Peer>,
    /// Only one thread makes calls: while it waits, this process sends nothing to itself.
    pub(super) single: bool,
    /// Lost peers to which stored messages could not be delivered.
    pub(super) undelivered: Vec<Peer>,
    pub(super) traffic: Traffic,
    pub(super) flow: Flow,
    /// Whether the user's messages are signed.
    pub(super) checks: bool,
    /// The last probe that found nothing.
    pub(super) probed: Option<(u32, Source)>,
    /// Notes that have arrived.
    pub(super) notes: Vec<Note>,
    /// Whether a note has arrived, or a peer has departed, since the library last asked.
    pub(super) has_news: bool,
    /// Counts lost peers and revoked contexts.
    pub(super) alarms: u64,
}

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

impl Sink for Core {
    #[inline]
    fn on_frame(&mut self, from: Peer, frame: Frame, payload: Arrived<'_>) {
        if self.peers.is_lost(from) {
            return;
        }
        match frame {
            Frame::Eager { envelope } => {
                self.on_eager(from, envelope, None, payload, false);
            }
            Frame::EagerSync { envelope, send } => {
                self.on_eager(from, envelope, Some(send), payload, false);
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
    fn on_frame_unless_early(&mut self, from: Peer, frame: Frame, payload: Arrived<'_>) -> bool {
        let may_leave = self.finished != self.finished_before;
        match frame {
            Frame::Eager { envelope } if !self.peers.is_lost(from) => {
                self.on_eager(from, envelope, None, payload, may_leave)
            }
            Frame::EagerSync { envelope, send } if !self.peers.is_lost(from) => {
                self.on_eager(from, envelope, Some(send), payload, may_leave)
            }
            _no_message_to_match => {
                self.on_frame(from, frame, payload);
                true
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
    /// This process, if nothing can come from it while it waits.
    pub(super) fn silent(&self) -> Option<Peer> {
        self.single.then_some(self.me)
    }

    pub(super) fn new(me: Peer) -> Self {
        Self {
            me,
            requests: Slab::default(),
            contexts: Contexts::default(),
            posted: Posted::default(),
            unexpected: Unexpected::default(),
            messages: Slab::default(),
            early: HashMap::new(),
            peers: Peers::default(),
            errands: VecDeque::new(),
            spare: Spare::default(),
            finished: 0,
            finished_before: 0,
            receives: 0,
            kept: Vec::new(),
            foreign: Peer(u32::MAX),
            disconnected: Vec::new(),
            traffic: Traffic::default(),
            flow: Flow::default(),
            checks: false,
            single: false,
            probed: None,
            undelivered: Vec::new(),
            notes: Vec::new(),
            has_news: false,
            alarms: 0,
        }
    }

    /// Handles a whole message.
    #[inline]
    /// Handles a message that came whole. Returns false if it `may_leave` the message and does so, because no receive waits for it.
    pub(super) fn on_eager(
        &mut self,
        from: Peer,
        envelope: Envelope,
        sync: Option<u32>,
        payload: Arrived<'_>,
        may_leave: bool,
    ) -> bool {
        match self.match_posted(from, envelope) {
            Ok(Match::Posted(id)) => {
                self.receive_posted(id, envelope, payload);
                if let Some(send) = sync {
                    self.say(from, Frame::Done { send });
                }
            }
            Ok(Match::Unexpected) if may_leave => return false,
            Ok(Match::Unexpected) => {
                let bytes = self.keep_bytes(payload);
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
                self.keep_early(envelope.context, Early { from, frame, payload: payload.to_vec() });
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
                self.errands.push_back(Errand::Fetch(id));
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
        let outcome = fill(buffer, envelope, payload);
        self.traffic.receive(payload.len() as u64);
        self.finished += 1;
        request.state = RequestState::Finished(outcome);
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

    /// Keeps a message until a receive matches it.
    #[inline]
    pub(super) fn keep(&mut self, message: Message) {
        let (from, envelope, cost) = (message.from, message.envelope, flow::cost(&message.content));
        let Some(context) = self.contexts.get_mut(envelope.context) else { return };
        match self.messages.add(message) {
            Some(id) => {
                self.unexpected.add(&mut context.seen, envelope, id.slot);
                self.count_stored(from, cost);
            }
            None => self.reject(from, "more than 16777216 messages are unreceived"),
        }
    }

    #[cold]
    pub(super) fn keep_early(&mut self, context: u32, early: Early) {
        let (from, cost) = (early.from, flow::cost_of(early.payload.len()));
        self.early.entry(context).or_default().push(early);
        self.count_stored(from, cost);
    }

    /// Copies bytes into a reused buffer, if there is one.
    #[inline]
    pub(super) fn keep_bytes(&mut self, bytes: Arrived<'_>) -> Vec<u8> {
        let mut kept = self.spare.take(bytes.len());
        bytes.append_to(&mut kept);
        kept
    }

    /// Keeps the buffer for reuse.
    #[inline]
    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        self.spare.keep(bytes);
    }

    #[inline]
    pub(super) fn set(&mut self, id: Id, state: RequestState) {
        if let Some(request) = self.requests.get_mut(id) {
            request.state = state;
        }
    }

    #[inline]
    pub(super) fn finish(&mut self, id: Id, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(id) else { return };
        self.finished += 1;
        if request.forgotten {
            self.drop_forgotten(id);
        } else {
            request.state = RequestState::Finished(outcome);
        }
    }

    #[cold]
    fn drop_forgotten(&mut self, id: Id) {
        self.requests.remove(id);
        self.kept.retain(|(kept, _)| *kept != id);
    }

    /// Sends a frame without payload, in order.
    pub(super) fn say(&mut self, to: Peer, frame: Frame) {
        self.queue(to, Queued::Head(frame));
    }

    pub(super) fn queue(&mut self, to: Peer, queued: Queued) {
        let relation = self.peers.relation(to);
        if relation.is_lost() {
            return;
        }
        relation.backlog.push_back(queued);
        self.peers.mark_busy(to);
    }

    #[cold]
    fn lose_intruder(&mut self, from: Peer, envelope: Envelope) {
        self.reject(
            from,
            &format!(
                "it sent as rank {} of communicator {}, which is another process",
                envelope.rank, envelope.context
            ),
        );
    }

    /// Cuts off a peer that sent an invalid frame.
    #[cold]
    fn reject(&mut self, peer: Peer, reason: &str) {
        self.lose(peer, reason);
        self.errands.push_back(Errand::Cut(peer));
    }

    /// Ends everything that depends on a peer from which nothing more will arrive. Messages that have arrived stay.
    #[cold]
    pub(super) fn lose(&mut self, peer: Peer, reason: &str) {
        let relation = self.peers.relation(peer);
        let finalized = match relation.standing {
            Standing::Lost(_) => return,
            Standing::Finalized => true,
            Standing::Present => {
                relation.standing = Standing::Lost(reason.into());
                relation.review();
                self.peers.lost.push(peer);
                false
            }
        };
        let relation = self.peers.relation(peer);
        let has_stored = relation.backlog.iter().any(|queued| matches!(queued, Queued::Copied { .. }));
        if has_stored && !finalized {
            self.undelivered.push(peer);
        }
        relation.backlog.clear();
        relation.copied = 0;
        relation.streams.clear();
        relation.landing = None;
        self.note_parted(peer);
        let failed: Vec<Id> =
            self.requests.iter().filter(|(_, it)| it.state.depends_on() == Some(peer)).map(|it| it.0).collect();
        for id in failed {
            self.fail(id, peer);
        }
        if !finalized {
            self.lose_member(peer);
        }
    }

    /// Handles a peer's farewell: neither messages nor answers will arrive from it.
    #[cold]
    fn on_bye(&mut self, from: Peer) {
        self.peers.relation(from).standing = Standing::Finalized;
        self.peers.departures += 1;
        self.has_news = true;
        self.note_parted(from);
        let unanswered = self.requests.iter().filter(|(_, it)| it.state.awaits_answer_of(from));
        let failed: Vec<Id> = unanswered.map(|(id, _)| id).collect();
        for id in failed {
            self.fail(id, from);
        }
        self.lose_member(from);
    }

    /// Notes that a foreign peer has gone.
    fn note_parted(&mut self, peer: Peer) {
        if peer >= self.foreign {
            self.disconnected.push(peer);
        }
    }

    /// Takes in that a peer is lost or has finalized: fails the receives that wait for its messages, and closes the collective
    /// contexts of which a lost peer is a member.
    fn lose_member(&mut self, peer: Peer) {
        let is_lost = self.peers.is_lost(peer);
        if is_lost {
            self.peers.departures += 1;
            self.alarms += 1;
            self.has_news = true;
        }
        let mut hurt = Vec::new();
        for (number, context) in self.contexts.iter_mut() {
            if (is_lost || context.kind != Kind::User) && context.members.contains(&peer) {
                context.review(&self.peers);
                hurt.push(number);
            }
        }
        hurt.into_iter().for_each(|number| self.drop_refused(number));
        self.fail_troubled();
    }

    pub(super) fn fail(&mut self, id: Id, peer: Peer) {
        if let Some(Request { state: RequestState::Announced(announced), .. }) = self.requests.get(id)
            && let Some(region) = announced.region
        {
            self.errands.push_back(Errand::Withdraw(peer, region));
        }
        let error = self.peers.failure(peer);
        self.finish(id, Outcome::failed(error));
    }
}

impl Context {
    /// The named source, if it has finalized.
    /// For any source: one of the members, if all have, or are lost, and no thread of this process can send (`me`).
    pub(super) fn finalized(&self, source: Source, peers: &Peers, me: Option<Peer>) -> Option<Peer> {
        match source {
            Source::Rank(rank) => self.members.get(rank as usize).copied().filter(|peer| peers.has_finalized(*peer)),
            Source::Any => {
                let has_gone = |peer: &Peer| peers.has_finalized(*peer) || peers.is_lost(*peer);
                let is_over = |peer: &Peer| Some(*peer) == me || has_gone(peer);
                let other = self.members.iter().copied().find(|peer| Some(*peer) != me)?;
                self.members.iter().all(is_over).then_some(other)
            }
        }
    }
}

/// The sender is not the member of the communicator that it claims to be.
pub(super) struct NotAMember;

/// Takes the buffer from a state that is about to change.
#[inline]
pub(super) fn take_buffer(buffer: &mut Buffer) -> Buffer {
    std::mem::replace(buffer, Buffer::EMPTY)
}

/// Receives a message whose bytes are here.
#[inline]
pub(super) fn fill(buffer: &Buffer, envelope: Envelope, bytes: Arrived<'_>) -> Outcome {
    let room = buffer.len();
    bytes.copy_to(buffer, 0, bytes.len().min(room));
    settled(buffer, Outcome::received(envelope.rank, envelope.tag, bytes.len() as u64, room))
}

/// The outcome of a message whose bytes have all been read from the sender's memory.
#[inline]
pub(super) fn sent_whole(buffer: &Buffer) -> Outcome {
    settled(buffer, Outcome::sent(buffer.len()))
}

/// The outcome of a message whose bytes have all been read or written, if they have been.
#[inline]
pub(super) fn settled(buffer: &Buffer, outcome: Outcome) -> Outcome {
    if buffer.is_on_host() { outcome } else { settled_on_device(buffer, outcome) }
}

#[cold]
#[inline(never)]
fn settled_on_device(buffer: &Buffer, outcome: Outcome) -> Outcome {
    buffer.settle().map_or_else(Outcome::failed, |()| outcome)
}

/// The error for a communicator that is not open.
#[cold]
pub(super) fn not_open(context: u32) -> MpiError {
    MpiError::intern(format!("communicator {context} is not open"))
}
