//! Rules for ranks that share processors but no memory: several daemons run on one machine, or pods, or the user has switched shared memory
//! off. What counts there is the processor time of all ranks together, and that is the number of messages: a round that all take part in
//! costs as much as it has messages, and a rank that waits costs nothing. Found by measurements of 4 ranks on two processors, over TCP.
//! Where a rule for eight nodes or more stands beside others, it is the modelled one: more than four ranks were not measured.

use super::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan};
use super::rules::{KIB, MIB, Rule, from};

/// The only one.
pub(super) const BARRIER: &[Rule<Barrier>] = &[from(0, 0, 0, Barrier::Root)];

/// By total bytes.
pub(super) const BCAST: &[Rule<Bcast>] = &[
    // With four ranks, the root sends to two instead of three: in a loop of short broadcasts, it is the bottleneck.
    from(0, 0, 0, Bcast::Tree(2)),
    from(8, 0, 0, Bcast::Tree(4)),
    from(8, 0, 16 * KIB, Bcast::Tree(2)),
    from(0, 0, 128 * KIB, Bcast::Pipeline(2, 64 * KIB)),
    from(0, 0, MIB, Bcast::ScatterBruck),
    from(8, 0, 128 * KIB, Bcast::ScatterBruck),
];

/// By the bytes of a block.
pub(super) const GATHER: &[Rule<Gather>] = super::modelled::GATHER;

/// By the bytes of a block. The root of a short one sends to two, as in a broadcast.
pub(super) const SCATTER: &[Rule<Gather>] = &[
    from(0, 0, 0, Gather::Tree(2)),
    from(8, 0, 0, Gather::Tree(8)),
    from(0, 0, 2 * KIB, Gather::Tree(8)),
    from(0, 0, 16 * KIB, Gather::Linear),
];

/// By the bytes of a block, on average.
pub(super) const ALLGATHER: &[Rule<Allgather>] = &[
    from(0, 0, 0, Allgather::Root),
    from(0, 0, 4 * KIB, Allgather::Logarithmic(2)),
    from(0, 0, 16 * KIB, Allgather::Ring),
];

/// By the bytes of a block.
pub(super) const ALLTOALL: &[Rule<Alltoall>] =
    &[from(0, 0, 0, Alltoall::Bruck(2)), from(0, 0, 4 * KIB, Alltoall::Spread(4))];

/// By the bytes of a vector.
pub(super) const REDUCE: &[Rule<Reduce>] = super::modelled::REDUCE;

/// By the bytes of a vector.
pub(super) const ALLREDUCE: &[Rule<Allreduce>] = &[
    from(0, 0, 0, Allreduce::Root),
    from(0, 0, 8 * KIB, Allreduce::Multiplying(2)),
    from(0, 0, 64 * KIB, Allreduce::Halving),
];

/// By the bytes of the whole vector.
pub(super) const REDUCE_SCATTER: &[Rule<ReduceScatter>] =
    &[from(0, 0, 0, ReduceScatter::Root), from(0, 0, 8 * KIB, ReduceScatter::Halving)];

/// By the bytes of a vector.
pub(super) const SCAN: &[Rule<Scan>] = &[from(0, 0, 0, Scan::Chain(64 * KIB))];

/// By the bytes of a vector.
pub(super) const EXSCAN: &[Rule<Scan>] = SCAN;
