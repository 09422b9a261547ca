//! One job as one daemon of the tree sees it: who below takes part, and the two things that are gathered on the way up, the
//! fence and the end.
//!
//! A daemon forwards one message when everyone below it has spoken; the first one on the way up whose count reaches the
//! whole job turns the fence around, so a job within a subtree never bothers the rest. Contributions are kept by the way they
//! came and replaced by later ones of the same way, so that repeats after a cut link do no harm. Cost: one message up and one
//! down per node and fence.

use std::collections::BTreeMap;

use bytes::Bytes;
use rsd_proto::v1::{Done, FenceDown, FenceUp, Kill, RankExit};

use super::LinkId;
use crate::JobId;
use crate::taskmap::TaskMap;

/// Where a contribution comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Via {
    /// The step of this node.
    Step,
    /// A daemon below.
    Child(LinkId),
}

/// What a daemon keeps of a job.
#[derive(Debug)]
pub(super) struct Relay {
    job: JobId,
    pub(super) map: TaskMap,
    is_head: bool,
    /// Job nodes at or below this daemon that are connected now.
    expected: u32,
    fences: BTreeMap<u64, BTreeMap<Via, (u32, Vec<Bytes>)>>,
    /// The last fence that came by, for those who missed it.
    last: Option<FenceDown>,
    done: BTreeMap<Via, Done>,
    /// Nodes that will never say anything again (head only).
    lost: u32,
    sent_fence: (u64, u32),
    sent_done: u32,
    /// A kill that passed by: for a step that was still starting.
    pub(super) kill: Option<Kill>,
}

/// What a contribution leads to.
#[derive(Debug)]
pub(super) enum Step {
    /// Pass this up.
    FenceUp(FenceUp),
    /// Everyone is in: tell them.
    FenceDown(FenceDown),
    /// Pass this up.
    Done(Done),
    /// Head only: nobody is left.
    Over(Vec<RankExit>),
    /// Head only: `rank`'s node has ended while the others wait in a fence.
    Stuck { rank: u32, epoch: u64 },
}

impl Relay {
    pub(super) fn new(job: JobId, map: TaskMap, is_head: bool) -> Relay {
        Relay {
            job,
            map,
            is_head,
            expected: 0,
            fences: BTreeMap::new(),
            last: None,
            done: BTreeMap::new(),
            lost: 0,
            sent_fence: (0, 0),
            sent_done: 0,
            kill: None,
        }
    }

    /// The tree below changed: so many of the job's nodes are connected here now.
    pub(super) fn expect(&mut self, nodes: u32) {
        self.expected = nodes;
    }

    /// A way is gone, and what came by it will come again by another.
    pub(super) fn forget(&mut self, via: Via) {
        for contributions in self.fences.values_mut() {
            contributions.remove(&via);
        }
        self.done.remove(&via);
    }

    /// The way up is new: what was forwarded on the old one is forwarded again.
    pub(super) fn forget_sent(&mut self) {
        self.sent_fence = (0, 0);
        self.sent_done = 0;
    }

    /// So many nodes are lost for good.
    pub(super) fn lose(&mut self, nodes: u32) {
        self.lost += nodes;
    }

    /// Takes a contribution to a fence. Returns the answer for a sender that missed it.
    pub(super) fn fence_up(&mut self, via: Via, fence: FenceUp) -> Option<FenceDown> {
        if let Some(last) = self.last.as_ref().filter(|last| fence.epoch <= last.epoch) {
            return (fence.epoch == last.epoch).then(|| last.clone());
        }
        self.fences.entry(fence.epoch).or_default().insert(via, (fence.nodes, fence.batches));
        None
    }

    /// A fence's result passes by on its way down. False: an old one, that nobody below waits for.
    pub(super) fn fence_down(&mut self, fence: &FenceDown) {
        if self.last.as_ref().is_none_or(|last| last.epoch < fence.epoch) {
            self.last = Some(fence.clone());
            self.fences = self.fences.split_off(&(fence.epoch + 1));
        }
    }

    pub(super) fn done(&mut self, via: Via, done: Done) {
        self.done.insert(via, done);
    }

    /// Whether this way has ended already.
    pub(super) fn is_done(&self, via: Via) -> bool {
        self.done.contains_key(&via)
    }

    /// What is ripe. To be called after every change, until it returns nothing.
    pub(super) fn advance(&mut self) -> Option<Step> {
        let total = self.map.nodes().len() as u32;
        let done: u32 = self.done.values().map(|done| done.nodes).sum();
        if let Some((&epoch, contributions)) = self.fences.first_key_value() {
            let inside: u32 = contributions.values().map(|(nodes, _)| nodes).sum();
            let batches = || contributions.values().flat_map(|(_, batches)| batches.iter().cloned()).collect();
            if inside >= total {
                let fence = FenceDown { job: self.job, epoch, batches: batches() };
                self.fence_down(&fence);
                return Some(Step::FenceDown(fence));
            }
            if self.is_head && done > 0 && inside > 0 && inside + done + self.lost >= total {
                let rank = self.done.values().map(|done| done.lowest_rank).min().unwrap_or(0);
                self.fences.clear();
                return Some(Step::Stuck { rank, epoch });
            }
            if !self.is_head && inside > 0 && inside + done >= self.expected && self.sent_fence != (epoch, inside) {
                let batches = batches();
                self.sent_fence = (epoch, inside);
                return Some(Step::FenceUp(FenceUp { job: self.job, epoch, nodes: inside, batches }));
            }
        }
        if self.is_head {
            let over = done + self.lost >= total;
            return over.then(|| Step::Over(self.merged().exits));
        }
        let inside = self.fences.values().next().map_or(0, |c| c.values().map(|(nodes, _)| nodes).sum());
        if done > 0 && done + inside >= self.expected && self.sent_done != done {
            self.sent_done = done;
            return Some(Step::Done(self.merged()));
        }
        None
    }

    fn merged(&self) -> Done {
        Done {
            job: self.job,
            nodes: self.done.values().map(|done| done.nodes).sum(),
            exits: self.done.values().flat_map(|done| done.exits.iter().cloned()).collect(),
            lowest_rank: self.done.values().map(|done| done.lowest_rank).min().unwrap_or(0),
        }
    }
}
