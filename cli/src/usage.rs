//! What the ranks of a job have used, as the kernel counts it: for people, and as JSON.

use rsd_proto::v1::{JobInfo, JobUsage, Usage};
use serde_json::{Value, json};

use crate::placement::{self, NodeRanks};
use crate::print::{self, Align, table};

/// Returns the lines that describe a job's usage; none until it is known.
pub(crate) fn fields(info: &JobInfo) -> Vec<(&'static str, String)> {
    let Some(JobUsage { total: Some(total), unknown, .. }) = &info.usage else { return Vec::new() };
    let mut fields = Vec::new();
    if total.known {
        fields.push(("cpu time", format!("{}{}", times(total), of_elapsed(info, total))));
        if total.peak_bytes > 0 {
            let node = node_of(info, total.peak_rank).map_or_else(String::new, |node| format!(" on {}", node.name));
            let peak = print::bytes(total.peak_bytes);
            fields.push(("memory", format!("{peak} at most in one process (rank {}{node})", total.peak_rank)));
        }
        fields.push(("faults", format!("{} minor, {} major", total.minor_faults, total.major_faults)));
        let Usage { voluntary_switches, involuntary_switches, .. } = total;
        fields.push(("switches", format!("{voluntary_switches} voluntary, {involuntary_switches} involuntary")));
    }
    if !unknown.is_empty() {
        fields.push(("unknown", format!("usage on {}: no report came from there", names(info, unknown))));
    }
    fields
}

/// Returns `1.2s user, 0.1s system`.
fn times(used: &Usage) -> String {
    format!("{} user, {} system", print::duration(used.user_us / 1000), print::duration(used.system_us / 1000))
}

/// Returns `; 96% of 3.5s on 8 ranks` for a job that has ended.
fn of_elapsed(info: &JobInfo, total: &Usage) -> String {
    let elapsed_ms = info.ended_ms.saturating_sub(info.started_ms);
    let ranks = if total.ranks == 1 { "rank" } else { "ranks" };
    match efficiency(info, total) {
        Some(share) => {
            format!("; {:.0}% of {} on {} {ranks}", share * 100.0, print::duration(elapsed_ms), total.ranks)
        }
        None => String::new(),
    }
}

/// Returns how much of its time the job has computed: cpu time by the product of elapsed time and ranks. Threads can make it more than 1.
fn efficiency(info: &JobInfo, total: &Usage) -> Option<f64> {
    let has_ended = info.started_ms > 0 && info.ended_ms > info.started_ms && total.ranks > 0;
    let elapsed_us = info.ended_ms.saturating_sub(info.started_ms) as f64 * 1000.0;
    has_ended.then(|| (total.user_us as f64 + total.system_us as f64) / (elapsed_us * f64::from(total.ranks)))
}

fn node_of(info: &JobInfo, rank: u32) -> Option<NodeRanks> {
    let nodes = placement::by_node(&info.map.clone().unwrap_or_default(), &info.node_names);
    nodes.into_iter().find(|node| node.ranges.iter().any(|(first, last)| (*first..=*last).contains(&rank)))
}

/// Returns the names of nodes, at most a few.
fn names(info: &JobInfo, nodes: &[u32]) -> String {
    const SHOWN: usize = 8;
    let name = |node: &u32| placement::node_name(info.map.as_ref(), &info.node_names, *node);
    let shown: Vec<String> = nodes.iter().take(SHOWN).map(name).collect();
    match nodes.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} others", shown.join(", ")),
    }
}

/// Returns a table of the nodes' usage if the job has several nodes: of all, or of the `most` that have computed longest.
pub(crate) fn by_node(info: &JobInfo, most: Option<usize>) -> String {
    let nodes = placement::by_node(&info.map.clone().unwrap_or_default(), &info.node_names);
    let Some(usage) = info.usage.as_ref().filter(|usage| usage.nodes.len() == nodes.len() && nodes.len() > 1) else {
        return String::new();
    };
    let mut shown: Vec<(&NodeRanks, &Usage)> = nodes.iter().zip(&usage.nodes).collect();
    let left_out = most.map_or(0, |most| shown.len().saturating_sub(most));
    if left_out > 0 {
        shown.sort_by_key(|(_, used)| std::cmp::Reverse(used.user_us.saturating_add(used.system_us)));
        shown.truncate(nodes.len() - left_out);
    }
    let columns = [
        ("NODE", Align::Left),
        ("RANKS", Align::Right),
        ("USER", Align::Right),
        ("SYSTEM", Align::Right),
        ("LARGEST", Align::Right),
        ("RANK", Align::Right),
        ("MINOR FAULTS", Align::Right),
        ("MAJOR FAULTS", Align::Right),
    ];
    let row = |(node, used): &(&NodeRanks, &Usage)| {
        let known = |text: String| if used.known { text } else { "?".to_owned() };
        [
            node.name.clone(),
            node.count().to_string(),
            known(print::duration(used.user_us / 1000)),
            known(print::duration(used.system_us / 1000)),
            known(print::bytes(used.peak_bytes)),
            known(used.peak_rank.to_string()),
            known(used.minor_faults.to_string()),
            known(used.major_faults.to_string()),
        ]
    };
    let mut text = table(columns, &shown.iter().map(row).collect::<Vec<_>>());
    if left_out > 0 {
        text.push_str(&format!("and {left_out} nodes that have computed less: rsctl job show {}\n", info.job));
    }
    text
}

