use super::*;
use crate::engine::PullRefused;
use crate::engine::frame::Envelope;
use crate::memory::Buffer;

const ENVELOPE: Envelope = Envelope { context: 1, rank: 2, tag: 3 };

/// Records frames; parts land in its own memory if it has some.
#[derive(Default)]
struct Received {
    frames: Vec<(Frame, Vec<u8>)>,
    landing: Option<Vec<u8>>,
}

impl Sink for Received {
    fn on_frame(&mut self, _: Peer, frame: Frame, payload: Arrived<'_>) {
        self.frames.push((frame, payload.to_vec()));
    }

    #[expect(unsafe_code, reason = "lends memory as a user does")]
    fn landing(&mut self, _: Peer, frame: &Frame, len: usize) -> Option<Landing> {
        assert!(len > 0 && len <= FRAME_MAX, "{frame:?}");
        let memory = self.landing.as_mut()?;
        memory.resize(len + 3, 0xee);
        // SAFETY: the memory stays where it is until the frame is over.
        let buffer = unsafe { Buffer::contiguous(memory.as_mut_ptr(), memory.len()) };
        Some(Landing { buffer, at: 3 })
    }

    fn on_landed(&mut self, _: Peer, frame: Frame, len: usize) {
        let memory = self.landing.as_ref().unwrap();
        self.frames.push((frame, memory[3..3 + len].to_vec()));
    }

    fn on_pulled(&mut self, _: Peer, _: u32, _: Result<(), PullRefused>) {}

    fn on_lost(&mut self, _: Peer, _: &str) {}
}

/// An endless sequence of random numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn messages() -> Vec<(Frame, Vec<u8>)> {
    let payload = |len: usize| (0..len).map(|at| (at * 7 + len) as u8).collect::<Vec<_>>();
    vec![
        (Frame::Eager { envelope: ENVELOPE }, payload(0)),
        (Frame::Eager { envelope: ENVELOPE }, payload(1)),
        (Frame::EagerSync { envelope: ENVELOPE, send: 9 }, payload(300)),
        (Frame::Ready { envelope: ENVELOPE, send: 9, len: 5 << 32, region: None }, Vec::new()),
        (Frame::Clear { send: 9, receive: 4, len: u64::MAX }, Vec::new()),
        (Frame::Part { receive: 4 }, payload(20_000)),
        (Frame::Part { receive: 4 }, payload(1)),
        (Frame::Done { send: 9 }, Vec::new()),
        (Frame::Bye, Vec::new()),
    ]
}

