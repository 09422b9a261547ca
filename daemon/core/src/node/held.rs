//! Held results of one job in one daemon: what ranks have put before fences whose results are too large to go to all nodes.
//!
//! The daemon that turns such a fence around keeps the contributions of all nodes, and sends down only that the fence is complete. A step
//! fetches what its ranks get ([`GetHeld`]): the answer has the whole contribution of the node that has put the key, and as much of the next
//! nodes' as the step welcomes. Daemons in between send one request for all that want the same, and keep the answers as long as no later
//! result is held.
//!
//! Nothing of this is on a disk, and daemons end. Steps keep what their ranks have put. A daemon that should have all contributions and
//! does not, because it was restarted or the tree has changed, collects them: it asks the steps, whose answers are merged on the way up. How
//! it knows: each contribution to a fence names the last earlier fence whose result was held. What is lost with a daemon is repeated by the
//! step that waits, over a new link and now and then ([`crate::step`]).
//!
//! Cost: a request costs two messages for each daemon between, at most one for each link and key; a collection 2(N−1) messages.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rsd_proto::v1::{GetHeld, Held as Answer, NodePut, NodeRun, NodesPut};

use super::puts::Puts;
use crate::contract::LinkId;
use crate::{JobId, NodeId};

/// The most requests of a step that are open: one that follows the protocol has [`crate::kvs::ASKED_MAX`].
const OF_STEP_MAX: usize = 4 * crate::kvs::ASKED_MAX;
/// How many absent keys a daemon remembers for a job, and the longest of them.
const ABSENT_MAX: usize = 1024;
const ABSENT_KEY_MAX: usize = 256;
/// The longest answer to one request, apart from a single contribution.
const WELCOME_MAX: u32 = crate::kvs::READ_AHEAD_MAX as u32;

/// The held results of a job, or a part of them.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The number of the last fence whose result was held, as this daemon knows; 0: none.
    last: u64,
    puts: Puts,
    /// Whether `puts` has the contributions of all nodes to all fences up to `last`. Otherwise these are answers that have passed here.
    is_all: bool,
    /// Keys that no held result up to `last` has, as answers have said.
    absent: BTreeSet<Bytes>,
    /// From how many bytes on superseded values are removed.
    tidy_at: u64,
    wants: BTreeMap<Wanted, Want>,
    /// The requests that are to be looked at; and whether all are, and the collection.
    open: BTreeSet<Wanted>,
    reopens: bool,
    rechecks: bool,
    /// All links that have ever sent a request.
    links: BTreeSet<LinkId>,
    collecting: Option<Collecting>,
}

/// What is requested: a key, or all keys from a node on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    key: Bytes,
    from: NodeId,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Want {
    held: u64,
    welcome: u32,
    known: Vec<NodeRun>,
    links: BTreeSet<LinkId>,
    is_sent: bool,
}

/// The contributions that steps have sent again.
#[derive(Debug)]
struct Collecting {
    held: u64,
    /// Whether the parent has requested them.
    for_parent: bool,
    have: BTreeSet<NodeId>,
    puts: Vec<NodePut>,
    bytes: u64,
    asked: BTreeSet<NodeId>,
    /// Whether an order or an answer may have been lost.
    again: bool,
}

/// The place of this daemon in the job.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) job: JobId,
    /// All nodes of the job, and those at and below this daemon that are connected.
    pub(super) nodes: &'a [NodeId],
    pub(super) here: &'a BTreeSet<NodeId>,
    pub(super) needs_no_parent: bool,
}

/// A message to send.
#[derive(Debug, PartialEq)]
pub(super) enum Outgoing {
    /// To these links.
    Answer { to: BTreeSet<LinkId>, answer: Answer },
    /// To the parent.
    Ask(GetHeld),
    /// Towards these nodes: send what your ranks have put before fences up to this one.
    Collect { nodes: BTreeSet<NodeId>, held: u64, again: bool },
    /// To the parent.
    Collected(NodesPut),
    /// Nothing: the job's contributions have more bytes than this daemon keeps for its user.
    TooLarge { held: u64, bytes: u64 },
}

