//! A node's processor as one request sees it: the free units, which are handed out whole.
//!
//! ```text
//! package  [0............7] [8...........15]      usable  0-11   by the affinity mask, the cpuset and the pe-list
//! core     [0 1][2 3][4 5][6 7][8 9][10 11]…      taken   2      held by another job
//!           free taken free free free  free        cores   {0 1} {4 5} {6 7} {8 9} {10 11}: only whole ones
//! ```
//!
//! Nodes that are alike share one machine, so the work for it is done once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::cpuset::CpuSet;
use super::policy::Directive;
use super::topology::{Kind, Topology};
use super::wants::{Binding, Wants};
use super::{Gpu, NodeOffer};

/// A processor and its free parts.
#[derive(Debug)]
pub(super) struct Machine<'a> {
    pub(super) topology: &'a Topology,
    /// The threads that this request may use, taken or not.
    pub(super) usable: CpuSet,
    /// The usable threads of each core without a taken thread, in the order in which cores are handed out.
    pub(super) cores: Vec<CpuSet>,
    /// The same for threads; empty if the request does not need threads.
    pub(super) threads: Vec<CpuSet>,
    /// The usable threads of each object that ranks are mapped to; empty: ranks are not mapped to objects.
    pub(super) objects: Vec<CpuSet>,
    /// The kind of `objects`, if the node lacks the requested kind: the next larger one; the inner `None` is the node.
    pub(super) instead: Option<Option<Kind>>,
    pub(super) gpus: &'a [Gpu],
    pub(super) gpus_free: CpuSet,
    /// Whether cpus are handed out in the order of the user's list.
    pub(super) ordered: bool,
}

impl<'a> Machine<'a> {
    fn new(node: &'a NodeOffer, wants: &Wants<'_>) -> Machine<'a> {
        let topology = &*node.topology;
        let usable = node.usable.and(&topology.all());
        let (listed, ordered) = match &wants.directive {
            Directive::PeList { cpus, ordered } => (Some(cpus), *ordered),
            Directive::Slot
            | Directive::Node
            | Directive::Object(_)
            | Directive::Ppr { .. }
            | Directive::Seq
            | Directive::Rankfile => (None, false),
        };
        let pick = |kind: Kind| -> Vec<CpuSet> {
            let objects = topology.objects(kind);
            let whole = |at: usize| CpuSet::range(objects[at].threads.clone()).and(&usable);
            let free = |threads: &CpuSet| !threads.is_empty() && !threads.intersects(&node.taken);
            let places: Vec<usize> = match listed.filter(|_| kind == wants.cpu) {
                None => (0..objects.len()).collect(),
                Some(cpus) => places(cpus, ordered, objects.len()),
            };
            places.into_iter().map(whole).filter(free).collect()
        };
        let union = |sets: &[CpuSet]| sets.iter().fold(CpuSet::EMPTY, |all, set| all.or(set));
        let by_thread = wants.cpu == Kind::Thread || wants.binding == Binding::Object(Kind::Thread);
        let (mut cores, mut threads) = (pick(Kind::Core), if by_thread { pick(Kind::Thread) } else { Vec::new() });
        let usable = match (listed, wants.cpu) {
            (None, _) => usable,
            (Some(_), Kind::Thread) => {
                cores.clear();
                union(&threads)
            }
            (Some(_), _) => {
                let listed = union(&cores);
                threads.retain(|thread| thread.is_subset(&listed));
                listed
            }
        };
        let mut machine = Machine {
            topology,
            usable,
            cores,
            threads,
            objects: Vec::new(),
            instead: None,
            gpus: &node.gpus,
            gpus_free: CpuSet::range(0..node.gpus.len() as u32).minus(&node.gpus_taken),
            ordered,
        };
        if let Some(kind) = wants.mapped_kind() {
            machine.map_to(kind);
        }
        machine
    }

    /// Sets `objects` to those of a kind with a usable thread, else to those of the next larger kind, else to the node.
    fn map_to(&mut self, kind: Kind) {
        let wider = Kind::ALL[..=kind as usize].iter().rev();
        let found = wider.map(|kind| (*kind, self.parts(*kind))).find(|(_, objects)| !objects.is_empty());
        match found {
            Some((is, objects)) => (self.objects, self.instead) = (objects, (is != kind).then_some(Some(is))),
            None => (self.objects, self.instead) = (vec![self.usable.clone()], Some(None)),
        }
    }

    /// The usable threads of each object of a kind that has any.
    pub(super) fn parts(&self, kind: Kind) -> Vec<CpuSet> {
        let part = |threads: &std::ops::Range<u32>| CpuSet::range(threads.clone()).and(&self.usable);
        let parts = self.topology.objects(kind).iter().map(|object| part(&object.threads));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// The free cpus: cores or threads.
    pub(super) fn cpus(&self, cpu: Kind) -> &[CpuSet] {
        if cpu == Kind::Thread { &self.threads } else { &self.cores }
    }

    /// How many cpus ranks may use, free or not.
    pub(super) fn cpus_at_all(&self, cpu: Kind) -> u32 {
        self.topology.objects_of(cpu, &self.usable).len()
    }

    /// How many objects ranks are mapped to; 1 if ranks are not mapped to objects.
    pub(super) fn places(&self) -> u32 {
        self.objects.len().max(1) as u32
    }
}

