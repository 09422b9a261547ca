//! The head's journal: the records of its decisions, in one file.
//!
//! The file begins with a line that names its format. Each record has its length, its CRC-32 and its bytes. An append is one write, made
//! before anybody hears of what it says: a head that is killed loses none, whatever it was doing. What must also outlive a crash of the
//! machine waits for the disk ([`Journal::sync`]); one write to the disk serves all that wait.
//!
//! A partial last record is that of a head that was killed while it wrote, and nobody has heard of it: the reader ignores it. The file is
//! rewritten with the shortest equivalent records when it has grown to several times their size, and after a failed write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use anyhow::Context;
use prost::Message;
use rsd_proto::transport::exit;
use rsd_proto::v1::Kept;
use rsd_proto::v1::kept::What;
use tokio::sync::oneshot;
use tracing::{error, warn};

use crate::failed::Failed;

/// How the first line of a file begins; its format follows.
const MAGIC: &str = "rsd journal ";
/// The format that is written, and the newest that is read. Format 0 has no first line and no checksums, and is in a file of another name.
const FORMAT: u32 = 1;
/// The bytes before each record: its length and its CRC-32, little endian.
const HEAD_BYTES: usize = 8;
/// Files up to this size are not rewritten because of their size.
const SHORT_BYTES: u64 = 1 << 20;
/// A file is rewritten when it is this many times the size of its current records.
const GROWTH: u64 = 4;

/// The file of a head's journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// None: the file must be rewritten.
    file: Option<Arc<File>>,
    bytes: u64,
    /// Its size after the last rewrite.
    short_bytes: u64,
    /// The thread that waits for the disk.
    syncer: Sender<Sync>,
}

/// Somebody who waits until a file is on the disk.
type Sync = (Arc<File>, oneshot::Sender<bool>);

impl Journal {
    /// Opens the journal in this directory. Also returns its records. Fails if a newer version of rsd has written it, or if it cannot be
    /// read; then nothing is changed.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<(Journal, Vec<Kept>)> {
        let path = dir.join("journal");
        let records = match read(&path)? {
            Some(records) => records,
            None => read_format_0(&dir.join("kept"))?,
        };
        let (syncer, waiting) = channel::<Sync>();
        let thread = std::thread::Builder::new().name("journal".into()).stack_size(64 << 10);
        let spawned = thread.spawn(move || {
            while let Ok((mut file, first)) = waiting.recv() {
                let mut all = vec![first];
                while let Ok((newer, other)) = waiting.try_recv() {
                    file = newer; // a file that was replaced is on the disk already
                    all.push(other);
                }
                let synced = file.sync_data();
                if let Err(error) = &synced {
                    error!(%error, "the journal cannot be written to the disk");
                }
                for waits in all {
                    let _ = waits.send(synced.is_ok()); // it may no longer wait
                }
            }
        });
        spawned.context("start the thread that waits for the disk")?;
        Ok((Journal { path, file: None, bytes: 0, short_bytes: 0, syncer }, records))
    }

    /// Appends records, completely or not at all. If the file must be rewritten, writes `everything`, which includes them.
    pub(crate) fn append(&mut self, records: &[Kept], everything: impl FnOnce() -> Vec<Kept>) {
        let bytes = encode(records);
        let length = bytes.len() as u64;
        let too_long = self.bytes + length > SHORT_BYTES.max(GROWTH * self.short_bytes);
        if (self.file.is_none() || too_long) && self.rewrite(&everything()) {
            return;
        }
        // If the rewrite fails, appending may still work. The next rewrite is attempted when the file has grown further.
        self.short_bytes = self.short_bytes.max(if too_long { self.bytes } else { 0 });
        let Some(file) = &self.file else { return };
        // A token's use must not be forgotten when the machine crashes.
        let must_stay = records.iter().any(|record| matches!(record.what, Some(What::Token(_) | What::TokenGone(_))));
        let mut writer: &File = file;
        let written = writer.write_all(&bytes).and_then(|()| if must_stay { file.sync_data() } else { Ok(()) });
        match written {
            Ok(()) => self.bytes += length,
            Err(error) => {
                // A reader must not find a partial record. Further appends may fail too, so the next change rewrites the file.
                let _ = file.set_len(self.bytes);
                self.file = None;
                error!(path = %self.path.display(), %error, "cannot write the journal: a restart will not know what follows");
            }
        }
    }

    /// Rewrites the file; returns false if that fails.
    pub(crate) fn rewrite(&mut self, records: &[Kept]) -> bool {
        let mut bytes = first_line().into_bytes();
        bytes.extend(encode(records));
        let scratch = self.path.with_extension("new");
        let write = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&scratch)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            std::fs::rename(&scratch, &self.path)?;
            // A file of format 0 would be read again if this one were deleted.
            let _ = std::fs::remove_file(self.path.with_file_name("kept"));
            Ok(file)
        };
        match write() {
            Ok(file) => {
                let length = bytes.len() as u64;
                (self.file, self.bytes, self.short_bytes) = (Some(Arc::new(file)), length, length);
                true
            }
            Err(error) => {
                let _ = std::fs::remove_file(&scratch);
                error!(path = %self.path.display(), %error, "cannot rewrite the journal");
                false
            }
        }
    }

    /// Whether all records are in the file.
    pub(crate) fn is_saved(&self) -> bool {
        self.file.is_some()
    }

    /// Tells `waits` when all records are on the disk (true), or that they cannot be written.
    pub(crate) fn sync(&self, waits: oneshot::Sender<bool>) {
        match &self.file {
            Some(file) => drop(self.syncer.send((Arc::clone(file), waits))),
            None => drop(waits.send(false)),
        }
    }
}

