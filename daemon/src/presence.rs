//! The files by which other processes find this daemon: its sockets and its record in the runtime directory, and the link to them in
//! the state directory.
//!
//! When one of the directories is deleted, [`Presence::keep`] creates it again with everything in it. When a logout removes the
//! runtime directory, or a login makes a new one, the sockets move to where clients look now. Nothing that runs is lost: open
//! connections and log files live on, and steps create their files again when they reconnect.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rsd_proto::transport::Shares;
use rsd_proto::v1::Inventory;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::disk::runtime_dir::RuntimeDir;
use crate::disk::state_dir::StateDir;
use crate::door::{Door, Event};
use crate::options::DAEMONIZED;
use crate::serve::callers::Callers;
use crate::serve::join;
use crate::settings;

/// How large the log of a daemon in the background may become, and how many old ones are kept.
const LOG_BYTES_MAX: u64 = 16 << 20;
const OLD_LOGS: u32 = 3;
/// How often the directories are checked. A second daemon is refused meanwhile (see [`crate::disk::state_dir`]).
const CHECK: Duration = Duration::from_secs(1);

/// The sockets of a daemon, which serve from the start.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// The name of their directory.
    name: String,
    base: PathBuf,
    dir: RuntimeDir,
    state_dir: Arc<StateDir>,
    callers: Callers,
    /// What each user has of all connections to the daemon.
    connections: Shares,
    door: Door,
    listeners: mpsc::Sender<UnixListener>,
    join: JoinHandle<()>,
}

impl Sockets {
    /// Listens for members of groups, and for everybody else through the receiver: each listener replaces the one before it.
    pub(crate) fn open(
        state_dir: &Arc<StateDir>,
        name: String,
        callers: Callers,
        connections: Shares,
        door: &Door,
    ) -> anyhow::Result<(Sockets, mpsc::Receiver<UnixListener>)> {
        let base = settings::runtime_dir()?;
        let dir = RuntimeDir::open(&base, &name, state_dir.path(), callers.serves_all)?;
        let (listeners, receiver) = mpsc::channel(1);
        listeners.try_send(dir.listen()?).context("pass the socket on")?;
        let join = tokio::spawn(join::serve(join::listen(&dir)?, callers, connections.clone(), door.clone()));
        state_dir.link_to(dir.path())?;
        let (state_dir, door) = (Arc::clone(state_dir), door.clone());
        Ok((Sockets { name, base, dir, state_dir, callers, connections, door, listeners, join }, receiver))
    }

    /// Whether they are for all users.
    pub(crate) fn serves_all(&self) -> bool {
        self.callers.serves_all
    }

    /// Whether clients and steps find the sockets.
    fn are_there(&self) -> bool {
        let base = settings::runtime_dir();
        self.dir.is_there() && base.is_ok_and(|base| base == self.base)
    }

    async fn open_again(&mut self) -> anyhow::Result<()> {
        let base = settings::runtime_dir()?;
        let dir = RuntimeDir::open(&base, &self.name, self.state_dir.path(), self.callers.serves_all)?;
        let members = join::listen(&dir)?;
        self.listeners.send(dir.listen()?).await.context("the server has ended")?;
        self.join.abort();
        self.join = tokio::spawn(join::serve(members, self.callers, self.connections.clone(), self.door.clone()));
        (self.base, self.dir) = (base, dir);
        Ok(())
    }
}

/// What a ready daemon shows.
#[derive(Debug)]
pub(crate) struct Presence {
    sockets: Sockets,
    record: serde_json::Value,
    inventory: Inventory,
}

impl Presence {
    /// Writes the record, for rsctl.
    pub(crate) fn show(sockets: Sockets, record: serde_json::Value, inventory: Inventory) -> anyhow::Result<Presence> {
        let presence = Presence { sockets, record, inventory };
        presence.write()?;
        Ok(presence)
    }

    fn write(&self) -> anyhow::Result<()> {
        self.sockets.state_dir.try_write_inventory(&self.inventory);
        self.sockets.state_dir.link_to(self.sockets.dir.path())?;
        self.sockets.dir.write_inventory(&self.inventory)?;
        self.sockets.dir.write_daemon(&self.record)
    }

    /// Creates the directories again whenever they are deleted, and moves the sockets with the runtime directory. Does not return.
    pub(crate) async fn keep(&mut self) {
        let mut failure = String::new();
        loop {
            tokio::time::sleep(CHECK).await;
            if let Err(error) = limit_log(&self.sockets.state_dir) {
                error!(error = format!("{error:#}"), "cannot begin a new log");
            }
            match self.restore().await {
                Ok(()) => failure.clear(),
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != failure {
                        error!(
                            error,
                            "a directory of this daemon was removed and cannot be created again: rsctl cannot find this daemon"
                        );
                        failure = error;
                    }
                }
            }
        }
    }

    async fn restore(&mut self) -> anyhow::Result<()> {
        let state_dir = Arc::clone(&self.sockets.state_dir);
        let was_deleted = !state_dir.is_there();
        if was_deleted {
            state_dir.create_again()?;
            reopen_log(&state_dir)?;
        }
        if !self.sockets.are_there() {
            self.sockets.open_again().await?;
            info!(path = %self.sockets.dir.path().display(), "the runtime directory was removed or has moved; made the sockets again");
            self.write()?;
        } else if was_deleted || !state_dir.leads_to(self.sockets.dir.path()) {
            self.write()?;
        }
        if was_deleted {
            self.sockets.door.send(Event::DirectoryCreated);
            let path = state_dir.path().display();
            warn!(%path, "the state directory was deleted; created it again (the output of ended jobs is lost)");
        }
        Ok(())
    }
}

/// Begins a new log when the present one is large, and keeps a few old ones: rsd.log.1 is the newest of them.
fn limit_log(state_dir: &StateDir) -> anyhow::Result<()> {
    let path = state_dir.path().join("rsd.log");
    let is_large = std::env::var_os(DAEMONIZED).is_some()
        && std::fs::metadata(&path).is_ok_and(|meta| meta.len() >= LOG_BYTES_MAX);
    if !is_large {
        return Ok(());
    }
    shift(&path, OLD_LOGS).context("rename the old logs")?;
    reopen_log(state_dir)
}

/// Renames `path` to `path.1`, and so on; the oldest of `most` is replaced.
fn shift(path: &Path, most: u32) -> std::io::Result<()> {
    let old = |number: u32| match number {
        0 => path.to_owned(),
        number => path.with_added_extension(number.to_string()),
    };
    for number in (0..most).rev().filter(|number| old(*number).exists()) {
        std::fs::rename(old(number), old(number + 1))?;
    }
    Ok(())
}

/// The log of a daemon in the background is its standard error, which goes to a file in the directory.
fn reopen_log(state_dir: &StateDir) -> anyhow::Result<()> {
    if std::env::var_os(DAEMONIZED).is_some() {
        let path = state_dir.path().join("rsd.log");
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let log = log.with_context(|| format!("open {}", path.display()))?;
        nix::unistd::dup2_stderr(&log).context("redirect the log")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_logs_are_renamed_and_the_oldest_is_replaced() {
        let dir = std::env::temp_dir().join(format!("rsd-old-logs-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("rsd.log");
        for round in 0..5 {
            std::fs::write(&path, round.to_string()).unwrap();
            shift(&path, 2).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).ok();
        let logs = ["rsd.log", "rsd.log.1", "rsd.log.2", "rsd.log.3"].map(read);
        assert_eq!(logs, [None, Some("4".into()), Some("3".into()), None]);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
