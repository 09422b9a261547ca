//! Requests of steps that only the head can answer: names, and what the PMIx servers in steps do among themselves for processes of
//! several nodes and jobs. A request concerns only jobs of the user whose job makes it; for it, others do not exist.
//!
//! An answer that depends on when the request was performed, or a request that changes something, is kept until the step confirms it; for
//! jobs that outlive the head, also on the disk. Other requests are performed again when they are repeated.

mod ends;
mod layouts;

use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, control, down, kept::What, name_call::Op};

use super::fetches::Wanted;
use super::meetings::{self, Arrival, Outcome};
use super::published::{Changes, Found, Lookup, Process};
use super::questions::{CallId, Question};
use super::rank_set::RankSet;
use super::{Head, family};
use crate::between::{Order, Outputs};
use crate::calls::Refused;
use crate::status::{
    BAD_PARAM, Failure, NO_PERMISSIONS, NOT_FOUND, NOT_SUPPORTED, OUT_OF_RESOURCE, PARTIAL_SUCCESS, SUCCESS,
};
use crate::{Now, sentences};

/// The most bytes of the key of a collective, and of what a step contributes.
const KEY_BYTES_MAX: usize = 1 << 10;
const DATA_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a selector of what a process has committed, and of an event's data.
const WHAT_BYTES_MAX: usize = 1 << 10;
const EVENT_BYTES_MAX: usize = 64 << 10;
/// The most bytes of unconfirmed answers of a user's steps.
const HELD_BYTES_MAX: usize = meetings::BYTES_MAX;
/// The most runs of ranks that one request signals.
const SIGNAL_RUNS_MAX: usize = 1 << 10;
/// How much of a sentence of another step is passed on, in bytes.
const WHY_BYTES: usize = 1 << 10;
/// The longest time limit.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// How a repeat of an answered request is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// It gets the same answer, which uses so many bytes of memory.
    Answered(usize),
    /// It is performed again.
    Performed,
}

impl Head {
    pub(super) fn on_name_call(&mut self, now: Now, call: wire::NameCall, out: &mut Outputs<Order>) {
        let wire::NameCall { job, node, call: number, op, uid, open_from, answered } = call;
        let call = CallId { job, node, number };
        if !self.jobs.is_alive(job) || self.jobs.get(job).is_some_and(|job| job.has_lost(node)) {
            return;
        }
        let realm = self.realm_of_job(job);
        match self.questions.ask(realm, call, open_from, &answered) {
            Question::Settled => return,
            Question::Answered(answer) => return out.order(*answer),
            Question::New => {}
        }
        let process = |rank| Process { job, node, rank, uid };
        let done = match op {
            Some(Op::Publish(name)) => {
                let ok = self.publish_name(realm, process(0), name);
                self.answer_name(call, ok.then(Bytes::new), Repeat::Answered(0), out);
                Ok(())
            }
            Some(Op::Lookup(name)) => {
                let port = self.names.of(realm).lookup(&name);
                self.answer_name(call, port, Repeat::Performed, out);
                Ok(())
            }
            Some(Op::Unpublish(name)) => {
                let ok = self.unpublish_name(realm, uid, name);
                self.answer_name(call, ok.then(Bytes::new), Repeat::Answered(0), out);
                Ok(())
            }
            Some(Op::State(namespace)) => {
                let state = family::state(&self.jobs, &namespace, self.owner_uid(job));
                self.answer_name(call, state.map(Into::into), Repeat::Performed, out);
                Ok(())
            }
            Some(Op::Meet(meet)) => self.on_meet(now, realm, call, meet, out),
            Some(Op::FetchData(fetch)) => self.on_fetch_data(now, call, fetch, out),
            Some(Op::PublishData(data)) => self.on_publish_data(realm, call, process(data.rank), &data, out),
            Some(Op::LookupData(lookup)) => self.on_lookup_data(now, realm, call, process(lookup.rank), lookup, out),
            Some(Op::UnpublishData(data)) => self.on_unpublish_data(realm, call, process(data.rank), &data, out),
            Some(Op::Describe(namespace)) => self.on_describe(call, &namespace, out),
            Some(Op::Event(event)) => self.on_event(call, event, out),
            Some(Op::Control(_) | Op::Namespaces(_)) if uid.is_some() => {
                let why = "the processes of jobs are controlled and listed only by those of the same user";
                Err(Failure::new(NO_PERMISSIONS, why))
            }
            Some(Op::Control(control)) => self.on_control(now, call, &control, out),
            Some(Op::Namespaces(_)) => {
                self.on_namespaces(call, out);
                Ok(())
            }
            None => Err(Failure::new(NOT_SUPPORTED, "the head of this DVM does not know this request")),
        };
        if let Err(failure) = done {
            self.fail_call(call, failure, out);
        }
    }

