//! A schedule that is being carried out.
//!
//! A run takes steps until it has to wait. It is asked to go on when something may have come; nothing here knows how that is
//! found out. A function of the user's is not called from here either: the caller is told to ([`Progress::Call`]), with nothing
//! borrowed, and then goes on.
//!
//! **Errors.** A run that has failed (a peer was lost, a message was too long) takes all further steps, as its peers wait for
//! it, but its messages are of a wrong length from then on: empty ones instead of bytes, one byte instead of none. That is
//! how the others, and those that depend on them, learn of it: no rank hangs, and each that got something wrong knows. If it was
//! a death, an empty message with a tag of its own goes before each of these, so that it has the same class of error everywhere.

use std::sync::Arc;

use super::operands::{self, Operands, Workspace};
use super::schedule::{Schedule, Slice, Step};
use crate::abi::constants::{MPI_ERR_PROC_ABORTED, MPI_ERR_TRUNCATE};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::op::Reduction;

/// What carries the messages of a run: in one context, between two ranks with one tag in the order sent.
pub trait Courier {
    /// A message under way.
    type Id: Copy;

    /// Starts to send.
    fn send(&mut self, to: u32, tag: i32, buffer: Buffer) -> Sent<Self::Id>;

    /// Starts to receive.
    fn recv(&mut self, from: u32, tag: i32, buffer: Buffer) -> Sent<Self::Id>;

    /// Whether a message without bytes is there, which is then taken.
    fn take_word(&mut self, from: u32, tag: i32) -> bool;

    /// If the message is over: how many bytes it had. Its id is invalid then.
    fn take(&mut self, id: Self::Id) -> Option<MpiResult<u64>>;
}

/// How a message was started.
#[derive(Debug)]
pub enum Sent<I> {
    /// It is over: how many bytes it had.
    Over(MpiResult<u64>),
    /// It goes on.
    Pending(I),
}

/// How far a run has come.
#[derive(Debug)]
pub enum Progress {
    /// It waits for messages.
    Pending,
    /// The user's function is to be called before it goes on.
    Call(UserCall),
    /// It is over.
    Done(MpiResult),
}

/// A call of a user's function.
#[derive(Debug)]
pub struct UserCall {
    reduction: Reduction,
    left: *const u8,
    right: *mut u8,
    count: usize,
}

// SAFETY: addresses of memory that may be used from any thread until the operation is over.
#[expect(unsafe_code, reason = "addresses that go from one thread of the user's to another")]
unsafe impl Send for UserCall {}

impl UserCall {
    /// Calls the function, which may call the library.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    pub fn perform(&self) {
        // SAFETY: as in `Run::combine`.
        unsafe { self.reduction.apply(self.left, self.right, self.count) };
    }
}

/// One rank's part in one collective operation.
#[derive(Debug)]
pub struct Run<I> {
    schedule: Arc<Schedule>,
    operands: Operands,
    reduction: Option<Reduction>,
    tag: i32,
    workspace: Workspace,
    /// Index of the next step.
    next: usize,
    under_way: Vec<UnderWay<I>>,
    failed: Option<MpiError>,
}

#[derive(Debug)]
struct UnderWay<I> {
    id: I,
    /// Of a receive: from whom, and how many bytes.
    from: Option<(u32, u64)>,
}

impl<I> Default for Run<I> {
    fn default() -> Self {
        Self {
            schedule: Arc::default(),
            operands: Operands::default(),
            reduction: None,
            tag: 0,
            workspace: Workspace::default(),
            next: 0,
            under_way: Vec::new(),
            failed: None,
        }
    }
}

impl<I: Copy> Run<I> {
    /// Gets ready for an operation, using again the memory of the one before, which is over; an error if there is no
    /// memory for it. The tag is that of its messages.
    pub fn prepare(
        &mut self,
        schedule: Arc<Schedule>,
        operands: Operands,
        reduction: Option<Reduction>,
        tag: i32,
    ) -> MpiResult {
        self.workspace.prepare(schedule.temporaries(), operands.elements.as_ref())?;
        (self.schedule, self.operands, self.reduction, self.tag) = (schedule, operands, reduction, tag);
        self.restart();
        Ok(())
    }

    /// Begins the same operation again, after it was over.
    pub fn restart(&mut self) {
        self.next = 0;
        self.failed = None;
    }

    /// Leaves all that it was lent, and memory that is too much to be kept for the next operation.
    pub fn clear(&mut self) {
        self.schedule = Arc::default();
        self.operands = Operands::default();
        self.reduction = None;
        self.workspace.trim();
    }

    /// Goes on as far as it can.
    pub fn advance<C: Courier<Id = I>>(&mut self, courier: &mut C) -> Progress {
        while let Some(step) = self.schedule.steps().get(self.next).copied() {
            match step {
                Step::Send { to, from } => self.send(courier, to, from),
                Step::Recv { from, into } => self.recv(courier, from, into),
                Step::Wait if !self.has_all(courier) => return Progress::Pending,
                Step::Wait => {}
                Step::Copy { .. } | Step::Combine { .. } if self.failed.is_some() => {}
                Step::Copy { from, to } => operands::copy(&self.buffer(from), &self.buffer(to)),
                Step::Combine { left, right } => {
                    if let Some(call) = self.combine(left, right) {
                        self.next += 1;
                        return Progress::Call(call);
                    }
                }
            }
            self.next += 1;
        }
        Progress::Done(self.failed.take().map_or(Ok(()), Err))
    }

    fn buffer(&self, slice: Slice) -> Buffer {
        self.workspace.buffer(&self.operands, slice)
    }

    fn send<C: Courier<Id = I>>(&mut self, courier: &mut C, to: u32, from: Slice) {
        let buffer = match &self.failed {
            None => self.buffer(from),
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
        match courier.recv(from, self.tag, self.buffer(into)) {
            Sent::Over(result) => self.note(courier, result, expected),
            Sent::Pending(id) => self.under_way.push(UnderWay { id, from: expected }),
        }
    }

    /// Whether nothing is under way any more.
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
        let mut gave_up = |from| gave_up(from, courier.take_word(from, word_of_death(self.tag)));
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

    /// Combines, unless a function of the user's does.
    #[expect(unsafe_code, reason = "an operation works on elements at addresses")]
    fn combine(&self, left: Slice, right: Slice) -> Option<UserCall> {
        let reduction = self.reduction.as_ref()?;
        let (left, count) = self.workspace.elements(&self.operands, left);
        let (right, _) = self.workspace.elements(&self.operands, right);
        if reduction.calls_user() {
            return Some(UserCall { reduction: reduction.clone(), left, right, count });
        }
        // SAFETY: the schedule names slices that lie within what the user has lent and within temporaries.
        unsafe { reduction.apply(left, right, count) };
        None
    }
}

/// What is only moved may be shorter than its place: that programs get away with everywhere.
#[cold]
fn too_short(rank: u32, bytes: u64, expected: u64) -> MpiError {
    MpiError::truncate(format!("rank {rank} has {bytes} bytes where {expected} are to be combined with them"))
}

#[cold]
fn gave_up(rank: u32, for_a_death: bool) -> MpiError {
    let error = match for_a_death {
        true => {
            MpiError::proc_aborted(format!("rank {rank} gave this operation up: a process has died that it depends on"))
        }
        false => MpiError::other(format!(
            "rank {rank} gave this operation up: it failed there, or has no bytes for this rank"
        )),
    };
    error.secondhand()
}

/// The tag of the message that says that an operation was given up for a death. Exchanges have negative tags, too, but not the same
/// number of operation.
fn word_of_death(tag: i32) -> i32 {
    !tag
}
