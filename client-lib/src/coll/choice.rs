//! Selects the algorithm for each call: the tables, and the functions that turn a call into a schedule.
//!
//! All ranks must choose alike, so a choice depends only on what every rank knows: the number of ranks, the bytes, the
//! root, whether the operation commutes. In a rooted call some ranks may be in place and others not; that changes only
//! where a rank's own bytes lie.

use super::halving::Vector;
use super::schedule::{Area, Here, Schedule, Slice};
use super::{allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scan};

/// A rule that holds from `ranks` ranks and `bytes` bytes on, unless a later rule holds as well.
struct Rule<A> {
    ranks: u32,
    bytes: u64,
    then: A,
}

const fn from<A>(ranks: u32, bytes: u64, then: A) -> Rule<A> {
    Rule { ranks, bytes, then }
}

/// Returns the choice of the last rule that holds. The first rule of a table always holds.
fn choose<A: Copy>(rules: &[Rule<A>], ranks: u32, bytes: u64) -> A {
    let holds = |rule: &&Rule<A>| ranks >= rule.ranks && bytes >= rule.bytes;
    rules.iter().rev().find(holds).unwrap_or(&rules[0]).then
}

/// Algorithms for a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bcast {
    /// [`bcast::binomial`].
    Binomial,
    /// [`bcast::scatter_allgather`].
    ScatterAllgather,
    /// [`bcast::chain`] of segments of this many bytes.
    Chain(u64),
}

/// Algorithms for a gather or scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// [`gather::binomial_gather`], [`gather::binomial_scatter`].
    Binomial,
    /// [`gather::linear_gather`], [`gather::linear_scatter`].
    Linear,
}

/// Algorithms for an allgather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allgather {
    /// [`allgather::doubling`] for a power of two of ranks with contiguous blocks, otherwise [`allgather::bruck`].
    Logarithmic,
    /// [`allgather::ring`].
    Ring,
}

/// Algorithms for an alltoall that is not in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alltoall {
    /// [`alltoall::bruck`].
    Bruck,
    /// [`alltoall::spread`] with this many rounds in flight.
    Spread(u32),
}

/// Algorithms for a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// [`reduce::binomial`], [`allreduce::doubling`].
    Whole,
    /// [`reduce::rabenseifner`], [`allreduce::rabenseifner`].
    Halving,
}

/// Algorithms for a reduce-scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceScatter {
    /// [`reduce_scatter::of_all`].
    OfAll,
    /// [`reduce_scatter::halving`] where it applies, otherwise [`reduce_scatter::spread`].
    Halving,
    /// [`reduce_scatter::spread`].
    Spread,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// By total bytes.
const BCAST: &[Rule<Bcast>] = &[
    from(0, 0, Bcast::Binomial),
    from(8, 32 * KIB, Bcast::ScatterAllgather),
    from(3, 512 * KIB, Bcast::Chain(128 * KIB)),
];

/// By the bytes of a block.
const GATHER: &[Rule<Gather>] =
    &[from(0, 0, Gather::Linear), from(8, 0, Gather::Binomial), from(8, 2 * KIB, Gather::Linear)];

/// By total bytes.
const ALLGATHER: &[Rule<Allgather>] = &[from(0, 0, Allgather::Logarithmic), from(3, 64 * KIB, Allgather::Ring)];

/// By the bytes of a block.
const ALLTOALL: &[Rule<Alltoall>] = &[
    from(0, 0, Alltoall::Spread(32)),
    from(8, 0, Alltoall::Bruck),
    from(8, 256, Alltoall::Spread(32)),
    from(0, 32 * KIB, Alltoall::Spread(8)),
    from(0, MIB, Alltoall::Spread(2)),
];

/// By the bytes of a vector.
const REDUCE: &[Rule<Reduce>] = &[from(0, 0, Reduce::Whole), from(4, 8 * KIB, Reduce::Halving)];

/// By the bytes of a vector.
const ALLREDUCE: &[Rule<Reduce>] = &[from(0, 0, Reduce::Whole), from(2, 8 * KIB, Reduce::Halving)];

/// By the bytes of a vector.
const REDUCE_SCATTER: &[Rule<ReduceScatter>] = &[
    from(0, 0, ReduceScatter::OfAll),
    from(2, 2 * KIB, ReduceScatter::Halving),
    from(2, 512 * KIB, ReduceScatter::Spread),
];

