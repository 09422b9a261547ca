//! The calling side: starts operations on other members' memory, and waits for them.

use super::super::agree::Lent;
use super::wire::{CALL, Call, DATA, DONE, INLINE_MAX, Kind, POST, Places, REPLY};
use super::{Access, Window};
use std::sync::atomic::Ordering;

use crate::abi::constants::{MPI_ERR_RMA_RANGE, MPI_ERR_RMA_SYNC, MPI_SUCCESS};
use crate::abi::{DatatypeHandle, OpHandle};
use crate::engine::{Engine, Envelope, Mode, Outcome, RequestId, Source, Started, TagMatch, Transport};
use crate::error::{MpiError, MpiResult};
use crate::memory::Buffer;
use crate::object::requests::Half;
use crate::shared_memory::sync::fence_after_rmw;

/// The memory that an operation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The member.
    pub target: u32,
    /// The bytes.
    pub places: Places,
}

/// A process that only uses memory of its node looks this rarely for messages.
const OWN_TURNS: u32 = 8;

/// An operation that is not complete here.
#[derive(Debug)]
pub(super) struct Pending {
    target: u32,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A call that is being sent.
    Call(Lent),
    /// Data from the user's memory.
    Data(RequestId),
    /// A reply of so many bytes, to the user's memory.
    Reply(RequestId, u64),
    /// As the two before, of an operation with a request that the user completes.
    Asked(RequestId),
    /// The answer to a flush.
    Done(Lent),
    /// The permission of `MPI_Win_post`.
    Posted(Lent),
}

impl Window {
    /// The envelope of this process's messages.
    pub(super) fn envelope(&self, tag: i32) -> Envelope {
        Envelope { context: self.context, rank: self.rank, tag }
    }

