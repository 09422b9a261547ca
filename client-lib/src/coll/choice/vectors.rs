//! The functions whose blocks have different lengths. Where only some ranks know the lengths, all use the one algorithm that needs
//! no others' knowledge.

use super::super::layout::Layout;
use super::super::schedule::{Area, Here, Schedule, Slice};
use super::super::{allgather, alltoall, gather};
use super::algorithms::{self, Allgather, ReduceScatter, WINDOW};
use super::rules::choose;
use super::{is_between, leaders, tables};

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
pub fn allgatherv(here: Here, layout: &Layout, own: u64, lens: &[u64], in_place: bool) -> Schedule {
    let block = |rank: u32| Slice::all(Area::RecvFrom(rank), lens[rank as usize]);
    let mine = if in_place { block(here.rank) } else { Slice::all(Area::Send, own) };
    let mut schedule = Schedule::default();
    match super::allgather(layout, lens.iter().sum()) {
        Allgather::Logarithmic(radix) => allgather::bruck(&mut schedule, here, radix, mine, block),
        Allgather::Leaders | Allgather::Lanes if is_between(layout) => {
            return leaders::allgather(here.rank, layout, mine, block);
        }
        Allgather::Root => return leaders::allgather(here.rank, &Layout::together(here.size), mine, block),
        Allgather::Ring | Allgather::Leaders | Allgather::Lanes => {
            schedule.copy(mine, block(here.rank));
            allgather::ring(&mut schedule, here, block);
        }
        Allgather::Spread => {
            schedule.copy(mine, block(here.rank));
            allgather::spread(&mut schedule, here, block);
        }
    }
    schedule
}

/// `MPI_Alltoallv`, `MPI_Alltoallw`: bytes to and from each rank; `to` is `None` if in place.
pub fn alltoallv(here: Here, to: Option<&[u64]>, from: &[u64]) -> Schedule {
    let recv = |rank: u32| Slice::all(Area::RecvFrom(rank), from[rank as usize]);
    match to {
        Some(lens) => alltoall::spread(here, WINDOW, |rank| Slice::all(Area::SendTo(rank), lens[rank as usize]), recv),
        None => alltoall::exchange(here, recv),
    }
}

/// `MPI_Reduce_scatter`: `counts[rank]` elements for each rank.
pub fn reduce_scatterv(
    here: Here,
    layout: &Layout,
    counts: &[u64],
    unit: u64,
    commutes: bool,
    in_place: bool,
) -> Schedule {
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
    let part = |rank: u32| parts[rank as usize];
    let choice = |layout: &Layout| choose(tables::REDUCE_SCATTER, layout, end);
    match choice(layout) {
        ReduceScatter::Leaders | ReduceScatter::Lanes if is_between(layout) && (commutes || layout.is_in_order()) => {
            leaders::reduce_scatter(here.rank, layout, own, part, unit, commutes)
        }
        ReduceScatter::Root => {
            leaders::reduce_scatter(here.rank, &Layout::together(here.size), own, part, unit, commutes)
        }
        how => {
            let is_composed = matches!(how, ReduceScatter::Leaders | ReduceScatter::Lanes);
            let how = if is_composed { choice(&Layout::apart(here.size)) } else { how };
            let result = Slice::all(Area::Recv, part(here.rank).1);
            algorithms::reduce_scatter(here, how, own, part, result, unit, commutes)
        }
    }
}
