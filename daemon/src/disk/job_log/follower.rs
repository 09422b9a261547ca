//! Reads a job's log: what is written from the file, and the rest from memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use prost::Message;
use rsd_proto::v1::JobEvent;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::{Log, PIECE_BYTES, Progress, lock};

/// Reads one job's events in order.
#[derive(Debug)]
pub(crate) struct Follower {
    log: Arc<Log>,
    progress: watch::Receiver<Progress>,
    /// The number of the next event.
    next: u64,
    /// Where the next event is in the file, or would be.
    at_byte: u64,
    file: Option<Arc<File>>,
    /// The bytes of the file from there on that were read.
    buffer: BytesMut,
    failure: Option<String>,
}

/// Where a follower finds the next event.
enum Place {
    Memory(Box<JobEvent>),
    /// It was dropped.
    Nowhere,
    /// In this file, if it is open, which has so many bytes.
    File(Option<Arc<File>>, u64),
    NotYet,
}

impl Follower {
    pub(super) fn new(log: Arc<Log>) -> Follower {
        let progress = log.progress.subscribe();
        Follower { log, progress, next: 0, at_byte: 0, file: None, buffer: BytesMut::new(), failure: None }
    }

    /// Waits for the next event; None after the last event of a job that has ended.
    pub(crate) async fn next(&mut self) -> Option<JobEvent> {
        loop {
            let progress = *self.progress.borrow_and_update();
            let event = self.next_if_there().await;
            if event.is_some() || self.failure.is_some() {
                return event;
            }
            if progress.ended && self.next >= progress.events {
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

    /// Returns why the events stopped before the job's end, if the log could not be read.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    async fn look(&mut self) -> std::io::Result<Option<JobEvent>> {
        loop {
            let before = self.buffer.len();
            if let Some(event) = take_event(&mut self.buffer)? {
                self.next += 1;
                self.at_byte += (before - self.buffer.len()) as u64;
                return Ok(Some(event));
            }
            match self.place() {
                Place::Memory(event) => return Ok(Some(*event)),
                Place::Nowhere => {}
                Place::File(file, bytes) => self.fill(file, bytes).await?,
                Place::NotYet => return Ok(None),
            }
        }
    }

    fn place(&mut self) -> Place {
        let events = lock(&self.log.events);
        let Some(at) = self.next.checked_sub(events.written) else {
            return Place::File(events.file.clone(), events.written_bytes);
        };
        let Some(entry) = usize::try_from(at).ok().and_then(|at| events.tail.get(at)) else { return Place::NotYet };
        self.next += 1;
        self.at_byte += entry.bytes;
        entry.event.clone().map_or(Place::Nowhere, |event| Place::Memory(Box::new(event)))
    }

    /// Reads more of the file, which has so many bytes.
    async fn fill(&mut self, open: Option<Arc<File>>, file_bytes: u64) -> std::io::Result<()> {
        let file = self.file.clone().or(open);
        let path = self.log.path.clone();
        let from = self.at_byte + self.buffer.len() as u64;
        let wanted = usize::try_from(file_bytes - from).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
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
        Ok(())
    }
}

/// Takes one complete event from the front.
fn take_event(buffer: &mut BytesMut) -> std::io::Result<Option<JobEvent>> {
    let mut peek = &buffer[..];
    let Ok(len) = prost::decode_length_delimiter(&mut peek) else { return Ok(None) };
    let head = buffer.len() - peek.len();
    if peek.len() < len {
        return Ok(None);
    }
    buffer.advance(head);
    let event = buffer.split_to(len).freeze();
    JobEvent::decode(event).map(Some).map_err(std::io::Error::other)
}
