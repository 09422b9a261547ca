//! `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Alltoallw`.

use super::schedule::{Here, Schedule, Slice, multiples_of, powers_of};

/// Bruck: blocks travel by the digits of their distance to the base r. ⌈logᵣ n⌉ rounds, in each of which a rank sends at
/// most r - 1 messages of about n/r blocks. All of `from` is read before `to` is written, so they may be the same. Memory:
/// all blocks, and twice what travels in one round.
pub fn bruck(here: Here, radix: u32, from: Slice, to: Slice, block: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let nth = |all: Slice, index: u32| all.part(u64::from(index) * block, block);
    // The blocks that travel this far in the round of this power, as slices of all blocks.
    let going = |power: u32, distance: u32| {
        let firsts = (distance..here.size).step_by(power.saturating_mul(radix) as usize);
        firsts.map(move |first| (u64::from(first) * block, u64::from(power.min(here.size - first)) * block))
    };
    let in_round = |power: u32| multiples_of(power, radix, here.size).flat_map(move |distance| going(power, distance));
    let bytes = |power: u32| in_round(power).map(|(_, len)| len).sum::<u64>();
    let most = powers_of(radix, here.size).map(bytes).max().unwrap_or(0);
    // Block i of `turned` still has i ranks to travel.
    let turned = schedule.temporary(from.len);
    let (out, back) = (schedule.temporary(most), schedule.temporary(most));
    for distance in 0..here.size {
        schedule.copy(nth(from, here.next(distance)), nth(turned, distance));
    }
    for power in powers_of(radix, here.size) {
        let mut end = 0;
        for (at, len) in in_round(power) {
            schedule.copy(turned.part(at, len), out.part(end, len));
            end += len;
        }
        let mut start = 0;
        for distance in multiples_of(power, radix, here.size) {
            let len = going(power, distance).map(|(_, len)| len).sum();
            schedule.recv(here.peer(here.back(distance)), back.part(start, len));
            schedule.send(here.peer(here.next(distance)), out.part(start, len));
            start += len;
        }
        schedule.wait();
        let mut end = 0;
        for (at, len) in in_round(power) {
            schedule.copy(back.part(end, len), turned.part(at, len));
            end += len;
        }
    }
    for distance in 0..here.size {
        schedule.copy(nth(turned, distance), nth(to, here.back(distance)));
    }
    schedule
}

/// Pairwise: in round i a rank sends to the rank i after it and receives from the rank i before it. n - 1 rounds, with
/// `window` of them in flight at a time; each block travels once.
pub fn spread(here: Here, window: u32, to: impl Fn(u32) -> Slice, from: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.copy(to(here.rank), from(here.rank));
    for round in 1..here.size {
        let (before, after) = (here.back(round), here.next(round));
        schedule.recv(here.peer(before), from(before));
        schedule.send(here.peer(after), to(after));
        if round % window == 0 {
            schedule.wait();
        }
    }
    schedule.wait();
    schedule
}

/// In place: in round i the ranks whose numbers add up to i modulo n exchange blocks. n rounds; each block travels
/// once. Memory: the longest block.
pub fn exchange(here: Here, block: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let longest = (0..here.size).map(|rank| block(rank).len).max().unwrap_or(0);
    let got = schedule.temporary(longest);
    for round in 0..here.size {
        let partner = if round >= here.rank { round - here.rank } else { round + (here.size - here.rank) };
        if partner == here.rank {
            continue;
        }
        let place = block(partner);
        schedule.recv(here.peer(partner), got.part(0, place.len));
        schedule.send(here.peer(partner), place);
        schedule.wait();
        schedule.copy(got.part(0, place.len), place);
    }
    schedule
}
