//! Several simulated processes in one process, in two threads, or two real processes.

#![expect(unsafe_code, reason = "lends its own vectors")]

use std::process::{Command, Stdio};

use super::*;
use crate::engine::frame::Envelope;
use crate::engine::{Landing, PullRefused, Pulled, Region};
use crate::memory::{Arrived, Buffer};

mod death;
mod foreign;
mod hostile;
mod lend;
mod share;

const ENVELOPE: Envelope = Envelope { context: 1, rank: 2, tag: 3 };
const EAGER: Frame = Frame::Eager { envelope: ENVELOPE };

#[derive(Debug)]
struct Inbox {
    frames: Vec<(Peer, Frame, Vec<u8>)>,
    /// How many frames it takes; the next ones are early.
    most: usize,
    /// Whether a receive waits for every message, and how many receives were started.
    expects: bool,
    receives: u64,
    pulled: Vec<(u32, Result<(), PullRefused>)>,
    lost: Vec<(Peer, String)>,
}

impl Default for Inbox {
    fn default() -> Self {
        let (frames, pulled, lost) = Default::default();
        Self { frames, most: usize::MAX, expects: false, receives: 0, pulled, lost }
    }
}

impl Sink for Inbox {
    fn on_frame_unless_early(&mut self, from: Peer, frame: &Frame, payload: Arrived<'_>) -> bool {
        let is_early = self.is_early(from, frame);
        if !is_early {
            self.on_frame(from, *frame, payload);
        }
        !is_early
    }

    fn is_early(&self, _: Peer, _: &Frame) -> bool {
        self.frames.len() >= self.most
    }

    fn expects(&self, _: Peer, _: &Frame) -> bool {
        self.expects
    }

    fn receives(&self) -> u64 {
        self.receives
    }

    fn on_frame(&mut self, from: Peer, frame: Frame, payload: Arrived<'_>) {
        self.frames.push((from, frame, payload.to_vec()));
    }

    fn landing(&mut self, _: Peer, _: &Frame, _: usize) -> Option<Landing> {
        None
    }

    fn on_landed(&mut self, _: Peer, _: Frame, _: usize) {}

    fn on_pulled(&mut self, _: Peer, token: u32, result: Result<(), PullRefused>) {
        self.pulled.push((token, result));
    }

    fn on_lost(&mut self, peer: Peer, reason: &str) {
        self.lost.push((peer, reason.into()));
    }
}

/// A process: `world.of(rank)` gives a rank the peer of the same number.
struct Process {
    shm: Shm,
    inbox: Inbox,
}

impl Process {
    fn new(config: ShmConfig, ranks: u32) -> Self {
        let me = config.me;
        let mut shm = Shm::new(config).unwrap();
        for rank in (0..ranks).filter(|rank| *rank != me.rank) {
            shm.expect(Peer(rank), ProcessName { rank, ..me });
        }
        Self { shm, inbox: Inbox::default() }
    }

    fn poll(&mut self) {
        self.shm.poll(&mut self.inbox);
        self.shm.poll_sockets(&mut self.inbox);
    }

    fn try_send(&mut self, to: u32, frame: &Frame, bytes: &[u8]) -> Result<(), Refusal> {
        let mut bytes = bytes.to_vec();
        // SAFETY: the vector outlives the call.
        let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
        self.shm.try_send(Peer(to), frame, Payload::new(&buffer, 0, bytes.len()))
    }
}

/// Settings for a small world with a name of its own.
fn config(test: &str, rank: u32) -> ShmConfig {
    let job = format!("{test} {}", std::process::id());
    // As rsd names job 12.
    let me = ProcessName::new(format!("rsd-{job}-12").as_bytes(), rank);
    ShmConfig { slots: 16, small_cells: 4, large_cells: 2, ..ShmConfig::new(me) }
}

fn world<const N: usize>(test: &str, tweak: impl Fn(ShmConfig) -> ShmConfig) -> [Process; N] {
    std::array::from_fn(|rank| Process::new(tweak(config(test, rank as u32)), N as u32))
}

/// Sends a frame; all processes poll until it is taken.
fn send(world: &mut [Process], from: u32, to: u32, frame: &Frame, bytes: &[u8]) {
    loop {
        match world[from as usize].try_send(to, frame, bytes) {
            Ok(()) => return,
            Err(Refusal::Full) => world.iter_mut().for_each(Process::poll),
            Err(Refusal::Lost) => panic!("{:?}", world[from as usize].inbox.lost),
        }
    }
}

