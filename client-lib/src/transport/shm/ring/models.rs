//! Explores all interleavings of a few steps, and all values that the memory model permits for each read.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::*;

struct Memory {
    head: RingHead,
    slots: Vec<Slot>,
    /// Whether it has been rung since the last wait: a lost wake-up is a deadlock.
    bell: (Mutex<bool>, Condvar),
}

impl Memory {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            head: RingHead {
                tail: Line(AtomicU64::new(0)),
                head: Line(AtomicU64::new(0)),
                sleep: Line(Sleep { asleep: AtomicU32::new(0), starved: AtomicU32::new(0) }),
            },
            slots: (0..slots)
                .map(|_| Slot { word: AtomicU64::new(0), data: UnsafeCell::new(SlotData([0; DATA])) })
                .collect(),
            bell: (Mutex::new(false), Condvar::new()),
        })
    }

    fn ring(&self) -> Ring<'_> {
        Ring { head: &self.head, slots: &self.slots }
    }

    fn ring_the_bell(&self) {
        *self.bell.0.lock().unwrap() = true;
        self.bell.1.notify_one();
    }

    fn wait_for_the_bell(&self) {
        let mut rung = self.bell.0.lock().unwrap();
        while !*rung {
            rung = self.bell.1.wait(rung).unwrap();
        }
        *rung = false;
    }

    fn send(&self, known: &mut u64, note: u32) -> bool {
        let Some(position) = self.ring().claim(1, known, |_| ()) else { return false };
        self.ring().publish(position, note, |data| data.put(0, [note as u8; DATA]));
        self.wake();
        true
    }

    /// Sends a frame of two slots.
    fn send_long(&self, known: &mut u64, note: u32) -> bool {
        let Some(position) = self.ring().claim(2, known, |_| ()) else { return false };
        self.ring().publish_long(position, note | LONG, &[[note as u8; DATA]; 2]);
        self.wake();
        true
    }

    fn wake(&self) {
        if self.ring().wake() {
            self.ring_the_bell();
        }
    }

    fn take(&self, receiver: &mut Receiver) -> Option<u32> {
        let (note, data) = self.ring().take(receiver)?;
        let note = match note & LONG {
            0 => note,
            _ => {
                let mut rest = [[0; DATA]];
                assert!(self.ring().take_rest(receiver, &mut rest));
                assert_eq!(rest, [[note as u8; DATA]]);
                note & !LONG
            }
        };
        assert_eq!(data.0, [note as u8; DATA]);
        Some(note)
    }
}

/// In the note of a frame of two slots.
const LONG: u32 = 0x100;

/// Takes the frames that are left after `order`, when all senders have ended.
fn drain(memory: &Memory, receiver: &mut Receiver, mut order: Vec<u32>) -> Vec<u32> {
    while let Some(note) = memory.take(receiver) {
        order.push(note);
        memory.ring().give_room(receiver);
    }
    order
}

/// A way to send: [`Memory::send`] or [`Memory::send_long`].
type Send = fn(&Memory, &mut u64, u32) -> bool;

/// One sender sends `notes`, the other one frame with note 20, while a receiver takes what comes; returns the order in which all came.
fn two_senders(slots: usize, send: Send, notes: &'static [u32]) -> Vec<u32> {
    let memory = Memory::new(slots);
    let other = thread::spawn({
        let memory = Arc::clone(&memory);
        move || assert!(memory.send(&mut 0, 20))
    });
    let first = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let mut known = 0;
            notes.iter().for_each(|note| assert!(send(&memory, &mut known, *note)));
        }
    });
    let mut receiver = Receiver::default();
    let early = memory.take(&mut receiver).into_iter().collect();
    first.join().unwrap();
    other.join().unwrap();
    drain(&memory, &mut receiver, early)
}

#[test]
fn loom_frames_of_two_senders_arrive_whole_once_and_in_order() {
    loom::model(|| {
        let order = two_senders(4, Memory::send, &[10, 11]);
        assert!([[10, 11, 20], [10, 20, 11], [20, 10, 11]].contains(&order[..].try_into().unwrap()), "{order:?}");
    });
}

