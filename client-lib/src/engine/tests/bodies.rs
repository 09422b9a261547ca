//! Test bodies for whole worlds, which run over any transport. Each checks its results at the end.

#![expect(unsafe_code, reason = "tests lend memory as a user does")]

use std::ops::DerefMut;
use std::sync::Arc;

use super::fake::Rng;
use crate::engine::frame::Envelope;
use crate::engine::{Engine, Mode, Outcome, Peer, RequestId, Source, Started, TagMatch, Transport};
use crate::memory::Buffer;

/// The processes of a test; process r is peer r.
pub(crate) trait World {
    /// The transport of their frames.
    type Carrier: Transport;

    /// A locked engine.
    type Held<'a>: DerefMut<Target = Engine<Self::Carrier>>
    where
        Self: 'a;

    /// The number of processes.
    fn size(&self) -> usize;

    /// A length that needs several frames even for half of it.
    fn long(&self) -> usize;

    /// The engine of one process.
    fn engine(&mut self, rank: usize) -> Self::Held<'_>;

    /// Lets one or all of them make progress.
    fn step(&mut self);

    /// Whether something that has not happened after this many steps may still happen.
    fn has_patience(&self, steps: usize) -> bool;
}

/// Memory that a user lends.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    len: usize,
}

impl Memory {
    /// Memory that holds these bytes.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let bytes = bytes.into_boxed_slice();
        Self { len: bytes.len(), base: Box::into_raw(bytes).cast() }
    }

    /// Memory to receive this many bytes.
    pub(crate) fn room(len: usize) -> Self {
        Self::of(vec![0xee; len])
    }

    /// The buffer to lend; it must not outlive the memory.
    pub(crate) fn buffer(&self) -> Buffer {
        // SAFETY: the memory exists until the value is dropped, which tests do when the operation is over.
        unsafe { Buffer::contiguous(self.base, self.len) }
    }

    /// The current content.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: made from a box of this length, and not written while tests read it.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A failed test leaves operations behind that still use the memory.
        if std::thread::panicking() {
            return;
        }
        // SAFETY: made by `Box::into_raw` of a slice of this length, once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.base, self.len)) });
    }
}

/// A send or receive in progress, with its memory.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) rank: usize,
    pub(crate) memory: Memory,
    started: Started,
}

/// Opens a communicator of all processes in the world.
pub(crate) fn open(world: &mut impl World, context: u32) {
    let members: Arc<[Peer]> = (0..world.size() as u32).map(Peer).collect();
    for rank in 0..world.size() {
        world.engine(rank).open(context, Arc::clone(&members));
    }
}

/// Starts to send bytes from process `envelope.rank`.
pub(crate) fn send(world: &mut impl World, envelope: Envelope, to: usize, mode: Mode, bytes: Vec<u8>) -> Pending {
    let (rank, memory) = (envelope.rank as usize, Memory::of(bytes));
    let started = world.engine(rank).start_send(envelope, Peer(to as u32), mode, memory.buffer());
    Pending { rank, memory, started }
}

/// Starts to receive this many bytes.
pub(crate) fn recv(
    world: &mut impl World,
    rank: usize,
    context: u32,
    source: Source,
    tag: TagMatch,
    room: usize,
) -> Pending {
    let memory = Memory::room(room);
    let started = world.engine(rank).recv_catching(context, source, tag, memory.buffer());
    Pending { rank, memory, started }
}

impl Pending {
    /// The request, if there is one.
    pub(crate) fn id(&self) -> Option<RequestId> {
        match self.started {
            Started::Over(_) => None,
            Started::Pending(id) => Some(id),
        }
    }

    /// Whether it is complete.
    pub(crate) fn is_over(&self, world: &mut impl World) -> bool {
        self.id().is_none_or(|id| world.engine(self.rank).outcome(id).is_some())
    }

    /// Runs the world until it is complete.
    pub(crate) fn wait(self, world: &mut impl World) -> (Outcome, Memory) {
        let Self { rank, memory, started } = self;
        let id = match started {
            Started::Over(outcome) => return (outcome, memory),
            Started::Pending(id) => id,
        };
        let mut outcome = None;
        until(world, |world| {
            outcome = world.engine(rank).take(id);
            outcome.is_some()
        });
        (outcome.expect("just set"), memory)
    }
}

/// Runs the world until a condition holds.
pub(crate) fn until<W: World>(world: &mut W, mut holds: impl FnMut(&mut W) -> bool) {
    let mut steps = 0;
    while !holds(world) {
        assert!(world.has_patience(steps), "the condition does not hold after {steps} steps");
        world.step();
        steps += 1;
    }
}

