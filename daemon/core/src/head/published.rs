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
mod tests {
    use super::*;

    /// Rank 0 of a job, on the node with the job's number.
    fn of(job: JobId) -> Process {
        Process { job, node: job as NodeId, rank: 0, uid: None }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn call(job: JobId) -> CallId {
        CallId { job, node: job as NodeId, number: 1 }
    }

    fn data(entries: &[(&str, &str)], range: DataRange, persistence: Persistence) -> wire::PublishData {
        let entry = |(key, value): &(&str, &str)| wire::Kv {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let entries = entries.iter().map(entry).collect();
        wire::PublishData { rank: 0, entries, range: range.into(), persistence: persistence.into() }
    }

    fn publish(published: &mut Published, process: Process, key: &str, range: DataRange) -> Result<Changes, i32> {
        let mut changes = Changes::default();
        let data = data(&[(key, "port")], range, Persistence::App);
        published.publish(0, process, &data, &mut changes).map(|()| changes).map_err(|failure| failure.status)
    }

    fn lookup(process: Process, keys: &[&'static str], wait: Option<u32>) -> Lookup {
        let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        let range = DataRange::Session.into();
        Lookup::new(process, wire::LookupData { rank: 0, keys, range, wait, timeout_ms: None }).unwrap()
    }

    fn find(published: &mut Published, process: Process, key: &'static str) -> Option<(JobId, u32)> {
        let lookup = lookup(process, &[key], None);
        let found = published.lookup(at(0), 0, call(process.job), lookup, None, &mut Changes::default()).unwrap();
        found.expect("it does not wait").first().map(|found| found.publisher)
    }

    fn assert_empty(published: &Published) {
        assert_eq!((published.leftovers().count(), published.next_deadline()), (0, None));
    }

    #[test]
    fn a_key_is_unique_on_its_range_and_seen_by_those_in_it() {
        let mut published = Published::default();
        let (one, two) = (of(1), of(2));
        let neighbour = Process { node: 1, ..of(3) };
        for range in [DataRange::Session, DataRange::Namespace, DataRange::Local, DataRange::Process] {
            publish(&mut published, one, "key", range).unwrap();
            assert_eq!(publish(&mut published, one, "key", range).unwrap_err(), DUPLICATE_KEY);
            let sees =
                [two, neighbour, Process { rank: 1, ..one }, one].map(|it| find(&mut published, it, "key").is_some());
            let expected = match range {
                DataRange::Session => [true, true, true, true],
                DataRange::Namespace => [false, false, true, true],
                DataRange::Local => [false, true, true, true],
                _ => [false, false, false, true],
            };
            assert_eq!(sees, expected, "{range:?}");
            let others = publish(&mut published, two, "key", range);
            assert_eq!(others.is_err(), range == DataRange::Session, "{range:?}");
            published.job_is_over(0, 2);
            published.job_is_over(0, 1);
        }
        for range in [DataRange::Host, DataRange::Custom] {
            assert_eq!(publish(&mut published, one, "key", range).unwrap_err(), NOT_SUPPORTED);
        }
        assert_empty(&published);
    }

    #[test]
    fn all_entries_are_published_or_none() {
        let mut published = Published::default();
        publish(&mut published, of(1), "b", DataRange::Global).unwrap();
        for entries in [[("a", ""), ("b", "")], [("a", ""), ("a", "")]] {
            let data = data(&entries, DataRange::Session, Persistence::App);
            let failure = published.publish(0, of(2), &data, &mut Changes::default()).unwrap_err();
            assert_eq!(failure.status, DUPLICATE_KEY);
        }
        assert_eq!(find(&mut published, of(2), "a"), None);
        published.job_is_over(0, 1);
        assert_empty(&published);
    }

    #[test]
    fn data_for_one_reader_goes_to_the_first_that_waits() {
        let mut published = Published::default();
        let mut changes = Changes::default();
        for job in [2, 3] {
            let lookup = lookup(of(job), &["a", "b"], Some(0));
            assert_eq!(published.lookup(at(0), 0, call(job), lookup, None, &mut changes), Ok(None));
        }
        for key in ["a", "b"] {
            let data = data(&[(key, key)], DataRange::Session, Persistence::FirstRead);
            published.publish(0, of(1), &data, &mut changes).unwrap();
        }
        let [(answered, found, 2)] = &changes.found[..] else { panic!("{changes:?}") };
        assert_eq!(
            (*answered, found.iter().map(|it| &it.value[..]).collect::<Vec<_>>()),
            (call(2), vec![&b"a"[..], b"b"])
        );
        assert_eq!(changes.gone.len(), 2);
        assert_eq!(find(&mut published, of(9), "a"), None, "it was read");
        published.job_is_over(0, 3);
        assert_empty(&published);
    }

    #[test]
    fn a_lookup_waits_for_as_many_keys_as_it_says_and_only_so_long() {
        let mut published = Published::default();
        let mut changes = Changes::default();
        let wait = |published: &mut Published, job, wait, seconds| {
            let lookup = lookup(of(job), &["a", "b", "c"], Some(wait));
            published.lookup(at(1), 0, call(job), lookup, Some(at(seconds)), &mut Changes::default()).unwrap()
        };
        assert_eq!((wait(&mut published, 2, 2, 9), wait(&mut published, 3, 0, 4)), (None, None));
        for (key, answered) in [("a", 0), ("b", 1)] {
            let data = data(&[(key, key)], DataRange::Session, Persistence::App);
            published.publish(0, of(1), &data, &mut changes).unwrap();
            assert_eq!(changes.found.len(), answered, "{key}");
        }
        assert_eq!((changes.found[0].0, changes.found[0].1.len()), (call(2), 2));
        assert_eq!(published.next_deadline(), Some(at(5)));
        let late = published.settle(at(5));
        assert_eq!((late[0].0, late[0].1.status), (call(3), TIMEOUT));
        assert_eq!(late[0].1.why, "timed out after 4 s: no process has published \"a\" and others");
        published.job_is_over(0, 1);
        assert_empty(&published);
    }

    #[test]
    fn data_of_a_process_ends_with_it_and_only_the_same_user_unpublishes() {
        let mut published = Published::default();
        let mut changes = Changes::default();
        let data_of = |key, persistence| data(&[(key, "")], DataRange::Session, persistence);
        published.publish(0, of(1), &data_of("brief", Persistence::Process), &mut changes).unwrap();
        published.publish(0, of(1), &data_of("long", Persistence::Indefinite), &mut changes).unwrap();
        published.ranks_ended(0, 1, &RankSet::run(1, 7), &mut changes);
        assert!(find(&mut published, of(2), "brief").is_some(), "other ranks have ended");
        published.ranks_ended(0, 1, &RankSet::run(0, 0), &mut changes);
        assert_eq!((find(&mut published, of(2), "brief"), changes.gone.len()), (None, 1));

        let unpublish = |published: &mut Published, process, keys: &[&'static str]| {
            let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
            let data = wire::UnpublishData { rank: 0, keys, range: DataRange::Session.into() };
            published.unpublish(0, process, &data, &mut Changes::default()).unwrap();
            find(published, of(2), "long").is_some()
        };
        assert!(unpublish(&mut published, Process { uid: Some(7), ..of(1) }, &["long"]), "another user");
        assert!(unpublish(&mut published, of(2), &[]), "all of another process");
        assert!(!unpublish(&mut published, of(2), &["long", "unknown"]), "another process of the same user");
        publish(&mut published, of(1), "long", DataRange::Session).unwrap();
        assert!(!unpublish(&mut published, of(1), &[]));
        assert_empty(&published);
    }

    #[test]
    fn published_data_and_lookups_are_bounded_for_each_user() {
        let mut published = Published::default();
        let mut changes = Changes::default();
        let large = "x".repeat(BYTES_MAX / 2);
        let put = |published: &mut Published, realm, key: &str, value: &str| {
            let data = data(&[(key, value)], DataRange::Session, Persistence::App);
            published.publish(realm, of(1), &data, &mut Changes::default()).map_err(|failure| failure.status)
        };
        put(&mut published, 0, "a", &large).unwrap();
        assert_eq!(put(&mut published, 0, "b", &large), Err(OUT_OF_RESOURCE));
        put(&mut published, 1, "b", &large).unwrap();
        published.job_is_over(0, 1);
        for n in 0..ENTRIES_MAX {
            put(&mut published, 0, &n.to_string(), "").unwrap();
        }
        assert_eq!(put(&mut published, 0, "b", ""), Err(OUT_OF_RESOURCE));
        for _ in 0..WAITING_MAX {
            assert_eq!(
                published.lookup(at(0), 0, call(1), lookup(of(1), &["z"], Some(0)), None, &mut changes),
                Ok(None)
            );
        }
        let more = published.lookup(at(0), 0, call(1), lookup(of(1), &["z"], Some(0)), None, &mut changes);
        assert_eq!(more.unwrap_err().status, OUT_OF_RESOURCE);
        [0, 1].into_iter().for_each(|realm| published.job_is_over(realm, 1));
        assert_empty(&published);
        for key in ["", &"k".repeat(512)] {
            assert_eq!(put(&mut published, 0, key, ""), Err(BAD_PARAM));
        }
    }
}
