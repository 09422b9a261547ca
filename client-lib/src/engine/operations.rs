//! The operations that the library calls.

use std::sync::Arc;

use super::arrivals::{Match, NotAMember};
use super::calls::{MessageId, Mode, Outcome, RequestId, Source, Started, TagMatch};
use super::core::{Core, fill, not_open, sent_whole, settled};
use super::flow;
use super::frame::{Envelope, Frame, Region};
use super::peers::{Queued, copied_cost};
use super::signed;
use super::slab::Id;
use super::state::{Announced, Content, Context, Kind, Matched, Message, Request, RequestState, Waiting};
use super::traffic::Traffic;
use super::transport::{Peer, Refusal, Sink, Transport};
use crate::error::MpiError;
use crate::memory::{Arrived, Buffer, Payload};

/// Matches messages and holds the requests of one process. No method waits for another process, except while that is reading lent memory.
/// [`Engine::progress`] continues what is pending.
#[derive(Debug)]
pub struct Engine<T> {
    pub(super) core: Core,
    pub(super) transport: T,
}

/// If there is no room, up to this many bytes for one peer are copied, so that their sends complete; later sends wait.
const COPIED_MAX: usize = 64 << 10;

/// A message to this process itself is copied if no receive waits for it and it is not longer than this.
const OWN_MAX: usize = 4 << 10;

impl<T: Transport> Engine<T> {
    /// An engine for the process `me`.
    pub fn new(me: Peer, transport: T) -> Self {
        Self { core: Core::new(me), transport }
    }

    /// The transport that carries the frames.
    #[inline]
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// As [`Engine::transport`].
    #[inline]
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Opens a context for receiving: `members[r]` is the process that sends as rank r. Frames for it that arrived
    /// earlier are handled now.
    pub fn open(&mut self, context: u32, members: Arc<[Peer]>) {
        self.open_as(context, members, Kind::User);
    }

    /// As [`Engine::open`], for the library's own messages. Their receives all name their source and are never
    /// cancelled: they fail when that has finalized.
    pub fn open_own(&mut self, context: u32, members: Arc<[Peer]>) {
        self.open_as(context, members, Kind::Own);
    }

    /// As [`Engine::open_own`], for the parts of partitioned messages: they are the user's data, so a receiver may hold them up; not what is
    /// said about them, with tag 0.
    pub fn open_partitioned(&mut self, context: u32, members: Arc<[Peer]>) {
        self.open_as(context, members, Kind::Partitioned);
    }

    /// As [`Engine::open_own`], for a communicator's collectives, whose tags are not negative: all their receives fail once a member
    /// is lost, and their messages are dropped. Messages with other tags are not affected.
    pub fn open_collective(&mut self, context: u32, members: Arc<[Peer]>) {
        self.open_as(context, members, Kind::Collective);
    }

    fn open_as(&mut self, context: u32, members: Arc<[Peer]>, kind: Kind) {
        let mut open = Context::new(members, kind);
        open.review(&self.core.peers);
        if self.core.checks && kind == Kind::User {
            self.core.bar(&open.members.clone());
        }
        self.core.contexts.insert(context, open);
        for early in self.core.early.remove(&context).unwrap_or_default() {
            self.core.count_removed(early.from, flow::cost_of(early.payload.len()));
            self.core.on_frame(early.from, early.frame, Arrived::new(&early.payload));
        }
        self.core.flush(&mut self.transport);
    }

    /// Whether a context is open.
    pub fn is_open(&self, context: u32) -> bool {
        self.core.contexts.get(context).is_some()
    }

    /// Closes a context: drops unexpected messages, also those that came before it was opened, and fails pending receives. Sends, and
    /// receives that have matched a message, are not affected.
    pub fn close(&mut self, context: u32) {
        for early in self.core.early.remove(&context).unwrap_or_default() {
            self.core.count_removed(early.from, flow::cost_of(early.payload.len()));
        }
        let Some(mut closed) = self.core.contexts.remove(context) else { return };
        while let Some(message) = closed.seen.first_unexpected() {
            self.core.unexpected.remove(&mut closed.seen, message);
            let Some((id, _)) = self.core.messages.at(message) else { continue };
            let Some(Message { from, content, .. }) = self.core.messages.remove(id) else { continue };
            self.core.count_removed(from, flow::cost(&content));
            if let Content::Own(own) = content {
                self.core.finish(own.0, Outcome::failed(freed()));
            }
        }
        let mut failed = Vec::new();
        for (id, request) in self.core.requests.iter() {
            let RequestState::Posted { entry, .. } = request.state else { continue };
            if self.core.posted.asks(entry).0 == context {
                self.core.posted.remove(&mut closed.seen, entry);
                failed.push(id);
            }
        }
        for id in failed {
            self.core.finish(id, Outcome::failed(freed()));
        }
    }

