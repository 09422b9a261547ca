//! The launches of the jobs that run on this node: `steps/N` in the [state directory](super::state_dir). A step reads its launch
//! there and locks the file while it runs, so a restarted daemon knows which steps live.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use prost::Message;
use rsd_core::JobId;
use rsd_proto::v1::Launch;

/// A launch that a daemon wrote to `steps/N`, and whether its step is still running.
#[derive(Debug)]
pub(crate) struct KnownStep {
    pub(crate) launch: Launch,
    pub(crate) alive: bool,
}

/// Writes a launch to `steps/N`, where its step process reads it.
pub(crate) fn write(state_dir: &Path, launch: &Launch) -> anyhow::Result<()> {
    let path = step_file(state_dir, launch.job);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(&launch.encode_to_vec()));
    written.with_context(|| format!("write {}", path.display()))
}

/// Opens a launch for a step process of another user, which can lock it, and not change it.
pub(crate) fn open_to_read(state_dir: &Path, job: JobId) -> anyhow::Result<File> {
    let path = step_file(state_dir, job);
    File::open(&path).with_context(|| format!("open {}", path.display()))
}

/// Removes the launch of a job. A step that is still ending has the file open and no longer needs its name.
pub(crate) fn forget(state_dir: &Path, job: JobId) {
    let _ = fs::remove_file(step_file(state_dir, job));
}

/// Returns the launches that an earlier daemon wrote to `steps/`.
pub(crate) fn known(state_dir: &Path) -> Vec<KnownStep> {
    let entries = fs::read_dir(state_dir.join("steps")).into_iter().flatten().flatten();
    entries.filter_map(|entry| known_step(&entry.path())).collect()
}

/// Waits until the step of a job, which an earlier daemon started, has ended.
pub(crate) fn wait_for_end(state_dir: &Path, job: JobId) -> std::io::Result<()> {
    open(&step_file(state_dir, job))?.lock()
}

/// Returns the path of the launch of a job's step.
fn step_file(state_dir: &Path, job: JobId) -> PathBuf {
    state_dir.join("steps").join(job.to_string())
}

/// Opens a launch for reading and locking. On NFS, only a file that is open for writing can be locked.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn known_step(path: &Path) -> Option<KnownStep> {
    let job: JobId = path.file_name()?.to_str()?.parse().ok()?;
    let launch = Launch::decode(&*fs::read(path).ok()?).ok()?;
    let alive = matches!(open(path).ok()?.try_lock(), Err(TryLockError::WouldBlock));
    (launch.job == job).then_some(KnownStep { launch, alive })
}

/// The file of a step's launch, locked while the step runs.
#[derive(Debug)]
pub(crate) struct StepFile {
    /// None: the file is in another user's directory.
    path: Option<PathBuf>,
    /// The last one is at `path`; the others were there and were deleted. A daemon may still wait for their locks.
    held: Vec<File>,
}

impl StepFile {
    /// Creates the file again if it was deleted. In another user's directory it cannot.
    pub(crate) fn restore(&mut self) -> std::io::Result<()> {
        let (Some(held), Some(path)) = (self.held.last(), &self.path) else { return Ok(()) };
        let meta = held.metadata()?;
        if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino())) {
            return Ok(());
        }
        let mut launch = vec![0; usize::try_from(meta.len()).unwrap_or(usize::MAX)];
        held.read_exact_at(&mut launch, 0)?;
        // Known steps have numbers as names: no daemon reads the file before it is locked.
        let new = path.with_extension("new");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.try_lock()?;
        file.write_all(&launch)?;
        fs::rename(&new, path)?;
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
    let path = step_file(state_dir, job);
    let file = open(&path).with_context(|| format!("open {}", path.display()))?;
    let (launch, file) = take(file).with_context(|| format!("take {}", path.display()))?;
    Ok((launch, StepFile { path: Some(path), held: vec![file] }))
}

/// Reads and locks a step's launch, which a daemon of another user has opened.
pub(crate) fn take_given(file: File) -> anyhow::Result<(Launch, StepFile)> {
    let (launch, file) = take(file).context("take the launch from standard input")?;
    Ok((launch, StepFile { path: None, held: vec![file] }))
}

fn take(mut file: File) -> anyhow::Result<(Launch, File)> {
    file.try_lock().context("lock it")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).context("read it")?;
    Ok((Launch::decode(&*bytes).context("read it")?, file))
}
