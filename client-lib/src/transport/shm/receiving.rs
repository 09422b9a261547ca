//! Takes frames from this process's ring, and hands them to the engine.

use super::cells;
use super::choice::ticks;
use super::geometry::SMALL;
use super::link::{Link, LinkState};
use super::ring::{DATA, LONGEST, SlotData, slots_of};
use super::{CELL_AT, EXPORT, HELP, IN_CELL, LEN, LENT, Shm, TIMED};
use crate::engine::frame::Frame;
use crate::engine::{Peer, Sink};
use crate::memory::Arrived;

/// Frames taken in one poll: enough for speed, few enough to return soon.
const BATCH: usize = 64;

impl Shm {
    /// Delivers the frames in the ring; returns whether there were any.
    #[inline]
    pub fn poll_ring<S: Sink>(&mut self, sink: &mut S) -> bool {
        for taken in 0..BATCH {
            let Some((note, data)) = self.segment.ring().take(&mut self.receiver) else {
                if taken == 0 && self.segment.ring().rewind(&mut self.receiver) {
                    self.wake_all();
                }
                return taken > 0;
            };
            if note & LENT != 0 && !self.deliver_lent(note, &data, sink) {
                self.receiver.put_back();
                return taken > 0;
            }
            if taken > 0 {
                self.segment.ring().fetch_ahead(&self.receiver);
            }
            let offer = |from, frame: &Frame, payload: Arrived<'_>| sink.on_frame_unless_early(from, frame, payload);
            if note & LENT == 0 && !self.deliver(note, &data, offer) {
                self.receiver.put_back();
                return true;
            }
            if self.segment.ring().give_room(&mut self.receiver) {
                self.wake_all();
            }
        }
        true
    }

    /// As [`crate::engine::Transport::catch`].
    #[inline]
    pub fn catch(&mut self, take: impl FnOnce(Peer, &Frame, Arrived<'_>) -> bool) {
        self.polls += 1;
        if self.is_look_due() {
            return;
        }
        let Some((note, data)) = self.segment.ring().take(&mut self.receiver) else { return };
        // What a poll does with other frames must be done once.
        let is_plain =
            note & (LENT | HELP | EXPORT) == 0 && matches!(Frame::decode(&data.0), Ok((Frame::Eager { .. }, _)));
        if !is_plain || !self.deliver(note, &data, take) {
            self.receiver.put_back();
        } else if self.segment.ring().give_room(&mut self.receiver) {
            self.wake_all();
        }
    }

    /// Delivers a frame by `offer`; returns false if it must be offered again, because the engine has left it.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        note: u32,
        data: &SlotData,
        offer: impl FnOnce(Peer, &Frame, Arrived<'_>) -> bool,
    ) -> bool {
        let index = (note >> 16) as usize;
        if !matches!(self.links.get(index), Some(Link { state: LinkState::Up(_), .. })) && !self.is_answered(index) {
            self.strays += 1;
            return true;
        }
        let Link { peer, state: LinkState::Up(up), bye, .. } = &mut self.links[index] else { return true };
        up.in_a_row = 0;
        if note & (HELP | EXPORT) != 0 {
            match note & HELP != 0 {
                true => self.on_help(index, data),
                false => up.imports.on_export(data),
            }
            return true;
        }
        let Ok((frame, head_len)) = Frame::decode(&data.0) else {
            self.lose(index, "it sent an invalid frame");
            return true;
        };
        *bye |= frame == Frame::Bye;
        if let Frame::Clear { .. } = frame {
            up.streams.peer_requests();
        }
        if note & IN_CELL == 0 {
            let end = head_len + (note & LEN) as usize;
            let mut pieces = [[0; DATA]; LONGEST];
            let count = slots_of(end);
            let payload = match count {
                1 => &data.0[head_len..end],
                2..=LONGEST if self.segment.ring().take_rest(&mut self.receiver, &mut pieces[1..count]) => {
                    pieces[0] = data.0;
                    &pieces.as_flattened()[head_len..end]
                }
                _longer => {
                    self.lose(index, "it sent a frame longer than its slots");
                    return true;
                }
            };
            let is_taken = offer(*peer, &frame, Arrived::new(payload));
            if let Frame::Part { .. } = frame {
                up.arrived(payload.len());
            }
            return is_taken;
        }
        let (cell, len) = (data.word(CELL_AT), data.word(CELL_AT + 4) as usize);
        let (Some(payload), Some(head)) = (up.segment.cell(cell, len), up.segment.cell_head(cell)) else {
            self.lose(index, "it sent a frame in an unknown cell");
            return true;
        };
        let start = (note & TIMED != 0).then(ticks);
        if !offer(*peer, &frame, payload) {
            return false;
        }
        if cells::give_back(head, start.map(|start| ticks() - start)) {
            up.wake();
        }
        if len > SMALL {
            up.lending.hear();
        }
        if let Frame::Part { .. } = frame {
            up.arrived(len);
        }
        true
    }
}