#[test]
fn loom_a_frame_of_two_slots_does_not_mix_with_another_senders() {
    loom::model(|| {
        let order = two_senders(4, Memory::send_long, &[10]);
        assert!([[10, 20], [20, 10]].contains(&order[..].try_into().unwrap()), "{order:?}");
    });
}

/// A ring with room for one frame gets two.
fn a_second_frame(slots: usize, send: Send) {
    let memory = Memory::new(slots);
    let sender = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let mut known = 0;
            assert!(send(&memory, &mut known, 1));
            send(&memory, &mut known, 2)
        }
    });
    let (mut receiver, mut order) = (Receiver::default(), Vec::new());
    for _ in 0..2 {
        order.extend(memory.take(&mut receiver));
        memory.ring().give_room(&mut receiver);
    }
    let both = sender.join().unwrap();
    assert_eq!(drain(&memory, &mut receiver, order), if both { vec![1, 2] } else { vec![1] });
}

#[test]
fn loom_a_slot_is_not_overwritten_before_it_has_been_read() {
    loom::model(|| a_second_frame(1, Memory::send));
}

#[test]
fn loom_frames_of_two_slots_are_not_overwritten_before_they_have_been_read() {
    loom::model(|| a_second_frame(2, Memory::send_long));
}

#[test]
fn loom_a_receiver_goes_back_to_the_first_slot_while_a_sender_claims_others() {
    for send in [Memory::send as Send, Memory::send_long] {
        loom::model(move || {
            let memory = Memory::new(4);
            let mut known = 0;
            assert!(memory.send(&mut known, 1) && memory.send(&mut known, 2));
            let mut receiver = Receiver::default();
            let mut order = Vec::from([memory.take(&mut receiver).unwrap(), memory.take(&mut receiver).unwrap()]);
            let sender = thread::spawn({
                let memory = Arc::clone(&memory);
                move || {
                    assert!(send(&memory, &mut known, 3), "there is room wherever the receiver is");
                    memory.send(&mut known, 4)
                }
            });
            for _ in 0..2 {
                match memory.take(&mut receiver) {
                    Some(note) => order.push(note),
                    None => assert!(!memory.ring().rewind(&mut receiver)),
                }
                memory.ring().give_room(&mut receiver);
            }
            let both = sender.join().unwrap();
            assert_eq!(drain(&memory, &mut receiver, order), [1, 2, 3, 4][..if both { 4 } else { 3 }]);
        });
    }
}

#[test]
fn loom_a_receiver_that_sleeps_is_woken() {
    loom::model(|| {
        let memory = Memory::new(2);
        let sender = thread::spawn({
            let memory = Arc::clone(&memory);
            move || assert!(memory.send(&mut 0, 1))
        });
        let mut receiver = Receiver::default();
        let mut taken = memory.take(&mut receiver);
        if taken.is_none() && memory.ring().prepare_sleep(&receiver) {
            memory.wait_for_the_bell();
            memory.ring().awake();
            taken = memory.take(&mut receiver);
            assert_eq!(taken, Some(1));
        }
        sender.join().unwrap();
        assert_eq!(taken.or_else(|| memory.take(&mut receiver)), Some(1));
    });
}

#[test]
fn loom_a_sender_without_room_that_sleeps_is_woken() {
    loom::model(|| {
        // The sender only sleeps on its own ring; the receiver rings it there.
        let (memory, own) = (Memory::new(1), Memory::new(1));
        let mut known = 0;
        assert!(memory.send(&mut known, 1));
        let receiver = thread::spawn({
            let (memory, own) = (Arc::clone(&memory), Arc::clone(&own));
            move || {
                let mut receiver = Receiver::default();
                assert_eq!(memory.take(&mut receiver), Some(1));
                if memory.ring().give_room(&mut receiver) && own.ring().wake() {
                    own.ring_the_bell();
                }
            }
        });
        if !memory.send(&mut known, 2) {
            assert!(own.ring().prepare_sleep(&Receiver::default()));
            if !memory.ring().await_room(&mut known) {
                own.wait_for_the_bell();
            }
            own.ring().awake();
            assert!(memory.send(&mut known, 2));
        }
        receiver.join().unwrap();
    });
}
