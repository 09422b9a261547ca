//! Every MPI with everything that rsd does for one: the matrix of what runs unmodified.
//!
//! - [`columns`]: what is tried, with the programs that any MPI compiles.
//! - [`exceptions`]: what an MPI cannot do, with the reason and how it fails; and the settings that an MPI itself needs.
//! - [`table`]: the results of all rows, printed by the last test.
//! - [`hosts`]: the column for which only root can make hosts.
//!
//! Each row is a test. It tries all cells, also after one has failed.

mod columns;
mod exceptions;
mod hosts;
mod table;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rsd_tests::{Call, Dvm, Mpi, Options};

use columns::COLUMNS;
use exceptions::{Rule, rule};
use table::{Cell, Result, record};

/// All MPIs, as rows of the table.
const ROWS: [(Mpi, &str); 7] = [
    (Mpi::Debian, "MPICH 4.0.2 (Debian)"),
    (Mpi::Wheel, "MPICH 5.0.2"),
    (Mpi::Intel, "Intel MPI 2021.18"),
    (Mpi::OpenMpiDebian, "Open MPI 4.1.4 (Debian)"),
    (Mpi::OpenMpi4, "Open MPI 4.1.8"),
    (Mpi::OpenMpi5, "Open MPI 5.0.11"),
    (Mpi::Ours, "rsd's library"),
];

#[test]
fn mpich_4_runs_unmodified() {
    row(Mpi::Debian);
}

#[test]
fn mpich_5_runs_unmodified() {
    row(Mpi::Wheel);
}

#[test]
fn intel_mpi_runs_unmodified() {
    row(Mpi::Intel);
}

#[test]
fn open_mpi_4_of_debian_runs_unmodified() {
    row(Mpi::OpenMpiDebian);
}

#[test]
fn open_mpi_4_runs_unmodified() {
    row(Mpi::OpenMpi4);
}

#[test]
fn open_mpi_5_runs_unmodified() {
    row(Mpi::OpenMpi5);
}

#[test]
fn the_library_of_rsd_does_all_that_the_others_do() {
    row(Mpi::Ours);
}

/// Daemons and an MPI to try with them.
struct Trial<'a> {
    dvm: &'a mut Dvm,
    mpi: Mpi,
    settings: &'static [(&'static str, &'static str)],
}

impl Trial<'_> {
    /// `rsctl` with these arguments, in the environment that the MPI needs.
    fn rsctl<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Call {
        self.with(self.dvm.rsctl(words))
    }

    /// A call in the environment that the MPI needs.
    fn with(&self, call: Call) -> Call {
        with(call, self.mpi, self.settings)
    }
}

fn with(call: Call, mpi: Mpi, settings: &[(&str, &str)]) -> Call {
    let call = settings.iter().fold(call, |call, (name, value)| call.env(name, value));
    mpi.environment().into_iter().fold(call, |call, (name, value)| call.env(name, value))
}

/// Tries all columns with one MPI.
///
/// # Panics
/// If a cell fails that must work, or one works that is said to be impossible.
#[track_caller]
fn row(mpi: Mpi) {
    let mut cells = Vec::new();
    for nodes in [1, 2] {
        let mut dvm = Dvm::start_with(Options { nodes, slots: 16 / nodes as u32, args: Vec::new() });
        for column in COLUMNS.iter().filter(|column| column.nodes == nodes) {
            let attempt = |settings| (column.run)(Trial { dvm: &mut dvm, mpi, settings });
            cells.push(Cell { mpi, column: column.name, result: attempted(mpi, column.name, attempt) });
        }
    }
    finish(cells);
}

/// Adds cells to the table.
///
/// # Panics
/// If one of them has failed.
#[track_caller]
fn finish(cells: Vec<Cell>) {
    let failure = |cell: &Cell| match &cell.result {
        Result::Failed(why) => Some(format!("--- {:?}: {}\n{why}", cell.mpi, cell.column)),
        Result::Works(_) | Result::Cannot => None,
    };
    let failures: Vec<String> = cells.iter().filter_map(failure).collect();
    record(cells);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Tries one cell by the rule for it.
fn attempted(mpi: Mpi, column: &str, attempt: impl FnOnce(&'static [(&'static str, &'static str)])) -> Result {
    let since = Instant::now();
    let outcome = |settings| catch_unwind(AssertUnwindSafe(|| attempt(settings))).map_err(|panic| words(&*panic));
    let took = |outcome: std::result::Result<(), String>| match outcome {
        Ok(()) => Result::Works(since.elapsed()),
        Err(why) => Result::Failed(why),
    };
    match rule(mpi, column) {
        Rule::Works => took(outcome(&[])),
        Rule::Needs { settings, .. } => took(outcome(settings)),
        Rule::Cannot { told: None, .. } => Result::Cannot,
        Rule::Cannot { told: Some(told), why } => match outcome(&[]) {
            Err(story) if story.contains(told) => Result::Cannot,
            Err(story) => Result::Failed(format!("it must fail with {told:?}, and fails with\n{story}")),
            Ok(()) => Result::Failed(format!("it works, but is said to be impossible: {why}")),
        },
    }
}

/// The text of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}
