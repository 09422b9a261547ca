//! The steps of this node and their links.

use std::collections::{BTreeMap, HashMap};

use crate::JobId;
use crate::contract::LinkId;

/// All steps that run here, are starting, or may reconnect.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The link is absent while a step is starting or reconnecting. A step without a relay is released when it attaches.
    links: BTreeMap<JobId, Option<LinkId>>,
    jobs: HashMap<LinkId, JobId>,
}

impl Steps {
    /// Records that a step will attach. Returns false if the job already has a step.
    pub(super) fn expect(&mut self, job: JobId) -> bool {
        if self.links.contains_key(&job) {
            return false;
        }
        self.links.insert(job, None);
        true
    }

    /// Records the link of a step; returns the link that it replaces.
    pub(super) fn attach(&mut self, job: JobId, link: LinkId) -> Option<LinkId> {
        let before = self.links.insert(job, Some(link)).flatten();
        if let Some(before) = before {
            self.jobs.remove(&before);
        }
        self.jobs.insert(link, job);
        before
    }

    /// Forgets the link of a step that may reconnect, and returns the link.
    pub(super) fn detach(&mut self, job: JobId) -> Option<LinkId> {
        let link = self.links.get_mut(&job)?.take()?;
        self.jobs.remove(&link);
        Some(link)
    }

    /// Forgets a step. Returns false if the job has none.
    pub(super) fn remove(&mut self, job: JobId) -> bool {
        let Some(link) = self.links.remove(&job) else { return false };
        if let Some(link) = link {
            self.jobs.remove(&link);
        }
        true
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.links.contains_key(&job)
    }

    pub(super) fn link(&self, job: JobId) -> Option<LinkId> {
        self.links.get(&job).copied().flatten()
    }

    pub(super) fn job_of(&self, link: LinkId) -> Option<JobId> {
        self.jobs.get(&link).copied()
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.links.keys().copied()
    }

    /// Returns the links of all attached steps.
    pub(super) fn attached(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.links.values().filter_map(|link| *link)
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}
