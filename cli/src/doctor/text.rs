//! The report of `rsctl doctor`, for people and as JSON.

use serde_json::{Value, json};

use super::checks::{Finding, Level, Report};
use super::node::{Looked, Reached};
use crate::look::{Look, Paint};
use crate::print::{self, Align, table, visible};

/// Returns tables of nodes and ways, then what is wrong and how to mend it.
pub(super) fn text(report: &Report, look: Look) -> String {
    let mut text = nodes(report);
    if !report.ways.is_empty() {
        text += &format!("\n{}", ways(report));
    }
    text.push('\n');
    for finding in &report.findings {
        let (word, paint) = match finding.level {
            Level::Error => ("error", Paint::Hue(5)),
            Level::Warning => ("warning", Paint::Hue(1)),
        };
        let line = format!("{}: {}", subject(finding), finding.text);
        let mend = look.paint(&visible(&finding.mend), Paint::Code);
        text += &format!("{}: {}\n  mend: {mend}\n", look.paint(word, paint), visible(&line));
    }
    let count = |level| report.findings.iter().filter(|finding| finding.level == level).count();
    let s = |count: usize| if count == 1 { "" } else { "s" };
    let (errors, warnings, nodes) = (count(Level::Error), count(Level::Warning), report.nodes.len());
    text + &match (errors, warnings) {
        (0, 0) => format!("all is well on {nodes} node{}\n", s(nodes)),
        _ => format!("{errors} error{}, {warnings} warning{}\n", s(errors), s(warnings)),
    }
}

fn subject(finding: &Finding) -> String {
    match &finding.other {
        Some(other) => format!("{} to {other}", finding.node),
        None => finding.node.clone(),
    }
}

fn nodes(report: &Report) -> String {
    let columns = [
        ("NODE", Align::Left),
        ("RSD", Align::Left),
        ("FILES", Align::Right),
        ("PROCESSES", Align::Right),
        ("MEMLOCK", Align::Right),
        ("/DEV/SHM FREE", Align::Left),
        ("PTRACE", Align::Right),
        ("XPMEM", Align::Left),
        ("KNEM", Align::Left),
        ("HUGE PAGES FREE", Align::Left),
        ("GPUS", Align::Left),
    ];
    let limit = |limit: Option<u64>| limit.map_or_else(|| "any".to_owned(), |limit| limit.to_string());
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let rows: Vec<[String; 11]> = report
        .nodes
        .iter()
        .map(|(name, version, looked)| {
            let Some(it) = looked else {
                let mut row: [String; 11] = std::array::from_fn(|_| "-".to_owned());
                (row[0], row[1]) = (name.clone(), version.clone());
                return row;
            };
            let gpus = match (it.nvidia_gpus, it.nvidia_driver.as_str()) {
                (0, _) => "-".to_owned(),
                (gpus, "") => format!("{gpus}, no driver"),
                (gpus, driver) => format!("{gpus}, driver {driver}"),
            };
            [
                name.clone(),
                version.clone(),
                limit(it.nofile),
                limit(it.nproc),
                it.memlock_bytes.map_or_else(|| "any".to_owned(), print::bytes),
                format!("{} of {}", print::bytes(it.shm_free_bytes), print::bytes(it.shm_bytes)),
                it.ptrace_scope.map_or_else(|| "-".to_owned(), |scope| scope.to_string()),
                yes(it.xpmem),
                yes(it.knem),
                format!("{} of {}", it.hugepages_free, it.hugepages),
                gpus,
            ]
        })
        .collect();
    table(columns, &rows)
}

fn ways(report: &Report) -> String {
    let columns = [
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("AT", Align::Left),
        ("ROUND TRIP", Align::Right),
        ("BANDWIDTH", Align::Right),
        ("CLOCK AHEAD", Align::Right),
    ];
    let dash = || "-".to_owned();
    let row = |(from, to, way): &(String, String, Reached)| {
        [
            from.clone(),
            to.clone(),
            if way.host.is_empty() { "unreachable".to_owned() } else { way.host.clone() },
            way.rtt_us.map_or_else(dash, |us| format!("{us} us")),
            way.bytes_per_second.map_or_else(dash, |rate| format!("{}/s", print::bytes(rate))),
            way.ahead_ms.map_or_else(dash, |ms| format!("{ms} ms")),
        ]
    };
    table(columns, &report.ways.iter().map(row).collect::<Vec<_>>())
}

/// Returns the report as JSON.
pub(super) fn document(report: &Report) -> Value {
    let node = |(name, version, looked): &(String, String, Option<Looked>)| json!({ "name": name, "version": version, "looked": looked });
    let way = |(from, to, way): &(String, String, Reached)| {
        json!({
            "from": from,
            "to": to,
            "host": (!way.host.is_empty()).then_some(&way.host),
            "error": (!way.error.is_empty()).then_some(&way.error),
            "rtt_us": way.rtt_us,
            "bytes_per_second": way.bytes_per_second,
            "ahead_ms": way.ahead_ms,
        })
    };
    let finding = |finding: &Finding| {
        json!({
            "level": match finding.level { Level::Warning => "warning", Level::Error => "error" },
            "check": finding.check,
            "node": finding.node,
            "other": finding.other,
            "text": finding.text,
            "mend": finding.mend,
        })
    };
    json!({
        "nodes": report.nodes.iter().map(node).collect::<Vec<_>>(),
        "ways": report.ways.iter().map(way).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::checks::report;
    use super::super::checks::tests::{healthy, node, way};
    use super::*;

    #[test]
    fn every_finding_has_the_line_that_mends_it() {
        let mut poor = healthy();
        poor.ptrace_scope = Some(1);
        let report = report(&[node("a", Some(poor)), node("b", None)], &[], vec![way(0, 1)]);
        let text = text(&report, Look::PLAIN);
        assert!(text.contains("a     b   10.0.0.1      100 us  1.0 GiB/s         0 ms\n"), "{text}");
        assert!(
            text.contains("error: b: rsctl cannot run there: it did not answer in time\n  mend: install rsctl on b "),
            "{text}"
        );
        assert!(text.contains("\n  mend: on a: sysctl -w kernel.yama.ptrace_scope=0\n"), "{text}");
        assert!(text.ends_with("1 error, 1 warning\n"), "{text}");
        let value = document(&report);
        assert_eq!((&value["findings"][0]["level"], &value["findings"][1]["check"]), (&"error".into(), &"cma".into()));
    }
}
