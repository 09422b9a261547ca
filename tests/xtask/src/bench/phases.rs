//! Where the time of an Open MPI job goes, under rsd and under Open MPI's launcher: until a rank's `main`, in `MPI_Init`, in
//! `MPI_Finalize`, and until the launcher has ended. Part of `cargo xtask bench launch`.

use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use super::launch::{prterun, rsctl};
use super::turns::{Contender, turns};
use crate::places;
use crate::shell::quiet;
use crate::stage::Stage;

const ROUNDS: usize = 5;
const PHASES: [&str; 4] = ["to `main`", "MPI_Init", "MPI_Finalize", "to the end"];
/// Open MPI's modules without `ofi`, which sleeps for a second when it finds no network.
const WITHOUT_OFI: (&str, &str) = ("OMPI_MCA_btl", "self,sm,tcp");

/// Prints a table: medians of the rounds, of the slowest rank of each job.
pub(super) fn bench(stage: &Stage) -> anyhow::Result<()> {
    let program = stage.dir().join("phases");
    let mut compiler = Command::new(places::peer("openmpi")?.join("bin/mpicc"));
    quiet(compiler.args(["-O2", "-o"]).arg(&program).arg(places::root().join("tests/bench/mpi/phases.c")))?;
    println!("\n| Open MPI 5 without its `ofi` module, ms: rsctl, prterun | {} |", PHASES.join(" | "));
    println!("|---|---|---|---|---|");
    for n in ["2", "8", "32"] {
        let contenders: [Contender<'_>; 2] =
            [&|| rsctl(stage, &["run", "-n", n, "./phases"]), &|| prterun(stage, &["-n", n, "./phases"])];
        let mut all = [const { Vec::new() }; 2];
        for (round, at) in turns(contenders.len(), ROUNDS + 1) {
            let phases = measured(contenders[at]()?)?;
            if round > 0 {
                all[at].push(phases);
            }
        }
        let median = |runs: &[[f64; 4]], phase: usize| {
            let mut ms: Vec<f64> = runs.iter().map(|run| run[phase]).collect();
            ms.sort_by(f64::total_cmp);
            ms[ms.len() / 2]
        };
        let cells = (0..PHASES.len()).map(|at| format!("{:.0}, {:.0}", median(&all[0], at), median(&all[1], at)));
        println!("| np = {n} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

/// Runs a job once; returns its phases.
fn measured(mut command: Command) -> anyhow::Result<[f64; 4]> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let start = Instant::now();
    command.env(WITHOUT_OFI.0, WITHOUT_OFI.1).env("SINCE", since.as_nanos().to_string());
    let output = quiet(command.stdin(Stdio::null()))?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut most = [0.0_f64; 3];
    let mut last: f64 = 0.0;
    for line in text.lines() {
        let ms: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [main, init, finalize] = ms[..] else { anyhow::bail!("a rank printed {line:?}") };
        last = last.max(main + init + finalize);
        for (most, ms) in most.iter_mut().zip([main, init, finalize]) {
            *most = most.max(ms);
        }
    }
    anyhow::ensure!(last > 0.0, "no rank printed its phases");
    let [main, init, finalize] = most;
    Ok([main, init, finalize, took - last])
}
