//! Which rank goes to which node: how many ranks each node takes, and how they are numbered.
//!
//! The rule, for one program at a time on what the programs before it left:
//! 1. A node offers `min(slots - in use, cap from the host list)`. A host list's cap counts the ranks of the whole job.
//! 2. Offers are filled in list order (by slot), or one per node in rounds (by node).
//! 3. If ranks remain and the job may oversubscribe, nodes below their `max_slots` take the rest: by slot in equal shares on top
//!    of what they have, by node as further rounds, those that have fewest first. Earlier nodes take what does not divide.
//!    `max_slots` is hard: what a node may not take goes to the others.
//! 4. By slot the ranks are numbered node by node, by node in rounds.
//!
//! This is what Open MPI 5 documents and mostly does; it differs where that release crosses `max_slots`, and by node where
//! it oversubscribes one node while another has slots free.
//!
//! Where on its node a rank runs is left to others: only counts per node are decided here.
//!
//! Cost: O(nodes · log ranks) for the counts, and for the numbering O(nodes) by slot, O(ranks) by node.

mod compat;
pub mod cpuset;
mod hosts;
pub mod policy;
mod refusal;
pub mod topology;

pub use refusal::{Refusal, Row, Shortage};

use std::sync::Arc;

use crate::NodeId;
use crate::taskmap::{self, TaskMap, TaskMapBuilder};
use cpuset::CpuSet;
use hosts::Seat;
use policy::{Compat, Directive, Policy, PolicyError};
use topology::Topology;

/// As many ranks as one program may ask for.
pub const ASKED_MAX: u32 = 1 << 20;

/// What a node has to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOffer {
    /// Its id.
    pub id: NodeId,
    /// The name that host lists call it by.
    pub name: String,
    /// Its slots, used or not.
    pub slots: u32,
    /// Why as many, for people: "2 cores".
    pub slots_reason: String,
    /// How many of them other jobs use; more than there are when oversubscribed.
    pub in_use: u32,
    /// Its processor.
    pub topology: Arc<Topology>,
    /// The threads that ranks may use at all: within the affinity mask and the cpuset.
    pub usable: CpuSet,
    /// Those of them that other jobs hold: the threads of every live placement that is [`exclusive`](Placement::exclusive).
    /// No binding touches them. What default bindings use, and those with `overload-allowed`, is not held.
    pub taken: CpuSet,
    /// Its GPUs, shared by nodes alike.
    pub gpus: Arc<[Gpu]>,
    /// Those of them, by their places, that ranks of other jobs have; all that `gpus_per_rank` gave.
    pub gpus_taken: CpuSet,
}

/// What placement needs to know of a GPU; it is known by its place in [`NodeOffer::gpus`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gpu {
    /// The threads nearest to it; empty: not known.
    pub near: CpuSet,
}

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its programs, in rank order.
    pub apps: Vec<App>,
    /// How they are mapped, numbered and bound.
    pub policy: Policy,
    /// Whether there may be more ranks than slots.
    pub oversubscribe: bool,
    /// For [`Directive::Rankfile`].
    pub rankfile: Vec<RankPlace>,
}

impl Request {
    fn order(&self) -> MapBy {
        match self.policy.map_by.directive {
            Some(Directive::Node) => MapBy::Node,
            Some(_) | None => MapBy::Slot,
        }
    }
}

/// One rank of a rankfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankPlace {
    /// Its number.
    pub rank: u32,
    /// A node's name.
    pub host: String,
    /// Its cpus as written; empty: all.
    pub cpus: String,
    /// Where the user wrote it: "rankfile ./ranks:3".
    pub source: String,
}

/// One program of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// How many ranks; absent: one per slot offered.
    pub n: Option<u32>,
    /// Where it may run, in this order; empty: on every node.
    pub hosts: Vec<Host>,
}

/// One entry of a host list. A node named once without a number offers all its slots, one named k times k of them; numbers
/// add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A node's name, in full or up to its first dot; `localhost` is the head.
    pub name: String,
    /// How many slots the job may use there; [`Host::WHOLE`]: all of them.
    pub slots: Option<u32>,
    /// The most ranks of the job there, also when oversubscribing.
    pub max_slots: Option<u32>,
    /// Where the user wrote it: "hostfile ./hosts:1", "--host".
    pub source: String,
}

