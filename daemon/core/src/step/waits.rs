//! What the ranks of this step wait for, and which of them others wait for.

use rsd_proto::v1::{self as wire, RankState, RankWaiting, RanksBlocked, RanksWaiting, up};

use super::pmix::Blocked;
use super::{Effect, Local, Phase, Rank, Step};
use crate::Now;
use crate::contract::in_ms;
use crate::waits::MISSING_MAX;

impl Step {
    pub(super) fn on_wait_probe(&self, now: Now, probe: &wire::WaitProbe, out: &mut Vec<Effect>) {
        let report =
            wire::WaitReport { probe: probe.probe, steps: vec![self.waits(now)], ..wire::WaitReport::default() };
        self.send(up::Body::Waits(report), out);
    }

    fn waits(&self, now: Now) -> RanksWaiting {
        let mut inside = vec![false; self.ranks.len()];
        self.fence.waiting.iter().for_each(|asker| inside[asker.local] = true);
        let inside_len = inside.iter().filter(|inside| **inside).count() as u32;
        let ends = self.ending.is_killing();
        let missing = self.ranks.iter().zip(&inside).filter(|(rank, inside)| match ends {
            true => !rank.phase.is_over(),
            false => !**inside,
        });
        let count = |is: fn(Phase) -> bool| self.ranks.iter().filter(|rank| is(rank.phase)).count() as u32;
        RanksWaiting {
            job: self.job,
            fence: self.fence.number,
            inside: inside_len,
            waiting_ms: if inside_len > 0 { in_ms(now.mono.saturating_sub(self.fence.since)) } else { 0 },
            starting: count(|phase| phase == Phase::Starting),
            alive: count(|phase| !phase.is_over()),
            missing: missing.take(MISSING_MAX).map(|(rank, _)| self.waiting_rank(rank)).collect(),
            unattached: Vec::new(),
            silent: Vec::new(),
            blocked: self.blocked(now),
        }
    }

    /// Returns the requests of ranks that wait for others of this node.
    fn blocked(&self, now: Now) -> Vec<RanksBlocked> {
        let named = |missing: &[Local]| {
            missing.iter().take(MISSING_MAX).map(|local| self.waiting_rank(&self.ranks[*local])).collect()
        };
        let blocked = self.blocked_in_pmix().into_iter().take(MISSING_MAX);
        let described = blocked.map(|Blocked { collective, value, since, inside, missing }| RanksBlocked {
            collective: short(&collective),
            value: value.as_deref().map(short),
            waiting_ms: in_ms(now.mono.saturating_sub(since)),
            inside,
            missing: named(&missing),
        });
        described.collect()
    }

    fn waiting_rank(&self, rank: &Rank) -> RankWaiting {
        let state = match rank.phase {
            Phase::Starting => RankState::Starting,
            Phase::Running => RankState::Running,
            Phase::Exited(_) | Phase::NeverRan | Phase::Left => RankState::Ended,
        };
        RankWaiting { rank: rank.rank, node: self.node, pid: rank.pid, state: state.into() }
    }
}

/// Returns a name that a rank has chosen, of limited length.
fn short(name: &str) -> String {
    const MOST: usize = 64;
    name.chars().take(MOST).collect()
}
