//! The tables of a sweep, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::super::distance::Distance;
use super::cells::{Cells, Place, Ratios, size};

/// No cell may be above these, in relation to the better of the other libraries.
const BEST: f64 = 1.05;
const MEDIAN: f64 = 1.15;

/// Cells of one row: by way, figure, number of ranks.
type Rows<'a> = BTreeMap<(String, usize, &'a str), Vec<(&'a Place, &'a Ratios)>>;

/// Writes `README.md` into the folder, in which the heat maps (way, file) are.
pub(super) fn write(cells: &Cells, maps: &[(String, String)], into: &Path) -> anyhow::Result<()> {
    let mut text = String::from(HEAD);
    let links: Vec<String> = maps.iter().map(|(way, file)| format!("[{way}]({file})")).collect();
    let _ = writeln!(text, "The heat maps have all cells: {}.\n\nMachines:\n", links.join(", "));
    for machine in &cells.machines {
        let _ = writeln!(text, "- {machine}");
    }
    text += &summary(cells);
    text += &over_the_mark(cells);
    text += &distances(cells);
    text += &rows(cells);
    text += &worst(cells);
    fs::write(into.join("README.md"), text)?;
    Ok(())
}

const HEAD: &str = "# Sweep

Written by `cargo xtask bench mpi --sweep`: do not edit. Every number is the time that rsd's library needs, divided by the time of the better of
MPICH and Open MPI in the same round, or with the processors at the same distance: below 1, rsd's library is faster. *Median*, *best* and *99 %* compare the medians, the shortest samples
and the 99th percentiles; *whole* the loops, that is the means with the barriers in them. Each cell is a size; the tables show geometric means over all sizes, and the worst size. *Over* counts the cells whose
median is above 1.15, and those whose best is above 1.05. Names: *no barrier* is one operation straight after the other, otherwise there is a
barrier before each; *computing* is what a non-blocking operation adds to a computation of its own length; *cold* uses a new buffer each time.

";

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value.ln(), count + 1));
    (sum / f64::from(count.max(1))).exp()
}

/// The cells by way, and all cells of a way.
pub(super) fn summary(cells: &Cells) -> String {
    let mut ways: BTreeMap<String, Vec<(&Place, &Ratios)>> = BTreeMap::new();
    for (place, ratios) in &cells.ratios {
        ways.entry(place.way()).or_default().push((place, ratios));
    }
    let mut text =
        "\n| way | cells | median | best | 99 % | whole | over |\n|---|---|---|---|---|---|---|\n".to_owned();
    for (way, cells) in ways {
        let _ = writeln!(text, "| {way} | {}", columns(&cells));
    }
    text
}

/// How many cells miss the mark for medians, by way and number of ranks, and what their whole loops say.
fn over_the_mark(cells: &Cells) -> String {
    let mut rows: BTreeMap<(String, u64), Vec<&Ratios>> = BTreeMap::new();
    for (place, ratios) in &cells.ratios {
        rows.entry((place.way(), place.ranks)).or_default().push(ratios);
    }
    let mut text = format!(
        "\n| way | ranks | cells | median | whole | medians above {MEDIAN} | of these, whole loop not above {BEST} | whole loops above {MEDIAN} |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for ((way, ranks), all) in rows {
        let missed: Vec<&Ratios> = all.iter().copied().filter(|it| it.median > MEDIAN).collect();
        let _ = writeln!(
            text,
            "| {way} | {ranks} | {} | {:.2} | {} | {} | {} | {} |",
            all.len(),
            geometric_mean(all.iter().map(|it| it.median)),
            number(whole_of(all.iter().copied())),
            missed.len(),
            missed.iter().filter(|it| it.whole <= BEST).count(),
            all.iter().filter(|it| it.whole > MEDIAN).count()
        );
    }
    text
}

