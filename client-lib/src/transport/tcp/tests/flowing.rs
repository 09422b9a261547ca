//! Frames on open connections.

use super::*;

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// Sends a message in parts, as an engine does, while both processes run.
pub(super) fn send_in_parts(pair: &mut [Process], buffer: &Buffer, receive: u32) {
    let part = pair[0].tcp.limits(Peer(1)).part;
    let mut at = 0;
    until(pair, |pair| {
        while at < buffer.len() {
            let len = part.min(buffer.len() - at);
            match pair[0].tcp.try_send(Peer(1), &Frame::Part { receive }, Payload::new(buffer, at, len)) {
                Ok(()) => at += len,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Full);
                    return false;
                }
            }
        }
        true
    });
}

#[test]
fn messages_of_all_sizes_arrive_complete_and_in_order() {
    let mut pair = connected();
    let sizes = [0, 1, 15, 16, 40, 1_000, 4_096, 65_000, 65_536, 65_537, 300_000, 512 << 10, 3 << 20];
    for size in sizes {
        let bytes = pattern(size);
        until(&mut pair, |pair| pair[0].send(1, &eager(size as i32), &bytes).is_ok());
    }
    until(&mut pair, |pair| pair[1].received.frames.len() == sizes.len());
    for ((from, frame, payload), size) in pair[1].received.frames.iter().zip(sizes) {
        assert_eq!((*from, *frame, payload.len()), (Peer(0), eager(size as i32), size));
        assert!(*payload == pattern(size), "{size} bytes");
    }
}

#[test]
fn a_long_message_lands_in_the_users_memory() {
    let mut pair = connected();
    for len in [70_000, 64 << 20] {
        let bytes = pattern(len);
        pair[1].received.memory = vec![0; len];
        pair[1].received.filled = 0;
        send_in_parts(&mut pair, &lent(&bytes), 0);
        until(&mut pair, |pair| pair[1].received.filled == len);
        assert!(pair[1].received.memory == bytes, "{len} bytes");
        assert!(pair[1].received.frames.is_empty());
    }
}

#[test]
fn memory_with_holes_is_sent_packed() {
    #[expect(unsafe_code, reason = "lends memory as a user does")]
    fn every_other(bytes: &[u8]) -> Buffer {
        let layout = Arc::new(Layout::new(&[(0, 3)], 6));
        // SAFETY: nothing is received into it, and its users end before the bytes do.
        unsafe { Buffer::new(bytes.as_ptr().cast_mut(), bytes.len() / 6, &layout) }
    }
    let mut pair = connected();
    let bytes = pattern(3 << 20);
    let packed: Vec<u8> = bytes.chunks(6).filter(|six| six.len() == 6).flat_map(|six| six[..3].to_vec()).collect();
    pair[1].received.memory = vec![0; packed.len()];
    send_in_parts(&mut pair, &every_other(&bytes), 0);
    until(&mut pair, |pair| pair[1].received.filled == packed.len());
    assert!(pair[1].received.memory == packed);
}

#[test]
fn received_data_leave_holes_untouched() {
    let mut pair = connected();
    // Pieces that are worth an entry in a system call's list, and smaller ones.
    for (piece, extent) in [(3, 6), (5_000, 6_000)] {
        let len = 200 * 5_000 / piece * piece;
        let count = len / piece;
        let bytes = pattern(len);
        pair[1].received.memory = vec![0xee; count * extent];
        pair[1].received.filled = 0;
        pair[1].received.layout = Some(Arc::new(Layout::new(&[(0, piece)], extent as isize)));
        send_in_parts(&mut pair, &lent(&bytes), 0);
        until(&mut pair, |pair| pair[1].received.filled == len);
        for (element, sent) in pair[1].received.memory.chunks(extent).zip(bytes.chunks(piece)) {
            assert!(element[..piece] == *sent && element[piece..].iter().all(|byte| *byte == 0xee));
        }
    }
}

#[test]
fn both_directions_flow_at_once() {
    send_both_ways(&mut connected());
}

