//! Turns the times of the search into a table that is small enough to read.
//!
//! A table is a list of rules, of which the last one that holds decides. Rules are added one by one, each where it improves the table
//! most, until no rule improves it enough; then rules without which the table is as good are taken out.

use std::collections::{BTreeMap, BTreeSet};

use rsd_mpi::coll::choice::Algorithm;

use crate::search::{Outcome, Row};

/// Holds from so many nodes, ranks on each, and bytes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    pub(crate) nodes: u32,
    pub(crate) each: u32,
    pub(crate) bytes: u64,
    /// Index among the algorithms.
    pub(crate) how: usize,
}

/// A cell, and what the choice of each algorithm loses there.
struct Place {
    nodes: u32,
    each: u32,
    bytes: u64,
    losses: Vec<f64>,
}

/// Thresholds between the counts of the grid.
const NODES: [u32; 6] = [0, 2, 3, 8, 64, 1024];
const EACH: [u32; 5] = [0, 2, 8, 16, 64];

/// Ratios below this one are as good as the best.
const GOOD: f64 = 1.2;

/// Ratios above this one are to be avoided.
const BAD: f64 = 1.4;

/// What a rule must improve: as much as a cell that is better by half.
const WORTH: f64 = 0.25;

/// Stands for the ratio of an algorithm that is too slow to simulate.
const SLOW: f64 = 50.0;

/// The table for the rows of one function, on one machine or several. First come the rules for one node, and for nodes of one rank: they
/// decide about the parts of compositions, so they must not depend on how long those take. Then come rules for several nodes of several
/// ranks, which may choose compositions.
pub(crate) fn fit(rows: &[Row], algorithms: &[Algorithm]) -> Vec<Rule> {
    let (flat, deep): (Vec<Place>, Vec<Place>) =
        rows.iter().filter_map(place).partition(|place| place.nodes == 1 || place.each == 1);
    let thresholds = |places: &[Place], may_compose: bool| {
        let bytes: BTreeSet<u64> = places.iter().map(|place| threshold(place.bytes)).chain([0]).collect();
        let mut thresholds = Vec::new();
        for nodes in NODES.into_iter().filter(|nodes| !may_compose || *nodes > 1) {
            for each in EACH.into_iter().filter(|each| !may_compose || *each > 1) {
                thresholds.extend(bytes.iter().map(|bytes| (nodes, each, *bytes)));
            }
        }
        thresholds
    };
    let many = algorithms.len();
    let of_flat = thresholds(&flat, false);
    // The first rule decides where the others can lead.
    let first = (0..many).filter(|how| !algorithms[*how].is_composed()).map(|how| rule((0, 0, 0), how));
    let tables = first.map(|first| grown(vec![first], 1, &of_flat, many, &flat));
    let weight = |table: &Vec<Rule>| cost(table, &flat) + WORTH * table.len() as f64;
    let table = tables.min_by(|one, two| weight(one).total_cmp(&weight(two))).unwrap_or_default();
    let fixed = table.len();
    grown(table, fixed, &thresholds(&deep, true), many, &deep)
}

/// Adds rules after the fixed ones while they are worth it, one at a time, or two of which the second takes back the part of the first's
/// places from some threshold on. Then takes out those that are not worth it.
fn grown(mut table: Vec<Rule>, fixed: usize, thresholds: &[Threshold], many: usize, places: &[Place]) -> Vec<Rule> {
    loop {
        let mut best: (f64, usize, Vec<Rule>) = (0.0, 0, Vec::new());
        for at in fixed..=table.len() {
            // What an insertion changes: the places where it holds, and no later rule does.
            let gains: Vec<(f64, Vec<f64>)> =
                thresholds.iter().map(|from| gains(&table[at..], &table[..at], *from, many, places)).collect();
            for (from, (before, after)) in thresholds.iter().zip(&gains) {
                let (how, least) = lowest(after.iter().copied());
                let mut offer = |gain: f64, rules: &dyn Fn() -> Vec<Rule>| {
                    if gain > best.0 + 1e-9 {
                        best = (gain, at, rules());
                    }
                };
                offer(before - least - WORTH, &|| vec![rule(*from, how)]);
                for (until, (_, rest)) in thresholds.iter().zip(&gains).filter(|(until, _)| is_beyond(*from, **until)) {
                    let (how, least) = lowest(after.iter().zip(rest).map(|(all, rest)| all - rest));
                    let (instead, rest) = lowest(rest.iter().copied());
                    let rules = || vec![rule(*from, how), rule(*until, instead)];
                    offer(before - least - rest - 2.0 * WORTH, &rules);
                }
            }
        }
        if best.2.is_empty() {
            let ends =
                (fixed..=table.len()).map(|at| (at, boxed(&table[at..], &table[..at], thresholds, many, places)));
            let (at, (gain, rules)) =
                ends.max_by(|one, two| one.1.0.total_cmp(&two.1.0)).unwrap_or_else(|| (fixed, (0.0, Vec::new())));
            best = (gain, at, rules);
        }
        if best.2.is_empty() {
            break;
        }
        table.splice(best.1..best.1, best.2);
    }
    let mut index = fixed;
    while index < table.len() {
        let mut fewer = table.clone();
        fewer.remove(index);
        if cost(&fewer, places) <= cost(&table, places) + WORTH {
            table = fewer;
            index = fixed;
        } else {
            index += 1;
        }
    }
    // A rule that always holds makes those before it useless.
    let always = table.iter().rposition(|it| (it.nodes, it.each, it.bytes) == (0, 0, 0));
    table.split_off(always.filter(|_| fixed == 1).unwrap_or(0))
}

