//! `cargo xtask abi`: generates the MPI library's interface from its tables (`client-lib/abi/*.tsv`): `mpi.h`, the constants and
//! exported functions in Rust, and the list of implemented functions.
//!
//! A new function needs a line in `implemented.tsv`: its name, the path of its implementation below `crate::api`, and
//! `always` if it may be called before `MPI_Init` and after `MPI_Finalize`, or `plain` if it returns a value instead of an
//! error code. The same line covers the form with large counts (`_c`).

mod constants;
mod coverage;
mod header;
mod shims;
mod tables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::places;
use crate::shell::step;
use tables::Tables;

/// `cargo xtask abi [--check]`.
pub(crate) fn abi(args: &[OsString]) -> anyhow::Result<()> {
    match args {
        [] => step("generate", write),
        [option] if option == "--check" => step("compare", check),
        _ => bail!("usage: cargo xtask abi [--check]"),
    }
}

/// Checks that the generated files match the tables.
pub(crate) fn check() -> anyhow::Result<()> {
    let texts = texts()?;
    for (path, text) in &texts {
        let there = fs::read_to_string(path).unwrap_or_default();
        anyhow::ensure!(there == *text, "{} is out of date: run cargo xtask abi", path.display());
    }
    match strays(&texts)?.first() {
        Some(stray) => bail!("{} is no longer generated: run cargo xtask abi", stray.display()),
        None => Ok(()),
    }
}

fn write() -> anyhow::Result<()> {
    let texts = texts()?;
    fs::create_dir_all(exports())?;
    for stray in strays(&texts)? {
        fs::remove_file(&stray).with_context(|| format!("remove {}", stray.display()))?;
    }
    for (path, text) in &texts {
        // Unchanged files are not written, so that they are not compiled again.
        if fs::read_to_string(path).ok().as_ref() != Some(text) {
            fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The generated files and their contents.
fn texts() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let tables = Tables::read()?;
    let mut texts = BTreeMap::from([
        (tables::folder().join("mpi.h"), header::header(&tables)),
        (tables::folder().join("COVERAGE.md"), coverage::page(&tables)),
        (places::root().join("client-lib/src/abi/constants.rs"), constants::module(&tables)),
    ]);
    for chapter in tables.chapters() {
        texts.insert(exports().join(format!("{chapter}.rs")), shims::chapter(&tables, chapter));
    }
    Ok(texts)
}

fn exports() -> PathBuf {
    places::root().join("client-lib/src/exports")
}

/// Files of chapters that no longer exist.
fn strays(texts: &BTreeMap<PathBuf, String>) -> anyhow::Result<Vec<PathBuf>> {
    let there = fs::read_dir(exports()).with_context(|| format!("read {}", exports().display()))?;
    let there = there.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    let ours = |path: &PathBuf| texts.contains_key(path) || path.ends_with("mod.rs");
    Ok(there.into_iter().filter(|path| !ours(path)).collect())
}
