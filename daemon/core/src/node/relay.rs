//! One job in one daemon of the tree: which nodes below take part, and the reports that are gathered on the way up, about the
//! fence and about exits.
//!
//! Both are gathered as facts about nodes (*node 7 is in fence 3*, *node 7 has ended*) that stay true. So repeats, detours and
//! links that are dead but not yet closed do no harm, and nothing is counted twice. A daemon forwards one message when every node
//! below it has reported. The first daemon on the way up that has the reports of all nodes turns the fence around, so a job
//! within a subtree costs the rest of the tree nothing. If that subtree falls apart later, nodes that have moved away may have
//! missed the result: a daemon that no longer reaches the whole job offers the result to its parent ([`super::offers`]), and sends it, as
//! every node's contribution, if the parent lacks it.
//!
//! A result that is too large for all nodes is held by the daemon that has turned the fence around ([`super::held`]).
//!
//! Cost: one message up and one down per node and fence, with the ids of the nodes below; N log N comparisons at the root.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rsd_proto::v1::{self as wire, Done, FenceDown, FenceUp, Kill, Located, NodePut, RankExit, Usage};

use super::gathered::{Gathered, Marks};
use super::held::{self, Held};
use super::locations::{Locations, Outgoing};
use super::offers::Offers;
use crate::between::Loss;
use crate::contract::LinkId;
use crate::contract::NO_FENCE_NEEDS_IT;
use crate::exits::{Exits, ranks};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId};

/// The most fences that are open with a contribution of one step. A step repeats its last two contributions to a daemon that was
/// restarted, and may enter one more fence before the daemon learns that these two are complete.
const OPEN_MAX: usize = 3;

/// The state of a job in a daemon.
#[derive(Debug)]
pub(super) struct Relay {
    job: JobId,
    pub(super) map: TaskMap,
    /// Whether this daemon is the root of the tree.
    is_root: bool,
    /// The job's nodes at or below this daemon that are connected.
    here: BTreeSet<NodeId>,
    fences: BTreeMap<u64, Gathered>,
    /// The user whose job it is, in a DVM that serves all users.
    owner: Option<u32>,
    /// The result of the last fence, for nodes that missed it.
    last: Option<FenceDown>,
    /// The bytes of that result.
    last_bytes: u64,
    /// Whether a fence was refused because of the size of its result.
    was_refused: bool,
    /// The link of this node's step that has been sent a result again, and the number of that fence.
    repeated: Option<(LinkId, u64)>,
    pub(super) locations: Locations,
    pub(super) offers: Offers,
    pub(super) held: Held,
    begun: Begun,
    /// The nodes that have ended; at the root also the nodes that are lost.
    done: BTreeMap<NodeId, Ended>,
    /// The ranks on them that have failed.
    exits: Exits,
    /// Nodes that will never reconnect.
    gone: BTreeSet<NodeId>,
    /// Nodes without which the job continues: all their ranks have died or, at the root, the nodes are lost.
    lost: BTreeSet<NodeId>,
    /// The number of the last result that the parent knows, or knows to be here.
    sent_last: u64,
    /// Whether the parent has requested the last result.
    is_wanted: bool,
    sent_done: usize,
    was_stuck: bool,
    /// Whether the head has the report that all nodes have ended.
    was_over: bool,
    /// The last kill, for a step that is still starting.
    pub(super) kill: Option<Kill>,
    /// Whether this node's step process has ended.
    pub(super) step_gone: bool,
    /// The first exit that this daemon reported for its step, because the step had reported none.
    pub(super) step_lost: Option<RankExit>,
}

/// For a spawned job: the nodes whose ranks have all been started.
#[derive(Debug, Default)]
struct Begun {
    nodes: BTreeSet<NodeId>,
    /// How many of these nodes the parent knows.
    sent: usize,
}

#[derive(Debug, Default)]
struct Ended {
    /// The number of the last fence that the node entered.
    fence: u64,
    /// What its ranks have used.
    usage: Usage,
}

/// The limits on results of fences.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How many bytes of results a job may keep here.
    pub(super) room: u64,
    /// The largest result that goes to all nodes.
    pub(super) replicated_max: u64,
}

