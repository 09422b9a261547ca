//! What is asked of the engine, and what comes of it.

use super::slab::Id;
use crate::error::MpiError;

/// A send or receive that was not over when it was started; valid until [`Engine::take`](super::Engine::take) or
/// [`Engine::forget`](super::Engine::forget).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub(super) Id);

/// A message taken out of matching by [`Engine::mprobe`](super::Engine::mprobe), for [`Engine::mrecv`](super::Engine::mrecv).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId(pub(super) Id);

/// When a send is over (MPI 5.0 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// When the buffer may be used again.
    Standard,
    /// When, moreover, a receive has matched the message.
    Synchronous,
    /// As standard: that the receive is posted already brings nothing here.
    Ready,
}

/// Whose messages a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Those of this rank.
    Rank(u32),
    /// Anybody's.
    Any,
}

/// The largest tag, as `MPI_TAG_UB` says.
pub const TAG_MAX: i32 = i32::MAX;

/// Messages of which tag a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagMatch {
    /// Of this one.
    Value(i32),
    /// Of any.
    Any,
}

/// How a send or receive began.
#[derive(Debug)]
#[must_use = "a pending request has to be waited for, and an outcome may be an error"]
pub enum Started {
    /// It is over already.
    Over(Outcome),
    /// It goes on with [`Engine::progress`](super::Engine::progress).
    Pending(RequestId),
}

/// How a send or receive ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of a receive: the sender's rank in the communicator.
    pub source: u32,
    /// Of a receive: the message's tag.
    pub tag: i32,
    /// Packed bytes sent, or received into the buffer.
    pub bytes: u64,
    /// Whether it was cancelled, and nothing received.
    pub cancelled: bool,
    /// What went wrong; boxed, so that the usual outcome is small.
    pub error: Option<Box<MpiError>>,
}

impl Outcome {
    /// Of a send of so many bytes.
    #[inline]
    pub(super) fn sent(bytes: usize) -> Self {
        Self { source: 0, tag: 0, bytes: bytes as u64, cancelled: false, error: None }
    }

    /// Of a receive with room for `room` bytes, of a message of `len`.
    #[inline]
    pub(super) fn received(source: u32, tag: i32, len: u64, room: usize) -> Self {
        let error = if len > room as u64 { Some(Box::new(truncated(len, room))) } else { None };
        Self { source, tag, bytes: len.min(room as u64), cancelled: false, error }
    }

    /// Moves it out, word by word as it was written: one that was just made is read without a delay.
    #[inline]
    pub(super) fn take_out(&mut self) -> Self {
        let Self { source, tag, bytes, cancelled, ref mut error } = *self;
        Self { source, tag, bytes, cancelled, error: error.take() }
    }

    /// Of a receive that was cancelled.
    pub(super) fn cancelled() -> Self {
        Self { source: 0, tag: 0, bytes: 0, cancelled: true, error: None }
    }

    /// Of what failed before anything was sent or received.
    #[cold]
    pub(super) fn failed(error: MpiError) -> Self {
        Self { source: 0, tag: 0, bytes: 0, cancelled: false, error: Some(Box::new(error)) }
    }
}

#[cold]
fn truncated(len: u64, room: usize) -> MpiError {
    MpiError::truncate(format!("the message has {len} bytes, the memory to receive it {room}"))
}

/// A message that could be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probed {
    /// The sender's rank in the communicator.
    pub source: u32,
    /// Its tag.
    pub tag: i32,
    /// Packed bytes.
    pub bytes: u64,
}
