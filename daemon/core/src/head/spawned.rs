//! What the head knows of a job because a rank has spawned it.

use crate::{JobId, NodeId};

/// What a spawned job is to its family.
#[derive(Debug)]
pub(super) struct Spawned {
    /// The job whose rank has spawned it.
    pub(super) parent: JobId,
    /// The job that began the family.
    pub(super) root: JobId,
    pub(super) birth: Birth,
    /// Its failure is its own.
    pub(super) apart: bool,
}

/// Whether its spawner has been answered.
#[derive(Debug)]
pub(super) enum Birth {
    /// Not until all its ranks run, or can no longer run: the request to answer.
    Awaited(Asked),
    /// The spawner knows of it.
    Told,
    /// The spawner was told that it failed.
    Refused,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) node: NodeId,
    pub(super) call: u64,
    pub(super) rank: u32,
    pub(super) started: Vec<u32>,
}