/// A message that can be sent now.
#[derive(Debug)]
pub(super) enum Ripe {
    /// To the parent.
    FenceUp(FenceUp),
    /// To the parent: the result of this fence is here.
    Passed { fence: u64 },
    /// To this link: send the result of this fence.
    WantResult { to: LinkId, fence: u64 },
    /// To the children and the step: all nodes are in the fence.
    FenceDown(FenceDown),
    /// To the head: all nodes are in the fence, but its result has this many bytes, which this daemon does not keep for its user.
    TooLarge { fence: u64, bytes: u64 },
    /// About held results.
    Held(held::Outgoing),
    /// To the parent.
    Located(Located),
    /// To the parent: request where the job's ranks listen.
    Locate,
    /// To these links: where the job's ranks listen.
    Locations { to: BTreeSet<LinkId>, ports: Vec<Bytes> },
    /// To the parent; at the root it covers all nodes.
    Begun(wire::Begun),
    /// To the parent.
    Done(Done),
    /// To the head, at the root only: all nodes have ended.
    Over { exits: Vec<RankExit>, usage: Vec<(NodeId, Usage)> },
    /// To the head, at the root only: the node of `rank` has ended while the others wait in a fence.
    Stuck { rank: u32, fence: u64 },
}

impl Relay {
    pub(super) fn new(job: JobId, map: TaskMap, owner: Option<u32>, is_root: bool) -> Relay {
        Relay {
            job,
            map,
            is_root,
            here: BTreeSet::new(),
            fences: BTreeMap::new(),
            owner,
            last: None,
            last_bytes: 0,
            was_refused: false,
            repeated: None,
            locations: Locations::default(),
            offers: Offers::default(),
            held: Held::default(),
            begun: Begun::default(),
            done: BTreeMap::new(),
            exits: Exits::default(),
            gone: BTreeSet::new(),
            lost: BTreeSet::new(),
            sent_last: 0,
            is_wanted: false,
            sent_done: 0,
            was_stuck: false,
            was_over: false,
            kill: None,
            step_gone: false,
            step_lost: None,
        }
    }

    /// Recounts which of the job's nodes are among those that are connected at or below this daemon.
    pub(super) fn set_here(&mut self, here: impl Iterator<Item = NodeId>) {
        self.here = here.filter(|node| self.map.has(*node)).collect();
        self.held.look_again();
    }

    /// Records that a node has connected or disconnected. Returns false if it has no ranks of the job.
    pub(super) fn recount(&mut self, node: NodeId, is_here: impl Fn(NodeId) -> bool) -> bool {
        if !self.map.has(node) {
            return false;
        }
        match is_here(node) {
            true => self.here.insert(node),
            false => self.here.remove(&node),
        };
        self.held.on_moved(node);
        true
    }

    /// Returns the job's nodes at or below this daemon that are connected.
    pub(super) fn here(&self) -> &BTreeSet<NodeId> {
        &self.here
    }

    /// Returns whether no node at or below this daemon takes part in the job any more.
    pub(super) fn is_deserted(&self) -> bool {
        !self.is_root && self.here.is_empty()
    }

    /// Forgets what was sent to the parent, because the way up is new: it is sent again.
    pub(super) fn forget_sent(&mut self) {
        (self.sent_last, self.sent_done, self.begun.sent) = (0, 0, 0);
        self.fences.values_mut().for_each(|gathered| gathered.sent = 0);
        self.locations.forget_sent();
        self.held.forget_sent();
        self.is_wanted = false;
    }

    /// Takes a contribution to a fence. Returns the result for a sender that missed it.
    pub(super) fn fence_up(&mut self, fence: FenceUp) -> Option<FenceDown> {
        if let Some(last) = self.last.as_ref().filter(|last| fence.epoch <= last.epoch) {
            // An older fence is a repeat: the last result tells the daemons on the way that both fences are complete.
            return (!fence.has_result).then(|| last.clone());
        }
        let FenceUp { epoch, nodes, batches, can_fetch, batch_nodes, held, is_held, .. } = fence;
        let marks = Marks { can_fetch, batch_nodes, held, is_held };
        self.fences.entry(epoch).or_default().add(nodes, batches, marks);
        None
    }

