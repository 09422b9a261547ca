//! The values of a job (`rsctl kv`): named opaque bytes that its processes, and clients that know the job, exchange, for example
//! the id by which a GPU communication library forms its world. The head keeps them as long as the job lives, and answers a
//! waiting `get` at once when its value is put.
//!
//! Values are for programs that bring their own network and need only a first contact. The KVS, which MPI libraries use, is
//! separate: a fence copies it to every node. The head alone answers a request about values, so it costs one round trip. The number
//! of waiting requests is limited; each has a deadline and ends with the job.
//!
//! A fence is identified by its name. A participant sends its own name and an attempt number. A participant that lost its answer
//! when a daemon ended sends the same attempt again: it is counted once, and answered even if all others have left the fence.

mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1 as wire;

use crate::JobId;
use crate::calls::{Answer, Entry, KvOp, Refused, exit};
use crate::contract::{ReqId, rounded};
use crate::timers::Timers;

/// The most bytes of one value, and of all values of a job.
const VALUE_BYTES_MAX: usize = 1 << 20;
const JOB_BYTES_MAX: usize = 64 << 20;
/// The most bytes of a key, a fence's name, and a participant's name.
const NAME_BYTES_MAX: usize = 255;
/// The most values, fences and participants of a job.
const ENTRIES_MAX: usize = 1 << 16;
/// The most waiting requests of a job.
const WAITING_MAX: usize = 1 << 16;
/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many ranks or participants an error names.
const LISTED: usize = 16;

/// Answers to requests, in the order in which they are sent.
pub(super) type Answers = Vec<(ReqId, Answer)>;

/// The job that a request is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of {
    pub(super) job: JobId,
    /// The number of ranks; 0 while the job is queued.
    pub(super) ranks: u32,
    /// The rank that sends the request.
    pub(super) rank: Option<u32>,
}

/// The values, fences and waiting requests of all jobs that have not ended.
#[derive(Debug, Default)]
pub(super) struct Values {
    jobs: BTreeMap<JobId, OfJob>,
    timers: Timers<(JobId, ReqId)>,
}

#[derive(Debug, Default)]
struct OfJob {
    values: BTreeMap<Bytes, Value>,
    bytes: usize,
    /// The ranks that have put a value.
    putters: BTreeSet<u32>,
    gets: Vec<Get>,
    fences: BTreeMap<String, Fence>,
}

#[derive(Debug)]
struct Value {
    bytes: Bytes,
    rank: Option<u32>,
}

/// A request that waits for a value.
#[derive(Debug)]
struct Get {
    req: ReqId,
    key: Bytes,
    since: Duration,
    deadline: Duration,
}

#[derive(Debug, Default)]
struct Fence {
    participants: u32,
    inside: BTreeMap<Participant, Inside>,
    /// The attempts of the participants with which the fence last completed.
    passed: BTreeMap<Participant, u64>,
}

#[derive(Debug)]
struct Inside {
    req: ReqId,
    attempt: u64,
    since: Duration,
    deadline: Duration,
}

/// A participant of a fence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Participant {
    Rank(u32),
    Named(String),
}

impl std::fmt::Display for Participant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Participant::Rank(rank) => write!(f, "rank {rank}"),
            Participant::Named(name) => write!(f, "{name:?}"),
        }
    }
}

impl Values {
    /// Performs a client's request. None: the request waits and is answered later. `answers` gets the answers to other requests.
    pub(super) fn ask(
        &mut self,
        now: Duration,
        req: ReqId,
        of: Of,
        op: KvOp,
        answers: &mut Answers,
    ) -> Result<Option<Answer>, Refused> {
        let Of { job: id, ranks, rank } = of;
        if let Some(rank) = rank.filter(|rank| *rank >= ranks && ranks > 0) {
            return Err(usage(format!("job {id} has no rank {rank}: its ranks are 0 to {}", ranks - 1)));
        }
        let job = self.jobs.entry(id).or_default();
        let first = answers.len();
        let deadline = match &op {
            KvOp::Get { timeout, .. } | KvOp::Fence(Entry { timeout, .. }) => Some(now + (*timeout).min(TIMEOUT_MAX)),
            KvOp::Put { .. } | KvOp::List | KvOp::Delete { .. } => None,
        };
        let answer = match op {
            KvOp::Put { key, value } => job.put(rank, key, value, answers).map(|()| Some(Answer::Stopped)),
            KvOp::Get { key, timeout } => job.get(now, req, key, timeout, of),
            KvOp::List => Ok(Some(Answer::Entries(job.list()))),
            KvOp::Delete { key } => job.delete(id, &key).map(|()| Some(Answer::Stopped)),
            KvOp::Fence(entry) => job.enter(now, req, entry, of, answers),
        };
        if matches!(answer, Ok(None)) {
            self.timers.put((id, req), deadline);
        }
        for (answered, _) in &answers[first..] {
            self.timers.cancel(&(id, *answered));
        }
        answer
    }

