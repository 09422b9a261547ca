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

#[test]
fn a_call_that_was_forgotten_is_not_taken_for_one_of_the_next_peer() {
    let mut world: [Process; 2] = world("forgotten", |config| config);
    let names = [0, 1].map(|me: usize| world[me].shm.config.me);
    world[0].shm.reach(Peer(1));
    assert!(world[0].shm.is_meeting(Peer(1)) && !world[0].shm.is_connected(Peer(1)));
    // A child of the process holds the socket, too.
    let index = world[0].shm.route(Peer(1)).unwrap();
    let LinkState::Calling(call) = &world[0].shm.links[index].state else { panic!("it calls") };
    let held = call.socket.as_ref().unwrap().0.try_clone().unwrap();
    for (me, other) in [(0, 1), (1, 0)] {
        world[me].shm.disconnect(Peer(other));
        world[me].shm.forget(Peer(other));
        world[me].shm.expect(Peer(5), names[other as usize]);
    }
    for _ in 0..10 {
        world[1].poll();
        assert!(!world[1].shm.is_connected(Peer(5)));
    }
    send(&mut world, 0, 5, &EAGER, b"there");
    send(&mut world, 1, 5, &EAGER, b"and back");
    world.iter_mut().for_each(Process::poll);
    assert!(world.iter().all(|process| process.inbox.frames.len() == 1 && process.inbox.lost.is_empty()));
    assert!(!world[0].shm.is_meeting(Peer(5)) && world[0].shm.is_connected(Peer(5)));
    drop(held);
}

#[test]
fn a_process_counts_among_those_that_share_the_cores_as_long_as_it_is_connected() {
    let mut world: [Process; 2] = world("counted", |config| config);
    let alone = format!("{:?}", world[0].shm.crowd);
    connect(&mut world);
    assert_ne!(format!("{:?}", world[0].shm.crowd), alone);
    disconnect(&mut world, [1, 0]);
    world.iter_mut().for_each(Process::poll);
    assert_eq!(format!("{:?}", world[0].shm.crowd), alone);
}