/// A call of a collective function whose blocks all have the same length. Lengths are packed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast` of the data in [`Area::Recv`].
    Bcast {
        /// The rank that has the data.
        root: u32,
        /// Bytes of the data.
        len: u64,
    },
    /// `MPI_Gather`.
    Gather {
        /// The rank that receives all blocks.
        root: u32,
        /// Bytes from each rank.
        block: u64,
        /// The root's own block is already in its place.
        in_place: bool,
    },
    /// `MPI_Scatter`.
    Scatter {
        /// The rank that has all blocks.
        root: u32,
        /// Bytes for each rank.
        block: u64,
        /// The root's own block stays in its place.
        in_place: bool,
    },
    /// `MPI_Allgather`.
    Allgather {
        /// Bytes from each rank.
        block: u64,
        /// Each rank's own block is already in its place.
        in_place: bool,
    },
    /// `MPI_Alltoall`.
    Alltoall {
        /// Bytes from each rank to each rank.
        block: u64,
        /// Each block to send lies where the block from the same rank will be received.
        in_place: bool,
    },
    /// `MPI_Reduce`.
    Reduce {
        /// The rank that gets the result.
        root: u32,
        /// Each rank's vector.
        vector: Vector,
        /// Whether the operands may be combined in any order.
        commutes: bool,
        /// The root's own operand lies where the root wants the result.
        in_place: bool,
    },
    /// `MPI_Allreduce`.
    Allreduce {
        /// Each rank's vector.
        vector: Vector,
        /// Whether the operands may be combined in any order.
        commutes: bool,
        /// Each operand lies where the result goes.
        in_place: bool,
    },
    /// `MPI_Reduce_scatter_block`.
    ReduceScatterBlock {
        /// The part of the result for each rank.
        block: Vector,
        /// Whether the operands may be combined in any order.
        commutes: bool,
        /// Each operand lies where the result goes.
        in_place: bool,
    },
    /// `MPI_Scan`.
    Scan {
        /// Each rank's vector.
        vector: Vector,
        /// Each operand lies where the result goes.
        in_place: bool,
    },
    /// `MPI_Exscan`.
    Exscan {
        /// Each rank's vector.
        vector: Vector,
        /// Each operand lies where the result goes.
        in_place: bool,
    },
}

impl Call {
    /// The steps of one rank.
    pub fn schedule(self, here: Here) -> Schedule {
        let blocks = |block: u64| block * u64::from(here.size);
        let own = |in_place: bool, len: u64| Slice::all(if in_place { Area::Recv } else { Area::Send }, len);
        let recv = |len: u64| Slice::all(Area::Recv, len);
        match self {
            Self::Barrier => barrier::dissemination(here),
            Self::Bcast { len: 0, .. }
            | Self::Gather { block: 0, .. }
            | Self::Scatter { block: 0, .. }
            | Self::Allgather { block: 0, .. }
            | Self::Alltoall { block: 0, .. } => Schedule::default(),
            Self::Reduce { vector, .. }
            | Self::Allreduce { vector, .. }
            | Self::ReduceScatterBlock { block: vector, .. }
            | Self::Scan { vector, .. }
            | Self::Exscan { vector, .. }
                if vector.is_empty() =>
            {
                Schedule::default()
            }
            Self::Bcast { root, len } => self::bcast(here, choose(BCAST, here.size, len), root, len),
            Self::Gather { root, block, in_place } => {
                let mine = place_of_root(here, root, in_place, Area::Recv, Area::Send, block);
                gather(here, choose(GATHER, here.size, block), root, mine, recv(blocks(block)))
            }
            Self::Scatter { root, block, in_place } => {
                let mine = place_of_root(here, root, in_place, Area::Send, Area::Recv, block);
                let all = Slice::all(Area::Send, blocks(block));
                scatter(here, choose(GATHER, here.size, block), root, all, mine)
            }
            Self::Allgather { block, in_place } => {
                let how = choose(ALLGATHER, here.size, blocks(block));
                self::allgather(here, how, recv(blocks(block)), block, in_place)
            }
            Self::Alltoall { block, in_place } => alltoall(here, choose(ALLTOALL, here.size, block), block, in_place),
            Self::Reduce { root, vector, commutes, in_place } => {
                let mine = own(in_place && here.rank == root, vector.len());
                let how = choose(REDUCE, here.size, vector.len());
                reduce(here, how, root, mine, recv(vector.len()), vector, commutes)
            }
            Self::Allreduce { vector, commutes, in_place } => {
                let how = choose(ALLREDUCE, here.size, vector.len());
                allreduce(here, how, own(in_place, vector.len()), recv(vector.len()), vector, commutes)
            }
            Self::ReduceScatterBlock { block, commutes, in_place } => {
                let len = block.len();
                let how = choose(REDUCE_SCATTER, here.size, blocks(len));
                let part = |rank: u32| (u64::from(rank) * len, len);
                reduce_scatter(here, how, own(in_place, blocks(len)), part, recv(len), commutes)
            }
            Self::Scan { vector, in_place } => scan::inclusive(here, own(in_place, vector.len()), recv(vector.len())),
            Self::Exscan { vector, in_place } => scan::exclusive(here, own(in_place, vector.len()), recv(vector.len())),
        }
    }
}

