//! Data that processes publish by key for other processes of the same user (PMIx_Publish, PMIx_Lookup).
//!
//! These keys have nothing in common with the names of [`names`](super::names), which MPI libraries publish over PMI-1: an Open MPI process
//! could not use the port of an MPICH process. A key is unique on its range. Data ends with its publisher's job at the latest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, DataRange, Persistence};

use super::questions::CallId;
use super::rank_set::RankSet;
use crate::contract::rounded;
use crate::status::{BAD_PARAM, DUPLICATE_KEY, Failure, NOT_SUPPORTED, OUT_OF_RESOURCE, TIMEOUT};
use crate::timers::Timers;
use crate::{JobId, NodeId};

/// The most entries that a user's processes may have published, and the most bytes of these.
const ENTRIES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 64 << 20;
/// The most bytes of a key, and the most keys of one request.
const KEY_BYTES_MAX: usize = 511;
const KEYS_MAX: usize = 1 << 10;
/// The most lookups of a user's processes that wait, and the most bytes of their keys.
const WAITING_MAX: usize = 1 << 14;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What the processes of each user have published; in a DVM that serves one user, all are user 0's.
#[derive(Debug, Default)]
pub(super) struct Published {
    users: BTreeMap<u32, OfUser>,
    timers: Timers<(u32, u64)>,
    last: u64,
}

#[derive(Debug, Default)]
struct OfUser {
    entries: BTreeMap<Slot, Entry>,
    of_job: BTreeMap<JobId, BTreeSet<Slot>>,
    bytes: usize,
    /// The waiting lookups, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    by_key: BTreeMap<Bytes, BTreeSet<u64>>,
}

/// A key on its range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    reach: Reach,
    key: Bytes,
}

/// The processes that may see data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Process(JobId, u32),
    Job(JobId),
    Node(NodeId),
    User,
}

#[derive(Debug)]
struct Entry {
    value: Bytes,
    publisher: Process,
    range: DataRange,
    persistence: Persistence,
}

#[derive(Debug)]
struct Waiting {
    call: CallId,
    lookup: Lookup,
    since: Duration,
}

/// A process that makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) rank: u32,
    /// As `NameCall.uid`.
    pub(super) uid: Option<u32>,
}

/// A request for data.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    process: Process,
    range: DataRange,
    keys: BTreeSet<Bytes>,
    /// How many of the keys must be found; None: as many as there are.
    needed: Option<usize>,
}

/// Data that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) publisher: (JobId, u32),
}

/// The effects of a request on others.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Lookups that are answered, with how many keys they wanted.
    pub(super) found: Vec<(CallId, Vec<Found>, usize)>,
    /// Data that is no longer published.
    pub(super) gone: Vec<wire::KeptDataGone>,
}

impl Lookup {
    pub(super) fn new(process: Process, asked: wire::LookupData) -> Result<Lookup, Failure> {
        let range = range(asked.range)?;
        reach(range, process)?;
        check_keys(asked.keys.iter())?;
        let keys: BTreeSet<Bytes> = asked.keys.into_iter().collect();
        let needed = asked.wait.map(|wait| match wait as usize {
            0 => keys.len(),
            wait => wait.min(keys.len()),
        });
        Ok(Lookup { process, range, keys, needed })
    }

    /// How many keys were wanted.
    pub(super) fn keys_len(&self) -> usize {
        self.keys.len()
    }

    fn key_bytes(&self) -> usize {
        self.keys.iter().map(Bytes::len).sum()
    }
}

impl Published {
    /// Publishes all entries or none. Lookups that waited for them are answered.
    pub(super) fn publish(
        &mut self,
        realm: u32,
        process: Process,
        data: &wire::PublishData,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        let range = range(data.range)?;
        let reach = reach(range, process)?;
        let persistence = Persistence::try_from(data.persistence)
            .map_err(|_| Failure::new(BAD_PARAM, format!("unknown persistence {}", data.persistence)))?;
        check_keys(data.entries.iter().map(|entry| &entry.key))?;
        let of_user = self.users.entry(realm).or_default();
        let outcome =
            of_user.add(reach, Entry { value: Bytes::new(), publisher: process, range, persistence }, &data.entries);
        if outcome.is_ok() {
            let keys: Vec<&Bytes> = data.entries.iter().map(|entry| &entry.key).collect();
            let waiting: BTreeSet<u64> =
                keys.iter().filter_map(|key| of_user.by_key.get(*key)).flatten().copied().collect();
            for number in waiting {
                let Some(lookup) = of_user.waiting.get(&number).map(|waiting| waiting.lookup.clone()) else { continue };
                if let Some(found) = of_user.find(&lookup, &mut changes.gone)
                    && let Some(waiting) = of_user.forget_waiting(number)
                {
                    self.timers.cancel(&(realm, number));
                    changes.found.push((waiting.call, found, lookup.keys_len()));
                }
            }
        }
        self.forget_if_empty(realm);
        outcome
    }

