//! `cargo xtask bench launch`: the time to start and end jobs, compared with the launchers of MPICH and Open MPI; the time to
//! form a DVM and the memory of its daemons; the time of a fence.
//!
//! Contenders run in turn, round after round, so that other load on the machine affects all of them alike. The bench
//! prints medians; tests/bench/README.md has a table of them.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use super::figures::mark;
use super::turns::{Contender, Times, in_turn, in_turn_for};
use super::{ROUNDS, machine, phases};
use crate::places;
use crate::programs;
use crate::setup;
use crate::shell::quiet;
use crate::stage::Stage;

const FENCES: &str = "300";

/// `cargo xtask bench launch`.
pub(super) fn bench() -> anyhow::Result<()> {
    setup::setup(&[])?;
    let stage = Stage::set("bench", programs::build()?)?;
    println!("\n{}; medians of {ROUNDS} in turn\n", machine()?);
    launches(&stage)?;
    worlds(&stage)?;
    open_mpi_worlds(&stage)?;
    forming(&stage)?;
    fences(&stage)
}

/// Measures `true` under each launcher, and the first job where no daemon runs.
fn launches(stage: &Stage) -> anyhow::Result<()> {
    start(stage, &["--name", "launch", "--slots", "256"])?;
    println!(
        "| `true`, n = | rsctl (ms) | Hydra (ms) | prterun (ms) | rsctl / Hydra | 99 % within: rsctl (ms) | Hydra (ms) |\n\
         |---|---|---|---|---|---|---|"
    );
    for (n, more) in [("1", 100), ("16", 100), ("64", 50), ("256", 15)] {
        let ours = || rsctl(stage, &["run", "-n", n, "true"]);
        let hydra = || mpich(stage, &["-n", n, "true"]);
        row(n, &ours, &hydra, Some(&|| prterun(stage, &["-n", n, "true"])), more)?;
    }
    // Where no daemon is found, `rsctl` starts one for the job.
    let empty = stage.dir().join("no-daemon");
    fs::create_dir(&empty).with_context(|| format!("create {}", empty.display()))?;
    let first = || {
        let mut command = rsctl(stage, &["run", "-n", "1", "true"])?;
        command.env("RSD_RUNTIME_DIR", &empty).env("RSD_STATE_DIR", empty.join("state"));
        Ok(command)
    };
    row("1, no daemon runs", &first, &|| mpich(stage, &["-n", "1", "true"]), None, 40)?;
    stop(stage, "launch")
}

/// Measures one row: all launchers in turn, and then rsctl and Hydra for `more` rounds, because prterun takes long and may hang.
fn row(
    name: &str,
    ours: Contender<'_>,
    hydra: Contender<'_>,
    prterun: Option<Contender<'_>>,
    more: usize,
) -> anyhow::Result<()> {
    let all: Vec<Contender<'_>> = [ours, hydra].into_iter().chain(prterun).collect();
    let mut times = in_turn_for(&all, ROUNDS)?;
    for (times, further) in times.iter_mut().zip(in_turn_for(&all[..2], more)?) {
        times.extend(further);
    }
    let (ours, hydra) = (&times[0], &times[1]);
    let prterun = times.get(2).map_or("–".to_owned(), Times::text);
    let (most, of_hydra) = (ours.most_text(), hydra.most_text());
    println!(
        "| {name} | {} | {} | {prterun} | {} | {most} | {of_hydra} |",
        ours.text(),
        hydra.text(),
        ours.over(hydra)
    );
    Ok(())
}

/// Measures a whole MPI job: MPI_Init, one collective, MPI_Finalize.
fn worlds(stage: &Stage) -> anyhow::Result<()> {
    hello(stage, "mpich")?;
    start(stage, &["--name", "worlds", "--slots", "256"])?;
    println!("\n| MPICH 5 hello, np = | rsctl (ms) | Hydra (ms) | rsctl / Hydra |\n|---|---|---|---|");
    for n in ["2", "8", "32"] {
        let [ours, hydra] = in_turn([&|| rsctl(stage, &["run", "-n", n, "./hello-mpich"]), &|| {
            mpich(stage, &["-n", n, "./hello-mpich"])
        }])?;
        println!("| {n} | {} | {} | {} |", ours.text(), hydra.text(), ours.over(&hydra));
    }
    stop(stage, "worlds")
}

