//! Builds the programs as they are installed and measured: with optimisation, apart from the test builds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::places;
use crate::shell::{cargo, quiet, step};

/// Builds the programs for installation; returns the directory of `rsd`, `rsctl` and the libraries.
///
/// - `rsd` and `rsctl` share dependencies and libraries with the development build (`installed.toml`).
/// - The libraries are optimised and linked as a whole (the `release` profile): the MPI library handles every message.
/// - `rsctl` is linked statically and at a fixed address: every command starts it anew, and loading libraries and relocation took
///   a third of its time. Where static linking is not possible, it is linked dynamically. `rsd` is always linked dynamically
///   because it loads drivers.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    const LIBRARIES: [&str; 6] =
        ["build", "--release", "--package=rsd-mpi", "--package=rsd-pmi", "--package=rsd-pmi2", "--lib"];
    const SMALL: [&str; 2] = ["-C", "strip=debuginfo"];
    const STATIC: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "relocation-model=static"];
    let installed = places::target()?.join("release");
    step("build for installing", || {
        let overlay = places::root().join("tests/xtask/installed.toml");
        let overlay = ["--config".into(), overlay.into_os_string()];
        let with = |args: &[&str]| {
            let mut command = cargo(&overlay);
            command.args(args);
            command
        };
        quiet(with(&["rustc", "--package=rsd", "--bin=rsd", "--"]).args(SMALL))?;
        let rsctl = ["rustc", "--package=rsctl", "--bin=rsctl", "--"];
        let is_static = cfg!(all(target_os = "linux", target_env = "gnu"))
            && with(&rsctl).args(SMALL).args(STATIC).output().is_ok_and(|output| output.status.success());
        if !is_static {
            quiet(with(&rsctl).args(SMALL))?;
        }
        quiet(&mut cargo(LIBRARIES))?;
        for program in ["rsd", "rsctl"] {
            copy(&places::binaries()?.join(program), &installed.join(program))?;
        }
        Ok(())
    })?;
    Ok(installed)
}

/// Builds the MPI library's examples, which the benches run, with optimisation; returns their directory.
pub(crate) fn examples() -> anyhow::Result<PathBuf> {
    step("build the benches' programs", || {
        quiet(&mut cargo(["build", "--release", "--package=rsd-mpi", "--examples"])).map(drop)
    })?;
    Ok(places::target()?.join("release/examples"))
}

/// Replaces `to`, which may be a running program.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new)
        .and_then(|_| fs::rename(&new, to))
        .with_context(|| format!("copy {} to {}", from.display(), to.display()))
}
