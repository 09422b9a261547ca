//! `cargo xtask bench collectives`: simulates the collectives of rsd's MPI library on up to 4,096 nodes, finds the rules by which it chooses
//! their algorithms, and writes the rules into its source, and times, report and heat maps beside the figures of the other benches.

use std::fs;

use anyhow::Context;

use crate::places;
use crate::shell::{cargo, shown};

/// A composition of algorithms consists of what the tables choose, so new tables may change the times. They settle soon.
const ROUNDS: usize = 5;

pub(super) fn bench() -> anyhow::Result<()> {
    let tables = places::root().join("client-lib/src/coll/choice/modelled.rs");
    let read = || fs::read(&tables).with_context(|| format!("read {}", tables.display()));
    for _ in 0..ROUNDS {
        let before = read()?;
        let mut run = cargo(["run", "--release", "--package=rsd-mpi", "--example=collectives", "--"]);
        shown(run.arg(&tables).arg(places::root().join("tests/bench/collectives")))?;
        if read()? == before {
            return Ok(());
        }
    }
    anyhow::bail!("the tables still change after {ROUNDS} rounds")
}
