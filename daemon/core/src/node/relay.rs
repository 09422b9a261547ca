//! One job as one daemon of the tree sees it: who below takes part, and the two things that are gathered on the way up, the
//! fence and the end.
//!
//! Both are gathered as facts about nodes, *node 7 is in fence 3*, *node 7 has ended*, that stay true for ever. So repeats,
//! detours and ways that nobody knows yet to be dead do no harm, and nothing is ever counted twice. A daemon forwards one
//! message when everyone below it has spoken; the first one on the way up that knows of the whole job turns the fence around,
//! so a job within a subtree never bothers the rest. If that subtree falls apart later, those who have moved away may have
//! missed the result: a daemon that does not reach the whole job any more tells it upwards, as everyone's contribution.
//!
//! Cost: one message up and one down per node and fence, with the ids of the nodes below; N log N comparisons on the head.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Done, FenceDown, FenceUp, Kill, Located, RankExit};

use crate::node::locations::{Locations, Told};
use crate::rsd::LinkId;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId};

/// What a daemon keeps of a job.
#[derive(Debug)]
pub(crate) struct Relay {
    job: JobId,
    pub(crate) map: TaskMap,
    is_head: bool,
    /// Job nodes at or below this daemon that are connected now.
    here: BTreeSet<NodeId>,
    fences: BTreeMap<u64, Gathered>,
    /// The last fence that came by, for those who missed it.
    last: Option<FenceDown>,
    pub(crate) locations: Locations,
    begun: Begun,
    /// Nodes that have ended; on the head also those that are lost.
    done: BTreeMap<NodeId, Ended>,
    /// What the parent knows: the last result, and so many ends.
    sent_last: u64,
    sent_done: usize,
    was_stuck: bool,
    /// A kill that passed by: for a step that was still starting.
    pub(crate) kill: Option<Kill>,
    /// This node's step has ended as a process.
    pub(crate) step_gone: bool,
    /// It had not said that its ranks have ended: what is said in its name.
    pub(crate) step_lost: Option<RankExit>,
}

/// Of a spawned job: nodes whose ranks have all been started.
#[derive(Debug, Default)]
struct Begun {
    nodes: BTreeSet<NodeId>,
    /// So many of them the parent knows of.
    sent: usize,
}

#[derive(Debug, Default)]
struct Ended {
    /// The last fence that it was in.
    fence: u64,
    /// What did not end well.
    exits: Vec<RankExit>,
}

/// What nodes have said about one thing, on its way up.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) inside: BTreeSet<NodeId>,
    contributions: Vec<Contribution>,
    /// So many nodes the parent knows of.
    pub(crate) sent: usize,
}

#[derive(Debug)]
struct Contribution {
    nodes: Vec<NodeId>,
    batches: Vec<Bytes>,
}

impl Gathered {
    /// Takes a contribution that says something new, instead of those that it includes.
    pub(crate) fn add(&mut self, nodes: Vec<NodeId>, batches: Vec<Bytes>) {
        let known = nodes.iter().filter(|node| self.inside.contains(node)).count();
        if known == nodes.len() {
            return;
        }
        if known > 0 {
            let new: BTreeSet<NodeId> = nodes.iter().copied().collect();
            self.contributions.retain(|before| !before.nodes.iter().all(|node| new.contains(node)));
        }
        self.inside.extend(&nodes);
        self.contributions.push(Contribution { nodes, batches });
    }

    pub(crate) fn batches(&self) -> Vec<Bytes> {
        self.contributions.iter().flat_map(|contribution| contribution.batches.iter().cloned()).collect()
    }
}

/// What facts lead to.
#[derive(Debug)]
pub(crate) enum Step {
    /// Pass this up.
    FenceUp(FenceUp),
    /// Everyone is in: tell them.
    FenceDown(FenceDown),
    /// Pass this up.
    Located(Located),
    /// Ask above where everyone listens.
    Locate,
    /// Tell these where everyone listens.
    Locations { to: BTreeSet<LinkId>, ports: Vec<Bytes> },
    /// Pass this up; on the head it is everyone.
    Begun(wire::Begun),
    /// Pass this up.
    Done(Done),
    /// Head only: nobody is left.
    Over(Vec<RankExit>),
    /// Head only: the node of `rank` has ended while the others wait in a fence.
    Stuck { rank: u32, epoch: u64 },
}

