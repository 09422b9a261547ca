//! `cargo xtask bench submit`: how many submissions a second the head confirms, with each record on the disk before its answer.

use std::process::Command;

use anyhow::{Context, ensure};

use super::machine;
use crate::places;
use crate::programs;
use crate::setup;
use crate::shell::{cargo, quiet, step};
use crate::stage::Stage;

const ROUNDS: usize = 5;
const JOBS: usize = 3000;

/// `cargo xtask bench submit`.
pub(super) fn bench() -> anyhow::Result<()> {
    setup::for_building()?;
    let stage = Stage::set("bench-submit", programs::build()?)?;
    step("build the bench's program", || {
        quiet(&mut cargo(["build", "--release", "--package=rsd-tests", "--bin=submitters"])).map(drop)
    })?;
    let submitters = places::target()?.join("release/submitters");
    println!("\n{}; {JOBS} jobs with 30 variables each; medians of {ROUNDS} rounds\n", machine()?);
    println!(
        "| clients | jobs | submissions a second | one submission (us) | 99 % within (us) |\n|---|---|---|---|---|"
    );
    for (clients, how, jobs) in
        [(1, "hold", "held"), (8, "hold", "held"), (64, "hold", "held"), (16, "run", "run `true`")]
    {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            quiet(stage.command("rsd")?.args(["start", "--name", "submit", "--slots", "4"]))?;
            let socket = stage.dir().join("submit/rsd.sock");
            let mut command = Command::new(&submitters);
            let printed = quiet(command.arg(socket).args([clients.to_string(), JOBS.to_string(), how.to_owned()]));
            let stopped = quiet(stage.command("rsd")?.args(["stop", "--force", "--dvm", "submit"]));
            rounds.push(numbers(&String::from_utf8(printed?.stdout)?)?);
            stopped?;
        }
        let median = |at: usize| {
            let mut all: Vec<f64> = rounds.iter().map(|round| round[at]).collect();
            all.sort_by(f64::total_cmp);
            all[ROUNDS / 2]
        };
        let rate = JOBS as f64 / median(0);
        println!("| {clients} | {jobs} | {rate:.0} | {:.0} | {:.0} |", median(1), median(2));
    }
    Ok(())
}

/// Reads the seconds of all, and the median and 99th percentile of one in microseconds.
fn numbers(printed: &str) -> anyhow::Result<Vec<f64>> {
    let numbers = printed
        .split_whitespace()
        .map(|word| word.parse().context("read a figure"))
        .collect::<Result<Vec<f64>, _>>()?;
    ensure!(numbers.len() == 3, "unexpected output: {printed:?}");
    Ok(numbers)
}
