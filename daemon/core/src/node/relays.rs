//! The relays of all jobs that pass through this daemon, and the relays that an input has changed.
//!
//! A relay is advanced only after a change, so the cost of a message does not depend on the number of idle jobs. A change in the tree
//! searches the map of each job for the nodes that have moved.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rsd_proto::v1::{FenceDown, GetHeld, Held};

use super::relay::{Limits, Relay, Ripe};
use crate::contract::LinkId;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, kvs};

/// The most bytes of results of fences that a daemon keeps for one user's jobs: those of four jobs at the limit of each. In a DVM that
/// serves one user, all jobs are that user's.
const KEPT_MAX: u64 = 4 * kvs::BYTES_MAX as u64;
/// The most bytes of held results that a daemon keeps because they have passed through it.
const CACHED_MAX: u64 = 32 << 20;

/// All relays, by job.
#[derive(Debug)]
pub(super) struct Relays {
    all: BTreeMap<JobId, Relay>,
    /// The bytes that the relays of each user keep, and those of each job that are counted in it.
    kept: HashMap<Option<u32>, u64>,
    counted: HashMap<JobId, (Option<u32>, u64)>,
    kept_max: u64,
    /// The largest result of a fence that goes to all nodes.
    replicated_max: u64,
    /// The bytes of held results that have passed here and are kept, by job.
    cached: HashMap<JobId, u64>,
    /// The jobs for which a link has asked where ranks listen.
    asking: HashMap<LinkId, BTreeSet<JobId>>,
    /// The jobs of which a link has said which results it has.
    offering: HashMap<LinkId, BTreeSet<JobId>>,
    /// The jobs of which a link has requested held keys.
    wanting: HashMap<LinkId, BTreeSet<JobId>>,
    changed: BTreeSet<JobId>,
}

impl Relays {
    /// `replicated_max`: the largest result of a fence that goes to all nodes.
    pub(super) fn new(replicated_max: u64) -> Relays {
        Relays::keeping(KEPT_MAX, replicated_max)
    }

