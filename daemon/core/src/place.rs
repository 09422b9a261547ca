//! Places a job's ranks: chooses each rank's node, number, cpus and GPUs, or explains why they do not fit and what would.
//!
//! The rule, for one program at a time, on what the earlier programs left:
//!
//! 1. A node offers `min(slots - in use, cap from the host list)`. A host list's cap counts the ranks of the whole job. A request
//!    for cpus (`pe=N`, `pe-list`) or GPUs per rank lowers the offer to what the node's cpus or GPUs allow.
//! 2. Offers are filled in list order. By node, and by objects that span, nodes take turns instead.
//! 3. If ranks remain and the job may oversubscribe, nodes below their `max_slots` take the rest in equal shares. Earlier nodes take
//!    the remainder. `max_slots` is a hard limit: ranks that a node may not take go to the others.
//! 4. Mapping to objects does not change these counts: an object only decides where on its node a rank goes. Ranks take objects in
//!    turn and skip full ones. A kind that a node lacks is replaced by the next larger kind, with a notice.
//! 5. Ranks are numbered program after program: by slot node by node, by node in turns, by objects object by object, spanning
//!    one per object in turn.
//! 6. A default binding never fails a launch: with more ranks than free cores, ranks are left unbound, with a notice.
//! 7. Otherwise a default binding gives each rank an equal, exclusive share of its node in whole cores: floor(free cores / ranks),
//!    within its object and a NUMA node where that fits. A share that is the whole node needs no binding.
//! 8. A requested binding is kept or the job is refused. Ranks share no cpu with each other or with other jobs. With
//!    `overload-allowed` ranks of the job may share cpus with each other, but still not with other jobs.
//!
//! Counts by slot follow Open MPI 5's documentation and mostly its behaviour. They differ where that release exceeds `max_slots`,
//! and by node where it oversubscribes one node while another has free slots. `--compat` follows its actual behaviour.
//!
//! ```text
//! NodeOffer, Request ─▶ place ─▶ Placement { map, bindings, policy, notices }
//!                          └───▶ Refusal { what was requested, what is available, what would work }
//! ```
//!
//! Cost: O(nodes · log ranks) for the counts; O(nodes) by slot or O(ranks) in turns for the numbering; O(ranks of a node · its
//! cpus) for each distinct node for the rest.

pub mod cpuset;
pub mod policy;
pub mod topology;

mod compat;
mod rule;

mod bind;
mod counts;
mod find;
mod gpus;
mod hosts;
mod listed;
mod local;
mod machine;
mod number;
mod refusal;
mod wants;

pub use find::find;
pub use refusal::{Lack, Refusal, Row, Shortage};

use std::sync::Arc;

use crate::NodeId;
use crate::taskmap::TaskMap;
use bind::Unbindable;
use cpuset::CpuSet;
use hosts::Seat;
use policy::{Compat, Policy, PolicyError};
use topology::{Kind, Topology};

/// The most ranks that one program may request.
pub const ASKED_MAX: u32 = 1 << 24;

/// A node as placement sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOffer {
    /// Its id.
    pub id: NodeId,
    /// Its name in host lists.
    pub name: String,
    /// Its slots, used or not.
    pub slots: u32,
    /// Where the number of slots comes from: "2 cores".
    pub slots_reason: String,
    /// How many slots other jobs use; may exceed `slots` when oversubscribed.
    pub in_use: u32,
    /// Its processor.
    pub topology: Arc<Topology>,
    /// The threads that ranks may use: within the affinity mask and the cpuset.
    pub usable: CpuSet,
    /// The threads that other jobs hold: those of every live placement that is [`exclusive`](Placement::exclusive). No binding
    /// uses them. Default bindings and bindings with `overload-allowed` hold nothing.
    pub taken: CpuSet,
    /// Its GPUs. Nodes that are alike share the list.
    pub gpus: Arc<[Gpu]>,
    /// The GPUs, by index, that ranks of other jobs have through `gpus_per_rank`.
    pub gpus_taken: CpuSet,
    /// Other words by which host lists name it: its host name and its address.
    pub aliases: Arc<[String]>,
    /// Its labels: key and value.
    pub labels: Arc<[(String, String)]>,
    /// What it has besides, such as memory in bytes.
    pub stocks: Vec<Stock>,
}

/// An amount of something that ranks need besides a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stock {
    /// Its name.
    pub name: String,
    /// How much there is.
    pub total: u64,
    /// How much of it other jobs hold.
    pub held: u64,
}

/// A GPU as placement sees it. It is identified by its index in [`NodeOffer::gpus`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gpu {
    /// The threads nearest to it; empty: unknown.
    pub near: CpuSet,
}

