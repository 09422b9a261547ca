//! `MPI_Allreduce`. `own` is this rank's vector, `result` where this rank wants the result; they may be the same.

use super::accumulator::Accumulator;
use super::allgather;
use super::halving::{self, Fold, Part, Vector};
use super::reduce_scatter;
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

/// Recursive multiplying: in the round of factor f of n, f ranks exchange their partial results, each with each. The factors are
/// `radix` and smaller ones: log n rounds to the base `radix`, in which each rank sends f - 1 times all bytes. Every rank combines
/// the same operands in the same order. If n has a larger prime factor, this is [`doubling`]. Memory: f - 1 vectors.
pub fn multiplying(here: Here, radix: u32, own: Slice, result: Slice) -> Schedule {
    let Some(factors) = factors(here.size, radix) else { return doubling(here, own, result) };
    let mut schedule = Schedule::default();
    let most = factors.iter().copied().max().unwrap_or(1);
    schedule.copy(own, result);
    let mut now = result;
    let mut rooms: Vec<Slice> = (1..most).map(|_| schedule.temporary(own.len)).collect();
    let mut stride = 1;
    for factor in factors {
        let digit = here.rank / stride % factor;
        let first = here.rank - digit * stride;
        let mut operands = Vec::new();
        // All start with the rank after their own, so that no rank gets all messages at once.
        for other in (1..factor).map(|step| (digit + step) % factor) {
            let room = rooms.pop().unwrap_or(result);
            schedule.recv(here.peer(first + other * stride), room);
            operands.push((other, room));
        }
        for other in (1..factor).map(|step| (digit + factor - step) % factor) {
            schedule.send(here.peer(first + other * stride), now);
        }
        schedule.wait();
        operands.push((digit, now));
        operands.sort_unstable_by_key(|(digit, _)| *digit);
        for pair in operands.windows(2) {
            schedule.combine(pair[0].1, pair[1].1);
        }
        now = operands.pop().map_or(now, |(_, last)| last);
        rooms.extend(operands.into_iter().map(|(_, free)| free));
        stride *= factor;
    }
    schedule.copy(now, result);
    schedule
}

/// The factors of n, of which none is over `radix`; none if n has a larger prime factor.
fn factors(mut n: u32, radix: u32) -> Option<Vec<u32>> {
    let mut factors = Vec::new();
    for factor in (2..=radix).rev() {
        while n.is_multiple_of(factor) {
            factors.push(factor);
            n /= factor;
        }
    }
    (n == 1).then_some(factors)
}

/// Ring, for an operation that commutes: n parts travel round the ring and are combined, then travel round once more. 2 (n - 1) rounds,
/// in which each rank sends less than twice all bytes, to one other rank. Memory: a part, if in place.
pub fn ring(here: Here, own: Slice, result: Slice, vector: Vector) -> Schedule {
    let mut schedule = Schedule::default();
    let part = |slice: Slice, rank: u32| {
        let (at, len) = vector.part(rank, here.size);
        slice.part(at, len)
    };
    let room = if own == result { schedule.temporary(vector.part(0, here.size).1) } else { result };
    for round in 1..here.size {
        let (going, coming) = (here.back(round), here.back(round + 1));
        let came = if own == result { room.part(0, part(result, coming).len) } else { part(result, coming) };
        schedule.recv(here.peer(here.back(1)), came);
        schedule.send(here.peer(here.next(1)), part(if round == 1 { own } else { result }, going));
        schedule.wait();
        match own == result {
            true => schedule.combine(came, part(result, coming)),
            false => schedule.combine(part(own, coming), came),
        }
    }
    if here.size == 1 {
        schedule.copy(own, result);
    }
    allgather::ring(&mut schedule, here, |rank| part(result, rank));
    schedule
}

/// For an operation that commutes: [`reduce_scatter::halving`], then Bruck's allgather of the parts. 2 ⌈log₂ n⌉ rounds, in which each
/// rank sends about twice all bytes, whatever n is. Memory: three vectors.
pub fn scatter_gather(here: Here, own: Slice, result: Slice, vector: Vector) -> Schedule {
    let mut schedule = Schedule::default();
    let part = |rank: u32| vector.part(rank, here.size);
    let mine = schedule.temporary(part(here.rank).1);
    reduce_scatter::halve(&mut schedule, here, own, part, mine);
    allgather::bruck(&mut schedule, here, 2, mine, |rank| {
        let (at, len) = part(rank);
        result.part(at, len)
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
