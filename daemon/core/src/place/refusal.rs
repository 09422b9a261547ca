//! The refusal of a job that does not fit: what was requested, what is available, and which commands would work.
//!
//! Every suggested fix has been tried with the code that places jobs.

mod fixes;

use std::fmt;

use rsd_proto::resources::MEMORY;
use thiserror::Error;

use super::hosts::{Limit, Meaning, Names, Scarce, Seat};
use super::policy::{Compat, Directive, MapBy};
use super::topology::{Kind, word};
use super::{ASKED_MAX, Host, NodeOffer, Obstacle, Request, Stock, try_place};
use crate::NodeId;
use crate::place::cpuset::CpuSet;
use fixes::Case;

/// The most nodes that are listed; any others are only counted.
const ROWS_SHOWN: usize = 6;
/// The most node names that are listed for an unknown host.
const NAMES_SHOWN: usize = 8;

/// Why a job is not placed. Its text has several lines.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A host list names an unknown node.
    #[error("{}", unknown_host(host, named_in, known, *more))]
    UnknownHost {
        /// As the user wrote it.
        host: String,
        /// Where.
        named_in: String,
        /// The names of the first nodes.
        known: Vec<String>,
        /// How many nodes there are besides.
        more: usize,
    },
    /// A host list names several nodes with one word.
    #[error("{host} ({named_in}) names {} nodes: {}; use one of these names", candidates.len(), candidates.join(", "))]
    AmbiguousHost {
        /// As the user wrote it.
        host: String,
        /// Where.
        named_in: String,
        /// The names of the nodes, each with its id.
        candidates: Vec<String>,
    },
    /// A host list names a label that too few nodes have.
    #[error("{}", few_labelled(host, named_in, labelled))]
    FewLabelled {
        /// As the user wrote it.
        host: String,
        /// Where.
        named_in: String,
        /// The names of the nodes with this label.
        labelled: Vec<String>,
    },
    /// A host list names a node by an index beyond the last node.
    #[error("no node {host} ({named_in}): the DVM has {}, from +n0; see: rsctl nodes", count(*nodes as u32, "node"))]
    NoSuchPlace {
        /// As the user wrote it.
        host: String,
        /// Where.
        named_in: String,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A host list requests more idle nodes than there are.
    #[error("{}", few_idle(host, named_in, *idle, *nodes, *fits_when_idle))]
    FewIdle {
        /// As the user wrote it.
        host: String,
        /// Where.
        named_in: String,
        /// How many nodes run no job.
        idle: usize,
        /// How many nodes there are.
        nodes: usize,
        /// Whether there are enough when no other job runs.
        fits_when_idle: bool,
    },
    /// More ranks than free slots, or than there are cpus or GPUs for.
    #[error("{0}")]
    NotEnoughSlots(Box<Shortage>),
    /// The policy is invalid, contradicts itself, or does not fit the nodes.
    #[error(transparent)]
    Policy(#[from] super::policy::PolicyError),
    /// More ranks than `max_slots` allows.
    #[error("{0}")]
    MaxSlots(Box<Shortage>),
    /// The requested binding is not possible.
    #[error("{0}")]
    Binding(Box<Shortage>),
    /// The DVM has less of a resource that is free, or at all.
    #[error("{}", few_in_dvm(name, *asked, *free, *total))]
    FewInDvm {
        /// The resource.
        name: String,
        /// How much the job requests.
        asked: u64,
        /// How much is free.
        free: u64,
        /// How much there is.
        total: u64,
    },
    /// No node is available.
    #[error("no node to place ranks on; see: rsctl nodes")]
    NoNodes,
    /// No rank was requested.
    #[error("0 ranks requested; request at least 1 with -n")]
    ZeroRanks,
    /// More ranks than any job may have.
    #[error("{asked} ranks requested; a job has at most {ASKED_MAX}")]
    TooMany {
        /// The number requested.
        asked: u64,
    },
}

impl Refusal {
    /// Whether the same request fits once other jobs end, so that it may be queued.
    pub fn fits_when_idle(&self) -> bool {
        match self {
            Refusal::FewIdle { fits_when_idle, .. } => *fits_when_idle,
            Refusal::FewInDvm { asked, total, .. } => asked <= total,
            refusal => refusal.shortage().is_some_and(|shortage| shortage.fits_when_idle),
        }
    }

    /// The shortage, if that is the reason.
    pub fn shortage(&self) -> Option<&Shortage> {
        match self {
            Refusal::NotEnoughSlots(shortage) | Refusal::MaxSlots(shortage) | Refusal::Binding(shortage) => {
                Some(shortage)
            }
            Refusal::UnknownHost { .. }
            | Refusal::AmbiguousHost { .. }
            | Refusal::FewLabelled { .. }
            | Refusal::NoSuchPlace { .. }
            | Refusal::FewIdle { .. }
            | Refusal::FewInDvm { .. }
            | Refusal::NoNodes
            | Refusal::ZeroRanks
            | Refusal::Policy(_)
            | Refusal::TooMany { .. } => None,
        }
    }
}

/// A job that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The program that did not fit, from 1, if there are several.
    pub program: Option<usize>,
    /// How many ranks it requested; absent: one per slot.
    pub asked: Option<u32>,
    /// How many could be placed: now, or without other jobs.
    pub free: u64,
    /// The resource that is short.
    pub lack: Lack,
    /// The first few nodes that it may use.
    pub rows: Vec<Row>,
    /// How many nodes there are besides.
    pub more_nodes: usize,
    /// Changes that would work, as the user would type them.
    pub fixes: Vec<String>,
    /// Whether it fits when no other job runs.
    pub fits_when_idle: bool,
    /// Whether `free` counts what other jobs hold too: other jobs run, and the request does not fit without them.
    pub without_others: bool,
}

