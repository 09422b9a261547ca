//! What clients ask of a daemon, and the answers. The shell has turned gRPC into [`Call`]s.

use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Down, JobInfo, JobSpec, NodeInfo, PmiCall, down, job_event, pmi_call, stdin_target};

use crate::head::groups::GroupCall;
use crate::head::job::{Job, Life, Why};
use crate::head::values::KvCall;
use crate::rsd::{Effect, LinkId, ReqId, Rsd, Stopping};
use crate::{JobId, NodeId, Now};

/// A client's request. Job 0 is the last one submitted.
#[expect(missing_docs, reason = "the variants say what their fields are")]
#[derive(Debug)]
pub enum Call {
    /// Answered with [`Answer::Submitted`]. `secret`: 32 fresh random bytes, for the job's ranks alone.
    Submit { spec: Box<JobSpec>, secret: Bytes },
    /// [`Answer::Plan`].
    Plan(Box<wire::PlanRequest>),
    /// [`Answer::Job`].
    GetJob(JobId),
    /// [`Answer::Jobs`], the newest last; `all`: also those that have ended.
    ListJobs { all: bool },
    /// [`Answer::Job`].
    Signal { job: JobId, rank: Option<u32>, signal: i32 },
    /// [`Answer::Job`].
    Cancel { job: JobId, grace_ms: Option<u64> },
    /// The client that a job was attached to is gone. [`Answer::Job`].
    ClientGone(JobId),
    /// [`Answer::Stopped`] when there is room for more, or nobody reads any more.
    Stdin { job: JobId, data: Bytes, eof: bool },
    /// [`Answer::Nodes`]; with `load` after every node has answered or a second has passed.
    ListNodes { load: bool },
    /// [`Answer::Names`].
    ListNames,
    /// [`Answer::Status`].
    Status,
    /// [`Answer::Stopped`] when the daemon is about to exit.
    Shutdown { force: bool },
    /// [`Answer::Pmi`].
    Pmi { job: JobId, rank: u32, namespace: String, op: PmiOp },
    /// [`Answer::Group`], or [`Answer::Groups`].
    Group(GroupCall),
    /// As its operation says.
    Kv(KvCall),
}

/// What a rank asks through the gRPC `Pmi` service.
#[derive(Debug)]
pub enum PmiOp {
    /// Make a value visible to all after the next fence.
    Put(Bytes, Bytes),
    /// The value of a key, if known on this node.
    Get(Bytes),
    /// Wait for all ranks. With a number that is not 0 it may be asked again, and counts once.
    Fence(u64),
    /// Where the rank is.
    Info,
}

/// A rank's request that waits for its step's answer.
#[derive(Debug)]
pub(crate) struct PmiRequest {
    req: ReqId,
    job: JobId,
    down: Down,
    /// The step may be starting or coming back.
    is_sent: bool,
    /// It makes no difference how often the step hears it.
    is_repeatable: bool,
}

/// The answer to a [`Call`].
#[derive(Debug)]
pub enum Answer {
    /// The new job's number.
    Submitted(JobId),
    /// Where a job would go, or why nowhere.
    Plan(Box<wire::PlanReply>),
    /// One job.
    Job(Box<JobInfo>),
    /// Several, without their bindings.
    Jobs(Vec<JobInfo>),
    /// The DVM's nodes, by id.
    Nodes(Vec<NodeInfo>),
    /// What ranks have published, in order.
    Names(Vec<wire::PublishedName>),
    /// Counters of this daemon; what only the shell knows is filled in by it.
    Status(Box<wire::StatusReply>),
    /// Done, nothing to say.
    Stopped,
    /// One group.
    Group(Box<wire::GroupInfo>),
    /// All groups, by name.
    Groups(Vec<wire::GroupInfo>),
    /// A value of a job's.
    Value(Bytes),
    /// All values of a job, by key.
    Entries(Vec<wire::KvEntry>),
    /// A rank's answer.
    Pmi(Box<wire::PmiResult>),
    /// No.
    Refused(Refused),
}

/// A refusal: what rsctl exits with, and a text for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// One of the `exit` codes of `rsd_proto`'s contract.
    pub exit_code: u8,
    /// Names what to do.
    pub text: String,
}

/// Exit codes that this crate decides on; rsctl documents them all.
pub(crate) mod exit {
    pub(crate) const TIMED_OUT: u8 = 124;
    pub(crate) const CANCELLED: u8 = 130;
    pub(crate) const USAGE: u8 = 240;
    pub(crate) const NODE_LOST: u8 = 242;
    pub(crate) const NOT_PLACED: u8 = 243;
    pub(crate) const NOT_PERMITTED: u8 = 245;
    pub(crate) const NO_SUCH_JOB: u8 = 246;
}

