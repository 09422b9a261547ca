//! What ranks request of their process manager and what it answers, whatever the dialect.
//!
//! PMI-1, PMI-2, the gRPC `Pmi` service and PMIx are codecs over one engine: each turns a message into a [`Request`] with an
//! [`Asker`], passes both to [`Step::request`](super::Step::request), and turns the [`Reply`] into its own form. So the ranks of a
//! job share one KVS, one fence, names and spawns, even if they speak different dialects.

use bytes::Bytes;
use rsd_proto::pmi::v1::Spawn;
use rsd_proto::pmi::v2;

use super::Local;

/// A request of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The rank begins to use its process manager, perhaps again. Not answered.
    Begin,
    /// Store a value, which all ranks can get after the next fence. Answered with [`Reply::Done`].
    Put { key: Bytes, value: Bytes },
    /// The value of a key, of this job or of the job with another namespace. Answered with [`Reply::Value`], usually at once.
    Get { namespace: Bytes, key: Bytes },
    /// Wait until every rank of the job has entered. Answered with [`Reply::Done`].
    Fence,
    /// The same, and give a value to either neighbour in the ring of all ranks. Answered with [`Reply::Neighbours`].
    Ring { left: Bytes, right: Bytes },
    /// Store a value for the ranks of this node, which can get it at once. Answered with [`Reply::Done`].
    PutOnNode { key: Bytes, value: Bytes },
    /// Such a value. Answered with [`Reply::Value`]; with `wait`, once there is one.
    GetOnNode { key: Bytes, wait: bool },
    /// Publish a port under a name. Answered with [`Reply::Done`], or refused if the name is taken.
    Publish { name: Bytes, port: Bytes },
    /// The port under a name. Answered with [`Reply::Value`].
    Lookup { name: Bytes },
    /// Withdraw a name. Answered with [`Reply::Done`], or refused if the name is unknown.
    Unpublish { name: Bytes },
    /// Start a job. Answered with [`Reply::Spawned`] when all its ranks run, or refused.
    Spawn(Spawn),
    /// End the job with this exit code, or with the process's own if the code is not known and the process exits at once. Not answered.
    Abort { code: i32, is_known: bool },
    /// The rank no longer uses its process manager. Answered with [`Reply::Done`].
    Finalize,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// It was done.
    Done,
    /// A value; None if there is none.
    Value(Option<Bytes>),
    /// The new job's name, and one code for each rank that was requested, 0 if it runs.
    Spawned { namespace: String, codes: Vec<i32> },
    /// The rank in the ring, and the values that its neighbours gave to it.
    Neighbours { rank: u32, left: Bytes, right: Bytes },
    /// It was not done; the sentence says why. The rank may continue.
    Refused(String),
    /// The job has failed; the sentence says why. Every request is answered with this.
    Failed(String),
}

/// A rank that waits for an answer, and how it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) local: Local,
    pub(super) by: By,
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// A line on the rank's connection that answers this verb.
    Pmi1(Verb),
    /// A frame on the rank's connection that repeats this.
    Pmi2(v2::Echo),
    /// The result of a call of the gRPC service, by the daemon's number for it. `attempt`: the rank's own number for a fence, or 0.
    Call { call: u64, attempt: u64 },
    /// The same, but the daemon that has numbered the call has ended, and the call with it.
    Disconnected { attempt: u64 },
    /// What the PMIx server keeps under this ticket.
    Pmix { ticket: u64 },
}

/// The verb of a request in PMI-1, which determines the form of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Put,
    Get,
    /// With the tag to echo.
    Barrier {
        tag: Option<u32>,
    },
    Publish,
    Lookup,
    Unpublish,
    Spawn,
    Finalize,
}

impl Asker {
    /// Returns whether an MPI library asks: what it asks for shows its kind, and how far it has proceeded.
    pub(super) fn is_library(&self) -> bool {
        match self.by {
            By::Pmi1(_) | By::Pmi2(_) | By::Pmix { .. } => true,
            By::Call { .. } | By::Disconnected { .. } => false,
        }
    }

    /// Returns the number by which a rank recognises its own fence when it repeats a call; 0: it does not.
    pub(super) fn attempt(&self) -> u64 {
        match self.by {
            By::Call { attempt, .. } | By::Disconnected { attempt } => attempt,
            By::Pmi1(_) | By::Pmi2(_) | By::Pmix { .. } => 0,
        }
    }

    /// Returns whether the rank has entered a fence to exchange values with its neighbours.
    pub(super) fn is_in_ring(&self) -> bool {
        match &self.by {
            By::Pmi2(echo) => echo.verb == v2::Verb::Ring,
            By::Pmi1(_) | By::Call { .. } | By::Disconnected { .. } | By::Pmix { .. } => false,
        }
    }

    /// Notes that the link to the daemon is down: the daemon may restart, and would take an answer for that to another call.
    pub(super) fn disconnect(&mut self) {
        if let By::Call { attempt, .. } = self.by {
            self.by = By::Disconnected { attempt };
        }
    }
}