    /// Whether a receive still waits for a message of the context.
    pub fn has_receives(&self, context: u32) -> bool {
        self.core.requests.iter().any(|(_, request)| match &request.state {
            RequestState::Posted { entry, .. } => self.core.posted.asks(*entry).0 == context,
            _matched => false,
        })
    }

    /// Sends a message to a process, which receives it from `envelope.rank`. The buffer must not change until the send
    /// is complete. A short message in standard mode completes at once, without a request, if there is room for it.
    #[inline(always)]
    pub fn send(&mut self, envelope: Envelope, to: Peer, mode: Mode, buffer: Buffer) -> Started {
        self.send_or_start(envelope, to, mode, buffer, false)
    }

    /// As [`Engine::send`], for a caller that may do something else before it waits: the receiver may read a message of some thousand bytes
    /// from the buffer until the next poll, which copies it if the receiver has not read it.
    #[inline(always)]
    pub fn start_send(&mut self, envelope: Envelope, to: Peer, mode: Mode, buffer: Buffer) -> Started {
        self.send_or_start(envelope, to, mode, buffer, true)
    }

    #[inline(always)]
    fn send_or_start(&mut self, envelope: Envelope, to: Peer, mode: Mode, buffer: Buffer, may_stay: bool) -> Started {
        let at_once = match mode {
            Mode::Standard | Mode::Ready => to != self.core.me && self.core.peers.is_clear(to),
            Mode::Synchronous => false,
        };
        let len = buffer.len();
        self.core.traffic.send(len);
        if self.core.traffic.sent.is_multiple_of(flow::LOOK_EVERY) {
            self.look();
        }
        if at_once && len <= self.eager(to, &buffer) {
            let frame = Frame::Eager { envelope };
            let sent = match len >= self.transport.limits(to).lent {
                true => self.try_lend(to, &frame, &buffer, may_stay),
                false => self.transport.try_send(to, &frame, Payload::new(&buffer, 0, len)).map(|()| None),
            };
            match sent {
                Ok(Some(loan)) => return self.core.lend(to, loan, buffer),
                Ok(None) => return Started::Over(sent_whole(&buffer)),
                Err(Refusal::Full) => {}
                Err(Refusal::Lost) => return Started::Over(Outcome::failed(self.core.peers.failure(to))),
            }
        }
        self.send_in_steps(envelope, to, mode, buffer)
    }

    /// The longest message that is sent at once from this memory.
    #[inline(always)]
    fn eager(&self, to: Peer, buffer: &Buffer) -> usize {
        let limits = self.transport.limits(to);
        if buffer.is_on_host() { limits.eager } else { limits.eager_device }
    }

    /// A process that only sends learns in this way that it is not received.
    #[cold]
    fn look(&mut self) {
        self.progress();
    }

    fn send_in_steps(&mut self, envelope: Envelope, to: Peer, mode: Mode, buffer: Buffer) -> Started {
        let started = self.send_slowly(envelope, to, mode, buffer);
        if self.core.checks { self.core.kept_for_wait(envelope.context, started) } else { started }
    }

    fn send_slowly(&mut self, envelope: Envelope, to: Peer, mode: Mode, buffer: Buffer) -> Started {
        if to == self.core.me {
            return self.core.send_to_self(envelope, mode, buffer);
        }
        let is_long = buffer.len() > self.eager(to, &buffer) || self.core.must_announce(to, envelope);
        let needs_answer = mode == Mode::Synchronous || is_long;
        if self.core.peers.is_lost(to) || (needs_answer && self.core.peers.has_finalized(to)) {
            return Started::Over(Outcome::failed(self.core.peers.failure(to)));
        }
        let started = if is_long {
            let region = if self.core.checks { None } else { self.transport.offer(to, &buffer) };
            self.core.announce(envelope, to, buffer, region)
        } else {
            self.core.send_eager(envelope, to, mode, buffer)
        };
        self.core.flush(&mut self.transport);
        if is_long {
            // Now the peer can fetch this message while this process fetches one.
            self.core.fetch_next(&mut self.transport);
        }
        self.settle(started)
    }

