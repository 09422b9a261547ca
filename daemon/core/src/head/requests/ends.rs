//! What ends of ranks, steps and jobs mean for requests of others, deadlines, and what is repeated for steps that reconnect.

use rsd_proto::v1::{self as wire, down, kept::What};

use super::super::Head;
use super::super::published::Changes;
use super::super::rank_set::RankSet;
use super::layouts::ranks_on;
use crate::between::{Order, Outputs};
use crate::status::{Failure, LOST_CONNECTION};
use crate::{JobId, NodeId, Now};

impl Head {
    /// Watches the ends of a job's ranks, because others wait for them.
    pub(super) fn watch(&mut self, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id).filter(|_| !self.watched.contains(id)) else { return };
        let mut ended = RankSet::default();
        job.ends.all().for_each(|exit| ended.insert(exit.rank, exit.rank));
        job.lost_nodes().for_each(|node| ended.extend(&ranks_on(job, node)));
        self.watched.begin(id, ended);
        out.order(down::Body::WatchEnds(wire::WatchEnds { job: id, nodes: Vec::new() }));
    }

    /// Handles a step's report of the ranks that have ended.
    pub(in super::super) fn on_ranks_ended(&mut self, ended: &wire::RanksEnded, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(ended.job).filter(|job| job.has_ranks()) else { return };
        if let Some(ranks) = RankSet::of(&ended.ranks) {
            let ranks = ranks_on(job, ended.node).common(&ranks);
            self.ranks_are_over(ended.job, &ranks, out);
        }
    }

    /// Handles that these ranks of a job have ended.
    pub(in super::super) fn ranks_are_over(&mut self, job: JobId, ended: &RankSet, out: &mut Outputs<Order>) {
        let news = self.watched.add(job, ended);
        if news.is_empty() {
            return;
        }
        let (mut outcomes, mut changes) = (Vec::new(), Changes::default());
        self.meetings.ranks_ended(job, &news, &mut outcomes);
        self.published.ranks_ended(self.realm_of_job(job), job, &news, &mut changes);
        self.end_meetings(outcomes, out);
        self.apply(changes, out);
    }

    /// Handles that a job continues without this node.
    pub(in super::super) fn step_is_lost(&mut self, id: JobId, node: NodeId, out: &mut Outputs<Order>) {
        let realm = self.realm_of_job(id);
        self.published.step_is_lost(realm, id, node);
        let Some(job) = self.jobs.get(id) else { return };
        let ranks = ranks_on(job, node);
        let why = format!("job {id} has lost node {}", job.node_name(node));
        self.end_fetches(id, node, &why, out);
        self.ranks_are_over(id, &ranks, out);
    }

    /// Handles that all ranks of a job have ended.
    pub(in super::super) fn requests_are_over(&mut self, id: JobId, out: &mut Outputs<Order>) {
        self.questions.forget(id);
        self.watched.forget(id);
        self.events.forget(id);
        self.published.job_is_over(self.realm_of_job(id), id);
        let nodes = self.jobs.get(id).map(|job| job.map.nodes().to_vec()).unwrap_or_default();
        for node in nodes {
            self.end_fetches(id, node, &format!("job {id} has ended"), out);
        }
        let mut outcomes = Vec::new();
        self.meetings.job_is_over(id, &mut outcomes);
        self.end_meetings(outcomes, out);
    }

    fn end_fetches(&mut self, job: JobId, node: NodeId, why: &str, out: &mut Outputs<Order>) {
        for call in self.fetches.step_is_over(job, node) {
            self.fail_call(call, Failure::new(LOST_CONNECTION, why), out);
        }
    }

    /// Fails the requests whose time limit has passed.
    pub(in super::super) fn settle_requests(&mut self, now: Now, out: &mut Outputs<Order>) {
        let mut outcomes = Vec::new();
        self.meetings.settle(now.mono, &mut outcomes);
        self.end_meetings(outcomes, out);
        let late = self.fetches.settle(now.mono).into_iter().chain(self.published.settle(now.mono));
        for (call, failure) in late.collect::<Vec<_>>() {
            self.fail_call(call, failure, out);
        }
    }

    /// Handles that a step has reconnected.
    pub(in super::super) fn on_step_resumed(&mut self, resume: &wire::Resume, out: &mut Outputs<Order>) {
        if let Some(node) = resume.node {
            let active = self.jobs.get_mut(resume.job).and_then(super::super::job::Job::active_mut);
            if let Some(inbox) = active.and_then(|active| active.output.get_mut(&node)) {
                inbox.skip_to(resume.output_acked);
            }
            self.ask_again(resume.job, node, resume.events_seen, out);
        }
    }

    /// Repeats what a step may have missed: requests, and the events after the last one that it has seen.
    pub(in super::super) fn ask_again(&self, job: JobId, node: NodeId, events_seen: u64, out: &mut Outputs<Order>) {
        if !self.jobs.get(job).is_some_and(|job| job.has_ranks() && job.map.count_on(node) > 0) {
            return;
        }
        if self.watched.contains(job) {
            out.order(down::Body::WatchEnds(wire::WatchEnds { job, nodes: vec![node] }));
        }
        for fetch in self.fetches.to_step(job, node) {
            out.order(down::Body::Fetch(fetch));
        }
        for notify in self.events.after(job, events_seen) {
            out.order(down::Body::Notify(wire::Notify { nodes: vec![node], ..notify.clone() }));
        }
    }

    /// Restores what was published before a restart.
    pub(in super::super) fn restore_data(&mut self, data: wire::KeptData, out: &mut Outputs<Order>) {
        let job = self.jobs.get(data.job).filter(|job| job.has_ranks());
        let Some(node) = job.and_then(|job| job.map.node_of(data.rank)) else { return };
        if data.persistence() == wire::Persistence::Process {
            self.watch(data.job, out);
        }
        self.published.restore(self.realm_of_job(data.job), node, data);
    }

    /// Returns the records of what the jobs that outlive the head have published.
    pub(in super::super) fn kept_data(&self) -> impl Iterator<Item = What> + '_ {
        self.jobs.alive().flat_map(|job| self.published.kept(self.realm_of_job(job.id), job.id)).map(What::Data)
    }
}
