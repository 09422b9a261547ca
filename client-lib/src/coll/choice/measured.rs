//! Rules for the ranks of one node, found by measurements with up to 16 ranks.

use super::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan};
use super::rules::{KIB, MIB, Rule, from};

/// The only one.
pub(super) const BARRIER: &[Rule<Barrier>] = &[from(0, 0, 0, Barrier::Dissemination(2))];

/// By total bytes.
pub(super) const BCAST: &[Rule<Bcast>] = &[
    from(0, 0, 0, Bcast::Tree(2)),
    // Up to eight read the root's memory at the same time. If they may not, the root copies the data for each: on two
    // processors, that takes longer than a pipeline from 8 MiB on.
    from(0, 3, 32 * KIB, Bcast::Tree(8)),
    // Among five to seven, as a part of composed algorithms, this is modelled to take less time.
    from(0, 5, 32 * KIB, Bcast::Tree(2)),
    from(0, 5, 128 * KIB, Bcast::Tree(8)),
    from(0, 8, 32 * KIB, Bcast::Tree(8)),
];

/// By the bytes of a block.
pub(super) const GATHER: &[Rule<Gather>] =
    &[from(0, 0, 0, Gather::Linear), from(0, 8, 0, Gather::Tree(2)), from(0, 8, 2 * KIB, Gather::Linear)];

/// By the bytes of a block.
pub(super) const SCATTER: &[Rule<Gather>] = GATHER;

/// By total bytes.
pub(super) const ALLGATHER: &[Rule<Allgather>] = &[
    from(0, 0, 0, Allgather::Logarithmic(2)),
    // Ranks that share cores would wait for each other in each round of a ring. Three to seven of them copy long blocks as fast in a ring, or
    // faster. If they may not read each other's memory, eight are slower without the ring from 256 to 512 KiB a block.
    from(0, 3, 64 * KIB, Allgather::Spread),
    from(0, 3, 512 * KIB, Allgather::Ring),
    from(0, 8, 64 * KIB, Allgather::Spread),
];

/// By the bytes of a block.
pub(super) const ALLTOALL: &[Rule<Alltoall>] = &[
    from(0, 0, 0, Alltoall::Spread(32)),
    from(0, 8, 0, Alltoall::Bruck(2)),
    from(0, 8, 256, Alltoall::Spread(32)),
    from(0, 0, 32 * KIB, Alltoall::Spread(8)),
    from(0, 0, MIB, Alltoall::Spread(2)),
];

/// By the bytes of a vector.
pub(super) const REDUCE: &[Rule<Reduce>] = &[from(0, 0, 0, Reduce::Tree(2)), from(0, 4, 8 * KIB, Reduce::Halving)];

/// By the bytes of a vector.
pub(super) const ALLREDUCE: &[Rule<Allreduce>] =
    &[from(0, 0, 0, Allreduce::Multiplying(2)), from(0, 2, 8 * KIB, Allreduce::Halving)];

/// By the bytes of the whole vector.
pub(super) const REDUCE_SCATTER: &[Rule<ReduceScatter>] = &[
    from(0, 0, 0, ReduceScatter::OfAll),
    from(0, 2, 2 * KIB, ReduceScatter::Halving),
    from(0, 2, 512 * KIB, ReduceScatter::Spread),
];

/// By the bytes of a vector.
pub(super) const SCAN: &[Rule<Scan>] = &[from(0, 0, 0, Scan::Doubling)];

/// By the bytes of a vector.
pub(super) const EXSCAN: &[Rule<Scan>] = SCAN;