/// At which distances of the processors was measured, where that is known.
fn distances(cells: &Cells) -> String {
    let mut text = String::new();
    for (distance, (count, nanoseconds)) in &cells.distances {
        let place = match distance {
            Distance::Near => "near each other",
            Distance::Far => "far from each other",
        };
        let _ = writeln!(
            text,
            "- {count} comparisons with the processors {place}: a cache line takes {nanoseconds:.0} ns to go to the other one and back."
        );
    }
    if !text.is_empty() {
        text.insert_str(0, "\nWhere a host moves virtual processors, their distance changes. Each cell has its own, and only equal ones are compared:\n\n");
    }
    if cells.unlike > 0 {
        let _ = writeln!(
            text,
            "\nFor {} cells, the libraries were never measured at the same distance: they are in no table.",
            cells.unlike
        );
    }
    text
}

fn columns(cells: &[(&Place, &Ratios)]) -> String {
    let mean = |of: fn(&Ratios) -> f64| geometric_mean(cells.iter().map(|(_, ratios)| of(ratios)));
    let over = |mark: f64, of: fn(&Ratios) -> f64| cells.iter().filter(|(_, ratios)| of(ratios) > mark).count();
    let whole = whole_of(cells.iter().map(|(_, ratios)| *ratios));
    format!(
        "{} | {:.2} | {:.2} | {:.2} | {} | {}, {} |",
        cells.len(),
        mean(|it| it.median),
        mean(|it| it.best),
        mean(|it| it.p99),
        number(whole),
        over(MEDIAN, |it| it.median),
        over(BEST, |it| it.best)
    )
}

/// The geometric mean of the whole loops; NaN if none was measured.
fn whole_of<'a>(cells: impl Iterator<Item = &'a Ratios>) -> f64 {
    let wholes: Vec<f64> = cells.map(|ratios| ratios.whole).filter(|it| it.is_finite()).collect();
    if wholes.is_empty() { f64::NAN } else { geometric_mean(wholes.into_iter()) }
}

/// A ratio, if it was measured.
fn number(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "–".to_owned() }
}

/// A table for each way, with a row for each figure and number of ranks.
fn rows(cells: &Cells) -> String {
    let mut rows: Rows<'_> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for (place, ratios) in &cells.ratios {
        let at = order.iter().position(|known| *known == place.figure).unwrap_or_else(|| {
            order.push(&place.figure);
            order.len() - 1
        });
        rows.entry((place.way(), at, &place.figure)).or_default().push((place, ratios));
    }
    let (mut text, mut last) = (String::new(), String::new());
    for ((way, _, figure), all) in rows {
        if way != last {
            let _ = write!(
                text,
                "\n## {way}\n\n| figure | ranks | cells | median | best | 99 % | whole | over | worst median |\n|---|---|---|---|---|---|---|---|---|\n"
            );
            last.clone_from(&way);
        }
        let mut numbers: Vec<u64> = all.iter().map(|(place, _)| place.ranks).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for ranks in numbers {
            let here: Vec<_> = all.iter().copied().filter(|(place, _)| place.ranks == ranks).collect();
            let worst = here.iter().max_by(|a, b| a.1.median.total_cmp(&b.1.median));
            let worst = worst.map(|(place, ratios)| format!("{:.2} at {}", ratios.median, size(place.bytes)));
            let _ = writeln!(text, "| {figure} | {ranks} | {} {} |", columns(&here), worst.unwrap_or_default());
        }
    }
    text
}

/// The cells with the largest ratios.
fn worst(cells: &Cells) -> String {
    const SHOWN: usize = 40;
    let mut all: Vec<(&Place, &Ratios)> = cells.ratios.iter().filter(|(_, ratios)| ratios.median > MEDIAN).collect();
    all.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    let mut text = "\n## The worst cells\n\n| way | figure | ranks | size | median | best | 99 % | whole | us |\n|---|---|---|---|---|---|---|---|---|\n".to_owned();
    for (place, ratios) in all.into_iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {} | {:.2} |",
            place.way(),
            place.figure,
            place.ranks,
            size(place.bytes),
            ratios.median,
            ratios.best,
            ratios.p99,
            number(ratios.whole),
            ratios.us
        );
    }
    text
}
