//! The part of its node that each rank may use. The launch names hardware threads and GPUs by their places on the node; this module
//! translates them to the kernel's numbers, which binding and ranks need.

use rsd_proto::v1::{self as wire, LaunchBody, up};

use super::{Effect, Local, Phase, Step};
use crate::NodeId;
use crate::place::cpuset::CpuSet;
use crate::place::policy::MemBind;
use crate::place::topology::{Kind, Topology};
use crate::plan::cpu_set;
use crate::taskmap::TaskMap;

/// Where a rank may run, and where its memory comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// The cpus by the kernel's numbers, ascending; empty: the cpus of the daemon.
    pub cpus: Vec<u32>,
    /// The memory binding; None: the kernel's default.
    pub memory: Option<MemoryBinding>,
    /// Whether the rank must not start without these cpus. A memory binding is always required.
    pub required: bool,
}

/// A memory binding: the NUMA nodes by the kernel's numbers, and the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryBinding {
    /// From these nodes only.
    Only(Vec<u32>),
    /// From these nodes if possible.
    First(Vec<u32>),
    /// From these nodes in turn.
    InTurn(Vec<u32>),
}

/// A rank's part of its node, and its variables; or why it cannot have that part, as a sentence.
pub(super) type Part = Result<(Bound, Vec<String>), String>;

/// Returns the parts of a node's `here` ranks, in rank order, and a notice for the user. Fails with a sentence if the launch is
/// inconsistent.
pub(super) fn parts(
    node: NodeId,
    map: &TaskMap,
    launch: &LaunchBody,
    inventory: &wire::Inventory,
    here: usize,
) -> Result<(Vec<Part>, Option<String>), String> {
    let ranks = &binding_of(node, map, launch)?.ranks[..];
    if !ranks.is_empty() && ranks.len() != here {
        return Err(format!("invalid launch: bindings for {} of the {here} ranks of node {node}", ranks.len()));
    }
    let spec = launch.spec.as_ref().ok_or("invalid launch: it contains no job")?;
    let mem_bind = match &spec.mem_bind[..] {
        "" => MemBind::None,
        text => text.parse().map_err(|error| format!("invalid launch: memory binding: {error}"))?,
    };
    let here_is = Here {
        topology: inventory.topology.as_ref().and_then(|told| Topology::try_from(told).ok()),
        inventory,
        mem_bind,
        required: launch.bindings_required,
        gpus_visible: spec.gpus_visible,
    };
    let unbound = wire::RankBinding::default();
    let parts = (0..here).map(|local| here_is.part(ranks.get(local).unwrap_or(&unbound))).collect();
    let asked = mem_bind != MemBind::None || ranks.iter().any(|rank| !rank.threads.is_empty());
    let imagined = (inventory.imagined && asked).then(|| {
        "the ranks are not bound: the topology of this node is not its own (HWLOC_SYNTHETIC or HWLOC_XMLFILE was set for \
         its daemon)"
            .to_owned()
    });
    Ok((parts, imagined))
}

fn binding_of(node: NodeId, map: &TaskMap, launch: &LaunchBody) -> Result<wire::NodeBinding, String> {
    if launch.binding_runs.is_empty() {
        return Ok(wire::NodeBinding::default());
    }
    let index = map.position(node).ok_or("invalid launch: it is not for this node")?;
    let mut behind = 0;
    let run = launch.binding_runs.iter().find(|run| {
        behind += u64::from(run.nodes);
        (index as u64) < behind
    });
    let binding = run.and_then(|run| launch.bindings.get(run.binding as usize));
    binding.cloned().ok_or_else(|| format!("invalid launch: it does not say how the ranks of node {node} are bound"))
}

/// The node whose resources are divided among its ranks.
struct Here<'a> {
    topology: Option<Topology>,
    inventory: &'a wire::Inventory,
    mem_bind: MemBind,
    required: bool,
    gpus_visible: bool,
}

