//! Long messages from many hosts at once.

use super::super::admission::{FEWEST, STALL};
use super::*;
use std::net::IpAddr;

const LEN: usize = 200_000;

/// A process at an address of its own. The first loopback address is not among them: the system gives it to all that dial.
fn on_host(rank: u32, host: u8) -> TcpConfig {
    TcpConfig { listen: Listen::At(IpAddr::V4(Ipv4Addr::new(127, 0, 0, host))), ..config(rank) }
}

/// Longer than any test takes.
const HOUR: Duration = Duration::from_secs(3_600);

/// A receiver, which is the first, and this many connected peers on other hosts, four of which it admits. None counts as silent.
fn receiver_and(peers: u32) -> Vec<Process> {
    let mut world = connected_to_first((0..=peers).map(|rank| on_host(rank, 2 + rank as u8)));
    world[0].tcp.admission.limit(FEWEST, HOUR);
    world
}

fn connected_to_first(configs: impl Iterator<Item = TcpConfig>) -> Vec<Process> {
    let mut world = Process::world_of(configs);
    for rank in 1..world.len() {
        until(&mut world, |world| world[rank].send(0, &eager(0), b"first").is_ok());
    }
    until(&mut world, |world| world[0].received.frames.len() == world.len() - 1);
    world[0].received.frames.clear();
    world
}

fn request(world: &mut [Process], from: u32) {
    let frame = Frame::Clear { send: from, receive: from, len: LEN as u64 };
    assert_eq!(world[0].send(from, &frame, &[]), Ok(()));
}

/// The ranks that have got a request, after all have had the time for it.
fn requested(world: &mut [Process]) -> Vec<usize> {
    // What the first has sent arrives before this.
    for rank in 1..world.len() {
        until(world, |world| world[0].send(rank as u32, &eager(9), b"mark").is_ok());
    }
    let marks = |process: &Process| process.received.frames.iter().filter(|(_, frame, _)| *frame == eager(9)).count();
    let before: Vec<usize> = world.iter().map(marks).collect();
    until(world, |world| world[1..].iter().zip(&before[1..]).all(|(process, before)| marks(process) > *before));
    let is_request = |frame: &Frame| matches!(frame, Frame::Clear { .. });
    let has_it = |process: &Process| process.received.frames.iter().any(|(_, frame, _)| is_request(frame));
    (1..world.len()).filter(|rank| has_it(&world[*rank])).collect()
}

/// A peer sends what was requested, or the first bytes of it.
fn answer(world: &mut [Process], rank: usize, len: usize) {
    let before = world[0].received.frames.len();
    let bytes = super::flowing::pattern(len);
    until(world, |world| world[rank].send(0, &Frame::Part { receive: rank as u32 }, &bytes).is_ok());
    until(world, |world| world[0].received.frames.len() > before);
    assert!(world[0].received.frames.last().is_some_and(|(from, _, got)| from.0 == rank as u32 && *got == bytes));
}

#[test]
fn a_fifth_peer_is_asked_when_another_has_sent_everything() {
    let mut world = receiver_and(6);
    (1..=6).for_each(|rank| request(&mut world, rank));
    assert_eq!(requested(&mut world), [1, 2, 3, 4]);
    assert!(!world[0].tcp.is_flushed());
    answer(&mut world, 3, LEN / 2);
    assert_eq!(requested(&mut world), [1, 2, 3, 4]);
    answer(&mut world, 3, LEN / 2);
    assert_eq!(requested(&mut world), [1, 2, 3, 4, 5]);
    answer(&mut world, 5, LEN);
    assert_eq!(requested(&mut world), [1, 2, 3, 4, 5, 6]);
    assert!(world[0].tcp.is_flushed());
}

