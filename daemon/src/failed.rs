//! Failures of `rsd` and their exit codes, which are those of rsctl: [`rsd_proto::transport::exit`].

use std::io;

use rsd_config::RelativeRuntimeDir;
use rsd_config::dvm_name::NameError;
use rsd_config::find::FindError;
use rsd_config::settings::SettingsError;
use rsd_proto::transport::exit;
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

/// Returns an error as rsctl prints it with `--json`.
pub(crate) fn json(code: u8, message: &str) -> serde_json::Value {
    let error = json!({ "code": exit::name(code), "exit_code": code, "message": message, "hint": null });
    json!({ "schema_version": 1, "error": error })
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
