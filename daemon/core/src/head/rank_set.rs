//! Sets of ranks of one job, as disjoint runs that do not touch each other.

use std::collections::BTreeMap;

use rsd_proto::v1::RankRun;

/// A set of ranks. The cost of each operation on a run is logarithmic in the number of runs, apart from runs that it merges.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankSet {
    /// First and last rank of each run.
    runs: BTreeMap<u32, u32>,
    len: u64,
}

impl RankSet {
    /// Returns the ranks of these runs. None: a run ends before it begins.
    pub(super) fn of(runs: &[RankRun]) -> Option<RankSet> {
        let mut set = RankSet::default();
        for run in runs {
            if run.last < run.first {
                return None;
            }
            set.insert(run.first, run.last);
        }
        Some(set)
    }

    /// Returns the ranks from `first` to `last`, both included.
    pub(super) fn run(first: u32, last: u32) -> RankSet {
        let mut set = RankSet::default();
        set.insert(first, last);
        set
    }

    /// Adds the ranks from `first` to `last`.
    pub(super) fn insert(&mut self, first: u32, last: u32) {
        let (mut start, mut end) = (first, last);
        // The runs that overlap or touch this one become part of it.
        while let Some((&from, &to)) = self.runs.range(..=end.saturating_add(1)).next_back() {
            if to.saturating_add(1) < start {
                break;
            }
            self.runs.remove(&from);
            self.len -= u64::from(to - from) + 1;
            (start, end) = (start.min(from), end.max(to));
        }
        self.runs.insert(start, end);
        self.len += u64::from(end - start) + 1;
    }

    /// Adds all ranks of another set.
    pub(super) fn extend(&mut self, other: &RankSet) {
        other.runs().for_each(|(first, last)| self.insert(first, last));
    }

    pub(super) fn contains(&self, rank: u32) -> bool {
        self.contains_run(rank, rank)
    }

    /// Returns whether all ranks of another set are in this one.
    pub(super) fn contains_all(&self, other: &RankSet) -> bool {
        other.runs().all(|(first, last)| self.contains_run(first, last))
    }

    fn contains_run(&self, first: u32, last: u32) -> bool {
        self.runs.range(..=first).next_back().is_some_and(|(_, to)| *to >= last)
    }

    /// Returns the ranks that are in both sets. Cost: linear in the runs of both.
    pub(super) fn common(&self, other: &RankSet) -> RankSet {
        let mut common = RankSet::default();
        for (first, last) in other.runs() {
            let before = self.runs.range(..first).next_back().filter(|(_, to)| **to >= first);
            for (from, to) in before.into_iter().chain(self.runs.range(first..=last)) {
                common.insert((*from).max(first), (*to).min(last));
            }
        }
        common
    }

    /// Returns the ranks of this set that are not in another one. Cost: linear in the runs of both.
    pub(super) fn without(&self, other: &RankSet) -> RankSet {
        let mut rest = RankSet::default();
        for (first, last) in self.runs() {
            let mut at = Some(first);
            let before = other.runs.range(..first).next_back().filter(|(_, to)| **to >= first);
            for (from, to) in before.into_iter().chain(other.runs.range(first..=last)) {
                if let Some(at) = at.filter(|at| at < from) {
                    rest.insert(at, from - 1);
                }
                at = to.checked_add(1);
            }
            if let Some(at) = at.filter(|at| *at <= last) {
                rest.insert(at, last);
            }
        }
        rest
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.runs.first_key_value().map(|(first, _)| *first)
    }

    pub(super) fn last(&self) -> Option<u32> {
        self.runs.last_key_value().map(|(_, last)| *last)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns first and last rank of each run, ascending.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().map(|(first, last)| (*first, *last))
    }

    pub(super) fn runs_len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn to_wire(&self) -> Vec<RankRun> {
        self.runs().map(|(first, last)| RankRun { first, last }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_set_of_runs_has_the_ranks_of_a_set_of_ranks() {
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..300 {
            let mut make = |n: u32| {
                let (mut set, mut ranks) = (RankSet::default(), BTreeSet::new());
                for _ in 0..n {
                    let first = random(40);
                    let last = first + random(6);
                    set.insert(first, last);
                    ranks.extend(first..=last);
                }
                (set, ranks)
            };
            let ((a, in_a), (b, in_b)) = (make(5), make(3));
            assert_eq!(
                (a.len(), a.first(), a.last()),
                (in_a.len() as u64, in_a.first().copied(), in_a.last().copied())
            );
            assert_eq!(a.runs().flat_map(|(first, last)| first..=last).collect::<BTreeSet<_>>(), in_a);
            assert!(
                a.runs().zip(a.runs().skip(1)).all(|((_, last), (first, _))| last + 1 < first),
                "runs touch: {a:?}"
            );
            assert_eq!((0..60).filter(|rank| a.contains(*rank)).collect::<BTreeSet<_>>(), in_a);
            assert_eq!(a.contains_all(&b), in_a.is_superset(&in_b));
            let ranks = |set: RankSet| set.runs().flat_map(|(first, last)| first..=last).collect::<BTreeSet<_>>();
            assert_eq!(ranks(a.common(&b)), &in_a & &in_b, "{a:?} {b:?}");
            assert_eq!(ranks(a.without(&b)), &in_a - &in_b, "{a:?} {b:?}");
            assert_eq!(RankSet::of(&a.to_wire()), Some(a));
        }
    }

    #[test]
    fn the_largest_rank_is_a_rank() {
        let mut set = RankSet::run(u32::MAX, u32::MAX);
        set.insert(0, u32::MAX - 1);
        assert_eq!((set.len(), set.runs().collect::<Vec<_>>()), (1 << 32, vec![(0, u32::MAX)]));
        assert_eq!(RankSet::of(&[RankRun { first: 2, last: 1 }]), None);
        assert!(RankSet::default().is_empty());
    }
}