/// Checks that the journal in this directory can be read.
pub(crate) fn check(dir: &Path) -> anyhow::Result<()> {
    read(&dir.join("journal")).map(drop)
}

/// Deletes the journal of another DVM.
pub(crate) fn forget(dir: &Path) {
    for name in ["journal", "kept"] {
        let _ = std::fs::remove_file(dir.join(name)); // there may be none
    }
}

/// Returns records as the file has them.
pub(crate) fn encode(records: &[Kept]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let body = record.encode_to_vec();
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
    }
    bytes
}

fn contents(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Reads a file; None: there is none.
fn read(path: &Path) -> anyhow::Result<Option<Vec<Kept>>> {
    let Some(bytes) = contents(path)? else { return Ok(None) };
    let line_end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let line = String::from_utf8_lossy(&bytes[..line_end]);
    let format = line.strip_prefix(MAGIC).and_then(|format| format.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(newer) => {
            let text = format!(
                "{} was written by a newer version of rsd (format {newer}; this one reads formats up to {FORMAT}): start that \
                 version, or give this daemon another --state-dir",
                path.display()
            );
            anyhow::bail!(Failed::new(exit::SYSTEM, text));
        }
        None => {
            let text = format!(
                "{} is not a journal of rsd: move it away to start without the jobs and groups in it",
                path.display()
            );
            anyhow::bail!(Failed::new(exit::SYSTEM, text));
        }
    }
    let (records, rest) = decode(&bytes[(line_end + 1).min(bytes.len())..]);
    match rest {
        Rest::Nothing => {}
        Rest::Partial => warn!(path = %path.display(), "the last record is incomplete and is ignored"),
        Rest::Damaged => {
            let aside = path.with_extension("damaged");
            let kept = std::fs::copy(path, &aside).is_ok();
            let aside = if kept { aside.display().to_string() } else { "nowhere".to_owned() };
            error!(path = %path.display(), records = records.len(), %aside, "a record is damaged: those after it are ignored");
        }
    }
    Ok(Some(records))
}

/// What follows the records that can be read.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// A record that is not complete.
    Partial,
    /// A record whose checksum or contents are wrong.
    Damaged,
}

/// Returns the first line of a file.
pub(crate) fn first_line() -> String {
    format!("{MAGIC}{FORMAT}\n")
}

fn decode(mut bytes: &[u8]) -> (Vec<Kept>, Rest) {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return (records, Rest::Partial) };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let Some((body, rest)) = rest.split_at_checked(number(0) as usize) else { return (records, Rest::Partial) };
        if crc32fast::hash(body) != number(4) {
            // After a crash of the machine, the last record may have its length and not all of its bytes.
            return (records, if rest.is_empty() { Rest::Partial } else { Rest::Damaged });
        }
        match Kept::decode(body) {
            Ok(record) => records.push(record),
            Err(_) => return (records, Rest::Damaged),
        }
        bytes = rest;
    }
    (records, Rest::Nothing)
}

