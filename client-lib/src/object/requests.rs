//! Requests: operations that were started and may still be in progress (MPI 5.0 §3.7, §3.9, §13.2).

use std::ffi::{c_int, c_void};

use super::buffered::Owner;
use super::creation::CreationId;
use super::table::Table;
use crate::abi::constants::MPIX_ERR_PROC_FAILED_PENDING;
use crate::abi::handle::{Handle, Place, SLOTS};
use crate::abi::{CommHandle, RequestHandle, Status};
use crate::coll::CollectiveId;
use crate::coll::outboxes::PostedId;
use crate::engine::{Engine, Envelope, Mode, Outcome, Peer, RequestId, Source, TagMatch, Transport};
use crate::error::MpiError;
use crate::memory::Buffer;

/// The object behind a request handle.
#[derive(Debug)]
pub enum Request {
    /// A message in progress.
    Message {
        /// The engine's request.
        id: RequestId,
        /// Whether it is a receive.
        receives: bool,
        /// Its communicator.
        comm: CommHandle,
    },
    /// A message that completed at once, whose outcome has not been returned to the user yet.
    Over {
        /// The outcome; `None` for `MPI_PROC_NULL`.
        outcome: Option<Outcome>,
        /// Whether it was a receive.
        receives: bool,
        /// Its communicator.
        comm: CommHandle,
    },
    /// Two messages that form one operation (`MPI_Isendrecv`).
    Exchange(Box<Exchange>),
    /// A collective operation in progress.
    Collective {
        /// The operation.
        id: CollectiveId,
        /// Its communicator.
        comm: CommHandle,
    },
    /// As `Collective`, over memory that the members share.
    Posted {
        /// The operation.
        id: PostedId,
        /// Its communicator.
        comm: CommHandle,
    },
    /// A communicator in the making.
    Creation {
        /// The creation.
        id: CreationId,
        /// The communicator that is being duplicated.
        comm: CommHandle,
    },
    /// An agreement or a shrink in progress.
    Recovery {
        /// The call.
        id: RecoveryId,
        /// Its communicator.
        comm: CommHandle,
        /// Where the flag of an agreement is stored; null for a shrink.
        flag: *mut c_int,
    },
    /// The buffered sends of one buffer up to a number.
    Flush {
        /// The owner of the buffer.
        owner: Owner,
        /// From [`super::buffered::Buffered::sent`].
        until: u64,
    },
    /// A persistent request.
    Persistent(Box<Persistent>),
    /// A partitioned request, which is persistent too.
    Partitioned {
        /// The request.
        id: PartitionedId,
        /// Its communicator.
        comm: CommHandle,
    },
    /// A generalized request, which the user completes.
    General(Box<Generalized>),
}

impl Request {
    /// The communicator of the operation, if it has one.
    pub fn comm(&self) -> Option<CommHandle> {
        match self {
            Self::Message { comm, .. } | Self::Over { comm, .. } => Some(*comm),
            Self::Collective { comm, .. } | Self::Posted { comm, .. } | Self::Creation { comm, .. } => Some(*comm),
            Self::Partitioned { comm, .. } | Self::Recovery { comm, .. } => Some(*comm),
            Self::Exchange(exchange) => Some(exchange.comm),
            Self::Persistent(persistent) => Some(persistent.comm),
            Self::Flush { .. } | Self::General(_) => None,
        }
    }
}

/// A partitioned request: requests are matched in the order of these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionedId(pub(super) u64);

/// A call of [`super::recovery`] in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecoveryId(pub(super) u64);

/// A send and a receive, complete when both are.
#[derive(Debug)]
pub struct Exchange {
    /// The send.
    pub sent: Half,
    /// The receive.
    pub received: Half,
    /// The data to send, if they had to be copied.
    pub copy: Vec<u8>,
    /// Its communicator.
    pub comm: CommHandle,
}

/// One message of two.
#[derive(Debug)]
pub enum Half {
    /// In progress.
    Pending(RequestId),
    /// Complete; `None` for `MPI_PROC_NULL`.
    Over(Option<Outcome>),
}

impl Exchange {
    /// Whether both messages are complete.
    pub fn is_over<T: Transport>(&self, engine: &Engine<T>) -> bool {
        self.sent.is_over(engine) && self.received.is_over(engine)
    }

    /// The status for the user, once it is complete.
    pub fn status<T: Transport>(&self, engine: &Engine<T>) -> Status {
        let outcome = match &self.received {
            Half::Pending(id) => engine.outcome(*id),
            Half::Over(outcome) => outcome.as_ref(),
        };
        Finished::of_message(outcome.cloned(), true, self.comm, true).status
    }

    /// The result, if it is complete: the status of the received message, and the error of either.
    pub fn finish<T: Transport>(&mut self, engine: &mut Engine<T>) -> Option<Finished> {
        if !self.is_over(engine) {
            return None;
        }
        let sent = Finished::of_message(self.sent.take(engine), false, self.comm, true);
        let received = Finished::of_message(self.received.take(engine), true, self.comm, true);
        Some(Finished { error: sent.error.or(received.error), ..received })
    }

    /// Continues without anyone asking for the result.
    pub fn forget<T: Transport>(self, engine: &mut Engine<T>) {
        if let Half::Pending(id) = self.received {
            engine.forget(id);
        }
        if let Half::Pending(id) = self.sent {
            engine.forget_with(id, self.copy.into());
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
    /// The operation that `MPI_Start` starts.
    pub start: Start,
    /// The operation in progress.
    pub active: Option<Active>,
    /// Its communicator.
    pub comm: CommHandle,
}

/// The operation that a persistent request starts.
#[derive(Debug, Clone)]
pub enum Start {
    /// A send; `to` is `None` for `MPI_PROC_NULL`.
    Send {
        /// The envelope for matching.
        envelope: Envelope,
        /// The destination.
        to: Option<Peer>,
        /// When it is complete.
        mode: Mode,
        /// Whether it is first copied to the attached buffer.
        buffered: bool,
        /// The data.
        buffer: Buffer,
    },
    /// A receive; `source` is `None` for `MPI_PROC_NULL`.
    Receive {
        /// The context.
        context: u32,
        /// The source.
        source: Option<Source>,
        /// The tag.
        tag: TagMatch,
        /// The receive buffer.
        buffer: Buffer,
    },
    /// A collective operation.
    Collective(CollectiveId),
}

/// The operation that a started persistent request waits for.
#[derive(Debug)]
pub enum Active {
    /// A message.
    Message(RequestId),
    /// Nothing: it completed at once, or is for `MPI_PROC_NULL`.
    Over(Option<Outcome>),
    /// The collective operation of its `start`.
    Collective(CollectiveId),
}

/// A generalized request: the functions to call.
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
    /// Stands for every send or collective operation that completed when it was started: nothing needs to be stored.
    pub fn sent() -> Self {
        Self::made(Place { slot: SLOTS - 1, generation: 0 })
    }
}

/// A completed request.
#[derive(Debug)]
pub struct Finished {
    /// The status for the user.
    pub status: Status,
    /// The error, on the communicator of the request.
    pub error: Option<MpiError>,
    /// Whether the handle is invalid now: not for persistent requests.
    pub gone: bool,
    /// The functions to call, with the state unlocked.
    pub general: Option<Generalized>,
}

impl Finished {
    /// The result of a null or inactive request.
    pub const NOTHING: Self = Self { status: Status::EMPTY, error: None, gone: false, general: None };

    /// Whether the request is still in progress, and only a failure is reported.
    pub fn is_pending(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.class == MPIX_ERR_PROC_FAILED_PENDING)
    }

    /// The result of a message.
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
