//! Messages that a receiver may read from their sender's memory, although they fit a cell.
//!
//! A sender that must wait anyway first publishes the address of its message, then fills the cell that the slot names. A receiver that
//! comes before the cell is full reads the sender's memory: one copy instead of two. A later one reads the cell, as without an
//! offer. The cell's state decides which:
//!
//! ```text
//!  OFFERED ─→ TAKEN ──→ FREE       the receiver has read the sender's memory
//!     │         └─────→ REFUSED    it could not: the sender fills the cell after all
//!     └─→ BUSY ←──────────┘        the cell is full, as without an offer
//! ```

#![expect(unsafe_code, reason = "a receiver's own bytes are lent to the kernel")]

use super::cells::{BUSY, give_back};
use super::choice::{Way, ticks};
use super::connect::is_readable;
use super::copy;
use super::geometry::{CellHead, LARGE, SMALL};
use super::link::{Link, LinkState, Up};
use super::ring::SlotData;
use super::{CELL_AT, IN_CELL, LENT, Shm, put};
use crate::engine::frame::Frame;
use crate::engine::{Landing, Peer, Refusal, Sink};
use crate::memory::{Arrived, Buffer, Payload};
use crate::shared_memory::cma;
use crate::shared_memory::sync::Ordering;

/// States of a cell, beside those of [`super::cells`].
const OFFERED: u32 = 3;
const TAKEN: u32 = 4;
const REFUSED: u32 = 5;

/// Bytes that a sender copies before it looks whether the receiver has been quicker.
const STEP: usize = 4096;
/// How often a sender looks before it lets others have the processor, because the receiver may need it; and how often before it checks
/// that the receiver lives.
const LOOKS_BEFORE_YIELD: u32 = 4096;
const YIELDS_BEFORE_CHECK: u32 = 16;

/// Offers the message at an address, in a cell that is not yet sent.
pub(super) fn offer(head: &CellHead, address: u64) {
    head.lent.store(address, Ordering::Relaxed);
    head.state.store(OFFERED, Ordering::Relaxed); // the slot publishes both
}

