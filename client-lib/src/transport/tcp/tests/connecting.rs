//! Making a connection, and what may interfere.

use std::net::TcpListener;

use super::*;

/// One randomly chosen step of the process.
fn step(process: &mut Process, dice: &mut Dice) {
    match dice.below(3) {
        0 => process.look(),
        1 => process.find(),
        _ => {
            process.tcp.poll(&mut process.received);
        }
    }
}

#[test]
fn two_processes_that_dial_each_other_at_once_get_one_connection() {
    for seed in 1..300 {
        let mut dice = Dice(seed);
        let mut pair = Process::pair();
        let mut sent = [0, 0];
        let whole = |pair: &[Process]| pair.iter().all(|process| process.received.frames.len() == 3);
        while !whole(&pair) {
            let me = dice.below(2);
            if sent[me] < 3 && dice.below(2) == 0 && pair[me].send(1 - me as u32, &eager(sent[me]), &[me as u8]).is_ok()
            {
                sent[me] += 1;
            }
            step(&mut pair[me], &mut dice);
        }
        // The rest of the other attempt disappears without effect.
        until(&mut pair, |pair| pair.iter().all(|process| process.tcp.greetings.len() == 0));
        for (me, process) in pair.iter().enumerate() {
            let tags: Vec<_> = process.received.frames.iter().map(|(_, frame, _)| *frame).collect();
            assert_eq!(tags, [eager(0), eager(1), eager(2)], "seed {seed}, process {me}");
            assert_eq!(
                (process.tcp.links.len(), &process.received.lost),
                (1, &Vec::new()),
                "seed {seed}, process {me}"
            );
        }
    }
}

#[test]
fn each_of_sixteen_processes_reaches_all_others_at_the_same_time() {
    const COUNT: u32 = 16;
    let mut world = Process::world(COUNT);
    let mut sent = vec![[false; COUNT as usize]; COUNT as usize];
    until(&mut world, |world| {
        for (me, process) in world.iter_mut().enumerate() {
            for to in (0..COUNT as usize).filter(|to| *to != me) {
                sent[me][to] = sent[me][to] || process.send(to as u32, &eager(me as i32), &[to as u8]).is_ok();
            }
        }
        world.iter().all(|process| process.received.frames.len() == COUNT as usize - 1)
    });
    for (me, process) in world.iter().enumerate() {
        assert_eq!((process.tcp.links.len(), &process.received.lost), (COUNT as usize - 1, &Vec::new()));
        for (from, frame, payload) in &process.received.frames {
            assert_eq!((*frame, &payload[..]), (eager(from.0 as i32), &[me as u8][..]));
        }
    }
}

#[test]
fn a_hundred_processes_reach_one() {
    let mut world = Process::world(101);
    let mut sent = [false; 101];
    until(&mut world, |world| {
        for (me, process) in world.iter_mut().enumerate().skip(1) {
            sent[me] = sent[me] || process.send(0, &eager(me as i32), b"me").is_ok();
        }
        world[0].received.frames.len() == 100
    });
    assert_eq!(world[0].tcp.links.len(), 100);
    assert!(world.iter().all(|process| process.received.lost.is_empty()));
}

#[test]
fn a_dialler_waits_for_a_peer_that_computes() {
    let [mut first, mut second] = Process::pair();
    for _ in 0..1_000 {
        assert_eq!(first.send(1, &eager(0), b"early"), Err(Refusal::Full));
        first.turn();
    }
    assert_eq!(first.received.lost, []);
    assert_eq!(first.tcp.describe(Peer(1)), "tcp (connecting)");
    // Nor does one side's answer expect an immediate reply.
    for _ in 0..1_000 {
        second.turn();
    }
    let mut pair = [first, second];
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"early").is_ok());
    until(&mut pair, |pair| pair[1].payloads() == [b"early"]);
    assert_eq!(pair[1].tcp.refused(), 0);
}

#[test]
fn a_hello_that_arrives_too_late_is_sent_again() {
    let [mut first, mut second] = Process::pair();
    second.tcp.own.hello_limit = Duration::ZERO;
    assert_eq!(first.send(1, &eager(0), b"a"), Err(Refusal::Full));
    let peer = first.tcp.next_wanted().unwrap();
    let address = first.addresses[&peer].clone().unwrap().parse().unwrap();
    // It has connected, and then computes.
    let name = first.tcp.directory.name(peer).unwrap();
    let dial = Dial::new(&first.tcp.own, peer, name, address, Instant::now());
    let id = first.tcp.greetings.add(Greeting::Dial(dial));
    first.tcp.directory.set(peer, Way::Dialled(id));
    while second.tcp.refused() == 0 {
        second.turn();
    }
    second.tcp.own.hello_limit = Duration::from_secs(20);
    first.tcp.greet(id, Instant::now());
    let mut pair = [first, second];
    until(&mut pair, |pair| pair[0].send(1, &eager(0), b"a").is_ok());
    until(&mut pair, |pair| pair[1].payloads() == [b"a"]);
    assert_eq!(pair[0].received.lost, []);
}

