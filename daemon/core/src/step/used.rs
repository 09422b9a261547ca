//! What the ranks of this node have used, gathered as they end.

use rsd_proto::v1::Usage;

use super::{Local, Step};
use crate::usage;

impl Step {
    /// Handles what an ended process has used: a rank with the descendants that it or they have waited for; or, without a rank, a process
    /// that has lost its parent. Of those, nothing says which rank has started them, so they are not compared with the largest.
    pub(super) fn on_used(&mut self, local: Option<Local>, used: Usage) {
        let rank = local.and_then(|local| self.ranks.get(local));
        let used = match rank {
            Some(rank) => Usage { ranks: 1, peak_rank: rank.rank, ..used },
            None => Usage { ranks: 0, peak_bytes: 0, ..used },
        };
        usage::add(&mut self.used, &used);
    }

    /// Returns what the ranks here have used, when all have ended. Processes that rsd has not started are not its children, so of members
    /// it is unknown.
    pub(super) fn usage(&self) -> Usage {
        Usage { known: !self.has_members(), ..self.used }
    }
}
