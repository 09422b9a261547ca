//! Passes a request for what ranks wait for on to the children and steps that take part in the jobs, and their answers up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_proto::v1::{self as wire, Down, RanksWaiting, down, up};

use super::asked::Behind;
use super::relay::Relay;
use super::{Node, STOP_DEADLINE};
use crate::between::{Outputs, Report};
use crate::contract::{LinkId, in_ms};
use crate::waits::{MISSING_MAX, Merged};
use crate::{JobId, NodeId, Now};

impl Node {
    pub(super) fn on_wait_probe(&mut self, now: Now, probe: wire::WaitProbe, out: &mut Outputs<Report>) {
        let mut merged = Merged::default();
        self.stopping(now).into_iter().for_each(|stopping| merged.add_stopping(stopping));
        let mut pending: BTreeMap<LinkId, Behind> = BTreeMap::new();
        let is_wanted = |job: &JobId| (probe.jobs.is_empty() || probe.jobs.contains(job)) && self.relays.contains(*job);
        for job in self.steps.jobs().filter(is_wanted) {
            match self.steps.link(job) {
                Some(link) => drop(pending.insert(link, Behind::Step(job))),
                None => merged.add_ranks(self.without_step(job)),
            }
        }
        let children: BTreeSet<LinkId> = match probe.jobs.is_empty() {
            true => self.tree.links().collect(),
            false => {
                let relays = probe.jobs.iter().filter_map(|job| self.relays.get(*job));
                relays.flat_map(|relay| self.tree.links_to(relay.here())).collect()
            }
        };
        pending.extend(children.into_iter().map(|link| (link, Behind::Child(self.tree.nodes_of(link)))));

        let within = Duration::from_millis(probe.within_ms);
        // A child answers earlier, so that this daemon can pass on what the child has.
        let below = wire::WaitProbe { within_ms: probe.within_ms * 3 / 4, ..probe };
        let number = below.probe;
        self.to_links(pending.keys().copied(), &Down { body: Some(down::Body::WaitProbe(below)) }, out);
        self.asked.begin(number, now.mono + within, pending, merged);
    }

    /// Returns what this daemon waits for before it stops; None if it does not stop.
    fn stopping(&self, now: Now) -> Option<wire::StoppingNode> {
        let left = self.stopping.as_ref()?.deadline.saturating_sub(now.mono);
        let jobs: BTreeSet<JobId> = self.relays.jobs().into_iter().chain(self.steps.jobs()).collect();
        let relays = jobs.iter().filter_map(|job| self.relays.get(*job));
        let has_only_step = |job: &JobId| self.relays.get(*job).is_none();
        let own = jobs.iter().any(has_only_step).then_some(self.me.node);
        let nodes: BTreeSet<NodeId> = relays.flat_map(Relay::unfinished).chain(own).collect();
        Some(wire::StoppingNode {
            node: self.me.node,
            jobs_left: jobs.len() as u32,
            jobs: jobs.into_iter().take(MISSING_MAX).collect(),
            nodes: nodes.into_iter().take(MISSING_MAX).collect(),
            waiting_ms: in_ms(STOP_DEADLINE.saturating_sub(left)),
            left_ms: in_ms(left),
        })
    }

    /// Describes a step of this node that has no link.
    fn without_step(&self, job: JobId) -> RanksWaiting {
        let me = vec![self.me.node];
        match self.steps.has_attached(job) {
            true => RanksWaiting { job, silent: me, ..RanksWaiting::default() },
            false => RanksWaiting { job, unattached: me, ..RanksWaiting::default() },
        }
    }

    /// Answers the requests that are complete, or whose deadline has passed.
    pub(super) fn settle_asked(&mut self, now: Now, out: &mut Outputs<Report>) {
        while let Some(report) = self.asked.next_due(now.mono, self.me.node) {
            self.pass_up(up::Body::Waits(report), out);
        }
    }
}
