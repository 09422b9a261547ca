//! Generated.
use super::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan};
use super::rules::{KIB, MIB, Rule, from};
pub(super) const BARRIER: &[Rule<Barrier>] =
    &[from(0, 0, 0, Barrier::Dissemination(2)), from(2, 2, 0, Barrier::Leaders)];
pub(super) const BCAST: &[Rule<Bcast>] = &[
    from(0, 0, 0, Bcast::Tree(2)),
    from(0, 0, 32 * KIB, Bcast::ScatterBruck),
    from(2, 2, 0, Bcast::Leaders),
    from(2, 2, 64 * KIB, Bcast::Lanes),
];
pub(super) const GATHER: &[Rule<Gather>] =
    &[from(0, 0, 0, Gather::Tree(2)), from(0, 0, 2 * KIB, Gather::Linear), from(2, 2, 0, Gather::Leaders)];
pub(super) const SCATTER: &[Rule<Gather>] = GATHER;
pub(super) const ALLGATHER: &[Rule<Allgather>] = &[
    from(0, 0, 0, Allgather::Logarithmic(2)),
    from(0, 0, MIB, Allgather::Ring),
    from(2, 2, 0, Allgather::Leaders),
    from(2, 2, 64 * KIB, Allgather::Lanes),
];
pub(super) const ALLTOALL: &[Rule<Alltoall>] = &[
    from(0, 0, 0, Alltoall::Bruck(2)),
    from(0, 0, 256, Alltoall::Spread(32)),
    from(0, 0, 32 * KIB, Alltoall::Spread(8)),
    from(2, 2, 0, Alltoall::Lanes),
];
pub(super) const REDUCE: &[Rule<Reduce>] = &[
    from(0, 0, 0, Reduce::Tree(2)),
    from(0, 0, 8 * KIB, Reduce::ScatterGather),
    from(2, 2, 0, Reduce::Leaders),
    from(2, 2, 32 * KIB, Reduce::Lanes),
];
pub(super) const ALLREDUCE: &[Rule<Allreduce>] = &[
    from(0, 0, 0, Allreduce::Multiplying(2)),
    from(0, 0, 8 * KIB, Allreduce::ScatterGather),
    from(2, 2, 0, Allreduce::Leaders),
    from(2, 2, 8 * KIB, Allreduce::Lanes),
];
pub(super) const REDUCE_SCATTER: &[Rule<ReduceScatter>] = &[
    from(0, 0, 0, ReduceScatter::OfAll),
    from(0, 0, 2 * KIB, ReduceScatter::Halving),
    from(2, 2, 0, ReduceScatter::Lanes),
];
pub(super) const SCAN: &[Rule<Scan>] = &[from(0, 0, 0, Scan::Doubling), from(2, 2, 0, Scan::Leaders)];
pub(super) const EXSCAN: &[Rule<Scan>] = SCAN;