    /// Removes a waiting request whose client is gone. A participant that is gone must not let others pass its fence; one that was only
    /// disconnected asks again.
    pub(super) fn withdraw(&mut self, req: ReqId) {
        for (id, job) in &mut self.jobs {
            let before = job.waiting();
            job.gets.retain(|get| get.req != req);
            job.fences.values_mut().for_each(|fence| fence.inside.retain(|_, inside| inside.req != req));
            if job.waiting() < before {
                return self.timers.cancel(&(*id, req));
            }
        }
    }

    /// Drops the values of a job that has ended, and refuses its waiting requests.
    pub(super) fn job_is_over(&mut self, id: JobId, answers: &mut Answers) {
        let Some(job) = self.jobs.remove(&id) else { return };
        let inside = job.fences.into_values().flat_map(|fence| fence.inside.into_values().map(|inside| inside.req));
        for req in job.gets.into_iter().map(|get| get.req).chain(inside) {
            let refused = no(exit::NO_SUCH_JOB, format!("job {id} has ended, and its values with it"));
            self.timers.cancel(&(id, req));
            answers.push((req, Answer::Refused(refused)));
        }
    }

    /// Returns the values of this job.
    pub(super) fn kept(&self, job: JobId) -> impl Iterator<Item = wire::KeptValue> {
        let values = self.jobs.get(&job).into_iter().flat_map(|of| &of.values);
        values.map(move |(key, value)| wire::KeptValue {
            job,
            key: key.clone(),
            value: value.bytes.clone(),
            rank: value.rank,
        })
    }

    /// Restores a value that was put before a restart.
    pub(super) fn restore(&mut self, value: wire::KeptValue) {
        let wire::KeptValue { job, key, value: bytes, rank } = value;
        let job = self.jobs.entry(job).or_default();
        job.bytes += bytes.len();
        job.putters.extend(rank);
        job.values.insert(key, Value { bytes, rank });
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Refuses the requests whose timeout has passed. `ranks` returns the number of ranks of a job.
    pub(super) fn settle(&mut self, now: Duration, ranks: impl Fn(JobId) -> u32, answers: &mut Answers) {
        let mut late = BTreeSet::new();
        while let Some((job, _)) = self.timers.pop_due(now) {
            late.insert(job);
        }
        for id in late {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.expire(now, id, ranks(id), answers);
            }
        }
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.jobs.keys().map(|job| format!("values of job {job}"))
    }
}

impl OfJob {
    /// How many requests wait.
    fn waiting(&self) -> usize {
        self.gets.len() + self.fences.values().map(|fence| fence.inside.len()).sum::<usize>()
    }

    fn put(&mut self, rank: Option<u32>, key: Bytes, value: Bytes, answers: &mut Answers) -> Result<(), Refused> {
        check_name("a key", &key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(usage(format!("the value has {} bytes; the limit is {VALUE_BYTES_MAX}", value.len())));
        }
        let before = self.values.get(&key).map_or(0, |value| value.bytes.len());
        let bytes = self.bytes - before + value.len();
        if bytes > JOB_BYTES_MAX || (self.values.len() >= ENTRIES_MAX && !self.values.contains_key(&key)) {
            let text = format!(
                "the limit on the job's values is reached: {ENTRIES_MAX} values or {JOB_BYTES_MAX} bytes; delete some with \
                 rsctl kv del"
            );
            return Err(no(exit::NOT_PLACED, text));
        }
        self.bytes = bytes;
        self.putters.extend(rank);
        let waiting = self.gets.extract_if(.., |get| get.key == key);
        answers.extend(waiting.map(|get| (get.req, Answer::Value(value.clone()))));
        self.values.insert(key, Value { bytes: value, rank });
        Ok(())
    }

