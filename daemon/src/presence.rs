//! The files by which other processes find this daemon: its sockets, its record, and a link in the runtime directory.
//!
//! When somebody deletes the state directory, [`Presence::keep`] creates it again with everything in it. Nothing that runs is lost:
//! open connections and log files live on, and steps create their files again when they reconnect.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rsd_proto::transport::exit;
use rsd_proto::v1::Inventory;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{error, warn};

use crate::disk::state_dir::{Registration, StateDir};
use crate::door::{Door, Event};
use crate::failed::Failed;
use crate::serve::join;

/// How often the directory is checked. A second daemon is refused meanwhile (see [`crate::disk::state_dir`]).
const CHECK: Duration = Duration::from_secs(1);

/// A link in the runtime directory, for a daemon whose state directory is elsewhere.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) runtime_dir: PathBuf,
    pub(crate) name: String,
}

/// The sockets of a daemon, which serve from the start.
#[derive(Debug)]
pub(crate) struct Sockets {
    state_dir: Arc<StateDir>,
    door: Door,
    listeners: mpsc::Sender<UnixListener>,
    join: JoinHandle<()>,
}

impl Sockets {
    /// Listens for members of groups, and for everybody else through the receiver: each listener replaces the one before it.
    pub(crate) fn open(
        state_dir: &Arc<StateDir>,
        door: &Door,
    ) -> anyhow::Result<(Sockets, mpsc::Receiver<UnixListener>)> {
        let (listeners, receiver) = mpsc::channel(1);
        listeners.try_send(listen(state_dir)?).context("pass the socket on")?;
        let join = tokio::spawn(join::serve(join::listen(state_dir.path())?, door.clone()));
        Ok((Sockets { state_dir: Arc::clone(state_dir), door: door.clone(), listeners, join }, receiver))
    }

    async fn open_again(&mut self) -> anyhow::Result<()> {
        let members = join::listen(self.state_dir.path())?;
        self.listeners.send(listen(&self.state_dir)?).await.context("the server has ended")?;
        self.join.abort();
        self.join = tokio::spawn(join::serve(members, self.door.clone()));
        Ok(())
    }
}

/// What a ready daemon shows; dropping it removes the link.
#[derive(Debug)]
pub(crate) struct Presence {
    sockets: Sockets,
    record: serde_json::Value,
    inventory: Inventory,
    link: Option<Link>,
    registration: Option<Registration>,
}

impl Presence {
    /// Writes the record, for rsctl, and creates the link.
    pub(crate) fn show(
        sockets: Sockets,
        record: serde_json::Value,
        inventory: Inventory,
        link: Option<Link>,
    ) -> anyhow::Result<Presence> {
        let mut presence = Presence { sockets, record, inventory, link, registration: None };
        presence.write()?;
        Ok(presence)
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let state_dir = &self.sockets.state_dir;
        state_dir.write_inventory(&self.inventory)?;
        state_dir.write_daemon(&self.record)?;
        if let Some(link) = &self.link {
            // An older link is dropped first, because dropping it removes it.
            self.registration = None;
            self.registration = state_dir.register(&link.runtime_dir, &link.name);
        }
        Ok(())
    }

    /// Creates the state directory and the link again whenever they are deleted. Does not return.
    pub(crate) async fn keep(&mut self) {
        let mut failure = String::new();
        loop {
            tokio::time::sleep(CHECK).await;
            let is_there = self.sockets.state_dir.is_there();
            if is_there && self.registration.as_ref().is_none_or(Registration::is_there) {
                continue;
            }
            let restored = match is_there {
                true => self.write(),
                false => self.create_again().await,
            };
            match restored {
                Ok(()) => failure.clear(),
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != failure {
                        error!(
                            error,
                            "the state directory was deleted and cannot be created again: rsctl cannot find this daemon"
                        );
                        failure = error;
                    }
                }
            }
        }
    }

    async fn create_again(&mut self) -> anyhow::Result<()> {
        let state_dir = Arc::clone(&self.sockets.state_dir);
        state_dir.create_again()?;
        reopen_log(&state_dir)?;
        self.sockets.open_again().await?;
        self.write()?;
        self.sockets.door.send(Event::DirectoryCreated);
        let path = state_dir.path().display();
        warn!(%path, "the state directory was deleted; created it again (the output of ended jobs is lost)");
        Ok(())
    }
}

/// The log of a daemon in the background is its standard error, which goes to a file in the directory.
fn reopen_log(state_dir: &StateDir) -> anyhow::Result<()> {
    if std::env::var_os("RSD_DAEMONIZED").is_some() {
        let path = state_dir.path().join("rsd.log");
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let log = log.with_context(|| format!("open {}", path.display()))?;
        nix::unistd::dup2_stderr(&log).context("redirect the log")?;
    }
    Ok(())
}

fn listen(state_dir: &StateDir) -> anyhow::Result<UnixListener> {
    let path = state_dir.socket();
    // The directory is locked by this daemon, so the socket is a dead daemon's.
    let _ = std::fs::remove_file(&path);
    let too_long = path.as_os_str().len() > 107;
    let listener = UnixListener::bind(&path).map_err(|error| match too_long {
        true => {
            let text = "is too long for a unix socket (107 bytes): use a shorter --state-dir";
            Failed::new(exit::USAGE, format!("the path {} {text}", path.display())).into()
        }
        false => anyhow::Error::new(error).context(format!("listen on {}", path.display())),
    })?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