    /// Finds data. None: the lookup waits.
    pub(super) fn lookup(
        &mut self,
        now: Duration,
        realm: u32,
        call: CallId,
        lookup: Lookup,
        timeout: Option<Duration>,
        changes: &mut Changes,
    ) -> Result<Option<Vec<Found>>, Failure> {
        let of_user = self.users.entry(realm).or_default();
        let found = of_user.find(&lookup, &mut changes.gone);
        let outcome = match found {
            Some(found) => Ok(Some(found)),
            None if of_user.waiting.len() >= WAITING_MAX
                || of_user.waiting_bytes + lookup.key_bytes() > WAITING_BYTES_MAX =>
            {
                let why = format!(
                    "the limit on waiting lookups of a user's processes is reached: {WAITING_MAX}, or {WAITING_BYTES_MAX} bytes \
                     of keys"
                );
                Err(Failure::new(OUT_OF_RESOURCE, why))
            }
            None => {
                self.last += 1;
                let number = self.last;
                for key in &lookup.keys {
                    of_user.by_key.entry(key.clone()).or_default().insert(number);
                }
                of_user.waiting_bytes += lookup.key_bytes();
                of_user.waiting.insert(number, Waiting { call, lookup, since: now });
                self.timers.put((realm, number), timeout.map(|timeout| now.saturating_add(timeout)));
                Ok(None)
            }
        };
        self.forget_if_empty(realm);
        outcome
    }

    /// Removes data of the process's user: with these keys on this range, or without keys all that the process itself has published.
    pub(super) fn unpublish(
        &mut self,
        realm: u32,
        process: Process,
        data: &wire::UnpublishData,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        let reach = reach(range(data.range)?, process)?;
        let Some(of_user) = self.users.get_mut(&realm) else { return Ok(()) };
        let slots: Vec<Slot> = match data.keys.is_empty() {
            false => data.keys.iter().map(|key| Slot { reach, key: key.clone() }).collect(),
            true => {
                let is_own =
                    |slot: &&Slot| of_user.entries.get(*slot).is_some_and(|it| it.publisher.rank == process.rank);
                of_user.of_job.get(&process.job).into_iter().flatten().filter(is_own).cloned().collect()
            }
        };
        for slot in slots {
            if of_user.entries.get(&slot).is_some_and(|entry| entry.publisher.uid == process.uid) {
                of_user.remove(&slot, &mut changes.gone);
            }
        }
        self.forget_if_empty(realm);
        Ok(())
    }

    /// Handles that ranks of a job have ended.
    pub(super) fn ranks_ended(&mut self, realm: u32, job: JobId, ended: &RankSet, changes: &mut Changes) {
        let Some(of_user) = self.users.get_mut(&realm) else { return };
        let ends = |slot: &&Slot| {
            of_user
                .entries
                .get(*slot)
                .is_some_and(|entry| entry.persistence == Persistence::Process && ended.contains(entry.publisher.rank))
        };
        let slots: Vec<Slot> = of_user.of_job.get(&job).into_iter().flatten().filter(ends).cloned().collect();
        slots.iter().for_each(|slot| of_user.remove(slot, &mut changes.gone));
        self.forget_if_empty(realm);
    }

    /// Removes what a job that has ended has published, and its waiting lookups.
    pub(super) fn job_is_over(&mut self, realm: u32, job: JobId) {
        let Some(of_user) = self.users.get_mut(&realm) else { return };
        for slot in of_user.of_job.get(&job).cloned().unwrap_or_default() {
            of_user.remove(&slot, &mut Vec::new());
        }
        self.forget_lookups(realm, |call| call.job == job);
        self.forget_if_empty(realm);
    }

    /// Removes the waiting lookups of a step that is lost.
    pub(super) fn step_is_lost(&mut self, realm: u32, job: JobId, node: NodeId) {
        self.forget_lookups(realm, |call| (call.job, call.node) == (job, node));
        self.forget_if_empty(realm);
    }

