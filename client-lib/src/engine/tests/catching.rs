//! Receives that find their message in the transport.

use super::bodies::{self, Pending, World, open, pattern, recv, send};
use super::fake::{FakeWorld, Oddities};
use crate::engine::{Envelope, Frame, FrameLimits, Mode, Peer, Source, TagMatch};

const LEN: usize = 40;
const TO_LAST: Envelope = Envelope { context: 1, rank: 0, tag: 3 };

/// A world of three processes in which a frame arrives at once, and process 0 has sent so many messages to process 2.
fn sent(messages: usize) -> (FakeWorld, Vec<Pending>) {
    sent_with(1, messages)
}

fn sent_with(seed: u64, messages: usize) -> (FakeWorld, Vec<Pending>) {
    let limits = FrameLimits { eager: 64, eager_device: 64, part: 500, part_device: 500, lent: usize::MAX };
    let oddities = Oddities { limits, room: 100, full: 0, late: 0, pull: false, landing: false };
    let mut world = FakeWorld::with(3, seed, oddities);
    open(&mut world, 1);
    open(&mut world, 2);
    let send = |at| send(&mut world, TO_LAST, 2, Mode::Standard, pattern(TO_LAST, at, LEN));
    let sends = (0..messages).map(send).collect();
    (world, sends)
}

fn receive(world: &mut FakeWorld, source: Source, tag: TagMatch) -> Pending {
    recv(world, 2, 1, source, tag, LEN)
}

fn finish(mut world: FakeWorld, operations: Vec<Pending>) {
    for operation in operations {
        assert_eq!(operation.wait(&mut world).0.error, None);
    }
    bodies::finish(&mut world);
}

#[test]
fn messages_that_have_come_are_received_without_requests_and_in_order() {
    let (mut world, sends) = sent(10);
    for at in 0..10 {
        let source = [Source::Rank(0), Source::Any][at % 2];
        let tag = [TagMatch::Value(3), TagMatch::Any][at / 2 % 2];
        let received = receive(&mut world, source, tag);
        assert!(received.id().is_none() && world.caught() == at + 1, "message {at}");
        let (outcome, memory) = received.wait(&mut world);
        assert_eq!((outcome.source, outcome.tag, outcome.bytes, outcome.error), (0, 3, LEN as u64, None));
        assert_eq!(memory.bytes(), pattern(TO_LAST, at, LEN));
    }
    finish(world, sends);
}

#[test]
fn a_message_that_another_receive_gets_is_not_caught() {
    let (mut world, mut operations) = sent(0);
    let first = receive(&mut world, Source::Any, TagMatch::Any);
    for at in 0..2 {
        operations.push(send(&mut world, TO_LAST, 2, Mode::Standard, pattern(TO_LAST, at, LEN)));
    }
    let second = receive(&mut world, Source::Rank(0), TagMatch::Value(3));
    assert_eq!(world.caught(), 0);
    for (at, received) in [first, second].into_iter().enumerate() {
        assert_eq!(received.wait(&mut world).1.bytes(), pattern(TO_LAST, at, LEN));
    }
    finish(world, operations);
}

#[test]
fn a_message_that_does_not_suit_the_receive_stays() {
    let other = Envelope { rank: 1, ..TO_LAST };
    for (source, tag, context) in
        [(Source::Rank(1), TagMatch::Any, 1), (Source::Any, TagMatch::Value(4), 1), (Source::Any, TagMatch::Any, 2)]
    {
        let mut left = 0;
        for seed in 0..20 {
            let (mut world, mut operations) = sent_with(seed, 1);
            let received = recv(&mut world, 2, context, source, tag, LEN);
            left += world.left();
            assert_eq!(world.caught(), 0);
            let envelope = match source {
                Source::Rank(1) => other,
                _any => Envelope { tag: 4, context, ..TO_LAST },
            };
            operations.push(send(&mut world, envelope, 2, Mode::Standard, pattern(envelope, 0, LEN)));
            assert_eq!(received.wait(&mut world).1.bytes(), pattern(envelope, 0, LEN));
            let first = receive(&mut world, Source::Rank(0), TagMatch::Value(3));
            assert_eq!(first.wait(&mut world).1.bytes(), pattern(TO_LAST, 0, LEN));
            finish(world, operations);
        }
        // Where the source is named, the transport often offers nothing of another one.
        assert!(left > 2, "the message was offered {left} times");
    }
}

