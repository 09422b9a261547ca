//! Which algorithm for which collective, on how many nodes: simulates the real schedules over a model of machines, and finds the rules by
//! which the library chooses.
//!
//! `collectives TABLES FOLDER` writes the module of the tables and, into the folder, the record of all times, the report and the heat
//! maps. A composition's parts are chosen by the tables that the program was built with, so it is run and built again until the tables
//! stay the same: `cargo xtask bench collectives` does. With `recorded`, the times are those of the record.

mod bound;
mod clock;
mod fit;
mod grid;
mod machine;
mod picture;
mod record;
mod report;
mod search;
mod table;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use fit::{Rule, fit};
use grid::{KINDS, Kind, algorithms, cells};
use machine::{MACHINES, Machine};
use search::{Row, search};

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (tables, folder, is_recorded) = match args.iter().map(String::as_str).collect::<Vec<&str>>()[..] {
        [tables, folder] => (tables, Path::new(folder), false),
        [tables, folder, "recorded"] => (tables, Path::new(folder), true),
        _ => {
            eprintln!("usage: collectives TABLES FOLDER [recorded]");
            std::process::exit(2);
        }
    };
    fs::create_dir_all(folder)?;
    let record = if is_recorded { fs::read_to_string(folder.join("times.csv"))? } else { searched() };
    let rows = record::read(&record);
    let fitted = fitted(&rows);
    fs::write(folder.join("times.csv"), record)?;
    fs::write(tables, table::module(&fitted))?;
    let mut lines = String::new();
    for machine in MACHINES {
        let mut panels = Vec::new();
        for (kind, table) in &fitted {
            let rows = of(&rows, *kind, machine);
            let verdicts = report::verdicts(machine, &rows, table);
            lines += &format!("{}\n", report::line(*kind, machine, &rows, &verdicts));
            panels.push((*kind, verdicts));
        }
        fs::write(folder.join(format!("{}.svg", machine.short)), picture::draw(machine.name, &panels))?;
    }
    let report = format!("{}\n{lines}\n{}", report::HEAD, report::thousand());
    print!("{report}");
    fs::write(folder.join("report.md"), report)
}

/// The record of a search.
fn searched() -> String {
    let search = |machine| KINDS.into_iter().flat_map(|kind| search(machine, &cells(kind))).collect();
    let found: Vec<(&Machine, Vec<Row>)> = MACHINES.into_iter().map(|machine| (machine, search(machine))).collect();
    record::text(&found)
}

/// The tables of all functions.
fn fitted(rows: &[(&'static Machine, Row)]) -> Vec<(Kind, Vec<Rule>)> {
    let table = |kind: Kind| {
        let rows: Vec<Row> = rows.iter().filter(|(_, row)| row.cell.kind == kind).map(|(_, row)| row.clone()).collect();
        (kind, fit(&rows, &algorithms(kind)))
    };
    KINDS.into_iter().map(table).collect()
}

fn of(rows: &[(&'static Machine, Row)], kind: Kind, machine: &Machine) -> Vec<Row> {
    let is_its = |(on, row): &&(&'static Machine, Row)| row.cell.kind == kind && on.short == machine.short;
    rows.iter().filter(is_its).map(|(_, row)| row.clone()).collect()
}
