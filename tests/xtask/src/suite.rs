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
    let left_out = left_out(args);
    heading(if left_out.is_empty() {
        "system tests"
    } else {
        "system tests; those on hosts (hosts::) are left out, because only root can make hosts"
    });
    shown(cargo(["test", "--quiet"]).args(PACKAGES).args([SYSTEM, "--test=system"]).args(args).args(left_out))
}

/// The arguments that leave out the tests on hosts unless this user is root. The runner's summary counts them as filtered out.
fn left_out(args: &[OsString]) -> Vec<&'static str> {
    const SKIP: &str = "--skip=hosts::";
    match (setup::root(), args.iter().any(|arg| arg == "--")) {
        (true, _) => Vec::new(),
        (false, true) => vec![SKIP],
        (false, false) => vec!["--", SKIP],
    }
}