fn connect(world: &mut [Process]) {
    send(world, 0, 1, &EAGER, &[]);
    world[1].poll();
    assert_eq!(world[1].inbox.frames.len(), 1);
    world[1].inbox.frames.clear();
}

/// Sends frames one at a time, until their receiver has gone back to the first slot of its ring of 128.
fn rewind(world: &mut [Process], from: u32, to: u32) {
    for seed in 0..100 {
        send(world, from, to, &EAGER, &pattern(seed, seed));
        let process = &mut world[to as usize];
        process.poll();
        assert_eq!(process.inbox.frames.pop(), Some((Peer(from), EAGER, pattern(seed, seed))));
        process.poll();
    }
    let used: usize = (0..100).map(|len| slots_of(16 + len)).sum();
    let at = world[to as usize].shm.receiver.next();
    assert!(at > used as u64, "it is at {at}, after {used} slots, and has skipped none");
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + (at >> 8)) as u8).collect()
}

#[test]
fn frames_of_every_kind_and_length_arrive_complete_and_in_order_both_ways() {
    let mut world: [Process; 2] = world("every kind", |config| config);
    let kinds = [
        EAGER,
        Frame::EagerSync { envelope: ENVELOPE, send: 4 },
        Frame::Ready { envelope: ENVELOPE, send: 4, len: 1 << 40, region: None },
        Frame::Clear { send: 4, receive: 5, len: 6 },
        Frame::Part { receive: 5 },
        Frame::Done { send: 4 },
    ];
    // One slot, several, and cells.
    let slots =
        [0, 1, 15, 16, 17, 31, 32, 33, 39, 40, 41, 96, 97, 100, 152, 153, 168, 184, 207, 208, 209, 255, 256, 257, 264];
    let cells = [265, 4095, 4096, 4097, LARGE - 1, LARGE];
    let lengths = || slots.into_iter().chain(cells);
    let mut sent = Vec::new();
    for (seed, (frame, len)) in kinds.iter().flat_map(|kind| lengths().map(move |len| (kind, len))).enumerate() {
        send(&mut world, 0, 1, frame, &pattern(len, seed));
        send(&mut world, 1, 0, frame, &pattern(len, seed));
        sent.push((*frame, pattern(len, seed)));
    }
    world.iter_mut().for_each(Process::poll);
    for (rank, process) in world.into_iter().enumerate() {
        let frames = process.inbox.frames.into_iter().map(|(from, frame, bytes)| {
            assert_eq!(from, Peer(1 - rank as u32));
            (frame, bytes)
        });
        assert_eq!(frames.collect::<Vec<_>>(), sent);
        assert!(process.inbox.lost.is_empty());
        assert_eq!(process.shm.strays, 0);
    }
}

#[test]
fn a_ring_that_has_gone_back_to_its_first_slot_is_filled_and_emptied_in_order() {
    let mut world: [Process; 2] = world("gone back", |config| ShmConfig { slots: 128, ..config });
    connect(&mut world);
    rewind(&mut world, 0, 1);
    for round in 0..5 {
        let mut sent = Vec::new();
        loop {
            let bytes = pattern(sent.len() * 3 % 265, sent.len() + round);
            match world[0].try_send(1, &EAGER, &bytes) {
                Ok(()) => sent.push((Peer(0), EAGER, bytes)),
                refused => break assert_eq!(refused, Err(Refusal::Full)),
            }
        }
        assert!(sent.len() >= 128 / LONGEST, "{} fit", sent.len());
        // It sleeps until there is room.
        assert!(world[0].shm.prepare_sleep());
        while world[1].inbox.frames.len() < sent.len() {
            world[1].poll();
        }
        assert_eq!(std::mem::take(&mut world[1].inbox.frames), sent);
        let mut bell = [PollFd::new(world[0].shm.fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut bell, PollTimeout::ZERO), Ok(1), "there is room again");
        world[0].shm.awake();
        world.iter_mut().for_each(Process::poll);
        for seed in 0..70 {
            send(&mut world, 0, 1, &EAGER, &pattern(8, seed));
            world[1].poll();
            assert_eq!(world[1].inbox.frames.pop(), Some((Peer(0), EAGER, pattern(8, seed))));
            world[1].poll();
        }
    }
}