/// A daemon that was told to stop by force gives its jobs this long.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

impl Rsd {
    pub(crate) fn on_call(&mut self, now: Now, req: ReqId, call: Call, out: &mut Vec<Effect>) {
        match call {
            Call::Status => out.push(Effect::Answer { req, answer: Answer::Status(Box::new(self.status())) }),
            Call::Shutdown { force } => self.on_shutdown(now, req, force, out),
            Call::Pmi { job, rank, namespace, op } => self.on_pmi_request(req, job, rank, &namespace, op, out),
            Call::Group(call) => self.on_group_call(now, req, call, out),
            Call::Kv(call) => self.on_kv_call(now, req, call, out),
            Call::Submit { spec, secret } => self.submit(now, req, *spec, secret, out),
            Call::Plan(request) => self.on_plan(req, &request, out),
            Call::Stdin { job, data, eof } => match self.resolve(job) {
                Some(job) => self.on_stdin_chunk(req, job, data, eof, out),
                None => self.answer_no_such_job(req, job, out),
            },
            Call::ListJobs { all } => {
                let jobs = self.head.iter().flat_map(|head| head.jobs.values());
                let jobs = jobs.filter(|job| all || !job.is_over()).map(Job::info).collect();
                out.push(Effect::Answer { req, answer: Answer::Jobs(jobs) });
            }
            Call::ListNames => {
                let names = self.head.as_ref().map(|head| head.names.list()).unwrap_or_default();
                out.push(Effect::Answer { req, answer: Answer::Names(names) });
            }
            Call::ListNodes { load } => self.list_nodes(now, req, load, out),
            Call::GetJob(job) => self.with_job(req, job, out, |_, _, _| Ok(())),
            Call::Signal { job, rank, signal } => {
                self.with_job(req, job, out, |rsd, job, out| rsd.signal(job, rank, signal, out))
            }
            Call::Cancel { job, grace_ms } => self.with_job(req, job, out, |rsd, job, out| {
                rsd.cancel(now, job, grace_ms, "cancelled", out);
                Ok(())
            }),
            Call::ClientGone(job) => self.with_job(req, job, out, |rsd, job, out| {
                rsd.cancel(now, job, None, "the client that ran it is gone", out);
                Ok(())
            }),
        }
    }

    fn on_plan(&self, req: ReqId, request: &wire::PlanRequest, out: &mut Vec<Effect>) {
        if !request.topology.is_empty() {
            let text = "a daemon plans on its own nodes: for a topology of your own, rsctl plan --topology needs none";
            return refuse(req, exit::USAGE, text.into(), out);
        }
        let (Some(head), Some(spec)) = (&self.head, &request.spec) else {
            return refuse(req, exit::USAGE, "the request names no job to plan".into(), out);
        };
        if spec.apps.is_empty() {
            return refuse(req, exit::USAGE, "the request names no program: rsctl plan -n 4 ./a.out".into(), out);
        }
        let reply = head.plan(spec, request.idle);
        out.push(Effect::Answer { req, answer: Answer::Plan(Box::new(reply)) });
    }

