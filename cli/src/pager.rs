//! Shows long text on a terminal page by page.

use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use nix::sys::signal::{SigSet, Signal};

use crate::exit::Failure;
use crate::print;

/// Prints `text`: through `$PAGER`, else `less`, if standard output is a terminal; directly otherwise.
pub(crate) fn page(text: &str) -> Result<(), Failure> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    let wanted = !pager.is_empty() && pager != "cat";
    if wanted && io::stdout().is_terminal() && paged(&pager, text).is_ok() {
        return Ok(());
    }
    print::out(text)
}

/// Shows `text` through the pager. An error means that nothing was shown.
fn paged(pager: &str, text: &str) -> io::Result<()> {
    let mut command = Command::new("sh");
    // A pager may have options of its own, as in `less -i`.
    command.args(["-c", pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Pass colours through, and exit at once if the text fits the screen.
        command.env("LESS", "FRX");
    }
    let mut child = command.spawn()?;
    // Ctrl-C is for the pager, which goes on: without this process, the user's shell would read from the terminal beside it. The program ends
    // after the pager, so they stay blocked.
    let mut interrupts = SigSet::empty();
    interrupts.add(Signal::SIGINT);
    interrupts.add(Signal::SIGQUIT);
    let _ = interrupts.thread_block();
    if let Some(mut stdin) = child.stdin.take() {
        // The reader may leave before the end.
        let _ = stdin.write_all(text.as_bytes());
    }
    // A shell exits with 126 or 127 if it cannot run the program, which then has shown nothing.
    match child.wait()?.code() {
        Some(126 | 127) => Err(io::ErrorKind::NotFound.into()),
        Some(_) | None => Ok(()),
    }
}
