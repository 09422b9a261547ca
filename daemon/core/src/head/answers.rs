//! Handles the requests of clients.

use bytes::Bytes;
use rsd_proto::v1::{self as wire, down, kept, kv_scope};

use super::life::Life;
use super::values::Of;
use super::{Due, Head, offers};
use crate::between::{Order, Outputs};
use crate::calls::{Answer, Call, Caller, JobChange, KvCall, KvOp, Refused, exit};
use crate::contract::ReqId;
use crate::{JobId, Now};

/// How long a request for the list of nodes waits for their loads.
const LOAD_DEADLINE: std::time::Duration = std::time::Duration::from_secs(1);
/// The time that the tree has for it.
const LOADS_WITHIN_MS: u64 = 900;

impl Head {
    pub(crate) fn on_call(&mut self, now: Now, req: ReqId, caller: Caller, call: Call, out: &mut Outputs<Order>) {
        match call {
            Call::Shutdown { force } => self.on_shutdown(now, req, force, out),
            Call::Group(call) => {
                let answer = self.on_group_call(now, caller, call, out).unwrap_or_else(Answer::Refused);
                out.answer(req, answer);
            }
            Call::Token(call) => {
                let answer = self.on_token_call(now, caller, call, out);
                out.answer(req, answer);
            }
            Call::Standby(call) => {
                let answer = self.on_standby_call(caller, call, out).unwrap_or_else(Answer::Refused);
                out.answer(req, answer);
            }
            Call::Kv(call) => self.on_kv_call(now, req, caller, call, out),
            Call::Submit { spec, random, user } => {
                if let Err(refused) = self.submit(now, req, (caller, user), *spec, random, out) {
                    out.refuse(req, refused);
                }
            }
            Call::ChangeNode(request) => {
                let changed = self.change_node(caller, *request, out);
                out.answer(req, changed.map_or_else(Answer::Refused, |node| Answer::Nodes(vec![node])));
            }
            Call::Plan(request) => {
                let answer = self.on_plan(caller, &request).unwrap_or_else(Answer::Refused);
                out.answer(req, answer);
            }
            Call::Stdin { job, at, data, eof } => self.on_stdin_chunk(req, caller, job, (at, data, eof), out),
            Call::ListJobs(wanted) => match self.list_jobs(caller, &wanted) {
                Ok(jobs) => out.answer(req, Answer::Jobs(jobs)),
                Err(refused) => out.refuse(req, refused),
            },
            Call::Events { since } => {
                let events = self.feed.after(since, |audience| audience.has(caller, self.serves_all));
                out.answer(req, events.map_or_else(Answer::Refused, |events| Answer::Events(Box::new(events))));
            }
            Call::ListNames => {
                out.answer(req, Answer::Names(self.names.list(|realm| !self.serves_all || caller.may_use(realm))))
            }
            Call::ListWaits(job) => {
                if let Err(refused) = self.list_waits(now, req, caller, job, out) {
                    out.refuse(req, refused);
                }
            }
            Call::ListNodes { load } => self.list_nodes(now, req, load, out),
            Call::GetJob(job) => self.with_job(req, caller, job, out, |_, _, _| Ok(())),
            Call::GetElement { job, index } => match self.find(caller, job).ok_or_else(|| no_such_job(job)) {
                Ok(id) => {
                    let found = self.element(id, index);
                    out.answer(req, found.map_or_else(Answer::Refused, |info| Answer::Job(Box::new(info))));
                }
                Err(refused) => out.refuse(req, refused),
            },
            Call::Why { job, index } => match self.on_why(now, caller, job, index) {
                Ok(reply) => out.answer(req, Answer::Why(Box::new(reply))),
                Err(refused) => out.refuse(req, refused),
            },
            Call::ChangeJob { job, elements, change } => {
                self.with_job(req, caller, job, out, |head, job, _| match (change, elements.is_empty()) {
                    (JobChange::Hold(true), true) => head.hold(job),
                    (JobChange::Hold(false), true) => head.release(job),
                    (JobChange::Hold(hold), false) => head.hold_elements(job, &elements, hold),
                    (JobChange::Priority(priority), true) => head.set_priority(caller, job, priority),
                    (JobChange::Priority(_), false) => {
                        Err(Refused::new(exit::USAGE, "the elements of an array have one priority: name the array"))
                    }
                })
            }
            Call::FindJob(name) => match self.find_named(caller, &name) {
                Ok(job) => self.with_job(req, caller, job, out, |_, _, _| Ok(())),
                Err(refused) => out.refuse(req, refused),
            },
            Call::Signal { job, rank, signal } => {
                self.with_job(req, caller, job, out, |head, job, out| head.signal(job, rank, signal, out));
            }
            Call::CancelElements { job, grace_ms, elements } => {
                self.with_job(req, caller, job, out, |head, job, out| {
                    head.cancel_elements(now, job, &elements, grace_ms, out)
                });
            }
            Call::Cancel { job, grace_ms } => self.with_job(req, caller, job, out, |head, job, out| {
                head.cancel(now, job, grace_ms, "cancelled", out);
                Ok(())
            }),
            Call::Unhold(job) => self.with_job(req, caller, job, out, |head, job, _| head.release(job)),
            Call::ClientGone(job) => self.with_job(req, caller, job, out, |head, job, out| {
                head.cancel(now, job, None, "the client that ran it has disconnected", out);
                Ok(())
            }),
            Call::OwnerBack(job) => self.with_job(req, caller, job, out, |head, job, _| {
                head.timers.cancel(&Due::Owner(job));
                Ok(())
            }),
            Call::OwnerLost(job) => self.with_job(req, caller, job, out, |head, job, out| {
                match head.jobs.get(job).and_then(|job| job.awaits_owner) {
                    Some(patience) if !patience.is_zero() => head.timers.set(Due::Owner(job), now.mono + patience),
                    Some(_) | None => head.cancel(now, job, None, crate::sentences::OWNER_IS_GONE, out),
                }
                Ok(())
            }),
            Call::Status | Call::Metrics | Call::Pmi { .. } => {} // answered by the daemon and its node
        }
    }