/// The sender has filled the cell; `false` if the receiver reads the message, or has read it.
fn filled(head: &CellHead) -> bool {
    head.state.compare_exchange(OFFERED, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// A message that a receiver has begun to receive, but must read from its cell.
#[derive(Debug)]
pub(super) struct Unread {
    /// Its slot.
    position: u64,
    len: usize,
    landing: Landing,
}

/// What a receiver finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The cell is full.
    Cell,
    /// The message is the receiver's to read, at this address.
    Memory(u64),
    /// The sender is filling the cell.
    Nothing,
}

/// Takes the message, from the sender's memory if the receiver `may_read` it.
fn take(head: &CellHead, may_read: bool) -> Found {
    let mut state = head.state.load(Ordering::Acquire);
    if state == OFFERED && may_read {
        match head.state.compare_exchange(OFFERED, TAKEN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Found::Memory(head.lent.load(Ordering::Relaxed)),
            Err(now) => state = now,
        }
    }
    if matches!(state, OFFERED | TAKEN | REFUSED) { Found::Nothing } else { Found::Cell }
}

/// What has become of an offer.
enum Outcome {
    /// The receiver has read the message.
    Read,
    /// It reads from the cell.
    Copied,
}

/// Fills the cell behind an offer until the receiver takes it; returns when the memory may change.
fn complete(up: &mut Up, head: &CellHead, fill: impl Fn(usize, usize), len: usize) -> Outcome {
    let state = || head.state.load(Ordering::Acquire);
    let (start, patience) = (ticks(), up.lending.patience(len));
    while state() == OFFERED && ticks() - start < patience {
        std::hint::spin_loop();
    }
    let mut at = 0;
    while at < len && state() == OFFERED {
        let part = STEP.min(len - at);
        fill(at, part);
        at += part;
    }
    if at == len && filled(head) {
        up.lending.was_taken(false);
        return Outcome::Copied;
    }
    let (mut looks, mut yields) = (0, 0);
    loop {
        match state() {
            REFUSED => {
                fill(at, len - at);
                head.state.store(BUSY, Ordering::Release);
                return Outcome::Copied;
            }
            TAKEN => {}
            _ => return Outcome::Read,
        }
        looks += 1;
        if looks % LOOKS_BEFORE_YIELD != 0 {
            std::hint::spin_loop();
            continue;
        }
        std::thread::yield_now();
        yields += 1;
        // The cell is reclaimed when the death is noticed.
        if yields % YIELDS_BEFORE_CHECK == 0 && up.has_ended() {
            return Outcome::Copied;
        }
    }
}

impl Up {
    fn has_ended(&self) -> bool {
        is_readable(self.process.as_ref().unwrap_or(&self.socket))
    }
}

impl Shm {
    /// As [`crate::engine::Transport::try_lend`].
    pub fn try_lend(&mut self, to: Peer, frame: &Frame, buffer: &Buffer) -> Result<(), Refusal> {
        let len = buffer.len();
        let payload = Payload::new(buffer, 0, len);
        let (Some(index), Some(address)) = (self.route(to), buffer.as_contiguous()) else {
            return self.try_send(to, frame, payload);
        };
        let LinkState::Up(up) = &mut self.links[index].state else { return self.call(index) };
        let may_lend = matches!(up.cma, cma::Verdict::Yes(_)) && !self.crowd.shares_cores();
        if !(SMALL + 1..=LARGE).contains(&len) || !may_lend {
            return self.try_send(to, frame, payload);
        }
        let (way, timed) = up.lending.choose(len);
        if way == Way::First {
            return self.transmit(index, frame, payload, timed);
        }
        if !up.segment.ring().has_room(&mut up.known_head) {
            up.starved = true;
            return Err(Refusal::Full);
        }
        let cell = self.pool.take(&self.segment, len, index as u16).ok_or(Refusal::Full)?;
        let (Some(head), Some(room)) = (self.segment.cell_head(cell), self.segment.cell_room(cell, len)) else {
            return Err(Refusal::Full);
        };
        offer(head, address.addr() as u64);
        let start = ticks();
        let sent = put(&self.segment, up, IN_CELL | LENT, |data| {
            frame.encode(data);
            data.put(CELL_AT, cell.to_ne_bytes());
            data.put(CELL_AT + 4, (len as u32).to_ne_bytes());
        });
        if !sent {
            self.pool.undo(cell);
            return Err(Refusal::Full);
        }
        let past_caches = up.fill.best() == Some(Way::Second);
        let fill = |at, part| match buffer.as_bytes() {
            Some(bytes) if past_caches => copy::stream(room.part(at, part), &bytes[at..at + part]),
            _ => room.part(at, part).fill(buffer, at),
        };
        if let Outcome::Read = complete(up, head, fill, len) {
            up.lending.was_taken(true);
            // Both sides' time, of which the receiver's is a part, and half: the sender need not wait for the last line to come back before
            // the message is there, but it has work with an offer that it has not with a cell.
            up.lending.learn(Way::Second, (ticks() - start + u64::from(head.spent.load(Ordering::Relaxed))) / 2, len);
            self.pool.undo(cell);
        }
        Ok(())
    }

    /// Delivers a message that was offered; returns false if it cannot yet.
    pub(super) fn deliver_lent<S: Sink>(&mut self, note: u32, data: &SlotData, sink: &mut S) -> bool {
        let (index, position) = ((note >> 16) as usize, self.receiver.next());
        // Only that of this very slot: a peer may have been cut off, or have died, in between.
        let begun = self.landing.take().filter(|begun| begun.position == position);
        if !matches!(self.links.get(index), Some(Link { state: LinkState::Up(_), .. })) && !self.is_answered(index) {
            self.strays += 1;
            return true;
        }
        let Link { peer, state: LinkState::Up(up), .. } = &mut self.links[index] else { return true };
        let (cell, len) = (data.word(CELL_AT), data.word(CELL_AT + 4) as usize);
        let (Some(payload), Some(head)) = (up.segment.cell(cell, len), up.segment.cell_head(cell)) else {
            self.lose(index, "it sent a frame in an unknown cell");
            return true;
        };
        let Ok((frame @ Frame::Eager { .. }, _)) = Frame::decode(&data.0) else {
            self.lose(index, "it sent an invalid frame");
            return true;
        };
        let pid = match up.cma {
            cma::Verdict::Yes(pid) => Some(pid),
            cma::Verdict::No(_) => None,
        };
        let address = match take(head, pid.is_some()) {
            Found::Memory(address) => address,
            Found::Nothing => {
                // Otherwise its sender has died before it was sent.
                let may_come = up.ends_at.is_none();
                self.landing = begun.filter(|_| may_come);
                return !may_come;
            }
            Found::Cell => {
                match begun {
                    None => sink.on_frame(*peer, frame, payload),
                    Some(Unread { len: begun, .. }) if begun != len => {
                        self.lose(index, "it changed a frame");
                        return true;
                    }
                    Some(Unread { landing: Landing { buffer, at }, .. }) => {
                        payload.copy_to(&buffer, at, len);
                        sink.on_landed(*peer, frame, len);
                    }
                }
                if give_back(head, None) {
                    up.wake();
                }
                return true;
            }
        };
        let start = ticks();
        let read = |into: &Buffer, at| cma::read(pid.unwrap_or(0), address, into, at, len).is_ok();
        match sink.landing(*peer, &frame, len) {
            Some(Landing { buffer, at }) => {
                if read(&buffer, at) {
                    give_back(head, Some(ticks() - start));
                    sink.on_landed(*peer, frame, len);
                    return true;
                }
                self.landing = Some(Unread { position, len, landing: Landing { buffer, at } });
            }
            None => {
                let mut bytes = vec![0; len];
                // SAFETY: the vector outlives the buffer.
                if read(&unsafe { Buffer::contiguous(bytes.as_mut_ptr(), len) }, 0) {
                    give_back(head, Some(ticks() - start));
                    sink.on_frame(*peer, frame, Arrived::new(&bytes));
                    return true;
                }
            }
        }
        head.state.store(REFUSED, Ordering::Release);
        false
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use std::sync::Arc;

    use super::super::cells::FREE;
    use super::*;
    use crate::shared_memory::sync::{AtomicU32, AtomicU64, UnsafeCell};

    /// A message that is sent, and then changed by its sender, is received as it was sent, from whichever of the two memories.
    #[test]
    fn loom_a_lent_message_is_read_once_and_not_after_its_sender_goes_on() {
        loom::model(|| {
            let head = CellHead { state: AtomicU32::new(BUSY), spent: AtomicU32::new(0), lent: AtomicU64::new(0) };
            let shared = Arc::new((head, AtomicU32::new(0), UnsafeCell::new(7), UnsafeCell::new(0)));
            let receiver = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let (head, slot, memory, cell) = &*shared;
                    while slot.load(Ordering::Acquire) == 0 {
                        loom::thread::yield_now();
                    }
                    loop {
                        let from = match take(head, true) {
                            Found::Nothing => {
                                loom::thread::yield_now();
                                continue;
                            }
                            Found::Memory(address) => {
                                assert_eq!(address, 99);
                                memory
                            }
                            Found::Cell => cell,
                        };
                        // SAFETY: the model finds out whether it is written meanwhile.
                        assert_eq!(from.with(|value| unsafe { *value }), 7);
                        give_back(head, None);
                        return;
                    }
                })
            };
            let (head, slot, memory, cell) = &*shared;
            offer(head, 99);
            slot.store(1, Ordering::Release);
            // SAFETY: as above.
            cell.with_mut(|into| unsafe { *into = memory.with(|value| *value) });
            if !filled(head) {
                while head.state.load(Ordering::Acquire) != FREE {
                    loom::thread::yield_now();
                }
            }
            // SAFETY: as above.
            memory.with_mut(|value| unsafe { *value = 8 });
            receiver.join().unwrap();
        });
    }
}