    /// Returns what this job has published, as its records.
    pub(super) fn kept(&self, realm: u32, job: JobId) -> impl Iterator<Item = wire::KeptData> + '_ {
        let of_user = self.users.get(&realm);
        let slots = of_user.and_then(|of_user| of_user.of_job.get(&job)).into_iter().flatten();
        slots.filter_map(move |slot| of_user?.entries.get(slot).map(|entry| entry.kept(&slot.key)))
    }

    /// Restores what was published before a restart by a process on this node.
    pub(super) fn restore(&mut self, realm: u32, node: NodeId, data: wire::KeptData) {
        let process = Process { job: data.job, node, rank: data.rank, uid: data.uid };
        let (range, persistence) = (data.range, data.persistence);
        let data = wire::PublishData { rank: data.rank, entries: data.entry.into_iter().collect(), range, persistence };
        // A file of another version may contain what this version refuses.
        let _ = self.publish(realm, process, &data, &mut Changes::default());
    }

    fn forget_lookups(&mut self, realm: u32, of: impl Fn(CallId) -> bool) {
        let Some(of_user) = self.users.get_mut(&realm) else { return };
        let numbers: Vec<u64> =
            of_user.waiting.iter().filter(|(_, waiting)| of(waiting.call)).map(|(number, _)| *number).collect();
        for number in numbers {
            of_user.forget_waiting(number);
            self.timers.cancel(&(realm, number));
        }
    }

    fn forget_if_empty(&mut self, realm: u32) {
        if self.users.get(&realm).is_some_and(|of_user| of_user.entries.is_empty() && of_user.waiting.is_empty()) {
            self.users.remove(&realm);
        }
    }

    /// Returns the lookups of a job's processes that wait: the keys, since when, and until when.
    pub(super) fn of(&self, realm: u32, job: JobId) -> impl Iterator<Item = (String, Duration, Option<Duration>)> + '_ {
        let waiting = self.users.get(&realm).into_iter().flat_map(|of_user| &of_user.waiting);
        waiting.filter(move |(_, waiting)| waiting.call.job == job).map(move |(number, waiting)| {
            let keys: Vec<_> = waiting.lookup.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
            (keys.join(","), waiting.since, self.timers.at(&(realm, *number)))
        })
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Returns the lookups whose time limit has passed.
    pub(super) fn settle(&mut self, now: Duration) -> Vec<(CallId, Failure)> {
        let mut late = Vec::new();
        while let Some((realm, number)) = self.timers.pop_due(now) {
            let waiting = self.users.get_mut(&realm).and_then(|of_user| of_user.forget_waiting(number));
            if let Some(Waiting { call, lookup, since }) = waiting {
                let key = lookup.keys.first().map(|key| String::from_utf8_lossy(key).into_owned()).unwrap_or_default();
                let more = if lookup.keys.len() > 1 { " and others" } else { "" };
                let waited = rounded(now.saturating_sub(since));
                let why = format!("timed out after {waited}: no process has published {key:?}{more}");
                late.push((call, Failure::new(TIMEOUT, why)));
            }
            self.forget_if_empty(realm);
        }
        late
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.users.keys().map(|user| format!("published data of user {user}"))
    }
}

impl OfUser {
    fn add(&mut self, reach: Reach, like: Entry, entries: &[wire::Kv]) -> Result<(), Failure> {
        let mut keys = BTreeSet::new();
        for wire::Kv { key, .. } in entries {
            if !keys.insert(key) || self.entries.contains_key(&Slot { reach, key: key.clone() }) {
                let why = format!("{:?} is already published on this range", String::from_utf8_lossy(key));
                return Err(Failure::new(DUPLICATE_KEY, why));
            }
        }
        let bytes: usize = entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
        if self.entries.len() + entries.len() > ENTRIES_MAX || self.bytes + bytes > BYTES_MAX {
            let why = format!(
                "the limit on what a user's processes publish is reached: {ENTRIES_MAX} entries or {BYTES_MAX} bytes"
            );
            return Err(Failure::new(OUT_OF_RESOURCE, why));
        }
        self.bytes += bytes;
        for wire::Kv { key, value } in entries.iter().cloned() {
            let slot = Slot { reach, key };
            self.of_job.entry(like.publisher.job).or_default().insert(slot.clone());
            self.entries.insert(slot, Entry { value, ..like });
        }
        Ok(())
    }

