//! What the logs of an earlier head have. A log is read once, an event at a time.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

use bytes::BytesMut;
use rsd_core::JobId;
use rsd_core::rsd::Logged;
use rsd_proto::v1::{JobEvent, job_event};

use super::PIECE_BYTES;
use super::events::{FileContents, Jump};
use super::follower::take_event;

/// The log of a job that has not ended.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) contents: FileContents,
    pub(super) logged: Logged,
    /// The user who submitted the job.
    pub(super) uid: Option<u32>,
}

/// Reads a whole log, and cuts off what is no event: the head was killed while it wrote.
pub(super) fn read(path: &Path, job: JobId) -> std::io::Result<Past> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut past = Past { logged: Logged { job, ..Logged::default() }, ..Past::default() };
    let whole = each_event(&file, |event, next_byte| {
        past.take(event, next_byte);
        true
    })?;
    if !whole {
        tracing::warn!(path = %path.display(), bytes = past.contents.bytes, "the end of a job's log is incomplete: cut off");
        file.set_len(past.contents.bytes)?;
    }
    Ok(past)
}

/// Whether the log's last event is the job's end.
pub(super) fn has_ended(path: &Path) -> bool {
    let mut has_ended = false;
    let read = File::open(path).and_then(|file| {
        each_event(&file, |event, _| {
            has_ended = matches!(event.body, Some(job_event::Body::Ended(_)));
            true
        })
    });
    has_ended && matches!(read, Ok(true))
}

/// Returns the user who submitted the job of this log.
pub(super) fn uid(path: &Path) -> Option<u32> {
    let mut uid = None;
    let read = each_event(&File::open(path).ok()?, |event, _| {
        uid = uid_of(&event);
        false
    });
    read.ok().and(uid)
}

fn uid_of(event: &JobEvent) -> Option<u32> {
    match &event.body {
        Some(job_event::Body::Submitted(submitted)) => submitted.owner.as_ref().map(|owner| owner.uid),
        _ => None,
    }
}

/// Passes each event and the byte after it, until `take` returns false. Returns whether the file ends with an event.
fn each_event(mut file: &File, mut take: impl FnMut(JobEvent, u64) -> bool) -> std::io::Result<bool> {
    let (mut buffer, mut read, mut piece) = (BytesMut::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let count = file.read(&mut piece)?;
        buffer.extend_from_slice(&piece[..count]);
        read += count as u64;
        loop {
            let Ok(event) = take_event(&mut buffer) else { return Ok(false) };
            let Some(event) = event else { break };
            if !take(event, read - buffer.len() as u64) {
                return Ok(true);
            }
        }
        if count == 0 {
            return Ok(buffer.is_empty());
        }
    }
}

impl Past {
    fn take(&mut self, event: JobEvent, next_byte: u64) {
        let FileContents { bytes: at_byte, end, .. } = self.contents;
        self.contents.end += next_byte - at_byte;
        self.contents.bytes = next_byte;
        self.contents.has_ended = matches!(event.body, Some(job_event::Body::Ended(_)));
        self.uid = self.uid.or(uid_of(&event));
        match &event.body {
            Some(job_event::Body::Output(output)) => {
                let largest = self.logged.output.entry((output.job, output.node)).or_default();
                *largest = (*largest).max(output.end);
            }
            Some(job_event::Body::Gap(gap)) => {
                let to = gap.to.max(end);
                self.contents.end = to;
                self.contents.jumps.push(Jump { from: end, to, at_byte, next_byte });
                self.contents.lost_bytes += gap.bytes;
            }
            Some(_) | None => self.logged.events.push(event),
        }
    }
}