    /// Receives a message of a communicator into the buffer: one that has arrived, or a later one. After a peer is
    /// lost, only messages that have arrived are received from it. For receives from any source, see [`Engine::interruption`].
    #[inline]
    pub fn recv(&mut self, context: u32, source: Source, tag: TagMatch, buffer: Buffer) -> Started {
        self.recv_as(context, source, tag, buffer, false)
    }

    /// As [`Engine::recv`]; also takes a message that the transport has, if that is the next one there. Only for a process that has nothing else in
    /// progress: it polls once in several receives.
    #[inline]
    pub fn recv_catching(&mut self, context: u32, source: Source, tag: TagMatch, buffer: Buffer) -> Started {
        self.recv_as(context, source, tag, buffer, true)
    }

    #[inline(always)]
    fn recv_as(&mut self, context: u32, source: Source, tag: TagMatch, buffer: Buffer, catches: bool) -> Started {
        let core = &mut self.core;
        core.receives += 1;
        let Some(open) = core.contexts.get_mut(context) else {
            return Started::Over(Outcome::failed(not_open(context)));
        };
        if !core.unexpected.is_empty() {
            let envelope_of = |slot| core.messages.at(slot).map(|(_, message)| message.envelope);
            if let Some(slot) = core.unexpected.find(&mut open.seen, context, source, tag, envelope_of) {
                core.unexpected.remove(&mut open.seen, slot);
                return match core.messages.at(slot) {
                    Some((id, _)) => self.receive(id, buffer),
                    None => unreachable!("only messages that are there are in the lists of unexpected ones"),
                };
            }
        }
        if let Some(trouble) = open.trouble(source, tag, &core.peers) {
            return Started::Over(Outcome::failed(core.explain(trouble)));
        }
        if catches && let Some(outcome) = self.catch(context, source, tag, &buffer) {
            return Started::Over(outcome);
        }
        let core = &mut self.core;
        let Some(open) = core.contexts.get_mut(context) else { unreachable!("it was open before") };
        let Some(id) = core.requests.vacant() else { return too_many() };
        let entry = core.posted.post(&mut open.seen, context, source, tag, id.slot);
        core.requests.fill(id, Request { state: RequestState::Posted { entry, buffer }, forgotten: false });
        Started::Pending(RequestId(id))
    }

    /// Receives a message that was removed from matching.
    pub fn mrecv(&mut self, message: MessageId, buffer: Buffer) -> Started {
        self.receive(message.0, buffer)
    }

    #[inline]
    fn receive(&mut self, id: Id, buffer: Buffer) -> Started {
        match self.core.messages.get_mut(id) {
            Some(Message { from, envelope, content: Content::Bytes(bytes) }) => {
                let (from, cost) = (*from, flow::cost_of(bytes.len()));
                let outcome = fill(&buffer, *envelope, Arrived::new(bytes));
                self.core.traffic.receive(outcome.bytes);
                let bytes = std::mem::take(bytes);
                self.core.recycle(bytes);
                self.core.messages.discard(id);
                self.core.count_removed(from, cost);
                Started::Over(outcome)
            }
            _other => self.receive_in_steps(id, buffer),
        }
    }

    fn receive_in_steps(&mut self, id: Id, buffer: Buffer) -> Started {
        let Some(message) = self.core.messages.remove(id) else {
            return Started::Over(Outcome::failed(MpiError::request("the message has already been received")));
        };
        self.core.count_removed(message.from, flow::cost(&message.content));
        let fetches = self.core.fetches.len();
        let started = self.core.take_in(message.from, message.envelope, message.content, buffer);
        self.core.flush(&mut self.transport);
        if !self.core.defers && self.core.fetches.len() > fetches {
            // This one first: the thread that would fetch it later may be asleep.
            self.core.fetches.rotate_right(1);
            self.core.fetch_next(&mut self.transport);
        }
        self.settle(started)
    }

