//! Executes a schedule.
//!
//! A run takes steps until it has to wait. Its caller advances it when a message may have arrived; how the caller knows is
//! not decided here. The run does not call user functions either: it asks the caller to do so ([`Progress::Call`]) with
//! nothing borrowed, and continues afterwards.
//!
//! **Errors.** A run that has failed (a peer was lost, a message was too long) still takes all further steps, because its
//! peers wait for it, but from then on its messages have a wrong length: empty instead of bytes, one byte instead of none.
//! So the failure reaches the other ranks and those that depend on them: no rank hangs, and each rank that received
//! something wrong knows it. If the cause was a death, an empty message with a special tag precedes each of these messages, so
//! that every rank reports the same error class.

use std::sync::Arc;

use super::operands::{self, Operands, Workspace};
use super::schedule::{Action, Schedule, Slice};
use crate::abi::constants::{MPI_ERR_PROC_ABORTED, MPI_ERR_TRUNCATE, MPIX_ERR_REVOKED};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::op::Reduction;

/// Carries the messages of a run in one context. Messages between two ranks with one tag keep their order.
pub trait Courier {
    /// Identifies a message in flight.
    type Id: Copy;

    /// Starts a send.
    fn send(&mut self, to: u32, tag: i32, buffer: Buffer) -> Sent<Self::Id>;

    /// Starts a receive.
    fn recv(&mut self, from: u32, tag: i32, buffer: Buffer) -> Sent<Self::Id>;

    /// Receives a message without bytes if one has arrived; returns whether it did.
    fn take_word(&mut self, from: u32, tag: i32) -> bool;

    /// Whether the communicator is revoked; then words of death may have been dropped.
    fn is_revoked(&self) -> bool {
        false
    }

    /// Returns the length of the message if it is complete. Its id is invalid afterwards.
    fn take(&mut self, id: Self::Id) -> Option<MpiResult<u64>>;
}

/// The outcome of starting a message.
#[derive(Debug)]
pub enum Sent<I> {
    /// The message is complete: its length in bytes.
    Over(MpiResult<u64>),
    /// The message is in flight.
    Pending(I),
}

/// The progress of a run.
#[derive(Debug)]
pub enum Progress {
    /// It waits for messages.
    Pending,
    /// The user's function must be called before the run continues.
    Call(UserCall),
    /// It is over.
    Done(MpiResult),
}

/// A call of a user function.
#[derive(Debug)]
pub struct UserCall {
    reduction: Reduction,
    left: *const u8,
    right: *mut u8,
    count: usize,
}

// SAFETY: addresses of memory that any thread may use until the operation is over.
#[expect(unsafe_code, reason = "addresses that move from one user thread to another")]
unsafe impl Send for UserCall {}

impl UserCall {
    /// Calls the function, which may in turn call the library.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    pub fn perform(&self) {
        // SAFETY: as in `Run::combine`.
        unsafe { self.reduction.apply(self.left, self.right, self.count) };
    }
}

/// One rank's part in one collective operation.
#[derive(Debug)]
pub struct Run<I> {
    /// None: it is not prepared.
    schedule: Option<Arc<Schedule>>,
    operands: Operands,
    reduction: Option<Reduction>,
    tag: i32,
    workspace: Workspace,
    /// Index of the next step.
    next: usize,
    /// Whether the operands are on the host.
    is_loaded: bool,
    under_way: Vec<UnderWay<I>>,
    failed: Option<MpiError>,
    /// It fails from the start: the arguments of this rank are invalid, and its user's memory is not touched.
    fault: Option<MpiError>,
}

#[derive(Debug)]
struct UnderWay<I> {
    id: I,
    /// For a receive: its source rank, and the expected bytes.
    from: Option<(u32, u64)>,
}

impl<I> Default for Run<I> {
    fn default() -> Self {
        Self {
            schedule: None,
            operands: Operands::default(),
            reduction: None,
            tag: 0,
            workspace: Workspace::default(),
            next: 0,
            is_loaded: false,
            under_way: Vec::new(),
            failed: None,
            fault: None,
        }
    }
}

impl<I: Copy> Run<I> {
    /// Prepares the run for an operation, reusing the memory of the previous one, which must be over; fails if there is
    /// not enough memory. `tag` is the tag of its messages. With a `fault`, this rank only does what keeps the others from waiting.
    pub fn prepare(
        &mut self,
        schedule: Arc<Schedule>,
        operands: Operands,
        reduction: Option<Reduction>,
        tag: i32,
        fault: Option<MpiError>,
    ) -> MpiResult {
        self.workspace.prepare(schedule.temporaries(), operands.elements.as_ref())?;
        (self.schedule, self.operands, self.reduction, self.tag) = (Some(schedule), operands, reduction, tag);
        self.fault = fault;
        self.restart();
        Ok(())
    }

    /// Starts the same operation again, after it is over.
    pub fn restart(&mut self) {
        self.next = 0;
        self.is_loaded = false;
        self.failed = self.fault.clone();
    }

    /// Drops everything that was lent to it, and memory that is too large to keep.
    pub fn clear(&mut self) {
        self.schedule = None;
        self.operands = Operands::default();
        self.reduction = None;
        self.fault = None;
        self.workspace.trim();
    }