#[test]
fn short_messages_are_caught_and_what_is_not_taken_stays() {
    let mut world: [Process; 2] = world("caught", |config| config);
    connect(&mut world);
    let catch = |process: &mut Process, takes: bool| {
        let mut caught = None;
        process.shm.catch(|from, frame, payload| {
            assert_eq!((from, *frame), (Peer(0), EAGER));
            caught = Some(payload.to_vec());
            takes
        });
        caught
    };
    assert_eq!(catch(&mut world[1], true), None, "nothing is there");
    // One slot, several, and a cell; more than the ring has room for, so room must be given.
    for (seed, len) in [0, 8, 40, 41, 100, 208, 209, 264, 265, 4000].into_iter().cycle().take(200).enumerate() {
        send(&mut world, 0, 1, &EAGER, &pattern(len, seed));
        assert_eq!(catch(&mut world[1], false), Some(pattern(len, seed)));
        assert_eq!(catch(&mut world[1], seed % 3 > 0), Some(pattern(len, seed)));
        if seed % 3 == 0 {
            world[1].shm.poll(&mut world[1].inbox);
            assert_eq!(world[1].inbox.frames.pop(), Some((Peer(0), EAGER, pattern(len, seed))));
        }
        assert_eq!(catch(&mut world[1], true), None, "it was taken");
    }
    // Others are not even offered.
    for frame in [Frame::EagerSync { envelope: ENVELOPE, send: 4 }, Frame::Part { receive: 5 }, Frame::Bye] {
        send(&mut world, 0, 1, &frame, &[]);
        for _ in 0..3 {
            assert_eq!(catch(&mut world[1], true), None);
        }
        world[1].poll();
        assert_eq!(world[1].inbox.frames.pop(), Some((Peer(0), frame, Vec::new())));
    }
}

#[test]
fn a_process_that_only_catches_leaves_the_sockets_to_the_next_poll() {
    let mut world: [Process; 3] = world("catches only", |config| config);
    connect(&mut world);
    let mut taken = 0;
    for _ in 0..2 * LOOK_EVERY {
        if world[0].try_send(1, &EAGER, &[1]).is_ok() {
            world[1].shm.catch(|_, _, _| {
                taken += 1;
                true
            });
        }
    }
    assert!((LOOK_EVERY / 2..LOOK_EVERY).contains(&taken), "{taken}");
    world[1].poll();
    assert!(!world[1].inbox.frames.is_empty() && world[1].shm.polls == 0);
}

#[test]
fn all_connect_to_all_at_once_and_no_frame_is_lost_or_duplicated() {
    const N: usize = 12;
    let mut world: [Process; N] = world("all call all", |config| config);
    let mut left: Vec<(u32, u32, u8)> = (0..3u8)
        .flat_map(|nth| (0..N as u32).flat_map(move |from| (0..N as u32).map(move |to| (from, to, nth))))
        .filter(|(from, to, _)| from != to)
        .collect();
    while !left.is_empty() {
        // All send before any of them polls: all connection attempts cross.
        let mut refused = Vec::new();
        for (from, to, nth) in left {
            if refused.iter().any(|(f, t, _)| (*f, *t) == (from, to))
                || world[from as usize].try_send(to, &EAGER, &[from as u8, nth]).is_err()
            {
                refused.push((from, to, nth));
            }
        }
        left = refused;
        world.iter_mut().for_each(Process::poll);
    }
    world.iter_mut().for_each(Process::poll);
    for (rank, process) in world.iter_mut().enumerate() {
        assert!(process.inbox.lost.is_empty(), "{:?}", process.inbox.lost);
        for from in (0..N as u32).filter(|from| *from as usize != rank) {
            let got = process.inbox.frames.iter().filter(|frame| frame.0 == Peer(from));
            let got: Vec<_> = got.map(|frame| frame.2.clone()).collect();
            assert_eq!(got, [[from as u8, 0], [from as u8, 1], [from as u8, 2]]);
        }
        assert_eq!(process.inbox.frames.len(), 3 * (N - 1));
    }
}

#[test]
fn a_peer_that_starts_late_is_reached_once_it_has_started() {
    let mut first = Process::new(config("late", 0), 2);
    for _ in 0..100 {
        assert_eq!(first.try_send(1, &EAGER, b"x"), Err(Refusal::Full));
        first.poll();
    }
    assert_eq!(first.shm.describe(Peer(1)), "connecting: no process listens there");
    assert!(first.shm.sleep_limit().is_some_and(|limit| limit <= Duration::from_millis(50)));
    let mut world = [first, Process::new(config("late", 1), 2)];
    connect(&mut world);
    assert_eq!(world[0].shm.describe(Peer(1)), "cma or copy through cells, whichever is measured faster");
    assert_eq!(world[0].shm.sleep_limit(), None);
}

