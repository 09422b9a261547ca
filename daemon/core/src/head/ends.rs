//! The exits of a job's ranks, and the job's first failure.

use bytes::Bytes;
use rsd_proto::v1::{self as wire, JobInfo, RankExit, rank_exit::How};

use crate::calls::exit;
use crate::exits::{self, Exits};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, sentences};

/// The exits of one job's ranks.
#[derive(Debug, Default)]
pub(super) struct Ends {
    exits: Exits,
    cause: Option<RankExit>,
    /// The time of that failure if known, in microseconds of the head's clock; negative if it was before the head started.
    caused_at_us: i128,
    /// The nodes that were unreachable at that time.
    unheard: Vec<NodeId>,
}

impl Ends {
    /// Takes in the exit of a rank, or of a run of ranks, reported at this time of the head's clock in microseconds; `is_away` returns
    /// whether one of the job's nodes is unreachable. Returns the parts that are new. A report that was delayed by a daemon may arrive
    /// after reports of failures that followed from it.
    pub(super) fn take(
        &mut self,
        now_us: i128,
        exit: &RankExit,
        map: &TaskMap,
        is_away: impl Fn(NodeId) -> bool,
    ) -> Vec<RankExit> {
        let at_us = now_us - i128::from(exit.ago_us);
        let was_held = exit.ago_us > 0 && at_us < self.caused_at_us;
        // The last lines of stderr are shown for the first failure only; the output itself is in the job's log.
        let told = RankExit { stderr_tail: Bytes::new(), ago_us: 0, ..exit.clone() };
        let news = self.exits.add(&told, |rank| map.node_of(rank), |before| !before.fatal && exit.fatal);
        let first = RankExit { more: 0, ..exit.clone() };
        if news.is_empty() {
            // The exit is known, but without its time: the message that all ranks of a node have ended has no times.
            if was_held && exit.fatal && !exit.secondary {
                (self.cause, self.caused_at_us) = (Some(first), at_us);
            }
            return news;
        }
        // A job that continues without a node or a rank has not failed because of it.
        let is_survived = is_survived(exit);
        if !exit.secondary
            && !is_survived
            && self.cause.as_ref().is_none_or(|cause| was_held || exits::ranks(exit).contains(&cause.rank))
        {
            // Of a run, the first rank of which nothing was known.
            let rank = news.first().map_or(exit.rank, |new| new.rank);
            let is_first = rank == exit.rank;
            let node = if is_first { exit.node } else { map.node_of(rank).unwrap_or(exit.node) };
            let stderr_tail = if is_first { exit.stderr_tail.clone() } else { Bytes::new() };
            (self.cause, self.caused_at_us) = (Some(RankExit { rank, node, stderr_tail, ..first }), at_us);
            let others = map.nodes().iter().copied().filter(|other| *other != node);
            self.unheard = others.filter(|node| is_away(*node)).collect();
        }
        let with_tail = |new: RankExit| match new.rank == exit.rank {
            true => RankExit { stderr_tail: exit.stderr_tail.clone(), ago_us: exit.ago_us, ..new },
            false => new,
        };
        news.into_iter().map(with_tail).collect()
    }

    /// Restores what is known of a job that has ended.
    pub(super) fn restore(info: &JobInfo) -> Ends {
        let mut exits = Exits::default();
        for exit in &info.exits {
            exits.add(exit, |_| None, |_| false);
        }
        Ends { exits, cause: info.cause.clone(), caused_at_us: i128::MIN, unheard: Vec::new() }
    }

    /// Takes in a failure of a job that this job spawned; it may be the first failure.
    pub(super) fn take_cause(&mut self, of: JobId, cause: &RankExit) {
        let cause = || RankExit { job: if cause.job == 0 { of } else { cause.job }, ..cause.clone() };
        self.cause.get_or_insert_with(cause);
    }

    /// Fails a job that was never placed, so no rank has run.
    pub(super) fn fail_unplaced(&mut self, why: String) {
        let how = Some(How::Failed(why));
        self.cause = Some(RankExit { how, code: u32::from(exit::NOT_PLACED), fatal: true, ..Default::default() });
    }

