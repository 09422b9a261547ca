//! Where the ranks of one job listen, as one daemon of the tree keeps it: gathered on the way up, handed down on request.
//!
//! Every step reports it once, after it has started its ranks. It is gathered like a fence, as facts about nodes that stay true for
//! ever ([`Gathered`]), but no rank waits for it. A step asks when one of its ranks wants to know; the first daemon on the way up
//! that knows all nodes answers, as soon as it does, and every daemon that passes the answer on keeps it for the next request.
//! Steps keep what they have reported and asked, and send it again when the way up is new.
//!
//! Cost: one message up per node; then, once, one up and one down for each link from the daemon that knows to those that ask.
//! The answer has 2 to 3 bytes per rank and some 20 per node.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::gathered::Gathered;
use crate::NodeId;
use crate::contract::LinkId;

/// What is known, and the links over which it was requested.
#[derive(Debug, Default)]
pub(super) struct Locations {
    known: Gathered,
    /// Children and steps that wait for the answer.
    asking: BTreeSet<LinkId>,
    /// The parent was asked.
    asked: bool,
}

/// A message to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To the parent: where the ranks of these nodes listen.
    Up { nodes: Vec<NodeId>, ports: Vec<Bytes> },
    /// To the parent: a rank below wants to know.
    Ask,
    /// To the links that have asked: where all ranks listen.
    Down { to: BTreeSet<LinkId>, ports: Vec<Bytes> },
}

impl Locations {
    /// A fact from below.
    pub(super) fn add(&mut self, nodes: Vec<NodeId>, ports: Vec<Bytes>) {
        self.known.add(nodes, ports);
    }

    /// The answer from above, which is about all nodes of the job.
    pub(super) fn on_answer(&mut self, nodes: &[NodeId], ports: Vec<Bytes>) {
        self.known.add(nodes.to_vec(), ports);
        self.known.sent = self.known.inside.len();
    }

    /// It was requested over this link.
    pub(super) fn ask(&mut self, link: LinkId) {
        self.asking.insert(link);
    }

    /// This link is closed: the steps behind it ask again elsewhere.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.asking.remove(&link);
    }

    /// The links that have asked.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.asking.iter().copied()
    }

    /// The way up is new.
    pub(super) fn forget_sent(&mut self) {
        (self.known.sent, self.asked) = (0, false);
    }

    /// Returns what can be sent in a job on `nodes`, of which `here` are at or below this daemon. Nodes that have ended report no
    /// more.
    pub(super) fn advance(
        &mut self,
        nodes: &[NodeId],
        here: &BTreeSet<NodeId>,
        needs_no_parent: bool,
        has_ended: impl Fn(NodeId) -> bool,
    ) -> Option<Told> {
        let news = !needs_no_parent && self.known.sent != self.known.inside.len();
        if !news && self.asking.is_empty() {
            return None;
        }
        let has_spoken = |node: &NodeId| self.known.inside.contains(node) || has_ended(*node);
        if !self.asking.is_empty() && nodes.iter().all(has_spoken) {
            return Some(Told::Down { to: std::mem::take(&mut self.asking), ports: self.known.batches() });
        }
        if news && here.iter().all(has_spoken) {
            self.known.sent = self.known.inside.len();
            return Some(Told::Up { nodes: self.known.inside.iter().copied().collect(), ports: self.known.batches() });
        }
        if !self.asking.is_empty() && !self.asked && !needs_no_parent {
            self.asked = true;
            return Some(Told::Ask);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(node: NodeId) -> Vec<Bytes> {
        vec![Bytes::from(vec![node as u8])]
    }

    fn none_has_ended(_: NodeId) -> bool {
        false
    }

    #[test]
    fn reports_are_forwarded_together_and_the_answer_is_kept() {
        let (nodes, here) = ([1, 2, 3], BTreeSet::from([2, 3]));
        let mut locations = Locations::default();
        locations.add(vec![3], ports(3));
        locations.ask(7);
        let advance = |locations: &mut Locations| locations.advance(&nodes, &here, false, none_has_ended);
        assert_eq!(advance(&mut locations), Some(Told::Ask));
        assert_eq!(advance(&mut locations), None, "node 2 has not spoken");
        locations.add(vec![2], ports(2));
        let up = Told::Up { nodes: vec![2, 3], ports: [ports(3), ports(2)].concat() };
        assert_eq!(advance(&mut locations), Some(up));
        assert_eq!(advance(&mut locations), None, "it was said and asked");
        locations.on_answer(&nodes, [ports(1), ports(2), ports(3)].concat());
        let all = [ports(1), ports(2), ports(3)].concat();
        assert_eq!(advance(&mut locations), Some(Told::Down { to: BTreeSet::from([7]), ports: all.clone() }));
        locations.ask(8);
        locations.ask(9);
        locations.forget_link(9);
        assert_eq!(advance(&mut locations), Some(Told::Down { to: BTreeSet::from([8]), ports: all }));
    }

    #[test]
    fn no_answer_waits_for_a_node_that_has_ended() {
        let (nodes, here) = ([1, 2], BTreeSet::from([1, 2]));
        let mut locations = Locations::default();
        locations.add(vec![1], ports(1));
        locations.ask(7);
        assert_eq!(locations.advance(&nodes, &here, true, none_has_ended), None);
        let told = locations.advance(&nodes, &here, true, |node| node == 2);
        assert_eq!(told, Some(Told::Down { to: BTreeSet::from([7]), ports: ports(1) }));
    }

    #[test]
    fn reports_and_requests_are_repeated_over_a_new_parent_link() {
        let (nodes, here) = ([1, 2], BTreeSet::from([2]));
        let mut locations = Locations::default();
        locations.add(vec![2], ports(2));
        locations.ask(7);
        for _ in 0..2 {
            let told: Vec<Told> =
                std::iter::from_fn(|| locations.advance(&nodes, &here, false, none_has_ended)).collect();
            assert_eq!(told, [Told::Up { nodes: vec![2], ports: ports(2) }, Told::Ask]);
            locations.forget_sent();
        }
    }
}
