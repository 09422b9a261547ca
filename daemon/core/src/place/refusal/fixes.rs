//! Fixes for a refused request: each is tried with the code that places jobs and written as the user would type it.

use super::super::hosts::Seat;
use super::super::policy::{BindTo, Directive, RankBy};
use super::super::topology::Kind;
use super::super::{Host, NodeOffer, Placement, Request, try_place};
use super::Lack;
use crate::NodeId;

/// The most nodes of a placement that are shown, and the most ranges on each.
const LAYOUT_SHOWN: usize = 4;

/// A request that does not fit, to try changes on.
pub(super) struct Case<'a> {
    pub(super) nodes: &'a [NodeOffer],
    pub(super) request: &'a Request,
    pub(super) head: NodeId,
    pub(super) app: usize,
    pub(super) asked: Option<u32>,
    pub(super) free: u64,
    pub(super) seats: &'a [Seat],
}

impl Case<'_> {
    /// Fixes that make room for the ranks.
    pub(super) fn fixes(&self, lack: &Lack) -> Vec<String> {
        let each = match lack {
            Lack::Cpus { .. } => self.fewer_cpus(),
            Lack::Gpus { .. } => self.fewer_gpus(),
            Lack::Stock(_) => Some(
                "a smaller amount for each rank, or more of it on the nodes: rsd start --resource NAME:N".to_owned(),
            ),
            Lack::Slots | Lack::MaxSlots | Lack::PerObject(_) | Lack::Binding(_) => None,
        };
        let fixes = [self.fewer(), self.oversubscribe(), self.more_slots(), self.higher_max(), each];
        fixes.into_iter().flatten().collect()
    }

    /// Fixes that make the binding possible. `free`: how many ranks can be bound as requested.
    pub(super) fn binding_fixes(&self, free: u32) -> Vec<String> {
        let listed = self.request.policy.map_by.directive == Some(Directive::Rankfile);
        let asked = self.request.policy.bind_to.and_then(|bind_to| bind_to.kind);
        let kind = asked.unwrap_or(if self.request.policy.map_by.hwtcpus { Kind::Thread } else { Kind::Core });
        let exactly = |kind| BindTo { kind, overload_allowed: false, if_supported: false };
        let shared = BindTo { overload_allowed: true, ..exactly(Some(kind)) };
        let finer = [Kind::Core, Kind::Thread].into_iter().filter(|finer| *finer > kind && !listed);
        let finer = finer.map(|kind| exactly(Some(kind))).find(|bind_to| self.bound(*bind_to).is_some());
        let bindings =
            finer.into_iter().chain([shared, exactly(None)]).filter(|bind_to| self.bound(*bind_to).is_some());
        let fewer = (free > 0).then(|| format!("-n {free}"));
        fewer.into_iter().chain(bindings.map(|bind_to| format!("--bind-to {bind_to}"))).collect()
    }

    /// The most ranks that can be bound; 0 also for several programs, where one number would not be a fix.
    pub(super) fn most_bound(&self) -> u32 {
        let [app] = &self.request.apps[..] else { return 0 };
        let unbound = BindTo { kind: None, overload_allowed: false, if_supported: false };
        let Some(all) = self.bound(unbound).map(|placement| placement.map.size()) else { return 0 };
        let works = |n| {
            let mut request = self.request.clone();
            request.apps[0].n = Some(n);
            self.placed(&request).is_some()
        };
        largest(app.n.unwrap_or(all), works).unwrap_or(0)
    }

    fn bound(&self, bind_to: BindTo) -> Option<Placement> {
        let mut request = self.request.clone();
        request.policy.bind_to = Some(bind_to);
        self.placed(&request)
    }

    fn fewer_cpus(&self) -> Option<String> {
        let request = |pe| {
            let mut request = self.request.clone();
            request.policy.map_by.pe = Some(pe);
            request
        };
        let pe = largest(self.request.policy.map_by.pe?.saturating_sub(1), |pe| self.placed(&request(pe)).is_some())?;
        Some(format!("--map-by {}", request(pe).policy.map_by))
    }

    fn fewer_gpus(&self) -> Option<String> {
        let with = |gpus| {
            let mut request = self.request.clone();
            request.policy.gpus_per_rank = gpus;
            self.placed(&request)
        };
        match largest(self.request.policy.gpus_per_rank.saturating_sub(1), |gpus| with(gpus).is_some()) {
            Some(gpus) => Some(format!("--gpus-per-rank {gpus}")),
            None => with(0).map(|_| "omit --gpus-per-rank".to_owned()),
        }
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
        let mut request = Request { oversubscribe: true, ..self.request.clone() };
        let word = match request.policy.map_by.oversubscribe.take() {
            Some(false) => "--oversubscribe without nooversubscribe",
            Some(true) | None => "--oversubscribe",
        };
        let placement = self.placed(&request)?;
        Some(format!("{word} (=> {})", layout(self.nodes, &placement)))
    }

    /// More slots in the host list, on the nodes, or in both: the smallest number that works, the same for all.
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

    /// The nodes, with `slots` slots on each that the program may use.
    fn nodes_with(&self, slots: u32) -> Vec<NodeOffer> {
        let mut nodes = self.nodes.to_vec();
        self.seats.iter().for_each(|seat| nodes[seat.node].slots = slots);
        nodes
    }

    /// The request with the program's host list changed, also in the other programs that use the same list.
    fn request_with(&self, change: impl Fn(&mut Host)) -> Request {
        let mut request = self.request.clone();
        let list = &self.request.apps[self.app].hosts;
        request.apps.iter_mut().filter(|app| app.hosts == *list).flat_map(|app| &mut app.hosts).for_each(change);
        request
    }

    /// The host list, if a change to it is short to describe: each node once, with a number, all in one place.
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
    /// The file; absent: the command line.
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

/// The largest number of 1 to `most` that works, given that every smaller one works too.
fn largest(most: u32, works: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if works(middle) { low = middle } else { high = middle - 1 }
    }
    (low > 0).then_some(low)
}

/// The smallest number of 1 to `most` that works, given that every larger one works too.
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

/// "node0: 0-3, node1: 4-7", shortened where it is long.
fn layout(nodes: &[NodeOffer], placement: &Placement) -> String {
    let name = |id: NodeId| nodes.iter().find(|node| node.id == id).map_or("?", |node| &node.name);
    let ranks = |id: NodeId| {
        let ranges = placement.map.ranges_on(id);
        let mut texts: Vec<String> =
            ranges.iter().take(LAYOUT_SHOWN).map(|range| range_text(range.start, range.end)).collect();
        if ranges.len() > LAYOUT_SHOWN {
            texts.push("…".into());
        }
        // Commas separate runs, blanks separate single ranks.
        texts.join(match placement.policy.rank_by {
            Some(RankBy::Node | RankBy::Span) => " ",
            Some(RankBy::Slot | RankBy::Fill) | None => ",",
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
