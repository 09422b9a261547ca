//! Builds a placement from ranks in the order of their numbers.

use std::collections::HashMap;
use std::sync::Arc;

use crate::NodeId;
use crate::place::policy::Policy;
use crate::place::rule::{NODE_RANKS_MAX, crowded};
use crate::place::{NodeOffer, Obstacle, Placement, RankBinding};
use crate::taskmap::TaskMapBuilder;

/// All ranks of a job, in rank order.
#[derive(Debug, Default)]
pub(super) struct Layout {
    map: TaskMapBuilder,
    /// By offer: the bindings of its ranks.
    bindings: HashMap<usize, Vec<RankBinding>>,
    app_sizes: Vec<u32>,
    pub(super) notices: Vec<String>,
}

impl Layout {
    /// Starts the next program: later ranks belong to it.
    pub(super) fn next_app(&mut self) {
        self.app_sizes.push(0);
    }

    /// Adds the next rank, on `nodes[offer]`.
    pub(super) fn push(&mut self, nodes: &[NodeOffer], offer: usize, binding: RankBinding) {
        self.map.push(nodes[offer].id, 1);
        self.bindings.entry(offer).or_default().push(binding);
        if let Some(size) = self.app_sizes.last_mut() {
            *size += 1;
        }
    }

    pub(super) fn finish(
        mut self,
        nodes: &[NodeOffer],
        policy: Policy,
        exclusive: bool,
    ) -> Result<Placement, Obstacle> {
        let map = std::mem::take(&mut self.map).build().map_err(|error| Obstacle::TooMany { asked: error.ranks })?;
        if map.size() == 0 {
            return Err(Obstacle::ZeroRanks);
        }
        if let Some((at, ranks)) = self.bindings.iter().find(|(_, ranks)| ranks.len() > NODE_RANKS_MAX as usize) {
            return Err(crowded(&nodes[*at].name, ranks.len() as u32));
        }
        let mut by_id: HashMap<NodeId, _> =
            self.bindings.drain().map(|(offer, bindings)| (nodes[offer].id, bindings)).collect();
        let mut bindings: Vec<Arc<[RankBinding]>> = Vec::new();
        let mut binding_runs: Vec<(u32, u32)> = Vec::new();
        let mut known = HashMap::new();
        for node in map.nodes() {
            let own: Arc<[RankBinding]> = by_id.remove(node).unwrap_or_default().into();
            let index = *known.entry(Arc::clone(&own)).or_insert_with(|| {
                bindings.push(own);
                bindings.len() as u32 - 1
            });
            match binding_runs.last_mut() {
                Some((count, last)) if *last == index => *count += 1,
                Some(_) | None => binding_runs.push((1, index)),
            }
        }
        let used = map.counts();
        let Layout { app_sizes, notices, .. } = self;
        Ok(Placement { map, app_sizes, used, bindings, binding_runs, exclusive, policy, notices })
    }
}
