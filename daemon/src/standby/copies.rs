//! What the standbys of this head have confirmed.
//!
//! Batches of records are numbered. An effect that follows from a batch is performed when every standby *in step* has confirmed the batch.
//! A standby is in step once it has confirmed almost everything, so that the rest waits for it, until it confirms nothing for too long: then the head goes on
//! without it. It is in step again when it has caught up. It *has all* when it has confirmed what there was when it came in step.
//!
//! With a lease in etcd, standbys that may take over by themselves count until etcd says that they may not, and nothing is performed while the
//! head must not act ([`rsd_core::lease`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rsd_core::lease::{Ground, HeadLease};
use rsd_core::rsd::Memory;
use rsd_core::{JobId, NodeId};
use rsd_proto::v1::follow_down::Body;
use rsd_proto::v1::kept::What;
use rsd_proto::v1::{CopiedNumbers, CopiedRecords, FollowAck, FollowDown, Kept, LogCopy, StandbyInfo, standby_info};
use rsd_proto::v1::{Lease, lease};
use tokio::sync::{Notify, mpsc};
use tracing::{info, warn};

use crate::clock::since_boot;
use crate::disk::job_log::JobLogs;
use crate::disk::journal;
use crate::door::{Door, Event};

/// How much of a batch goes into one message.
const PIECE_BYTES: usize = 256 << 10;
/// With at most so much to copy, a standby gets in step.
const IN_STEP_BYTES: u64 = 64 << 10;
/// A standby that has not confirmed so much is disconnected. It begins anew.
const BEHIND_BYTES: u64 = 256 << 20;

/// The standbys that follow this head.
#[derive(Debug, Clone)]
pub(crate) struct Copies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The number of the last batch, and of the last one that counts as kept.
    number: AtomicU64,
    committed: AtomicU64,
    logs: Arc<JobLogs>,
    door: Door,
    patience: Duration,
    /// None: no etcd.
    lease: Option<Mutex<HeadLease>>,
    /// The standbys in step are others than before, or this head has handed over.
    news: Notify,
    /// Why etcd does not do what it was asked for last.
    why: Mutex<String>,
}

#[derive(Debug, Default)]
struct State {
    followers: BTreeMap<NodeId, Follower>,
    last_id: u64,
}

/// A standby that is connected.
#[derive(Debug)]
struct Follower {
    /// Of its connection.
    id: u64,
    to: mpsc::UnboundedSender<Result<FollowDown, tonic::Status>>,
    sent_bytes: u64,
    acked_bytes: u64,
    /// The last batch that it has; None: not even the first copy.
    acked: Option<u64>,
    /// What it has of each log.
    logs: HashMap<JobId, u64>,
    is_in_step: bool,
    has_been_in_step: bool,
    /// What it must confirm until it has all that was performed before it was in step: a batch, and sizes of logs. None: it has.
    lacks: Option<(u64, Vec<(JobId, u64)>)>,
    /// Since when it has confirmed nothing of what it has not confirmed.
    behind_since: Option<Instant>,
    /// What was sent with each unconfirmed beat, and when.
    beats: VecDeque<(u64, Duration)>,
}

impl Follower {
    fn send(&mut self, body: Body, bytes: usize) {
        self.sent_bytes += bytes as u64;
        if matches!(body, Body::Beat(_)) {
            self.beats.push_back((self.sent_bytes, since_boot()));
        }
        if bytes > 0 {
            self.behind_since.get_or_insert_with(Instant::now);
        }
        let _ = self.to.send(Ok(FollowDown { body: Some(body) })); // its task notices
    }

    fn has_all(&self) -> bool {
        self.is_in_step && self.lacks.is_none()
    }

    fn send_records(&mut self, number: u64, bytes: &[u8], all: bool, sync: bool) {
        let mut pieces = bytes.chunks(PIECE_BYTES).peekable();
        if pieces.peek().is_none() {
            self.send(Body::Records(CopiedRecords { number, all, sync, ..CopiedRecords::default() }), 1);
        }
        while let Some(piece) = pieces.next() {
            let more = pieces.peek().is_some();
            let records = CopiedRecords { number, data: piece.to_vec().into(), more, all, sync };
            self.send(Body::Records(records), piece.len() + 1);
        }
    }
}

impl Copies {
    /// `lease`: how long the head's lease in etcd lasts.
    pub(crate) fn new(logs: Arc<JobLogs>, door: Door, patience: Duration, lease: Option<Duration>) -> Copies {
        // After a restart, a standby that may take over may lack what is in the journal.
        let (number, committed) = (AtomicU64::new(u64::from(lease.is_some())), AtomicU64::new(0));
        let lease = lease.map(|lasts| Mutex::new(HeadLease::new(lasts)));
        let (state, news, why) = (Mutex::default(), Notify::new(), Mutex::default());
        Copies(Arc::new(Shared { state, number, committed, logs, door, patience, lease, news, why }))
    }