/// Both processes send many messages at once.
pub(super) fn send_both_ways(pair: &mut [Process]) {
    let bytes = pattern(400_000);
    let mut sent = [0, 0];
    until(pair, |pair| {
        for me in [0, 1] {
            while sent[me] < 50 && pair[me].send(1 - me as u32, &eager(sent[me]), &bytes).is_ok() {
                sent[me] += 1;
            }
        }
        pair.iter().all(|process| process.received.frames.len() == 50)
    });
    for process in pair {
        for ((_, frame, payload), tag) in process.received.frames.iter().zip(0..) {
            assert!(*frame == eager(tag) && *payload == bytes, "message {tag}");
        }
    }
}

#[test]
fn a_sender_is_refused_instead_of_queued_without_limit_if_the_receiver_does_not_read() {
    let mut pair = connected();
    let large = vec![1; LIMITS.part];
    let small = vec![2; 100];
    let mut sent = 0;
    // The system's buffers grow during sending: until nothing more is accepted over many polls.
    let mut refused = 0;
    while refused < 1_000 {
        refused += 1;
        pair[0].turn();
        for bytes in [&large, &small] {
            while pair[0].send(1, &eager(sent), bytes).is_ok() {
                sent += 1;
                refused = 0;
            }
        }
    }
    let link = pair[0].tcp.links.iter().next().unwrap().1;
    assert!(link.waiting() <= LIMITS.part + (65 << 10), "{} bytes are kept", link.waiting());
    until(&mut pair, |pair| pair[1].received.frames.len() == sent as usize);
    for ((_, frame, payload), tag) in pair[1].received.frames.iter().zip(0..) {
        assert!(*frame == eager(tag) && (*payload == large || *payload == small), "message {tag}");
    }
    assert!(!pair[0].tcp.links.iter().next().unwrap().1.is_sending());
}

#[test]
fn a_process_that_sleeps_is_woken_by_a_message() {
    let mut pair = connected();
    let [sender, sleeper] = &mut pair;
    // Until the connection is only read after a report.
    while !sleeper.tcp.active.is_empty() {
        sleeper.tcp.poll(&mut sleeper.received);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while sleeper.received.frames.len() < 100 {
                sleeper.sleep();
            }
        });
        for tag in 0..100 {
            sender.send(1, &eager(tag), &[7]).unwrap();
            std::thread::yield_now();
        }
    });
    assert_eq!(pair[1].received.frames.len(), 100);
}

#[test]
fn farewells_arrive_last_and_are_not_losses() {
    let mut pair = connected();
    let bytes = pattern(3 << 20);
    for tag in 0..4 {
        until(&mut pair, |pair| pair[0].send(1, &eager(tag), &bytes).is_ok());
    }
    assert_eq!(pair[0].tcp.connected(), [Peer(1)]);
    until(&mut pair, |pair| pair[0].send(1, &Frame::Bye, &[]).is_ok());
    assert_eq!(pair[0].send(1, &eager(9), b"more"), Err(Refusal::Lost));
    until(&mut pair, |pair| pair[1].received.frames.len() == 5);
    assert_eq!(pair[1].received.frames[4].1, Frame::Bye);
    // The other direction stays open.
    pair[1].send(0, &eager(5), b"last").unwrap();
    pair[1].send(0, &Frame::Bye, &[]).unwrap();
    until(&mut pair, |pair| pair[0].received.frames.len() == 2);
    assert!(pair.iter().all(|process| process.tcp.is_flushed()));
    let wanted = [(Peer(1), eager(5), b"last".to_vec()), (Peer(1), Frame::Bye, Vec::new())];
    assert_eq!(pair[0].received.frames, wanted);
    let [first, second] = pair;
    drop(first);
    let mut second = [second];
    until(&mut second, |second| second[0].tcp.connected().is_empty());
    second[0].turn();
    assert_eq!(second[0].received.lost, []);
    assert_eq!(second[0].tcp.describe(Peer(0)), "tcp (over)");
}

