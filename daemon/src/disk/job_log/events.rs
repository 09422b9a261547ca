//! What of one log is in the file and what is in memory. No I/O.
//!
//! A *position* is a place in the log. It grows by an event's length with every event that is appended, whether the file gets it or not,
//! so a client can name the place where it stopped, also to the next head. A [`Gap`](job_event::Gap) in the file says that the positions
//! up to its `to` are not there: output that was not kept, or a restart. After a restart positions go on at a number that no earlier head
//! has used, because followers may have seen what the file never got.
//!
//! ```text
//! file:     |event|event|gap|event|
//! waiting:                        |event|event|      goes to the file next
//! recent:                   |event|event|event|      in memory, for followers that keep up
//!                                 ^ seen      ^ end
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use rsd_proto::v1::{JobEvent, job_event};

/// A follower that reads nothing for so long gets no more than others of what the file does not have.
const STALLED: Duration = Duration::from_secs(30);

/// Where the events of a log are.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The last events, in order; at least those that followers may not read yet.
    recent: VecDeque<Entry>,
    recent_bytes: u64,
    /// What the file must get, in order. A gap at the end may still grow.
    waiting: VecDeque<Item>,
    waiting_bytes: u64,
    /// The positions up to which followers may read, of the end, and up to which the file says everything.
    seen: u64,
    end: u64,
    written_to: u64,
    file_bytes: u64,
    /// The gaps in the file.
    jumps: Vec<Jump>,
    /// The followers that read, by number.
    readers: BTreeMap<u64, Reader>,
    next_reader: u64,
    /// Stands for the first follower until that reads.
    expected: Option<u64>,
    /// How many events the core has appended.
    appended: u64,
    /// How much output is not in the file.
    pub(super) lost_bytes: u64,
    /// The bytes that count for the user: those of all events that were to be kept.
    pub(super) counted_bytes: u64,
    /// Open while the job runs.
    pub(super) file: Option<Arc<File>>,
    /// Whether the writer has a task for this log.
    pub(super) is_queued: bool,
    /// What the core was told last, and whether followers held it back.
    pub(super) told: u64,
    pub(super) was_held: bool,
    /// Whether a limit is reached: further output is not kept.
    is_full: bool,
    /// Whether the file cannot be written at present: output is not kept, and followers see everything at once.
    pub(super) has_failed: bool,
    pub(super) has_ended: bool,
    /// A log of an earlier head of which only the file's size is known.
    pub(super) is_unread: bool,
    /// How many bytes of the file the standbys have that the head waits for; None: it waits for none.
    pub(super) copied: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    at: u64,
    bytes: u64,
    /// How many events the core had appended before.
    number: u64,
    event: Arc<JobEvent>,
    /// Whether the file never gets it.
    is_lost: bool,
}

/// A follower: what it reads next, and since when there is something; None: it has everything.
#[derive(Debug, Clone, Copy)]
struct Reader {
    position: u64,
    since: Option<Instant>,
}

/// Something that the file must get.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Event { event: Arc<JobEvent>, at: u64, bytes: u64 },
    Gap { bytes: u64, at: u64, to: u64 },
}

/// A gap in the file: between which positions, and where its record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) at_byte: u64,
    pub(super) next_byte: u64,
}

/// What a file that exists already has.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileContents {
    pub(super) bytes: u64,
    /// The position of its end.
    pub(super) end: u64,
    pub(super) jumps: Vec<Jump>,
    pub(super) lost_bytes: u64,
    pub(super) has_ended: bool,
}

/// Where a follower finds what comes at a position.
#[derive(Debug)]
pub(super) enum Place {
    /// This event, which ends at this position; whether the file never gets it.
    Memory(Arc<JobEvent>, u64, bool),
    /// So much output is missing up to this position.
    Missing(u64, u64),
    /// From this byte of the file on, which has so many bytes.
    File {
        byte: u64,
        file_bytes: u64,
    },
    NotYet,
}

/// What an append has done.
pub(super) struct Appended {
    /// The bytes that count for the user.
    pub(super) bytes: u64,
    /// Whether the writer needs a task.
    pub(super) needs_task: bool,
}

impl Events {
    /// A log that goes on after these contents, from the position `begin` on if that is later.
    pub(super) fn after(contents: FileContents, begin: u64) -> Events {
        let FileContents { bytes, end, jumps, lost_bytes, has_ended } = contents;
        let to = begin.max(end);
        let mut events = Events {
            end: to,
            written_to: end,
            file_bytes: bytes,
            jumps,
            lost_bytes,
            counted_bytes: bytes,
            has_ended,
            ..Events::default()
        };
        if to > end {
            events.waiting.push_back(Item::Gap { bytes: 0, at: end, to });
        }
        events.update();
        events
    }

