//! `MPI_Reduce`. `own` is this rank's vector; `result` is where the root wants the result, and may be the same; only
//! the root uses it.

use super::accumulator::Accumulator;
use super::halving::{self, Fold, Part, Vector};
use super::schedule::{Area, Here, Schedule, Slice};
use super::tree::Tree;
use super::{gather, reduce_scatter};

/// K-nomial tree: each rank combines the vectors of its subtree. ⌈logᵣ n⌉ rounds for radix r, in each of which a rank receives at
/// most r - 1 times all bytes; n - 1 messages; one more round and message if the operation does not commute and the root is not
/// rank 0, because a reduction in rank order ends at rank 0. Memory: two vectors.
pub fn tree(here: Here, root: u32, radix: u32, own: Slice, result: Slice, commutes: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let turned = if commutes { here.counted_from(root) } else { here };
    let tree = Tree::new(turned, radix);
    let is_root = here.rank == root;
    let mut all = Accumulator::new(own, own, own, 0, commutes);
    if !tree.children.is_empty() {
        let target = if is_root && turned.rank == 0 { result } else { schedule.temporary(own.len) };
        let other = if tree.children.len() > 1 || own == target { schedule.temporary(own.len) } else { target };
        all = Accumulator::new(own, target, other, tree.children.len(), commutes);
    }
    for child in &tree.children {
        schedule.recv(turned.peer(child.rank), all.room());
        schedule.wait();
        all.append(&mut schedule);
    }
    match tree.parent {
        Some(parent) => schedule.send(turned.peer(parent), all.now()),
        None if is_root => schedule.copy(all.now(), result),
        None => schedule.send(root, all.now()),
    }
    schedule.wait();
    if is_root && turned.rank > 0 {
        schedule.recv(turned.peer(0), result);
        schedule.wait();
    }
    schedule
}

/// For an operation that commutes: [`reduce_scatter::halving`], then a gather of the parts up a binomial tree. 2 ⌈log₂ n⌉ rounds, in
/// which each rank sends about twice all bytes or less, whatever n is. Memory: two vectors and more.
pub fn scatter_gather(here: Here, root: u32, own: Slice, result: Slice, vector: Vector) -> Schedule {
    let mut schedule = Schedule::default();
    let part = |rank: u32| vector.part(rank, here.size);
    let (at, len) = part(here.rank);
    let mine = if here.rank == root { result.part(at, len) } else { schedule.temporary(len) };
    let [send, recv] = [Area::Send, Area::Recv].map(|area| Slice::all(area, own.len));
    // `own` may be the result's place; it is read before this rank's part is written.
    schedule.append(&reduce_scatter::halving(here, send, part, recv.part(0, len)), own, mine);
    let place = |rank: u32| {
        let (at, len) = part(rank);
        recv.part(at, len)
    };
    let gathered = gather::tree_gather(here.counted_from(root), 2, send.part(0, len), place);
    schedule.append(&gathered, mine, result);
    schedule
}

/// Pipeline up a chain that ends at the root, for an operation that commutes: a rank combines one segment while it receives the
/// next. n - 1 + s rounds for s segments; each rank but the root sends all bytes once. Memory: a vector and two segments.
pub fn pipeline(here: Here, root: u32, own: Slice, result: Slice, vector: Vector, segment: u64) -> Schedule {
    let mut schedule = Schedule::default();
    let here = here.counted_from(root);
    let segment = (segment / vector.unit).max(1) * vector.unit;
    let segments = own.len.div_ceil(segment);
    let nth = |all: Slice, index: u64| all.part(index * segment, segment.min(all.len - index * segment));
    let is_last = here.rank + 1 == here.size;
    if is_last && here.rank == 0 {
        schedule.copy(own, result);
    }
    // What is received is combined where it is received, or else into the operand that is there already.
    let all = match here.rank {
        0 => result,
        _ if is_last => own,
        _ => schedule.temporary(own.len),
    };
    let [even, odd] = [(); 2].map(|()| if own == all && !is_last { schedule.temporary(segment) } else { all });
    for round in 0..=segments {
        let came = |round: u64| match own == all {
            true => (if round.is_multiple_of(2) { even } else { odd }).part(0, nth(all, round).len),
            false => nth(all, round),
        };
        if !is_last && round < segments {
            schedule.recv(here.peer(here.rank + 1), came(round));
        }
        if !is_last && round > 0 {
            match own == all {
                true => schedule.combine(came(round - 1), nth(all, round - 1)),
                false => schedule.combine(nth(own, round - 1), came(round - 1)),
            }
        }
        if here.rank > 0 && round > 0 {
            schedule.send(here.peer(here.rank - 1), nth(all, round - 1));
        }
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
