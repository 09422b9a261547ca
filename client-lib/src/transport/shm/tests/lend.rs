//! Messages that a receiver may read from their sender's memory.

use super::link::Up;
use super::*;
use crate::engine::Loan;

/// Lends a message of the process's own.
fn lend(process: &mut Process, to: u32, bytes: &[u8]) -> Result<(), Refusal> {
    let mut bytes = bytes.to_vec();
    // SAFETY: the vector outlives the call.
    let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
    let lent = process.shm.try_lend(Peer(to), &EAGER, &buffer, false, &mut process.inbox);
    bytes.fill(0xee); // a receiver that read it now would notice
    lent.map(|loan| assert_eq!(loan, None))
}

fn up(process: &mut Process, index: usize) -> &mut Up {
    let LinkState::Up(up) = &mut process.shm.links[index].state else { panic!("it is not connected") };
    up
}

const LENGTHS: [usize; 7] = [0, 4096, 4097, 8191, 16384, LARGE - 1, LARGE];

/// Lends messages to a process that polls in a thread of its own, after `tweak`; returns how often it took the last offer.
fn lend_to_a_poller(test: &str, rounds: usize, tweak: impl FnOnce(&mut Process, &mut Process)) -> usize {
    let [mut sender, mut receiver] = world(test, |config| ShmConfig { large_cells: 8, ..config });
    let mut both = [sender, receiver];
    connect(&mut both);
    [sender, receiver] = both;
    receiver.shm.crowd = Crowd::default();
    sender.shm.crowd = Crowd::default();
    tweak(&mut sender, &mut receiver);
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
            sender.inbox.receives += 1; // so that it offers each message
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
    lend_to_a_poller("lent", 300, |_, _| ());
    let quick = lend_to_a_poller("insisting", 40, |sender, _| up(sender, 0).lending.insist());
    assert!(quick > 40 * LENGTHS.len() / 2, "{quick} offers were taken");
}