#[test]
fn a_stored_message_comes_before_one_that_the_transport_has() {
    let (mut world, mut operations) = sent(1);
    world.engine(2).progress();
    assert_eq!(world.engine(2).unexpected(), 1);
    operations.push(send(&mut world, TO_LAST, 2, Mode::Standard, pattern(TO_LAST, 1, LEN)));
    for at in 0..2 {
        let received = receive(&mut world, Source::Any, TagMatch::Any);
        assert_eq!((received.id(), world.caught()), (None, at));
        assert_eq!(received.wait(&mut world).1.bytes(), pattern(TO_LAST, at, LEN));
    }
    finish(world, operations);
}

#[test]
fn only_whole_messages_of_members_are_caught() {
    // A synchronous one, whose sender needs an answer.
    let (mut world, mut operations) = sent(0);
    operations.push(send(&mut world, TO_LAST, 2, Mode::Synchronous, pattern(TO_LAST, 0, LEN)));
    let received = receive(&mut world, Source::Rank(0), TagMatch::Any);
    assert_eq!(world.caught(), 0);
    assert_eq!(received.wait(&mut world).1.bytes(), pattern(TO_LAST, 0, LEN));
    finish(world, operations);
    // One of a process that claims to be rank 0.
    let (mut world, _) = sent(0);
    world.inject(1, 2, Frame::Eager { envelope: TO_LAST }, &[7; LEN]);
    let received = receive(&mut world, Source::Any, TagMatch::Any);
    assert_eq!(world.caught(), 0);
    world.engine(2).progress();
    assert!(world.engine(2).is_lost(Peer(1)) && !received.is_over(&mut world));
}

#[test]
fn a_process_with_something_to_do_polls_instead() {
    let (mut world, mut operations) = sent(2);
    world.fill_up();
    operations.push(send(&mut world, Envelope { rank: 2, ..TO_LAST }, 0, Mode::Standard, vec![1; 8]));
    assert!(world.engine(2).has_backlog());
    let received = receive(&mut world, Source::Rank(0), TagMatch::Value(3));
    assert_eq!(world.caught(), 0);
    world.empty_again();
    assert_eq!(received.wait(&mut world).1.bytes(), pattern(TO_LAST, 0, LEN));
    let back = recv(&mut world, 0, 1, Source::Rank(2), TagMatch::Any, 8);
    assert_eq!(back.wait(&mut world).1.bytes(), [1; 8]);
    receive(&mut world, Source::Rank(0), TagMatch::Value(3)).wait(&mut world);
    finish(world, operations);
}

#[test]
fn a_message_that_is_too_long_for_its_receive_is_an_error() {
    let (mut world, sends) = sent(1);
    let (outcome, memory) = recv(&mut world, 2, 1, Source::Any, TagMatch::Any, 8).wait(&mut world);
    assert_eq!((world.caught(), outcome.bytes), (1, 8));
    assert!(outcome.error.unwrap().text.contains("has 40 bytes"));
    assert_eq!(memory.bytes(), &pattern(TO_LAST, 0, LEN)[..8]);
    finish(world, sends);
}

#[test]
fn a_process_that_only_receives_polls_now_and_then() {
    let (mut world, sends) = sent(40);
    for at in 0..40 {
        let received = receive(&mut world, Source::Rank(0), TagMatch::Value(3));
        assert_eq!(received.wait(&mut world).1.bytes(), pattern(TO_LAST, at, LEN));
    }
    // The 17th and the 34th are posted.
    assert_eq!(world.caught(), 38);
    finish(world, sends);
}