fn stream(messages: &[(Frame, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (frame, payload) in messages {
        let start = Start::new(frame, payload.len());
        bytes.extend_from_slice(start.as_bytes());
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(start.padding());
        assert_eq!(bytes.len() % 64, 0);
    }
    bytes
}

#[test]
fn frames_decode_however_the_stream_is_split() {
    let messages = messages();
    let bytes = stream(&messages);
    for seed in 1..200 {
        let mut dice = Dice(seed);
        let landing = (seed % 2 == 0).then(Vec::new);
        let (mut incoming, mut received) = (Incoming::new(Peer(0)), Received { landing, ..Received::default() });
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let most = [1, 20, 5_000][seed as usize % 3];
            let (now, later) = rest.split_at(rest.len().min(1 + dice.below(most)));
            incoming.feed(now, &mut received).unwrap();
            rest = later;
        }
        assert_eq!(received.frames, messages, "seed {seed}");
        assert!(incoming.bye() && !incoming.is_within_a_frame());
    }
}

#[test]
fn bytes_read_directly_into_user_memory_are_counted() {
    let part = (Frame::Part { receive: 4 }, (0..100).collect::<Vec<u8>>());
    let bytes = stream(std::slice::from_ref(&part));
    let start = 32;
    let (mut incoming, mut received) =
        (Incoming::new(Peer(0)), Received { landing: Some(Vec::new()), ..Received::default() });
    incoming.feed(&bytes[..start + 10], &mut received).unwrap();
    while let Wanted::Landing(landing, at, left) = incoming.wanted() {
        let (now, filled) = (left.min(35), at - landing.at);
        landing.buffer.write(at, &part.1[filled..filled + now]);
        incoming.landed(now, &mut received);
    }
    assert_eq!(received.frames, [part]);
}

/// The main connection's bytes of these messages, whose payloads are cut at these places, and those of two rails.
fn streams(messages: &[(Frame, Vec<u8>)], dice: &mut Dice) -> [Vec<u8>; 3] {
    let mut streams = [const { Vec::new() }; 3];
    for (frame, payload) in messages {
        let mut ends = [dice.below(payload.len() + 1), dice.below(payload.len() + 1), payload.len()];
        ends.sort_unstable();
        if payload.is_empty() || dice.below(3) == 0 {
            streams[0].extend_from_slice(&stream(&[(*frame, payload.clone())]));
            continue;
        }
        let mut cut = Cut::default();
        cut[..3].copy_from_slice(&[ends[0], ends[1] - ends[0], ends[2] - ends[1]].map(|len| len as u32));
        let start = Start::of_slice(frame, payload.len(), ends[0]);
        streams[0].extend_from_slice(&Control::Cut(cut).encode());
        streams[0].extend_from_slice(start.as_bytes());
        streams[0].extend_from_slice(&payload[..ends[0]]);
        streams[0].extend_from_slice(start.padding());
        streams[1].extend_from_slice(&payload[ends[0]..ends[1]]);
        streams[2].extend_from_slice(&payload[ends[1]..]);
    }
    streams
}

/// Gives a decoder some of the next bytes of one connection, as a link does; returns how many.
fn give(incoming: &mut Incoming, at: usize, bytes: &[u8], sink: &mut Received) -> Result<usize, BadStream> {
    let mut count = bytes.len();
    match if at == 0 { incoming.wanted() } else { incoming.wanted_of(at as u8) } {
        Wanted::Nothing => return Ok(0),
        Wanted::Any => incoming.feed(bytes, sink)?,
        Wanted::Some(left) => {
            count = count.min(left);
            incoming.feed_of(at as u8, &bytes[..count], sink)?;
        }
        Wanted::Here(place) => {
            count = count.min(place.len());
            place[..count].copy_from_slice(&bytes[..count]);
            incoming.landed_of(at as u8, count, sink)?;
        }
        Wanted::Landing(landing, to, left) => {
            let straight = count.min(left);
            landing.buffer.write(to, &bytes[..straight]);
            if at == 0 {
                incoming.landed(straight, sink);
                incoming.feed(&bytes[straight..], sink)?;
            } else {
                count = straight;
                incoming.landed_of(at as u8, count, sink)?;
            }
        }
    }
    Ok(count)
}

/// Gives a decoder these streams piece by piece.
fn give_all(streams: &[Vec<u8>; 3], dice: &mut Dice, sink: &mut Received) -> Result<Incoming, BadStream> {
    let mut incoming = Incoming::new(Peer(0));
    [1, 2].into_iter().for_each(|rail| incoming.open_rail(rail));
    let mut given = [0; 3];
    let mut vain = 0;
    while vain < 100 {
        let at = dice.below(3);
        let rest = &streams[at][given[at]..];
        let now = give(&mut incoming, at, &rest[..rest.len().min(1 + dice.below(9_000))], sink)?;
        given[at] += now;
        vain = if now == 0 { vain + 1 } else { 0 };
    }
    Ok(incoming)
}

#[test]
fn slices_decode_however_their_streams_are_split_and_mixed() {
    let messages = messages();
    for seed in 1..400 {
        let mut dice = Dice(seed);
        let landing = (seed % 2 == 0).then(Vec::new);
        let mut received = Received { landing, ..Received::default() };
        let incoming = give_all(&streams(&messages, &mut dice), &mut dice, &mut received).unwrap();
        assert_eq!(received.frames, messages, "seed {seed}");
        assert!(incoming.bye() && !incoming.is_within_a_frame() && !incoming.has_heard());
    }
}

#[test]
fn slices_that_are_not_the_next_payload_are_refused() {
    let refused = |cut: &[u32], after: &[u8]| {
        let mut whole = Cut::default();
        whole[..cut.len()].copy_from_slice(cut);
        let mut incoming = Incoming::new(Peer(0));
        incoming.open_rail(1);
        let bytes = [&Control::Cut(whole).encode()[..], after].concat();
        incoming.feed(&bytes, &mut Received::default()).unwrap_err()
    };
    let part = stream(&[(Frame::Part { receive: 4 }, vec![0; 100])]);
    assert_eq!(refused(&[50, 50, 0, 1], &part), BadStream::Rail(3));
    for cut in [[50, 51], [50, 49], [0, u32::MAX], [u32::MAX, 101], [0, 0]] {
        assert_eq!(refused(&cut, &part), BadStream::Cut, "{cut:?}");
    }
    let done = stream(&[(Frame::Done { send: 1 }, Vec::new())]);
    assert_eq!(refused(&[0, 0], &done), BadStream::Cut);
    assert_eq!(refused(&[10, 10], &done), BadStream::Cut);
    let again = Control::Cut(Cut::default()).encode();
    assert_eq!(refused(&[50, 50], &again), BadStream::Cut);
    let mut unknown = Control::Want.encode();
    unknown[0] = 9;
    assert_eq!(refused(&[50, 50], &unknown), BadStream::Record);
}

#[test]
fn an_invalid_frame_is_refused_at_once() {
    let refused = |bytes: &[u8]| Incoming::new(Peer(0)).feed(bytes, &mut Received::default()).unwrap_err();
    let word = |word: u32| word.to_ne_bytes();
    assert_eq!(refused(&word(FRAME_MAX as u32 + 1)), BadStream::Payload(FRAME_MAX as u32 + 1));
    assert_eq!(refused(&[word(0), word(17)].concat()), BadStream::Head(17));
    assert_eq!(refused(b"GET / HTTP/1.1\r\n"), BadStream::Payload(u32::from_ne_bytes(*b"GET ")));
    let mut done = stream(&[(Frame::Done { send: 1 }, Vec::new())]);
    done[0] = 1;
    assert_eq!(refused(&done), BadStream::NoPayload(1));
    done[8] = 77;
    assert!(matches!(refused(&done), BadStream::Frame(_)));
    // A head longer than its kind's.
    let mut long = stream(&[(Frame::Clear { send: 1, receive: 2, len: 3 }, Vec::new())]);
    long[8] = 7;
    assert_eq!(refused(&long), BadStream::Head(24));
}

/// Heads, lengths and splits are changed at random: nothing panics, no frame is longer than allowed, and no more bytes
/// come out than went in.
#[test]
fn a_stream_with_changed_bytes_never_panics() {
    let bytes = stream(&messages());
    let mut ends = [0, 0];
    for seed in 1..4_000 {
        let mut dice = Dice(seed);
        let mut changed = bytes.clone();
        for _ in 0..=dice.below(4) {
            // Most often where heads are.
            let limit = if dice.below(3) == 0 { changed.len() } else { 400 };
            let at = dice.below(limit);
            match dice.below(3) {
                0 => changed[at] ^= 1 << dice.below(8),
                1 => changed[at] = [0, 1, 16, 24, 40, 0x7f, 0x80, 0xff][dice.below(8)],
                _ => drop(changed.remove(at)),
            }
        }
        let landing = (seed % 2 == 0).then(Vec::new);
        let (mut incoming, mut received) = (Incoming::new(Peer(0)), Received { landing, ..Received::default() });
        let mut rest = &changed[..];
        let mut failed = false;
        while !rest.is_empty() && !failed {
            let (now, later) = rest.split_at(rest.len().min(1 + dice.below(3_000)));
            failed = incoming.feed(now, &mut received).is_err();
            rest = later;
        }
        assert!(received.frames.iter().map(|(_, payload)| payload.len()).sum::<usize>() <= changed.len());
        ends[usize::from(failed)] += 1;
    }
    assert!(ends[0] > 100 && ends[1] > 100, "{ends:?}");
}

/// The same with slices.
#[test]
fn changed_slices_never_panic() {
    let mut ends = [0, 0];
    for seed in 1..4_000 {
        let mut dice = Dice(seed);
        let mut changed = streams(&messages(), &mut dice);
        let cuts = Control::Cut(Cut::default()).encode()[..8].to_vec();
        for _ in 0..=dice.below(4) {
            let places = changed[0].windows(8).enumerate().filter(|(_, eight)| *eight == cuts).map(|(at, _)| at);
            let places: Vec<usize> = places.collect();
            // Most often in records.
            let at = match places.get(dice.below(places.len() + 2)) {
                Some(at) => at + dice.below(20),
                None => dice.below(changed[0].len()),
            };
            match dice.below(3) {
                0 => changed[0][at] ^= 1 << dice.below(8),
                1 => changed[0][at] = [0, 1, 8, 16, 0x7f, 0xff][dice.below(6)],
                _ => drop(changed[0].remove(at)),
            }
        }
        let mut received = Received { landing: (seed % 2 == 0).then(Vec::new), ..Received::default() };
        let failed = give_all(&changed, &mut dice, &mut received).is_err();
        let length: usize = changed.iter().map(Vec::len).sum();
        assert!(received.frames.iter().map(|(_, payload)| payload.len()).sum::<usize>() <= length);
        ends[usize::from(failed)] += 1;
    }
    assert!(ends[0] > 100 && ends[1] > 100, "{ends:?}");
}
