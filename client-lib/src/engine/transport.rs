//! What the engine asks of whatever carries its frames, and what it is told.

use super::frame::{Frame, Region};
use crate::memory::{Buffer, Payload};

/// A process that this one can send to, itself included: an index into the list of processes known here. Within one world it is the
/// rank in `MPI_COMM_WORLD`; processes that are met later get the next numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// How much goes into one frame on the way to a peer, in bytes of payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// A message up to here is sent at once, without asking the receiver.
    pub eager: usize,
    /// Of a longer one, this much per part.
    pub part: usize,
}

/// Why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not now: there is no room, or no connection yet. Asking starts what is missing; try again after the next poll.
    Full,
    /// Never: the peer has died or cannot be reached; [`Sink::on_lost`] has told or will tell so.
    Lost,
}

/// The receiver cannot read the sender's memory after all (another namespace, no permission), or has found that parts are quicker:
/// it asks for the message instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRefused;

/// How far a message is when [`Transport::pull`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// It is all there.
    Now,
    /// Some of it is still being copied.
    Later,
}

/// Carries frames between this process and its peers: whole, once, and between two processes in the order sent. No call
/// blocks.
pub trait Transport {
    /// How much goes into one frame to this peer.
    fn limits(&self, to: Peer) -> FrameLimits;

    /// Sends a frame. If it is taken, the payload's memory is free to change when the call returns.
    fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal>;

    /// Passes on what has come, and gets on with what is under way; whether there was anything.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> bool;

    /// Lets this peer read the buffer until [`Transport::withdraw`], if it can; asked once for each long message.
    fn offer(&mut self, to: Peer, buffer: &Buffer) -> Option<Region>;

    /// The peer has said that it is done with the region.
    fn withdraw(&mut self, to: Peer, region: Region);

    /// Copies the first `len` bytes of a message from the sender's memory into a buffer at least as long. What is not over when
    /// the call returns ends with [`Sink::on_pulled`], which names it by `token`.
    fn pull(
        &mut self,
        from: Peer,
        region: Region,
        into: &Buffer,
        len: usize,
        token: u32,
    ) -> Result<Pulled, PullRefused>;

    /// Has no more to do with this peer, which has sent what makes no sense: passes on no frame of it and writes to no landing
    /// from now on.
    fn cut(&mut self, peer: Peer);
}

/// Takes what a transport has received.
pub trait Sink {
    /// A frame with its payload, which is gone when the call returns.
    fn on_frame(&mut self, from: Peer, frame: Frame, payload: &[u8]);

    /// For transports that read from a stream: where the `len` bytes of this frame's payload may be written to at once. None
    /// if they are to be collected for [`Sink::on_frame`]; otherwise [`Sink::on_landed`] follows when all are there, and no
    /// other frame from this peer before it.
    fn landing(&mut self, from: Peer, frame: &Frame, len: usize) -> Option<Landing>;

    /// The payload of a frame has been written to its landing.
    fn on_landed(&mut self, from: Peer, frame: Frame, len: usize);

    /// What [`Transport::pull`] left unfinished is all there, or cannot be had that way; not told of a peer that is lost.
    fn on_pulled(&mut self, from: Peer, token: u32, result: Result<(), PullRefused>);

    /// Nothing more will come from this peer, nor reach it, and it has not said [`Frame::Bye`]. Told once.
    fn on_lost(&mut self, peer: Peer, reason: &str);
}

/// Memory for the payload of one frame, in a buffer that has been lent for receiving.
#[derive(Debug)]
pub struct Landing {
    /// The buffer; the payload's first byte belongs at `at`.
    pub buffer: Buffer,
    /// In packed bytes.
    pub at: usize,
}
