//! Which jobs and processes a request names, and whether the step that makes it may.

use std::collections::BTreeMap;

use rsd_proto::v1 as wire;

use super::super::Head;
use super::super::job::Job;
use super::super::life::Life;
use super::super::meetings::Members;
use super::super::questions::CallId;
use super::super::rank_set::RankSet;
use crate::status::{BAD_PARAM, Failure, LOST_CONNECTION, NOT_FOUND};
use crate::{JobId, NodeId};

/// The most jobs, and the most runs of ranks, that a request names.
const JOBS_MAX: usize = 1 << 10;
const RUNS_MAX: usize = 1 << 16;
/// The most bytes of a namespace.
const NAMESPACE_BYTES_MAX: usize = 255;

impl Head {
    /// Returns the running job with this namespace, of the user whose job makes the request.
    pub(super) fn other_job(&self, asking: JobId, namespace: &str) -> Result<&Job, Failure> {
        let job = self.jobs.named(namespace, self.owner_uid(asking)).ok_or_else(|| {
            let shown = if namespace.len() <= NAMESPACE_BYTES_MAX { namespace } else { "" };
            Failure::new(NOT_FOUND, format!("no job has the namespace {shown:?}"))
        })?;
        match job.life() {
            Life::Running { .. } | Life::Ending { .. } => Ok(job),
            Life::Queued(_) => Err(Failure::new(NOT_FOUND, format!("job {} has not started", job.id))),
            Life::Outlived { .. } | Life::Ended(_) => {
                Err(Failure::new(LOST_CONNECTION, format!("job {} has ended", job.id)))
            }
        }
    }

    /// Returns the processes that a request names, and their jobs in its order.
    pub(super) fn members(
        &self,
        asking: JobId,
        named: &[wire::Participants],
    ) -> Result<(Members, Vec<JobId>), Failure> {
        let runs: usize = named.iter().map(|participants| participants.ranks.len()).sum();
        if named.is_empty() || named.len() > JOBS_MAX || runs > RUNS_MAX {
            let why = format!("a request names 1 to {JOBS_MAX} jobs and at most {RUNS_MAX} runs of ranks");
            return Err(Failure::new(BAD_PARAM, why));
        }
        let (mut members, mut order) = (BTreeMap::new(), Vec::new());
        for wire::Participants { namespace, ranks } in named {
            let job = self.other_job(asking, namespace)?;
            let ranks = match ranks.is_empty() {
                true => RankSet::run(0, job.map.size().saturating_sub(1)),
                false => ranks_of(job, ranks)?,
            };
            if !members.contains_key(&job.id) {
                order.push(job.id);
            }
            members.entry(job.id).or_insert_with(RankSet::default).extend(&ranks);
        }
        Ok((members, order))
    }

    /// Returns these ranks if all belong to the step that makes the request.
    pub(super) fn ranks_of_step(&self, call: CallId, runs: &[wire::RankRun]) -> Result<RankSet, Failure> {
        let Some(job) = self.jobs.get(call.job) else { return Ok(RankSet::default()) };
        if runs.len() > RUNS_MAX {
            let why = format!("a request names at most {RUNS_MAX} runs of ranks, not {}", runs.len());
            return Err(Failure::new(BAD_PARAM, why));
        }
        let ranks = ranks_of(job, runs)?;
        match !ranks.is_empty() && ranks_on(job, call.node).contains_all(&ranks) {
            true => Ok(ranks),
            false => Err(not_its_own(call)),
        }
    }

    /// Refuses a request for a rank that does not belong to the step that makes it.
    pub(super) fn check_rank(&self, call: CallId, rank: u32) -> Result<(), Failure> {
        match self.jobs.get(call.job).and_then(|job| job.map.node_of(rank)) == Some(call.node) {
            true => Ok(()),
            false => Err(not_its_own(call)),
        }
    }
}

/// Refuses a request for a process on a node without which the job continues.
pub(super) fn check_not_lost(job: &Job, node: NodeId) -> Result<(), Failure> {
    match job.has_lost(node) {
        true => {
            let why = format!("job {} has lost node {}", job.id, job.node_name(node));
            Err(Failure::new(LOST_CONNECTION, why))
        }
        false => Ok(()),
    }
}

/// Returns the ranks of a job on a node.
pub(super) fn ranks_on(job: &Job, node: NodeId) -> RankSet {
    let mut ranks = RankSet::default();
    job.map.ranges_on(node).into_iter().for_each(|range| ranks.insert(range.start, range.end - 1));
    ranks
}

fn ranks_of(job: &Job, runs: &[wire::RankRun]) -> Result<RankSet, Failure> {
    let ranks = RankSet::of(runs)
        .ok_or_else(|| Failure::new(BAD_PARAM, "a run of ranks ends with a smaller rank than it begins with"))?;
    match ranks.last().filter(|last| *last >= job.map.size()) {
        Some(last) => Err(Failure::new(BAD_PARAM, format!("job {} has no rank {last}", job.id))),
        None => Ok(ranks),
    }
}

fn not_its_own(call: CallId) -> Failure {
    let why = format!("the step of job {} on node {} has not all of these ranks", call.job, call.node);
    Failure::new(BAD_PARAM, why)
}
