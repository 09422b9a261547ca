//! `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`. `own` is this rank's whole vector; `block(rank)` is the part of
//! the result for that rank; `result` is where this rank wants its part. `own` may be in the area of `result`, which is
//! written only when `own` is no longer needed.

use super::accumulator::Accumulator;
use super::schedule::{Here, Schedule, Slice};

/// Recursive halving, for an operation that commutes: the ranks split into two halves, and each rank sends a rank of the other
/// half what that half needs. ⌈log₂ n⌉ rounds; each rank sends every block but one, once. If a half has one rank more, that rank has no
/// partner and sends to the last rank of the other half, which then receives two messages. Memory: two vectors, and one more
/// at a rank that receives two messages.
pub fn halving(here: Here, own: Slice, block: impl Fn(u32) -> (u64, u64), result: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    halve(&mut schedule, here, own, block, result);
    schedule
}

/// [`halving`], as a part of a schedule.
pub(super) fn halve(schedule: &mut Schedule, here: Here, own: Slice, block: impl Fn(u32) -> (u64, u64), result: Slice) {
    let bytes = |from: u32, to: u32| {
        let (start, (last, len)) = (block(from).0, block(to - 1));
        (start, last + len - start)
    };
    let part = |slice: Slice, (at, len): (u64, u64)| slice.part(at, len);
    let (all, came) = (schedule.temporary(own.len), schedule.temporary(own.len));
    let mut extra = None;
    let (mut now, mut from, mut to) = (own, 0, here.size);
    while to - from > 1 {
        let low = (to - from).div_ceil(2);
        let middle = from + low;
        let is_low = here.rank < middle;
        let (kept, given) =
            if is_low { (bytes(from, middle), bytes(middle, to)) } else { (bytes(middle, to), bytes(from, middle)) };
        let is_odd = low > to - middle;
        let (partner, second) = match is_low {
            true if is_odd && here.rank + 1 == middle => (None, None),
            true => (Some(here.rank + low), None),
            false => (Some(here.rank - low), (is_odd && here.rank + 1 == to).then_some(middle - 1)),
        };
        let into = if now == own { all } else { came };
        if let Some(partner) = partner {
            schedule.recv(here.peer(partner), part(into, kept));
        }
        let more = second.map(|second| {
            let more = *extra.get_or_insert_with(|| schedule.temporary(own.len));
            schedule.recv(here.peer(second), part(more, kept));
            more
        });
        schedule.send(here.peer(partner.unwrap_or(to - 1)), part(now, given));
        schedule.wait();
        match (partner, now == own) {
            (None, _) => {}
            (Some(_), true) => {
                schedule.combine(part(own, kept), part(all, kept));
                now = all;
            }
            (Some(_), false) => schedule.combine(part(came, kept), part(all, kept)),
        }
        if let Some(more) = more {
            schedule.combine(part(more, kept), part(now, kept));
        }
        (from, to) = if is_low { (from, middle) } else { (middle, to) };
    }
    let (at, len) = block(here.rank);
    schedule.copy(now.part(at, len), result);
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
