//! A failure with an exit code of its own.

use rsd_config::find::FindError;
use rsd_proto::transport::exit;

/// A failure with an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failed {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl From<FindError> for Failed {
    fn from(error: FindError) -> Failed {
        let code = match error {
            FindError::NotPermitted { .. } => exit::NOT_PERMITTED,
            FindError::NoneRuns | FindError::Several(_) | FindError::NotRunning { .. } => exit::NO_DAEMON,
            FindError::Io { .. } => exit::INTERNAL,
        };
        Failed { code, text: error.to_string() }
    }
}
