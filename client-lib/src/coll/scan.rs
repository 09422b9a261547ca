//! `MPI_Scan` and `MPI_Exscan`. `own` is this rank's vector, `result` where it wants the result; they may be the same.

use super::schedule::{Here, Schedule, Slice, powers_below};

/// In round k each rank adds to its result what the one 2ᵏ before has so far. ⌈log₂ n⌉ rounds, n - 2ᵏ messages of all bytes
/// in each. Memory: one vector.
pub fn inclusive(here: Here, own: Slice, result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.copy(own, result);
    let came = if here.rank > 0 { schedule.temporary(result.len) } else { result };
    prefixes(&mut schedule, here, result, came, 0);
    schedule
}

/// Everybody gets the vector of the rank before, and then as in [`inclusive`] among those that have got one.
/// 1 + ⌈log₂ (n - 1)⌉ rounds. Rank 0 has no result: its memory stays as it is.
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

/// Among the ranks from `first` on.
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
