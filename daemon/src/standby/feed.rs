//! What the head sends to one of its standbys, and the answers.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rsd_core::{JobId, NodeId};
use rsd_proto::v1::follow_down::Body;
use rsd_proto::v1::{Beat, CopiedLog, FollowDown, FollowUp, HandOver, HandedOver, LogCopy, follow_up};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::copies::Copies;
use crate::disk::job_log::{Change, JobLogs};
use crate::door::{Door, Event};

/// How much of a log goes into one message, and how much of logs a standby may leave unconfirmed.
const PIECE_BYTES: u64 = 128 << 10;
const WINDOW_BYTES: u64 = 4 << 20;
/// How much of a log's end tells whether a copy is one of this log.
pub(super) const END_BYTES: u64 = 64 << 10;
const BEAT: Duration = Duration::from_millis(500);
/// How long the end of a head that hands over may take.
const HAND_OVER_DEADLINE: Duration = Duration::from_secs(20);

/// The head's side of a standby's connection.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) node: NodeId,
    pub(crate) door: Door,
    pub(crate) copies: Copies,
    pub(crate) logs: Arc<JobLogs>,
    pub(crate) to: mpsc::UnboundedSender<Result<FollowDown, Status>>,
}

/// What the standby was sent of each log, and the logs of which there is more.
#[derive(Debug, Default)]
struct Sent {
    sizes: HashMap<JobId, u64>,
    grown: BTreeSet<JobId>,
}

