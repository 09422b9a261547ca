//! `cargo xtask bench dvm [--against REVISION]`: how long daemons take to join, and jobs and fences over many daemons; the memory
//! of a link; and how many TLS handshakes a head bears. With `--against`, an earlier revision is measured in turn in the same run.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::launch::{private_kib, stop};
use super::turns::{Contender, Times, in_turn_for, turns};
use super::{before, machine};
use crate::places;
use crate::programs;
use crate::setup;
use crate::shell::{cargo, quiet, step};
use crate::stage::Stage;

const ROUNDS: usize = 9;
/// Daemons that join at once.
const JOINING: [usize; 3] = [1, 16, 256];
/// Daemons over which jobs and fences run.
const OVER: [usize; 2] = [4, 64];
const FENCES: &str = "300";
/// Daemons that join the head directly when the memory of a link is measured: the head's arity.
const LINKS: usize = 32;
const HANDSHAKES: &str = "2000";

/// The programs of one revision.
struct Revision {
    name: String,
    stage: Stage,
}

/// `cargo xtask bench dvm`.
pub(super) fn bench(args: &[std::ffi::OsString]) -> anyhow::Result<()> {
    let against = match args {
        [] => None,
        [option, revision] if option == "--against" => Some(revision.to_str().context("--against: not UTF-8")?),
        _ => bail!("usage: cargo xtask bench dvm [--against REVISION]"),
    };
    setup::for_building()?;
    let mut revisions = Vec::new();
    if let Some(revision) = against {
        let programs = before::build(revision)?;
        revisions.push(Revision { name: revision.to_owned(), stage: Stage::set("bench-before", programs)? });
    }
    let stage = Stage::set("bench-now", programs::build()?)?;
    revisions.push(Revision { name: "this checkout".to_owned(), stage });
    let fence = programs::examples()?.join("fence").display().to_string();
    println!("\n{}; medians of {ROUNDS} rounds in turn\n", machine()?);
    joining(&revisions)?;
    jobs(&revisions, &fence)?;
    links(&revisions)?;
    handshakes(&revisions[revisions.len() - 1].stage)
}

// --- joining ---

/// Measures daemons that are started at once and join a head that runs.
fn joining(revisions: &[Revision]) -> anyhow::Result<()> {
    println!(
        "| {} | ratio |",
        row("daemons that join at once", revisions.iter().map(|each| format!("{} (ms)", each.name)))
    );
    println!("{}", rule(revisions.len() + 2));
    for joining in JOINING {
        let rounds = if joining > 64 { 3 } else { ROUNDS };
        let mut times = vec![Vec::new(); revisions.len()];
        for (round, at) in turns(revisions.len(), rounds + 1) {
            let stage = &revisions[at].stage;
            let head = start_head(stage)?;
            let since = Instant::now();
            join(stage, &head, joining)?;
            let took = since.elapsed();
            stop(stage, "node0")?;
            // The first round is a warm-up.
            if round > 0 {
                times[at].push(took.as_secs_f64() * 1e3);
            }
        }
        print_row(&joining.to_string(), times, 0);
    }
    println!();
    Ok(())
}

fn start_head(stage: &Stage) -> anyhow::Result<String> {
    quiet(stage.command("rsd")?.args(["start", "--name", "node0", "--slots", "1", "--listen", "127.0.0.1:0"]))?;
    stage.listen("node0")
}

/// Starts daemons at once; returns when all have joined.
fn join(stage: &Stage, head: &str, count: usize) -> anyhow::Result<()> {
    let daemons = (1..=count).map(|node| {
        let mut command = stage.command("rsd")?;
        command.args(["start", "--name", &format!("node{node}"), "--slots", "1", "--join", head]);
        Ok(command.stdout(Stdio::null()).spawn()?)
    });
    for mut daemon in daemons.collect::<anyhow::Result<Vec<_>>>()? {
        anyhow::ensure!(daemon.wait()?.success(), "a daemon failed to join");
    }
    Ok(())
}

// --- jobs and fences ---

