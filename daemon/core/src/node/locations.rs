//! Where the ranks of one job listen: reports gathered on the way up, and answers sent down on request.
//!
//! Every step reports once, after it has started its ranks. Reports are gathered like a fence, as facts about nodes that stay
//! true ([`Gathered`]), but no rank waits for them. A step asks when one of its ranks wants an address. The first daemon on the
//! way up that knows all nodes answers as soon as it does, and every daemon that forwards the answer keeps it for later requests.
//! Steps keep their reports and requests, and send them again when the way up is new.
//!
//! Cost: one message up per node; then, once, one up and one down for each link from the daemon that answers to the steps that
//! ask. The answer has 2 to 3 bytes per rank and about 20 per node.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::gathered::{Gathered, Marks};
use crate::NodeId;
use crate::contract::LinkId;

/// The reports, and the links that requested the answer.
#[derive(Debug, Default)]
pub(super) struct Locations {
    known: Gathered,
    /// The children and steps that wait for the answer.
    asking: BTreeSet<LinkId>,
    /// Whether the parent was asked.
    asked: bool,
}

/// A message to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outgoing {
    /// To the parent: where the ranks of these nodes listen.
    Up { nodes: Vec<NodeId>, ports: Vec<Bytes> },
    /// To the parent: request where all ranks listen.
    Ask,
    /// To the links that asked: where all ranks listen.
    Down { to: BTreeSet<LinkId>, ports: Vec<Bytes> },
}

impl Locations {
    /// Takes a report from below.
    pub(super) fn add(&mut self, nodes: Vec<NodeId>, ports: Vec<Bytes>) {
        self.known.add(nodes, ports, Marks::default());
    }

    /// Takes the answer from above, which covers all nodes of the job.
    pub(super) fn on_answer(&mut self, nodes: &[NodeId], ports: Vec<Bytes>) {
        self.known.add(nodes.to_vec(), ports, Marks::default());
        self.known.sent = self.known.inside.len();
    }

    /// Takes a request that arrived over this link.
    pub(super) fn ask(&mut self, link: LinkId) {
        self.asking.insert(link);
    }

    /// Forgets a closed link: the steps behind it ask again over another link.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.asking.remove(&link);
    }

    /// Returns the links that have asked.
    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.asking.iter().copied()
    }

    /// Forgets what was sent to the parent, because the way up is new.
    pub(super) fn forget_sent(&mut self) {
        (self.known.sent, self.asked) = (0, false);
    }

    /// Returns the next message to send for a job on `nodes`, of which `here` are at or below this daemon. `has_ended` identifies
    /// nodes that have ended and will not report.
    pub(super) fn advance(
        &mut self,
        nodes: &[NodeId],
        here: &BTreeSet<NodeId>,
        needs_no_parent: bool,
        has_ended: impl Fn(NodeId) -> bool,
    ) -> Option<Outgoing> {
        let news = !needs_no_parent && self.known.sent != self.known.inside.len();
        if !news && self.asking.is_empty() {
            return None;
        }
        let has_spoken = |node: &NodeId| self.known.inside.contains(node) || has_ended(*node);
        if !self.asking.is_empty() && nodes.iter().all(has_spoken) {
            return Some(Outgoing::Down { to: std::mem::take(&mut self.asking), ports: self.known.batches() });
        }
        if news && here.iter().all(has_spoken) {
            self.known.sent = self.known.inside.len();
            return Some(Outgoing::Up {
                nodes: self.known.inside.iter().copied().collect(),
                ports: self.known.batches(),
            });
        }
        if !self.asking.is_empty() && !self.asked && !needs_no_parent {
            self.asked = true;
            return Some(Outgoing::Ask);
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
        assert_eq!(advance(&mut locations), Some(Outgoing::Ask));
        assert_eq!(advance(&mut locations), None, "node 2 has not reported");
        locations.add(vec![2], ports(2));
        let up = Outgoing::Up { nodes: vec![2, 3], ports: [ports(3), ports(2)].concat() };
        assert_eq!(advance(&mut locations), Some(up));
        assert_eq!(advance(&mut locations), None, "the report and the request were sent");
        locations.on_answer(&nodes, [ports(1), ports(2), ports(3)].concat());
        let all = [ports(1), ports(2), ports(3)].concat();
        assert_eq!(advance(&mut locations), Some(Outgoing::Down { to: BTreeSet::from([7]), ports: all.clone() }));
        locations.ask(8);
        locations.ask(9);
        locations.forget_link(9);
        assert_eq!(advance(&mut locations), Some(Outgoing::Down { to: BTreeSet::from([8]), ports: all }));
    }

    #[test]
    fn the_answer_does_not_wait_for_a_node_that_has_ended() {
        let (nodes, here) = ([1, 2], BTreeSet::from([1, 2]));
        let mut locations = Locations::default();
        locations.add(vec![1], ports(1));
        locations.ask(7);
        assert_eq!(locations.advance(&nodes, &here, true, none_has_ended), None);
        let next = locations.advance(&nodes, &here, true, |node| node == 2);
        assert_eq!(next, Some(Outgoing::Down { to: BTreeSet::from([7]), ports: ports(1) }));
    }

    #[test]
    fn reports_and_requests_are_repeated_over_a_new_parent_link() {
        let (nodes, here) = ([1, 2], BTreeSet::from([2]));
        let mut locations = Locations::default();
        locations.add(vec![2], ports(2));
        locations.ask(7);
        for _ in 0..2 {
            let next: Vec<Outgoing> =
                std::iter::from_fn(|| locations.advance(&nodes, &here, false, none_has_ended)).collect();
            assert_eq!(next, [Outgoing::Up { nodes: vec![2], ports: ports(2) }, Outgoing::Ask]);
            locations.forget_sent();
        }
    }
}
