//! Peers that write anything into the ring, or send anything on the socket.

use std::os::fd::OwnedFd;

use super::hello::Hello;
use super::link::Up;
use super::*;
use crate::memory::Room;

fn connected(test: &str) -> [Process; 2] {
    let mut world = world(test, |config| config);
    connect(&mut world);
    // Both directions are up, and peer 1 misbehaves towards peer 0.
    send(&mut world, 1, 0, &EAGER, b"");
    world[0].poll();
    world[0].inbox.frames.clear();
    world
}

fn up(process: &Process) -> &Up {
    match &process.shm.links[0].state {
        LinkState::Up(up) => up,
        other => panic!("{other:?}"),
    }
}

fn put(process: &Process, note: u32, data: [u8; DATA]) {
    let ring = up(process).segment.ring();
    let position = ring.claim(1, &mut 0, |_| ()).unwrap();
    ring.publish(position, note, |into| into.put(0, data));
}

fn data(frame: &Frame, cell: u32, len: u32) -> [u8; DATA] {
    let mut data = [0; DATA];
    frame.encode(Room::new(&mut data));
    data[CELL_AT..CELL_AT + 4].copy_from_slice(&cell.to_ne_bytes());
    data[CELL_AT + 4..].copy_from_slice(&len.to_ne_bytes());
    data
}

#[test]
fn an_invalid_frame_ends_its_sender_and_no_other_peer() {
    let vectors = [
        (0, [0xff; DATA], "it sent an invalid frame"),
        (0, [0; DATA], "it sent an invalid frame"),
        (41, data(&EAGER, 0, 0), "it sent a frame longer than its slots"),
        (208, data(&EAGER, 0, 0), "it sent a frame longer than its slots"),
        (255, data(&Frame::Done { send: 1 }, 0, 0), "it sent a frame longer than its slots"),
        (IN_CELL, data(&EAGER, 6, 1), "it sent a frame in an unknown cell"),
        (IN_CELL, data(&EAGER, u32::MAX, 1), "it sent a frame in an unknown cell"),
        (IN_CELL, data(&EAGER, 0, 4097), "it sent a frame in an unknown cell"),
        (IN_CELL, data(&EAGER, 5, 32769), "it sent a frame in an unknown cell"),
        (IN_CELL, data(&EAGER, 4, u32::MAX), "it sent a frame in an unknown cell"),
    ];
    for (nth, (note, data, reason)) in vectors.into_iter().enumerate() {
        let [mut first, second] = connected(&format!("cannot be {nth}"));
        put(&second, up(&second).sign | note, data);
        first.poll();
        assert!(first.inbox.frames.is_empty());
        assert_eq!(first.inbox.lost.len(), 1, "{nth}");
        assert!(first.inbox.lost[0].1.ends_with(reason), "{}", first.inbox.lost[0].1);
        assert_eq!(first.try_send(1, &EAGER, b""), Err(Refusal::Lost));
    }
}

#[test]
fn frames_from_unknown_links_are_counted_and_ignored() {
    let [mut first, mut second] = connected("unknown-links");
    put(&second, 1 << 16, data(&EAGER, 0, 0));
    put(&second, 0xffff << 16, data(&EAGER, 0, 0));
    assert_eq!(second.try_send(0, &EAGER, b"honest"), Ok(()));
    first.poll();
    assert_eq!(first.shm.strays, 2);
    assert_eq!(first.inbox.frames.len(), 1);
    assert!(first.inbox.lost.is_empty());
}

#[test]
fn garbage_on_the_socket_harms_no_peer() {
    let [mut first]: [Process; 1] = world("garbage", |config| config);
    let me = first.shm.config.me;
    let hello = Hello {
        from: ProcessName { rank: 1, ..me },
        to: me,
        sign: 0,
        geometry: Geometry { slots: 16, small: 4, large: 2 },
        nonce: 1,
        probe: 8,
        namespaces: [0, 0],
    };
    let send_to = |first: &mut Process, packet: &[u8]| {
        let caller = socket::call(me).unwrap().0;
        nix::unistd::write(&caller, packet).unwrap();
        first.poll();
        first.poll();
        matches!(socket::receive(&caller), socket::Received::End)
    };
    assert!(send_to(&mut first, b"GET / HTTP/1.1\r\n\r\n"));
    assert!(send_to(&mut first, &[0; 1000]));
    // No process of that name is expected.
    assert!(send_to(&mut first, &hello.encode()));
    first.shm.expect(Peer(1), hello.from);
    // Addressed to another process.
    assert!(send_to(&mut first, &Hello { to: hello.from, ..hello }.encode()));
    assert!(first.inbox.lost.is_empty());
    // An incomplete hello loses the peer, because this one is expected.
    assert!(!send_to(&mut first, &hello.encode()));
    assert_eq!(first.inbox.lost.len(), 1);
    assert!(first.inbox.lost[0].1.ends_with("it did not pass its segment and doorbell"));
}

#[test]
fn silent_callers_are_bounded_and_block_no_peer() {
    let mut world: [Process; 2] = world("silent", |config| config);
    let me = world[0].shm.config.me;
    let callers: Vec<OwnedFd> = (0..20).map(|_| socket::call(me).unwrap().0).collect();
    world[0].poll();
    assert_eq!(world[0].shm.callers.len(), 20);
    send(&mut world, 1, 0, &EAGER, b"x");
    drop(callers);
    for _ in 0..5 {
        world[0].poll();
    }
    assert!(world[0].shm.callers.is_empty());
    assert_eq!(world[0].inbox.frames.len(), 1);
}
