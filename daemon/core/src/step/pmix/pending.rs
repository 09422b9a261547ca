//! What the modules beside it pass each other: questions to the head, what is to follow their answers, and the groups.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::pmix::{Info, Proc, Query, keys};

use super::To;
use super::committed::Packed;

/// What the head was asked for.
#[derive(Debug)]
pub(super) enum Asked {
    /// The rendezvous of a collective, by its number.
    Meet(u64),
    /// The description of a job.
    Describe(String),
    /// The values of a process.
    Fetch(Missing),
    /// To publish or withdraw something.
    Publish(To),
    /// To look something up.
    Lookup(To),
    /// To pass on an event.
    Event,
    /// To signal or end processes, which this client awaits.
    Control(To),
    /// The namespaces of all jobs, for these queries.
    Namespaces(To, Vec<Query>),
}

/// A get that is answered from elsewhere.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) to: To,
    pub(super) proc: Proc,
    pub(super) key: Option<String>,
    pub(super) immediate: bool,
    /// Whether only the description of the process's job is wanted.
    pub(super) of_job: bool,
    pub(super) timeout_ms: Option<u64>,
}

/// What to answer once the descriptions are there.
#[derive(Debug)]
pub(super) enum Then {
    /// The jobs are connected.
    Connected,
    /// The group was founded.
    Founded { members: Vec<Proc>, number: u64 },
    /// The job was spawned.
    Spawned,
    /// Queries, some of which are about these jobs; and the namespaces of all jobs, if they were asked for.
    Queried { queries: Vec<Query>, namespaces: Option<Bytes> },
    /// The job's description, and the values of this process if there are any.
    Kept { proc: Proc, values: Option<Packed> },
}

/// A group that was founded.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) number: u64,
    pub(super) members: Vec<Proc>,
    /// What its members have told it about themselves.
    pub(super) infos: BTreeMap<Proc, Vec<Info>>,
}

/// What a rank of this node has to say about a key.
pub(super) enum Here {
    /// These values.
    Values(Bytes),
    /// Nothing for the asking process.
    Absent,
    /// It may commit it yet.
    NotYet { has_committed: bool },
}

/// Returns the time that a request may wait, in milliseconds.
pub(super) fn ms(infos: &[Info]) -> Option<u64> {
    let seconds = Info::find(infos, keys::TIMEOUT)?.as_number()?;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(|seconds| seconds.saturating_mul(1000))
}
