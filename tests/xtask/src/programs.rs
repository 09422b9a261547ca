//! Builds the programs as they are installed and measured: with optimisation, apart from the test builds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::places;
use crate::setup;
use crate::shell::{cargo, quiet, step, succeeds};

/// Builds the programs for installation with the `release` profile; returns the directory of `rsd`, `rsctl` and the libraries.
///
/// `rsd` is always linked dynamically because it loads drivers. `rsctl` is linked statically and at a fixed address, because every
/// command starts it anew: with the musl C library, else with glibc, else dynamically. (The start of a program with glibc executes CPUID
/// 68 times to measure caches, each a trap in a virtual machine.)
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    const RSD: [&str; 4] = ["build", "--release", "--package=rsd", "--bin=rsd"];
    // Apart from `rsd`, so that its dependencies have none of the features that only daemons need.
    const LIBRARIES: [&str; 6] =
        ["build", "--release", "--package=rsd-mpi", "--package=rsd-pmi", "--package=rsd-pmi2", "--lib"];
    setup::musl();
    let built = places::target()?.join("release");
    step("build for installing", || {
        quiet(&mut cargo(RSD))?;
        quiet(&mut cargo(LIBRARIES))?;
        rsctl(&built)
    })?;
    let bytes = fs::metadata(built.join("librsd_mpi.so"))?.len();
    anyhow::ensure!(bytes < LIBRARY_MAX, "the MPI library has {bytes} bytes: every rank maps it");
    Ok(built)
}

/// Builds `rsctl` into the directory of the others.
fn rsctl(built: &Path) -> anyhow::Result<()> {
    const RSCTL: [&str; 4] = ["rustc", "--release", "--package=rsctl", "--bin=rsctl"];
    const FIXED: [&str; 3] = ["--", "-C", "relocation-model=static"];
    const STATIC: [&str; 2] = ["-C", "target-feature=+crt-static"];
    if let Some(musl) = setup::musl_target() {
        // The only C code in it includes no header of a C library, so any compiler for this machine will do.
        let compiler = format!("CC_{}", musl.replace('-', "_"));
        let mut build = cargo(RSCTL);
        build.args(["--target", &musl]).args(FIXED).env(compiler, "cc");
        if succeeds(&mut build) {
            let linked = places::target()?.join(musl).join("release/rsctl");
            // A file that is being executed cannot be written.
            let _ = fs::remove_file(built.join("rsctl"));
            fs::copy(&linked, built.join("rsctl")).with_context(|| format!("copy {}", linked.display()))?;
            return Ok(());
        }
    }
    let is_static = cfg!(all(target_os = "linux", target_env = "gnu"));
    if is_static && succeeds(cargo(RSCTL).args(FIXED).args(STATIC)) {
        return Ok(());
    }
    quiet(&mut cargo(RSCTL)).map(drop)
}

/// The MPI library's size, with its symbols (4.68 MB of it are code and data, which all ranks of a node share).
const LIBRARY_MAX: u64 = 5_700_000;

/// Builds the MPI library's examples, which the benches run, with optimisation; returns their directory.
pub(crate) fn examples() -> anyhow::Result<PathBuf> {
    step("build the benches' programs", || {
        quiet(&mut cargo(["build", "--release", "--package=rsd-mpi", "--examples"])).map(drop)
    })?;
    Ok(places::target()?.join("release/examples"))
}
