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

/// Introduces both processes to each other, each as this peer.
fn connect(pair: &mut [Process], peer: Peer, secret: [u8; 32]) {
    for (me, other) in [(0, 1), (1, 0)] {
        let (name, address) = (name(&pair[other]), pair[other].tcp.socket_address());
        pair[me].tcp.add_foreign(peer, name, address, secret);
    }
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
    let (name, address) = (name(&pair[1]), pair[1].tcp.socket_address());
    pair[0].tcp.add_foreign(Peer(1), name, address, [7; 32]);
    assert_eq!(pair[0].send(1, &eager(0), b"early"), Err(Refusal::Full));
    until(&mut pair, |pair| pair[1].tcp.refused() > 0);
    assert_eq!(pair[0].received.lost, []);
    let (name, address) = (self::name(&pair[0]), pair[0].tcp.socket_address());
    pair[1].tcp.add_foreign(Peer(4), name, address, [7; 32]);
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"early").is_ok());
    until(&mut pair, |pair| pair[1].payloads() == [b"early"]);
    assert_eq!(pair[1].received.frames[0].0, Peer(4));
}

#[test]
fn a_secret_that_is_neither_the_jobs_nor_the_pairs_is_refused() {
    let mut pair = foreign_pair();
    for (me, other, secret) in [(0, 1, [7; 32]), (1, 0, [8; 32])] {
        let (name, address) = (name(&pair[other]), pair[other].tcp.socket_address());
        pair[me].tcp.add_foreign(Peer(1), name, address, secret);
    }
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
        let (name, address) = (name(&pair[1]), pair[1].tcp.socket_address());
        pair[0].tcp.add_foreign(Peer(1), name, address, [15 - first; 32]);
        for process in &mut pair {
            process.tcp.learn(Peer(1), [first; 32]);
            process.tcp.learn(Peer(1), [15 - first; 32]);
        }
        pair[0].tcp.trust(Peer(1), [dials_with; 32]);
        until(&mut pair, |pair| pair[0].send(1, &eager(0), b"there").is_ok());
        until(&mut pair, |pair| pair[1].payloads() == [b"there"]);
    }
}
