//! `cargo xtask install`: installs the programs, the MPI library with its compilers and headers,
//! manual pages and completions under one prefix.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::places;
use crate::prefix;
use crate::programs;
use crate::setup;
use crate::shell::{quiet, step};

/// `cargo xtask install [--prefix DIR]`.
pub(crate) fn install(args: &[OsString]) -> anyhow::Result<()> {
    let prefix = match args {
        [] => default_prefix()?,
        [option, prefix] if option == "--prefix" && !prefix.is_empty() => std::path::absolute(prefix)?,
        _ => bail!("usage: cargo xtask install [--prefix DIR] (default: ~/.local)"),
    };
    setup::for_building()?;
    let built = programs::build()?;
    step(&format!("install under {}", prefix.display()), || copy(&built, &prefix))?;
    let bin = prefix.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir == bin) {
        println!("{} is not in your PATH", bin.display());
    }
    Ok(())
}

fn default_prefix() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).context("HOME is not set: use --prefix DIR")?;
    Ok(Path::new(&home).join(".local"))
}

fn copy(built: &Path, prefix: &Path) -> anyhow::Result<()> {
    for program in ["rsd", "rsctl"] {
        put(&fs::read(built.join(program))?, &prefix.join("bin").join(program), 0o755)?;
    }
    // Outside the PATH, where they could hide another launcher's.
    for launcher in ["mpiexec", "mpirun"] {
        prefix::put_link("../../bin/rsctl".as_ref(), &prefix.join("libexec/rsd").join(launcher))?;
    }
    put(&fs::read(built.join(prefix::BUILT))?, &prefix.join(prefix::LOADED), 0o755)?;
    prefix::put_link(prefix::LINK.as_ref(), &prefix.join(prefix::LINKED))?;
    for file in prefix::files()? {
        put(&file.text, &prefix.join(file.place), file.mode)?;
    }
    let example = places::root().join("config/rsd.toml");
    put(&fs::read(example)?, &prefix.join("share/rsd/rsd.toml"), 0o644)?;
    for name in ["rsd", "rsctl"] {
        let program = built.join(name);
        quiet(Command::new(&program).arg("man").arg(prefix.join("share/man")))?;
        for (shell, file) in [
            ("bash", format!("share/bash-completion/completions/{name}")),
            ("zsh", format!("share/zsh/site-functions/_{name}")),
            ("fish", format!("share/fish/vendor_completions.d/{name}.fish")),
        ] {
            let script = quiet(Command::new(&program).args([OsStr::new("completion"), OsStr::new(shell)]))?.stdout;
            put(&script, &prefix.join(file), 0o644)?;
        }
    }
    Ok(())
}

fn put(bytes: &[u8], place: &Path, mode: u32) -> anyhow::Result<()> {
    prefix::put(bytes, place, mode).with_context(|| format!("write {}", place.display()))
}