/// A resource that is short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// Slots.
    Slots,
    /// `max_slots`.
    MaxSlots,
    /// Cores or threads for `pe=N` and `pe-list`.
    Cpus {
        /// For each rank.
        each: u32,
        /// Which.
        kind: Kind,
    },
    /// GPUs.
    Gpus {
        /// For each rank.
        each: u32,
    },
    /// Something that nodes have a stock of: how much for each rank, as text.
    Stock(String),
    /// Room for the ranks on each object of `ppr:N:object`.
    PerObject(String),
    /// The requested binding; the text says why it is not possible.
    Binding(String),
}

/// A node in a refusal, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its offer and the source of that: "2 slots (2 cores)".
    pub offers: String,
    /// How much of it is used: "1 in use".
    pub taken: String,
}

/// Turns an obstacle into a refusal with fixes.
pub(super) fn explain(nodes: &[NodeOffer], request: &Request, head: NodeId, obstacle: Obstacle) -> Refusal {
    match obstacle {
        Obstacle::NoNodes => Refusal::NoNodes,
        Obstacle::ZeroRanks => Refusal::ZeroRanks,
        Obstacle::TooMany { asked } => Refusal::TooMany { asked },
        Obstacle::Policy(error) => Refusal::Policy(error),
        Obstacle::UnknownHost(host) => no_such_host(nodes, request, head, host),
        Obstacle::Short { app, asked, seats } => short(nodes, request, head, app, asked, &seats),
        Obstacle::Unbindable { node, why } => {
            let text = format!("{}: cannot bind ranks on {}: {why}", asked_binding(request), nodes[node].name);
            unbindable(nodes, request, head, text)
        }
        Obstacle::Taken { text } => unbindable(nodes, request, head, text),
    }
}

fn no_such_host(nodes: &[NodeOffer], request: &Request, head: NodeId, host: Host) -> Refusal {
    let Host { name, source: named_in, .. } = host;
    match Meaning::of(&name) {
        Meaning::Nth(_) => Refusal::NoSuchPlace { host: name, named_in, nodes: nodes.len() },
        Meaning::Idle(_) => Refusal::FewIdle {
            host: name,
            named_in,
            idle: nodes.iter().filter(|node| node.in_use == 0).count(),
            nodes: nodes.len(),
            fits_when_idle: try_place(&idle(nodes), request, head).is_ok(),
        },
        Meaning::Named(_) | Meaning::Id(_) | Meaning::Labelled { .. } | Meaning::Excluded(_) => {
            no_node(nodes, head, Host { name, slots: None, max_slots: None, source: named_in })
        }
    }
}

