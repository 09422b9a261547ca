//! A node's processor as placement sees it: hardware threads by logical index, and the objects that contain them.
//!
//! ```text
//! package  [0......................7] [8.....................15]
//! numa     [0......................7] [8.....................15]
//! l3       [0......................7] [8.....................15]
//! core     [0  1][2  3][4  5][6  7] [8  9][10 11][12 13][14 15]
//! thread    0  1  2  3  4  5  6  7   8  9  10 11  12 13  14 15    logical: in the order of the tree
//! os        0  8  1  9  2 10  3 11   4 12   5 13   6 14   7 15    the kernel's numbers
//! ```
//!
//! Threads are numbered in the order of the tree, as hwloc does, so every object is a range. All decisions use logical indexes.
//! They are translated to the kernel's numbers only when a rank is started.

use std::ops::Range;

use rsd_proto::v1 as wire;
use thiserror::Error;

use super::cpuset::CpuSet;

/// The kinds of objects of a processor, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A package: the chip in one socket.
    Package,
    /// A NUMA node: threads that share local memory.
    Numa,
    /// A third-level cache.
    L3,
    /// A second-level cache.
    L2,
    /// A first-level data cache.
    L1,
    /// A core.
    Core,
    /// A hardware thread (PU).
    Thread,
}

impl Kind {
    /// All kinds, outermost first.
    pub const ALL: [Kind; 7] = [Kind::Package, Kind::Numa, Kind::L3, Kind::L2, Kind::L1, Kind::Core, Kind::Thread];

    /// The name in options: `package`, `numa`, `l3cache`, `l2cache`, `l1cache`, `core`, `hwthread`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Package => "package",
            Kind::Numa => "numa",
            Kind::L3 => "l3cache",
            Kind::L2 => "l2cache",
            Kind::L1 => "l1cache",
            Kind::Core => "core",
            Kind::Thread => "hwthread",
        }
    }
}

/// An object: its threads, and the kernel's number where that matters (NUMA nodes, threads).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    /// Threads by logical index; at least one.
    pub threads: Range<u32>,
    /// The kernel's number.
    pub os: u32,
}

/// A processor. It is immutable; nodes that are alike share one through an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topology {
    /// By [`Kind`], in logical order. Cores and threads always exist; other kinds may be missing.
    levels: [Vec<Object>; Kind::ALL.len()],
}

/// Why a topology is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// No threads.
    #[error("the topology has no hardware thread")]
    NoThreads,
    /// More than [`THREADS_MAX`] threads.
    #[error("the topology has {threads} hardware threads, more than {THREADS_MAX}")]
    TooMany {
        /// How many.
        threads: usize,
    },
    /// An object is empty, out of order, or has threads that do not exist.
    #[error("{} {index} of the topology is empty, out of order or beyond its threads", kind.name())]
    BadObject {
        /// Its kind.
        kind: Kind,
        /// Its logical index.
        index: usize,
    },
}

/// The most hardware threads of a node.
pub const THREADS_MAX: usize = 1 << 14;

impl Topology {
    /// A topology of checked objects: those of a kind in ascending order and apart from each other. `threads[i]` is the
    /// kernel's number of logical thread i. Without cores every thread counts as a core.
    pub fn new(threads: &[u32], objects: impl IntoIterator<Item = (Kind, Object)>) -> Result<Topology, TopologyError> {
        if threads.is_empty() {
            return Err(TopologyError::NoThreads);
        }
        if threads.len() > THREADS_MAX {
            return Err(TopologyError::TooMany { threads: threads.len() });
        }
        let count = threads.len() as u32;
        let mut levels: [Vec<Object>; Kind::ALL.len()] = Default::default();
        for (kind, object) in objects {
            if kind == Kind::Thread {
                continue;
            }
            let level = &mut levels[kind as usize];
            let behind = level.last().map_or(0, |last| last.threads.end);
            if object.threads.is_empty() || object.threads.start < behind || object.threads.end > count {
                return Err(TopologyError::BadObject { kind, index: level.len() });
            }
            level.push(object);
        }
        let thread = |at: u32| Object { threads: at..at + 1, os: threads[at as usize] };
        levels[Kind::Thread as usize] = (0..count).map(thread).collect();
        if levels[Kind::Core as usize].is_empty() {
            levels[Kind::Core as usize] = (0..count).map(|at| Object { threads: at..at + 1, os: at }).collect();
        }
        Ok(Topology { levels })
    }

    /// A regular machine, such as `[(Package, 2), (Core, 4), (Thread, 2)]`: each object contains that many objects of the next
    /// kind, outermost first. The kernel's numbers equal the logical ones.
    pub fn regular(counts: &[(Kind, u32)]) -> Result<Topology, TopologyError> {
        let per = |counts: &[(Kind, u32)]| counts.iter().map(|(_, n)| *n as usize).product::<usize>();
        let threads = per(counts);
        if threads == 0 || threads > THREADS_MAX {
            return Err(if threads == 0 { TopologyError::NoThreads } else { TopologyError::TooMany { threads } });
        }
        let objects = counts.iter().enumerate().flat_map(|(at, (kind, _))| {
            let (number, size) = (per(&counts[..=at]) as u32, per(&counts[at + 1..]) as u32);
            (0..number).map(move |i| (*kind, Object { threads: i * size..(i + 1) * size, os: i }))
        });
        let objects: Vec<_> = objects.collect();
        Topology::new(&(0..threads as u32).collect::<Vec<_>>(), objects)
    }

    /// The objects of a kind in logical order; empty if the machine reports none.
    pub fn objects(&self, kind: Kind) -> &[Object] {
        &self.levels[kind as usize]
    }

