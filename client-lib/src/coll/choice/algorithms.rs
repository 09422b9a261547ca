//! The algorithms of each collective, by name, and the functions that build the ones without hierarchy.

use super::super::halving::Vector;
use super::super::schedule::{Area, Here, Schedule, Slice};
use super::super::{allgather, allreduce, alltoall, bcast, gather, reduce, reduce_scatter, scan};

/// Algorithms for a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// [`dissemination`](super::super::barrier::dissemination) of this radix.
    Dissemination(u32),
    /// All tell rank 0, which then tells all: [`leaders::barrier`](super::leaders::barrier) as on one node.
    Root,
    /// [`leaders::barrier`](super::leaders::barrier).
    Leaders,
    /// [`lanes::barrier`](super::lanes::barrier).
    Lanes,
}

/// Algorithms for a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bcast {
    /// [`bcast::tree`] of this radix.
    Tree(u32),
    /// [`bcast::scatter_allgather`].
    ScatterAllgather,
    /// [`bcast::scatter_bruck`].
    ScatterBruck,
    /// [`bcast::pipeline`] down a tree of this arity, in segments of this many bytes.
    Pipeline(u32, u64),
    /// [`leaders::bcast`](super::leaders::bcast).
    Leaders,
    /// [`lanes::bcast`](super::lanes::bcast).
    Lanes,
}

/// Algorithms for a gather or scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gather {
    /// [`gather::tree_gather`], [`gather::tree_scatter`] of this radix.
    Tree(u32),
    /// [`gather::linear_gather`], [`gather::linear_scatter`].
    Linear,
    /// [`leaders::gather`](super::leaders::gather), [`leaders::scatter`](super::leaders::scatter).
    Leaders,
}

/// Algorithms for an allgather.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allgather {
    /// [`allgather::doubling`] for a power of two of ranks with contiguous blocks and radix 2, otherwise [`allgather::bruck`] of this
    /// radix.
    Logarithmic(u32),
    /// [`allgather::ring`].
    Ring,
    /// [`allgather::spread`].
    Spread,
    /// Rank 0 gathers and broadcasts: [`leaders::allgather`](super::leaders::allgather) as on one node.
    Root,
    /// [`leaders::allgather`](super::leaders::allgather).
    Leaders,
    /// [`lanes::allgather`](super::lanes::allgather).
    Lanes,
}

/// Algorithms for an alltoall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alltoall {
    /// [`alltoall::bruck`] of this radix.
    Bruck(u32),
    /// [`alltoall::spread`] with this many rounds in flight; in place [`alltoall::exchange`].
    Spread(u32),
    /// [`lanes::alltoall`](super::lanes::alltoall).
    Lanes,
}

/// Algorithms for a reduction to one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// [`reduce::tree`] of this radix.
    Tree(u32),
    /// [`reduce::rabenseifner`].
    Halving,
    /// [`reduce::scatter_gather`] if the operation commutes, otherwise [`reduce::rabenseifner`].
    ScatterGather,
    /// [`reduce::pipeline`] in segments of this many bytes if the operation commutes, otherwise [`reduce::rabenseifner`].
    Pipeline(u64),
    /// [`leaders::reduce`](super::leaders::reduce).
    Leaders,
    /// [`lanes::reduce`](super::lanes::reduce).
    Lanes,
}

/// Algorithms for a reduction to all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allreduce {
    /// [`allreduce::multiplying`] of this radix; with radix 2 it is [`allreduce::doubling`].
    Multiplying(u32),
    /// [`allreduce::rabenseifner`].
    Halving,
    /// [`allreduce::scatter_gather`] if the operation commutes, otherwise [`allreduce::rabenseifner`].
    ScatterGather,
    /// [`allreduce::ring`] if the operation commutes, otherwise [`allreduce::rabenseifner`].
    Ring,
    /// Rank 0 reduces and broadcasts: [`leaders::allreduce`](super::leaders::allreduce) as on one node.
    Root,
    /// [`leaders::allreduce`](super::leaders::allreduce).
    Leaders,
    /// [`lanes::allreduce`](super::lanes::allreduce).
    Lanes,
}

