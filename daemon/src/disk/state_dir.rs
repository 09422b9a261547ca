//! A daemon's state directory.
//!
//! ```text
//! rsd.lock      held (flock) while the daemon runs
//! run           a link to the directory of its sockets ([`runtime_dir`](super::runtime_dir))
//! rsd.log       its log, when it runs in the background; rsd.log.1 … are older ones
//! identity.json the identity that a restart keeps: node id, DVM and name; a head's counters
//! kept          what a head keeps across a restart: groups, running epochs, names, values
//! epoch         that of a later head, which has taken over from this one
//! standby/      a standby's copy of what the head keeps
//! authority     a listening head's: the key and the certificate of the DVM's authority
//! credentials   a joined daemon's: its key and its certificate
//! ancestors     a joined daemon's: the daemons above it
//! inventory     what the node has, for the steps
//! jobs/N.log    a job's events (head)
//! steps/…       the launches of jobs that run here; a step locks its file (flock) while it runs ([`step_files`](super::step_files))
//! ```
//!
//! The directory may be on NFS, where the machines of a cluster have one home directory for all. Its name contains the host's name, so
//! each machine has its own. The locks are flock(2), which Linux passes on to the NFS server (the file must be open for writing, and is
//! here); they also keep two machines with the same host name apart. If the server has no locks, the daemon does not start and asks
//! for `--state-dir`.
//!
//! Only the daemon's user may enter the directory (0700). Its contents are not trusted: a file that does not parse counts as absent.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use prost::Message;
use rsd_config::find::{ENTRY_LINK, entry_of};
use rsd_proto::transport::exit;
use rsd_proto::v1::{Ancestors, Authority, Credentials, HeadEpoch, Inventory};
use serde::{Deserialize, Serialize};

use super::claim::{Claim, HeldBy};
use crate::failed::Failed;

/// The locked directory of one daemon.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// Dropping it unlocks. It is replaced when the directory is created again.
    lock: Mutex<File>,
    /// The files with keys, by name, which are written again when the directory is deleted.
    secrets: Mutex<BTreeMap<&'static str, Vec<u8>>>,
    claim: Claim,
}

/// The part of a daemon's state that a restart keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) dvm: String,
    pub(crate) node: u32,
    pub(crate) name: String,
    /// A head's counters.
    #[serde(default)]
    pub(crate) next_job: u64,
    #[serde(default)]
    pub(crate) next_node: u32,
}

/// A daemon that was just killed holds its lock until the kernel has freed the process.
pub(super) const DYING: Duration = Duration::from_millis(500);

