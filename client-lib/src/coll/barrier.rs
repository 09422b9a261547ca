//! `MPI_Barrier`.

use super::schedule::{Area, Here, Schedule, Slice, powers_below};

/// Dissemination: in round `k` each rank tells the rank 2ᵏ after it that it, and every rank it has heard of, has
/// arrived. ⌈log₂ n⌉ rounds of n empty messages.
pub fn dissemination(here: Here) -> Schedule {
    let mut schedule = Schedule::default();
    let nothing = Slice::all(Area::Recv, 0);
    for distance in powers_below(here.size) {
        schedule.recv_even_none(here.back(distance), nothing);
        schedule.send_even_none(here.next(distance), nothing);
        schedule.wait();
    }
    schedule
}