    /// Handles that a job of this size has ended: if it has continued until no rank was left, it has failed after all.
    pub(super) fn settle(&mut self, size: u32) {
        if self.cause.is_none()
            && rsd_proto::exits::count(self.exits.runs().filter(|exit| is_survived(exit))) == u64::from(size)
        {
            self.cause = self.exits.runs().find(|exit| exit.lost).map(|exit| RankExit { more: 0, ..exit.clone() });
        }
    }

    /// Returns the first failure.
    pub(super) fn cause(&self) -> Option<&RankExit> {
        self.cause.as_ref()
    }

    /// Returns all failures, by rank, as runs.
    pub(super) fn all(&self) -> impl Iterator<Item = &RankExit> {
        self.exits.runs()
    }

    /// Notes a node that was unreachable at the first failure and has been lost since: it may have had an earlier failure.
    pub(super) fn note_unheard<'a>(&mut self, map: &TaskMap, name_of: impl Fn(NodeId) -> &'a str) {
        let is_lost = |node: &NodeId| {
            let mut ended = map.ranks_on(*node).filter_map(|rank| self.exits.of(rank));
            ended.any(|exit| exit.code == u32::from(exit::NODE_LOST))
        };
        let names: Vec<&str> = self.unheard.iter().filter(|node| is_lost(node)).map(|node| name_of(*node)).collect();
        if let (Some(cause), false) = (&mut self.cause, names.is_empty()) {
            cause.note = sentences::noted(&cause.note, &sentences::may_have_failed_earlier(&names));
        }
    }
}

fn is_survived(exit: &RankExit) -> bool {
    exit.lost || (!exit.fatal && sentences::is_loss(exit))
}

/// Returns the message that tells steps of ranks that are lost.
pub(super) fn ranks_lost(job: JobId, exit: &RankExit) -> wire::NodesLost {
    let ranks = exits::ranks(exit);
    let run = wire::RankRun { first: *ranks.start(), last: *ranks.end() };
    wire::NodesLost { job, nodes: Vec::new(), why: sentences::how_lost(exit), ranks: vec![run] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> i128 {
        i128::from(seconds) * 1_000_000
    }

    fn died(rank: u32, ago: u64) -> RankExit {
        RankExit { rank, fatal: true, ago_us: ago * 1_000_000, ..Default::default() }
    }

    #[test]
    fn the_earliest_failure_is_the_cause_even_if_its_report_is_delayed() {
        let mut ends = Ends::default();
        let mut take = |rank, ago_s: u64| {
            assert!(!ends.take(at(1), &died(rank, ago_s), &TaskMap::default(), |_| false).is_empty(), "rank {rank}");
            ends.cause().map(|cause| cause.rank)
        };
        assert_eq!(take(0, 3), Some(0));
        assert_eq!(take(3, 5), Some(3), "it failed earlier");
        assert_eq!(take(4, 4), Some(3));
        assert_eq!(take(5, 0), Some(3), "it failed last");
    }

    #[test]
    fn only_the_first_failure_keeps_the_last_lines_of_stderr() {
        let mut ends = Ends::default();
        for rank in 0..100 {
            let exit = RankExit { stderr_tail: vec![b'x'; 4096].into(), ..died(rank, 0) };
            ends.take(at(10 + u64::from(rank)), &exit, &TaskMap::default(), |_| false);
        }
        assert_eq!(ends.cause().map(|cause| (cause.rank, cause.stderr_tail.len())), Some((0, 4096)));
        assert_eq!(ends.all().map(|exit| exit.stderr_tail.len()).sum::<usize>(), 0);
    }

    #[test]
    fn the_first_failure_is_the_cause_even_if_it_is_reported_twice() {
        let mut ends = Ends::default();
        let mut take = |now, exit: &RankExit| {
            let is_news = !ends.take(at(now), exit, &TaskMap::default(), |_| false).is_empty();
            (is_news, ends.cause().map(|cause| cause.rank))
        };
        assert_eq!(take(10, &died(0, 0)), (true, Some(0)));
        // First in the report of its whole node, which has no times, then by itself.
        assert_eq!(take(11, &died(1, 0)), (true, Some(0)));
        assert_eq!(take(12, &died(1, 5)), (false, Some(1)), "it failed at 7 s");
        assert_eq!(take(13, &died(0, 3)), (false, Some(1)), "it failed at 10 s");
        assert_eq!(take(14, &RankExit { secondary: true, ..died(2, 13) }), (true, Some(1)), "it was killed");
    }
}
