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

/// Both get on until there is something.
fn until<T>(mut body: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = body() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not come to be");
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
fn a_name_says_all_and_nothing_else_is_one() {
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
fn callers_are_answered_one_by_one_and_talk_in_words() {
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
fn strangers_and_those_with_another_name_do_not_hold_up_a_caller() {
    let mut port = port();
    let strangers: Vec<_> = (0..70).map(|_| TcpStream::connect(port.name().address).unwrap()).collect();
    (&strangers[0]).write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(answered(&mut port).is_none());
    let wrong = PortName { secret: [0; 32], ..*port.name() };
    let mut wrong = Call::begin(CALLER, wrong, LIMIT, Instant::now());
    let why = until(|| {
        assert!(answered(&mut port).is_none());
        wrong.poll(Instant::now(), |_| ()).err()
    });
    assert!(why.contains("cannot be reached") && why.contains("secret"), "{why}");
    let mut right = call(&port, CALLER);
    both(&mut port, &mut right);
}

#[test]
fn a_closed_port_is_told_at_once() {
    let port = port();
    let mut late = call(&port, CALLER);
    drop(port);
    let why = until(|| late.poll(Instant::now(), |_| ()).err());
    assert!(why.starts_with("the port at 127.0.0.1:"), "{why}");
}

#[test]
fn who_has_given_up_is_passed_over() {
    let mut port = port();
    let mut first = call(&port, CALLER);
    // It proves that it knows the name, and goes before it is its turn.
    until(|| {
        let _ = through(&mut first);
        let now = Instant::now();
        while let Ok((socket, address)) = port.listener.accept() {
            port.strangers.push(Answer::new(&port.own, socket, address, now).unwrap());
        }
        let stranger = port.strangers.first_mut()?;
        matches!(stranger.advance(&port.own, now), Heard::Proved(_)).then_some(())
    });
    let proved = port.strangers.remove(0);
    port.callers.push_back(proved);
    drop(first);
    let mut second = call(&port, ProcessName { rank: 1, ..CALLER });
    let mut line: Option<Line> = None;
    until(|| {
        // Its line, if it was answered at all, ends.
        if line.as_mut().is_some_and(|line| line.receive().is_err()) {
            line = None;
        }
        line = line.take().or_else(|| answered(&mut port));
        through(&mut second)
    });
}
