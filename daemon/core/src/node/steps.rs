//! The steps of this node and their links.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rsd_proto::v1::down;

use crate::JobId;
use crate::contract::LinkId;

/// How many messages a step that has not attached is kept. The head repeats what is lost when the step reconnects.
const HELD_MAX: usize = 1 << 13;

/// All steps that run here, are starting, or may reconnect.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The link is absent while a step is starting or reconnecting. A step without a relay is released when it attaches.
    links: BTreeMap<JobId, Option<LinkId>>,
    jobs: HashMap<LinkId, JobId>,
    /// As whom the jobs run, in a DVM that serves all users.
    owners: HashMap<JobId, u32>,
    /// The steps that this daemon has launched and that have not attached yet.
    starting: BTreeSet<JobId>,
    /// Messages for steps without a link.
    held: HashMap<JobId, Vec<down::Body>>,
}

impl Steps {
    /// Records that a step will attach, with this user's process if one is given. Returns false if the job already has a step.
    pub(super) fn expect(&mut self, job: JobId, owner: Option<u32>) -> bool {
        if self.links.contains_key(&job) {
            return false;
        }
        self.owners.extend(owner.map(|owner| (job, owner)));
        self.links.insert(job, None);
        true
    }

    /// Records that this daemon launches a step.
    pub(super) fn launch(&mut self, job: JobId) {
        self.starting.insert(job);
    }

    /// Returns whether a step has been attached, to this daemon or to an earlier one of this node.
    pub(super) fn has_attached(&self, job: JobId) -> bool {
        !self.starting.contains(&job)
    }

    /// Records the link of a step; returns the link that it replaces.
    pub(super) fn attach(&mut self, job: JobId, link: LinkId) -> Option<LinkId> {
        self.starting.remove(&job);
        let before = self.links.insert(job, Some(link)).flatten();
        if let Some(before) = before {
            self.jobs.remove(&before);
        }
        self.jobs.insert(link, job);
        before
    }

    /// Returns the link of a step for this message. None: the message is kept until the step attaches.
    pub(super) fn link_for(&mut self, job: JobId, body: &down::Body) -> Option<LinkId> {
        let link = self.links.get(&job).copied()?;
        if link.is_none() {
            let held = self.held.entry(job).or_default();
            if held.len() < HELD_MAX {
                held.push(body.clone());
            }
        }
        link
    }

    /// Returns the messages for a step that has attached.
    pub(super) fn take_held(&mut self, job: JobId) -> Vec<down::Body> {
        self.held.remove(&job).unwrap_or_default()
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
        self.owners.remove(&job);
        self.starting.remove(&job);
        self.held.remove(&job);
        if let Some(link) = link {
            self.jobs.remove(&link);
        }
        true
    }

    /// Returns the user as whom the step runs, in a DVM that serves all users.
    pub(super) fn owner(&self, job: JobId) -> Option<u32> {
        self.owners.get(&job).copied()
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.links.contains_key(&job)
    }

    /// Returns whether this user's processes may act as the job's step and ranks.
    pub(super) fn is_of(&self, job: JobId, uid: u32) -> bool {
        self.contains(job) && self.owners.get(&job).is_none_or(|owner| *owner == uid)
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