impl Host {
    /// As many slots as the node has: `a:*`, which differs from `a` where others' rules are followed.
    pub const WHOLE: u32 = u32::MAX;
}

/// The order in which nodes are filled and ranks numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapBy {
    /// Node by node.
    Slot,
    /// One rank per node in rounds.
    Node,
}

/// Where a job's ranks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Which rank runs where.
    pub map: TaskMap,
    /// `app_sizes[i]` ranks run program i, in rank order.
    pub app_sizes: Vec<u32>,
    /// How many slots it takes, in the order of the nodes' first ranks.
    pub used: Vec<(NodeId, u32)>,
    /// The different ways in which a node's ranks are bound; nodes whose ranks are bound alike share one.
    pub bindings: Vec<Arc<[RankBinding]>>,
    /// The next `count` nodes of the map have `bindings[index]`: (count, index), over all of `map.nodes()`.
    pub binding_runs: Vec<(u32, u32)>,
    /// Whether its ranks hold the threads that they are bound to against other jobs: the user asked for the binding, and
    /// without `overload-allowed`.
    pub exclusive: bool,
    /// What was asked, defaults filled in.
    pub policy: Policy,
    /// What the user should know, a sentence each.
    pub notices: Vec<String>,
}

/// How one of a node's ranks is bound; in rank order within its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RankBinding {
    /// Hardware threads by logical index; empty: unbound.
    pub threads: CpuSet,
    /// Its GPUs, places in [`NodeOffer::gpus`].
    pub gpus: Vec<u32>,
    /// Why it is here.
    pub reason: Reason,
}

/// Why a rank is on its node. Its text is for people: "slot 2 of 4".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The `nth` (from 1) of the `of` slots that the node offered.
    Slot {
        /// From 1.
        nth: u32,
        /// As many.
        of: u32,
    },
    /// Beyond the slots, the `nth` (from 1) of the `of` that are the node's share.
    Share {
        /// From 1.
        nth: u32,
        /// As many.
        of: u32,
    },
    /// The user said so: seq, rankfile.
    Listed,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Slot { nth, of } => write!(f, "slot {nth} of {of}"),
            Reason::Share { nth, of } => write!(f, "slot pass 2, share {nth} of {of}"),
            Reason::Listed => f.write_str("listed"),
        }
    }
}

/// Places a job, or says what is missing and what would work. `head` is the node that `localhost` means.
pub fn place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Refusal> {
    try_place(nodes, request, head).map_err(|obstacle| refusal::explain(nodes, request, head, obstacle))
}

/// Why a request cannot be placed as it stands, before anybody thinks about what would help.
#[derive(Debug)]
enum Obstacle {
    NoNodes,
    ZeroRanks,
    TooMany { asked: u64 },
    UnknownHost(Host),
    Policy(PolicyError),
    Short { app: usize, asked: Option<u32>, seats: Vec<Seat> },
}

fn try_place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Obstacle> {
    if nodes.is_empty() {
        return Err(Obstacle::NoNodes);
    }
    match request.policy.compat {
        Compat::Rsd => {}
        Compat::OpenMpi5 => return compat::openmpi5::place(nodes, request, head),
        Compat::Hydra => return compat::hydra::place(nodes, request, head),
    }
    let mut map = TaskMapBuilder::default();
    let mut app_sizes = Vec::new();
    let mut total = 0;
    // How many ranks of this job are on each node so far.
    let mut placed = vec![0; nodes.len()];
    for (at, app) in request.apps.iter().enumerate() {
        match app.n {
            Some(0) => return Err(Obstacle::ZeroRanks),
            Some(asked) if asked > ASKED_MAX => return Err(Obstacle::TooMany { asked: asked.into() }),
            Some(_) | None => {}
        }
        let seats = hosts::seats(nodes, &placed, &app.hosts, head).map_err(Obstacle::UnknownHost)?;
        let Some(counts) = share_out(&seats, app.n, request) else {
            return Err(Obstacle::Short { app: at, asked: app.n, seats });
        };
        let runs = seats.iter().zip(&counts).map(|(seat, count)| (nodes[seat.node].id, *count));
        number(runs.collect(), request.order(), &mut map);
        for (seat, count) in seats.iter().zip(&counts) {
            placed[seat.node] += count;
        }
        total += counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        if total > u64::from(taskmap::RANKS_MAX) {
            return Err(Obstacle::TooMany { asked: total });
        }
        app_sizes.push(counts.iter().sum());
    }
    let map = map.build().map_err(|error| Obstacle::TooMany { asked: error.ranks })?;
    if map.size() == 0 {
        return Err(Obstacle::ZeroRanks);
    }
    let used = map.counts();
    let (bindings, binding_runs, policy) = (Vec::new(), Vec::new(), request.policy.clone());
    let (exclusive, notices) = (false, Vec::new());
    Ok(Placement { map, app_sizes, used, bindings, binding_runs, exclusive, policy, notices })
}

