//! A plan, prepared for output: every node's ranks and their bindings, with the indexes of the message resolved.

use std::collections::HashMap;

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Topology};
use rsd_proto::v1::{Plan, PlanNode};

use crate::placement::{self, list, set};

/// A plan.
pub(crate) struct View<'a> {
    pub(crate) plan: &'a Plan,
    /// In order of their first rank.
    pub(crate) nodes: Vec<Node<'a>>,
    /// Groups of nodes with equal drawings, in order of their first nodes.
    pub(crate) groups: Vec<Group>,
    topologies: Vec<Option<Topology>>,
    bindings: Vec<Vec<Bound<'a>>>,
}

/// A node that has ranks.
pub(crate) struct Node<'a> {
    /// The node as the plan describes it.
    pub(crate) offer: &'a PlanNode,
    /// Its ranks, as inclusive ranges in ascending order.
    pub(crate) ranges: Vec<(u32, u32)>,
    /// Its place in [`View::groups`].
    pub(crate) group: usize,
}

/// Nodes with the same processor, the same usable threads and the same bindings.
pub(crate) struct Group {
    /// Places in [`View::nodes`], ascending.
    pub(crate) nodes: Vec<usize>,
}

/// How a rank is bound.
pub(crate) struct Bound<'a> {
    /// Hardware threads by logical index; empty: unbound.
    pub(crate) threads: CpuSet,
    /// Places among the node's GPUs.
    pub(crate) gpus: &'a [u32],
    pub(crate) reason: &'a str,
}

/// Where a rank is: its node's place in [`View::nodes`], and its own among the node's ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) node: u32,
    pub(crate) local: u32,
}

/// The binding of a rank that the plan does not mention.
static UNSAID: Bound<'static> = Bound { threads: CpuSet::EMPTY, gpus: &[], reason: "" };

impl<'a> View<'a> {
    /// Resolves the indexes of a plan. Cost: one step per node and per run of ranks.
    pub(crate) fn new(plan: &'a Plan) -> View<'a> {
        let map = plan.map.clone().unwrap_or_default();
        let (mut groups, mut known) = (Vec::<Group>::new(), HashMap::new());
        let mut nodes = Vec::new();
        for (at, (offer, placed)) in plan.nodes.iter().zip(placement::by_node(&map, &[])).enumerate() {
            let gpus: Vec<_> = offer.gpus.iter().map(|gpu| (gpu.index, &gpu.near)).collect();
            let alike = (offer.topology, offer.binding, &offer.usable, &offer.taken, gpus);
            let group = *known.entry(alike).or_insert(groups.len());
            match groups.get_mut(group) {
                Some(group) => group.nodes.push(at),
                None => groups.push(Group { nodes: vec![at] }),
            }
            nodes.push(Node { offer, ranges: placed.ranges, group });
        }
        let bound = |ranks: &'a [rsd_proto::v1::RankBinding]| {
            let one = |rank: &'a rsd_proto::v1::RankBinding| Bound {
                threads: set(&rank.threads),
                gpus: &rank.gpus,
                reason: &rank.reason,
            };
            ranks.iter().map(one).collect()
        };
        View {
            plan,
            nodes,
            groups,
            topologies: plan.topologies.iter().map(|wire| Topology::try_from(wire).ok()).collect(),
            bindings: plan.bindings.iter().map(|binding| bound(&binding.ranks)).collect(),
        }
    }

    /// Returns the number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.nodes.iter().map(Node::count).sum()
    }

    /// Returns the seats: `seats[r]` is that of rank r.
    pub(crate) fn seats(&self) -> Vec<Seat> {
        let mut seats = vec![Seat { node: 0, local: 0 }; self.ranks() as usize];
        for (node, local) in self.nodes.iter().zip(0..) {
            for (rank, at) in local_ranks(node) {
                if let Some(seat) = seats.get_mut(rank as usize) {
                    *seat = Seat { node: local, local: at };
                }
            }
        }
        seats
    }

    /// Returns the processor of a node; None if the daemon did not send a valid one.
    pub(crate) fn topology(&self, node: &Node<'_>) -> Option<&Topology> {
        self.topologies.get(node.offer.topology as usize)?.as_ref()
    }

    /// Returns the binding of the node's rank with this local rank.
    pub(crate) fn bound(&self, node: &Node<'_>, local: u32) -> &Bound<'_> {
        let binding = self.bindings.get(node.offer.binding as usize);
        binding.and_then(|ranks| ranks.get(local as usize)).unwrap_or(&UNSAID)
    }

    /// Returns the binding of the rank in this seat.
    pub(crate) fn seat(&self, seat: Seat) -> &Bound<'_> {
        self.bound(&self.nodes[seat.node as usize], seat.local)
    }

    /// Returns the cores that contain the threads of a binding, by logical index.
    pub(crate) fn cores(&self, node: &Node<'_>, bound: &Bound<'_>) -> CpuSet {
        let cores = self.topology(node).map(|topology| topology.objects_of(Kind::Core, &bound.threads));
        cores.unwrap_or_default()
    }

    /// Returns the node's ranks with their bindings, ascending.
    pub(crate) fn bounds<'b>(&'b self, node: &'b Node<'_>) -> impl Iterator<Item = (u32, &'b Bound<'b>)> {
        local_ranks(node).map(|(rank, local)| (rank, self.bound(node, local)))
    }

    /// Returns "core 3", "cores 0-1", "threads 0,2"; an empty text if the rank is unbound.
    pub(crate) fn cpus(&self, node: &Node<'_>, bound: &Bound<'_>) -> String {
        if bound.threads.is_empty() {
            return String::new();
        }
        match self.topology(node).and_then(|topology| whole_cores(topology, &bound.threads)) {
            Some(cores) => numbered("core", &cores),
            None => numbered("thread", &bound.threads),
        }
    }

    /// Returns the names of nodes in short form: "node0,node[2-9]".
    pub(crate) fn names(&self, nodes: &[usize]) -> String {
        names(nodes.iter().map(|at| &*self.nodes[*at].offer.name))
    }
}

