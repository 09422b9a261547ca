//! What only other nodes know: the descriptions of other jobs and the values of ranks that run elsewhere, both through the head.
//!
//! An answer that needs descriptions waits until all of them have come. Descriptions are kept for the step's lifetime, up to a limit:
//! they do not change.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::pmix::{Codec, Founded, GroupForm, Kept, Proc, Reply, Status, keys, rank};
use rsd_proto::v1::{self as wire, name_call};

use super::committed::Packed;
use super::description::Description;
use super::pending::{Asked, Here, Missing, Then};
use super::{Awaited, Effect, Local, Step, To};
use crate::Now;
use crate::status;
use crate::taskmap::TaskMap;

/// The most descriptions that are kept.
const DESCRIPTIONS_MAX: usize = 256;

/// Descriptions, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    known: BTreeMap<String, Description>,
    /// The jobs whose description was requested.
    requested: Vec<String>,
    waiting: Vec<Waiting>,
    /// The head's requests for values of ranks here that have not committed them.
    fetches: Vec<(Local, wire::Fetch)>,
}

#[derive(Debug)]
struct Waiting {
    to: To,
    jobs: Vec<String>,
    then: Then,
}

impl Step {
    /// Handles the answer to [`Step::ask_head_for`].
    pub(in super::super) fn on_pmix_head_answer(
        &mut self,
        now: Now,
        ticket: u64,
        result: wire::NameResult,
        out: &mut Vec<Effect>,
    ) {
        let Some(Awaited::Head(asked)) = self.pmix.awaited.remove(&ticket) else { return };
        let _ = now;
        match asked {
            Asked::Meet(number) => self.on_met(number, result, out),
            Asked::Describe(namespace) => self.on_pmix_described(namespace, result, out),
            Asked::Fetch(missing) => self.on_pmix_fetched(missing, result, out),
            Asked::Publish(to) => self.send_pmix(to, &Reply::Done(Status(result.status)), out),
            Asked::Lookup(to) => self.on_looked_up(to, result, out),
            Asked::Event => {}
            Asked::Control(to) => {
                let reply = match result.status {
                    status::SUCCESS => Reply::Infos(Status::SUCCESS, Vec::new()),
                    other => Reply::Done(Status(other)),
                };
                self.send_pmix(to, &reply, out);
            }
            Asked::Namespaces(to, queries) => {
                let namespaces = (result.status == status::SUCCESS).then_some(result.data);
                self.query_jobs(to, queries, namespaces, out);
            }
        }
    }

    // --- descriptions of other jobs ---

    /// Answers once the descriptions of these jobs are known.
    pub(super) fn with_jobs(&mut self, to: To, jobs: Vec<String>, then: Then, out: &mut Vec<Effect>) {
        for job in &jobs {
            let elsewhere = &mut self.pmix.elsewhere;
            if elsewhere.known.contains_key(job) || elsewhere.requested.contains(job) {
                continue;
            }
            elsewhere.requested.push(job.clone());
            let ticket = self.pmix.ticket(Awaited::Head(Asked::Describe(job.clone())));
            self.ask_head_for(ticket, name_call::Op::Describe(job.clone()), out);
        }
        self.pmix.elsewhere.waiting.push(Waiting { to, jobs, then });
        self.answer_with_jobs(out);
    }

    fn on_pmix_described(&mut self, namespace: String, result: wire::NameResult, out: &mut Vec<Effect>) {
        self.pmix.elsewhere.requested.retain(|requested| *requested != namespace);
        match result.description.and_then(|told| describe(&namespace, told)) {
            Some(description) => {
                let known = &mut self.pmix.elsewhere.known;
                if known.len() >= DESCRIPTIONS_MAX {
                    known.pop_first();
                }
                known.insert(namespace, description);
                self.answer_with_jobs(out);
            }
            None => {
                let status = if result.status == status::SUCCESS { Status::NOT_FOUND } else { Status(result.status) };
                for waiting in &mut self.pmix.elsewhere.waiting {
                    if matches!(waiting.then, Then::Queried { .. }) {
                        waiting.jobs.retain(|job| *job != namespace); // answered without it
                    }
                }
                let needs = |waiting: &Waiting| waiting.jobs.contains(&namespace);
                let (failed, others): (Vec<_>, _) =
                    std::mem::take(&mut self.pmix.elsewhere.waiting).into_iter().partition(needs);
                self.pmix.elsewhere.waiting = others;
                for waiting in failed {
                    self.send_pmix(waiting.to, &Reply::Done(status), out);
                }
                self.answer_with_jobs(out);
            }
        }
    }

    fn answer_with_jobs(&mut self, out: &mut Vec<Effect>) {
        let known = &self.pmix.elsewhere.known;
        let is_complete = |waiting: &Waiting| waiting.jobs.iter().all(|job| known.contains_key(job));
        let (complete, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pmix.elsewhere.waiting).into_iter().partition(is_complete);
        self.pmix.elsewhere.waiting = others;
        for Waiting { to, jobs, then } in complete {
            let Some(codec) = self.codec_of(to.client) else { continue };
            let form = self.pmix.clients.get(&to.client).map_or(GroupForm::Members, |peer| peer.groups);
            let reply = self.reply_with_jobs(codec, form, &jobs, then);
            self.send_pmix(to, &reply, out);
        }
    }

