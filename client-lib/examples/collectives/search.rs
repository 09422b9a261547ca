//! Simulates every algorithm in every cell, as far as that is feasible.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rsd_mpi::coll::choice::Algorithm;
use rsd_mpi::coll::choice::algorithms::{Allgather, Allreduce, Alltoall, Bcast, Reduce, ReduceScatter, Scan};
use rsd_mpi::coll::{Here, Layout};

use crate::clock::{World, time};
use crate::grid::{Cell, algorithms};
use crate::machine::Machine;

/// A world with more steps than this is not simulated.
pub(crate) const STEPS: u64 = 400_000;

/// What a simulation found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    /// Nanoseconds.
    Takes(f64),
    /// Too many rounds to simulate, or too few elements for all ranks to have a part: far slower than the others. Also a composition where
    /// there is nothing to compose.
    Slow,
    /// Too many ranks to simulate.
    Unknown,
}

/// The outcome of each algorithm of a cell.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) cell: Cell,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Row {
    /// The least time, if that is known.
    pub(crate) fn best(&self) -> Option<f64> {
        if self.outcomes.contains(&Outcome::Unknown) {
            return None;
        }
        let times = self.outcomes.iter().filter_map(|outcome| outcome.time());
        times.min_by(f64::total_cmp)
    }
}

impl Outcome {
    pub(crate) fn time(self) -> Option<f64> {
        match self {
            Self::Takes(time) => Some(time),
            Self::Slow | Self::Unknown => None,
        }
    }
}

/// Simulates all algorithms in all cells, on all cores.
pub(crate) fn search(machine: &Machine, cells: &[Cell]) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcomes =
                        algorithms(cell.kind).into_iter().map(|how| simulate(machine, cell, how, STEPS)).collect();
                    rows.lock().expect("no thread panics with the lock").push(Row { cell: *cell, outcomes });
                }
            });
        }
    });
    let mut rows = rows.into_inner().expect("no thread panics with the lock");
    rows.sort_by_key(|row| (row.cell.nodes, row.cell.each, row.cell.bytes));
    rows
}

/// Simulates one call by one algorithm, if it takes no more than so many steps of all ranks.
pub(crate) fn simulate(machine: &Machine, cell: &Cell, how: Algorithm, most_steps: u64) -> Outcome {
    let layout = Layout::blocks(cell.nodes, cell.each);
    let call = cell.call();
    if how.is_composed() && (cell.nodes == 1 || cell.each == 1) {
        return Outcome::Slow;
    }
    let schedule = |rank: u32| call.by(how, Here::new(rank, layout.size()), &layout);
    let steps = |rank: u32| schedule(rank).actions().len() as u64;
    let first = steps(0);
    if cell.is_symmetric() && cell.nodes.is_power_of_two() {
        if first * u64::from(cell.each) > most_steps {
            return if is_linear(how) { Outcome::Slow } else { Outcome::Unknown };
        }
        return time(machine, &layout, World::Folded, schedule).map_or(Outcome::Slow, Outcome::Takes);
    }
    // The first rank may be a root.
    let others = [1, layout.size() / 2, layout.size() - 1].map(|rank| steps(rank.min(layout.size() - 1)));
    let most = others.into_iter().max().unwrap_or(0);
    if first + most * cell.ranks() > most_steps {
        return if is_linear(how) { Outcome::Slow } else { Outcome::Unknown };
    }
    time(machine, &layout, World::Whole, schedule).map_or(Outcome::Slow, Outcome::Takes)
}

/// Whether the rounds grow with the ranks, not with their logarithm: if those are too many to simulate, others are faster.
fn is_linear(how: Algorithm) -> bool {
    matches!(
        how,
        Algorithm::Bcast(Bcast::Pipeline(..))
            | Algorithm::Allgather(Allgather::Ring | Allgather::Spread)
            | Algorithm::Alltoall(Alltoall::Spread(_))
            | Algorithm::Reduce(Reduce::Pipeline(_))
            | Algorithm::Allreduce(Allreduce::Ring)
            | Algorithm::ReduceScatter(ReduceScatter::Spread)
            | Algorithm::Scan(Scan::Chain(_))
            | Algorithm::Exscan(Scan::Chain(_))
    )
}
