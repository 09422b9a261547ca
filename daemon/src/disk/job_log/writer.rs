//! The thread that writes the logs: one piece of one log after the other, so that a log with much to write does not delay the others.

use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::events::Item;
use super::{Busy, Change, Log, PIECE_BYTES, State, Work, lock};

/// The pause after which a log that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What became of a turn of a log.
enum Turn {
    /// There may be more to write.
    Again,
    /// Nothing is left to write.
    Over,
    /// Nothing can be written at present.
    Failed,
}

/// Writes until the logs are dropped.
pub(super) fn write_all(work: &Receiver<Work>, state: &State) {
    let mut turns: VecDeque<Arc<Log>> = VecDeque::new();
    // Those that are tried again at this time.
    let (mut failed, mut retry_at): (Vec<Arc<Log>>, Instant) = (Vec::new(), Instant::now());
    #[cfg(test)]
    let mut reports: Vec<std::sync::mpsc::Sender<()>> = Vec::new();
    loop {
        if !failed.is_empty() && retry_at <= Instant::now() {
            turns.extend(failed.drain(..));
        }
        let arrived = match turns.is_empty() {
            true => {
                *lock(&state.busy) = Busy::default();
                #[cfg(test)]
                for to in reports.drain(..) {
                    let _ = to.send(()); // the test may have ended
                }
                let wait = retry_at.saturating_duration_since(Instant::now());
                let next = match failed.is_empty() {
                    true => work.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    false => work.recv_timeout(wait),
                };
                match next {
                    Ok(work) => Some(work),
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            false => work.try_recv().ok(),
        };
        *lock(&state.busy) = Busy { since: Some(Instant::now()), is_given_up: false };
        match arrived {
            Some(Work::Write(log)) => turns.push_back(log),
            Some(Work::Remove(log)) => {
                turns.retain(|other| !Arc::ptr_eq(other, &log));
                failed.retain(|other| !Arc::ptr_eq(other, &log));
                // Readers have the file open and do not need its name.
                remove(&log, state);
            }
            #[cfg(test)]
            Some(Work::Report(to)) => reports.push(to),
            None => {
                let Some(log) = turns.pop_front() else { continue };
                match write(&log) {
                    Turn::Again => turns.push_back(log),
                    Turn::Over => {}
                    Turn::Failed => {
                        retry_at = Instant::now() + RETRY;
                        failed.push(log);
                    }
                }
            }
        }
    }
}

fn remove(log: &Log, state: &State) {
    let _ = std::fs::remove_file(&log.path);
    state.room.give_back(lock(&log.events).file_bytes());
}

/// Deletes logs of ended jobs until there is room for so many bytes. Returns false if there is none.
fn make_room(state: &State, bytes: u64) -> bool {
    while !state.room.has(bytes) {
        let Some(log) = state.oldest_ended().and_then(|job| state.forget(job)) else { return false };
        tracing::warn!(job = log.job, "deleted the log of an ended job to make room (jobs.logs_max)");
        remove(&log, state);
    }
    true
}

/// Writes one piece.
fn write(log: &Arc<Log>) -> Turn {
    match log.write_piece() {
        Ok(true) => Turn::Again,
        Ok(false) => Turn::Over,
        Err(error) => {
            if log.fail(&error.to_string()) {
                tracing::error!(path = %log.path.display(), %error, "cannot write a job's log");
            }
            Turn::Failed
        }
    }
}

impl Log {
    /// Writes some of what is in memory. Returns false if there is nothing to write.
    fn write_piece(&self) -> std::io::Result<bool> {
        // Nothing that may wait for the file system is done while this is locked.
        let mut events = lock(&self.events);
        let piece = events.next_piece(PIECE_BYTES as u64);
        if piece.is_empty() {
            events.is_queued = false;
            let open = events.file.clone().filter(|_| events.has_ended);
            drop(events);
            if open.is_some_and(|file| self.names(&file)) {
                lock(&self.events).file = None;
            }
            return Ok(false);
        }
        let (file, before, had_failed) = (events.file.clone(), events.file_bytes(), events.has_failed);
        drop(events);
        let bytes: Vec<u8> = piece.iter().flat_map(Item::encoded).collect();
        if piece.iter().any(Item::is_output) && !make_room(&self.state, bytes.len() as u64) {
            tracing::warn!(path = %self.path.display(), "no room for a job's output: not kept");
            self.fill();
            return Ok(true);
        }
        let file = match file {
            Some(file) => file,
            None => Arc::new(OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?),
        };
        if let Err(error) = (&*file).write_all(&bytes) {
            // A reader must not find a partial event.
            let _ = file.set_len(before);
            return Err(error);
        }
        let mut events = lock(&self.events);
        events.file = Some(Arc::clone(&file));
        if events.has_failed && !had_failed {
            // The daemon has given up meanwhile: followers know that this is not kept.
            drop(events);
            file.set_len(before)?;
            return Err(std::io::Error::other("it was written too late"));
        }
        events.written(piece.len());
        self.state.room.take(bytes.len() as u64);
        self.settle(&mut events, Instant::now());
        self.state.copies.tell(Change::Grown(self.job));
        Ok(true)
    }

    /// Whether the path still names this file.
    fn names(&self, file: &File) -> bool {
        let inode = |meta: Metadata| (meta.dev(), meta.ino());
        let own = file.metadata().map(inode).ok();
        own.is_some() && own == std::fs::metadata(&self.path).map(inode).ok()
    }
}