#[test]
fn a_process_may_exit_after_its_farewell_before_the_other_reads() {
    let [mut first, mut second] = connected();
    first.send(1, &eager(1), &pattern(100_000)).unwrap();
    first.send(1, &Frame::Bye, &[]).unwrap();
    while !first.tcp.is_flushed() {
        first.turn();
    }
    drop(first);
    // No process receives it any more: it must not break what has arrived.
    let _ = second.send(0, &eager(2), b"too late");
    until(std::slice::from_mut(&mut second), |second| second[0].received.frames.len() == 2);
    assert_eq!(second.payloads()[0], pattern(100_000));
    let _ = second.send(0, &Frame::Bye, &[]);
    until(std::slice::from_mut(&mut second), |second| second[0].tcp.connected().is_empty());
    second.turn();
    assert_eq!(second.received.lost, []);
}

#[test]
fn nothing_arrives_from_a_peer_that_was_cut() {
    let mut pair = connected();
    pair[1].send(0, &eager(1), b"nonsense").unwrap();
    pair[0].tcp.cut(Peer(1));
    assert_eq!(pair[0].send(1, &eager(2), b"a"), Err(Refusal::Lost));
    until(&mut pair, |pair| pair[1].received.lost.len() == 1);
    assert_eq!((&pair[0].received.frames, &pair[0].received.lost), (&Vec::new(), &Vec::new()));
    // Nor from a peer that was about to be dialled.
    let mut pair = Process::pair();
    assert_eq!(pair[0].send(1, &eager(0), b"a"), Err(Refusal::Full));
    pair[0].find();
    pair[0].tcp.cut(Peer(1));
    assert_eq!(pair[0].tcp.greetings.len(), 0);
    assert_eq!(pair[0].send(1, &eager(0), b"a"), Err(Refusal::Lost));
}

#[test]
fn a_death_is_reported_once_after_everything_that_was_sent() {
    let [mut first, second] = connected();
    first.send(1, &eager(1), b"before").unwrap();
    let address = first.tcp.links.iter().next().unwrap().1.socket.local_addr().unwrap();
    drop(first);
    let mut second = [second];
    until(&mut second, |second| !second[0].received.lost.is_empty());
    let second = &mut second[0];
    assert_eq!(second.payloads(), [b"before"]);
    let reason = format!("rank 0 ({address}): it closed the connection without finalizing MPI: its process has exited");
    assert_eq!(second.received.lost, [(Peer(0), reason)]);
    assert_eq!(second.send(0, &eager(2), b"after"), Err(Refusal::Lost));
    second.turn();
    assert_eq!(second.received.lost.len(), 1);
}

#[test]
fn a_death_within_a_message_is_reported() {
    let mut pair = connected();
    let bytes = pattern(LIMITS.part);
    // As long as the system accepts whole frames, none is cut.
    while !pair[0].tcp.links.iter().next().unwrap().1.is_sending() {
        let _ = pair[0].send(1, &eager(0), &bytes);
    }
    let [first, mut second] = pair;
    drop(first);
    until(std::slice::from_mut(&mut second), |second| !second[0].received.lost.is_empty());
    assert!(second.received.frames.iter().all(|(_, _, payload)| *payload == bytes));
}

#[test]
fn a_send_to_a_process_that_has_died_ends() {
    let [first, second] = connected();
    drop(second);
    let mut first = [first];
    until(&mut first, |first| first[0].send(1, &eager(0), &[0; 1_000]) == Err(Refusal::Lost));
    until(&mut first, |first| first[0].received.lost.len() == 1);
}

#[test]
fn invalid_frames_end_the_connection() {
    let mut pair = connected();
    let link = pair[0].tcp.links.iter().next().unwrap().1;
    (&*link.socket).write_all(&[0xff; 100]).unwrap();
    until(&mut pair, |pair| pair.iter().all(|process| process.received.lost.len() == 1));
    let reason = &pair[1].received.lost[0].1;
    assert!(reason.ends_with(": invalid frame: payload of 4294967295 bytes"), "{reason}");
}
