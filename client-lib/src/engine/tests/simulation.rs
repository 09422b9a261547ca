//! Whole worlds in one thread: the test bodies over a transport with seeded oddities, and deaths and invalid frames.

use std::sync::Arc;

use super::bodies::{self, Memory, Pending, World, open, recv, send, until};
use super::fake::{FakeWorld, Oddities, Rng};
use crate::abi::constants::MPI_ERR_PROC_ABORTED;
use crate::engine::frame::{Envelope, Frame, Sort};
use crate::engine::{Farewell, FrameLimits, Mode, Outcome, Peer, Source, Started, TagMatch};

/// Runs in worlds of these sizes, with this many seeds.
fn in_worlds(sizes: &[usize], seeds: u64, body: impl Fn(&mut FakeWorld, u64)) {
    for &size in sizes {
        for seed in 0..seeds {
            let mut world = FakeWorld::new(size, seed << 8 | size as u64);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut world, seed)));
            if let Err(panic) = outcome {
                eprintln!("size {size}, seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// As [`in_worlds`], and asserts that no frame is left in flight.
fn in_peace(sizes: &[usize], seeds: u64, body: impl Fn(&mut FakeWorld, u64)) {
    in_worlds(sizes, seeds, |world, seed| {
        body(world, seed);
        assert!(world.is_silent());
    });
}

#[test]
fn a_message_travels_round_the_ring() {
    in_peace(&[1, 2, 3, 16], 10, |world, _| bodies::ring(world));
    in_peace(&[130], 1, |world, _| bodies::ring(world));
}

#[test]
fn each_process_receives_from_all_others_in_order() {
    in_peace(&[1, 2, 5], 20, |world, seed| bodies::everybody_at_once(world, seed, 100));
    in_peace(&[16], 4, |world, seed| bodies::everybody_at_once(world, seed, 400));
    in_peace(&[130], 1, |world, seed| bodies::everybody_at_once(world, seed, 1000));
}

#[test]
fn a_message_that_does_not_fit_is_reported() {
    in_peace(&[1, 2, 3], 16, |world, _| bodies::truncated(world));
}

#[test]
fn a_probed_message_is_the_one_received() {
    in_peace(&[1, 2, 3], 16, |world, _| bodies::probed(world));
}

#[test]
fn a_cancelled_receive_takes_no_message() {
    in_peace(&[1, 2, 3], 16, |world, _| bodies::cancelled(world));
}

#[test]
fn a_send_that_cannot_be_cancelled_becomes_independent_of_its_memory() {
    in_peace(&[1, 2, 3], 64, |world, _| bodies::detached(world));
}

#[test]
fn messages_arrive_in_order_however_little_may_be_stored() {
    for (most, floor) in [(0, 0), (600, 0), (20_000, 1000)] {
        in_peace(&[1, 2, 5], 6, |world, seed| {
            world.limit_stored(most, floor);
            bodies::everybody_at_once(world, seed, 100);
        });
    }
}

#[test]
fn signed_messages_arrive_as_others_do() {
    in_peace(&[1, 2, 3], 10, |world, seed| {
        world.check();
        bodies::everybody_at_once(world, seed, 100);
    });
    let more: [fn(&mut FakeWorld); 5] =
        [bodies::ring, bodies::truncated, bodies::probed, bodies::detached, bodies::opened_late];
    for body in more {
        in_peace(&[2, 3], 10, |world, _| {
            world.check();
            body(world);
        });
    }
}

#[test]
fn a_flood_that_is_not_received_stays_with_its_senders() {
    let limits = FrameLimits { eager: 1000, eager_device: 1000, part: 64, part_device: 64, lent: usize::MAX };
    for (seed, landing) in [(1, false), (2, true)] {
        let oddities = Oddities { limits, room: 5, full: 0, late: 30, pull: false, landing };
        let world = &mut FakeWorld::with(4, seed, oddities);
        world.limit_stored(200_000, 1000);
        open(world, 1);
        open(world, 2);
        let mut floods = Vec::new();
        for at in 0..5000_u32 {
            for rank in [1, 2] {
                let envelope = Envelope { rank, ..ENVELOPE };
                floods.push((rank, at, send(world, envelope, 0, Mode::Standard, vec![at as u8; 8])));
            }
            world.step();
            // Two thirds of the limit for two senders, and what they had copied before they were told.
            let stored = world.engine(0).stored();
            assert!(stored < 420_000, "{stored} bytes are stored after {at} messages");
        }
        // Another sender is not affected.
        let envelope = Envelope { context: 2, rank: 3, tag: 5 };
        let other = send(world, envelope, 0, Mode::Standard, vec![7; 1000]);
        let (outcome, memory) = recv(world, 0, 2, Source::Rank(3), TagMatch::Any, 1000).wait(world);
        assert_eq!((outcome.error, memory.bytes()), (None, &[7; 1000][..]));
        assert_eq!(other.wait(world).0.error, None);
        for (rank, at, sent) in floods {
            let (outcome, memory) = recv(world, 0, 1, Source::Rank(rank), TagMatch::Any, 8).wait(world);
            assert_eq!((outcome.error, memory.bytes()), (None, &[at as u8; 8][..]));
            assert_eq!(sent.wait(world).0.error, None);
        }
        assert_eq!(world.engine(0).stored(), 0);
        // Now short messages complete at once again.
        until(world, |world| {
            let sent = send(world, ENVELOPE, 0, Mode::Standard, vec![1; 8]);
            let is_at_once = sent.id().is_none();
            recv(world, 0, 1, Source::Rank(1), TagMatch::Any, 8).wait(world);
            sent.wait(world);
            is_at_once
        });
        bodies::finish(world);
    }
}

#[test]
fn a_synchronous_send_waits_for_its_receive() {
    in_peace(&[1, 2, 3], 16, |world, _| bodies::synchronous(world));
}

#[test]
fn messages_wait_for_their_communicator() {
    in_peace(&[2, 3], 16, |world, _| bodies::opened_late(world));
}

const ENVELOPE: Envelope = Envelope { context: 1, rank: 1, tag: 5 };

/// The error of an operation that depended on rank 1.
fn error_of(world: &mut FakeWorld, pending: Pending) -> String {
    let error = pending.wait(world).0.error.expect("it depended on a lost process");
    assert_eq!(error.class, MPI_ERR_PROC_ABORTED);
    error.text.into_owned()
}

#[test]
fn only_operations_that_depend_on_a_lost_process_fail() {
    in_worlds(&[3], 40, |world, seed| {
        open(world, 1);
        let from_0 = Envelope { rank: 0, ..ENVELOPE };
        let here = send(world, ENVELOPE, 0, Mode::Standard, vec![1; 4]);
        until(world, |world| world.engine(0).probe(1, Source::Rank(1), TagMatch::Any) != Ok(None));
        let any = recv(world, 0, 1, Source::Any, TagMatch::Value(7), 4000);
        let mut doomed = vec![
            recv(world, 0, 1, Source::Rank(1), TagMatch::Value(6), 4000),
            send(world, from_0, 1, Mode::Standard, vec![0; 4000]),
            send(world, from_0, 1, Mode::Synchronous, vec![0; 4]),
        ];
        let never = send(world, Envelope { tag: 6, ..ENVELOPE }, 0, Mode::Standard, vec![1; 4000]);
        let fine = recv(world, 0, 1, Source::Rank(2), TagMatch::Any, 4);
        // In half of the cases the long message is in flight.
        until(world, |world| seed % 2 == 0 || never.is_over(world));
        world.kill(1);
        let first = doomed.remove(0);
        if first.is_over(world) {
            assert_eq!(first.wait(world).0.error, None);
        } else {
            let (outcome, _) = first.wait(world);
            assert!(outcome.error.is_none_or(|error| error.text == "process 1 is lost: it was killed"));
        }
        for pending in doomed {
            assert_eq!(error_of(world, pending), "process 1 is lost: it was killed");
        }
        let later = recv(world, 0, 1, Source::Rank(1), TagMatch::Value(8), 4);
        assert_eq!(error_of(world, later), "process 1 is lost: it was killed");
        for source in [Source::Rank(1), Source::Any] {
            assert!(world.engine(0).probe(1, source, TagMatch::Value(8)).is_err());
        }
        // Others may still match a receive from any source, until the caller gives it up.
        let id = any.id().unwrap();
        assert_eq!(world.engine(0).interruption(id).unwrap().text, "process 1 is lost: it was killed");
        world.engine(0).acknowledge(1, vec![Peer(1)]);
        assert_eq!(world.engine(0).interruption(id), None);
        assert_eq!(world.engine(0).probe(1, Source::Any, TagMatch::Value(8)), Ok(None));
        world.engine(0).acknowledge(1, Vec::new());
        world.engine(0).interrupt(id);
        assert_eq!(error_of(world, any), "process 1 is lost: it was killed");
        let later = send(world, from_0, 1, Mode::Standard, vec![0; 1]);
        assert_eq!(error_of(world, later), "process 1 is lost: it was killed");
        world.engine(0).open(2, [Peer(0), Peer(1)].into());
        let elsewhere = recv(world, 0, 2, Source::Any, TagMatch::Any, 4);
        world.engine(0).interrupt(elsewhere.id().unwrap());
        assert_eq!(error_of(world, elsewhere), "process 1 is lost: it was killed");

        let (outcome, _) = recv(world, 0, 1, Source::Any, TagMatch::Value(5), 4).wait(world);
        assert!(outcome.error.is_none() || !here.is_over(world), "short messages that have come are received");
        let from_2 = send(world, Envelope { rank: 2, ..ENVELOPE }, 0, Mode::Standard, vec![3; 4]);
        let (outcome, memory) = fine.wait(world);
        assert_eq!((outcome.error, memory.bytes()), (None, &[3; 4][..]));
        assert_eq!(from_2.wait(world).0.error, None);
        until(world, |world| world.engine(0).quiet());
        assert_eq!(world.engine(0).leftovers(), [0; 4]);
    });
}

#[test]
fn stored_messages_that_cannot_be_delivered_are_reported_once_unless_their_receiver_was_declared_lost() {
    for declared in [false, true] {
        for seed in 0..10 {
            let limits = FrameLimits { eager: 100, eager_device: 100, part: 100, part_device: 100, lent: usize::MAX };
            let oddities = Oddities { limits, full: 50, ..Oddities::random(&mut Rng(seed)) };
            let world = &mut FakeWorld::with(2, seed, oddities);
            open(world, 1);
            let to_1 = Envelope { rank: 0, ..ENVELOPE };
            while world.engine(0).quiet() {
                let sent = send(world, to_1, 1, Mode::Standard, vec![1; 4]);
                assert_eq!(sent.wait(world).0.error, None, "it is sent or stored");
            }
            if declared {
                world.engine(0).declare_lost(Peer(1), "its node is gone");
            } else {
                world.kill(1);
            }
            until(world, |world| world.engine(0).quiet());
            let error = world.engine(0).take_undelivered(|_| true).map(|error| error.text.into_owned());
            assert_eq!(error.is_some(), !declared);
            assert!(
                error.is_none_or(|text| text.contains("have not been delivered: process 1 is lost: it was killed"))
            );
            assert!(world.engine(0).take_undelivered(|_| true).is_none());
            let later = recv(world, 0, 1, Source::Rank(1), TagMatch::Any, 4);
            let reason = if declared { "its node is gone" } else { "it was killed" };
            assert_eq!(error_of(world, later), format!("process 1 is lost: {reason}"));
        }
    }
}

#[test]
fn a_peer_that_has_said_farewell_is_not_lost() {
    in_worlds(&[2], 20, |world, seed| {
        open(world, 1);
        let both: Arc<[Peer]> = [Peer(0), Peer(1)].into();
        world.engine(0).open_own(3, both);
        let receive = recv(world, 0, 1, Source::Rank(1), TagMatch::Any, 4);
        let from_any = recv(world, 0, 1, Source::Any, TagMatch::Any, 4);
        let own = recv(world, 0, 3, Source::Rank(1), TagMatch::Any, 4);
        let unanswered = [Mode::Synchronous, Mode::Standard].map(|mode| {
            let (len, tag) = if mode == Mode::Standard { (2000, 6) } else { (4, 5) };
            send(world, Envelope { rank: 0, tag, ..ENVELOPE }, 1, mode, vec![0; len])
        });
        let bye = [Peer(0)];
        world.engine(1).say_bye(&bye);
        if seed % 2 == 0 {
            world.engine(0).say_bye(&[Peer(1)]);
            until(world, |world| world.engine(0).byes_missing() + world.engine(1).byes_missing() == 0);
            world.kill(1);
        }
        // The library's receive fails by itself; the user's may be cancelled, unless a blocking call waits for it.
        assert_eq!(error_of(world, own), "process 1 has finalized");
        let later = recv(world, 0, 3, Source::Rank(1), TagMatch::Any, 4);
        assert_eq!(error_of(world, later), "process 1 has finalized");
        for _ in 0..200 {
            world.step();
        }
        let ids = [&receive, &from_any].map(|it| it.id().expect("nothing was sent"));
        assert!(!receive.is_over(world) && !from_any.is_over(world));
        assert_eq!(ids.map(|id| world.engine(0).is_vain(id)), [true, false]);
        assert_eq!(world.engine(0).probe(1, Source::Rank(1), TagMatch::Any), Ok(None));
        let why = world.engine(0).dried_up(1, Source::Rank(1)).expect("it has finalized");
        assert_eq!((why.class, &*why.text), (MPI_ERR_PROC_ABORTED, "process 1 has finalized"));
        assert_eq!(world.engine(0).dried_up(1, Source::Any), None);
        if seed % 4 < 2 {
            assert!(world.engine(0).cancel(ids[0]));
            assert_eq!(receive.wait(world).0, Outcome { source: 0, tag: 0, bytes: 0, cancelled: true, error: None });
        } else {
            world.engine(0).give_up(ids[0]);
            assert_eq!(error_of(world, receive), "process 1 has finalized");
        }
        world.engine(0).give_up(ids[1]);
        assert!(!from_any.is_over(world));
        assert!(world.engine(0).cancel(ids[1]) && from_any.wait(world).0.cancelled);
        for send in unanswered {
            assert_eq!(error_of(world, send), "process 1 has finalized");
        }
        let late = send(world, Envelope { rank: 0, ..ENVELOPE }, 1, Mode::Synchronous, vec![0; 4]);
        assert_eq!(error_of(world, late), "process 1 has finalized");
        assert_eq!(world.engine(0).leftovers(), [0; 4]);
    });
}

#[test]
fn messages_sent_before_a_farewell_are_received_after_it() {
    for seed in 0..40 {
        // Short messages do not wait for their receives. Those that are lent are copied by the farewell.
        let lent = if seed % 2 == 0 { usize::MAX } else { 0 };
        let limits = FrameLimits { eager: 64, eager_device: 64, part: 64, part_device: 64, lent };
        let world = &mut FakeWorld::with(2, seed, Oddities { limits, ..Oddities::random(&mut Rng(seed)) });
        open(world, 1);
        let both: Arc<[Peer]> = [Peer(0), Peer(1)].into();
        world.engine(1).open_own(7, Arc::clone(&both));
        let sent = [1, 7]
            .map(|context| send(world, Envelope { context, ..ENVELOPE }, 0, Mode::Standard, vec![context as u8; 4]));
        until(world, |world| lent == 0 || world.engine(1).quiet());
        world.engine(1).say_bye(&[Peer(0)]);
        assert!(!world.engine(1).lends());
        until(world, |world| !world.engine(0).is_present(Peer(1)));
        // This process learns of the second communicator only now.
        world.engine(0).open_own(7, both);
        for (context, send) in [1, 7].into_iter().zip(sent) {
            let (outcome, memory) = recv(world, 0, context, Source::Rank(1), TagMatch::Any, 4).wait(world);
            assert_eq!((outcome.error, memory.bytes()), (None, &[context as u8; 4][..]));
            assert_eq!(send.wait(world).0.error, None);
        }
        assert_eq!(world.engine(0).leftovers(), [0; 4]);
    }
}

#[test]
fn a_disconnected_peer_may_reconnect_under_its_number() {
    in_worlds(&[3], 20, |world, _| {
        for rank in [0, 1] {
            world.engine(rank).set_foreign(Peer(u32::from(rank == 0)));
        }
        open(world, 1);
        let waiting = recv(world, 0, 1, Source::Any, TagMatch::Value(9), 4);
        assert_eq!(world.engine(0).awaited(false), [1, 2].map(Peer));
        let named = recv(world, 2, 1, Source::Rank(0), TagMatch::Value(9), 4);
        let from_any = recv(world, 2, 1, Source::Any, TagMatch::Value(9), 4);
        assert_eq!(world.engine(2).awaited(false), [Peer(0)]);
        assert!(world.engine(0).is_member(Peer(1)));
        for rank in 0..3 {
            world.engine(rank).close(1);
        }
        for pending in [waiting, named, from_any] {
            assert!(pending.wait(world).0.error.is_some());
        }
        assert_eq!(world.engine(0).awaited(false), []);
        assert!(!world.engine(0).is_member(Peer(1)) && world.engine(0).is_present(Peer(1)));
        // A repeated farewell has no further effect.
        for _ in 0..2 {
            world.engine(0).say_bye(&[Peer(1)]);
        }
        until(world, |world| world.engine(0).farewell(Peer(1)) == Farewell::Told);
        until(world, |world| *world.engine(1).disconnected() == [Peer(0)]);
        assert!(!world.engine(1).is_present(Peer(0)));
        assert_eq!(world.engine(1).farewell(Peer(0)), Farewell::Untold);
        world.engine(1).say_bye(&[Peer(0)]);
        for (rank, peer) in [(0, Peer(1)), (1, Peer(0))] {
            until(world, |world| world.engine(rank).farewell(peer) == Farewell::Over);
            world.engine(rank).forget_peer(peer);
            assert_eq!(*world.engine(rank).disconnected(), []);
            assert!(world.engine(rank).is_present(peer));
        }
        open(world, 2);
        let sent = send(world, Envelope { context: 2, ..ENVELOPE }, 0, Mode::Synchronous, vec![7; 4]);
        let (outcome, memory) = recv(world, 0, 2, Source::Rank(1), TagMatch::Any, 4).wait(world);
        assert_eq!((outcome.error, memory.bytes()), (None, &[7; 4][..]));
        assert_eq!(sent.wait(world).0.error, None);
        assert_eq!(world.engine(0).leftovers(), [0; 4]);
    });
}

#[test]
fn a_peer_that_sends_invalid_frames_is_lost_with_a_reason() {
    let limits = FrameLimits { eager: 64, eager_device: 64, part: 64, part_device: 64, lent: usize::MAX };
    let oddities = Oddities { limits, room: 8, full: 0, late: 0, pull: false, landing: false };
    let intruder = Envelope { rank: 2, ..ENVELOPE };
    for (frame, payload, reason) in [
        (Frame::Eager { envelope: intruder }, 4, "it sent as rank 2 of communicator 1, which is another process"),
        (
            Frame::Eager { envelope: Envelope { rank: 9, ..ENVELOPE } },
            0,
            "it sent as rank 9 of communicator 1, which is another process",
        ),
        (Frame::Done { send: 0x1234 }, 0, "it acknowledged an unknown message"),
        (Frame::Done { send: 0 }, 0, "it acknowledged a message that was not announced"),
        (Frame::Done { send: 1 }, 0, "it acknowledged a message to another process"),
        (Frame::Clear { send: 0x1234, receive: 0, len: 1 }, 0, "it requested an unknown message"),
        (Frame::Clear { send: 0, receive: 0, len: 1 }, 0, "it requested a message that was not announced"),
        (Frame::Clear { send: 1, receive: 0, len: 1 }, 0, "it requested more bytes than were announced"),
        (Frame::Part { receive: 0x1234 }, 4, "it sent part of a message without a receive"),
        (Frame::Part { receive: 0 }, 4, "it sent part of a message that was not requested"),
        (Frame::Part { receive: 2 }, 4, "it sent more bytes of a message than were requested"),
    ] {
        let mut world = FakeWorld::with(3, 2, oddities);
        let world = &mut world;
        open(world, 1);
        // Requests 0 to 2 of rank 0: a receive; a send to another process, and a receive from it.
        let doomed = recv(world, 0, 1, Source::Rank(1), TagMatch::Value(1), 4);
        let other = send(world, Envelope { rank: 0, ..ENVELOPE }, 2, Mode::Standard, vec![0; 100]);
        let long = recv(world, 0, 1, Source::Rank(2), TagMatch::Any, 100);
        let long_send = send(world, Envelope { rank: 2, ..ENVELOPE }, 0, Mode::Standard, vec![7; 100]);
        for rank in [0, 2, 0] {
            world.engine(rank).progress();
            if rank == 0 {
                world.inject(1, 0, frame, &vec![0; payload]);
            }
        }
        assert_eq!(error_of(world, doomed), format!("process 1 is lost: {reason}"), "{frame:?}");
        let (outcome, memory) = recv(world, 2, 1, Source::Rank(0), TagMatch::Any, 100).wait(world);
        assert_eq!((outcome.error, memory.bytes()), (None, &[0; 100][..]));
        let (outcome, memory) = long.wait(world);
        assert_eq!((outcome.error, memory.bytes()), (None, &[7; 100][..]));
        assert_eq!((other.wait(world).0.error, long_send.wait(world).0.error), (None, None));
    }
}

#[test]
fn invalid_frames_do_not_panic() {
    in_worlds(&[3], 60, |world, seed| {
        let mut rng = Rng(seed);
        open(world, 0);
        open(world, 1);
        let mut pending = Vec::new();
        for _ in 0..60 {
            let (rank, context, tag) = (rng.below(3) as u32, rng.below(2) as u32, rng.below(2) as i32);
            let (envelope, to) = (Envelope { context, rank, tag }, rng.below(3));
            let number = (rng.below(12) | rng.below(2) << 24) as u32;
            let signed = |sort| Frame::Signed { sign: number, envelope, sort };
            let frame = match rng.below(20) {
                0 => Frame::Eager { envelope },
                1 => Frame::EagerSync { envelope: Envelope { context: rng.below(4) as u32, ..envelope }, send: number },
                2 => Frame::Ready { envelope, send: number, len: u64::MAX >> rng.below(64), region: None },
                3 => Frame::Clear { send: number, receive: rng.below(12) as u32, len: rng.below(2000) as u64 },
                4 => Frame::Part { receive: number },
                5 => Frame::Done { send: number },
                6 => Frame::Dropped { send: number, is_revoked: tag > 0 },
                7 => Frame::Note { context, number },
                16 => Frame::Hold { is_on: tag > 0 },
                17 => signed(Sort::Whole),
                18 => signed(Sort::Sync { send: number }),
                19 => signed(Sort::Ready { send: number, len: u64::MAX >> rng.below(64) }),
                8..12 => {
                    let mode = [Mode::Standard, Mode::Synchronous][rng.below(2)];
                    pending.push(send(world, envelope, to, mode, vec![1; rng.below(2000)]));
                    continue;
                }
                _receive => {
                    pending.push(recv(world, to, context, Source::Rank(rank), TagMatch::Value(tag), rng.below(2000)));
                    continue;
                }
            };
            world.inject(rank as usize, to, frame, &vec![0; rng.below(100)]);
            for _ in 0..rng.below(20) {
                world.step();
            }
        }
        for _ in 0..1000 {
            world.step();
        }
    });
}

#[test]
fn short_sends_complete_without_room_while_few_bytes_wait() {
    let limits = FrameLimits { eager: 64 << 10, eager_device: 64 << 10, part: 64, part_device: 64, lent: usize::MAX };
    let oddities = Oddities { limits, room: 1, full: 0, late: 0, pull: false, landing: false };
    let world = &mut FakeWorld::with(2, 1, oddities);
    open(world, 1);
    let envelope = Envelope { rank: 0, ..ENVELOPE };
    let mut sends: Vec<Pending> =
        (0..4).map(|at| send(world, envelope, 1, Mode::Standard, vec![at; 30 << 10])).collect();
    let over: Vec<bool> = sends.iter().map(|send| send.id().is_none()).collect();
    assert_eq!(over, [true, true, true, false]);
    sends.push(send(world, envelope, 1, Mode::Standard, vec![4; 4 << 10]));
    for at in 0..5 {
        let (outcome, memory) = recv(world, 1, 1, Source::Rank(0), TagMatch::Any, 30 << 10).wait(world);
        assert_eq!((outcome.error, memory.bytes()[0]), (None, at));
    }
    for send in sends {
        assert_eq!(send.wait(world).0.error, None);
    }
    bodies::finish(world);
}

#[test]
fn a_message_that_comes_with_the_awaited_one_waits_for_the_next_poll() {
    let limits = FrameLimits { eager: 1000, eager_device: 1000, part: 64, part_device: 64, lent: usize::MAX };
    let world = &mut FakeWorld::with(2, 1, Oddities { limits, room: 9, full: 0, late: 0, pull: false, landing: false });
    open(world, 1);
    let envelope = Envelope { rank: 0, ..ENVELOPE };
    for mode in [Mode::Standard, Mode::Synchronous] {
        let sends: Vec<Pending> = (0..4).map(|at| send(world, envelope, 1, mode, vec![at; 8])).collect();
        for at in 0..3 {
            let memory = Memory::room(8);
            let receiver = world.engine(1);
            let Started::Pending(id) = receiver.recv(1, Source::Rank(0), TagMatch::Any, memory.buffer()) else {
                panic!("a message is stored");
            };
            receiver.progress();
            // Only the message for which a receive waits was taken.
            assert_eq!((receiver.unexpected(), receiver.pending()), (0, 0), "{mode:?} {at}");
            assert_eq!((receiver.take(id).unwrap().error, memory.bytes()), (None, &[at; 8][..]));
        }
        world.engine(1).progress();
        assert_eq!(world.engine(1).unexpected(), 1, "no receive came");
        recv(world, 1, 1, Source::Rank(0), TagMatch::Any, 8).wait(world);
        for send in sends {
            assert_eq!(send.wait(world).0.error, None);
        }
    }
    bodies::finish(world);
}

#[test]
fn a_forgotten_request_continues() {
    in_peace(&[1, 2], 40, |world, seed| {
        open(world, 1);
        let last = world.size() - 1;
        let envelope = Envelope { rank: 0, ..ENVELOPE };
        let (mode, len) = if seed % 2 == 0 { (Mode::Synchronous, 2000) } else { (Mode::Standard, 60) };
        let bytes = Memory::of(bodies::pattern(envelope, 0, len));
        let into = Memory::room(len);
        let send = world.engine(0).start_send(envelope, Peer(last as u32), mode, bytes.buffer());
        let receive = world.engine(last).recv_catching(1, Source::Any, TagMatch::Any, into.buffer());
        for (rank, started) in [(0, send), (last, receive)] {
            if let Started::Pending(id) = started {
                world.engine(rank).forget(id);
            }
        }
        until(world, |world| (0..=last).all(|rank| world.engine(rank).leftovers() == [0; 4]));
        assert_eq!(into.bytes(), bytes.bytes());
        bodies::finish(world);
    });
}

#[test]
fn a_closed_communicator_leaves_nothing_behind() {
    in_worlds(&[2], 10, |world, _| {
        open(world, 1);
        let sent = send(world, ENVELOPE, 0, Mode::Standard, vec![0; 1]);
        until(world, |world| world.engine(0).probe(1, Source::Any, TagMatch::Any) != Ok(None));
        let waiting = recv(world, 0, 1, Source::Any, TagMatch::Value(9), 4);
        world.engine(0).close(1);
        let error = waiting.wait(world).0.error.expect("no message may come");
        assert_eq!(error.text, "the communicator was freed before the message was received");
        assert_eq!(world.engine(0).leftovers(), [0; 4]);
        assert!(recv(world, 0, 1, Source::Any, TagMatch::Any, 1).wait(world).0.error.is_some());
        drop(sent);
    });
}
