use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use super::*;

const OWNER: ProcessName = ProcessName { world: [1; 16], rank: 3 };
const CALLER: ProcessName = ProcessName { world: [2; 16], rank: 0 };
const LIMIT: Duration = Duration::from_secs(60);

fn port() -> Port {
    Port::open(OWNER, Ipv4Addr::LOCALHOST.into()).unwrap()
}

fn call(port: &Port, me: ProcessName) -> Call {
    let name = PortName::parse(&port.name().text()).unwrap();
    Call::begin(me, name, LIMIT, Instant::now())
}

/// Repeats the body until it returns a value.
fn until<T>(mut body: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = body() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "timed out");
        std::thread::yield_now();
    }
}

fn answered(port: &mut Port) -> Option<Line> {
    port.next_caller(Instant::now(), |_| ()).unwrap()
}

fn through(call: &mut Call) -> Option<Line> {
    call.poll(Instant::now(), |_| ()).unwrap()
}

fn both(port: &mut Port, call: &mut Call) -> [Line; 2] {
    let (mut one, mut other) = (None, None);
    until(|| {
        one = one.take().or_else(|| answered(port));
        other = other.take().or_else(|| through(call));
        (one.is_some() && other.is_some()).then_some(())
    });
    [one.unwrap(), other.unwrap()]
}

