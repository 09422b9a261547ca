//! `cargo xtask bench growth`: counts how the MPI library's collectives on one node grow with the number of ranks: cache lines that move (the
//! library's own tests count them and write the tables), and instructions (valgrind counts them in `client-lib/examples/growth.rs`).

use std::fs;
use std::process::Command;

use anyhow::Context;

use crate::places;
use crate::shell::{cargo, quiet, shown, step};

const NUMBERS: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];

/// The operations, and the bytes of a block.
const OPERATIONS: [(&str, usize); 7] = [
    ("barrier", 0),
    ("bcast", 8),
    ("allgather", 8),
    ("alltoall", 8),
    ("allreduce", 8),
    ("allreduce", 4 << 10),
    ("allreduce", 64 << 10),
];

pub(super) fn bench() -> anyhow::Result<()> {
    let into = places::root().join("tests/bench/growth");
    let mut tests = cargo(["test", "--package=rsd-mpi", "--lib", "--", "the_table_shows_how"]);
    shown(tests.env("RSD_GROWTH_INTO", &into))?;
    step("cargo build", || quiet(&mut cargo(["build", "--release", "--package=rsd-mpi", "--example=growth"])))?;
    let table = step("count instructions", instructions)?;
    let path = into.join("instructions.md");
    fs::write(&path, table).with_context(|| format!("write {}", path.display()))
}

fn instructions() -> anyhow::Result<String> {
    let numbers: String = NUMBERS.iter().map(|number| format!(" {number} |")).collect();
    let mut table = format!("| members | |{numbers} growth |\n|---|---|{}\n", "--:|".repeat(NUMBERS.len() + 1));
    for (name, bytes) in OPERATIONS {
        let named = match bytes {
            0 => name.to_owned(),
            1..1024 => format!("{name} {bytes} B"),
            _ => format!("{name} {} KiB", bytes >> 10),
        };
        for (which, named) in [("first", &*named), ("last", "")] {
            let counts = NUMBERS
                .iter()
                .map(|members| count(name, bytes, *members, which))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let cells: String = counts.iter().map(|count| format!(" {count} |")).collect();
            let growth = counts[NUMBERS.len() - 1] as f64 / counts[NUMBERS.len() - 2] as f64;
            table += &format!("| {named} | {which} |{cells} {growth:.2} |\n");
        }
    }
    Ok(table)
}

/// The instructions of the first member to arrive at a call, or of the last one.
fn count(name: &str, bytes: usize, members: u32, which: &str) -> anyhow::Result<u64> {
    let program = places::target()?.join("release/examples/growth");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=growth::counted*"]);
    command.arg(program).args([name, &bytes.to_string(), &members.to_string(), which]);
    let printed = quiet(&mut command).context("count instructions with valgrind (apt-get install valgrind)")?.stderr;
    let printed = String::from_utf8_lossy(&printed);
    let counted = printed.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    counted.and_then(|count| count.parse().ok()).with_context(|| format!("read the count in {printed:?}"))
}
