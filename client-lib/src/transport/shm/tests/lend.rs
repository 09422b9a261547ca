//! Messages that a receiver may read from their sender's memory.

use super::*;

/// Lends a message of the process's own.
fn lend(process: &mut Process, to: u32, bytes: &[u8]) -> Result<(), Refusal> {
    let mut bytes = bytes.to_vec();
    // SAFETY: the vector outlives the call.
    let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    let lent = process.shm.try_lend(Peer(to), &EAGER, &buffer);
    bytes.fill(0xee); // a receiver that read it now would notice
    lent
}

fn up(process: &mut Process, index: usize) -> &mut Up {
    let LinkState::Up(up) = &mut process.shm.links[index].state else { panic!("it is not connected") };
    up
}

const LENGTHS: [usize; 7] = [0, 4096, 4097, 8191, 16384, LARGE - 1, LARGE];

/// Lends messages to a process that polls in a thread of its own, after `tweak`; returns how often it took the last offer.
fn lend_to_a_poller(test: &str, rounds: usize, tweak: impl FnOnce(&mut Process)) -> usize {
    let [mut sender, mut receiver] = world(test, |config| ShmConfig { large_cells: 8, ..config });
    let mut both = [sender, receiver];
    connect(&mut both);
    [sender, receiver] = both;
    receiver.shm.crowd = Crowd::default();
    sender.shm.crowd = Crowd::default();
    tweak(&mut receiver);
    let total = rounds * LENGTHS.len();
    let mut quick = 0;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let end = Instant::now() + Duration::from_secs(60);
            while receiver.inbox.frames.len() < total {
                assert!(Instant::now() < end, "{} of {total}", receiver.inbox.frames.len());
                receiver.poll();
            }
            receiver
        });
        for seed in 0..total {
            while let Err(refusal) = lend(&mut sender, 1, &pattern(LENGTHS[seed % LENGTHS.len()], seed)) {
                assert_eq!(refusal, Refusal::Full);
                std::thread::yield_now();
            }
            quick += usize::from(up(&mut sender, 0).lending.is_quick());
        }
        let receiver = receiver.join().unwrap();
        for (seed, (_, frame, bytes)) in receiver.inbox.frames.iter().enumerate() {
            assert_eq!(
                (*frame, bytes.as_slice()),
                (EAGER, &pattern(LENGTHS[seed % LENGTHS.len()], seed)[..]),
                "{seed}"
            );
        }
    });
    quick
}

#[test]
fn lent_messages_arrive_from_memory_or_cell_as_they_were() {
    let quick = lend_to_a_poller("lent", 300, |_| ());
    assert!(quick > 0, "no offer was taken");
}

#[test]
fn lent_messages_arrive_where_memory_cannot_be_read() {
    let never = lend_to_a_poller("refused", 50, |receiver| up(receiver, 0).cma = cma::Verdict::No("tested".into()));
    assert_eq!(never, 0);
    // It believes that it can.
    let never = lend_to_a_poller("wrong pid", 50, |receiver| up(receiver, 0).cma = cma::Verdict::Yes(i32::MAX));
    assert_eq!(never, 0);
}

#[test]
fn lent_messages_do_not_wait_for_a_late_receiver() {
    let mut world: [Process; 2] = world("late", |config| ShmConfig { large_cells: 8, ..config });
    connect(&mut world);
    world[0].shm.crowd = Crowd::default();
    let sent: Vec<Vec<u8>> = [5000, 20000, LARGE].into_iter().map(|len| pattern(len, len)).collect();
    for bytes in &sent {
        assert_eq!(lend(&mut world[0], 1, bytes), Ok(()));
    }
    world[1].poll();
    let got: Vec<_> = world[1].inbox.frames.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    assert_eq!(got, sent);
}

#[test]
fn an_offer_of_a_process_that_has_died_is_dropped() {
    let mut world: [Process; 2] = world("dead lender", |config| config);
    connect(&mut world);
    let shm = &mut world[0].shm;
    let cell = shm.pool.take(&shm.segment, 5000, 0).unwrap();
    super::super::lend::offer(shm.segment.cell_head(cell).unwrap(), 0);
    let LinkState::Up(peer) = &mut shm.links[0].state else { panic!("it is not connected") };
    let sent = put(&shm.segment, peer, IN_CELL | LENT, |data| {
        EAGER.encode(data);
        data.put(CELL_AT, cell.to_ne_bytes());
        data.put(CELL_AT + 4, 5000u32.to_ne_bytes());
    });
    assert!(sent);
    up(&mut world[1], 0).cma = cma::Verdict::No("tested".into());
    world[1].poll();
    assert!(world[1].inbox.frames.is_empty() && !world[1].shm.prepare_sleep(), "it waits for the sender");
    let [dead, mut alive] = world;
    drop(dead);
    let end = Instant::now() + Duration::from_secs(30);
    while alive.inbox.lost.is_empty() {
        assert!(Instant::now() < end);
        alive.poll();
    }
    assert!(alive.inbox.frames.is_empty());
}
