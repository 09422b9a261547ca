//! What is known of one peer, and how far the connection to it has come.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use super::choice::{Choice, Way, ticks};
use super::segment::Segment;
use crate::engine::Peer;
use crate::shared_memory::cma::Verdict;
use crate::transport::name::ProcessName;

/// One peer on this node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer,
    pub(super) name: ProcessName,
    pub(super) state: LinkState,
    /// It has said that nothing more will come.
    pub(super) bye: bool,
    /// It is known to listen, as long as it lives.
    pub(super) listens: bool,
    /// It was forgotten: once it is over, its place may be another's.
    pub(super) left: bool,
}

/// Idle → (Calling →) Up → (Left →) Over.
#[derive(Debug)]
pub(super) enum LinkState {
    /// Not talked to yet.
    Idle,
    /// We want to talk to it.
    Calling(Call),
    /// Frames can go both ways.
    Up(Box<Up>),
    /// Both have said farewell, and the peer has yet to say that it has read this process's last frames.
    Left(Box<Up>),
    /// Dead, unreachable, or gone after its farewell.
    Over,
}

/// An attempt to connect, and what came of those before.
#[derive(Debug)]
pub(super) struct Call {
    /// With the process number at the other end. Our packet is sent, theirs has not come; none between two attempts.
    pub(super) socket: Option<(OwnedFd, i32)>,
    pub(super) deadline: Instant,
    pub(super) next_try: Instant,
    pub(super) tries: u32,
    pub(super) last: String,
}

/// A message in parts, timed from the moment when it was asked for.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) since: u64,
    pub(super) len: usize,
    pub(super) left: usize,
}

/// Which class a long message belongs to.
pub(super) fn long_class(len: usize) -> usize {
    usize::from(len >= 512 << 10)
}

/// A connected peer.
#[derive(Debug)]
pub(super) struct Up {
    /// The peer's segment.
    pub(super) segment: Segment,
    /// How far the peer has told us that it has emptied its ring.
    pub(super) known_head: u64,
    /// What our frames are signed with there, in the place where the note has it.
    pub(super) sign: u32,
    /// The peer's ring, as our intents name it.
    pub(super) ring_id: u32,
    /// Its ring was full.
    pub(super) starved: bool,
    pub(super) cma: Verdict,
    /// How large cells are filled: through the caches, or past them.
    pub(super) fill: Choice,
    /// How long messages from this peer are best received: in parts, or out of its memory.
    pub(super) long: [Choice; 2],
    /// So many messages are read without asking for help.
    pub(super) alone: u32,
    /// A message that is being received in parts.
    pub(super) arriving: Option<Arriving>,
    bell: OwnedFd,
    /// Open as long as the peer lives.
    pub(super) socket: OwnedFd,
    /// Becomes readable when the process ends, even if a child of it still holds the socket.
    pub(super) process: Option<OwnedFd>,
    /// The peer is dead; up to this position of our ring there may be frames of it.
    pub(super) ends_at: Option<u64>,
}

impl Up {
    pub(super) fn new(segment: Segment, bell: OwnedFd, socket: OwnedFd, sign: u16, ring_id: u32, cma: Verdict) -> Self {
        let sign = u32::from(sign) << 16;
        Self {
            segment,
            known_head: 0,
            sign,
            ring_id,
            starved: false,
            cma,
            fill: Choice::default(),
            long: [Choice::default(); 2],
            alone: 0,
            arriving: None,
            bell,
            socket,
            process: None,
            ends_at: None,
        }
    }

    /// A part of a long message has come.
    pub(super) fn arrived(&mut self, len: usize) {
        let Some(arriving) = &mut self.arriving else { return };
        arriving.left = arriving.left.saturating_sub(len);
        if arriving.left == 0 {
            let Arriving { since, len, .. } = *arriving;
            self.arriving = None;
            self.long[long_class(len)].learn(Way::First, ticks() - since, len);
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
        // It can only fail when the bell has been rung more often than 64 bits count, or is none.
        let _ = nix::unistd::write(self.bell.as_fd(), &1u64.to_ne_bytes());
    }
}
