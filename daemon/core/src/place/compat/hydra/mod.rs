//! `--compat hydra`: places ranks as MPICH's Hydra 5.0 does.
//!
//! **Blocks.** Every entry of a host list is a block. Its size is the entry's number, 1 without a number, or the node's slots for
//! `*`. Without a list every node is a block of its slots. `ppr:K:node` (Hydra's `-ppn K`) makes every block K, `node` makes it 1.
//!
//! **Wrapping.** Blocks are filled in list order, repeatedly, so no number of ranks is too large. `max_slots` and other jobs are
//! ignored without a notice. Without `-n` every block is filled once. A program with the same list as the one before it continues
//! where that one stopped.
//!
//! **Numbers** follow placing order; `--rank-by` does not exist.
//!
//! **Binding** is none unless requested. Each of a node's ranks gets the next object of `--bind-to`, or the next N with `pe=N`, and
//! the first again after the last. Ranks mapped by an object take turns over those objects first.

mod bind;

use std::collections::HashMap;

use super::layout::Layout;
use super::refuse;
use crate::NodeId;
use crate::place::policy::{Directive, MapBy, Policy};
use crate::place::{ASKED_MAX, App, Host, NodeOffer, Obstacle, Placement, RankBinding, Reason, Request, hosts};
use bind::Binder;

/// [`place`](crate::place::place) by these rules.
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

/// Refuses what Hydra does not offer.
fn check(policy: &Policy) -> Result<(), Obstacle> {
    let map_by = &policy.map_by;
    let bound = policy.bind_to.is_some_and(|bind| bind.kind.is_some());
    let wrong = [
        (policy.rank_by.is_some(), "numbers ranks in placing order: omit --rank-by"),
        (map_by.span, "has no span: omit it"),
        (map_by.hwtcpus, "has no hwtcpus: omit it"),
        (map_by.oversubscribe == Some(false), "always oversubscribes: omit nooversubscribe"),
        (map_by.pe.is_some() && !bound, "has no cpus per rank without a binding: add --bind-to core"),
        (
            matches!(map_by.directive, Some(Directive::Ppr { per: Some(_), .. })),
            "counts ranks per node only: use ppr:N:node",
        ),
    ];
    match wrong.iter().find(|(wrong, _)| *wrong) {
        Some((_, what)) => Err(refuse(format!("--compat hydra: Hydra {what}"))),
        None => Ok(()),
    }
}

/// A list's blocks: each a node and a number of ranks.
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

/// An endless iterator over the blocks' nodes, rank by rank.
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

/// Each rank's node, and whether it has a slot of the node's blocks or came after those were full.
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
