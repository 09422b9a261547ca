//! The halves of Rabenseifner's reductions: pairs of ranks halve their vector repeatedly until each rank has its part of
//! the result; the same pairs in reverse order then bring the parts together.
//!
//! Neighbours are paired first and distances double, so that the operands of every part come from neighbouring ranks, in
//! rank order. Therefore the algorithm also serves operations that do not commute. If n is not a power of two, enough pairs
//! of neighbours are folded first: one rank of each pair stands for both.

use super::accumulator::Accumulator;
use super::schedule::{Here, Schedule, Slice, powers_below};

/// A power of two of ranks that stand for all ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fold {
    rank: u32,
    size: u32,
    /// How many pairs are folded: ranks `2i` and `2i + 1` for each `i` below this number.
    pairs: u32,
    /// In this pair the odd rank stays, not the even one.
    odd: Option<u32>,
}

/// The part of a rank in a fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The other rank of its pair stands for it.
    Leaves {
        /// That other rank.
        to: u32,
    },
    /// The rank stays, under a new number, and stands for `with` as well.
    Stays {
        /// Its number among the ranks that stay.
        number: u32,
        /// The other rank of its pair, if it has one.
        with: Option<u32>,
    },
}

impl Fold {
    /// Folds all ranks such that `root` stays.
    pub(super) fn new(here: Here, root: u32) -> Self {
        let power = 1 << here.size.ilog2();
        Self { rank: here.rank, size: power, pairs: here.size - power, odd: (root % 2 == 1).then_some(root) }
    }

    /// How many ranks stay.
    pub(super) fn size(self) -> u32 {
        self.size
    }

    /// This rank's part.
    pub(super) fn part(self) -> Part {
        self.part_of(self.rank)
    }

    fn part_of(self, rank: u32) -> Part {
        if rank >= 2 * self.pairs {
            return Part::Stays { number: rank - self.pairs, with: None };
        }
        let stays = self.rank_of(rank / 2);
        if rank == stays { Part::Stays { number: rank / 2, with: Some(rank ^ 1) } } else { Part::Leaves { to: stays } }
    }

    /// The number of a rank that stays.
    pub(super) fn number_of(self, rank: u32) -> u32 {
        if rank >= 2 * self.pairs { rank - self.pairs } else { rank / 2 }
    }

    /// The rank that has this number.
    pub(super) fn rank_of(self, number: u32) -> u32 {
        if number >= self.pairs {
            number + self.pairs
        } else if self.odd == Some(2 * number + 1) {
            2 * number + 1
        } else {
            2 * number
        }
    }
}

/// Equal elements that are only sent whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Vector {
    /// The number of elements.
    pub count: u64,
    /// Packed bytes of one element.
    pub unit: u64,
}

impl Vector {
    /// Packed bytes of all elements.
    pub fn len(self) -> u64 {
        self.count * self.unit
    }

    /// Of `parts` nearly equal parts without a rest, the one with this index: its (offset, length) in bytes.
    pub fn part(self, index: u32, parts: u32) -> (u64, u64) {
        let (index, parts) = (u64::from(index), u64::from(parts));
        let (short, longer) = (self.count / parts, self.count % parts);
        let start = index * short + index.min(longer);
        (start * self.unit, (short + u64::from(index < longer)) * self.unit)
    }

    /// Whether there are no elements.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// One pair's exchange: the partner, and the parts of the vector, in bytes (offset, length), that each of the two
/// keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halved {
    pub(super) partner: u32,
    pub(super) kept: (u64, u64),
    pub(super) given: (u64, u64),
}

/// For a rank that stays: halves the vector with each partner in turn, until the part that it keeps is its part of the
/// result, which then lies at its place in the target. log₂ n rounds, in which each rank sends all elements but its
/// part. Returns the exchanges, from the whole vector to the part.
pub(super) fn reduce_scatter(
    schedule: &mut Schedule,
    fold: Fold,
    number: u32,
    mut result: Accumulator,
    vector: Vector,
) -> Vec<Halved> {
    let mut ways = Vec::new();
    let (mut start, mut count) = (0, vector.count);
    for distance in powers_below(fold.size()) {
        let half = count / 2;
        let (lower, upper) = ((start, half), (start + half, count - half));
        let is_lower = number & distance == 0;
        let (kept, given) = if is_lower { (lower, upper) } else { (upper, lower) };
        let partner = fold.rank_of(number ^ distance);
        let within = |(at, count): (u64, u64)| ((at - start) * vector.unit, count * vector.unit);
        let ((kept_at, kept_len), (given_at, given_len)) = (within(kept), within(given));
        schedule.recv(partner, result.room().part(kept_at, kept_len));
        schedule.send(partner, result.now().part(given_at, given_len));
        schedule.wait();
        result.narrow(kept_at, kept_len);
        if is_lower {
            result.append(schedule)
        } else {
            result.prepend(schedule)
        }
        let bytes = |(at, count): (u64, u64)| (at * vector.unit, count * vector.unit);
        ways.push(Halved { partner, kept: bytes(kept), given: bytes(given) });
        (start, count) = kept;
    }
    result.finish(schedule);
    ways
}

/// The reverse: receives each part that it gave away, as a part of the result. Each rank sends all elements but its
/// part.
pub(super) fn allgather(schedule: &mut Schedule, ways: &[Halved], target: Slice) {
    for way in ways.iter().rev() {
        schedule.recv(way.partner, target.part(way.given.0, way.given.1));
        schedule.send(way.partner, target.part(way.kept.0, way.kept.1));
        schedule.wait();
    }
}

/// How many operands come from the right in the halvings of the rank with this number.
pub(super) fn appends(number: u32, size: u32) -> usize {
    (size.ilog2() - (number & (size - 1)).count_ones()) as usize
}
