//! The copy on a standby: `standby` in its state directory, which has the files of a head's state directory.
//!
//! ```text
//! journal        the head's records: the first copy, and what it has appended since
//! journal.copy   the next first copy, until it is complete
//! jobs/N.log     the logs
//! authority      the authority's key, 0600
//! identity.json  the head's numbers
//! complete       there since the first copy was complete
//! listen         where the head will listen
//! in-step        there while the head counts on this standby, or did when it was last heard of
//! promoted       this standby has taken over; a head runs on the directory, and nothing is copied any more
//! ```

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use prost::Message;
use rsd_core::{JobId, job_number};
use rsd_proto::v1::kept::What;
use rsd_proto::v1::{Authority, CopiedLog, CopiedNumbers, CopiedRecords, HeadEpoch, Kept, LogCopy};

use super::feed::end_crc;
use crate::disk::journal::{self, Journal};
use crate::disk::state_dir::{Identity, make_private, replace_for_good};

/// The name of the directory.
const DIR: &str = "standby";
/// As of this size, and this growth since the first copy, another first copy is wanted: it is shorter.
const LONG_BYTES: u64 = 8 << 20;
const GROWTH: u64 = 4;

/// The files of a copy.
#[derive(Debug)]
pub(crate) struct Files {
    dir: PathBuf,
    journal: Option<File>,
    bytes: u64,
    first_bytes: u64,
    /// The pieces of the batch that is not complete.
    pending: Vec<u8>,
    logs: HashMap<JobId, u64>,
    numbers: CopiedNumbers,
    /// The DVM and the name of the head that this standby would be.
    identity: (String, String),
}

impl Files {
    /// Opens the copy in a state directory, for the head of this DVM and with this name.
    pub(crate) fn open(state_dir: &Path, dvm: &str, name: &str) -> anyhow::Result<Files> {
        let dir = dir(state_dir);
        make_private(&dir)?;
        make_private(&dir.join("jobs"))?;
        let before: Option<Identity> =
            fs::read(dir.join("identity.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if before.is_some_and(|before| before.dvm != dvm) {
            fs::remove_dir_all(&dir).with_context(|| format!("remove the copy of another DVM in {}", dir.display()))?;
            make_private(&dir)?;
            make_private(&dir.join("jobs"))?;
        }
        let identity = (dvm.to_owned(), name.to_owned());
        let (pending, logs, numbers) = (Vec::new(), HashMap::new(), CopiedNumbers::default());
        Ok(Files { dir, journal: None, bytes: 0, first_bytes: 0, pending, logs, numbers, identity })
    }

    /// Returns the logs that there are.
    pub(crate) fn logs(&mut self) -> Vec<LogCopy> {
        let mut copies = Vec::new();
        for entry in fs::read_dir(self.dir.join("jobs")).into_iter().flatten().flatten() {
            let path = entry.path();
            let job = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<JobId>().ok());
            let Some(job) = job.filter(|_| path.extension().is_some_and(|ending| ending == "log")) else { continue };
            let Ok(bytes) = entry.metadata().map(|meta| meta.len()) else { continue };
            if let Ok(end_crc) = end_crc(&path, bytes) {
                self.logs.insert(job, bytes);
                copies.push(LogCopy { job, bytes, end_crc });
            }
        }
        copies
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.dir.join("complete").exists()
    }

    /// Whether the head counted on this standby when it was last heard of.
    pub(crate) fn is_in_step(&self) -> bool {
        self.dir.join("in-step").exists()
    }

    pub(crate) fn set_in_step(&self, is_in_step: bool) {
        let path = self.dir.join("in-step");
        let _ = if is_in_step { fs::write(path, "") } else { fs::remove_file(path) };
    }

    /// Where the head listens, once this standby has taken over.
    pub(crate) fn listen(&self) -> Option<String> {
        fs::read_to_string(self.dir.join("listen")).ok()
    }

    pub(crate) fn write_listen(&self, listen: &str) -> anyhow::Result<()> {
        replace_for_good(&self.dir.join("listen"), listen.as_bytes())
    }

    pub(crate) fn write_authority(&self, authority: &Authority) -> anyhow::Result<()> {
        replace_for_good(&self.dir.join("authority"), &authority.encode_to_vec())
    }

    pub(crate) fn write_numbers(&mut self, numbers: CopiedNumbers) -> anyhow::Result<()> {
        self.numbers = numbers;
        let (dvm, name) = self.identity.clone();
        let CopiedNumbers { next_job, next_node } = numbers;
        let identity = Identity { dvm, node: 0, name, next_job, next_node };
        replace_for_good(&self.dir.join("identity.json"), &serde_json::to_vec(&identity)?)
    }

    /// Writes a piece of records. Returns whether a batch is complete with it.
    pub(crate) fn write_records(&mut self, records: &CopiedRecords) -> anyhow::Result<bool> {
        self.pending.extend_from_slice(&records.data);
        if records.more {
            return Ok(false);
        }
        let batch = std::mem::take(&mut self.pending);
        let path = self.dir.join("journal");
        if records.all {
            let mut bytes = journal::first_line().into_bytes();
            bytes.extend_from_slice(&batch);
            replace_for_good(&path, &bytes)?;
            self.journal = Some(OpenOptions::new().append(true).open(&path).context("open the copied journal")?);
            (self.bytes, self.first_bytes) = (bytes.len() as u64, bytes.len() as u64);
            fs::write(self.dir.join("complete"), "").context("note that the copy is complete")?;
            return Ok(true);
        }
        let mut file = self.journal.as_ref().context("records came before the first copy")?;
        let written = file.write_all(&batch).and_then(|()| if records.sync { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // A reader must not find a partial record.
            let _ = file.set_len(self.bytes);
            return Err(error).context("write the copied journal");
        }
        self.bytes += batch.len() as u64;
        Ok(true)
    }

    /// Whether another first copy would be much shorter.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes > LONG_BYTES.max(GROWTH * self.first_bytes)
    }

