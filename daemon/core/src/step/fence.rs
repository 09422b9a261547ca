//! The local half of the fence: which ranks of the node have entered, in whatever dialect, and what the step sent up for them.

use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, up};

use super::dialect::{Asker, By, Reply};
use super::kin::Compared;
use super::{Effect, Phase, Step};
use crate::Now;

/// The local half of the fence.
#[derive(Debug)]
pub(super) struct Fence {
    /// The number of the fence that ranks enter now, from 1.
    pub(super) number: u64,
    /// The local ranks that have entered it.
    pub(super) waiting: Vec<Asker>,
    /// When the first of them entered it.
    pub(super) since: Duration,
    /// The contributions to the fences that a daemon may still ask about: this one and the previous one.
    pub(super) sent: Vec<wire::FenceUp>,
}

impl Step {
    pub(super) fn enter_fence(&mut self, now: Now, asker: Asker, out: &mut Vec<Effect>) {
        if self.fence.waiting.is_empty() {
            self.fence.since = now.mono;
        }
        // A rank that enters twice, in two dialects, gets both answers but counts once.
        self.fence.waiting.push(asker);
        if self.has_members() && self.ending.is_killing() {
            return self.fail_waiting(out);
        }
        if !self.advance_fence(now, out) {
            self.check_fence(out);
            self.check_on_node(out);
        }
    }

    /// Enters the fence for this node once all its ranks have, except those that are lost. Returns false if one is missing.
    pub(super) fn advance_fence(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        let mut inside: Vec<bool> = self.ranks.iter().map(super::Rank::is_lost).collect();
        for waiting in &self.fence.waiting {
            inside[waiting.local] = true;
        }
        if !inside.iter().all(|inside| *inside) {
            return false;
        }
        let has_entered = self.fence.sent.iter().any(|sent| sent.epoch == self.fence.number);
        if self.fence.waiting.is_empty() || has_entered {
            return true; // a rank was lost that is not waited for
        }
        self.report_kin();
        let batches: Vec<Bytes> = self.kvs.take_batch(self.fence.number).into_iter().collect();
        if self.map.nodes().len() == 1 {
            // The whole job runs here, and its puts are in the store already.
            let _ = self.kvs.pass(self.fence.number, Vec::new(), false); // nothing is stored
            self.complete_fence(now, out);
            return true;
        }
        let (epoch, nodes, batch_nodes) = (self.fence.number, vec![self.node], vec![self.node; batches.len()]);
        // All steps compare the libraries of all nodes.
        let (can_fetch, held) = (self.compared != Compared::Sent, self.kvs.held());
        let fence =
            wire::FenceUp { job: self.job, epoch, nodes, batches, can_fetch, batch_nodes, held, ..Default::default() };
        self.fence.sent.retain(|sent| sent.epoch + 1 == fence.epoch);
        self.fence.sent.push(fence.clone());
        self.send(up::Body::FenceUp(fence), out);
        true
    }

    /// A rank enters in a dialect whose callers repeat a call, with its `attempt`, when they got no answer: it may have passed this
    /// fence in the meantime.
    pub(super) fn enter_fence_again(&mut self, now: Now, asker: Asker, out: &mut Vec<Effect>) {
        let attempt = asker.attempt();
        if attempt == 0 {
            return self.enter_fence(now, asker, out);
        }
        if self.ranks[asker.local].passed == attempt {
            return self.answer(&asker, Reply::Done, out);
        }
        let is_repeat = |waiting: &&mut Asker| waiting.local == asker.local && waiting.attempt() == attempt;
        match self.fence.waiting.iter_mut().find(is_repeat) {
            Some(waiting) => {
                let before = std::mem::replace(waiting, asker);
                self.answer(&before, Reply::Refused("superseded by a retry of the same call".into()), out);
            }
            None => self.enter_fence(now, asker, out),
        }
    }

    pub(super) fn on_fence_down(&mut self, now: Now, fence: wire::FenceDown, out: &mut Vec<Effect>) {
        let awaited = self.fence.sent.iter().any(|sent| sent.epoch == self.fence.number);
        if fence.epoch != self.fence.number || !awaited {
            return; // a repeat
        }
        if let Err(error) = self.kvs.pass(fence.epoch, fence.batches, fence.is_held) {
            return self.fail_all(now, &error.to_string(), out);
        }
        for sent in self.fence.sent.iter_mut().filter(|sent| fence.is_held && sent.epoch == fence.epoch) {
            // A daemon that has lost the result needs to know only that; it collects what was put when a rank gets it.
            (sent.is_held, sent.batches, sent.batch_nodes) = (true, Vec::new(), Vec::new());
        }
        if self.finds_other_kin(now, out) {
            return;
        }
        self.complete_fence(now, out);
        self.settle_meeting(now, out);
    }

    pub(super) fn complete_fence(&mut self, now: Now, out: &mut Vec<Effect>) {
        let number = self.fence.number;
        self.fence.number += 1;
        for asker in std::mem::take(&mut self.fence.waiting) {
            if asker.attempt() != 0 {
                self.ranks[asker.local].passed = asker.attempt();
            }
            let is_there = match asker.by {
                By::Pmi1(_) | By::Pmi2(_) | By::Pmix { .. } => self.ranks[asker.local].phase == Phase::Running,
                By::Call { .. } | By::Disconnected { .. } => true,
            };
            if is_there {
                match asker.is_in_ring() {
                    true => self.answer_ring(now, asker, number, out),
                    false => self.answer(&asker, Reply::Done, out),
                }
            }
        }
    }
}
