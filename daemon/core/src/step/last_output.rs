//! The end of the ranks' output when their processes have ended but a stream is still open.
//!
//! What the ranks wrote last may still be in the pipes: it is read as fast as the head acknowledges output, which may take any time. Or
//! a process that the sweep missed holds the stream open, for which a job does not wait. So the step looks at intervals, and gives up
//! the streams after a number of looks without output. A look counts only while the step may read. Looks are counted instead of
//! time: a step that does not get a processor reads nothing either.

use std::time::Duration;

use rsd_proto::v1::Stream;

use super::{Effect, Step};
use crate::Now;

const EVERY: Duration = Duration::from_millis(100);
/// The looks without output after which the streams are given up.
const SILENT: u32 = 10;
/// The looks after which they are given up in any case.
const MOST: u32 = 100;

/// The looks since the sweep.
#[derive(Debug, Default)]
pub(super) struct LastOutput {
    /// When to look next.
    at: Option<Duration>,
    silent: u32,
    looks: u32,
}

impl LastOutput {
    /// Records that there was output.
    pub(super) fn came(&mut self) {
        self.silent = 0;
    }

    /// Returns when to look next.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.at
    }

    /// Returns whether to give up the streams. `may_read`: the step reads what is there.
    fn is_over(&mut self, now: Duration, may_read: bool) -> bool {
        if !may_read {
            self.at = None;
            return false;
        }
        if *self.at.get_or_insert(now + EVERY) > now {
            return false;
        }
        self.at = Some(now + EVERY);
        (self.silent, self.looks) = (self.silent + 1, self.looks + 1);
        self.silent >= SILENT || self.looks >= MOST
    }
}

impl Step {
    /// Gives up streams that are still open long after all processes of the ranks have ended.
    pub(super) fn settle_last_output(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !self.ranks.iter().any(|rank| rank.lines.iter().any(super::Lines::is_open)) {
            self.ending.last_output.at = None;
            return;
        }
        // Nobody takes the output of an orphan, or of a job that is over.
        let may_read = self.outbox.is_open() || self.ending.orphaned || self.ending.released;
        if !self.ending.last_output.is_over(now.mono, may_read) {
            return;
        }
        for local in 0..self.ranks.len() {
            for stream in [Stream::Stdout, Stream::Stderr] {
                if self.ranks[local].lines[stream as usize].is_open() {
                    self.on_output_closed(now, local, stream, out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every millisecond up to this time; returns when the streams are given up.
    fn given_up(ms: u64, may_read: impl Fn(u64) -> bool, comes: impl Fn(u64) -> bool) -> Option<u64> {
        let mut last = LastOutput::default();
        (0..ms).find(|ms| {
            if comes(*ms) {
                last.came();
            }
            last.is_over(Duration::from_millis(*ms), may_read(*ms))
        })
    }

    #[test]
    fn silent_streams_are_given_up_after_a_second() {
        assert_eq!(given_up(60_000, |_| true, |_| false), Some(1000));
        assert_eq!(
            given_up(60_000, |_| true, |ms| ms < 2500 && ms % 400 == 0),
            Some(3300),
            "and not while output comes"
        );
    }

    #[test]
    fn time_in_which_the_step_may_not_read_does_not_count() {
        assert_eq!(given_up(60_000, |ms| ms > 30_000, |_| false), Some(31_001));
        assert_eq!(given_up(60_000, |_| false, |_| false), None);
    }

    #[test]
    fn a_process_that_writes_forever_is_not_waited_for() {
        assert_eq!(given_up(60_000, |_| true, |_| true), Some(10_000));
    }

    #[test]
    fn a_step_that_gets_no_processor_still_reads_before_it_gives_up() {
        let mut last = LastOutput::default();
        let mut look = |s: u64| last.is_over(Duration::from_secs(s), true);
        assert!(!look(0) && !look(50) && !look(100), "few looks, though much time has passed");
    }
}
