//! The outcomes of the search as text: one line for each cell, so that the tables can be fitted again without simulating again.

use std::fmt::Write;

use crate::grid::{Cell, KINDS};
use crate::machine::{MACHINES, Machine};
use crate::search::{Outcome, Row};

/// `machine,function,nodes,ranks on each,bytes,` and the outcome of each algorithm: nanoseconds, `slow`, or `?`.
pub(crate) fn text(rows: &[(&'static Machine, Vec<Row>)]) -> String {
    let mut text = String::new();
    for (machine, rows) in rows {
        for Row { cell, outcomes } in rows {
            let Cell { kind, nodes, each, bytes } = cell;
            let _ = write!(text, "{},{kind:?},{nodes},{each},{bytes}", machine.short);
            for outcome in outcomes {
                let _ = match outcome {
                    Outcome::Takes(time) => write!(text, ",{}", rounded(*time)),
                    Outcome::Slow => write!(text, ",slow"),
                    Outcome::Unknown => write!(text, ",?"),
                };
            }
            text.push('\n');
        }
    }
    text
}

/// To four digits: enough to compare.
pub(crate) fn rounded(time: f64) -> u64 {
    let mut unit = 1;
    while time as u64 / unit >= 10_000 {
        unit *= 10;
    }
    (time / unit as f64).round() as u64 * unit
}

/// Reads what [`text`] has written; panics with the line that it cannot read.
pub(crate) fn read(text: &str) -> Vec<(&'static Machine, Row)> {
    text.lines().map(|line| row(line).unwrap_or_else(|| panic!("cannot read the record {line:?}"))).collect()
}

fn row(line: &str) -> Option<(&'static Machine, Row)> {
    let mut words = line.split(',');
    let name = words.next()?;
    let machine = MACHINES.into_iter().find(|machine| machine.short == name)?;
    let name = words.next()?;
    let kind = KINDS.into_iter().find(|kind| format!("{kind:?}") == name)?;
    let (nodes, each) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let bytes = words.next()?.parse().ok()?;
    let outcome = |word| {
        Some(match word {
            "slow" => Outcome::Slow,
            "?" => Outcome::Unknown,
            time => Outcome::Takes(time.parse().ok()?),
        })
    };
    let outcomes = words.map(outcome).collect::<Option<Vec<Outcome>>>()?;
    Some((machine, Row { cell: Cell { kind, nodes, each, bytes }, outcomes }))
}
