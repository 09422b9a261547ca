//! The cpus and GPUs of a job's ranks, as the head keeps them: for the launch, for who asks, and for the jobs after it.

use rsd_proto::v1::{self as wire, JobSpec};

use crate::NodeId;
use crate::place::cpuset::CpuSet;
use crate::place::{Placement, RankBinding};
use crate::plan;

/// How a job's ranks are bound.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// The different ways in which a node's ranks are.
    pub(crate) bindings: Vec<wire::NodeBinding>,
    /// Which nodes of the job's map have which, run-length.
    pub(crate) runs: Vec<wire::BindingRun>,
    /// A rank that cannot be bound so may not run.
    pub(crate) required: bool,
    /// `own[i]`: what the ranks of a node with binding i have for themselves.
    own: Vec<Own>,
}

#[derive(Debug)]
struct Own {
    threads: CpuSet,
    gpus: CpuSet,
}

impl Bound {
    /// As a job of this specification was placed. GPUs are always its own, threads where the placement says so.
    pub(crate) fn new(placement: &Placement, spec: Option<&JobSpec>) -> Bound {
        let (bindings, runs) = plan::bindings(placement);
        let policy = spec.and_then(|spec| plan::request(spec).ok()).map(|request| request.policy).unwrap_or_default();
        let threads = |ranks: &[RankBinding]| match placement.exclusive {
            true => ranks.iter().fold(CpuSet::EMPTY, |all, rank| all.or(&rank.threads)),
            false => CpuSet::EMPTY,
        };
        let own = |ranks: &[RankBinding]| Own {
            threads: threads(ranks),
            gpus: ranks.iter().flat_map(|rank| rank.gpus.iter().copied()).collect(),
        };
        let own = placement.bindings.iter().map(|ranks| own(ranks)).collect();
        Bound { bindings, runs, required: plan::is_binding_required(&policy), own }
    }

    /// The nodes on which the job has anything for itself: those threads and GPUs. `nodes` are those of its map.
    pub(crate) fn held<'a>(&'a self, nodes: &'a [NodeId]) -> impl Iterator<Item = (NodeId, &'a CpuSet, &'a CpuSet)> {
        let binding = self.runs.iter().flat_map(|run| (0..run.nodes).map(|_| run.binding as usize));
        let own = nodes.iter().zip(binding).filter_map(|(node, at)| Some((*node, self.own.get(at)?)));
        own.filter(|(_, own)| !(own.threads.is_empty() && own.gpus.is_empty()))
            .map(|(node, own)| (node, &own.threads, &own.gpus))
    }
}
