//! `MPI_Scan` and `MPI_Exscan`. `own` is this rank's vector, `result` where it wants the result; they may be the same.

use super::halving::Vector;
use super::schedule::{Here, Schedule, Slice, powers_below};

/// In round k each rank combines its result with the partial result of the rank 2ᵏ before it. ⌈log₂ n⌉ rounds of n - 2ᵏ
/// messages of all bytes. Memory: one vector.
pub fn inclusive(here: Here, own: Slice, result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.copy(own, result);
    let came = if here.rank > 0 { schedule.temporary(result.len) } else { result };
    prefixes(&mut schedule, here, result, came, 0);
    schedule
}

/// Every rank receives the vector of the previous rank; the ranks that received one then proceed as in [`inclusive`]. 1
/// + ⌈log₂ (n - 1)⌉ rounds. Rank 0 has no result: its memory is unchanged.
pub fn exclusive(here: Here, own: Slice, result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    // The last rank sends nothing of its own, which the result may overwrite.
    let (has_result, is_last) = (here.rank > 0, here.rank + 1 == here.size);
    let first = if has_result && own == result && !is_last { schedule.temporary(result.len) } else { result };
    if has_result {
        schedule.recv(here.rank - 1, first);
    }
    if !is_last {
        schedule.send(here.rank + 1, own);
    }
    schedule.wait();
    if has_result {
        schedule.copy(first, result);
        let came = if here.rank > 1 { schedule.temporary(result.len) } else { result };
        prefixes(&mut schedule, here, result, came, 1);
    }
    schedule
}

/// Pipeline along the ranks: each combines one segment of what the previous rank has, and passes it on, while the next one arrives.
/// n - 1 + s rounds for s segments; each rank but the last sends all bytes once. With `exclusive`, a rank's result is what the
/// previous one passes on; rank 0 has none. Memory: one vector.
pub fn chain(here: Here, own: Slice, result: Slice, vector: Vector, segment: u64, exclusive: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let segment = (segment / vector.unit).max(1) * vector.unit;
    let segments = own.len.div_ceil(segment);
    let nth = |all: Slice, index: u64| all.part(index * segment, segment.min(all.len - index * segment));
    let (is_first, is_last) = (here.rank == 0, here.rank + 1 == here.size);
    // What is passed on: it may have to stay apart from the result.
    let mut passed = own;
    if !is_first && if exclusive { !is_last } else { own != result } {
        passed = if exclusive { schedule.temporary(own.len) } else { result };
        schedule.copy(own, passed);
    }
    if is_first && !exclusive {
        schedule.copy(own, result);
    }
    let came = match is_first {
        true => result,
        false if exclusive && (own != result || is_last) => result,
        false => schedule.temporary(own.len),
    };
    for round in 0..=segments {
        if !is_first && round < segments {
            schedule.recv(here.peer(here.rank - 1), nth(came, round));
        }
        if !is_first && round > 0 && !(exclusive && is_last) {
            schedule.combine(nth(came, round - 1), nth(passed, round - 1));
        }
        if !is_last && round > 0 {
            schedule.send(here.peer(here.rank + 1), nth(passed, round - 1));
        }
        schedule.wait();
    }
    if exclusive && !is_first {
        schedule.copy(came, result);
    }
    schedule
}

/// The prefixes among the ranks from `first` on.
fn prefixes(schedule: &mut Schedule, here: Here, result: Slice, came: Slice, first: u32) {
    for distance in powers_below(here.size - first) {
        let from = here.rank.checked_sub(distance).filter(|rank| *rank >= first);
        if let Some(from) = from {
            schedule.recv(from, came);
        }
        if here.rank + distance < here.size {
            schedule.send(here.rank + distance, result);
        }
        schedule.wait();
        if from.is_some() {
            schedule.combine(came, result);
        }
    }
}
