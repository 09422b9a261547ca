//! The tables of all collectives.

use super::algorithms::{Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scan};
use super::rules::Tables;
use super::{crowded, measured, modelled};

macro_rules! tables {
    ($($name:ident: $algorithm:ty),*) => {
        $(pub(super) const $name: &Tables<$algorithm> =
            &Tables { measured: measured::$name, crowded: crowded::$name, modelled: modelled::$name };)*
    };
}

tables! {
    BARRIER: Barrier,
    BCAST: Bcast,
    GATHER: Gather,
    SCATTER: Gather,
    ALLGATHER: Allgather,
    ALLTOALL: Alltoall,
    REDUCE: Reduce,
    ALLREDUCE: Allreduce,
    REDUCE_SCATTER: ReduceScatter,
    SCAN: Scan,
    EXSCAN: Scan
}
