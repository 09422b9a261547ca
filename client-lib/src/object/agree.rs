//! Small exchanges among the members of a communicator, for making others: the maximum of some words, or the bytes of all.
//!
//! Both use dissemination: in round k each member receives what the member 2^k before it knows, and sends what it knows to the
//! member 2^k after it; after ⌈log2 n⌉ rounds all members know everything. Taking a maximum twice is harmless, so n may be any
//! number. Bytes on the wire per process: ⌈log2 n⌉ × 8 for each word, n × the length of a block for blocks.
//!
//! The messages use the parent's collective context with negative tags ([`tag`]), which collective operations never use.

#![expect(unsafe_code, reason = "lends memory of its own to the engine")]

use std::sync::Arc;

use crate::abi::constants::{MPI_ERR_PROC_ABORTED, MPIX_ERR_REVOKED};
use crate::engine::{Engine, Envelope, Mode, Outcome, Peer, RequestId, Source, Started, TagMatch, Transport};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;

/// Tags of exchanges, all negative.
pub mod tag {
    /// For exchanges of all members, counted by `Communicator::collectives`.
    const COUNTED: i64 = 1 << 24;

    /// The tag of the `count`-th operation that all members take part in.
    pub fn counted(count: u32) -> i32 {
        -1 - 2 * (i64::from(count) % (COUNTED / 2)) as i32
    }

    /// The tag of the `count`-th comparison of calls (`RSD_MPI_CHECK`).
    pub fn compared(count: u32) -> i32 {
        counted(count) - 1
    }

    /// For operations with a user's tag, of each kind: different tags map to different ones, except that the upper half
    /// maps onto the lower.
    const NAMED: i64 = (1 << 30) - COUNTED / 2;

    /// The tag of an operation of some members (`MPI_Comm_create_group`).
    pub fn named(tag: i32) -> i32 {
        (-1 - COUNTED - i64::from(tag) % NAMED) as i32
    }

    /// The tag of the messages between two leaders (`MPI_Intercomm_create`).
    pub fn of_leaders(tag: i32) -> i32 {
        (-1 - COUNTED - NAMED - i64::from(tag) % NAMED) as i32
    }
}

/// The members that take part, and the context and tag of their messages.
#[derive(Debug, Clone)]
pub struct Circle {
    /// The collective context of the parent.
    pub context: u32,
    /// All members of the parent.
    pub members: Arc<[Peer]>,
    /// Ranks in the parent of the members that take part, in the same order everywhere; `None` if all do.
    pub ranks: Option<Arc<[u32]>>,
    /// This process's place among these members.
    pub place: u32,
    /// From [`tag`].
    pub tag: i32,
}

impl Circle {
    /// The number of members that take part.
    pub fn size(&self) -> u32 {
        self.ranks.as_ref().map_or(self.members.len(), |ranks| ranks.len()) as u32
    }

    /// Equal in all members, and different for different operations in progress.
    pub fn salt(&self) -> u64 {
        (u64::from(self.context) << 32) | u64::from(self.tag as u32)
    }

    /// The rank in the parent of the member at a place.
    pub fn rank(&self, place: u32) -> u32 {
        self.ranks.as_ref().map_or(place, |ranks| ranks[place as usize])
    }
}

/// One process's part in an exchange.
///
/// A member that has failed (a peer was lost, a message had a wrong length) still takes part in all rounds, because others wait
/// for it, but sends only its [`Failure`] from then on: so no member waits forever, and all that depend on it get an error.
#[derive(Debug)]
pub struct Exchange {
    circle: Circle,
    distance: u32,
    known: Known,
    incoming: Option<Lent>,
    outgoing: Vec<Lent>,
    failed: Option<MpiError>,
}

/// The values known so far.
#[derive(Debug)]
enum Known {
    /// The maximum of each word.
    Largest(Vec<u64>),
    /// The blocks of this member and of those before it, in reverse order, and the length of each.
    Blocks(Vec<u8>, usize),
}

/// The result of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// The maximum of each word.
    Words(Vec<u64>),
    /// The blocks in the order of places.
    Blocks(Vec<u8>),
}

/// The library's own memory, lent to a message in flight.
#[derive(Debug)]
pub(super) struct Lent {
    started: Underway,
    memory: Box<[u8]>,
}

#[derive(Debug)]
enum Underway {
    Pending(RequestId),
    Over(Outcome),
}

