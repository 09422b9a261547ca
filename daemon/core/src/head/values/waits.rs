//! The requests about a job's values that wait, for `rsctl waits`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{RankWaiting, Wait, wait::What};

use super::{Fence, Participant, Values};
use crate::JobId;
use crate::contract::in_ms;
use crate::waits::MISSING_MAX;

impl Values {
    /// Returns the fences in which participants wait, and the values that requests wait for. `ranks`: the size of the job.
    pub(in crate::head) fn waits(&self, now: Duration, job: JobId, ranks: u32) -> impl Iterator<Item = Wait> {
        let fences = self.jobs.get(&job).into_iter().flat_map(|of| &of.fences);
        let fences = fences.filter(|(_, fence)| !fence.inside.is_empty());
        let fences = fences.map(move |(name, fence)| fence_wait(now, job, ranks, name, fence));
        let mut gets: BTreeMap<&Bytes, Wait> = BTreeMap::new();
        for get in self.jobs.get(&job).into_iter().flat_map(|of| &of.gets) {
            let wait = gets.entry(&get.key).or_insert_with(|| Wait {
                job,
                left_ms: Some(u64::MAX),
                what: Some(What::KvGet(get.key.clone())),
                ..Wait::default()
            });
            wait.want += 1;
            note_times(wait, now, get.since, get.deadline);
        }
        fences.chain(gets.into_values())
    }
}

fn fence_wait(now: Duration, job: JobId, ranks: u32, name: &str, fence: &Fence) -> Wait {
    let mut wait = Wait {
        job,
        have: fence.inside.len() as u32,
        want: fence.participants,
        left_ms: Some(u64::MAX),
        what: Some(What::KvFence(name.to_owned())),
        ..Wait::default()
    };
    fence.inside.values().for_each(|inside| note_times(&mut wait, now, inside.since, inside.deadline));
    // A fence of other participants does not say who they are.
    let only_ranks = fence.inside.keys().all(|who| matches!(who, Participant::Rank(_)));
    if only_ranks && fence.participants == ranks {
        let outside = (0..ranks).filter(|rank| !fence.inside.contains_key(&Participant::Rank(*rank)));
        wait.missing = outside.take(MISSING_MAX).map(|rank| RankWaiting { rank, ..RankWaiting::default() }).collect();
    }
    wait
}

fn note_times(wait: &mut Wait, now: Duration, since: Duration, deadline: Duration) {
    wait.waiting_ms = wait.waiting_ms.max(in_ms(now.saturating_sub(since)));
    let left = in_ms(deadline.saturating_sub(now));
    wait.left_ms = Some(wait.left_ms.unwrap_or(u64::MAX).min(left));
}