    /// Takes a contribution of this node's step, which may be any program of the job's user. Returns the result if the step has missed it;
    /// once for each link, because what it does not read would fill this daemon's memory.
    pub(super) fn fence_up_of_step(&mut self, link: LinkId, node: NodeId, fence: FenceUp) -> Option<FenceDown> {
        let epoch = fence.epoch;
        if fence.has_result {
            self.offers.step_has_passed(link, epoch);
        }
        let open = self.fences.iter().filter(|(other, gathered)| **other != epoch && gathered.inside.contains(&node));
        if open.count() >= OPEN_MAX {
            return None;
        }
        let missed = self.fence_up(fence)?;
        let again = (link, missed.epoch);
        (self.repeated.replace(again) != Some(again)).then_some(missed)
    }

    /// Takes a fence's result from above. Returns whether it is news: if not, everything below has it, or will ask for it.
    pub(super) fn fence_down(&mut self, fence: &FenceDown) -> bool {
        self.sent_last = self.sent_last.max(fence.epoch);
        let is_news = self.close_fence(fence);
        if is_news && fence.is_held {
            self.held.on_passed(fence.epoch);
        }
        is_news
    }

    /// Takes in that a link has the results up to this one. Returns a later one that it has missed.
    pub(super) fn passed(&mut self, link: LinkId, epoch: u64) -> Option<FenceDown> {
        self.offers.add(link, epoch);
        self.last.as_ref().filter(|last| last.epoch > epoch).cloned()
    }

    /// Takes in that the parent lacks this result. Returns false if it is not here.
    pub(super) fn want_result(&mut self, epoch: u64) -> bool {
        self.is_wanted = self.last_epoch() >= epoch;
        self.is_wanted
    }

