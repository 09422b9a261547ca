//! What the processes of a job, and whoever knows it, leave for each other by name: opaque bytes, such as the id by which a library
//! for GPUs forms its world. Kept by the head as long as the job lives, and told at once to who waits for it.
//!
//! It is for programs that bring their own network and lack only the first word. MPI's exchange is another thing (`kvs`): that is
//! copied to every node by a fence, and none of it passes here. A call is answered by the head alone, so it costs one way there
//! and back; what waits here is bounded, has a deadline, and ends with the job.
//!
//! A fence is known by its name. Who enters says who it is, and a word that it has chosen for this time: who lost its answer with a
//! daemon and says the same again is counted once, and answered even if all have gone on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, kept, kv_scope};

use crate::calls::{Refused, exit};
use crate::head::lobby::in_seconds;
use crate::rsd::{Answer, Effect, ReqId, Rsd};
use crate::{JobId, Now};

/// Bytes of one value, and of all values of a job.
const VALUE_BYTES_MAX: usize = 1 << 20;
const JOB_BYTES_MAX: usize = 64 << 20;
/// Bytes of a key, of a fence's name, and of what a participant says about itself.
const NAME_BYTES_MAX: usize = 255;
/// Values, fences and participants of a job.
const ENTRIES_MAX: usize = 1 << 16;
/// Calls of a job that may wait.
const WAITING_MAX: usize = 1 << 16;
/// Nobody waits longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// As many are named in a sentence.
const LISTED: usize = 16;

/// What clients ask.
#[derive(Debug)]
pub struct KvCall {
    /// Of which job, and as which of its ranks.
    pub scope: wire::KvScope,
    /// What.
    pub op: KvOp,
}

/// The operations on a job's values.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum KvOp {
    /// [`Answer::Stopped`].
    Put { key: Bytes, value: Bytes },
    /// [`Answer::Value`], as soon as there is one, or a refusal after the time.
    Get { key: Bytes, timeout: Duration },
    /// [`Answer::Entries`], by key.
    List,
    /// [`Answer::Stopped`].
    Delete { key: Bytes },
    /// [`Answer::Stopped`] when as many participants have come, or a refusal after the time.
    Fence(Entry),
}

/// Somebody who enters a fence.
#[derive(Debug)]
pub struct Entry {
    /// The fence.
    pub name: String,
    /// How many are to come; 0: the job's ranks.
    pub participants: u32,
    /// Who it is, if it is no rank.
    pub who: String,
    /// The same only when it asks again for want of an answer.
    pub attempt: u64,
    /// How long it waits.
    pub timeout: Duration,
}

/// All that is kept for jobs that are not over.
#[derive(Debug, Default)]
pub(crate) struct Blobs {
    jobs: BTreeMap<JobId, OfJob>,
}

#[derive(Debug, Default)]
struct OfJob {
    values: BTreeMap<Bytes, Value>,
    bytes: usize,
    /// Ranks that have put something.
    putters: BTreeSet<u32>,
    gets: Vec<Get>,
    fences: BTreeMap<String, Fence>,
}

#[derive(Debug)]
struct Value {
    bytes: Bytes,
    rank: Option<u32>,
}

/// Somebody who waits for a value.
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
    inside: BTreeMap<Who, Inside>,
    /// With which words they have come the last time that all were there.
    passed: BTreeMap<Who, u64>,
}

#[derive(Debug)]
struct Inside {
    req: ReqId,
    attempt: u64,
    since: Duration,
    deadline: Duration,
}

/// Who takes part in a fence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Rank(u32),
    Named(String),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::Rank(rank) => write!(f, "rank {rank}"),
            Who::Named(name) => write!(f, "{name:?}"),
        }
    }
}

impl Rsd {
    pub(crate) fn on_kv_call(&mut self, now: Now, req: ReqId, call: KvCall, out: &mut Vec<Effect>) {
        let change = self.change(&call);
        let asked = self.ask_blobs(now.mono, req, call, out);
        if let (Some(head), Some(change), Ok(_)) = (&mut self.head, change, &asked) {
            head.keep(change);
        }
        let answer = asked.unwrap_or_else(|refused| Some(Answer::Refused(refused)));
        out.extend(answer.map(|answer| Effect::Answer { req, answer }));
    }