/// `MPI_Gatherv`: `own` is this rank's bytes; `lens[rank]` is each rank's, known only to the root.
pub fn gatherv(here: Here, root: u32, own: u64, lens: &[u64], in_place: bool) -> Schedule {
    let from = |rank: u32| Slice::all(Area::RecvFrom(rank), lens[rank as usize]);
    let mine = if in_place && here.rank == root { from(root) } else { Slice::all(Area::Send, own) };
    gather::linear_gather(here, root, mine, from)
}

/// `MPI_Scatterv`: `own` is the bytes for this rank; `lens[rank]` is the bytes for each rank, known only to the root.
pub fn scatterv(here: Here, root: u32, lens: &[u64], own: u64, in_place: bool) -> Schedule {
    let to = |rank: u32| Slice::all(Area::SendTo(rank), lens[rank as usize]);
    let mine = if in_place && here.rank == root { to(root) } else { Slice::all(Area::Recv, own) };
    gather::linear_scatter(here, root, to, mine)
}

/// `MPI_Allgatherv`: `lens[rank]` is each rank's bytes; `own` is this rank's bytes by its send arguments.
pub fn allgatherv(here: Here, own: u64, lens: &[u64], in_place: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let block = |rank: u32| Slice::all(Area::RecvFrom(rank), lens[rank as usize]);
    let mine = if in_place { block(here.rank) } else { Slice::all(Area::Send, own) };
    match choose(ALLGATHER, here.size, lens.iter().sum()) {
        Allgather::Logarithmic => allgather::bruck(&mut schedule, here, mine, block),
        Allgather::Ring => {
            schedule.copy(mine, block(here.rank));
            allgather::ring(&mut schedule, here, block);
        }
    }
    schedule
}

/// `MPI_Alltoallv`, `MPI_Alltoallw`: bytes to and from each rank; `to` is `None` if in place.
pub fn alltoallv(here: Here, to: Option<&[u64]>, from: &[u64]) -> Schedule {
    let recv = |rank: u32| Slice::all(Area::RecvFrom(rank), from[rank as usize]);
    match to {
        Some(lens) => alltoall::spread(here, 16, |rank| Slice::all(Area::SendTo(rank), lens[rank as usize]), recv),
        None => alltoall::exchange(here, recv),
    }
}

/// `MPI_Reduce_scatter`: `counts[rank]` elements for each rank.
pub fn reduce_scatterv(here: Here, counts: &[u64], unit: u64, commutes: bool, in_place: bool) -> Schedule {
    let mut end = 0;
    let parts: Vec<(u64, u64)> = counts
        .iter()
        .map(|count| {
            let part = (end, count * unit);
            end += part.1;
            part
        })
        .collect();
    if end == 0 {
        return Schedule::default();
    }
    let own = Slice::all(if in_place { Area::Recv } else { Area::Send }, end);
    let result = Slice::all(Area::Recv, parts[here.rank as usize].1);
    let how = choose(REDUCE_SCATTER, here.size, end);
    reduce_scatter(here, how, own, |rank| parts[rank as usize], result, commutes)
}

/// Where a rank's own block is in a rooted call: the root's may be among all the blocks.
fn place_of_root(here: Here, root: u32, in_place: bool, among: Area, apart: Area, block: u64) -> Slice {
    if in_place && here.rank == root {
        Slice { area: among, at: u64::from(root) * block, len: block }
    } else {
        Slice::all(apart, block)
    }
}