/// Bytes that identify their sender and their position in the message.
pub(crate) fn pattern(envelope: Envelope, number: usize, len: usize) -> Vec<u8> {
    let seed =
        envelope.rank.wrapping_mul(31).wrapping_add(envelope.tag as u32).wrapping_mul(31).wrapping_add(number as u32);
    (0..len as u32).map(|at| (at.wrapping_add(seed).wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

/// Asserts that everything has been sent, received and taken.
pub(crate) fn finish(world: &mut impl World) {
    until(world, |world| (0..world.size()).all(|rank| world.engine(rank).quiet()));
    let all_peers: Vec<Peer> = (0..world.size() as u32).map(Peer).collect();
    for rank in 0..world.size() {
        world.engine(rank).say_bye(&all_peers);
    }
    until(world, |world| (0..world.size()).all(|rank| world.engine(rank).byes_missing() == 0));
    until(world, |world| (0..world.size()).all(|rank| world.engine(rank).quiet()));
    for rank in 0..world.size() {
        assert_eq!(world.engine(rank).leftovers(), [0; 4], "rank {rank}: requests, messages, early frames, errands");
    }
}

/// A message travels round the ring, growing longer than any frame.
pub(crate) fn ring(world: &mut impl World) {
    open(world, 1);
    let size = world.size();
    for round in 0..4 {
        let len = round * world.long() / 5;
        for rank in 0..size {
            let envelope = Envelope { context: 1, rank: rank as u32, tag: round as i32 };
            let next = (rank + 1) % size;
            let expected = pattern(envelope, round, len);
            let send = send(world, envelope, next, Mode::Standard, expected.clone());
            let (tag, source) = (TagMatch::Value(round as i32), Source::Rank(rank as u32));
            let (outcome, memory) = recv(world, next, 1, source, tag, len).wait(world);
            assert_eq!((outcome.error, outcome.source, outcome.bytes), (None, rank as u32, len as u64));
            assert_eq!(memory.bytes(), expected);
            assert_eq!(send.wait(world).0.error, None);
        }
    }
    finish(world);
}

/// Each process sends messages of random lengths, tags and modes to random processes, itself included; receives are as
/// general as their communicator permits, and are posted before and after the messages. If two messages could match the
/// same receives, the first one sent goes to the receive posted first.
pub(crate) fn everybody_at_once(world: &mut impl World, seed: u64, messages: usize) {
    let (mut rng, size) = (Rng(seed), world.size());
    let longest = world.long() * 3 / 2;
    for context in 0..4 {
        open(world, context);
    }
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    let mut plans: Vec<(Envelope, usize)> = Vec::new();
    for _ in 0..messages {
        let rank = rng.below(size) as u32;
        let envelope = Envelope { context: rng.below(4) as u32, rank, tag: rng.below(3) as i32 };
        plans.push((envelope, rng.below(size)));
    }
    let (mut to_send, mut to_receive) = (0, 0);
    while to_send < messages || to_receive < messages {
        match rng.below(3) {
            0 if to_send < messages => {
                let (envelope, to) = plans[to_send];
                let mode = [Mode::Standard, Mode::Synchronous, Mode::Ready][rng.below(3)];
                let len = 4 + [0, rng.below(10), rng.below(longest)][rng.below(3)];
                let mut bytes = (to_send as u32).to_ne_bytes().to_vec();
                bytes.extend(pattern(envelope, to_send, len - 4));
                sends.push(send(world, envelope, to, mode, bytes));
                to_send += 1;
            }
            1 if to_receive < messages => {
                let (Envelope { context, rank, tag }, to) = plans[to_receive];
                let source = if context & 1 == 0 { Source::Rank(rank) } else { Source::Any };
                let tag = if context & 2 == 0 { TagMatch::Value(tag) } else { TagMatch::Any };
                receives.push((context, recv(world, to, context, source, tag, longest + 4)));
                to_receive += 1;
            }
            _pause => world.step(),
        }
    }
    // Per communicator, sender, receiver and tag: the number of the last message received.
    let mut last = std::collections::HashMap::new();
    for (context, receive) in receives {
        let rank = receive.rank;
        let (outcome, memory) = receive.wait(world);
        assert_eq!(outcome.error, None);
        let bytes = &memory.bytes()[..outcome.bytes as usize];
        let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let envelope = Envelope { context, rank: outcome.source, tag: outcome.tag };
        assert_eq!(plans[number], (envelope, rank));
        assert_eq!(bytes[4..], pattern(envelope, number, bytes.len() - 4));
        let before = last.insert((envelope, rank), number);
        assert!(before.is_none_or(|before| before < number), "message {number} was received after {before:?}");
    }
    for send in sends {
        assert_eq!(send.wait(world).0.error, None);
    }
    finish(world);
}

/// A message that is too long fills the memory, and the receive reports an error.
pub(crate) fn truncated(world: &mut impl World) {
    open(world, 1);
    let last = world.size() - 1;
    let long = world.long();
    let lens = [(5, 4), (8, 0), (long, 0), (long, 1), (long, long - 1), (64, 63)];
    for (number, (len, room)) in lens.into_iter().enumerate() {
        for (posted_first, mode) in [(true, Mode::Standard), (false, Mode::Standard), (false, Mode::Synchronous)] {
            let envelope = Envelope { context: 1, rank: 0, tag: 3 };
            let bytes = pattern(envelope, number, len);
            let early = posted_first.then(|| recv(world, last, 1, Source::Rank(0), TagMatch::Any, room));
            let send = send(world, envelope, last, mode, bytes.clone());
            for _ in 0..if posted_first { 0 } else { 50 } {
                world.step();
            }
            let receive = early.unwrap_or_else(|| recv(world, last, 1, Source::Rank(0), TagMatch::Any, room));
            let (outcome, memory) = receive.wait(world);
            let error = outcome.error.expect("the message was too long");
            assert_eq!(error.class, crate::abi::constants::MPI_ERR_TRUNCATE);
            assert_eq!(error.text, format!("the message has {len} bytes, the receive buffer {room}"));
            assert_eq!((outcome.source, outcome.tag, outcome.bytes), (0, 3, room as u64));
            assert_eq!(memory.bytes(), &bytes[..room]);
            assert_eq!(send.wait(world).0.error, None);
        }
    }
    finish(world);
}

/// Short and long messages are probed before they are received, and removed from matching.
pub(crate) fn probed(world: &mut impl World) {
    open(world, 1);
    let last = world.size() - 1;
    let mut sends = Vec::new();
    let long = world.long();
    for (tag, len) in [0, 5, long, 0, 5, long].into_iter().enumerate() {
        let envelope = Envelope { context: 1, rank: 0, tag: tag as i32 };
        sends.push(send(world, envelope, last, Mode::Standard, pattern(envelope, 0, len)));
    }
    let mut expected: Vec<(i32, usize)> = vec![(0, 0), (1, 5), (2, long), (3, 0), (4, 5), (5, long)];
    for (at, tag) in [(3, TagMatch::Value(3)), (4, TagMatch::Any), (0, TagMatch::Any), (0, TagMatch::Value(2))] {
        // The fourth message can only arrive after the previous ones: all were sent in this order.
        until(world, |world| world.engine(last).probe(1, Source::Any, TagMatch::Value(5)) != Ok(None));
        let at = if tag == TagMatch::Any { 0 } else { at };
        let (expected_tag, len) = expected.remove(at);
        let mut engine = world.engine(last);
        let probed = engine.probe(1, Source::Rank(0), tag).expect("no peer is lost").expect("it has come");
        assert_eq!((probed.source, probed.tag, probed.bytes), (0, expected_tag, len as u64));
        let (message, again) = engine.mprobe(1, Source::Any, tag).expect("no peer is lost").expect("it has come");
        assert_eq!(again, probed);
        assert_eq!(engine.probe(1, Source::Any, TagMatch::Value(expected_tag)), Ok(None));
        let memory = Memory::room(len);
        let started = engine.mrecv(message, memory.buffer());
        drop(engine);
        let (outcome, memory) = Pending { rank: last, memory, started }.wait(world);
        assert_eq!((outcome.tag, outcome.error), (expected_tag, None));
        assert_eq!(memory.bytes(), pattern(Envelope { context: 1, rank: 0, tag: expected_tag }, 0, len));
    }
    for (tag, len) in expected {
        let (outcome, _) = recv(world, last, 1, Source::Any, TagMatch::Any, len).wait(world);
        assert_eq!((outcome.tag, outcome.bytes), (tag, len as u64));
    }
    for send in sends {
        assert_eq!(send.wait(world).0.error, None);
    }
    finish(world);
}

/// A cancelled receive gets no message; the next receive does.
pub(crate) fn cancelled(world: &mut impl World) {
    open(world, 1);
    let last = world.size() - 1;
    for source in [Source::Rank(0), Source::Any] {
        let first = recv(world, last, 1, source, TagMatch::Any, 8);
        let second = recv(world, last, 1, source, TagMatch::Value(1), 8);
        assert!(world.engine(last).cancel(first.id().expect("nothing was sent")));
        let (outcome, _) = first.wait(world);
        assert!(outcome.cancelled && outcome.error.is_none());
        let envelope = Envelope { context: 1, rank: 0, tag: 1 };
        let mut sent = send(world, envelope, last, Mode::Synchronous, vec![7; 8]);
        if let Some(id) = sent.id()
            && world.engine(0).cancel(id)
        {
            // Nothing of it had left the process.
            assert!(sent.wait(world).0.cancelled);
            sent = send(world, envelope, last, Mode::Synchronous, vec![7; 8]);
        }
        let id = second.id().expect("nothing was sent");
        until(world, |world| world.engine(last).outcome(id).is_some());
        assert!(!world.engine(last).cancel(id), "it is over");
        let (outcome, memory) = second.wait(world);
        assert_eq!((outcome.cancelled, outcome.error, memory.bytes()), (false, None, &[7; 8][..]));
        assert_eq!(sent.wait(world).0.error, None);
    }
    finish(world);
}

/// A send that its receiver has heard of can be made independent of its memory, which then may change.
pub(crate) fn detached(world: &mut impl World) {
    open(world, 1);
    let last = world.size() - 1;
    for mode in [Mode::Standard, Mode::Synchronous] {
        for len in [5, world.long() * 3 / 2, world.long() * 20] {
            let envelope = Envelope { context: 1, rank: 0, tag: 1 };
            let sent = send(world, envelope, last, mode, pattern(envelope, 0, len));
            until(world, |world| world.engine(last).probe(1, Source::Rank(0), TagMatch::Value(1)) != Ok(None));
            let before = sent.id().filter(|id| world.engine(0).outcome(*id).is_none());
            if let Some(id) = before
                && last > 0
            {
                assert!(!world.engine(0).cancel(id), "its receiver has heard of it");
                // That has completed a send whose memory was lent.
                let over = world.engine(0).take(id);
                let outcome = match over {
                    Some(outcome) => outcome,
                    None => world.engine(0).detach(id).expect("it was announced"),
                };
                assert_eq!((outcome.bytes, outcome.cancelled), (len as u64, false));
                sent.memory.buffer().write(0, &vec![0; len]);
            }
            let (outcome, memory) = recv(world, last, 1, Source::Rank(0), TagMatch::Value(1), len).wait(world);
            assert_eq!((outcome.error, memory.bytes()), (None, &pattern(envelope, 0, len)[..]));
            if last == 0 || before.is_none() {
                assert_eq!(sent.wait(world).0.error, None);
            }
        }
    }
    until(world, |world| world.engine(0).leftovers() == [0; 4]);
    finish(world);
}

/// A synchronous send does not complete before its receive is posted; a short one in standard mode does.
pub(crate) fn synchronous(world: &mut impl World) {
    open(world, 1);
    for to in [0, world.size() - 1] {
        for len in [0, 5, world.long() * 3 / 2] {
            let envelope = Envelope { context: 1, rank: 0, tag: 1 };
            let send = send(world, envelope, to, Mode::Synchronous, pattern(envelope, 0, len));
            until(world, |world| world.engine(to).probe(1, Source::Rank(0), TagMatch::Value(1)) != Ok(None));
            for _ in 0..100 {
                world.step();
            }
            assert!(!send.is_over(world));
            let (outcome, memory) = recv(world, to, 1, Source::Rank(0), TagMatch::Value(1), len).wait(world);
            assert_eq!((outcome.error, memory.bytes()), (None, &pattern(envelope, 0, len)[..]));
            assert_eq!(send.wait(world).0.error, None);
        }
    }
    finish(world);
}

/// Messages wait for a communicator that the receiving process has not made yet.
pub(crate) fn opened_late(world: &mut impl World) {
    let last = world.size() - 1;
    let members: Arc<[Peer]> = (0..world.size() as u32).map(Peer).collect();
    world.engine(0).open(9, Arc::clone(&members));
    let lens = [3, world.long() * 3 / 2, 0, 64];
    let envelope = Envelope { context: 9, rank: 0, tag: 0 };
    let mut sends = Vec::new();
    for (number, len) in lens.into_iter().enumerate() {
        let mode = if number == 3 { Mode::Synchronous } else { Mode::Standard };
        sends.push(send(world, envelope, last, mode, pattern(envelope, number, len)));
    }
    for _ in 0..500 {
        world.step();
    }
    world.engine(last).open(9, members);
    for (number, len) in lens.into_iter().enumerate() {
        let (outcome, memory) = recv(world, last, 9, Source::Any, TagMatch::Value(0), len).wait(world);
        assert_eq!((outcome.error, outcome.bytes), (None, len as u64));
        assert_eq!(memory.bytes(), pattern(envelope, number, len));
    }
    for send in sends {
        assert_eq!(send.wait(world).0.error, None);
    }
    finish(world);
}