/// Explains why an entry of a host list names no node, or several.
pub(super) fn no_node(nodes: &[NodeOffer], head: NodeId, host: Host) -> Refusal {
    let Host { name, source: named_in, .. } = host;
    match Meaning::of(&name) {
        Meaning::Nth(_) => return Refusal::NoSuchPlace { host: name, named_in, nodes: nodes.len() },
        Meaning::Labelled { key, value, .. } => {
            let has_it = |node: &&NodeOffer| node.labels.iter().any(|(k, v)| k == key && v == value);
            let labelled = nodes.iter().filter(has_it).map(|node| node.name.clone()).collect();
            return Refusal::FewLabelled { host: name, named_in, labelled };
        }
        Meaning::Named(_) | Meaning::Id(_) | Meaning::Idle(_) | Meaning::Excluded(_) => {}
    }
    let candidates = Names::new(nodes, head).candidates(&name, nodes);
    if candidates.len() > 1 {
        let shown = candidates.iter().map(|at| format!("{} (+id{})", nodes[*at].name, nodes[*at].id));
        return Refusal::AmbiguousHost { host: name, named_in, candidates: shown.collect() };
    }
    Refusal::UnknownHost {
        host: name,
        named_in,
        known: nodes.iter().take(NAMES_SHOWN).map(|node| node.name.clone()).collect(),
        more: nodes.len().saturating_sub(NAMES_SHOWN),
    }
}

fn few_labelled(host: &str, named_in: &str, labelled: &[String]) -> String {
    match labelled {
        [] => format!(
            "no node that takes ranks has the label {host} ({named_in}): rsctl nodes lists labels, rsctl node label sets them"
        ),
        _ => format!(
            "{host} ({named_in}): only {} has this label, or is not named otherwise: {}",
            labelled.len(),
            labelled.join(", ")
        ),
    }
}

fn few_in_dvm(name: &str, asked: u64, free: u64, total: u64) -> String {
    match asked <= total {
        true => format!("{name}:{asked} requested, {free} of {total} free in the DVM"),
        false => format!(
            "{name}:{asked} requested, the DVM has {total}; request at most {name}:{total}, or declare more in the head's setting \
             jobs.resources"
        ),
    }
}

fn few_idle(host: &str, named_in: &str, idle: usize, nodes: usize, fits_when_idle: bool) -> String {
    let advice = match (fits_when_idle, idle) {
        (true, _) => String::new(),
        (false, 0) => "; omit it, or name nodes".to_owned(),
        (false, _) => format!("; use at most +e:{idle}, less the idle nodes that the list names"),
    };
    let are = if idle == 1 { "is" } else { "are" };
    format!("{host} ({named_in}): {idle} of {nodes} nodes {are} idle{advice}")
}

fn short(
    nodes: &[NodeOffer],
    request: &Request,
    head: NodeId,
    app: usize,
    asked: Option<u32>,
    seats: &[Seat],
) -> Refusal {
    let idle = idle(nodes);
    let when_idle = try_place(&idle, request, head);
    let fits_when_idle = when_idle.is_ok();
    // What never fits is compared with all that there is, instead of with what is free now.
    let (counted, nodes_counted, without_others) = match &when_idle {
        Err(Obstacle::Short { app: same, seats: all, .. }) if *same == app && nodes.iter().any(is_used) => {
            (&all[..], &idle[..], true)
        }
        Ok(_) | Err(_) => (seats, nodes, false),
    };
    let oversubscribed = request.oversubscribe && asked.is_some();
    let lack = lack(request, asked, oversubscribed, counted);
    let most = |seat: &Seat| if oversubscribed { seat.room } else { seat.offer };
    let free = match lack {
        // Counts up to the first node that cannot take its ranks.
        Lack::PerObject(_) => {
            let wanted = |seat: &Seat| seat.wanted.unwrap_or(0);
            let whole = counted.iter().take_while(|seat| wanted(seat) <= most(seat)).count();
            let whole_ranks: u64 = counted[..whole].iter().map(|seat| u64::from(wanted(seat))).sum();
            whole_ranks + counted.get(whole).map_or(0, |seat| u64::from(most(seat)))
        }
        Lack::Slots | Lack::MaxSlots | Lack::Cpus { .. } | Lack::Gpus { .. } | Lack::Stock(_) | Lack::Binding(_) => {
            counted.iter().map(|seat| u64::from(most(seat))).sum()
        }
    };
    let shown = if seats.len() > ROWS_SHOWN { ROWS_SHOWN - 1 } else { seats.len() };
    let max_slots = lack == Lack::MaxSlots;
    let case = Case { nodes: nodes_counted, request, head, app, asked, free, seats: counted };
    let shortage = Box::new(Shortage {
        program: (request.apps.len() > 1).then_some(app + 1),
        asked,
        free,
        rows: seats.iter().take(shown).map(|seat| row(&nodes[seat.node], seat, max_slots, &request.needs)).collect(),
        more_nodes: seats.len() - shown,
        fixes: if fits_when_idle { Vec::new() } else { case.fixes(&lack) },
        lack,
        fits_when_idle,
        without_others,
    });
    if max_slots { Refusal::MaxSlots(shortage) } else { Refusal::NotEnoughSlots(shortage) }
}

