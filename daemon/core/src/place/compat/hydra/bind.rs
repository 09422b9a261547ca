//! Binds ranks to objects in turn.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::processor::{Processor, Unit};
use super::super::refuse;
use crate::place::cpuset::CpuSet;
use crate::place::policy::{BindTo, Directive, MapBy, Policy};
use crate::place::topology::Kind;
use crate::place::{NodeOffer, Obstacle};

/// Hands out threads, in turn on each node.
pub(super) struct Binder<'a> {
    nodes: &'a [NodeOffer],
    bind: Option<BindTo>,
    kind: Option<Kind>,
    /// The kind of object that ranks take turns over first.
    map: Option<Kind>,
    pe: usize,
    /// By offer: the sets of threads for its ranks, and how many ranks have been bound.
    known: HashMap<usize, (Arc<[CpuSet]>, usize)>,
    alike: HashMap<(usize, CpuSet), Arc<[CpuSet]>>,
}

impl<'a> Binder<'a> {
    pub(super) fn new(nodes: &'a [NodeOffer], policy: &Policy) -> Binder<'a> {
        let map = match policy.map_by.directive {
            Some(Directive::Object(kind)) => Some(kind),
            Some(_) | None => None,
        };
        let bind = policy.bind_to.filter(|bind| bind.kind.is_some());
        Binder {
            nodes,
            bind,
            kind: bind.and_then(|bind| bind.kind),
            map,
            pe: policy.map_by.pe.unwrap_or(1) as usize,
            known: HashMap::new(),
            alike: HashMap::new(),
        }
    }

    /// Returns the threads of a node's next rank; an empty set means unbound.
    pub(super) fn next(&mut self, at: usize) -> Result<CpuSet, Obstacle> {
        let Some(kind) = self.kind else { return Ok(CpuSet::EMPTY) };
        if !self.known.contains_key(&at) {
            let sets = self.sets(at, kind)?;
            self.known.insert(at, (sets, 0));
        }
        Ok(self.known.get_mut(&at).map_or(CpuSet::EMPTY, |(sets, came)| {
            *came += 1;
            if sets.is_empty() { CpuSet::EMPTY } else { sets[(*came - 1) % sets.len()].clone() }
        }))
    }

    /// The sets of threads for a node's ranks, before they repeat; empty: ranks are not bound.
    fn sets(&mut self, at: usize, kind: Kind) -> Result<Arc<[CpuSet]>, Obstacle> {
        let node = &self.nodes[at];
        let free = node.usable.minus(&node.taken);
        let usable = if free.is_empty() { node.usable.clone() } else { free };
        let key = (Arc::as_ptr(&node.topology) as usize, usable);
        if let Some(sets) = self.alike.get(&key) {
            return Ok(Arc::clone(sets));
        }
        let processor = Processor::new(&node.topology, &key.1, Unit::Thread);
        let sets: Arc<[CpuSet]> = turns(&processor, kind, self.map, self.pe).into();
        if sets.is_empty() && self.bind.is_some_and(|bind| !bind.if_supported) {
            return Err(refuse(format!(
                "{} has no {} to bind ranks to\nfix one of:  --bind-to core  |  --bind-to {}:if-supported",
                node.name,
                kind.name(),
                kind.name()
            )));
        }
        self.alike.insert(key, Arc::clone(&sets));
        Ok(sets)
    }

    /// Whether other jobs may not use its ranks' threads.
    pub(super) fn is_exclusive(&self) -> bool {
        self.bind.is_some_and(|bind| !bind.overload_allowed)
    }

    /// The requested policy with defaults filled in.
    pub(super) fn policy(&self, asked: &Policy) -> Policy {
        let none = BindTo { kind: None, overload_allowed: false, if_supported: false };
        let directive = asked.map_by.directive.clone().or(Some(Directive::Slot));
        Policy {
            map_by: MapBy { directive, ..asked.map_by.clone() },
            bind_to: Some(self.bind.unwrap_or(none)),
            ..asked.clone()
        }
    }
}

/// The sets of threads of successive ranks: `pe` objects of `kind` each, in turn over the objects of `map`.
fn turns(processor: &Processor, kind: Kind, map: Option<Kind>, pe: usize) -> Vec<CpuSet> {
    let all: Vec<&CpuSet> = processor.objects(kind).iter().map(|object| &object.threads).collect();
    let groups: Vec<Vec<&CpuSet>> = match map {
        None => vec![all],
        Some(map) => {
            let within = |outer: &CpuSet| all.iter().filter(|own| own.intersects(outer)).copied().collect();
            processor.objects(map).iter().map(|outer| within(&outer.threads)).collect()
        }
    };
    let group_sets = |group: &Vec<&CpuSet>| -> Vec<CpuSet> {
        let count = group.len();
        // The number of ranks after which the first object comes again.
        let ranks = if count == 0 { 0 } else { count / gcd(count, pe) };
        let set =
            |rank: usize| (0..pe.min(count)).fold(CpuSet::EMPTY, |set, nth| set.or(group[(rank * pe + nth) % count]));
        (0..ranks).map(set).collect()
    };
    let sets: Vec<Vec<CpuSet>> = groups.iter().map(group_sets).filter(|sets| !sets.is_empty()).collect();
    let rounds = sets.iter().map(Vec::len).max().unwrap_or(0);
    (0..rounds).flat_map(|round| sets.iter().map(move |sets| sets[round % sets.len()].clone())).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