/// Algorithms for a reduce-scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceScatter {
    /// [`allreduce::doubling`] of the whole vector, of which each rank takes its part.
    OfAll,
    /// [`reduce_scatter::halving`] if the operation commutes; otherwise [`allreduce::rabenseifner`] of the whole vector.
    Halving,
    /// [`reduce_scatter::spread`].
    Spread,
    /// Rank 0 reduces and scatters: [`leaders::reduce_scatter`](super::leaders::reduce_scatter) as on one node.
    Root,
    /// [`leaders::reduce_scatter`](super::leaders::reduce_scatter).
    Leaders,
    /// [`lanes::reduce_scatter`](super::lanes::reduce_scatter).
    Lanes,
}

/// Algorithms for a scan or exscan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scan {
    /// [`scan::inclusive`], [`scan::exclusive`].
    Doubling,
    /// [`scan::chain`] in segments of this many bytes.
    Chain(u64),
    /// [`leaders::scan`](super::leaders::scan), [`leaders::exscan`](super::leaders::exscan).
    Leaders,
}

/// A broadcast of `data`, which has the same area on all ranks.
pub(super) fn bcast(here: Here, how: Bcast, root: u32, data: Slice) -> Schedule {
    let turned = here.counted_from(root);
    match how {
        // Between two, pieces only cost.
        _ if here.size == 2 => bcast::tree(turned, 2, data),
        Bcast::Tree(radix) => bcast::tree(turned, radix, data),
        // A pipeline takes a round for each rank and each segment, so a chain does not pay with more ranks than segments.
        Bcast::Pipeline(1, segment) if u64::from(here.size) > 2 + data.len / segment => {
            bcast::scatter_allgather(turned, data)
        }
        Bcast::Pipeline(arity, segment) => bcast::pipeline(turned, arity, data, segment),
        Bcast::ScatterAllgather => bcast::scatter_allgather(turned, data),
        Bcast::ScatterBruck | Bcast::Leaders | Bcast::Lanes => bcast::scatter_bruck(turned, data),
    }
}

/// Gathers what each rank has to `place(rank)` at the root. All ranks know the lengths.
pub(super) fn gather(here: Here, how: Gather, root: u32, own: Slice, place: impl Fn(u32) -> Slice) -> Schedule {
    match how {
        Gather::Tree(radix) => gather::tree_gather(here.counted_from(root), radix, own, place),
        Gather::Linear | Gather::Leaders => gather::linear_gather(here, root, own, place),
    }
}

/// Scatters to each rank what lies at `place(rank)` at the root. All ranks know the lengths.
pub(super) fn scatter(here: Here, how: Gather, root: u32, place: impl Fn(u32) -> Slice, own: Slice) -> Schedule {
    match how {
        Gather::Tree(radix) => gather::tree_scatter(here.counted_from(root), radix, place, own),
        Gather::Linear | Gather::Leaders => gather::linear_scatter(here, root, place, own),
    }
}

/// Gathers what each rank has to `range(rank, rank + 1)` on every rank; the places of consecutive ranks lie one after the other.
pub(super) fn allgather(here: Here, how: Allgather, own: Slice, range: impl Fn(u32, u32) -> Slice) -> Schedule {
    let mut schedule = Schedule::default();
    let place = |rank: u32| range(rank, rank + 1);
    match how {
        // As a part of a composition: next to the fewest messages.
        Allgather::Root => return allgather(here, Allgather::Logarithmic(2), own, range),
        Allgather::Logarithmic(2) if here.size.is_power_of_two() => {
            schedule.copy(own, place(here.rank));
            allgather::doubling(&mut schedule, here, range);
        }
        Allgather::Logarithmic(radix) => allgather::bruck(&mut schedule, here, radix, own, place),
        Allgather::Ring | Allgather::Leaders | Allgather::Lanes => {
            schedule.copy(own, place(here.rank));
            allgather::ring(&mut schedule, here, place);
        }
        Allgather::Spread => {
            schedule.copy(own, place(here.rank));
            allgather::spread(&mut schedule, here, place);
        }
    }
    schedule
}

/// Exchanges blocks of one length between all ranks.
pub(super) fn alltoall(here: Here, how: Alltoall, block: u64, in_place: bool) -> Schedule {
    let all = block * u64::from(here.size);
    let (send, recv) = (Slice::all(Area::Send, all), Slice::all(Area::Recv, all));
    let nth = |all: Slice, rank: u32| all.part(u64::from(rank) * block, block);
    match how {
        Alltoall::Bruck(radix) => alltoall::bruck(here, radix, if in_place { recv } else { send }, recv, block),
        Alltoall::Spread(_) | Alltoall::Lanes if in_place => alltoall::exchange(here, |rank| nth(recv, rank)),
        Alltoall::Spread(window) => alltoall::spread(here, window, |rank| nth(send, rank), |rank| nth(recv, rank)),
        Alltoall::Lanes => alltoall::spread(here, WINDOW, |rank| nth(send, rank), |rank| nth(recv, rank)),
    }
}

