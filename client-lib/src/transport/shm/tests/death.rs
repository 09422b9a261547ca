//! Peers that end in every possible way.

use std::io::{BufRead, BufReader};

use super::*;

const CHILD: &str = "RSD_MPI_TEST_CHILD_OF";

/// Polls until a loss is reported; returns what arrived before it, and the reason.
fn until_lost(process: &mut Process) -> (Vec<Vec<u8>>, String) {
    let since = Instant::now();
    while process.inbox.lost.is_empty() {
        process.shm.poll(&mut process.inbox);
        process.shm.park(Duration::from_millis(100));
        assert!(since.elapsed() < Duration::from_secs(10), "the loss was not noticed");
    }
    let frames = std::mem::take(&mut process.inbox.frames).into_iter().map(|frame| frame.2).collect();
    let lost = std::mem::take(&mut process.inbox.lost);
    assert_eq!(lost.len(), 1);
    (frames, lost[0].1.clone())
}

#[test]
fn frames_sent_before_a_death_arrive_before_the_death_is_reported() {
    for slots in [16, 128] {
        let mut world: [Process; 2] = world(&format!("death {slots}"), |config| ShmConfig { slots, ..config });
        connect(&mut world);
        if slots == 128 {
            rewind(&mut world, 1, 0);
        }
        frames_arrive_before_the_death(world);
    }
}

fn frames_arrive_before_the_death(world: [Process; 2]) {
    let [mut first, mut second] = world;
    assert_eq!(second.try_send(0, &EAGER, b"small"), Ok(()));
    assert_eq!(second.try_send(0, &EAGER, &pattern(5000, 1)), Ok(()));
    // Its cell is in use when the peer dies.
    assert_eq!(first.try_send(1, &EAGER, &[1; 5000]), Ok(()));
    drop(second);
    let (frames, reason) = until_lost(&mut first);
    assert_eq!(frames, [b"small".to_vec(), pattern(5000, 1)]);
    assert_eq!(reason, "rank 1 of job 12: it exited without finalizing MPI");
    assert_eq!(first.try_send(1, &EAGER, b""), Err(Refusal::Lost));
    assert!(first.shm.prepare_sleep());
    assert_eq!(first.shm.sleep_limit(), None);
}

#[test]
fn a_peer_that_has_said_farewell_may_exit() {
    let mut world: [Process; 2] = world("farewell", |config| config);
    connect(&mut world);
    let [mut first, mut second] = world;
    assert_eq!(second.try_send(0, &Frame::Bye, b""), Ok(()));
    drop(second);
    // A child that another test has just forked may still hold the socket.
    let since = Instant::now();
    while first.shm.describe(Peer(1)) != "over" {
        first.poll();
        assert!(since.elapsed() < Duration::from_secs(10), "{}", first.shm.describe(Peer(1)));
    }
    assert_eq!(first.inbox.frames.len(), 1);
    assert!(first.inbox.lost.is_empty());
}

#[test]
fn a_peer_that_never_starts_is_lost_and_the_attempts_are_named() {
    let config = ShmConfig { connect_limit: Duration::from_millis(20), ..config("never", 0) };
    let mut process = Process::new(config, 2);
    assert_eq!(process.try_send(1, &EAGER, b""), Err(Refusal::Full));
    let (_, reason) = until_lost(&mut process);
    let expected = "it is unreachable on this node (attempts: ";
    assert!(reason.contains(expected) && reason.ends_with("): no process listens there"), "{reason}");
    assert_eq!(process.try_send(1, &EAGER, b""), Err(Refusal::Lost));
}

#[test]
fn a_doubted_peer_is_lost_at_once_and_the_known_reason_is_named() {
    for (why, expected) in
        [(None, ": its process has exited"), (Some("it uses another MPI"), "says: it uses another MPI")]
    {
        let mut process = Process::new(config("doubted", 0), 2);
        assert_eq!(process.try_send(1, &EAGER, b""), Err(Refusal::Full));
        process.shm.doubt(Peer(1), why);
        let (_, reason) = until_lost(&mut process);
        assert!(reason.ends_with(expected), "{reason}");
    }
}

#[test]
fn slots_claimed_by_a_dead_peer_do_not_block_the_others() {
    for (count, slots) in (1..=LONGEST).flat_map(|count| [(count, 16), (count, 128)]) {
        let mut world: [Process; 3] =
            world(&format!("claimed {count} {slots}"), |config| ShmConfig { slots, ..config });
        send(&mut world, 2, 0, &EAGER, &[]);
        send(&mut world, 1, 0, &EAGER, &[]);
        if slots == 128 {
            world[0].poll();
            world[0].inbox.frames.clear();
            rewind(&mut world, 1, 0);
        }
        let [mut first, second, mut third] = world;
        first.poll();
        first.inbox.frames.clear();
        // The steps of `try_send` up to the moment of death.
        let LinkState::Up(up) = &second.shm.links[0].state else { panic!("not connected") };
        let (ring_id, intent) = (up.ring_id, second.shm.segment.intent());
        let claimed = up.segment.ring().claim(count, &mut 0, |position| {
            intent.store(connect::claim_of(ring_id, position, count as u64), Ordering::Relaxed);
        });
        assert!(claimed.is_some());
        assert_eq!(third.try_send(0, &EAGER, b"after"), Ok(()));
        first.poll();
        assert!(first.inbox.frames.is_empty());
        drop(second);
        let (frames, _) = until_lost(&mut first);
        assert_eq!(frames, [b"after".to_vec()]);
        for _ in 0..200 {
            assert_eq!(third.try_send(0, &EAGER, b"more"), Ok(()));
            first.poll();
        }
    }
}

