//! `MPI_Gather`, `MPI_Gatherv`, `MPI_Scatter` and `MPI_Scatterv`.

use super::bcast::parent_distance;
use super::schedule::{Here, Schedule, Slice, powers_below};

/// Binomial tree: each rank collects the blocks of its subtree and sends them to its parent. `own` is this rank's block;
/// `all` is all blocks in rank order, at the root only. `here` is counted from the root.
///
/// ⌈log₂ n⌉ rounds, n - 1 messages, one more where the root's subtree wraps round; each block travels up to log₂ n times.
/// Memory: half of all blocks at the root's largest child.
pub fn binomial_gather(here: Here, own: Slice, all: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let block = if here.rank == 0 { all.len / u64::from(here.size) } else { own.len };
    let reach = parent_distance(here);
    let gathered = if here.rank == 0 {
        schedule.copy(own, all.part(u64::from(here.peer(0)) * block, block));
        all
    } else if below(here, here.rank) == 1 {
        own
    } else {
        let gathered = schedule.temporary(u64::from(below(here, here.rank)) * block);
        schedule.copy(own, gathered.part(0, block));
        gathered
    };
    for distance in powers_below(reach).filter(|distance| here.rank + distance < here.size) {
        let child = here.rank + distance;
        if here.rank == 0 {
            for (_, (at, len)) in pieces_at_root(here, child, block) {
                schedule.recv(here.peer(child), all.part(at, len));
            }
        } else {
            let len = u64::from(below(here, child)) * block;
            schedule.recv(here.peer(child), gathered.part(u64::from(distance) * block, len));
        }
    }
    schedule.wait();
    if here.rank > 0 {
        let parent = here.rank - reach;
        if parent == 0 {
            for (at, (_, len)) in pieces_at_root(here, here.rank, block) {
                schedule.send(here.peer(0), gathered.part(at, len));
            }
        } else {
            schedule.send(here.peer(parent), gathered);
        }
        schedule.wait();
    }
    schedule
}

/// The reverse: each rank receives the blocks of its subtree and sends each child its blocks. Cost as for
/// [`binomial_gather`].
pub fn binomial_scatter(here: Here, all: Slice, own: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let block = if here.rank == 0 { all.len / u64::from(here.size) } else { own.len };
    let reach = parent_distance(here);
    let got = if here.rank == 0 {
        all
    } else {
        let many = below(here, here.rank);
        let got = if many == 1 { own } else { schedule.temporary(u64::from(many) * block) };
        let parent = here.rank - reach;
        if parent == 0 {
            for (at, (_, len)) in pieces_at_root(here, here.rank, block) {
                schedule.recv(here.peer(0), got.part(at, len));
            }
        } else {
            schedule.recv(here.peer(parent), got);
        }
        schedule.wait();
        got
    };
    for distance in powers_below(reach).rev().filter(|distance| here.rank + distance < here.size) {
        let child = here.rank + distance;
        if here.rank == 0 {
            for (_, (at, len)) in pieces_at_root(here, child, block) {
                schedule.send(here.peer(child), all.part(at, len));
            }
        } else {
            let len = u64::from(below(here, child)) * block;
            schedule.send(here.peer(child), got.part(u64::from(distance) * block, len));
        }
    }
    let mine = if here.rank == 0 { all.part(u64::from(here.peer(0)) * block, block) } else { got.part(0, block) };
    schedule.copy(mine, own);
    schedule.wait();
    schedule
}

/// Every rank sends to the root: one round, n - 1 messages, each block travels once. A rank without data sends an empty
/// message.
pub fn linear_gather(here: Here, root: u32, own: Slice, from: impl Fn(u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    if here.rank == root {
        for rank in (0..here.size).filter(|rank| *rank != root) {
            schedule.recv_even_none(rank, from(rank));
        }
        schedule.copy(own, from(root));
    } else {
        schedule.send_even_none(root, own);
    }
    schedule.wait();
    schedule
}

/// The root sends to every rank: one round, n - 1 messages, each block travels once.
pub fn linear_scatter(here: Here, root: u32, to: impl Fn(u32) -> Slice, own: Slice) -> Schedule {
    let mut schedule = Schedule::default();
    if here.rank == root {
        for distance in 1..here.size {
            let rank = here.next(distance);
            schedule.send_even_none(rank, to(rank));
        }
        schedule.copy(to(root), own);
    } else {
        schedule.recv_even_none(root, own);
    }
    schedule.wait();
    schedule
}

/// The number of ranks in a rank's subtree, including itself.
fn below(here: Here, rank: u32) -> u32 {
    parent_distance(here.at(rank)).min(here.size - rank)
}

/// Where the blocks of a child's subtree lie at the root, in order. They wrap round, in two pieces, if the root is not
/// rank 0. Each piece: its offset among the subtree's bytes, and its (offset, length) at the root.
fn pieces_at_root(here: Here, child: u32, block: u64) -> impl Iterator<Item = (u64, (u64, u64))> {
    let (first, many) = (here.peer(child), below(here, child));
    let straight = many.min(here.size - first);
    let bytes = move |ranks: u32| u64::from(ranks) * block;
    let before_end = (0, (bytes(first), bytes(straight)));
    let round_end = (bytes(straight), (0, bytes(many - straight)));
    [before_end, round_end].into_iter().filter(|piece| piece.1.1 > 0)
}
