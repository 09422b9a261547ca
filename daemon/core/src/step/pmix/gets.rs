//! Which values a client gets, and when.
//!
//! | asked for | answered |
//! |---|---|
//! | a value that the server has, or should have (its own job, a reserved key) | at once: the value, or not found |
//! | a value of a rank on this node | when the rank has committed it; not found if the rank ends before, or 2 s after a commit without it |
//! | a value of a rank on another node | from what fences have brought, fetched if that is held elsewhere; or by that rank's step through the head |
//! | a value of another job, or its description | through the head, with the job's description first |
//!
//! `pmix.immediate` turns waiting into not found, and `pmix.timeout` limits it. An answer has all values of the rank that the asking
//! client may see, because clients keep them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::pmix::{Codec, Info, KVal, Kept, Proc, Reply, Role, Status, Value, encode_all, keys, rank};

use super::committed::Packed;
use super::pending::{Group, Here, Missing, ms};
use super::{Awaited, Blocked, Client, Effect, Local, Step, To, until};
use crate::Now;
use crate::kvs::Known;
use crate::step::dialect::{Asker, By};
use crate::step::held::Then;

/// How long a client waits for a value that its rank has not committed with others.
const LINGER: Duration = Duration::from_secs(2);

/// Requests that wait for a rank of this node.
#[derive(Debug, Default)]
pub(super) struct Gets {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    to: To,
    /// The rank that must commit.
    of: Local,
    key: Option<String>,
    since: Duration,
    until: Option<Duration>,
    /// Whether the client has set the time.
    timed: bool,
}

impl Gets {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.waiting.iter().filter_map(|waiting| waiting.until).min()
    }

    /// Returns the requests, together for each value.
    pub(super) fn blocked(&self) -> Vec<Blocked> {
        let mut all: BTreeMap<(Local, Option<&str>), Blocked> = BTreeMap::new();
        for waiting in &self.waiting {
            let blocked = all.entry((waiting.of, waiting.key.as_deref())).or_insert_with(|| Blocked {
                collective: String::new(),
                value: Some(waiting.key.clone().unwrap_or_default()),
                since: waiting.since,
                inside: 0,
                missing: vec![waiting.of],
            });
            blocked.inside += 1;
        }
        all.into_values().collect()
    }

    pub(super) fn forget(&mut self, client: Client) {
        self.waiting.retain(|waiting| waiting.to.client != client);
    }
}

impl Step {
    #[expect(clippy::too_many_arguments, reason = "the request's parts, each used by another rule")]
    pub(super) fn on_pmix_get(
        &mut self,
        now: Now,
        local: Local,
        to: To,
        proc: Proc,
        infos: &[Info],
        key: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        let Some(codec) = self.codec_of(to.client) else { return };
        let not_found = Reply::Done(Status::NOT_FOUND);
        let immediate = Info::is_set(infos, keys::IMMEDIATE);
        let timeout = until(now, infos);
        if key.as_deref() == Some(keys::GROUP_LOCAL_ID) {
            return self.send_pmix(to, &self.group_values(&proc, codec), out);
        }
        if !proc.namespace.is_empty() && proc.namespace != self.launch.namespace {
            let reserved = key.as_deref().is_some_and(keys::is_reserved);
            let of_job = proc.rank >= rank::FIRST_SPECIAL || reserved;
            let missing = Missing { to, proc, key: key.filter(|_| !of_job), immediate, of_job, timeout_ms: ms(infos) };
            return self.get_elsewhere(missing, out);
        }
        if proc.rank >= rank::FIRST_SPECIAL {
            return self.send_pmix(to, &self.own_job(to.client, codec, key.as_deref()), out);
        }
        let Some(node) = self.map.node_of(proc.rank) else { return self.send_pmix(to, &not_found, out) };
        if node == self.node {
            let of = self.ranks.iter().position(|rank| rank.rank == proc.rank);
            let Some(of) = of else { return self.send_pmix(to, &not_found, out) };
            return match self.values_here(of, key.as_deref(), codec) {
                Here::Values(values) => self.send_kept(to, proc, values, out),
                Here::Absent => self.send_pmix(to, &not_found, out),
                Here::NotYet { .. } if immediate => self.send_pmix(to, &not_found, out),
                Here::NotYet { has_committed } => {
                    let linger = has_committed.then_some(now.mono + LINGER);
                    let waiting =
                        Waiting { to, of, key, since: now.mono, until: timeout.or(linger), timed: timeout.is_some() };
                    self.pmix.gets.waiting.push(waiting);
                }
            };
        }
        let timeout = ms(infos).map(Duration::from_millis);
        let missing = Missing { to, proc, key, immediate, of_job: false, timeout_ms: ms(infos) };
        match self.distributed(missing.proc.rank) {
            (Known::Elsewhere, key) => {
                let ticket = self.pmix.ticket(Awaited::Held(missing));
                let asker = Asker { local, by: By::Pmix { ticket } };
                self.fetch(now, key.clone(), timeout, Then::Get { asker, key }, out);
            }
            (Known::Value(_) | Known::Absent, _) => self.on_distributed(missing, out),
        }
    }

