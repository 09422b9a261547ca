//! Where a job's ranks go: which node, which number, which cpus and GPUs; or why they do not fit, and what would.
//!
//! The rule, for one program at a time on what the programs before it left:
//!
//! 1. A node offers `min(slots - in use, cap from the host list)`. A host list's cap counts the ranks of the whole job. Who asks
//!    for cpus (`pe=N`, `pe-list`) or GPUs for each rank is offered no more ranks than the node has of them.
//! 2. Offers are filled in list order. By node, and by objects that span, nodes take turns instead.
//! 3. If ranks remain and the job may oversubscribe, nodes below their `max_slots` take the rest in equal shares. Earlier nodes take
//!    what does not divide. `max_slots` is hard: what a node may not take goes to the others.
//! 4. That is so whatever ranks are mapped to: an object only says where on its node a rank goes. Ranks take objects in turn,
//!    passing over full ones. A kind that a node lacks is replaced by the next larger, with a notice.
//! 5. Ranks are numbered program after program: by slot node by node, by node in turns, by objects object by object, spanning
//!    one per object in turn.
//! 6. A default binding never fails a launch: with more ranks than free cores they are left unbound, with a notice.
//! 7. Otherwise it gives each rank an equal share of its node, in whole cores, no two ranks the same: floor(free cores / ranks),
//!    within its object and a NUMA node where that fits. A share that is the whole node needs no binding.
//! 8. A binding that was asked for is kept or refused. No two ranks share a cpu, and none is another job's, unless
//!    `overload-allowed`; then ranks of the job may share, and still none is another job's.
//!
//! Counts by slot are what Open MPI 5 documents and mostly does; they differ where that release crosses `max_slots`, and by node
//! where it oversubscribes one node while another has slots free. `--compat` gives its own answers.
//!
//! ```text
//! NodeOffer, Request ─▶ place ─▶ Placement { map, bindings, policy, notices }
//!                          └───▶ Refusal { what was asked, what there is, what would work }
//! ```
//!
//! Cost: O(nodes · log ranks) for the counts; for the numbering O(nodes) by slot, O(ranks) in turns; for the rest, O(ranks of a
//! node · its cpus) for each node that is unlike the others.

pub mod cpuset;
pub mod policy;
pub mod topology;

mod compat;
mod rule;

mod bind;
mod counts;
mod gpus;
mod hosts;
mod listed;
mod local;
mod machine;
mod number;
mod refusal;
mod wants;

pub use refusal::{Lack, Refusal, Row, Shortage};

use std::sync::Arc;

use crate::NodeId;
use crate::taskmap::TaskMap;
use bind::Unbindable;
use cpuset::CpuSet;
use hosts::Seat;
use policy::{Compat, Policy, PolicyError};
use topology::{Kind, Topology};

/// As many ranks as one program may ask for.
pub const ASKED_MAX: u32 = 1 << 24;

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
    /// For [`Directive::Rankfile`](policy::Directive::Rankfile).
    pub rankfile: Vec<RankPlace>,
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

/// Why a rank is where it is. Its text is for people: "slot 2 of 4".
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
    /// `ppr`: the `nth` (from 1) of `of` on an object.
    PerObject {
        /// From 1.
        nth: u32,
        /// As many.
        of: u32,
        /// What the object is; absent: the node.
        kind: Option<Kind>,
        /// Which of those that ranks may use, from 0.
        object: u32,
    },
    /// The user said so: seq, rankfile.
    Listed,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Slot { nth, of } => write!(f, "slot {nth} of {of}"),
            Reason::Share { nth, of } => write!(f, "slot pass 2, share {nth} of {of}"),
            Reason::PerObject { nth, of, kind: Some(kind), object } => {
                write!(f, "{nth} of {of} on {} {object}", kind.name())
            }
            Reason::PerObject { nth, of, kind: None, .. } => write!(f, "{nth} of {of} on the node"),
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
    TooMany {
        asked: u64,
    },
    UnknownHost(Host),
    Policy(PolicyError),
    Short {
        app: usize,
        asked: Option<u32>,
        seats: Vec<Seat>,
    },
    /// The ranks of a node (an index) cannot be bound as asked.
    Unbindable {
        node: usize,
        why: Unbindable,
    },
    /// What the user listed is another job's.
    Taken {
        text: String,
    },
}

fn try_place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Obstacle> {
    if nodes.is_empty() {
        return Err(Obstacle::NoNodes);
    }
    match request.policy.compat {
        Compat::Rsd => rule::place(nodes, request, head),
        Compat::OpenMpi5 => compat::openmpi5::place(nodes, request, head),
        Compat::Hydra => compat::hydra::place(nodes, request, head),
    }
}

#[cfg(test)]
mod tests;
