//! What the contenders' benches print, round after round, and the table of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::turns::{Contender, Run, timed, trouble, turns};

/// A job that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(180);

/// What is measured, in the order in which it is printed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Figure {
    /// Place in the order of what the bench prints: names are sorted as they come first.
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

    /// Whether more of it is better; of times and memory less is.
    fn more_is_better(&self) -> bool {
        matches!(self.unit.as_str(), "GB/s" | "M/s")
    }
}

/// Figures of several contenders.
pub(super) struct Figures {
    /// `values[figure][contender]`, one per round.
    values: BTreeMap<Figure, Vec<Vec<f64>>>,
    hung: Vec<usize>,
    failed: Vec<usize>,
}

/// Runs the contenders' jobs in turn and collects what they print; what one prints before it hangs counts too.
pub(super) fn collect(contenders: &[Contender<'_>], rounds: usize, scratch: &Path) -> anyhow::Result<Figures> {
    let none = || vec![0; contenders.len()];
    let mut figures = Figures { values: BTreeMap::new(), hung: none(), failed: none() };
    let path = scratch.join("figures");
    for (_, at) in turns(contenders.len(), rounds) {
        let mut command: Command = contenders[at]()?;
        match timed(command.stdout(Stdio::from(File::create(&path)?)), DEADLINE)? {
            Run::Took(_) => {}
            Run::Hung => figures.hung[at] += 1,
            Run::Failed => figures.failed[at] += 1,
        }
        let printed = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        figures.take(&printed, at, contenders.len());
    }
    Ok(figures)
}

impl Figures {
    /// One JSON object per line; launchers may print other lines.
    fn take(&mut self, printed: &str, contender: usize, contenders: usize) {
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
            self.values.entry(figure).or_insert_with(|| vec![Vec::new(); contenders])[contender].push(value);
        }
    }

    /// A row per figure. The first contender is ours if `ours`: then with the ratio to the best of the others.
    pub(super) fn print(&self, title: &str, names: &[&str], told: Told, ours: bool) {
        let troubled = names.iter().zip(self.hung.iter().zip(&self.failed));
        let heads = troubled.map(|(name, (&hung, &failed))| format!(" {name}{} |", trouble(hung, failed)));
        let compared = if ours { " ratio | mark |" } else { "" };
        println!("\n| {title} |{}{compared}", heads.collect::<String>());
        println!("|---|{}", "---|".repeat(names.len() + if ours { 2 } else { 0 }));
        for (figure, all) in &self.values {
            let values: Vec<Option<f64>> = all.iter().map(|values| told.of(values, figure.more_is_better())).collect();
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

/// How a row's mark is told.
pub(super) fn mark(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// Which of the rounds' values stands for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The one in the middle.
    Median,
    /// The one that a quarter of them reach: where a host places virtual processors nearer to or farther from each other from
    /// run to run, the one in the middle tells which place came more often, and the best who was lucky once.
    Quartile,
}

impl Told {
    fn of(self, values: &[f64], more_is_better: bool) -> Option<f64> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        if more_is_better {
            sorted.reverse();
        }
        match self {
            Self::Median => sorted.get(sorted.len() / 2).copied(),
            Self::Quartile => sorted.get(sorted.len() / 4).copied(),
        }
    }
}

/// Three digits that mean something.
fn significant(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
