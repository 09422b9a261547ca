//! The directory in which other processes find a daemon, in the user's runtime directory, which may be small and which a logout may
//! remove.
//!
//! ```text
//! rsd.lock      held (flock) while the daemon runs
//! daemon.json   name, node, pid and state directory of the daemon
//! rsd.sock      its unix socket, 0600
//! join.sock     the socket for members of groups, 0600
//! inventory     what the node has, for the steps of other users
//! ```
//!
//! If the daemon serves all users, they may enter the directory (0755), read the description and the inventory (0644) and connect to the
//! sockets (0666).

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use prost::Message;
use rsd_proto::transport::exit;
use rsd_proto::v1::Inventory;
use tokio::net::UnixListener;

use super::state_dir::{DYING, make_dir, make_private, replace, try_lock_for};
use crate::failed::Failed;

/// The names that a daemon tries if daemons with other state directories have the same name: `NAME`, `NAME-2`, …
const NAMES_MAX: u32 = 100;

/// The locked directory; dropping it removes it.
#[derive(Debug)]
pub(crate) struct RuntimeDir {
    path: PathBuf,
    lock: File,
    /// Whether all users may use it.
    is_public: bool,
}

impl RuntimeDir {
    /// Creates and locks a directory with this name in `base`, for the daemon with this state directory.
    /// `is_public`: for all users.
    pub(crate) fn open(base: &Path, name: &str, state_dir: &Path, is_public: bool) -> anyhow::Result<RuntimeDir> {
        make_base(base, is_public)?;
        let names = std::iter::once(name.to_owned()).chain((2..NAMES_MAX).map(|number| format!("{name}-{number}")));
        for name in names {
            let path = base.join(name);
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
                // Never followed: it may lead to a directory that must not be removed.
                continue;
            }
            if let Some(lock) = lock(&path, state_dir, is_public).with_context(|| format!("lock {}", path.display()))? {
                return Ok(RuntimeDir { path, lock, is_public });
            }
        }
        bail!("{} has too many daemons of the name {name}", base.display())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is still there, and this daemon's.
    pub(crate) fn is_there(&self) -> bool {
        is_at(&self.lock, &self.path.join("rsd.lock"))
    }

    /// Writes the description of this daemon.
    pub(crate) fn write_daemon(&self, daemon: &serde_json::Value) -> anyhow::Result<()> {
        self.write("daemon.json", &serde_json::to_vec(daemon)?)
    }

    /// Writes the node's inventory, if steps of other users need it.
    pub(crate) fn write_inventory(&self, inventory: &Inventory) -> anyhow::Result<()> {
        if self.is_public { self.write("inventory", &inventory.encode_to_vec()) } else { Ok(()) }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.path.join(name);
        replace(&path, bytes)?;
        if self.is_public {
            fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        }
        Ok(())
    }

    /// Returns the mode of a socket in it.
    pub(crate) fn socket_mode(&self) -> u32 {
        if self.is_public { 0o666 } else { 0o600 }
    }

    /// Listens for clients and steps.
    pub(crate) fn listen(&self) -> anyhow::Result<UnixListener> {
        let path = self.path.join("rsd.sock");
        // The directory is locked by this daemon, so the socket is a dead daemon's.
        let _ = fs::remove_file(&path);
        let too_long = path.as_os_str().len() > 107;
        let listener = UnixListener::bind(&path).map_err(|error| match too_long {
            true => {
                let text = "is too long for a unix socket (107 bytes): set RSD_RUNTIME_DIR to a shorter one, or use a shorter --name";
                Failed::new(exit::USAGE, format!("the path {} {text}", path.display())).into()
            }
            false => anyhow::Error::new(error).context(format!("listen on {}", path.display())),
        })?;
        fs::set_permissions(&path, Permissions::from_mode(self.socket_mode()))?;
        Ok(listener)
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        if !self.is_there() {
            return;
        }
        // Errors are ignored: readers check the lock, which is free as soon as the process has ended.
        for name in ["daemon.json", "inventory", "rsd.sock", rsd_proto::join::SOCKET, "rsd.lock"] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path);
    }
}

/// Makes the directory of all daemons of this user. Root's may be open to all users, and each daemon's directory in it says who may
/// enter that.
fn make_base(base: &Path, is_public: bool) -> anyhow::Result<()> {
    let is_roots = |meta: fs::Metadata| meta.uid() == 0 && meta.mode() & 0o022 == 0;
    match is_public {
        true => make_dir(base, 0o755),
        false if geteuid().is_root() && fs::metadata(base).is_ok_and(is_roots) => Ok(()),
        false => make_private(base),
    }
}

/// Locks the directory at `path`. None: another daemon has locked it.
fn lock(path: &Path, state_dir: &Path, is_public: bool) -> anyhow::Result<Option<File>> {
    loop {
        if is_public {
            make_dir(path, 0o755)?
        } else {
            make_private(path)?
        }
        let file = path.join("rsd.lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&file);
        let lock = match opened {
            Ok(lock) => lock,
            // Its last daemon has just removed the directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        // This daemon has the state directory, so another process that holds both is being ended.
        let timeout = if is_of(path, state_dir) { DYING } else { std::time::Duration::ZERO };
        match try_lock_for(&lock, timeout) {
            Ok(()) if is_at(&lock, &file) => return Ok(Some(lock)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Whether the directory is that of a daemon with this state directory.
fn is_of(path: &Path, state_dir: &Path) -> bool {
    let record: Option<serde_json::Value> =
        fs::read(path.join("daemon.json")).ok().and_then(|json| serde_json::from_slice(&json).ok());
    record.is_some_and(|record| record["state_dir"].as_str().map(Path::new) == Some(state_dir))
}

/// Whether this path leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_daemon_takes_the_same_directory_and_another_daemon_of_that_name_the_next() {
        let base = std::env::temp_dir().join(format!("rsd-runtime-{}", std::process::id()));
        let open = |state: &str| RuntimeDir::open(&base, "n0", Path::new(state), false).unwrap();
        for _ in 0..3 {
            let first = open("/a");
            assert_eq!(first.path(), base.join("n0"));
            first.write_daemon(&serde_json::json!({"state_dir": "/a"})).unwrap();
            let second = open("/b");
            assert_eq!(second.path(), base.join("n0-2"));
            // As if they were killed: nothing is removed, and the locks are free.
            for killed in [first, second] {
                let killed = std::mem::ManuallyDrop::new(killed);
                killed.lock.unlock().unwrap();
            }
        }
        let first = open("/a");
        fs::remove_dir_all(&base).unwrap();
        assert!(!first.is_there());
        let again = open("/a");
        drop(first);
        assert!(again.is_there(), "only its own daemon removes it");
        drop(again);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        fs::remove_dir(&base).unwrap();
    }
}