#[test]
fn a_peer_that_shares_no_memory_is_lost_and_the_reason_names_the_setting() {
    let mut process = Process::new(config("declines", 0), 2);
    let declines = decline_as(config("declines", 1).me).unwrap();
    assert_eq!(process.try_send(1, &EAGER, b"x"), Err(Refusal::Full));
    process.poll();
    let [(Peer(1), reason)] = &process.inbox.lost[..] else { panic!("{:?}", process.inbox.lost) };
    assert!(reason.contains("rank 1") && reason.contains("it runs with RSD_MPI_SHM=off"), "{reason}");
    assert_eq!(process.try_send(1, &EAGER, b"x"), Err(Refusal::Lost));
    drop(declines);
}

#[test]
fn a_process_that_waits_for_an_answer_to_its_hello_may_sleep() {
    let mut world = world::<2>("sleeping caller", |config| config);
    assert_eq!(world[0].try_send(1, &EAGER, b"word"), Err(Refusal::Full));
    // The other process has not polled yet.
    world[0].poll();
    let limit = world[0].shm.sleep_limit().expect("it is waiting");
    assert!(limit >= Duration::from_millis(10), "{limit:?}");
    assert!(world[0].shm.prepare_sleep());
    world[1].poll();
    let mut fds = [PollFd::new(world[0].shm.fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, 5_000u16), Ok(1), "the answer wakes it");
    world[0].shm.awake();
    send(&mut world, 0, 1, &EAGER, b"word");
}

#[test]
fn a_full_ring_and_an_empty_pool_refuse_until_the_receiver_has_polled() {
    let mut world: [Process; 2] = world("full", |config| config);
    connect(&mut world);
    // One receiver gets half of the cells.
    for (len, room) in [(8, 16), (60, 8), (100, 5), (208, 4), (300, 2), (5000, 1)] {
        for round in 0..40 {
            let mut sent = 0;
            while world[0].try_send(1, &EAGER, &pattern(len, sent)).is_ok() {
                sent += 1;
            }
            assert!(sent <= room && sent + 1 >= room * 3 / 4, "{sent} of {len} bytes in round {round}");
            assert!(world[0].shm.prepare_sleep());
            world[1].poll();
            assert_eq!(std::mem::take(&mut world[1].inbox.frames).len(), sent);
            // The receiver has rung the doorbell; otherwise the sender could have slept.
            assert!(!world[0].shm.prepare_sleep());
        }
    }
}

#[test]
fn one_slow_receiver_does_not_block_the_cells_of_others() {
    let mut world: [Process; 3] = world("slow", |config| config);
    send(&mut world, 0, 2, &EAGER, &[]);
    connect(&mut world);
    assert_eq!(world[0].try_send(2, &EAGER, &[1; 100]), Ok(()));
    for _ in 0..50 {
        assert_eq!(world[0].try_send(1, &EAGER, &[1; 100]), Ok(()));
        world[1].poll();
    }
}

#[test]
fn sixty_four_megabytes_go_through_cells_without_cma() {
    const LEN: usize = 64 << 20;
    let [mut first, mut second]: [Process; 2] =
        world("64 MB", |config| ShmConfig { cma: false, large_cells: 64, slots: 256, ..config });
    let source = pattern(LEN, 5);
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut received = Vec::with_capacity(LEN);
            while received.len() < LEN {
                second.shm.poll(&mut second.inbox);
                if second.inbox.frames.is_empty() {
                    second.shm.park(Duration::from_secs(20));
                }
                second.inbox.frames.drain(..).for_each(|(_, _, bytes)| received.extend(bytes));
            }
            (received, second.shm.describe(Peer(0)))
        });
        for part in source.chunks(LARGE) {
            while first.try_send(1, &Frame::Part { receive: 1 }, part) == Err(Refusal::Full) {
                first.shm.park(Duration::from_secs(20));
                first.shm.poll(&mut first.inbox);
            }
        }
        receiver.join().unwrap()
    });
    assert!(received.0 == source);
    assert!(received.1.starts_with("copy through cells (cma: switched off; xpmem: "), "{}", received.1);
}

#[test]
fn two_processes_that_always_sleep_wake_each_other() {
    let [mut first, mut second]: [Process; 2] = world("sleepers", |config| config);
    fn wait(process: &mut Process) {
        let since = Instant::now();
        while process.inbox.frames.is_empty() {
            process.shm.poll(&mut process.inbox);
            if process.inbox.frames.is_empty() {
                process.shm.park(Duration::from_secs(20));
            }
            assert!(since.elapsed() < Duration::from_secs(10), "slept through a frame");
        }
        process.inbox.frames.clear();
    }
    fn send_one(process: &mut Process, to: u32) {
        while process.try_send(to, &EAGER, b"x").is_err() {
            process.shm.park(Duration::from_secs(20));
            process.shm.poll(&mut process.inbox);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..500 {
                wait(&mut second);
                send_one(&mut second, 0);
            }
        });
        for _ in 0..500 {
            send_one(&mut first, 1);
            wait(&mut first);
        }
    });
}