    /// What this changes, if it is granted, of what is to be known after a restart.
    fn change(&self, call: &KvCall) -> Option<kept::What> {
        let (job, _) = self.job_of(&call.scope).ok()?;
        let value = |key: &Bytes, value: &Bytes| wire::KeptValue {
            job,
            key: key.clone(),
            value: value.clone(),
            rank: call.scope.rank,
        };
        let change = match &call.op {
            KvOp::Put { key, value: bytes } => kept::What::Value(value(key, bytes)),
            KvOp::Delete { key } => kept::What::ValueGone(value(key, &Bytes::new())),
            KvOp::Get { .. } | KvOp::List | KvOp::Fence(_) => return None,
        };
        self.head.as_ref().filter(|head| head.outlives_us(job)).map(|_| change)
    }

    /// None: later.
    fn ask_blobs(
        &mut self,
        now: Duration,
        req: ReqId,
        KvCall { scope, op }: KvCall,
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, Refused> {
        let (id, ranks) = self.job_of(&scope)?;
        if let Some(rank) = scope.rank.filter(|rank| *rank >= ranks && ranks > 0) {
            return Err(usage(format!("job {id} has no rank {rank}: its ranks are 0 to {}", ranks - 1)));
        }
        let Some(head) = &mut self.head else { return Err(usage("values are the head's".into())) };
        let job = head.blobs.jobs.entry(id).or_default();
        match op {
            KvOp::Put { key, value } => {
                job.put(scope.rank, key, value, out)?;
                Ok(Some(Answer::Stopped))
            }
            KvOp::Get { key, timeout } => job.get(now, req, key, timeout, id, ranks),
            KvOp::List => Ok(Some(Answer::Entries(job.list()))),
            KvOp::Delete { key } => match job.values.remove(&key) {
                Some(value) => {
                    job.bytes -= value.bytes.len();
                    Ok(Some(Answer::Stopped))
                }
                None => Err(no(exit::NO_SUCH_JOB, format!("job {id} has no value {}", shown(&key)))),
            },
            KvOp::Fence(entry) => job.enter(now, req, scope.rank, entry, (id, ranks), out),
        }
    }

    /// The job meant and how many ranks it has; 0 while it is queued.
    fn job_of(&self, scope: &wire::KvScope) -> Result<(JobId, u32), Refused> {
        let head = self.head.as_ref().ok_or_else(|| usage("values are the head's".into()))?;
        let id = match &scope.of {
            None => return Err(usage("of which job? rsctl kv --job 7, or --group actors".into())),
            Some(kv_scope::Of::Job(0)) => {
                *head
                    .jobs
                    .last_key_value()
                    .ok_or_else(|| no(exit::NO_SUCH_JOB, "no job has been submitted yet".into()))?
                    .0
            }
            Some(kv_scope::Of::Job(id)) => *id,
            Some(kv_scope::Of::Group(name)) => head.lobby.live(name)?,
        };
        let Some(job) = head.jobs.get(&id) else {
            return Err(no(exit::NO_SUCH_JOB, format!("there is no job {id} (rsctl ps lists those that live)")));
        };
        if job.is_over() {
            return Err(no(exit::NO_SUCH_JOB, format!("job {id} has ended, and its values with it")));
        }
        Ok((id, job.map.size()))
    }
}

impl Blobs {
    /// A job is over: nobody has to wait for anything of it.
    pub(crate) fn job_is_over(&mut self, id: JobId, out: &mut Vec<Effect>) {
        let Some(job) = self.jobs.remove(&id) else { return };
        let inside = job.fences.into_values().flat_map(|fence| fence.inside.into_values().map(|inside| inside.req));
        for req in job.gets.into_iter().map(|get| get.req).chain(inside) {
            let refused = no(exit::NO_SUCH_JOB, format!("job {id} has ended, and its values with it"));
            out.push(Effect::Answer { req, answer: Answer::Refused(refused) });
        }
    }

    /// What the processes of this job have put.
    pub(crate) fn kept(&self, job: JobId) -> impl Iterator<Item = wire::KeptValue> {
        let values = self.jobs.get(&job).into_iter().flat_map(|of| &of.values);
        values.map(move |(key, value)| wire::KeptValue {
            job,
            key: key.clone(),
            value: value.bytes.clone(),
            rank: value.rank,
        })
    }