/// A broadcast of `len` bytes.
pub fn bcast(here: Here, how: Bcast, root: u32, len: u64) -> Schedule {
    let (turned, data) = (here.counted_from(root), Slice::all(Area::Recv, len));
    match how {
        Bcast::Binomial => bcast::binomial(turned, data),
        Bcast::ScatterAllgather => bcast::scatter_allgather(turned, data),
        // A pipeline takes a round for each rank and each segment, so it does not pay with more ranks than segments.
        Bcast::Chain(segment) if u64::from(here.size) > 2 + len / segment => bcast::scatter_allgather(turned, data),
        Bcast::Chain(segment) => bcast::chain(turned, data, segment),
    }
}

/// Gathers blocks of one length to `all` at the root.
pub fn gather(here: Here, how: Gather, root: u32, own: Slice, all: Slice) -> Schedule {
    match how {
        Gather::Binomial => gather::binomial_gather(here.counted_from(root), own, all),
        Gather::Linear => gather::linear_gather(here, root, own, |rank| nth(all, own.len, rank)),
    }
}

/// Scatters blocks of one length from `all` at the root.
pub fn scatter(here: Here, how: Gather, root: u32, all: Slice, own: Slice) -> Schedule {
    match how {
        Gather::Binomial => gather::binomial_scatter(here.counted_from(root), all, own),
        Gather::Linear => gather::linear_scatter(here, root, |rank| nth(all, own.len, rank), own),
    }
}

/// Gathers blocks of one length to `all` on every rank.
pub fn allgather(here: Here, how: Allgather, all: Slice, block: u64, in_place: bool) -> Schedule {
    let mut schedule = Schedule::default();
    let place = |rank: u32| nth(all, block, rank);
    let own = if in_place { place(here.rank) } else { Slice::all(Area::Send, block) };
    if how == Allgather::Logarithmic && !here.size.is_power_of_two() {
        allgather::bruck(&mut schedule, here, own, place);
        return schedule;
    }
    schedule.copy(own, place(here.rank));
    match how {
        Allgather::Logarithmic => allgather::doubling(&mut schedule, here, |first, end| {
            all.part(u64::from(first) * block, u64::from(end - first) * block)
        }),
        Allgather::Ring => allgather::ring(&mut schedule, here, place),
    }
    schedule
}

/// Exchanges blocks of one length between all ranks.
pub fn alltoall(here: Here, how: Alltoall, block: u64, in_place: bool) -> Schedule {
    let all = block * u64::from(here.size);
    let (send, recv) = (Slice::all(Area::Send, all), Slice::all(Area::Recv, all));
    match how {
        Alltoall::Bruck => alltoall::bruck(here, if in_place { recv } else { send }, recv, block),
        Alltoall::Spread(_) if in_place => alltoall::exchange(here, |rank| nth(recv, block, rank)),
        Alltoall::Spread(window) => {
            alltoall::spread(here, window, |rank| nth(send, block, rank), |rank| nth(recv, block, rank))
        }
    }
}

/// Reduces the vectors to the root.
pub fn reduce(
    here: Here,
    how: Reduce,
    root: u32,
    own: Slice,
    result: Slice,
    vector: Vector,
    commutes: bool,
) -> Schedule {
    match how {
        Reduce::Whole => reduce::binomial(here, root, own, result, commutes),
        Reduce::Halving => reduce::rabenseifner(here, root, own, result, vector, commutes),
    }
}

/// Reduces the vectors to all ranks.
pub fn allreduce(here: Here, how: Reduce, own: Slice, result: Slice, vector: Vector, commutes: bool) -> Schedule {
    match how {
        Reduce::Whole => allreduce::doubling(here, own, result),
        Reduce::Halving => allreduce::rabenseifner(here, own, result, vector, commutes),
    }
}

/// Reduces the vectors and scatters the result; `part(rank)` is each rank's (offset, length). The parts are contiguous,
/// in order.
pub fn reduce_scatter(
    here: Here,
    how: ReduceScatter,
    own: Slice,
    part: impl Fn(u32) -> (u64, u64),
    result: Slice,
    commutes: bool,
) -> Schedule {
    match how {
        ReduceScatter::OfAll => reduce_scatter::of_all(here, own, part, result),
        ReduceScatter::Halving if commutes && here.size.is_power_of_two() => {
            reduce_scatter::halving(here, own, part, result)
        }
        ReduceScatter::Halving | ReduceScatter::Spread => reduce_scatter::spread(here, own, part, result),
    }
}

fn nth(all: Slice, block: u64, rank: u32) -> Slice {
    all.part(u64::from(rank) * block, block)
}
