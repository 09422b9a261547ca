//! Messages that a receiver may read from their sender's memory, although they fit a cell.
//!
//! A sender first publishes the address of its message, then fills the cell that the slot names. A receiver that
//! comes before the cell is full reads the sender's memory: one copy instead of two. A later one reads the cell, as without an
//! offer. While it fills the cell, a sender receives what has come for it: two processes that send to each other read each other's
//! memory. Messages in a row go in cells ([`super::choice::Lending::choose`]). A non-blocking send to a peer that has read memory before does
//! not fill the cell: the message stays offered until the next poll ([`Shm::redeem`]). The cell's state decides:
//!
//! ```text
//!  OFFERED ─→ TAKEN ──→ FREE       the receiver has read the sender's memory
//!     │         └─────→ REFUSED    it could not: the sender fills the cell after all
//!     └─→ BUSY ←──────────┘        the cell is full, as without an offer
//! ```

#![expect(unsafe_code, reason = "a receiver's own bytes are lent to the kernel")]

use super::cells::{BUSY, FREE, give_back};
use super::choice::{Way, ticks};
use super::connect::is_readable;
use super::copy;
use super::geometry::{CellHead, LARGE, SMALL};
use super::link::{Link, LinkState, Up};
use super::ring::SlotData;
use super::{CELL_AT, IN_CELL, LENT, Shm, put};
use crate::engine::frame::Frame;
use crate::engine::{Landing, Loan, Peer, Refusal, Sink};
use crate::memory::{Arrived, Buffer, Payload};
use crate::shared_memory::cma;
use crate::shared_memory::sync::{Ordering, fence};

/// States of a cell, beside those of [`super::cells`].
const OFFERED: u32 = 3;
pub(super) const TAKEN: u32 = 4;
const REFUSED: u32 = 5;

/// The shortest message that is offered: shorter ones are copied sooner than the receiver reads them.
pub(super) const FROM: usize = 6 << 10;

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

