//! Runs commands and reports each in one line.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::Context;

use crate::places;

/// Does `work`; prints a line with its name and duration.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    print!("xtask: {name} … ");
    std::io::stdout().flush()?;
    let since = Instant::now();
    match work() {
        Ok(done) => {
            println!("{:.1} s", since.elapsed().as_secs_f64());
            Ok(done)
        }
        Err(error) => {
            println!("failed after {:.1} s", since.elapsed().as_secs_f64());
            Err(error)
        }
    }
}

/// Prints a heading, for work that prints its own output.
pub(crate) fn heading(name: &str) {
    println!("xtask: {name}");
}

/// `cargo` in the checkout.
pub(crate) fn cargo<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(places::root()).args(args);
    command
}

/// Runs a command; shows its output only if it fails.
pub(crate) fn quiet(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("start {}", line(command)))?;
    if !output.status.success() {
        println!();
        std::io::stdout().write_all(&output.stdout)?;
        std::io::stderr().write_all(&output.stderr)?;
        anyhow::bail!("{} exited with {}", line(command), output.status);
    }
    Ok(output)
}

/// Runs a command on the terminal.
pub(crate) fn shown(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("start {}", line(command)))?;
    anyhow::ensure!(status.success(), "{} exited with {status}", line(command));
    Ok(())
}

/// Whether a command runs and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command as typed in a shell.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
