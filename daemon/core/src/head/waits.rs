//! What the DVM waits for: the answer to `rsctl waits`. The head knows queued jobs, groups, values and cut links itself; for launches,
//! fences and ends it asks the steps.

use std::collections::{BTreeMap, BTreeSet};

use rsd_proto::ranges;
use rsd_proto::v1::{
    self as wire, RankState, RanksWaiting, SilentNode, StoppingNode, Wait, WaitProbe, WaitReport, down, wait::What,
};

use super::job::Job;
use super::life::Life;
use super::{Due, Head};
use crate::between::{Order, Outputs};
use crate::calls::{Answer, Caller, Refused};
use crate::contract::{HEAD, ReqId, in_ms};
use crate::waits::MISSING_MAX;
use crate::{JobId, NodeId, Now};

/// How long the nodes have to answer.
const WITHIN_MS: u64 = 1500;

/// The requests of clients for which the steps have been asked.
#[derive(Debug, Default)]
pub(super) struct Waits {
    asked: BTreeMap<u64, Request>,
    last: u64,
}

#[derive(Debug)]
struct Request {
    req: ReqId,
    caller: Caller,
    /// Only these jobs; None: everything that the caller may see.
    only: Option<Vec<JobId>>,
}

impl Waits {
    fn begin(&mut self, request: Request) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, request);
        self.last
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.asked.keys().map(|probe| format!("request {probe} for waits"))
    }
}

impl Head {
    /// Handles a client's request; `job` restricts it to a job and the jobs that this spawned.
    pub(super) fn list_waits(
        &mut self,
        now: Now,
        req: ReqId,
        caller: Caller,
        job: Option<JobId>,
        out: &mut Outputs<Order>,
    ) -> Result<(), Refused> {
        let only = match job {
            None => None,
            Some(wanted) => {
                let id = self.find(caller, wanted).ok_or_else(|| super::answers::no_such_job(wanted))?;
                Some(std::iter::once(id).chain(self.jobs.family(id)).collect::<Vec<JobId>>())
            }
        };
        let request = Request { req, caller, only };
        let jobs: Vec<JobId> = self.meant(&request).filter(|job| job.has_ranks()).map(|job| job.id).collect();
        // A daemon that stops may wait for the rest of a job that has ended for the head.
        let must_ask = !jobs.is_empty() || (self.is_stopping() && request.only.is_none());
        if !must_ask {
            let waits = self.waits_of(now, &request, WaitReport::default());
            out.answer(req, Answer::Waits(waits));
            return Ok(());
        }
        // Daemons read an empty list as all jobs.
        let jobs = if request.only.is_none() && !self.serves_all { Vec::new() } else { jobs };
        let probe = self.waits.begin(request);
        // The node at the root answers within that time in any case.
        out.order(down::Body::WaitProbe(WaitProbe { probe, jobs, within_ms: WITHIN_MS }));
        Ok(())
    }

    pub(super) fn on_wait_report(&mut self, now: Now, report: WaitReport, out: &mut Outputs<Order>) {
        let Some(request) = self.waits.asked.remove(&report.probe) else { return };
        let waits = self.waits_of(now, &request, report);
        out.answer(request.req, Answer::Waits(waits));
    }

    /// Returns the jobs of a request that have not ended.
    fn meant<'a>(&'a self, request: &'a Request) -> impl Iterator<Item = &'a Job> {
        let wanted = |job: &&Job| {
            request.only.as_ref().is_none_or(|only| only.contains(&job.id)) && self.may_see(request.caller, job.id)
        };
        self.jobs.alive().filter(wanted)
    }

