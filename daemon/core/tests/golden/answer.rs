//! The node and binding of each rank, in a form to compare and print.

use std::fmt;

use rsd_core::place::cpuset::CpuSet;
use rsd_core::place::topology::{Kind, Topology};
use rsd_core::place::{NodeOffer, Placement};

/// The node and the threads of each rank; an empty set means unbound.
#[derive(PartialEq, Eq)]
pub(crate) struct Answer(Vec<(String, CpuSet)>);

impl Answer {
    pub(crate) fn of(placement: &Placement, nodes: &[NodeOffer]) -> Answer {
        let mut ranks = vec![None; placement.map.size() as usize];
        let runs = placement.binding_runs.iter().flat_map(|(count, index)| (0..*count).map(|_| *index as usize));
        let runs: Vec<usize> = runs.collect();
        assert_eq!(runs.len(), placement.map.nodes().len());
        for (id, index) in placement.map.nodes().iter().zip(runs) {
            let bindings = &placement.bindings[index];
            assert_eq!(bindings.len(), placement.map.ranks_on(*id).count());
            for (rank, binding) in placement.map.ranks_on(*id).zip(bindings.iter()) {
                let name = nodes.iter().find(|node| node.id == *id).unwrap().name.clone();
                ranks[rank as usize] = Some((name, binding.threads.clone()));
            }
        }
        Answer(ranks.into_iter().map(|rank| rank.expect("every rank is on a node")).collect())
    }

    pub(crate) fn recorded(procs: &[(usize, String, String)], topology: &Topology) -> Answer {
        let rank = |(at, (rank, node, binding)): (usize, &(usize, String, String))| {
            assert_eq!(*rank, at, "ranks are in order");
            (node.clone(), threads(binding, topology))
        };
        Answer(procs.iter().enumerate().map(rank).collect())
    }
}

/// The threads of `package[0][core:L0-3]`, `package[0][hwt:L1]` or `UNBOUND`.
fn threads(binding: &str, topology: &Topology) -> CpuSet {
    if binding == "UNBOUND" {
        return CpuSet::EMPTY;
    }
    let (kind, list) = binding.trim_end_matches(']').rsplit_once(":L").unwrap();
    let objects = match kind.rsplit_once('[').unwrap().1 {
        "core" => topology.objects(Kind::Core),
        "hwt" => topology.objects(Kind::Thread),
        other => panic!("unknown cpu: {other}"),
    };
    let number = |text: &str| text.parse::<usize>().unwrap();
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    ranges
        .flat_map(|(first, last)| objects[number(first)..=number(last)].iter())
        .flat_map(|o| o.threads.clone())
        .collect()
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(rank, (node, threads))| write!(f, " {rank}={node}[{threads}]"))
    }
}
