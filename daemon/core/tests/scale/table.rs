//! The table of ARCHITECTURE.md.

use std::fmt::Write as _;
use std::time::Duration;

use crate::meter::Cost;
use crate::phases::PHASES;

pub(crate) fn table(sizes: &[usize], runs: &[Vec<Cost>]) -> String {
    let mut text = String::from(
        "| phase | nodes | rounds | messages | bytes | largest | at the head | logged | head | inner node | leaf |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (at, phase) in PHASES.iter().enumerate() {
        for (nodes, costs) in sizes.iter().zip(runs) {
            let Cost { rounds, messages, bytes, largest, at_head, head_bytes, written, memory, time } = &costs[at];
            let parts: Vec<String> =
                memory.iter().zip(time).map(|(memory, time)| format!("{}, {}", size(*memory), ms(*time))).collect();
            let _ = writeln!(
                text,
                "| {phase} | {nodes} | {rounds} | {messages} | {} | {} | {at_head}, {} | {} | {} |",
                size(*bytes),
                size(*largest),
                size(*head_bytes),
                size(*written),
                parts.join(" | ")
            );
        }
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", (bytes + 500) / 1000),
        _ => format!("{} MB", (bytes + 500_000) / 1_000_000),
    }
}

fn ms(time: Duration) -> String {
    match time.as_secs_f64() * 1000.0 {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms => format!("{ms:.0} ms"),
    }
}
