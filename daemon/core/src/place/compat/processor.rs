//! A node's processor as a row of cpus, with objects as ranges of cpus.
//!
//! ```text
//! cpus     0 1 2 3   4 5 6 7      the cores or hardware threads that ranks may use
//! package  [0 .. 4)  [4 .. 8)
//! core     [0][1]…               when cpus are threads: [0 .. 2) [2 .. 4) …
//! hwthread  —                    when cpus are cores of two threads: a thread contains no whole cpu
//! ```

use std::ops::Range;

use crate::place::cpuset::CpuSet;
use crate::place::topology::{Kind, Topology};

/// What counts as a cpu: [`Kind::Core`] or [`Kind::Thread`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Core,
    Thread,
}

impl Unit {
    pub(super) fn kind(self) -> Kind {
        match self {
            Unit::Core => Kind::Core,
            Unit::Thread => Kind::Thread,
        }
    }
}

/// A node's processor, as drawn above.
#[derive(Debug)]
pub(super) struct Processor {
    /// The threads of each cpu.
    cpus: Vec<CpuSet>,
    /// By [`Kind`]: the objects with a usable thread, in logical order.
    objects: [Vec<Object>; Kind::ALL.len()],
}

/// An object, reduced to what ranks may use.
#[derive(Debug)]
pub(super) struct Object {
    /// At least one.
    pub(super) threads: CpuSet,
    /// The cpus that lie entirely in it.
    pub(super) cpus: Range<usize>,
}

impl Processor {
    pub(super) fn new(topology: &Topology, usable: &CpuSet, unit: Unit) -> Processor {
        let held = |threads: &Range<u32>| usable.and(&CpuSet::range(threads.clone()));
        let cpus = topology.objects(unit.kind()).iter().map(|cpu| held(&cpu.threads));
        let cpus: Vec<CpuSet> = cpus.filter(|threads| !threads.is_empty()).collect();
        let spans: Vec<Range<u32>> = cpus.iter().filter_map(span).collect();
        let objects = Kind::ALL.map(|kind| {
            let objects = topology.objects(kind).iter().map(|object| {
                let first = spans.partition_point(|cpu| cpu.start < object.threads.start);
                let count = spans[first..].partition_point(|cpu| cpu.end <= object.threads.end);
                Object { threads: held(&object.threads), cpus: first..first + count }
            });
            objects.filter(|object| !object.threads.is_empty()).collect()
        });
        Processor { cpus, objects }
    }

    pub(super) fn objects(&self, kind: Kind) -> &[Object] {
        &self.objects[kind as usize]
    }

    /// The object of `kind` that entirely contains a cpu.
    pub(super) fn holder(&self, kind: Kind, cpu: usize) -> Option<&Object> {
        let objects = self.objects(kind);
        objects
            .get(objects.partition_point(|object| object.cpus.end <= cpu))
            .filter(|object| object.cpus.contains(&cpu))
    }

    /// All cpus.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.cpus.len()
    }

    /// The threads of these cpus.
    pub(super) fn threads_of(&self, cpus: impl IntoIterator<Item = usize>) -> CpuSet {
        cpus.into_iter().fold(CpuSet::EMPTY, |threads, cpu| threads.or(&self.cpus[cpu]))
    }

    /// For each cpu, whether it has none of these threads.
    pub(super) fn free_of(&self, taken: &CpuSet) -> Vec<bool> {
        self.cpus.iter().map(|threads| !threads.intersects(taken)).collect()
    }
}

/// The range from the first to the last thread.
fn span(threads: &CpuSet) -> Option<Range<u32>> {
    Some(threads.first()?..threads.iter().last()? + 1)
}
