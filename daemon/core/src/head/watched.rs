//! Which ranks have ended, of the jobs of which others wait for processes. The head learns of most exits only when all ranks of a node
//! have ended; it requests earlier reports of these jobs.

use std::collections::BTreeMap;

use super::rank_set::RankSet;
use crate::JobId;

/// The ended ranks of the watched jobs.
#[derive(Debug, Default)]
pub(super) struct Watched(BTreeMap<JobId, RankSet>);

impl Watched {
    /// Begins to watch a job of which these ranks have ended.
    pub(super) fn begin(&mut self, job: JobId, ended: RankSet) {
        self.0.insert(job, ended);
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.0.contains_key(&job)
    }

    /// Returns the ranks that have ended, of a watched job.
    pub(super) fn ended(&self, job: JobId) -> Option<&RankSet> {
        self.0.get(&job)
    }

    /// Records that ranks have ended. Returns those of which this is news.
    pub(super) fn add(&mut self, job: JobId, ended: &RankSet) -> RankSet {
        let Some(known) = self.0.get_mut(&job) else { return RankSet::default() };
        let news = ended.without(known);
        known.extend(&news);
        news
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.0.keys().map(|job| format!("the ended ranks of job {job}"))
    }
}