/// Measures a job of `true` with one rank on each daemon, from `rsctl`'s start to its end, and fences of one rank per daemon.
fn jobs(revisions: &[Revision], fence: &str) -> anyhow::Result<()> {
    println!("| {} | ratio |", row("one rank on each daemon", revisions.iter().map(|each| each.name.clone())));
    println!("{}", rule(revisions.len() + 2));
    for nodes in OVER {
        for revision in revisions {
            let head = start_head(&revision.stage)?;
            join(&revision.stage, &head, nodes - 1)?;
        }
        let ranks = nodes.to_string();
        let run = |stage: &Stage, program: &[&str]| -> anyhow::Result<Command> {
            let mut command = stage.command("rsctl")?;
            command.args(["run", "--dvm", "node0", "-n", &ranks, "--map-by", "node"]).args(program);
            Ok(command)
        };
        let starts: Vec<_> = revisions.iter().map(|each| || run(&each.stage, &["true"])).collect();
        let contenders: Vec<Contender<'_>> = starts.iter().map(|start| start as Contender<'_>).collect();
        let times = in_turn_for(&contenders, ROUNDS)?;
        let cells = times.iter().map(|times| times.text());
        println!("| {} | {} |", row(&format!("`true` over {nodes} (ms)"), cells), ratio(&times));
        let mut figures = [vec![Vec::new(); revisions.len()], vec![Vec::new(); revisions.len()]];
        for (round, at) in turns(revisions.len(), ROUNDS + 1) {
            let output = quiet(&mut run(&revisions[at].stage, &[fence, FENCES])?)?;
            let told: serde_json::Value = serde_json::from_slice(&output.stdout).context("read what `fence` prints")?;
            for (figure, name) in figures.iter_mut().zip(["median_us", "p99_us"]) {
                let value = told[name].as_f64().with_context(|| format!("`fence` prints no {name}"))?;
                if round > 0 {
                    figure[at].push(value);
                }
            }
        }
        let [median, late] = figures;
        print_row(&format!("fence over {nodes}, median of {FENCES} (us)"), median, 0);
        print_row(&format!("fence over {nodes}, 99 % within (us)"), late, 0);
        for revision in revisions {
            stop(&revision.stage, "node0")?;
        }
    }
    println!();
    Ok(())
}

// --- memory ---

/// Measures how much private memory of the head a child costs, and a daemon itself.
fn links(revisions: &[Revision]) -> anyhow::Result<()> {
    println!("| {} | ratio |", row("private memory", revisions.iter().map(|each| format!("{} (KiB)", each.name))));
    println!("{}", rule(revisions.len() + 2));
    let (mut per_link, mut per_daemon) = (Vec::new(), Vec::new());
    for Revision { stage, .. } in revisions {
        let head = start_head(stage)?;
        std::thread::sleep(Duration::from_secs(1));
        let alone = private_kib(stage, 0)?;
        join(stage, &head, LINKS)?;
        std::thread::sleep(Duration::from_secs(1));
        let grown = private_kib(stage, 0)?.saturating_sub(alone);
        per_link.push(vec![grown as f64 / LINKS as f64]);
        per_daemon.push((1..=LINKS).map(|node| Ok(private_kib(stage, node)? as f64)).collect::<anyhow::Result<_>>()?);
        stop(stage, "node0")?;
    }
    print_row("of the head, for each child", per_link, 0);
    print_row("of a daemon without children", per_daemon, 0);
    println!();
    Ok(())
}

// --- handshakes ---

/// Measures how many callers with a certificate the head admits per second, and the processor time of each.
fn handshakes(stage: &Stage) -> anyhow::Result<()> {
    let program = step("build the caller", || {
        quiet(&mut cargo(["build", "--package=rsd-proto", "--example=handshakes"]))?;
        Ok(places::binaries()?.join("examples/handshakes"))
    })?;
    let head = start_head(stage)?;
    let token = quiet(stage.command("rsd")?.args(["token", "new", "--dvm", "node0"]))?;
    let token = String::from_utf8(token.stdout)?;
    let token = token.split_whitespace().find(|word| word.starts_with("rsd1-")).context("no token was printed")?;
    let config = stage.dir().join("config");
    quiet(stage.command("rsctl")?.env("XDG_CONFIG_HOME", &config).args(["login", &head, "--token", token]))?;
    let login: PathBuf = config.join("rsd/logins").join(&head);
    let before = processor_time(stage)?;
    let output = quiet(Command::new(program).arg(&head).arg(login).arg(HANDSHAKES))?;
    let spent = processor_time(stage)? - before;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).context("read what `handshakes` prints")?;
    let [per_second, count] = ["per_s", "count"].map(|name| told[name].as_f64().unwrap_or(f64::NAN));
    println!("\n| TLS handshakes with the head | |\n|---|---|");
    println!("| per second, {count} by one caller, eight at a time | {per_second:.0} |");
    println!("| processor time of the head for each | {:.2} ms |", spent.as_secs_f64() * 1e3 / count);
    stop(stage, "node0")
}

/// The processor time of the head until now, from the scheduler's statistics.
fn processor_time(stage: &Stage) -> anyhow::Result<Duration> {
    let path = format!("/proc/{}/schedstat", stage.pid("node0")?);
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok()).with_context(|| format!("parse {path}"))?;
    Ok(Duration::from_nanos(ns))
}

// --- tables ---

fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    std::iter::once(first.to_owned()).chain(cells).collect::<Vec<_>>().join(" | ")
}

fn rule(columns: usize) -> String {
    format!("|{}", "---|".repeat(columns))
}

fn ratio(times: &[Times]) -> String {
    match times {
        [before, now] => now.over(before),
        _ => "–".to_owned(),
    }
}

/// Prints the median of each revision, and the ratio of the last to the first.
fn print_row(name: &str, values: Vec<Vec<f64>>, digits: usize) {
    let medians: Vec<f64> = values
        .into_iter()
        .map(|mut values| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        })
        .collect();
    let cells = medians.iter().map(|median| format!("{median:.digits$}"));
    let ratio = match medians[..] {
        [before, now] => format!("{:.2}", now / before),
        _ => "–".to_owned(),
    };
    println!("| {} | {ratio} |", row(name, cells));
}
