//! Copies of the logs on standbys of the head: which bytes there are to copy, and what waits for them.
//!
//! Files are copied as they are, so that positions are the same on the standby. Followers see what the standbys in step have, and the
//! output of ranks is acknowledged then: what a client has seen, or a step has dropped, is there when a standby takes over.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rsd_core::JobId;
use tokio::sync::mpsc;

use super::{JobLogs, lock};

/// What has happened to a log's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has grown.
    Grown(JobId),
    /// It is deleted.
    Gone(JobId),
}

/// Those who copy the logs.
#[derive(Debug, Default)]
pub(super) struct Copied {
    watchers: Mutex<Vec<mpsc::UnboundedSender<Change>>>,
    /// Whether followers wait for standbys.
    is_awaited: AtomicBool,
}

impl Copied {
    pub(super) fn tell(&self, change: Change) {
        lock(&self.watchers).retain(|watcher| watcher.send(change).is_ok());
    }

    /// How much of a new log standbys have.
    pub(super) fn of_new_log(&self) -> Option<u64> {
        self.is_awaited.load(Ordering::Relaxed).then_some(0)
    }
}

impl JobLogs {
    /// Returns the changes of files from now on, and the files that there are, with their sizes.
    pub(crate) fn watch(&self) -> (mpsc::UnboundedReceiver<Change>, Vec<(JobId, PathBuf, u64)>) {
        let (watcher, changes) = mpsc::unbounded_channel();
        lock(&self.state.copies.watchers).push(watcher);
        let logs = lock(&self.state.logs);
        let files = logs.values().map(|log| (log.job, log.path.clone(), lock(&log.events).file_bytes()));
        (changes, files.collect())
    }

    /// Returns the sizes of all logs' files.
    pub(crate) fn sizes(&self) -> Vec<(JobId, u64)> {
        lock(&self.state.logs).values().map(|log| (log.job, lock(&log.events).file_bytes())).collect()
    }

    /// Returns the file of a log, and its size.
    pub(crate) fn file_of(&self, job: JobId) -> Option<(PathBuf, u64)> {
        let log = lock(&self.state.logs).get(&job).cloned()?;
        let bytes = lock(&log.events).file_bytes();
        Some((log.path.clone(), bytes))
    }

    /// Whether everything that was appended is in the files, or never will be.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state.logs).values().all(|log| lock(&log.events).waiting_bytes() == 0)
    }

    /// From now on followers wait for standbys, which have so much of each log.
    pub(crate) fn await_copies(&self, copied: &HashMap<JobId, u64>) {
        self.state.copies.is_awaited.store(true, Ordering::Relaxed);
        self.set_copied(|job| Some(copied.get(&job).copied().unwrap_or(0)));
    }

    /// Standbys have so much of a log.
    pub(crate) fn copied(&self, job: JobId, bytes: u64) {
        if let Some(log) = lock(&self.state.logs).get(&job).cloned() {
            let mut events = lock(&log.events);
            events.set_copied(Some(bytes));
            log.settle(&mut events, Instant::now());
        }
    }

    /// From now on followers wait for no standby.
    pub(crate) fn await_no_copies(&self) {
        self.state.copies.is_awaited.store(false, Ordering::Relaxed);
        self.set_copied(|_| None);
    }

    fn set_copied(&self, copied: impl Fn(JobId) -> Option<u64>) {
        let logs: Vec<_> = lock(&self.state.logs).values().cloned().collect();
        for log in logs {
            let mut events = lock(&log.events);
            events.set_copied(copied(log.job));
            log.settle(&mut events, Instant::now());
        }
    }
}