/// How many of `n` ranks each seat takes, or nothing if they do not fit.
fn share_out(seats: &[Seat], n: Option<u32>, request: &Request) -> Option<Vec<u32>> {
    let offers: Vec<u32> = seats.iter().map(|seat| seat.offer).collect();
    let offered: u64 = offers.iter().map(|offer| u64::from(*offer)).sum();
    let n = match n {
        Some(n) => n,
        None if offered == 0 => return None,
        None => u32::try_from(offered).unwrap_or(u32::MAX).min(taskmap::RANKS_MAX + 1),
    };
    let mut counts = vec![0; seats.len()];
    let rest = match request.order() {
        MapBy::Slot => fill(&mut counts, &offers, n),
        MapBy::Node => deal(&mut counts, &offers, n),
    };
    if rest == 0 {
        return Some(counts);
    }
    if !request.oversubscribe {
        return None;
    }
    let rest = match request.order() {
        MapBy::Slot => {
            let room: Vec<u32> = seats.iter().zip(&counts).map(|(seat, count)| seat.room - count).collect();
            let mut shares = vec![0; seats.len()];
            let rest = deal(&mut shares, &room, rest);
            counts.iter_mut().zip(shares).for_each(|(count, share)| *count += share);
            rest
        }
        MapBy::Node => {
            let room: Vec<u32> = seats.iter().map(|seat| seat.room).collect();
            deal(&mut counts, &room, rest)
        }
    };
    (rest == 0).then_some(counts)
}

/// Fills up to `caps` in order; returns what is left.
fn fill(counts: &mut [u32], caps: &[u32], mut rest: u32) -> u32 {
    for (count, cap) in counts.iter_mut().zip(caps) {
        *count = rest.min(*cap);
        rest -= *count;
    }
    rest
}

/// Hands out one each in rounds to those that have fewest and are below their cap; returns what is left. Cost: the level that
/// all reach is searched for by halving, one pass each.
fn deal(counts: &mut [u32], caps: &[u32], rest: u32) -> u32 {
    let needed = |level: u32, counts: &[u32]| -> u64 {
        counts.iter().zip(caps).map(|(count, cap)| u64::from(level.min(*cap).saturating_sub(*count))).sum()
    };
    let (mut level, mut above) = (0, caps.iter().copied().max().unwrap_or(0));
    while level < above {
        let middle = above - (above - level) / 2;
        if needed(middle, counts) <= u64::from(rest) {
            level = middle;
        } else {
            above = middle - 1;
        }
    }
    let mut rest = rest - u32::try_from(needed(level, counts)).expect("no more is needed than there is");
    for (count, cap) in counts.iter_mut().zip(caps) {
        *count = level.min(*cap).max(*count);
        if rest > 0 && *count == level && level < *cap {
            *count += 1;
            rest -= 1;
        }
    }
    rest
}

/// Numbers the ranks of one program, given as its counts in list order.
fn number(mut open: Vec<(NodeId, u32)>, map_by: MapBy, map: &mut TaskMapBuilder) {
    match map_by {
        MapBy::Slot => open.into_iter().for_each(|(id, count)| map.push(id, count)),
        MapBy::Node => loop {
            open.retain(|(_, count)| *count > 0);
            if open.is_empty() {
                break;
            }
            for (id, count) in &mut open {
                map.push(*id, 1);
                *count -= 1;
            }
        },
    }
}

#[cfg(test)]
mod tests;
