//! Processes that cannot be dialled: they dial the others, which wait for it.

use std::net::TcpListener;

use super::*;

/// An address at which nothing listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Two processes with this limit for connections, of which `dial_out` only dial out. `addresses[i]` is where the other dials
/// process i; None: where it listens.
fn pair_of(limit: Duration, dial_out: &[(u32, u32)], addresses: [Option<&str>; 2]) -> [Process; 2] {
    let mut pair = [0, 1].map(|rank| Process::new(TcpConfig { connect_limit: limit, ..config(rank) }));
    let at: Vec<String> =
        (0..2).map(|rank| addresses[rank].map_or_else(|| pair[rank].tcp.address(), str::to_owned)).collect();
    for (me, process) in pair.iter_mut().enumerate() {
        process.knows(1 - me as u32, Ok(&at[1 - me]));
        process.tcp.set_dial_out(dial_out);
    }
    pair
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

/// Dials ahead until it has said hello to all others, as `MPI_Init` does; the others do nothing.
fn reach_out(process: &mut Process) {
    let start = Instant::now();
    while process.tcp.is_reaching() {
        assert!(start.elapsed() < Duration::from_secs(30), "timed out");
        process.turn();
    }
}

/// Sends from 0 to 1 and checks that it arrives, over one connection.
fn exchange(pair: &mut [Process; 2]) {
    until(pair, |pair| pair[0].send(1, &eager(0), b"hello").is_ok());
    until(pair, |pair| pair[1].payloads() == [b"hello"]);
    assert!(pair.iter().all(|process| process.received.lost.is_empty() && process.tcp.links.len() == 1));
}

#[test]
fn a_process_that_only_dials_out_is_reached_by_one_that_sends_first() {
    let at = nowhere();
    let mut pair = pair_of(LONG, &[(1, 1)], [None, Some(&at)]);
    assert_eq!(pair[0].send(1, &eager(0), b"early"), Err(Refusal::Full));
    for _ in 0..100 {
        pair[0].turn();
    }
    assert_eq!((pair[0].tcp.describe(Peer(1)), pair[0].received.lost.len()), ("tcp (connecting)".into(), 0));
    assert!(!pair[0].tcp.is_reaching(), "it can be dialled");
    reach_out(&mut pair[1]);
    exchange(&mut pair);
}

#[test]
fn without_such_processes_nothing_is_dialled_before_there_is_something_to_send() {
    let mut pair = Process::pair();
    pair.iter_mut().for_each(|process| {
        assert!(!process.tcp.is_reaching() && !process.tcp.has_dial_out());
        process.turn();
        assert_eq!(process.tcp.greetings.len(), 0);
    });
}

#[test]
fn of_two_that_only_dial_out_either_may_be_the_one_that_can() {
    let at = nowhere();
    for addresses in [[None, Some(&*at)], [Some(&*at), None], [None, None]] {
        let mut pair = pair_of(LONG, &[(0, 1)], addresses);
        pair.iter_mut().for_each(reach_out);
        exchange(&mut pair);
    }
}

#[test]
fn a_process_that_does_not_dial_in_time_is_lost_with_a_sentence() {
    let at = nowhere();
    let mut pair = pair_of(SHORT, &[(1, 1)], [None, Some(&at)]);
    until(&mut pair[..1], |first| first[0].send(1, &eager(0), b"a") == Err(Refusal::Lost));
    pair[0].turn();
    let why = "it is unreachable: its node only dials out, and its connection did not arrive within 50ms";
    assert_eq!(pair[0].received.lost, [(Peer(1), format!("rank 1 ({at}): {why}"))]);
}

#[test]
fn two_that_cannot_dial_each_other_fail_with_the_reason_and_only_when_one_sends() {
    let at = nowhere();
    let mut pair = pair_of(SHORT, &[(0, 1)], [Some(&at), Some(&at)]);
    pair.iter_mut().for_each(reach_out);
    until(&mut pair, |pair| {
        pair.iter().all(|process| process.tcp.directory.way(Peer(1 - process.tcp.own.me.rank)) == Some(Way::Unused))
    });
    assert!(pair.iter().all(|process| process.received.lost.is_empty()));
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"a") == Err(Refusal::Lost));
    pair[0].turn();
    let why = "it is unreachable: Connection refused (os error 111)";
    assert_eq!(pair[0].received.lost, [(Peer(1), format!("rank 1 ({at}): {why}"))]);
    assert_eq!(pair[1].received.lost, []);
}