/// The listed cpus that exist, each once, in the order in which they are handed out.
fn places(cpus: &[u32], ordered: bool, there: usize) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut places: Vec<usize> =
        cpus.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < there && seen.insert(*cpu)).collect();
    if !ordered {
        places.sort_unstable();
    }
    places
}

/// The machines of all nodes.
pub(super) struct Machines<'a> {
    /// The distinct machines.
    pub(super) all: Vec<Machine<'a>>,
    /// `of[i]` is node i's.
    pub(super) of: Vec<usize>,
}

impl<'a> Machines<'a> {
    /// Builds one machine for each group of nodes that are alike. Cost: a machine per group, and a hash of its sets per node.
    pub(super) fn of(nodes: &'a [NodeOffer], wants: &Wants<'_>) -> Machines<'a> {
        let mut topologies = Interned::default();
        let mut gpus = Interned::default();
        let mut known = HashMap::new();
        let mut machines = Machines { all: Vec::new(), of: Vec::with_capacity(nodes.len()) };
        for node in nodes {
            let topology = topologies.index(Arc::as_ptr(&node.topology).cast(), &*node.topology);
            let gpus = gpus.index(Arc::as_ptr(&node.gpus).cast(), &node.gpus[..]);
            let key = (topology, gpus, &node.usable, &node.taken, &node.gpus_taken);
            let index = *known.entry(key).or_insert_with(|| {
                machines.all.push(Machine::new(node, wants));
                machines.all.len() - 1
            });
            machines.of.push(index);
        }
        machines
    }

    /// Node i's machine.
    pub(super) fn on(&self, node: usize) -> &Machine<'a> {
        &self.all[self.of[node]]
    }
}

/// Numbers values behind shared pointers: by pointer if it is known, else by value.
struct Interned<'a, T: ?Sized> {
    by_pointer: HashMap<*const u8, usize>,
    by_value: HashMap<&'a T, usize>,
}

impl<T: ?Sized> Default for Interned<'_, T> {
    fn default() -> Self {
        Interned { by_pointer: HashMap::new(), by_value: HashMap::new() }
    }
}

impl<'a, T: ?Sized + Eq + std::hash::Hash> Interned<'a, T> {
    fn index(&mut self, pointer: *const u8, value: &'a T) -> usize {
        *self.by_pointer.entry(pointer).or_insert_with(|| {
            let next = self.by_value.len();
            *self.by_value.entry(value).or_insert(next)
        })
    }
}