impl Held {
    /// Returns the number of the last fence whose result was held.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the bytes of the contributions that are kept because no other daemon has them all.
    pub(super) fn kept_bytes(&self) -> u64 {
        if self.is_all { self.puts.bytes() } else { 0 }
    }

    /// Returns the bytes of the answers that are kept.
    pub(super) fn cached_bytes(&self) -> u64 {
        if self.is_all { 0 } else { self.puts.bytes() }
    }

    /// Returns the bytes that are kept after the superseded values were removed.
    pub(super) fn tidied_bytes(&mut self) -> u64 {
        if self.is_all {
            self.puts.tidy();
        }
        self.kept_bytes()
    }

    /// Takes in that this daemon has turned a fence around, whose result is held. `before`: the last earlier fence whose result was held.
    /// `puts`: the contributions to this one; None: they are not known here.
    pub(super) fn on_turned(&mut self, fence: u64, before: u64, puts: Option<Vec<NodePut>>) {
        if fence <= self.last {
            return; // it was collected, or known from an answer
        }
        let was_all = before == 0 || self.is_all && self.last == before;
        match puts.filter(|_| was_all) {
            Some(puts) => {
                if before == 0 {
                    (self.puts, self.tidy_at) = (Puts::default(), 0);
                }
                puts.into_iter().for_each(|put| self.puts.add(put));
                // Ranks that put the same keys before each fence do not fill this daemon.
                if self.puts.bytes() > self.tidy_at {
                    if before > 0 {
                        self.puts.tidy();
                    }
                    self.tidy_at = 2 * self.puts.bytes();
                }
                (self.last, self.is_all) = (fence, true);
                self.collecting = None;
                self.look_again();
            }
            None => self.on_passed(fence),
        }
    }

    /// Takes in that the result of a fence is held by another daemon.
    pub(super) fn on_passed(&mut self, fence: u64) {
        if fence <= self.last {
            return;
        }
        self.last = fence;
        self.drop_puts();
        self.collecting = None;
        self.look_again();
    }

    /// Takes in that the nodes at and below this daemon have changed.
    pub(super) fn look_again(&mut self) {
        (self.reopens, self.rechecks) = (true, true);
    }

    /// Forgets contributions that other daemons or steps have.
    pub(super) fn drop_puts(&mut self) {
        (self.puts, self.is_all) = (Puts::default(), false);
        self.absent.clear();
    }

    // --- requests ---

    /// Takes a request that has arrived over this link.
    pub(super) fn want(&mut self, link: LinkId, get: GetHeld, of_step: bool) {
        let wanted = Wanted { key: get.key, from: get.from };
        let is_new = !self.wants.get(&wanted).is_some_and(|want| want.links.contains(&link));
        if is_new && of_step && self.wants.values().filter(|want| want.links.contains(&link)).count() >= OF_STEP_MAX {
            return;
        }
        self.links.insert(link);
        let want = self.wants.entry(wanted.clone()).or_insert_with(|| Want {
            held: 0,
            welcome: 0,
            known: Vec::new(),
            links: BTreeSet::new(),
            is_sent: false,
        });
        if !want.links.insert(link) {
            // The one that waits repeats it: a message may have been lost.
            want.is_sent = false;
            if let Some(collecting) = &mut self.collecting {
                collecting.ask_again();
                self.rechecks = true;
            }
        }
        // The first of those that want the same decides how much is read ahead, unless a later one needs a later result.
        if get.held > want.held {
            (want.held, want.welcome, want.is_sent) = (get.held, get.welcome_bytes.min(WELCOME_MAX), false);
            want.known = get.known;
        }
        self.open.insert(wanted);
    }

