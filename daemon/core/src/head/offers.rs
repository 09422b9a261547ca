//! What the nodes offer, as the head knows it: what they have, what jobs hold of it, and what placement makes of that.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use rsd_proto::v1::{self as wire, JobSpec, NodeInfo};

use crate::head::{HEAD, Head};
use crate::place::cpuset::CpuSet;
use crate::place::topology::{Kind, Topology};
use crate::place::{self, Gpu, NodeOffer};
use crate::{NodeId, plan};

/// A node of the DVM.
#[derive(Debug)]
pub(crate) struct Node {
    /// Without its topology.
    pub(crate) info: NodeInfo,
    /// While it is away: since when.
    pub(crate) away: Option<Duration>,
    /// Its processor; a single thread where it tells none that makes sense.
    topology: Arc<Topology>,
    usable: CpuSet,
    gpus: Arc<[Gpu]>,
}

/// What nodes alike share.
#[derive(Debug, Default)]
pub(crate) struct Alike {
    topologies: HashSet<Arc<Topology>>,
    gpus: HashSet<Arc<[Gpu]>>,
}

impl Alike {
    /// The node of that account, which was taken at its word before only if it made sense.
    pub(crate) fn node(&mut self, mut info: NodeInfo, away: Option<Duration>) -> Node {
        let inventory = info.inventory.get_or_insert_default();
        let told = inventory.topology.take();
        let topology = told
            .and_then(|told| Topology::try_from(&told).ok())
            .unwrap_or_else(|| Topology::regular(&[(Kind::Core, 1)]).expect("one core is a machine"));
        let usable = match plan::cpu_set(&inventory.usable, topology.threads()) {
            none if none.is_empty() => topology.all(),
            some => some,
        };
        let gpus = plan::gpus(&inventory.gpus, topology.threads());
        let (topology, gpus) = (shared(&mut self.topologies, Arc::new(topology)), shared(&mut self.gpus, gpus.into()));
        Node { info, away, topology, usable, gpus }
    }
}

/// The one that is equal, or this one from now on. What nobody has any more is let go.
fn shared<T: ?Sized + Eq + Hash>(known: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if let Some(known) = known.get(&new) {
        return Arc::clone(known);
    }
    known.retain(|known| Arc::strong_count(known) > 1);
    known.insert(Arc::clone(&new));
    new
}

/// What the nodes are to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// What those that are up have left.
    Now,
    /// The same, and those away as if they were full.
    WithAway,
    /// All that those that are up have.
    Idle,
}

impl Head {
    pub(crate) fn slots(&self) -> u32 {
        self.nodes.values().filter_map(|node| node.info.inventory.as_ref()).map(|inventory| inventory.slots).sum()
    }

    pub(crate) fn slots_in_use(&self) -> u32 {
        self.in_use().values().sum()
    }

    pub(crate) fn in_use(&self) -> HashMap<NodeId, u32> {
        let mut in_use = HashMap::new();
        for (node, ranks) in self.alive().flat_map(|job| &job.used) {
            *in_use.entry(*node).or_insert(0) += ranks;
        }
        in_use
    }

    /// Where a job goes now, or why nowhere. A node whose link is down takes nothing, but a job that needs it can wait for it
    /// to come back.
    pub(crate) fn place(&self, wanted: &place::Request) -> Result<place::Placement, place::Refusal> {
        let refusal = match place::place(&self.offers(Asked::Now), wanted, HEAD) {
            Ok(placement) => return Ok(placement),
            Err(refusal) if refusal.fits_when_idle() => return Err(refusal),
            Err(refusal) => refusal,
        };
        let wanted = place::Request { oversubscribe: false, ..wanted.clone() };
        match place::place(&self.offers(Asked::WithAway), &wanted, HEAD) {
            Err(with_away) if with_away.fits_when_idle() => Err(with_away),
            Ok(_) | Err(_) => Err(refusal),
        }
    }

    /// Where a job would go; `idle`: if no other ran.
    pub(crate) fn plan(&self, spec: &JobSpec, idle: bool) -> wire::PlanReply {
        let offers = self.offers(if idle { Asked::Idle } else { Asked::Now });
        let outcome = plan::request(spec).and_then(|wanted| match idle {
            true => place::place(&offers, &wanted, HEAD),
            false => self.place(&wanted),
        });
        let inventory = |node| self.nodes.get(&node).and_then(|node| node.info.inventory.as_ref());
        plan::reply(&offers, &outcome, |node| inventory(node).map(|found| found.gpus.clone()).unwrap_or_default())
    }

    /// What the nodes offer.
    fn offers(&self, asked: Asked) -> Vec<NodeOffer> {
        let (in_use, mut held) = match asked {
            Asked::Now | Asked::WithAway => (self.in_use(), self.held()),
            Asked::Idle => (HashMap::new(), HashMap::new()),
        };
        let mut offer = |node: &Node| {
            let id = node.info.node;
            let (slots, reason) = match &node.info.inventory {
                Some(inventory) => (inventory.slots, inventory.slots_reason.as_str()),
                None => (0, ""),
            };
            let used = in_use.get(&id).copied().unwrap_or(0);
            let away = node.away.is_some();
            let (taken, gpus_taken) = held.remove(&id).unwrap_or_default();
            NodeOffer {
                id,
                name: node.info.name.clone(),
                slots,
                slots_reason: if away { "its link is down".into() } else { reason.into() },
                in_use: if away { used.max(slots) } else { used },
                topology: Arc::clone(&node.topology),
                usable: node.usable.clone(),
                taken,
                gpus: Arc::clone(&node.gpus),
                gpus_taken,
            }
        };
        let there = |node: &&Node| node.away.is_none() || asked == Asked::WithAway;
        self.nodes.values().filter(there).map(&mut offer).collect()
    }

    /// The threads and GPUs that jobs have for themselves, by node.
    fn held(&self) -> HashMap<NodeId, (CpuSet, CpuSet)> {
        let mut held: HashMap<NodeId, (CpuSet, CpuSet)> = HashMap::new();
        let alive = self.alive();
        for (node, threads, gpus) in alive.flat_map(|job| job.bound.held(job.map.nodes())) {
            let (all_threads, all_gpus) = held.entry(node).or_default();
            *all_threads = all_threads.or(threads);
            *all_gpus = all_gpus.or(gpus);
        }
        held
    }
}
