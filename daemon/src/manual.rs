//! `rsd man` and `rsd completion`: man pages and completions, made from the command line's definitions.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::options::Options;

/// Writes the man pages into `man1` below `directory`, which may name `man1` itself.
pub(crate) fn write(directory: &Path) -> anyhow::Result<()> {
    let pages = match directory.file_name() {
        Some(name) if name == "man1" => directory.to_owned(),
        Some(_) | None => directory.join("man1"),
    };
    fs::create_dir_all(&pages)
        .and_then(|()| clap_mangen::generate_to(Options::command(), &pages))
        .with_context(|| format!("write to {}", pages.display()))
}

/// Prints the completions of a shell.
pub(crate) fn complete(shell: Shell) -> anyhow::Result<()> {
    // clap_complete panics if a write fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "rsd", &mut script);
    io::stdout().write_all(&script).context("write to standard output")
}
