//! `MPI_Allgather` and `MPI_Allgatherv`: the phases that bring each block to every rank. Each rank's own block is
//! already in its place, except for [`bruck`].

use super::schedule::{Here, Schedule, Slice, multiples_of, powers_below, powers_of};

/// Recursive doubling, for n a power of two: in round k, two ranks 2ᵏ apart exchange all the blocks they hold.
/// `range(from, to)` is where the blocks of these ranks lie contiguously. log₂ n rounds; each rank sends every block
/// but one, once.
pub fn doubling(schedule: &mut Schedule, here: Here, range: impl Fn(u32, u32) -> Slice) {
    for distance in powers_below(here.size) {
        let mine = here.rank & !(distance - 1);
        let theirs = mine ^ distance;
        let partner = here.peer(here.rank ^ distance);
        schedule.recv(partner, range(theirs, theirs + distance));
        schedule.send(partner, range(mine, mine + distance));
        schedule.wait();
    }
}

/// Ring: each rank forwards to the next rank what it received from the previous one. n - 1 rounds; each rank sends
/// every block but one, once, and talks to only two other ranks.
pub fn ring(schedule: &mut Schedule, here: Here, block: impl Fn(u32) -> Slice) {
    for round in 1..here.size {
        schedule.recv(here.peer(here.back(1)), block(here.back(round)));
        schedule.send(here.peer(here.next(1)), block(here.back(round - 1)));
        schedule.wait();
    }
}

/// Spread: each rank sends its block to every other rank. One round; each rank sends its block n - 1 times, from one place, and none waits for what
/// another one has yet to receive.
pub fn spread(schedule: &mut Schedule, here: Here, block: impl Fn(u32) -> Slice) {
    for round in 1..here.size {
        let (before, after) = (here.back(round), here.next(round));
        schedule.recv(here.peer(before), block(before));
        schedule.send(here.peer(after), block(here.rank));
    }
    schedule.wait();
}

/// Bruck: in round k, with radix r, each rank receives from the ranks rᵏ, 2rᵏ … after it as many blocks as it already has, from
/// each. Works for any n in ⌈logᵣ n⌉ rounds; each rank sends every block but one, once, in at most (r - 1) ⌈logᵣ n⌉
/// messages. Memory: all blocks, stored from this rank's block on and copied to their places at the end.
pub fn bruck(schedule: &mut Schedule, here: Here, radix: u32, own: Slice, block: impl Fn(u32) -> Slice) {
    let starts: Vec<u64> = std::iter::once(0)
        .chain((0..here.size).scan(0, |end, distance| {
            *end += block(here.next(distance)).len;
            Some(*end)
        }))
        .collect();
    let all = schedule.temporary(starts[here.size as usize]);
    let range = |from: u32, to: u32| {
        let start = starts[from as usize];
        all.part(start, starts[to as usize] - start)
    };
    schedule.copy(own, range(0, 1));
    for power in powers_of(radix, here.size) {
        for distance in multiples_of(power, radix, here.size) {
            let many = power.min(here.size - distance);
            schedule.recv(here.peer(here.next(distance)), range(distance, distance + many));
            schedule.send(here.peer(here.back(distance)), range(0, many));
        }
        schedule.wait();
    }
    for distance in 0..here.size {
        schedule.copy(range(distance, distance + 1), block(here.next(distance)));
    }
}
