//! Chooses the threads that each of a node's ranks is bound to.
//!
//! ```text
//! 2 NUMA nodes of 4 cores, 3 ranks      0 0 1 1   2 2 . .     a share is floor(8 / 3) = 2 cores, within a NUMA node
//! one core taken by another job         x 0 0 1   1 2 2 .     floor(7 / 3) = 2; rank 1 does not fit into one NUMA node
//! the same, --bind-to core              x 0 1 2   . . . .
//! 9 ranks                               unbound: fewer cores than ranks
//! ```
//!
//! Units (cores, threads or larger objects) are handed out whole, each once. With `overload-allowed` they are reused when none
//! is left. Cost: O(ranks · words of a set · NUMA nodes).

use std::fmt;

use super::cpuset::CpuSet;
use super::machine::Machine;
use super::topology::{Kind, word};
use super::wants::{Binding, Wants};

/// Why a node's ranks cannot be bound as requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Unbindable {
    /// The node has no object of the kind.
    NoKind(Kind),
    /// More units are requested than are free.
    TooFew {
        /// Ranks on the node.
        ranks: u32,
        /// Units per rank.
        each: u32,
        /// Units free.
        free: u32,
        /// Units that would be free if no other job ran.
        at_all: u32,
        /// The kind of the units.
        kind: Kind,
    },
    /// Several ranks are mapped to one object, and each needs an object of its own.
    Crowded {
        /// The kind of object.
        kind: Kind,
        /// Ranks on the node.
        ranks: u32,
    },
}

impl fmt::Display for Unbindable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unbindable::NoKind(kind) => write!(f, "the node has no {}", word(*kind)),
            Unbindable::TooFew { ranks, each, free, at_all, kind } => {
                let kind = word(*kind);
                let s = |number: u32| if number == 1 { "" } else { "s" };
                let each = if *each == 1 { String::new() } else { format!(" with {each} {kind}s each") };
                write!(f, "{ranks} rank{}{each}, {free} free {kind}{}", s(*ranks), s(*free))?;
                match at_all.saturating_sub(*free) {
                    0 => Ok(()),
                    others => write!(f, " ({others} held by other jobs)"),
                }
            }
            Unbindable::Crowded { kind, ranks } => {
                let kind = word(*kind);
                write!(f, "several of its {ranks} ranks are mapped to one {kind}, and each needs its own")
            }
        }
    }
}

/// Returns the threads of each rank in placing order; an empty set means unbound. `homes[i]`: the threads near which rank i
/// should be.
pub(super) fn bind(
    machine: &Machine<'_>,
    wants: &Wants<'_>,
    homes: &[Option<&CpuSet>],
) -> Result<Vec<CpuSet>, Unbindable> {
    let ranks = homes.len() as u32;
    let (kind, each) = match wants.binding {
        Binding::None => return Ok(vec![CpuSet::EMPTY; homes.len()]),
        Binding::Share | Binding::ListShare => share(machine, wants, ranks)?,
        Binding::Cpus(each) => (wants.cpu, each),
        Binding::Object(kind) => (kind, 1),
    };
    let mut pool = Pool::new(machine, wants, kind)?;
    let too_few = |free| {
        let at_all = machine.cpus_at_all(kind);
        Unbindable::TooFew { ranks, each, free, at_all, kind }
    };
    let free = pool.units.len() as u32;
    if free < each || (!wants.overload && u64::from(free) < u64::from(each) * u64::from(ranks)) {
        return Err(too_few(free));
    }
    // A rank bound to an object must get one within its home; cpus may come from further away.
    let strict = matches!(wants.binding, Binding::Object(_));
    let sets: Option<Vec<CpuSet>> = homes.iter().map(|home| pool.take(each, *home, strict, wants.overload)).collect();
    let sets = sets.ok_or(Unbindable::Crowded { kind, ranks })?;
    let whole_node = |set: &CpuSet| wants.binding == Binding::Share && *set == machine.topology.all();
    // A rank that has the whole node needs no binding.
    Ok(sets.into_iter().map(|set| if whole_node(&set) { CpuSet::EMPTY } else { set }).collect())
}