    /// Returns the outcome of a completed request, and removes the request.
    #[inline]
    pub fn take(&mut self, id: RequestId) -> Option<Outcome> {
        let RequestState::Finished(outcome) = &mut self.core.requests.get_mut(id.0)?.state else { return None };
        let outcome = outcome.take_out();
        self.core.requests.discard(id.0);
        Some(outcome)
    }

    /// As [`Engine::take`], for a successful request: the source, the tag and the number of bytes. `None` if it is not
    /// complete, or has an error.
    #[inline]
    pub fn take_plain(&mut self, id: RequestId) -> Option<(u32, i32, u64)> {
        match &self.core.requests.get(id.0)?.state {
            RequestState::Finished(Outcome { source, tag, bytes, cancelled: false, error: None }) => {
                let (source, tag, bytes) = (*source, *tag, *bytes);
                self.core.requests.discard(id.0);
                Some((source, tag, bytes))
            }
            _other => None,
        }
    }

    /// The outcome of a request, if it is complete.
    #[inline]
    pub fn outcome(&self, id: RequestId) -> Option<&Outcome> {
        match &self.core.requests.get(id.0)?.state {
            RequestState::Finished(outcome) => Some(outcome),
            _unfinished => None,
        }
    }

    /// Whether a request is in progress: not complete, and not yet taken.
    pub fn is_pending(&self, id: RequestId) -> bool {
        self.core.requests.get(id.0).is_some_and(|request| !matches!(request.state, RequestState::Finished(_)))
    }

    /// Whether a receive waits for a message of a peer that has finalized: such a message will never arrive.
    pub fn is_vain(&self, id: RequestId) -> bool {
        self.core.vain(id.0).is_some()
    }

    /// Fails a receive whose message will never arrive ([`Engine::is_vain`]).
    pub fn give_up(&mut self, id: RequestId) {
        let (Some(peer), Some(RequestState::Posted { entry, .. })) =
            (self.core.vain(id.0), self.core.requests.get(id.0).map(|request| &request.state))
        else {
            return;
        };
        let entry = *entry;
        if let Some(context) = self.core.contexts.get_mut(self.core.posted.asks(entry).0) {
            self.core.posted.remove(&mut context.seen, entry);
            self.core.fail(id.0, peer);
        }
    }

    /// Whether a peer was lost.
    pub fn is_lost(&self, peer: Peer) -> bool {
        self.core.peers.is_lost(peer)
    }

    /// Declares that the request's outcome will not be asked for (`MPI_Request_free`); the request continues.
    pub fn forget(&mut self, id: RequestId) {
        if self.take(id).is_none()
            && let Some(request) = self.core.requests.get_mut(id.0)
        {
            request.forgotten = true;
        }
    }

    /// As [`Engine::forget`]; memory of the library that was lent to the request is freed when it ends.
    pub fn forget_with(&mut self, id: RequestId, memory: Box<[u8]>) {
        self.forget(id);
        if self.is_pending(id) {
            self.core.kept.push((id.0, memory));
        }
    }

