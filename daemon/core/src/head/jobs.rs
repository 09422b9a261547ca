//! All jobs that the head knows, indexed by node and by family.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use rsd_proto::join::is_self_named;

use super::job::Job;
use crate::attempts::number;
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
    /// The submitted jobs by user and token.
    by_token: HashMap<(u32, Bytes), JobId>,
    /// The jobs of each user. In a DVM that serves one user, all belong to user 0.
    of_user: HashMap<u32, OfUser>,
    /// The ids of jobs that were started again, by number.
    again: HashMap<JobId, JobId>,
    /// The jobs of processes that had given themselves a name, by user and name.
    self_named: HashMap<(u32, String), JobId>,
}

/// The jobs of one user.
#[derive(Debug, Default)]
struct OfUser {
    all: BTreeSet<JobId>,
    alive: usize,
    /// The bytes of the specifications of these.
    spec_bytes: u64,
    /// The ended jobs, oldest first.
    ended: VecDeque<JobId>,
    /// The bytes of their output.
    ended_bytes: u64,
}

impl Jobs {
    pub(super) fn insert(&mut self, job: Job) {
        self.note_token(&job);
        self.alive.insert(job.id);
        let of_user = self.of_user.entry(job.owner_uid()).or_default();
        of_user.all.insert(job.number());
        if job.id != job.number() {
            self.again.insert(job.number(), job.id);
        }
        of_user.alive += 1;
        of_user.spec_bytes += job.spec_bytes;
        if let Some(spawned) = &job.spawned {
            self.families.entry(spawned.root).or_default().insert(job.id);
        }
        if is_self_named(&job.namespace) {
            self.self_named.insert((job.owner_uid(), job.namespace.clone()), job.id);
        }
        self.all.insert(job.id, job);
    }

    /// Adds a job that ended before the head was started.
    pub(super) fn insert_ended(&mut self, job: Job) {
        self.note_token(&job);
        let of_user = self.of_user.entry(job.owner_uid()).or_default();
        of_user.all.insert(job.number());
        of_user.ended.push_back(job.id);
        of_user.ended_bytes = of_user.ended_bytes.saturating_add(job.output_bytes());
        self.all.insert(job.id, job);
    }

    fn note_token(&mut self, job: &Job) {
        if !job.token.is_empty() {
            self.by_token.insert((job.owner_uid(), job.token.clone()), job.id);
        }
    }

    /// Returns the job that this user has submitted with this token.
    pub(super) fn of_token(&self, uid: u32, token: &Bytes) -> Option<JobId> {
        self.by_token.get(&(uid, token.clone())).copied()
    }