/// Rounds in flight where no table says how many.
pub(super) const WINDOW: u32 = 16;

/// Reduces the vectors to the root.
pub(super) fn reduce(
    here: Here,
    how: Reduce,
    root: u32,
    own: Slice,
    result: Slice,
    vector: Vector,
    commutes: bool,
) -> Schedule {
    match how {
        Reduce::Tree(radix) => reduce::tree(here, root, radix, own, result, commutes),
        Reduce::ScatterGather | Reduce::Leaders | Reduce::Lanes if commutes => {
            reduce::scatter_gather(here, root, own, result, vector)
        }
        Reduce::Pipeline(segment) if commutes => reduce::pipeline(here, root, own, result, vector, segment),
        Reduce::Halving | Reduce::ScatterGather | Reduce::Pipeline(_) | Reduce::Leaders | Reduce::Lanes => {
            reduce::rabenseifner(here, root, own, result, vector, commutes)
        }
    }
}

/// Reduces the vectors to all ranks.
pub(super) fn allreduce(
    here: Here,
    how: Allreduce,
    own: Slice,
    result: Slice,
    vector: Vector,
    commutes: bool,
) -> Schedule {
    match how {
        Allreduce::Multiplying(2) => allreduce::doubling(here, own, result),
        Allreduce::Multiplying(radix) => allreduce::multiplying(here, radix, own, result),
        Allreduce::ScatterGather | Allreduce::Leaders | Allreduce::Lanes if commutes => {
            allreduce::scatter_gather(here, own, result, vector)
        }
        Allreduce::Ring if commutes => allreduce::ring(here, own, result, vector),
        Allreduce::Halving
        | Allreduce::ScatterGather
        | Allreduce::Ring
        | Allreduce::Root
        | Allreduce::Leaders
        | Allreduce::Lanes => allreduce::rabenseifner(here, own, result, vector, commutes),
    }
}

/// Reduces the vectors of elements of `unit` bytes and scatters the result; `part(rank)` is each rank's (offset, length). The parts are
/// contiguous, in order.
pub(super) fn reduce_scatter(
    here: Here,
    how: ReduceScatter,
    own: Slice,
    part: impl Fn(u32) -> (u64, u64),
    result: Slice,
    unit: u64,
    commutes: bool,
) -> Schedule {
    let of_all = |how: Allreduce| {
        let mut schedule = Schedule::default();
        let all = schedule.temporary(own.len);
        let vector = Vector { count: own.len / unit, unit };
        let [send, recv] = [Area::Send, Area::Recv].map(|area| Slice::all(area, own.len));
        schedule.append(&allreduce(here, how, send, recv, vector, commutes), own, all);
        let (at, len) = part(here.rank);
        schedule.copy(all.part(at, len), result);
        schedule
    };
    match how {
        ReduceScatter::OfAll => of_all(Allreduce::Multiplying(2)),
        ReduceScatter::Halving | ReduceScatter::Root | ReduceScatter::Leaders | ReduceScatter::Lanes if commutes => {
            reduce_scatter::halving(here, own, part, result)
        }
        ReduceScatter::Halving | ReduceScatter::Root | ReduceScatter::Leaders | ReduceScatter::Lanes => {
            of_all(Allreduce::Halving)
        }
        ReduceScatter::Spread => reduce_scatter::spread(here, own, part, result),
    }
}

/// The prefixes of the vectors, up to each rank.
pub(super) fn scan(here: Here, how: Scan, own: Slice, result: Slice, vector: Vector) -> Schedule {
    match how {
        Scan::Chain(segment) => scan::chain(here, own, result, vector, segment, false),
        Scan::Doubling | Scan::Leaders => scan::inclusive(here, own, result),
    }
}

/// The prefixes of the vectors, up to the rank before each.
pub(super) fn exscan(here: Here, how: Scan, own: Slice, result: Slice, vector: Vector) -> Schedule {
    match how {
        // Between two, nothing is combined, and pieces only cost.
        Scan::Chain(segment) if here.size > 2 => scan::chain(here, own, result, vector, segment, true),
        Scan::Doubling | Scan::Chain(_) | Scan::Leaders => scan::exclusive(here, own, result),
    }
}