#[test]
fn a_peer_may_dial_before_it_is_expected() {
    let mut pair = [Process::new(config(0)), Process::new(config(1))];
    let address = pair[1].tcp.address();
    pair[0].knows(1, Ok(&address));
    let mut turns = 0;
    until(&mut pair, |pair| {
        turns += 1;
        if turns == 50 {
            pair[1].knows(0, Err("not needed"));
        }
        pair[0].send(1, &eager(0), b"a").is_ok()
    });
    until(&mut pair, |pair| pair[1].payloads() == [b"a"]);
    assert!(turns > 50);
}

/// Returns the error that the first of two processes gets when the second's address leads to `server`, which gets the first
/// connection.
fn told_of(server: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        drop(listener);
        server(socket);
    });
    let mut first = [Process::new(config(0))];
    first[0].knows(1, Ok(&address.to_string()));
    until(&mut first, |first| first[0].send(1, &eager(0), b"a") == Err(Refusal::Lost));
    until(&mut first, |first| !first[0].received.lost.is_empty());
    server.join().unwrap();
    assert_eq!(first[0].received.lost.len(), 1);
    let (peer, reason) = &first[0].received.lost[0];
    assert_eq!(*peer, Peer(1));
    reason.replace(&address.to_string(), "ADDRESS")
}