    /// An empty log, of which standbys have so much.
    pub(super) fn of_new_log(copied: Option<u64>) -> Events {
        Events { copied, ..Events::default() }
    }

    /// A log of a job that has ended, with a file of this size.
    pub(super) fn unread(bytes: u64) -> Events {
        let (seen, end) = (u64::MAX, u64::MAX);
        let counted_bytes = bytes;
        Events { seen, end, file_bytes: bytes, counted_bytes, has_ended: true, is_unread: true, ..Events::default() }
    }

    /// Adds an event of the core; output only within `limit_bytes` of this log and `room` bytes of its user.
    pub(super) fn append(&mut self, event: JobEvent, limit_bytes: u64, room: u64) -> Appended {
        let is_output = matches!(event.body, Some(job_event::Body::Output(_)));
        self.has_ended |= matches!(event.body, Some(job_event::Body::Ended(_)));
        let before = self.counted_bytes;
        let (bytes, used) = (delimited_len(&event), self.file_bytes + self.waiting_bytes);
        let why_not = match is_output && !self.is_full && !self.has_failed {
            true if used + bytes > limit_bytes => Some(format!(
                "output from here on is not kept: the job has written {limit_bytes} bytes (jobs.log_max)"
            )),
            true if bytes > room => Some(
                "output from here on is not kept: the logs of your jobs have as many bytes as this DVM allows a user (users.log)"
                    .to_owned(),
            ),
            true | false => None,
        };
        if let Some(text) = why_not {
            self.is_full = true;
            self.note(event.at_ms, text);
        }
        self.push(event, is_output && (self.is_full || self.has_failed));
        self.appended += 1;
        self.update();
        // A gap alone is written with the next event.
        let has_event = self.waiting.iter().rev().take(2).any(|item| matches!(item, Item::Event { .. }));
        let needs_task = !self.is_queued && has_event;
        self.is_queued |= needs_task;
        Appended { bytes: self.counted_bytes - before, needs_task }
    }

    fn note(&mut self, at_ms: u64, text: String) {
        self.push(JobEvent { at_ms, body: Some(job_event::Body::Notice(text)), ..JobEvent::default() }, false);
    }

    fn push(&mut self, event: JobEvent, is_lost: bool) {
        let (bytes, at) = (delimited_len(&event), self.end);
        let event = Arc::new(event);
        self.end += bytes;
        self.recent.push_back(Entry { at, bytes, number: self.appended, event: Arc::clone(&event), is_lost });
        self.recent_bytes += bytes;
        match is_lost {
            true => {
                let lost = output_bytes(&event);
                self.lost_bytes += lost;
                add_gap(&mut self.waiting, lost, at, self.end);
            }
            false => {
                self.waiting.push_back(Item::Event { event, at, bytes });
                self.waiting_bytes += bytes;
                self.counted_bytes += bytes;
            }
        }
    }

    /// Whether memory may have something that the file will not get.
    fn has_lost(&self) -> bool {
        self.has_failed || self.is_full || self.lost_bytes > 0
    }

    /// Decides what followers may read. They never un-see anything.
    fn update(&mut self) {
        let unwritten = self.waiting.iter().find_map(|item| match item {
            Item::Event { at, .. } => Some(*at),
            Item::Gap { .. } => None,
        });
        let seen = unwritten.filter(|_| !self.has_failed).unwrap_or(self.end);
        self.seen = self.seen.max(seen.min(self.copied_to()));
    }

    /// The position up to which the standbys that the head waits for have the log. A file that cannot be written cannot be copied.
    fn copied_to(&self) -> u64 {
        let Some(bytes) = self.copied.filter(|bytes| !self.has_failed && *bytes < self.file_bytes) else {
            return u64::MAX;
        };
        let next = self.jumps.partition_point(|jump| jump.next_byte <= bytes);
        match next.checked_sub(1).and_then(|before| self.jumps.get(before)) {
            Some(before) => before.to + (bytes - before.next_byte),
            None => bytes,
        }
    }

    /// Records how much the standbys have.
    pub(super) fn set_copied(&mut self, copied: Option<u64>) {
        self.copied = copied;
        self.update();
    }

    /// Adds a follower that is about to read from this position on.
    pub(super) fn add_reader(&mut self, position: u64, now: Instant) -> u64 {
        if let Some(expected) = self.expected.take() {
            self.readers.remove(&expected);
        }
        self.next_reader += 1;
        self.readers.insert(self.next_reader, Reader { position, since: Some(now) });
        self.next_reader
    }

    /// A follower is about to come: it counts as one that reads from the beginning.
    pub(super) fn expect_reader(&mut self, now: Instant) {
        if self.next_reader == 0 {
            self.expected = Some(self.add_reader(0, now));
        }
    }

