//! Tells the ranks of a job that continues after the loss of nodes which ranks are lost, if their MPI library has asked for it.

use rsd_proto::pmi::losses::RANGES_MAX;
use rsd_proto::pmi::v1::Reply as Line;
use rsd_proto::ranges;
use rsd_proto::v1 as wire;

use super::dialect::{Asker, By, Reply};
use super::pmi1;
use super::{Effect, Local, Phase, Step};
use crate::NodeId;

impl Step {
    pub(super) fn on_nodes_lost(&mut self, lost: &wire::NodesLost, out: &mut Vec<Effect>) {
        let here = self.node;
        for node in lost.nodes.iter().copied().filter(|node| *node != here) {
            if self.lost.insert(node, lost.why.clone()).is_some() {
                continue; // a repeat
            }
            self.tell_lost_node(node, out);
            for local in 0..self.ranks.len() {
                if self.ranks[local].wants_losses {
                    self.tell_loss(local, node, out);
                }
            }
        }
    }

    /// Handles a rank's request to be told. Only PMI-1 has messages that no request precedes.
    pub(super) fn on_losses_wanted(&mut self, asker: &Asker, out: &mut Vec<Effect>) {
        let By::Pmi1(_) = asker.by else { return self.answer(asker, Reply::Value(None), out) };
        let local = asker.local;
        self.ranks[local].wants_losses = true;
        self.answer(asker, Reply::Value(Some("1".into())), out);
        for node in self.lost.keys().copied().collect::<Vec<NodeId>>() {
            self.tell_loss(local, node, out);
        }
    }

    /// Whether a rank of this node has finalized, or has exited without ending the job. If it ends the job, the others hear the reason.
    pub(super) fn has_ended(&self, rank: u32) -> bool {
        let found = self.ranks.iter().find(|it| it.rank == rank);
        found.is_some_and(|it| match it.phase {
            Phase::Starting => false,
            Phase::Running => it.pmi.is_finalized(),
            Phase::Exited(_) | Phase::NeverRan | Phase::Left => it.pmi.is_finalized() || it.left_quietly(),
        })
    }

    fn tell_loss(&self, local: Local, node: NodeId, out: &mut Vec<Effect>) {
        let (Phase::Running, Some(why)) = (self.ranks[local].phase, self.lost.get(&node)) else { return };
        for ranks in ranges::of(self.map.ranks_on(node)).chunks(RANGES_MAX) {
            pmi1::send(local, &Line::Lost { ranks: ranks.to_vec(), why: why.clone() }, out);
        }
    }
}