/// A job's placement request.
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
    /// What each rank needs of its node's stocks.
    pub needs: Vec<(String, u64)>,
}

/// One rank of a rank file.
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
    /// How many ranks; absent: one per offered slot.
    pub n: Option<u32>,
    /// The nodes on which it may run, in order; empty: every node.
    pub hosts: Vec<Host>,
}

/// One entry of a host list. A node that is named once without a number offers all its slots; one that is named k times offers k.
/// Numbers add up.
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
    /// All slots of the node: `a:*`. It differs from `a` under `--compat`.
    pub const WHOLE: u32 = u32::MAX;
}

/// Where a job's ranks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Which rank runs where.
    pub map: TaskMap,
    /// `app_sizes[i]`: how many ranks run program i, in rank order.
    pub app_sizes: Vec<u32>,
    /// How many slots it uses on each node, in the order of the nodes' first ranks.
    pub used: Vec<(NodeId, u32)>,
    /// The distinct bindings of a node's ranks. Nodes whose ranks are bound alike share one.
    pub bindings: Vec<Arc<[RankBinding]>>,
    /// The next `count` nodes of the map have `bindings[index]`: (count, index), over all of `map.nodes()`.
    pub binding_runs: Vec<(u32, u32)>,
    /// Whether other jobs may not use the threads that its ranks are bound to: the user requested the binding, and without
    /// `overload-allowed`.
    pub exclusive: bool,
    /// The requested policy with defaults filled in.
    pub policy: Policy,
    /// Notices for the user, one sentence each.
    pub notices: Vec<String>,
}

/// How one of a node's ranks is bound; in rank order within its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RankBinding {
    /// Hardware threads by logical index; empty: unbound.
    pub threads: CpuSet,
    /// Its GPUs, as indexes into [`NodeOffer::gpus`].
    pub gpus: Vec<u32>,
    /// Why it is on this node.
    pub reason: Reason,
}

/// Why a rank is on its node, as text: "slot 2 of 4".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It has slot `nth` (from 1) of the `of` slots that the node offered.
    Slot {
        /// From 1.
        nth: u32,
        /// How many.
        of: u32,
    },
    /// It is oversubscribed: rank `nth` (from 1) of the node's share of `of`.
    Share {
        /// From 1.
        nth: u32,
        /// How many.
        of: u32,
    },
    /// `ppr`: rank `nth` (from 1) of `of` on an object.
    PerObject {
        /// From 1.
        nth: u32,
        /// How many.
        of: u32,
        /// The kind of object; absent: the node.
        kind: Option<Kind>,
        /// The object's index among those that ranks may use, from 0.
        object: u32,
    },
    /// The user listed it: seq, rankfile.
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

/// Places a job, or returns a refusal that says what is missing and what would work. `head`: the node that `localhost` means.
pub fn place(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Result<Placement, Refusal> {
    try_place(nodes, request, head).map_err(|obstacle| refusal::explain(nodes, request, head, obstacle))
}

/// Returns the nodes that the host lists of a request name; None: a program may run on any node, or on nodes that are chosen later.
pub fn candidates(nodes: &[NodeOffer], request: &Request, head: NodeId) -> Option<Vec<NodeId>> {
    let mut found = Vec::new();
    let none = vec![0; nodes.len()];
    for app in &request.apps {
        let may_change = |host: &Host| {
            use hosts::Meaning;
            matches!(Meaning::of(&host.name), Meaning::Idle(_) | Meaning::Labelled { count: Some(_), .. })
        };
        if app.hosts.is_empty() || app.hosts.iter().any(may_change) || !request.rankfile.is_empty() {
            return None;
        }
        let seats = hosts::seats(nodes, &none, &app.hosts, head).ok()?;
        found.extend(seats.iter().map(|seat| nodes[seat.node].id));
    }
    Some(found)
}

/// Why a request cannot be placed, before fixes are looked for.
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
    /// The ranks of a node (an index) cannot be bound as requested.
    Unbindable {
        node: usize,
        why: Unbindable,
    },
    /// Another job holds a cpu that the user listed.
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
        Compat::OpenMpi5 | Compat::Hydra if !request.needs.is_empty() => {
            let text = "--mem-per-rank and --resource cannot be used with --compat: omit one of them";
            Err(Obstacle::Policy(PolicyError { text: text.into() }))
        }
        Compat::OpenMpi5 => compat::openmpi5::place(nodes, request, head),
        Compat::Hydra => compat::hydra::place(nodes, request, head),
    }
}

#[cfg(test)]
mod tests;