/// A rank's share: the kind of unit, and how many.
pub(super) fn share(machine: &Machine<'_>, wants: &Wants<'_>, ranks: u32) -> Result<(Kind, u32), Unbindable> {
    let count = |kind| machine.cpus(kind).len() as u32;
    let kind = if count(Kind::Core) >= ranks { Kind::Core } else { wants.cpu };
    match count(kind) / ranks.max(1) {
        0 if wants.overload && count(kind) > 0 => Ok((kind, 1)),
        0 => {
            let (free, at_all) = (count(kind), machine.cpus_at_all(kind));
            Err(Unbindable::TooFew { ranks, each: 1, free, at_all, kind })
        }
        each => Ok((kind, each)),
    }
}

/// The free threads of each unit of a kind, in the order in which units are handed out.
pub(super) fn units(machine: &Machine<'_>, kind: Kind) -> Vec<CpuSet> {
    match kind {
        Kind::Thread => machine.threads.clone(),
        Kind::Core if !machine.cores.is_empty() => machine.cores.clone(),
        Kind::Package | Kind::Numa | Kind::L3 | Kind::L2 | Kind::L1 | Kind::Core => {
            let cpus = if machine.cores.is_empty() { &machine.threads } else { &machine.cores };
            let free = cpus.iter().fold(CpuSet::EMPTY, |all, cpu| all.or(cpu));
            let parts = machine.parts(kind).into_iter().map(|part| part.and(&free));
            parts.filter(|part| !part.is_empty()).collect()
        }
    }
}

/// The units that can be handed out. The sets `all`, `open` and `domains` are indexes into `units`.
struct Pool {
    units: Vec<CpuSet>,
    all: CpuSet,
    open: CpuSet,
    /// The NUMA nodes, else the packages, that a rank should not cross.
    domains: Vec<CpuSet>,
}

impl Pool {
    fn new(machine: &Machine<'_>, wants: &Wants<'_>, kind: Kind) -> Result<Pool, Unbindable> {
        if machine.topology.objects(kind).is_empty() {
            return Err(Unbindable::NoKind(kind));
        }
        let units = match wants.binding {
            Binding::Object(kind) => units(machine, kind),
            Binding::Share | Binding::ListShare | Binding::Cpus(_) | Binding::None => machine.cpus(kind).to_vec(),
        };
        let all = CpuSet::range(0..units.len() as u32);
        let mut pool = Pool { units, open: all.clone(), all, domains: Vec::new() };
        if !machine.ordered {
            let parts = [Kind::Numa, Kind::Package].into_iter().map(|kind| machine.parts(kind));
            let parts = parts.into_iter().find(|parts| !parts.is_empty()).unwrap_or_default();
            pool.domains = parts.iter().map(|part| pool.places(part)).filter(|places| !places.is_empty()).collect();
        }
        Ok(pool)
    }

    /// The indexes of the units that have any of these threads.
    fn places(&self, threads: &CpuSet) -> CpuSet {
        let has = |(_, unit): &(usize, &CpuSet)| unit.intersects(threads);
        self.units.iter().enumerate().filter(has).map(|(at, _)| at as u32).collect()
    }

    /// Takes `each` open units, near `home` if possible or only there if `strict`, and returns their threads.
    fn take(&mut self, each: u32, home: Option<&CpuSet>, strict: bool, overload: bool) -> Option<CpuSet> {
        let home = home.map_or_else(|| self.all.clone(), |threads| self.places(threads));
        if overload {
            let within = if strict { &home } else { &self.all };
            if within.and(&self.open).len() < each {
                self.open = self.open.or(within);
            }
        }
        let from = self.nearest(each, &home, strict)?.and(&self.open);
        let (own, other) = (from.and(&home), from.minus(&home));
        let taken: CpuSet = own.iter().chain(other.iter()).take(each as usize).collect();
        self.open = self.open.minus(&taken);
        Some(taken.iter().fold(CpuSet::EMPTY, |all, at| all.or(&self.units[at as usize])))
    }

    /// Returns the first set with enough open units, in this order: a NUMA node's part of home, home, a NUMA node that home
    /// touches, any NUMA node, the whole machine.
    fn nearest(&self, each: u32, home: &CpuSet, strict: bool) -> Option<CpuSet> {
        let fits = |places: &CpuSet| places.and(&self.open).len() >= each;
        let parts = || self.domains.iter().map(|domain| domain.and(home));
        let near = parts().find(fits).or_else(|| Some(home.clone()).filter(fits));
        if near.is_some() || strict {
            return near;
        }
        let touched = || self.domains.iter().filter(|domain| domain.intersects(home));
        let domain = touched().chain(&self.domains).find(|domain| fits(domain));
        domain.or(Some(&self.all)).filter(|places| fits(places)).cloned()
    }
}
