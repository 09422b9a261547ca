//! A node's cpus while ranks use them up.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::super::processor::Processor;
use super::rules::Rules;
use crate::place::cpuset::CpuSet;
use crate::place::topology::Kind;

/// A node, and the ranks that it got, in that order.
pub(super) struct Node {
    pub(super) processor: Arc<Processor>,
    /// `free[i]`: no rank has used up cpu i.
    free: Vec<bool>,
    /// As it was when the program's first rank came.
    start: Vec<bool>,
    pub(super) ranks: Vec<Rank>,
    /// What it offered to each program, and how many ranks came.
    pub(super) turns: HashMap<usize, (u32, u32)>,
    used: bool,
}

/// A rank without a number.
pub(super) struct Rank {
    pub(super) app: usize,
    /// What it is mapped by, if by an object.
    pub(super) object: Option<usize>,
    pub(super) threads: CpuSet,
    /// The how manieth of its program on its node, or of those that `ppr` puts together; from 1.
    pub(super) nth: u32,
}

/// A rank gets nothing to be bound to.
pub(super) struct NoCpu;

impl Node {
    pub(super) fn new(processor: Arc<Processor>, taken: &CpuSet) -> Node {
        let free = processor.free_of(taken);
        Node { processor, start: free.clone(), free, ranks: Vec::new(), turns: HashMap::new(), used: false }
    }

    /// Another program comes.
    pub(super) fn begin(&mut self) {
        self.start.clone_from(&self.free);
    }

    /// Whether it takes part only from now on.
    pub(super) fn enter(&mut self) -> bool {
        !std::mem::replace(&mut self.used, true)
    }

    /// A copy of which cpus are free.
    pub(super) fn turn(&self) -> Vec<bool> {
        self.free.clone()
    }

    /// How many cpus are free in a range.
    pub(super) fn free_in(&self, cpus: Range<usize>) -> usize {
        self.free[cpus].iter().filter(|free| **free).count()
    }

    /// The first object that still has a cpu in the region; uses that one up.
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

    /// The first `pe` cpus of the region, or as many as it has; without an object they are of one package.
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
