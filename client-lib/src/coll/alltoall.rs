//! `MPI_Alltoall`, `MPI_Alltoallv` and `MPI_Alltoallw`.

use super::schedule::{Here, Schedule, Slice, powers_below};

/// Bruck: blocks travel by the binary digits of their distance. ⌈log₂ n⌉ rounds in which each rank sends about n/2
/// blocks in one message. All of `from` is read before `to` is written, so they may be the same. Memory: twice all
/// blocks.
pub fn bruck(here: Here, from: Slice, to: Slice, block: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let nth = |all: Slice, index: u32| all.part(u64::from(index) * block, block);
    // Block i of `turned` still has i ranks to travel.
    let turned = schedule.temporary(from.len);
    let half = u64::from(here.size / 2) * block;
    let (out, back) = (schedule.temporary(half), schedule.temporary(half));
    for distance in 0..here.size {
        schedule.copy(nth(from, here.next(distance)), nth(turned, distance));
    }
    for distance in powers_below(here.size) {
        let going = || (0..here.size).filter(|index| index & distance != 0).zip(0..);
        let mut many = 0;
        for (index, place) in going() {
            schedule.copy(nth(turned, index), nth(out, place));
            many += block;
        }
        schedule.recv(here.peer(here.back(distance)), back.part(0, many));
        schedule.send(here.peer(here.next(distance)), out.part(0, many));
        schedule.wait();
        for (index, place) in going() {
            schedule.copy(nth(back, place), nth(turned, index));
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
