//! `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`. `own` is this rank's whole vector; `block(rank)` is the part of
//! the result for that rank; `result` is where this rank wants its part. `own` may be in the area of `result`, which is
//! written only when `own` is no longer needed.

use super::accumulator::Accumulator;
use super::allreduce;
use super::schedule::{Here, Schedule, Slice, powers_below};

/// All ranks allreduce the whole vector ([doubling](allreduce::doubling)), and each takes its part. For short vectors.
/// Memory: two vectors.
pub fn of_all(here: Here, own: Slice, block: impl Fn(u32) -> (u64, u64), result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let all = schedule.temporary(own.len);
    allreduce::double(&mut schedule, here, own, all);
    let (at, len) = block(here.rank);
    schedule.copy(all.part(at, len), result);
    schedule
}

/// Recursive halving, for n a power of two and an operation that commutes: starting with ranks far apart, each sends
/// the half of the vector that the other side needs. log₂ n rounds; each rank sends every block but one, once. Memory:
/// two vectors.
pub fn halving(here: Here, own: Slice, block: impl Fn(u32) -> (u64, u64), result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let bytes = |from: u32, to: u32| {
        let (start, (last, len)) = (block(from).0, block(to - 1));
        (start, last + len - start)
    };
    let (all, came) = (schedule.temporary(own.len), schedule.temporary(own.len));
    let (mut now, mut from) = (own, 0);
    for distance in powers_below(here.size).rev() {
        let (mine, theirs) = if here.rank & distance == 0 { (from, from + distance) } else { (from + distance, from) };
        let (kept, given) = (bytes(mine, mine + distance), bytes(theirs, theirs + distance));
        let partner = here.peer(here.rank ^ distance);
        let part = |slice: Slice, (at, len): (u64, u64)| slice.part(at, len);
        let into = if now == own { all } else { came };
        schedule.recv(partner, part(into, kept));
        schedule.send(partner, part(now, given));
        schedule.wait();
        if now == own {
            schedule.combine(part(own, kept), part(all, kept));
            now = all;
        } else {
            schedule.combine(part(came, kept), part(all, kept));
        }
        from = mine;
    }
    let (at, len) = block(here.rank);
    schedule.copy(now.part(at, len), result);
    schedule
}

/// Pairwise: a rank receives its part from every other rank, from the next rank round to the previous one. It combines
/// the operands from higher ranks and from lower ranks separately, so that the order is kept. n - 1 rounds; each rank
/// sends every block but one, once. Memory: four blocks.
pub fn spread(here: Here, own: Slice, block: impl Fn(u32) -> (u64, u64), result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let part = |rank: u32| {
        let (at, len) = block(rank);
        own.part(at, len)
    };
    let mine = part(here.rank);
    let [a, b, c, d] = [(); 4].map(|()| schedule.temporary(mine.len));
    let mut after = Accumulator::new(mine, a, b, (here.size - 1 - here.rank) as usize, false);
    let mut before: Option<Accumulator> = None;
    for round in 1..here.size {
        let (source, to) = (here.next(round), here.back(round));
        let room = match &before {
            _ if source > here.rank => after.room(),
            Some(before) => before.room(),
            None => c,
        };
        schedule.recv(here.peer(source), room);
        schedule.send(here.peer(to), part(to));
        schedule.wait();
        match &mut before {
            _ if source > here.rank => after.append(&mut schedule),
            Some(before) => before.append(&mut schedule),
            None => before = Some(Accumulator::new(c, c, d, (here.rank - 1) as usize, false)),
        }
    }
    let Some(before) = before else {
        schedule.copy(after.now(), result);
        return schedule;
    };
    let mut whole = after.now();
    if whole == mine {
        schedule.copy(mine, a);
        whole = a;
    }
    schedule.combine(before.now(), whole);
    schedule.copy(whole, result);
    schedule
}