    /// Handles what has arrived and sends what there is room for; returns whether there was anything.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.core.finished_before = self.core.finished;
        self.core.caught = 0;
        let mut came = self.transport.poll(&mut self.core);
        if self.lends() {
            came |= self.redeem(None, false);
        }
        came |= self.core.flush(&mut self.transport);
        if !self.core.fetches.is_empty() {
            came |= self.fetch();
        }
        came
    }

    /// The number of requests that have ended: a caller that sees it change checks its own requests.
    #[inline]
    pub fn finished(&self) -> u64 {
        self.core.finished
    }

    /// Declares whether only one thread makes calls.
    pub fn set_single(&mut self, single: bool) {
        self.core.single = single;
    }

    /// What was sent and received so far.
    pub fn traffic(&self) -> Traffic {
        self.core.traffic
    }

    /// The number of messages that no receive has matched.
    pub fn unexpected(&self) -> usize {
        self.core.messages.len()
    }

    /// The number of sends and receives in progress.
    pub fn pending(&self) -> usize {
        self.core.requests.iter().filter(|(_, it)| !matches!(it.state, RequestState::Finished(_))).count()
    }

    /// The number of peers for which frames wait for room.
    pub fn crowded(&self) -> usize {
        self.core.peers.busy.len()
    }

    /// Whether frames wait for room, or messages to be fetched: [`Engine::progress`] must be called again soon.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        !self.core.peers.busy.is_empty() || !self.core.errands.is_empty() || !self.core.fetches.is_empty()
    }

    /// Whether this process must not sleep: no wake-up comes when a peer has finished reading lent memory, or when a message can be fetched.
    #[inline]
    pub fn must_poll(&self) -> bool {
        self.lends() || !self.core.fetches.is_empty()
    }

    /// Whether everything that this process has sent is on its way, and no send is pending.
    pub fn quiet(&self) -> bool {
        !self.has_backlog() && !self.core.requests.iter().any(|(_, request)| request.state.is_sending())
    }

    /// As [`Engine::quiet`], but for sends in these contexts that wait for a receive.
    pub fn quiet_but(&self, in_others: impl Fn(u32) -> bool) -> bool {
        let own = |id: Id| {
            let message = self.core.messages.iter().find(|(_, message)| message.content.own() == Some(id));
            message.is_some_and(|(_, message)| in_others(message.envelope.context))
        };
        !self.has_backlog()
            && self.core.requests.iter().all(|(id, request)| match &request.state {
                RequestState::Announced(it) => in_others(it.context),
                RequestState::Own => own(id),
                other => !other.is_sending(),
            })
    }

    /// How many requests, messages, early frames and errands are left.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> [usize; 4] {
        let core = &self.core;
        [core.requests.len(), core.messages.len(), core.early.len(), core.errands.len() + core.fetches.len()]
    }

    /// Drops the request if it is already complete.
    fn settle(&mut self, started: Started) -> Started {
        match started {
            Started::Over(outcome) => Started::Over(outcome),
            Started::Pending(id) => self.take(id).map_or(Started::Pending(id), Started::Over),
        }
    }
}

impl Core {
    /// The finalized peer whose message this receive waits for.
    fn vain(&self, id: Id) -> Option<Peer> {
        let RequestState::Posted { entry, .. } = self.requests.get(id)?.state else { return None };
        let (context, source) = self.posted.asks(entry);
        self.contexts.get(context)?.finalized(source, &self.peers, self.silent())
    }

    /// A receive has matched a message that is not completely here, or whose sender waits.
    fn take_in(&mut self, from: Peer, envelope: Envelope, content: Content, buffer: Buffer) -> Started {
        match content {
            Content::Bytes(bytes) => self.take_whole(&buffer, envelope, &bytes),
            Content::Sync { bytes, send } => {
                self.say(from, Frame::Done { send });
                self.take_whole(&buffer, envelope, &bytes)
            }
            Content::Ready(_) if self.peers.is_lost(from) => Started::Over(Outcome::failed(self.peers.failure(from))),
            Content::Ready(message) => self.start(
                |_| RequestState::Matched(Box::new(Matched { message: *message, buffer })),
                |core, id| core.fetch_or_defer(id),
            ),
            Content::Signed(signed) => {
                let (sign, content) = *signed;
                match signed::mismatch(sign, envelope, content.len(), &buffer) {
                    None => self.take_in(from, envelope, content, buffer),
                    Some(error) => {
                        self.confirm(from, content.send());
                        Started::Over(signed::failed(envelope, error))
                    }
                }
            }
            Content::Own(own) => {
                let (send, source) = *own;
                let (sent, outcome) = copy(&source, &buffer, envelope, self.checks);
                self.finish(send, sent);
                self.traffic.receive(outcome.bytes);
                Started::Over(outcome)
            }
        }
    }

    fn take_whole(&mut self, buffer: &Buffer, envelope: Envelope, bytes: &[u8]) -> Started {
        let outcome = fill(buffer, envelope, Arrived::new(bytes));
        self.traffic.receive(outcome.bytes);
        Started::Over(outcome)
    }

    fn announce(&mut self, envelope: Envelope, to: Peer, buffer: Buffer, region: Option<Region>) -> Started {
        let (len, context, sign) = (buffer.len() as u64, envelope.context, self.sign(envelope.context, &buffer));
        self.start(
            |_| RequestState::Announced(Box::new(Announced { to, context, buffer, region })),
            |core, id| core.say(to, Frame::Ready { envelope, send: id.number(), len, region }.with(sign)),
        )
    }