    /// How many hardware threads it has.
    pub fn threads(&self) -> u32 {
        self.objects(Kind::Thread).len() as u32
    }

    /// All threads.
    pub fn all(&self) -> CpuSet {
        CpuSet::range(0..self.threads())
    }

    /// The logical index of the object of `kind` that holds a thread.
    pub fn object_of(&self, kind: Kind, thread: u32) -> Option<usize> {
        let objects = self.objects(kind);
        let at = objects.partition_point(|object| object.threads.end <= thread);
        objects.get(at).is_some_and(|object| object.threads.contains(&thread)).then_some(at)
    }

    /// The logical indexes of the objects of `kind` that hold any of these threads, ascending.
    pub fn objects_of(&self, kind: Kind, threads: &CpuSet) -> CpuSet {
        threads.iter().filter_map(|thread| self.object_of(kind, thread)).map(|at| at as u32).collect()
    }

    /// The kernel's numbers of logical threads, ascending.
    pub fn os_threads(&self, threads: &CpuSet) -> Vec<u32> {
        let known = self.objects(Kind::Thread);
        let mut os: Vec<u32> = threads.iter().filter_map(|thread| known.get(thread as usize)).map(|t| t.os).collect();
        os.sort_unstable();
        os
    }
}

impl From<&Topology> for wire::Topology {
    fn from(topology: &Topology) -> wire::Topology {
        let level = |kind: Kind| wire::TopologyLevel {
            kind: kind as u32,
            first: topology.objects(kind).iter().map(|object| object.threads.start).collect(),
            count: topology.objects(kind).iter().map(|object| object.threads.end - object.threads.start).collect(),
            os: topology.objects(kind).iter().map(|object| object.os).collect(),
        };
        let told = |kind: &Kind| *kind != Kind::Thread && !topology.objects(*kind).is_empty();
        wire::Topology {
            threads: topology.objects(Kind::Thread).iter().map(|thread| thread.os).collect(),
            levels: Kind::ALL.into_iter().filter(told).map(level).collect(),
        }
    }
}

impl TryFrom<&wire::Topology> for Topology {
    type Error = TopologyError;

    /// Skips levels of kinds that this version does not know.
    fn try_from(wire: &wire::Topology) -> Result<Topology, TopologyError> {
        let mut objects = Vec::new();
        for level in &wire.levels {
            let Some(kind) = Kind::ALL.get(level.kind as usize).copied() else { continue };
            if level.first.len() != level.count.len() || level.first.len() != level.os.len() {
                return Err(TopologyError::BadObject { kind, index: 0 });
            }
            for ((first, count), os) in level.first.iter().zip(&level.count).zip(&level.os) {
                objects.push((kind, Object { threads: *first..first.saturating_add(*count), os: *os }));
            }
        }
        Topology::new(&wire.threads, objects)
    }
}

/// The name of an object's kind in sentences.
pub(super) fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Package => "package",
        Kind::Numa => "NUMA node",
        Kind::L3 => "L3 cache",
        Kind::L2 => "L2 cache",
        Kind::L1 => "L1 cache",
        Kind::Core => "core",
        Kind::Thread => "hardware thread",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_packages() -> Topology {
        Topology::regular(&[(Kind::Package, 2), (Kind::L3, 1), (Kind::Core, 4), (Kind::Thread, 2)]).unwrap()
    }

    #[test]
    fn a_regular_machine_has_ranges() {
        let machine = two_packages();
        assert_eq!(
            (machine.threads(), machine.objects(Kind::Core).len(), machine.objects(Kind::Numa).len()),
            (16, 8, 0)
        );
        assert_eq!(machine.objects(Kind::Package)[1].threads, 8..16);
        assert_eq!(machine.object_of(Kind::Core, 9), Some(4));
        assert_eq!(machine.object_of(Kind::Numa, 9), None);
        assert_eq!(machine.objects_of(Kind::Core, &CpuSet::range(3..7)).to_string(), "1-3");
    }

    #[test]
    fn a_topology_survives_the_wire() {
        let machine = Topology::new(
            &[0, 8, 1, 9],
            [
                (Kind::Package, Object { threads: 0..4, os: 0 }),
                (Kind::Core, Object { threads: 0..2, os: 0 }),
                (Kind::Core, Object { threads: 2..4, os: 1 }),
            ],
        )
        .unwrap();
        assert_eq!(machine.os_threads(&CpuSet::range(0..2)), [0, 8]);
        assert_eq!(Topology::try_from(&wire::Topology::from(&machine)), Ok(machine));
    }

    #[test]
    fn an_invalid_topology_is_refused() {
        assert_eq!(Topology::new(&[], []), Err(TopologyError::NoThreads));
        let object = |threads: Range<u32>| (Kind::L2, Object { threads, os: 0 });
        let bad = |index| Err(TopologyError::BadObject { kind: Kind::L2, index });
        assert_eq!(Topology::new(&[0, 1], [object(0..3)]), bad(0));
        assert_eq!(Topology::new(&[0, 1], [object(1..2), object(0..1)]), bad(1));
        assert_eq!(Topology::new(&[0, 1], [object(1..1)]), bad(0));
        let wire = wire::Topology {
            threads: vec![0, 1],
            levels: vec![wire::TopologyLevel { kind: 3, first: vec![u32::MAX], count: vec![9], os: vec![0] }],
        };
        assert_eq!(Topology::try_from(&wire), bad(0));
        assert!(matches!(Topology::regular(&[(Kind::Core, 1 << 20)]), Err(TopologyError::TooMany { .. })));
    }
}