    // --- names ---

    fn publish_name(&mut self, realm: u32, publisher: Process, kv: wire::Kv) -> bool {
        let (Process { job, uid, .. }, wire::Kv { key: name, value: port }) = (publisher, kv);
        let ok = self.names.of(realm).publish(name.clone(), port.clone(), job, uid);
        if ok && self.outlives_head(job) {
            self.keep(What::Name(wire::PublishedName { name, port, job, uid }));
        }
        ok
    }

    fn unpublish_name(&mut self, realm: u32, uid: Option<u32>, name: Bytes) -> bool {
        let publisher = self.names.of(realm).unpublish(&name, uid);
        if let Some(job) = publisher {
            self.keep(What::NameGone(wire::KeptNameGone { job, name }));
        }
        publisher.is_some()
    }

    fn answer_name(&mut self, call: CallId, port: Option<Bytes>, repeat: Repeat, out: &mut Outputs<Order>) {
        let result = wire::NameResult { ok: port.is_some(), port: port.unwrap_or_default(), ..Default::default() };
        self.answer_call(call, result, repeat, out);
    }

    // --- collectives ---

    fn on_meet(
        &mut self,
        now: Now,
        realm: u32,
        call: CallId,
        meet: wire::Meet,
        out: &mut Outputs<Order>,
    ) -> Result<(), Failure> {
        let wire::Meet { key, members, arrived, data, timeout_ms } = meet;
        if key.is_empty() || key.len() > KEY_BYTES_MAX || data.len() > DATA_BYTES_MAX {
            let why = format!(
                "the key of a collective has 1 to {KEY_BYTES_MAX} bytes and its data {DATA_BYTES_MAX} at most, not {} and {}",
                key.len(),
                data.len()
            );
            return Err(Failure::new(BAD_PARAM, why));
        }
        self.check_held(realm)?;
        let (members, order) = self.members(call.job, &members)?;
        let ranks = self.ranks_of_step(call, &arrived)?;
        if !members.get(&call.job).is_some_and(|members| members.contains_all(&ranks)) {
            let why = format!("ranks of job {} enter a collective of which they are not members", call.job);
            return Err(Failure::new(BAD_PARAM, why));
        }
        // No call waits if all members arrive with this one.
        let alone = members.values().map(RankSet::len).sum::<u64>() == ranks.len();
        for job in members.keys().filter(|_| !alone) {
            self.watch(*job, out);
        }
        let namespace = self.jobs.get(call.job).map(|job| job.namespace.clone()).unwrap_or_default();
        let timeout = timeout_ms.map(limit);
        let arrival = Arrival { realm, call, namespace, key, members, order, ranks, data, timeout };
        let (watched, mut outcomes) = (&self.watched, Vec::new());
        self.meetings.arrive(now.mono, arrival, |job| watched.ended(job), &mut outcomes)?;
        self.end_meetings(outcomes, out);
        Ok(())
    }

    fn end_meetings(&mut self, outcomes: Vec<Outcome>, out: &mut Outputs<Order>) {
        for Outcome { calls, met } in outcomes {
            let among = calls.len().max(1);
            for call in calls {
                match &met {
                    Ok(data) => {
                        let repeat = Repeat::Answered(data.len() / among + 1);
                        self.succeed(call, wire::NameResult { data: data.clone(), ..Default::default() }, repeat, out);
                    }
                    Err(failure) => self.fail_call(call, failure.clone(), out),
                }
            }
        }
    }

    // --- what processes have committed ---

    fn on_fetch_data(
        &mut self,
        now: Now,
        call: CallId,
        fetch: wire::FetchData,
        out: &mut Outputs<Order>,
    ) -> Result<(), Failure> {
        let wire::FetchData { namespace, rank, what, immediate, timeout_ms } = fetch;
        if what.len() > WHAT_BYTES_MAX {
            let why = format!("a selector of data has at most {WHAT_BYTES_MAX} bytes, not {}", what.len());
            return Err(Failure::new(BAD_PARAM, why));
        }
        let job = self.other_job(call.job, &namespace)?;
        let Some(node) = job.map.node_of(rank) else {
            return Err(Failure::new(NOT_FOUND, format!("job {} has no rank {rank}", job.id)));
        };
        layouts::check_not_lost(job, node)?;
        let wanted = Wanted { job: job.id, rank, what, immediate };
        let last_number = &mut self.last_number;
        let number = || {
            *last_number += 1;
            *last_number
        };
        let fetch = self.fetches.ask(now.mono, call, wanted, node, timeout_ms.map(limit), number)?;
        fetch.into_iter().for_each(|fetch| out.order(down::Body::Fetch(fetch)));
        Ok(())
    }