pub(super) fn try_lock_for(lock: &File, timeout: Duration) -> Result<(), TryLockError> {
    let deadline = Instant::now() + timeout;
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

/// The files with keys.
const AUTHORITY: &str = "authority";
const CREDENTIALS: &str = "credentials";

impl StateDir {
    /// Creates the directory if necessary and locks it. If another daemon holds the lock, the error names that daemon.
    pub(crate) fn open(path: &Path) -> anyhow::Result<StateDir> {
        make_private(path)?;
        let path = path.canonicalize().with_context(|| format!("open the state directory {}", path.display()))?;
        let claim = match Claim::take(&path, DYING).context("claim the state directory")? {
            Ok(claim) => claim,
            Err(HeldBy(pid)) => bail!(runs_already(&path, Some(pid))),
        };
        let lock = lock(&path, DYING)?;
        Ok(StateDir { path, lock: Mutex::new(lock), secrets: Mutex::default(), claim })
    }

    /// Whether the directory is still there, and this daemon's.
    pub(crate) fn is_there(&self) -> bool {
        self.claim.drop_callers();
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner).metadata();
        let there = fs::metadata(self.path.join("rsd.lock"));
        matches!((held, there), (Ok(held), Ok(there)) if (held.dev(), held.ino()) == (there.dev(), there.ino()))
    }

    /// Creates the directory again after it was deleted, and locks it. Fails if another daemon has done so.
    pub(crate) fn create_again(&self) -> anyhow::Result<()> {
        check_parent(&self.path)?;
        make_private(&self.path)?;
        let lock = lock(&self.path, Duration::ZERO)?;
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = lock;
        self.secrets().iter().try_for_each(|(name, bytes)| replace_for_good(&self.path.join(name), bytes))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.path.join("jobs")
    }

    /// Deletes what the head of another DVM kept here.
    pub(crate) fn forget_kept(&self) {
        super::journal::forget(&self.path);
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        serde_json::from_slice(&fs::read(self.path.join("identity.json")).ok()?).ok()
    }

    /// Writes the identity. The kernel may write it to the disk later, unless the node or its DVM is another, or has given an id.
    pub(crate) fn write_identity(&self, identity: &Identity) -> anyhow::Result<()> {
        let before = self.identity().map(|before| Identity { next_job: identity.next_job, ..before });
        let path = self.path.join("identity.json");
        let bytes = serde_json::to_vec(identity)?;
        if before.as_ref() == Some(identity) { replace(&path, &bytes) } else { replace_for_good(&path, &bytes) }
    }

    /// Returns the stored authority; None if there is none. A file that cannot be read is an error, because a new authority would
    /// lock out all nodes.
    pub(crate) fn authority(&self) -> anyhow::Result<Option<Authority>> {
        let path = self.path.join(AUTHORITY);
        match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Ok(_) | Err(_) => {}
        }
        let stored = self.secret(AUTHORITY).and_then(|bytes| Authority::decode(&*bytes).ok());
        let whole = stored.filter(|stored| !stored.key.is_empty() && !stored.certificate.is_empty());
        whole.map(Some).with_context(|| {
            format!(
                "read the authority of the DVM in {}: restore the file, or remove it and join all nodes again",
                path.display()
            )
        })
    }

    pub(crate) fn write_authority(&self, authority: &Authority) -> anyhow::Result<()> {
        self.write_secret(AUTHORITY, authority.encode_to_vec())
    }

    pub(crate) fn credentials(&self) -> Option<Credentials> {
        Credentials::decode(&*self.secret(CREDENTIALS)?).ok()
    }

    pub(crate) fn write_credentials(&self, credentials: &Credentials) -> anyhow::Result<()> {
        self.write_secret(CREDENTIALS, credentials.encode_to_vec())
    }

    fn secret(&self, name: &'static str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.path.join(name)).ok()?;
        self.secrets().insert(name, bytes.clone());
        Some(bytes)
    }

    fn write_secret(&self, name: &'static str, bytes: Vec<u8>) -> anyhow::Result<()> {
        replace_for_good(&self.path.join(name), &bytes)?;
        self.secrets().insert(name, bytes);
        Ok(())
    }

    fn secrets(&self) -> MutexGuard<'_, BTreeMap<&'static str, Vec<u8>>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the epoch of a later head, which has taken over from the head of this directory.
    pub(crate) fn later_epoch(&self) -> Option<HeadEpoch> {
        HeadEpoch::decode(&*fs::read(self.path.join("epoch")).ok()?).ok()
    }

    pub(crate) fn write_later_epoch(&self, epoch: &HeadEpoch) -> anyhow::Result<()> {
        replace_for_good(&self.path.join("epoch"), &epoch.encode_to_vec())
    }

    /// Returns the daemons above this one before its restart.
    pub(crate) fn ancestors(&self) -> Option<Ancestors> {
        Ancestors::decode(&*fs::read(self.path.join("ancestors")).ok()?).ok()
    }

    /// Writes which daemons are above this one.
    pub(crate) fn write_ancestors(&self, ancestors: &Ancestors) -> anyhow::Result<()> {
        // A node must not forget the highest epoch that it has heard of when its machine crashes.
        let before = self.ancestors().and_then(|before| before.epoch).unwrap_or_default();
        let is_news = ancestors.epoch.as_ref().is_some_and(|epoch| epoch.number != before.number);
        let path = self.path.join("ancestors");
        if is_news {
            replace_for_good(&path, &ancestors.encode_to_vec())
        } else {
            replace(&path, &ancestors.encode_to_vec())
        }
    }

    /// As [`StateDir::write_inventory`]; a failure is only logged: without it, steps bind no ranks, or by that of the last start.
    pub(crate) fn try_write_inventory(&self, inventory: &Inventory) {
        if let Err(error) = self.write_inventory(inventory) {
            tracing::warn!(error = format!("{error:#}"), "cannot write what this node has");
        }
    }

    /// Writes the node's inventory, for the steps.
    fn write_inventory(&self, inventory: &Inventory) -> anyhow::Result<()> {
        replace(&self.path.join("inventory"), &inventory.encode_to_vec())
    }

    /// Writes the link to the directory of the daemon's sockets.
    pub(crate) fn link_to(&self, runtime_dir: &Path) -> anyhow::Result<()> {
        let (link, scratch) = (self.path.join(ENTRY_LINK), self.path.join("run.new"));
        let _ = fs::remove_file(&scratch);
        let made = std::os::unix::fs::symlink(runtime_dir, &scratch).and_then(|()| fs::rename(&scratch, &link));
        made.with_context(|| format!("write {}", link.display()))
    }

    /// Whether the link leads there.
    pub(crate) fn leads_to(&self, runtime_dir: &Path) -> bool {
        fs::read_link(self.path.join(ENTRY_LINK)).is_ok_and(|to| to == runtime_dir)
    }
}

