//! `cargo xtask bench hangs [JOBS]`: how many of a series of jobs hang or fail, under rsd and under Open MPI's launcher.
//!
//! The jobs of one launcher follow each other without a pause, so that one starts while the last one's processes still exit.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::launch::{hello, prterun, rsctl, start, stop};
use super::machine;
use super::turns::{Contender, Run, timed_after};
use crate::programs;
use crate::setup;
use crate::stage::Stage;

const JOBS: usize = 200;

/// A kind of job.
struct Kind {
    name: &'static str,
    ranks: &'static str,
    program: &'static str,
    /// A job that takes longer counts as hung: a multiple of the usual time.
    deadline: Duration,
    /// The kind makes this part of the jobs.
    one_in: usize,
}

const KINDS: [Kind; 2] = [
    Kind { name: "`true`", ranks: "64", program: "true", deadline: Duration::from_secs(5), one_in: 1 },
    Kind {
        name: "Open MPI 5 hello",
        ranks: "8",
        program: "./hello-openmpi",
        deadline: Duration::from_secs(60),
        one_in: 10,
    },
];

/// `cargo xtask bench hangs`.
pub(super) fn bench(args: &[OsString]) -> anyhow::Result<()> {
    const USAGE: &str = "usage: cargo xtask bench hangs [JOBS]";
    let jobs = match args {
        [] => JOBS,
        [count] => count.to_str().and_then(|count| count.parse().ok()).filter(|count| *count > 0).context(USAGE)?,
        [_, _, ..] => anyhow::bail!(USAGE),
    };
    setup::setup(&[])?;
    let stage = Stage::set("bench-hangs", programs::build()?)?;
    hello(&stage, "openmpi")?;
    start(&stage, &["--name", "hangs", "--slots", "64"])?;
    println!("\n{}\n", machine()?);
    println!("| jobs | rsctl: hung, failed | prterun: hung, failed |\n|---|---|---|");
    for Kind { name, ranks, program, deadline, one_in } in KINDS {
        let count = jobs.div_ceil(one_in);
        let ours = || rsctl(&stage, &["run", "-n", ranks, program]);
        let theirs = || prterun(&stage, &["-n", ranks, program]);
        let ours = trouble(&ours, count, deadline)?;
        let theirs = trouble(&theirs, count, deadline)?;
        println!("| {count} of {ranks} ranks of {name} | {ours} | {theirs} |");
    }
    stop(&stage, "hangs")
}

/// Runs a job many times; returns how often it hung and how often it failed.
fn trouble(job: Contender<'_>, count: usize, deadline: Duration) -> anyhow::Result<String> {
    let (mut hung, mut failed) = (0, 0);
    for _ in 0..count {
        let mut command: Command = job()?;
        match timed_after(Duration::ZERO, command.stdout(Stdio::null()), deadline)? {
            Run::Took(_) => {}
            Run::Hung => hung += 1,
            Run::Failed => failed += 1,
        }
    }
    Ok(format!("{hung}, {failed}"))
}