    /// Sends a short message for which there is no room, or whose receiver must answer.
    fn send_eager(&mut self, envelope: Envelope, to: Peer, mode: Mode, buffer: Buffer) -> Started {
        let len = buffer.len();
        let sign = self.sign(envelope.context, &buffer);
        match mode {
            Mode::Standard | Mode::Ready => {
                let frame = Frame::Eager { envelope }.with(sign);
                let relation = self.peers.relation(to);
                let cost = copied_cost(len);
                if relation.copied + cost <= COPIED_MAX {
                    relation.copied += cost;
                    let bytes = self.keep_buffer(&buffer);
                    self.queue(to, Queued::Copied { frame, bytes });
                    return Started::Over(sent_whole(&buffer));
                }
                self.start(
                    |_| RequestState::Queued(Box::new(Waiting { to, frame, buffer })),
                    |core, id| core.queue(to, Queued::Lent(id)),
                )
            }
            Mode::Synchronous => {
                let frame = |id: Id| Frame::EagerSync { envelope, send: id.number() }.with(sign);
                self.start(
                    |id| RequestState::Queued(Box::new(Waiting { to, frame: frame(id), buffer })),
                    |core, id| core.queue(to, Queued::Lent(id)),
                )
            }
        }
    }

    /// Matches as for other peers, but nothing is transmitted.
    fn send_to_self(&mut self, envelope: Envelope, mode: Mode, buffer: Buffer) -> Started {
        let len = buffer.len();
        match self.match_posted(self.me, envelope) {
            Ok(Match::Posted(id)) => {
                let checks = self.checks;
                let Some(into) = self.posted_buffer(id) else { return Started::Over(Outcome::sent(len)) };
                let (sent, outcome) = copy(&buffer, into, envelope, checks);
                self.traffic.receive(outcome.bytes);
                self.finish(id, outcome);
                Started::Over(sent)
            }
            Ok(Match::Unexpected) if len <= OWN_MAX && mode != Mode::Synchronous => {
                let content = Content::Bytes(self.keep_buffer(&buffer));
                match self.sign(envelope.context, &buffer) {
                    None => self.keep(Message { from: self.me, envelope, content }),
                    Some(sign) => self.keep_signed(self.me, envelope, sign, content),
                }
                // Another thread may probe for it.
                self.finished += 1;
                Started::Over(sent_whole(&buffer))
            }
            Ok(Match::Unexpected) => self.start(
                |_| RequestState::Own,
                |core, send| {
                    let content = Content::Own(Box::new((send, buffer)));
                    core.keep(Message { from: core.me, envelope, content });
                },
            ),
            Ok(Match::Early) => Started::Over(Outcome::failed(not_open(envelope.context))),
            Ok(Match::Refused) => Started::Over(Outcome::failed(self.dropped(envelope.context))),
            Err(NotAMember) => Started::Over(Outcome::failed(MpiError::rank("the sender is not in the communicator"))),
        }
    }

    /// Creates a request and takes the first step for it.
    pub(super) fn start(
        &mut self,
        state: impl FnOnce(Id) -> RequestState,
        first: impl FnOnce(&mut Self, Id),
    ) -> Started {
        let Some(id) = self.requests.vacant() else { return too_many() };
        self.requests.add(Request { state: state(id), forgotten: false });
        first(self, id);
        Started::Pending(RequestId(id))
    }

    fn keep_buffer(&mut self, buffer: &Buffer) -> Vec<u8> {
        let mut bytes = self.spare.take(buffer.len());
        bytes.resize(buffer.len(), 0);
        buffer.read(0, &mut bytes);
        bytes
    }
}

#[cold]
fn freed() -> MpiError {
    MpiError::comm("the communicator was freed before the message was received")
}

#[cold]
fn too_many() -> Started {
    Started::Over(Outcome::failed(MpiError::no_mem("too many pending requests (16777216)")))
}

/// Receives a message of this process from its own memory; returns the outcomes of the send and of the receive.
fn copy(from: &Buffer, into: &Buffer, envelope: Envelope, checks: bool) -> (Outcome, Outcome) {
    let (len, room) = (from.len(), into.len());
    if checks && let Some(error) = signed::mismatch(from.sign(len), envelope, len as u64, into) {
        return (Outcome::sent(len), signed::failed(envelope, error));
    }
    from.copy_first(len.min(room), into);
    let received = Outcome::received(envelope.rank, envelope.tag, len as u64, room);
    (sent_whole(from), settled(into, received))
}