    /// Returns the id of the present attempt of the job with this number.
    pub(super) fn current(&self, number: JobId) -> Option<JobId> {
        let id = self.again.get(&number).copied().unwrap_or(number);
        self.all.contains_key(&id).then_some(id)
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Job> {
        self.all.get(&job)
    }

    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Job> {
        self.all.get_mut(&job)
    }

    /// Returns the job of this user with this namespace. Of jobs that have had the same one after each other, that is the last.
    pub(super) fn named(&self, namespace: &str, uid: u32) -> Option<&Job> {
        let id: JobId = match is_self_named(namespace) {
            true => *self.self_named.get(&(uid, namespace.to_owned()))?,
            false => namespace.rsplit('-').next()?.parse().ok()?,
        };
        self.get(id).filter(|job| job.namespace == namespace && job.owner_uid() == uid)
    }

    /// Returns the job of this user that was submitted last: of elements of an array, that is the array; jobs that ranks have spawned, nobody has
    /// submitted.
    pub(super) fn last_of(&self, uid: u32) -> Option<JobId> {
        let newest = self.of_user.get(&uid)?.all.iter().rev();
        let mut jobs = newest.filter_map(|number| self.all.get(&self.current(*number)?));
        let last = jobs.find(|job| job.spawned.is_none())?;
        Some(last.element.map_or(number(last.id), |element| element.array))
    }

    /// Returns the jobs of this user that are known.
    pub(super) fn of(&self, uid: u32) -> impl Iterator<Item = &Job> {
        self.of_user
            .get(&uid)
            .into_iter()
            .flat_map(|of_user| &of_user.all)
            .filter_map(|number| self.all.get(&self.current(*number)?))
    }

    /// Returns how many jobs of this user have not ended, and the bytes of their specifications.
    pub(super) fn alive_of(&self, uid: u32) -> (usize, u64) {
        self.of_user.get(&uid).map_or((0, 0), |of_user| (of_user.alive, of_user.spec_bytes))
    }

    /// Returns the users who have jobs.
    pub(super) fn users(&self) -> Vec<u32> {
        self.of_user.keys().copied().collect()
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

    /// Takes a job out whose next attempt follows.
    pub(super) fn take(&mut self, id: JobId) -> Option<Job> {
        let job = self.all.remove(&id)?;
        self.alive.remove(&id);
        if let Some(of_user) = self.of_user.get_mut(&job.owner_uid()) {
            of_user.alive -= 1;
            of_user.spec_bytes = of_user.spec_bytes.saturating_sub(job.spec_bytes);
        }
        Some(job)
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

    /// Records that a job has ended: from now on it is only remembered.
    pub(super) fn retire(&mut self, id: JobId) {
        let was_alive = self.alive.remove(&id);
        let root = self.all.get(&id).and_then(|job| job.spawned.as_ref()).map(|spawned| spawned.root);
        if let Some(root) = root
            && let Some(family) = self.families.get_mut(&root)
        {
            family.remove(&id);
            if family.is_empty() {
                self.families.remove(&root);
            }
        }
        let of_job = |job: &Job| (job.owner_uid(), job.spec_bytes, job.output_bytes());
        let (uid, bytes, output_bytes) = self.all.get(&id).map_or((0, 0, 0), of_job);
        let of_user = self.of_user.entry(uid).or_default();
        if was_alive {
            of_user.alive -= 1;
            of_user.spec_bytes -= bytes;
        }
        of_user.ended.push_back(id);
        of_user.ended_bytes = of_user.ended_bytes.saturating_add(output_bytes);
    }

    /// Returns how many ended jobs of a user are remembered, and the bytes of their output.
    pub(super) fn ended_of(&self, uid: u32) -> (usize, u64) {
        self.of_user.get(&uid).map_or((0, 0), |of_user| (of_user.ended.len(), of_user.ended_bytes))
    }

    /// Returns the job of a user that ended first.
    pub(super) fn oldest_ended(&self, uid: u32) -> Option<&Job> {
        self.all.get(self.of_user.get(&uid)?.ended.front()?)
    }

    /// Forgets the job of a user that ended first, and returns its number.
    pub(super) fn forget_oldest(&mut self, uid: u32) -> Option<JobId> {
        let of_user = self.of_user.get_mut(&uid)?;
        let old = of_user.ended.pop_front()?;
        let number = crate::attempts::number(old);
        of_user.all.remove(&number);
        self.again.remove(&number);
        let job = self.all.remove(&old);
        let bytes = job.as_ref().map_or(0, Job::output_bytes);
        of_user.ended_bytes = of_user.ended_bytes.saturating_sub(bytes);
        if of_user.all.is_empty() {
            self.of_user.remove(&uid);
        }
        if let Some(job) = job {
            self.by_token.remove(&(uid, job.token));
            let name = (uid, job.namespace);
            if self.self_named.get(&name) == Some(&old) {
                self.self_named.remove(&name);
            }
        }
        Some(old)
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let nodes = self.on_node.keys().map(|node| format!("jobs on node {node}"));
        let families = self.families.keys().map(|root| format!("family of job {root}"));
        self.alive().map(|job| format!("job {}", job.id)).chain(nodes).chain(families)
    }
}
