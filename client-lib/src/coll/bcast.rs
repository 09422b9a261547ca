//! `MPI_Bcast`: `data` has the same area on all ranks. Ranks are counted from the root, which is 0 here.

use super::allgather;
use super::schedule::{Here, Schedule, Slice};
use super::tree::Tree;

/// A [`tree`] of radix 2: ⌈log₂ n⌉ rounds.
pub fn binomial(here: Here, data: Slice) -> Schedule {
    tree(here, 2, data)
}

/// K-nomial tree: every rank that has the data sends it to ranks that lack it, to those with the deepest subtrees first.
/// ⌈logᵣ n⌉ rounds for radix r, in each of which a rank sends at most r - 1 times all bytes; n - 1 messages.
pub fn tree(here: Here, radix: u32, data: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let tree = Tree::new(here, radix);
    if let Some(parent) = tree.parent {
        schedule.recv(here.peer(parent), data);
        schedule.wait();
    }
    for child in tree.children.iter().rev() {
        schedule.send(here.peer(child.rank), data);
    }
    schedule.wait();
    schedule
}

/// Scatters n blocks down a binomial tree, then allgathers them: by recursive doubling if n is a power of two,
/// otherwise round the ring. ⌈log₂ n⌉ + log₂ n rounds, or ⌈log₂ n⌉ + n - 1. Each rank receives about twice the length
/// of the data, and no rank sends more than that.
pub fn scatter_allgather(here: Here, data: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let range = |from: u32, to: u32| cut(here, data, from, to);
    scatter(&mut schedule, here, data);
    if here.size.is_power_of_two() {
        allgather::doubling(&mut schedule, here, range);
    } else {
        allgather::ring(&mut schedule, here, |rank| range(rank, rank + 1));
    }
    schedule
}

/// As [`scatter_allgather`], but for n that is not a power of two the blocks are allgathered by Bruck's algorithm: 2 ⌈log₂ n⌉
/// rounds. Memory: all bytes.
pub fn scatter_bruck(here: Here, data: Slice) -> Schedule {
    if here.size.is_power_of_two() {
        return scatter_allgather(here, data);
    }
    let mut schedule = Schedule::default();
    scatter(&mut schedule, here, data);
    let block = |rank: u32| cut(here, data, rank, rank + 1);
    allgather::bruck(&mut schedule, here, 2, block(here.rank), block);
    schedule
}

/// The blocks of these ranks, of n nearly equal ones.
fn cut(here: Here, data: Slice, from: u32, to: u32) -> Slice {
    let block = data.len.div_ceil(u64::from(here.size)).next_multiple_of(64);
    let start = |rank: u32| (u64::from(rank) * block).min(data.len);
    data.part(start(from), start(to) - start(from))
}

/// Each rank gets its block, and those of the ranks below it, in a binomial tree.
fn scatter(schedule: &mut Schedule, here: Here, data: Slice) {
    let tree = Tree::new(here, 2);
    if let Some(parent) = tree.parent {
        schedule.recv(here.peer(parent), cut(here, data, here.rank, here.rank + tree.many));
        schedule.wait();
    }
    for child in tree.children.iter().rev() {
        schedule.send(here.peer(child.rank), cut(here, data, child.rank, child.rank + child.many));
    }
    schedule.wait();
}

/// Pipeline down a tree in which each rank has up to `arity` children: a rank forwards one segment while it receives the next.
/// d - 1 + s rounds for depth d and s segments; each rank sends all bytes up to `arity` times. With `arity` 1 it is a chain: d is
/// n - 1, and each rank but the last sends all bytes once. With more, d is about log n to the base `arity`.
pub fn pipeline(here: Here, arity: u32, data: Slice, segment: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let segments = data.len.div_ceil(segment);
    let nth = |index: u64| data.part(index * segment, segment.min(data.len - index * segment));
    let first = u64::from(here.rank) * u64::from(arity) + 1;
    let children: Vec<u32> =
        (first..first + u64::from(arity)).take_while(|it| *it < u64::from(here.size)).map(|it| it as u32).collect();
    for round in 0..=segments {
        if here.rank > 0 && round < segments {
            schedule.recv(here.peer((here.rank - 1) / arity), nth(round));
        }
        if round > 0 {
            children.iter().for_each(|child| schedule.send(here.peer(*child), nth(round - 1)));
        }
        schedule.wait();
    }
    schedule
}
