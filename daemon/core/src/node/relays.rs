//! The relays of all jobs that pass through this daemon, and the relays that an input has changed.
//!
//! A relay is advanced only after a change, and a change in the tree touches only the jobs of the nodes that moved. So the cost
//! of an input does not depend on the number of idle jobs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::relay::{Relay, Ripe};
use crate::contract::LinkId;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId};

/// All relays, by job.
#[derive(Debug, Default)]
pub(super) struct Relays {
    all: BTreeMap<JobId, Relay>,
    on_node: HashMap<NodeId, BTreeSet<JobId>>,
    /// The jobs for which a link has asked where ranks listen.
    asking: HashMap<LinkId, BTreeSet<JobId>>,
    changed: BTreeSet<JobId>,
}

impl Relays {
    /// Creates the relay of a job if it does not exist. `is_here` returns whether a node is connected at or below this daemon.
    pub(super) fn ensure(&mut self, job: JobId, map: TaskMap, is_root: bool, is_here: impl Fn(NodeId) -> bool) {
        self.changed.insert(job);
        let relay = self.all.entry(job).or_insert_with(|| {
            for node in map.nodes() {
                self.on_node.entry(*node).or_default().insert(job);
            }
            Relay::new(job, map, is_root)
        });
        relay.set_here(is_here);
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Relay> {
        self.all.get(&job)
    }

    /// Returns the relay of a job and marks it as changed.
    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Relay> {
        let relay = self.all.get_mut(&job)?;
        self.changed.insert(job);
        Some(relay)
    }

    /// Records that this link has asked where a job's ranks listen.
    pub(super) fn ask(&mut self, job: JobId, link: LinkId) {
        if let Some(relay) = self.get_mut(job) {
            relay.locations.ask(link);
            self.asking.entry(link).or_default().insert(job);
        }
    }

    /// Forgets a closed link.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        for job in self.asking.remove(&link).unwrap_or_default() {
            if let Some(relay) = self.get_mut(job) {
                relay.locations.forget_link(link);
            }
        }
    }

    /// Records that the connections of these nodes have changed.
    pub(super) fn recount(&mut self, nodes: &[NodeId], is_here: impl Fn(NodeId) -> bool) {
        for node in nodes {
            for job in self.on_node.get(node).into_iter().flatten() {
                if let Some(relay) = self.all.get_mut(job) {
                    relay.recount(*node, is_here(*node));
                    self.changed.insert(*job);
                }
            }
        }
    }

    /// Returns the next message of the changed relays. Removes relays without a node here: other daemons report for their jobs.
    pub(super) fn advance(&mut self) -> Option<(JobId, Ripe)> {
        while let Some(job) = self.changed.first().copied() {
            if let Some(ripe) = self.all.get_mut(&job).and_then(Relay::advance) {
                if let Ripe::Locations { to, .. } = &ripe {
                    to.iter().for_each(|link| self.has_answered(*link, job));
                }
                return Some((job, ripe));
            }
            self.changed.remove(&job);
            if self.all.get(&job).is_some_and(Relay::is_deserted) {
                self.remove(job);
            }
        }
        None
    }

    fn has_answered(&mut self, link: LinkId, job: JobId) {
        if let Some(jobs) = self.asking.get_mut(&link) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.asking.remove(&link);
            }
        }
    }

    pub(super) fn remove(&mut self, job: JobId) -> Option<Relay> {
        let relay = self.all.remove(&job)?;
        self.changed.remove(&job);
        for node in relay.map.nodes() {
            if let Some(jobs) = self.on_node.get_mut(node) {
                jobs.remove(&job);
                if jobs.is_empty() {
                    self.on_node.remove(node);
                }
            }
        }
        for link in relay.locations.links() {
            self.has_answered(link, job);
        }
        Some(relay)
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.all.contains_key(&job)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.all.keys().copied().collect()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let relays = self.all.iter().map(|(job, relay)| format!("relay of job {job}: {relay:?}"));
        let nodes = self.on_node.keys().map(|node| format!("relays on node {node}"));
        let asking = self.asking.iter().map(|(link, jobs)| format!("link {link} asking about jobs {jobs:?}"));
        relays.chain(nodes).chain(asking)
    }
}
