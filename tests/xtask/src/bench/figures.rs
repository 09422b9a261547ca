//! Collects the figures that the contenders' benches print in each round, and prints them as a table.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::distance::{Distance, Distances};
use super::turns::{Contender, Run, timed, trouble, turns};

/// The deadline of a job; a job that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(180);

/// A figure, sorted in the order in which the bench prints it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Figure {
    /// The position in the bench's output: names are sorted by their first appearance.
    order: usize,
    name: String,
    bytes: u64,
    unit: String,
}

impl Figure {
    fn label(&self) -> String {
        let Self { name, unit, .. } = self;
        match self.bytes {
            0 => format!("{name} ({unit})"),
            bytes if bytes >= 1 << 20 => format!("{name} {} MiB ({unit})", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{name} {} KiB ({unit})", bytes >> 10),
            bytes => format!("{name} {bytes} B ({unit})"),
        }
    }

    /// Whether more is better; for times and memory less is better.
    fn more_is_better(&self) -> bool {
        matches!(self.unit.as_str(), "GB/s" | "M/s" | "%")
    }
}

/// Figures by place are omitted if a contender has fewer rounds than this.
const FEWEST: usize = 3;

/// The figures of several contenders.
pub(super) struct Figures {
    /// `values[figure][contender]`, one value per round.
    values: BTreeMap<Figure, Vec<Vec<Value>>>,
    hung: Vec<usize>,
    failed: Vec<usize>,
}

/// The value of a figure in one round.
#[derive(Debug, Clone, Copy)]
struct Value {
    value: f64,
    /// The distance of the processors just before and after the job, if measured.
    distances: [f64; 2],
}

/// Measures the distance of the two processors: the nanoseconds for a cache line to go to the other processor and back.
pub(super) type Measure<'a> = &'a dyn Fn() -> anyhow::Result<f64>;

/// Runs the contenders' jobs in turn and collects their figures, including those printed before a job hung.
pub(super) fn collect(
    contenders: &[Contender<'_>],
    rounds: usize,
    scratch: &Path,
    distance: Measure<'_>,
) -> anyhow::Result<Figures> {
    let none = || vec![0; contenders.len()];
    let mut figures = Figures { values: BTreeMap::new(), hung: none(), failed: none() };
    let path = scratch.join("figures");
    for (_, at) in turns(contenders.len(), rounds) {
        let mut command: Command = contenders[at]()?;
        let before = distance()?;
        match timed(command.stdout(Stdio::from(File::create(&path)?)), DEADLINE)? {
            Run::Took(_) => {}
            Run::Hung => figures.hung[at] += 1,
            Run::Failed => figures.failed[at] += 1,
        }
        let printed = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        figures.take(&printed, at, contenders.len(), [before, distance()?]);
    }
    Ok(figures)
}

impl Figures {
    /// Takes the figures from a job's output: one JSON object per line; launchers may print other lines.
    fn take(&mut self, printed: &str, contender: usize, contenders: usize, distances: [f64; 2]) {
        let lines = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        for told in lines {
            let (Some(name), Some(value)) = (told["figure"].as_str(), told["value"].as_f64()) else { continue };
            let known = self.values.keys().find(|figure| figure.name == name).map(|figure| figure.order);
            let order = known.unwrap_or_else(|| self.values.keys().map(|figure| figure.order + 1).max().unwrap_or(0));
            let figure = Figure {
                order,
                name: name.to_owned(),
                bytes: told["bytes"].as_u64().unwrap_or(0),
                unit: told["unit"].as_str().unwrap_or("?").to_owned(),
            };
            let all = self.values.entry(figure).or_insert_with(|| vec![Vec::new(); contenders]);
            all[contender].push(Value { value, distances });
        }
    }

    /// Prints one row per figure with the medians of the rounds. If `ours`, the first contender is rsd, and each row has its ratio to the
    /// best of the others.
    pub(super) fn print(&self, title: &str, names: &[&str], ours: bool) {
        self.print_those(title, names, ours, |_| true);
    }

    /// Prints a table for each place of the two processors on the host, from the rounds during which the place did not change.
    pub(super) fn print_by_distance(&self, title: &str, names: &[&str], ours: bool) {
        let all = || self.values.values().flatten().flatten();
        let distances = Distances::among(all().flat_map(|value| value.distances));
        for (place, distance) in [("near", Distance::Near), ("far", Distance::Far)] {
            let is_here = |value: &Value| distances.during(value.distances) == Some(distance);
            let mut here: Vec<f64> = all().filter(|value| is_here(value)).map(|value| value.distances[0]).collect();
            here.sort_by(f64::total_cmp);
            let Some(typical) = here.get(here.len() / 2) else { continue };
            let rounds = self
                .values
                .values()
                .next()
                .into_iter()
                .flatten()
                .map(|values| values.iter().copied().filter(is_here).count());
            let rounds = rounds.min().unwrap_or(0);
            match rounds {
                FEWEST.. => {
                    let title = format!("{title}, processors {place} ({typical:.0} ns), {rounds} rounds or more");
                    self.print_those(&title, names, ours, is_here);
                }
                _ => println!(
                    "\nWith the processors {place} ({typical:.0} ns) some contenders have too few rounds ({rounds})."
                ),
            }
        }
    }

    fn print_those(&self, title: &str, names: &[&str], ours: bool, counts: impl Fn(&Value) -> bool) {
        let troubled = names.iter().zip(self.hung.iter().zip(&self.failed));
        let heads = troubled.map(|(name, (&hung, &failed))| format!(" {name}{} |", trouble(hung, failed)));
        let compared = if ours { " ratio | mark |" } else { "" };
        println!("\n| {title} |{}{compared}", heads.collect::<String>());
        println!("|---|{}", "---|".repeat(names.len() + if ours { 2 } else { 0 }));
        for (figure, all) in &self.values {
            let median = |values: &Vec<Value>| median(values.iter().filter(|value| counts(value)));
            let values: Vec<Option<f64>> = all.iter().map(median).collect();
            let cells = values.iter().map(|value| format!(" {} |", value.map_or("–".to_owned(), significant)));
            let compared = if ours { compared_with_the_best(figure, &values) } else { String::new() };
            println!("| {} |{}{compared}", figure.label(), cells.collect::<String>());
        }
    }
}

fn compared_with_the_best(figure: &Figure, values: &[Option<f64>]) -> String {
    let more = figure.more_is_better();
    let best = values[1..].iter().flatten().copied().reduce(if more { f64::max } else { f64::min });
    let (Some(ours), Some(best)) = (values[0], best) else { return " – | – |".to_owned() };
    let ratio = ours / best;
    let met = if more { ratio >= 1.0 } else { ratio <= 1.0 };
    format!(" {ratio:.2} | {} |", mark(met))
}

/// The text of a row's mark.
pub(super) fn mark(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

fn median<'a>(values: impl Iterator<Item = &'a Value>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.map(|value| value.value).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The value with three significant digits.
fn significant(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
