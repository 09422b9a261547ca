//! Messages copied by both ends.

use super::super::share::Copy;
use super::super::ticket::Ticket;
use super::*;

const LEN: usize = (3 << 20) + 5;

/// A message that the first process offers to the second, which has asked for help.
struct Message {
    world: [Process; 2],
    source: Vec<u8>,
    target: Vec<u8>,
    region: Region,
    copy: Copy,
}

impl Message {
    fn new(test: &str) -> Self {
        let mut world: [Process; 2] = world(test, |config| config);
        connect(&mut world);
        let (mut source, mut target) = (pattern(LEN, 3), vec![0; LEN]);
        // SAFETY: a vector's memory stays where it is when the vector is moved, and both live as long as the processes.
        let from = unsafe { Buffer::contiguous(source.as_mut_ptr(), LEN) };
        let region = world[0].shm.offer(Peer(1), &from).unwrap();
        let copy = world[1].shm.ask_for_help(0, region, &buffer(&mut target), LEN).unwrap();
        Self { world, source, target, region, copy }
    }

    /// The ticket, as the sender sees it.
    fn ticket(&self, ticket: usize) -> &Ticket {
        let LinkState::Up(up) = &self.world[0].shm.links[0].state else { panic!("not connected") };
        up.segment.ticket(ticket).unwrap()
    }

    fn read(&mut self) -> Result<Pulled, PullRefused> {
        let pid = std::process::id() as i32;
        self.world[1].shm.read_pieces(self.copy, pid, self.region.address, &buffer(&mut self.target))
    }
}

fn buffer(target: &mut [u8]) -> Buffer {
    // SAFETY: as in `Message::new`.
    unsafe { Buffer::contiguous(target.as_mut_ptr(), target.len()) }
}

#[test]
fn an_idle_sender_writes_pieces_and_the_receiver_reads_the_others() {
    let mut message = Message::new("share pieces");
    // The first poll delivers the request; each of the others writes a piece of at most 256 KiB.
    for _ in 0..6 {
        message.world[0].shm.poll(&mut Inbox::default());
    }
    let written = message.target.iter().zip(&message.source).take_while(|(a, b)| a == b).count();
    assert!((5 * (256 << 10)..LEN).contains(&written), "{written}");
    assert_eq!(message.read(), Ok(Pulled::Now));
    assert!(message.target == message.source);
}

#[test]
fn a_busy_sender_leaves_all_pieces_to_the_receiver_and_its_late_help_has_no_effect() {
    let mut message = Message::new("share alone");
    assert_eq!(message.read(), Ok(Pulled::Now));
    assert!(message.target == message.source);
    message.target.fill(0);
    for _ in 0..20 {
        message.world[0].shm.poll(&mut Inbox::default());
    }
    assert!(message.target.iter().all(|byte| *byte == 0));
    // It is not asked again at once.
    assert!(message.world[1].shm.ask_for_help(0, message.region, &buffer(&mut message.target), LEN).is_none());
}

#[test]
fn a_message_is_complete_with_the_senders_last_piece_and_refused_if_that_piece_fails() {
    for written in [true, false] {
        let mut message = Message::new(&format!("share last {written}"));
        let Copy { ticket, number, .. } = message.copy;
        assert!(message.ticket(ticket).claim(number, 13).is_some());
        assert_eq!(message.read(), Ok(Pulled::Later));
        message.world[1].poll();
        assert_eq!(message.world[1].inbox.pulled, []);
        assert!(message.world[1].shm.prepare_sleep());
        message.world[1].shm.awake();
        message.ticket(ticket).finish(written);
        assert!(!message.world[1].shm.prepare_sleep());
        message.world[1].poll();
        let result = if written { Ok(()) } else { Err(PullRefused) };
        assert_eq!(message.world[1].inbox.pulled, [(0, result)]);
    }
}

#[test]
fn help_is_not_asked_for_where_it_costs_more_or_the_sender_has_messages_to_read() {
    let mut message = Message::new("share measured");
    assert_eq!(message.read(), Ok(Pulled::Now));
    let mut asks = |receiver: &mut Process| {
        receiver.shm.ask_for_help(0, message.region, &buffer(&mut message.target), LEN).is_some()
    };
    let receiver = &mut message.world[1];
    let set = |receiver: &mut Process, both: u64, alone: u64| {
        let LinkState::Up(up) = &mut receiver.shm.links[0].state else { panic!("not connected") };
        up.alone = 0;
        up.helped = Default::default();
        for helped in &mut up.helped {
            helped.learn(Way::First, both, 1024);
            helped.learn(Way::Second, alone, 1024);
        }
    };
    set(receiver, 2000, 1000);
    assert!(!asks(receiver), "it costs more");
    set(receiver, 1000, 2000);
    let mut own = vec![0; 4096];
    let own = receiver.shm.offer(Peer(0), &buffer(&mut own)).unwrap();
    assert!(!asks(receiver), "the sender reads what this process has offered");
    receiver.shm.withdraw(Peer(0), own);
    assert!(asks(receiver));
}

#[test]
fn memory_that_is_not_offered_is_not_written() {
    let mut message = Message::new("share withdrawn");
    message.world[0].shm.withdraw(Peer(1), message.region);
    for _ in 0..20 {
        message.world[0].shm.poll(&mut Inbox::default());
    }
    assert!(message.target.iter().all(|byte| *byte == 0));
    assert_eq!(message.read(), Ok(Pulled::Now));
    assert!(message.target == message.source);
}
