//! `cargo xtask conformance [PATTERN]`: runs mpi4py's own tests on rsd's MPI library, built for the standard ABI against its `mpi.h`: 1 to 4
//! ranks on one node, 2 and 3 over two daemons with TCP. With a pattern, only the test files whose names match it. It fails if a test fails
//! that does not need files, which the library does not support.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;

use crate::places;
use crate::prefix;
use crate::programs;
use crate::setup;
use crate::shell::{quiet, step};
use crate::stage::Stage;

/// The seconds after which a run is ended.
const DEADLINE: &str = "900";

/// Ranks, and nodes.
const RUNS: [(u32, usize); 6] = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2)];

/// Tests with these words need files, or fail because one of them has failed before in the same process (`test_op` counts operations that
/// `test_objmodel` has left).
const FILES: [&str; 7] =
    ["test_file", "test_io", "test_subclass", "TestFile", "File", "testSafeFreeCreated", "test_op.TestOp"];

/// `cargo xtask conformance`.
pub(crate) fn conformance(args: &[OsString]) -> anyhow::Result<()> {
    const USAGE: &str = "usage: cargo xtask conformance [PATTERN]";
    let pattern = match args {
        [] => None,
        [pattern] => Some(pattern.to_str().context(USAGE)?),
        [_, _, ..] => anyhow::bail!(USAGE),
    };
    setup::setup(&[])?;
    let binaries = programs::build()?;
    let library = step("create the MPI library's prefix", || Ok(prefix::stage(&binaries)?))?;
    setup::mpi4py(&library)?;
    let stage = Stage::set("conformance", binaries)?;
    let start = ["start", "--name", "one", "--slots", "64", "--listen", "127.0.0.1:0"];
    quiet(stage.command("rsd")?.args(start))?;
    let place = stage.listen("one")?;
    let join = ["start", "--name", "two", "--slots", "64", "--join"];
    quiet(stage.command("rsd")?.args(join).arg(place))?;
    let mut unexpected = BTreeSet::new();
    for (ranks, nodes) in RUNS {
        let outcome =
            step(&format!("mpi4py's tests on {ranks} ranks, {nodes} nodes"), || run(&stage, ranks, nodes, pattern))?;
        let pattern = pattern.unwrap_or_default();
        anyhow::ensure!(outcome.tests > 0, "no test ran: `{pattern}` matches no test file (try test_comm)");
        let (files, others): (BTreeSet<String>, BTreeSet<String>) =
            outcome.failed.into_iter().partition(|test| FILES.iter().any(|file| test.contains(file)));
        println!(
            "{ranks} ranks on {nodes} nodes: {} tests, {} skipped, {} failed for lack of files, {} failed",
            outcome.tests,
            outcome.skipped,
            files.len(),
            others.len()
        );
        others.iter().for_each(|test| println!("  {test}"));
        unexpected.extend(others);
    }
    for daemon in ["two", "one"] {
        quiet(stage.command("rsd")?.args(["stop", "--force", "--dvm", daemon]))?;
    }
    anyhow::ensure!(unexpected.is_empty(), "{} tests failed that need no files", unexpected.len());
    Ok(())
}

/// What a run has printed, on rank 0.
struct Outcome {
    tests: usize,
    skipped: usize,
    failed: BTreeSet<String>,
}

fn run(stage: &Stage, ranks: u32, nodes: usize, pattern: Option<&str>) -> anyhow::Result<Outcome> {
    let tests = setup::mpi4py_source()?.join("test/main.py");
    let python = places::peer("mpi4py")?.join("bin/python");
    let mut command = stage.command("timeout")?;
    command.args([DEADLINE, "rsctl", "--dvm", "one", "run", "--label", "-n", &ranks.to_string()]);
    let place: &[&str] = if nodes > 1 { &["--map-by", "node"] } else { &["--map-by", "slot"] };
    command.args(place).args([python.as_path(), Path::new(&tests)]).args(["--no-builddir", "-q"]);
    if let Some(pattern) = pattern {
        command.args(["-i", pattern]);
    }
    let output = command.output().context("start rsctl")?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    outcome(&text).with_context(|| format!("the tests did not end ({}):\n{}", output.status, last(&text)))
}

fn outcome(text: &str) -> Option<Outcome> {
    let named = |line: &str| {
        let at = line.find("ERROR: ").map(|at| at + 7).or_else(|| line.find("FAIL: ").map(|at| at + 6))?;
        Some(line[at..].to_owned())
    };
    let failed = text.lines().filter_map(named).collect();
    let number = |line: &str, before: &str| {
        let rest = &line[line.find(before)? + before.len()..];
        rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
    };
    let tests = text.lines().filter_map(|line| number(line, "Ran ")).max()?;
    let skipped = text.lines().filter_map(|line| number(line, "skipped=")).max().unwrap_or(0);
    Some(Outcome { tests, skipped, failed })
}

fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
