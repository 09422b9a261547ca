//! A step that is cut off: its daemon is away, or its daemon has no way to the head. After a time, it says why and ends its ranks.

use std::time::Duration;

use rsd_proto::v1::Stream;

use super::{Effect, Phase, Step};
use crate::{Now, sentences};

impl Step {
    /// How long ranks continue after their node was cut off. The head notices the cut at most `silence` later, and then counts the
    /// node as lost after the grace. Members of a group are not rsd's to end, and their epoch survives a restart of the head.
    fn cut_off_limit(&self) -> Duration {
        match self.group {
            None => self.tuning.reattach_grace + self.tuning.silence,
            Some(_) => self.tuning.orphan_deadline,
        }
    }

    /// Handles that the daemon has had no way to the head for this long.
    pub(super) fn on_cut_off(&mut self, now: Now, ms: u64) {
        let left = self.cut_off_limit().saturating_sub(Duration::from_millis(ms));
        self.cut_off_at.get_or_insert(now.mono + left);
    }

    /// Ends the ranks if the step has been cut off for too long.
    pub(super) fn settle_alone(&mut self, now: Now, out: &mut Vec<Effect>) {
        let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now.mono);
        let why = match (is_due(self.orphaned_at), is_due(self.cut_off_at)) {
            (true, _) => sentences::without_daemon(self.tuning.orphan_deadline),
            (false, true) => sentences::cut_off(self.cut_off_limit()),
            (false, false) => return,
        };
        (self.orphaned_at, self.cut_off_at) = (None, None);
        self.ending.orphaned = true;
        self.ending.set_why(why.clone());
        self.say_to_ranks(&why, out);
        out.push(Effect::Warn(why));
        let grace = u64::try_from(self.tuning.kill_grace.as_millis()).unwrap_or(u64::MAX);
        let grace_ms = self.launch_spec().kill_grace_ms.unwrap_or(grace);
        self.kill(now, grace_ms, out);
    }

    /// Adds a line to the standard error of every running rank.
    fn say_to_ranks(&mut self, why: &str, out: &mut Vec<Effect>) {
        let line = format!("rsd: job {}: {why}\n", crate::attempts::number(self.job));
        for local in 0..self.ranks.len() {
            if self.ranks[local].phase == Phase::Running && self.ranks[local].member.is_none() {
                self.on_output(local, Stream::Stderr, line.as_bytes(), out);
            }
        }
    }
}
