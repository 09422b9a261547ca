//! Processes of two jobs.

use super::*;

/// Job 2.
const OTHER: [u8; 16] = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 2];

/// One process of each of two jobs, whose secrets differ.
fn foreign_pair() -> [Process; 2] {
    [WORLD, OTHER].map(|world| {
        let me = ProcessName { world, rank: 0 };
        Process::new(TcpConfig { me, secret: [world[0]; 32], ..config(0) })
    })
}

fn name(process: &Process) -> ProcessName {
    process.tcp.own.me
}

/// Introduces to this process the other one of a pair, as this peer.
fn introduce(pair: &mut [Process], me: usize, peer: Peer, secret: [u8; 32]) {
    let other = &pair[1 - me];
    let (name, address) = (name(other), other.tcp.socket_address());
    pair[me].tcp.add_foreign(peer, name, address, secret);
}

/// Introduces both processes to each other, each as this peer.
fn connect(pair: &mut [Process], peer: Peer, secret: [u8; 32]) {
    introduce(pair, 0, peer, secret);
    introduce(pair, 1, peer, secret);
}

#[test]
fn foreign_processes_communicate_disconnect_and_reconnect() {
    let mut pair = foreign_pair();
    for round in 0..20_u32 {
        // Numbers are reused, but not at once.
        let peer = Peer(3 + round % 2);
        connect(&mut pair, peer, [round as u8; 32]);
        until(&mut pair, |pair| pair[0].send(peer.0, &eager(0), b"there").is_ok());
        until(&mut pair, |pair| pair[1].send(peer.0, &eager(1), b"and back").is_ok());
        for process in &mut pair {
            assert_eq!(process.send(peer.0, &Frame::Bye, b""), Ok(()));
        }
        until(&mut pair, |pair| pair.iter().all(|it| it.received.frames.len() == 2));
        for (process, payload) in pair.iter_mut().zip([&b"and back"[..], b"there"]) {
            let frames = std::mem::take(&mut process.received.frames);
            assert_eq!((frames[0].0, &frames[0].2[..]), (peer, payload));
            assert_eq!((frames[1].0, frames[1].1), (peer, Frame::Bye));
            process.tcp.disconnect(peer);
            process.tcp.forget(peer);
            assert_eq!(process.tcp.connected(), []);
        }
        until(&mut pair, |pair| pair.iter().all(|it| it.tcp.links.len() == 0));
        assert!(pair.iter().all(|it| it.received.lost.is_empty()), "round {round}");
    }
}

#[test]
fn a_process_that_does_not_know_its_caller_yet_is_called_again() {
    let mut pair = foreign_pair();
    introduce(&mut pair, 0, Peer(1), [7; 32]);
    assert_eq!(pair[0].send(1, &eager(0), b"early"), Err(Refusal::Full));
    until(&mut pair, |pair| pair[1].tcp.refused() > 0);
    assert_eq!(pair[0].received.lost, []);
    introduce(&mut pair, 1, Peer(4), [7; 32]);
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"early").is_ok());
    until(&mut pair, |pair| pair[1].payloads() == [b"early"]);
    assert_eq!(pair[1].received.frames[0].0, Peer(4));
}

#[test]
fn a_secret_that_is_neither_the_jobs_nor_the_pairs_is_refused() {
    let mut pair = foreign_pair();
    introduce(&mut pair, 0, Peer(1), [7; 32]);
    introduce(&mut pair, 1, Peer(1), [8; 32]);
    until(&mut pair, |pair| {
        let _ = pair[0].send(1, &eager(0), b"x");
        !pair[0].received.lost.is_empty()
    });
    let (peer, reason) = &pair[0].received.lost[0];
    assert!(*peer == Peer(1) && reason.contains("rank 0 of job 2") && reason.contains("secret"), "{reason}");
}

#[test]
fn processes_introduced_twice_at_once_connect_with_either_secret() {
    for [first, dials_with] in [[7, 7], [7, 8], [8, 7], [8, 8]] {
        let mut pair = foreign_pair();
        connect(&mut pair[..], Peer(1), [first; 32]);
        // The caller has learned both, in the other order.
        pair[0].tcp.disconnect(Peer(1));
        introduce(&mut pair, 0, Peer(1), [15 - first; 32]);
        for process in &mut pair {
            process.tcp.learn(Peer(1), [first; 32]);
            process.tcp.learn(Peer(1), [15 - first; 32]);
        }
        pair[0].tcp.trust(Peer(1), [dials_with; 32]);
        until(&mut pair, |pair| pair[0].send(1, &eager(0), b"there").is_ok());
        until(&mut pair, |pair| pair[1].payloads() == [b"there"]);
    }
}

/// Repeats a step until there is a result.
fn repeat<T>(mut step: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = step() {
            return result;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "timed out");
    }
}

/// The number of its dial, which has said hello.
fn dial_that_has_asked(process: &mut Process) -> u32 {
    repeat(|| {
        let dials = process.tcp.greetings.iter().filter_map(|(id, greeting)| match greeting {
            Greeting::Dial(dial) => Some((id, dial.is_connecting())),
            Greeting::Answer(_) => None,
        });
        let (id, is_connecting) = dials.last().expect("it dials");
        if is_connecting {
            process.tcp.greet(id, Instant::now());
            return None;
        }
        Some(id)
    })
}

