//! The resources of nodes that jobs hold: slots, and exclusive threads and GPUs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rsd_proto::v1 as wire;

use super::life::Held;
use super::resources::Reserved;
use crate::place::cpuset::CpuSet;
use crate::place::{Placement, RankBinding};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, plan};

/// More hardware threads than a machine has.
const THREADS_MAX: u32 = 1 << 16;

/// The resources held by all jobs whose ranks may be running.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    in_use: HashMap<NodeId, u32>,
    own: HashMap<NodeId, BTreeMap<JobId, Arc<Own>>>,
    jobs: HashMap<JobId, Vec<(NodeId, u32)>>,
    total: u32,
    pub(super) reserved: Reserved,
}

/// The exclusive resources of a job's ranks on one node.
#[derive(Debug)]
struct Own {
    threads: CpuSet,
    gpus: CpuSet,
}

impl Ledger {
    /// Returns an empty ledger of a DVM that has these resources.
    pub(super) fn of(resources: &[wire::Resource]) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.reserved.declare(resources);
        ledger
    }

    /// Records a job's placement. GPUs are always exclusive, threads only where the placement says so.
    pub(super) fn hold(&mut self, job: JobId, placement: &Placement, needs: &[(String, u64)]) {
        self.reserved.hold(job, &placement.map, needs);
        let threads = |ranks: &[RankBinding]| match placement.exclusive {
            true => ranks.iter().fold(CpuSet::EMPTY, |all, rank| all.or(&rank.threads)),
            false => CpuSet::EMPTY,
        };
        let own = |ranks: &[RankBinding]| Own {
            threads: threads(ranks),
            gpus: ranks.iter().flat_map(|rank| rank.gpus.iter().copied()).collect(),
        };
        let own = placement.bindings.iter().map(|ranks| Arc::new(own(ranks))).collect();
        self.put(job, &placement.map, &placement.used, own, &placement.binding_runs);
    }

    /// Records what a job holds that ran before the head was started.
    pub(super) fn restore(
        &mut self,
        job: JobId,
        map: &TaskMap,
        (held, bindings, runs): (&Held, &[wire::NodeBinding], &[wire::BindingRun]),
    ) {
        self.reserved.hold(job, map, &held.needs);
        let threads = |ranks: &[wire::RankBinding]| match held.exclusive {
            true => ranks.iter().fold(CpuSet::EMPTY, |all, rank| all.or(&plan::cpu_set(&rank.threads, THREADS_MAX))),
            false => CpuSet::EMPTY,
        };
        let own = |ranks: &[wire::RankBinding]| Own {
            threads: threads(ranks),
            gpus: ranks.iter().flat_map(|rank| rank.gpus.iter().copied()).collect(),
        };
        let own = bindings.iter().map(|node| Arc::new(own(&node.ranks))).collect();
        let runs: Vec<(u32, u32)> = runs.iter().map(|run| (run.nodes, run.binding)).collect();
        self.put(job, map, &held.slots, own, &runs);
    }

    /// Records what a job holds. `runs`: how many of its nodes in turn have which of `own`.
    fn put(&mut self, job: JobId, map: &TaskMap, used: &[(NodeId, u32)], own: Vec<Arc<Own>>, runs: &[(u32, u32)]) {
        for (node, ranks) in used {
            *self.in_use.entry(*node).or_insert(0) += ranks;
            self.total += ranks;
        }
        let runs = runs.iter().flat_map(|(nodes, binding)| (0..*nodes).map(|_| *binding as usize));
        for (node, at) in map.nodes().iter().zip(runs) {
            if let Some(own) = own.get(at).filter(|own| !(own.threads.is_empty() && own.gpus.is_empty())) {
                self.own.entry(*node).or_default().insert(job, Arc::clone(own));
            }
        }
        let mut nodes: BTreeMap<NodeId, u32> = map.nodes().iter().map(|node| (*node, 0)).collect();
        used.iter().for_each(|(node, ranks)| *nodes.entry(*node).or_insert(0) += ranks);
        self.jobs.insert(job, nodes.into_iter().collect());
    }

    /// Frees a job's resources.
    pub(super) fn free(&mut self, job: JobId) {
        self.reserved.free(job);
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

    /// The jobs that hold something.
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.keys().copied()
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

    /// Adds to a node's description what jobs hold of it besides slots.
    pub(super) fn shown(&self, info: wire::NodeInfo) -> wire::NodeInfo {
        let (_, gpus) = self.taken(info.node);
        wire::NodeInfo { gpus_in_use: gpus.iter().collect(), ..self.reserved.shown(info) }
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let slots = (self.total > 0).then(|| format!("{} slots in use", self.total));
        self.jobs.keys().map(|job| format!("place of job {job}")).chain(slots).chain(self.reserved.leftovers())
    }
}
