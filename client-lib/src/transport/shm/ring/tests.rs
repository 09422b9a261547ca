//! Rings in the memory of one process, and the lines that they move.

use super::*;
use crate::shared_memory::traffic::{self, Moves, NUMBERS};

struct Memory {
    head: RingHead,
    slots: Vec<Slot>,
}

impl Memory {
    fn new(slots: usize) -> Self {
        // SAFETY: all zero is an empty ring.
        let head = unsafe { std::mem::zeroed() };
        // SAFETY: all zero is an unused slot.
        Self { head, slots: (0..slots).map(|_| unsafe { std::mem::zeroed() }).collect() }
    }

    fn ring(&self) -> Ring<'_> {
        Ring { head: &self.head, slots: &self.slots }
    }
}

fn send(ring: Ring<'_>, known: &mut u64, note: u32) -> bool {
    let Some(position) = ring.claim(1, known, |_| ()) else { return false };
    ring.publish(position, note, |data| data.put(0, [note as u8]));
    true
}

/// Sends a frame of so many slots; `note` says how many.
fn send_long(ring: Ring<'_>, known: &mut u64, count: usize, byte: u8) -> bool {
    let Some(position) = ring.claim(count, known, |_| ()) else { return false };
    ring.publish_long(position, count as u32, &[[byte; DATA]; LONGEST][..count]);
    true
}

fn take_long(ring: Ring<'_>, receiver: &mut Receiver) -> Option<(usize, u8)> {
    let (count, data) = ring.take(receiver)?;
    let mut pieces = [[0; DATA]; LONGEST];
    pieces[0] = data.0;
    assert!(ring.take_rest(receiver, &mut pieces[1..count as usize]));
    let [byte, ..] = data.0;
    assert!(pieces[..count as usize].as_flattened().iter().all(|one| *one == byte));
    Some((count as usize, byte))
}

#[test]
fn frames_of_several_slots_arrive_whole_and_can_be_taken_again() {
    let memory = Memory::new(16);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    let (mut sent, mut got) = (0u8, 0u8);
    for round in 0..1000usize {
        while send_long(ring, &mut known, 1 + usize::from(sent) % LONGEST, sent) {
            sent = sent.wrapping_add(1);
        }
        for _ in 0..=round % 5 {
            let before = receiver.next();
            let Some(taken) = take_long(ring, &mut receiver) else { break };
            assert_eq!(taken, (1 + usize::from(got) % LONGEST, got));
            if round % 3 == 0 {
                receiver.put_back();
                assert_eq!(receiver.next(), before);
                assert_eq!(take_long(ring, &mut receiver), Some(taken));
            }
            ring.give_room(&mut receiver);
            got = got.wrapping_add(1);
        }
    }
    assert!(receiver.next() > 2000);
}

/// Sends a frame, takes it, and finds nothing after it; returns the index of its slot.
fn send_and_take(memory: &Memory, receiver: &mut Receiver, known: &mut u64, note: u32) -> u64 {
    let ring = memory.ring();
    assert!(send(ring, known, note));
    let index = ring.index(receiver.next());
    assert_eq!(ring.take(receiver).map(|taken| taken.0), Some(note));
    ring.give_room(receiver);
    assert!(ring.take(receiver).is_none());
    assert!(!ring.rewind(receiver));
    index
}

#[test]
fn frames_that_come_one_at_a_time_use_the_first_slots() {
    let memory = Memory::new(4 * HOT as usize);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    let mut used = vec![0; memory.slots.len()];
    for note in 0..10 * HOT as u32 {
        used[send_and_take(&memory, &mut receiver, &mut known, note) as usize] += 1;
    }
    assert!(used[..HOT as usize].iter().all(|count| *count == 10) && used[HOT as usize..].iter().all(|it| *it == 0));
    // What comes all at once uses the others, too, and only then goes back.
    let mut sent = 0;
    while send(ring, &mut known, sent) {
        sent += 1;
    }
    assert_eq!(sent, 4 * HOT as u32, "all of them are free");
    for note in 0..sent {
        assert_eq!(ring.take(&mut receiver).map(|taken| taken.0), Some(note));
        ring.give_room(&mut receiver);
    }
    assert!(!ring.rewind(&mut receiver));
    assert_eq!(ring.index(receiver.next()), 0, "it is at the end, and thus at the beginning");
}

#[test]
fn a_receiver_does_not_go_back_while_a_sender_has_claimed_a_slot() {
    let memory = Memory::new(4 * HOT as usize);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    for note in 0..HOT as u32 - 1 {
        send_and_take(&memory, &mut receiver, &mut known, note);
    }
    assert!(send(ring, &mut known, 7) && ring.take(&mut receiver).is_some());
    let position = ring.claim(1, &mut known, |_| ()).unwrap();
    assert!(ring.take(&mut receiver).is_none() && !ring.rewind(&mut receiver));
    assert_eq!(receiver.next(), position);
    ring.publish(position, 9, |data| data.put(0, [9]));
    assert_eq!(ring.take(&mut receiver).map(|taken| taken.0), Some(9));
    // It tries again some slots later.
    let used = (0..HOT as u32).map(|note| send_and_take(&memory, &mut receiver, &mut known, note));
    assert!(used.collect::<Vec<_>>().contains(&0));
}

#[test]
fn all_slots_are_used_before_their_words_could_be_mistaken() {
    let memory = Memory::new(4 * HOT as usize);
    let (mut receiver, mut known) = (Receiver::default(), 0);
    let reached = |receiver: &mut Receiver, known: &mut u64, frames: u64| {
        let used = (0..frames as u32).map(|note| send_and_take(&memory, receiver, known, note));
        used.max().unwrap_or_default()
    };
    assert_eq!(reached(&mut receiver, &mut known, 3 * HOT), HOT - 1);
    receiver.rewinding.count = REWINDS;
    assert_eq!(reached(&mut receiver, &mut known, 4 * HOT), 4 * HOT - 1);
    assert_eq!(reached(&mut receiver, &mut known, 3 * HOT), HOT - 1, "from then on, it goes back again");
    assert!(receiver.rewinding.count < REWINDS);
}