    /// Returns what a lookup finds, if that is enough. Data that lives until it is read is removed.
    fn find(&mut self, lookup: &Lookup, gone: &mut Vec<wire::KeptDataGone>) -> Option<Vec<Found>> {
        let Process { job, node, rank, .. } = lookup.process;
        let visible = [Reach::Process(job, rank), Reach::Job(job), Reach::Node(node), Reach::User];
        let mut slots = Vec::new();
        for key in &lookup.keys {
            let candidates = visible.iter().map(|reach| Slot { reach: *reach, key: key.clone() });
            let is_wanted = |slot: &Slot| {
                self.entries.get(slot).is_some_and(|entry| is_in(lookup.range, lookup.process, entry.publisher))
            };
            slots.extend(candidates.into_iter().find(is_wanted));
        }
        if lookup.needed.is_some_and(|needed| slots.len() < needed) {
            return None;
        }
        let mut found = Vec::new();
        for slot in slots {
            let Some(entry) = self.entries.get(&slot) else { continue };
            let publisher = (entry.publisher.job, entry.publisher.rank);
            found.push(Found { key: slot.key.clone(), value: entry.value.clone(), publisher });
            if entry.persistence == Persistence::FirstRead {
                self.remove(&slot, gone);
            }
        }
        Some(found)
    }

    fn remove(&mut self, slot: &Slot, gone: &mut Vec<wire::KeptDataGone>) {
        let Some(entry) = self.entries.remove(slot) else { return };
        self.bytes -= slot.key.len() + entry.value.len();
        let Process { job, rank, .. } = entry.publisher;
        if let Some(slots) = self.of_job.get_mut(&job) {
            slots.remove(slot);
            if slots.is_empty() {
                self.of_job.remove(&job);
            }
        }
        gone.push(wire::KeptDataGone { job, rank, key: slot.key.clone(), range: entry.range.into() });
    }

    fn forget_waiting(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        self.waiting_bytes -= waiting.lookup.key_bytes();
        for key in &waiting.lookup.keys {
            if let Some(numbers) = self.by_key.get_mut(key) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some(waiting)
    }
}

impl Entry {
    fn kept(&self, key: &Bytes) -> wire::KeptData {
        wire::KeptData {
            job: self.publisher.job,
            rank: self.publisher.rank,
            entry: Some(wire::Kv { key: key.clone(), value: self.value.clone() }),
            range: self.range.into(),
            persistence: self.persistence.into(),
            uid: self.publisher.uid,
        }
    }
}

fn range(number: i32) -> Result<DataRange, Failure> {
    DataRange::try_from(number).map_err(|_| Failure::new(BAD_PARAM, format!("unknown range {number}")))
}

/// Returns who may see what a process publishes on a range.
fn reach(range: DataRange, process: Process) -> Result<Reach, Failure> {
    match range {
        DataRange::Undefined | DataRange::Session | DataRange::Global => Ok(Reach::User),
        DataRange::Namespace => Ok(Reach::Job(process.job)),
        DataRange::Local => Ok(Reach::Node(process.node)),
        DataRange::Process => Ok(Reach::Process(process.job, process.rank)),
        DataRange::Host | DataRange::Custom => {
            let why = "rsd has no data of the ranges PMIX_RANGE_RM and PMIX_RANGE_CUSTOM: use PMIX_RANGE_SESSION";
            Err(Failure::new(NOT_SUPPORTED, why))
        }
    }
}

/// Returns whether a publisher is in the range of the process that looks.
fn is_in(range: DataRange, process: Process, publisher: Process) -> bool {
    match range {
        DataRange::Undefined | DataRange::Session | DataRange::Global => true,
        DataRange::Namespace => publisher.job == process.job,
        DataRange::Local => publisher.node == process.node,
        DataRange::Process => (publisher.job, publisher.rank) == (process.job, process.rank),
        DataRange::Host | DataRange::Custom => false,
    }
}

fn check_keys<'a>(keys: impl ExactSizeIterator<Item = &'a Bytes>) -> Result<(), Failure> {
    if keys.len() == 0 || keys.len() > KEYS_MAX {
        return Err(Failure::new(BAD_PARAM, format!("a request has 1 to {KEYS_MAX} keys, not {}", keys.len())));
    }
    for key in keys {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Failure::new(BAD_PARAM, format!("a key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.len())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