    fn on_why(&self, now: Now, caller: Caller, job: JobId, index: Option<u32>) -> Result<wire::WhyReply, Refused> {
        let id = self.find(caller, job).ok_or_else(|| no_such_job(job))?;
        let Some(index) = index else { return Ok(self.why(now, id, None)) };
        let element = self.element(id, index)?;
        match self.jobs.current(element.job) {
            Some(started) => Ok(self.why(now, started, None)),
            None => Ok(self.why(now, id, Some(element))),
        }
    }

    fn on_plan(&self, caller: Caller, request: &wire::PlanRequest) -> Result<Answer, Refused> {
        let usage = |text: &str| Err(Refused::new(exit::USAGE, text));
        if !request.topology.is_empty() {
            return usage("a daemon plans for its own nodes; rsctl plan --topology needs no daemon");
        }
        let Some(spec) = &request.spec else { return usage("the request has no job to plan") };
        if spec.apps.is_empty() {
            return usage("the request has no program: rsctl plan -n 4 ./a.out");
        }
        let mut reply = offers::plan(&self.nodes, &self.ledger, spec, request.idle);
        if let Some(wire::plan_reply::Outcome::Plan(plan)) = &mut reply.outcome {
            plan.notices.extend(self.plan_notices(caller, spec));
        }
        Ok(Answer::Plan(Box::new(reply)))
    }

    /// Performs an operation on a job and answers with the job's new state.
    fn with_job(
        &mut self,
        req: ReqId,
        caller: Caller,
        job: JobId,
        out: &mut Outputs<Order>,
        act: impl FnOnce(&mut Head, JobId, &mut Outputs<Order>) -> Result<(), Refused>,
    ) {
        let Some(found) = self.find(caller, job) else { return out.refuse(req, no_such_job(job)) };
        let answer = match act(self, found, out) {
            Ok(()) => match self.jobs.get(found) {
                Some(job) => Answer::Job(Box::new(job.info_in_full())),
                None => Answer::Refused(no_such_job(job)),
            },
            Err(refused) => Answer::Refused(refused),
        };
        out.answer(req, answer);
    }

    pub(super) fn signal(
        &mut self,
        id: JobId,
        rank: Option<u32>,
        signal: i32,
        out: &mut Outputs<Order>,
    ) -> Result<(), Refused> {
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        let number = job.number();
        let refused = |exit_code, text| Err(Refused { exit_code, text });
        if job.array.is_some() && !job.is_over() {
            let elements: Vec<JobId> =
                self.jobs.alive().filter(|other| other.is_element_of(id)).map(|other| other.id).collect();
            return match elements.is_empty() {
                true => refused(exit::NO_SUCH_JOB, format!("no element of array {id} runs")),
                false => elements.into_iter().try_for_each(|element| self.signal(element, rank, signal, out)),
            };
        }
        match job.life() {
            Life::Queued(_) => {
                return refused(exit::NO_SUCH_JOB, format!("job {number} is queued: it has no ranks yet"));
            }
            Life::Outlived { .. } => {
                let text =
                    format!("the ranks of job {number} have ended; jobs that it spawned are still running: rsctl ps");
                return refused(exit::NO_SUCH_JOB, text);
            }
            Life::Ended(_) => return refused(exit::NO_SUCH_JOB, format!("job {number} has ended")),
            Life::Running { .. } | Life::Ending { .. } => {}
        }
        if !job.members().is_empty() {
            let text = format!(
                "job {number} is an epoch of a group: rsd did not start its processes and never signals them; rsctl cancel {number} \
                 ends the epoch"
            );
            return refused(exit::USAGE, text);
        }
        if let Some(rank) = rank.filter(|rank| *rank >= job.map.size()) {
            let last = job.map.size() - 1;
            return refused(exit::NO_SUCH_JOB, format!("job {number} has no rank {rank}: its ranks are 0 to {last}"));
        }
        if !(1..=64).contains(&signal) {
            return refused(exit::USAGE, format!("invalid signal {signal}: use 1 to 64"));
        }
        out.order(down::Body::Signal(wire::Signal { job: id, rank, signal }));
        Ok(())
    }

