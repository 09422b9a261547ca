//! The requests to the engine and their results.

use super::slab::Id;
use super::transport::Peer;
use crate::error::MpiError;

/// A send or receive that was still in progress after it was started; valid until [`Engine::take`](super::Engine::take)
/// or [`Engine::forget`](super::Engine::forget).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) Id);

/// A message removed from matching by [`Engine::mprobe`](super::Engine::mprobe), for
/// [`Engine::mrecv`](super::Engine::mrecv).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(pub(super) Id);

/// When a send is complete (MPI 5.0 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When the buffer may be reused.
    Standard,
    /// When, in addition, a receive has matched the message.
    Synchronous,
    /// As `Standard`: the engine has no use for the knowledge that the receive is posted.
    Ready,
}

/// The source of the messages that a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This rank.
    Rank(u32),
    /// Any rank.
    Any,
}

/// The largest tag, the value of `MPI_TAG_UB`.
pub const TAG_MAX: i32 = i32::MAX;

/// The tag of the messages that a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagMatch {
    /// This tag.
    Value(i32),
    /// Any tag.
    Any,
}

/// The state of a send or receive after its start.
#[derive(Debug)]
#[must_use = "a pending request must be waited for, and an outcome may be an error"]
pub enum Started {
    /// It is complete.
    Over(Outcome),
    /// [`Engine::progress`](super::Engine::progress) continues it.
    Pending(RequestId),
}

/// The result of a send or receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// For a receive: the sender's rank in the communicator.
    pub source: u32,
    /// For a receive: the message's tag.
    pub tag: i32,
    /// Packed bytes sent, or received into the buffer.
    pub bytes: u64,
    /// Whether it was cancelled, and nothing received.
    pub cancelled: bool,
    /// The error, if any; boxed, so that the usual outcome is small.
    pub error: Option<Box<MpiError>>,
}

impl Outcome {
    /// The outcome of a send of this many bytes.
    #[inline]
    pub(super) fn sent(bytes: usize) -> Self {
        Self { source: 0, tag: 0, bytes: bytes as u64, cancelled: false, error: None }
    }

    /// The outcome of a receive of a message of `len` bytes with room for `room`.
    #[inline]
    pub(super) fn received(source: u32, tag: i32, len: u64, room: usize) -> Self {
        let error = if len > room as u64 { Some(Box::new(truncated(len, room))) } else { None };
        Self { source, tag, bytes: len.min(room as u64), cancelled: false, error }
    }

    /// Moves the outcome out, word by word as it was written: a read of the whole would stall right after the writes.
    #[inline]
    pub(super) fn take_out(&mut self) -> Self {
        let Self { source, tag, bytes, cancelled, ref mut error } = *self;
        Self { source, tag, bytes, cancelled, error: error.take() }
    }

    /// The outcome of a cancelled receive.
    pub(super) fn cancelled() -> Self {
        Self { source: 0, tag: 0, bytes: 0, cancelled: true, error: None }
    }

    /// The outcome of a failure before anything was sent or received.
    #[cold]
    pub(super) fn failed(error: MpiError) -> Self {
        Self { source: 0, tag: 0, bytes: 0, cancelled: false, error: Some(Box::new(error)) }
    }
}

#[cold]
fn truncated(len: u64, room: usize) -> MpiError {
    MpiError::truncate(format!("the message has {len} bytes, the receive buffer {room}"))
}

/// A message that can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probed {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Packed bytes.
    pub bytes: u64,
}

/// A note that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its sender.
    pub from: Peer,
    /// The communicator's first context. Whether the sender is a member is not checked.
    pub context: u32,
    /// A number that the library interprets.
    pub number: u32,
    /// The rest.
    pub bytes: Vec<u8>,
}
