//! A daemon's state directory.
//!
//! ```text
//! rsd.lock      held (flock) while the daemon runs
//! rsd.sock      its unix socket, 0600
//! rsd.log       its log, when it runs in the background
//! daemon.json   name, node and pid of the daemon, for rsctl
//! identity.json the identity that a restart keeps: node id, DVM and name; a head's counters
//! kept          what a head keeps across a restart: groups, running epochs, names, values
//! authority     a listening head's: the key and the certificate of the DVM's authority
//! credentials   a joined daemon's: its key and its certificate
//! inventory     what the node has, for the steps
//! jobs/N.log    a job's events (head)
//! steps/N       the launch of a job that runs here; its step locks it (flock) while the step runs
//! ```
//!
//! Only the daemon's user may enter the directory (0700). Its contents are not trusted: a file that does not parse counts as absent.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use prost::Message;
use rsd_core::JobId;
use rsd_proto::transport::exit;
use rsd_proto::v1::{Authority, Credentials, Inventory, Launch};
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

/// A launch that a daemon wrote to `steps/N`, and whether its step is still running.
#[derive(Debug)]
pub(crate) struct KnownStep {
    pub(crate) job: JobId,
    pub(crate) launch: Launch,
    pub(crate) alive: bool,
}

/// A daemon's link in the runtime directory; dropping it removes the link.
#[derive(Debug)]
pub(crate) struct Registration {
    link: PathBuf,
    to: PathBuf,
}

impl Registration {
    /// Whether the link still leads to the daemon.
    pub(crate) fn is_there(&self) -> bool {
        fs::read_link(&self.link).is_ok_and(|to| to == self.to)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.link);
        }
    }
}

/// A daemon that was just killed holds its lock until the kernel has freed the process.
const DYING: Duration = Duration::from_millis(500);

fn try_lock_for(lock: &File, timeout: Duration) -> Result<(), TryLockError> {
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
        make_private(&self.path)?;
        let lock = lock(&self.path, Duration::ZERO)?;
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = lock;
        self.secrets().iter().try_for_each(|(name, bytes)| replace(&self.path.join(name), bytes))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(&self.path)
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.path.join("jobs")
    }

    pub(crate) fn kept(&self) -> PathBuf {
        self.path.join("kept")
    }

    /// Deletes what the head of another DVM kept here.
    pub(crate) fn forget_kept(&self) {
        let _ = fs::remove_file(self.kept());
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        serde_json::from_slice(&fs::read(self.path.join("identity.json")).ok()?).ok()
    }

    pub(crate) fn write_identity(&self, identity: &Identity) -> anyhow::Result<()> {
        replace(&self.path.join("identity.json"), &serde_json::to_vec(identity)?)
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
        replace(&self.path.join(name), &bytes)?;
        self.secrets().insert(name, bytes);
        Ok(())
    }

    fn secrets(&self) -> MutexGuard<'_, BTreeMap<&'static str, Vec<u8>>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the node's inventory, for the steps.
    pub(crate) fn write_inventory(&self, inventory: &Inventory) -> anyhow::Result<()> {
        replace(&self.path.join("inventory"), &inventory.encode_to_vec())
    }

    /// Writes the description of this daemon, for rsctl.
    pub(crate) fn write_daemon(&self, daemon: &serde_json::Value) -> anyhow::Result<()> {
        replace(&self.path.join("daemon.json"), &serde_json::to_vec(daemon)?)
    }

    /// Links a state directory that is not in the runtime directory under the daemon's name there, so that clients find the
    /// daemon by name. Dropping the result removes the link. None: the directory is in the runtime directory, or the link
    /// cannot be made; clients then need the directory's path.
    pub(crate) fn register(&self, runtime_dir: &Path, name: &str) -> Option<Registration> {
        if self.path.parent() == runtime_dir.canonicalize().ok().as_deref() {
            return None;
        }
        make_private(runtime_dir).ok()?;
        let names = std::iter::once(name.to_owned()).chain((2..100).map(|number| format!("{name}-{number}")));
        for name in names {
            let link = runtime_dir.join(name);
            if fs::symlink_metadata(&link).is_ok_and(|meta| meta.is_symlink()) && !is_running(&link) {
                let _ = fs::remove_file(&link);
            }
            match std::os::unix::fs::symlink(&self.path, &link) {
                Ok(()) => return Some(Registration { link, to: self.path.clone() }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Removes the files by which other processes find the daemon, when the daemon stops.
    pub(crate) fn close(&self) {
        for name in ["daemon.json", "rsd.sock", rsd_proto::join::SOCKET] {
            // Errors are ignored: readers check the lock, which is free now.
            let _ = fs::remove_file(self.path.join(name));
        }
    }

    /// Writes a launch to `steps/N`, where its step process reads it.
    pub(crate) fn write_step(&self, launch: &Launch) -> anyhow::Result<()> {
        let path = step(&self.path, launch.job);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(&launch.encode_to_vec()));
        written.with_context(|| format!("write {}", path.display()))
    }

    pub(crate) fn forget_step(&self, job: JobId) {
        // A step that is still ending has the file open and no longer needs its name.
        let _ = fs::remove_file(step(&self.path, job));
    }

    /// Returns the launches that an earlier daemon wrote to `steps/`.
    pub(crate) fn known_steps(&self) -> Vec<KnownStep> {
        let entries = fs::read_dir(self.path.join("steps")).into_iter().flatten().flatten();
        entries.filter_map(|entry| known_step(&entry.path())).collect()
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
        Err(TryLockError::Error(error)) => return Err(error).context("lock the state directory"),
    }
    for below in ["jobs", "steps"] {
        make_private(&path.join(below))?;
    }
    Ok(lock)
}

fn known_step(path: &Path) -> Option<KnownStep> {
    let job = path.file_name()?.to_str()?.parse().ok()?;
    let launch = Launch::decode(&*fs::read(path).ok()?).ok()?;
    let alive = matches!(File::open(path).ok()?.try_lock(), Err(TryLockError::WouldBlock));
    Some(KnownStep { job, launch, alive })
}

/// The file of a step's launch, locked while the step runs.
#[derive(Debug)]
pub(crate) struct StepFile {
    path: PathBuf,
    /// The last one is at `path`; the others were there and were deleted. A daemon may still wait for their locks.
    held: Vec<File>,
}

impl StepFile {
    /// Creates the file again if it was deleted.
    pub(crate) fn restore(&mut self) -> std::io::Result<()> {
        let Some(held) = self.held.last() else { return Ok(()) };
        let meta = held.metadata()?;
        if fs::metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino())) {
            return Ok(());
        }
        let mut launch = vec![0; usize::try_from(meta.len()).unwrap_or(usize::MAX)];
        held.read_exact_at(&mut launch, 0)?;
        // Known steps have numbers as names: no daemon reads the file before it is locked.
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.try_lock()?;
        file.write_all(&launch)?;
        fs::rename(&new, &self.path)?;
        self.held.push(file);
        Ok(())
    }

    /// Whether the file was deleted and created again.
    pub(crate) fn was_restored(&self) -> bool {
        self.held.len() > 1
    }
}

