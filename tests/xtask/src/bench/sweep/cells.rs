//! What the file of a sweep says: for each cell the rounds, and in each round what every library needed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use super::super::distance::{Distance, Distances};

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
    /// How many comparisons were made with the processors at each distance, and the median of that distance in nanoseconds. Empty if it was not measured.
    pub distances: BTreeMap<Distance, (usize, f64)>,
    /// Cells of which nothing can be compared: some library was never measured at the distance of the others.
    pub unlike: usize,
}

/// What one library needed in one job.
struct Sample {
    round: String,
    mpi: String,
    took: Took,
    /// The distance of the processors just before and after, in nanoseconds; 0 if it was not measured.
    distances: [f64; 2],
}

/// What each library needed under equal conditions.
type Round<'a> = BTreeMap<&'a str, Took>;

/// Reads the file. Rounds in which one of a cell's libraries is missing say nothing about it.
pub(super) fn read(text: &str) -> anyhow::Result<Cells> {
    let mut figures: Vec<String> = Vec::new();
    let mut machines: Vec<String> = Vec::new();
    let mut samples: BTreeMap<Place, Vec<Sample>> = BTreeMap::new();
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
        let distances = [0, 1].map(|at| line["distances"][at].as_f64().unwrap_or(0.0));
        samples.entry(place).or_default().push(Sample { round: text("round"), mpi: text("mpi"), took, distances });
    }
    let known = Distances::among(samples.values().flatten().flat_map(|sample| sample.distances));
    let mut cells = Cells { machines, ratios: BTreeMap::new(), distances: BTreeMap::new(), unlike: 0 };
    for (place, samples) in &samples {
        let libraries: BTreeSet<&str> = samples.iter().map(|sample| sample.mpi.as_str()).collect();
        let mut compared = Vec::new();
        for (distance, round) in rounds(samples, known) {
            if round.len() == libraries.len() {
                if let Some(distance) = distance {
                    cells.distances.entry(distance).or_default().0 += 1;
                }
                compared.push(round);
            }
        }
        match ratios(compared) {
            Some(ratios) => drop(cells.ratios.insert(place.clone(), ratios)),
            // Otherwise, a library has failed.
            None if libraries.contains(OURS) && libraries.len() > 1 => cells.unlike += 1,
            None => {}
        }
    }
    for (distance, (_, typical)) in &mut cells.distances {
        let at = |sample: &&Sample| known.during(sample.distances) == Some(*distance);
        *typical =
            median(samples.values().flatten().filter(at).map(|sample| sample.distances[0]).collect()).unwrap_or(0.0);
    }
    Ok(cells)
}

/// What can be compared: the first values that each library has of one distance, the second ones, and so on. Those whose distance changed meanwhile
/// do not count. Where no distance is known, it is the values of each round.
fn rounds(samples: &[Sample], known: Distances) -> impl Iterator<Item = (Option<Distance>, Round<'_>)> {
    let mut rounds: BTreeMap<(Option<Distance>, usize), Round<'_>> = BTreeMap::new();
    let mut names: Vec<&str> = Vec::new();
    for Sample { round, mpi, took, distances } in samples {
        let nth = match known.during(*distances) {
            None if distances.iter().any(|it| *it > 0.0) => continue,
            None => {
                let at = names.iter().position(|name| name == round);
                let nth = at.unwrap_or(names.len());
                if at.is_none() {
                    names.push(round);
                }
                (None, nth)
            }
            at => {
                let others =
                    rounds.iter().filter(|((distance, _), round)| *distance == at && round.contains_key(mpi.as_str()));
                (at, others.count())
            }
        };
        rounds.entry(nth).or_default().insert(mpi, *took);
    }
    rounds.into_iter().map(|((distance, _), round)| (distance, round))
}

fn ratios(rounds: Vec<Round<'_>>) -> Option<Ratios> {
    let (mut medians, mut p99s, mut wholes, mut us) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
    for round in rounds {
        let Some(mine) = round.get(OURS) else { continue };
        let others = || round.iter().filter(|(mpi, _)| **mpi != OURS).map(|(_, took)| took);
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

/// The middle one; of an even number, the geometric mean of the two in the middle: most values are ratios.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) { (values[middle - 1] * upper).sqrt() } else { upper })
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

    #[test]
    fn the_middle_of_an_even_number_of_ratios_is_between_the_two_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9.0, 2.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![2.0, 0.5]), Some(1.0));
        assert_eq!(median(vec![100.0, 4.0, 1.0, 0.0]), Some(2.0));
    }

    #[test]
    fn only_what_was_measured_at_the_same_distance_is_compared() {
        let line = |bytes: u32, round: u32, mpi: &str, median: u32, distances: [u32; 2]| {
            format!(
                "{{\"figure\":\"latency\",\"np\":2,\"bytes\":{bytes},\"median\":{median},\"best\":{median},\"p99\":{median},\
                 \"whole\":{median},\"round\":\"{round}\",\"way\":\"shared\",\"noisy\":false,\"mpi\":\"{mpi}\",\"distances\":{distances:?}}}\n"
            )
        };
        let (near, far) = ([50, 60], [330, 350]);
        // rsd's are near, far, near, moved; the other's are far, far, near, near.
        let text = line(8, 1, "rsd", 10, near) + &line(8, 1, "Open MPI", 80, far)
            + &line(8, 2, "rsd", 40, far) + &line(8, 2, "Open MPI", 70, far)
            + &line(8, 3, "rsd", 10, near) + &line(8, 3, "Open MPI", 20, near)
            + &line(8, 4, "rsd", 500, [50, 330]) + &line(8, 4, "Open MPI", 5, near)
            // Never at the same distance.
            + &line(16, 1, "rsd", 10, near) + &line(16, 1, "Open MPI", 80, far);
        let cells = read(&text).expect("the text is valid");
        assert_eq!((cells.ratios.len(), cells.unlike), (1, 1));
        let ratios = cells.ratios.values().next().expect("there is a cell");
        // 10 / 20 and 10 / 5 near, 40 / 80 far.
        assert_eq!((ratios.median, ratios.best), (0.5, 2.0));
        let counts: Vec<usize> = cells.distances.values().map(|(count, _)| *count).collect();
        assert_eq!(counts, [2, 1]);
    }
}