    /// What was put before a restart.
    pub(crate) fn restore(&mut self, value: wire::KeptValue) {
        let wire::KeptValue { job, key, value: bytes, rank } = value;
        let job = self.jobs.entry(job).or_default();
        job.bytes += bytes.len();
        job.putters.extend(rank);
        job.values.insert(key, Value { bytes, rank });
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let jobs = self.jobs.values();
        let (gets, fences) = (jobs.clone().flat_map(|job| &job.gets), jobs.flat_map(|job| job.fences.values()));
        let inside = fences.flat_map(|fence| fence.inside.values()).map(|inside| inside.deadline);
        gets.map(|get| get.deadline).chain(inside).min()
    }

    /// Whose time is over. `ranks` tells how many a job has.
    pub(crate) fn settle(&mut self, now: Duration, ranks: impl Fn(JobId) -> u32, out: &mut Vec<Effect>) {
        if self.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        for (id, job) in &mut self.jobs {
            job.expire(now, *id, ranks(*id), out);
        }
    }

    /// What is waited for, one word or two each.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.jobs.keys().map(|job| format!("values of job {job}"))
    }
}

impl OfJob {
    fn put(&mut self, rank: Option<u32>, key: Bytes, value: Bytes, out: &mut Vec<Effect>) -> Result<(), Refused> {
        check_name("a key", &key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(usage(format!("the value has {} bytes: at most {VALUE_BYTES_MAX} are kept", value.len())));
        }
        let before = self.values.get(&key).map_or(0, |value| value.bytes.len());
        let bytes = self.bytes - before + value.len();
        if bytes > JOB_BYTES_MAX || (self.values.len() >= ENTRIES_MAX && !self.values.contains_key(&key)) {
            let text = format!(
                "the job's values are as many as are kept, {ENTRIES_MAX} or {JOB_BYTES_MAX} bytes: rsctl kv del some"
            );
            return Err(no(exit::NOT_PLACED, text));
        }
        self.bytes = bytes;
        self.putters.extend(rank);
        for get in self.gets.extract_if(.., |get| get.key == key) {
            out.push(Effect::Answer { req: get.req, answer: Answer::Value(value.clone()) });
        }
        self.values.insert(key, Value { bytes: value, rank });
        Ok(())
    }

    fn get(
        &mut self,
        now: Duration,
        req: ReqId,
        key: Bytes,
        timeout: Duration,
        id: JobId,
        ranks: u32,
    ) -> Result<Option<Answer>, Refused> {
        check_name("a key", &key)?;
        if let Some(value) = self.values.get(&key) {
            return Ok(Some(Answer::Value(value.bytes.clone())));
        }
        let get = Get { req, key, since: now, deadline: now + timeout.min(TIMEOUT_MAX) };
        if timeout.is_zero() {
            return Err(self.missing(now, &get, id, ranks));
        }
        if self.gets.len() >= WAITING_MAX {
            return Err(no(exit::NOT_PLACED, format!("as many wait for values of job {id} as may: {WAITING_MAX}")));
        }
        self.gets.push(get);
        Ok(None)
    }