impl Here<'_> {
    fn part(&self, binding: &wire::RankBinding) -> Part {
        let mut env = self.gpus(binding)?;
        let Some(topology) = self.topology.as_ref().filter(|_| !self.inventory.imagined) else {
            let unknown = !self.inventory.imagined && self.required && !binding.threads.is_empty();
            return match unknown {
                true => Err("the cpus of its node are unknown: restart its daemon, or use --bind-to none".into()),
                false => Ok((Bound::default(), env)),
            };
        };
        let threads = cpu_set(&binding.threads, topology.threads());
        let wanted: u64 = binding.threads.iter().map(|range| u64::from(range.count)).sum();
        if u64::from(threads.len()) != wanted {
            return Err("the cpus of its node have changed since the job was placed: submit it again".into());
        }
        let cpus = topology.os_threads(&threads);
        if !cpus.is_empty() {
            env.push(format!("RSD_CPUS={}", cpus.iter().copied().collect::<CpuSet>()));
        }
        let memory = self.memory(topology, &threads);
        Ok((Bound { cpus, memory, required: self.required }, env))
    }

    fn memory(&self, topology: &Topology, threads: &CpuSet) -> Option<MemoryBinding> {
        let usable = cpu_set(&self.inventory.usable, topology.threads());
        let threads = match (threads.is_empty(), usable.is_empty()) {
            (false, _) => threads.clone(),
            (true, false) => usable,
            (true, true) => topology.all(),
        };
        let known = topology.objects(Kind::Numa);
        let nodes = topology.objects_of(Kind::Numa, &threads);
        let nodes: CpuSet = nodes.iter().filter_map(|at| known.get(at as usize)).map(|node| node.os).collect();
        let nodes: Vec<u32> = nodes.iter().collect();
        if nodes.is_empty() {
            // All memory is equally near.
            return None;
        }
        match self.mem_bind {
            MemBind::None => None,
            MemBind::Local => Some(MemoryBinding::Only(nodes)),
            MemBind::Preferred => Some(MemoryBinding::First(nodes)),
            MemBind::Interleave => Some(MemoryBinding::InTurn(nodes)),
        }
    }

    /// Returns the variables for its GPUs.
    fn gpus(&self, binding: &wire::RankBinding) -> Result<Vec<String>, String> {
        if binding.gpus.is_empty() {
            return Ok(Vec::new());
        }
        let gpu = |place: &u32| {
            let known = self.inventory.gpus.get(*place as usize);
            known.ok_or_else(|| format!("its node no longer has GPU {place}: restart its daemon"))
        };
        let gpus: Vec<&wire::Gpu> = binding.gpus.iter().map(gpu).collect::<Result<_, _>>()?;
        let list = |of: &dyn Fn(&wire::Gpu) -> String| gpus.iter().map(|gpu| of(gpu)).collect::<Vec<_>>().join(",");
        let mut env = vec![format!("RSD_GPUS={}", list(&|gpu| gpu.index.to_string()))];
        if self.gpus_visible {
            if let Some(nameless) = gpus.iter().find(|gpu| gpu.uuid.is_empty()) {
                let index = nameless.index;
                return Err(format!(
                    "GPU {index} of its node has no UUID (libnvidia-ml.so.1 reports UUIDs), which --gpus-visible needs: leave out \
                     --gpus-visible and use RSD_GPUS"
                ));
            }
            env.push(format!("CUDA_VISIBLE_DEVICES={}", list(&|gpu| gpu.uuid.clone())));
        }
        Ok(env)
    }
}

impl Step {
    /// Notes that a rank starts unbound, and why, as a sentence.
    pub(super) fn on_unbound(&mut self, local: Local, why: String) {
        self.unbound.push((local, why));
    }

    /// When the last rank has started: reports once which ranks are unbound, and why.
    pub(super) fn settle_notice(&mut self, out: &mut Vec<Effect>) {
        if self.unbound.is_empty() || self.ranks.iter().any(|rank| rank.phase == Phase::Starting) {
            return;
        }
        let unbound = std::mem::take(&mut self.unbound);
        let ranks: CpuSet = unbound.iter().map(|(local, _)| self.ranks[*local].rank).collect();
        let (noun, why) = (if unbound.len() == 1 { "rank" } else { "ranks" }, &unbound[0].1);
        let text = format!("{noun} {ranks} {} unbound: {why}", if unbound.len() == 1 { "runs" } else { "run" });
        if self.notices.is_empty() {
            self.notify_user(text, out);
        }
    }

    /// Sends a notice to the user, and again on every new link.
    pub(super) fn notify_user(&mut self, text: String, out: &mut Vec<Effect>) {
        self.send_one(text.clone(), out);
        self.notices.push(text);
    }

    pub(super) fn send_notices(&self, out: &mut Vec<Effect>) {
        self.notices.iter().for_each(|text| self.send_one(text.clone(), out));
    }