impl Relay {
    pub(crate) fn new(job: JobId, map: TaskMap, is_head: bool) -> Relay {
        Relay {
            job,
            map,
            is_head,
            here: BTreeSet::new(),
            fences: BTreeMap::new(),
            last: None,
            locations: Locations::default(),
            begun: Begun::default(),
            done: BTreeMap::new(),
            sent_last: 0,
            sent_done: 0,
            was_stuck: false,
            kill: None,
            step_gone: false,
            step_lost: None,
        }
    }

    /// The tree below changed: who of the job is connected here now.
    pub(crate) fn set_here(&mut self, is_here: impl Fn(NodeId) -> bool) {
        self.here = self.map.nodes().iter().copied().filter(|node| is_here(*node)).collect();
    }

    /// Nobody here has a part in the job any more.
    pub(crate) fn is_deserted(&self) -> bool {
        !self.is_head && self.here.is_empty()
    }

    /// The way up is new: what was forwarded on the old one is forwarded again.
    pub(crate) fn forget_sent(&mut self) {
        (self.sent_last, self.sent_done, self.begun.sent) = (0, 0, 0);
        self.fences.values_mut().for_each(|gathered| gathered.sent = 0);
        self.locations.forget_sent();
    }

    /// Takes a contribution to a fence. Returns the answer for a sender that missed it.
    pub(crate) fn fence_up(&mut self, fence: FenceUp) -> Option<FenceDown> {
        if let Some(last) = self.last.as_ref().filter(|last| fence.epoch <= last.epoch) {
            // One before the last is a keeper's repeat: the last tells whoever passed it on that both are over.
            return Some(last.clone());
        }
        self.fences.entry(fence.epoch).or_default().add(fence.nodes, fence.batches);
        None
    }

    /// A fence's result comes from above.
    pub(crate) fn fence_down(&mut self, fence: &FenceDown) {
        self.sent_last = self.sent_last.max(fence.epoch);
        self.close_fence(fence);
    }

    fn close_fence(&mut self, fence: &FenceDown) {
        if self.last.as_ref().is_none_or(|last| last.epoch < fence.epoch) {
            self.last = Some(fence.clone());
            self.fences = self.fences.split_off(&(fence.epoch + 1));
        }
    }

    pub(crate) fn done(&mut self, done: Done) {
        let fences = done.fences.into_iter().chain(std::iter::repeat(0));
        for (node, fence) in done.nodes.into_iter().zip(fences) {
            let exits = done.exits.iter().filter(|exit| exit.node == node).cloned();
            self.done.entry(node).or_insert_with(|| Ended { fence, exits: exits.collect() });
        }
    }

    /// A node will never say anything again.
    pub(crate) fn lose(&mut self, node: NodeId) {
        self.done.entry(node).or_default();
    }

    pub(crate) fn is_done(&self, node: NodeId) -> bool {
        self.done.contains_key(&node)
    }

    /// What is ripe. To be called after every change, until it returns nothing.
    pub(crate) fn advance(&mut self) -> Option<Step> {
        let ripe = self.advance_fence().or_else(|| self.advance_locations()).or_else(|| self.advance_begun());
        if ripe.is_some() {
            return ripe;
        }
        if self.is_head {
            let over = self.everyone(|node| self.done.contains_key(&node));
            return over.then(|| Step::Over(self.exits()));
        }
        if self.sent_done < self.done.len() && self.all_here_have_spoken(0) {
            self.sent_done = self.done.len();
            let nodes = self.done.keys().copied().collect();
            let fences = self.done.values().map(|ended| ended.fence).collect();
            return Some(Step::Done(Done { job: self.job, nodes, exits: self.exits(), fences }));
        }
        None
    }

    /// The ranks of these nodes have all been started.
    pub(crate) fn begun(&mut self, nodes: Vec<NodeId>) {
        self.begun.nodes.extend(nodes);
    }