#[test]
fn lent_messages_arrive_where_memory_cannot_be_read() {
    let never = lend_to_a_poller("refused", 50, |_, receiver| up(receiver, 0).cma = cma::Verdict::No("tested".into()));
    assert_eq!(never, 0);
    // It believes that it can.
    let never = lend_to_a_poller("wrong pid", 50, |_, receiver| up(receiver, 0).cma = cma::Verdict::Yes(i32::MAX));
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

/// Two processes that send to each other read each other's messages instead of copying their own.
#[test]
fn offers_of_both_processes_are_taken_while_both_send() {
    let mut world: [Process; 2] = world("both lend", |config| ShmConfig { large_cells: 8, ..config });
    connect(&mut world);
    const ROUNDS: usize = 70;
    std::thread::scope(|scope| {
        for (rank, process) in world.iter_mut().enumerate() {
            process.shm.crowd = Crowd::default();
            process.inbox.expects = true;
            up(process, 0).lending.insist();
            scope.spawn(move || {
                let end = Instant::now() + Duration::from_secs(60);
                let mut taken = 0;
                for round in 0..ROUNDS {
                    let len = LENGTHS[round % LENGTHS.len()];
                    process.inbox.receives += 1;
                    while let Err(refusal) = lend(process, 1 - rank as u32, &pattern(len, 2 * round + rank)) {
                        assert_eq!(refusal, Refusal::Full);
                        process.poll();
                    }
                    taken += usize::from(len > SMALL && up(process, 0).lending.is_quick());
                    while process.inbox.frames.len() <= round {
                        assert!(Instant::now() < end, "{round}");
                        process.poll();
                    }
                    let (_, frame, bytes) = &process.inbox.frames[round];
                    assert_eq!((*frame, bytes), (EAGER, &pattern(len, 2 * round + 1 - rank)), "{round}");
                }
                assert!(taken > ROUNDS / 2, "{taken} offers were taken");
            });
        }
    });
}

#[test]
fn what_is_not_expected_is_not_received_during_a_send() {
    let mut world: [Process; 2] = world("not expected", |config| ShmConfig { large_cells: 8, ..config });
    connect(&mut world);
    for process in &mut world {
        process.shm.crowd = Crowd::default();
    }
    let [one, other] = &mut world;
    assert_eq!(lend(one, 1, &pattern(20_000, 1)), Ok(()));
    assert_eq!(lend(other, 0, &pattern(20_000, 2)), Ok(()));
    assert!(other.inbox.frames.is_empty());
    one.inbox.expects = true;
    assert_eq!(lend(one, 1, &pattern(20_000, 3)), Ok(()));
    assert_eq!(one.inbox.frames, [(Peer(1), EAGER, pattern(20_000, 2))]);
    other.poll();
    let got: Vec<_> = other.inbox.frames.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    assert_eq!(got, [pattern(20_000, 1), pattern(20_000, 3)]);
}

#[test]
fn a_frame_that_is_left_comes_again() {
    let mut world: [Process; 2] = world("left", |config| ShmConfig { large_cells: 8, ..config });
    connect(&mut world);
    world[0].shm.crowd = Crowd::default();
    let lengths = [3, 100, 5000, 0, LARGE];
    for len in lengths {
        assert_eq!(world[0].try_send(1, &EAGER, &pattern(len, len)), Ok(()));
        assert_eq!(lend(&mut world[0], 1, &pattern(len, len)), Ok(()));
    }
    for taken in 0..2 * lengths.len() {
        let inbox = &mut world[1].inbox;
        assert_eq!(inbox.frames.len(), taken);
        inbox.most = taken;
        world[1].poll();
        assert_eq!(world[1].inbox.frames.len(), taken, "it was left");
        world[1].inbox.most = taken + 1;
        world[1].poll();
    }
    let got: Vec<_> = world[1].inbox.frames.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    assert_eq!(got, lengths.iter().flat_map(|len| [pattern(*len, *len), pattern(*len, *len)]).collect::<Vec<_>>());
}

/// A message that stays lent, with its memory.
struct Staying {
    buffer: Buffer,
    bytes: Vec<u8>,
    loan: Option<Loan>,
}

impl Staying {
    /// Lends a message to process 1.
    fn to_1(process: &mut Process, bytes: &[u8]) -> Self {
        let mut bytes = bytes.to_vec();
        // SAFETY: the vector lives as long as the buffer.
        let buffer = unsafe { Buffer::contiguous(bytes.as_mut_ptr(), bytes.len()) };
        process.inbox.receives += 1; // so that it offers each message
        let loan = process.shm.try_lend(Peer(1), &EAGER, &buffer, true, &mut process.inbox).unwrap();
        Self { buffer, bytes, loan }
    }

    /// Redeems it, and overwrites the memory.
    fn redeem(mut self, process: &mut Process) {
        if let Some(loan) = self.loan {
            assert!(process.shm.redeem(Peer(1), loan, &self.buffer, true, &mut process.inbox));
        }
        self.bytes.fill(0xee);
    }
}

/// Two processes, of which the first one knows that the other one can read its memory.
fn lenders(test: &str) -> [Process; 2] {
    let mut world: [Process; 2] = world(test, |config| ShmConfig { large_cells: 8, ..config });
    connect(&mut world);
    world[0].shm.crowd = Crowd::default();
    let lending = &mut up(&mut world[0], 0).lending;
    lending.insist();
    lending.was_taken(true);
    lending.patience_is(0);
    world
}

#[test]
fn a_message_that_stays_lent_is_read_without_its_sender() {
    let [mut sender, mut receiver] = lenders("stays");
    let messages: Vec<Vec<u8>> = (0..40).map(|seed| pattern(5000 + 600 * seed, seed)).collect();
    for (at, bytes) in messages.iter().enumerate() {
        let staying = Staying::to_1(&mut sender, bytes);
        assert!(staying.loan.is_some());
        receiver.poll();
        assert_eq!(receiver.inbox.frames.last().map(|(_, _, got)| got), Some(bytes));
        // The sender goes on meanwhile.
        for seed in 0..20 {
            lend(&mut sender, 1, &pattern(6000, seed)).unwrap();
            receiver.poll();
            assert_eq!(receiver.inbox.frames.last().unwrap().2, pattern(6000, seed), "{at}, {seed}");
        }
        receiver.inbox.frames.clear();
        staying.redeem(&mut sender);
    }
}

#[test]
fn a_message_that_nobody_has_read_is_copied_when_its_loan_ends() {
    let [mut sender, mut receiver] = lenders("late reader");
    for seed in 0..40 {
        let bytes = pattern(5000 + 600 * seed, seed);
        let staying = Staying::to_1(&mut sender, &bytes);
        assert!(staying.loan.is_some());
        staying.redeem(&mut sender);
        receiver.poll();
        assert_eq!(receiver.inbox.frames.pop().map(|(_, _, got)| got), Some(bytes));
    }
}

#[test]
fn nothing_stays_lent_to_a_receiver_that_cannot_read_it() {
    let [mut sender, mut receiver] = lenders("cannot read");
    up(&mut receiver, 0).cma = cma::Verdict::Yes(i32::MAX);
    for seed in 0..4 {
        let bytes = pattern(9000, seed);
        let staying = Staying::to_1(&mut sender, &bytes);
        assert_eq!(staying.loan.is_some(), seed == 0, "it finds out at the first one");
        receiver.poll();
        staying.redeem(&mut sender);
        receiver.poll();
        assert_eq!(receiver.inbox.frames.pop().map(|(_, _, got)| got), Some(bytes));
    }
}

#[test]
fn a_loan_ends_after_the_receiver_has_read_it() {
    let [mut sender, _receiver] = lenders("reading");
    let staying = Staying::to_1(&mut sender, &pattern(9000, 1));
    let state_is = |sender: &Process, state| {
        let head = sender.shm.segment.cell_head(staying.loan.unwrap().0).unwrap();
        head.state.store(state, Ordering::Release);
    };
    state_is(&sender, super::super::lend::TAKEN);
    for _ in 0..3 {
        assert!(!sender.shm.redeem(Peer(1), staying.loan.unwrap(), &staying.buffer, false, &mut sender.inbox));
    }
    state_is(&sender, super::super::cells::FREE);
    assert!(sender.shm.redeem(Peer(1), staying.loan.unwrap(), &staying.buffer, false, &mut sender.inbox));
}

#[test]
fn a_loan_to_a_peer_that_has_died_can_be_redeemed() {
    // A death in the middle of reading is seen only in another process.
    for (is_taken, is_noticed) in [(false, false), (false, true), (true, true)] {
        let [mut sender, receiver] = lenders(&format!("dead borrower {is_taken} {is_noticed}"));
        let staying = Staying::to_1(&mut sender, &pattern(9000, 1));
        let loan = staying.loan.expect("it stays");
        if is_taken {
            let head = sender.shm.segment.cell_head(loan.0).unwrap();
            head.state.store(super::super::lend::TAKEN, Ordering::Release);
        }
        drop(receiver);
        let end = Instant::now() + Duration::from_secs(30);
        while is_noticed && sender.inbox.lost.is_empty() {
            assert!(Instant::now() < end);
            sender.poll();
        }
        staying.redeem(&mut sender);
    }
}

#[test]
fn an_offer_of_a_process_that_has_ended_is_not_read() {
    let [mut sender, mut receiver] = lenders("ended lender");
    let staying = Staying::to_1(&mut sender, &pattern(9000, 1));
    assert!(staying.loan.is_some());
    // Its number could be that of another process by now.
    up(&mut receiver, 0).ends_at = Some(u64::MAX);
    receiver.poll();
    assert!(receiver.inbox.frames.is_empty());
}