    fn send_one(&self, text: String, out: &mut Vec<Effect>) {
        self.send(up::Body::Notice(wire::Notice { job: self.job, node: self.node, text }), out);
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{Gpu, Inventory, JobSpec, NodeBinding, Range, RankBinding};

    use super::*;
    use crate::taskmap::TaskMapBuilder;

    fn map() -> TaskMap {
        let mut map = TaskMapBuilder::default();
        map.push(3, 2);
        map.push(5, 1);
        map.build().unwrap()
    }

    fn inventory() -> Inventory {
        let topology = Topology::regular(&[(Kind::Numa, 2), (Kind::Core, 2), (Kind::Thread, 2)]).unwrap();
        let gpu = |index: u32, uuid: &str| Gpu { index, uuid: uuid.into(), ..Gpu::default() };
        Inventory {
            topology: Some((&topology).into()),
            gpus: vec![gpu(0, "GPU-a"), gpu(4, "")],
            ..Inventory::default()
        }
    }

    fn rank(first: u32, count: u32, gpus: &[u32]) -> RankBinding {
        let threads = if count == 0 { Vec::new() } else { vec![Range { first, count }] };
        RankBinding { threads, gpus: gpus.to_vec(), ..RankBinding::default() }
    }

    fn launch(bindings: &[&[RankBinding]], runs: &[(u32, u32)]) -> LaunchBody {
        LaunchBody {
            spec: Some(JobSpec::default()),
            bindings: bindings.iter().map(|ranks| NodeBinding { ranks: ranks.to_vec() }).collect(),
            binding_runs: runs
                .iter()
                .map(|(nodes, binding)| wire::BindingRun { nodes: *nodes, binding: *binding })
                .collect(),
            ..LaunchBody::default()
        }
    }

    fn on(node: NodeId, launch: &LaunchBody, here: usize) -> Result<Vec<Part>, String> {
        parts(node, &map(), launch, &inventory(), here).map(|(parts, _)| parts)
    }

    fn cpus(part: &Part) -> &[u32] {
        &part.as_ref().unwrap().0.cpus
    }

    #[test]
    fn each_node_reads_its_own_bindings_from_the_launch() {
        let launch = launch(&[&[rank(0, 2, &[])], &[rank(2, 2, &[]), rank(0, 0, &[0])]], &[(1, 1), (1, 0)]);
        let parts = on(3, &launch, 2).unwrap();
        assert_eq!((cpus(&parts[0]), cpus(&parts[1])), (&[2, 3][..], &[][..]));
        assert_eq!(parts[0].as_ref().unwrap().1, ["RSD_CPUS=2-3"]);
        assert_eq!(parts[1].as_ref().unwrap().1, ["RSD_GPUS=0"]);
        assert_eq!(cpus(&on(5, &launch, 1).unwrap()[0]), [0, 1]);
        let plain = LaunchBody { spec: Some(JobSpec::default()), ..LaunchBody::default() };
        assert_eq!(on(5, &plain, 1).unwrap(), [Ok(Default::default())]);
    }

    #[test]
    fn an_inconsistent_launch_is_refused() {
        let wrong = launch(&[&[rank(0, 2, &[])]], &[(2, 0)]);
        assert_eq!(on(3, &wrong, 2), Err("invalid launch: bindings for 1 of the 2 ranks of node 3".into()));
        let short = launch(&[&[]], &[(1, 0)]);
        assert_eq!(on(5, &short, 1), Err("invalid launch: it does not say how the ranks of node 5 are bound".into()));
        let beyond = launch(&[&[rank(7, 2, &[]), rank(0, 0, &[9])]], &[(1, 0)]);
        let parts = on(3, &beyond, 2).unwrap();
        assert!(parts[0].as_ref().is_err_and(|why| why.starts_with("the cpus of its node have changed")));
        assert!(parts[1].as_ref().is_err_and(|why| why.starts_with("its node no longer has GPU 9")));
    }

    #[test]
    fn memory_is_near_the_cpus_and_an_unbound_rank_gets_all_usable_memory() {
        let with = |mem_bind: &str, binding: RankBinding, usable: Vec<Range>| {
            let mut launch = launch(&[&[binding]], &[(2, 0)]);
            launch.spec = Some(JobSpec { mem_bind: mem_bind.into(), ..JobSpec::default() });
            let (parts, _) = parts(5, &map(), &launch, &Inventory { usable, ..inventory() }, 1).unwrap();
            parts[0].as_ref().unwrap().0.memory.clone()
        };
        assert_eq!(with("", rank(0, 2, &[]), vec![]), None);
        assert_eq!(with("local", rank(4, 2, &[]), vec![]), Some(MemoryBinding::Only(vec![1])));
        assert_eq!(with("preferred", rank(2, 4, &[]), vec![]), Some(MemoryBinding::First(vec![0, 1])));
        assert_eq!(with("interleave", rank(0, 0, &[]), vec![]), Some(MemoryBinding::InTurn(vec![0, 1])));
        assert_eq!(
            with("interleave", rank(0, 0, &[]), vec![Range { first: 5, count: 2 }]),
            Some(MemoryBinding::InTurn(vec![1]))
        );
    }

    #[test]
    fn gpus_are_made_visible_by_uuid_or_not_at_all() {
        let with = |gpus: &[u32]| {
            let mut launch = launch(&[&[rank(0, 0, gpus)]], &[(2, 0)]);
            launch.spec = Some(JobSpec { gpus_visible: true, ..JobSpec::default() });
            on(5, &launch, 1).unwrap().remove(0)
        };
        assert_eq!(with(&[0]).unwrap().1, ["RSD_GPUS=0", "CUDA_VISIBLE_DEVICES=GPU-a"]);
        assert!(with(&[0, 1]).is_err_and(|why| why.starts_with("GPU 4 of its node has no UUID")));
    }
}
