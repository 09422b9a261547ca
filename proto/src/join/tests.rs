use proptest::prelude::*;

use super::*;

fn join() -> Join {
    Join { group: Some("actors".into()), size: Some(16), ..Join::default() }
}

fn go() -> Event {
    Event::Go(Box::new(Go {
        rank: 3,
        size: 16,
        local_rank: 1,
        local_size: 8,
        epoch: 1,
        pmi_port: "127.0.0.1:40123".into(),
        pmi_id: 1_234_567,
        job: 7,
        namespace: "rsd-0123-7".into(),
        node: "a".into(),
        nodes: 2,
        node_index: 0,
        address: String::new(),
        env: String::new(),
    }))
}

fn error(text: &str) -> Event {
    Event::Error { code: 124, text: text.into() }
}

#[test]
fn each_message_has_its_documented_line() {
    assert_eq!(join().line(), "join v=1 group=actors size=16\n");
    let all = Join {
        size: None,
        min: Some(8),
        max: Some(16),
        rank: Some(3),
        timeout_ms: Some(60_000),
        token: Some("ab12".into()),
        pid: Some(411),
        ..join()
    };
    assert_eq!(all.line(), "join v=1 group=actors min=8 max=16 rank=3 timeout_ms=60000 token=ab12 pid=411\n");
    let alone = Join { pid: Some(411), ..Join::default() };
    assert_eq!((alone.line().as_str(), Join::parse("join v=1 pid=411")), ("join v=1 pid=411\n", Ok(alone)));
    let named = Join { namespace: Some("singleton.a.411".into()), ..Join::default() };
    assert_eq!(named.line(), "join v=1 namespace=singleton.a.411\n");
    assert_eq!(Join::parse("join v=1 namespace=singleton.a.411"), Ok(named));
    let wait = Event::Wait(Wait { token: "ab12".into(), have: 3, want: 16, epoch: 1 });
    assert_eq!(wait.line(), "wait token=ab12 have=3 want=16 epoch=1\n");
    assert_eq!(
        go().line(),
        "go rank=3 size=16 local_rank=1 local_size=8 epoch=1 pmi_port=127.0.0.1:40123 pmi_id=1234567 job=7 \
         namespace=rsd-0123-7 node=a nodes=2 node_index=0 address=\n"
    );
    assert_eq!(error("14 of 16; µ=1%\n").line(), "error code=124 text=14%20of%2016%3B%20%C2%B5%3D1%25%0A\n");
}

#[test]
fn a_name_that_a_process_gave_itself_is_checked() {
    let wide = format!("singleton.{}.1", "h".repeat(250));
    for line in [
        "join v=1 namespace=rsd-a.b-7",
        "join v=1 namespace=singleton.",
        "join v=1 namespace=singleton.a/../b.1",
        "join v=1 namespace=singleton.a%20b.1",
        "join v=1 group=actors namespace=singleton.a.1",
        &format!("join v=1 namespace={wide}"),
    ] {
        assert!(matches!(Join::parse(line), Err(JoinError::Value { key: "namespace", .. })), "{line}");
    }
    for (name, host) in [("singleton.a.411", Some("a")), ("singleton.a.b.411", Some("a.b")), ("rsd-a.b-7", None)] {
        assert_eq!(self_named_host(name), host);
    }
}

#[test]
fn lines_fed_byte_by_byte_are_decoded_whole() {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    for byte in [go().line(), error("no").line()].concat().bytes() {
        decoder.feed(&[byte]);
        seen.extend(decoder.next_line::<Event>());
    }
    assert_eq!(seen, [Ok(go()), Ok(error("no"))]);
}

#[test]
fn several_lines_in_one_read_are_returned_one_by_one() {
    let mut decoder = Decoder::default();
    decoder.feed([join().line(), join().line()].concat().as_bytes());
    assert_eq!(decoder.next_line(), Some(Ok(join())));
    assert_eq!(decoder.next_line(), Some(Ok(join())));
    assert_eq!(decoder.next_line::<Join>(), None);
}

#[test]
fn order_blanks_and_unknown_keys_are_ignored() {
    let line = "join  size=16 colour=blue group=actors   v=1\r";
    assert_eq!(Join::parse(line), Ok(join()));
}

#[test]
fn errors_name_the_wrong_part() {
    let wrong = |line: &str| Join::parse(line).expect_err("the line is invalid").to_string();
    assert_eq!(wrong("hello v=1"), r#"it begins with "hello", expected `join`"#);
    assert_eq!(wrong(""), r#"it begins with "", expected `join`"#);
    assert_eq!(wrong("join group=actors"), "v= is missing");
    assert!(Join::parse("join v=9 group=a").expect_err("a newer version is refused").is_version());
    assert_eq!(wrong("join v=1 size=3"), "group= is missing");
    assert_eq!(wrong("join v=1 group=a size=many"), r#"size="many": expected a number"#);
    assert_eq!(wrong("join v=1 group=a size=-1"), r#"size="-1": expected a number"#);
    assert_eq!(wrong("join v=1 group=a size"), r#""size" is not key=value"#);
    assert_eq!(wrong("join v=1 group=%zz"), "the value of group is not percent-encoded UTF-8");
    assert_eq!(wrong("join v=1 group=%ff"), "the value of group is not percent-encoded UTF-8");
    for name in ["", ".a", "a%20b", "a/b", &"x".repeat(65)] {
        assert!(wrong(&format!("join v=1 group={name}")).contains("a group's name is"), "{name}");
    }
    assert!(wrong(&format!("join v=1 group=a token={}", "t".repeat(65))).contains("at most 64 bytes"));
}

#[test]
fn a_line_that_is_too_long_is_refused_and_dropped() {
    let mut decoder = Decoder::default();
    decoder.feed(&vec![b'a'; LINE_BYTES_MAX + 1]);
    assert_eq!(decoder.next_line::<Join>(), Some(Err(JoinError::TooLong)));
    decoder.feed(join().line().as_bytes());
    assert_eq!(decoder.next_line::<Join>(), None);
    assert!(decoder.bytes.is_empty());
}

#[test]
fn an_error_of_any_length_fits_a_line() {
    let line = error(&"µ".repeat(LINE_BYTES_MAX)).line();
    assert!(line.len() <= LINE_BYTES_MAX);
    assert!(Event::parse(line.trim_end()).is_ok());
}

proptest! {
    #[test]
    fn events_survive_the_wire(text in ".{0,300}", code: u8, have: u32, epoch: u64) {
        for event in [
            Event::Error { code, text: text.clone() },
            Event::Wait(Wait { token: text.clone(), have, want: have, epoch }),
        ] {
            let mut decoder = Decoder::default();
            decoder.feed(event.line().as_bytes());
            prop_assert_eq!(decoder.next_line::<Event>(), Some(Ok(event)));
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..32)) {
        let (mut server, mut client) = (Decoder::default(), Decoder::default());
        for chunk in chunks {
            server.feed(&chunk);
            client.feed(&chunk);
            while server.next_line::<Join>().is_some() {}
            while client.next_line::<Event>().is_some() {}
        }
    }
}