    fn advance_begun(&mut self) -> Option<Step> {
        let has_spoken = |node: &NodeId| self.begun.nodes.contains(node) || self.done.contains_key(node);
        let ripe = match self.is_head {
            true => self.map.nodes().iter().all(has_spoken),
            false => self.here.iter().all(has_spoken),
        };
        if !ripe || self.begun.sent == self.begun.nodes.len() {
            return None;
        }
        self.begun.sent = self.begun.nodes.len();
        Some(Step::Begun(wire::Begun { job: self.job, nodes: self.begun.nodes.iter().copied().collect() }))
    }

    fn advance_locations(&mut self) -> Option<Step> {
        let needs_no_parent = self.is_head || self.here.len() == self.map.nodes().len();
        let told =
            self.locations.advance(self.map.nodes(), &self.here, needs_no_parent, |node| self.done.contains_key(&node));
        told.map(|told| match told {
            Told::Up { nodes, ports } => Step::Located(Located { job: self.job, nodes, ports }),
            Told::Ask => Step::Locate,
            Told::Down { to, ports } => Step::Locations { to, ports },
        })
    }

    fn exits(&self) -> Vec<RankExit> {
        self.done.values().flat_map(|ended| ended.exits.iter().cloned()).collect()
    }

    fn advance_fence(&mut self) -> Option<Step> {
        let total = self.map.nodes().len();
        if let Some(last) = self.last.as_ref().filter(|last| last.epoch > self.sent_last)
            && !self.is_head
            && self.here.len() < total
        {
            self.sent_last = last.epoch;
            let (nodes, batches) = (self.map.nodes().to_vec(), last.batches.clone());
            return Some(Step::FenceUp(FenceUp { job: self.job, epoch: last.epoch, nodes, batches }));
        }
        // More than one is open only when some have missed a result.
        for (&epoch, gathered) in &self.fences {
            if gathered.inside.len() >= total && self.everyone(|node| gathered.inside.contains(&node)) {
                let fence = FenceDown { job: self.job, epoch, batches: gathered.batches() };
                self.close_fence(&fence);
                return Some(Step::FenceDown(fence));
            }
            if self.is_head {
                if let Some(rank) = self.missing_for_ever(epoch) {
                    self.was_stuck = true;
                    return Some(Step::Stuck { rank, epoch });
                }
            } else if gathered.sent != gathered.inside.len() && self.all_here_have_spoken(epoch) {
                let nodes = gathered.inside.iter().copied().collect();
                let fence = FenceUp { job: self.job, epoch, nodes, batches: gathered.batches() };
                self.fences.entry(epoch).and_modify(|gathered| gathered.sent = gathered.inside.len());
                return Some(Step::FenceUp(fence));
            }
        }
        None
    }

    /// When everyone has entered this fence or ended: the first rank of those that have ended without it.
    fn missing_for_ever(&self, epoch: u64) -> Option<u32> {
        if self.was_stuck || self.done.is_empty() || !self.have_spoken(self.map.nodes(), epoch) {
            return None;
        }
        // Who was in this fence has its result: whoever handed that out will tell us.
        let missing = self.done.iter().filter(|(node, ended)| ended.fence < epoch && !self.is_inside(**node, epoch));
        missing.filter_map(|(node, _)| self.map.ranks_on(*node).next()).min()
    }

    fn everyone(&self, is_so: impl Fn(NodeId) -> bool) -> bool {
        self.map.nodes().iter().all(|node| is_so(*node))
    }

    /// Whoever is connected here has ended or is in this open fence; or in a later one, with the result of this.
    fn all_here_have_spoken(&self, epoch: u64) -> bool {
        self.have_spoken(&self.here, epoch)
    }

    fn have_spoken<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a NodeId, IntoIter: ExactSizeIterator>,
        epoch: u64,
    ) -> bool {
        let mut nodes = nodes.into_iter();
        let inside: usize = self.fences.range(epoch..).map(|(_, gathered)| gathered.inside.len()).sum();
        inside + self.done.len() >= nodes.len()
            && nodes.all(|node| self.done.contains_key(node) || self.is_inside(*node, epoch))
    }

    fn is_inside(&self, node: NodeId, epoch: u64) -> bool {
        self.fences.range(epoch..).any(|(_, gathered)| gathered.inside.contains(&node))
    }
}
