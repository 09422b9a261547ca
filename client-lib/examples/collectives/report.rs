//! The tables of the report.

use std::fmt::Write;

use rsd_mpi::coll::Layout;
use rsd_mpi::coll::choice::Algorithm;
use rsd_mpi::coll::choice::algorithms::{Allgather, Bcast, ReduceScatter};

use crate::bound::bound;
use crate::fit::{Rule, chosen};
use crate::grid::{Cell, Kind};
use crate::machine::{ETHERNET, Machine};
use crate::search::{Row, simulate};

/// How long the chosen algorithm takes in a cell, compared with the fastest one and with the lower bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    pub(crate) cell: Cell,
    pub(crate) over_best: f64,
    pub(crate) over_bound: f64,
}

/// The verdicts on a table, for the cells in which all competitors are known.
pub(crate) fn verdicts(machine: &Machine, rows: &[Row], table: &[Rule]) -> Vec<Verdict> {
    let verdict = |row: &Row| {
        let (cell, best) = (row.cell, row.best()?);
        let how = chosen(table, cell.nodes, cell.each, cell.key());
        let time = row.outcomes[how].time().unwrap_or(f64::INFINITY);
        Some(Verdict { cell, over_best: time / best, over_bound: time / bound(machine, &cell) })
    };
    rows.iter().filter_map(verdict).collect()
}

/// A line of the table of ratios.
pub(crate) fn line(kind: Kind, machine: &Machine, rows: &[Row], verdicts: &[Verdict]) -> String {
    let mean = |ratio: &dyn Fn(&Verdict) -> f64| {
        (verdicts.iter().map(|it| ratio(it).ln()).sum::<f64>() / verdicts.len().max(1) as f64).exp()
    };
    let worst = verdicts.iter().max_by(|one, two| one.over_best.total_cmp(&two.over_best));
    let worst = worst.map_or_else(String::new, |worst| {
        let Cell { nodes, each, bytes, .. } = worst.cell;
        format!("{:.2} ({nodes} × {each}, {bytes} B)", worst.over_best)
    });
    format!(
        "| {kind:?} | {} | {} of {} | {:.2} | {worst} | {:.1} |",
        machine.short,
        verdicts.len(),
        rows.len(),
        mean(&|it| it.over_best),
        mean(&|it| it.over_bound),
    )
}

/// The head of the table of ratios.
pub(crate) const HEAD: &str =
    "| function | network | cells | mean / best | worst / best | mean / bound |\n|---|---|---|---|---|---|";

/// Calls of about a thousand ranks that took about n - 1 rounds when ranks and bytes alone decided.
pub(crate) fn thousand() -> String {
    let mut text = String::from("| 1,000 ranks | before (us) | now, 1,000 × 1 | now, 125 × 8 |\n|---|---|---|---|\n");
    let calls = [
        ("allgather, 128 B of each", Kind::Allgather, 128, Algorithm::Allgather(Allgather::Ring)),
        ("broadcast, 64 KiB", Kind::Bcast, 64 << 10, Algorithm::Bcast(Bcast::ScatterAllgather)),
        ("reduce-scatter, 4 KiB", Kind::ReduceScatter, 4000, Algorithm::ReduceScatter(ReduceScatter::Spread)),
    ];
    for (name, kind, bytes, before) in calls {
        let time = |nodes: u32, each: u32, how: Option<Algorithm>| {
            let cell = Cell { kind, nodes, each, bytes };
            let how = how.unwrap_or_else(|| cell.call().algorithm(&Layout::blocks(nodes, each)));
            simulate(&ETHERNET, &cell, how, u64::MAX)
                .time()
                .map_or_else(|| "?".into(), |time| format!("{:.0}", time / 1e3))
        };
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} |",
            time(1000, 1, Some(before)),
            time(1000, 1, None),
            time(125, 8, None)
        );
    }
    text
}
