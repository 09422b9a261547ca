//! Requests: operations that were started and are not yet known to be over (MPI 5.0 §3.7, §3.9, §13.2).

use std::ffi::{c_int, c_void};

use super::buffered::Owner;
use super::creation::CreationId;
use super::table::Table;
use crate::abi::handle::{Handle, Place, SLOTS};
use crate::abi::{CommHandle, RequestHandle, Status};
use crate::coll::CollectiveId;
use crate::engine::{Engine, Envelope, Mode, Outcome, Peer, RequestId, Source, TagMatch, Transport};
use crate::error::MpiError;
use crate::memory::Buffer;

/// What a request handle stands for.
#[derive(Debug)]
pub enum Request {
    /// A message under way.
    Message {
        /// The engine's.
        id: RequestId,
        /// Whether it is received.
        receives: bool,
        /// On which communicator.
        comm: CommHandle,
    },
    /// A message that was over at once, with what the user has not been told yet.
    Over {
        /// What came of it; nothing came from `MPI_PROC_NULL`.
        outcome: Option<Outcome>,
        /// Whether it was received.
        receives: bool,
        /// On which communicator.
        comm: CommHandle,
    },
    /// Two messages that are one operation (`MPI_Isendrecv`).
    Exchange(Box<Exchange>),
    /// A collective operation under way.
    Collective {
        /// Among those that run.
        id: CollectiveId,
        /// On which communicator.
        comm: CommHandle,
    },
    /// A communicator that is being made.
    Creation {
        /// Among those that are being made.
        id: CreationId,
        /// Of which it is a copy.
        comm: CommHandle,
    },
    /// Buffered sends: those of a buffer up to a number.
    Flush {
        /// Whose buffer.
        owner: Owner,
        /// From [`super::buffered::Buffered::sent`].
        until: u64,
    },
    /// One that can be started again and again.
    Persistent(Box<Persistent>),
    /// One that the user completes.
    General(Box<Generalized>),
}

/// A message that is sent and one that is received, over when both are.
#[derive(Debug)]
pub struct Exchange {
    /// The one to send.
    pub sent: Half,
    /// The one to receive.
    pub received: Half,
    /// What is sent, if it had to be copied.
    pub copy: Vec<u8>,
    /// On which communicator.
    pub comm: CommHandle,
}

/// One message of two.
#[derive(Debug)]
pub enum Half {
    /// Under way.
    Pending(RequestId),
    /// Over; nothing goes to or comes from `MPI_PROC_NULL`.
    Over(Option<Outcome>),
}

impl Exchange {
    /// Whether both messages are over.
    pub fn is_over<T: Transport>(&self, engine: &Engine<T>) -> bool {
        self.sent.is_over(engine) && self.received.is_over(engine)
    }

    /// What the user is told of it, once it is over.
    pub fn status<T: Transport>(&self, engine: &Engine<T>) -> Status {
        let outcome = match &self.received {
            Half::Pending(id) => engine.outcome(*id),
            Half::Over(outcome) => outcome.as_ref(),
        };
        Finished::of_message(outcome.cloned(), true, self.comm, true).status
    }

    /// Its end, if it has come: the status of the message received, and the error of either.
    pub fn finish<T: Transport>(&mut self, engine: &mut Engine<T>) -> Option<Finished> {
        if !self.is_over(engine) {
            return None;
        }
        let sent = Finished::of_message(self.sent.take(engine), false, self.comm, true);
        let received = Finished::of_message(self.received.take(engine), true, self.comm, true);
        Some(Finished { error: sent.error.or(received.error), ..received })
    }

    /// Goes on without anyone asking for its end.
    pub fn forget<T: Transport>(self, engine: &mut Engine<T>) {
        if let Half::Pending(id) = self.received {
            engine.forget(id);
        }
        if let Half::Pending(id) = self.sent {
            engine.forget(id);
            // Nobody tells when it has been sent.
            std::mem::forget(self.copy);
        }
    }
}

