//! What the user sees: the progress while hosts are worked on, and the table at the end.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::place::Why;
use crate::print::{self, Align, say, table};

/// What is being done with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Connecting,
    Looking,
    Copying,
    Starting,
    Stopping,
}

impl Phase {
    const ALL: [(Phase, &'static str); 6] = [
        (Phase::Waiting, "waiting"),
        (Phase::Connecting, "connecting"),
        (Phase::Looking, "looking"),
        (Phase::Copying, "copying"),
        (Phase::Starting, "joining"),
        (Phase::Stopping, "stopping"),
    ];
}

/// How the work on a host ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// In one or two words: "ready", "already up", "stopped".
    Done(&'static str),
    Failed(Why),
}

/// One host of the table.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) role: &'static str,
    phase: Phase,
    began: Option<Instant>,
    took: Option<Duration>,
    pub(crate) verdict: Option<Verdict>,
    pub(crate) version: String,
    pub(crate) node: Option<u32>,
    pub(crate) slots: Option<u32>,
}

/// All hosts.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    rows: Arc<Mutex<Vec<Row>>>,
    /// Suppresses lines about single hosts.
    quiet: bool,
}

impl Board {
    pub(crate) fn new(rows: impl IntoIterator<Item = (String, &'static str)>, quiet: bool) -> Board {
        let row = |(name, role)| Row {
            name,
            role,
            phase: Phase::Waiting,
            began: None,
            took: None,
            verdict: None,
            version: String::new(),
            node: None,
            slots: None,
        };
        Board { rows: Arc::new(Mutex::new(rows.into_iter().map(row).collect())), quiet }
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn phase(&self, at: usize, phase: Phase) {
        let row = &mut self.rows()[at];
        row.phase = phase;
        row.began.get_or_insert_with(Instant::now);
    }

    pub(crate) fn end(&self, at: usize, verdict: Verdict) {
        let line = {
            let row = &mut self.rows()[at];
            row.took = row.began.map(|began| began.elapsed());
            row.verdict = Some(verdict);
            format!("{}: {} after {:.1} s", row.name, row.text(), row.took.unwrap_or_default().as_secs_f64())
        };
        if !self.quiet && !is_terminal() {
            say(&line);
        }
    }

    /// Returns the progress on one line: `[####----] 4 of 8 done, 1 failed; connecting 2, joining 2`.
    fn line(&self) -> String {
        const WIDTH: usize = 24;
        let rows = self.rows();
        let failed = rows.iter().filter(|row| matches!(row.verdict, Some(Verdict::Failed(_)))).count();
        let done = rows.iter().filter(|row| row.verdict.is_some()).count();
        let filled = WIDTH * done / rows.len().max(1);
        let mut text = format!("[{}{}] {done} of {} done", "#".repeat(filled), "-".repeat(WIDTH - filled), rows.len());
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
        let phases = Phase::ALL.iter().filter_map(|(phase, name)| {
            let count = rows.iter().filter(|row| row.verdict.is_none() && row.phase == *phase).count();
            (count > 0).then(|| format!("{name} {count}"))
        });
        let phases: Vec<String> = phases.collect();
        if !phases.is_empty() {
            text.push_str(&format!("; {}", phases.join(", ")));
        }
        text
    }

    /// Shows the progress on the terminal until `work` has ended. `paused`: while the terminal is used otherwise.
    pub(crate) async fn shown<T>(&self, work: impl Future<Output = T>, paused: impl Fn() -> bool) -> T {
        tokio::pin!(work);
        if self.quiet || !is_terminal() {
            return work.await;
        }
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                done = &mut work => {
                    draw("");
                    return done;
                }
                _ = tick.tick() => if !paused() { draw(&self.line()) },
            }
        }
    }

    /// Tells the user something while the progress is shown.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && is_terminal() {
            draw("");
        }
        say(text);
    }

    /// Prints the table, or the JSON document of it.
    pub(crate) fn print(&self, name: &str, json: bool) -> Result<(), crate::exit::Failure> {
        let rows = self.rows();
        if json {
            let hosts: Vec<Value> = rows.iter().map(Row::json).collect();
            let document = crate::json::document(json!({ "dvm": name, "hosts": hosts }));
            return print::out(&(document + "\n"));
        }
        print::out(&text(&rows))
    }
}

fn text(rows: &[Row]) -> String {
    let dash = || "-".to_owned();
    let cells: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            [
                row.name.clone(),
                row.role.to_owned(),
                row.text().to_owned(),
                row.took.map_or_else(dash, |took| format!("{:.1}s", took.as_secs_f64())),
                row.node.map_or_else(dash, |node| node.to_string()),
                row.slots.map_or_else(dash, |slots| slots.to_string()),
                if row.version.is_empty() { dash() } else { row.version.clone() },
            ]
        })
        .collect();
    let columns = [
        ("HOST", Align::Left),
        ("ROLE", Align::Left),
        ("VERDICT", Align::Left),
        ("TIME", Align::Right),
        ("NODE", Align::Right),
        ("SLOTS", Align::Right),
        ("RSD", Align::Left),
    ];
    let mut text = table(columns, &cells);
    for row in rows {
        if let Some(Verdict::Failed(why)) = &row.verdict {
            text.push_str(&format!("\n{}: {}\n", row.name, print::visible(&why.text)));
            why.lines.iter().for_each(|line| text.push_str(&format!("  {}\n", print::one_line(line))));
        }
    }
    text
}

impl Row {
    fn text(&self) -> &'static str {
        match &self.verdict {
            Some(Verdict::Done(word)) => word,
            Some(Verdict::Failed(_)) => "failed",
            None => "not reached",
        }
    }

    fn json(&self) -> Value {
        let why = match &self.verdict {
            Some(Verdict::Failed(why)) => Some(why),
            Some(Verdict::Done(_)) | None => None,
        };
        json!({
            "host": self.name,
            "role": self.role,
            "verdict": self.text(),
            "ms": self.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            "node": self.node,
            "slots": self.slots,
            "version": Some(&self.version).filter(|version| !version.is_empty()),
            "error": why.map(|why| &why.text),
            "stderr": why.map(|why| &why.lines),
        })
    }
}

fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Replaces the line of the progress.
fn draw(line: &str) {
    let mut stderr = std::io::stderr();
    let width = terminal_size::terminal_size_of(&stderr).map_or(80, |(width, _)| usize::from(width.0));
    let shown: String = line.chars().take(width.saturating_sub(1)).collect();
    // The progress is for a person who looks: a failed write changes nothing.
    let _ = write!(stderr, "\r\x1b[K{shown}").and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_counts_hosts_and_the_table_gives_each_its_reason() {
        let board = Board::new([("a".into(), "head"), ("b".into(), "node"), ("c".into(), "node")], true);
        board.phase(1, Phase::Starting);
        board.end(0, Verdict::Done("ready"));
        let why = Why { text: "rsd start failed (exit code 1)".into(), lines: vec!["rsd: no \u{7}".into()] };
        board.end(2, Verdict::Failed(why));
        assert_eq!(board.line(), "[################--------] 2 of 3 done, 1 failed; joining 1");
        board.rows()[0].node = Some(0);
        board.rows()[0].slots = Some(0);
        board.rows()[0].version = "0.1.0".into();
        assert_eq!(
            text(&board.rows()),
            "\
HOST  ROLE  VERDICT      TIME  NODE  SLOTS  RSD
a     head  ready           -     0      0  0.1.0
b     node  not reached     -     -      -  -
c     node  failed          -     -      -  -

c: rsd start failed (exit code 1)
  rsd: no ^G
"
        );
    }
}
