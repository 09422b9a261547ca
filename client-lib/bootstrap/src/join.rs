//! A process without a launcher requests a place from the daemon of its node: in a named group, if the user sets `RSD_JOIN`, or
//! in a job of its own, if a singleton needs a process manager. The answer has the content of a launcher's environment, an
//! [`Env`]; the environment itself is unchanged.
//!
//! The daemon is the one that `rsctl` would use: `RSD_DVM` or the only one that runs. `rsd_proto::join` defines the protocol.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rsd_config::find::{self, FindError, Wish};
use rsd_proto::join::client::{NotJoined, ask};
use rsd_proto::join::{Go, Join, SOCKET};

use super::Env;

/// Why there is no place. The text reads after "failed to", and names what to do.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No daemon runs, or it is unclear which one is meant.
    #[error("find an rsd daemon on this node: {0}")]
    NotFound(String),
    /// The daemon belongs to another user.
    #[error("ask the daemon at {place}: it belongs to uid {owner_uid}; use a daemon of your own (rsd start)")]
    NotPermitted {
        /// The daemon's state directory.
        place: String,
        /// Its owner.
        owner_uid: u32,
    },
    /// The daemon has refused, or has not answered.
    #[error("get a place from the daemon at {place}: {source}")]
    Refused {
        /// The daemon's state directory.
        place: String,
        /// Its answer.
        source: NotJoined,
    },
}

/// The timeout for a place that waits for no other process.
const ALONE: Duration = Duration::from_secs(45);

/// A place in a group, once the group is complete: waits as long as `join` or the group's rules say.
pub fn into_group(join: Join) -> Result<Env, JoinError> {
    ask_daemon(join)
}

/// A place in a job of this process alone.
pub fn alone() -> Result<Env, JoinError> {
    ask_daemon(Join { timeout_ms: u64::try_from(ALONE.as_millis()).ok(), ..Join::default() })
}

fn ask_daemon(join: Join) -> Result<Env, JoinError> {
    let base = rsd_config::runtime_dir(|name| std::env::var_os(name));
    let base = base.map_err(|error| JoinError::NotFound(error.to_string()))?;
    let word = std::env::var_os("RSD_DVM").filter(|word| !word.is_empty());
    let wish = word.as_ref().map(|word| Wish::Variable(Path::new(word)));
    let system = find::system_base(|name| std::env::var_os(name));
    let daemon = find::find_for(&base, system, wish).map_err(not_found)?;
    let place = daemon.state_dir().display().to_string();
    let socket = daemon.dir().join(SOCKET);
    if let Ok(meta) = std::fs::metadata(&socket)
        && ![0, nix::unistd::geteuid().as_raw()].contains(&meta.uid())
    {
        return Err(JoinError::NotPermitted { place, owner_uid: meta.uid() });
    }
    match ask(&socket, join, |_| ()) {
        Ok(go) => Ok(environment(go)),
        Err(source) => Err(JoinError::Refused { place, source }),
    }
}

/// The variables that a launcher would have set.
fn environment(go: Go) -> Env {
    Env {
        port: Some(go.pmi_port),
        id: Some(go.pmi_id.to_string()),
        address: Some(go.address).filter(|address| !address.is_empty()),
        ..Env::default()
    }
}

/// The error in terms of the environment: a program has no command-line options for it.
fn not_found(error: FindError) -> JoinError {
    JoinError::NotFound(match error {
        FindError::Several(daemons) => {
            let names = daemons.iter().map(|daemon| daemon.state_dir().display().to_string()).collect::<Vec<_>>();
            format!("{} daemons run here, choose one with RSD_DVM: {}", daemons.len(), names.join(", "))
        }
        FindError::NotRunning { wish, running } if !running.is_empty() => {
            let names = running.iter().map(|daemon| daemon.state_dir().display().to_string()).collect::<Vec<_>>();
            format!("{wish}: no such daemon is running; running daemons: {}", names.join(", "))
        }
        FindError::NoneRuns { .. }
        | FindError::NotRunning { .. }
        | FindError::NotPermitted { .. }
        | FindError::Io { .. } => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attachment;

    #[test]
    fn a_place_has_the_content_of_a_launchers_environment() {
        let go = Go { pmi_port: "127.0.0.1:9".into(), pmi_id: 7, address: "10.0.0.7".into(), ..Go::default() };
        let env = environment(go.clone());
        let tcp = Attachment::Tcp { address: "127.0.0.1:9".into(), id: "7".into() };
        assert_eq!((env.attachment().unwrap(), env.address.as_deref()), (Some(tcp), Some("10.0.0.7")));
        assert_eq!(environment(Go { address: String::new(), ..go }).address, None);
    }

    #[test]
    fn without_a_daemon_the_error_says_how_to_start_one() {
        assert_eq!(
            not_found(FindError::NoneRuns { base: "/run/rsd".into() }).to_string(),
            "find an rsd daemon on this node: no daemon is running here (looked in /run/rsd); start one with: rsd start"
        );
    }
}
