//! The requests of clients to a daemon, and the answers. The shell converts gRPC calls to [`Call`]s.

use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, JobInfo, JobSpec, NodeInfo};

use crate::metrics::Family;
use crate::{JobId, NodeId};

/// The user who makes a request, as the shell has recognised it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Its uid. A daemon that serves one user counts every caller as that user.
    pub uid: u32,
    /// Whether it may see and change what belongs to any user, stop daemons, and make tokens for daemons.
    pub is_admin: bool,
}

impl Caller {
    /// Returns whether the caller may use what belongs to this user.
    pub(crate) fn may_use(self, owner: u32) -> bool {
        self.is_admin || self.uid == owner
    }
}

/// A client's request. Job 0 is the caller's last one.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum Call {
    /// Answered with [`Answer::Submitted`]. `random`: 44 fresh random bytes, 12 for the job's namespace and 32 that its ranks share as a
    /// secret. `user`: the caller's name; empty in a DVM that serves one user.
    Submit { spec: Box<JobSpec>, random: Bytes, user: String },
    /// [`Answer::Nodes`] with the changed node.
    ChangeNode(Box<wire::ChangeNodeRequest>),
    /// [`Answer::Plan`].
    Plan(Box<wire::PlanRequest>),
    /// [`Answer::Job`].
    GetJob(JobId),
    /// The element of an array with this index, started or not. [`Answer::Job`].
    GetElement { job: JobId, index: u32 },
    /// Why a job waits, or an element of an array. [`Answer::Why`].
    Why { job: JobId, index: Option<u32> },
    /// Changes a queued job; of an array, the elements with these indexes (empty: all). [`Answer::Job`].
    ChangeJob { job: JobId, elements: String, change: JobChange },
    /// The job of this name. [`Answer::Job`].
    FindJob(String),
    /// [`Answer::Jobs`], the newest last.
    ListJobs(Box<wire::ListJobsRequest>),
    /// [`Answer::Job`].
    Signal { job: JobId, rank: Option<u32>, signal: i32 },
    /// [`Answer::Job`].
    Cancel { job: JobId, grace_ms: Option<u64> },
    /// Ends the elements of an array with these indexes. [`Answer::Job`].
    CancelElements { job: JobId, grace_ms: Option<u64>, elements: String },
    /// Lets a held job start. [`Answer::Job`].
    Unhold(JobId),
    /// The client that a job was attached to has disconnected. [`Answer::Job`].
    ClientGone(JobId),
    /// The client that a job is attached to has lost its connection, and is back. [`Answer::Job`].
    OwnerBack(JobId),
    /// The daemon is lost through which the client that ran a job was connected.
    OwnerLost(JobId),
    /// [`Answer::Fed`] when there is room for more input, or when no rank reads input any more; at the end of input (`eof`) when all
    /// readers have all of it. `at`: the number of its first byte; None: it follows what the head has.
    Stdin { job: JobId, at: Option<u64>, data: Bytes, eof: bool },
    /// [`Answer::Nodes`]; with `load` after every node has answered or a second has passed.
    ListNodes { load: bool },
    /// [`Answer::Waits`], after every node has answered or a deadline has passed; only those of this job and of jobs that it spawned.
    ListWaits(Option<JobId>),
    /// [`Answer::Events`]: those after number `since`, or all that are kept.
    Events { since: Option<u64> },
    /// [`Answer::Metrics`].
    Metrics,
    /// [`Answer::Names`].
    ListNames,
    /// [`Answer::Status`].
    Status,
    /// [`Answer::Stopping`] when the daemon is about to exit.
    Shutdown { force: bool },
    /// [`Answer::Pmi`].
    Pmi { job: JobId, rank: u32, namespace: String, op: PmiOp },
    /// [`Answer::Group`], or [`Answer::Groups`].
    Group(GroupCall),
    /// Answered as the operation says.
    Kv(KvCall),
    /// Answered as the operation says.
    Token(TokenCall),
    /// [`Answer::Standbys`].
    Standby(StandbyCall),
}

/// A request about the nodes that stand by to become the head.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum StandbyCall {
    /// Lets a node stand by, by name or id; or no longer, if `forbid`.
    Allow { node: String, forbid: bool },
    /// A node stands by, and will listen there as the head.
    StandsBy { node: NodeId, listen: String, daemon_listen: String },
    /// Changes nothing.
    List,
}

/// A change of a queued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobChange {
    /// Whether it is held.
    Hold(bool),
    /// Its place in the queue.
    Priority(i32),
}

/// A request about join tokens. The shell makes numbers and secrets and passes hashes.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum TokenCall {
    /// Adds a token with this number and the hash of its secret. `login`: the user whom it only logs in; None: the caller, and an
    /// admin's token admits daemons too. [`Answer::Tokens`] with this token.
    New { id: u64, hash: [u8; 32], ttl: Duration, uses: u32, login: Option<u32> },
    /// [`Answer::Tokens`] that the caller may see, by number.
    List,
    /// [`Answer::Tokens`] with this token.
    Revoke { id: u64 },
    /// Uses a token once for a public key, given by its hash: a repeat has the same answer and costs no use. `from`: the caller's
    /// address; `new_node`: the answer has a fresh node id. [`Answer::Redeemed`].
    Redeem { id: u64, hash: [u8; 32], key: [u8; 32], from: String, new_node: bool },
}