/// Locks the directory at `path`, waiting up to `timeout`, and creates the directories in it.
fn lock(path: &Path, timeout: Duration) -> anyhow::Result<File> {
    let file = path.join("rsd.lock");
    let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&file);
    let lock = lock.with_context(|| format!("open {}", file.display()))?;
    match try_lock_for(&lock, timeout) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(runs_already(path, None)),
        Err(TryLockError::Error(error)) => {
            let text = format!(
                "lock {}: {error}: choose a directory on a file system with locks: --state-dir",
                file.display()
            );
            bail!(Failed::new(exit::SYSTEM, text));
        }
    }
    for below in ["jobs", "steps"] {
        make_private(&path.join(below))?;
    }
    Ok(lock)
}

/// Reads the inventory of the node; empty if the daemon has not written it.
pub(crate) fn inventory(state_dir: &Path) -> Inventory {
    let bytes = fs::read(state_dir.join("inventory")).ok();
    bytes.and_then(|bytes| Inventory::decode(&*bytes).ok()).unwrap_or_default()
}

/// Returns the path of the unix socket of the daemon with this state directory. It changes when the daemon moves its sockets.
pub(crate) fn socket(state_dir: &Path) -> PathBuf {
    entry_of(state_dir).join("rsd.sock")
}

/// The error for a second daemon of a state directory; `pid` is that of the first, if known.
fn runs_already(state_dir: &Path, pid: Option<i32>) -> Failed {
    let record = fs::read(state_dir.join(ENTRY_LINK).join("daemon.json")).ok();
    let record: Option<serde_json::Value> = record.and_then(|json| serde_json::from_slice(&json).ok());
    let running = match (record, pid) {
        (Some(daemon), _) => format!(
            "the daemon {} (pid {})",
            daemon["name"].as_str().unwrap_or("?"),
            daemon["pid"].as_u64().unwrap_or_default()
        ),
        (None, Some(pid)) => format!("a daemon (pid {pid})"),
        (None, None) => "a daemon".to_owned(),
    };
    let dir = state_dir.display();
    Failed::new(
        exit::RUNS_ALREADY,
        format!(
            "{running} already runs in {dir}: stop it (rsd stop --dvm {dir}), or give this one another --name or --state-dir"
        ),
    )
}

