//! The resources of nodes that jobs hold: slots, and exclusive threads and GPUs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::place::cpuset::CpuSet;
use crate::place::{Placement, RankBinding};
use crate::{JobId, NodeId};

/// The resources held by all jobs whose ranks may be running.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    in_use: HashMap<NodeId, u32>,
    own: HashMap<NodeId, BTreeMap<JobId, Arc<Own>>>,
    jobs: HashMap<JobId, Vec<(NodeId, u32)>>,
    total: u32,
}

/// The exclusive resources of a job's ranks on one node.
#[derive(Debug)]
struct Own {
    threads: CpuSet,
    gpus: CpuSet,
}

impl Ledger {
    /// Records a job's placement. GPUs are always exclusive, threads only where the placement says so.
    pub(super) fn hold(&mut self, job: JobId, placement: &Placement) {
        for (node, ranks) in &placement.used {
            *self.in_use.entry(*node).or_insert(0) += ranks;
            self.total += ranks;
        }
        let threads = |ranks: &[RankBinding]| match placement.exclusive {
            true => ranks.iter().fold(CpuSet::EMPTY, |all, rank| all.or(&rank.threads)),
            false => CpuSet::EMPTY,
        };
        let own = |ranks: &[RankBinding]| Own {
            threads: threads(ranks),
            gpus: ranks.iter().flat_map(|rank| rank.gpus.iter().copied()).collect(),
        };
        let own: Vec<Arc<Own>> = placement.bindings.iter().map(|ranks| Arc::new(own(ranks))).collect();
        let runs = placement.binding_runs.iter().flat_map(|(nodes, binding)| (0..*nodes).map(|_| *binding as usize));
        for (node, at) in placement.map.nodes().iter().zip(runs) {
            if let Some(own) = own.get(at).filter(|own| !(own.threads.is_empty() && own.gpus.is_empty())) {
                self.own.entry(*node).or_default().insert(job, Arc::clone(own));
            }
        }
        let mut nodes: BTreeMap<NodeId, u32> = placement.map.nodes().iter().map(|node| (*node, 0)).collect();
        placement.used.iter().for_each(|(node, ranks)| *nodes.entry(*node).or_insert(0) += ranks);
        self.jobs.insert(job, nodes.into_iter().collect());
    }

    /// Frees a job's resources.
    pub(super) fn free(&mut self, job: JobId) {
        for (node, ranks) in self.jobs.remove(&job).unwrap_or_default() {
            if let Some(in_use) = self.in_use.get_mut(&node) {
                *in_use -= ranks;
                self.total -= ranks;
            }
            if let Some(own) = self.own.get_mut(&node) {
                own.remove(&job);
                if own.is_empty() {
                    self.own.remove(&node);
                }
            }
        }
    }

    /// The slots of a node that are in use.
    pub(super) fn in_use(&self, node: NodeId) -> u32 {
        self.in_use.get(&node).copied().unwrap_or(0)
    }

    /// The slots of all nodes that are in use.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// The threads and GPUs of a node that jobs have for themselves.
    pub(super) fn taken(&self, node: NodeId) -> (CpuSet, CpuSet) {
        let jobs = self.own.get(&node).into_iter().flat_map(BTreeMap::values);
        jobs.fold((CpuSet::EMPTY, CpuSet::EMPTY), |(threads, gpus), own| (threads.or(&own.threads), gpus.or(&own.gpus)))
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let slots = (self.total > 0).then(|| format!("{} slots in use", self.total));
        self.jobs.keys().map(|job| format!("place of job {job}")).chain(slots)
    }
}
