//! `cargo xtask ci`: every check that a change must pass. `cargo xtask proto` regenerates the files that one of them compares.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::abi;
use crate::dependencies;
use crate::docs;
use crate::layers;
use crate::places;
use crate::setup;
use crate::shell::{cargo, quiet, step};
use crate::suite;

/// `cargo xtask ci`.
pub(crate) fn ci(_args: &[OsString]) -> anyhow::Result<()> {
    anyhow::ensure!(setup::root(), "only root can run all tests: cargo xtask test leaves out those that need root");
    setup::while_compiling(|| setup::setup(&[]))?;
    step("format", || quiet(&mut cargo(["fmt", "--all", "--check"])))?;
    step("lints", lints)?;
    step("docs", rustdoc)?;
    step("names, links and examples", docs::check)?;
    step("layers", layers::check)?;
    step("generated files", fresh)?;
    step("dependencies", dependencies::check)?;
    step("models of shared memory", models)?;
    suite::test(&[])
}

fn lints() -> anyhow::Result<()> {
    let mut clippy = cargo(["clippy", "--workspace", "--all-targets", suite::SYSTEM]);
    quiet(clippy.args(["--", "-D", "warnings"])).map(drop)
}

/// Runs the loom models of shared memory: every interleaving, with every value that the memory model allows. `--cfg loom` applies
/// to the whole build, so it has its own target folder. Most of the time is building; only the crates that the models spend their
/// time in are optimised.
fn models() -> anyhow::Result<()> {
    const OPTIMISED: [&str; 2] = ["profile.dev.package.loom.opt-level=2", "profile.dev.package.generator.opt-level=2"];
    let mut test = cargo(["test", "--quiet", "--package=rsd-mpi", "--lib", "--target-dir"]);
    test.arg(places::target()?.join("loom")).args(OPTIMISED.iter().flat_map(|setting| ["--config", setting]));
    test.arg("loom_").env("RUSTFLAGS", "--cfg loom");
    test.envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
    let told = quiet(&mut test)?;
    let none = String::from_utf8_lossy(&told.stdout).contains("ok. 0 passed");
    anyhow::ensure!(!none, "no model was run: names of models start with loom_");
    Ok(())
}

/// Builds the API documentation. Its readers work on rsd, so it shows private items, and public items may link to them.
fn rustdoc() -> anyhow::Result<()> {
    let mut doc = cargo(["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"]);
    quiet(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")).map(drop)
}

/// `cargo xtask proto`.
pub(crate) fn proto(_args: &[OsString]) -> anyhow::Result<()> {
    step("generate", || generate(&generated()))
}

fn generated() -> PathBuf {
    places::root().join("proto/src/generated")
}

fn generate(out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out)?;
    // It runs once and for half a second: optimising its dependencies takes longer than it saves.
    const QUICK: [&str; 2] = ["--config", "profile.dev.opt-level=0"];
    let mut run = cargo(["run", "--quiet", "--package=rsd-proto-codegen"]);
    run.args(QUICK).args(["--", "proto"]);
    quiet(run.arg(out)).map(drop)
}

/// Checks that the generated modules match their sources.
fn fresh() -> anyhow::Result<()> {
    let scratch = places::target()?.join("generated");
    generate(&scratch)?;
    for entry in fs::read_dir(&scratch)? {
        let name = entry?.file_name();
        let read = |path: PathBuf| fs::read(&path).with_context(|| format!("read {}", path.display()));
        let same = read(scratch.join(&name))? == read(generated().join(&name))?;
        anyhow::ensure!(same, "proto/src/generated/{} is out of date: run cargo xtask proto", name.display());
    }
    abi::check()
}