/// Returns a job's usage; null until it is known.
pub(crate) fn json(info: &JobInfo) -> Value {
    let Some(JobUsage { total: Some(total), unknown, .. }) = &info.usage else { return Value::Null };
    let mut value = of_ranks(total);
    value["efficiency"] = efficiency(info, total).filter(|_| total.known).into();
    value["unknown_nodes"] = json!(unknown);
    value
}

/// Returns what some ranks have used; null if it is unknown.
pub(crate) fn of_node(used: &Usage) -> Value {
    if used.known { of_ranks(used) } else { Value::Null }
}

fn of_ranks(used: &Usage) -> Value {
    json!({
        "ranks": used.ranks,
        "user_us": used.user_us,
        "system_us": used.system_us,
        "peak_bytes": used.peak_bytes,
        "peak_rank": used.peak_rank,
        "minor_faults": used.minor_faults,
        "major_faults": used.major_faults,
        "voluntary_switches": used.voluntary_switches,
        "involuntary_switches": used.involuntary_switches,
    })
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{Block, TaskMap};

    use super::*;

    fn used(user_s: u64, peak_mib: u64, peak_rank: u32) -> Usage {
        let (user_us, peak_bytes) = (user_s * 1_000_000, peak_mib << 20);
        Usage { ranks: 2, user_us, system_us: 250_000, peak_bytes, peak_rank, known: true, ..Usage::default() }
    }

    fn ended() -> JobInfo {
        let nodes = vec![used(6, 90, 1), used(1, 40, 2), Usage::default()];
        let total = Usage { ranks: 4, user_us: 7_000_000, system_us: 500_000, minor_faults: 12, ..nodes[0] };
        JobInfo {
            job: 7,
            map: Some(TaskMap {
                nodes: vec![0, 4, 5],
                blocks: vec![Block { first_node: 0, nodes: 3, ranks_per_node: 2 }],
            }),
            node_names: vec!["n0".into(), "n1".into(), "n2".into()],
            started_ms: 1000,
            ended_ms: 3500,
            usage: Some(JobUsage { total: Some(total), unknown: vec![5], nodes }),
            ..JobInfo::default()
        }
    }

    #[test]
    fn a_jobs_usage_is_described_with_its_largest_rank_and_what_is_unknown() {
        let fields = fields(&ended());
        let text: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(
            text,
            [
                "cpu time: 7.0s user, 0.5s system; 75% of 2.5s on 4 ranks",
                "memory: 90.0 MiB at most in one process (rank 1 on n0)",
                "faults: 12 minor, 0 major",
                "switches: 0 voluntary, 0 involuntary",
                "unknown: usage on n2: no report came from there",
            ]
        );
        assert!(super::fields(&JobInfo::default()).is_empty());
    }

    #[test]
    fn nodes_are_listed_if_there_are_several() {
        let mut info = ended();
        let head = "NODE  RANKS  USER  SYSTEM   LARGEST  RANK  MINOR FAULTS  MAJOR FAULTS\n";
        let first = "n0        2  6.0s    0.2s  90.0 MiB     1             0             0\n";
        let others = "n1        2  1.0s    0.2s  40.0 MiB     2             0             0\n\
                      n2        2     ?       ?         ?     ?             ?             ?\n";
        assert_eq!(by_node(&info, None), format!("{head}{first}{others}"));
        let more = "and 2 nodes that have computed less: rsctl job show 7\n";
        assert_eq!(by_node(&info, Some(1)), format!("{head}{first}{more}"));
        info.usage.as_mut().unwrap().nodes.clear();
        assert_eq!(by_node(&info, None), "");
    }

    #[test]
    fn json_has_numbers_and_null_for_what_is_unknown() {
        let value = json(&ended());
        assert_eq!((&value["user_us"], &value["unknown_nodes"]), (&json!(7_000_000), &json!([5])));
        assert_eq!(value["efficiency"], json!(0.75));
        assert_eq!((json(&JobInfo::default()), of_node(&Usage::default())), (Value::Null, Value::Null));
    }
}
