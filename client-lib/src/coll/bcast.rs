//! `MPI_Bcast`: `data` has the same area on all ranks. Ranks are counted from the root, which is 0 here.

use super::allgather;
use super::schedule::{Here, Schedule, Slice, powers_below};

/// Binomial tree: in each round, every rank that has the data sends it to one that lacks it. ⌈log₂ n⌉ rounds, n - 1
/// messages of all bytes.
pub fn binomial(here: Here, data: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let reach = parent_distance(here);
    if here.rank > 0 {
        schedule.recv(here.peer(here.rank - reach), data);
        schedule.wait();
    }
    for distance in powers_below(reach).rev().filter(|distance| here.rank + distance < here.size) {
        schedule.send(here.peer(here.rank + distance), data);
    }
    schedule.wait();
    schedule
}

/// Scatters n blocks down a binomial tree, then allgathers them: by recursive doubling if n is a power of two,
/// otherwise round the ring. ⌈log₂ n⌉ + log₂ n rounds, or ⌈log₂ n⌉ + n - 1. Each rank receives about twice the length
/// of the data, and no rank sends more than that.
pub fn scatter_allgather(here: Here, data: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let block = data.len.div_ceil(u64::from(here.size)).next_multiple_of(64);
    let start = |rank: u32| (u64::from(rank) * block).min(data.len);
    let range = |from: u32, to: u32| data.part(start(from), start(to) - start(from));
    let reach = parent_distance(here);
    if here.rank > 0 {
        let end = here.size.min(here.rank + reach);
        schedule.recv(here.peer(here.rank - reach), range(here.rank, end));
        schedule.wait();
    }
    for distance in powers_below(reach).rev().filter(|distance| here.rank + distance < here.size) {
        let child = here.rank + distance;
        schedule.send(here.peer(child), range(child, here.size.min(child + distance)));
    }
    schedule.wait();
    if here.size.is_power_of_two() {
        allgather::doubling(&mut schedule, here, range);
    } else {
        allgather::ring(&mut schedule, here, |rank| range(rank, rank + 1));
    }
    schedule
}

/// Pipeline: each rank forwards one segment while it receives the next. n - 2 + s rounds for s segments, n - 1 times
/// all bytes; each rank but the last sends all bytes once.
pub fn chain(here: Here, data: Slice, segment: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let segments = data.len.div_ceil(segment);
    let nth = |index: u64| data.part(index * segment, segment.min(data.len - index * segment));
    for round in 0..=segments {
        if here.rank > 0 && round < segments {
            schedule.recv(here.peer(here.rank - 1), nth(round));
        }
        if here.rank + 1 < here.size && round > 0 {
            schedule.send(here.peer(here.rank + 1), nth(round - 1));
        }
        schedule.wait();
    }
    schedule
}

/// The distance to the parent in a binomial tree: the lowest set bit of the rank; for the root, a power of two not less
/// than n.
pub(super) fn parent_distance(here: Here) -> u32 {
    if here.rank == 0 { here.size.next_power_of_two() } else { here.rank & here.rank.wrapping_neg() }
}
