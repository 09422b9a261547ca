//! The ends of many ranks, as runs of consecutive ranks that have ended in the same way (`RankExit.more`).
//!
//! Ten thousand nodes whose ranks are all killed are one run. Cost: logarithmic in the number of runs, and linear in those that an operation
//! replaces.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::v1::RankExit;

pub(crate) use rsd_proto::exits::ranks;

use crate::NodeId;

/// How many bytes of the ranks' last lines are kept for a job: those of the first failures.
const TAILS_BYTES_MAX: usize = 64 << 10;

/// How ranks of one job have ended.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    /// By their first rank; they do not overlap.
    runs: BTreeMap<u32, RankExit>,
    tail_bytes: usize,
}

/// Merges reports of consecutive ranks that have ended in the same way. The earliest failure that is no consequence stays alone, and keeps
/// its age.
pub(crate) fn merged(mut exits: Vec<RankExit>) -> Vec<RankExit> {
    let earliest = (exits.iter().filter(|exit| !exit.secondary)).max_by_key(|exit| exit.ago_us).map(|exit| exit.rank);
    exits.sort_by_key(|exit| exit.rank);
    let mut runs: Vec<RankExit> = Vec::new();
    for exit in exits {
        match runs.last_mut() {
            Some(last) if Some(last.rank) != earliest && Some(exit.rank) != earliest && continues(last, &exit) => {
                last.more += exit.more + 1;
                last.ago_us = last.ago_us.max(exit.ago_us);
            }
            _ => runs.push(exit),
        }
    }
    runs
}

impl Exits {
    /// Takes in a report, for the ranks of which nothing is known or `replaces` returns true for what is known. Returns the parts that are
    /// news. `node_of` returns the node of a rank.
    pub(crate) fn add(
        &mut self,
        exit: &RankExit,
        node_of: impl Fn(u32) -> Option<NodeId>,
        replaces: impl Fn(&RankExit) -> bool,
    ) -> Vec<RankExit> {
        let last = *ranks(exit).end();
        let part = |of: &RankExit, from: u32, to: u32| {
            let is_first = from == of.rank;
            RankExit {
                rank: from,
                more: to - from,
                node: if is_first { of.node } else { node_of(from).unwrap_or(of.node) },
                stderr_tail: if is_first { of.stderr_tail.clone() } else { Bytes::new() },
                ..of.clone()
            }
        };
        let mut news = Vec::new();
        let mut next = Some(exit.rank);
        while let Some(rank) = next.filter(|rank| *rank <= last) {
            let to = match self.of(rank).cloned() {
                Some(known) => {
                    let known_last = *ranks(&known).end();
                    let to = known_last.min(last);
                    if replaces(&known) {
                        self.runs.remove(&known.rank);
                        if known.rank < rank {
                            self.put(part(&known, known.rank, rank - 1));
                        }
                        if to < known_last {
                            self.put(part(&known, to + 1, known_last));
                        }
                        news.push(part(exit, rank, to));
                        self.put(part(exit, rank, to));
                    }
                    to
                }
                None => {
                    let following = self.runs.range(rank..).next().map(|(first, _)| first - 1);
                    let to = following.map_or(last, |to| to.min(last));
                    news.push(part(exit, rank, to));
                    self.put(part(exit, rank, to));
                    to
                }
            };
            next = to.checked_add(1);
        }
        news
    }

    /// Returns the run of a rank.
    pub(crate) fn of(&self, rank: u32) -> Option<&RankExit> {
        self.runs.range(..=rank).next_back().map(|(_, run)| run).filter(|run| ranks(run).contains(&rank))
    }