    /// Handles a step's answer.
    pub(super) fn on_fetched(&mut self, fetched: &wire::Fetched, out: &mut Outputs<Order>) {
        let mut why = fetched.why.clone();
        sentences::cut(&mut why, WHY_BYTES);
        for call in self.fetches.answered(fetched) {
            let result = wire::NameResult {
                ok: fetched.status == SUCCESS,
                status: fetched.status,
                why: why.clone(),
                data: fetched.data.clone(),
                ..Default::default()
            };
            self.answer_call(call, result, Repeat::Performed, out);
        }
    }

    // --- published data ---

    fn on_publish_data(
        &mut self,
        realm: u32,
        call: CallId,
        process: Process,
        data: &wire::PublishData,
        out: &mut Outputs<Order>,
    ) -> Result<(), Failure> {
        self.check_rank(call, data.rank)?;
        if data.persistence == i32::from(wire::Persistence::Process) {
            self.watch(call.job, out);
        }
        let mut changes = Changes::default();
        self.published.publish(realm, process, data, &mut changes)?;
        if self.outlives_head(call.job) {
            let (range, persistence, uid) = (data.range, data.persistence, process.uid);
            for entry in &data.entries {
                let (job, rank, entry) = (call.job, data.rank, Some(entry.clone()));
                self.keep(What::Data(wire::KeptData { job, rank, entry, range, persistence, uid }));
            }
        }
        self.succeed(call, wire::NameResult::default(), Repeat::Answered(0), out);
        self.apply(changes, out);
        Ok(())
    }

    fn on_lookup_data(
        &mut self,
        now: Now,
        realm: u32,
        call: CallId,
        process: Process,
        asked: wire::LookupData,
        out: &mut Outputs<Order>,
    ) -> Result<(), Failure> {
        self.check_rank(call, asked.rank)?;
        self.check_held(realm)?;
        let timeout = asked.timeout_ms.map(limit);
        let lookup = Lookup::new(process, asked)?;
        let wanted = lookup.keys_len();
        let mut changes = Changes::default();
        let found = self.published.lookup(now.mono, realm, call, lookup, timeout, &mut changes)?;
        match found {
            Some(found) if found.is_empty() => {
                let why = "no process has published this".to_owned();
                self.fail_call(call, Failure { status: NOT_FOUND, why }, out);
            }
            Some(found) => self.answer_found(call, found, wanted, out),
            None => {}
        }
        self.apply(changes, out);
        Ok(())
    }

    fn on_unpublish_data(
        &mut self,
        realm: u32,
        call: CallId,
        process: Process,
        data: &wire::UnpublishData,
        out: &mut Outputs<Order>,
    ) -> Result<(), Failure> {
        self.check_rank(call, data.rank)?;
        let mut changes = Changes::default();
        self.published.unpublish(realm, process, data, &mut changes)?;
        self.succeed(call, wire::NameResult::default(), Repeat::Answered(0), out);
        self.apply(changes, out);
        Ok(())
    }

    /// Answers the lookups that have found what they waited for, and records what is no longer published.
    fn apply(&mut self, changes: Changes, out: &mut Outputs<Order>) {
        for gone in changes.gone {
            if self.outlives_head(gone.job) {
                self.keep(What::DataGone(gone));
            }
        }
        for (call, found, wanted) in changes.found {
            self.answer_found(call, found, wanted, out);
        }
    }

    fn answer_found(&mut self, call: CallId, found: Vec<Found>, wanted: usize, out: &mut Outputs<Order>) {
        let bytes = found.iter().map(|found| found.key.len() + found.value.len()).sum();
        let status = if found.len() < wanted { PARTIAL_SUCCESS } else { SUCCESS };
        let namespace = |job| self.jobs.get(job).map(|job| job.namespace.clone()).unwrap_or_default();
        let told =
            |Found { key, value, publisher: (job, rank) }| wire::Found { key, value, namespace: namespace(job), rank };
        let found = found.into_iter().map(told).collect();
        let result = wire::NameResult { ok: status == SUCCESS, status, found, ..Default::default() };
        self.answer_call(call, result, Repeat::Answered(bytes), out);
    }

    // --- layouts and events ---

    fn on_describe(&mut self, call: CallId, namespace: &str, out: &mut Outputs<Order>) -> Result<(), Failure> {
        let description = Some(self.other_job(call.job, namespace)?.description());
        let result = wire::NameResult { description, ..Default::default() };
        self.succeed(call, result, Repeat::Performed, out);
        Ok(())
    }