/// Reads and locks a step's launch.
pub(crate) fn take_step(state_dir: &Path, job: JobId) -> anyhow::Result<(Launch, StepFile)> {
    let path = step(state_dir, job);
    let mut file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
    file.try_lock().with_context(|| format!("lock {}", path.display()))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(|| format!("read {}", path.display()))?;
    let launch = Launch::decode(&*bytes).with_context(|| format!("read {}", path.display()))?;
    Ok((launch, StepFile { path, held: vec![file] }))
}

/// Reads the inventory of the node; empty if the daemon has not written it.
pub(crate) fn inventory(state_dir: &Path) -> Inventory {
    let bytes = fs::read(state_dir.join("inventory")).ok();
    bytes.and_then(|bytes| Inventory::decode(&*bytes).ok()).unwrap_or_default()
}

/// Returns the path of the unix socket of the daemon in a state directory.
pub(crate) fn socket(state_dir: &Path) -> PathBuf {
    state_dir.join("rsd.sock")
}

/// Returns the path of the launch of a job's step.
pub(crate) fn step(state_dir: &Path, job: JobId) -> PathBuf {
    state_dir.join("steps").join(job.to_string())
}

/// The error for a second daemon of a state directory; `pid` is that of the first, if known.
fn runs_already(state_dir: &Path, pid: Option<i32>) -> Failed {
    let record = fs::read(state_dir.join("daemon.json")).ok();
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

fn is_running(state_dir: &Path) -> bool {
    let lock = File::open(state_dir.join("rsd.lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Makes a directory with mode 0700, which only this user may enter.
pub(crate) fn make_private(path: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("make the directory {}", path.display()))?;
    let meta = fs::metadata(path)?;
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        let text =
            format!("the directory {} belongs to uid {}: choose another with --state-dir", path.display(), meta.uid());
        bail!(Failed::new(exit::NOT_PERMITTED, text));
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Replaces a file completely or not at all: readers never see a partial file.
fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let scratch = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&scratch)?.write_all(bytes)?;
        fs::rename(&scratch, path)
    };
    write().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
