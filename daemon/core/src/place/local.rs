//! Places the ranks of one node: deals them over its objects, binds them, assigns their GPUs, and sorts them into numbering
//! order.
//!
//! ```text
//! --map-by numa, 5 ranks on 2 NUMA nodes     placed  numa0 numa1 numa0 numa1 numa0     in turns
//!   --rank-by slot   0 2 4 | 1 3             in placing order
//!   --rank-by fill   0 1 2 | 3 4             object by object
//!   --rank-by span   0 2 4 | 1 3             one per object in turn, over all nodes, so numbers continue on other nodes
//! ```
//!
//! A full object, one without a cpu for another rank, is skipped until all objects are full.

use std::sync::Arc;

use super::bind::{self, Unbindable};
use super::cpuset::CpuSet;
use super::gpus::Rack;
use super::machine::Machine;
use super::policy::{Directive, RankBy};
use super::wants::{Binding, Wants};
use super::{RankBinding, Reason};

/// A program's ranks on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// How many.
    pub(super) count: u32,
    /// How many of them have slots.
    pub(super) slots: u32,
    /// Slots that earlier programs use on the node.
    pub(super) before: u32,
    /// Slots that the node offers to the job.
    pub(super) of: u32,
}

/// A node's placed ranks.
#[derive(Debug)]
pub(super) struct Local {
    /// In rank order.
    pub(super) bindings: Arc<[RankBinding]>,
    /// For each program, how many ranks it has in each turn over the node's objects; empty where that does not matter.
    pub(super) turns: Vec<Vec<u32>>,
    /// Why a default binding, or one with `if-supported`, was dropped.
    pub(super) unbound: Option<Unbindable>,
}

/// A rank that is being placed, in placing order.
struct Placed {
    object: Option<usize>,
    /// How many earlier ranks of its program are on the same object.
    nth: u32,
    reason: Reason,
    threads: CpuSet,
    gpus: Vec<u32>,
}

/// Places the programs' ranks on a node. `listed`: their threads, if the user listed them.
pub(super) fn settle(
    machine: &Machine<'_>,
    wants: &Wants<'_>,
    parts: &[Part],
    listed: Option<&[CpuSet]>,
) -> Result<Local, Unbindable> {
    let mut ranks = spread(machine, wants, parts);
    let unbound = match listed {
        Some(listed) => {
            ranks.iter_mut().zip(listed).for_each(|(rank, threads)| rank.threads = threads.clone());
            give_gpus(machine, wants, &mut ranks);
            None
        }
        None => settle_down(machine, wants, &mut ranks)?,
    };
    let mut turns = Vec::new();
    let mut rest = &mut ranks[..];
    for part in parts {
        let (own, others) = rest.split_at_mut(part.count as usize);
        rest = others;
        match wants.rank_by {
            RankBy::Slot | RankBy::Node => {}
            RankBy::Fill => own.sort_by_key(|rank| rank.object),
            RankBy::Span => {
                own.sort_by_key(|rank| (rank.nth, rank.object));
                turns.push(own.chunk_by(|a, b| a.nth == b.nth).map(|turn| turn.len() as u32).collect());
            }
        }
    }
    let binding = |rank: Placed| RankBinding { threads: rank.threads, gpus: rank.gpus, reason: rank.reason };
    Ok(Local { bindings: ranks.into_iter().map(binding).collect(), turns, unbound })
}

/// Deals the ranks over the objects, program after program.
fn spread(machine: &Machine<'_>, wants: &Wants<'_>, parts: &[Part]) -> Vec<Placed> {
    let total: u32 = parts.iter().map(|part| part.count).sum();
    let mut turns = Turns::new(machine, wants, total);
    let mut ranks = Vec::with_capacity(total as usize);
    for part in parts {
        let mut on_object = vec![0; machine.places() as usize];
        for at in 0..part.count {
            let (object, reason) = match wants.directive {
                Directive::Object(_) => (Some(turns.next()), reason(part, at)),
                Directive::Ppr { count, per } => {
                    let (object, nth) = (at / count, at % count + 1);
                    let kind = machine.instead.unwrap_or(per);
                    (Some(object as usize), Reason::PerObject { nth, of: count, kind, object })
                }
                Directive::Seq | Directive::Rankfile => (None, Reason::Listed),
                Directive::Slot | Directive::Node | Directive::PeList { .. } => (None, reason(part, at)),
            };
            let nth = &mut on_object[object.unwrap_or(0)];
            ranks.push(Placed { object, nth: *nth, reason, threads: CpuSet::EMPTY, gpus: Vec::new() });
            *nth += 1;
        }
    }
    ranks
}

