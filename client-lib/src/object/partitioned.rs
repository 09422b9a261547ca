//! Partitioned communication (MPI 5.0 §4): one message whose parts the sender releases one by one.
//!
//! The messages of a communicator's partitioned requests have a context of their own, which is opened with the first of them
//! ([`context_of`]). `MPI_Psend_init` announces the request to the receiver ([`Hello`], tag 0): the user's tag, the number and length of
//! the sender's parts, and the first of as many consecutive tags that it has reserved. A receiver matches announcements of one process
//! with its requests in the order of their creation, as the standard demands; it listens only while one of its requests is unmatched.
//! From then on, part i of the sender travels as a message of its own with the i-th of these tags, straight from user memory to user
//! memory. The two sides may cut the data into different parts.
//!
//! Cost: one message of 24 bytes per request, and one per part and start.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::agree::Lent;
use super::requests::{Finished, PartitionedId};
use crate::abi::{CommHandle, Status};
use crate::engine::{Engine, Envelope, Mode, Outcome, Peer, RequestId, Source, Started, TagMatch, Transport};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;

/// All partitioned requests of a process.
#[derive(Debug, Default)]
pub struct Partitions {
    channels: BTreeMap<PartitionedId, Channel>,
    next: u64,
    /// The tags below this one have been reserved, perhaps not for the first time.
    tags: i32,
    wrapped: bool,
    /// Receives of announcements.
    listeners: Vec<Listener>,
    /// Announcements for which there is no request yet, in the order of their arrival.
    early: Vec<(Origin, Hello)>,
    /// Announcements that are being sent.
    hellos: Vec<Lent>,
    /// The engine's number of ended requests when everything was last examined; `None` if it must be now.
    seen: Option<u64>,
}

/// One request.
#[derive(Debug)]
struct Channel {
    comm: CommHandle,
    buffer: Buffer,
    /// The number of this process's parts.
    partitions: usize,
    end: End,
    /// Started and not completed.
    active: bool,
    /// The parts on the wire: of the sender, at both ends.
    parts: Vec<Part>,
    /// How many of them are not done.
    left: usize,
    bytes: u64,
    /// The first error since it was started.
    error: Option<MpiError>,
    /// It can never succeed again.
    broken: Option<MpiError>,
    /// The handle is gone, but the peer's announcement is still expected.
    freed: bool,
}

#[derive(Debug)]
enum End {
    /// `MPI_PROC_NULL`.
    Nowhere {
        receives: bool,
    },
    Sends {
        envelope: Envelope,
        to: Peer,
        first_tag: i32,
    },
    Receives {
        origin: Origin,
        tag: i32,
        hello: Option<Hello>,
    },
}

/// Where announcements come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Origin {
    context: u32,
    /// The sender's place among all members.
    place: u32,
    /// The rank that the user knows it by.
    rank: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Not released by the user, or not received yet because the sender is unknown.
    Waiting,
    Underway(RequestId),
    Done,
}

#[derive(Debug)]
struct Listener {
    origin: Origin,
    lent: Lent,
}

/// What a sender announces: 24 bytes in the machine's byte order.
///
/// ```text
/// 0    4          8            12      16                24
/// │ tag │ first tag │ partitions │   0   │ bytes per part  │
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hello {
    tag: i32,
    first_tag: i32,
    partitions: u32,
    bytes: u64,
}

/// More parts than that are refused.
pub const PARTITIONS_MAX: usize = 1 << 24;

const HELLO_TAG: i32 = 0;
const HELLO_LEN: usize = 24;

/// The context of a communicator's partitioned messages, which use places among all members as its collectives do.
pub fn context_of(collective_context: u32) -> u32 {
    collective_context | 1 << 31
}

/// One side of a partitioned request, with checked arguments.
#[derive(Debug)]
pub struct Side {
    /// The communicator.
    pub comm: CommHandle,
    /// All members of the communicator.
    pub members: Arc<[Peer]>,
    /// From [`context_of`].
    pub context: u32,
    /// This process's place among all members.
    pub place: u32,
    /// The other process: its rank, and its place among all members; `None` for `MPI_PROC_NULL`.
    pub other: Option<(u32, u32)>,
    /// The user's tag.
    pub tag: i32,
    /// All parts, one after the other.
    pub buffer: Buffer,
    /// Their number.
    pub partitions: usize,
}

