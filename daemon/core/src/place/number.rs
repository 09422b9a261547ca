//! Numbers the ranks of one program over its nodes.
//!
//! ```text
//! 2 nodes of 2 packages, 4 ranks each, by package
//!   slot, fill   0 1 2 3         / 4 5 6 7            node by node
//!   node         0 2 4 6         / 1 3 5 7            one per node in turn
//!   span         0 1 4 5         / 2 3 6 7            one per object of every node in turn
//! ```
//!
//! `local` decides the order of ranks within a node; this module only decides how many come next. Cost: O(nodes) by slot,
//! at most O(ranks) in turns.

use crate::NodeId;
use crate::taskmap::TaskMapBuilder;

use super::policy::RankBy;

/// A node's ranks of the program, in list order.
pub(super) struct Run<'a> {
    pub(super) id: NodeId,
    pub(super) count: u32,
    /// How many ranks in each turn over the node's objects.
    pub(super) turns: &'a [u32],
}

/// Appends the program's ranks to the map.
pub(super) fn number(mut runs: Vec<Run<'_>>, rank_by: RankBy, map: &mut TaskMapBuilder) {
    match rank_by {
        RankBy::Slot | RankBy::Fill => runs.into_iter().for_each(|run| map.push(run.id, run.count)),
        RankBy::Node => {
            for turn in 0.. {
                runs.retain(|run| run.count > turn);
                if runs.is_empty() {
                    break;
                }
                runs.iter().for_each(|run| map.push(run.id, 1));
            }
        }
        RankBy::Span => {
            for turn in 0.. {
                runs.retain(|run| run.turns.len() > turn);
                if runs.is_empty() {
                    break;
                }
                runs.iter().for_each(|run| map.push(run.id, run.turns[turn]));
            }
        }
    }
}
