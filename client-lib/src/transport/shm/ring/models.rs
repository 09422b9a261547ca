//! All interleavings, as far as loom's bound on preemptions goes.

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;

struct Memory {
    head: RingHead,
    slots: Vec<Slot>,
    bell: AtomicBool,
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
            bell: AtomicBool::new(false),
        })
    }

    fn ring(&self) -> Ring<'_> {
        Ring { head: &self.head, slots: &self.slots }
    }

    fn ring_the_bell(&self) {
        self.bell.store(true, Ordering::Release);
    }

    fn wait_for_the_bell(&self) {
        while !self.bell.swap(false, Ordering::AcqRel) {
            thread::yield_now();
        }
    }

    fn send(&self, known: &mut u64, note: u32) -> bool {
        let Some(position) = self.ring().claim(known, |_| ()) else { return false };
        self.ring().publish(position, note, |data| *data = [note as u8; DATA]);
        if self.ring().wake() {
            self.ring_the_bell();
        }
        true
    }

    fn take(&self, receiver: &mut Receiver) -> Option<u32> {
        let (note, data) = self.ring().take(receiver)?;
        assert_eq!(data.0, [note as u8; DATA]);
        Some(note)
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn loom_frames_of_two_senders_arrive_whole_once_and_in_order() {
    check(|| {
        let memory = Memory::new(2);
        let senders = [0u32, 1].map(|sender| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut known = 0;
                for nth in 0..2 - sender {
                    while !memory.send(&mut known, sender << 4 | nth) {
                        thread::yield_now();
                    }
                }
            })
        });
        let (mut receiver, mut next) = (Receiver::default(), [0, 0]);
        while next != [2, 1] {
            match memory.take(&mut receiver) {
                Some(note) => {
                    let sender = (note >> 4) as usize;
                    assert_eq!(note & 15, next[sender]);
                    next[sender] += 1;
                    memory.ring().give_room(&mut receiver);
                }
                None => thread::yield_now(),
            }
        }
        senders.map(|sender| sender.join().unwrap());
        assert_eq!(memory.take(&mut receiver), None);
    });
}

#[test]
fn loom_a_receiver_that_sleeps_is_woken() {
    check(|| {
        let memory = Memory::new(2);
        let sender = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                let mut known = 0;
                assert!(memory.send(&mut known, 1));
                assert!(memory.send(&mut known, 2));
            }
        });
        let (mut receiver, mut taken) = (Receiver::default(), 0);
        while taken < 2 {
            if let Some(note) = memory.take(&mut receiver) {
                taken += 1;
                assert_eq!(note, taken);
            } else if memory.ring().prepare_sleep(&receiver) {
                memory.wait_for_the_bell();
                memory.ring().awake();
            } else {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn loom_a_sender_without_room_that_sleeps_is_woken() {
    check(|| {
        // The sender's own ring is only slept on; the receiver rings it there.
        let (memory, own) = (Memory::new(1), Memory::new(1));
        let receiver = thread::spawn({
            let (memory, own) = (Arc::clone(&memory), Arc::clone(&own));
            move || {
                let (mut receiver, mut taken) = (Receiver::default(), 0);
                while taken < 2 {
                    match memory.take(&mut receiver) {
                        Some(_) => taken += 1,
                        None => thread::yield_now(),
                    }
                    if memory.ring().give_room(&mut receiver) && own.ring().wake() {
                        own.ring_the_bell();
                    }
                }
            }
        });
        let (mut known, mut sent) = (0, 0);
        while sent < 2 {
            if memory.send(&mut known, sent) {
                sent += 1;
            } else if own.ring().prepare_sleep(&Receiver::default()) {
                if !memory.ring().has_room(&mut known) {
                    own.wait_for_the_bell();
                }
                own.ring().awake();
            }
        }
        receiver.join().unwrap();
    });
}
