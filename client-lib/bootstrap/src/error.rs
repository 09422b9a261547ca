//! Why a process cannot join its job, or communicate with its process manager.

use std::io;
use std::time::Duration;

use rsd_proto::pmi::v1::{EncodeError, WireError};
use rsd_proto::pmi::v2;

/// Each text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The launcher has set one variable without another one that it needs.
    #[error("find {missing} in the environment, although {present} is set")]
    Incomplete {
        /// The variable that is set.
        present: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// A variable of the launcher has an invalid value.
    #[error("read {name}={value:?} as {expected}")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The inherited descriptor is closed, or not a socket.
    #[error("use descriptor {fd} from PMI_FD as a socket (was it passed on by a launcher's rank to another program?)")]
    Descriptor {
        /// The descriptor's number.
        fd: i32,
        /// The system's error.
        source: io::Error,
    },
    /// The inherited descriptor is closed, or is not the launcher's any more.
    #[error(
        "use descriptor {fd} from RSD_LISTEN_FD as a listening socket (what stands between the launcher and this program \
         must leave it open)"
    )]
    NotListening {
        /// The descriptor's number.
        fd: i32,
    },
    /// No process listens at the address, or none answers in time.
    #[error("connect to the process manager at {address} from PMI_PORT")]
    Connect {
        /// The launcher's value.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The process manager does not know this id.
    #[error("join with the id {id:?} from PMI_ID: the process manager does not know it")]
    UnknownId {
        /// The launcher's value.
        id: String,
    },
    /// The connection broke.
    #[error("talk to the process manager about {command}")]
    Io {
        /// The request.
        command: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The process manager closed the connection.
    #[error("get an answer to {command}: the process manager has closed the connection")]
    Closed {
        /// The request.
        command: &'static str,
    },
    /// The process manager does not answer.
    #[error("get an answer to {command} from the process manager within {limit:?}")]
    NoAnswer {
        /// The request.
        command: &'static str,
        /// How long this process has waited.
        limit: Duration,
    },
    /// The answer is not PMI-1.
    #[error("understand the answer to {command}")]
    Wire {
        /// The request.
        command: &'static str,
        /// The error in the answer.
        source: WireError,
    },
    /// The answer is not PMI-2.
    #[error("understand the answer to {command}")]
    Frame {
        /// The request.
        command: &'static str,
        /// The error in the answer.
        source: v2::WireError,
    },
    /// The process manager does not speak PMI-2.
    #[error("begin PMI-2: the process manager does not speak it (use PMI-1, libpmi.so.0)")]
    NoPmi2,
    /// The process manager refuses the request of a PMI-2 client.
    #[error("execute {command}: {why}")]
    Declined {
        /// The request.
        command: &'static str,
        /// The process manager's reason.
        why: String,
    },
    /// The answer belongs to a different request.
    #[error("understand the answer to {command}: it answers a different request")]
    WrongAnswer {
        /// The request.
        command: &'static str,
    },
    /// The process manager refuses the request.
    #[error("execute {command}: the process manager answered rc={rc}")]
    Refused {
        /// The request.
        command: &'static str,
        /// Its return code.
        rc: i32,
    },
    /// The job has failed.
    #[error("execute {command}: the job has failed: {why}")]
    Broken {
        /// The request.
        command: &'static str,
        /// The process manager's message.
        why: String,
    },
    /// A key or value that some process managers would change.
    #[error("put a {what} that is not one to {max} visible ASCII characters without a backslash")]
    NotPortable {
        /// `key` or `value`.
        what: &'static str,
        /// The process manager's limit in characters.
        max: usize,
    },
    /// A request that the wire cannot carry.
    #[error("write {command}")]
    Encode {
        /// The request.
        command: &'static str,
        /// The reason.
        source: EncodeError,
    },
}
impl BootstrapError {
    /// As users read it: what could not be done, and why.
    pub fn describe(&self, what: &str) -> String {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("cannot {what}: failed to {self}{cause}")
    }
}
