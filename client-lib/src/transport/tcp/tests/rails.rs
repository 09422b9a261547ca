//! Links with further connections.

use std::net::Shutdown;

use super::flowing::{pattern, send_both_ways, send_in_parts};
use super::wire::{Control, Offer};
use super::*;

/// A process with interfaces at the loopback addresses that end with these numbers.
fn with_rails(rank: u32, ends: &[u8]) -> TcpConfig {
    let interface = |end: &u8| {
        let address = Ipv4Addr::new(127, 0, 0, *end).into();
        Interface { name: "lo".into(), address, prefix: 32, loopback: true }
    };
    let rails: Vec<Interface> = ends.iter().map(interface).collect();
    TcpConfig { listen: Listen::At(rails[0].address), rails, ..config(rank) }
}

fn pair_of(ends: [&[u8]; 2]) -> [Process; 2] {
    let pair = Process::world_of((0..).zip(ends).map(|(rank, ends)| with_rails(rank, ends)));
    pair.try_into().unwrap_or_else(|_| unreachable!("two were asked for"))
}

/// The number of rails that a process can send on.
fn joined(process: &Process) -> usize {
    let lanes = process.tcp.links.iter().filter_map(|(_, link)| link.lanes.as_ref());
    lanes.map(|lanes| lanes.joined()).sum()
}

/// Two processes of which `from` has sent a long frame, until both have this many rails.
fn railed(ends: [&[u8]; 2], from: usize, rails: usize) -> [Process; 2] {
    let mut pair = pair_of(ends);
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"first").is_ok());
    until(&mut pair, |pair| !pair[1].received.frames.is_empty());
    let to = 1 - from;
    until(&mut pair, |pair| pair[from].send(to as u32, &eager(1), &pattern(100_000)).is_ok());
    until(&mut pair, |pair| pair.iter().all(|process| joined(process) == rails));
    until(&mut pair, |pair| pair[to].received.frames.last().is_some_and(|(_, frame, _)| *frame == eager(1)));
    pair.iter_mut().for_each(|process| process.received.frames.clear());
    pair
}

/// What each connection of the only link has carried.
fn carried(process: &Process) -> Vec<u64> {
    let (_, link) = process.tcp.links.iter().next().unwrap();
    link.lanes.as_ref().unwrap().carried()
}

#[test]
fn long_messages_go_over_all_connections_and_arrive_in_order() {
    for from in [0, 1] {
        let mut pair = railed([&[1, 2, 3], &[1, 2, 3]], from, 2);
        pair.rotate_left(from);
        let to = 1 - from as u32;
        let sizes = [0, 1, 65_535, 65_536, 65_537, 300_001, 3 << 20, 16, 4 << 20, 100_000];
        for size in sizes {
            let bytes = pattern(size);
            until(&mut pair, |pair| pair[0].send(to, &eager(size as i32), &bytes).is_ok());
        }
        until(&mut pair, |pair| pair[1].received.frames.len() == sizes.len());
        for ((_, frame, payload), size) in pair[1].received.frames.iter().zip(sizes) {
            assert_eq!((*frame, payload.len()), (eager(size as i32), size));
            assert!(*payload == pattern(size), "{size} bytes");
        }
        let carried = carried(&pair[0]);
        assert!(carried.len() == 2 && carried.iter().all(|bytes| *bytes > 100_000), "{carried:?}");
        assert!(pair.iter().all(|process| process.tcp.is_flushed() && process.received.lost.is_empty()));
    }
}

#[test]
fn slices_land_in_the_users_memory() {
    let mut pair = railed([&[1, 2, 3], &[1, 2, 3]], 0, 2);
    let len = 20 << 20;
    let bytes = pattern(len);
    pair[1].received.memory = vec![0; len];
    send_in_parts(&mut pair, &lent(&bytes), 0);
    until(&mut pair, |pair| pair[1].received.filled == len);
    assert!(pair[1].received.memory == bytes && pair[1].received.frames.is_empty());
    // With holes: pieces that are worth an entry in a system call's list, and smaller ones.
    for (piece, extent) in [(3, 6), (5_000, 6_000)] {
        let len = 400 * 5_000 / piece * piece;
        pair[1].received.memory = vec![0xee; len / piece * extent];
        pair[1].received.filled = 0;
        pair[1].received.layout = Some(Arc::new(Layout::new(&[(0, piece)], extent as isize)));
        send_in_parts(&mut pair, &lent(&bytes[..len]), 0);
        until(&mut pair, |pair| pair[1].received.filled == len);
        for (element, sent) in pair[1].received.memory.chunks(extent).zip(bytes.chunks(piece)) {
            assert!(element[..piece] == *sent && element[piece..].iter().all(|byte| *byte == 0xee));
        }
    }
}