#[test]
fn a_sender_whose_tail_is_old_does_not_take_the_ring_for_full() {
    let memory = Memory::new(4 * HOT as usize);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    for note in 0..HOT as u32 {
        send_and_take(&memory, &mut receiver, &mut known, note);
    }
    assert_eq!((receiver.next(), ring.tail()), (4 * HOT, 4 * HOT));
    // As if it had read `tail` before the receiver went back, and reads `head` after that.
    assert!(ring.is_free(HOT, 1, &mut 0) && ring.is_free(HOT, LONGEST, &mut (4 * HOT)));
}

#[test]
fn a_frame_is_not_longer_than_what_its_sender_has_published() {
    let memory = Memory::new(8);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    assert!(send(ring, &mut known, 1) && send(ring, &mut known, 2));
    assert!(ring.take(&mut receiver).is_some());
    // The next slot is the beginning of another frame, and stays there.
    assert!(!ring.take_rest(&mut receiver, &mut [[0; DATA]; 2]));
    assert_eq!(ring.take(&mut receiver).map(|taken| taken.0), Some(2));
    assert!(!ring.take_rest(&mut receiver, &mut [[0; DATA]; 1]), "nothing is there");
    assert!(!ring.has_room(7, &mut known) && ring.has_room(6, &mut known));
}

#[test]
fn a_ring_accepts_one_frame_per_slot_and_frees_slots_by_quarters() {
    let memory = Memory::new(8);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    for round in 0..100 {
        let mut sent = 0;
        while send(ring, &mut known, round + sent) {
            sent += 1;
        }
        assert_eq!(sent, if round == 0 { 8 } else { 2 }, "round {round}");
        // From now on the receiver reports when there is room.
        assert!(!ring.await_room(&mut known));
        let mut room = false;
        while !room {
            let (note, data) = ring.take(&mut receiver).unwrap();
            assert_eq!(data.0[0], note as u8);
            room = ring.give_room(&mut receiver);
        }
    }
}

/// What moves while senders send a frame each and the receiver, member 0, takes all of them, after each one or at the end.
fn count(members: u32, at_once: bool) -> Moves {
    #[repr(C)]
    struct Whole {
        head: RingHead,
        slots: [Slot; 512],
    }
    // SAFETY: all zero is an empty ring of unused slots.
    let whole: Box<Whole> = Box::new(unsafe { std::mem::zeroed() });
    let (ring, mut receiver) = (Ring { head: &whole.head, slots: &whole.slots }, Receiver::default());
    let (mut known, mut most) = (vec![0; members as usize], Moves::default());
    let start = std::ptr::from_ref(&*whole).addr();
    traffic::watch(vec![start..start + size_of::<Whole>(); members as usize]);
    let warm = 2 * whole.slots.len() / (members as usize - 1);
    for call in 0..warm + 100 {
        traffic::begin();
        let mut take = || {
            traffic::run(0);
            while ring.take(&mut receiver).is_some() {
                ring.give_room(&mut receiver);
            }
        };
        for (member, known) in known.iter_mut().enumerate().skip(1) {
            traffic::run(member);
            assert!(send(ring, known, 7) && !ring.wake());
            if !at_once {
                take();
            }
        }
        take();
        if call >= warm {
            most = most.most(traffic::moves());
        }
    }
    traffic::end();
    most
}

#[test]
fn the_table_shows_how_receiving_grows() {
    let mut table = traffic::Table::default();
    table.row("a frame from each other member, taken one by one", |members| count(members, false));
    table.row("a frame from each other member, taken at the end", |members| count(members, true));
    table.check(include_str!("../../../../../tests/bench/growth/rings.md"), "rings.md");
}

/// For each frame: the position that is claimed, the slot to the sender and to the receiver; now and then, the room that is free.
#[test]
fn a_frame_moves_a_bounded_number_of_lines_however_many_members_send() {
    for members in NUMBERS {
        for at_once in [false, true] {
            let (moves, frames) = (count(members, at_once), u64::from(members) - 1);
            assert!(moves.line <= frames.max(2), "{members}: {moves:?}");
            assert!(moves.all <= 7 * frames + 4, "{members}: {moves:?}");
            assert!(moves.member <= 2 * frames + 8, "{members}: {moves:?}");
        }
    }
}

#[test]
fn an_empty_ring_yields_nothing_even_after_a_full_lap() {
    let memory = Memory::new(4);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    for note in 0..40 {
        assert!(ring.take(&mut receiver).is_none());
        assert!(send(ring, &mut known, note));
        assert_eq!(ring.take(&mut receiver).map(|taken| taken.0), Some(note));
        ring.give_room(&mut receiver);
    }
}

#[test]
fn corrupt_words_make_the_ring_look_full_or_empty_and_nothing_worse() {
    let memory = Memory::new(4);
    let (ring, mut receiver, mut known) = (memory.ring(), Receiver::default(), 0);
    for garbage in [u64::MAX, 1 << 63, 0xffff_ffff, 12345] {
        memory.head.tail.0.store(garbage, Ordering::Relaxed);
        memory.head.head.0.store(garbage.rotate_left(7), Ordering::Relaxed);
        let _ = send(ring, &mut known, 1);
        memory.slots[0].word.store(garbage, Ordering::Relaxed);
        let _ = ring.take(&mut receiver);
        let _ = ring.give_room(&mut receiver);
    }
}