    /// Advances as far as possible.
    pub fn advance<C: Courier<Id = I>>(&mut self, courier: &mut C) -> Progress {
        if !self.is_loaded {
            self.is_loaded = true;
            if self.failed.is_none() {
                self.failed = self.operands.load().err();
            }
        }
        while let Some(step) = self.schedule.as_ref().and_then(|it| it.actions().get(self.next)).copied() {
            match step {
                Action::Send { to, from } => self.send(courier, to, from),
                Action::Recv { from, into } => self.recv(courier, from, into),
                Action::Wait if !self.has_all(courier) => return Progress::Pending,
                Action::Wait => {}
                Action::Copy { .. } | Action::Combine { .. } if self.failed.is_some() => {}
                Action::Copy { from, to } => {
                    let (from, to) = (self.buffer(from), self.buffer(to));
                    from.copy_all(&to);
                    self.failed = from.settle().and_then(|()| to.settle()).err();
                }
                Action::Combine { left, right } => {
                    if let Some(call) = self.combine(left, right) {
                        self.next += 1;
                        return Progress::Call(call);
                    }
                }
            }
            self.next += 1;
        }
        Progress::Done(self.failed.take().map_or_else(|| self.operands.store(), Err))
    }

    fn buffer(&self, slice: Slice) -> Buffer {
        self.workspace.buffer(&self.operands, slice)
    }

    fn send<C: Courier<Id = I>>(&mut self, courier: &mut C, to: u32, from: Slice) {
        let buffer = match &self.failed {
            None => self.buffer(from),
            // The others are told of the revocation, and do not wait.
            Some(error) if error.class == MPIX_ERR_REVOKED => return,
            Some(error) => {
                if error.class == MPI_ERR_PROC_ABORTED {
                    self.post(courier, to, word_of_death(self.tag), Buffer::EMPTY);
                }
                operands::wrong(from.len as usize)
            }
        };
        self.post(courier, to, self.tag, buffer);
    }

    fn post<C: Courier<Id = I>>(&mut self, courier: &mut C, to: u32, tag: i32, buffer: Buffer) {
        match courier.send(to, tag, buffer) {
            Sent::Over(result) => self.note(courier, result, None),
            Sent::Pending(id) => self.under_way.push(UnderWay { id, from: None }),
        }
    }

    fn recv<C: Courier<Id = I>>(&mut self, courier: &mut C, from: u32, into: Slice) {
        let expected = Some((from, into.len));
        let buffer = if self.fault.is_some() { Buffer::EMPTY } else { self.buffer(into) };
        match courier.recv(from, self.tag, buffer) {
            Sent::Over(result) => self.note(courier, result, expected),
            Sent::Pending(id) => self.under_way.push(UnderWay { id, from: expected }),
        }
    }

    /// Whether no message is in flight any more.
    fn has_all<C: Courier<Id = I>>(&mut self, courier: &mut C) -> bool {
        let mut index = 0;
        while let Some(UnderWay { id, from }) = self.under_way.get(index) {
            let from = *from;
            match courier.take(*id) {
                None => index += 1,
                Some(result) => {
                    self.under_way.swap_remove(index);
                    self.note(courier, result, from);
                }
            }
        }
        self.under_way.is_empty()
    }

    fn note<C: Courier<Id = I>>(&mut self, courier: &mut C, result: MpiResult<u64>, expected: Option<(u32, u64)>) {
        let mut gave_up = |from| match courier.is_revoked() {
            true => MpiError::was_revoked(),
            false => gave_up(from, courier.take_word(from, word_of_death(self.tag))),
        };
        let error = match (result, expected) {
            (Ok(0), Some((from, 1..))) => gave_up(from),
            (Ok(bytes), Some((from, expected))) if bytes < expected && self.reduction.is_some() => {
                too_short(from, bytes, expected)
            }
            (Err(error), Some((from, 0))) if error.class == MPI_ERR_TRUNCATE => gave_up(from),
            (Ok(_), _) => return,
            (Err(error), _) => error,
        };
        self.failed.get_or_insert(error);
    }

    /// Combines, unless the operation is a user function; returns that call instead.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    fn combine(&self, left: Slice, right: Slice) -> Option<UserCall> {
        let reduction = self.reduction.as_ref()?;
        let (left, count) = self.workspace.elements(&self.operands, left);
        let (right, _) = self.workspace.elements(&self.operands, right);
        if reduction.calls_user() {
            return Some(UserCall { reduction: reduction.clone(), left, right, count });
        }
        // SAFETY: the schedule names slices that lie within the user's memory and the temporaries.
        unsafe { reduction.apply(left, right, count) };
        None
    }
}

/// An error of reductions only. Data that are only moved may be shorter than their place: every MPI library accepts
/// that.
#[cold]
fn too_short(rank: u32, bytes: u64, expected: u64) -> MpiError {
    MpiError::truncate(format!("rank {rank} sent {bytes} bytes, but this rank combines {expected}"))
}

#[cold]
fn gave_up(rank: u32, for_a_death: bool) -> MpiError {
    let error = match for_a_death {
        true => MpiError::proc_aborted(format!(
            "rank {rank} abandoned this operation: a process that it depends on has died"
        )),
        false => MpiError::other(format!(
            "rank {rank} abandoned this operation: it failed there, or has no data for this rank"
        )),
    };
    error.secondhand()
}

/// The tag of the message that says that an operation was abandoned because of a death. Exchanges also have negative
/// tags, but never the same operation number.
fn word_of_death(tag: i32) -> i32 {
    !tag
}