#[test]
fn both_directions_use_the_rails_at_once() {
    send_both_ways(&mut railed([&[1, 2], &[1, 2]], 1, 1));
}

#[test]
fn processes_that_begin_at_once_get_each_rail_once() {
    for seed in 1..50 {
        let mut dice = Dice(seed);
        let mut pair = pair_of([&[1, 2, 3], &[1, 2, 3]]);
        let bytes = pattern(70_000);
        let mut sent = [0, 0];
        let whole = |pair: &[Process]| pair.iter().all(|process| process.received.frames.len() == 5);
        while !whole(&pair) || pair.iter().any(|process| joined(process) < 2) {
            let me = dice.below(2);
            if sent[me] < 5 && dice.below(2) == 0 && pair[me].send(1 - me as u32, &eager(sent[me]), &bytes).is_ok() {
                sent[me] += 1;
            }
            pair[me].turn();
        }
        for process in &pair {
            let tags: Vec<_> = process.received.frames.iter().map(|(_, frame, _)| *frame).collect();
            assert_eq!(tags, [0, 1, 2, 3, 4].map(eager), "seed {seed}");
            assert!(process.received.frames.iter().all(|(_, _, payload)| *payload == bytes));
            assert_eq!((joined(process), &process.received.lost), (2, &Vec::new()));
        }
    }
}

#[test]
fn the_side_with_fewer_interfaces_limits_the_pair() {
    for from in [0, 1] {
        railed([&[1, 2, 3, 4], &[1, 2]], from, 1);
        railed([&[1, 2], &[1, 2, 3, 4]], from, 1);
    }
    // One that has none ignores what is offered.
    for (ends, from) in [([&[1_u8, 2][..], &[1]], 0), ([&[1], &[1, 2]], 1), ([&[1, 2], &[1]], 1)] {
        let mut pair = pair_of(ends);
        until(&mut pair, |pair| pair[0].send(1, &eager(0), b"first").is_ok());
        let to = 1 - from as u32;
        for tag in 1..20 {
            until(&mut pair, |pair| pair[from].send(to, &eager(tag), &pattern(200_000)).is_ok());
            pair.iter_mut().for_each(|process| process.look());
        }
        until(&mut pair, |pair| {
            pair[to as usize].received.frames.last().is_some_and(|(_, frame, _)| *frame == eager(19))
        });
        assert!(pair.iter().all(|process| joined(process) == 0 && process.received.lost.is_empty()));
    }
}

#[test]
fn short_messages_make_no_rail_and_no_socket() {
    let mut pair = pair_of([&[1, 2], &[1, 2]]);
    for tag in 0..20 {
        until(&mut pair, |pair| pair[0].send(1, &eager(tag), &pattern(60_000)).is_ok());
    }
    until(&mut pair, |pair| pair[1].received.frames.len() == 20);
    for process in &pair {
        assert!(process.tcp.links.iter().all(|(_, link)| link.lanes.is_none()));
        assert!(process.tcp.rails.as_ref().unwrap().listener(1).is_none());
    }
}

#[test]
fn a_rail_that_cannot_be_connected_is_left_out() {
    let mut pair = pair_of([&[1, 2], &[1, 2]]);
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"first").is_ok());
    until(&mut pair, |pair| !pair[1].received.frames.is_empty());
    until(&mut pair, |pair| pair[1].send(0, &eager(1), &pattern(100_000)).is_ok());
    // The offer is under way: the port is closed meanwhile.
    pair[1].tcp.rails.as_mut().unwrap().close_listeners();
    until(&mut pair, |pair| pair[0].tcp.rails.as_ref().unwrap().is_told());
    until(&mut pair, |pair| pair[0].send(1, &eager(2), &pattern(100_000)).is_ok());
    until(&mut pair, |pair| pair[1].received.frames.len() == 2 && pair[0].received.frames.len() == 1);
    assert!(pair.iter().all(|process| joined(process) == 0 && process.received.lost.is_empty()));
}

#[test]
fn a_rail_that_breaks_loses_the_peer_and_is_named() {
    for broken in [0, 1] {
        let mut pair = railed([&[1, 2], &[1, 2]], 0, 1);
        let rail = pair[broken].tcp.links.iter().next().unwrap().1.lanes.as_ref().unwrap();
        let address = rail.addresses().next().unwrap();
        rail.sockets().next().unwrap().shutdown(Shutdown::Both).unwrap();
        let mut tag = 0;
        until(&mut pair, |pair| {
            if pair[0].send(1, &eager(tag), &pattern(1 << 20)).is_ok() {
                tag += 1;
            }
            pair.iter().all(|process| process.received.lost.len() == 1)
        });
        assert_eq!(address.ip(), Ipv4Addr::new(127, 0, 0, 2));
        let told = pair.iter().filter(|process| process.received.lost[0].1.contains("its connection at 127.0.0.2:"));
        assert!(told.count() > 0, "{:?}", pair.each_ref().map(|process| &process.received.lost));
        assert!(pair[1].received.frames.iter().all(|(_, _, payload)| *payload == pattern(1 << 20)));
        assert_eq!(pair[0].send(1, &eager(0), b"a"), Err(Refusal::Lost));
    }
}

