//! The records that a head keeps across a restart, in one file of length-delimited protobuf.
//!
//! An append is one write. A daemon that is killed during the write leaves a partial record; the next reader ignores it and
//! everything after it. The file is rewritten with the current records when it has grown to several times their size, and after a
//! failed write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use prost::Message;
use rsd_proto::v1::Kept;
use rsd_proto::v1::kept::What;
use tracing::{error, warn};

/// Files up to this size are not rewritten because of their size.
const SHORT_BYTES: u64 = 1 << 20;
/// A file is rewritten when it is this many times the size of its current records.
const GROWTH: u64 = 4;

/// The file of kept records.
#[derive(Debug)]
pub(crate) struct KeptFile {
    path: PathBuf,
    /// None: the file must be rewritten.
    file: Option<File>,
    bytes: u64,
    /// Its size after the last rewrite.
    short_bytes: u64,
}

impl KeptFile {
    /// Opens the file at this path. Also returns the records that can be read.
    pub(crate) fn open(path: PathBuf) -> (KeptFile, Vec<Kept>) {
        let records = read(&path);
        (KeptFile { path, file: None, bytes: 0, short_bytes: 0 }, records)
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
        let Some(file) = &mut self.file else { return };
        // A token's use must not be forgotten when the machine crashes.
        let must_stay = records.iter().any(|record| matches!(record.what, Some(What::Token(_) | What::TokenGone(_))));
        let written = file.write_all(&bytes).and_then(|()| if must_stay { file.sync_data() } else { Ok(()) });
        match written {
            Ok(()) => self.bytes += length,
            Err(error) => {
                // A reader must not find a partial record. Further appends may fail too, so the next change rewrites the file.
                let _ = file.set_len(self.bytes);
                self.file = None;
                error!(path = %self.path.display(), %error, "cannot write the records that a restart needs");
            }
        }
    }

    /// Rewrites the file; returns false if that fails.
    pub(crate) fn rewrite(&mut self, records: &[Kept]) -> bool {
        let bytes = encode(records);
        let scratch = self.path.with_extension("new");
        let write = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&scratch)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            std::fs::rename(&scratch, &self.path)?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                (self.file, self.bytes, self.short_bytes) = (Some(file), bytes.len() as u64, bytes.len() as u64);
                true
            }
            Err(error) => {
                let _ = std::fs::remove_file(&scratch);
                error!(path = %self.path.display(), %error, "cannot rewrite the records that a restart needs");
                false
            }
        }
    }

    /// Whether all records are in the file.
    pub(crate) fn is_saved(&self) -> bool {
        self.file.is_some()
    }
}

fn encode(records: &[Kept]) -> Vec<u8> {
    records.iter().flat_map(Message::encode_length_delimited_to_vec).collect()
}

fn read(path: &Path) -> Vec<Kept> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
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
    records
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::KeptGroupGone;

    use super::*;

    fn gone(name: &str) -> Kept {
        Kept { what: Some(What::GroupGone(KeptGroupGone { name: name.into(), owner_uid: 0 })) }
    }

    fn path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rsd-kept-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn nothing() -> Vec<Kept> {
        panic!("the file must not be rewritten")
    }

    #[test]
    fn appended_records_are_read_in_order_up_to_the_first_partial_one() {
        let path = path("half");
        let (mut file, before) = KeptFile::open(path.clone());
        assert_eq!(before, []);
        file.rewrite(&[]);
        for name in ["a", "b", "c"] {
            file.append(&[gone(name)], nothing);
        }
        let (mut next, records) = KeptFile::open(path.clone());
        assert_eq!(records, [gone("a"), gone("b"), gone("c")]);

        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read(&path), [gone("a"), gone("b")]);
        // The next write replaces the file, so that no record follows the partial one.
        next.append(&[gone("d")], || vec![gone("a"), gone("b"), gone("d")]);
        next.append(&[gone("e")], nothing);
        assert_eq!(read(&path), [gone("a"), gone("b"), gone("d"), gone("e")]);
    }

    #[test]
    fn a_file_that_has_grown_is_rewritten() {
        let path = path("grown");
        let (mut file, _) = KeptFile::open(path.clone());
        file.rewrite(&[]);
        let long = gone(&"x".repeat(100_000));
        let mut rewritten = 0;
        for _ in 0..100 {
            file.append(std::slice::from_ref(&long), || {
                rewritten += 1;
                vec![gone("short")]
            });
            assert!(std::fs::metadata(&path).unwrap().len() <= SHORT_BYTES);
        }
        assert!((5..20).contains(&rewritten), "{rewritten}");
    }

    #[test]
    fn a_file_that_cannot_be_rewritten_is_appended_to() {
        let path = path("on");
        let (mut file, _) = KeptFile::open(path.clone());
        assert!(file.rewrite(&[]));
        std::fs::create_dir_all(path.with_extension("new").join("in-the-way")).unwrap();
        let long = gone(&"x".repeat(100_000));
        let mut tried = 0;
        for _ in 0..100 {
            file.append(std::slice::from_ref(&long), || {
                tried += 1;
                Vec::new()
            });
        }
        assert_eq!(read(&path).len(), 100, "nothing is lost");
        assert!((1..10).contains(&tried), "{tried}");
        std::fs::remove_dir_all(path.with_extension("new")).unwrap();
    }

    #[test]
    fn after_a_failed_write_the_next_append_rewrites_the_file() {
        let path = path("full");
        std::fs::create_dir_all(path.join("in-the-way")).unwrap();
        let (mut file, _) = KeptFile::open(path.clone());
        file.append(&[gone("a")], || vec![gone("a")]);
        std::fs::remove_dir_all(&path).unwrap();
        file.append(&[gone("b")], || vec![gone("a"), gone("b")]);
        assert_eq!(read(&path), [gone("a"), gone("b")]);
    }
}