#[test]
fn further_requests_to_an_admitted_peer_wait_only_for_those_before_them() {
    let mut world = receiver_and(5);
    let got = |process: &Process| process.received.frames.iter().filter(|(_, frame, _)| *frame != eager(9)).count();
    (1..=4).for_each(|rank| request(&mut world, rank));
    request(&mut world, 1);
    requested(&mut world);
    assert_eq!(got(&world[1]), 2);
    request(&mut world, 5);
    request(&mut world, 1);
    assert_eq!(requested(&mut world), [1, 2, 3, 4]);
    assert_eq!(got(&world[1]), 2);
    answer(&mut world, 2, LEN);
    assert_eq!(requested(&mut world), [1, 2, 3, 4, 5]);
    assert_eq!(got(&world[1]), 3);
    // Twice as much is outstanding as one message has.
    answer(&mut world, 1, LEN);
    assert_eq!(world[0].tcp.links.iter().filter(|(_, link)| link.standing.is_admitted).count(), FEWEST);
}

#[test]
fn peers_that_send_nothing_do_not_stop_the_others() {
    let mut world = receiver_and(8);
    (1..=8).for_each(|rank| request(&mut world, rank));
    assert_eq!(requested(&mut world), [1, 2, 3, 4]);
    let mut now = Instant::now();
    // Nothing is known at first, then all four are new, and then all are silent, so there is room for eight more.
    for (look, expected) in [(0, 4), (1, 4), (2, 8)] {
        world[0].tcp.relieve(now);
        now += HOUR;
        assert_eq!(requested(&mut world).len(), expected, "look {look}");
    }
    // Then four again.
    (1..=8).for_each(|rank| answer(&mut world, rank, LEN));
    (1..=8).for_each(|rank| world[rank].received.frames.clear());
    (1..=8).for_each(|rank| request(&mut world, rank));
    assert_eq!(requested(&mut world), [1, 2, 3, 4]);
}

#[test]
fn a_peer_that_sends_only_other_messages_is_silent() {
    let mut world = receiver_and(6);
    (1..=6).for_each(|rank| request(&mut world, rank));
    for look in 0..3 {
        answer(&mut world, 2, LEN / 4);
        until(&mut world, |world| world[1].send(0, &eager(look), b"more").is_ok());
        let is_there = |(_, frame, _): &(_, Frame, _)| *frame == eager(look);
        until(&mut world, |world| world[0].received.frames.iter().any(is_there));
        world[0].tcp.relieve(Instant::now() + look as u32 * HOUR);
    }
    let links = world[0].tcp.links.iter().filter(|(_, link)| link.standing.is_admitted);
    // All but the second are silent, so that the others have got places.
    assert_eq!(links.count(), 6);
    assert_eq!(world[0].tcp.admission.silent(), 3);
}

#[test]
fn a_process_that_sleeps_wakes_for_silent_peers() {
    let mut world = receiver_and(5);
    world[0].tcp.admission.limit(FEWEST, STALL);
    let start = Instant::now();
    (1..=5).for_each(|rank| request(&mut world, rank));
    let limit = world[0].tcp.prepare_sleep().unwrap();
    assert!(limit <= STALL, "{limit:?}");
    while world[0].tcp.admission.is_waiting() {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out");
        world[0].sleep();
    }
    assert!(start.elapsed() >= STALL);
    assert_eq!(requested(&mut world), [1, 2, 3, 4, 5]);
}

#[test]
fn a_process_that_polls_sees_silent_peers_whatever_others_send() {
    let mut world = receiver_and(6);
    world[0].tcp.admission.limit(FEWEST, STALL);
    (1..=5).for_each(|rank| request(&mut world, rank));
    let mut tag = 0;
    until(&mut world, |world| {
        // So that each poll finds something.
        tag += i32::from(world[6].send(0, &eager(tag), b"more").is_ok());
        !world[0].tcp.admission.is_waiting()
    });
    assert_eq!(requested(&mut world), [1, 2, 3, 4, 5]);
}