    fn delete(&mut self, id: JobId, key: &Bytes) -> Result<(), Refused> {
        match self.values.remove(key) {
            Some(value) => {
                self.bytes -= value.bytes.len();
                Ok(())
            }
            None => Err(no(exit::NO_SUCH_JOB, format!("job {id} has no value {}", shown(key)))),
        }
    }

    fn get(
        &mut self,
        now: Duration,
        req: ReqId,
        key: Bytes,
        timeout: Duration,
        of: Of,
    ) -> Result<Option<Answer>, Refused> {
        check_name("a key", &key)?;
        if let Some(value) = self.values.get(&key) {
            return Ok(Some(Answer::Value(value.bytes.clone())));
        }
        let get = Get { req, key, since: now, deadline: now + timeout.min(TIMEOUT_MAX) };
        if timeout.is_zero() {
            return Err(self.missing(now, &get, of.job, of.ranks));
        }
        if self.gets.len() >= WAITING_MAX {
            return Err(no(
                exit::NOT_PLACED,
                format!("too many requests wait for values of job {}: {WAITING_MAX}", of.job),
            ));
        }
        self.gets.push(get);
        Ok(None)
    }

    /// Returns the refusal for a missing value. It names the ranks that have put no value.
    fn missing(&self, now: Duration, get: &Get, id: JobId, ranks: u32) -> Refused {
        let waited = rounded(now.saturating_sub(get.since));
        let silent: Vec<u32> = (0..ranks).filter(|rank| !self.putters.contains(rank)).collect();
        let who = match (ranks, silent.len()) {
            (0, _) => "the job is still queued".to_owned(),
            (_, 0) => "each of its ranks has put other values".to_owned(),
            (all, none) if none == all as usize => "none of its ranks has put anything".to_owned(),
            (_, 1) => format!("rank {} has put nothing yet", silent[0]),
            (_, _) => format!("ranks {} have put nothing yet", listed(&silent)),
        };
        let key = shown(&get.key);
        match get.deadline == get.since {
            true => no(exit::NO_SUCH_JOB, format!("job {id} has no value {key}; {who}")),
            false => no(exit::TIMED_OUT, format!("timed out after {waited}: job {id} has no value {key}; {who}")),
        }
    }

    fn list(&self) -> Vec<wire::KvEntry> {
        let entry = |(key, value): (&Bytes, &Value)| wire::KvEntry {
            key: key.clone(),
            bytes: value.bytes.len() as u64,
            rank: value.rank,
        };
        self.values.iter().map(entry).collect()
    }

