//! The launches of the jobs that run on this node: `steps/N` in the [state directory](super::state_dir). A step reads its launch
//! there, locks the file while it runs, and marks it before it starts ranks. So a restarted daemon knows which steps live, and which
//! launches no step has taken.
//!
//! The files of an earlier version are read: its steps go on when a daemon is upgraded. Files of a newer version are refused.
//!
//! A daemon can be killed at any moment, and a step can be in the middle of taking its launch then. Whoever locks the file decides:
//!
//! - A daemon that starts and finds a file that is neither locked nor marked deletes it while it holds the lock. The launch will
//!   be repeated, and start another step.
//! - A step that gets the lock of a deleted file ends. So does one whose daemon has ended before it opened the file, because the file
//!   may then belong to a step of the next daemon.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use prost::Message;
use rsd_core::JobId;
use rsd_proto::transport::exit;
use rsd_proto::v1::Launch;

use super::state_dir::try_lock_for;
use crate::failed::Failed;

/// The format that is written, and the newest that is read. Format 0 did not say so.
const FORMAT: u32 = 1;
/// The extension of a file that is being written.
const UNWRITTEN: &str = "new";
/// The permissions of a launch that no step has taken, and of one that a step has.
const NEW: u32 = 0o600;
const TAKEN: u32 = 0o700;
/// How long a step waits for a daemon that examines its file.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// A launch that a daemon wrote to `steps/N`, and whether its step is still running.
#[derive(Debug)]
pub(crate) struct KnownStep {
    pub(crate) launch: Launch,
    pub(crate) alive: bool,
}

