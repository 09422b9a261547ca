//! `MPI_Scan` and `MPI_Exscan`. `own` is this rank's vector, `result` where it wants the result; they may be the same.

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
    let came = if here.rank > 0 { schedule.temporary(result.len) } else { result };
    if here.rank > 0 {
        schedule.recv(here.rank - 1, came);
    }
    if here.rank + 1 < here.size {
        schedule.send(here.rank + 1, own);
    }
    schedule.wait();
    if here.rank > 0 {
        schedule.copy(came, result);
        prefixes(&mut schedule, here, result, came, 1);
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