    fn call<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32, call: &Call) {
        let (envelope, to) = (self.envelope(CALL), self.group.members[target as usize]);
        let sent = Lent::start(call.encode(), |buffer| engine.send(envelope, to, Mode::Standard, buffer));
        self.note(engine, target, What::Call(sent));
    }

    /// Remembers an operation unless it is complete.
    fn note<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32, what: What) {
        match what.settle(engine) {
            Ok(None) => {}
            Ok(Some(error)) => self.errors.push((target, error)),
            Err(what) => self.pending.push(Pending { target, what }),
        }
    }

    /// Sends data to a member's memory: to write it there, or to combine it. With `asks`, the returned halves, of what is sent and
    /// what is received, are for a request.
    pub fn send_data<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        kind: Kind,
        with: (OpHandle, DatatypeHandle),
        remote: Remote,
        buffer: &Buffer,
        asks: bool,
    ) -> (Half, Half) {
        let Remote { target, places } = remote;
        self.touched[target as usize] = true;
        self.sent += 1;
        let is_short = buffer.len() <= INLINE_MAX;
        let data = is_short.then(|| {
            let mut bytes = vec![0; buffer.len()];
            buffer.read(0, &mut bytes);
            bytes
        });
        self.errors.extend(buffer.settle().err().map(|error| (target, error)));
        self.call(engine, target, &Call { kind, op: with.0, element: with.1, places, data });
        let sent = if is_short { Half::Over(None) } else { self.send_long(engine, target, buffer, asks) };
        (sent, Half::Over(None))
    }

    fn send_long<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32, buffer: &Buffer, asks: bool) -> Half {
        let (envelope, to) = (self.envelope(DATA), self.group.members[target as usize]);
        match engine.send(envelope, to, Mode::Standard, buffer.clone()) {
            Started::Over(outcome) if asks => Half::Over(Some(outcome)),
            Started::Over(outcome) => {
                self.errors.extend(outcome.error.map(|error| (target, *error)));
                Half::Over(None)
            }
            Started::Pending(id) => {
                let what = if asks { What::Asked(id) } else { What::Data(id) };
                self.pending.push(Pending { target, what });
                Half::Pending(id)
            }
        }
    }

    /// Reads a member's memory into a buffer of the same length; with `data`, the member then combines its memory with that.
    #[expect(clippy::too_many_arguments, reason = "those of the operation")]
    pub fn fetch<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        kind: Kind,
        with: (OpHandle, DatatypeHandle),
        remote: Remote,
        data: Option<&Buffer>,
        into: &Buffer,
        asks: bool,
    ) -> (Half, Half) {
        let (target, len) = (remote.target, into.len() as u64);
        let from = Source::Rank(target);
        let started = engine.recv(self.context, from, TagMatch::Value(REPLY), into.clone());
        let received = match started {
            Started::Over(outcome) if asks => Half::Over(Some(outcome)),
            Started::Over(outcome) => {
                self.errors.extend(fault_of(&outcome, len).map(|error| (target, error)));
                Half::Over(None)
            }
            Started::Pending(id) => {
                let what = if asks { What::Asked(id) } else { What::Reply(id, len) };
                self.pending.push(Pending { target, what });
                Half::Pending(id)
            }
        };
        let (sent, _) = self.send_data(engine, kind, with, remote, data.unwrap_or(&Buffer::EMPTY), asks);
        (sent, received)
    }

    /// Sends a call that has neither data nor places.
    pub fn tell<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32, kind: Kind) {
        self.call(engine, target, &Call::plain(kind));
    }

    /// Asks a member to answer when it has done everything so far; [`Kind::Unlock`] also unlocks.
    pub fn ask<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32, kind: Kind) {
        let answer = self.receive(engine, target, DONE, 8);
        self.note(engine, target, What::Done(answer));
        self.tell(engine, target, kind);
        self.touched[target as usize] = false;
    }

    /// Tells a member that the access to its memory is over, after the messages that it got.
    pub fn complete<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32) {
        if self.touched[target as usize] || !self.near.complete(target) {
            self.tell(engine, target, Kind::Complete);
        }
    }

    /// Asks a member for an answer if it got operations since it was last asked.
    pub fn ask_if_touched<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32) {
        if self.touched[target as usize] {
            self.ask(engine, target, Kind::Flush);
        }
    }

    /// As [`Window::ask_if_touched`], all members.
    pub fn ask_touched<T: Transport>(&mut self, engine: &mut Engine<T>) {
        if self.sent > 0 {
            (0..self.size()).for_each(|target| self.ask_if_touched(engine, target));
            self.sent = 0;
        }
    }

    /// The operations so far need no answer: their effects are ordered by other messages.
    pub fn forget_touched(&mut self) {
        if self.sent > 0 {
            self.touched.fill(false);
            self.sent = 0;
        }
    }

    /// Whether nothing that this process has called is in progress or has failed.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.errors.is_empty() && self.broken.is_none()
    }

    /// Whether no member has got a message since it was last asked for an answer.
    #[inline]
    pub fn has_sent_nothing(&self) -> bool {
        self.sent == 0
    }

    /// Now and then: time for everything else that is in progress. A full barrier: what this process has copied is visible to all others.
    #[inline]
    pub fn is_turn_of_others(&self) -> bool {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
        turn.is_multiple_of(OWN_TURNS)
    }

    /// Awaits the permission of a member to use its memory, if it comes by message.
    pub fn await_post<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32) {
        if self.near.lock_of(target).is_some() {
            return;
        }
        let posted = self.receive(engine, target, POST, 0);
        self.note(engine, target, What::Posted(posted));
    }

    /// Permits a member to use this process's memory.
    pub fn post<T: Transport>(&mut self, engine: &mut Engine<T>, origin: u32) {
        if self.near.post(origin) {
            return;
        }
        let (envelope, to) = (self.envelope(POST), self.group.members[origin as usize]);
        let sent = Lent::start([].into(), |buffer| engine.send(envelope, to, Mode::Standard, buffer));
        self.note(engine, origin, What::Call(sent));
    }

    fn receive<T: Transport>(&self, engine: &mut Engine<T>, from: u32, tag: i32, len: usize) -> Lent {
        let (context, from) = (self.context, Source::Rank(from));
        Lent::start(vec![0; len].into(), |buffer| engine.recv(context, from, TagMatch::Value(tag), buffer))
    }

    /// Whether everything with a member, or with all, is complete here: buffers may be used again, replies have arrived, flushes and
    /// posts are answered.
    pub fn is_settled<T: Transport>(&mut self, engine: &mut Engine<T>, target: Option<u32>) -> bool {
        let mut settled = true;
        for Pending { target: of, what } in std::mem::take(&mut self.pending) {
            match what.settle(engine) {
                Ok(error) => self.errors.extend(error.map(|error| (of, error))),
                Err(what) => {
                    settled &= target.is_some_and(|target| target != of);
                    self.pending.push(Pending { target: of, what });
                }
            }
        }
        settled || self.broken.is_some()
    }

    /// The first error of operations on a member, or on any; it is reported once.
    pub fn take_error(&mut self, target: Option<u32>) -> MpiResult {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let found = self.errors.iter().position(|(of, _)| target.is_none_or(|target| target == *of));
        let first = found.map(|at| self.errors.remove(at).1);
        self.errors.retain(|(of, _)| target.is_some_and(|target| target != *of));
        first.map_or(Ok(()), Err)
    }

    /// Fails with class `MPI_ERR_RMA_SYNC` outside of an epoch with this member.
    #[inline]
    pub fn must_permit(&self, target: u32) -> MpiResult {
        if self.access.permits(target) { Ok(()) } else { Err(self.not_permitted(target)) }
    }

    #[cold]
    fn not_permitted(&self, target: u32) -> MpiError {
        let text = match self.access {
            Access::None | Access::Fence => {
                "no epoch: call MPI_Win_fence, MPI_Win_start, MPI_Win_lock or MPI_Win_lock_all first".to_owned()
            }
            Access::Started(_) => format!("rank {target} is not in the group of MPI_Win_start"),
            Access::Locked(_) | Access::LockedAll { .. } => format!("rank {target} is not locked"),
        };
        MpiError::new(MPI_ERR_RMA_SYNC, text)
    }

    /// As [`Window::must_permit`], and takes the lock that messages to the member need, if it has not been taken.
    pub fn enter<T: Transport>(&mut self, engine: &mut Engine<T>, target: u32) -> MpiResult {
        self.must_permit(target)?;
        if let Access::LockedAll { taken, checks: true } = &mut self.access
            && !std::mem::replace(&mut taken[target as usize], true)
        {
            self.tell(engine, target, Kind::LockShared);
        }
        Ok(())
    }

    pub(super) fn abandon_operations<T: Transport>(&mut self, engine: &mut Engine<T>) {
        for Pending { what, .. } in std::mem::take(&mut self.pending) {
            match what {
                What::Call(lent) | What::Done(lent) | What::Posted(lent) => lent.leave(engine),
                What::Data(id) | What::Reply(id, _) => engine.forget(id),
                What::Asked(_) => {}
            }
        }
    }
}

