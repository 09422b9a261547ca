//! The engine's state, what all parts of it do with requests and messages, and what becomes of them when a peer is lost.

use std::collections::{HashMap, VecDeque};

use super::calls::{Note, Outcome, Source};
use super::contexts::Contexts;
use super::flow::{self, Flow};
use super::frame::{Envelope, Frame};
use super::matching::{Posted, Unexpected};
use super::peers::{Peers, Queued, Standing};
use super::slab::{Id, Slab};
use super::spare::Spare;
use super::state::{Context, Early, Errand, Kind, Message, Request, RequestState};
use super::traffic::Traffic;
use super::transport::Peer;
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
    /// Receives in state `Matched` whose messages are yet to be fetched.
    pub(super) fetches: VecDeque<Id>,
    pub(super) spare: Spare,
    /// The requests in state `OnLoan`, and some that have failed since.
    pub(super) loans: Vec<Id>,
    /// The number of requests that have ended.
    pub(super) finished: u64,
    /// That number when the last poll began.
    pub(super) finished_before: u64,
    /// The number of receives that have been started.
    pub(super) receives: u64,
    /// How many messages have been caught since the last poll ([`super::catching`]).
    pub(super) caught: u32,
    /// The library's own memory, lent to requests whose outcome will not be asked for.
    pub(super) kept: Vec<(Id, Box<[u8]>)>,
    /// Peers from this number on are foreign: their end is noted in `parted`.
    pub(super) foreign: Peer,
    pub(super) disconnected: Vec<Peer>,
    /// Only one thread makes calls: while it waits, this process sends nothing to itself.
    pub(super) single: bool,
    /// Whether a receive may leave an announced message to a later call.
    pub(super) defers: bool,
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
    /// Changes when a peer is lost or has finalized.
    pub(super) partings: u64,
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
            fetches: VecDeque::new(),
            spare: Spare::default(),
            loans: Vec::new(),
            finished: 0,
            finished_before: 0,
            receives: 0,
            caught: 0,
            kept: Vec::new(),
            foreign: Peer(u32::MAX),
            disconnected: Vec::new(),
            traffic: Traffic::default(),
            flow: Flow::default(),
            checks: false,
            single: false,
            defers: false,
            probed: None,
            undelivered: Vec::new(),
            notes: Vec::new(),
            has_news: false,
            alarms: 0,
            partings: 0,
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
    pub(super) fn drop_forgotten(&mut self, id: Id) {
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
    pub(super) fn lose_intruder(&mut self, from: Peer, envelope: Envelope) {
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
    pub(super) fn reject(&mut self, peer: Peer, reason: &str) {
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
    pub(super) fn on_bye(&mut self, from: Peer) {
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
        self.partings += 1;
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