/// A rank's request through the gRPC `Pmi` service.
#[derive(Debug)]
pub enum PmiOp {
    /// Put a value into the KVS: every rank sees it after the next fence.
    Put(Bytes, Bytes),
    /// The value of a key, if this node knows it.
    Get(Bytes),
    /// Wait for all ranks. A request with a number other than 0 may be repeated, and counts once.
    Fence(u64),
    /// Return the rank's place in the job.
    Info,
}

/// A request about groups, answered with [`Answer::Group`], or `List` with [`Answer::Groups`].
#[derive(Debug)]
pub enum GroupCall {
    /// Creates a group with these rules: its name, size and times.
    Create(wire::GroupRules),
    /// Lists all groups that the caller may see.
    List,
    /// Returns a group by name.
    Get(String),
    /// Closes a group: waiting members are turned away.
    Close(String),
    /// Removes a waiting member.
    Kick {
        /// The group.
        name: String,
        /// The member.
        pid: u32,
        /// The name of its node; empty: any node.
        node: String,
    },
}

/// A request about the values of a job.
#[derive(Debug)]
pub struct KvCall {
    /// The job, and the rank that sends the request.
    pub scope: wire::KvScope,
    /// The operation.
    pub op: KvOp,
}

/// The operations on a job's values.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum KvOp {
    /// [`Answer::Stopped`].
    Put { key: Bytes, value: Bytes },
    /// [`Answer::Value`] as soon as the value exists, or a refusal after the timeout.
    Get { key: Bytes, timeout: Duration },
    /// [`Answer::Entries`], by key.
    List,
    /// [`Answer::Stopped`].
    Delete { key: Bytes },
    /// [`Answer::Stopped`] when all participants have entered, or a refusal after the timeout.
    Fence(Entry),
}

/// A participant that enters a fence.
#[derive(Debug)]
pub struct Entry {
    /// The fence.
    pub name: String,
    /// How many participants the fence has; 0: the job's ranks.
    pub participants: u32,
    /// The participant's name, if it is not a rank.
    pub who: String,
    /// The attempt number; the same again if the participant repeats the request because it lost the answer.
    pub attempt: u64,
    /// The participant's timeout.
    pub timeout: Duration,
}

/// The answer to a [`Call`].
#[derive(Debug)]
pub enum Answer {
    /// The new job's number.
    Submitted(JobId),
    /// Where a job would go, or why it cannot be placed.
    Plan(Box<wire::PlanReply>),
    /// One job.
    Job(Box<JobInfo>),
    /// Several jobs, without their bindings.
    Jobs(Vec<JobInfo>),
    /// The DVM's nodes, by id.
    Nodes(Vec<NodeInfo>),
    /// Why a job waits.
    Why(Box<wire::WhyReply>),
    /// What waits now.
    Waits(Vec<wire::Wait>),
    /// What has happened, by number.
    Events(Box<wire::EventsReply>),
    /// Metrics of this daemon; those of the head are about the DVM too. The shell adds its own.
    Metrics(Vec<Family>),
    /// The names that ranks have published, in order.
    Names(Vec<wire::PublishedName>),
    /// Counters of this daemon; the shell adds its own.
    Status(Box<wire::StatusReply>),
    /// The daemon is about to exit. The nodes with these names could not be told that the DVM stops, and go on.
    #[expect(missing_docs, reason = "described above")]
    Stopping { unreached: Vec<String> },
    /// The request is done and has no result.
    Stopped,
    /// How many bytes of a job's standard input all its readers have, and whether no rank reads any more.
    #[expect(missing_docs, reason = "described above")]
    Fed { delivered: u64, closed: bool },
    /// One group.
    Group(Box<wire::GroupInfo>),
    /// All groups, by name.
    Groups(Vec<wire::GroupInfo>),
    /// A value of a job.
    Value(Bytes),
    /// All values of a job, by key.
    Entries(Vec<wire::KvEntry>),
    /// Join tokens.
    Tokens(Vec<wire::TokenInfo>),
    /// A token was valid: the user whom it logs in, and the id of the new node if one was requested.
    #[expect(missing_docs, reason = "described above")]
    Redeemed { uid: u32, node: Option<NodeId> },
    /// The nodes that may stand by.
    Standbys(Vec<wire::KeptStandby>),
    /// A rank's answer.
    Pmi(Box<wire::PmiResult>),
    /// The request is refused.
    Refused(Refused),
}

/// A refusal: an exit code for rsctl, and a text for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// One of the `exit` codes of `rsd_proto`'s contract.
    pub exit_code: u8,
    /// The reason, and what to do.
    pub text: String,
}

impl Refused {
    pub(crate) fn new(exit_code: u8, text: impl Into<String>) -> Refused {
        Refused { exit_code, text: text.into() }
    }
}

/// The exit codes that this crate uses; rsctl documents all of them.
pub(crate) mod exit {
    pub(crate) const TIMED_OUT: u8 = 124;
    pub(crate) const CANCELLED: u8 = 130;
    pub(crate) const USAGE: u8 = 240;
    pub(crate) const NODE_LOST: u8 = 242;
    pub(crate) const NOT_PLACED: u8 = 243;
    pub(crate) const NOT_PERMITTED: u8 = 245;
    pub(crate) const NO_SUCH_JOB: u8 = 246;
    pub(crate) const ALONE: u8 = 250;
}