    fn waits_of(&self, now: Now, request: &Request, report: WaitReport) -> Vec<Wait> {
        let mut by_job: BTreeMap<JobId, Vec<RanksWaiting>> = BTreeMap::new();
        for step in report.steps {
            by_job.entry(step.job).or_default().push(step);
        }
        let silent: BTreeSet<NodeId> = report.silent.into_iter().collect();
        let mut waits = Vec::new();
        let mut concerned: BTreeSet<NodeId> = BTreeSet::new();
        for job in self.meant(request) {
            let ranks = by_job.remove(&job.id).unwrap_or_default();
            waits.extend(self.waits_of_job(now, job, &ranks, &silent));
            waits.extend(self.waits_of_processes(now, job, &ranks));
            for mut wait in self.values.waits(now.mono, job.id, job.map.size()) {
                wait.missing.iter_mut().for_each(|rank| rank.node = job.map.node_of(rank.rank).unwrap_or(0));
                waits.push(self.named(job, wait));
            }
            concerned.extend(job.map.nodes());
        }
        if request.only.is_none() {
            let lobbies = self.lobbies.seen(|realm| !self.serves_all || request.caller.may_use(realm));
            waits.extend(lobbies.flat_map(|(_, lobby)| lobby.waits(now.mono)));
            concerned.extend(self.nodes.all().map(|node| node.info.node));
            let drained = self.nodes.all().filter(|node| node.is_drained).map(|node| node.info.node);
            waits.extend(drained.filter_map(|node| self.wait_for_drain(request.caller, node)));
            waits.extend(report.stopping.into_iter().filter_map(|node| self.wait_for_stop(request.caller, node)));
        }
        waits.extend(concerned.into_iter().filter_map(|node| self.wait_for_node(now, node, &silent)));
        waits
    }

    fn waits_of_job(&self, now: Now, job: &Job, ranks: &[RanksWaiting], silent: &BTreeSet<NodeId>) -> Option<Wait> {
        let (mut wait, since_start) = (Wait { job: job.number(), ..Wait::default() }, job.waiting_ms(now));
        let until = match job.life() {
            Life::Queued(pending) => {
                (wait.waiting_ms, wait.what) = (since_start, Some(What::Queue(pending.reason.clone())));
                return Some(wait);
            }
            Life::Running { .. } => None,
            Life::Ending { until, .. } => Some(*until),
            Life::Outlived { .. } | Life::Ended(_) => return None,
        };
        wait.silent = self.silent_nodes(job, ranks, silent);
        wait.want = job.map.size() - job.lost_ranks();
        let hidden: u32 = wait.silent.iter().map(|node| job.map.count_on(node.node)).sum();
        let unattached: Vec<NodeId> = ranks.iter().flat_map(|step| step.unattached.iter().copied()).collect();
        let starting = sum(ranks.iter().map(|step| step.starting));
        let starting = starting.saturating_add(sum(unattached.iter().map(|node| job.map.count_on(*node))));
        let top = ranks.iter().map(|step| step.fence).max().unwrap_or(0);
        let in_fence = ranks.iter().filter(|step| step.fence == top && step.inside > 0);
        let waiting_ms = in_fence.clone().map(|step| step.waiting_ms).max();
        let is_starting = |state: i32| state == i32::from(RankState::Starting);
        let mut missing: Vec<wire::RankWaiting> = ranks.iter().flat_map(|step| step.missing.iter().copied()).collect();
        missing.extend(unattached.iter().flat_map(|node| {
            let ranks = job.map.ranks_on(*node);
            ranks.map(|rank| wire::RankWaiting { rank, node: *node, pid: 0, state: RankState::Starting.into() })
        }));
        if let Some(until) = until {
            let alive = sum(ranks.iter().map(|step| step.alive));
            wait.what = Some(What::End(true));
            wait.have = wait.want.saturating_sub(alive.saturating_add(hidden));
            wait.left_ms = Some(in_ms(until.saturating_sub(now.mono)));
            missing.retain(|rank| rank.state != i32::from(RankState::Ended));
        } else if starting > 0 {
            (wait.what, wait.waiting_ms) = (Some(What::Launch(true)), since_start);
            wait.have = wait.want.saturating_sub(starting.saturating_add(hidden));
            missing.retain(|rank| is_starting(rank.state));
        } else if let Some(waiting_ms) = waiting_ms {
            (wait.what, wait.waiting_ms) = (Some(What::Fence(top)), waiting_ms);
            wait.have = sum(in_fence.map(|step| step.inside));
            if wait.have >= wait.want {
                return None; // its result is on the way
            }
        } else {
            return None;
        }
        missing.sort_by_key(|rank| rank.rank);
        missing.truncate(MISSING_MAX);
        wait.missing = missing;
        Some(self.named(job, wait))
    }

