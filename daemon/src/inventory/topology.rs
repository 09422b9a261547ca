//! The processor as hwloc reports it.
//!
//! With HWLOC_SYNTHETIC or HWLOC_XMLFILE, hwloc itself reads the description of another machine. Ranks are then placed on that
//! machine and not bound, unless HWLOC_THISSYSTEM=1 says that the description is this machine's.
//!
//! hwloc numbers threads in the order of its tree, and every object of the tree is a range of them. NUMA nodes hang beside the
//! tree, which the Rust bindings do not expose; but every thread lists the NUMA nodes that are local to it, which is equivalent.

use std::collections::BTreeMap;

use hwloc2::{ObjectType, TopologyFlag, TopologyObject};
use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Object, Topology};

/// The result of hwloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) topology: Topology,
    /// Whether it is the machine that this process runs on: processes can be bound to its threads.
    pub(crate) is_this: bool,
}

/// Reads the whole machine, including threads that the cgroup forbids: the reason for the slots says "2 of 8 cores". `None` if
/// hwloc has no usable topology. Loads no I/O devices, and frees the library's memory.
pub(crate) fn read() -> Option<Machine> {
    let found = hwloc2::Topology::with_flags(vec![TopologyFlag::IncludeDisallowed])?;
    // hwloc cannot bind processes to another machine.
    let is_this = found.support().cpu().set_current_process();
    let threads: Vec<Thread> = objects(&found, ObjectType::PU).into_iter().map(Thread::of).collect();
    let of = |kind, object_type| {
        let sets = objects(&found, object_type).into_iter().map(|object| (cpus(object), object.os_index()));
        (kind, sets.collect::<Vec<_>>())
    };
    let levels = [
        of(Kind::Package, ObjectType::Package),
        of(Kind::L3, ObjectType::L3Cache),
        of(Kind::L2, ObjectType::L2Cache),
        of(Kind::L1, ObjectType::L1Cache),
        of(Kind::Core, ObjectType::Core),
    ];
    build(&threads, levels).map(|topology| Machine { topology, is_this })
}

/// A hardware thread: the kernel's number, and those of the NUMA nodes that it is local to.
#[derive(Debug, Clone)]
struct Thread {
    os: u32,
    numa: Vec<u32>,
}

impl Thread {
    fn of(object: &TopologyObject) -> Thread {
        let numa = object.nodeset().map(|set| set.into_iter().collect()).unwrap_or_default();
        Thread { os: object.os_index(), numa }
    }
}

/// Returns the objects of a type in logical order; none if the machine has or reports none.
fn objects(found: &hwloc2::Topology, object_type: ObjectType) -> Vec<&TopologyObject> {
    found.objects_with_type(&object_type).unwrap_or_default()
}

fn cpus(object: &TopologyObject) -> Vec<u32> {
    object.cpuset().map(|set| set.into_iter().collect()).unwrap_or_default()
}

/// Objects by the kernel's numbers of their threads, each with its own number.
type Level = (Kind, Vec<(Vec<u32>, u32)>);

fn build(threads: &[Thread], levels: impl IntoIterator<Item = Level>) -> Option<Topology> {
    let logical: BTreeMap<u32, u32> = threads.iter().zip(0..).map(|(thread, at)| (thread.os, at)).collect();
    let mut objects = Vec::new();
    for (kind, sets) in levels {
        let sets = sets.into_iter().map(|(cpus, os)| {
            let threads: CpuSet = cpus.iter().filter_map(|cpu| logical.get(cpu).copied()).collect();
            (threads, os)
        });
        objects.extend(whole(sets).into_iter().map(|object| (kind, object)));
    }
    objects.extend(whole(numa_nodes(threads)).into_iter().map(|object| (Kind::Numa, object)));
    let os: Vec<u32> = threads.iter().map(|thread| thread.os).collect();
    Topology::new(&os, objects).ok()
}