    fn on_event(&mut self, call: CallId, mut event: wire::Event, out: &mut Outputs<Order>) -> Result<(), Failure> {
        self.check_rank(call, event.rank)?;
        if event.data.len() > EVENT_BYTES_MAX {
            let why = format!("an event has at most {EVENT_BYTES_MAX} bytes of data, not {}", event.data.len());
            return Err(Failure::new(BAD_PARAM, why));
        }
        let jobs = match event.to.is_empty() {
            true => self.jobs.of(self.owner_uid(call.job)).filter(|job| job.has_ranks()).map(|job| job.id).collect(),
            false => self.members(call.job, &event.to)?.1,
        };
        event.namespace = self.jobs.get(call.job).map(|job| job.namespace.clone()).unwrap_or_default();
        for job in jobs {
            self.last_number += 1;
            out.order(down::Body::Notify(self.events.add(job, self.last_number, event.clone())));
        }
        self.succeed(call, wire::NameResult::default(), Repeat::Answered(0), out);
        Ok(())
    }

    fn on_control(
        &mut self,
        now: Now,
        call: CallId,
        control: &wire::Control,
        out: &mut Outputs<Order>,
    ) -> Result<(), Failure> {
        let job = self.other_job(call.job, &control.namespace)?;
        let (id, all) = (job.id, RankSet::run(0, job.map.size() - 1));
        match control.what {
            Some(control::What::Signal(number)) => {
                let ranks = RankSet::of(&control.ranks)
                    .filter(|ranks| control.ranks.len() <= SIGNAL_RUNS_MAX && all.contains_all(ranks));
                let Some(ranks) = ranks else {
                    return Err(Failure::new(
                        BAD_PARAM,
                        format!("the ranks to signal are not ranks of job {id}, or too many"),
                    ));
                };
                let one_by_one = (!ranks.is_empty() && ranks != all).then_some(ranks);
                let named = one_by_one.iter().flat_map(RankSet::runs).flat_map(|(first, last)| first..=last).map(Some);
                let named: Vec<Option<u32>> = if one_by_one.is_some() { named.collect() } else { vec![None] };
                for rank in named {
                    let refused = |refused: Refused| Failure::new(NOT_SUPPORTED, refused.text);
                    self.signal(id, rank, number, out).map_err(refused)?;
                }
            }
            Some(control::What::End(_)) => {
                self.cancel(now, id, None, &format!("a process of job {} has ended it", call.job), out);
            }
            None => return Err(Failure::new(NOT_SUPPORTED, "the head of this DVM does not know this request")),
        }
        self.succeed(call, wire::NameResult::default(), Repeat::Answered(0), out);
        Ok(())
    }

    fn on_namespaces(&mut self, call: CallId, out: &mut Outputs<Order>) {
        let running = self.jobs.of(self.owner_uid(call.job)).filter(|job| job.has_ranks());
        let names: Vec<&str> = running.map(|job| &job.namespace[..]).collect();
        let result = wire::NameResult { data: names.join(",").into(), ..Default::default() };
        self.succeed(call, result, Repeat::Performed, out);
    }

    // --- answers ---

    fn succeed(&mut self, call: CallId, result: wire::NameResult, repeat: Repeat, out: &mut Outputs<Order>) {
        self.answer_call(call, wire::NameResult { ok: true, ..result }, repeat, out);
    }

    fn fail_call(&mut self, call: CallId, failure: Failure, out: &mut Outputs<Order>) {
        let Failure { status, why } = failure;
        self.answer_call(call, wire::NameResult { status, why, ..Default::default() }, Repeat::Answered(0), out);
    }

    /// Answers a call, unless its job's ranks have ended.
    fn answer_call(&mut self, call: CallId, result: wire::NameResult, repeat: Repeat, out: &mut Outputs<Order>) {
        if !self.jobs.get(call.job).is_some_and(super::job::Job::has_ranks) {
            return;
        }
        let result = wire::NameResult { job: call.job, node: call.node, call: call.number, ..result };
        let answer = down::Body::NameResult(result.clone());
        match repeat {
            Repeat::Answered(bytes) => {
                if self.outlives_head(call.job) {
                    self.keep(What::Answer(result));
                }
                self.questions.answer(call, answer.clone(), bytes);
            }
            Repeat::Performed => self.questions.forget_call(call),
        }
        out.order(answer);
    }

    /// Refuses a request with a large answer while the user's steps have not confirmed many others.
    fn check_held(&self, realm: u32) -> Result<(), Failure> {
        match self.questions.held_bytes(realm) > HELD_BYTES_MAX {
            true => {
                let why = format!("the unconfirmed answers of a user's steps have more than {HELD_BYTES_MAX} bytes");
                Err(Failure::new(OUT_OF_RESOURCE, why))
            }
            false => Ok(()),
        }
    }
}

fn limit(timeout_ms: u32) -> Duration {
    Duration::from_millis(timeout_ms.into()).min(TIMEOUT_MAX)
}
