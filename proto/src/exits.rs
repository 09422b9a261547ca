//! Reports about runs of ranks that have ended in the same way (`RankExit.more`).

use std::ops::RangeInclusive;

use crate::v1::{RankExit, TaskMap};

/// Returns the ranks that a report is about.
pub fn ranks(exit: &RankExit) -> RangeInclusive<u32> {
    exit.rank..=exit.rank.saturating_add(exit.more)
}

/// Returns how many ranks reports are about.
pub fn count<'a>(exits: impl IntoIterator<Item = &'a RankExit>) -> u64 {
    exits.into_iter().map(|exit| u64::from(exit.more) + 1).sum()
}

/// Returns the same reports, one for each rank, with the rank's own node in a job with this map.
pub fn singly<'a>(exits: &'a [RankExit], map: Option<&'a TaskMap>) -> impl Iterator<Item = RankExit> + 'a {
    exits.iter().flat_map(move |exit| {
        ranks(exit).map(move |rank| match rank == exit.rank {
            true => RankExit { more: 0, ..exit.clone() },
            false => {
                let node = map.and_then(|map| node_of(map, rank)).unwrap_or(exit.node);
                RankExit { rank, node, more: 0, stderr_tail: Default::default(), ..exit.clone() }
            }
        })
    })
}

fn node_of(map: &TaskMap, rank: u32) -> Option<u32> {
    let mut first = 0_u32;
    for block in &map.blocks {
        let ranks = block.nodes.saturating_mul(block.ranks_per_node);
        if let Some(within) = rank.checked_sub(first).filter(|within| *within < ranks) {
            let at = block.first_node + within / block.ranks_per_node;
            return map.nodes.get(at as usize).copied();
        }
        first = first.saturating_add(ranks);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::Block;

    #[test]
    fn a_run_is_the_reports_of_its_ranks() {
        let block = |first_node, nodes| Block { first_node, nodes, ranks_per_node: 2 };
        let map = TaskMap { nodes: vec![9, 4], blocks: vec![block(0, 2), block(0, 1)] };
        let run =
            RankExit { rank: 1, node: 9, more: 3, code: 143, stderr_tail: "last words".into(), ..Default::default() };
        let single: Vec<(u32, u32, u32)> =
            singly(std::slice::from_ref(&run), Some(&map)).map(|exit| (exit.rank, exit.node, exit.more)).collect();
        assert_eq!(single, [(1, 9, 0), (2, 4, 0), (3, 4, 0), (4, 9, 0)]);
        assert_eq!((count([&run]), ranks(&run)), (4, 1..=4));
    }
}
