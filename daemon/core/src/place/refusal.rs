//! What is said when a job does not fit: what was asked, what is there, and which commands would work.
//!
//! Every fix offered was tried with the code that places jobs.

use std::fmt;

use thiserror::Error;

use super::hosts::Seat;
use super::{ASKED_MAX, Host, MapBy, NodeOffer, Obstacle, Placement, Request, try_place};
use crate::NodeId;

/// Nodes shown one by one; more are counted.
const ROWS_SHOWN: usize = 6;
/// Names of nodes shown when a host is unknown.
const NAMES_SHOWN: usize = 8;
/// Nodes, and ranges on each, shown of a placement.
const LAYOUT_SHOWN: usize = 4;

/// Why a job is not placed. Its text says all of it, over several lines.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A host list names what is no node.
    #[error("{}", unknown_host(host, named_in, known, *more))]
    UnknownHost {
        /// As the user wrote it.
        host: String,
        /// Where.
        named_in: String,
        /// Some names of nodes.
        known: Vec<String>,
        /// How many nodes there are besides.
        more: usize,
    },
    /// More ranks than slots free.
    #[error("{0}")]
    NotEnoughSlots(Box<Shortage>),
    /// The policy is none.
    #[error(transparent)]
    Policy(#[from] super::policy::PolicyError),
    /// More ranks than `max_slots` allows.
    #[error("{0}")]
    MaxSlots(Box<Shortage>),
    /// There is no node at all.
    #[error("the DVM has no node to place ranks on")]
    NoNodes,
    /// Nothing was asked for.
    #[error("0 ranks asked; a job has at least 1")]
    ZeroRanks,
    /// An absurd number.
    #[error("{asked} ranks asked; a job has at most {ASKED_MAX}")]
    TooMany {
        /// As many.
        asked: u64,
    },
}

impl Refusal {
    /// Whether the same request is placed once the other jobs have ended: it may wait.
    pub fn fits_when_idle(&self) -> bool {
        match self {
            Refusal::NotEnoughSlots(shortage) | Refusal::MaxSlots(shortage) => shortage.fits_when_idle,
            Refusal::UnknownHost { .. }
            | Refusal::NoNodes
            | Refusal::ZeroRanks
            | Refusal::Policy(_)
            | Refusal::TooMany { .. } => false,
        }
    }
}

/// A job that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Which of several programs did not fit, from 1.
    pub program: Option<usize>,
    /// How many ranks it asked for; absent: one per slot.
    pub asked: Option<u32>,
    /// How many could be placed.
    pub free: u64,
    /// Whether `max_slots` is what limits it.
    pub max_slots: bool,
    /// The nodes that it may use, up to a few.
    pub rows: Vec<Row>,
    /// How many nodes there are besides.
    pub more_nodes: usize,
    /// What would work, as the user would write it.
    pub fixes: Vec<String>,
    /// It fits when no other job runs.
    pub fits_when_idle: bool,
}

/// What a node has to give, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it offers and why: "2 slots (2 cores)".
    pub offers: String,
    /// Why not all of it: "1 in use".
    pub taken: String,
}

/// Finds the words, and the fixes.
pub(super) fn explain(nodes: &[NodeOffer], request: &Request, head: NodeId, obstacle: Obstacle) -> Refusal {
    match obstacle {
        Obstacle::NoNodes => Refusal::NoNodes,
        Obstacle::ZeroRanks => Refusal::ZeroRanks,
        Obstacle::TooMany { asked } => Refusal::TooMany { asked },
        Obstacle::Policy(error) => Refusal::Policy(error),
        Obstacle::UnknownHost(host) => Refusal::UnknownHost {
            host: host.name,
            named_in: host.source,
            known: nodes.iter().take(NAMES_SHOWN).map(|node| node.name.clone()).collect(),
            more: nodes.len().saturating_sub(NAMES_SHOWN),
        },
        Obstacle::Short { app, asked, seats } => {
            let max_slots = request.oversubscribe && asked.is_some();
            let limit = |seat: &Seat| u64::from(if max_slots { seat.room } else { seat.offer });
            let free = seats.iter().map(limit).sum();
            let shown = if seats.len() > ROWS_SHOWN { ROWS_SHOWN - 1 } else { seats.len() };
            let fits_when_idle = try_place(&idle(nodes), request, head).is_ok();
            let case = Case { nodes, request, head, app, asked, free, seats: &seats };
            let shortage = Box::new(Shortage {
                program: (request.apps.len() > 1).then_some(app + 1),
                asked,
                free,
                max_slots,
                rows: seats.iter().take(shown).map(|seat| row(&nodes[seat.node], seat, max_slots)).collect(),
                more_nodes: seats.len() - shown,
                fixes: if fits_when_idle { Vec::new() } else { case.fixes() },
                fits_when_idle,
            });
            if max_slots { Refusal::MaxSlots(shortage) } else { Refusal::NotEnoughSlots(shortage) }
        }
    }
}