    /// Returns all runs, by rank.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &RankExit> {
        self.runs.values()
    }

    /// Adds a run that overlaps no other, and joins it with its neighbours.
    fn put(&mut self, mut run: RankExit) {
        if self.tail_bytes + run.stderr_tail.len() > TAILS_BYTES_MAX {
            run.stderr_tail = Bytes::new();
        }
        self.tail_bytes += run.stderr_tail.len();
        let after = ranks(&run).end().checked_add(1).and_then(|next| self.runs.get(&next));
        if let Some(after) = after.filter(|after| continues(&run, after)) {
            let (rank, more) = (after.rank, after.more);
            self.runs.remove(&rank);
            run.more += more + 1;
        }
        match self.runs.range_mut(..run.rank).next_back() {
            Some((_, before)) if continues(before, &run) => before.more += run.more + 1,
            _ => drop(self.runs.insert(run.rank, run)),
        }
    }
}

/// Whether the second report is about the next ranks, which have ended in the same way.
fn continues(before: &RankExit, after: &RankExit) -> bool {
    let RankExit { how, secondary, note, fatal, code, job, lost, .. } = before;
    ranks(before).end().checked_add(1) == Some(after.rank)
        && (how, secondary, note, fatal, code, job, lost)
            == (&after.how, &after.secondary, &after.note, &after.fatal, &after.code, &after.job, &after.lost)
        && after.stderr_tail.is_empty()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn node_of(rank: u32) -> Option<NodeId> {
        Some(rank / 4)
    }

    fn exit(first: u32, last: u32, code: u32, fatal: bool) -> RankExit {
        RankExit { rank: first, more: last - first, node: first / 4, code, fatal, ..RankExit::default() }
    }

    #[test]
    fn runs_say_of_each_rank_what_single_reports_would_say() {
        let mut state = 7u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..300 {
            let (mut runs, mut single) = (Exits::default(), BTreeMap::<u32, (u32, bool)>::new());
            for _ in 0..12 {
                let first = random(40);
                let report = exit(first, first + random(9), random(2), random(3) == 0);
                let news = runs.add(&report, node_of, |known| report.fatal && !known.fatal);
                let mut told: Vec<u32> = news.iter().flat_map(ranks).collect();
                told.sort_unstable();
                let is_news = |rank: &u32| single.get(rank).is_none_or(|(_, fatal)| report.fatal && !fatal);
                let expected: Vec<u32> = ranks(&report).filter(is_news).collect();
                assert_eq!(told, expected);
                single.extend(expected.iter().map(|rank| (*rank, (report.code, report.fatal))));
            }
            for rank in 0..60 {
                let of = runs.of(rank).map(|run| (run.code, run.fatal));
                assert_eq!(of, single.get(&rank).copied(), "{rank}");
            }
            for run in runs.runs() {
                assert_eq!(Some(run.node), node_of(run.rank));
            }
            let listed: Vec<&RankExit> = runs.runs().collect();
            assert!(listed.windows(2).all(|pair| !continues(pair[0], pair[1])), "{listed:?}");
        }
    }

    #[test]
    fn all_ranks_of_a_job_that_was_cancelled_are_one_run() {
        let mut exits = Exits::default();
        for node in (0..100).rev() {
            exits.add(&exit(node * 4, node * 4 + 3, 143, false), node_of, |_| false);
        }
        let runs: Vec<_> = exits.runs().map(ranks).collect();
        assert_eq!(runs, [0..=399]);
    }

    #[test]
    fn the_earliest_failure_stays_alone_and_few_last_lines_are_kept() {
        let failed = |rank| RankExit { ago_us: if rank == 5 { 9 } else { 1 }, ..exit(rank, rank, 1, true) };
        let runs: Vec<_> = merged((0..9).rev().map(failed).collect()).iter().map(ranks).collect();
        assert_eq!(runs, [0..=4, 5..=5, 6..=8]);
        let mut exits = Exits::default();
        for rank in 0..100 {
            let spoke = RankExit { stderr_tail: vec![b'x'; 4096].into(), ..exit(rank, rank, 1, false) };
            exits.add(&spoke, node_of, |_| false);
        }
        assert_eq!(exits.runs().map(|run| run.stderr_tail.len()).sum::<usize>(), TAILS_BYTES_MAX);
        assert_eq!(exits.runs().flat_map(ranks).count(), 100);
    }
}