    /// Records what a follower reads next.
    pub(super) fn moved(&mut self, reader: u64, position: u64, now: Instant) {
        if let Some(reader) = self.readers.get_mut(&reader)
            && (reader.position != position || position >= self.seen)
        {
            *reader = Reader { position, since: Some(now).filter(|_| position < self.seen) };
        }
    }

    /// Notes for whom there is something to read since now.
    pub(super) fn watch_readers(&mut self, now: Instant) {
        let seen = self.seen;
        for reader in self.readers.values_mut().filter(|reader| reader.position < seen) {
            reader.since.get_or_insert(now);
        }
    }

    pub(super) fn remove_reader(&mut self, reader: u64) {
        self.readers.remove(&reader);
    }

    /// The first position that some follower has not read, if it still reads.
    fn held(&self, now: Instant) -> u64 {
        let active = self.readers.values().filter(|reader| reader.since.is_none_or(|since| now < since + STALLED));
        active.map(|reader| reader.position).min().unwrap_or(u64::MAX)
    }

    /// Whether steps wait until a follower has read what the file does not have.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        let held = self.held(now);
        let first = self.recent.partition_point(|entry| entry.at < held);
        self.recent.range(first..).take_while(|entry| entry.at < self.seen).any(|entry| entry.is_lost)
    }

    /// Removes events from memory, the oldest first, until it has about `keep_bytes`. Those that the file does not have are kept for the
    /// followers that read.
    pub(super) fn trim(&mut self, keep_bytes: u64, now: Instant) {
        let held = if self.has_lost() { self.held(now) } else { u64::MAX };
        while self.recent_bytes > keep_bytes
            && let Some(first) = self.recent.front()
            && first.at + first.bytes <= self.seen
            && first.at < held
        {
            self.recent_bytes -= first.bytes;
            self.recent.pop_front();
        }
    }

    /// Returns what the file must get next: about `piece_bytes`. Empty: nothing.
    pub(super) fn next_piece(&self, piece_bytes: u64) -> Vec<Item> {
        let (mut piece, mut size) = (Vec::new(), 0);
        for item in &self.waiting {
            piece.push(item.clone());
            if let Item::Event { bytes, .. } = item {
                size += bytes;
            }
            if size >= piece_bytes {
                break;
            }
        }
        // It may still grow.
        if matches!(piece.last(), Some(Item::Gap { .. })) {
            piece.pop();
        }
        piece
    }

    /// Records that the first `items` of those that wait are in the file.
    pub(super) fn written(&mut self, items: usize) {
        self.has_failed = false;
        for item in self.waiting.drain(..items) {
            match item {
                Item::Event { at, bytes, .. } => {
                    self.file_bytes += bytes;
                    self.waiting_bytes -= bytes;
                    self.written_to = at + bytes;
                }
                Item::Gap { at, to, .. } => {
                    let at_byte = self.file_bytes;
                    self.file_bytes += item.encoded().len() as u64;
                    self.jumps.push(Jump { from: at, to, at_byte, next_byte: self.file_bytes });
                    self.written_to = to;
                }
            }
        }
        self.update();
    }

    /// Gives up the output that is not in the file. Returns false if that was done already.
    pub(super) fn fail(&mut self, text: String) -> bool {
        if std::mem::replace(&mut self.has_failed, true) {
            return false;
        }
        self.lose_output(text);
        true
    }

    /// Gives up the output that is not in the file, and all further output.
    pub(super) fn fill(&mut self, text: String) {
        self.is_full = true;
        self.lose_output(text);
    }

    fn lose_output(&mut self, text: String) {
        let mut at_ms = 0;
        for item in std::mem::take(&mut self.waiting) {
            match item {
                Item::Event { event, at, bytes } if matches!(event.body, Some(job_event::Body::Output(_))) => {
                    let lost = output_bytes(&event);
                    self.lost_bytes += lost;
                    self.waiting_bytes -= bytes;
                    add_gap(&mut self.waiting, lost, at, at + bytes);
                }
                Item::Event { ref event, .. } => {
                    at_ms = event.at_ms;
                    self.waiting.push_back(item);
                }
                Item::Gap { bytes, at, to } => add_gap(&mut self.waiting, bytes, at, to),
            }
        }
        let unwritten = self.recent.partition_point(|entry| entry.at < self.written_to);
        for entry in self.recent.range_mut(unwritten..) {
            entry.is_lost |= matches!(entry.event.body, Some(job_event::Body::Output(_)));
        }
        if !self.has_ended {
            self.note(at_ms, text);
        }
        self.update();
    }

    /// Whether everything of an ended job is in the file.
    pub(super) fn is_complete(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Returns where a follower finds what comes at `position`.
    pub(super) fn place(&self, position: u64) -> Place {
        if position >= self.seen {
            return Place::NotYet;
        }
        if self.recent.front().is_some_and(|first| first.at <= position) {
            let at = self.recent.partition_point(|entry| entry.at < position);
            return match self.recent.get(at).filter(|entry| entry.at < self.seen) {
                Some(entry) => Place::Memory(Arc::clone(&entry.event), entry.at + entry.bytes, entry.is_lost),
                None => Place::Missing(0, self.seen),
            };
        }
        if position < self.written_to {
            let file_bytes = if self.seen < self.written_to { self.byte_of(self.seen) } else { self.file_bytes };
            return Place::File { byte: self.byte_of(position), file_bytes };
        }
        match self.waiting.get(self.waiting.partition_point(|item| item.to() <= position)) {
            Some(Item::Event { event, at, bytes }) => Place::Memory(Arc::clone(event), at + bytes, false),
            Some(Item::Gap { bytes, to, .. }) => {
                // The last part may still be in memory.
                let rest = self.recent.iter().take_while(|entry| entry.at < *to);
                let rest: u64 = rest.map(|entry| output_bytes(&entry.event)).sum();
                let first = self.recent.front().map_or(*to, |first| first.at.min(*to));
                Place::Missing(bytes.saturating_sub(rest), first)
            }
            None => Place::Missing(0, self.seen),
        }
    }

    /// Where the event at a position is in the file; for a position in a gap, where the gap's record is.
    fn byte_of(&self, position: u64) -> u64 {
        let next = self.jumps.partition_point(|jump| jump.to <= position);
        match self.jumps.get(next) {
            Some(jump) if jump.from <= position => jump.at_byte,
            Some(_) | None => match next.checked_sub(1).and_then(|before| self.jumps.get(before)) {
                Some(before) => before.next_byte + (position - before.to),
                None => position,
            },
        }
    }

    /// The number of the core's first events that are in the file or never will be, and then for which no follower that reads still needs the
    /// memory.
    pub(super) fn settled(&self, now: Instant) -> u64 {
        let held = if self.has_lost() { self.held(now) } else { u64::MAX };
        let first = self.recent.partition_point(|entry| entry.at < self.seen.min(held));
        let waits = |entry: &&Entry| entry.at >= self.seen || entry.is_lost;
        self.recent.range(first..).find(waits).map_or(self.appended, |entry| entry.number)
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }
}

