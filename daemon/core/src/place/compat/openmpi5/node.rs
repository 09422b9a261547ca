//! A node and its free cpus while ranks are placed on it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::processor::Processor;
use super::rules::Rules;
use crate::place::cpuset::CpuSet;
use crate::place::topology::Kind;

/// A node, and its ranks in placing order.
pub(super) struct Node {
    pub(super) processor: Arc<Processor>,
    /// `free[i]`: no rank has used up cpu i.
    free: Vec<bool>,
    /// `free` when the current program began.
    start: Vec<bool>,
    pub(super) ranks: Vec<Rank>,
    /// By program: how many slots the node offered, and how many ranks it got.
    pub(super) turns: HashMap<usize, (u32, u32)>,
    used: bool,
}

/// A rank that is not numbered yet.
pub(super) struct Rank {
    pub(super) app: usize,
    /// The object that it is mapped to, if any.
    pub(super) object: Option<usize>,
    pub(super) threads: CpuSet,
    /// Its number among its program's ranks on the node, or among those that `ppr` places together; from 1.
    pub(super) nth: u32,
}

/// No cpu is left to bind a rank to.
pub(super) struct NoCpu;

impl Node {
    pub(super) fn new(processor: Arc<Processor>, taken: &CpuSet) -> Node {
        let free = processor.free_of(taken);
        Node { processor, start: free.clone(), free, ranks: Vec::new(), turns: HashMap::new(), used: false }
    }

    /// Starts the next program.
    pub(super) fn begin(&mut self) {
        self.start.clone_from(&self.free);
    }

    /// Marks the node as used, and returns whether it was unused before.
    pub(super) fn enter(&mut self) -> bool {
        !std::mem::replace(&mut self.used, true)
    }

    /// A copy of the free cpus.
    pub(super) fn turn(&self) -> Vec<bool> {
        self.free.clone()
    }

    /// How many cpus are free in a range.
    pub(super) fn free_in(&self, cpus: Range<usize>) -> usize {
        self.free[cpus].iter().filter(|free| **free).count()
    }

    /// Returns the first object that still has a free cpu in the region, and uses up that cpu.
    pub(super) fn bind_one(
        &mut self,
        kind: Kind,
        rules: &Rules,
        region: Range<usize>,
        turn: &[bool],
    ) -> Result<CpuSet, NoCpu> {
        if self.processor.objects(kind).is_empty() {
            return if rules.explicit { Err(NoCpu) } else { Ok(CpuSet::EMPTY) };
        }
        let mut free = region.filter(|cpu| self.free[*cpu] && turn[*cpu]);
        let found = free.find_map(|cpu| self.processor.holder(kind, cpu).map(|object| (cpu, object.threads.clone())));
        let Some((cpu, threads)) = found else {
            return if rules.required { Err(NoCpu) } else { Ok(CpuSet::EMPTY) };
        };
        self.free[cpu] = false;
        if rules.overload && !self.free.contains(&true) {
            self.free.clone_from(&self.start);
        }
        Ok(threads)
    }

    /// Takes the first `pe` free cpus of the region, or fewer if it has fewer. Without an object they are all of one package.
    pub(super) fn bind_many(
        &mut self,
        pe: usize,
        region: Range<usize>,
        object: bool,
        turn: &[bool],
    ) -> Result<CpuSet, NoCpu> {
        let packages = self.processor.objects(Kind::Package);
        let regions: Vec<Range<usize>> = match object || packages.is_empty() {
            true => vec![region],
            false => packages.iter().map(|package| package.cpus.clone()).collect(),
        };
        let free = |cpus: Range<usize>| cpus.filter(|cpu| self.free[*cpu] && turn[*cpu]).take(pe).collect::<Vec<_>>();
        let enough = |cpus: &Vec<usize>| if object { !cpus.is_empty() } else { cpus.len() == pe };
        let cpus = regions.into_iter().map(free).find(enough).ok_or(NoCpu)?;
        cpus.iter().for_each(|cpu| self.free[*cpu] = false);
        Ok(self.processor.threads_of(cpus))
    }
}