impl Partitions {
    /// Whether there is nothing to do.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.channels.is_empty() && self.hellos.is_empty()
    }

    /// A request to send; tells the receiver about it.
    pub fn sender<T: Transport>(&mut self, engine: &mut Engine<T>, side: Side) -> PartitionedId {
        let Side { comm, members, context, place, other, tag, buffer, partitions } = side;
        let Some((_, other)) = other else {
            return self.add(comm, buffer, partitions, End::Nowhere { receives: false });
        };
        self.open(engine, context, &members);
        let first_tag = self.reserve_tags(partitions);
        let to = members[other as usize];
        let bytes = buffer.len().checked_div(partitions).unwrap_or(0) as u64;
        let hello = Hello { tag, first_tag, partitions: partitions as u32, bytes };
        let envelope = Envelope { context, rank: place, tag: HELLO_TAG };
        let sent = Lent::start(hello.encode().into(), |buffer| engine.send(envelope, to, Mode::Standard, buffer));
        self.hellos.push(sent);
        self.seen = None;
        self.add(comm, buffer, partitions, End::Sends { envelope, to, first_tag })
    }

    /// A request to receive.
    pub fn receiver<T: Transport>(&mut self, engine: &mut Engine<T>, side: Side) -> PartitionedId {
        let Side { comm, members, context, other, tag, buffer, partitions, .. } = side;
        let Some((rank, place)) = other else {
            return self.add(comm, buffer, partitions, End::Nowhere { receives: true });
        };
        self.open(engine, context, &members);
        let origin = Origin { context, place, rank };
        let known = self.early.iter().position(|(from, hello)| *from == origin && hello.tag == tag);
        let hello = known.map(|at| self.early.remove(at).1);
        let id = self.add(comm, buffer, partitions, End::Receives { origin, tag, hello });
        if hello.is_none() {
            self.listen(engine, origin);
        }
        id
    }

    fn add(&mut self, comm: CommHandle, buffer: Buffer, partitions: usize, end: End) -> PartitionedId {
        let id = PartitionedId(self.next);
        self.next += 1;
        let channel = Channel {
            comm,
            buffer,
            partitions,
            end,
            active: false,
            parts: Vec::new(),
            left: 0,
            bytes: 0,
            error: None,
            broken: None,
            freed: false,
        };
        self.channels.insert(id, channel);
        id
    }

    fn open<T: Transport>(&self, engine: &mut Engine<T>, context: u32, members: &Arc<[Peer]>) {
        if !engine.is_open(context) {
            engine.open_partitioned(context, Arc::clone(members));
        }
    }

    /// Consecutive tags that no other request of this process uses. After two billion parts they begin again.
    fn reserve_tags(&mut self, count: usize) -> i32 {
        const FIRST: i32 = HELLO_TAG + 1;
        let count = count as i32;
        let fits = |first: i32| first.checked_add(count).is_some();
        let mut first = if fits(self.tags) { self.tags.max(FIRST) } else { FIRST };
        self.wrapped |= first < self.tags;
        if self.wrapped {
            let own = |channel: &Channel| match channel.end {
                End::Sends { first_tag, .. } => Some((first_tag, first_tag + channel.partitions as i32)),
                End::Nowhere { .. } | End::Receives { .. } => None,
            };
            let mut taken: Vec<(i32, i32)> = self.channels.values().filter_map(own).collect();
            taken.sort_unstable();
            // Behind the tags of requests that still use theirs; there are far more tags than any process has memory for.
            let behind = |mut first: i32| {
                for (from, to) in &taken {
                    if *from < first.saturating_add(count) && first < *to {
                        first = *to;
                    }
                }
                first
            };
            first = behind(first);
            if !fits(first) {
                first = behind(FIRST);
            }
        }
        self.tags = first + count;
        first
    }

    /// Whether a freed request still awaits its announcement in this context.
    pub fn awaits(&self, of: u32) -> bool {
        let awaited = |channel: &Channel| match channel.end {
            End::Receives { origin, hello: None, .. } => channel.freed && origin.context == of,
            _ => false,
        };
        self.channels.values().any(awaited)
    }

    /// Forgets announcements for which there was no request: their context is closed.
    pub fn forget(&mut self, of: u32) {
        self.early.retain(|(origin, _)| origin.context != of);
    }

    fn listen<T: Transport>(&mut self, engine: &mut Engine<T>, origin: Origin) {
        if self.listeners.iter().any(|listener| listener.origin == origin) {
            return;
        }
        let (from, tag) = (Source::Rank(origin.place), TagMatch::Value(HELLO_TAG));
        let lent = Lent::start([0; HELLO_LEN].into(), |buffer| engine.recv(origin.context, from, tag, buffer));
        self.listeners.push(Listener { origin, lent });
        self.seen = None;
    }

    /// `MPI_Start`.
    pub fn start<T: Transport>(&mut self, engine: &mut Engine<T>, id: PartitionedId) -> MpiResult {
        let channel = self.get_mut(id)?;
        if channel.active {
            return Err(MpiError::request("the request is already active"));
        }
        channel.active = true;
        channel.bytes = 0;
        channel.error = channel.broken.clone();
        channel.parts.clear();
        channel.left = 0;
        match channel.end {
            End::Sends { .. } | End::Nowhere { receives: false } => channel.expect(channel.partitions),
            End::Receives { .. } => channel.post(engine),
            End::Nowhere { receives: true } => {}
        }
        Ok(())
    }

    /// `MPI_Pready` for the parts from `low` to `high`; returns whether the request is complete now.
    pub fn release<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        id: PartitionedId,
        low: i32,
        high: i32,
    ) -> MpiResult<bool> {
        let channel = self.get_mut(id)?;
        let receives = matches!(channel.end, End::Receives { .. } | End::Nowhere { receives: true });
        if receives || !channel.active {
            let what = if receives { "a partitioned send request" } else { "active: call MPI_Start first" };
            return Err(MpiError::request(format!("the request is not {what}")));
        }
        let (low, high) = (channel.part(low)?, channel.part(high)?);
        if let Some(twice) = (low..=high).find(|part| channel.parts[*part] != Part::Waiting) {
            return Err(MpiError::arg(format!("partition {twice} has already been marked as ready")));
        }
        let End::Sends { envelope, to, first_tag } = channel.end else {
            (low..=high).for_each(|part| channel.parts[part] = Part::Done);
            channel.left -= (low..=high).count();
            return Ok(channel.is_over());
        };
        let len = channel.part_len();
        for part in low..=high {
            let envelope = Envelope { tag: first_tag + part as i32, ..envelope };
            let started = engine.send(envelope, to, Mode::Standard, channel.buffer.part(part * len, len));
            channel.note(part, started);
        }
        Ok(channel.is_over())
    }

    /// `MPI_Parrived`: whether a part is here; true for inactive requests.
    pub fn has_arrived(&self, id: PartitionedId, part: i32) -> MpiResult<bool> {
        let channel = self.channels.get(&id).ok_or_else(unknown)?;
        let End::Receives { hello, .. } = &channel.end else {
            return match channel.end {
                End::Nowhere { receives: true } => channel.part(part).map(|_| true),
                _ => Err(MpiError::request("the request is not a partitioned receive request")),
            };
        };
        let part = channel.part(part)?;
        if !channel.active {
            return Ok(true);
        }
        let Some(hello) = hello else { return Ok(channel.error.is_some()) };
        let (len, sent_len) = (channel.part_len(), hello.bytes as usize);
        let is_done = |part: usize| channel.parts.get(part).is_none_or(|part| *part == Part::Done);
        Ok(match (len, sent_len) {
            _ if channel.parts.len() == channel.partitions => is_done(part),
            (0, _) | (_, 0) => channel.left == 0,
            _ => (part * len / sent_len..=((part + 1) * len - 1) / sent_len).all(is_done),
        })
    }

    /// Whether a started request is complete; true for an inactive one.
    pub fn is_over(&self, id: PartitionedId) -> bool {
        self.channels.get(&id).is_none_or(|channel| !channel.active || channel.is_over())
    }

    /// Whether a request is started.
    pub fn is_active(&self, id: PartitionedId) -> bool {
        self.channels.get(&id).is_some_and(|channel| channel.active)
    }

    /// The status of a completed request.
    pub fn status(&self, id: PartitionedId) -> Status {
        match self.channels.get(&id) {
            Some(channel) if channel.active => channel.status(),
            _ => Status::EMPTY,
        }
    }

    /// The result of a request, if it is complete; then it is inactive.
    pub fn finish(&mut self, id: PartitionedId) -> Option<Finished> {
        let channel = self.channels.get_mut(&id)?;
        if !channel.active {
            return Some(Finished::NOTHING);
        }
        if !channel.is_over() {
            return None;
        }
        channel.active = false;
        let error = channel.error.take().map(|error| error.on(channel.comm));
        Some(Finished { status: channel.status(), error, ..Finished::NOTHING })
    }

    /// `MPI_Request_free`.
    pub fn free<T: Transport>(&mut self, engine: &mut Engine<T>, id: PartitionedId) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        for part in std::mem::take(&mut channel.parts) {
            if let Part::Underway(id) = part {
                engine.forget(id);
            }
        }
        channel.active = false;
        channel.buffer = Buffer::EMPTY;
        // Otherwise its announcement would be taken for that of the next request.
        let is_expected = matches!(channel.end, End::Receives { hello: None, .. }) && channel.broken.is_none();
        if is_expected {
            channel.freed = true;
        } else {
            self.channels.remove(&id);
        }
    }

    /// Advances; returns whether anything moved.
    pub fn progress<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        if self.seen.replace(engine.finished()) == Some(engine.finished()) {
            return false;
        }
        let mut moved = false;
        for hello in std::mem::take(&mut self.hellos) {
            // A failure shows again when a part is sent.
            self.hellos.extend(hello.outcome(engine).err());
        }
        while let Some((origin, came)) = self.next_hello(engine) {
            moved = true;
            match came {
                Ok(hello) => self.on_hello(engine, origin, hello),
                Err(error) => self.on_broken(origin, &error),
            }
        }
        for channel in self.channels.values_mut().filter(|channel| channel.left > 0) {
            moved |= channel.settle(engine);
        }
        moved
    }

    fn next_hello<T: Transport>(&mut self, engine: &mut Engine<T>) -> Option<(Origin, MpiResult<Hello>)> {
        let mut found = None;
        for Listener { origin, lent } in std::mem::take(&mut self.listeners) {
            if found.is_some() {
                self.listeners.push(Listener { origin, lent });
                continue;
            }
            match lent.outcome(engine) {
                Err(lent) => self.listeners.push(Listener { origin, lent }),
                Ok((outcome, bytes)) => found = Some((origin, Hello::of(&outcome, &bytes))),
            }
        }
        found
    }

    fn unmatched(&mut self, of: Origin) -> impl Iterator<Item = (PartitionedId, i32, &mut Channel)> {
        self.channels.iter_mut().filter_map(move |(id, channel)| match channel.end {
            End::Receives { origin, tag, hello: None } if origin == of && channel.broken.is_none() => {
                Some((*id, tag, channel))
            }
            _ => None,
        })
    }

    fn on_hello<T: Transport>(&mut self, engine: &mut Engine<T>, origin: Origin, hello: Hello) {
        let found = self.unmatched(origin).find(|(_, tag, _)| *tag == hello.tag);
        match found {
            None => self.early.push((origin, hello)),
            Some((id, _, channel)) if channel.freed => drop(self.channels.remove(&id)),
            Some((_, _, channel)) => {
                channel.end = End::Receives { origin, tag: hello.tag, hello: Some(hello) };
                if channel.active {
                    channel.post(engine);
                }
            }
        }
        if self.unmatched(origin).next().is_some() {
            self.listen(engine, origin);
        }
    }

    /// The process from which announcements were expected is lost or has finalized.
    fn on_broken(&mut self, origin: Origin, error: &MpiError) {
        for (_, _, channel) in self.unmatched(origin) {
            channel.broken = Some(error.clone());
            channel.error.get_or_insert_with(|| error.clone());
        }
        self.channels.retain(|_, channel| !(channel.freed && channel.broken.is_some()));
    }

    fn get_mut(&mut self, id: PartitionedId) -> MpiResult<&mut Channel> {
        self.channels.get_mut(&id).ok_or_else(unknown)
    }
}

