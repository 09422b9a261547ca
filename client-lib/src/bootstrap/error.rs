//! Why a process cannot join its job, or talk to its process manager.

use std::io;
use std::time::Duration;

use rsd_proto::pmi::v1::{EncodeError, WireError};

/// Each text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The launcher has set one variable and not the other that belongs to it.
    #[error("find {missing} in the environment, which belongs to {present}")]
    Incomplete {
        /// Is there.
        present: &'static str,
        /// Is not.
        missing: &'static str,
    },
    /// A variable of the launcher's holds something else than it should.
    #[error("read {name}={value:?} as {expected}")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The inherited descriptor is closed, or not a socket.
    #[error("use descriptor {fd} from PMI_FD as a socket (was it passed on by a launcher's rank to another program?)")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// What the system said.
        source: io::Error,
    },
    /// The inherited descriptor is closed, or another one by now.
    #[error(
        "use descriptor {fd} from RSD_LISTEN_FD as a listening socket (what stands between the launcher and this program \
         must leave it open)"
    )]
    NotListening {
        /// Its number.
        fd: i32,
    },
    /// Nothing listens at the address, or nothing answers there in time.
    #[error("connect to the process manager at {address} from PMI_PORT")]
    Connect {
        /// As the launcher has set it.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The process manager knows no process by this id.
    #[error("join with the id {id:?} from PMI_ID: the process manager does not know it")]
    UnknownId {
        /// As the launcher has set it.
        id: String,
    },
    /// The connection broke.
    #[error("talk to the process manager about {command}")]
    Io {
        /// The request.
        command: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The process manager closed the connection.
    #[error("get an answer to {command}: the process manager has closed the connection")]
    Closed {
        /// The request.
        command: &'static str,
    },
    /// The process manager keeps silent.
    #[error("get an answer to {command} from the process manager within {limit:?}")]
    NoAnswer {
        /// The request.
        command: &'static str,
        /// How long was waited for it.
        limit: Duration,
    },
    /// The answer is not PMI-1.
    #[error("understand the answer to {command}")]
    Wire {
        /// The request.
        command: &'static str,
        /// What is wrong with it.
        source: WireError,
    },
    /// The answer is one to another request.
    #[error("understand the answer to {command}: it is one to another request")]
    WrongAnswer {
        /// The request.
        command: &'static str,
    },
    /// The process manager says no.
    #[error("have {command} done by the process manager: it answered rc={rc}")]
    Refused {
        /// The request.
        command: &'static str,
        /// Its return code.
        rc: i32,
    },
    /// The job cannot go on.
    #[error("have {command} done by the process manager: the job is broken: {why}")]
    Broken {
        /// The request.
        command: &'static str,
        /// As the process manager has said it.
        why: String,
    },
    /// A key or value that not every process manager carries unchanged.
    #[error("put a {what} that is not one to {max} visible ASCII characters without a backslash")]
    NotPortable {
        /// `key` or `value`.
        what: &'static str,
        /// The process manager's limit.
        max: usize,
    },
    /// A request that the wire cannot carry.
    #[error("write {command}")]
    Encode {
        /// The request.
        command: &'static str,
        /// Why not.
        source: EncodeError,
    },
}
impl BootstrapError {
    /// As users read it: what could not be done, and why.
    pub fn told(&self, what: &str) -> String {
        let cause = std::error::Error::source(self).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("cannot {what}: failed to {self}{cause}")
    }
}
