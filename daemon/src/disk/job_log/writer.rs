//! The thread that writes the logs: one piece of one log after the other, so that a log with much to write does not delay the others.

use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use prost::Message;

use super::{Log, PIECE_BYTES, State, WAITING_BYTES, Work, lock};

/// Writes until the logs are dropped.
pub(super) fn write_all(work: &Receiver<Work>, state: &State) {
    let mut turns: VecDeque<Arc<Log>> = VecDeque::new();
    #[cfg(test)]
    let mut reports: Vec<std::sync::mpsc::Sender<()>> = Vec::new();
    loop {
        let arrived = match turns.is_empty() {
            true => {
                *lock(&state.busy_since) = None;
                #[cfg(test)]
                for to in reports.drain(..) {
                    let _ = to.send(()); // the test may have ended
                }
                match work.recv() {
                    Ok(work) => Some(work),
                    Err(_) => return,
                }
            }
            false => work.try_recv().ok(),
        };
        *lock(&state.busy_since) = Some(Instant::now());
        match arrived {
            Some(Work::Write(log)) => turns.push_back(log),
            Some(Work::Remove(log)) => {
                turns.retain(|other| !Arc::ptr_eq(other, &log));
                // Readers have the file open and do not need its name.
                let _ = std::fs::remove_file(&log.path);
            }
            #[cfg(test)]
            Some(Work::Report(to)) => reports.push(to),
            None => {
                let next = turns.pop_front().filter(write);
                turns.extend(next);
            }
        }
    }
}

/// Writes one piece; returns whether there may be more.
fn write(log: &Arc<Log>) -> bool {
    log.write_piece().unwrap_or_else(|error| {
        tracing::error!(path = %log.path.display(), %error, "cannot write a job's log");
        log.fail(&error.to_string());
        false
    })
}

impl Log {
    /// Writes some of what is in memory. Returns false if there is nothing to write.
    fn write_piece(&self) -> std::io::Result<bool> {
        // Nothing that may wait for the file system is done while this is locked.
        let mut events = lock(&self.events);
        if events.tail.is_empty() || events.has_failed {
            events.is_queued = false;
            let open = events.file.clone().filter(|_| events.has_ended);
            drop(events);
            if open.is_some_and(|file| self.names(&file)) {
                lock(&self.events).file = None;
            }
            return Ok(false);
        }
        let (mut batch, mut size) = (Vec::new(), 0);
        for entry in &events.tail {
            batch.extend(entry.event.clone());
            size += entry.bytes;
            if size >= PIECE_BYTES as u64 {
                break;
            }
        }
        let (file, before) = (events.file.clone(), events.written_bytes);
        drop(events);
        let file = match file {
            Some(file) => file,
            None => Arc::new(OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)?),
        };
        let bytes: Vec<u8> = batch.iter().flat_map(Message::encode_length_delimited_to_vec).collect();
        if let Err(error) = (&*file).write_all(&bytes) {
            // A reader must not find a partial event.
            let _ = file.set_len(before);
            return Err(error);
        }
        let mut events = lock(&self.events);
        events.file = Some(file);
        if events.has_failed {
            return Ok(true); // the daemon has given up meanwhile, and the events are in memory
        }
        events.tail.drain(..batch.len());
        events.tail_bytes -= size;
        events.written += batch.len() as u64;
        events.written_bytes += size;
        if events.tail_bytes <= WAITING_BYTES / 4 {
            self.is_no_longer_slow(&mut events);
        }
        Ok(true)
    }

    /// Whether the path still names this file.
    fn names(&self, file: &File) -> bool {
        let inode = |meta: Metadata| (meta.dev(), meta.ino());
        let own = file.metadata().map(inode).ok();
        own.is_some() && own == std::fs::metadata(&self.path).map(inode).ok()
    }
}
