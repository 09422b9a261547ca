//! `--compat hydra`: what MPICH's Hydra 5.0 answers.
//!
//! **Blocks.** Every entry of a host list is a block of as many ranks as it says, 1 if it says nothing, its slots for `*`; without a list every
//! node is a block of its slots. `ppr:K:node` (Hydra's `-ppn K`) makes all blocks K, `node` makes them 1.
//!
//! **Wrapping.** Blocks are filled in list order, over and over again: there are no too many ranks, `max_slots` and other jobs
//! do not count, nobody is warned. Without `-n` every block is filled once. Several programs with the same list go on where
//! the one before stopped.
//!
//! **Numbers** are given in the order of placing: there is no `--rank-by`.
//!
//! **Binding** is none unless asked for. Of a node's ranks each gets the next object of `--bind-to`, or the next N with `pe=N`,
//! from the first again after the last; mapped by an object, they take turns over those first.

mod bind;

use std::collections::HashMap;

use super::layout::Layout;
use super::refuse;
use crate::NodeId;
use crate::place::policy::{Directive, MapBy, Policy};
use crate::place::{ASKED_MAX, App, Host, NodeOffer, Obstacle, Placement, RankBinding, Reason, Request, hosts};
use bind::Binder;

/// As [`place`](crate::place::place), by these rules.
pub(in crate::place) fn place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Obstacle> {
    if super::is_silent(&request.policy) {
        return super::place_our_way(nodes, request, head);
    }
    super::without_gpus(&request.policy)?;
    check(&request.policy)?;
    let mut layout = Layout::default();
    let mut binder = Binder::new(nodes, &request.policy);
    let mut lap: Option<(&[Host], Lap)> = None;
    let mut total = 0;
    for app in &request.apps {
        let mut own = match lap.take() {
            Some((hosts, lap)) if hosts == app.hosts => lap,
            Some(_) | None => Lap::new(blocks(nodes, app, &request.policy.map_by, head)?),
        };
        let n = ranks(app, &own)?;
        total += u64::from(n);
        if total > u64::from(ASKED_MAX) {
            return Err(Obstacle::TooMany { asked: total });
        }
        let order: Vec<usize> = own.by_ref().take(n as usize).collect();
        layout.next_app();
        for (node, reason) in reasons(&order, &own.blocks) {
            let threads = binder.next(node)?;
            layout.push(nodes, node, RankBinding { threads, gpus: Vec::new(), reason });
        }
        lap = Some((&app.hosts, own));
    }
    layout.finish(nodes, binder.policy(&request.policy), binder.is_exclusive())
}

/// What Hydra has no word for.
fn check(policy: &Policy) -> Result<(), Obstacle> {
    let map_by = &policy.map_by;
    let bound = policy.bind_to.is_some_and(|bind| bind.kind.is_some());
    let wrong = [
        (policy.rank_by.is_some(), "numbers ranks as it places them: leave --rank-by out"),
        (map_by.span, "has no span: leave it out"),
        (map_by.hwtcpus, "has no hwtcpus: leave it out"),
        (map_by.oversubscribe == Some(false), "never has too many ranks: leave nooversubscribe out"),
        (map_by.pe.is_some() && !bound, "has no cpus per rank without a binding: give --bind-to core as well"),
        (
            matches!(map_by.directive, Some(Directive::Ppr { per: Some(_), .. })),
            "counts ranks per node only: give ppr:N:node",
        ),
    ];
    match wrong.iter().find(|(wrong, _)| *wrong) {
        Some((_, what)) => Err(refuse(format!("--compat hydra: Hydra {what}"))),
        None => Ok(()),
    }
}

/// A list's blocks: nodes, and how many ranks each.
fn blocks(nodes: &[NodeOffer], app: &App, map_by: &MapBy, head: NodeId) -> Result<Vec<(usize, u32)>, Obstacle> {
    let size = match map_by.directive {
        Some(Directive::Ppr { count, .. }) => Some(count),
        Some(Directive::Node) => Some(1),
        Some(_) | None => None,
    };
    let mut blocks: Vec<(usize, u32)> = match &app.hosts[..] {
        [] => nodes.iter().enumerate().map(|(at, node)| (at, size.unwrap_or(node.slots))).collect(),
        hosts => {
            let entries = hosts::entries(nodes, hosts, head).map_err(Obstacle::UnknownHost)?;
            let listed = |at: usize, host: &Host| match host.slots {
                Some(Host::WHOLE) => nodes[at].slots,
                slots => slots.unwrap_or(1),
            };
            entries.into_iter().map(|(at, host)| (at, size.unwrap_or_else(|| listed(at, host)))).collect()
        }
    };
    blocks.retain(|(at, ranks)| *ranks > 0 && !(map_by.nolocal && nodes[*at].id == head));
    if blocks.is_empty() { Err(Obstacle::NoNodes) } else { Ok(blocks) }
}

fn ranks(app: &App, lap: &Lap) -> Result<u32, Obstacle> {
    let asked = app.n.map_or_else(|| lap.blocks.iter().map(|(_, ranks)| u64::from(*ranks)).sum(), u64::from);
    match u32::try_from(asked) {
        Ok(0) => Err(Obstacle::ZeroRanks),
        Ok(n) if n <= ASKED_MAX => Ok(n),
        Ok(_) | Err(_) => Err(Obstacle::TooMany { asked }),
    }
}

/// The blocks' nodes rank by rank, for ever.
struct Lap {
    blocks: Vec<(usize, u32)>,
    /// The block being filled, and how many ranks it has.
    at: (usize, u32),
}

impl Lap {
    fn new(blocks: Vec<(usize, u32)>) -> Lap {
        Lap { blocks, at: (0, 0) }
    }
}

impl Iterator for Lap {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let (block, filled) = self.at;
        let (node, size) = *self.blocks.get(block)?;
        self.at = if filled + 1 < size { (block, filled + 1) } else { ((block + 1) % self.blocks.len(), 0) };
        Some(node)
    }
}

/// Each rank's node and why: a slot of its node's blocks, or what came when those were full.
fn reasons(order: &[usize], blocks: &[(usize, u32)]) -> Vec<(usize, Reason)> {
    let mut offered: HashMap<usize, u32> = HashMap::new();
    let mut counts: HashMap<usize, u32> = HashMap::new();
    blocks.iter().for_each(|(node, size)| {
        let slots = offered.entry(*node).or_default();
        *slots = slots.saturating_add(*size);
    });
    order.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
    let mut placed: HashMap<usize, u32> = HashMap::new();
    let reason = |node: &usize| {
        let (of, nth) = (offered[node], placed.entry(*node).or_default());
        *nth += 1;
        let reason = match nth.checked_sub(of).filter(|nth| *nth > 0) {
            None => Reason::Slot { nth: *nth, of },
            Some(nth) => Reason::Share { nth, of: counts[node] - of },
        };
        (*node, reason)
    };
    order.iter().map(reason).collect()
}
