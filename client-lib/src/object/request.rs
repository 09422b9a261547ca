//! Requests: operations that were started and are not yet known to be over (MPI 5.0 §3.7, §3.9, §13.2).

use std::ffi::{c_int, c_void};

use super::creation::CreationId;
use super::table::Table;
use crate::abi::handle::{Handle, Place, SLOTS};
use crate::abi::{CommHandle, RequestHandle, Status};
use crate::coll::CollectiveId;
use crate::engine::{Envelope, Mode, Outcome, Peer, RequestId, Source, TagMatch};
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
    /// One that can be started again and again.
    Persistent(Box<Persistent>),
    /// One that the user completes.
    General(Box<Generalized>),
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
