//! Tells the ranks of a job that continues after the loss of nodes or ranks which ranks are lost, if their MPI library has asked for it.

use rsd_proto::pmi::losses::RANGES_MAX;
use rsd_proto::pmi::v1::Reply as Line;
use rsd_proto::ranges;
use rsd_proto::v1 as wire;

use super::dialect::{Asker, By, Reply};
use super::pmi1;
use super::{Effect, Local, Phase, Step};
use crate::{NodeId, Now, sentences};

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
        self.on_ranks_lost(lost, out);
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
        for rank in self.lost_ranks.keys().copied().collect::<Vec<u32>>() {
            self.tell_lost_rank(local, rank, out);
        }
    }

    /// Handles that a rank of this node has died, and its job continues: the others here need not wait for the head to hear of it.
    pub(super) fn on_own_rank_lost(&mut self, now: Now, local: Local, report: &wire::RankExit, out: &mut Vec<Effect>) {
        self.lose_rank(self.ranks[local].rank, sentences::how_lost(report), out);
        self.tell_lost(local, out);
        self.advance_fence(now, out);
    }

    fn on_ranks_lost(&mut self, lost: &wire::NodesLost, out: &mut Vec<Effect>) {
        for run in &lost.ranks {
            for rank in run.first..=run.last.min(self.map.size().saturating_sub(1)) {
                let is_here = self.map.node_of(rank) == Some(self.node);
                if !is_here && self.lose_rank(rank, lost.why.clone(), out) {
                    self.tell_lost_peer(rank, out);
                }
            }
        }
    }

    /// Returns false if that is known.
    fn lose_rank(&mut self, rank: u32, why: String, out: &mut Vec<Effect>) -> bool {
        if self.lost_ranks.insert(rank, why).is_some() {
            return false; // a repeat
        }
        for local in 0..self.ranks.len() {
            if self.ranks[local].wants_losses {
                self.tell_lost_rank(local, rank, out);
            }
        }
        true
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

    fn tell_lost_rank(&self, local: Local, rank: u32, out: &mut Vec<Effect>) {
        if let (Phase::Running, Some(why)) = (self.ranks[local].phase, self.lost_ranks.get(&rank)) {
            pmi1::send(local, &Line::Lost { ranks: vec![(rank, rank)], why: why.clone() }, out);
        }
    }
}