    fn lease(&self) -> Option<MutexGuard<'_, HeadLease>> {
        Some(self.0.lease.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this head may act now.
    pub(crate) fn may_act(&self) -> bool {
        self.lease().is_none_or(|lease| lease.ground(since_boot()).is_some())
    }

    /// Changes what is known about the lease. Returns why this head may act now.
    pub(crate) fn learn(&self, learn: impl FnOnce(&mut HeadLease)) -> Option<Ground> {
        let mut lease = self.lease()?;
        let before = lease.ground(since_boot());
        learn(&mut lease);
        let ground = lease.ground(since_boot());
        drop(lease);
        if before.is_none() && ground.is_some() {
            self.0.door.send(Event::Copied);
        }
        ground
    }

    /// The standbys that may take over, as this head knows; None: it has never had the lease.
    pub(crate) fn candidates(&self) -> Option<BTreeSet<NodeId>> {
        self.lease()?.candidates().cloned()
    }

    /// Whether etcd is known to have exactly these candidates.
    pub(crate) fn has_candidates(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.lease().is_some_and(|lease| lease.has_candidates(nodes))
    }

    /// etcd has these candidates.
    pub(crate) fn recorded(&self, nodes: BTreeSet<NodeId>) {
        let is_first = self.candidates().is_none();
        let has_some = !nodes.is_empty();
        self.learn(|lease| lease.on_candidates(nodes));
        if is_first && has_some && self.complete().is_empty() {
            self.0.logs.await_copies(&HashMap::new()); // until they are no candidates any more
        }
        self.recorded_changed();
    }

    fn recorded_changed(&self) {
        let state = self.state();
        self.await_copies(&state);
        self.recount(&state);
    }

    /// Returns when other standbys are in step than before, or this head has handed over.
    pub(crate) async fn news(&self) {
        self.0.news.notified().await;
    }

    /// This head acts no more.
    pub(crate) fn give_up_lease(&self) {
        self.learn(HeadLease::on_over);
        self.0.news.notify_one();
    }

    /// Whether it does.
    pub(crate) fn is_over(&self) -> bool {
        self.lease().is_some_and(|lease| lease.is_over())
    }

    /// Keeps why etcd has not done something; empty: it has.
    pub(crate) fn set_why(&self, why: &str) {
        why.clone_into(&mut self.0.why.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Describes the lease; None: there is no etcd.
    pub(crate) fn describe_lease(&self) -> Option<Lease> {
        let (now, held) = (since_boot(), self.lease()?);
        let state = match held.ground(now) {
            Some(Ground::Held) => lease::State::Held,
            Some(Ground::Confirmed) => lease::State::Confirmed,
            None => lease::State::Waiting,
        };
        let until = if state == lease::State::Waiting { Some(now) } else { held.may_act_until() };
        Some(Lease {
            state: state.into(),
            why: self.0.why.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            candidates: held.candidates().into_iter().flatten().copied().collect(),
            left_ms: until.map(|until| u64::try_from(until.saturating_sub(now).as_millis()).unwrap_or(u64::MAX)),
        })
    }

    /// The standbys in step that have all that was promised before.
    pub(crate) fn complete(&self) -> BTreeSet<NodeId> {
        self.state().followers.iter().filter(|(_, follower)| follower.has_all()).map(|(node, _)| *node).collect()
    }

    /// Whether a standby may take over that does not have what those in step have.
    fn is_blocked(&self, state: &State) -> bool {
        self.lease().is_some_and(|lease| !lease.may_promise(&state.in_step()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the last batch.
    pub(crate) fn number(&self) -> u64 {
        self.0.number.load(Ordering::Relaxed)
    }

    /// Returns the number of the last batch that counts as kept.
    pub(crate) fn committed(&self) -> u64 {
        self.0.committed.load(Ordering::Relaxed)
    }

    /// Sends a batch of records that this head has written.
    pub(crate) fn append(&self, records: &[Kept]) {
        let number = self.0.number.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.state();
        if !state.followers.is_empty() {
            let bytes = journal::encode(records);
            // A token's use must not be forgotten when the machine crashes.
            let sync = records.iter().any(|record| matches!(record.what, Some(What::Token(_) | What::TokenGone(_))));
            state.followers.values_mut().for_each(|follower| follower.send_records(number, &bytes, false, sync));
        }
        self.recount(&state);
    }

    /// Sends the records that replace all earlier ones.
    pub(crate) fn replace(&self, records: &[Kept]) {
        let number = self.0.number.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.state();
        let bytes = journal::encode(records);
        state.followers.values_mut().for_each(|follower| follower.send_records(number, &bytes, true, true));
        self.recount(&state);
    }

    /// Sends the numbers that the head has reserved.
    pub(crate) fn numbers(&self, memory: Memory) {
        let Memory { next_job, next_node } = memory;
        let numbers = CopiedNumbers { next_job, next_node };
        self.state().followers.values_mut().for_each(|follower| follower.send(Body::Numbers(numbers), 1));
    }

    /// Adds a standby that has these logs. `records`: all that the head keeps now. Returns the number of its connection.
    pub(crate) fn add(
        &self,
        node: NodeId,
        to: mpsc::UnboundedSender<Result<FollowDown, tonic::Status>>,
        logs: HashMap<JobId, u64>,
        records: &[Kept],
        memory: Memory,
    ) -> u64 {
        let mut state = self.state();
        state.last_id += 1;
        let id = state.last_id;
        let mut follower = Follower {
            id,
            to,
            sent_bytes: 0,
            acked_bytes: 0,
            acked: None,
            logs,
            is_in_step: false,
            has_been_in_step: false,
            lacks: None,
            behind_since: None,
            beats: VecDeque::new(),
        };
        let Memory { next_job, next_node } = memory;
        follower.send(Body::Numbers(CopiedNumbers { next_job, next_node }), 1);
        follower.send_records(self.number(), &journal::encode(records), true, true);
        let before = state.followers.insert(node, follower);
        drop(state);
        if before.is_some_and(|before| before.is_in_step) {
            self.changed();
        }
        id
    }

    /// Sends a message that is not a record; `bytes`: as what it counts until it is confirmed. Returns false if the standby is another
    /// one by now.
    pub(crate) fn send(&self, node: NodeId, id: u64, body: Body, bytes: usize) -> bool {
        let mut state = self.state();
        let Some(follower) = state.followers.get_mut(&node).filter(|follower| follower.id == id) else { return false };
        follower.send(body, bytes);
        follower.sent_bytes - follower.acked_bytes <= BEHIND_BYTES
    }

    /// Returns how much a standby has not confirmed.
    pub(crate) fn behind(&self, node: NodeId) -> u64 {
        self.state().followers.get(&node).map_or(0, |follower| follower.sent_bytes - follower.acked_bytes)
    }

    /// Handles that a standby has confirmed what it has. `unsent`: how much of the logs it was not sent yet.
    pub(crate) fn confirmed(&self, node: NodeId, id: u64, ack: FollowAck, unsent: u64) {
        let mut state = self.state();
        let Some(follower) = state.followers.get_mut(&node).filter(|follower| follower.id == id) else { return };
        follower.acked = follower.acked.max(Some(ack.records).filter(|_| ack.has_all_records));
        if ack.bytes > follower.acked_bytes {
            follower.acked_bytes = ack.bytes.min(follower.sent_bytes);
            follower.behind_since = (follower.acked_bytes < follower.sent_bytes).then(Instant::now);
        }
        let answered = follower.beats.partition_point(|(sent, _)| *sent <= follower.acked_bytes);
        if let Some((_, asked)) = follower.beats.drain(..answered).next_back() {
            self.learn(|lease| lease.on_confirmed(node, asked));
        }
        let jobs: Vec<JobId> = ack.logs.iter().map(|log| log.job).collect();
        follower.logs.extend(ack.logs.iter().map(|LogCopy { job, bytes, .. }| (*job, *bytes)));
        // Where there is always something to copy, it never has everything; then the rest waits for it.
        let behind = unsent + follower.sent_bytes - follower.acked_bytes;
        let joins = !follower.is_in_step && follower.acked.is_some() && behind <= IN_STEP_BYTES;
        if joins {
            (follower.is_in_step, follower.has_been_in_step) = (true, true);
            follower.lacks = Some((self.number(), self.0.logs.sizes()));
            drop(state);
            return self.changed();
        }
        if let (true, Some((number, sizes))) = (follower.is_in_step, &mut follower.lacks) {
            let logs = &follower.logs;
            sizes.retain(|(job, bytes)| {
                logs.get(job).is_none_or(|has| has < bytes) && self.0.logs.file_of(*job).is_some()
            });
            if sizes.is_empty() && follower.acked >= Some(*number) {
                follower.lacks = None;
                follower.send(Body::InStep(true), 0);
                info!(node, "a standby of this head is in step");
                self.0.news.notify_one();
            }
        }
        if state.followers[&node].is_in_step && !self.is_blocked(&state) {
            for job in jobs {
                self.0.logs.copied(job, state.copied(job));
            }
        }
        self.recount(&state);
    }

    /// Goes on without the standbys that have confirmed nothing for too long.
    pub(crate) fn give_up_late(&self) {
        let mut state = self.state();
        let (mut changed, now) = (false, Instant::now());
        for (node, follower) in &mut state.followers {
            let is_late = follower.behind_since.is_some_and(|since| since + self.0.patience <= now);
            if follower.is_in_step && is_late {
                warn!(node, patience = ?self.0.patience, "a standby confirms nothing: the head goes on without it");
                follower.is_in_step = false;
                follower.send(Body::InStep(false), 0);
                changed = true;
            }
        }
        drop(state);
        if changed {
            self.changed();
        }
    }

    /// Disconnects all standbys but these.
    pub(crate) fn keep_only(&self, nodes: &[NodeId]) {
        let mut state = self.state();
        let before = state.followers.len();
        state.followers.retain(|node, _| nodes.contains(node));
        let has_changed = state.followers.len() != before;
        drop(state);
        if has_changed {
            self.changed();
        }
    }

    /// A standby's connection is closed.
    pub(crate) fn remove(&self, node: NodeId, id: u64) {
        let mut state = self.state();
        if state.followers.get(&node).is_some_and(|follower| follower.id == id) {
            state.followers.remove(&node);
            drop(state);
            warn!(node, "a standby of this head is disconnected");
            self.changed();
        }
    }

    /// Returns whether a standby has confirmed all records, and everything else that it was sent.
    pub(crate) fn has_all(&self, node: NodeId, id: u64) -> bool {
        let state = self.state();
        let follower = state.followers.get(&node).filter(|follower| follower.id == id);
        follower.is_some_and(|follower| {
            follower.acked == Some(self.number()) && follower.acked_bytes == follower.sent_bytes
        })
    }

    pub(crate) fn is_in_step(&self, node: NodeId) -> bool {
        self.state().followers.get(&node).is_some_and(|follower| follower.is_in_step)
    }

    /// Describes a standby.
    pub(crate) fn describe(&self, info: StandbyInfo) -> StandbyInfo {
        let state = self.state();
        let Some(follower) = state.followers.get(&info.node) else { return info };
        let is = match (follower.has_all(), follower.has_been_in_step && !follower.is_in_step) {
            (true, _) => standby_info::State::InStep,
            (false, true) => standby_info::State::Late,
            (false, false) => standby_info::State::Copying,
        };
        StandbyInfo {
            state: is.into(),
            records_behind: self.number().saturating_sub(follower.acked.unwrap_or(0)),
            bytes_behind: follower.sent_bytes - follower.acked_bytes,
            behind_ms: follower.behind_since.map_or(0, |since| u64::try_from(since.elapsed().as_millis()).unwrap_or(0)),
            ..info
        }
    }

    /// The standbys in step are others than before.
    fn changed(&self) {
        self.0.news.notify_one();
        let state = self.state();
        self.await_copies(&state);
        self.recount(&state);
    }

    fn await_copies(&self, state: &State) {
        if self.is_blocked(state) {
            return;
        }
        let in_step = || state.followers.values().filter(|follower| follower.is_in_step);
        if in_step().next().is_none() {
            self.0.logs.await_no_copies();
        } else {
            let jobs: Vec<JobId> = in_step().flat_map(|follower| follower.logs.keys().copied()).collect();
            self.0.logs.await_copies(&jobs.into_iter().map(|job| (job, state.copied(job))).collect());
        }
    }

    fn recount(&self, state: &State) {
        if self.is_blocked(state) {
            return;
        }
        let in_step = state.followers.values().filter(|follower| follower.is_in_step);
        let committed = in_step.filter_map(|follower| follower.acked).min().unwrap_or_else(|| self.number());
        if self.0.committed.fetch_max(committed, Ordering::Relaxed) < committed {
            self.0.door.send(Event::Copied);
        }
    }
}

impl State {
    fn in_step(&self) -> BTreeSet<NodeId> {
        self.followers.iter().filter(|(_, follower)| follower.is_in_step).map(|(node, _)| *node).collect()
    }

    /// How much of a log all standbys in step have.
    fn copied(&self, job: JobId) -> u64 {
        let in_step = self.followers.values().filter(|follower| follower.is_in_step);
        in_step.map(|follower| follower.logs.get(&job).copied().unwrap_or(0)).min().unwrap_or(0)
    }
}
