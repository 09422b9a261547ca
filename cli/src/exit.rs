//! Messages and exit codes of rsctl's own failures. The codes are those of [`rsd_proto::transport::exit`]; a job's own
//! codes are not handled here.

use std::error::Error as _;
use std::fmt;

use rsd_config::RelativeRuntimeDir;
use rsd_config::find::FindError;
use rsd_proto::transport::{DialError, exit, exit_code};
use tonic::{Code, Status};

/// A failure of rsctl: the message for the user, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) text: String,
    /// What to do about it, if the text does not say so; empty: no hint.
    pub(crate) hint: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), hint: String::new() }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: hint.into(), ..self }
    }

    /// Returns the failure for a mistake of the user.
    pub(crate) fn usage(text: impl fmt::Display) -> Failure {
        Failure::new(exit::USAGE, text.to_string())
    }

    pub(crate) fn unreachable(text: impl Into<String>) -> Failure {
        Failure::new(exit::UNREACHABLE, text)
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        self.code == exit::UNREACHABLE
    }

    /// Returns the failure for a refusal, or for a connection that was lost while `doing`.
    pub(crate) fn of_status(doing: &str, status: &Status) -> Failure {
        let code = code_of(status);
        let text = match code {
            exit::UNREACHABLE => format!("lost the daemon while {doing}: {}", cause(status)),
            _ => status.message().to_owned(),
        };
        Failure::new(code, text)
    }

    /// Returns the failure of something that was tried in several places, at least one.
    pub(crate) fn of_all(failures: Vec<Failure>) -> Failure {
        let mut failures = failures.into_iter();
        let first = failures.next().unwrap_or_else(|| Failure::usage("no place was named"));
        failures.fold(first, |all, next| Failure { text: format!("{}\n  {}", all.text, next.text), ..all })
    }

    pub(crate) fn of_dial(place: &str, error: &DialError) -> Failure {
        let code = match error {
            DialError::NotPermitted { .. } | DialError::Untrusted(_) => exit::NOT_PERMITTED,
            DialError::NotRunning(_) | DialError::TimedOut(_) | DialError::Io(_) => exit::UNREACHABLE,
        };
        Failure::new(code, format!("cannot reach the daemon at {place}: {error}"))
    }
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Failure {
        let code = match &error {
            FindError::NoneRuns { .. } | FindError::Several(_) | FindError::NotRunning { .. } => exit::NO_DAEMON,
            FindError::NotPermitted { .. } => exit::NOT_PERMITTED,
            FindError::Io { .. } => exit::SYSTEM,
        };
        match error {
            FindError::NoneRuns { base } => {
                let text = format!("no daemon is running here (looked in {})", base.display());
                Failure::new(code, text).hint("start one with: rsd start")
            }
            error => Failure::new(code, error.to_string()),
        }
    }
}

impl From<RelativeRuntimeDir> for Failure {
    fn from(error: RelativeRuntimeDir) -> Failure {
        Failure::usage(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hint.is_empty() {
            true => f.write_str(&self.text),
            false => write!(f, "{}; {}", self.text, self.hint),
        }
    }
}

/// Returns the exit code that the refusal carries, else the one for its gRPC code. A status with a source comes from the transport on
/// this side.
fn code_of(status: &Status) -> u8 {
    if let Some(code) = exit_code(status) {
        return code;
    }
    if status.source().is_some() {
        return exit::UNREACHABLE;
    }
    match status.code() {
        Code::InvalidArgument | Code::OutOfRange => exit::USAGE,
        Code::NotFound => exit::NO_SUCH_JOB,
        Code::PermissionDenied | Code::Unauthenticated => exit::NOT_PERMITTED,
        Code::FailedPrecondition | Code::Unimplemented => exit::VERSION,
        Code::ResourceExhausted => exit::NOT_PLACED,
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => {
            exit::UNREACHABLE
        }
        Code::Ok | Code::AlreadyExists | Code::Internal | Code::DataLoss => exit::INTERNAL,
    }
}

/// Returns the innermost cause: "broken pipe" says more than the four errors around it.
fn cause(status: &Status) -> String {
    let mut error = status.source();
    let mut text = None;
    while let Some(inner) = error {
        text = Some(inner.to_string());
        error = inner.source();
    }
    text.unwrap_or_else(|| status.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_daemons_text_and_code() {
        let status = rsd_proto::transport::refusal(Code::FailedPrecondition, exit::NOT_PLACED, "8 ranks requested");
        let failure = Failure::of_status("submitting", &status);
        assert_eq!(failure, Failure::new(243, "8 ranks requested"));
    }

    #[test]
    fn a_broken_connection_names_the_operation() {
        let status = Status::from_error(Box::new(std::io::Error::other("broken pipe")));
        let failure = Failure::of_status("job 7 ran", &status);
        assert_eq!(failure, Failure::new(242, "lost the daemon while job 7 ran: broken pipe"));
    }
}