impl Half {
    fn is_over<T: Transport>(&self, engine: &Engine<T>) -> bool {
        match self {
            Self::Pending(id) => engine.outcome(*id).is_some(),
            Self::Over(_) => true,
        }
    }

    fn take<T: Transport>(&mut self, engine: &mut Engine<T>) -> Option<Outcome> {
        match self {
            Self::Pending(id) => engine.take(*id),
            Self::Over(outcome) => outcome.take(),
        }
    }
}

/// A persistent request.
#[derive(Debug)]
pub struct Persistent {
    /// What `MPI_Start` starts.
    pub start: Start,
    /// What is under way.
    pub active: Option<Active>,
    /// On which communicator.
    pub comm: CommHandle,
}

/// What a persistent request starts.
#[derive(Debug, Clone)]
pub enum Start {
    /// A message to send; to nobody if there is no peer.
    Send {
        /// How it is found.
        envelope: Envelope,
        /// To whom.
        to: Option<Peer>,
        /// When it is over.
        mode: Mode,
        /// Whether it is copied to the attached buffer first.
        buffered: bool,
        /// What.
        buffer: Buffer,
    },
    /// A message to receive; from nobody if there is no source.
    Receive {
        /// In which context.
        context: u32,
        /// From whom.
        source: Option<Source>,
        /// With which tag.
        tag: TagMatch,
        /// Where to.
        buffer: Buffer,
    },
    /// A collective operation.
    Collective(CollectiveId),
}

/// What a started persistent request waits for.
#[derive(Debug)]
pub enum Active {
    /// A message.
    Message(RequestId),
    /// Nothing: it was over at once, or nothing comes from `MPI_PROC_NULL`.
    Over(Option<Outcome>),
    /// The collective operation of its `start`.
    Collective(CollectiveId),
}

/// A generalised request: what to call when it is over.
#[derive(Debug, Clone)]
pub struct Generalized {
    /// `MPI_Grequest_query_function`.
    pub query: *const c_void,
    /// `MPI_Grequest_free_function`.
    pub free: *const c_void,
    /// `MPI_Grequest_cancel_function`.
    pub cancel: *const c_void,
    /// Passed to all of them.
    pub extra_state: *mut c_void,
    /// `MPI_Grequest_complete` has been called.
    pub complete: bool,
    /// `MPI_Request_free` has been called.
    pub freed: bool,
}

/// The requests of a process.
pub type Requests = Table<RequestHandle, Request>;

impl RequestHandle {
    /// Stands for every send that was over when it was started: there is nothing to keep of it.
    pub fn sent() -> Self {
        Self::made(Place { slot: SLOTS - 1, generation: 0 })
    }
}

/// A request that is over.
#[derive(Debug)]
pub struct Finished {
    /// What the user is told.
    pub status: Status,
    /// What went wrong, on the communicator of the request.
    pub error: Option<MpiError>,
    /// Whether the handle is invalid now: not for persistent requests.
    pub gone: bool,
    /// To be called, with the state unlocked.
    pub general: Option<Generalized>,
}

impl Finished {
    /// Of a null or inactive request.
    pub const NOTHING: Self = Self { status: Status::EMPTY, error: None, gone: false, general: None };

    /// Of a message.
    pub fn of_message(outcome: Option<Outcome>, receives: bool, comm: CommHandle, gone: bool) -> Self {
        let mut status = match &outcome {
            _ if !receives => Status::EMPTY,
            None => Status::PROC_NULL,
            Some(outcome) => Status::new(outcome.source as c_int, outcome.tag, outcome.bytes),
        };
        status.set_cancelled(outcome.as_ref().is_some_and(|outcome| outcome.cancelled));
        let error = outcome.and_then(|outcome| outcome.error).map(|error| error.on(comm));
        Self { status, error, gone, general: None }
    }
}
