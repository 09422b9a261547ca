//! `cargo xtask bench scale`: what DVMs of 100, 1,000 and 10,000 daemons cost, in one process: the table of ARCHITECTURE.md.

use crate::shell::{cargo, shown};

/// `cargo xtask bench scale`.
pub(super) fn bench() -> anyhow::Result<()> {
    shown(&mut cargo(["test", "--release", "--quiet", "--package=rsd-core", "--test=scale"]))
}