    /// Answers a request for a value of a rank on another node from what fences have brought, or asks that rank's step.
    pub(super) fn on_distributed(&mut self, missing: Missing, out: &mut Vec<Effect>) {
        let Some(codec) = self.codec_of(missing.to.client) else { return };
        let packed = match self.distributed(missing.proc.rank).0 {
            Known::Value(packed) => Packed::read(&packed),
            Known::Absent | Known::Elsewhere => None,
        };
        let key = missing.key.as_deref();
        if let Some(packed) = packed.filter(|packed| key.is_none_or(|key| packed.has(key))) {
            return self.send_kept(missing.to, missing.proc, packed.encode(codec), out);
        }
        if missing.immediate || key.is_some_and(keys::is_reserved) {
            return self.send_pmix(missing.to, &Reply::Done(Status::NOT_FOUND), out);
        }
        self.get_elsewhere(missing, out);
    }

    /// Answers a question about the client's own job: a client that has its description has all that there is.
    fn own_job(&self, client: Client, codec: Codec, key: Option<&str>) -> Reply {
        let has_it = self.pmix.clients.get(&client).is_some_and(|peer| peer.role == Role::Client);
        let description = self.description();
        if has_it && key.is_some_and(|key| description.value(key).is_none()) {
            return Reply::Done(Status::NOT_FOUND);
        }
        let proc = Proc::new(&self.launch.namespace, rank::WILDCARD);
        Reply::Kept(vec![Kept { proc, values: description.arrays(codec) }])
    }

    /// Looks for what a rank of this node has committed for processes of this node.
    pub(super) fn values_here(&self, of: Local, key: Option<&str>, codec: Codec) -> Here {
        let is_over = self.ranks[of].phase.is_over();
        let Some(committed) = self.pmix.committed.get(&of) else {
            return if is_over { Here::Absent } else { Here::NotYet { has_committed: false } };
        };
        match key {
            Some(key) if committed.local.has(key) => Here::Values(committed.local.encode(codec)),
            // It has put the key for other nodes only, or will never put what only the server puts.
            Some(key) if committed.remote.has(key) || is_over || keys::is_reserved(key) => Here::Absent,
            Some(_) => Here::NotYet { has_committed: true },
            None => Here::Values(committed.local.encode(codec)),
        }
    }

    pub(super) fn send_kept(&self, to: To, proc: Proc, values: Bytes, out: &mut Vec<Effect>) {
        self.send_pmix(to, &Reply::Kept(vec![Kept { proc, values }]), out);
    }

    /// Answers the requests that a commit has completed.
    pub(super) fn on_committed(&mut self, now: Now, of: Local, out: &mut Vec<Effect>) {
        let proc = self.proc_of(of);
        let (waiting, others) =
            std::mem::take(&mut self.pmix.gets.waiting).into_iter().partition(|waiting| waiting.of == of);
        self.pmix.gets.waiting = others;
        for mut waiting in waiting {
            let Some(codec) = self.codec_of(waiting.to.client) else { continue };
            match self.values_here(of, waiting.key.as_deref(), codec) {
                Here::Values(values) => self.send_kept(waiting.to, proc.clone(), values, out),
                Here::Absent => self.send_pmix(waiting.to, &Reply::Done(Status::NOT_FOUND), out),
                Here::NotYet { .. } => {
                    waiting.until.get_or_insert(now.mono + LINGER);
                    self.pmix.gets.waiting.push(waiting);
                }
            }
        }
        self.answer_fetches_of(of, out);
    }

    pub(super) fn fail_gets_of(&mut self, of: Local, out: &mut Vec<Effect>) {
        let (waiting, others): (Vec<_>, _) =
            std::mem::take(&mut self.pmix.gets.waiting).into_iter().partition(|waiting| waiting.of == of);
        self.pmix.gets.waiting = others;
        for waiting in waiting {
            self.send_pmix(waiting.to, &Reply::Done(Status::NOT_FOUND), out);
        }
    }

    pub(super) fn settle_gets(&mut self, now: Now, out: &mut Vec<Effect>) {
        let due = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now.mono);
        let (late, others): (Vec<_>, _) = std::mem::take(&mut self.pmix.gets.waiting).into_iter().partition(due);
        self.pmix.gets.waiting = others;
        for waiting in late {
            let status = if waiting.timed { Status::TIMEOUT } else { Status::NOT_FOUND };
            self.send_pmix(waiting.to, &Reply::Done(status), out);
        }
    }

    /// Returns what a process has told its groups, each value with the number of the group.
    fn group_values(&self, proc: &Proc, codec: Codec) -> Reply {
        let of = |group: &Group| {
            let infos = group.infos.get(proc).cloned().unwrap_or_default();
            let number = group.number;
            infos.into_iter().map(move |info| {
                let qualifier =
                    Info { key: keys::GROUP_CONTEXT.into(), flags: Info::QUALIFIER, value: Value::Size(number) };
                KVal::new(keys::QUALIFIED_VALUE, Value::infos(vec![info, qualifier]))
            })
        };
        let kvals: Vec<KVal> = self.pmix.collectives.groups().flat_map(of).collect();
        match kvals.is_empty() {
            true => Reply::Done(Status::NOT_FOUND),
            false => {
                let values = encode_all(codec, &kvals).into();
                Reply::Kept(vec![Kept { proc: proc.clone(), values }])
            }
        }
    }
}
