//! `MPI_Allreduce`. `own` is this rank's vector, `result` where this rank wants the result; they may be the same.

use super::accumulator::Accumulator;
use super::halving::{self, Fold, Part, Vector};
use super::schedule::{Here, Schedule, Slice, powers_below};

/// Recursive doubling: in round k, two ranks 2ᵏ apart exchange their partial results. log₂ n rounds, in which each rank
/// sends all bytes; two more rounds if n is not a power of two. Every rank combines the same operands in the same
/// order. Memory: one vector.
pub fn doubling(here: Here, own: Slice, result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    double(&mut schedule, here, own, result);
    schedule
}

/// [`doubling`], as a part of a schedule.
pub(super) fn double(schedule: &mut Schedule, here: Here, own: Slice, result: Slice) {
    folded(schedule, here, own, result, false, |schedule, fold, number, mut all| {
        for distance in powers_below(fold.size()) {
            let partner = fold.rank_of(number ^ distance);
            schedule.recv(partner, all.room());
            schedule.send(partner, all.now());
            schedule.wait();
            if number & distance == 0 { all.append(schedule) } else { all.prepend(schedule) }
        }
        all.finish(schedule);
    });
}

/// Rabenseifner: [`halving`], then an allgather of the parts along the same pairs in reverse. 2 log₂ n rounds, in which
/// each rank sends less than twice all bytes; two more rounds with all bytes if n is not a power of two. Every element
/// is computed once. Memory: one vector.
pub fn rabenseifner(here: Here, own: Slice, result: Slice, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    folded(&mut schedule, here, own, result, commutes, |schedule, fold, number, all| {
        let ways = halving::reduce_scatter(schedule, fold, number, all, vector);
        halving::allgather(schedule, &ways, result);
    });
    schedule
}

/// Runs `among_a_power` on a power of two of ranks: the surplus ranks are folded into their neighbours first and
/// receive the result last.
fn folded(
    schedule: &mut Schedule,
    here: Here,
    own: Slice,
    result: Slice,
    commutes: bool,
    among_a_power: impl FnOnce(&mut Schedule, Fold, u32, Accumulator),
) {
    let fold = Fold::new(here, 0);
    match fold.part() {
        Part::Leaves { to } => {
            schedule.send(to, own);
            schedule.wait();
            schedule.recv(to, result);
        }
        Part::Stays { number, with } => {
            let other = schedule.temporary(own.len);
            let appends = halving::appends(number, fold.size()) + usize::from(with.is_some());
            let mut all = Accumulator::new(own, result, other, appends, commutes);
            if let Some(with) = with {
                schedule.recv(with, all.room());
                schedule.wait();
                all.append(schedule);
            }
            among_a_power(schedule, fold, number, all);
            if let Some(with) = with {
                schedule.send(with, result);
            }
        }
    }
    schedule.wait();
}