#[test]
fn a_name_encodes_everything_and_invalid_names_are_rejected() {
    let port = port();
    let text = port.name().text();
    assert_eq!(PortName::parse(&text), Some(*port.name()));
    assert!(text.len() <= 160 && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'), "{text}");
    let name = PortName { owner: OWNER, address: "[fd00:1:2:3:4:5:6:7]:65535".parse().unwrap(), secret: [7; 32] };
    assert_eq!(PortName::parse(&name.text()), Some(name));
    for len in 0..text.len() {
        assert_eq!(PortName::parse(&text[..len]), None, "{len}");
    }
    for wrong in
        ["tag#0$connentry#02$", &format!("{text}/"), &text.replace("rsd-mpi-1", "rsd-mpi-2"), &format!("{text}0")]
    {
        assert_eq!(PortName::parse(wrong), None, "{wrong}");
    }
    let odd = text.replacen(|c: char| c.is_ascii_hexdigit(), "é", 40);
    assert_eq!(PortName::parse(&odd), None);
}

#[test]
fn callers_are_served_one_by_one_and_exchange_words() {
    let mut port = port();
    let mut calls: Vec<_> = (0..3).map(|rank| call(&port, ProcessName { rank, ..CALLER })).collect();
    for call in &mut calls {
        let [mut answered, mut caller] = both(&mut port, call);
        assert_eq!(answered.receive().unwrap(), None);
        let long: Vec<u64> = (0..500_000).collect();
        for words in [&[][..], &[7], &[u64::MAX, 0], &long] {
            caller.send(words).unwrap();
            answered.send(words).unwrap();
            let (mut here, mut there) = (None, None);
            until(|| {
                here = here.take().or_else(|| answered.receive().unwrap());
                there = there.take().or_else(|| caller.receive().unwrap());
                (here.is_some() && there.is_some()).then_some(())
            });
            assert!(here.as_deref() == Some(words) && there.as_deref() == Some(words));
        }
        drop(caller);
        until(|| answered.receive().err());
    }
}

#[test]
fn invalid_callers_and_callers_of_another_port_do_not_delay_a_caller() {
    let mut port = port();
    let intruders: Vec<_> = (0..70).map(|_| TcpStream::connect(port.name().address).unwrap()).collect();
    (&intruders[0]).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(answered(&mut port).is_none());
    let wrong = PortName { secret: [0; 32], ..*port.name() };
    let mut wrong = Call::begin(CALLER, wrong, LIMIT, Instant::now());
    let why = until(|| {
        assert!(answered(&mut port).is_none());
        wrong.poll(Instant::now(), |_| ()).err()
    });
    assert!(why.contains("is unreachable") && why.contains("secret"), "{why}");
    let mut right = call(&port, CALLER);
    both(&mut port, &mut right);
}

#[test]
fn a_call_to_a_closed_port_fails_at_once() {
    let port = port();
    let mut late = call(&port, CALLER);
    drop(port);
    let why = until(|| late.poll(Instant::now(), |_| ()).err());
    assert!(why.starts_with("the port at 127.0.0.1:"), "{why}");
}

/// The caller says hello, and is at this place among the callers that have arrived.
fn say_hello(port: &mut Port, call: &mut Call, place: usize, now: Instant) {
    until(|| {
        assert!(through(call).is_none());
        assert!(port.next_caller(now, |_| ()).unwrap().is_none());
        matches!(port.callers.get(place)?.standing, Standing::Named { .. }).then_some(())
    });
}

/// The caller proves its identity before its turn.
fn prove(port: &mut Port, call: &mut Call, place: usize, now: Instant) {
    until(|| {
        assert!(through(call).is_none());
        assert!(port.next_caller(now, |_| ()).unwrap().is_none());
        matches!(port.callers[place].standing, Standing::Proved { .. }).then_some(())
    });
}

/// This many callers that have said hello, in order.
fn named(port: &mut Port, count: u32, now: Instant) -> Vec<Call> {
    let mut calls: Vec<_> = (0..count).map(|rank| call(port, ProcessName { rank, ..CALLER })).collect();
    for (place, call) in calls.iter_mut().enumerate() {
        say_hello(port, call, place, now);
    }
    calls
}

/// Asserts that this caller, which has proved its identity, is served now.
fn is_served(port: &mut Port, call: &mut Call, now: Instant) {
    let _line = port.next_caller(now, |_| ()).unwrap().expect("a caller is waiting");
    until(|| through(call));
}

#[test]
fn callers_are_served_in_order_of_arrival_whatever_the_order_of_their_proofs() {
    let (mut port, now) = (port(), Instant::now());
    let mut calls = named(&mut port, 4, now);
    for place in [2, 1, 3] {
        prove(&mut port, &mut calls[place], place, now);
    }
    // With the proof of the first caller.
    let mut line = None;
    until(|| {
        let _ = through(&mut calls[0]);
        line = port.next_caller(now, |_| ()).unwrap();
        line.is_some().then_some(())
    });
    until(|| through(&mut calls[0]));
    for call in &mut calls[1..] {
        is_served(&mut port, call, now);
    }
    assert!(port.next_caller(now, |_| ()).unwrap().is_none() && port.deadline().is_none());
}

#[test]
fn a_caller_that_only_says_hello_delays_the_others_briefly_and_once() {
    let (mut port, start) = (port(), Instant::now());
    let mut calls = named(&mut port, 3, start);
    let later = start + PATIENCE / 2;
    prove(&mut port, &mut calls[1], 1, later);
    let end = start + PATIENCE;
    assert_eq!(port.deadline(), Some(end));
    prove(&mut port, &mut calls[2], 2, later);
    assert!(port.next_caller(end - Duration::from_millis(1), |_| ()).unwrap().is_none());
    is_served(&mut port, &mut calls[1], end);
    is_served(&mut port, &mut calls[2], end);
    // A caller with a late proof is still served.
    prove_last(&mut port, &mut calls[0], end);
}

/// The caller proves its identity, and is served at once.
fn prove_last(port: &mut Port, call: &mut Call, now: Instant) {
    let mut line = None;
    until(|| {
        line = line.take().or_else(|| port.next_caller(now, |_| ()).unwrap());
        through(call)
    });
}

#[test]
fn delays_of_several_silent_callers_do_not_add_up() {
    let (mut port, start) = (port(), Instant::now());
    // They arrived first, and send nothing for now.
    let mut slow: Vec<_> = (0..3).map(|rank| call(&port, ProcessName { rank, ..CALLER })).collect();
    until(|| {
        assert!(port.next_caller(start, |_| ()).unwrap().is_none());
        (port.callers.len() == slow.len()).then_some(())
    });
    say_hello(&mut port, &mut slow[0], 0, start);
    let mut quick = call(&port, ProcessName { rank: 9, ..CALLER });
    say_hello(&mut port, &mut quick, 3, start);
    prove(&mut port, &mut quick, 3, start);
    say_hello(&mut port, &mut slow[1], 1, start + PATIENCE / 3);
    say_hello(&mut port, &mut slow[2], 2, start + PATIENCE / 2);
    assert_eq!(port.deadline(), Some(start + PATIENCE));
    is_served(&mut port, &mut quick, start + PATIENCE);
}

#[test]
fn a_caller_that_dies_after_its_hello_delays_no_other() {
    let (mut port, now) = (port(), Instant::now());
    let mut calls = named(&mut port, 2, now);
    prove(&mut port, &mut calls[1], 1, now);
    drop(calls.remove(0));
    let mut line = None;
    until(|| {
        line = line.take().or_else(|| port.next_caller(now, |_| ()).unwrap());
        through(&mut calls[0])
    });
}

#[test]
fn places_are_bounded_and_no_caller_keeps_one_forever() {
    let (mut port, now) = (port(), Instant::now());
    let silent: Vec<_> = (0..UNIDENTIFIED_MAX + 9).map(|_| TcpStream::connect(port.name().address).unwrap()).collect();
    assert!(port.next_caller(now, |_| ()).unwrap().is_none());
    assert_eq!(port.callers.len(), UNIDENTIFIED_MAX);
    let more = 7;
    let mut calls: Vec<_> =
        (0..CALLERS + more).map(|rank| call(&port, ProcessName { rank: rank as u32, ..CALLER })).collect();
    // Each says hello; none of them reads the challenge.
    for call in &mut calls {
        until(|| call.dial.socket()?.peer_addr().ok());
        assert!(through(call).is_none());
    }
    until(|| {
        assert!(port.next_caller(now, |_| ()).unwrap().is_none());
        (port.callers.len() == UNIDENTIFIED_MAX + CALLERS).then_some(())
    });
    assert!(port.next_caller(now, |_| ()).unwrap().is_none());
    assert_eq!(port.callers.len(), UNIDENTIFIED_MAX + CALLERS);
    until(|| {
        assert!(port.next_caller(now + HELLO_LIMIT, |_| ()).unwrap().is_none());
        (port.callers.len() == more).then_some(())
    });
    drop(silent);
}

#[test]
fn a_caller_that_has_given_up_is_skipped() {
    let (mut port, now) = (port(), Instant::now());
    let mut calls = named(&mut port, 3, now);
    // One caller that has said hello, and one that has proved its identity, leave before their turn.
    prove(&mut port, &mut calls[1], 1, now);
    prove(&mut port, &mut calls[2], 2, now);
    drop(calls.drain(..2));
    let mut line: Option<Line> = None;
    until(|| {
        // Its line, if there ever was one, ends.
        if line.as_mut().is_some_and(|line| line.receive().is_err()) {
            line = None;
        }
        line = line.take().or_else(|| port.next_caller(now, |_| ()).unwrap());
        through(&mut calls[0])
    });
}
