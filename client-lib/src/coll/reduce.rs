//! `MPI_Reduce`. `own` is this rank's vector; `result` is where the root wants the result, and may be the same; only
//! the root uses it.

use super::accumulator::Accumulator;
use super::bcast::parent_distance;
use super::halving::{self, Fold, Part, Vector};
use super::schedule::{Here, Schedule, Slice, powers_below};

/// Binomial tree: each rank combines the vectors of its subtree. ⌈log₂ n⌉ rounds, n - 1 messages of all bytes; one more
/// round and message if the operation does not commute and the root is not rank 0, because a reduction in rank order
/// ends at rank 0. Memory: two vectors.
pub fn binomial(here: Here, root: u32, own: Slice, result: Slice, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let tree = if commutes { here.counted_from(root) } else { here };
    let reach = parent_distance(tree);
    let children: Vec<u32> = powers_below(reach).filter(|distance| tree.rank + distance < tree.size).collect();
    let is_root = here.rank == root;
    let mut all = Accumulator::new(own, own, own, 0, commutes);
    if !children.is_empty() {
        let target = if is_root && tree.rank == 0 { result } else { schedule.temporary(own.len) };
        let other = if children.len() > 1 || own == target { schedule.temporary(own.len) } else { target };
        all = Accumulator::new(own, target, other, children.len(), commutes);
    }
    for distance in children {
        schedule.recv(tree.peer(tree.rank + distance), all.room());
        schedule.wait();
        all.append(&mut schedule);
    }
    if tree.rank > 0 {
        schedule.send(tree.peer(tree.rank - reach), all.now());
    } else if is_root {
        schedule.copy(all.now(), result);
    } else {
        schedule.send(root, all.now());
    }
    schedule.wait();
    if is_root && tree.rank > 0 {
        schedule.recv(tree.peer(0), result);
        schedule.wait();
    }
    schedule
}

/// Rabenseifner: [`halving`], then a gather of the parts to the root along the same pairs in reverse. 2 log₂ n rounds,
/// in which each rank sends and receives less than twice all bytes; two more with all bytes if n is not a power of two.
/// Memory: two vectors.
pub fn rabenseifner(here: Here, root: u32, own: Slice, result: Slice, vector: Vector, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let fold = Fold::new(here, root);
    let (number, with) = match fold.part() {
        Part::Stays { number, with } => (number, with),
        Part::Leaves { to } => {
            schedule.send(to, own);
            schedule.wait();
            return schedule;
        }
    };
    let target = if here.rank == root { result } else { schedule.temporary(own.len) };
    let other = schedule.temporary(own.len);
    let folded_right = with.is_some_and(|with| with > here.rank);
    let appends = halving::appends(number, fold.size()) + usize::from(folded_right);
    let mut all = Accumulator::new(own, target, other, appends, commutes);
    if let Some(with) = with {
        schedule.recv(with, all.room());
        schedule.wait();
        if folded_right { all.append(&mut schedule) } else { all.prepend(&mut schedule) }
    }
    let ways = halving::reduce_scatter(&mut schedule, fold, number, all, vector);
    let turned = number ^ fold.number_of(root);
    for (index, way) in ways.iter().enumerate().rev() {
        // More bits differ from the root's: this rank has already sent its parts.
        if turned >> (index + 1) != 0 {
            break;
        }
        let part = |(at, len): (u64, u64)| target.part(at, len);
        if turned >> index & 1 == 1 {
            // All parts kept in this exchange are together again.
            schedule.send(way.partner, part(way.kept));
        } else {
            schedule.recv(way.partner, part(way.given));
        }
        schedule.wait();
    }
    schedule
}