    /// Forgets a closed link: the steps behind it repeat their requests over another one.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.links.remove(&link);
        self.wants.retain(|_, want| {
            want.links.remove(&link);
            !want.links.is_empty()
        });
    }

    /// Returns the links that have sent requests.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.links.iter().copied()
    }

    /// Handles the parent's answer. Returns the links that wait for it. `room`: how many bytes of answers may be kept.
    pub(super) fn answered(&mut self, answer: &Answer, room: u64) -> BTreeSet<LinkId> {
        let wanted = Wanted { key: answer.key.clone(), from: answer.from };
        if answer.held >= self.last && !self.is_all {
            let bytes: u64 = answer.puts.iter().map(|put| put.batch.len() as u64).sum();
            if answer.held > self.last || self.puts.bytes() + bytes > room {
                self.drop_puts();
            }
            self.last = answer.held;
            if answer.puts.is_empty() && !answer.key.is_empty() && answer.key.len() <= ABSENT_KEY_MAX {
                if self.absent.len() >= ABSENT_MAX {
                    self.absent.clear();
                }
                self.absent.insert(answer.key.clone());
            }
            if bytes <= room {
                answer.puts.iter().for_each(|put| self.puts.add(put.clone()));
            }
        }
        match self.wants.get(&wanted).is_some_and(|want| want.held <= answer.held) {
            true => self.wants.remove(&wanted).map(|want| want.links).unwrap_or_default(),
            false => BTreeSet::new(),
        }
    }

    // --- collections ---

    /// Handles the parent's order to collect what steps have put.
    pub(super) fn collect(&mut self, held: u64, again: bool) {
        let collecting = self.collecting.get_or_insert_with(|| Collecting::of(held));
        if collecting.held < held {
            *collecting = Collecting::of(held);
        }
        collecting.for_parent = true;
        if again {
            collecting.ask_again();
        }
        self.rechecks = true;
    }

    /// Takes in what ranks of these nodes have put.
    pub(super) fn add(&mut self, put: NodesPut) {
        let Some(collecting) = self.collecting.as_mut().filter(|it| it.held <= put.held) else { return };
        let news: BTreeSet<NodeId> = put.nodes.into_iter().filter(|node| !collecting.have.contains(node)).collect();
        let puts = put.puts.into_iter().filter(|put| news.contains(&put.node));
        for put in puts {
            collecting.bytes += put.batch.len() as u64;
            collecting.puts.push(put);
        }
        collecting.have.extend(news);
        self.rechecks = true;
    }

    /// Takes in that the way to these nodes, or this node's own step, has changed.
    pub(super) fn on_moved(&mut self, node: NodeId) {
        if let Some(collecting) = &mut self.collecting {
            collecting.asked.remove(&node);
        }
        self.look_again();
    }

    /// Forgets what was sent to the parent, because the way up is new: a new parent asks itself.
    pub(super) fn forget_sent(&mut self) {
        self.wants.values_mut().for_each(|want| want.is_sent = false);
        self.look_again();
        if let Some(collecting) = &mut self.collecting {
            collecting.for_parent = false;
            collecting.asked.clear();
        }
    }

    // --- what follows ---

    /// Returns the next message to send. `is_gone`: whether a node is lost for good. `room`: how many bytes may be kept.
    pub(super) fn advance(
        &mut self,
        place: &Place<'_>,
        room: u64,
        is_gone: impl Fn(NodeId) -> bool,
    ) -> Option<Outgoing> {
        loop {
            if std::mem::take(&mut self.reopens) {
                self.open.extend(self.wants.keys().cloned());
            }
            while let Some(wanted) = self.open.pop_first() {
                let next = self.look_at(place, &wanted);
                if next.is_some() {
                    return next;
                }
            }
            if !std::mem::take(&mut self.rechecks) {
                return None;
            }
            let next = self.go_on_collecting(place, room, &is_gone);
            self.rechecks = next.is_some();
            if next.is_some() || self.open.is_empty() && !self.reopens {
                return next;
            }
        }
    }

    /// Answers a request, passes it on, or keeps it until all contributions are here.
    fn look_at(&mut self, place: &Place<'_>, wanted: &Wanted) -> Option<Outgoing> {
        let want = self.wants.get_mut(wanted)?;
        if want.held <= self.last {
            let welcome = want.welcome.into();
            let found = match (wanted.key.is_empty(), self.is_all) {
                (true, true) => Some(self.puts.from(wanted.from, welcome)),
                (true, false) => None,
                (false, true) => Some((self.puts.with(&wanted.key, welcome, &want.known).unwrap_or_default(), None)),
                (false, false) if self.absent.contains(&wanted.key) => Some((Vec::new(), None)),
                (false, false) => self.puts.with(&wanted.key, welcome, &want.known).map(|puts| (puts, None)),
            };
            if let Some((puts, next)) = found {
                let Wanted { key, from } = wanted.clone();
                let answer = Answer { job: place.job, held: self.last, key, from, puts, next };
                let to = self.wants.remove(wanted).map(|want| want.links).unwrap_or_default();
                return Some(Outgoing::Answer { to, answer });
            }
        }
        if !place.needs_no_parent {
            if std::mem::replace(&mut want.is_sent, true) {
                return None;
            }
            let (held, welcome_bytes, known) = (want.held, want.welcome, want.known.clone());
            let Wanted { key, from } = wanted.clone();
            return Some(Outgoing::Ask(GetHeld { job: place.job, held, key, from, welcome_bytes, known }));
        }
        let held = want.held.max(self.last);
        if self.collecting.as_ref().is_none_or(|collecting| collecting.held < held) {
            let for_parent = self.collecting.as_ref().is_some_and(|collecting| collecting.for_parent);
            self.collecting = Some(Collecting { for_parent, ..Collecting::of(held) });
            self.rechecks = true;
        }
        None
    }

    fn go_on_collecting(
        &mut self,
        place: &Place<'_>,
        room: u64,
        is_gone: &impl Fn(NodeId) -> bool,
    ) -> Option<Outgoing> {
        let collecting = self.collecting.as_mut()?;
        if !collecting.for_parent && (!place.needs_no_parent || self.wants.is_empty()) {
            self.collecting = None; // another daemon has all nodes now, or those that have asked are gone
            return None;
        }
        let missing = |node: &&NodeId| !collecting.have.contains(*node);
        let nodes: BTreeSet<NodeId> =
            place.here.iter().filter(missing).copied().filter(|node| !collecting.asked.contains(node)).collect();
        if !nodes.is_empty() {
            collecting.asked.extend(&nodes);
            let again = std::mem::take(&mut collecting.again);
            return Some(Outgoing::Collect { nodes, held: collecting.held, again });
        }
        let for_self = place.needs_no_parent && !self.wants.is_empty();
        let is_missing = match for_self {
            true => place.nodes.iter().any(|node| !collecting.have.contains(node) && !is_gone(*node)),
            false => place.here.iter().any(|node| !collecting.have.contains(node)),
        };
        if is_missing {
            return None;
        }
        let Collecting { held, for_parent, have, puts, bytes, .. } = self.collecting.take()?;
        if for_self {
            if bytes > room {
                self.wants.clear();
                return Some(Outgoing::TooLarge { held, bytes });
            }
            self.puts = Puts::default();
            puts.iter().for_each(|put| self.puts.add(put.clone()));
            (self.last, self.is_all) = (held, true);
            self.open.extend(self.wants.keys().cloned());
        }
        let nodes = have.into_iter().collect();
        for_parent.then(|| Outgoing::Collected(NodesPut { job: place.job, held, nodes, puts }))
    }
}