impl What {
    /// The error, if it has ended.
    fn settle<T: Transport>(self, engine: &mut Engine<T>) -> Result<Option<MpiError>, Self> {
        let failed = |outcome: Outcome| outcome.error.map(|error| *error);
        match self {
            Self::Call(lent) => lent.outcome(engine).map(|(outcome, _)| failed(outcome)).map_err(Self::Call),
            Self::Posted(lent) => lent.outcome(engine).map(|(outcome, _)| failed(outcome)).map_err(Self::Posted),
            Self::Data(id) => engine.take(id).map(failed).ok_or(self),
            Self::Reply(id, len) => engine.take(id).map(|outcome| fault_of(&outcome, len)).ok_or(self),
            Self::Asked(id) if engine.is_pending(id) => Err(self),
            Self::Asked(_) => Ok(None),
            Self::Done(lent) => {
                lent.outcome(engine).map(|(outcome, answer)| of_answer(&outcome, &answer)).map_err(Self::Done)
            }
        }
    }
}

fn fault_of(outcome: &Outcome, len: u64) -> Option<MpiError> {
    match &outcome.error {
        Some(error) => Some((**error).clone()),
        None if outcome.bytes != len => Some(refused(MPI_ERR_RMA_RANGE)),
        None => None,
    }
}

fn of_answer(outcome: &Outcome, answer: &[u8]) -> Option<MpiError> {
    if let Some(error) = &outcome.error {
        return Some((**error).clone());
    }
    let class = answer.first_chunk().map_or(MPI_SUCCESS, |word| i64::from_ne_bytes(*word) as i32);
    (class != MPI_SUCCESS).then(|| refused(class))
}

fn refused(class: i32) -> MpiError {
    MpiError::new(
        class,
        match class {
            MPI_ERR_RMA_RANGE => "the target's window has no such memory",
            _ => "the target has refused an operation",
        },
    )
}