impl Item {
    fn to(&self) -> u64 {
        match self {
            Item::Event { at, bytes, .. } => at + bytes,
            Item::Gap { to, .. } => *to,
        }
    }

    pub(super) fn is_output(&self) -> bool {
        matches!(self, Item::Event { event, .. } if matches!(event.body, Some(job_event::Body::Output(_))))
    }

    /// The bytes of the file.
    pub(super) fn encoded(&self) -> Vec<u8> {
        match self {
            Item::Event { event, .. } => event.encode_length_delimited_to_vec(),
            Item::Gap { bytes, to, .. } => gap(*bytes, *to).encode_length_delimited_to_vec(),
        }
    }
}

/// The event in place of output that was not kept.
pub(super) fn gap(bytes: u64, to: u64) -> JobEvent {
    JobEvent { body: Some(job_event::Body::Gap(job_event::Gap { bytes, to })), ..JobEvent::default() }
}

/// Adds a gap; one gap follows no other.
fn add_gap(waiting: &mut VecDeque<Item>, more: u64, at: u64, end: u64) {
    match waiting.back_mut() {
        Some(Item::Gap { bytes, to, .. }) => (*bytes, *to) = (*bytes + more, end),
        Some(Item::Event { .. }) | None => waiting.push_back(Item::Gap { bytes: more, at, to: end }),
    }
}

/// How much of ranks' output an event has.
pub(super) fn output_bytes(event: &JobEvent) -> u64 {
    match &event.body {
        Some(job_event::Body::Output(output)) => output.records.iter().map(|record| record.data.len() as u64).sum(),
        Some(
            job_event::Body::Submitted(_)
            | job_event::Body::Queued(_)
            | job_event::Body::Placed(_)
            | job_event::Body::RankExit(_)
            | job_event::Body::Killing(_)
            | job_event::Body::Ended(_)
            | job_event::Body::Notice(_)
            | job_event::Body::Gap(_)
            | job_event::Body::Requeued(_),
        )
        | None => 0,
    }
}

pub(super) fn delimited_len(event: &JobEvent) -> u64 {
    let len = event.encoded_len();
    (len + prost::length_delimiter_len(len)) as u64
}