fn lack(request: &Request, asked: Option<u32>, oversubscribed: bool, seats: &[Seat]) -> Lack {
    if let (Some(Directive::Ppr { .. }), Compat::Rsd) = (&request.policy.map_by.directive, request.policy.compat) {
        let directive = request.policy.map_by.directive.clone();
        return Lack::PerObject(MapBy { directive, ..MapBy::default() }.to_string());
    }
    let slots = |seat: &Seat| u64::from(if oversubscribed { seat.by_slots.1 } else { seat.by_slots.0 });
    let enough_slots = seats.iter().map(slots).sum::<u64>() >= u64::from(asked.unwrap_or(1));
    match seats.iter().find_map(|seat| seat.limit).filter(|_| enough_slots) {
        Some(Limit { of: Scarce::Cpus(kind), each, .. }) => Lack::Cpus { each, kind },
        Some(Limit { of: Scarce::Gpus, each, .. }) => Lack::Gpus { each },
        Some(Limit { of: Scarce::Need(at), .. }) => {
            Lack::Stock(request.needs.get(at).map_or_else(String::new, |(name, each)| amount(name, *each)))
        }
        None if oversubscribed => Lack::MaxSlots,
        None => Lack::Slots,
    }
}

fn unbindable(nodes: &[NodeOffer], request: &Request, head: NodeId, text: String) -> Refusal {
    let fits_when_idle = try_place(&idle(nodes), request, head).is_ok();
    let asked = request.apps.iter().map(|app| app.n).try_fold(0u32, |sum, n| Some(sum.saturating_add(n?)));
    let case = Case { nodes, request, head, app: 0, asked, free: 0, seats: &[] };
    let free = case.most_bound();
    Refusal::Binding(Box::new(Shortage {
        program: None,
        asked,
        free: free.into(),
        rows: Vec::new(),
        more_nodes: 0,
        fixes: if fits_when_idle { Vec::new() } else { case.binding_fixes(free) },
        lack: Lack::Binding(text),
        fits_when_idle,
        without_others: false,
    }))
}

/// The user's binding request, as typed.
fn asked_binding(request: &Request) -> String {
    let policy = &request.policy;
    match (policy.bind_to, policy.map_by.pe) {
        (_, Some(pe)) => format!("pe={pe}"),
        (Some(bind_to), None) => format!("--bind-to {bind_to}"),
        (None, None) => format!("--map-by {}", policy.map_by),
    }
}

/// Whether other jobs hold something of a node.
fn is_used(node: &NodeOffer) -> bool {
    let NodeOffer { in_use, taken, gpus_taken, stocks, .. } = node;
    *in_use > 0 || !taken.is_empty() || !gpus_taken.is_empty() || stocks.iter().any(|stock| stock.held > 0)
}

fn idle(nodes: &[NodeOffer]) -> Vec<NodeOffer> {
    let idle = |node: &NodeOffer| NodeOffer {
        in_use: 0,
        taken: CpuSet::EMPTY,
        gpus_taken: CpuSet::EMPTY,
        stocks: node.stocks.iter().map(|stock| Stock { held: 0, ..stock.clone() }).collect(),
        ..node.clone()
    };
    nodes.iter().map(idle).collect()
}

