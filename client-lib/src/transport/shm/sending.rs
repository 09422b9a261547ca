//! Puts frames into a peer's ring.

use super::connect;
use super::link::Up;
use super::ring::{DATA, Ring};
use super::segment::Segment;
use crate::engine::frame::{Frame, Sort};
use crate::memory;
use crate::shared_memory::sync::Ordering;

/// Puts a slot into a peer's ring; returns whether there was room for it.
#[inline(always)]
pub(super) fn put(own: &Segment, up: &mut Up, kind: u32, fill: impl FnOnce(memory::Room<'_>)) -> bool {
    put_as(own, up, 1, |ring, position, sign| ring.publish(position, sign | kind, fill))
}

/// As [`put`], for a frame of several slots: the data of each.
pub(super) fn put_long(own: &Segment, up: &mut Up, kind: u32, pieces: &[[u8; DATA]]) -> bool {
    put_as(own, up, pieces.len(), |ring, position, sign| ring.publish_long(position, sign | kind, pieces))
}

/// After so many frames to a peer, none of its frames has been the answer to the one before.
const IN_A_ROW: u32 = 2;

#[inline(always)]
fn put_as(own: &Segment, up: &mut Up, count: usize, publish: impl FnOnce(Ring<'_>, u64, u32)) -> bool {
    let (ring, intent) = (up.segment.ring(), own.intent());
    let intend = |position: u64| intent.store(connect::claim_of(up.ring_id, position, count as u64), Ordering::Relaxed);
    let Some(position) = ring.claim(count, &mut up.known_head, intend) else {
        intent.store(0, Ordering::Relaxed);
        up.starved = true;
        return false;
    };
    publish(ring, position, up.sign);
    intent.store(0, Ordering::Release);
    ring.fetch_to_write(position, count, up.in_a_row >= IN_A_ROW);
    up.in_a_row = up.in_a_row.saturating_add(1);
    up.wake();
    true
}

/// The length of a frame's head in bytes.
#[inline(always)]
pub(super) fn head_len(frame: &Frame) -> usize {
    match frame {
        Frame::Eager { .. } | Frame::Part { .. } | Frame::Done { .. } | Frame::Bye => 16,
        Frame::Dropped { .. } | Frame::Note { .. } | Frame::Hold { .. } => 16,
        Frame::EagerSync { .. } | Frame::Clear { .. } => 24,
        Frame::Ready { .. } => 40,
        Frame::Signed { sort: Sort::Whole, .. } => 16,
        Frame::Signed { sort: Sort::Sync { .. }, .. } => 24,
        Frame::Signed { sort: Sort::Ready { .. }, .. } => 40,
    }
}
