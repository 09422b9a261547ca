//! What the file of a sweep says: for each cell the rounds, and in each round what every library needed.

use std::collections::BTreeMap;

use anyhow::Context;

/// The name of rsd's library in the file.
const OURS: &str = "rsd";

/// A place in the tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub way: String,
    pub noisy: bool,
    /// The position of the figure in the file, by which figures are sorted.
    order: usize,
    pub figure: String,
    pub ranks: u64,
    pub bytes: u64,
}

impl Place {
    /// What the tables call the way of the messages.
    pub(super) fn way(&self) -> String {
        format!("{}{}", self.way, if self.noisy { ", with a busy neighbour" } else { "" })
    }
}

/// What a library needed in one round, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Took {
    median: f64,
    best: f64,
    p99: f64,
    /// The whole loop, divided by the operations.
    whole: f64,
}

/// One cell: what rsd's library needed in relation to the better of the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratios {
    /// The median of the rounds' ratios of medians.
    pub median: f64,
    /// The best of all rounds.
    pub best: f64,
    /// As `median`, for the 99th percentiles.
    pub p99: f64,
    /// As `median`, for the whole loops, barriers included; NaN if they were not measured.
    pub whole: f64,
    /// What rsd's library needed: the median of the rounds' medians, in microseconds.
    pub us: f64,
}

pub(super) struct Cells {
    pub machines: Vec<String>,
    pub ratios: BTreeMap<Place, Ratios>,
}

/// Reads the file. Rounds in which a library is missing say nothing about a cell.
pub(super) fn read(text: &str) -> anyhow::Result<Cells> {
    let mut figures: Vec<String> = Vec::new();
    let mut machines: Vec<String> = Vec::new();
    let mut rounds: BTreeMap<Place, BTreeMap<String, Vec<(String, Took)>>> = BTreeMap::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).with_context(|| format!("read {line:?}"))?;
        if let Some(machine) = line["machine"].as_str() {
            let kind = machine.split(", load").next().unwrap_or(machine).to_owned();
            if !machines.contains(&kind) {
                machines.push(kind);
            }
            continue;
        }
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
        let figure = text("figure");
        let order = figures.iter().position(|known| *known == figure).unwrap_or_else(|| {
            figures.push(figure.clone());
            figures.len() - 1
        });
        let place = Place {
            way: text("way"),
            noisy: line["noisy"].as_bool().unwrap_or(false),
            order,
            figure,
            ranks: line["np"].as_u64().unwrap_or(0),
            bytes: line["bytes"].as_u64().unwrap_or(0),
        };
        let took = Took { median: number("median"), best: number("best"), p99: number("p99"), whole: number("whole") };
        rounds.entry(place).or_default().entry(text("round")).or_default().push((text("mpi"), took));
    }
    let ratios =
        rounds.into_iter().filter_map(|(place, rounds)| Some((place, ratios(rounds.into_values())?))).collect();
    Ok(Cells { machines, ratios })
}

fn ratios(rounds: impl Iterator<Item = Vec<(String, Took)>>) -> Option<Ratios> {
    let (mut medians, mut p99s, mut wholes, mut us) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
    for round in rounds {
        let Some((_, mine)) = round.iter().find(|(mpi, _)| mpi == OURS) else { continue };
        let others = || round.iter().filter(|(mpi, _)| mpi != OURS).map(|(_, took)| took);
        let least = |of: fn(&Took) -> f64| others().map(of).reduce(f64::min);
        let (Some(median), Some(best), Some(p99), Some(whole)) =
            (least(|it| it.median), least(|it| it.best), least(|it| it.p99), least(|it| it.whole))
        else {
            continue;
        };
        medians.push(mine.median / median);
        p99s.push(mine.p99 / p99);
        wholes.push(mine.whole / whole);
        us.push(mine.median);
        ours = ours.min(mine.best);
        theirs = theirs.min(best);
    }
    let median = median(medians)?;
    let (p99, whole, us) = (self::median(p99s)?, self::median(wholes)?, self::median(us)?);
    Some(Ratios { median, best: ours / theirs, p99, whole, us })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The size as people write it.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0 => "–".to_owned(),
        bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_compared_with_the_better_library_of_the_same_round() {
        let line = |round: &str, mpi: &str, median: f64| {
            format!(
                "{{\"figure\":\"latency\",\"np\":2,\"bytes\":8,\"median\":{median},\"best\":{median},\"p99\":{median},\
                 \"whole\":{median},\"round\":\"{round}\",\"way\":\"shared\",\"noisy\":false,\"mpi\":\"{mpi}\"}}\n"
            )
        };
        let mut text = "{\"machine\":\"2 CPUs, load 1\",\"noisy\":false}\n".to_owned();
        for (round, ours) in [("1", 1.0), ("2", 3.0), ("3", 4.0)] {
            text += &(line(round, "rsd", ours) + &line(round, "MPICH", 2.0) + &line(round, "Open MPI", 8.0));
        }
        // A round in which nothing can be compared.
        text += &line("4", "rsd", 100.0);
        let cells = read(&text).expect("the text is valid");
        let (place, ratios) = cells.ratios.first_key_value().expect("there is a cell");
        assert_eq!((place.figure.as_str(), place.ranks, place.bytes), ("latency", 2, 8));
        assert_eq!(*ratios, Ratios { median: 1.5, best: 0.5, p99: 1.5, whole: 1.5, us: 3.0 });
        assert_eq!(cells.machines, ["2 CPUs"]);
    }
}