/// Writes a launch to `steps/N`, where its step process reads it.
pub(crate) fn write(state_dir: &Path, launch: &Launch) -> anyhow::Result<()> {
    let path = step_file(state_dir, launch.job);
    // Known steps have numbers as names: a launch that is not written to its end is none.
    let new = path.with_extension(UNWRITTEN);
    let create = || OpenOptions::new().write(true).create_new(true).mode(NEW).open(&new);
    let file = create().or_else(|error| match error.kind() {
        // A daemon was killed while it wrote.
        ErrorKind::AlreadyExists => fs::remove_file(&new).and_then(|()| create()),
        _ => Err(error),
    });
    let launch = Launch { format: FORMAT, ..launch.clone() };
    let written = file.and_then(|mut file| file.write_all(&launch.encode_to_vec()));
    written.and_then(|()| fs::rename(&new, &path)).with_context(|| format!("write {}", path.display()))
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

/// Returns the launches that an earlier daemon wrote to `steps/` and that a step has taken. Deletes the others. Fails if a newer version of
/// rsd has written one; then nothing is changed.
pub(crate) fn known(state_dir: &Path) -> anyhow::Result<Vec<KnownStep>> {
    check(state_dir)?;
    Ok(paths(state_dir).filter_map(|path| known_step(&path)).collect())
}

/// Checks that all launches can be read.
pub(crate) fn check(state_dir: &Path) -> anyhow::Result<()> {
    for path in paths(state_dir).filter(|path| job_of(path).is_some()) {
        let launch = fs::read(&path).ok().and_then(|bytes| Launch::decode(&*bytes).ok());
        if let Some(newer) = launch.map(|launch| launch.format).filter(|format| *format > FORMAT) {
            let text = format!(
                "{} was written by a newer version of rsd (format {newer}; this one reads formats up to {FORMAT}): start that version, or \
                 give this daemon another --state-dir",
                path.display()
            );
            bail!(Failed::new(exit::SYSTEM, text));
        }
    }
    Ok(())
}

fn paths(state_dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(state_dir.join("steps")).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn job_of(path: &Path) -> Option<JobId> {
    path.file_name()?.to_str()?.parse().ok()
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
    let job = job_of(path)?;
    let mut file = open(path).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let alive = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    if !alive && !is_taken(&file) {
        // While the lock is held: a step that waits for it will find that its file has been deleted.
        let _ = fs::remove_file(path);
        return None;
    }
    let launch = Launch::decode(&*bytes).ok()?;
    (launch.job == job).then_some(KnownStep { launch, alive })
}

fn is_taken(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.mode() & 0o777 == TAKEN)
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
    /// The file that [`take_given`] has locked.
    pub(crate) fn given(file: File) -> StepFile {
        StepFile { path: None, held: vec![file] }
    }

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
        let new = path.with_extension(UNWRITTEN);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(TAKEN).open(&new)?;
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

/// Reads, locks and marks a step's launch, which a daemon has ordered. None: that daemon is no longer there (`is_current`), and a step of
/// the next one takes the launch.
pub(crate) fn take_step(
    state_dir: &Path,
    job: JobId,
    is_current: impl Fn() -> bool,
) -> anyhow::Result<Option<(Launch, StepFile)>> {
    let path = step_file(state_dir, job);
    let file = match open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !is_current() => return Ok(None),
        other => other.with_context(|| format!("open {}", path.display()))?,
    };
    if !is_current() {
        return Ok(None);
    }
    let taken = take(file).with_context(|| format!("take {}", path.display()))?;
    Ok(taken.map(|(launch, file)| (launch, StepFile { path: Some(path), held: vec![file] })))
}

/// Reads, locks and marks a step's launch, which a daemon of another user has opened. None: the next daemon has deleted it. The lock
/// lasts while a copy of this descriptor is open.
///
/// Only the daemon's user may mark the file.
pub(crate) fn take_given(file: &File) -> anyhow::Result<Option<Launch>> {
    let taken = file.try_clone().map_err(anyhow::Error::from).and_then(take);
    Ok(taken.context("take the launch from standard input")?.map(|(launch, _)| launch))
}

fn take(mut file: File) -> anyhow::Result<Option<(Launch, File)>> {
    // A daemon that starts holds the lock for a moment.
    try_lock_for(&file, LOCK_PATIENCE).context("lock it")?;
    if file.metadata().context("examine it")?.nlink() == 0 {
        return Ok(None);
    }
    file.set_permissions(Permissions::from_mode(TAKEN)).context("mark it")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).context("read it")?;
    Ok(Some((Launch::decode(&*bytes).context("read it")?, file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = 7;

    /// A state directory with a launch that no step has taken.
    fn written(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("rsd-step-files-{name}-{}", std::process::id()));
        fs::create_dir_all(dir.join("steps")).unwrap();
        write(&dir, &Launch { job: JOB, ..Default::default() }).unwrap();
        dir
    }

    fn alive(dir: &Path) -> Vec<(JobId, bool)> {
        known(dir).unwrap().into_iter().map(|step| (step.launch.job, step.alive)).collect()
    }

    #[test]
    fn a_launch_that_no_step_has_taken_is_deleted_and_others_are_known() {
        let dir = written("taken");
        let (launch, file) = take_step(&dir, JOB, || true).unwrap().unwrap();
        assert_eq!(launch.job, JOB);
        assert_eq!(alive(&dir), [(JOB, true)]);
        drop(file);
        assert_eq!(alive(&dir), [(JOB, false)], "its step has ended");
        write(&dir, &launch).unwrap();
        assert_eq!(alive(&dir), [], "the mark is of the file, not of its name");
        assert!(!step_file(&dir, JOB).exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_step_that_comes_after_the_next_daemon_does_not_take_the_launch() {
        let dir = written("late");
        let opened = open_to_read(&dir, JOB).unwrap();
        assert_eq!(alive(&dir), []);
        assert!(take_given(&opened).unwrap().is_none(), "the next daemon has deleted it");
        assert!(take_step(&dir, JOB, || false).unwrap().is_none(), "there is no file");
        write(&dir, &Launch { job: JOB, ..Default::default() }).unwrap();
        assert!(take_step(&dir, JOB, || false).unwrap().is_none(), "the file is of the next daemon");
        assert!(take_step(&dir, JOB, || true).unwrap().is_some());
        assert!(take_step(&dir, 8, || true).is_err(), "the own daemon must have written it");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_launch_of_which_a_part_was_written_is_none() {
        let dir = written("part");
        fs::rename(step_file(&dir, JOB), step_file(&dir, JOB).with_extension(UNWRITTEN)).unwrap();
        assert_eq!(alive(&dir), []);
        write(&dir, &Launch { job: JOB, ..Default::default() }).unwrap();
        assert!(take_step(&dir, JOB, || true).unwrap().is_some());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_files_of_every_version_are_read_and_those_of_a_newer_one_refused() {
        let dir = written("formats");
        let sample = include_bytes!("step_files/format-0");
        fs::write(step_file(&dir, 1), sample).unwrap();
        fs::set_permissions(step_file(&dir, 1), Permissions::from_mode(TAKEN)).unwrap();
        let (launch, _file) = take_step(&dir, JOB, || true).unwrap().unwrap();
        assert_eq!(launch.format, FORMAT);
        let mut steps = known(&dir).unwrap();
        steps.sort_by_key(|step| step.launch.job);
        let found: Vec<_> = steps.iter().map(|step| (step.launch.job, step.launch.format, step.alive)).collect();
        assert_eq!(found, [(1, 0, false), (JOB, FORMAT, true)]);
        assert_eq!(steps[0].launch.map.as_ref().unwrap().nodes, [0]);
        let newer = Launch { format: FORMAT + 1, ..launch };
        fs::write(step_file(&dir, 9), newer.encode_to_vec()).unwrap();
        let refused = known(&dir).unwrap_err().to_string();
        assert!(refused.contains("steps/9 was written by a newer version of rsd (format 2;"), "{refused}");
        assert!(step_file(&dir, 9).exists(), "nothing is changed");
        fs::remove_dir_all(dir).unwrap();
    }
}
