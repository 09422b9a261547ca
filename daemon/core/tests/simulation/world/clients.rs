//! The requests of clients: rsctl, users that send standard input, and ranks through the gRPC service.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rsd_core::JobId;
use rsd_core::rsd::{Answer, Call, Caller, Input, PmiOp, ReqId};
use rsd_proto::v1::{JobInfo, JobSpec};

use super::{Event, MachineId, Pid, World};
use crate::ranks::Op;
use crate::rng::Rng;
use crate::steps::{Local, RankEvent, StepProc};

/// The user whose daemons these are.
pub(crate) const OWNER: Caller = Caller { uid: 1000, is_admin: true };

impl World {
    pub(crate) fn program(&mut self, program: impl Fn(u32, u32, &mut Rng) -> Vec<Op> + 'static) -> usize {
        self.programs.push(Rc::new(program));
        self.programs.len() - 1
    }

    pub(crate) fn script(&mut self, program: usize, rank: u32, size: u32) -> Vec<Op> {
        let program = Rc::clone(&self.programs[program]);
        program(rank, size, &mut self.rng)
    }

    pub(crate) fn call(&mut self, machine: MachineId, call: Call) -> ReqId {
        let req = self.id();
        let pid = self.machines[machine].daemon.expect("a client finds a daemon");
        self.handle(pid, Input::Call { req, caller: OWNER, call });
        req
    }

    /// Returns the answer if it has arrived.
    pub(crate) fn answered(&mut self, req: ReqId) -> Option<Answer> {
        self.answers.remove(&req)
    }

    pub(crate) fn submit(&mut self, spec: JobSpec) -> JobId {
        let req = self.call(self.head, submission(spec));
        match self.answered(req) {
            Some(Answer::Submitted(job)) => job,
            other => panic!("submit was answered with {other:?}"),
        }
    }

    pub(crate) fn job(&mut self, job: JobId) -> JobInfo {
        let req = self.call(self.head, Call::GetJob(job));
        match self.answered(req) {
            Some(Answer::Job(info)) => *info,
            other => panic!("job {job}: {other:?}"),
        }
    }

    /// Sends a rank's fence request through the gRPC service.
    pub(crate) fn call_fence(&mut self, step: &StepProc, pid: Pid, local: Local, (rank, attempt): (u32, u64)) {
        let Some(daemon) = self.machines[step.machine].daemon else {
            return self.after(Duration::ZERO, Event::Rank(pid, local, RankEvent::CallAnswered(false)));
        };
        let req = self.id();
        self.callers.insert(req, (daemon, pid, local));
        let call = Call::Pmi { job: step.job, rank, namespace: step.namespace.clone(), op: PmiOp::Fence(attempt) };
        self.handle(daemon, Input::Call { req, caller: OWNER, call });
    }

    /// Sends standard input to a job, chunk by chunk.
    pub(crate) fn feed_stdin(&mut self, job: JobId, chunks: Vec<Bytes>) {
        self.feeds.insert(job, Feed { chunks, ..Feed::default() });
        self.after(Duration::ZERO, Event::Feed(job));
    }

    pub(super) fn feed(&mut self, job: JobId) {
        let Some(feed) = self.feeds.get_mut(&job) else { return };
        let Some(data) = feed.chunks.get(feed.sent).cloned() else { return };
        let at = feed.chunks[..feed.sent].iter().map(|chunk| chunk.len() as u64).sum();
        feed.sent += 1;
        let eof = feed.sent == feed.chunks.len();
        let req = self.id();
        self.fed.insert(req, job);
        if let Some(pid) = self.machines[self.head].daemon {
            self.handle(pid, Input::Call { req, caller: OWNER, call: Call::Stdin { job, at: Some(at), data, eof } });
        }
    }

    /// Returns the number of unanswered chunks of standard input and calls of ranks.
    pub(crate) fn unanswered(&self) -> usize {
        let unsent = |feed: &Feed| feed.chunks.len() - feed.sent;
        self.fed.len() + self.feeds.values().map(unsent).sum::<usize>() + self.callers.len()
    }

    pub(super) fn answer(&mut self, req: ReqId, answer: Answer) {
        if let Some((_, pid, local)) = self.callers.remove(&req) {
            let done = matches!(answer, Answer::Pmi(_));
            let delay = self.delay();
            self.after(delay, Event::Rank(pid, local, RankEvent::CallAnswered(done)));
        } else if let Some(job) = self.fed.remove(&req) {
            if let (Answer::Fed { delivered, closed }, Some(feed)) = (answer, self.feeds.get_mut(&job)) {
                (feed.delivered, feed.closed) = (delivered.max(feed.delivered), closed);
            }
            let delay = self.delay();
            self.after(delay, Event::Feed(job));
        } else {
            self.answers.insert(req, answer);
        }
    }
}

/// A client's input to a job.
#[derive(Debug, Default)]
pub(super) struct Feed {
    chunks: Vec<Bytes>,
    /// How many chunks it has sent to the present head.
    sent: usize,
    /// How many bytes all readers have, as the head has said.
    delivered: u64,
    closed: bool,
}

impl World {
    /// Has all clients that send input connect to the next head: they send what has not been delivered again.
    pub(super) fn feed_again(&mut self) {
        self.fed.clear();
        let jobs: Vec<JobId> = self.feeds.keys().copied().collect();
        for feed in self.feeds.values_mut() {
            let mut end = 0;
            let has = |chunk: &&Bytes| {
                end += chunk.len() as u64;
                end <= feed.delivered
            };
            let delivered = feed.chunks.iter().take_while(has).count();
            feed.sent =
                if feed.closed { feed.chunks.len() } else { delivered.min(feed.chunks.len().saturating_sub(1)) };
        }
        for job in jobs {
            let delay = self.delay();
            self.after(delay, Event::Feed(job));
        }
    }
}

/// Returns a submission as the shell passes it to the head.
pub(crate) fn submission(spec: JobSpec) -> Call {
    Call::Submit { spec: Box::new(spec), random: Bytes::from_static(&[7; 44]), user: String::new() }
}