    fn last_epoch(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.epoch)
    }

    fn close_fence(&mut self, fence: &FenceDown) -> bool {
        let is_news = self.last_epoch() < fence.epoch;
        if is_news {
            self.offers.settle();
            self.last = Some(fence.clone());
            self.last_bytes = fence.batches.iter().map(|batch| batch.len() as u64).sum();
            self.fences = match fence.epoch.checked_add(1) {
                Some(next) => self.fences.split_off(&next),
                None => BTreeMap::new(),
            };
        }
        is_news
    }

    /// Returns whose job it is.
    pub(super) fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// Records whose job it is, once that is known.
    pub(super) fn own_by(&mut self, owner: Option<u32>) {
        self.owner = self.owner.or(owner);
    }

    /// Returns the bytes of the results that it keeps.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.last_bytes + self.held.kept_bytes()
    }

    pub(super) fn done(&mut self, done: Done) {
        let fences = done.fences.into_iter().chain(std::iter::repeat(0));
        let usage = done.usage.into_iter().chain(std::iter::repeat(Usage::default()));
        // The first report of a node counts: one that is lost for the job may return.
        let is_news = |rank: u32| self.map.node_of(rank).is_some_and(|node| !self.done.contains_key(&node));
        let all_are_news = !done.nodes.iter().any(|node| self.done.contains_key(node));
        for exit in &done.exits {
            let single =
                |rank| RankExit { rank, more: 0, node: self.map.node_of(rank).unwrap_or(exit.node), ..exit.clone() };
            let news: Vec<RankExit> = match all_are_news {
                true => vec![exit.clone()],
                false => ranks(exit).filter(|rank| is_news(*rank)).map(single).collect(),
            };
            for exit in news {
                self.exits.add(&exit, |rank| self.map.node_of(rank), |_| false);
            }
        }
        for ((node, fence), usage) in done.nodes.into_iter().zip(fences).zip(usage) {
            if fence == NO_FENCE_NEEDS_IT {
                self.lost.insert(node);
            }
            self.done.entry(node).or_insert(Ended { fence, usage });
        }
    }

    /// Records that a node will never report again. Returns false if it has reported the end of its ranks before.
    pub(super) fn lose(&mut self, node: NodeId, loss: Loss) -> bool {
        self.gone.insert(node);
        self.held.look_again();
        if self.is_done(node) {
            return false;
        }
        self.done.entry(node).or_default();
        if loss == Loss::Continues {
            self.lost.insert(node);
        }
        true
    }

    /// Returns the nodes at or below this daemon that have not reported the end of their ranks.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.here.iter().copied().filter(|node| !self.done.contains_key(node))
    }

    pub(super) fn is_done(&self, node: NodeId) -> bool {
        self.done.contains_key(&node)
    }

    /// Returns the next message that can be sent. Must be called after every change, until it returns None. `limits`: on results of fences.
    pub(super) fn advance(&mut self, limits: Limits) -> Option<Ripe> {
        let ripe = self.advance_fence(limits).or_else(|| self.advance_held(limits.room));
        let ripe = ripe.or_else(|| self.advance_locations()).or_else(|| self.advance_begun());
        if ripe.is_some() {
            return ripe;
        }
        if self.is_root {
            let over = !self.was_over && self.all_have_ended();
            self.was_over |= over;
            let usage = || self.done.iter().map(|(node, ended)| (*node, ended.usage)).collect();
            return over.then(|| Ripe::Over { exits: self.exits(), usage: usage() });
        }
        if self.sent_done < self.done.len() && self.all_here_have_spoken(0) {
            self.sent_done = self.done.len();
            let nodes = self.done.keys().copied().collect();
            let fences = self.done.values().map(|ended| ended.fence).collect();
            let usage = self.done.values().map(|ended| ended.usage).collect();
            return Some(Ripe::Done(Done { job: self.job, nodes, exits: self.exits(), fences, usage }));
        }
        None
    }

    /// Records that the ranks of these nodes have all been started.
    pub(super) fn begun(&mut self, nodes: Vec<NodeId>) {
        self.begun.nodes.extend(nodes);
    }

    fn advance_begun(&mut self) -> Option<Ripe> {
        if self.begun.sent == self.begun.nodes.len() {
            return None;
        }
        let has_spoken = |node: &NodeId| self.begun.nodes.contains(node) || self.done.contains_key(node);
        let ripe = match self.is_root {
            true => self.map.nodes().iter().all(has_spoken),
            false => self.here.iter().all(has_spoken),
        };
        if !ripe {
            return None;
        }
        self.begun.sent = self.begun.nodes.len();
        Some(Ripe::Begun(wire::Begun { job: self.job, nodes: self.begun.nodes.iter().copied().collect() }))
    }

    fn needs_no_parent(&self) -> bool {
        self.is_root || self.here.len() == self.map.nodes().len()
    }

    fn advance_held(&mut self, room: u64) -> Option<Ripe> {
        let needs_no_parent = self.needs_no_parent();
        let place = held::Place { job: self.job, nodes: self.map.nodes(), here: &self.here, needs_no_parent };
        // The step of a node whose ranks have ended keeps what they have put until the job is over.
        let is_gone = |node| self.gone.contains(&node) && !self.here.contains(&node);
        let next = self.held.advance(&place, room.saturating_sub(self.last_bytes), is_gone)?;
        Some(match next {
            held::Outgoing::TooLarge { held, bytes } => Ripe::TooLarge { fence: held, bytes },
            next => Ripe::Held(next),
        })
    }

    fn advance_locations(&mut self) -> Option<Ripe> {
        let needs_no_parent = self.needs_no_parent();
        let next =
            self.locations.advance(self.map.nodes(), &self.here, needs_no_parent, |node| self.done.contains_key(&node));
        next.map(|next| match next {
            Outgoing::Up { nodes, ports } => Ripe::Located(Located { job: self.job, nodes, ports }),
            Outgoing::Ask => Ripe::Locate,
            Outgoing::Down { to, ports } => Ripe::Locations { to, ports },
        })
    }

    fn exits(&self) -> Vec<RankExit> {
        self.exits.runs().cloned().collect()
    }

    fn advance_fence(&mut self, limits: Limits) -> Option<Ripe> {
        let total = self.map.nodes().len();
        if let Some(last) = self.last.as_ref().filter(|_| !self.is_root) {
            if std::mem::take(&mut self.is_wanted) {
                let (nodes, batches) = (self.map.nodes().to_vec(), last.batches.clone());
                let (epoch, is_held, held) = (last.epoch, last.is_held, self.held.last());
                let fence = FenceUp { job: self.job, epoch, nodes, batches, has_result: true, ..FenceUp::default() };
                return Some(Ripe::FenceUp(FenceUp { can_fetch: true, held, is_held, ..fence }));
            }
            if last.epoch > self.sent_last && self.here.len() < total {
                self.sent_last = last.epoch;
                return Some(Ripe::Passed { fence: last.epoch });
            }
        }
        if let Some((to, fence)) = self.offers.next(self.last_epoch()) {
            return Some(Ripe::WantResult { to, fence });
        }
        // Several fences are open only if some nodes have missed a result.
        for (&epoch, gathered) in &self.fences {
            let is_in = |node: &NodeId| gathered.inside.contains(node) || self.lost.contains(node);
            if gathered.inside.len() + self.lost.len() >= total && self.map.nodes().iter().all(is_in) {
                return self.turn_around(epoch, limits);
            }
            if self.is_root {
                if let Some(rank) = self.missing_for_good(epoch) {
                    self.was_stuck = true;
                    return Some(Ripe::Stuck { rank, fence: epoch });
                }
            } else if gathered.sent != gathered.inside.len() && self.all_here_have_spoken(epoch) {
                let nodes = gathered.inside.iter().copied().collect();
                let Marks { can_fetch, batch_nodes, held, is_held } = gathered.marks();
                let (job, batches, has_result) = (self.job, gathered.batches(), false);
                let fence = FenceUp { job, epoch, nodes, batches, has_result, can_fetch, batch_nodes, held, is_held };
                self.fences.entry(epoch).and_modify(|gathered| gathered.sent = gathered.inside.len());
                return Some(Ripe::FenceUp(fence));
            }
        }
        None
    }

    /// Completes a fence of which all contributions are here.
    fn turn_around(&mut self, epoch: u64, limits: Limits) -> Option<Ripe> {
        let gathered = self.fences.get(&epoch)?;
        let (job, bytes, marks) = (self.job, gathered.bytes(), gathered.marks());
        let is_labelled = marks.can_fetch && marks.batch_nodes.len() == gathered.batches_len();
        let is_held = marks.is_held || is_labelled && bytes > limits.replicated_max;
        let mut kept = self.held.kept_bytes();
        if bytes + kept > limits.room {
            kept = self.held.tidied_bytes();
        }
        if !marks.is_held && bytes + kept > limits.room {
            let is_news = !std::mem::replace(&mut self.was_refused, true);
            return is_news.then_some(Ripe::TooLarge { fence: epoch, bytes });
        }
        let batches = gathered.batches();
        let fence = match is_held {
            true => FenceDown { job, epoch, batches: Vec::new(), is_held },
            false => FenceDown { job, epoch, batches: batches.clone(), is_held },
        };
        self.close_fence(&fence);
        if is_held {
            let put = |(node, batch)| NodePut { node, epoch, batch };
            let puts = || marks.batch_nodes.into_iter().zip(batches).map(put).collect();
            self.held.on_turned(epoch, marks.held, (!marks.is_held).then(puts));
        }
        Some(Ripe::FenceDown(fence))
    }

    /// Returns the first rank of the nodes that have ended without entering this fence, if all other nodes have entered it.
    fn missing_for_good(&self, epoch: u64) -> Option<u32> {
        if self.was_stuck || self.done.is_empty() || !self.have_spoken(self.map.nodes(), epoch) {
            return None;
        }
        // A node that was in this fence has its result; the daemon that turned it around will send it here.
        let can_miss = |node: &NodeId| !self.lost.contains(node) && !self.is_inside(*node, epoch);
        let missing = self.done.iter().filter(|(node, ended)| ended.fence < epoch && can_miss(node));
        missing.filter_map(|(node, _)| self.map.ranks_on(*node).next()).min()
    }

    fn all_have_ended(&self) -> bool {
        let nodes = self.map.nodes();
        self.done.len() >= nodes.len() && nodes.iter().all(|node| self.done.contains_key(node))
    }

    /// Returns whether every connected node here has ended or is in this open fence, or in a later one, with the result of this
    /// one.
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { room: u64::MAX, replicated_max: u64::MAX };

    fn relay(nodes: &[NodeId]) -> Relay {
        let block = wire::Block { first_node: 0, nodes: nodes.len() as u32, ranks_per_node: 1 };
        let map = wire::TaskMap { nodes: nodes.to_vec(), blocks: vec![block] };
        let mut relay = Relay::new(1, map.try_into().unwrap(), None, true);
        relay.set_here(nodes.iter().copied());
        relay
    }

    fn enter(node: NodeId, epoch: u64) -> FenceUp {
        FenceUp { job: 1, epoch, nodes: vec![node], ..Default::default() }
    }

    #[test]
    fn the_last_of_all_fence_numbers_closes_every_fence() {
        let mut relay = relay(&[7]);
        assert!(relay.fence_up(enter(7, u64::MAX)).is_none());
        assert!(matches!(relay.advance(LIMITS), Some(Ripe::FenceDown(fence)) if fence.epoch == u64::MAX));
        assert!(relay.advance(LIMITS).is_none() && relay.fences.is_empty());
    }

    #[test]
    fn a_large_result_is_held_if_all_steps_can_fetch_from_it() {
        let limits = Limits { replicated_max: 9, ..LIMITS };
        let contribution = |node, epoch, len: usize, can_fetch| {
            let (batches, batch_nodes) = (vec![vec![7; len].into()], vec![node]);
            FenceUp { batches, batch_nodes, can_fetch, ..enter(node, epoch) }
        };
        let mut relay = relay(&[7, 8]);
        for (epoch, len, can_fetch, is_held) in [(1, 4, true, false), (2, 5, true, true), (3, 5, false, false)] {
            relay.fence_up(contribution(7, epoch, len, true));
            relay.fence_up(contribution(8, epoch, len, can_fetch));
            let Some(Ripe::FenceDown(fence)) = relay.advance(limits) else { panic!("the fence is complete") };
            assert_eq!(
                (fence.epoch, fence.is_held, fence.batches.len()),
                (epoch, is_held, if is_held { 0 } else { 2 })
            );
        }
        assert_eq!((relay.held.last(), relay.kept_bytes()), (2, 20));
        // One that comes from a daemon which knows the result says that it was held.
        relay.fence_up(FenceUp { nodes: vec![7, 8], is_held: true, has_result: true, ..enter(7, 4) });
        assert!(matches!(relay.advance(limits), Some(Ripe::FenceDown(FenceDown { epoch: 4, is_held: true, .. }))));
        assert_eq!((relay.held.last(), relay.kept_bytes()), (4, 0), "what was put is collected when a rank gets it");
    }

    #[test]
    fn a_step_keeps_few_fences_open() {
        let mut relay = relay(&[7, 8]);
        for epoch in 5..100 {
            assert!(relay.fence_up_of_step(1, 7, enter(7, epoch)).is_none());
        }
        assert_eq!(relay.fences.keys().copied().collect::<Vec<_>>(), [5, 6, 7]);
        relay.fence_down(&FenceDown { job: 1, epoch: 7, ..Default::default() });
        assert!(relay.fence_up_of_step(1, 7, enter(7, 8)).is_none() && relay.fences.contains_key(&8));
    }

    #[test]
    fn a_step_gets_the_result_that_it_missed_once_for_each_link() {
        let mut relay = relay(&[7, 8]);
        relay.fence_down(&FenceDown { job: 1, epoch: 6, ..Default::default() });
        let mut answered = |link, epoch| relay.fence_up_of_step(link, 7, enter(7, epoch)).is_some();
        assert!(answered(1, 5) && !answered(1, 6) && !answered(1, 6));
        assert!(answered(2, 6) && !answered(2, 6), "it has attached again");
    }
}