#[test]
fn a_request_whose_peer_does_not_read_holds_up_no_other() {
    let mut world = receiver_and(6);
    (1..=4).for_each(|rank| request(&mut world, rank));
    // So much is queued for the sixth, which does not read, that a request finds no room.
    for len in [60_000, 0] {
        let mut refused = 0;
        while refused < 100 {
            let is_accepted = world[0].send(6, &Frame::Part { receive: 9 }, &vec![7; len]).is_ok();
            refused = if is_accepted { 0 } else { refused + 1 };
            world[0].turn();
        }
    }
    request(&mut world, 6);
    let (world, _sixth) = world.split_at_mut(6);
    answer(world, 2, LEN);
    assert!(world[0].tcp.admission.is_waiting());
    request(world, 5);
    assert_eq!(requested(world), [1, 2, 3, 4, 5]);
    assert!(world[0].tcp.admission.is_waiting());
}

#[test]
fn peers_of_different_hosts_come_first() {
    // Four processes on each of three hosts.
    let host = |rank: u32| if rank == 0 { 2 } else { 3 + ((rank - 1) / 4) as u8 };
    let mut world = Process::world_of((0..=12).map(|rank| on_host(rank, host(rank))));
    // The receiver dials them: then their addresses are those at which they listen.
    for rank in 1..world.len() {
        until(&mut world, |world| world[0].send(rank as u32, &eager(0), b"first").is_ok());
    }
    world[0].tcp.admission.limit(FEWEST, HOUR);
    (1..=12).for_each(|rank| request(&mut world, rank));
    // A request is sent at once while there are places, to any host.
    assert_eq!(requested(&mut world), [1, 2, 3, 4]);
    for (answers, expected) in [(1, 5), (2, 9), (3, 6), (4, 10)] {
        answer(&mut world, answers, LEN);
        let now = requested(&mut world);
        assert!(now.contains(&expected), "{now:?}");
        assert_eq!(now.len(), 4 + answers);
    }
    // The two hosts then take turns, each time with the one that has fewer admitted peers.
    for (answers, expected) in [(5, 7), (9, 11), (6, 8), (10, 12)] {
        answer(&mut world, answers, LEN);
        let now = requested(&mut world);
        assert!(now.contains(&expected), "{now:?}");
    }
}

#[test]
fn there_is_no_limit_until_data_are_lost() {
    let mut world = connected_to_first((0..=9).map(|rank| on_host(rank, 2 + rank as u8)));
    (1..=9).for_each(|rank| request(&mut world, rank));
    assert_eq!(requested(&mut world), (1..=9).collect::<Vec<_>>());
    (1..=9).for_each(|rank| answer(&mut world, rank, LEN));
    assert_eq!(world[0].tcp.admission.most(), None);
    assert!(world[0].tcp.links.iter().all(|(_, link)| !link.standing.is_admitted));
}

#[test]
fn a_peer_that_is_lost_or_cut_frees_its_place_and_its_requests() {
    for is_cut in [false, true] {
        let mut world = receiver_and(7);
        (1..=7).for_each(|rank| request(&mut world, rank));
        assert_eq!(requested(&mut world), [1, 2, 3, 4]);
        let mut world: Vec<_> = world.into_iter().map(Some).collect();
        let lose = |world: &mut Vec<Option<Process>>, rank: u32| {
            let gone = world[rank as usize].take();
            let receiver = world[0].as_mut().unwrap();
            if is_cut {
                receiver.tcp.cut(Peer(rank));
            } else {
                drop(gone);
                until(std::slice::from_mut(receiver), |it| it[0].received.lost.iter().any(|(lost, _)| lost.0 == rank));
            }
        };
        // One that waits, and one that is admitted.
        lose(&mut world, 5);
        lose(&mut world, 2);
        let mut world: Vec<_> = world.into_iter().flatten().collect();
        until(&mut world, |world| {
            let last = &world[4].received.frames;
            last.iter().any(|(_, frame, _)| matches!(frame, Frame::Clear { send: 6, .. }))
        });
        let admission = &world[0].tcp.admission;
        assert!(admission.is_waiting());
        assert_eq!(world[0].tcp.links.iter().filter(|(_, link)| link.standing.is_admitted).count(), FEWEST);
    }
}

