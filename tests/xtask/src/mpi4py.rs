//! `cargo xtask mpi4py [RANKS]`: runs mpi4py's own tests with Open MPI 5, under rsd and under Open MPI's launcher, and compares which
//! of them fail. It fails if a test fails under rsd only.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Command;

use anyhow::Context;

use crate::places;
use crate::programs;
use crate::setup;
use crate::shell::{quiet, step};
use crate::stage::Stage;

/// Enough slots for all processes that the tests spawn at once.
const SLOTS: &str = "64";
/// The seconds after which a run is ended.
const DEADLINE: &str = "1200";

/// `cargo xtask mpi4py`.
pub(crate) fn mpi4py(args: &[OsString]) -> anyhow::Result<()> {
    const USAGE: &str = "usage: cargo xtask mpi4py [RANKS]";
    let ranks = match args {
        [] => "2",
        [ranks] => ranks.to_str().filter(|ranks| ranks.parse::<u32>().is_ok_and(|ranks| ranks > 0)).context(USAGE)?,
        [_, _, ..] => anyhow::bail!(USAGE),
    };
    setup::setup(&[])?;
    let tests = setup::mpi4py_source()?.join("test/main.py");
    let openmpi = places::peer("openmpi")?;
    let stage = Stage::set("mpi4py", programs::build()?)?;
    quiet(stage.command("rsd")?.args(["start", "--name", "mpi4py", "--slots", SLOTS]))?;
    let run = |name: &str, launcher: &[&str]| {
        step(&format!("mpi4py's tests on {ranks} ranks of Open MPI 5 under {name}"), || {
            let mut command = stage.command("timeout")?;
            command.args([DEADLINE]).args(launcher).args(["-n", ranks]).arg(openmpi.join("bin/python"));
            command.arg(&tests).args(["--no-builddir", "-q"]);
            outcome(&mut command)
        })
    };
    let prterun = openmpi.join("bin/prterun").display().to_string();
    let theirs = run("prterun", &[&prterun, "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"])?;
    let ours = run("rsd", &["rsctl", "run", "--oversubscribe"])?;
    quiet(stage.command("rsd")?.args(["stop", "--force", "--dvm", "mpi4py"]))?;
    println!("under prterun: {} of {} tests failed", theirs.failed.len(), theirs.tests);
    println!("under rsd: {} of {} tests failed", ours.failed.len(), ours.tests);
    for (name, failed) in [("prterun", &theirs.failed - &ours.failed), ("rsd", &ours.failed - &theirs.failed)] {
        failed.iter().for_each(|test| println!("only under {name}: {test}"));
    }
    (&theirs.failed & &ours.failed).iter().for_each(|test| println!("under both: {test}"));
    anyhow::ensure!(ours.tests >= theirs.tests, "rsd ran {} tests, prterun {}", ours.tests, theirs.tests);
    anyhow::ensure!(ours.failed.is_subset(&theirs.failed), "some tests failed under rsd only");
    Ok(())
}

/// What a run of the tests printed.
struct Outcome {
    tests: usize,
    /// Each on any rank.
    failed: BTreeSet<String>,
}

fn outcome(command: &mut Command) -> anyhow::Result<Outcome> {
    let output = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let failed = text.lines().filter_map(|line| line.strip_prefix("ERROR: ").or(line.strip_prefix("FAIL: ")));
    let tests = text.lines().filter_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok()).max();
    let tests = tests.with_context(|| format!("the tests did not end ({}):\n{text}", output.status))?;
    Ok(Outcome { tests, failed: failed.map(str::to_owned).collect() })
}
