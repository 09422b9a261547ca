//! What is simulated: calls on layouts, and the algorithms that compete for each.

use rsd_mpi::coll::choice::Algorithm;
use rsd_mpi::coll::choice::algorithms::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan,
};
use rsd_mpi::coll::{Call, Vector};

/// A collective function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Barrier,
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
}

pub(crate) const KINDS: [Kind; 11] = [
    Kind::Barrier,
    Kind::Bcast,
    Kind::Gather,
    Kind::Scatter,
    Kind::Allgather,
    Kind::Alltoall,
    Kind::Reduce,
    Kind::Allreduce,
    Kind::ReduceScatter,
    Kind::Scan,
    Kind::Exscan,
];

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) nodes: u32,
    pub(crate) each: u32,
    /// Of the vector, or of the block of a rank.
    pub(crate) bytes: u64,
}

/// Counts of nodes, and of ranks on each, that are powers of two.
const NODES: [u32; 6] = [1, 2, 4, 16, 256, 4096];
const EACH: [u32; 4] = [1, 4, 32, 128];

/// Other counts.
const ODD: [(u32, u32); 8] = [(3, 1), (12, 1), (100, 1), (2, 2), (5, 3), (3, 6), (12, 12), (100, 6)];

/// Every third power of two, from 1 B to 16 MiB.
fn sizes() -> impl Iterator<Item = u64> {
    (0..=24).step_by(3).map(|bit| 1 << bit)
}

/// Blocks of all ranks together are not longer than this.
const MEMORY: u64 = 1 << 30;

/// All calls of a function on layouts for which there is no measured table.
pub(crate) fn cells(kind: Kind) -> Vec<Cell> {
    let layouts = NODES.into_iter().flat_map(|nodes| EACH.map(|each| (nodes, each)));
    let modelled = layouts.chain(ODD).filter(|(nodes, each)| *nodes > 1 || *each > 16);
    let sizes: Vec<u64> = if kind == Kind::Barrier { vec![0] } else { sizes().collect() };
    let cells =
        modelled.flat_map(|(nodes, each)| sizes.iter().map(move |bytes| Cell { kind, nodes, each, bytes: *bytes }));
    cells.filter(Cell::is_real).collect()
}

impl Cell {
    pub(crate) fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.each)
    }

    /// Whether it fits into memory, and has a part for each rank.
    pub(crate) fn is_real(&self) -> bool {
        match self.kind {
            Kind::Gather | Kind::Scatter | Kind::Allgather | Kind::Alltoall => self.bytes * self.ranks() <= MEMORY,
            Kind::ReduceScatter => self.bytes >= self.ranks(),
            Kind::Barrier | Kind::Bcast | Kind::Reduce | Kind::Allreduce | Kind::Scan | Kind::Exscan => true,
        }
    }

    /// The bytes that the tables know: of the whole vector or of a block.
    pub(crate) fn key(&self) -> u64 {
        match self.kind {
            Kind::ReduceScatter => self.bytes / self.ranks() * self.ranks(),
            _ => self.bytes,
        }
    }

    /// Whether all nodes do the same if they are a power of two.
    pub(crate) fn is_symmetric(&self) -> bool {
        match self.kind {
            Kind::Barrier | Kind::Allgather | Kind::Alltoall | Kind::Allreduce | Kind::ReduceScatter => true,
            Kind::Bcast | Kind::Gather | Kind::Scatter | Kind::Reduce | Kind::Scan | Kind::Exscan => false,
        }
    }

    /// The call: the root is rank 0, operations commute, nothing is in place.
    pub(crate) fn call(&self) -> Call {
        let of = |bytes: u64| {
            let unit = if bytes.is_multiple_of(4) { 4 } else { 1 };
            Vector { count: bytes / unit, unit }
        };
        let (vector, commutes, in_place) = (of(self.bytes), true, false);
        match self.kind {
            Kind::Barrier => Call::Barrier,
            Kind::Bcast => Call::Bcast { root: 0, len: self.bytes },
            Kind::Gather => Call::Gather { root: 0, block: self.bytes, in_place },
            Kind::Scatter => Call::Scatter { root: 0, block: self.bytes, in_place },
            Kind::Allgather => Call::Allgather { block: self.bytes, in_place },
            Kind::Alltoall => Call::Alltoall { block: self.bytes, in_place },
            Kind::Reduce => Call::Reduce { root: 0, vector, commutes, in_place },
            Kind::Allreduce => Call::Allreduce { vector, commutes, in_place },
            Kind::ReduceScatter => {
                Call::ReduceScatterBlock { block: of(self.bytes / self.ranks()), commutes, in_place }
            }
            Kind::Scan => Call::Scan { vector, in_place },
            Kind::Exscan => Call::Exscan { vector, in_place },
        }
    }
}

const SEGMENT: u64 = 64 << 10;

/// The algorithms that compete.
pub(crate) fn algorithms(kind: Kind) -> Vec<Algorithm> {
    let gathers = [Gather::Tree(2), Gather::Tree(8), Gather::Linear, Gather::Leaders];
    let scans = [Scan::Doubling, Scan::Chain(SEGMENT), Scan::Leaders];
    match kind {
        Kind::Barrier => [Barrier::Dissemination(2), Barrier::Dissemination(4), Barrier::Leaders, Barrier::Lanes]
            .map(Algorithm::Barrier)
            .into(),
        Kind::Bcast => [
            Bcast::Tree(2),
            Bcast::Tree(4),
            Bcast::ScatterBruck,
            Bcast::Pipeline(2, SEGMENT),
            Bcast::Pipeline(1, SEGMENT),
            Bcast::Leaders,
            Bcast::Lanes,
        ]
        .map(Algorithm::Bcast)
        .into(),
        Kind::Gather => gathers.map(Algorithm::Gather).into(),
        Kind::Scatter => gathers.map(Algorithm::Scatter).into(),
        Kind::Allgather => [
            Allgather::Logarithmic(2),
            Allgather::Logarithmic(4),
            Allgather::Ring,
            Allgather::Leaders,
            Allgather::Lanes,
        ]
        .map(Algorithm::Allgather)
        .into(),
        Kind::Alltoall => [
            Alltoall::Bruck(2),
            Alltoall::Bruck(4),
            Alltoall::Bruck(16),
            Alltoall::Spread(32),
            Alltoall::Spread(4),
            Alltoall::Lanes,
        ]
        .map(Algorithm::Alltoall)
        .into(),
        Kind::Reduce => [
            Reduce::Tree(2),
            Reduce::Tree(4),
            Reduce::ScatterGather,
            Reduce::Pipeline(SEGMENT),
            Reduce::Leaders,
            Reduce::Lanes,
        ]
        .map(Algorithm::Reduce)
        .into(),
        Kind::Allreduce => [
            Allreduce::Multiplying(2),
            Allreduce::Multiplying(4),
            Allreduce::ScatterGather,
            Allreduce::Ring,
            Allreduce::Leaders,
            Allreduce::Lanes,
        ]
        .map(Algorithm::Allreduce)
        .into(),
        Kind::ReduceScatter => [
            ReduceScatter::OfAll,
            ReduceScatter::Halving,
            ReduceScatter::Spread,
            ReduceScatter::Leaders,
            ReduceScatter::Lanes,
        ]
        .map(Algorithm::ReduceScatter)
        .into(),
        Kind::Scan => scans.map(Algorithm::Scan).into(),
        Kind::Exscan => scans.map(Algorithm::Exscan).into(),
    }
}