impl Channel {
    fn expect(&mut self, parts: usize) {
        self.parts.resize(parts, Part::Waiting);
        self.left = parts;
    }

    /// Bytes of one of this process's parts.
    fn part_len(&self) -> usize {
        self.buffer.len().checked_div(self.partitions).unwrap_or(0)
    }

    /// Posts the receives of all parts, if the sender is known.
    fn post<T: Transport>(&mut self, engine: &mut Engine<T>) {
        let End::Receives { origin, hello: Some(hello), .. } = self.end else { return };
        self.expect(hello.partitions as usize);
        let (len, room) = (usize::try_from(hello.bytes).unwrap_or(usize::MAX), self.buffer.len());
        for part in 0..self.parts.len() {
            // What does not fit is an error of the message.
            let at = part.saturating_mul(len).min(room);
            let (from, tag) = (Source::Rank(origin.place), TagMatch::Value(hello.first_tag + part as i32));
            let started = engine.recv(origin.context, from, tag, self.buffer.part(at, len.min(room - at)));
            self.note(part, started);
        }
    }

    fn note(&mut self, part: usize, started: Started) {
        match started {
            Started::Pending(id) => self.parts[part] = Part::Underway(id),
            Started::Over(outcome) => self.done(part, outcome),
        }
    }

    fn done(&mut self, part: usize, outcome: Outcome) {
        self.parts[part] = Part::Done;
        self.left -= 1;
        self.bytes += outcome.bytes;
        self.error = self.error.take().or(outcome.error.map(|error| *error));
    }