fn read(socket: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    socket.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_failure_at_the_peer_is_reported_with_its_address() {
    const REFUSED: &str = "rank 1 (ADDRESS): it is unreachable: Connection refused (os error 111)";
    // A peer that closes the connection may have been too busy to read; when it no longer listens, the attempt ends.
    assert_eq!(told_of(drop), REFUSED);
    assert_eq!(told_of(|mut socket| drop(read(&mut socket, hello::HELLO))), REFUSED);
    let foreign = told_of(|mut socket| {
        read(&mut socket, hello::HELLO);
        socket.write_all(&[b'x'; hello::CHALLENGE]).unwrap();
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    });
    let prefix = "rank 1 (ADDRESS): it is unreachable: failed to ";
    assert_eq!(foreign, format!("{prefix}understand it: it does not speak this library's protocol"));
    let wrong = told_of(|mut socket| {
        let hello = read(&mut socket, hello::HELLO);
        let mut challenge = [0; hello::CHALLENGE];
        challenge[..16].copy_from_slice(&hello[..16]);
        socket.write_all(&challenge).unwrap();
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    });
    let secret = "authenticate it: it does not know the secret of this job, or is a different process of it";
    assert_eq!(wrong, format!("{prefix}{secret}"));
    let at_the_end = told_of(|mut socket| {
        let hello = read(&mut socket, hello::HELLO).try_into().unwrap();
        let me = ProcessName { world: WORLD, rank: 1 };
        let (_, challenge) = hello::Acceptor::new(&SECRET, me, [0; 32], &hello).unwrap();
        socket.write_all(&challenge).unwrap();
        read(&mut socket, hello::PROOF);
    });
    assert_eq!(at_the_end, REFUSED);
}

#[test]
fn an_invalid_address_is_reported() {
    let mut first = [Process::new(config(0))];
    for (rank, address) in [(1, Ok("node7")), (2, Err("the process manager has no address for it"))] {
        first[0].knows(rank, address);
        until(&mut first, |first| first[0].send(rank, &eager(0), b"a") == Err(Refusal::Lost));
    }
    first[0].turn();
    let reasons: Vec<_> = first[0].received.lost.iter().map(|(_, reason)| &reason[..]).collect();
    let wanted = ["rank 1: invalid address \"node7\"", "rank 2: the process manager has no address for it"];
    assert_eq!(reasons, wanted);
}

#[test]
fn an_unanswered_dial_ends_at_its_deadline() {
    // A queue of one, which is full: the system does not answer any more.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued: Vec<_> = (0..4).map(|_| socket::dial(address).unwrap()).collect();
    let mut first = [Process::new(TcpConfig { connect_limit: Duration::from_millis(50), ..config(0) })];
    first[0].knows(1, Ok(&address.to_string()));
    until(&mut first, |first| first[0].send(1, &eager(0), b"a") == Err(Refusal::Lost));
    first[0].turn();
    let reason = format!("rank 1 ({address}): it is unreachable: no answer within 50ms");
    assert_eq!(first[0].received.lost, [(Peer(1), reason)]);
}

#[test]
fn unidentified_connections_to_the_port_are_closed_and_counted_and_do_no_harm() {
    let mut pair = connected();
    pair[0].tcp.own.hello_limit = Duration::ZERO;
    let address = pair[0].tcp.address();
    let (_, other_job) = hello::Dialler::new(
        &[9; 32],
        ProcessName { world: WORLD, rank: 1 },
        ProcessName { world: WORLD, rank: 0 },
        [0; 32],
    );
    let (_, other_rank) = hello::Dialler::new(
        &SECRET,
        ProcessName { world: WORLD, rank: 1 },
        ProcessName { world: WORLD, rank: 7 },
        [0; 32],
    );
    let intruders: [&[u8]; 7] =
        [b"GET / HTTP/1.1\r\n\r\n", &[0; 1], &[0xff; 100_000], b"", b"rsd-mpi", &other_job, &other_rank];
    for (count, bytes) in intruders.into_iter().enumerate() {
        let mut intruder = TcpStream::connect(&address).unwrap();
        // The connection may be closed before everything is sent.
        let _ = intruder.write_all(bytes);
        until(&mut pair, |pair| pair[0].tcp.refused() == count as u64 + 1);
        let mut answer = Vec::new();
        let _ = intruder.read_to_end(&mut answer);
        assert!(answer.len() <= hello::CHALLENGE, "{} bytes were answered", answer.len());
        pair[1].send(0, &eager(count as i32), b"still here").unwrap();
        until(&mut pair, |pair| pair[0].received.frames.len() == count + 1);
    }
    assert_eq!(pair[0].tcp.greetings.len(), 0);
    assert!(pair.iter().all(|process| process.received.lost.is_empty() && process.tcp.links.len() == 1));
}

#[test]
fn silent_connections_take_a_limited_number_of_places() {
    let mut pair = Process::pair();
    let address = pair[0].tcp.address();
    let mut intruders = Vec::new();
    for _ in 0..UNIDENTIFIED_MAX + 10 {
        intruders.push(TcpStream::connect(&address).unwrap());
        pair[0].turn();
    }
    until(&mut pair, |pair| pair[0].tcp.refused() == 10);
    assert_eq!(pair[0].tcp.greetings.len(), UNIDENTIFIED_MAX);
    // A process that authenticates itself is accepted.
    until(&mut pair, |pair| pair[1].send(0, &eager(0), b"a").is_ok());
    until(&mut pair, |pair| pair[0].payloads() == [b"a"]);
}

#[test]
fn replayed_messages_open_no_connection() {
    let mut pair = connected();
    let me = ProcessName { world: WORLD, rank: 0 };
    let (_, hello) = hello::Dialler::new(&SECRET, ProcessName { world: WORLD, rank: 1 }, me, [0; 32]);
    let mut intruder = TcpStream::connect(pair[0].tcp.address()).unwrap();
    intruder.write_all(&hello).unwrap();
    intruder.write_all(&[5; hello::PROOF]).unwrap();
    until(&mut pair, |pair| pair[0].tcp.refused() == 1);
    assert_eq!(read(&mut intruder, hello::CHALLENGE).len(), hello::CHALLENGE);
    assert_eq!(intruder.read(&mut [0]).unwrap_or(0), 0);
    assert!(pair.iter().all(|process| process.received.lost.is_empty()));
}

#[test]
fn a_process_announces_its_address() {
    let v6 = TcpConfig { listen: Listen::At("::1".parse().unwrap()), ..config(0) };
    // A container without IPv6 has no such address.
    if let Ok(tcp) = Tcp::new(v6, Arc::new(Poller::new().unwrap())) {
        assert!(tcp.address().starts_with("[::1]:"));
    }
    let everywhere = || TcpConfig { listen: Listen::At("0.0.0.0".parse().unwrap()), ..config(0) };
    let error = Tcp::new(everywhere(), Arc::new(Poller::new().unwrap())).unwrap_err();
    assert!(matches!(error, TcpError::NoAddress));
    let advertised = TcpConfig { advertise: Some("10.0.0.7".parse().unwrap()), ..everywhere() };
    let tcp = Tcp::new(advertised, Arc::new(Poller::new().unwrap())).unwrap();
    assert!(tcp.address().starts_with("10.0.0.7:"));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let inherited = TcpConfig { listen: Listen::Inherited(socket.into()), ..config(0) };
    assert_eq!(Tcp::new(inherited, Arc::new(Poller::new().unwrap())).unwrap().address(), address);
}