#[test]
fn of_two_dead_peers_only_what_they_have_claimed_is_skipped() {
    let mut world: [Process; 4] = world("two dead", |config| config);
    for from in 1..4 {
        send(&mut world, from, 0, &EAGER, &[]);
    }
    let [mut first, claimant, loser, mut third] = world;
    first.poll();
    first.inbox.frames.clear();
    let intend = |process: &Process, position: u64, count| {
        let LinkState::Up(up) = &process.shm.links[0].state else { panic!("not connected") };
        process.shm.segment.intent().store(connect::claim_of(up.ring_id, position, count), Ordering::Relaxed);
    };
    // One dies with its claim; the other one wanted four slots from the same position on, and did not get them.
    let LinkState::Up(up) = &claimant.shm.links[0].state else { panic!("not connected") };
    let position = up.segment.ring().claim(1, &mut 0, |position| intend(&claimant, position, 1)).unwrap();
    intend(&loser, position, 4);
    for len in [3, 200, 60] {
        assert_eq!(third.try_send(0, &EAGER, &pattern(len, 1)), Ok(()));
    }
    first.poll();
    assert!(first.inbox.frames.is_empty());
    drop((claimant, loser));
    let since = Instant::now();
    while first.inbox.lost.len() < 2 {
        first.shm.poll(&mut first.inbox);
        first.shm.park(Duration::from_millis(100));
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", first.inbox.lost);
    }
    let frames: Vec<Vec<u8>> = first.inbox.frames.drain(..).map(|frame| frame.2).collect();
    assert_eq!(frames, [3, 200, 60].map(|len| pattern(len, 1)));
    assert_eq!(first.shm.strays, 0);
}

#[test]
fn frames_of_several_slots_of_a_peer_that_was_cut_off_harm_no_other() {
    for len in [60, 100, 200] {
        let mut world: [Process; 3] = world(&format!("cut off {len}"), |config| config);
        send(&mut world, 1, 2, &EAGER, &[]);
        send(&mut world, 0, 2, &EAGER, &[]);
        let [mut other, mut gone, mut process] = world;
        process.poll();
        process.inbox.frames.clear();
        // Its bytes look like the head of a frame.
        assert_eq!(gone.try_send(2, &EAGER, &[1; 208][..len]), Ok(()));
        process.shm.cut(Peer(1));
        assert_eq!(other.try_send(2, &EAGER, &pattern(len, 2)), Ok(()));
        process.poll();
        let frames: Vec<_> = process.inbox.frames.drain(..).map(|(from, _, bytes)| (from, bytes)).collect();
        assert_eq!(frames, [(Peer(0), pattern(len, 2))]);
        assert!(process.inbox.lost.iter().all(|(peer, _)| *peer == Peer(1)), "{:?}", process.inbox.lost);
        assert_eq!(process.shm.strays, (len as u64 + 16).div_ceil(DATA as u64));
    }
}

/// Not a test by itself: the child of [`the_death_of_a_killed_process_is_noticed_and_its_last_frames_arrive`]. It
/// sends, reports that, and waits to be killed.
#[test]
fn child() {
    let Ok(job) = std::env::var(CHILD) else { return };
    let config = |rank| ShmConfig::new(ProcessName::new(job.as_bytes(), rank));
    let mut process = Process::new(config(1), 2);
    let mut memory = pattern(1 << 20, 9);
    let address = memory.as_mut_ptr() as u64;
    for bytes in [address.to_ne_bytes().to_vec(), pattern(30_000, 2)] {
        while process.try_send(0, &EAGER, &bytes) == Err(Refusal::Full) {
            process.poll();
        }
    }
    println!("sent");
    loop {
        process.shm.poll(&mut process.inbox);
        process.shm.park(Duration::from_secs(100));
    }
}

#[test]
fn the_death_of_a_killed_process_is_noticed_and_its_last_frames_arrive() {
    let job = format!("killed {}", std::process::id());
    let mut process = Process::new(ShmConfig::new(ProcessName::new(job.as_bytes(), 0)), 2);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "transport::shm::tests::death::child"])
        .env(CHILD, &job)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while process.inbox.frames.is_empty() {
        process.poll();
    }
    let address = u64::from_ne_bytes(process.inbox.frames[0].2[..].try_into().unwrap());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("sent")));
    // While it lives, its memory can be read, unless this machine forbids that: then there is a reason.
    let mut target = vec![0; 1 << 20];
    // SAFETY: the vector lives to the end of the test.
    let into = unsafe { Buffer::contiguous(target.as_mut_ptr(), target.len()) };
    let region = Region { address, ticket: 0 };
    // At first, messages are read from the sender's memory.
    if (0..4).any(|_| process.shm.pull(Peer(1), region, &into, 1 << 20, 1).is_ok()) {
        assert!(target == pattern(1 << 20, 9));
    } else {
        let way = process.shm.describe(Peer(1));
        assert!(way.starts_with("copy through cells (cma: "), "{way}");
    }
    child.kill().unwrap();
    let (frames, reason) = until_lost(&mut process);
    assert_eq!(frames.last(), Some(&pattern(30_000, 2)));
    assert!(reason.ends_with("it exited without finalizing MPI"), "{reason}");
    child.wait().unwrap();
}