    fn settle<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        let before = self.left;
        for part in 0..self.parts.len() {
            if let Part::Underway(id) = self.parts[part]
                && let Some(outcome) = engine.take(id)
            {
                self.done(part, outcome);
            }
        }
        self.left < before
    }

    /// Whether it is complete. After an error, only parts that are under way are waited for: the user's memory is in use.
    fn is_over(&self) -> bool {
        match &self.end {
            End::Nowhere { receives: true } => true,
            End::Receives { hello: None, .. } => self.error.is_some(),
            End::Nowhere { receives: false } | End::Sends { .. } | End::Receives { .. } => self.left == 0,
        }
    }

    fn status(&self) -> Status {
        match &self.end {
            End::Nowhere { receives: true } => Status::PROC_NULL,
            End::Nowhere { receives: false } | End::Sends { .. } => Status::EMPTY,
            End::Receives { origin, tag, .. } => Status::new(origin.rank as i32, *tag, self.bytes),
        }
    }

    /// The index of a part that the user names.
    fn part(&self, part: i32) -> MpiResult<usize> {
        usize::try_from(part).ok().filter(|part| *part < self.partitions).ok_or_else(|| {
            MpiError::arg(format!("invalid partition {part}: the request has {} partitions", self.partitions))
        })
    }
}