    fn keeping(kept_max: u64, replicated_max: u64) -> Relays {
        Relays {
            all: BTreeMap::new(),
            kept: HashMap::new(),
            counted: HashMap::new(),
            kept_max,
            replicated_max,
            cached: HashMap::new(),
            asking: HashMap::new(),
            offering: HashMap::new(),
            wanting: HashMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Creates the relay of a job if it does not exist. `owner`: its user, if that is known. `here`: the nodes at and below this daemon.
    pub(super) fn ensure(
        &mut self,
        job: JobId,
        map: TaskMap,
        owner: Option<u32>,
        is_root: bool,
        here: impl Iterator<Item = NodeId>,
    ) {
        self.changed.insert(job);
        let relay = self.all.entry(job).or_insert_with(|| Relay::new(job, map, owner, is_root));
        relay.own_by(owner);
        relay.set_here(here);
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Relay> {
        self.all.get(&job)
    }

    /// Returns the relay of a job and marks it as changed.
    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Relay> {
        let relay = self.all.get_mut(&job)?;
        self.changed.insert(job);
        Some(relay)
    }

    /// Records that this link has asked where a job's ranks listen.
    pub(super) fn ask(&mut self, job: JobId, link: LinkId) {
        if let Some(relay) = self.get_mut(job) {
            relay.locations.ask(link);
            self.asking.entry(link).or_default().insert(job);
        }
    }

    /// Records that a link has the results of a job's fences up to this one. Returns a later one that it has missed.
    pub(super) fn passed(&mut self, job: JobId, link: LinkId, epoch: u64) -> Option<FenceDown> {
        let missed = self.get_mut(job)?.passed(link, epoch);
        self.offering.entry(link).or_default().insert(job);
        missed
    }

    /// Records that this link has requested a held key of a job.
    pub(super) fn want(&mut self, link: LinkId, get: GetHeld, of_step: bool) {
        let job = get.job;
        if let Some(relay) = self.get_mut(job) {
            relay.held.want(link, get, of_step);
            self.wanting.entry(link).or_default().insert(job);
        }
    }

    /// Takes in the parent's answer to such a request. Returns the links that wait for it.
    pub(super) fn answered(&mut self, answer: &Held) -> BTreeSet<LinkId> {
        let job = answer.job;
        self.count_cached(job);
        let of_others: u64 = self.cached.iter().filter(|(other, _)| **other != job).map(|(_, bytes)| bytes).sum();
        let Some(relay) = self.all.get_mut(&job) else { return BTreeSet::new() };
        // A step keeps itself what it has fetched.
        let is_for_others = relay.here().len() > 1;
        let room = if is_for_others { CACHED_MAX.saturating_sub(of_others) } else { 0 };
        let to = relay.held.answered(answer, room);
        self.count_cached(job);
        to
    }

    fn count_cached(&mut self, job: JobId) {
        match self.all.get(&job).map_or(0, |relay| relay.held.cached_bytes()) {
            0 => drop(self.cached.remove(&job)),
            bytes => drop(self.cached.insert(job, bytes)),
        }
    }

    /// Forgets a closed link.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        for job in self.wanting.remove(&link).unwrap_or_default() {
            if let Some(relay) = self.get_mut(job) {
                relay.held.forget_link(link);
            }
        }
        for job in self.offering.remove(&link).unwrap_or_default() {
            if let Some(relay) = self.get_mut(job) {
                relay.offers.forget_link(link);
            }
        }
        for job in self.asking.remove(&link).unwrap_or_default() {
            if let Some(relay) = self.get_mut(job) {
                relay.locations.forget_link(link);
            }
        }
    }

    /// Records that the connections of these nodes have changed.
    pub(super) fn recount(&mut self, nodes: &[NodeId], is_here: impl Fn(NodeId) -> bool) {
        let sorted: BTreeSet<NodeId> = nodes.iter().copied().collect();
        for (job, relay) in &mut self.all {
            // The shorter list decides how much work a job is.
            let few: Vec<NodeId> = match relay.map.nodes().len() < sorted.len() {
                true => relay.map.nodes().iter().copied().filter(|node| sorted.contains(node)).collect(),
                false => nodes.to_vec(),
            };
            for node in few {
                if relay.recount(node, &is_here) {
                    self.changed.insert(*job);
                }
            }
        }
    }

    /// Returns the next message of the changed relays. Removes relays without a node here: other daemons report for their jobs.
    pub(super) fn advance(&mut self) -> Option<(JobId, Ripe)> {
        while let Some(job) = self.changed.first().copied() {
            let limits = Limits { room: self.room(job), replicated_max: self.replicated_max };
            if let Some(ripe) = self.all.get_mut(&job).and_then(|relay| relay.advance(limits)) {
                if let Ripe::Locations { to, .. } = &ripe {
                    to.iter().for_each(|link| forget_job(&mut self.asking, *link, job));
                }
                return Some((job, ripe));
            }
            self.changed.remove(&job);
            if self.all.get(&job).is_some_and(Relay::is_deserted) {
                self.remove(job);
            }
        }
        None
    }

    /// Returns how many bytes of results a job may keep here, with those that it keeps.
    fn room(&mut self, job: JobId) -> u64 {
        let Some(relay) = self.all.get(&job) else { return 0 };
        let (owner, bytes) = (relay.owner(), relay.kept_bytes());
        self.count_cached(job);
        self.count(job, Some((owner, bytes)));
        let of_user = self.kept.get(&owner).copied().unwrap_or(0);
        self.kept_max.saturating_sub(of_user - bytes)
    }

    /// Counts the bytes that a job's relay keeps now; None: it is removed.
    fn count(&mut self, job: JobId, now: Option<(Option<u32>, u64)>) {
        let now = now.filter(|(_, bytes)| *bytes > 0);
        let before = match now {
            Some(now) => self.counted.insert(job, now),
            None => self.counted.remove(&job),
        };
        if before == now {
            return;
        }
        if let Some((owner, bytes)) = now {
            *self.kept.entry(owner).or_default() += bytes;
        }
        if let Some((owner, bytes)) = before
            && let Some(kept) = self.kept.get_mut(&owner)
        {
            *kept -= bytes;
            if *kept == 0 {
                self.kept.remove(&owner);
            }
        }
    }

    pub(super) fn remove(&mut self, job: JobId) -> Option<Relay> {
        self.count(job, None);
        let relay = self.all.remove(&job)?;
        self.changed.remove(&job);
        self.cached.remove(&job);
        relay.locations.links().for_each(|link| forget_job(&mut self.asking, link, job));
        relay.offers.links().for_each(|link| forget_job(&mut self.offering, link, job));
        relay.held.links().for_each(|link| forget_job(&mut self.wanting, link, job));
        Some(relay)
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.all.contains_key(&job)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.all.keys().copied().collect()
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let relays = self.all.iter().map(|(job, relay)| format!("relay of job {job}: {relay:?}"));
        let asking = self.asking.iter().map(|(link, jobs)| format!("link {link} asking about jobs {jobs:?}"));
        let kept = self.kept.iter().map(|(owner, bytes)| format!("{bytes} bytes of results of user {owner:?}"));
        let offering = self.offering.iter().map(|(link, jobs)| format!("link {link} offering results of {jobs:?}"));
        let wanting = self.wanting.iter().map(|(link, jobs)| format!("link {link} wanting held keys of {jobs:?}"));
        let cached = self.cached.iter().map(|(job, bytes)| format!("{bytes} bytes of held results of job {job}"));
        relays.chain(asking).chain(offering).chain(kept).chain(wanting).chain(cached)
    }
}

/// Forgets that a link has to do with a job.
fn forget_job(links: &mut HashMap<LinkId, BTreeSet<JobId>>, link: LinkId, job: JobId) {
    if let Some(jobs) = links.get_mut(&link) {
        jobs.remove(&job);
        if jobs.is_empty() {
            links.remove(&link);
        }
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::FenceUp;

    use super::*;
    use crate::taskmap::TaskMapBuilder;

    fn relays(max: u64, owners: &[(JobId, Option<u32>)]) -> Relays {
        let mut relays = Relays::keeping(max, u64::MAX);
        for (job, owner) in owners {
            let mut builder = TaskMapBuilder::default();
            builder.push(0, 1);
            relays.ensure(*job, builder.build().unwrap(), *owner, true, [0].into_iter());
        }
        relays
    }

    /// The next message, after the only node of a job has entered a fence with so many bytes.
    fn enter(relays: &mut Relays, job: JobId, epoch: u64, len: usize) -> Option<Ripe> {
        let batches = vec![vec![7; len].into()];
        let fence = FenceUp { job, epoch, nodes: vec![0], batches, ..FenceUp::default() };
        assert_eq!(relays.get_mut(job).unwrap().fence_up(fence), None);
        relays.advance().map(|(of, ripe)| {
            assert_eq!(of, job);
            ripe
        })
    }

    #[test]
    fn the_results_of_a_users_jobs_are_bounded_together() {
        let mut relays = relays(100, &[(1, Some(7)), (2, Some(7)), (3, Some(8)), (4, None)]);
        let is_result = |ripe| matches!(ripe, Some(Ripe::FenceDown(FenceDown { .. })));
        assert!(is_result(enter(&mut relays, 1, 1, 60)));
        // It replaces the last one.
        assert!(is_result(enter(&mut relays, 1, 2, 100)));
        assert!(is_result(enter(&mut relays, 1, 3, 70)));
        assert!(is_result(enter(&mut relays, 2, 1, 30)));
        for job in [3, 4] {
            assert!(is_result(enter(&mut relays, job, 1, 100)), "of another user");
        }
        let refused = enter(&mut relays, 2, 2, 31);
        assert!(matches!(refused, Some(Ripe::TooLarge { fence: 2, bytes: 31 })), "{refused:?}");
        relays.get_mut(2);
        assert!(relays.advance().is_none(), "it is refused once");
        relays.remove(1);
        relays.get_mut(2);
        assert!(is_result(relays.advance().map(|(_, ripe)| ripe)));
        for job in [2, 3, 4] {
            relays.remove(job);
        }
        assert_eq!(relays.leftovers().collect::<Vec<_>>(), [""; 0]);
    }
}
