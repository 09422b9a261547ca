//! `rsctl top` without a screen: the same as tables, or as JSON.

use serde_json::{Value, json};

use super::look::Snapshot;
use super::state::Counts;
use crate::print::{self, Align, table_within, visible};
use crate::{json, waits};

/// Returns the first line: counts of everything.
pub(super) fn summary(seen: &Snapshot) -> String {
    let counts = Counts::of(seen);
    let some = |count: usize, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
    let ranks = |count: u64, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
    let rate = seen.output_rate.map_or_else(|| "-".to_owned(), |rate| format!("{}/s", print::bytes(rate as u64)));
    format!(
        "nodes {} up{}{}; slots {} of {} in use; jobs {} running{}{}; ranks {} running{}{}; output {rate}",
        counts.up,
        some(counts.drained, "drained"),
        some(counts.away, "away"),
        counts.in_use,
        counts.slots,
        counts.running,
        some(counts.queued, "queued"),
        some(counts.ending, "ending"),
        counts.ranks_running,
        ranks(counts.ranks_ending, "ending"),
        ranks(counts.ranks_failed, "failed"),
    )
}

/// The titles of the lists of jobs and nodes.
pub(super) const JOBS: [(&str, Align); 6] = [
    ("JOB", Align::Right),
    ("STATE", Align::Left),
    ("RANKS", Align::Right),
    ("ELAPSED", Align::Right),
    ("USER", Align::Left),
    ("COMMAND", Align::Left),
];
pub(super) const NODES: [(&str, Align); 6] = [
    ("NODE", Align::Left),
    ("STATE", Align::Left),
    ("SLOTS", Align::Right),
    ("IN USE", Align::Right),
    ("LOAD", Align::Right),
    ("MEMORY USED", Align::Left),
];

pub(super) fn job_row(seen: &Snapshot, at: usize) -> [String; 6] {
    let job = &seen.jobs[at];
    let since = if job.started_ms > 0 { job.started_ms } else { job.submitted_ms };
    [
        job.job.to_string(),
        json::state(job.state()).to_owned(),
        if job.ranks > 0 { job.ranks.to_string() } else { "-".to_owned() },
        print::duration(seen.at_ms.saturating_sub(since)),
        job.owner.as_ref().map_or_else(|| "-".to_owned(), |owner| owner.name.clone()),
        job.command.clone(),
    ]
}

pub(super) fn node_row(seen: &Snapshot, at: usize) -> [String; 6] {
    let node = &seen.nodes[at];
    let inventory = node.inventory.clone().unwrap_or_default();
    let drained = if node.drained { ", drained" } else { "" };
    let used = node.load.map_or_else(|| "-".to_owned(), |load| print::bytes(load.memory_used_bytes));
    [
        node.name.clone(),
        format!("{}{drained}", json::node_state(node.state())),
        inventory.slots.to_string(),
        node.slots_in_use.to_string(),
        node.load.map_or_else(|| "-".to_owned(), |load| format!("{:.2}", load.load1)),
        format!("{used} of {}", print::bytes(inventory.memory_bytes)),
    ]
}

pub(super) fn wait_line(seen: &Snapshot, at: usize) -> String {
    waits::line(&seen.waits[at])
}

/// Returns everything as tables.
pub(super) fn tables(seen: &Snapshot, width: Option<usize>) -> String {
    let jobs: Vec<_> = (0..seen.jobs.len()).map(|at| job_row(seen, at)).collect();
    let nodes: Vec<_> = (0..seen.nodes.len()).map(|at| node_row(seen, at)).collect();
    let mut text = format!("{}\n\n{}", summary(seen), table_within(width, NODES, &nodes));
    if !jobs.is_empty() {
        text += &format!("\n{}", table_within(width, JOBS, &jobs));
    }
    if !seen.waits.is_empty() {
        text += "\nWAITS\n";
        text.extend((0..seen.waits.len()).map(|at| format!("{}\n", visible(&wait_line(seen, at)))));
    }
    text + "\n"
}

/// Returns everything as JSON.
pub(super) fn document(seen: &Snapshot) -> Value {
    json!({
        "at_ms": seen.at_ms,
        "output_bytes_per_second": seen.output_rate,
        "jobs": seen.jobs.iter().map(json::job).collect::<Vec<_>>(),
        "nodes": seen.nodes.iter().map(json::node).collect::<Vec<_>>(),
        "waits": seen.waits.iter().map(waits::described).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::seen;
    use super::*;

    #[test]
    fn tables_have_a_row_for_each_node_and_job() {
        let text = tables(&seen(2, 1), None);
        let expected = "nodes 1 up; slots 4 of 8 in use; jobs 1 running, 1 queued; ranks 4 running; output 2.0 KiB/s\n\n\
                        NODE  STATE  SLOTS  IN USE  LOAD  MEMORY USED\nn0    up         8       4     -  - of 0 B\n\n\
                        JOB  STATE    RANKS  ELAPSED  USER  COMMAND\n  1  running      4    1m00s  -     ./a.out 1\n  \
                        2  queued       -    1m00s  -     ./a.out 2\n\n";
        assert_eq!(text, expected);
    }
}