impl Node<'_> {
    /// Returns the number of its ranks.
    pub(crate) fn count(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }
}

fn local_ranks<'b>(node: &'b Node<'_>) -> impl Iterator<Item = (u32, u32)> + use<'b> {
    node.ranges.iter().flat_map(|(first, last)| *first..=*last).zip(0..)
}

/// Returns the cores of these threads if the threads are whole cores.
pub(crate) fn whole_cores(topology: &Topology, threads: &CpuSet) -> Option<CpuSet> {
    let cores = topology.objects_of(Kind::Core, threads);
    let of_core = |core: u32| topology.objects(Kind::Core).get(core as usize).map_or(0, |core| core.threads.len());
    let all: usize = cores.iter().map(of_core).sum();
    (all == threads.len() as usize).then_some(cores)
}

fn numbered(what: &str, set: &CpuSet) -> String {
    format!("{what}{} {}", if set.len() == 1 { "" } else { "s" }, list(set))
}

/// Joins names with consecutive numbers, in the form of host lists: "node[0-9],login". Names beyond the first few are counted.
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 4;
    let mut runs: Vec<(&str, &str, &str, usize)> = Vec::new();
    for name in names {
        let (stem, digits) = numbered_name(name);
        match runs.last_mut() {
            Some((run, _, last, count)) if *run == stem && follows(last, digits) => {
                (*last, *count) = (digits, *count + 1);
            }
            Some(_) | None => runs.push((stem, digits, digits, 1)),
        }
    }
    let text = |&(stem, first, last, count): &(&str, &str, &str, usize)| match count {
        1 => format!("{stem}{first}"),
        _ => format!("{stem}[{first}-{last}]"),
    };
    let mut shown: Vec<String> = runs.iter().take(SHOWN).map(text).collect();
    let more: usize = runs.iter().skip(SHOWN).map(|(_, _, _, count)| count).sum();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join(",")
}

/// Splits "node07" into "node" and "07".
fn numbered_name(name: &str) -> (&str, &str) {
    name.split_at(name.trim_end_matches(|c: char| c.is_ascii_digit()).len())
}

/// Whether `next` is one more than `last` and has the same padding, as 08 after 07.
fn follows(last: &str, next: &str) -> bool {
    let padded = |text: &str| text.len() > 1 && text.starts_with('0');
    let alike = last.len() == next.len() || !(padded(last) || padded(next));
    match (last.parse::<u64>(), next.parse::<u64>()) {
        (Ok(last), Ok(next)) => alike && last.checked_add(1) == Some(next),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_consecutive_numbers_are_joined() {
        let vectors = [
            (vec!["node0"], "node0"),
            (vec!["node0", "node1", "node2", "login"], "node[0-2],login"),
            (vec!["n08", "n09", "n10", "n12"], "n[08-10],n12"),
            (vec!["n9", "n10"], "n[9-10]"),
            (vec!["n09", "n010"], "n09,n010"),
            (vec!["a", "b"], "a,b"),
            (vec!["a", "b", "c", "d", "e5", "e6"], "a,b,c,d,2 more"),
            (vec!["n1", "n0"], "n1,n0"),
        ];
        for (given, short) in vectors {
            assert_eq!(names(given), short);
        }
    }

    #[test]
    fn whole_cores_are_distinguished_from_single_threads() {
        let topology = Topology::regular(&[(Kind::Core, 4), (Kind::Thread, 2)]).unwrap();
        assert_eq!(whole_cores(&topology, &CpuSet::range(2..6)), Some(CpuSet::range(1..3)));
        assert_eq!(whole_cores(&topology, &CpuSet::range(2..5)), None);
    }
}
