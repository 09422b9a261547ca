//! The state of one peer and of the connection to it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use super::allocations::{Exports, Imports};
use super::choice::{Choice, Lending, Way, ticks};
use super::segment::Segment;
use super::streams::Streams;
use crate::engine::Peer;
use crate::shared_memory::cma::Verdict;
use crate::transport::name::ProcessName;

/// One peer on this node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer,
    pub(super) name: ProcessName,
    pub(super) state: LinkState,
    /// It has said farewell: nothing more will arrive.
    pub(super) bye: bool,
    /// It is known to listen as long as it lives.
    pub(super) listens: bool,
    /// It was forgotten: once it is over, its link may be reused.
    pub(super) left: bool,
}

/// Idle → (Calling →) Up → (Left →) Over.
#[derive(Debug)]
pub(super) enum LinkState {
    /// Not connected yet.
    Idle,
    /// This process is connecting to it.
    Calling(Call),
    /// Frames can go both ways.
    Up(Box<Up>),
    /// Both have said farewell, and the peer has yet to confirm that it has read this process's last frames.
    Left(Box<Up>),
    /// Dead, unreachable, or gone after its farewell.
    Over,
}

/// An attempt to connect, and the result of earlier attempts.
#[derive(Debug)]
pub(super) struct Call {
    /// The socket, and the pid at the other end, after this process's hello was sent and before the peer's has arrived;
    /// `None` between two attempts.
    pub(super) socket: Option<(OwnedFd, i32)>,
    pub(super) deadline: Instant,
    pub(super) next_try: Instant,
    pub(super) tries: u32,
    pub(super) last: String,
}

/// A message between devices that arrives in parts, timed from the moment when it was requested.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) since: u64,
    pub(super) len: usize,
    pub(super) left: usize,
}

/// The receiver reads shorter messages alone.
pub(super) const HELPED_FROM: usize = 256 << 10;

/// The length class of a message that the sender may help to copy. What fits the caches of one core moves between the two if both copy it.
pub(super) fn helped_class(len: usize) -> usize {
    (len / HELPED_FROM).max(1).ilog2().min(HELPED_CLASSES as u32 - 1) as usize
}

/// From [`HELPED_FROM`] to 2 MiB.
const HELPED_CLASSES: usize = 4;

/// The length class of a message between devices: what a copy by the device costs hardly depends on its length up to a megabyte, and may be
/// a hundred microseconds, if the processes take turns on one device.
pub(super) fn device_class(len: usize) -> usize {
    (len.max(1).ilog2() as usize).saturating_sub(11).min(DEVICE_CLASSES - 1)
}

/// From 2 KiB to 8 MiB.
const DEVICE_CLASSES: usize = 13;

/// A connected peer.
#[derive(Debug)]
pub(super) struct Up {
    /// The peer's segment.
    pub(super) segment: Segment,
    /// How much of its ring the peer is known to have emptied.
    pub(super) known_head: u64,
    /// The mark of this process's frames in the peer's ring, in its place in the note.
    pub(super) sign: u32,
    /// How this process's intents name the peer's ring.
    pub(super) ring_id: u32,
    /// Its ring was full.
    pub(super) starved: bool,
    /// How many frames were sent since the last one came.
    pub(super) in_a_row: u32,
    pub(super) cma: Verdict,
    /// How large cells are filled: through the caches, or past them.
    pub(super) fill: Choice,
    /// Whether messages that fit a cell are offered.
    pub(super) lending: Lending,
    /// How long messages from this peer are received: in parts, or from its memory.
    pub(super) streams: Streams,
    /// Whether the peer helps where its memory is read, by [`helped_class`]: both copy, or this process reads alone.
    pub(super) helped: [Choice; HELPED_CLASSES],
    /// How many more messages are read without asking for help.
    pub(super) alone: u32,
    /// A message between devices that is being received in parts.
    pub(super) arriving: Option<Arriving>,
    /// How messages between devices are received, by [`device_class`]: in parts, or copied by the device.
    pub(super) devices: [Choice; DEVICE_CLASSES],
    /// The device memory that the peer may read.
    pub(super) exports: Exports,
    /// The peer's device memory that this process may read.
    pub(super) imports: Imports,
    bell: OwnedFd,
    /// Open as long as the peer lives.
    pub(super) socket: OwnedFd,
    /// The process, as this one's pid namespace names it; 0 if it has no number there.
    pub(super) pid: i32,
    /// Becomes readable when the process ends, even if a child of it still holds the socket.
    pub(super) process: Option<OwnedFd>,
    /// The peer is dead; frames from it may lie before this position of this process's ring.
    pub(super) ends_at: Option<u64>,
}

impl Up {
    pub(super) fn new(segment: Segment, bell: OwnedFd, socket: OwnedFd, sign: u16, ring_id: u32, cma: Verdict) -> Self {
        let sign = u32::from(sign) << 16;
        let streams = Streams::new(segment.large_cells());
        Self {
            segment,
            known_head: 0,
            sign,
            ring_id,
            starved: false,
            in_a_row: 0,
            cma,
            fill: Choice::default(),
            lending: Lending::default(),
            streams,
            helped: [Choice::default(); HELPED_CLASSES],
            alone: 0,
            arriving: None,
            devices: [Choice::default(); DEVICE_CLASSES],
            exports: Exports::default(),
            imports: Imports::default(),
            bell,
            socket,
            pid: 0,
            process: None,
            ends_at: None,
        }
    }

    /// Records that a part of a long message has arrived.
    pub(super) fn arrived(&mut self, len: usize) {
        self.streams.has_come(len, ticks);
        let Some(arriving) = &mut self.arriving else { return };
        arriving.left = arriving.left.saturating_sub(len);
        if arriving.left == 0 {
            let Arriving { since, len, .. } = *arriving;
            self.arriving = None;
            self.devices[device_class(len)].learn_least(Way::First, ticks() - since, len);
        }
    }

    /// Wakes the peer if it sleeps.
    #[inline(always)]
    pub(super) fn wake(&self) {
        if self.segment.ring().wake() {
            self.ring_bell();
        }
    }

    #[cold]
    fn ring_bell(&self) {
        // This fails only if the bell's 64-bit counter is full, or the descriptor is not an eventfd.
        let _ = nix::unistd::write(self.bell.as_fd(), &1u64.to_ne_bytes());
    }
}