    /// Fills in the fields that only the head knows.
    pub(crate) fn complete_status(&self, status: &mut wire::StatusReply) {
        status.nodes = self.nodes.len() as u32;
        status.slots = self.nodes.slots();
        status.slots_in_use = self.ledger.total();
        status.jobs = self.jobs.alive_len() as u32;
    }

    fn list_nodes(&mut self, now: Now, req: ReqId, load: bool, out: &mut Outputs<Order>) {
        self.nodes.forget_loads();
        if !load {
            return self.answer_nodes(Some(req), out);
        }
        let probe = self.probes.begin(req);
        self.timers.set(Due::Probe(probe), now.mono + LOAD_DEADLINE);
        out.order(down::Body::LoadProbe(wire::LoadProbe { probe, within_ms: LOADS_WITHIN_MS }));
    }

    /// Handles a chunk of a job's input from a client; `eof` is set with the last chunk.
    fn on_stdin_chunk(
        &mut self,
        req: ReqId,
        caller: Caller,
        job: JobId,
        (at, data, eof): (Option<u64>, Bytes, bool),
        out: &mut Outputs<Order>,
    ) {
        let Some(id) = self.find(caller, job) else { return out.refuse(req, no_such_job(job)) };
        let Some(found) = self.jobs.get_mut(id) else { return };
        if matches!(found.life(), Life::Outlived { .. } | Life::Ended(_)) {
            return out.answer(req, Answer::Fed { delivered: 0, closed: true });
        }
        let (stdin, replaced) = match found.stdin.push(id, req, at, data, eof) {
            Ok(taken) => taken,
            Err(why) => return out.refuse(req, Refused::new(exit::USAGE, format!("job {id}: {why}"))),
        };
        if let Some(before) = replaced {
            out.refuse(before, Refused::new(exit::USAGE, format!("another client sends input to job {id}")));
        }
        stdin.into_iter().for_each(|stdin| out.order(down::Body::Stdin(stdin)));
        self.settle_stdin(id, out);
    }

    // --- values ---

    fn on_kv_call(&mut self, now: Now, req: ReqId, caller: Caller, call: KvCall, out: &mut Outputs<Order>) {
        let of = match self.job_of(caller, &call.scope) {
            Ok(of) => of,
            Err(refused) => return out.refuse(req, refused),
        };
        let change = if self.outlives_head(of.job) { change(of, &call.op) } else { None };
        let mut answers = Vec::new();
        let asked = self.values.ask(now.mono, req, of, call.op, &mut answers);
        if let (Some(change), Ok(_)) = (change, &asked) {
            self.keep(change);
        }
        answers.into_iter().for_each(|(req, answer)| out.answer(req, answer));
        match asked {
            Ok(answer) => answer.into_iter().for_each(|answer| out.answer(req, answer)),
            Err(refused) => out.refuse(req, refused),
        }
    }

    /// Handles that the client of a request has gone before it was answered.
    pub(crate) fn on_caller_gone(&mut self, req: ReqId) {
        self.values.withdraw(req);
    }

    /// Returns the job of a scope.
    fn job_of(&mut self, caller: Caller, scope: &wire::KvScope) -> Result<Of, Refused> {
        let no = |text: String| Err(Refused::new(exit::NO_SUCH_JOB, text));
        let id = match &scope.of {
            None => {
                let text = "not inside a job or group; use --job 7 or --group actors";
                return Err(Refused::new(exit::USAGE, text));
            }
            Some(kv_scope::Of::Job(0)) => self.find(caller, 0).ok_or_else(|| no_such_job(0))?,
            Some(kv_scope::Of::Job(id)) => *id,
            Some(kv_scope::Of::Group(name)) => {
                let realm = self.realm_of_group(caller, name)?;
                self.lobbies.of(realm).live(name)?
            }
        };
        let Some(job) = self.find(caller, id).and_then(|id| self.jobs.get(id)) else {
            return no(format!("no job {id} (rsctl ps lists running jobs)"));
        };
        if job.is_over() {
            return no(format!("job {id} has ended, and its values with it"));
        }
        Ok(Of { job: job.id, ranks: job.map.size(), rank: scope.rank })
    }
}

/// Returns the record of the change that a request makes if it succeeds.
fn change(of: Of, op: &KvOp) -> Option<kept::What> {
    let value = |key: &Bytes, value: &Bytes| wire::KeptValue {
        job: of.job,
        key: key.clone(),
        value: value.clone(),
        rank: of.rank,
    };
    match op {
        KvOp::Put { key, value: bytes } => Some(kept::What::Value(value(key, bytes))),
        KvOp::Delete { key } => Some(kept::What::ValueGone(value(key, &Bytes::new()))),
        KvOp::Get { .. } | KvOp::List | KvOp::Fence(_) => None,
    }
}

pub(super) fn no_such_job(job: JobId) -> Refused {
    let text = match job {
        0 => "no job has been submitted yet".to_owned(),
        id => format!("no job {id} (rsctl ps -a lists all remembered jobs)"),
    };
    Refused::new(exit::NO_SUCH_JOB, text)
}