#[test]
fn a_dial_that_has_arrived_in_time_may_be_completed_at_any_time() {
    let at = nowhere();
    let mut pair = pair_of(SHORT, &[(1, 1)], [None, Some(&at)]);
    reach_out(&mut pair[1]);
    // The other computes after its hello, and this process until the deadline has passed.
    assert_eq!(pair[0].send(1, &eager(0), b"a"), Err(Refusal::Full));
    pair[0].find();
    let Some(Way::Dialled(id)) = pair[0].tcp.directory.way(Peer(1)) else { panic!("it does not wait") };
    for _ in 0..3 {
        let later = Instant::now() + LONG;
        pair[0].tcp.greet(id, later);
        pair[0].turn();
    }
    assert_eq!(pair[0].tcp.describe(Peer(1)), "tcp (connecting)");
    exchange(&mut pair);
}

#[test]
fn a_process_does_not_end_while_a_peer_may_have_accepted_its_dial() {
    let at = nowhere();
    let mut pair = pair_of(LONG, &[(1, 1)], [None, Some(&at)]);
    reach_out(&mut pair[1]);
    assert!(pair[1].tcp.is_settled(), "the other has no proof of its identity");
    until(&mut pair, |pair| !pair[1].tcp.is_settled());
    until(&mut pair, |pair| pair[1].tcp.is_settled());
    assert!(pair[1].tcp.is_connected(Peer(0)));
}

#[test]
fn sixty_four_processes_reach_out_at_once() {
    const COUNT: u32 = 64;
    let mut world = Process::world(COUNT);
    let at = nowhere();
    for process in &mut world {
        process.tcp.set_dial_out(&[(32, 39), (48, 63)]);
        let only_dials = |rank: u32| (32..40).contains(&rank) || rank >= 48;
        process.addresses.iter_mut().filter(|(peer, _)| only_dials(peer.0)).for_each(|(_, to)| *to = Ok(at.clone()));
    }
    until(&mut world, |world| {
        world.iter_mut().filter_map(|process| process.tcp.is_reaching().then_some(())).count() == 0
    });
    let mut sent = [false; COUNT as usize];
    until(&mut world, |world| {
        for (to, sent) in sent.iter_mut().enumerate().skip(32).filter(|(to, _)| *to < 40 || *to >= 48) {
            *sent = *sent || world[0].send(to as u32, &eager(0), &[to as u8]).is_ok();
        }
        world.iter().map(|process| process.received.frames.len()).sum::<usize>() == 24
    });
    assert!(world.iter().all(|process| process.received.lost.is_empty()));
}

#[test]
fn a_process_dials_a_limited_number_of_others_ahead_and_prefers_those_that_cannot_dial_it() {
    let queued = |size: u32, dial_out: &[(u32, u32)]| {
        let mut process = Process::new(config(0));
        (1..size).for_each(|rank| process.knows(rank, Err("not needed")));
        process.tcp.set_dial_out(dial_out);
        process.tcp.reaching.queue.iter().map(|peer| peer.0).collect::<Vec<_>>()
    };
    assert_eq!(queued(6, &[(0, 2)]), [3, 4, 5, 1, 2]);
    assert_eq!(queued(68, &[(0, 65)]), [66, 67], "there are too many like it");
    assert_eq!(queued(1000, &[(0, 0)]), (1..=512).collect::<Vec<_>>());
    assert_eq!(queued(6, &[(1, 5)]), [0; 0], "it can be dialled");
}
