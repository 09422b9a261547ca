//! Why a host cannot be used.

use std::time::Duration;

use thiserror::Error;

use crate::config::ConfigError;
use crate::known_hosts::Line;

/// Why a host cannot be used. Each text stands after the host's name.
#[derive(Debug, Error)]
pub enum SshError {
    /// The user's configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The name has no address.
    #[error("cannot resolve {host}: {why}")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's text.
        why: String,
    },
    /// No TCP connection.
    #[error("cannot connect to {place}: {why}")]
    Connect {
        /// Address and port.
        place: String,
        /// The last address's error.
        why: String,
    },
    /// The command that is to make the connection does not start.
    #[error("cannot run the ProxyCommand `{command}`: {why}")]
    ProxyCommand {
        /// The command.
        command: String,
        /// The system's error.
        why: String,
    },
    /// A jump host refuses to connect further.
    #[error("jump host {jump} cannot connect to {place}: {why}")]
    Jump {
        /// The jump host.
        jump: String,
        /// Where to.
        place: String,
        /// Its reason.
        why: String,
    },
    /// Connecting through a jump host failed before it could be asked.
    #[error("jump host {jump}: {error}")]
    ThroughJump {
        /// The jump host.
        jump: String,
        /// Its own error.
        error: std::sync::Arc<SshError>,
    },
    /// Too slow.
    #[error("no answer within {} s: {doing}", after.as_secs())]
    TimedOut {
        /// What was waited for.
        doing: String,
        /// The deadline.
        after: Duration,
    },
    /// The host key is not trusted.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The server accepts none of the keys.
    #[error("{user} is not admitted: {why}")]
    NotAdmitted {
        /// The account.
        user: String,
        /// What was tried, and what would help.
        why: String,
    },
    /// The connection was closed.
    #[error("the connection was closed: {doing}")]
    Closed {
        /// What was going on.
        doing: String,
    },
    /// The other side does not do what was asked.
    #[error("ssh: {doing}: {error}")]
    Protocol {
        /// What was going on.
        doing: String,
        /// The library's error.
        error: russh::Error,
    },
}

impl SshError {
    pub(crate) fn of_protocol(doing: &str, error: russh::Error) -> SshError {
        let doing = doing.to_owned();
        match error {
            russh::Error::HUP | russh::Error::Disconnect | russh::Error::SendError | russh::Error::Inconsistent => {
                SshError::Closed { doing }
            }
            russh::Error::IO(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => SshError::Closed { doing },
            russh::Error::IO(error) => SshError::Closed { doing: format!("{doing}: {error}") },
            error => SshError::Protocol { doing, error },
        }
    }
}

/// Why a host key is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostKeyError {
    /// It is not in known_hosts.
    #[error(
        "its host key is unknown: {key} {fingerprint}{}; compare the fingerprint on the host (ssh-keygen -lf \
         /etc/ssh/ssh_host_*_key.pub), then connect once with ssh, or use --accept-new-host-keys",
        authority.as_ref().map_or(String::new(), |line| format!(" (host certificates, {line}, are not supported)"))
    )]
    Unknown {
        /// The key's type.
        key: String,
        /// `SHA256:…`.
        fingerprint: String,
        /// The line that names an authority for its host certificate.
        authority: Option<Line>,
    },
    /// It is not the one in known_hosts.
    #[error(
        "HOST KEY CHANGED: {line} has another {}key, and the host now shows {key} {fingerprint}; someone may be intercepting the \
         connection. If the host was reinstalled, compare the fingerprint on the host and remove the old key: ssh-keygen -R '{name}' -f {}",
        if *same_type { "" } else { "type of " }, line.file.display()
    )]
    Changed {
        /// The key's type.
        key: String,
        /// `SHA256:…`.
        fingerprint: String,
        /// The line with the other key.
        line: Line,
        /// Whether the other key has the same type.
        same_type: bool,
        /// The host's name in known_hosts.
        name: String,
    },
    /// It is marked as revoked.
    #[error("its host key is revoked by {line}: {key} {fingerprint}")]
    Revoked {
        /// The key's type.
        key: String,
        /// `SHA256:…`.
        fingerprint: String,
        /// The line with the mark.
        line: Line,
    },
    /// known_hosts cannot be read, or a new key cannot be written.
    #[error("known_hosts: {0}")]
    File(String),
}
