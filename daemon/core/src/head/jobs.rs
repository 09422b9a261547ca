//! All jobs that the head knows, indexed by node and by family.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::job::Job;
use crate::{JobId, NodeId};

/// The table of jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, Job>,
    /// The jobs that have not ended.
    alive: BTreeSet<JobId>,
    /// The jobs whose ranks may be running, by node.
    on_node: HashMap<NodeId, BTreeSet<JobId>>,
    /// The spawned jobs that have not ended, by the root of their family.
    families: HashMap<JobId, BTreeSet<JobId>>,
    /// The ended jobs, oldest first.
    ended: VecDeque<JobId>,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) {
        self.alive.insert(job.id);
        if let Some(spawned) = &job.spawned {
            self.families.entry(spawned.root).or_default().insert(job.id);
        }
        self.all.insert(job.id, job);
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Job> {
        self.all.get(&job)
    }

    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Job> {
        self.all.get_mut(&job)
    }

    /// Returns the job that a client's number means: 0 is the job submitted last.
    pub(super) fn resolve(&self, job: JobId) -> Option<JobId> {
        match job {
            0 => self.all.last_key_value().map(|(id, _)| *id),
            id => self.all.contains_key(&id).then_some(id),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Job> {
        self.all.values()
    }

    /// Returns the jobs that have not ended, oldest first.
    pub(super) fn alive(&self) -> impl Iterator<Item = &Job> {
        self.alive.iter().filter_map(|id| self.all.get(id))
    }

    pub(super) fn alive_len(&self) -> usize {
        self.alive.len()
    }

    pub(super) fn is_alive(&self, job: JobId) -> bool {
        self.alive.contains(&job)
    }

    /// Records that a job has been launched.
    pub(super) fn launched(&mut self, id: JobId) {
        for node in self.all.get(&id).map(|job| job.map.nodes()).unwrap_or_default() {
            self.on_node.entry(*node).or_default().insert(id);
        }
    }

    /// Records that all ranks of a job have ended.
    pub(super) fn ranks_ended(&mut self, id: JobId) {
        for node in self.all.get(&id).map(|job| job.map.nodes()).unwrap_or_default() {
            if let Some(jobs) = self.on_node.get_mut(node) {
                jobs.remove(&id);
                if jobs.is_empty() {
                    self.on_node.remove(node);
                }
            }
        }
    }

    /// Returns the jobs that may have ranks on one of these nodes, oldest first.
    pub(super) fn on_nodes(&self, nodes: &[NodeId]) -> BTreeSet<JobId> {
        nodes.iter().filter_map(|node| self.on_node.get(node)).flatten().copied().collect()
    }

    /// Returns the spawned jobs of a family that have not ended.
    pub(super) fn family(&self, root: JobId) -> impl Iterator<Item = JobId> + '_ {
        self.families.get(&root).into_iter().flatten().copied()
    }

    /// Returns whether a family has spawned jobs that have not ended.
    pub(super) fn has_family(&self, root: JobId) -> bool {
        self.families.contains_key(&root)
    }

    /// Records that a job has ended: it is remembered until `keep` later jobs have ended. Returns the jobs that are forgotten now.
    pub(super) fn retire(&mut self, id: JobId, keep: usize) -> Vec<JobId> {
        self.alive.remove(&id);
        let root = self.all.get(&id).and_then(|job| job.spawned.as_ref()).map(|spawned| spawned.root);
        if let Some(root) = root
            && let Some(family) = self.families.get_mut(&root)
        {
            family.remove(&id);
            if family.is_empty() {
                self.families.remove(&root);
            }
        }
        self.ended.push_back(id);
        let excess = self.ended.len().saturating_sub(keep);
        let forgotten: Vec<JobId> = self.ended.drain(..excess).collect();
        forgotten.iter().for_each(|old| drop(self.all.remove(old)));
        forgotten
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let nodes = self.on_node.keys().map(|node| format!("jobs on node {node}"));
        let families = self.families.keys().map(|root| format!("family of job {root}"));
        self.alive().map(|job| format!("job {}", job.id)).chain(nodes).chain(families)
    }
}
