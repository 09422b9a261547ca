//! Reads a job's log: what is no longer in memory from the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use prost::Message;
use rsd_proto::transport::MESSAGE_BYTES_MAX;
use rsd_proto::v1::{JobEvent, job_event};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::events::{Place, gap, output_bytes};
use super::{Log, PIECE_BYTES, Progress, lock};

/// Reads one job's events in order. Each carries the position after it.
#[derive(Debug)]
pub(crate) struct Follower {
    log: Arc<Log>,
    progress: watch::Receiver<Progress>,
    /// The positions of the next event, and of the last one.
    position: u64,
    last: u64,
    /// Events that begin before this position are passed over.
    from: u64,
    file: Option<Arc<File>>,
    /// The bytes that were read of the file, from the next event on, which is there.
    buffer: BytesMut,
    at_byte: u64,
    failure: Option<String>,
    /// How much output it has got that is in the present gap.
    had_bytes: u64,
    /// Its number in the log, once it reads.
    reader: Option<u64>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.log.leave(self.reader);
    }
}

impl Follower {
    /// Reads from this position on.
    pub(super) fn new(log: Arc<Log>, from: u64) -> Follower {
        let progress = log.progress.subscribe();
        let (end, is_unread) = {
            let events = lock(&log.events);
            (events.end(), events.is_unread)
        };
        // Where the events of such a log are is not known before they are read.
        let position = if is_unread { 0 } else { from.min(end) };
        let (file, buffer) = (None, BytesMut::new());
        Follower {
            log,
            progress,
            position,
            last: position,
            from,
            file,
            buffer,
            at_byte: 0,
            failure: None,
            had_bytes: 0,
            reader: None,
        }
    }

    /// Waits for the next event; None after the last event of a job that has ended.
    pub(crate) async fn next(&mut self) -> Option<JobEvent> {
        loop {
            let progress = *self.progress.borrow_and_update();
            let event = self.next_if_there().await;
            if event.is_some() || self.failure.is_some() {
                return event;
            }
            if progress.ended && self.position >= progress.seen {
                return None;
            }
            if self.progress.changed().await.is_err() {
                return None; // the log was dropped
            }
        }
    }

    /// Returns the next event if the log already has it.
    pub(crate) async fn next_if_there(&mut self) -> Option<JobEvent> {
        match self.look().await {
            Ok(event) => event,
            Err(error) => {
                let path = self.log.path.display();
                tracing::error!(%path, %error, "cannot read a job's log");
                self.failure = Some(format!("the rest of the job's output is lost: cannot read {path}: {error}"));
                None
            }
        }
    }

    /// Waits until the job has ended, or its log was dropped.
    pub(crate) async fn ended(&mut self) {
        // An error means that the log was dropped.
        let _ = self.progress.wait_for(|progress| progress.ended).await;
    }

    /// Returns the position at which the last event begins.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Returns why the events stopped before the job's end, if the log could not be read.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    async fn look(&mut self) -> std::io::Result<Option<JobEvent>> {
        loop {
            let before = self.buffer.len();
            if let Some(event) = take_event(&mut self.buffer)? {
                let bytes = (before - self.buffer.len()) as u64;
                self.at_byte += bytes;
                let (end, is_wanted) = match &event.body {
                    Some(job_event::Body::Gap(gap)) => (gap.to.max(self.position), gap.bytes > 0 && gap.to > self.from),
                    _ => (self.position + bytes, self.position >= self.from),
                };
                let had_bytes = std::mem::take(&mut self.had_bytes);
                match (is_wanted, &event.body) {
                    (true, Some(job_event::Body::Gap(missing))) => {
                        let event = gap(missing.bytes.saturating_sub(had_bytes), end);
                        return Ok(Some(self.pass(event, end)));
                    }
                    (true, _) => return Ok(Some(self.pass(event, end))),
                    (false, _) => self.position = end,
                }
                continue;
            }
            let (place, open) = {
                let mut events = lock(&self.log.events);
                let now = Instant::now();
                match self.reader {
                    Some(reader) => events.moved(reader, self.position, now),
                    None => self.reader = Some(events.add_reader(self.position, now)),
                }
                if events.was_held {
                    self.log.settle(&mut events, now);
                }
                let place = match events.is_unread {
                    true => Place::File { byte: self.at_byte, file_bytes: events.file_bytes() },
                    false => events.place(self.position),
                };
                (place, events.file.clone())
            };
            match place {
                Place::Memory(event, end, is_lost) => {
                    self.buffer.clear();
                    self.had_bytes = if is_lost { self.had_bytes + output_bytes(&event) } else { 0 };
                    return Ok(Some(self.pass((*event).clone(), end)));
                }
                Place::Missing(0, to) => self.position = to,
                Place::Missing(bytes, to) => {
                    let bytes = bytes.saturating_sub(std::mem::take(&mut self.had_bytes));
                    return Ok(Some(self.pass(gap(bytes, to), to)));
                }
                Place::File { byte, file_bytes } => {
                    if !self.fill(open, byte, file_bytes).await? {
                        self.position = u64::MAX;
                        return Ok(None);
                    }
                }
                Place::NotYet => return Ok(None),
            }
        }
    }

    fn pass(&mut self, event: JobEvent, end: u64) -> JobEvent {
        (self.last, self.position) = (self.position, end);
        JobEvent { position: end, ..event }
    }

    /// Reads more of the file, which has so many bytes, for the event at `byte`. Returns false at the end of an earlier head's file.
    async fn fill(&mut self, open: Option<Arc<File>>, byte: u64, file_bytes: u64) -> std::io::Result<bool> {
        if byte != self.at_byte {
            (self.at_byte, self.buffer) = (byte, BytesMut::new());
        }
        let file = self.file.clone().or(open);
        let path = self.log.path.clone();
        let from = self.at_byte + self.buffer.len() as u64;
        let wanted = usize::try_from(file_bytes.saturating_sub(from)).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        if wanted == 0 {
            return match lock(&self.log.events).is_unread {
                true => Ok(false),
                false => Err(std::io::Error::other("no event begins there")),
            };
        }
        let read = spawn_blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(File::open(path)?),
            };
            let mut bytes = vec![0; wanted];
            file.read_exact_at(&mut bytes, from)?;
            Ok::<_, std::io::Error>((file, bytes))
        });
        let (file, bytes) = read.await.map_err(std::io::Error::other)??;
        self.file = Some(file);
        self.buffer.extend_from_slice(&bytes);
        Ok(true)
    }
}

/// Takes one complete event from the front.
pub(super) fn take_event(buffer: &mut BytesMut) -> std::io::Result<Option<JobEvent>> {
    let mut peek = &buffer[..];
    let Ok(len) = prost::decode_length_delimiter(&mut peek) else { return Ok(None) };
    if len > MESSAGE_BYTES_MAX {
        return Err(std::io::Error::other("an event is too large"));
    }
    let head = buffer.len() - peek.len();
    if peek.len() < len {
        return Ok(None);
    }
    buffer.advance(head);
    let event = buffer.split_to(len).freeze();
    JobEvent::decode(event).map(Some).map_err(std::io::Error::other)
}