/// Where no single rule and no two improve the table: the three rules between the earlier and the later ones that improve it most, if any
/// do, and how much. The second and the third
/// take back the first's places from some threshold on, each in another direction.
fn boxed(
    later: &[Rule],
    earlier: &[Rule],
    thresholds: &[Threshold],
    many: usize,
    places: &[Place],
) -> (f64, Vec<Rule>) {
    let sums: BTreeMap<Threshold, (f64, Vec<f64>)> =
        thresholds.iter().map(|from| (*from, gains(later, earlier, *from, many, places))).collect();
    let mut best: (f64, Vec<Rule>) = (0.0, Vec::new());
    for (from, (before, all)) in &sums {
        let beyond: Vec<_> = sums.iter().filter(|(until, _)| is_beyond(*from, **until)).collect();
        for (one, (_, one_sum)) in &beyond {
            for (two, (_, two_sum)) in &beyond {
                let both = (one.0.max(two.0), one.1.max(two.1), one.2.max(two.2));
                let Some((_, both_sum)) = sums.get(&both).filter(|_| both != **one && both != **two) else { continue };
                let inner = (0..many).map(|how| all[how] - one_sum[how] - two_sum[how] + both_sum[how]);
                let (inner, least) = lowest(inner);
                let (first, rest) = lowest((0..many).map(|how| one_sum[how] - both_sum[how]));
                let (second, last) = lowest(two_sum.iter().copied());
                let gain = before - least - rest - last - 3.0 * WORTH;
                if gain > best.0 + 1e-9 {
                    best = (gain, vec![rule(*from, inner), rule(**one, first), rule(**two, second)]);
                }
            }
        }
    }
    best
}

/// Nodes, ranks on each, bytes.
type Threshold = (u32, u32, u64);

fn rule((nodes, each, bytes): Threshold, how: usize) -> Rule {
    Rule { nodes, each, bytes, how }
}

/// Whether the second differs in one threshold, which is higher.
fn is_beyond(from: Threshold, until: Threshold) -> bool {
    let higher = [until.0 > from.0, until.1 > from.1, until.2 > from.2];
    let same = [until.0 == from.0, until.1 == from.1, until.2 == from.2];
    same.iter().filter(|it| **it).count() == 2 && higher.contains(&true)
}

fn lowest(values: impl Iterator<Item = f64>) -> (usize, f64) {
    values.enumerate().min_by(|one, two| one.1.total_cmp(&two.1)).unwrap_or((0, f64::MAX))
}

/// The loss of the places that a rule with these thresholds would decide between the later and the earlier rules: as it is, and with
/// each algorithm.
fn gains(
    later: &[Rule],
    earlier: &[Rule],
    (nodes, each, bytes): Threshold,
    many: usize,
    places: &[Place],
) -> (f64, Vec<f64>) {
    let mut before = 0.0;
    let mut after = vec![0.0; many];
    let holds =
        |rule: &&Rule, place: &Place| place.nodes >= rule.nodes && place.each >= rule.each && place.bytes >= rule.bytes;
    for place in places.iter().filter(|it| it.nodes >= nodes && it.each >= each && it.bytes >= bytes) {
        if later.iter().any(|rule| holds(&rule, place)) {
            continue;
        }
        let now = earlier.iter().rev().find(|rule| holds(rule, place)).map_or(0, |rule| rule.how);
        before += place.losses[now];
        after.iter_mut().zip(&place.losses).for_each(|(sum, loss)| *sum += loss);
    }
    (before, after)
}

/// The algorithm that a table chooses for so many nodes, ranks on each, and bytes.
pub(crate) fn chosen(table: &[Rule], nodes: u32, each: u32, bytes: u64) -> usize {
    let holds = |rule: &&Rule| nodes >= rule.nodes && each >= rule.each && bytes >= rule.bytes;
    table.iter().rev().find(holds).map_or(0, |rule| rule.how)
}

fn place(row: &Row) -> Option<Place> {
    let best = row.best()?;
    let ratio = |outcome: &Outcome| outcome.time().map_or(SLOW, |time| time / best);
    let losses = row.outcomes.iter().map(|outcome| loss(ratio(outcome))).collect();
    Some(Place { nodes: row.cell.nodes, each: row.cell.each, bytes: row.cell.key(), losses })
}

/// The threshold below this size and above the next smaller one: a power of two, so that it can be read.
fn threshold(bytes: u64) -> u64 {
    if bytes < 2 { 0 } else { 1 << (bytes.ilog2() - 1) }
}

fn cost(table: &[Rule], places: &[Place]) -> f64 {
    places.iter().map(|place| place.losses[chosen(table, place.nodes, place.each, place.bytes)]).sum()
}

/// Grows faster than the ratio: one bad cell is worse than two cells half as bad.
fn loss(ratio: f64) -> f64 {
    let over = (ratio / GOOD).max(1.0).log2();
    let bad = if ratio > BAD { 6.0 } else { 0.0 };
    bad + over + 4.0 * over * over
}

/// The name of an algorithm, as it is written in a table.
pub(crate) fn name(how: Algorithm) -> String {
    let text = format!("{how:?}");
    let (kind, rest) = text.split_once('(').unwrap_or((&text, ""));
    let group = match kind {
        "Scatter" => "Gather",
        "Exscan" => "Scan",
        kind => kind,
    };
    let inner = rest.strip_suffix(')').unwrap_or(rest);
    let inner = inner.replace("65536", "64 * KIB");
    format!("{group}::{inner}")
}

/// Bytes as they are written in a table.
pub(crate) fn bytes(bytes: u64) -> String {
    let (many, unit) = match bytes {
        0..1024 => return bytes.to_string(),
        1024..1_048_576 => (bytes >> 10, "KIB"),
        1_048_576.. => (bytes >> 20, "MIB"),
    };
    if many == 1 { unit.to_owned() } else { format!("{many} * {unit}") }
}
