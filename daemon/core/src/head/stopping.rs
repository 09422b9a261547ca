//! The end of the DVM: its nodes are told, also those that look for the head at the moment.

use std::time::Duration;

use super::{Due, Head};
use crate::Now;
use crate::between::{Order, Outputs};
use crate::contract::ReqId;

/// How long a stop waits for nodes that are away. Longer than the pause between two attempts of a node to reach its parent, because a node
/// that is not told goes on.
const RETURN_DEADLINE: Duration = Duration::from_secs(3);

/// Whether the DVM is being stopped.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    pub(super) records: Records,
    /// A request that waits for nodes that are away, and until when.
    waiting: Option<(ReqId, Duration)>,
}

/// What a stop does to the journal.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Records {
    /// The DVM is not being stopped.
    #[default]
    AllKept,
    /// The DVM is being stopped; only the records of ended jobs are needed, but the others are not deleted yet.
    StopBegun,
    /// The others have been deleted, or will be by an effect that was emitted.
    Forgotten,
}

impl Head {
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.records != Records::AllKept
    }

    /// Begins to stop the DVM. A second request does not wait any longer.
    pub(super) fn begin_stop(&mut self, now: Now, req: ReqId) {
        let end = if self.is_stopping() { now.mono } else { now.mono + RETURN_DEADLINE };
        if self.stopping.records == Records::AllKept {
            self.stopping.records = Records::StopBegun;
        }
        let first = self.stopping.waiting.take().map_or(req, |(first, _)| first);
        self.stopping.waiting = Some((first, end));
        self.timers.set(Due::Stop, end);
    }

    /// Stops all nodes as soon as none of them is away, or the deadline has passed.
    pub(super) fn settle_stop(&mut self, now: Now, out: &mut Outputs<Order>) {
        let Some((req, end)) = self.stopping.waiting else { return };
        let away: Vec<String> =
            self.nodes.all().filter(|node| node.is_away).map(|node| node.info.name.clone()).collect();
        if away.is_empty() || end <= now.mono {
            self.stopping.waiting = None;
            self.timers.cancel(&Due::Stop);
            out.send_message(Order::Stop { req, unreached: away });
        }
    }
}
