//! Builds the programs as they are installed and measured: with optimisation, apart from the test builds.

use std::fs;
use std::path::PathBuf;

use crate::places;
use crate::shell::{cargo, quiet, step};

/// Builds the programs for installation with the `release` profile; returns the directory of `rsd`, `rsctl` and the libraries.
///
/// `rsctl` is linked statically and at a fixed address: every command starts it anew, and loading libraries and relocation took a
/// third of its time. Where static linking is not possible, it is linked dynamically. `rsd` is always linked dynamically because it
/// loads drivers.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    const RSD: [&str; 4] = ["build", "--release", "--package=rsd", "--bin=rsd"];
    // Apart from `rsd`, so that its dependencies have none of the features that only daemons need.
    const LIBRARIES: [&str; 6] =
        ["build", "--release", "--package=rsd-mpi", "--package=rsd-pmi", "--package=rsd-pmi2", "--lib"];
    const RSCTL: [&str; 5] = ["rustc", "--release", "--package=rsctl", "--bin=rsctl", "--"];
    const STATIC: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    step("build for installing", || {
        quiet(&mut cargo(RSD))?;
        quiet(&mut cargo(LIBRARIES))?;
        let is_static = cfg!(all(target_os = "linux", target_env = "gnu"))
            && cargo(RSCTL).args(STATIC).output().is_ok_and(|output| output.status.success());
        if !is_static {
            quiet(&mut cargo(RSCTL))?;
        }
        Ok(())
    })?;
    let built = places::target()?.join("release");
    let bytes = fs::metadata(built.join("librsd_mpi.so"))?.len();
    anyhow::ensure!(bytes < LIBRARY_MAX, "the MPI library has {bytes} bytes: every rank maps it");
    Ok(built)
}

/// The MPI library's size, with its symbols (3.3 MB of code and data for two thirds of the standard's functions).
const LIBRARY_MAX: u64 = 5 << 20;

/// Builds the MPI library's examples, which the benches run, with optimisation; returns their directory.
pub(crate) fn examples() -> anyhow::Result<PathBuf> {
    step("build the benches' programs", || {
        quiet(&mut cargo(["build", "--release", "--package=rsd-mpi", "--examples"])).map(drop)
    })?;
    Ok(places::target()?.join("release/examples"))
}