impl Hello {
    fn encode(self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.first_tag.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.partitions.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes
    }

    fn of(outcome: &Outcome, bytes: &[u8]) -> MpiResult<Self> {
        if let Some(error) = &outcome.error {
            return Err((**error).clone());
        }
        let word = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk::<4>().copied()).unwrap_or_default();
        let long = bytes.get(16..).and_then(|rest| rest.first_chunk::<8>().copied()).unwrap_or_default();
        let (tag, first_tag) = (i32::from_ne_bytes(word(0)), i32::from_ne_bytes(word(4)));
        let hello = Self { tag, first_tag, partitions: u32::from_ne_bytes(word(8)), bytes: u64::from_ne_bytes(long) };
        let is_valid = outcome.bytes == HELLO_LEN as u64
            && hello.partitions as usize <= PARTITIONS_MAX
            && first_tag > HELLO_TAG
            && first_tag.checked_add(hello.partitions as i32).is_some();
        if is_valid { Ok(hello) } else { Err(MpiError::intern("the sender announced an invalid partitioned message")) }
    }
}

#[cold]
fn unknown() -> MpiError {
    MpiError::request("invalid or freed request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_decoded_as_it_was_encoded_and_an_invalid_one_is_refused() {
        let hello = Hello { tag: 7, first_tag: 3, partitions: 1000, bytes: 1 << 40 };
        let whole = Outcome { source: 0, tag: 0, bytes: HELLO_LEN as u64, cancelled: false, error: None };
        assert_eq!(Hello::of(&whole, &hello.encode()), Ok(hello));
        let short = Outcome { bytes: 4, ..whole.clone() };
        assert!(Hello::of(&short, &hello.encode()).is_err());
        for invalid in [
            Hello { first_tag: 0, ..hello },
            Hello { first_tag: i32::MAX, ..hello },
            Hello { partitions: u32::MAX, ..hello },
        ] {
            assert!(Hello::of(&whole, &invalid.encode()).is_err());
        }
    }

    #[test]
    fn reserved_tags_do_not_overlap_and_begin_again_at_the_end() {
        let mut partitions = Partitions::default();
        assert_eq!((partitions.reserve_tags(3), partitions.reserve_tags(2), partitions.reserve_tags(0)), (1, 4, 6));
        partitions.tags = i32::MAX - 1;
        assert_eq!((partitions.reserve_tags(2), partitions.reserve_tags(1)), (1, 3));
    }

    #[test]
    fn tags_that_are_still_used_are_left_out() {
        let mut partitions = Partitions::default();
        let mut used = |first_tag: i32, count: usize| {
            let envelope = Envelope { context: 3, rank: 0, tag: HELLO_TAG };
            partitions.add(CommHandle(1), Buffer::EMPTY, count, End::Sends { envelope, to: Peer(1), first_tag });
        };
        used(11, 90);
        used(1, 4);
        used(5, 2);
        partitions.tags = i32::MAX - 1;
        assert_eq!((partitions.reserve_tags(3), partitions.reserve_tags(2)), (7, 101));
        partitions.tags = i32::MAX - 1;
        assert_eq!(partitions.reserve_tags(5), 101);
        partitions.tags = 9;
        assert_eq!((partitions.reserve_tags(1), partitions.reserve_tags(0), partitions.reserve_tags(7)), (9, 10, 101));
    }
}