#[test]
fn a_death_within_a_slice_is_reported() {
    let mut pair = railed([&[1, 2, 3], &[1, 2, 3]], 0, 2);
    let bytes = pattern(LIMITS.part);
    let mut tag = 0;
    while !pair[0].tcp.links.iter().next().unwrap().1.is_sending() {
        let _ = pair[0].send(1, &eager(tag), &bytes);
        tag += 1;
    }
    let [first, mut second] = pair;
    drop(first);
    until(std::slice::from_mut(&mut second), |second| !second[0].received.lost.is_empty());
    assert!(second.received.frames.iter().all(|(_, _, payload)| *payload == bytes));
    let reason = &second.received.lost[0].1;
    assert!(reason.contains("its process has exited") || reason.contains("reset by peer"), "{reason}");
    assert!(second.tcp.own.tickets.is_empty());
}

#[test]
fn farewells_arrive_after_all_slices() {
    let mut pair = railed([&[1, 2, 3], &[1, 2, 3]], 0, 2);
    let bytes = pattern(3 << 20);
    for tag in 0..4 {
        until(&mut pair, |pair| pair[0].send(1, &eager(tag), &bytes).is_ok());
    }
    until(&mut pair, |pair| pair[0].send(1, &Frame::Bye, &[]).is_ok());
    until(&mut pair, |pair| pair[1].received.frames.len() == 5);
    assert!(pair[1].received.frames[..4].iter().all(|(_, _, payload)| *payload == bytes));
    assert_eq!(pair[1].received.frames[4].1, Frame::Bye);
    pair[1].send(0, &Frame::Bye, &[]).unwrap();
    until(&mut pair, |pair| !pair[0].received.frames.is_empty());
    let [first, mut second] = pair;
    drop(first);
    until(std::slice::from_mut(&mut second), |second| second[0].tcp.connected().is_empty());
    second.turn();
    assert_eq!((second.tcp.greetings.len(), &second.received.lost), (0, &Vec::new()));
    assert!(second.tcp.own.tickets.is_empty());
}

#[test]
fn a_receiver_that_sleeps_is_woken_by_its_rails() {
    let mut pair = railed([&[1, 2, 3], &[1, 2, 3]], 0, 2);
    let [sender, sleeper] = &mut pair;
    let bytes = pattern(2 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while sleeper.received.frames.len() < 30 {
                while sleeper.tcp.poll(&mut sleeper.received) {}
                if sleeper.received.frames.len() < 30 {
                    sleeper.sleep();
                }
            }
        });
        for tag in 0..30 {
            while sender.send(1, &eager(tag), &bytes).is_err() {
                sender.sleep();
            }
        }
        while !sender.tcp.is_flushed() {
            sender.sleep();
        }
    });
    assert!(pair[1].received.frames.iter().all(|(_, _, payload)| *payload == bytes));
}

#[test]
fn a_receiver_that_does_not_read_holds_up_no_short_queue_without_limit() {
    let mut pair = railed([&[1, 2, 3], &[1, 2, 3]], 0, 2);
    let (large, small) = (pattern(LIMITS.part), pattern(100));
    let (mut sent, mut refused) = (0, 0);
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
}

/// Two processes of which the second has offered its rails; returns also the port of the first rail, and the ticket.
fn offered() -> ([Process; 2], SocketAddr, u64) {
    let mut pair = pair_of([&[1], &[1, 2]]);
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"first").is_ok());
    until(&mut pair, |pair| !pair[1].received.frames.is_empty());
    until(&mut pair, |pair| pair[1].send(0, &eager(1), &pattern(100_000)).is_ok());
    until(&mut pair, |pair| !pair[0].received.frames.is_empty());
    let port = pair[1].tcp.rails.as_ref().unwrap().listener(1).unwrap().local_addr().unwrap();
    let ticket = *pair[1].tcp.own.tickets.values().next().unwrap();
    (pair, port, ticket)
}