/// Makes a directory with mode 0700, which only this user may enter.
pub(crate) fn make_private(path: &Path) -> anyhow::Result<()> {
    make_dir(path, 0o700)
}

/// Makes a directory of this user with this mode.
pub(super) fn make_dir(path: &Path, mode: u32) -> anyhow::Result<()> {
    // Below root's, other users' daemons have theirs.
    let above = if nix::unistd::geteuid().is_root() { 0o755 } else { 0o700 };
    let parents =
        path.parent().map_or(Ok(()), |parent| fs::DirBuilder::new().recursive(true).mode(above).create(parent));
    let made = parents.and_then(|()| fs::DirBuilder::new().recursive(true).mode(mode).create(path));
    made.with_context(|| format!("make the directory {}", path.display()))?;
    let meta = fs::metadata(path)?;
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        let text = format!(
            "the directory {} belongs to uid {}: choose another with --state-dir or RSD_RUNTIME_DIR",
            path.display(),
            meta.uid()
        );
        bail!(Failed::new(exit::NOT_PERMITTED, text));
    }
    if meta.mode() & 0o777 != mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Checks that no other user can put a directory of theirs, or a link, in the place of a deleted one: keys are written into it. The
/// nearest directory above it that exists must be this user's or root's, and writable by others only with the sticky bit.
fn check_parent(path: &Path) -> anyhow::Result<()> {
    let found = path.ancestors().skip(1).find_map(|above| Some((above, fs::metadata(above).ok()?)));
    let Some((above, meta)) = found else { return Ok(()) };
    let own = nix::unistd::geteuid().as_raw();
    let is_safe = (meta.uid() == own || meta.uid() == 0) && (meta.mode() & 0o022 == 0 || meta.mode() & 0o1000 != 0);
    if !is_safe {
        let text =
            format!("other users can write to {}: the keys of this daemon are not written there", above.display());
        bail!(Failed::new(exit::NOT_PERMITTED, text));
    }
    if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir()) {
        bail!(Failed::new(exit::NOT_PERMITTED, format!("{} is not a directory", path.display())));
    }
    Ok(())
}

/// Replaces a file, and returns when it is on the disk, so that a crash of the machine does not undo it.
pub(crate) fn replace_for_good(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace(path, bytes)?;
    let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
    let synced = sync(path).and_then(|()| path.parent().map_or(Ok(()), sync));
    synced.with_context(|| format!("write {} to the disk", path.display()))
}

/// Replaces a file completely or not at all: readers never see a partial file.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let scratch = path.with_extension("new");
    // A daemon that was killed may have left one. It is never opened: it could be a link, or belong to another user.
    let _ = fs::remove_file(&scratch);
    let write = || -> std::io::Result<()> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?.write_all(bytes)?;
        fs::rename(&scratch, path)
    };
    write().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_not_made_again_where_other_users_can_put_another_in_its_place() {
        let base = std::env::temp_dir().join(format!("rsd-parent-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        for (mode, is_safe) in [(0o755, true), (0o777, false), (0o1777, true), (0o770, false)] {
            fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_parent(&base.join("a/b")).is_ok(), is_safe, "{mode:o}");
        }
        fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("/tmp", base.join("a")).unwrap();
        assert!(check_parent(&base.join("a")).is_err(), "a link");
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn a_lock_that_is_released_within_the_timeout_is_taken() {
        let path = std::env::temp_dir().join(format!("rsd-lock-{}", std::process::id()));
        let (held, wanted) = (File::create(&path).unwrap(), File::create(&path).unwrap());
        held.try_lock().unwrap();
        let refused = try_lock_for(&wanted, Duration::ZERO);
        assert!(matches!(refused, Err(TryLockError::WouldBlock)), "{refused:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(20));
                drop(held);
            });
            assert!(try_lock_for(&wanted, Duration::from_secs(20)).is_ok());
        });
        fs::remove_file(&path).unwrap();
    }
}
