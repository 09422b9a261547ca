//! The interface between the engine and the transport that carries its frames.

use super::frame::{Frame, Region};
use crate::memory::{Arrived, Buffer, Payload};

/// A process that this one can send to, or this process itself: an index into the list of known processes. Within one
/// world it is the rank in `MPI_COMM_WORLD`; processes that are met later get the next numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// The payload limits of one frame to a peer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// The longest message that is sent at once, without asking the receiver.
    pub eager: usize,
    /// As `eager`, for messages from a device's memory.
    pub eager_device: usize,
    /// The longest part of a longer message.
    pub part: usize,
    /// As `part`, for messages from a device's memory.
    pub part_device: usize,
    /// The shortest message that is passed to [`Transport::try_lend`].
    pub lent: usize,
}

/// Why a frame was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room now, or no connection yet. The attempt starts the connection; try again after the next poll.
    Full,
    /// The peer has died or is unreachable forever; [`Sink::on_lost`] has reported or will report it.
    Lost,
}

/// The receiver cannot read the sender's memory (another namespace, no permission), or has measured that parts are
/// faster, or tries them: it requests the message instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRefused;

/// The state of a message when [`Transport::pull`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// It is complete.
    Now,
    /// Some of it is still being copied.
    Later,
    /// Nothing was done: ask again after a poll. Only while something else of this peer is still to arrive.
    NotYet,
}

/// Memory that [`Transport::try_lend`] has lent until [`Transport::redeem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Loan(pub u32);

/// Carries frames between this process and its peers: complete, once, and in the order sent between two processes. No
/// call blocks, except [`Transport::try_lend`] and [`Transport::redeem`].
pub trait Transport {
    /// The payload limits of one frame to this peer.
    fn limits(&self, to: Peer) -> FrameLimits;

    /// Sends a frame. If it is accepted, the payload's memory may change when the call returns.
    fn try_send(&mut self, to: Peer, frame: &Frame, payload: Payload<'_>) -> Result<(), Refusal>;

    /// As [`Transport::try_send`], but the receiver may read the memory itself. This call takes about as long as a copy; once the receiver
    /// has begun to read, it waits for the receiver, even if that is stopped meanwhile. It may deliver messages that receives wait for.
    ///
    /// If the memory `may_stay` lent, the call may return at once with a loan: then the memory must not change before the loan is redeemed.
    fn try_lend<S: Sink>(
        &mut self,
        to: Peer,
        frame: &Frame,
        buffer: &Buffer,
        _may_stay: bool,
        _: &mut S,
    ) -> Result<Option<Loan>, Refusal> {
        self.try_send(to, frame, Payload::new(buffer, 0, buffer.len())).map(|()| None)
    }

    /// Ends a loan. Called at each poll, unless the peer is lost: a receiver that cannot read the memory, and all frames behind this one, wait
    /// for it. If the receiver is reading, returns false, or waits if the loan `must` end. Blocks and delivers as [`Transport::try_lend`]
    /// does.
    fn redeem<S: Sink>(&mut self, _to: Peer, _: Loan, _: &Buffer, _must: bool, _: &mut S) -> bool {
        true
    }

    /// Delivers what has arrived, and continues what is in progress; returns whether there was anything.
    fn poll<S: Sink>(&mut self, sink: &mut S) -> bool;

    /// Offers the frame that [`Transport::poll`] would deliver first, if it is short and has arrived whole; `take` says whether it has taken it. If
    /// `from` is given, only frames of this peer are of interest; others may be offered. A transport may offer nothing.
    #[inline]
    fn catch(&mut self, _from: Option<Peer>, _take: impl FnOnce(Peer, &Frame, Arrived<'_>) -> bool) {}

    /// Lets this peer read the buffer until [`Transport::withdraw`], if possible; called once for each long message.
    fn offer(&mut self, to: Peer, buffer: &Buffer) -> Option<Region>;

    /// Ends an offer: the peer no longer needs the region.
    fn withdraw(&mut self, to: Peer, region: Region);

    /// As [`Transport::withdraw`], for a peer that may be about to read: from now on, all that it reads is refused
    /// ([`PullRefused`]), and it requests the message instead.
    fn retract(&mut self, to: Peer, region: Region);

    /// Copies the first `len` bytes of a message from the sender's memory into a buffer of at least that length. If it
    /// returns [`Pulled::Later`], [`Sink::on_pulled`] reports the end with `token`.
    fn pull(
        &mut self,
        from: Peer,
        region: Region,
        into: &Buffer,
        len: usize,
        token: u32,
    ) -> Result<Pulled, PullRefused>;

    /// Cuts off this peer, which has sent an invalid frame: delivers no further frame of it and writes to no landing.
    fn cut(&mut self, peer: Peer);
}

/// Receives what a transport delivers.
pub trait Sink {
    /// A frame with its payload, which is invalid after the call.
    fn on_frame(&mut self, from: Peer, frame: Frame, payload: Arrived<'_>);

    /// As [`Sink::on_frame`], for transports that can offer a frame again at the next poll. Returns whether it was taken. It is not if
    /// this poll has completed a request and no receive waits for the frame's message: the caller probably posts that receive next, and
    /// then the message need not be copied into memory of the library.
    fn on_frame_unless_early(&mut self, from: Peer, frame: &Frame, payload: Arrived<'_>) -> bool {
        self.on_frame(from, *frame, payload);
        true
    }

    /// How many receives the program has started.
    fn receives(&self) -> u64 {
        0
    }

    /// Whether a receive waits for this frame's message.
    fn expects(&self, _from: Peer, _frame: &Frame) -> bool {
        false
    }

    /// Whether [`Sink::on_frame_unless_early`] would not take this frame.
    fn is_early(&self, _from: Peer, _frame: &Frame) -> bool {
        false
    }

    /// For transports that read from a stream: returns where the `len` bytes of this frame's payload may be written
    /// directly. `None` if they must be collected for [`Sink::on_frame`]; otherwise [`Sink::on_landed`] follows when
    /// all are there, and no other frame from this peer before it.
    fn landing(&mut self, from: Peer, frame: &Frame, len: usize) -> Option<Landing>;

    /// For transports that collect a payload: returns an empty buffer for `len` bytes.
    fn room(&mut self, len: usize) -> Vec<u8> {
        Vec::with_capacity(len)
    }

    /// As [`Sink::on_frame`], with a payload in a buffer that [`Sink::room`] has returned.
    fn on_collected(&mut self, from: Peer, frame: Frame, payload: Vec<u8>) {
        self.on_frame(from, frame, Arrived::new(&payload));
    }

    /// The payload of a frame has been written to its landing.
    fn on_landed(&mut self, from: Peer, frame: Frame, len: usize);

    /// A pending [`Transport::pull`] is complete, or has failed; not called for a lost peer.
    fn on_pulled(&mut self, from: Peer, token: u32, result: Result<(), PullRefused>);

    /// The peer has ended without [`Frame::Bye`]: nothing more will arrive from it or reach it. Called once.
    fn on_lost(&mut self, peer: Peer, reason: &str);
}

/// Memory for the payload of one frame, in a buffer that was lent for receiving.
#[derive(Debug)]
pub struct Landing {
    /// The buffer; the payload's first byte belongs at `at`.
    pub buffer: Buffer,
    /// In packed bytes.
    pub at: usize,
}