/// Measures the same job with Open MPI, which starts over PMIx.
fn open_mpi_worlds(stage: &Stage) -> anyhow::Result<()> {
    const MARK: f64 = 0.8;
    hello(stage, "openmpi")?;
    start(stage, &["--name", "worlds", "--slots", "256"])?;
    println!(
        "\n| Open MPI 5 hello, np = | rsctl (ms) | prterun (ms) | rsctl / prterun | mark |\n|---|---|---|---|---|"
    );
    for n in ["2", "8", "32"] {
        let [ours, prterun] = in_turn([&|| rsctl(stage, &["run", "-n", n, "./hello-openmpi"]), &|| {
            prterun(stage, &["-n", n, "./hello-openmpi"])
        }])?;
        let met = ours.median().zip(prterun.median()).is_some_and(|(ours, theirs)| ours <= MARK * theirs);
        println!("| {n} | {} | {} | {} | {} |", ours.text(), prterun.text(), ours.over(&prterun), mark(met));
    }
    phases::bench(stage)?;
    stop(stage, "worlds")
}

/// Compiles `hello` with the MPI of a peer.
pub(super) fn hello(stage: &Stage, peer: &str) -> anyhow::Result<()> {
    let mut compiler = Command::new(places::peer(peer)?.join("bin/mpicc"));
    let program = stage.dir().join(format!("hello-{peer}"));
    let source = places::root().join("tests/programs/hello.c");
    quiet(compiler.args(["-O2", "-o"]).arg(program).arg(source)).map(drop)
}

/// Measures a DVM of 64 daemons that all join at once.
fn forming(stage: &Stage) -> anyhow::Result<()> {
    const NODES: usize = 64;
    let since = Instant::now();
    form(stage, NODES, 1)?;
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

/// Measures fences of the library's PMI client, one rank per daemon.
fn fences(stage: &Stage) -> anyhow::Result<()> {
    let program = programs::examples()?.join("fence").display().to_string();
    println!("\n| fence over | median (us) | fastest (us) | 99 % within (us) |\n|---|---|---|---|");
    for nodes in [1, 8, 64] {
        form(stage, nodes, 1)?;
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

// --- commands ---

pub(super) fn rsctl(stage: &Stage, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command("rsctl")?;
    command.args(args);
    Ok(command)
}

fn mpich(stage: &Stage, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command(places::peer("mpich")?.join("bin/mpiexec.hydra"))?;
    command.args(args);
    Ok(command)
}

pub(super) fn prterun(stage: &Stage, args: &[&str]) -> anyhow::Result<Command> {
    let mut command = stage.command(places::peer("openmpi")?.join("bin/prterun"))?;
    command.args(["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]).args(args);
    Ok(command)
}

pub(super) fn start(stage: &Stage, args: &[&str]) -> anyhow::Result<()> {
    quiet(stage.command("rsd")?.arg("start").args(args)).map(drop)
}

pub(super) fn stop(stage: &Stage, daemon: &str) -> anyhow::Result<()> {
    quiet(stage.command("rsd")?.args(["stop", "--force", "--dvm", daemon])).map(drop)
}

/// Starts a head and, all at once, the daemons that join it; returns when all are ready.
pub(super) fn form(stage: &Stage, nodes: usize, slots: usize) -> anyhow::Result<()> {
    let slots = slots.to_string();
    start(stage, &["--name", "node0", "--slots", &slots, "--listen", "127.0.0.1:0"])?;
    let head = stage.listen("node0")?;
    let joining = (1..nodes).map(|node| {
        let mut command = stage.command("rsd")?;
        command.args(["start", "--name", &format!("node{node}"), "--slots", &slots, "--join", &head]);
        Ok(command.stdout(Stdio::null()).spawn()?)
    });
    for mut daemon in joining.collect::<anyhow::Result<Vec<_>>>()? {
        anyhow::ensure!(daemon.wait()?.success(), "a daemon failed to join");
    }
    Ok(())
}

pub(super) fn private_kib(stage: &Stage, node: usize) -> anyhow::Result<u64> {
    let path = format!("/proc/{}/smaps_rollup", stage.pid(&format!("node{node}"))?);
    let rollup = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}