/// Returns the NUMA nodes by their threads. If several nodes are local to a thread (fast memory and large memory, or memory of
/// the whole machine and of a package), it belongs to the node with the fewest threads, then to the one with the lowest number.
fn numa_nodes(threads: &[Thread]) -> Vec<(CpuSet, u32)> {
    let mut nodes: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (thread, at) in threads.iter().zip(0..) {
        thread.numa.iter().for_each(|node| nodes.entry(*node).or_default().insert(at));
    }
    let mut nodes: Vec<(CpuSet, u32)> = nodes.into_iter().map(|(os, threads)| (threads, os)).collect();
    nodes.sort_by_key(|(threads, os)| (threads.len(), *os));
    let mut covered = CpuSet::EMPTY;
    nodes.retain(|(threads, _)| {
        let free = !threads.intersects(&covered);
        if free {
            covered = covered.or(threads);
        }
        free
    });
    nodes
}

/// Returns the objects that are one range of threads each, in logical order; placement cannot use an object in pieces.
fn whole(sets: impl IntoIterator<Item = (CpuSet, u32)>) -> Vec<Object> {
    let one = |(set, os): (CpuSet, u32)| match &set.ranges()[..] {
        [range] => Some(Object { threads: range.clone(), os }),
        _ => None,
    };
    let mut objects: Vec<Object> = sets.into_iter().filter_map(one).collect();
    objects.sort_by_key(|object| object.threads.start);
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(numa: &[&[u32]]) -> Vec<Thread> {
        numa.iter().zip(0..).map(|(numa, os)| Thread { os, numa: numa.to_vec() }).collect()
    }

    fn ranges(topology: &Topology, kind: Kind) -> Vec<(std::ops::Range<u32>, u32)> {
        topology.objects(kind).iter().map(|object| (object.threads.clone(), object.os)).collect()
    }

    #[test]
    fn logical_numbers_follow_the_tree_and_not_the_kernel() {
        let threads: Vec<Thread> = [0, 4, 1, 5].map(|os| Thread { os, numa: vec![0] }).into();
        let cores = vec![(vec![0, 4], 0), (vec![1, 5], 1)];
        let topology = build(&threads, [(Kind::Core, cores)]).unwrap();
        assert_eq!(ranges(&topology, Kind::Core), [(0..2, 0), (2..4, 1)]);
        assert_eq!(topology.os_threads(&CpuSet::range(1..3)), [1, 4]);
        assert_eq!(ranges(&topology, Kind::Numa), [(0..4, 0)]);
    }

    #[test]
    fn a_thread_belongs_to_its_nearest_numa_node() {
        // Memory of the whole machine (2), and one node per package.
        let far = threads(&[&[0, 2], &[0, 2], &[1, 2], &[1, 2]]);
        assert_eq!(ranges(&build(&far, []).unwrap(), Kind::Numa), [(0..2, 0), (2..4, 1)]);
        // Fast memory (2 and 3) beside the ordinary.
        let fast = threads(&[&[0, 2], &[0, 2], &[1, 3], &[1, 3]]);
        assert_eq!(ranges(&build(&fast, []).unwrap(), Kind::Numa), [(0..2, 0), (2..4, 1)]);
        assert_eq!(ranges(&build(&threads(&[&[], &[]]), []).unwrap(), Kind::Numa), []);
    }

    #[test]
    fn without_cores_each_thread_is_a_core_and_a_broken_object_is_left_out() {
        let topology = build(&threads(&[&[0], &[0], &[0]]), [(Kind::L3, vec![(vec![0, 2], 0), (vec![], 1)])]).unwrap();
        assert_eq!(topology.objects(Kind::Core).len(), 3);
        assert_eq!(ranges(&topology, Kind::L3), []);
        assert_eq!(build(&[], []), None);
    }

    #[test]
    fn this_machine_has_a_topology() {
        let Machine { topology, is_this } = read().unwrap();
        assert!(is_this && topology.threads() >= 1, "{topology:?}");
        assert!(topology.objects(Kind::Numa).iter().all(|node| !node.threads.is_empty()), "{topology:?}");
    }
}