    /// Nobody has put it: and who has put nothing at all.
    fn missing(&self, now: Duration, get: &Get, id: JobId, ranks: u32) -> Refused {
        let waited = in_seconds(now.saturating_sub(get.since));
        let silent: Vec<u32> = (0..ranks).filter(|rank| !self.putters.contains(rank)).collect();
        let who = match (ranks, silent.len()) {
            (0, _) => "it has not begun".to_owned(),
            (_, 0) => "all of its ranks have put something, but not that".to_owned(),
            (all, none) if none == all as usize => "none of its ranks has put anything".to_owned(),
            (_, 1) => format!("rank {} has put nothing yet", silent[0]),
            (_, _) => format!("ranks {} have put nothing yet", listed(&silent)),
        };
        let key = shown(&get.key);
        match get.deadline == get.since {
            true => no(exit::NO_SUCH_JOB, format!("job {id} has no value {key}: {who}")),
            false => no(exit::TIMED_OUT, format!("nobody has put {key} into job {id} within {waited} s: {who}")),
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
        rank: Option<u32>,
        entry: Entry,
        (id, ranks): (JobId, u32),
        out: &mut Vec<Effect>,
    ) -> Result<Option<Answer>, Refused> {
        let Entry { name, participants, who, attempt, timeout } = entry;
        check_name("a fence's name", name.as_bytes())?;
        let who = match (rank, who.is_empty()) {
            (_, false) => {
                check_name("a participant's name", who.as_bytes())?;
                Who::Named(who)
            }
            (Some(rank), true) => Who::Rank(rank),
            (None, true) => return Err(usage("who enters the fence? rsctl kv fence --as NAME, or as a rank".into())),
        };
        let participants = if participants == 0 { ranks } else { participants };
        if participants == 0 || participants as usize > ENTRIES_MAX {
            let text = format!("how many take part? 1 to {ENTRIES_MAX}: rsctl kv fence -n 4");
            return Err(usage(text));
        }
        if self.fences.len() >= ENTRIES_MAX && !self.fences.contains_key(&name) {
            return Err(no(exit::NOT_PLACED, format!("job {id} has as many fences as are kept: {ENTRIES_MAX}")));
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
                "fence {name:?} of job {id} is of {}, as {} has said: {who} says {participants}",
                fence.participants,
                fence.inside.keys().next().map(Who::to_string).unwrap_or_default(),
            );
            return Err(no(exit::NOT_PLACED, text));
        }
        if fence.inside.get(&who).is_some_and(|inside| inside.attempt != attempt) {
            let text = format!("{who} waits in fence {name:?} of job {id} already");
            return Err(no(exit::NOT_PLACED, text));
        }
        let inside = Inside { req, attempt, since: now, deadline: now + timeout.min(TIMEOUT_MAX) };
        if let Some(before) = fence.inside.insert(who, inside) {
            // Its client has asked again, and hears no answer to this.
            let refused = no(exit::NOT_PLACED, "the same was asked again".into());
            out.push(Effect::Answer { req: before.req, answer: Answer::Refused(refused) });
        }
        if fence.inside.len() >= participants as usize {
            fence.passed.clear();
            for (who, inside) in std::mem::take(&mut fence.inside) {
                fence.passed.insert(who, inside.attempt);
                out.push(Effect::Answer { req: inside.req, answer: Answer::Stopped });
            }
        }
        Ok(None)
    }

    fn expire(&mut self, now: Duration, id: JobId, ranks: u32, out: &mut Vec<Effect>) {
        let late: Vec<Get> = self.gets.extract_if(.., |get| get.deadline <= now).collect();
        for get in late {
            let refused = self.missing(now, &get, id, ranks);
            out.push(Effect::Answer { req: get.req, answer: Answer::Refused(refused) });
        }
        for (name, fence) in &mut self.fences {
            let here = fence.here(ranks);
            let (have, want) = (fence.inside.len(), fence.participants);
            for (_, inside) in fence.inside.extract_if(.., |_, inside| inside.deadline <= now) {
                let waited = in_seconds(now.saturating_sub(inside.since));
                let text = format!("fence {name:?} of job {id}: {have} of {want} have come within {waited} s; {here}");
                let refused = no(exit::TIMED_OUT, text);
                out.push(Effect::Answer { req: inside.req, answer: Answer::Refused(refused) });
            }
        }
    }
}

impl Fence {
    /// Who is there, and, where all are ranks, who is not.
    fn here(&self, ranks: u32) -> String {
        let ranks_here: Vec<u32> =
            self.inside.keys().filter_map(|who| if let Who::Rank(rank) = who { Some(*rank) } else { None }).collect();
        if ranks_here.len() == self.inside.len() && self.participants == ranks {
            let missing: Vec<u32> = (0..ranks).filter(|rank| ranks_here.binary_search(rank).is_err()).collect();
            let word = if missing.len() == 1 { "rank" } else { "ranks" };
            return format!("missing: {word} {}", listed(&missing));
        }
        let names: Vec<String> = self.inside.keys().take(LISTED).map(Who::to_string).collect();
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

/// A key as people read it.
fn shown(key: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(key))
}

/// Numbers in order, the first few of many.
fn listed(numbers: &[u32]) -> String {
    let list = numbers.iter().take(LISTED).map(u32::to_string).collect::<Vec<_>>().join(", ");
    match numbers.len().saturating_sub(LISTED) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}