fn idle(nodes: &[NodeOffer]) -> Vec<NodeOffer> {
    nodes.iter().map(|node| NodeOffer { in_use: 0, ..node.clone() }).collect()
}

/// A request that does not fit, to try changes on.
struct Case<'a> {
    nodes: &'a [NodeOffer],
    request: &'a Request,
    head: NodeId,
    app: usize,
    asked: Option<u32>,
    free: u64,
    seats: &'a [Seat],
}

impl Case<'_> {
    fn fixes(&self) -> Vec<String> {
        [self.fewer(), self.oversubscribe(), self.more_slots(), self.higher_max()].into_iter().flatten().collect()
    }

    fn fewer(&self) -> Option<String> {
        let n = u32::try_from(self.free).ok().filter(|n| *n > 0)?;
        self.asked?;
        let mut request = self.request.clone();
        request.apps[self.app].n = Some(n);
        self.placed(&request)?;
        Some(if request.apps.len() > 1 { format!("-n {n} for program {}", self.app + 1) } else { format!("-n {n}") })
    }

    fn oversubscribe(&self) -> Option<String> {
        if self.request.oversubscribe {
            return None;
        }
        let placement = self.placed(&Request { oversubscribe: true, ..self.request.clone() })?;
        Some(format!("--oversubscribe (=> {})", layout(self.nodes, &placement, self.request.order())))
    }

    /// More slots in the host list, on the nodes, or both: the smallest number, the same for all.
    fn more_slots(&self) -> Option<String> {
        let asked = self.asked.filter(|_| !self.request.oversubscribe)?;
        let nodes = |slots| self.nodes_with(slots);
        if self.seats.iter().all(|seat| seat.cap.is_none()) {
            let slots = smallest(asked, |slots| try_place(&nodes(slots), self.request, self.head).is_ok())?;
            return Some(format!("rsd start --slots {slots}"));
        }
        let list = self.list()?;
        let request = |slots| self.request_with(|host| host.slots = Some(slots));
        let below_max = |slots| list.hosts.iter().all(|host| host.max_slots.is_none_or(|max| slots <= max));
        if let Some(slots) = smallest(asked, |slots| self.placed(&request(slots)).is_some()).filter(|s| below_max(*s)) {
            return Some(list.with("slots", slots));
        }
        let both = |slots| try_place(&nodes(slots), &request(slots), self.head).is_ok();
        let slots = smallest(asked, both).filter(|slots| below_max(*slots))?;
        Some(format!("{} and rsd start --slots {slots}", list.with("slots", slots)))
    }

    fn higher_max(&self) -> Option<String> {
        let asked = self.asked.filter(|_| self.request.oversubscribe)?;
        let list = self.list().filter(|list| list.file.is_some())?;
        let request = |max| self.request_with(|host| host.max_slots = Some(max));
        let max = smallest(asked, |max| self.placed(&request(max)).is_some())?;
        let above_slots = list.hosts.iter().all(|host| host.slots.is_none_or(|slots| slots <= max));
        above_slots.then(|| list.with("max_slots", max))
    }

    fn placed(&self, request: &Request) -> Option<Placement> {
        try_place(self.nodes, request, self.head).ok()
    }

    /// The nodes, if those that the program may use had as many slots each.
    fn nodes_with(&self, slots: u32) -> Vec<NodeOffer> {
        let mut nodes = self.nodes.to_vec();
        self.seats.iter().for_each(|seat| nodes[seat.node].slots = slots);
        nodes
    }

    /// The request with the program's host list changed, also for the other programs that use it.
    fn request_with(&self, change: impl Fn(&mut Host)) -> Request {
        let mut request = self.request.clone();
        let list = &self.request.apps[self.app].hosts;
        request.apps.iter_mut().filter(|app| app.hosts == *list).flat_map(|app| &mut app.hosts).for_each(change);
        request
    }

    /// The host list, if one can say in a few words how to change it: each node once, with a number, all in one place.
    fn list(&self) -> Option<List<'_>> {
        let hosts = &self.request.apps[self.app].hosts[..];
        let file = hosts.first().and_then(|host| file_of(&host.source));
        let plain = |host: &Host| (host.slots.is_some() || host.max_slots.is_some()) && file_of(&host.source) == file;
        let plain = hosts.len() == self.seats.len() && hosts.iter().all(plain);
        (plain && (file.is_some() || hosts.len() <= LAYOUT_SHOWN)).then_some(List { hosts, file })
    }
}