    fn enter(
        &mut self,
        now: Duration,
        req: ReqId,
        entry: Entry,
        of: Of,
        answers: &mut Answers,
    ) -> Result<Option<Answer>, Refused> {
        let Of { job: id, ranks, rank } = of;
        let Entry { name, participants, who, attempt, timeout } = entry;
        check_name("a fence's name", name.as_bytes())?;
        let who = match (rank, who.is_empty()) {
            (_, false) => {
                check_name("a participant's name", who.as_bytes())?;
                Participant::Named(who)
            }
            (Some(rank), true) => Participant::Rank(rank),
            (None, true) => {
                return Err(usage(
                    "a fence needs the participant's name outside a rank: rsctl kv fence --as NAME".into(),
                ));
            }
        };
        let participants = if participants == 0 { ranks } else { participants };
        if participants == 0 || participants as usize > ENTRIES_MAX {
            let text = format!("a fence has 1 to {ENTRIES_MAX} participants: rsctl kv fence -n 4");
            return Err(usage(text));
        }
        if self.fences.len() >= ENTRIES_MAX && !self.fences.contains_key(&name) {
            return Err(no(exit::NOT_PLACED, format!("the limit on fences of job {id} is reached: {ENTRIES_MAX}")));
        }
        let fence = self.fences.entry(name.clone()).or_default();
        if fence.passed.get(&who) == Some(&attempt) {
            return Ok(Some(Answer::Stopped));
        }
        if fence.inside.is_empty() {
            fence.participants = participants;
        }
        if fence.participants != participants {
            let text = format!(
                "fence {name:?} of job {id} has {} participants (requested first by {}); {who} requests {participants}",
                fence.participants,
                fence.inside.keys().next().map(Participant::to_string).unwrap_or_default(),
            );
            return Err(no(exit::NOT_PLACED, text));
        }
        if fence.inside.get(&who).is_some_and(|inside| inside.attempt != attempt) {
            let text = format!("{who} is already waiting in fence {name:?} of job {id}");
            return Err(no(exit::NOT_PLACED, text));
        }
        let inside = Inside { req, attempt, since: now, deadline: now + timeout.min(TIMEOUT_MAX) };
        if let Some(before) = fence.inside.insert(who, inside) {
            // The client has repeated its request and does not wait for this answer.
            let refused = no(exit::NOT_PLACED, "superseded by a repeated request of the participant".into());
            answers.push((before.req, Answer::Refused(refused)));
        }
        if fence.inside.len() >= participants as usize {
            fence.passed.clear();
            for (who, inside) in std::mem::take(&mut fence.inside) {
                fence.passed.insert(who, inside.attempt);
                answers.push((inside.req, Answer::Stopped));
            }
        }
        Ok(None)
    }

    fn expire(&mut self, now: Duration, id: JobId, ranks: u32, answers: &mut Answers) {
        let late: Vec<Get> = self.gets.extract_if(.., |get| get.deadline <= now).collect();
        for get in late {
            let refused = self.missing(now, &get, id, ranks);
            answers.push((get.req, Answer::Refused(refused)));
        }
        for (name, fence) in &mut self.fences {
            let here = fence.waiting_text(ranks);
            let (have, want) = (fence.inside.len(), fence.participants);
            for (_, inside) in fence.inside.extract_if(.., |_, inside| inside.deadline <= now) {
                let waited = rounded(now.saturating_sub(inside.since));
                let text = format!(
                    "fence {name:?} of job {id} timed out after {waited}: {have} of {want} participants have entered; {here}"
                );
                let refused = no(exit::TIMED_OUT, text);
                answers.push((inside.req, Answer::Refused(refused)));
            }
        }
    }
}

impl Fence {
    /// Lists the waiting participants or, if all of them are ranks, the missing ranks.
    fn waiting_text(&self, ranks: u32) -> String {
        let ranks_here: Vec<u32> = self
            .inside
            .keys()
            .filter_map(|who| if let Participant::Rank(rank) = who { Some(*rank) } else { None })
            .collect();
        if ranks_here.len() == self.inside.len() && self.participants == ranks {
            let missing: Vec<u32> = (0..ranks).filter(|rank| ranks_here.binary_search(rank).is_err()).collect();
            let word = if missing.len() == 1 { "rank" } else { "ranks" };
            return format!("missing: {word} {}", listed(&missing));
        }
        let names: Vec<String> = self.inside.keys().take(LISTED).map(Participant::to_string).collect();
        let more = if self.inside.len() > LISTED { ", …" } else { "" };
        format!("here: {}{more}", names.join(", "))
    }
}

fn no(exit_code: u8, text: String) -> Refused {
    Refused { exit_code, text }
}

fn usage(text: String) -> Refused {
    no(exit::USAGE, text)
}

fn check_name(what: &str, name: &[u8]) -> Result<(), Refused> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(()),
        length => Err(usage(format!("{what} has 1 to {NAME_BYTES_MAX} bytes, not {length}"))),
    }
}

/// Returns a key as users read it.
fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(key))
}

/// Lists numbers in order, at most the first 16.
fn listed(numbers: &[u32]) -> String {
    let list = numbers.iter().take(LISTED).map(u32::to_string).collect::<Vec<_>>().join(", ");
    match numbers.len().saturating_sub(LISTED) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}
