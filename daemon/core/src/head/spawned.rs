//! The head's data about a job that a rank has spawned.

use crate::{JobId, NodeId};

/// A spawned job's place in its family.
#[derive(Debug)]
pub(super) struct Spawned {
    /// The job whose rank spawned it.
    pub(super) parent: JobId,
    pub(super) parent_namespace: String,
    /// The root of the family.
    pub(super) root: JobId,
    pub(super) birth: Birth,
    /// Whether its failure does not end the family.
    pub(super) apart: bool,
    pub(super) asked: Asked,
}

/// Whether the spawner has been answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Birth {
    /// The request is pending until all ranks run or have failed to start.
    Awaited,
    /// The spawner was answered that the job runs.
    Confirmed,
    /// The spawner was answered that the job failed.
    Refused,
}

/// The call that spawned it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) node: NodeId,
    pub(super) call: u64,
    pub(super) rank: u32,
    /// How many ranks of each program are started.
    pub(super) started: Vec<u32>,
}