/// Whether the message can be received: it is offered, or its cell is full.
fn may_be_taken(head: &CellHead) -> bool {
    matches!(head.state.load(Ordering::Relaxed), OFFERED | BUSY)
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

impl Up {
    fn has_ended(&self) -> bool {
        is_readable(self.process.as_ref().unwrap_or(&self.socket))
    }
}

impl Shm {
    /// As [`crate::engine::Transport::try_lend`].
    pub fn try_lend<S: Sink>(
        &mut self,
        to: Peer,
        frame: &Frame,
        buffer: &Buffer,
        may_stay: bool,
        sink: &mut S,
    ) -> Result<Option<Loan>, Refusal> {
        let len = buffer.len();
        let payload = Payload::new(buffer, 0, len);
        let (Some(index), Some(address)) = (self.route(to), buffer.as_contiguous()) else {
            return self.try_send(to, frame, payload).map(|()| None);
        };
        let LinkState::Up(up) = &mut self.links[index].state else { return self.call(index).map(|()| None) };
        let may_lend = matches!(up.cma, cma::Verdict::Yes(_)) && !self.crowd.shares_cores();
        if !(SMALL + 1..=LARGE).contains(&len) || !may_lend {
            return self.try_send(to, frame, payload).map(|()| None);
        }
        let (way, timed) = up.lending.choose(len, ticks(), sink.receives());
        if way == Way::First {
            let sent = self.transmit(index, frame, payload, timed);
            if let LinkState::Up(up) = &mut self.links[index].state {
                up.lending.has_sent(ticks(), sink.receives());
            }
            return sent.map(|()| None);
        }
        if !up.segment.ring().has_room(1, &mut up.known_head) {
            up.starved = true;
            return Err(Refusal::Full);
        }
        let cell = self.pool.take(&self.segment, len, index as u16).ok_or(Refusal::Full)?;
        let head = self.segment.cell_head(cell).ok_or(Refusal::Full)?;
        offer(head, address.addr() as u64);
        let sent = put(&self.segment, up, IN_CELL | LENT, |data| {
            frame.encode(data);
            data.put(CELL_AT, cell.to_ne_bytes());
            data.put(CELL_AT + 4, (len as u32).to_ne_bytes());
        });
        if !sent {
            self.pool.undo(cell);
            return Err(Refusal::Full);
        }
        if may_stay && up.lending.may_stay() {
            up.lending.has_sent(ticks(), sink.receives());
            self.pool.set_lent(cell, true);
            return Ok(Some(Loan(cell)));
        }
        if self.complete(index, cell, buffer, sink) {
            self.pool.undo(cell);
        }
        if let LinkState::Up(up) = &mut self.links[index].state {
            up.lending.has_sent(ticks(), sink.receives());
        }
        Ok(None)
    }

    /// As [`crate::engine::Transport::redeem`].
    pub fn redeem<S: Sink>(&mut self, to: Peer, Loan(cell): Loan, buffer: &Buffer, must: bool, sink: &mut S) -> bool {
        let Some(index) = self.route(to) else { return true };
        // Otherwise the cell has been reclaimed.
        let LinkState::Up(up) = &mut self.links[index].state else { return true };
        match self.segment.cell_head(cell).map(|head| (head, head.state.load(Ordering::Acquire))) {
            Some((head, FREE)) => {
                up.lending.was_taken(true);
                up.lending.learn(Way::Second, head.spent.load(Ordering::Relaxed).into(), buffer.len());
            }
            Some((_, TAKEN)) if !must => return false,
            _ => {
                self.complete(index, cell, buffer, sink);
            }
        }
        self.pool.set_lent(cell, false);
        if let LinkState::Up(up) = &mut self.links[index].state {
            up.lending.has_sent(ticks(), sink.receives());
        }
        true
    }

    /// Completes an offer, and learns from it; returns whether the receiver has read the memory.
    fn complete<S: Sink>(&mut self, index: usize, cell: u32, buffer: &Buffer, sink: &mut S) -> bool {
        let outcome = self.wait_for_reader(index, cell, buffer, sink);
        let LinkState::Up(up) = &mut self.links[index].state else { return false };
        up.lending.was_taken(outcome.is_some());
        outcome.inspect(|ticks| up.lending.learn(Way::Second, *ticks, buffer.len())).is_some()
    }

    /// Fills the cell behind an offer until the receiver takes the offer; returns when the memory may change. Meanwhile it takes offers to
    /// this process, because two processes that send to each other both wait. Returns the ticks that the message has cost both sides, if the
    /// receiver has read it from the memory.
    fn wait_for_reader<S: Sink>(&mut self, index: usize, cell: u32, buffer: &Buffer, sink: &mut S) -> Option<u64> {
        let (len, mut start) = (buffer.len(), ticks());
        // A loan that is being read: how long is known only to the receiver.
        let has_begun = self.state_of(cell) == TAKEN;
        let LinkState::Up(up) = &self.links[index].state else { return None };
        let patience = up.lending.patience(len);
        let past_caches = up.fill.best() == Some(Way::Second);
        let mut at = 0;
        while self.state_of(cell) == OFFERED {
            if let Some(spent) = self.take_expected(sink) {
                start += spent;
            } else if ticks() - start < patience {
                std::hint::spin_loop();
            } else if at < len {
                at += self.fill(cell, buffer, at, past_caches);
            } else if self.segment.cell_head(cell).is_none_or(filled) {
                self.pool.was_filled(cell, at);
                return None;
            }
        }
        self.pool.was_filled(cell, at);
        let is_read = self.await_reader(index, cell, buffer, at, sink);
        is_read.then(|| {
            // Both sides' time, of which the receiver's is a part, and half: the sender need not wait for the last line to come back before
            // the message is there, but it has work with an offer that it has not with a cell.
            let theirs = self.segment.cell_head(cell).map_or(0, |head| head.spent.load(Ordering::Relaxed));
            if has_begun { theirs.into() } else { (ticks() - start + u64::from(theirs)) / 2 }
        })
    }

    fn state_of(&self, cell: u32) -> u32 {
        self.segment.cell_head(cell).map_or(BUSY, |head| head.state.load(Ordering::Acquire))
    }

    /// Copies a part of a message into its cell; returns how long it is.
    fn fill(&self, cell: u32, buffer: &Buffer, at: usize, past_caches: bool) -> usize {
        let part = STEP.min(buffer.len() - at);
        let Some(room) = self.segment.cell_room(cell, buffer.len()) else { return part };
        match buffer.as_bytes() {
            Some(bytes) if past_caches => copy::stream(room.part(at, part), &bytes[at..at + part]),
            _ => room.part(at, part).fill(buffer, at),
        }
        part
    }

    /// Waits until the receiver, which has taken the offer, has read the message. Returns false if it reads the cell, which this process then
    /// has filled `from` there on, or is gone.
    fn await_reader<S: Sink>(&mut self, index: usize, cell: u32, buffer: &Buffer, from: usize, sink: &mut S) -> bool {
        let (mut looks, mut yields) = (0, 0);
        loop {
            match self.state_of(cell) {
                REFUSED => {
                    let mut at = from;
                    while at < buffer.len() {
                        at += self.fill(cell, buffer, at, false);
                    }
                    if let Some(head) = self.segment.cell_head(cell) {
                        head.state.store(BUSY, Ordering::Release);
                    }
                    if let LinkState::Up(up) = &mut self.links[index].state {
                        up.lending.was_refused();
                    }
                    return false;
                }
                TAKEN => {}
                _ => return true,
            }
            looks += 1;
            if looks % LOOKS_BEFORE_YIELD != 0 {
                if self.take_expected(sink).is_none() {
                    std::hint::spin_loop();
                }
                continue;
            }
            std::thread::yield_now();
            yields += 1;
            // The cell is reclaimed when the death is noticed.
            let LinkState::Up(up) = &self.links[index].state else { return false };
            if yields % YIELDS_BEFORE_CHECK == 0 && up.has_ended() {
                return false;
            }
        }
    }

    /// Receives the message that comes next, if it is a longer one for which a receive waits; returns how many ticks that took.
    fn take_expected<S: Sink>(&mut self, sink: &mut S) -> Option<u64> {
        let start = ticks();
        let (note, data) = self.segment.ring().take(&mut self.receiver)?;
        let is_taken = self.is_expected(note, &data, sink)
            && match note & LENT != 0 {
                true => self.deliver_lent(note, &data, sink),
                false => {
                    self.deliver(note, &data, |from, frame, payload| sink.on_frame_unless_early(from, frame, payload))
                }
            };
        if !is_taken {
            self.receiver.put_back();
            return None;
        }
        if self.segment.ring().give_room(&mut self.receiver) {
            self.wake_all();
        }
        Some(ticks() - start)
    }

    /// Whether a message that has been taken from the ring lies in a cell, or in memory that this process may read, and a receive waits for it.
    fn is_expected<S: Sink>(&self, note: u32, data: &SlotData, sink: &S) -> bool {
        let Some(Link { peer, state: LinkState::Up(up), .. }) = self.links.get((note >> 16) as usize) else {
            return false;
        };
        let is_ready = match (note & IN_CELL != 0, note & LENT != 0) {
            (false, _) => false,
            (true, false) => true,
            (true, true) => {
                self.landing.is_none() && up.segment.cell_head(data.word(CELL_AT)).is_some_and(may_be_taken)
            }
        };
        is_ready && Frame::decode(&data.0).is_ok_and(|(frame, _)| sink.expects(*peer, &frame))
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
        if begun.is_none() && sink.is_early(*peer, &frame) {
            return false;
        }
        up.lending.hear();
        let pid = match up.cma {
            // Its memory is gone, and its pid may be another process's now.
            cma::Verdict::Yes(pid) if up.ends_at.is_none() => Some(pid),
            cma::Verdict::Yes(_) | cma::Verdict::No(_) => None,
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
        fence(Ordering::SeqCst); // the state before the sender's `asleep`
        up.wake();
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
