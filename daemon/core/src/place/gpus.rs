//! Chooses each rank's GPUs on a node: a fixed number per rank, none shared, as near to its threads as possible.

use super::Gpu;
use super::cpuset::CpuSet;
use super::machine::Machine;
use super::topology::Kind;

/// A node's GPUs while they are handed out.
pub(super) struct Rack<'a> {
    machine: &'a Machine<'a>,
    open: CpuSet,
}

impl<'a> Rack<'a> {
    /// All free GPUs of a node.
    pub(super) fn new(machine: &'a Machine<'a>) -> Rack<'a> {
        Rack { machine, open: machine.gpus_free.clone() }
    }

    /// Takes the `each` open GPUs that are nearest to `threads`, or without threads ones that are near each other. The node's offer
    /// was capped by its GPUs, so there are enough.
    pub(super) fn take(&mut self, each: u32, threads: Option<&CpuSet>) -> Vec<u32> {
        let mut gpus: Vec<u32> = match threads {
            Some(threads) => self.by_distance(threads).take(each as usize).collect(),
            None => {
                let together = self.open.iter().find(|gpu| self.alike(*gpu).count() >= each as usize);
                match together {
                    Some(gpu) => self.alike(gpu).take(each as usize).collect(),
                    None => self.open.iter().take(each as usize).collect(),
                }
            }
        };
        gpus.sort_unstable();
        self.open = self.open.minus(&gpus.iter().copied().collect());
        gpus
    }

    /// The usable threads near any of these GPUs; `None` if that is not known.
    pub(super) fn near(&self, gpus: &[u32]) -> Option<CpuSet> {
        let near = gpus.iter().fold(CpuSet::EMPTY, |all, gpu| all.or(&self.gpu(*gpu).near));
        Some(near.and(&self.machine.usable)).filter(|near| !near.is_empty())
    }

    fn gpu(&self, at: u32) -> &'a Gpu {
        &self.machine.gpus[at as usize]
    }

    /// The open GPUs, nearest first: near the threads, in their packages, elsewhere, at an unknown place.
    fn by_distance(&self, threads: &CpuSet) -> impl Iterator<Item = u32> + use<> {
        let topology = self.machine.topology;
        let packages = topology.objects_of(Kind::Package, threads);
        let distance = |at: u32| {
            let near = &self.gpu(at).near;
            match near.intersects(threads) {
                true => 0,
                false if topology.objects_of(Kind::Package, near).intersects(&packages) => 1,
                false if !near.is_empty() => 2,
                false => 3,
            }
        };
        let mut open: Vec<(u32, u32)> = self.open.iter().map(|at| (distance(at), at)).collect();
        open.sort_unstable();
        open.into_iter().map(|(_, at)| at)
    }

    /// The open GPUs with the same near threads.
    fn alike(&self, gpu: u32) -> impl Iterator<Item = u32> + '_ {
        self.open.iter().filter(move |other| self.gpu(*other).near == self.gpu(gpu).near)
    }
}
