//! Where the ranks of one job listen, as one daemon of the tree keeps it: gathered on the way up, handed down to who asks.
//!
//! Every step says it once, after it has started its ranks. It is gathered like a fence, as facts about nodes that stay
//! true for ever ([`Gathered`]), but nobody waits for it. A step asks when one of its ranks wants to know; the first daemon
//! on the way up that knows of everyone answers, as soon as it does, and whoever passes the answer on keeps it for the
//! next. What has been said and asked is kept by the steps, which say it again when the way up is new.
//!
//! Cost: one message up per node; then, once, one up and one down for each link from the daemon that knows to those that ask.
//! The answer has 2 to 3 bytes per rank and some 20 per node.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::NodeId;
use crate::node::relay::Gathered;
use crate::rsd::LinkId;

/// What is known, and who wants to know it.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    known: Gathered,
    /// Children and steps that wait for the answer.
    asking: BTreeSet<LinkId>,
    /// The parent was asked.
    asked: bool,
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To the parent: where the ranks of these nodes listen.
    Up { nodes: Vec<NodeId>, ports: Vec<Bytes> },
    /// To the parent: somebody wants to know.
    Ask,
    /// To those who have asked: everything.
    Down { to: BTreeSet<LinkId>, ports: Vec<Bytes> },
}

impl Locations {
    /// A fact from below.
    pub(crate) fn add(&mut self, nodes: Vec<NodeId>, ports: Vec<Bytes>) {
        self.known.add(nodes, ports);
    }

    /// The answer from above, which is about all nodes of the job.
    pub(crate) fn on_answer(&mut self, nodes: &[NodeId], ports: Vec<Bytes>) {
        self.known.add(nodes.to_vec(), ports);
        self.known.sent = self.known.inside.len();
    }

    /// Somebody wants to know.
    pub(crate) fn ask(&mut self, link: LinkId) {
        self.asking.insert(link);
    }

    /// Who has asked over this link is gone, or asks again elsewhere.
    pub(crate) fn forget_link(&mut self, link: LinkId) {
        self.asking.remove(&link);
    }

    /// The way up is new.
    pub(crate) fn forget_sent(&mut self) {
        (self.known.sent, self.asked) = (0, false);
    }

    /// What is ripe in a job on `nodes`, of which `here` are at or below this daemon. Who has ended says no more.
    pub(crate) fn advance(
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
    fn facts_go_up_together_and_the_answer_is_kept_for_the_next() {
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
    fn a_node_that_has_ended_is_not_waited_for() {
        let (nodes, here) = ([1, 2], BTreeSet::from([1, 2]));
        let mut locations = Locations::default();
        locations.add(vec![1], ports(1));
        locations.ask(7);
        assert_eq!(locations.advance(&nodes, &here, true, none_has_ended), None);
        let told = locations.advance(&nodes, &here, true, |node| node == 2);
        assert_eq!(told, Some(Told::Down { to: BTreeSet::from([7]), ports: ports(1) }));
    }

    #[test]
    fn over_a_new_way_up_all_is_said_and_asked_again() {
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