impl Exchange {
    /// All members will know the maximum of each word; all must pass the same number of words.
    pub fn of_words(circle: Circle, words: &[u64]) -> Self {
        Self::new(circle, Known::Largest(words.to_vec()))
    }

    /// All members will know all blocks, which have the same length above 0.
    pub fn of_blocks(circle: Circle, block: &[u8]) -> Self {
        Self::new(circle, Known::Blocks(block.to_vec(), block.len()))
    }

    fn new(circle: Circle, known: Known) -> Self {
        Self { circle, distance: 1, known, incoming: None, outgoing: Vec::new(), failed: None }
    }

    /// The members.
    pub fn circle(&self) -> &Circle {
        &self.circle
    }

    /// Increases with every round.
    pub fn distance(&self) -> u32 {
        self.distance
    }

    /// Advances; returns the result once there is one. Do not call it again after that.
    pub fn poll<T: Transport>(&mut self, engine: &mut Engine<T>) -> Option<MpiResult<Exchanged>> {
        while self.distance < self.circle.size() {
            let incoming = match self.incoming.take() {
                Some(incoming) => incoming,
                None => self.start_round(engine),
            };
            match incoming.outcome(engine) {
                Ok((outcome, memory)) => self.learn(outcome, &memory),
                Err(pending) => {
                    self.incoming = Some(pending);
                    return None;
                }
            }
            self.distance = self.distance.saturating_mul(2);
        }
        // A member that has failed does not wait until others have received its messages.
        for sent in std::mem::take(&mut self.outgoing) {
            match sent.outcome(engine) {
                Ok((Outcome { error, .. }, _)) => self.failed = self.failed.take().or(error.map(|error| *error)),
                Err(pending) => self.outgoing.push(pending),
            }
        }
        match self.failed.take() {
            Some(error) => {
                self.outgoing.drain(..).for_each(|sent| sent.leave(engine));
                Some(Err(error))
            }
            None if self.outgoing.is_empty() => Some(Ok(self.result())),
            None => None,
        }
    }

    /// Tells all members that this process has failed, for those that continue with another exchange.
    pub fn warn<T: Transport>(&self, engine: &mut Engine<T>, error: &MpiError) {
        if error.class == MPIX_ERR_REVOKED {
            // They are told of the revocation, and do not wait.
            return;
        }
        let Circle { context, place, tag, .. } = self.circle;
        let envelope = Envelope { context, rank: self.circle.rank(place), tag };
        for other in (0..self.circle.size()).filter(|other| *other != place) {
            let to = self.circle.members[self.circle.rank(other) as usize];
            Failure::of(error).send(engine, |engine, word| engine.send(envelope, to, Mode::Standard, word));
        }
    }

    /// Sends what is known; returns the pending receive.
    fn start_round<T: Transport>(&mut self, engine: &mut Engine<T>) -> Lent {
        let Circle { context, place, tag, .. } = self.circle;
        let (size, distance) = (self.circle.size(), self.distance);
        let (before, after) = ((place + size - distance) % size, (place + distance) % size);
        let from = Source::Rank(self.circle.rank(before));
        let incoming = Lent::start(vec![0; self.len_of_round()].into(), |buffer| {
            engine.recv(context, from, TagMatch::Value(tag), buffer)
        });
        let known: Box<[u8]> = match (&self.known, &self.failed) {
            (_, Some(error)) => Failure::of(error).word().into(),
            (Known::Largest(words), None) => words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            (Known::Blocks(bytes, _), None) => bytes[..self.len_of_round()].into(),
        };
        if self.failed.as_ref().is_some_and(|error| error.class == MPIX_ERR_REVOKED) {
            return incoming;
        }
        let envelope = Envelope { context, rank: self.circle.rank(place), tag };
        let to = self.circle.members[self.circle.rank(after) as usize];
        self.outgoing.push(Lent::start(known, |buffer| engine.send(envelope, to, Mode::Standard, buffer)));
        incoming
    }

    /// In the last round of blocks, the peer already knows some of them.
    fn len_of_round(&self) -> usize {
        match &self.known {
            Known::Largest(words) => size_of_val(words.as_slice()),
            Known::Blocks(_, len) => self.distance.min(self.circle.size() - self.distance) as usize * len,
        }
    }

