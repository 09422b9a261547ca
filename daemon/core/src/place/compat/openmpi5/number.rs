//! Numbers placed ranks: program by program, over the nodes in the order of first use.
//!
//! ```text
//! two nodes of two objects, four ranks each
//!          slot            node            fill            span
//! object   0       1       0       1       0       1       0       1
//! node 0   0 2     1 3     0 4     2 6     0 1     2 3     0 4     1 5
//! node 1   4 6     5 7     1 5     3 7     4 5     6 7     2 6     3 7
//! ```

use super::super::layout::Layout;
use super::job::Job;
use super::node::{Node, Rank};
use super::rules::{Map, Mapping};
use crate::place::policy::RankBy;
use crate::place::{NodeOffer, RankBinding, Reason};

/// Numbers the ranks of each program. `sizes[i]`: how many ranks program i should have.
pub(super) fn number(nodes: &[NodeOffer], job: &Job<'_>, mapping: &Mapping, sizes: &[u32]) -> Layout {
    let by = mapping.rank;
    let mut layout = Layout::default();
    for (app, size) in sizes.iter().enumerate() {
        let queues = queues(job, app, by);
        let size = *size as usize;
        let ranks = match by {
            RankBy::Slot => queues.concat(),
            // Whole rounds, even beyond the requested number.
            RankBy::Node => deal(queues, size),
            RankBy::Fill => queues.into_iter().flatten().take(size).collect(),
            RankBy::Span => deal(queues, size).into_iter().take(size).collect(),
        };
        layout.next_app();
        for (at, node, rank) in ranks {
            let (threads, reason) = (rank.threads.clone(), reason(node, rank, mapping.map));
            layout.push(nodes, at, RankBinding { threads, gpus: Vec::new(), reason });
        }
    }
    layout
}

type Placed<'j> = (usize, &'j Node, &'j Rank);

/// A program's ranks in placing order, in a queue for each node or for each object.
fn queues<'j>(job: &'j Job<'_>, app: usize, by: RankBy) -> Vec<Vec<Placed<'j>>> {
    let mut queues = Vec::new();
    for (at, node) in job.used() {
        let own = node.ranks.iter().filter(|rank| rank.app == app).map(|rank| (at, node, rank));
        match by {
            RankBy::Slot | RankBy::Node => queues.push(own.collect()),
            RankBy::Fill | RankBy::Span => {
                let mut ranks: Vec<Placed<'_>> = own.collect();
                ranks.sort_by_key(|(_, _, rank)| rank.object);
                queues.extend(ranks.chunk_by(|a, b| a.2.object == b.2.object).map(<[_]>::to_vec));
            }
        }
    }
    queues
}

/// Takes one from each queue in turn, and stops at the end of the round that reaches `enough`.
fn deal<T: Copy>(mut queues: Vec<Vec<T>>, enough: usize) -> Vec<T> {
    let mut dealt = Vec::new();
    for round in 0.. {
        queues.retain(|queue| queue.len() > round);
        if queues.is_empty() || dealt.len() >= enough {
            break;
        }
        dealt.extend(queues.iter().map(|queue| queue[round]));
    }
    dealt
}

fn reason(node: &Node, rank: &Rank, map: Map) -> Reason {
    let (offer, count) = node.turns.get(&rank.app).copied().unwrap_or_default();
    match (map, rank.nth.checked_sub(offer).filter(|nth| *nth > 0)) {
        (Map::Ppr(of, kind), _) => {
            Reason::PerObject { nth: rank.nth, of, kind, object: rank.object.unwrap_or(0) as u32 }
        }
        (Map::Slot | Map::Node | Map::Object(_), None) => Reason::Slot { nth: rank.nth, of: offer },
        (Map::Slot | Map::Node | Map::Object(_), Some(nth)) => Reason::Share { nth, of: count - offer },
    }
}
