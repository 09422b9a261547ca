//! `cargo xtask test`: runs all tests, the system tests last.

use std::ffi::OsString;

use crate::places;
use crate::prefix;
use crate::setup;
use crate::shell::{cargo, heading, quiet, shown, step};

/// The programs that the system tests run.
const BINARIES: [&str; 6] =
    ["build", "--quiet", "--package=rsd", "--package=rsctl", "--package=rsd-mpi", "--all-targets"];
/// The tests that need no built programs.
const UNITS: [&str; 4] = ["test", "--workspace", "--exclude=rsd-tests", "--exclude=rsd-proto-codegen"];
const SYSTEM: [&str; 3] = ["test", "--package=rsd-tests", "--test=system"];

/// `cargo xtask test [NAME]`: the arguments are passed on to the test runner.
pub(crate) fn test(args: &[OsString]) -> anyhow::Result<()> {
    setup::while_compiling(|| setup::setup(&[]))?;
    step("build the unit tests", || quiet(cargo(UNITS).args(["--quiet", "--no-run"])))?;
    step("build the programs", || quiet(&mut cargo(BINARIES)))?;
    let library = step("create the MPI library's prefix", || Ok(prefix::stage(&places::binaries()?)?))?;
    setup::mpi4py(&library)?;
    step("build the system tests", || quiet(cargo(SYSTEM).args(["--quiet", "--no-run"])))?;
    heading("unit tests");
    shown(cargo(UNITS).arg("--quiet").args(args))?;
    heading("system tests");
    shown(cargo(SYSTEM).arg("--quiet").args(args))
}
