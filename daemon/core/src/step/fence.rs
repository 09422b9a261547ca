//! The local half of the fence: which ranks of the node have entered, by PMI or by a call, and what the step sent up for them.

use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, up};

use super::{Effect, Local, Step};
use crate::Now;

/// The local half of the fence.
#[derive(Debug)]
pub(super) struct Fence {
    /// The number of the fence that ranks enter now, from 1.
    pub(super) number: u64,
    /// Local ranks that have entered it, and how to answer each.
    pub(super) waiting: Vec<(Local, Waiter)>,
    /// When the first of them entered it.
    pub(super) since: Duration,
    /// The contributions to the fences that a daemon may still ask about: this one and the previous one.
    pub(super) sent: Vec<wire::FenceUp>,
}

/// How to answer a rank that has entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    /// By `barrier_in`, with the tag to echo.
    Pmi1 { tag: Option<u32> },
    /// By the gRPC service: the daemon's call number, and the rank's own number for this fence, or 0.
    Call { call: u64, attempt: u64 },
    /// By the gRPC service of a daemon that has ended, and the call with it.
    Disconnected { attempt: u64 },
}

impl Waiter {
    pub(super) fn attempt(self) -> u64 {
        match self {
            Waiter::Pmi1 { .. } => 0,
            Waiter::Call { attempt, .. } | Waiter::Disconnected { attempt } => attempt,
        }
    }
}

impl Step {
    pub(super) fn enter_fence(&mut self, now: Now, local: Local, waiter: Waiter, out: &mut Vec<Effect>) {
        if self.fence.waiting.is_empty() {
            self.fence.since = now.mono;
        }
        if self.has_members() && self.ending.is_killing() {
            self.fence.waiting.push((local, waiter));
            return self.fail_waiting(out);
        }
        // A rank that enters twice, in two dialects, gets both answers but counts once.
        self.fence.waiting.push((local, waiter));
        let mut inside = vec![false; self.ranks.len()];
        for (waiting, _) in &self.fence.waiting {
            inside[*waiting] = true;
        }
        if !inside.iter().all(|inside| *inside) {
            self.check_fence(out);
            return;
        }
        self.report_kin();
        let batches: Vec<Bytes> = self.kvs.take_batch().into_iter().collect();
        if self.map.nodes().len() == 1 {
            // The whole job runs here, and its puts are in the store already.
            self.complete_fence(out);
            return;
        }
        let fence = wire::FenceUp { job: self.job, epoch: self.fence.number, nodes: vec![self.node], batches };
        self.fence.sent.retain(|sent| sent.epoch + 1 == fence.epoch);
        self.fence.sent.push(fence.clone());
        self.send(up::Body::FenceUp(fence), out);
    }

    /// A rank enters by the gRPC service. A caller that retries because it got no answer repeats its `attempt`, and may have
    /// passed this fence in the meantime.
    pub(super) fn enter_fence_by_call(
        &mut self,
        now: Now,
        local: Local,
        call: u64,
        attempt: u64,
        out: &mut Vec<Effect>,
    ) {
        let again = Waiter::Call { call, attempt };
        if attempt == 0 {
            return self.enter_fence(now, local, again, out);
        }
        if self.ranks[local].passed == attempt {
            return self.answer_call(call, Ok(None), out);
        }
        let waiting = &mut self.fence.waiting;
        match waiting.iter_mut().find(|(waiting, waiter)| *waiting == local && waiter.attempt() == attempt) {
            Some((_, waiter)) => {
                if let Waiter::Call { call: before, .. } = std::mem::replace(waiter, again) {
                    self.answer_call(before, Err("superseded by a retry of the same call".into()), out);
                }
            }
            None => self.enter_fence(now, local, again, out),
        }
    }

    pub(super) fn on_fence_down(&mut self, now: Now, fence: wire::FenceDown, out: &mut Vec<Effect>) {
        let awaited = self.fence.sent.iter().any(|sent| sent.epoch == self.fence.number);
        if fence.epoch != self.fence.number || !awaited {
            return; // a repeat
        }
        for batch in fence.batches {
            if let Err(error) = self.kvs.apply(batch) {
                self.fail_all(now, &error.to_string(), out);
                return;
            }
        }
        if self.finds_other_kin(now, out) {
            return;
        }
        self.complete_fence(out);
        self.settle_meeting(now, out);
    }

    pub(super) fn complete_fence(&mut self, out: &mut Vec<Effect>) {
        self.fence.number += 1;
        for (local, waiter) in std::mem::take(&mut self.fence.waiting) {
            if waiter.attempt() != 0 {
                self.ranks[local].passed = waiter.attempt();
            }
            match waiter {
                Waiter::Pmi1 { tag } => self.answer_barrier(local, tag, out),
                Waiter::Call { call, .. } => self.answer_call(call, Ok(None), out),
                Waiter::Disconnected { .. } => {}
            }
        }
    }
}
