//! `cargo xtask test`: runs all tests, the system tests last.

use std::ffi::OsString;

use crate::places;
use crate::prefix;
use crate::setup;
use crate::shell::{cargo, heading, quiet, shown, step};

/// Every package but the generator of messages. All commands name the same packages: cargo compiles a dependency anew when another
/// selection of packages enables other features of it.
const PACKAGES: [&str; 2] = ["--workspace", "--exclude=rsd-proto-codegen"];
/// What turns the system tests on, which need built programs.
pub(crate) const SYSTEM: &str = "--features=rsd-tests/system";

/// `cargo xtask test [NAME]`: the arguments are passed on to the test runner.
pub(crate) fn test(args: &[OsString]) -> anyhow::Result<()> {
    setup::while_compiling(|| setup::setup(&[]))?;
    step("build programs and tests", || quiet(cargo(["build"]).args(PACKAGES).args([SYSTEM, "--all-targets"])))?;
    let library = step("create the MPI library's prefix", || Ok(prefix::stage(&places::binaries()?)?))?;
    setup::mpi4py(&library)?;
    heading("unit tests");
    shown(cargo(["test", "--quiet"]).args(PACKAGES).args(args))?;
    heading("system tests");
    shown(cargo(["test", "--quiet"]).args(PACKAGES).args([SYSTEM, "--test=system"]).args(args))
}
