//! Peers that leave, and peers that take their places.

use super::*;

/// Both processes say farewell and forget each other.
fn disconnect(world: &mut [Process], peers: [u32; 2]) {
    for (me, peer) in [0, 1].into_iter().zip(peers) {
        send(world, me, peer, &Frame::Bye, &[]);
    }
    for (process, peer) in world.iter_mut().zip(peers) {
        process.poll();
        process.shm.disconnect(Peer(peer));
        process.shm.forget(Peer(peer));
    }
}

#[test]
fn sent_data_stay_until_the_peer_has_read_them() {
    let mut world: [Process; 3] = world("left", |config| config);
    connect(&mut world);
    send(&mut world, 0, 2, &EAGER, &[]);
    world[2].poll();
    let sent = pattern(LARGE, 1);
    send(&mut world, 0, 1, &EAGER, &sent);
    send(&mut world, 0, 1, &Frame::Bye, &[]);
    send(&mut world, 1, 0, &Frame::Bye, &[]);
    world[0].poll();
    world[0].shm.disconnect(Peer(1));
    world[0].shm.forget(Peer(1));
    assert!(!world[0].shm.connected().contains(&Peer(1)));
    // One of two long cells is still in use: the other one serves the remaining peers.
    for seed in 2..6 {
        send(&mut world[..], 0, 2, &EAGER, &pattern(LARGE, seed));
        world[2].poll();
        world[0].poll();
    }
    world[1].poll();
    let got: Vec<_> = world[1].inbox.frames.iter().map(|(_, frame, _)| *frame).collect();
    assert_eq!(got, [EAGER, Frame::Bye]);
    assert!(world[1].inbox.frames[0].2 == sent, "it was overwritten");
    world[1].shm.forget(Peer(0));
    world[0].poll();
    assert_eq!(world[0].shm.vacant.len(), 1);
    assert!(world.iter().all(|process| process.inbox.lost.is_empty()));
}

#[test]
fn the_same_process_can_connect_and_leave_repeatedly() {
    let mut world: [Process; 2] = world("again", |config| config);
    let names = [0, 1].map(|me: usize| world[me].shm.config.me);
    connect(&mut world);
    disconnect(&mut world, [1, 0]);
    for round in 0..50 {
        let peer = 5 + round % 3;
        for (me, other) in [(0, 1), (1, 0)] {
            world[me].shm.expect(Peer(peer), names[other]);
            world[me].inbox.frames.clear();
        }
        send(&mut world, 0, peer, &EAGER, b"there");
        send(&mut world, 1, peer, &EAGER, b"and back");
        world.iter_mut().for_each(Process::poll);
        for (process, text) in world.iter().zip([&b"and back"[..], b"there"]) {
            assert_eq!(process.inbox.frames, [(Peer(peer), EAGER, text.to_vec())], "round {round}");
        }
        disconnect(&mut world, [peer, peer]);
        assert!(world.iter().all(|process| process.inbox.lost.is_empty() && process.shm.links.len() <= 2));
    }
}
