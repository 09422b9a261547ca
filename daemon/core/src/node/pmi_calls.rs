//! Requests of the gRPC `Pmi` service that wait for a step of this node.

use std::collections::BTreeMap;

use rsd_proto::v1::{self as wire, PmiCall, down, pmi_call};

use crate::JobId;
use crate::calls::PmiOp;
use crate::contract::ReqId;

/// All waiting requests, by job and call.
#[derive(Debug, Default)]
pub(super) struct PmiCalls {
    jobs: BTreeMap<JobId, BTreeMap<u64, Request>>,
    last: u64,
}

#[derive(Debug)]
struct Request {
    req: ReqId,
    body: down::Body,
    /// Whether it was sent; the step may still be starting or reconnecting.
    is_sent: bool,
    /// Whether sending it twice has the same effect as sending it once.
    is_repeatable: bool,
}

impl PmiCalls {
    /// Records a request of a rank, by its job and namespace, and returns the message for the step. `is_sent`: the step has attached.
    pub(super) fn add(
        &mut self,
        req: ReqId,
        (job, rank, namespace): (JobId, u32, &str),
        op: PmiOp,
        is_sent: bool,
    ) -> down::Body {
        self.last += 1;
        let call = self.last;
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
        let body =
            down::Body::PmiCall(PmiCall { job, call, rank, op: Some(op), attempt, namespace: namespace.to_owned() });
        let request = Request { req, body: body.clone(), is_sent, is_repeatable };
        self.jobs.entry(job).or_default().insert(call, request);
        body
    }

    /// Removes and returns the request that a step has answered.
    pub(super) fn answered(&mut self, job: JobId, call: u64) -> Option<ReqId> {
        let calls = self.jobs.get_mut(&job)?;
        let request = calls.remove(&call);
        if calls.is_empty() {
            self.jobs.remove(&job);
        }
        request.map(|request| request.req)
    }

    /// Handles a step's cut link. Requests that the step may have lost are sent again over the next link. Returns the requests
    /// that must not be repeated and are refused.
    pub(super) fn detached(&mut self, job: JobId) -> Vec<ReqId> {
        let Some(calls) = self.jobs.get_mut(&job) else { return Vec::new() };
        calls.values_mut().filter(|request| request.is_repeatable).for_each(|request| request.is_sent = false);
        calls.extract_if(.., |_, request| request.is_sent).map(|(_, request)| request.req).collect()
    }

    /// Returns the messages for a step that has attached.
    pub(super) fn attached(&mut self, job: JobId) -> Vec<down::Body> {
        let unsent =
            self.jobs.get_mut(&job).into_iter().flat_map(BTreeMap::values_mut).filter(|request| !request.is_sent);
        let body = |request: &mut Request| {
            request.is_sent = true;
            request.body.clone()
        };
        unsent.map(body).collect()
    }

    /// Removes and returns the requests of a job whose step has ended.
    pub(super) fn step_gone(&mut self, job: JobId) -> Vec<ReqId> {
        self.jobs.remove(&job).into_iter().flat_map(BTreeMap::into_values).map(|request| request.req).collect()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.jobs.values().flat_map(BTreeMap::keys).map(|call| format!("PMI call {call}"))
    }
}