struct List<'a> {
    hosts: &'a [Host],
    /// Absent: it stands on the command line.
    file: Option<&'a str>,
}

impl List<'_> {
    fn with(&self, key: &str, number: u32) -> String {
        match self.file {
            Some(file) => format!("{key}={number} in {file}"),
            None => {
                let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{}:{number}", host.name)).collect();
                format!("--host {}", hosts.join(","))
            }
        }
    }
}

/// The smallest of 1 to `most` that works, where whatever is larger works as well.
fn smallest(most: u32, works: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if works(middle) { high = middle } else { low = middle + 1 }
    }
    works(low).then_some(low)
}

/// "./hosts" of "hostfile ./hosts:1".
fn file_of(source: &str) -> Option<&str> {
    source.strip_prefix("hostfile ")?.rsplit_once(':').map(|(file, _)| file)
}

fn row(node: &NodeOffer, seat: &Seat, max_slots: bool) -> Row {
    let source = |source: &str| match seat.more_entries {
        0 => source.to_owned(),
        more => format!("{source} and {more} more"),
    };
    let offers = match (&seat.source, seat.cap) {
        (Some(by), _) if max_slots => format!("at most {} ({})", count(seat.room, "rank"), source(by)),
        (Some(by), Some(cap)) if cap > node.slots => {
            let by = source(by.strip_prefix("hostfile ").unwrap_or(by));
            format!("{} of {} asked by {by} ({})", node.slots, count(cap, "slot"), node.slots_reason)
        }
        (Some(by), Some(cap)) => format!("{} ({})", count(cap, "slot"), source(by)),
        (Some(_), None) | (None, _) => format!("{} ({})", count(node.slots, "slot"), node.slots_reason),
    };
    let mut taken = match seat.cap {
        Some(cap) if cap < node.slots && node.in_use > 0 => format!("{} of {} in use", node.in_use, node.slots),
        Some(_) | None => format!("{} in use", node.in_use),
    };
    if seat.placed > 0 {
        taken.push_str(&format!(", {} for this job's other programs", seat.placed));
    }
    Row { name: node.name.clone(), offers, taken }
}

/// "node0: 0-3, node1: 4-7", shortened where it is long.
fn layout(nodes: &[NodeOffer], placement: &Placement, map_by: MapBy) -> String {
    let name = |id: NodeId| nodes.iter().find(|node| node.id == id).map_or("?", |node| &node.name);
    let ranks = |id: NodeId| {
        let ranges = placement.map.ranges_on(id);
        let mut texts: Vec<String> =
            ranges.iter().take(LAYOUT_SHOWN).map(|range| range_text(range.start, range.end)).collect();
        if ranges.len() > LAYOUT_SHOWN {
            texts.push("…".into());
        }
        // Runs are told apart by commas, single ranks in rounds by blanks.
        texts.join(match map_by {
            MapBy::Slot => ",",
            MapBy::Node => " ",
        })
    };
    let ids = placement.map.nodes();
    let mut texts: Vec<String> =
        ids.iter().take(LAYOUT_SHOWN).map(|id| format!("{}: {}", name(*id), ranks(*id))).collect();
    if ids.len() > LAYOUT_SHOWN {
        texts.push("…".into());
    }
    texts.join(", ")
}

fn range_text(first: u32, end: u32) -> String {
    if end - first == 1 { first.to_string() } else { format!("{first}-{}", end - 1) }
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn unknown_host(host: &str, source: &str, known: &[String], more: usize) -> String {
    let known = known.join(", ");
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("host {host} ({source}) is no node of this DVM; its nodes are {known}{more}")
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.asked {
            Some(asked) => write!(f, "{} asked", count(asked, "rank"))?,
            None => write!(f, "one rank per slot asked")?,
        }
        if let Some(program) = self.program {
            write!(f, " for program {program}")?;
        }
        let free = u32::try_from(self.free).unwrap_or(u32::MAX);
        match self.max_slots {
            true => write!(f, ", max_slots allows {free}")?,
            false => write!(f, ", {} free", count(free, "slot"))?,
        }
        let nodes = self.rows.len() + self.more_nodes;
        write!(f, " on {}", count(nodes as u32, "node"))?;

        let width = |text: fn(&Row) -> &str| self.rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0);
        let (name, offers) = (width(|row| &row.name), width(|row| &row.offers));
        for row in &self.rows {
            write!(f, "\n  {:name$}  {:offers$}   {}", row.name, row.offers, row.taken)?;
        }
        if self.more_nodes > 0 {
            write!(f, "\n  … and {} more nodes", self.more_nodes)?;
        }
        match &self.fixes[..] {
            [] if self.fits_when_idle => write!(f, "\nit fits once other jobs have ended"),
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
