//! What many daemons on one machine cost: to form a DVM, to start, fence and end jobs with four ranks on each, and in memory, threads and
//! descriptors. Part of `cargo xtask bench scale`.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;

use super::launch::{form, hello, rsctl, stop};
use super::machine;
use crate::programs;
use crate::setup;
use crate::shell::quiet;
use crate::stage::Stage;

const DAEMONS: [usize; 3] = [16, 64, 256];
const SLOTS: usize = 4;
const ROUNDS: usize = 5;
const FENCES: &str = "30";
/// MPICH's ranks poll while they wait: with 1,024 of them on two processors, its own time-outs expire.
const MPICH_RANKS_MAX: usize = 256;

/// The figures of one size, by their row's name; rows are sorted by their first appearance.
#[derive(Default)]
struct Column(Vec<(&'static str, String)>);

impl Column {
    fn ms(&mut self, row: &'static str, values: Vec<f64>) {
        let text = if values.is_empty() { "–".to_owned() } else { format!("{:.0}", median(values)) };
        self.0.push((row, text));
    }

    fn count(&mut self, row: &'static str, value: u64) {
        self.0.push((row, value.to_string()));
    }

    fn kib(&mut self, row: &'static str, value: u64) {
        self.0.push((row, format!("{:.1}", value as f64 / 1024.0)));
    }
}

/// Prints a table with a column for each size.
pub(super) fn bench() -> anyhow::Result<()> {
    setup::setup(&[])?;
    let stage = Stage::set("bench-scale", programs::build()?)?;
    let fence = programs::examples()?.join("fence").display().to_string();
    hello(&stage, "mpich")?;
    println!("\n{}; medians of {ROUNDS} rounds, each with daemons of its own on this machine\n", machine()?);
    let columns = DAEMONS.iter().map(|daemons| column(&stage, *daemons, &fence)).collect::<anyhow::Result<Vec<_>>>()?;
    let heads = DAEMONS.map(|daemons| format!("{daemons} daemons, {} ranks", daemons * SLOTS));
    println!("| | {} |\n|---|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for (at, (row, _)) in columns[0].0.iter().enumerate() {
        let cells: Vec<&str> = columns.iter().map(|column| column.0[at].1.as_str()).collect();
        println!("| {row} | {} |", cells.join(" | "));
    }
    Ok(())
}

fn column(stage: &Stage, daemons: usize, fence: &str) -> anyhow::Result<Column> {
    let ranks = (daemons * SLOTS).to_string();
    let mut column = Column::default();
    let mut formed = Vec::new();
    for round in 0..ROUNDS {
        let since = Instant::now();
        form(stage, daemons, SLOTS)?;
        formed.push(ms(since.elapsed()));
        if round + 1 < ROUNDS {
            stop(stage, "node0")?;
        }
    }
    column.ms("from nothing to all joined (ms)", formed);
    // The daemons' reserve steps start.
    std::thread::sleep(Duration::from_secs(2));
    jobs(stage, daemons, &ranks, fence, &mut column)?;
    memory(stage, daemons, &ranks, &mut column)?;
    let since = Instant::now();
    stop(stage, "node0")?;
    column.ms("`rsd stop` of the head, until all have ended (ms)", vec![ms(since.elapsed())]);
    Ok(column)
}

fn jobs(stage: &Stage, daemons: usize, ranks: &str, fence: &str, column: &mut Column) -> anyhow::Result<()> {
    let timed = |args: &[&str], rounds: usize| -> anyhow::Result<Vec<f64>> {
        (0..rounds)
            .map(|_| {
                let since = Instant::now();
                quiet(&mut rsctl(stage, args)?)?;
                let took = ms(since.elapsed());
                std::thread::sleep(Duration::from_secs(1));
                Ok(took)
            })
            .collect()
    };
    let before = processor_ms(stage, daemons)?;
    let took = timed(&["run", "-n", ranks, "true"], ROUNDS)?;
    let spent = processor_ms(stage, daemons)? - before;
    column.ms("`true`, from `rsctl`'s start to its end (ms)", took);
    column.ms("`true`, processor time of all daemons, without steps (ms)", vec![spent / ROUNDS as f64]);
    let mut phases: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let began = unix_ms()?;
        let output = quiet(&mut rsctl(stage, &["run", "-n", ranks, fence, FENCES])?)?;
        let ended = unix_ms()?;
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).context("read what `fence` prints")?;
        let figure = |name: &str| told[name].as_f64().with_context(|| format!("`fence` prints no {name}"));
        let all = [
            ("met", figure("met_unix_ms")? - began),
            ("median", figure("median_us")? / 1e3),
            ("p99", figure("p99_us")? / 1e3),
            ("end", ended - figure("done_unix_ms")?),
        ];
        all.into_iter().for_each(|(name, value)| phases.entry(name).or_default().push(value));
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut of = |name: &str| phases.remove(name).unwrap_or_default();
    column.ms("PMI program, from `rsctl`'s start until all ranks have met in a fence (ms)", of("met"));
    column.ms("a fence to which each rank puts a key, median (ms)", of("median"));
    column.ms("the same, 99 % within (ms)", of("p99"));
    column.ms("from the last fence to `rsctl`'s end (ms)", of("end"));
    let took = match daemons * SLOTS <= MPICH_RANKS_MAX {
        true => timed(&["run", "-n", ranks, "./hello-mpich"], ROUNDS)?,
        false => Vec::new(),
    };
    column.ms("MPICH 5 hello, from `rsctl`'s start to its end (ms)", took);
    Ok(())
}

/// Measures daemons and steps while a job runs, and how long it takes to cancel it.
fn memory(stage: &Stage, daemons: usize, ranks: &str, column: &mut Column) -> anyhow::Result<()> {
    let submitted = quiet(&mut rsctl(stage, &["submit", "-n", ranks, "sleep", "3600"])?)?;
    let job = String::from_utf8(submitted.stdout)?.trim().to_owned();
    std::thread::sleep(Duration::from_secs(3));
    let pids = (0..daemons).map(|node| stage.pid(&format!("node{node}"))).collect::<anyhow::Result<Vec<_>>>()?;
    let of = |pids: &[u64], what: fn(u64) -> anyhow::Result<u64>| -> anyhow::Result<Vec<u64>> {
        let mut all = pids.iter().map(|pid| what(*pid)).collect::<anyhow::Result<Vec<_>>>()?;
        all.sort_unstable();
        Ok(all)
    };
    let (mut running, mut reserve) = (Vec::new(), Vec::new());
    for step in pids.iter().map(|pid| children(*pid)).collect::<anyhow::Result<Vec<_>>>()?.concat() {
        if children(step)?.is_empty() { reserve.push(step) } else { running.push(step) }
    }
    anyhow::ensure!(running.len() == daemons, "{} of {daemons} steps run", running.len());
    let private = of(&pids[1..], private_kib)?;
    column.kib("private memory of the head (MiB)", private_kib(pids[0])?);
    column.kib("of the other daemons, largest (MiB)", private.last().copied().unwrap_or_default());
    column.kib("of the other daemons, median (MiB)", private[private.len() / 2]);
    column.kib("of a step with four ranks, median (MiB)", of(&running, private_kib)?[daemons / 2]);
    column.kib("of a step in reserve, median (MiB)", of(&reserve, private_kib)?[reserve.len() / 2]);
    column.count("threads of the head", threads(pids[0])?);
    column.count("threads of another daemon, most", of(&pids[1..], threads)?.pop().unwrap_or_default());
    column.count("threads of a step, most", of(&running, threads)?.pop().unwrap_or_default());
    column.count("descriptors of the head", descriptors(pids[0])?);
    column.count("descriptors of another daemon, most", of(&pids[1..], descriptors)?.pop().unwrap_or_default());
    let since = Instant::now();
    quiet(&mut rsctl(stage, &["cancel", &job])?)?;
    // The code says how the job ended.
    rsctl(stage, &["wait", &job])?.stderr(Stdio::null()).stdout(Stdio::null()).status()?;
    column.ms("from `rsctl cancel` of a job that sleeps to its end (ms)", vec![ms(since.elapsed())]);
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn unix_ms() -> anyhow::Result<f64> {
    Ok(ms(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

// --- what the kernel knows of a process ---

fn read(pid: u64, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

fn private_kib(pid: u64) -> anyhow::Result<u64> {
    let rollup = read(pid, "smaps_rollup")?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

fn entries(pid: u64, folder: &str) -> anyhow::Result<Vec<String>> {
    let path = format!("/proc/{pid}/{folder}");
    let found = fs::read_dir(&path).with_context(|| format!("read {path}"))?;
    Ok(found.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn threads(pid: u64) -> anyhow::Result<u64> {
    Ok(entries(pid, "task")?.len() as u64)
}

fn descriptors(pid: u64) -> anyhow::Result<u64> {
    Ok(entries(pid, "fd")?.len() as u64)
}

fn children(pid: u64) -> anyhow::Result<Vec<u64>> {
    let mut all = Vec::new();
    for thread in entries(pid, "task")? {
        let text = read(pid, &format!("task/{thread}/children"))?;
        all.extend(text.split_whitespace().filter_map(|child| child.parse::<u64>().ok()));
    }
    Ok(all)
}

/// The processor time of all daemons until now.
fn processor_ms(stage: &Stage, daemons: usize) -> anyhow::Result<f64> {
    let mut ns = 0;
    for node in 0..daemons {
        let pid = stage.pid(&format!("node{node}"))?;
        for thread in entries(pid, "task")? {
            // A thread may have ended meanwhile.
            let text = read(pid, &format!("task/{thread}/schedstat")).unwrap_or_default();
            ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default();
        }
    }
    Ok(ns as f64 / 1e6)
}