fn reason(part: &Part, at: u32) -> Reason {
    match at.checked_sub(part.slots) {
        None => Reason::Slot { nth: part.before + at + 1, of: part.of },
        Some(over) => Reason::Share { nth: over + 1, of: part.count - part.slots },
    }
}

/// Binds the ranks and assigns their GPUs. A rank's GPUs are those near its binding; if nothing says where to bind it, GPUs are
/// chosen first and it is bound near them.
fn settle_down(
    machine: &Machine<'_>,
    wants: &Wants<'_>,
    ranks: &mut [Placed],
) -> Result<Option<Unbindable>, Unbindable> {
    let gpus_first = wants.gpus > 0 && machine.objects.is_empty() && wants.binding == Binding::Share;
    let mut near = Vec::new();
    if gpus_first {
        let mut rack = Rack::new(machine);
        for rank in &mut *ranks {
            rank.gpus = rack.take(wants.gpus, None);
            near.push(rack.near(&rank.gpus));
        }
    }
    let home = |(at, rank): (usize, &Placed)| match rank.object {
        Some(object) => machine.objects.get(object),
        None => near.get(at).and_then(Option::as_ref),
    };
    let homes: Vec<Option<&CpuSet>> = ranks.iter().enumerate().map(home).collect();
    let unbound = match bind::bind(machine, wants, &homes) {
        Ok(sets) => {
            ranks.iter_mut().zip(sets).for_each(|(rank, threads)| rank.threads = threads);
            None
        }
        Err(why) if wants.lenient => Some(why),
        Err(why) => return Err(why),
    };
    if !gpus_first {
        give_gpus(machine, wants, ranks);
    }
    Ok(unbound)
}

/// Assigns each rank GPUs near its threads or its object.
fn give_gpus(machine: &Machine<'_>, wants: &Wants<'_>, ranks: &mut [Placed]) {
    if wants.gpus == 0 {
        return;
    }
    let mut rack = Rack::new(machine);
    for rank in ranks {
        let bound = Some(&rank.threads).filter(|threads| !threads.is_empty());
        let at = bound.or_else(|| rank.object.and_then(|object| machine.objects.get(object)));
        rank.gpus = rack.take(wants.gpus, at);
    }
}

/// Deals ranks to objects in turn.
struct Turns {
    /// How many more ranks each object takes before it is full.
    left: Vec<u32>,
    all_left: u64,
    /// Whether all objects are full and the turns have restarted.
    full: bool,
    at: usize,
}

impl Turns {
    fn new(machine: &Machine<'_>, wants: &Wants<'_>, ranks: u32) -> Turns {
        let (units, each) = match wants.binding {
            Binding::Object(kind) => (bind::units(machine, kind), 1),
            Binding::Cpus(each) => (machine.cpus(wants.cpu).to_vec(), each),
            Binding::Share => {
                let (kind, each) = bind::share(machine, wants, ranks).unwrap_or((wants.cpu, 1));
                (machine.cpus(kind).to_vec(), each)
            }
            Binding::None | Binding::ListShare => (machine.cpus(wants.cpu).to_vec(), 1),
        };
        // Ranks that may share their binding are dealt in plain turns; each finds its binding within its object.
        let plain =
            wants.overload && matches!((wants.binding, wants.mapped_kind()), (Binding::Object(b), Some(m)) if b < m);
        let room = |object: &CpuSet| {
            let first_in = |unit: &&CpuSet| unit.first().is_some_and(|first| object.contains(first));
            if plain { 0 } else { units.iter().filter(first_in).count() as u32 / each }
        };
        let left: Vec<u32> = machine.objects.iter().map(room).collect();
        let all_left = left.iter().copied().map(u64::from).sum();
        Turns { left, all_left, full: all_left == 0, at: 0 }
    }

    fn next(&mut self) -> usize {
        let objects = self.left.len();
        if self.all_left > 0 {
            while self.left[self.at] == 0 {
                self.at = (self.at + 1) % objects;
            }
            self.left[self.at] -= 1;
            self.all_left -= 1;
        }
        let object = self.at;
        // Once all are full the turns restart.
        self.at =
            if self.all_left == 0 && !std::mem::replace(&mut self.full, true) { 0 } else { (object + 1) % objects };
        object
    }
}