fn answers(process: &Process) -> usize {
    process.tcp.greetings.iter().filter(|(_, greeting)| matches!(greeting, Greeting::Answer(_))).count()
}

#[test]
fn a_dial_that_was_given_up_is_not_taken_for_one_of_the_next_association() {
    // The first one's name is smaller: if both dial, its dial wins.
    let mut pair = foreign_pair();
    connect(&mut pair, Peer(3), [5; 32]);
    assert!(pair.iter_mut().all(|process| process.send(3, &eager(0), b"") == Err(Refusal::Full)));
    let [dialled, given_up] = [0, 1].map(|it: usize| dial_that_has_asked(&mut pair[it]));
    let [first, second] = &mut pair;
    repeat(|| {
        first.tcp.accept(Instant::now());
        second.tcp.accept(Instant::now());
        (answers(first) > 0 && answers(second) > 0).then_some(())
    });
    // Both prove who they are; the second one gives up its own dial, and the first one does not notice that.
    repeat(|| {
        first.tcp.greet(dialled, Instant::now());
        if first.tcp.is_connected(Peer(3)) {
            return Some(());
        }
        second.tcp.greet(given_up, Instant::now());
        second.turn();
        None
    });
    assert!(second.tcp.is_connected(Peer(3)) && answers(first) == 1);
    for process in &mut pair {
        process.tcp.disconnect(Peer(3));
        process.tcp.forget(Peer(3));
        assert_eq!(answers(process), 0);
    }
    connect(&mut pair, Peer(4), [6; 32]);
    pair[0].turn();
    pair[0].turn();
    until(&mut pair, |pair| pair[1].send(4, &eager(0), b"there").is_ok());
    until(&mut pair, |pair| pair[0].payloads() == [b"there"]);
    assert!(pair.iter().all(|process| process.received.lost.is_empty()));
}

#[test]
fn a_connection_that_is_left_stays_open_until_the_other_side_leaves_it() {
    let mut pair = foreign_pair();
    connect(&mut pair, Peer(3), [5; 32]);
    until(&mut pair, |pair| pair[0].send(3, &eager(0), b"there").is_ok());
    until(&mut pair, |pair| pair[1].payloads() == [b"there"]);
    assert_eq!(pair[0].send(3, &Frame::Bye, b""), Ok(()));
    pair[0].tcp.disconnect(Peer(3));
    pair[0].tcp.forget(Peer(3));
    for payload in [&[1; 8][..], &[1; 5_000]] {
        assert_eq!(pair[1].send(3, &eager(1), payload), Ok(()));
        for _ in 0..20 {
            for process in &mut pair {
                process.turn();
            }
        }
        assert_eq!(pair.each_ref().map(|process| process.tcp.links.len()), [1, 1]);
    }
    assert_eq!(pair[1].send(3, &Frame::Bye, b""), Ok(()));
    pair[1].tcp.disconnect(Peer(3));
    pair[1].tcp.forget(Peer(3));
    until(&mut pair, |pair| pair.iter().all(|it| it.tcp.links.len() == 0));
    assert!(pair.iter().all(|process| process.received.lost.is_empty()));
}

#[test]
fn a_connection_that_is_about_to_open_is_known_on_both_sides() {
    let mut pair = foreign_pair();
    connect(&mut pair, Peer(3), [5; 32]);
    assert!(pair.iter().all(|process| !process.tcp.is_meeting(Peer(3))));
    assert_eq!(pair[0].send(3, &eager(0), b""), Err(Refusal::Full));
    let dialled = dial_that_has_asked(&mut pair[0]);
    assert!(!pair[0].tcp.is_meeting(Peer(3)), "it has not proved anything");
    repeat(|| {
        pair[1].tcp.accept(Instant::now());
        (answers(&pair[1]) > 0).then_some(())
    });
    assert!(pair[1].tcp.is_meeting(Peer(3)) && !pair[1].tcp.is_connected(Peer(3)));
    repeat(|| {
        pair[0].tcp.greet(dialled, Instant::now());
        pair[0].tcp.is_meeting(Peer(3)).then_some(())
    });
    until(&mut pair, |pair| pair.iter().all(|it| it.tcp.is_connected(Peer(3))));
    assert!(pair.iter().all(|process| !process.tcp.is_meeting(Peer(3))));
}

#[test]
fn a_later_attempt_proves_the_secret_that_is_known_then() {
    let mut pair = foreign_pair();
    introduce(&mut pair, 0, Peer(1), [7; 32]);
    assert_eq!(pair[0].send(1, &eager(0), b"early"), Err(Refusal::Full));
    until(&mut pair, |pair| pair[1].tcp.refused() > 0);
    pair[0].tcp.learn(Peer(1), [8; 32]);
    pair[0].tcp.trust(Peer(1), [8; 32]);
    introduce(&mut pair, 1, Peer(4), [8; 32]);
    until(&mut pair, |pair| {
        assert_eq!(pair[0].received.lost, []);
        pair[0].send(1, &eager(0), b"early").is_ok()
    });
    until(&mut pair, |pair| pair[1].payloads() == [b"early"]);
}