fn row(node: &NodeOffer, seat: &Seat, max_slots: bool, needs: &[(String, u64)]) -> Row {
    let source = |source: &str| match seat.more_entries {
        0 => source.to_owned(),
        more => format!("{source} and {more} more"),
    };
    let mut offers = match (&seat.source, seat.cap) {
        (Some(by), _) if max_slots => format!("at most {} ({})", count(seat.room, "rank"), source(by)),
        (Some(by), Some(cap)) if cap > node.slots => {
            let by = source(by.strip_prefix("hostfile ").unwrap_or(by));
            format!("{} of {} requested by {by} ({})", node.slots, count(cap, "slot"), node.slots_reason)
        }
        (Some(by), Some(cap)) => format!("{} ({})", count(cap, "slot"), source(by)),
        (Some(_), None) | (None, _) => format!("{} ({})", count(node.slots, "slot"), node.slots_reason),
    };
    if let Some(Limit { of: Scarce::Need(at), .. }) = seat.limit
        && let Some((name, _)) = needs.get(at)
    {
        match node.stocks.iter().find(|stock| stock.name == *name) {
            Some(Stock { total, held, .. }) => {
                let others =
                    if *held > 0 { format!(" ({} held by other jobs)", amount(name, *held)) } else { String::new() };
                offers.push_str(&format!(", {} free{others}", amount(name, total.saturating_sub(*held))));
            }
            None => offers.push_str(&format!(", no {name}")),
        }
    } else if let Some(Limit { of, free, at_all, .. }) = seat.limit {
        let what = match of {
            Scarce::Cpus(kind) => count(free, word(kind)),
            Scarce::Gpus => count(free, "GPU"),
            Scarce::Need(_) => count(free, "rank"),
        };
        let others = match at_all.saturating_sub(free) {
            0 => String::new(),
            others => format!(" ({others} held by other jobs)"),
        };
        offers.push_str(&format!(", {what} free{others}"));
    }
    if let Some(wanted) = seat.wanted {
        offers.push_str(&format!(", {} requested", count(wanted, "rank")));
    }
    let mut taken = match seat.cap {
        Some(cap) if cap < node.slots && node.in_use > 0 => format!("{} of {} in use", node.in_use, node.slots),
        Some(_) | None => format!("{} in use", node.in_use),
    };
    if seat.placed > 0 {
        taken.push_str(&format!(", {} for this job's other programs", seat.placed));
    }
    Row { name: node.name.clone(), offers, taken }
}

/// Returns an amount of a stock: `licence:2`, `1.5 GiB of memory`.
pub(super) fn amount(name: &str, amount: u64) -> String {
    match name {
        MEMORY => format!("{} of memory", bytes(amount)),
        name => format!("{name}:{amount}"),
    }
}

fn bytes(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn unknown_host(host: &str, source: &str, known: &[String], more: usize) -> String {
    let known = known.join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    // `--host` needs no hint where the name is; a file does.
    let place = if source == "--host" { String::new() } else { format!("{source}: ") };
    format!("{place}no node named {host} in this DVM (nodes: {known}{more})")
}

impl Shortage {
    /// Writes the request, and how much of it is available.
    fn headline(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Lack::Binding(text) = &self.lack {
            return f.write_str(text);
        }
        match self.asked {
            Some(asked) => write!(f, "{} requested", count(asked, "rank"))?,
            None if matches!(self.lack, Lack::PerObject(_)) => write!(f, "ranks requested")?,
            None => write!(f, "one rank per slot requested")?,
        }
        match &self.lack {
            Lack::Slots | Lack::MaxSlots | Lack::Binding(_) => {}
            Lack::Cpus { each, kind } => write!(f, " with {} each", count(*each, word(*kind)))?,
            Lack::Gpus { each } => write!(f, " with {} each", count(*each, "GPU"))?,
            Lack::Stock(each) => write!(f, " with {each} each")?,
            Lack::PerObject(ppr) => write!(f, " by {ppr}")?,
        }
        if let Some(program) = self.program {
            write!(f, " for program {program}")?;
        }
        let free = u32::try_from(self.free).unwrap_or(u32::MAX);
        match self.lack {
            Lack::MaxSlots => write!(f, ", max_slots allows {free}")?,
            Lack::Slots if self.without_others => write!(f, ", {}", count(free, "slot"))?,
            Lack::Slots => write!(f, ", {} free", count(free, "slot"))?,
            Lack::Cpus { .. } | Lack::Gpus { .. } | Lack::Stock(_) | Lack::PerObject(_) | Lack::Binding(_) => {
                write!(f, ", room for {free}")?
            }
        }
        write!(f, " on {}", count((self.rows.len() + self.more_nodes) as u32, "node"))?;
        f.write_str(if self.without_others { " without other jobs" } else { "" })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.headline(f)?;
        let width = |text: fn(&Row) -> &str| self.rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0);
        let (name, offers) = (width(|row| &row.name), width(|row| &row.offers));
        for row in &self.rows {
            write!(f, "\n  {:name$}  {:offers$}   {}", row.name, row.offers, row.taken)?;
        }
        if self.more_nodes > 0 {
            write!(f, "\n  … and {} more nodes", self.more_nodes)?;
        }
        match &self.fixes[..] {
            [] if self.fits_when_idle => write!(f, "\nthe job fits once other jobs end"),
            [] => Ok(()),
            [only] => write!(f, "\nfix:  {only}"),
            [first, others @ ..] => {
                // The first column is as wide as `-n 16`.
                write!(f, "\nfix one of:  {first:<5}")?;
                others.iter().try_for_each(|fix| write!(f, "  |  {fix}"))
            }
        }
    }
}