/// Connects to the port of a rail as the process of this rank; returns the socket after the proof, if it gets that far.
fn intrude(pair: &mut [Process; 2], port: SocketAddr, secret: &[u8; 32], rank: u32) -> Option<TcpStream> {
    let name = |rank| ProcessName { world: WORLD, rank };
    let (dialler, hello) = hello::Dialler::new(secret, name(rank), name(1), [5; 32]);
    let mut socket = TcpStream::connect(port).unwrap();
    socket.write_all(&hello).unwrap();
    let mut challenge = [0; hello::CHALLENGE];
    socket.set_nonblocking(true).unwrap();
    let mut filled = 0;
    until(pair, |_| match socket.read(&mut challenge[filled..]) {
        Ok(count) => {
            filled += count;
            count == 0 || filled == hello::CHALLENGE
        }
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    });
    if filled < hello::CHALLENGE {
        return None;
    }
    let proof = dialler.on_challenge(secret, &challenge).ok()?;
    socket.write_all(&proof).unwrap();
    Some(socket)
}

fn verdict(pair: &mut [Process; 2], mut socket: &TcpStream) -> hello::Verdict {
    let mut verdict = [0; hello::VERDICT];
    until(pair, |_| socket.read(&mut verdict).is_ok());
    hello::Dialler::on_verdict(&verdict).unwrap()
}

#[test]
fn only_the_peer_of_a_link_gets_into_it_and_only_once_for_each_rail() {
    let (mut pair, port, ticket) = offered();
    let right = hello::rail_secret(&SECRET, ticket, 1);
    let wrong = [
        // Those of the main connection, another rail, another link, and another job.
        (SECRET, 0),
        (hello::rail_secret(&SECRET, ticket, 2), 0),
        (hello::rail_secret(&SECRET, ticket + 1, 1), 0),
        (hello::rail_secret(&[9; 32], ticket, 1), 0),
        // A process of the job that has no link.
        (right, 2),
    ];
    for (count, (secret, rank)) in (1..).zip(wrong) {
        assert!(intrude(&mut pair, port, &secret, rank).is_none());
        until(&mut pair, |pair| pair[1].tcp.refused() == count);
    }
    let first = intrude(&mut pair, port, &right, 0).unwrap();
    assert_eq!(verdict(&mut pair, &first), hello::Verdict::Welcome);
    let second = intrude(&mut pair, port, &right, 0).unwrap();
    assert_eq!(verdict(&mut pair, &second), hello::Verdict::Over);
    assert!(pair.iter().all(|process| process.received.lost.is_empty() && process.tcp.greetings.len() == 0));
    // Bytes that it sends before it has joined do not belong to a slice.
    (&first).write_all(&[7; 1_000]).unwrap();
    pair[0].send(1, &eager(2), b"still here").unwrap();
    until(&mut pair, |pair| pair[1].received.frames.last().is_some_and(|(_, frame, _)| *frame == eager(2)));
}

#[test]
fn silent_connections_to_all_ports_share_the_places() {
    let (mut pair, port, _) = offered();
    let main: SocketAddr = pair[1].tcp.address().parse().unwrap();
    let mut intruders = Vec::new();
    for at in 0..UNIDENTIFIED_MAX + 10 {
        intruders.push(TcpStream::connect([port, main][at % 2]).unwrap());
        pair[1].turn();
    }
    until(&mut pair, |pair| pair[1].tcp.refused() == 10);
    assert_eq!(pair[1].tcp.greetings.len(), UNIDENTIFIED_MAX);
}

#[test]
fn records_that_nothing_has_led_to_end_the_connection() {
    let address = "127.0.0.2:9".parse().unwrap();
    let offer = |rail, left| Control::Offer(Offer { rail, left, address, ticket: 0 });
    let unexpected = "invalid record between frames: nothing was asked or offered";
    // From the process that has dialled (0), and from the other one.
    for (from, records, reason) in [
        (0, vec![Control::Joined(1)], "invalid record between frames: rail 1 is not open"),
        (1, vec![Control::Joined(2)], "invalid record between frames: rail 2 is not open"),
        (1, vec![Control::Want], unexpected),
        (0, vec![offer(1, 0)], unexpected),
        (1, vec![offer(1, 2), offer(2, 2)], unexpected),
        (1, vec![offer(1, 2), offer(1, 1)], unexpected),
        (1, vec![offer(1, 0), offer(2, 0)], unexpected),
        (0, vec![Control::Cut([9, 7, 0, 0, 0, 0, 0, 0])], "invalid record between frames: rail 1 is not open"),
        (
            0,
            vec![Control::Cut([9, 0, 0, 0, 0, 0, 0, 0]), Control::Want],
            "invalid frame: its slices are not its payload",
        ),
    ] {
        let mut pair = connected();
        let link = pair[from].tcp.links.iter().next().unwrap().1;
        for record in &records {
            (&*link.socket).write_all(&record.encode()).unwrap();
        }
        let to = 1 - from;
        until(&mut pair, |pair| pair[to].received.lost.len() == 1);
        let said = &pair[to].received.lost[0].1;
        assert!(said.ends_with(reason), "{records:?}: {said}");
    }
}
