//! Long messages that have come before their receive: which call reads them.

use super::bodies::{self, World, pattern, recv, send, until};
use super::fake::{FakeWorld, Oddities};
use crate::engine::{Envelope, FrameLimits, Mode, Source, TagMatch};

const LONG: usize = 1000;
const TO_LAST: Envelope = Envelope { context: 1, rank: 0, tag: 3 };
const BACK: Envelope = Envelope { context: 1, rank: 1, tag: 4 };

/// A world in which process 0 has announced a message to process 1.
fn announced(seed: u64, pull: bool) -> (FakeWorld, bodies::Pending) {
    let limits = FrameLimits { eager: 64, eager_device: 64, part: 500, part_device: 500, lent: usize::MAX };
    let oddities = Oddities { limits, room: 20, full: 0, late: 0, pull, landing: false };
    let mut world = FakeWorld::with(2, seed, oddities);
    bodies::open(&mut world, 1);
    let send = send(&mut world, TO_LAST, 1, Mode::Standard, pattern(TO_LAST, 0, LONG));
    until(&mut world, |world| world.engine(1).unexpected() == 1);
    (world, send)
}

fn receive(world: &mut FakeWorld) -> bodies::Pending {
    recv(world, 1, 1, Source::Rank(0), TagMatch::Any, LONG)
}

fn finish(mut world: FakeWorld, operations: Vec<bodies::Pending>) {
    for operation in operations {
        assert_eq!(operation.wait(&mut world).0.error, None);
    }
    bodies::finish(&mut world);
}

#[test]
fn a_process_that_also_sends_lets_its_peer_begin_before_it_reads() {
    let mut read_by_the_send = 0;
    for seed in 0..40 {
        let (mut world, sent) = announced(seed, true);
        world.engine(1).set_deferring(true);
        let received = receive(&mut world);
        assert!(received.memory.bytes().iter().all(|byte| *byte == 0xee), "the receive itself does not read");
        let reply = send(&mut world, BACK, 0, Mode::Standard, pattern(BACK, 0, LONG));
        // The transport may need more time, or refuse.
        read_by_the_send += usize::from(received.memory.bytes() == pattern(TO_LAST, 0, LONG));
        let reply_received = recv(&mut world, 0, 1, Source::Rank(1), TagMatch::Any, LONG);
        let (outcome, memory) = received.wait(&mut world);
        assert_eq!((outcome.error, memory.bytes()), (None, &pattern(TO_LAST, 0, LONG)[..]));
        finish(world, vec![sent, reply, reply_received]);
    }
    assert!(read_by_the_send > 10, "{read_by_the_send} of 40");
}

#[test]
fn where_another_thread_makes_progress_the_receive_reads() {
    let mut read_by_the_receive = 0;
    for seed in 0..40 {
        let (mut world, sent) = announced(seed, true);
        world.engine(1).set_deferring(false);
        let received = receive(&mut world);
        read_by_the_receive += usize::from(received.memory.bytes() == pattern(TO_LAST, 0, LONG));
        finish(world, vec![sent, received]);
    }
    assert!(read_by_the_receive > 10, "{read_by_the_receive} of 40");
}

#[test]
fn a_message_that_cannot_be_read_is_requested_at_once() {
    let (mut world, sent) = announced(1, false);
    world.engine(1).set_deferring(true);
    let received = receive(&mut world);
    // Process 1 computes from now on.
    for _ in 0..20 {
        world.engine(0).progress();
    }
    assert!(sent.is_over(&mut world), "all parts are on their way");
    finish(world, vec![sent, received]);
}
