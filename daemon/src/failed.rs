//! Failures of `rsd` and their exit codes, which are those of rsctl: [`rsd_proto::transport::exit`].

use std::fmt::Display;
use std::io::{self, Write};

use rsd_config::RelativeRuntimeDir;
use rsd_config::dvm_name::NameError;
use rsd_config::find::FindError;
use rsd_config::settings::SettingsError;
use rsd_proto::transport::exit;
use rsd_proto::visible::visible;
use serde_json::json;

/// A failure with its own exit code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl Failed {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Failed {
        Failed { code, text: text.into() }
    }
}

impl From<FindError> for Failed {
    fn from(error: FindError) -> Failed {
        let code = match error {
            FindError::NotPermitted { .. } => exit::NOT_PERMITTED,
            FindError::NoneRuns { .. } | FindError::Several(_) | FindError::NotRunning { .. } => exit::NO_DAEMON,
            FindError::Io { .. } => exit::SYSTEM,
        };
        Failed { code, text: error.to_string() }
    }
}

/// The code that a shell shows for a process killed by SIGPIPE.
const BROKEN_PIPE: u8 = 128 + 13;

/// Prints a text on standard output. A closed pipe causes no message, but an exit code for scripts.
pub(crate) fn out(text: impl Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failed::new(BROKEN_PIPE, "").into()),
        Err(error) => Err(Failed::new(exit::SYSTEM, format!("cannot write to standard output: {error}")).into()),
    }
}

/// Prints an error on standard error, with `--json` as rsctl prints it.
pub(crate) fn report(code: u8, message: &str, hint: Option<&str>, as_json: bool) {
    if code == BROKEN_PIPE && message.is_empty() {
        return;
    }
    if !as_json {
        return say(message);
    }
    let hint = hint.filter(|hint| !hint.is_empty());
    let error = json!({ "code": exit::name(code), "exit_code": code, "message": message, "hint": hint });
    let _ = writeln!(io::stderr(), "{}", json!({ "schema_version": 1, "error": error }));
}

/// Prints a message on standard error, without control characters that a terminal would interpret. A failed write is ignored: there
/// is no other place to report it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "rsd: {}", visible(text));
}

/// Returns the exit code: the code of the first cause that has one.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    let own = error.downcast_ref::<Failed>().map(|failed| failed.code);
    own.or_else(|| error.chain().find_map(code_of)).unwrap_or(exit::INTERNAL)
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if cause.is::<SettingsError>() || cause.is::<NameError>() || cause.is::<RelativeRuntimeDir>() {
        Some(exit::USAGE)
    } else if let Some(failed) = cause.downcast_ref::<Failed>() {
        Some(failed.code)
    } else {
        cause.is::<io::Error>().then_some(exit::SYSTEM)
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_first_cause_with_a_code_decides_the_exit_code() {
        let full: anyhow::Result<()> = Err(io::Error::from(io::ErrorKind::StorageFull)).context("write daemon.json");
        assert_eq!(exit_code(&full.unwrap_err()), exit::SYSTEM);
        let taken: anyhow::Result<()> = Err(Failed::new(exit::RUNS_ALREADY, "taken")).context("start");
        assert_eq!(exit_code(&taken.unwrap_err()), exit::RUNS_ALREADY);
        let name = rsd_config::dvm_name::check("a/b").unwrap_err();
        assert_eq!(exit_code(&name.into()), exit::USAGE);
        assert_eq!(exit_code(&anyhow::anyhow!("no cause has a code")), exit::INTERNAL);
    }
}