    fn learn(&mut self, outcome: Outcome, received: &[u8]) {
        if let Some(error) = Failure::from_outcome(&outcome, received.len()) {
            self.failed = self.failed.take().or(Some(error));
            return;
        }
        match &mut self.known {
            Known::Largest(words) => {
                for (word, bytes) in words.iter_mut().zip(received.chunks_exact(8)) {
                    *word = bytes.try_into().map_or(*word, |bytes| u64::from_ne_bytes(bytes).max(*word));
                }
            }
            Known::Blocks(bytes, _) => bytes.extend_from_slice(received),
        }
    }

    fn result(&self) -> Exchanged {
        let (size, place) = (self.circle.size() as usize, self.circle.place as usize);
        match &self.known {
            Known::Largest(words) => Exchanged::Words(words.clone()),
            Known::Blocks(bytes, len) => {
                let mut ordered = vec![0; bytes.len()];
                for (back, block) in bytes.chunks_exact(*len).enumerate() {
                    let at = (place + size - back) % size * len;
                    ordered[at..at + len].copy_from_slice(block);
                }
                Exchanged::Blocks(ordered)
            }
        }
    }
}

/// A process's failure, as it reports it to those that wait for another message: by a length that no other message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A process has died.
    Death,
    /// Any other failure.
    Other,
}

impl Failure {
    /// The failure to report for an error.
    pub fn of(error: &MpiError) -> Self {
        if error.class == MPI_ERR_PROC_ABORTED { Failure::Death } else { Failure::Other }
    }

    /// The error that the failure is for others.
    pub fn error(self) -> MpiError {
        match self {
            Failure::Death => MpiError::proc_aborted("another process has reported a death"),
            Failure::Other => {
                MpiError::other("another process has failed, or has called a different function").secondhand()
            }
        }
    }

    /// The error if something else has arrived than a message of this length.
    pub fn from_outcome(outcome: &Outcome, len: usize) -> Option<MpiError> {
        match (&outcome.error, outcome.bytes) {
            (Some(error), _) => Some((**error).clone()),
            (None, bytes) if bytes == len as u64 => None,
            (None, 1) => Some(Failure::Death.error()),
            (None, _) => Some(Failure::Other.error()),
        }
    }

    fn word(self) -> &'static [u8] {
        match self {
            Failure::Death => &[0],
            Failure::Other => &[],
        }
    }

    /// Sends the failure to a peer that may be gone.
    pub(super) fn send<T: Transport>(
        self,
        engine: &mut Engine<T>,
        send: impl FnOnce(&mut Engine<T>, Buffer) -> Started,
    ) {
        // If this fails too, the peer is gone.
        Lent::start(self.word().into(), |word| send(engine, word)).leave(engine);
    }
}

impl Lent {
    /// Starts a message with the library's own memory.
    pub(super) fn start(mut memory: Box<[u8]>, start: impl FnOnce(Buffer) -> Started) -> Self {
        // SAFETY: the memory is kept, unchanged, until the engine reports the end of the operation, or forever; an
        // exchange that is dropped before its end is dropped together with the engine.
        let buffer = unsafe { Buffer::contiguous(memory.as_mut_ptr(), memory.len()) };
        let started = match start(buffer) {
            Started::Over(outcome) => Underway::Over(outcome),
            Started::Pending(id) => Underway::Pending(id),
        };
        Self { started, memory }
    }

    /// The outcome, with its memory; or the value itself if the message is still in flight.
    pub(super) fn outcome<T: Transport>(self, engine: &mut Engine<T>) -> Result<(Outcome, Box<[u8]>), Self> {
        match self.started {
            Underway::Over(outcome) => Ok((outcome, self.memory)),
            Underway::Pending(id) => match engine.take(id) {
                Some(outcome) => Ok((outcome, self.memory)),
                None => Err(self),
            },
        }
    }

    /// Whether its outcome is known.
    pub(super) fn is_over<T: Transport>(&self, engine: &Engine<T>) -> bool {
        match &self.started {
            Underway::Over(_) => true,
            Underway::Pending(id) => engine.outcome(*id).is_some(),
        }
    }

    /// Abandons a send that may never complete.
    pub(super) fn leave<T: Transport>(self, engine: &mut Engine<T>) {
        if let Underway::Pending(id) = self.started {
            engine.forget_with(id, self.memory);
        }
    }
}
