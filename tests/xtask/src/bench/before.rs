//! The programs of an earlier revision, built apart from this checkout, to be measured in the same run.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::places;
use crate::shell::{quiet, step};

/// Builds and installs `revision` (a commit, tag or branch of this repository) with its own `cargo xtask install`. Returns the
/// directory of its `rsd` and `rsctl`, below cargo's target directory; a revision is built once.
pub(super) fn build(revision: &str) -> anyhow::Result<PathBuf> {
    let git = || {
        let mut command = Command::new("git");
        command.arg("-C").arg(places::root());
        command
    };
    let commit = quiet(git().args(["rev-parse", "--verify", &format!("{revision}^{{commit}}")]))
        .with_context(|| format!("--against {revision}: no such revision"))?;
    let commit = String::from_utf8(commit.stdout)?.trim().to_owned();
    let place = places::target()?.join("before").join(&commit);
    let (tree, prefix) = (place.join("tree"), place.join("prefix"));
    if !prefix.join("bin/rsctl").exists() {
        fs::create_dir_all(&tree).with_context(|| format!("create {}", tree.display()))?;
        step(&format!("build {revision}"), || {
            let mut archive = git().args(["archive", &commit]).stdout(Stdio::piped()).spawn().context("start git")?;
            let files = archive.stdout.take().context("read what git archives")?;
            quiet(Command::new("tar").arg("-x").arg("-C").arg(&tree).stdin(files))?;
            anyhow::ensure!(archive.wait()?.success(), "git archive {commit} failed");
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut install = Command::new(cargo);
            install.current_dir(&tree).args(["xtask", "install", "--prefix"]).arg(&prefix);
            quiet(install.env("CARGO_TARGET_DIR", place.join("target")))?;
            // Only the installed programs are needed.
            fs::remove_dir_all(place.join("target")).context("remove what was built on the way")
        })?;
    }
    Ok(prefix.join("bin"))
}