    /// Does something to a job and answers with what it is then.
    fn with_job(
        &mut self,
        req: ReqId,
        job: JobId,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Rsd, JobId, &mut Vec<Effect>) -> Result<(), Refused>,
    ) {
        let Some(found) = self.resolve(job) else { return self.answer_no_such_job(req, job, out) };
        let answer = match act(self, found, out) {
            Ok(()) => match self.head.as_ref().and_then(|head| head.jobs.get(&found)) {
                Some(job) => Answer::Job(Box::new(job.info_in_full())),
                None => return self.answer_no_such_job(req, job, out),
            },
            Err(refused) => Answer::Refused(refused),
        };
        out.push(Effect::Answer { req, answer });
    }

    fn resolve(&self, job: JobId) -> Option<JobId> {
        let jobs = &self.head.as_ref()?.jobs;
        match job {
            0 => jobs.last_key_value().map(|(id, _)| *id),
            id => jobs.contains_key(&id).then_some(id),
        }
    }

    pub(crate) fn answer_no_such_job(&self, req: ReqId, job: JobId, out: &mut Vec<Effect>) {
        let text = match job {
            0 => "no job has been submitted yet".to_owned(),
            id => format!("there is no job {id} (rsctl ps -a lists those that are remembered)"),
        };
        refuse(req, exit::NO_SUCH_JOB, text, out);
    }

    fn signal(&mut self, id: JobId, rank: Option<u32>, signal: i32, out: &mut Vec<Effect>) -> Result<(), Refused> {
        let Some(job) = self.head.as_ref().and_then(|head| head.jobs.get(&id)) else { return Ok(()) };
        let refused = |exit_code, text| Err(Refused { exit_code, text });
        match job.life {
            Life::Queued { .. } => {
                return refused(exit::NO_SUCH_JOB, format!("job {id} is queued: it has no ranks yet"));
            }
            Life::Outlived { .. } => {
                let text =
                    format!("the ranks of job {id} have ended, those of jobs that it spawned have not: rsctl ps");
                return refused(exit::NO_SUCH_JOB, text);
            }
            Life::Ended(_) => return refused(exit::NO_SUCH_JOB, format!("job {id} has ended")),
            Life::Running { .. } | Life::Ending { .. } => {}
        }
        if !job.members.is_empty() {
            let text = format!(
                "job {id} is an epoch of a group: its members were not started by rsd, which sends them no signals; rsctl \
                 cancel {id} ends the epoch"
            );
            return refused(exit::USAGE, text);
        }
        if let Some(rank) = rank.filter(|rank| *rank >= job.map.size()) {
            let last = job.map.size() - 1;
            return refused(exit::NO_SUCH_JOB, format!("job {id} has no rank {rank}: its ranks are 0 to {last}"));
        }
        if !(1..=64).contains(&signal) {
            return refused(exit::USAGE, format!("{signal} is no signal: use 1 to 64"));
        }
        let down = Down { body: Some(down::Body::Signal(wire::Signal { job: id, rank, signal })) };
        self.to_job(id, &down, out);
        Ok(())
    }

    fn cancel(&mut self, now: Now, id: JobId, grace_ms: Option<u64>, reason: &str, out: &mut Vec<Effect>) {
        let Some(job) = self.head.as_mut().and_then(|head| head.jobs.get_mut(&id)) else { return };
        let grace_ms = grace_ms.unwrap_or(job.grace_ms);
        match job.life {
            Life::Queued { .. } => {
                let event = job.end(now, Some(wire::JobState::Cancelled));
                out.push(log(now, id, event));
                self.retire(id, out);
            }
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } => {
                self.kill_job(now, id, Why::Cancelled, reason.to_owned(), grace_ms, out);
            }
            Life::Ended(_) => {}
        }
    }

    fn status(&self) -> wire::StatusReply {
        let head = self.head.as_ref();
        let jobs = match head {
            Some(head) => head.alive().count(),
            None => self.steps.len(),
        };
        wire::StatusReply {
            dvm: self.dvm.clone(),
            name: self.me.name.clone(),
            node: self.me.node,
            head: head.is_some(),
            version: rsd_proto::VERSION.into(),
            pid: self.me.pid,
            listen: self.me.listen.clone(),
            parent: self.head_addr.clone(),
            connected: self.parent_up,
            nodes: head.map_or(0, |head| head.nodes.len() as u32),
            slots: head.map_or(self.me.inventory.as_ref().map_or(0, |i| i.slots), crate::head::Head::slots),
            slots_in_use: head.map_or(0, crate::head::Head::slots_in_use),
            jobs: jobs as u32,
            inventory: self.me.inventory.clone(),
            ..Default::default()
        }
    }

    fn on_shutdown(&mut self, now: Now, req: ReqId, force: bool, out: &mut Vec<Effect>) {
        let busy: Vec<JobId> = match &self.head {
            Some(head) => head.alive().map(|job| job.id).collect(),
            None => self.steps.keys().copied().collect(),
        };
        if !busy.is_empty() && !force {
            let ids = busy.iter().map(JobId::to_string).collect::<Vec<_>>().join(", ");
            let (jobs, run) = if busy.len() == 1 { ("job", "is") } else { ("jobs", "are") };
            let text = format!("{jobs} {ids} {run} not over: wait, rsctl cancel, or rsd stop --force");
            return refuse(req, exit::USAGE, text, out);
        }
        if self.head.is_some() {
            for job in busy {
                self.cancel(now, job, Some(0), "the DVM is being stopped", out);
            }
        } else {
            // The head learns it from our good-bye.
            for job in busy {
                self.release(now, job, out);
            }
        }
        self.begin_stop(now, Some(req));
    }

    pub(crate) fn begin_stop(&mut self, now: Now, req: Option<ReqId>) {
        self.stopping.get_or_insert(Stopping { req, deadline: now.mono + STOP_DEADLINE });
    }

    // --- ranks ---

    fn on_pmi_request(&mut self, req: ReqId, job: JobId, rank: u32, namespace: &str, op: PmiOp, out: &mut Vec<Effect>) {
        let Some(step) = self.steps.get(&job).copied().filter(|_| self.relays.contains_key(&job)) else {
            let text = format!("job {job} has no ranks on this node: ask the daemon that RSD_SOCKET names");
            return refuse(req, exit::NO_SUCH_JOB, text, out);
        };
        if namespace != crate::head::namespace(&self.dvm, job) {
            return refuse(
                req,
                exit::NO_SUCH_JOB,
                "the namespace is not that job's: see RSD_PMI_NAMESPACE".into(),
                out,
            );
        }
        let call = self.next_pmi_call;
        self.next_pmi_call += 1;
        let (attempt, is_repeatable) = match op {
            PmiOp::Fence(attempt) => (attempt, attempt != 0),
            PmiOp::Put(..) | PmiOp::Get(_) | PmiOp::Info => (0, true),
        };
        let op = match op {
            PmiOp::Put(key, value) => pmi_call::Op::Put(wire::Kv { key, value }),
            PmiOp::Get(key) => pmi_call::Op::Get(key),
            PmiOp::Fence(_) => pmi_call::Op::Fence(true),
            PmiOp::Info => pmi_call::Op::Info(true),
        };
        let down = Down { body: Some(down::Body::PmiCall(PmiCall { job, call, rank, op: Some(op), attempt })) };
        // A rank may be quicker than its step's way to us.
        let request = PmiRequest { req, job, down: down.clone(), is_sent: step.is_some(), is_repeatable };
        self.pmi_calls.insert(call, request);
        self.to_step(job, down, out);
    }

    /// A step is there: asks what its ranks have asked meanwhile, and what may have been lost with its link before.
    pub(crate) fn on_step_attached(&mut self, job: JobId, link: LinkId, out: &mut Vec<Effect>) {
        self.on_step_detached(job, out);
        for request in self.pmi_calls.values_mut().filter(|request| request.job == job && !request.is_sent) {
            request.is_sent = true;
            out.push(Effect::Down { link, down: request.down.clone() });
        }
    }

    /// A step's link is cut: what went to it may never be answered, and is sent again over the next, or refused.
    pub(crate) fn on_step_detached(&mut self, job: JobId, out: &mut Vec<Effect>) {
        let of_it = self.pmi_calls.values_mut().filter(|request| request.job == job && request.is_repeatable);
        of_it.for_each(|request| request.is_sent = false);
        self.refuse_pmi_calls(out, |request| request.job == job && request.is_sent);
    }

    pub(crate) fn on_pmi_result(&mut self, result: wire::PmiResult, out: &mut Vec<Effect>) {
        if let Some(PmiRequest { req, .. }) = self.pmi_calls.remove(&result.call) {
            out.push(Effect::Answer { req, answer: Answer::Pmi(Box::new(result)) });
        }
    }

    /// A step is gone: what its ranks asked gets no other answer.
    pub(crate) fn drop_pmi_calls(&mut self, job: JobId, out: &mut Vec<Effect>) {
        self.refuse_pmi_calls(out, |request| request.job == job);
    }

    fn refuse_pmi_calls(&mut self, out: &mut Vec<Effect>, which: impl Fn(&PmiRequest) -> bool) {
        for (_, PmiRequest { req, job, .. }) in self.pmi_calls.extract_if(.., |_, request| which(request)) {
            refuse(req, exit::NO_SUCH_JOB, format!("job {job} is over on this node"), out);
        }
    }
}

/// Whether a job's standard input is read on a node: by which of its ranks.
pub(crate) fn stdin_nodes(spec: &JobSpec, map: &crate::taskmap::TaskMap) -> Vec<NodeId> {
    match spec.stdin.and_then(|stdin| stdin.target) {
        Some(stdin_target::Target::Rank(rank)) => map.node_of(rank).into_iter().collect(),
        Some(stdin_target::Target::All(true)) => map.nodes().to_vec(),
        Some(stdin_target::Target::All(false) | stdin_target::Target::None(_)) | None => Vec::new(),
    }
}

pub(crate) fn refuse(req: ReqId, exit_code: u8, text: String, out: &mut Vec<Effect>) {
    out.push(Effect::Answer { req, answer: Answer::Refused(Refused { exit_code, text }) });
}

pub(crate) fn log(now: Now, job: JobId, body: job_event::Body) -> Effect {
    Effect::Log { job, event: Box::new(wire::JobEvent { at_ms: now.unix_ms, body: Some(body) }) }
}