impl Collecting {
    fn of(held: u64) -> Collecting {
        Collecting {
            held,
            for_parent: false,
            have: BTreeSet::new(),
            puts: Vec::new(),
            bytes: 0,
            asked: BTreeSet::new(),
            again: false,
        }
    }

    fn ask_again(&mut self) {
        self.asked.clear();
        self.again = true;
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use rsd_proto::v1::{Kv, KvBatch};

    use super::*;

    const NODES: [NodeId; 3] = [1, 2, 3];

    fn put(node: NodeId, epoch: u64) -> NodePut {
        let kv = Kv { key: format!("k{node}").into(), value: format!("{epoch}").into() };
        NodePut { node, epoch, batch: KvBatch { entries: vec![kv] }.encode_to_vec().into() }
    }

    fn get(held: u64, key: &str) -> GetHeld {
        GetHeld { job: 1, held, key: key.to_owned().into(), ..GetHeld::default() }
    }

    /// Everything that follows, at the top of the job or below it.
    fn next(held: &mut Held, is_top: bool, here: &[NodeId]) -> Vec<Outgoing> {
        let here = here.iter().copied().collect();
        let place = Place { job: 1, nodes: &NODES, here: &here, needs_no_parent: is_top };
        std::iter::from_fn(|| held.advance(&place, 1000, |_| false)).collect()
    }

    fn answer(to: &[LinkId], held: u64, key: &str, puts: Vec<NodePut>) -> Outgoing {
        let answer = Answer { job: 1, held, key: key.to_owned().into(), from: 0, puts, next: None };
        Outgoing::Answer { to: to.iter().copied().collect(), answer }
    }

    fn collected(nodes: &[NodeId], held: u64) -> NodesPut {
        let puts = nodes.iter().map(|node| put(*node, held)).collect();
        NodesPut { job: 1, held, nodes: nodes.to_vec(), puts }
    }

    #[test]
    fn the_daemon_that_has_turned_a_fence_around_answers() {
        let mut held = Held::default();
        held.on_turned(2, 0, Some(NODES.map(|node| put(node, 2)).into()));
        held.want(7, get(2, "k3"), false);
        held.want(8, get(2, "k3"), false);
        held.want(8, get(2, "none"), false);
        let answers = [answer(&[7, 8], 2, "k3", vec![put(3, 2)]), answer(&[8], 2, "none", vec![])];
        assert_eq!(next(&mut held, true, &NODES), answers);
        // The next one adds to it.
        held.on_turned(5, 2, Some(vec![put(1, 5)]));
        ["k1", "k2"].into_iter().for_each(|key| held.want(7, get(5, key), false));
        let answers = [answer(&[7], 5, "k1", vec![put(1, 5)]), answer(&[7], 5, "k2", vec![put(2, 2)])];
        assert_eq!(next(&mut held, true, &NODES), answers);
    }

    #[test]
    fn what_is_missing_is_collected_once_and_asked_for_again_where_the_way_has_changed() {
        let mut held = Held::default();
        // It has not heard of the first held fence.
        held.on_turned(5, 2, Some(vec![put(1, 5)]));
        assert_eq!((held.kept_bytes(), next(&mut held, true, &NODES)), (0, vec![]));
        held.want(7, get(5, "k3"), false);
        let collect =
            |nodes: &[NodeId]| Outgoing::Collect { nodes: nodes.iter().copied().collect(), held: 5, again: false };
        assert_eq!(next(&mut held, true, &[1, 2]), [collect(&[1, 2])]);
        held.add(collected(&[1], 5));
        held.want(8, get(5, "k1"), false);
        assert_eq!(next(&mut held, true, &[1, 2]), [], "nodes 2 and 3 are missing");
        held.on_moved(2);
        held.on_moved(3);
        assert_eq!(next(&mut held, true, &NODES), [collect(&[2, 3])]);
        held.add(collected(&[1, 2], 4));
        held.add(collected(&[2, 3], 5));
        let answers = [answer(&[8], 5, "k1", vec![put(1, 5)]), answer(&[7], 5, "k3", vec![put(3, 5)])];
        assert_eq!(next(&mut held, true, &NODES), answers);
        assert!(held.kept_bytes() > 0 && held.collecting.is_none());
    }

    #[test]
    fn a_daemon_between_asks_once_for_a_key_and_keeps_the_answer() {
        let mut held = Held::default();
        held.on_passed(5);
        [7, 8].into_iter().for_each(|link| held.want(link, get(5, "k3"), false));
        assert_eq!(next(&mut held, false, &[1]), [Outgoing::Ask(get(5, "k3"))]);
        held.want(9, get(5, "k3"), false);
        assert_eq!(next(&mut held, false, &[1]), []);
        held.forget_link(8);
        held.want(7, get(5, "k3"), false);
        assert_eq!(next(&mut held, false, &[1]), [Outgoing::Ask(get(5, "k3"))], "it is repeated");
        held.forget_sent();
        assert_eq!(next(&mut held, false, &[1]), [Outgoing::Ask(get(5, "k3"))], "the way up is new");
        let Outgoing::Answer { answer: of_parent, .. } = answer(&[], 5, "k3", vec![put(3, 5)]) else { return };
        assert_eq!(held.answered(&of_parent, 1000), [7, 9].into());
        held.want(8, get(5, "k3"), false);
        assert_eq!(next(&mut held, false, &[1]), [answer(&[8], 5, "k3", vec![put(3, 5)])]);
        // A later held result may have another value.
        held.on_passed(6);
        held.want(8, get(6, "k3"), false);
        assert_eq!(next(&mut held, false, &[1]), [Outgoing::Ask(get(6, "k3"))]);
        assert_eq!(held.answered(&of_parent, 1000), [].into(), "a late answer");
    }

    #[test]
    fn a_daemon_between_merges_what_the_nodes_below_it_have_put() {
        let mut held = Held::default();
        held.collect(5, false);
        let collect = |again| Outgoing::Collect { nodes: [1, 2].into(), held: 5, again };
        assert_eq!(next(&mut held, false, &[1, 2]), [collect(false)]);
        held.collect(5, false);
        assert_eq!(next(&mut held, false, &[1, 2]), []);
        held.collect(5, true);
        assert_eq!(next(&mut held, false, &[1, 2]), [collect(true)]);
        held.add(collected(&[2], 5));
        assert_eq!(next(&mut held, false, &[1, 2]), []);
        held.add(collected(&[1], 5));
        let mut merged = collected(&[1, 2], 5);
        merged.puts.reverse();
        assert_eq!(next(&mut held, false, &[1, 2]), [Outgoing::Collected(merged)]);
        held.add(collected(&[1], 5));
        assert_eq!((next(&mut held, false, &[1, 2]), held.kept_bytes()), (vec![], 0));
    }

    #[test]
    fn the_requests_of_a_step_and_what_is_kept_are_bounded() {
        let mut held = Held::default();
        held.on_passed(1);
        (0..1000).for_each(|key| held.want(7, get(1, &format!("key {key}")), true));
        assert_eq!((held.wants.len(), next(&mut held, false, &[1]).len()), (OF_STEP_MAX, OF_STEP_MAX));
        let Outgoing::Answer { answer, .. } = answer(&[], 1, "key 1", NODES.map(|node| put(node, 1)).into()) else {
            return;
        };
        let len = put(1, 1).batch.len() as u64;
        held.answered(&answer, 3 * len - 1);
        assert_eq!(held.cached_bytes(), 0);
        held.answered(&answer, 3 * len);
        assert_eq!(held.cached_bytes(), 3 * len);
        // What is collected has the limit of a result.
        let mut held = Held::default();
        held.want(7, get(1, "k1"), false);
        assert_eq!(next(&mut held, true, &NODES).len(), 1);
        let batch = Bytes::from(vec![0; 2000]);
        held.add(NodesPut { puts: vec![NodePut { node: 1, epoch: 1, batch }], ..collected(&NODES, 1) });
        assert_eq!(next(&mut held, true, &NODES), [Outgoing::TooLarge { held: 1, bytes: 2000 }]);
    }
}
