//! The end of the DVM: its nodes are told, also those that look for the head at the moment.

use std::time::Duration;

use super::{Due, Head};
use crate::between::{Order, Outputs};
use crate::contract::ReqId;
use crate::{JobId, Now, STOP_PATIENCE, sentences};

/// How long a stop waits for nodes that are away. Longer than the pause between two attempts of a node to reach its parent, because a node
/// that is not told goes on.
const RETURN_DEADLINE: Duration = Duration::from_secs(3);

/// Whether the DVM is being stopped.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    pub(super) records: Records,
    /// A request that waits for nodes that are away, and until when.
    waiting: Option<(ReqId, Duration)>,
    /// A request without force that waits for jobs that may be ending, and until when.
    asked: Option<(ReqId, Duration)>,
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

    /// Handles a client's request to stop the DVM.
    pub(super) fn on_shutdown(&mut self, now: Now, req: ReqId, force: bool, out: &mut Outputs<Order>) {
        let busy: Vec<JobId> = self.jobs.alive().map(|job| job.id).collect();
        if !busy.is_empty() && !force {
            // Members of a group are nobody's children here: who has started them may know earlier than the head that they have ended.
            if self.stopping.asked.is_none() && self.jobs.alive().all(|job| job.joined) {
                let end = now.mono + STOP_PATIENCE;
                self.stopping.asked = Some((req, end));
                self.timers.set(Due::Stop, end);
                return;
            }
            return out.refuse(req, sentences::jobs_are_running(&busy));
        }
        if let Some((asked, _)) = self.stopping.asked.take() {
            out.refuse(asked, sentences::jobs_are_running(&busy));
        }
        for job in busy {
            self.cancel(now, job, Some(0), "the DVM is being stopped", out);
        }
        self.begin_stop(now, req);
        self.settle_stop(now, out);
    }

    /// Answers a request that waits for jobs, as soon as they have ended or the deadline has passed.
    fn settle_asked(&mut self, now: Now, out: &mut Outputs<Order>) {
        let Some((req, end)) = self.stopping.asked else { return };
        let busy: Vec<JobId> = self.jobs.alive().map(|job| job.id).collect();
        if busy.is_empty() {
            self.stopping.asked = None;
            self.begin_stop(now, req);
        } else if end <= now.mono {
            self.stopping.asked = None;
            self.timers.cancel(&Due::Stop);
            out.refuse(req, sentences::jobs_are_running(&busy));
        }
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
        self.settle_asked(now, out);
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