    /// Returns the nodes of a job whose ranks are unknown now.
    fn silent_nodes(&self, job: &Job, ranks: &[RanksWaiting], silent: &BTreeSet<NodeId>) -> Vec<SilentNode> {
        let steps: BTreeSet<NodeId> = ranks.iter().flat_map(|step| step.silent.iter().copied()).collect();
        let unknown = |node: &&NodeId| silent.contains(node) || steps.contains(node) || self.nodes.is_away(**node);
        let describe = |node: &NodeId| SilentNode {
            node: *node,
            name: job.node_name(*node).to_owned(),
            ranks: ranges::of(job.map.ranks_on(*node)).into_iter().flat_map(|(first, last)| [first, last]).collect(),
            away: self.nodes.is_away(*node),
        };
        job.map.nodes().iter().filter(unknown).map(describe).collect()
    }

    /// Adds the names of the nodes of the missing ranks.
    pub(super) fn named(&self, job: &Job, mut wait: Wait) -> Wait {
        let nodes: BTreeSet<NodeId> = wait.missing.iter().map(|rank| rank.node).collect();
        wait.node_names = nodes.iter().map(|node| job.node_name(*node).to_owned()).collect();
        wait.node_ids = nodes.into_iter().collect();
        wait
    }

    /// Returns what a drained node still runs. A user sees how many ranks there are, and the jobs that are the user's own.
    fn wait_for_drain(&self, caller: Caller, node: NodeId) -> Option<Wait> {
        let jobs = self.jobs.on_nodes(&[node]);
        let ranks = jobs.iter().filter_map(|job| self.jobs.get(*job)).map(|job| job.map.count_on(node));
        let want = ranks.fold(0, u32::saturating_add);
        let seen = jobs.iter().copied().filter(|job| self.may_see(caller, *job));
        let what = Some(What::Drain(self.nodes.name(node)));
        (want > 0).then(|| Wait { want, jobs: seen.collect(), what, ..Wait::default() })
    }

    /// Returns what a daemon waits for before it stops; at the head, this is the whole DVM. A user sees how many jobs there are, and those
    /// that are the user's own.
    fn wait_for_stop(&self, caller: Caller, stopping: StoppingNode) -> Option<Wait> {
        let what = match stopping.node {
            HEAD => What::Shutdown(true),
            node => What::Stop(self.nodes.name(node)),
        };
        let seen = stopping.jobs.into_iter().filter(|job| self.may_see(caller, *job));
        (stopping.jobs_left > 0).then(|| Wait {
            want: stopping.jobs_left,
            jobs: seen.collect(),
            nodes: stopping.nodes.into_iter().map(|node| self.nodes.name(node)).collect(),
            waiting_ms: stopping.waiting_ms,
            left_ms: Some(stopping.left_ms),
            what: Some(what),
            ..Wait::default()
        })
    }

    fn wait_for_node(&self, now: Now, node: NodeId, silent: &BTreeSet<NodeId>) -> Option<Wait> {
        let away = self.nodes.is_away(node);
        if !away && !silent.contains(&node) {
            return None;
        }
        let left = self.timers.at(&Due::Node(node)).filter(|_| away).map(|at| at.saturating_sub(now.mono));
        let waited = left.map_or(0, |left| in_ms(self.tuning.reattach_grace.saturating_sub(left)));
        let what = Some(What::Node(self.nodes.name(node)));
        Some(Wait { waiting_ms: waited, left_ms: left.map(in_ms), what, ..Wait::default() })
    }
}

/// Adds numbers that steps say of themselves.
fn sum(numbers: impl Iterator<Item = u32>) -> u32 {
    numbers.fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_numbers_that_no_job_has_is_the_largest() {
        assert_eq!(sum([u32::MAX, 1, u32::MAX].into_iter()), u32::MAX);
    }
}