#[test]
fn the_farewell_comes_after_all_requests() {
    let mut world = receiver_and(5);
    (1..=5).for_each(|rank| request(&mut world, rank));
    until(&mut world, |world| world[0].send(5, &Frame::Bye, &[]).is_ok());
    until(&mut world, |world| world[5].received.frames.len() == 2);
    let frames: Vec<_> = world[5].received.frames.iter().map(|(_, frame, _)| *frame).collect();
    assert_eq!(frames, [Frame::Clear { send: 5, receive: 5, len: LEN as u64 }, Frame::Bye]);
    assert!(world[0].tcp.is_flushed());
}

#[test]
fn peers_on_the_same_host_are_not_limited() {
    let mut world = connected_to_first((0..=6).map(config));
    (1..=6).for_each(|rank| request(&mut world, rank));
    assert_eq!(requested(&mut world), [1, 2, 3, 4, 5, 6]);
    assert!(world[0].tcp.links.iter().all(|(_, link)| !link.is_far && !link.standing.is_admitted));
}

#[test]
fn the_eager_limit_is_lower_on_a_lossy_connection_and_for_that_peer_only() {
    let mut world = receiver_and(2);
    let limit = |world: &[Process], rank| world[0].tcp.limits(Peer(rank)).eager;
    let start = Instant::now();
    until(&mut world, |world| world[0].send(1, &eager(1), &[7; 20_000]).is_ok());
    let id = match world[0].tcp.directory.way(Peer(1)) {
        Some(Way::Open(id)) => id,
        way => panic!("{way:?}"),
    };
    assert_eq!((limit(&world, 1), limit(&world, 2)), (LIMITS.eager, LIMITS.eager));
    // As if most of it had been sent again.
    let link = world[0].tcp.links.get_mut(id).unwrap();
    let before = socket::Resent { segments: 10_u32.wrapping_neg(), segment_bytes: 0 };
    assert!(link.loss.is_some() && link.sent > 20_000);
    link.loss = Some(Box::new(loss::Loss::new(link.sent, before, start)));
    let now = Instant::now() + Duration::from_secs(1);
    world[0].tcp.look_for_loss(id, now);
    assert_eq!((limit(&world, 1), limit(&world, 2)), (LOSSY_EAGER, LIMITS.eager));
    assert_eq!(world[0].tcp.limits(Peer(1)).eager_device, LOSSY_EAGER);
    world[0].tcp.forget_losses(now + loss::REMEMBER / 2);
    assert_eq!(limit(&world, 1), LOSSY_EAGER);
    world[0].tcp.forget_losses(now + loss::REMEMBER);
    assert_eq!((limit(&world, 1), world[0].tcp.lossy), (LIMITS.eager, 0));
    // A lossy connection that ends is none.
    let again = now + loss::REMEMBER;
    let link = world[0].tcp.links.get_mut(id).unwrap();
    link.loss = Some(Box::new(loss::Loss::new(link.sent, before, start)));
    world[0].tcp.look_for_loss(id, again);
    assert_eq!(world[0].tcp.lossy, 1);
    world[0].tcp.cut(Peer(1));
    assert_eq!((limit(&world, 1), world[0].tcp.lossy), (LIMITS.eager, 0));
}

#[test]
fn short_messages_and_those_to_the_same_host_cost_no_look_at_the_connection() {
    let mut world = receiver_and(1);
    until(&mut world, |world| world[0].send(1, &eager(1), &[7; LOSSY_EAGER - 1]).is_ok());
    until(&mut world, |world| world[0].send(1, &Frame::Part { receive: 3 }, &[7; 100_000]).is_ok());
    let mut near = connected();
    until(&mut near, |near| near[0].send(1, &eager(1), &[7; 100_000]).is_ok());
    for process in [&world[0], &near[0]] {
        assert!(process.tcp.links.iter().all(|(_, link)| link.loss.is_none()));
    }
}
