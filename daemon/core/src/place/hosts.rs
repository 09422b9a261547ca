//! Resolves host lists: which nodes, in which order, and how many slots of each the job may use.

mod meaning;

use std::collections::HashMap;
use std::net::IpAddr;

use super::topology::Kind;
use super::{Host, NodeOffer};
use crate::NodeId;
pub(super) use meaning::{Meaning, entries};

/// A node at its position in a host list.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    /// Index into the offers.
    pub(super) node: usize,
    /// How many slots the host list allows; absent: all.
    pub(super) cap: Option<u32>,
    /// The most ranks of this program within the slots.
    pub(super) offer: u32,
    /// The most ranks of this program.
    pub(super) room: u32,
    /// Ranks of the job's earlier programs.
    pub(super) placed: u32,
    /// Where the list first names it; absent: no list.
    pub(super) source: Option<String>,
    /// How many other entries name it.
    pub(super) more_entries: usize,
    /// `offer` and `room` by slots alone.
    pub(super) by_slots: (u32, u32),
    /// The resource other than slots that limits `room`.
    pub(super) limit: Option<Limit>,
    /// How many ranks `ppr` places here.
    pub(super) wanted: Option<u32>,
}

/// A resource that ranks need besides a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    /// The resource.
    pub(super) of: Scarce,
    /// How many each rank needs.
    pub(super) each: u32,
    /// How many are free.
    pub(super) free: u32,
    /// How many would be free if no other job ran.
    pub(super) at_all: u32,
}

/// A resource that can be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scarce {
    /// Cores or threads.
    Cpus(Kind),
    /// GPUs.
    Gpus,
    /// One of the request's needs, by index; counted in ranks.
    Need(usize),
}

impl Seat {
    /// Lowers `offer` and `room` to what the resource allows.
    pub(super) fn limit(&mut self, limit: Limit) {
        let fits = (limit.free / limit.each.max(1)).saturating_sub(self.placed);
        if fits < self.room {
            self.offer = self.offer.min(fits);
            self.room = fits;
            self.limit = Some(limit);
        }
    }
}

/// Returns the seats for one program, in the order of its list, or of the nodes without a list. `placed[i]`: how many ranks of the
/// job are already on node i. Fails with the first unknown host.
pub(super) fn seats(nodes: &[NodeOffer], placed: &[u32], hosts: &[Host], head: NodeId) -> Result<Vec<Seat>, Host> {
    if hosts.is_empty() {
        return Ok((0..nodes.len()).map(|node| Mentions::default().seat(nodes, placed, node)).collect());
    }
    let mut order = Vec::new();
    let mut mentions: HashMap<usize, Mentions<'_>> = HashMap::new();
    for (node, host) in entries(nodes, hosts, head)? {
        let mentioned = mentions.entry(node).or_default();
        if mentioned.entries.is_empty() {
            order.push(node);
        }
        mentioned.entries.push(host);
    }
    Ok(order.into_iter().map(|node| mentions[&node].seat(nodes, placed, node)).collect())
}

/// All entries of a list that name one node.
#[derive(Default)]
struct Mentions<'a> {
    entries: Vec<&'a Host>,
}

impl Mentions<'_> {
    fn seat(&self, nodes: &[NodeOffer], placed: &[u32], node: usize) -> Seat {
        let (own, placed) = (&nodes[node], placed[node]);
        let cap = self.cap();
        let room = self.max().unwrap_or(u32::MAX).saturating_sub(placed);
        let free = own.slots.saturating_sub(own.in_use);
        let offer = free.min(cap.unwrap_or(free)).saturating_sub(placed).min(room);
        Seat {
            node,
            cap,
            offer,
            room,
            placed,
            source: self.entries.first().map(|entry| entry.source.clone()),
            more_entries: self.entries.len().saturating_sub(1),
            by_slots: (offer, room),
            limit: None,
            wanted: None,
        }
    }

    fn cap(&self) -> Option<u32> {
        match self.entries[..] {
            [] | [Host { slots: None, max_slots: None, .. }] => None,
            _ => {
                let slots = self.entries.iter().map(|entry| entry.slots.or(entry.max_slots).unwrap_or(1));
                let sum = slots.fold(0u32, u32::saturating_add);
                Some(sum.min(self.max().unwrap_or(u32::MAX))).filter(|cap| *cap != Host::WHOLE)
            }
        }
    }

    fn max(&self) -> Option<u32> {
        self.entries.iter().filter_map(|entry| entry.max_slots).min()
    }
}

/// Finds nodes by name: first exact, then ignoring case, then by the part before the first dot if either name has no dot, then by
/// host name or address.
pub(super) struct Names<'a> {
    exact: HashMap<&'a str, usize>,
    folded: HashMap<String, usize>,
    /// By short name; `None` if several nodes share it.
    short: HashMap<String, Option<usize>>,
    /// By host name, in full and short, and address.
    aliases: HashMap<String, Vec<usize>>,
    head: Option<usize>,
}

impl<'a> Names<'a> {
    pub(super) fn new(nodes: &'a [NodeOffer], head: NodeId) -> Names<'a> {
        let mut names = Names {
            exact: HashMap::with_capacity(nodes.len()),
            folded: HashMap::with_capacity(nodes.len()),
            short: HashMap::with_capacity(nodes.len()),
            aliases: HashMap::new(),
            head: nodes.iter().position(|node| node.id == head),
        };
        for (at, node) in nodes.iter().enumerate() {
            let folded = node.name.to_ascii_lowercase();
            names.exact.entry(&node.name).or_insert(at);
            names.short.entry(short(&folded).to_owned()).and_modify(|only| *only = None).or_insert(Some(at));
            names.folded.entry(folded).or_insert(at);
            let aliases = node.aliases.iter().map(|alias| alias.to_ascii_lowercase());
            let shorts = aliases.clone().map(|alias| short(&alias).to_owned());
            for alias in aliases.chain(shorts) {
                let known = names.aliases.entry(alias).or_default();
                if known.last() != Some(&at) {
                    known.push(at);
                }
            }
        }
        names
    }

    fn find(&self, host: &str) -> Option<usize> {
        let folded = host.to_ascii_lowercase();
        let known = self.exact.get(host).or_else(|| self.folded.get(&folded)).copied();
        let known = known.or_else(|| self.find_short(&folded));
        let known = known.or_else(|| if folded == "localhost" { self.head } else { None });
        known.or_else(|| match self.aliases.get(&folded).map(Vec::as_slice) {
            Some([only]) => Some(*only),
            Some(_) | None => None,
        })
    }

    /// Returns the nodes that a name could mean, if [`Names::find`] finds none because there are several.
    pub(super) fn candidates(&self, host: &str, nodes: &[NodeOffer]) -> Vec<usize> {
        let folded = host.to_ascii_lowercase();
        let named = |at: &usize| short(&nodes[*at].name.to_ascii_lowercase()) == folded;
        let shared: Vec<usize> = (0..nodes.len()).filter(named).collect();
        if shared.is_empty() { self.aliases.get(&folded).cloned().unwrap_or_default() } else { shared }
    }

    fn find_short(&self, folded: &str) -> Option<usize> {
        let short = short(folded);
        if short == folded {
            return self.short.get(short).copied().flatten();
        }
        // A full name matches a node known by its short name, but not a node in another domain.
        self.folded.get(short).copied().filter(|_| !short.is_empty())
    }
}

/// The part of a name before the first dot. Addresses have no short form.
fn short(name: &str) -> &str {
    if name.parse::<IpAddr>().is_ok() { name } else { name.split_once('.').map_or(name, |(short, _)| short) }
}