    fn reply_with_jobs(&self, codec: Codec, form: GroupForm, jobs: &[String], then: Then) -> Reply {
        let known: Vec<&Description> = jobs.iter().filter_map(|job| self.pmix.elsewhere.known.get(job)).collect();
        let blobs = || known.iter().map(|job| (job.namespace.clone(), job.blob(codec))).collect::<Vec<_>>();
        match then {
            Then::Connected => Reply::Connected(blobs()),
            Then::Founded { members, number } => {
                let members = members.iter().flat_map(|member| match member.rank {
                    rank::WILDCARD => self.all_of(&member.namespace),
                    _ => vec![member.clone()],
                });
                Reply::Group(Founded { form, members: members.collect(), number, jobs: blobs() })
            }
            Then::Spawned => match &known[..] {
                [job] => Reply::Spawned(job.namespace.clone(), job.blob(codec)),
                _ => Reply::Done(Status::ERROR),
            },
            Then::Queried { queries, namespaces } => self.answer_queries(&queries, namespaces.as_ref()),
            Then::Kept { proc, values } => {
                let mut kept: Vec<Kept> = known
                    .iter()
                    .map(|job| Kept { proc: Proc::new(&job.namespace, rank::WILDCARD), values: job.arrays(codec) })
                    .collect();
                kept.extend(values.map(|values| Kept { proc, values: values.encode(codec) }));
                Reply::Kept(kept)
            }
        }
    }

    /// Returns the description of another job, if it is known.
    pub(super) fn described(&self, namespace: &str) -> Option<&Description> {
        self.pmix.elsewhere.known.get(namespace)
    }

    /// Returns all processes of a known job.
    fn all_of(&self, namespace: &str) -> Vec<Proc> {
        let size = match namespace == self.launch.namespace {
            true => self.map.size(),
            false => self.pmix.elsewhere.known.get(namespace).map_or(0, |job| job.map.size()),
        };
        (0..size).map(|rank| Proc::new(namespace, rank)).collect()
    }

    // --- values of ranks elsewhere ---

    pub(super) fn get_elsewhere(&mut self, missing: Missing, out: &mut Vec<Effect>) {
        if missing.of_job {
            let jobs = vec![missing.proc.namespace.clone()];
            return self.with_jobs(missing.to, jobs, Then::Kept { proc: missing.proc, values: None }, out);
        }
        let fetch = wire::FetchData {
            namespace: match missing.proc.namespace.is_empty() {
                true => self.launch.namespace.clone(),
                false => missing.proc.namespace.clone(),
            },
            rank: missing.proc.rank,
            what: missing.key.clone().unwrap_or_default().into(),
            immediate: missing.immediate,
            timeout_ms: missing.timeout_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
        };
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Fetch(missing)));
        self.ask_head_for(ticket, name_call::Op::FetchData(fetch), out);
    }

    fn on_pmix_fetched(&mut self, missing: Missing, result: wire::NameResult, out: &mut Vec<Effect>) {
        let values = (result.status == status::SUCCESS).then(|| Packed::read(&result.data)).flatten();
        let Some(values) = values else {
            let status = if result.status == status::SUCCESS { Status::ERROR } else { Status(result.status) };
            return self.send_pmix(missing.to, &Reply::Done(status), out);
        };
        if missing.proc.namespace != self.launch.namespace && !missing.proc.namespace.is_empty() {
            let jobs = vec![missing.proc.namespace.clone()];
            return self.with_jobs(missing.to, jobs, Then::Kept { proc: missing.proc, values: Some(values) }, out);
        }
        let Some(codec) = self.codec_of(missing.to.client) else { return };
        self.send_kept(missing.to, missing.proc, values.encode(codec), out);
    }

    /// Handles the head's request for values of a rank here. `what` is the key that is needed; empty: any.
    pub(in super::super) fn on_pmix_fetch(&mut self, fetch: wire::Fetch, out: &mut Vec<Effect>) {
        let Some(local) = self.ranks.iter().position(|rank| rank.rank == fetch.rank) else { return };
        let fetches = &mut self.pmix.elsewhere.fetches;
        if fetches.iter().any(|(_, waiting)| waiting.number == fetch.number) {
            return; // a repeat
        }
        fetches.push((local, fetch));
        self.answer_fetches_of(local, out);
    }

    /// Answers the head's requests that a rank's values answer, and those that nothing will answer.
    pub(super) fn answer_fetches_of(&mut self, of: Local, out: &mut Vec<Effect>) {
        let (waiting, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pmix.elsewhere.fetches).into_iter().partition(|(local, _)| *local == of);
        self.pmix.elsewhere.fetches = others;
        for (local, fetch) in waiting {
            let key = std::str::from_utf8(&fetch.what).ok().filter(|key| !key.is_empty());
            let committed = self.pmix.committed.get(&of);
            let found = committed.filter(|it| key.is_none_or(|key| it.remote.has(key)));
            // A job that is not on this node gets what is meant for other nodes; so does one that is.
            if let Some(committed) = found {
                self.answer_fetch(&fetch, status::SUCCESS, "", committed.remote.pack(), out);
                continue;
            }
            let absent = match self.values_here(of, key, Codec::V41) {
                Here::Absent => true,
                // It has put the key only for its own node.
                Here::Values(_) => key.is_some(),
                Here::NotYet { .. } => fetch.immediate,
            };
            if absent || key.is_some_and(keys::is_reserved) {
                self.answer_fetch(&fetch, status::NOT_FOUND, "the process has no such value", Bytes::new(), out);
            } else {
                self.pmix.elsewhere.fetches.push((local, fetch));
            }
        }
    }
}

fn describe(namespace: &str, told: wire::JobDescription) -> Option<Description> {
    let map = TaskMap::try_from(told.map?).ok()?;
    Some(Description {
        namespace: namespace.to_owned(),
        job: String::new(),
        map,
        node_names: told.node_names,
        app_sizes: told.app_sizes,
        universe_size: told.universe_size,
        inside: None,
    })
}
