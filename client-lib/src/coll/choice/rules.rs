//! Tables of rules, and the choice by them.

use super::super::layout::Layout;

/// A rule that holds from so many nodes, ranks on the fullest of them, and bytes on, unless a later rule holds as well.
#[derive(Debug)]
pub(super) struct Rule<A> {
    pub(super) nodes: u32,
    pub(super) each: u32,
    pub(super) bytes: u64,
    pub(super) then: A,
}

/// A rule for any number of nodes and ranks.
pub(super) const fn from<A>(nodes: u32, each: u32, bytes: u64, then: A) -> Rule<A> {
    Rule { nodes, each, bytes, then }
}

/// The tables of one collective.
#[derive(Debug)]
pub(super) struct Tables<A: 'static> {
    /// For up to [`MEASURED`] ranks on one node.
    pub(super) measured: &'static [Rule<A>],
    /// For nodes of one rank each whose ranks share processors.
    pub(super) crowded: &'static [Rule<A>],
    /// For all others.
    pub(super) modelled: &'static [Rule<A>],
}

/// Returns the choice of the last rule that holds. The first rule of a table always holds.
pub(super) fn choose<A: Copy>(tables: &Tables<A>, layout: &Layout, bytes: u64) -> A {
    let (nodes, each) = (layout.nodes(), layout.most());
    let rules = match is_measured(layout) {
        true => tables.measured,
        false if layout.is_crowded() && nodes > 2 && each == 1 => tables.crowded,
        false => tables.modelled,
    };
    let holds = |rule: &&Rule<A>| nodes >= rule.nodes && each >= rule.each && bytes >= rule.bytes;
    rules.iter().rev().find(holds).unwrap_or(&rules[0]).then
}

/// Whether the measured tables hold.
pub(super) fn is_measured(layout: &Layout) -> bool {
    layout.nodes() <= 1 && layout.most() <= MEASURED
}

/// With more ranks on one node than this, the model decides: no machine with as many cores was there to measure.
const MEASURED: u32 = 16;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