/// Reads the file that an early version of rsd wrote: records with their lengths only.
fn read_format_0(path: &Path) -> anyhow::Result<Vec<Kept>> {
    let Some(bytes) = contents(path)? else { return Ok(Vec::new()) };
    let (mut rest, mut records) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        match Kept::decode_length_delimited(&mut rest) {
            Ok(record) => records.push(record),
            Err(error) => {
                warn!(path = %path.display(), %error, "the last record is incomplete and is ignored");
                break;
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::KeptGroupGone;

    use super::*;

    fn gone(name: &str) -> Kept {
        Kept { what: Some(What::GroupGone(KeptGroupGone { name: name.into(), owner_uid: 0 })) }
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("rsd-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn records(dir: &Path) -> Vec<Kept> {
        Journal::open(dir).unwrap().1
    }

    fn nothing() -> Vec<Kept> {
        panic!("the file must not be rewritten")
    }

    #[test]
    fn appended_records_are_read_in_order_up_to_the_first_partial_one() {
        let dir = scratch("half");
        let (mut file, before) = Journal::open(&dir).unwrap();
        assert_eq!(before, []);
        file.rewrite(&[]);
        for name in ["a", "b", "c"] {
            file.append(&[gone(name)], nothing);
        }
        let (mut next, all) = Journal::open(&dir).unwrap();
        assert_eq!(all, [gone("a"), gone("b"), gone("c")]);

        let whole = std::fs::read(dir.join("journal")).unwrap();
        let begin = whole.len() - encode(&[gone("c")]).len();
        for end in begin..whole.len() {
            std::fs::write(dir.join("journal"), &whole[..end]).unwrap();
            assert_eq!(records(&dir), [gone("a"), gone("b")], "{end}");
        }
        // The next write replaces the file, so that no record follows the partial one.
        next.append(&[gone("d")], || vec![gone("a"), gone("b"), gone("d")]);
        next.append(&[gone("e")], nothing);
        assert_eq!(records(&dir), [gone("a"), gone("b"), gone("d"), gone("e")]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn records_after_a_damaged_one_are_put_aside() {
        let dir = scratch("damaged");
        let (mut file, _) = Journal::open(&dir).unwrap();
        file.rewrite(&[gone("a"), gone("b"), gone("c")]);
        let mut bytes = std::fs::read(dir.join("journal")).unwrap();
        let at = bytes.len() - 3 * encode(&[gone("c")]).len() / 2;
        bytes[at] ^= 0x20;
        std::fs::write(dir.join("journal"), &bytes).unwrap();
        assert_eq!(records(&dir), [gone("a")]);
        assert_eq!(std::fs::read(dir.join("journal.damaged")).unwrap(), bytes);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_newer_format_is_refused_by_name_and_an_older_one_is_read() {
        let dir = scratch("formats");
        std::fs::write(dir.join("journal"), "rsd journal 7\nwho knows").unwrap();
        let refused = Journal::open(&dir).unwrap_err().to_string();
        assert!(refused.contains("format 7; this one reads formats up to 1"), "{refused}");
        std::fs::write(dir.join("journal"), "something else").unwrap();
        let refused = Journal::open(&dir).unwrap_err().to_string();
        assert!(refused.contains("is not a journal of rsd"), "{refused}");

        // As an early version has written it.
        std::fs::remove_file(dir.join("journal")).unwrap();
        std::fs::write(dir.join("kept"), include_bytes!("journal/format-0")).unwrap();
        let (mut file, before) = Journal::open(&dir).unwrap();
        assert_eq!(before, [gone("a"), gone("b")]);
        assert!(file.rewrite(&before) && !dir.join("kept").exists());
        assert_eq!(records(&dir), before);
        assert_eq!(std::fs::read(dir.join("journal")).unwrap(), include_bytes!("journal/format-1"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_that_has_grown_is_rewritten() {
        let dir = scratch("grown");
        let (mut file, _) = Journal::open(&dir).unwrap();
        file.rewrite(&[]);
        let long = gone(&"x".repeat(100_000));
        let mut rewritten = 0;
        for _ in 0..100 {
            file.append(std::slice::from_ref(&long), || {
                rewritten += 1;
                vec![gone("short")]
            });
            assert!(std::fs::metadata(dir.join("journal")).unwrap().len() <= SHORT_BYTES);
        }
        assert!((5..20).contains(&rewritten), "{rewritten}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_rewritten_is_appended_to() {
        let dir = scratch("on");
        let (mut file, _) = Journal::open(&dir).unwrap();
        assert!(file.rewrite(&[]));
        std::fs::create_dir_all(dir.join("journal.new").join("in-the-way")).unwrap();
        let long = gone(&"x".repeat(100_000));
        let mut tried = 0;
        for _ in 0..100 {
            file.append(std::slice::from_ref(&long), || {
                tried += 1;
                Vec::new()
            });
        }
        assert_eq!(records(&dir).len(), 100, "nothing is lost");
        assert!((1..10).contains(&tried), "{tried}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn after_a_failed_write_the_next_append_rewrites_the_file() {
        let dir = scratch("full");
        let (mut file, _) = Journal::open(&dir).unwrap();
        std::fs::create_dir_all(dir.join("journal").join("in-the-way")).unwrap();
        file.append(&[gone("a")], || vec![gone("a")]);
        assert!(!file.is_saved());
        std::fs::remove_dir_all(dir.join("journal")).unwrap();
        file.append(&[gone("b")], || vec![gone("a"), gone("b")]);
        assert_eq!(records(&dir), [gone("a"), gone("b")]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn all_who_wait_for_the_disk_are_told() {
        let dir = scratch("sync");
        let (mut file, _) = Journal::open(&dir).unwrap();
        let (waits, told) = oneshot::channel();
        file.sync(waits);
        assert_eq!(told.await, Ok(false), "there is no file yet");
        file.rewrite(&[]);
        let mut waiting = Vec::new();
        for _ in 0..100 {
            file.append(&[gone("a")], nothing);
            let (waits, told) = oneshot::channel();
            file.sync(waits);
            waiting.push(told);
        }
        for told in waiting {
            assert_eq!(told.await, Ok(true));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
