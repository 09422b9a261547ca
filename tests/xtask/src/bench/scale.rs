//! `cargo xtask bench scale [simulated|real]`: what DVMs of 100, 1,000 and 10,000 daemons cost, in one process: the table of ARCHITECTURE.md;
//! and what 16, 64 and 256 daemons on this machine cost.

use std::ffi::OsString;

use super::daemons;
use crate::shell::{cargo, shown};

/// `cargo xtask bench scale`.
pub(super) fn bench(args: &[OsString]) -> anyhow::Result<()> {
    match args.first().map(|which| which.to_str()) {
        None => simulated().and_then(|()| daemons::bench()),
        Some(Some("simulated")) => simulated(),
        Some(Some("real")) => daemons::bench(),
        Some(_) => anyhow::bail!("usage: cargo xtask bench scale [simulated|real]"),
    }
}

fn simulated() -> anyhow::Result<()> {
    shown(&mut cargo(["test", "--release", "--quiet", "--package=rsd-core", "--test=scale"]))
}
