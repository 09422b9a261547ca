//! The table of all results.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::unistd::Uid;
use rsd_tests::Mpi;

use super::exceptions::{Rule, rule};
use super::{COLUMNS, ROWS, hosts};

/// The result of a cell.
#[derive(Debug)]
pub(super) enum Result {
    /// It worked, in this time.
    Works(Duration),
    /// It failed as the MPI does everywhere, or was not tried for the reason in its rule.
    Cannot,
    /// It failed; this says how.
    Failed(String),
}

/// What was tried with an MPI.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) mpi: Mpi,
    pub(super) column: &'static str,
    pub(super) result: Result,
}

/// All cells so far.
static CELLS: Mutex<Vec<Cell>> = Mutex::new(Vec::new());

/// Adds cells. The last test prints the table: past the test runner, which shows the output of failed tests only.
pub(super) fn record(cells: Vec<Cell>) {
    let mut all = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
    all.extend(cells);
    let columns = columns();
    if all.len() == ROWS.len() * columns.len() {
        // A closed standard output is no reason to fail.
        let _ = std::io::stdout().write_all(text(&all, &columns).as_bytes());
    }
}

/// The names of the columns that this user's tests fill.
fn columns() -> Vec<&'static str> {
    let over_hosts = Uid::effective().is_root().then_some(hosts::COLUMN);
    COLUMNS.iter().map(|column| column.name).chain(over_hosts).collect()
}

fn text(cells: &[Cell], columns: &[&str]) -> String {
    let mut notes: Vec<&str> = Vec::new();
    let mut text = format!("\n{:<24}", "seconds");
    columns.iter().for_each(|column| push(&mut text, column));
    for (mpi, name) in ROWS {
        push_line(&mut text, name);
        for column in columns {
            let tried = cells.iter().find(|cell| cell.mpi == mpi && cell.column == *column);
            let note = match rule(mpi, column) {
                Rule::Works => String::new(),
                Rule::Needs { why, .. } | Rule::Cannot { why, .. } => mark(&mut notes, why),
            };
            push(&mut text, &shown(tried, &note));
        }
    }
    for (at, note) in (1..).zip(&notes) {
        push_line(&mut text, &format!("[{at}] {note}"));
    }
    text + "\n"
}

fn shown(cell: Option<&Cell>, note: &str) -> String {
    match cell.map(|cell| &cell.result) {
        Some(Result::Works(took)) => format!("{:.1}{note}", took.as_secs_f64()),
        Some(Result::Cannot) => format!("no{note}"),
        Some(Result::Failed(_)) => "FAILED".to_owned(),
        None => "?".to_owned(),
    }
}

/// The mark of a note, which is listed below the table once.
fn mark<'a>(notes: &mut Vec<&'a str>, note: &'a str) -> String {
    let at = notes.iter().position(|known| *known == note).unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    format!("[{}]", at + 1)
}

fn push(text: &mut String, cell: &str) {
    write!(text, "{cell:>10}").expect("a string can be written to");
}

fn push_line(text: &mut String, start: &str) {
    write!(text, "\n{start:<24}").expect("a string can be written to");
}