    /// Writes a piece of a log.
    pub(crate) fn write_log(&mut self, piece: &CopiedLog) -> anyhow::Result<LogCopy> {
        let CopiedLog { job, offset, data } = piece;
        let path = self.log(*job);
        let write = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            if file.metadata()?.len() != *offset {
                file.set_len(*offset)?;
            }
            file.write_all_at(data, *offset)
        };
        let known = self.logs.get(job).copied().unwrap_or(0);
        ensure!(
            *offset <= known,
            "a piece of the log of job {job} is missing: {known} bytes are here, and it goes to {offset}"
        );
        write().with_context(|| format!("write {}", path.display()))?;
        let bytes = offset + data.len() as u64;
        self.logs.insert(*job, bytes);
        Ok(LogCopy { job: *job, bytes, end_crc: 0 })
    }

    pub(crate) fn remove_log(&mut self, job: JobId) {
        self.logs.remove(&job);
        let _ = fs::remove_file(self.log(job)); // there may be none
    }

    fn log(&self, job: JobId) -> PathBuf {
        self.dir.join("jobs").join(format!("{job}.log"))
    }

    /// Makes the copy the state of a head with this epoch, whose numbers begin after all that the earlier head may have given.
    pub(crate) fn promote(&mut self, own: u32, epoch: HeadEpoch, (jobs, nodes): (u64, u32)) -> anyhow::Result<()> {
        let (file, records) = Journal::open(&self.dir)?;
        drop(file);
        let next_job = records.iter().filter_map(job_of).max().map_or(1, |job| job + 1).max(self.numbers.next_job);
        let next_node = records.iter().filter_map(node_of).max().map_or(1, |node| node + 1).max(self.numbers.next_node);
        self.write_numbers(CopiedNumbers {
            next_job: next_job.saturating_add(jobs),
            next_node: next_node.saturating_add(nodes),
        })?;
        let more = [What::HeadEpoch(epoch), What::StandbyGone(own)].map(|what| Kept { what: Some(what) });
        let mut bytes = journal::first_line().into_bytes();
        bytes.extend(journal::encode(&records));
        bytes.extend(journal::encode(&more));
        replace_for_good(&self.dir.join("journal"), &bytes)?;
        replace_for_good(&self.dir.join("promoted"), b"")
    }

    /// Returns the epoch of the head whose copy this is.
    pub(crate) fn epoch(&self) -> anyhow::Result<HeadEpoch> {
        Ok(epoch_of(&Journal::open(&self.dir)?.1))
    }

    pub(crate) fn authority(&self) -> anyhow::Result<Authority> {
        let path = self.dir.join("authority");
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Authority::decode(&*bytes).with_context(|| format!("read {}", path.display()))
    }
}

/// Returns the directory of the copy in a state directory.
pub(crate) fn dir(state_dir: &Path) -> PathBuf {
    state_dir.join(DIR)
}

/// Whether the standby with this state directory has taken over.
pub(crate) fn is_promoted(state_dir: &Path) -> bool {
    dir(state_dir).join("promoted").exists()
}

/// Returns the epoch of the head with these records.
pub(crate) fn epoch_of(records: &[Kept]) -> HeadEpoch {
    let epochs = records.iter().filter_map(|record| match &record.what {
        Some(What::HeadEpoch(epoch)) => Some(epoch.clone()),
        Some(_) | None => None,
    });
    epochs.last().unwrap_or_default()
}

/// Returns the number of the job that a record is about.
fn job_of(record: &Kept) -> Option<JobId> {
    match record.what.as_ref()? {
        What::Job(job) => Some(job_number(job.job)),
        What::Ended(info) => Some(job_number(info.job)),
        What::Epoch(epoch) => epoch.launch.as_ref().map(|launch| job_number(launch.job)),
        _ => None,
    }
}

fn node_of(record: &Kept) -> Option<u32> {
    match record.what.as_ref()? {
        What::NodeIn(node) => Some(node.node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::KeptJob;

    use super::*;

    /// The number of the attempt is in the id of a job, and numbers are given without it.
    #[test]
    fn numbers_go_on_after_those_of_jobs_that_were_tried_again() {
        let state_dir = std::env::temp_dir().join(format!("rsd-files-{}", std::process::id()));
        let mut files = Files::open(&state_dir, "dvm", "two").expect("a directory");
        let second_attempt = 1 << 42 | 7;
        assert_eq!(job_number(second_attempt), 7);
        let job = Kept { what: Some(What::Job(KeptJob { job: second_attempt, ..KeptJob::default() })) };
        let data = journal::encode(&[job]).into();
        let records = CopiedRecords { data, all: true, ..CopiedRecords::default() };
        files.write_records(&records).expect("a copy");
        files.promote(3, HeadEpoch::default(), (10, 10)).expect("it takes over");
        let bytes = fs::read(dir(&state_dir).join("identity.json")).expect("its numbers");
        let identity: Identity = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!((identity.next_job, identity.next_node), (18, 11));
        fs::remove_dir_all(state_dir).expect("it is ours");
    }
}
