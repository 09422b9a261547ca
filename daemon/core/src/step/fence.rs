//! The local half of the fence: who of the node has entered, by PMI or by a call, and what went up for all of them.

use bytes::Bytes;
use rsd_proto::v1::{self as wire, up};

use super::{Effect, Local, Step};
use crate::Now;

/// The local half of the fence.
#[derive(Debug)]
pub(super) struct Fence {
    /// The one that ranks enter now, from 1.
    pub(super) epoch: u64,
    /// Local ranks in it, and how to answer each.
    pub(super) waiting: Vec<(Local, Waiter)>,
    /// What went up for the epochs that a daemon may still ask about: this one and the one before.
    pub(super) sent: Vec<wire::FenceUp>,
}

/// How to answer who has entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    /// `barrier_in`, with the tag to echo.
    Pmi1 { tag: Option<u32> },
    /// The gRPC service: the daemon's call number, and the rank's own for this fence, or 0.
    Call { call: u64, attempt: u64 },
    /// The gRPC service of a daemon that is gone, and its call with it.
    Nobody { attempt: u64 },
}

impl Waiter {
    pub(super) fn attempt(self) -> u64 {
        match self {
            Waiter::Pmi1 { .. } => 0,
            Waiter::Call { attempt, .. } | Waiter::Nobody { attempt } => attempt,
        }
    }
}

impl Step {
    pub(super) fn enter_fence(&mut self, local: Local, waiter: Waiter, out: &mut Vec<Effect>) {
        if self.has_members() && self.ending.is_killing() {
            self.fence.waiting.push((local, waiter));
            return self.fail_waiting(out);
        }
        // A rank that enters twice (two dialects at once) waits once for each answer but counts once.
        self.fence.waiting.push((local, waiter));
        let mut inside = vec![false; self.ranks.len()];
        for (waiting, _) in &self.fence.waiting {
            inside[*waiting] = true;
        }
        if !inside.iter().all(|inside| *inside) {
            self.check_fence(out);
            return;
        }
        self.tell_kin();
        let batches: Vec<Bytes> = self.kvs.take_batch().into_iter().collect();
        if self.map.nodes().len() == 1 {
            // All there is of the job is here, and its puts are in the store already.
            self.complete_fence(out);
            return;
        }
        let fence = wire::FenceUp { job: self.job, epoch: self.fence.epoch, nodes: vec![self.node], batches };
        self.fence.sent.retain(|sent| sent.epoch + 1 == fence.epoch);
        self.fence.sent.push(fence.clone());
        self.send(up::Body::FenceUp(fence), out);
    }

    /// By the gRPC service. Who asks again for want of an answer says the same `attempt`, and may have passed this fence meanwhile.
    pub(super) fn enter_fence_by_call(&mut self, local: Local, call: u64, attempt: u64, out: &mut Vec<Effect>) {
        let again = Waiter::Call { call, attempt };
        if attempt == 0 {
            return self.enter_fence(local, again, out);
        }
        if self.ranks[local].passed == attempt {
            return self.answer_call(call, Ok(None), out);
        }
        let waiting = &mut self.fence.waiting;
        match waiting.iter_mut().find(|(waiting, waiter)| *waiting == local && waiter.attempt() == attempt) {
            Some((_, waiter)) => {
                if let Waiter::Call { call: before, .. } = std::mem::replace(waiter, again) {
                    self.answer_call(before, Err("the same was asked again".into()), out);
                }
            }
            None => self.enter_fence(local, again, out),
        }
    }

    pub(super) fn on_fence_down(&mut self, now: Now, fence: wire::FenceDown, out: &mut Vec<Effect>) {
        let awaited = self.fence.sent.iter().any(|sent| sent.epoch == self.fence.epoch);
        if fence.epoch != self.fence.epoch || !awaited {
            return; // a repeat
        }
        for batch in fence.batches {
            if self.kvs.apply(batch).is_err() {
                self.fail_all(now, "a fence brought keys that do not decode", out);
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
        self.fence.epoch += 1;
        for (local, waiter) in std::mem::take(&mut self.fence.waiting) {
            if waiter.attempt() != 0 {
                self.ranks[local].passed = waiter.attempt();
            }
            match waiter {
                Waiter::Pmi1 { tag } => self.answer_barrier(local, tag, out),
                Waiter::Call { call, .. } => self.answer_call(call, Ok(None), out),
                Waiter::Nobody { .. } => {}
            }
        }
    }
}