#[test]
fn a_long_message_is_read_from_the_senders_memory() {
    let mut world: [Process; 2] = world("pull", |config| config);
    connect(&mut world);
    let mut source = pattern(5 << 20, 1);
    let mut target = vec![0; 5 << 20];
    // SAFETY: both vectors live to the end of the test.
    let (from, into) = unsafe {
        (Buffer::contiguous(source.as_mut_ptr(), source.len()), Buffer::contiguous(target.as_mut_ptr(), target.len()))
    };
    let [first, second] = &mut world;
    let region = first.shm.offer(Peer(1), &from).unwrap();
    prefer(second, Way::Second);
    assert_eq!(second.shm.describe(Peer(0)), "cma (faster than copying through cells here)");
    assert_eq!(second.shm.pull(Peer(0), region, &into, 3 << 20, 1), Ok(Pulled::Now));
    first.shm.withdraw(Peer(1), region);
    assert_eq!(target[..3 << 20], source[..3 << 20]);
    assert!(target[3 << 20..].iter().all(|byte| *byte == 0));
    let nowhere = Region { address: 8, ..region };
    assert_eq!(second.shm.pull(Peer(0), nowhere, &into, 100, 2), Err(PullRefused));
    assert_eq!(second.shm.pull(Peer(0), region, &into, 6 << 20, 3), Err(PullRefused));
    assert_eq!(second.shm.pull(Peer(7), region, &into, 1, 4), Err(PullRefused));
}

/// Makes one way of receiving long messages seem the faster one.
fn prefer(process: &mut Process, way: Way) {
    let LinkState::Up(up) = &mut process.shm.links[0].state else { panic!("not connected") };
    up.streams.prefer(way);
}

#[test]
fn where_parts_are_faster_messages_are_requested_in_parts() {
    let mut world: [Process; 2] = world("parts", |config| config);
    connect(&mut world);
    prefer(&mut world[1], Way::First);
    let mut target = vec![0; 100_000];
    // SAFETY: the vector lives to the end of the test.
    let into = unsafe { Buffer::contiguous(target.as_mut_ptr(), target.len()) };
    let region = Region { address: target.as_ptr() as u64, ticket: 0 };
    let coming = |world: &[Process]| match &world[1].shm.links[0].state {
        LinkState::Up(up) => up.streams.coming(),
        other => panic!("{other:?}"),
    };
    for nth in 1..=2 {
        assert_eq!(world[1].shm.pull(Peer(0), region, &into, 100_000, 1), Err(PullRefused));
        assert_eq!(coming(&world), nth * 100_000);
    }
    send(&mut world, 0, 1, &EAGER, &pattern(5000, 0));
    for part in [LARGE, LARGE, LARGE, 100_000 - 3 * LARGE - 9, 9] {
        send(&mut world, 0, 1, &Frame::Part { receive: 1 }, &pattern(part, 0));
        world[1].poll();
    }
    assert_eq!(coming(&world), 100_000);
}

#[test]
fn senders_measure_how_to_fill_large_cells_while_they_send() {
    let mut world: [Process; 2] = world("fill", |config| config);
    connect(&mut world);
    for (len, count, is_measured) in [(100, 40, false), (SMALL, 40, false), (SMALL + 1, 2, false), (30_000, 40, true)] {
        for nth in 0..count {
            send(&mut world, 0, 1, &EAGER, &pattern(len, nth));
            world[1].poll();
            assert_eq!(world[1].inbox.frames.pop().unwrap().2, pattern(len, nth));
        }
        let LinkState::Up(up) = &world[0].shm.links[0].state else { panic!("not connected") };
        assert_eq!(up.fill.best().is_some(), is_measured, "{len}: {:?}", up.fill);
    }
}

#[test]
fn nothing_is_sent_to_an_unexpected_process() {
    let [mut alone]: [Process; 1] = world("alone", |config| config);
    assert_eq!(alone.try_send(0, &EAGER, b""), Err(Refusal::Lost));
    assert_eq!(alone.try_send(u32::MAX, &EAGER, b""), Err(Refusal::Lost));
    assert_eq!(alone.shm.describe(Peer(3)), "not on this node");
}