impl Feed {
    /// Copies until the connection ends. `has`: the logs that the standby has.
    pub(crate) async fn run(self, mut from: Streaming<FollowUp>, has: Vec<LogCopy>) {
        let (mut changes, files) = self.logs.watch();
        let gone: Vec<JobId> =
            has.iter().map(|log| log.job).filter(|job| !files.iter().any(|(known, ..)| known == job)).collect();
        let mut sent = Sent { grown: files.iter().map(|(job, ..)| *job).collect(), ..Sent::default() };
        let Ok(sizes) = tokio::task::spawn_blocking(move || same(&files, &has)).await else { return };
        sent.sizes = sizes;
        let (id, told) = oneshot::channel();
        let logs = sent.sizes.clone();
        self.door.send(Event::Follow { node: self.node, to: self.to.clone(), logs, id });
        let Ok(id) = told.await else { return };
        for job in gone {
            self.copies.send(self.node, id, Body::LogGone(job), 1);
        }
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let may_send = !sent.grown.is_empty() && self.copies.behind(self.node) < WINDOW_BYTES;
            tokio::select! {
                biased;
                message = from.message() => match message {
                    Ok(Some(FollowUp { body: Some(follow_up::Body::Ack(ack)) })) => {
                        self.copies.confirmed(self.node, id, ack, self.unsent(&sent));
                    }
                    Ok(Some(FollowUp { body: Some(follow_up::Body::HandOver(wish)) })) => {
                        self.hand_over(id, wish, &mut from, &mut changes, &mut sent).await;
                    }
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                },
                change = changes.recv() => match change {
                    Some(change) => self.on_change(id, change, &mut sent),
                    None => break,
                },
                _ = beat.tick() => {
                    if !self.copies.send(self.node, id, Body::Beat(Beat {}), 1) {
                        break;
                    }
                    self.copies.give_up_late();
                }
                () = std::future::ready(()), if may_send => self.send_piece(id, &mut sent).await,
            }
        }
        self.copies.remove(self.node, id);
    }

    /// How much of the logs the standby was not sent yet.
    fn unsent(&self, sent: &Sent) -> u64 {
        let of = |job: &JobId| {
            let size = self.logs.file_of(*job).map_or(0, |(_, size)| size);
            size.saturating_sub(sent.sizes.get(job).copied().unwrap_or(0))
        };
        sent.grown.iter().map(of).sum()
    }

    fn on_change(&self, id: u64, change: Change, sent: &mut Sent) {
        match change {
            Change::Grown(job) => drop(sent.grown.insert(job)),
            Change::Gone(job) => {
                sent.grown.remove(&job);
                sent.sizes.remove(&job);
                self.copies.send(self.node, id, Body::LogGone(job), 1);
            }
        }
    }

    /// Sends a piece of a log.
    async fn send_piece(&self, id: u64, sent: &mut Sent) {
        let Some(job) = sent.grown.pop_first() else { return };
        let Some((path, size)) = self.logs.file_of(job) else { return };
        let offset = sent.sizes.get(&job).copied().unwrap_or(0);
        if offset >= size {
            return;
        }
        let length = (size - offset).min(PIECE_BYTES);
        match tokio::task::spawn_blocking(move || read(&path, offset, length)).await {
            Ok(Ok(data)) => {
                let end = offset + data.len() as u64;
                sent.sizes.insert(job, end);
                let bytes = data.len() + 1;
                self.copies.send(self.node, id, Body::Log(CopiedLog { job, offset, data: data.into() }), bytes);
                if end < size {
                    sent.grown.insert(job);
                }
            }
            Ok(Err(error)) => warn!(job, %error, "cannot read the log of a job for a standby"),
            Err(error) => debug!(%error, "the read of a log was given up"),
        }
    }

    /// Ends this head in favour of the standby, when the standby has everything.
    async fn hand_over(
        &self,
        id: u64,
        wish: HandOver,
        from: &mut Streaming<FollowUp>,
        changes: &mut mpsc::UnboundedReceiver<Change>,
        sent: &mut Sent,
    ) {
        let refuse = |why: String| {
            self.copies.send(self.node, id, Body::Refused(why), 0);
        };
        if !self.copies.is_in_step(self.node) {
            return refuse("the standby does not have everything yet (rsctl head): try again".into());
        }
        let (freeze, frozen) = oneshot::channel();
        self.door.send(Event::Freeze { force: wish.force, frozen: freeze });
        match frozen.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return refuse(why),
            Err(_) => return refuse("the head is stopping".into()),
        }
        let deadline = Instant::now() + HAND_OVER_DEADLINE;
        loop {
            while let Ok(change) = changes.try_recv() {
                self.on_change(id, change, sent);
            }
            while !sent.grown.is_empty() {
                self.send_piece(id, sent).await;
            }
            if self.copies.has_all(self.node, id) && self.logs.is_idle() {
                break;
            }
            match timeout_at(deadline.min(Instant::now() + BEAT), from.message()).await {
                Ok(Ok(Some(FollowUp { body: Some(follow_up::Body::Ack(ack)) }))) => {
                    self.copies.confirmed(self.node, id, ack, self.unsent(sent));
                }
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => return self.door.send(Event::Thaw),
                Err(_) if Instant::now() >= deadline => {
                    self.door.send(Event::Thaw);
                    return refuse(format!("the standby has not confirmed everything within {HAND_OVER_DEADLINE:?}"));
                }
                Err(_) => {}
            }
        }
        self.copies.send(self.node, id, Body::HandedOver(HandedOver {}), 0);
        self.door.send(Event::HandedOver { node: self.node });
    }
}

/// Returns how much of the head's logs these copies have.
fn same(files: &[(JobId, PathBuf, u64)], copies: &[LogCopy]) -> HashMap<JobId, u64> {
    let of = |(job, path, size): &(JobId, PathBuf, u64)| {
        let copy = copies.iter().find(|copy| copy.job == *job && copy.bytes <= *size)?;
        (end_crc(path, copy.bytes).ok()? == copy.end_crc).then_some((*job, copy.bytes))
    };
    files.iter().filter_map(of).collect()
}

/// Returns the checksum of the end of a file's first `bytes` bytes.
pub(super) fn end_crc(path: &Path, bytes: u64) -> io::Result<u32> {
    let length = bytes.min(END_BYTES);
    read(path, bytes - length, length).map(|end| crc32fast::hash(&end))
}

fn read(path: &Path, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut data = vec![0; usize::try_from(length).unwrap_or(0)];
    File::open(path)?.read_exact_at(&mut data, offset)?;
    Ok(data)
}
