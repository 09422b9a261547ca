//! What only the head does: it knows the nodes, places jobs, keeps the queue and pronounces how jobs end.

pub(crate) mod bound;
pub(crate) mod family;
pub(crate) mod groups;
pub(crate) mod job;
pub(crate) mod kept;
pub(crate) mod lobby;
pub(crate) mod names;
pub(crate) mod nodes;
pub(crate) mod offers;
pub(crate) mod questions;
pub(crate) mod stdin;
pub(crate) mod values;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::frameworks;
use rsd_proto::v1::{self as wire, Down, JobSpec, NodeInfo, NodeState, RankExit, down, job_event, kept::What};

use crate::calls::{exit, log, refuse, stdin_nodes};
use crate::head::job::{Job, Life, Why};
use crate::head::lobby::Lobby;
use crate::head::names::Names;
use crate::head::offers::{Alike, Node};
use crate::head::questions::Questions;
use crate::head::values::Blobs;
use crate::place::{self};
use crate::rsd::{Answer, Effect, Refused, ReqId, Rsd};
use crate::{JobId, NodeId, Now, Tuning, plan, sentences};

/// The head's own id.
pub(crate) const HEAD: NodeId = 0;
/// After its last KILL a job's nodes get this long to say that they are done.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// How long `ListNodes` waits for loads.
pub(crate) const LOAD_DEADLINE: Duration = Duration::from_secs(1);

/// What a head must know again after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The number of the next job.
    pub next_job: JobId,
    /// The id of the next node that joins.
    pub next_node: NodeId,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { next_job: 1, next_node: 1 }
    }
}

/// The head's own state.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) memory: Memory,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) alike: Alike,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// Those that are not over, which is few of them: every input looks through these.
    alive: BTreeSet<JobId>,
    /// Waiting for slots, in order of submission.
    pub(crate) queue: VecDeque<JobId>,
    /// Ended, oldest first.
    pub(crate) ended: VecDeque<JobId>,
    pub(crate) names: Names,
    pub(crate) questions: Questions,
    pub(crate) probes: BTreeMap<u64, Probe>,
    pub(crate) next_probe: u64,
    /// Something changed that may let a queued job start.
    pub(crate) try_queue: bool,
    pub(crate) lobby: Lobby,
    pub(crate) blobs: Blobs,
    /// To be written down, in order.
    pub(crate) changes: Vec<wire::Kept>,
}

#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) req: ReqId,
    pub(crate) deadline: Duration,
    pub(crate) missing: u32,
}

impl Head {
    pub(crate) fn new(memory: Memory, me: NodeInfo) -> Head {
        let mut alike = Alike::default();
        Head {
            memory,
            nodes: BTreeMap::from([(me.node, alike.node(me, None))]),
            alike,
            jobs: BTreeMap::new(),
            alive: BTreeSet::new(),
            queue: VecDeque::new(),
            ended: VecDeque::new(),
            names: Names::default(),
            questions: Questions::default(),
            probes: BTreeMap::new(),
            next_probe: 1,
            try_queue: false,
            lobby: Lobby::default(),
            blobs: Blobs::default(),
            changes: Vec::new(),
        }
    }

    pub(crate) fn insert_node(&mut self, info: NodeInfo, away: Option<Duration>) {
        self.nodes.insert(info.node, self.alike.node(info, away));
    }

    /// The node's name, for sentences.
    pub(crate) fn node_name(&self, node: NodeId) -> String {
        name_among(&self.nodes, node)
    }

    /// The node of that name.
    pub(crate) fn node_named(&self, name: &str) -> Result<NodeId, Refused> {
        let found = self.nodes.values().find(|node| node.info.name == name);
        found.map(|node| node.info.node).ok_or_else(|| Refused {
            exit_code: exit::NO_SUCH_JOB,
            text: format!("there is no node {name} (rsctl nodes lists those that are)"),
        })
    }

    /// A job that needs no place.
    pub(crate) fn insert_running(&mut self, job: Job) {
        self.alive.insert(job.id);
        self.jobs.insert(job.id, job);
    }

    pub(crate) fn job_mut(&mut self, job: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&job)
    }

    /// No rank of a job runs any more; if it is an epoch, its group hears how that ended.
    pub(crate) fn epoch_is_over(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let cause = job.cause().map(sentences::exit);
        let state = match job.life {
            Life::Ended(state) => state,
            Life::Queued { .. } | Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } => match cause {
                Some(_) => wire::JobState::Failed,
                None => wire::JobState::Done,
            },
        };
        if self.lobby.over(id, state, cause) {
            self.keep(What::EpochOver(id));
        }
    }

    /// The jobs that are not over, oldest first.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &Job> {
        self.alive.iter().filter_map(|id| self.jobs.get(id))
    }

    pub(crate) fn is_alive(&self, job: JobId) -> bool {
        self.alive.contains(&job)
    }

    /// Whether some of its ranks may still run.
    pub(crate) fn has_ranks(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(Job::has_ranks)
    }

    /// Whether each of these nodes knows by which address the others reach it.
    fn all_can_listen(&self, nodes: &[NodeId]) -> bool {
        let address = |node| self.nodes.get(node).and_then(|node| Some(&node.info.inventory.as_ref()?.address));
        nodes.iter().all(|node| address(node).is_some_and(|address| !address.is_empty()))
    }

    /// See [`Rsd::leftovers`].
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let alive = self.alive().map(|job| format!("job {}", job.id));
        let queued = self.queue.iter().map(|job| format!("job {job} in the queue"));
        let probes = self.probes.keys().map(|probe| format!("probe {probe}"));
        let names = self.names.leftovers().chain(self.questions.leftovers());
        let kept = self.lobby.leftovers().chain(self.blobs.leftovers());
        alive.chain(queued).chain(probes).chain(names).chain(kept).collect()
    }

    pub(crate) fn next_deadline(&self, tuning: &Tuning) -> Option<Duration> {
        let jobs = self.alive().filter_map(|job| match job.life {
            Life::Running { until } | Life::Outlived { until, .. } => until,
            Life::Ending { until, .. } => Some(until),
            Life::Queued { .. } | Life::Ended(_) => None,
        });
        let nodes = self.nodes.values().filter_map(|node| node.away.map(|since| since + tuning.reattach_grace));
        let probes = self.probes.values().map(|probe| probe.deadline);
        jobs.chain(nodes).chain(probes).chain(self.lobby.next_deadline()).chain(self.blobs.next_deadline()).min()
    }
}

/// The name of a job's KVS; unique for ever, as MPI libraries name shared memory after it.
pub(crate) fn namespace(dvm: &str, job: JobId) -> String {
    format!("rsd-{dvm}-{job}")
}

impl Rsd {
    pub(crate) fn submit(&mut self, now: Now, req: ReqId, spec: JobSpec, secret: Bytes, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        if self.stopping.is_some() {
            return refuse(req, exit::NOT_PLACED, "the DVM is being stopped".into(), out);
        }
        if spec.apps.is_empty() || spec.apps.iter().any(|app| app.argv.is_empty()) {
            return refuse(req, exit::USAGE, "no program named: rsctl submit -n 4 ./a.out".into(), out);
        }
        if let Err(error) = frameworks::parse(&spec.export) {
            return refuse(req, exit::USAGE, format!("export: {error}"), out);
        }
        let wanted = match plan::request(&spec) {
            Ok(wanted) => wanted,
            Err(refusal) => return refuse(req, exit::NOT_PLACED, refusal.to_string(), out),
        };
        let reason = match head.place(&wanted) {
            Ok(_) => "other jobs are first".to_owned(),
            Err(refusal) if refusal.fits_when_idle() => waiting(&refusal),
            Err(refusal) => return refuse(req, exit::NOT_PLACED, refusal.to_string(), out),
        };
        let id = head.memory.next_job;
        head.memory.next_job += 1;
        out.push(Effect::Remember(head.memory));
        let namespace = namespace(&self.dvm, id);
        let grace_ms = u64::try_from(self.tuning.kill_grace.as_millis()).unwrap_or(u64::MAX);
        let job = Job::new(now, id, spec, secret, namespace, reason, grace_ms);
        out.push(log(now, id, job.submitted()));
        head.jobs.insert(id, job);
        head.alive.insert(id);
        head.queue.push_back(id);
        self.run_queue(now, out);
        if let Some(job) = self.head.as_ref().and_then(|head| head.jobs.get(&id))
            && let Life::Queued { reason } = &job.life
        {
            out.push(log(now, id, job_event::Body::Queued(job_event::Queued { reason: reason.clone() })));
        }
        out.push(Effect::Answer { req, answer: Answer::Submitted(id) });
    }

    /// Starts what fits, in order of submission. Behind a job that waits for slots only those go ahead that need none free,
    /// because they may oversubscribe.
    fn run_queue(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        head.try_queue = false;
        let queue = std::mem::take(&mut head.queue);
        let mut blocked = false;
        for id in queue {
            let Some(head) = &mut self.head else { return };
            let Some(job) = head.jobs.get(&id) else { continue };
            let (Life::Queued { .. }, Some(spec)) = (&job.life, &job.spec) else { continue };
            if blocked && !spec.oversubscribe {
                head.queue.push_back(id);
                continue;
            }
            let placed = plan::request(spec).and_then(|wanted| head.place(&wanted));
            let Some(job) = head.jobs.get_mut(&id) else { continue };
            match placed {
                Ok(placement) => self.start_job(now, id, placement, out),
                Err(refusal) if refusal.fits_when_idle() => {
                    job.life = Life::Queued { reason: waiting(&refusal) };
                    blocked = true;
                    head.queue.push_back(id);
                }
                Err(refusal) => {
                    // A node that it needs has left meanwhile.
                    let event = job.fail_queued(now, refusal.to_string());
                    out.push(log(now, id, event));
                    self.retire(id, out);
                }
            }
        }
    }

    pub(crate) fn start_job(&mut self, now: Now, id: JobId, placement: place::Placement, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let names = placement.map.nodes().iter().map(|node| head.nodes[node].info.name.clone()).collect();
        let universe_size = head.slots().max(placement.map.size());
        let listens = head.all_can_listen(placement.map.nodes());
        let Some(job) = head.jobs.get_mut(&id) else { return };
        let readers = job.spec.as_ref().map(|spec| stdin_nodes(spec, &placement.map)).unwrap_or_default();
        let notices = placement.notices.clone();
        let (launch, event) = job.start(now, placement, names, universe_size, listens);
        job.stdin.set_readers(readers.into_iter());
        out.push(log(now, id, event));
        out.extend(notices.into_iter().map(|text| log(now, id, job_event::Body::Notice(text))));
        self.on_launch(now, launch, out);
    }

    /// What a step has to say; after a cut link once more.
    pub(crate) fn on_notice(&mut self, now: Now, notice: &wire::Notice, out: &mut Vec<Effect>) {
        let Some(job) = self.head.as_mut().and_then(|head| head.jobs.get_mut(&notice.job)) else { return };
        if let Some(text) = job.take_notice(notice) {
            out.push(log(now, notice.job, job_event::Body::Notice(text)));
        }
    }

    pub(crate) fn on_rank_failed(&mut self, now: Now, failed: wire::RankFailed, out: &mut Vec<Effect>) {
        let Some(exit) = failed.exit else { return };
        let Some(Head { jobs, nodes, .. }) = &mut self.head else { return };
        let Some(job) = jobs.get_mut(&failed.job) else { return };
        let is_away = |node| nodes.get(&node).is_some_and(|node: &Node| node.away.is_some());
        if !job.has_ranks() || exit.rank >= job.map.size() || !job.take_exit(now, &exit, is_away) {
            return;
        }
        out.push(log(now, failed.job, job_event::Body::RankExit(exit.clone())));
        if exit.fatal {
            let reason = sentences::exit_on(job.node_name(exit.node), &exit);
            let grace_ms = job.grace_ms;
            self.answer_spawn(now, failed.job, Err(sentences::exit(&exit)), out);
            self.kill_job(now, failed.job, Why::Failed, reason, grace_ms, out);
            self.fail_family(now, failed.job, &exit, out);
        }
    }

    /// One node's ranks have all ended while those of others wait for them in a fence.
    pub(crate) fn on_stuck(&mut self, now: Now, id: JobId, rank: u32, epoch: u64, out: &mut Vec<Effect>) {
        let Some(job) = self.head.as_ref().and_then(|head| head.jobs.get(&id)) else { return };
        if !matches!(job.life, Life::Running { .. }) {
            return;
        }
        let note = sentences::missed_fence(epoch);
        // If a rank has exited with an error, it is the one to name.
        let exited_well = || RankExit {
            rank,
            node: job.map.node_of(rank).unwrap_or(0),
            how: Some(wire::rank_exit::How::Exited(0)),
            code: 1,
            ..Default::default()
        };
        let exit = RankExit { note, fatal: true, ..job.cause().cloned().unwrap_or_else(exited_well) };
        self.on_rank_failed(now, wire::RankFailed { job: id, exit: Some(exit) }, out);
    }

    /// TERM, and KILL after the grace. A later call of another kind only shortens the grace.
    pub(crate) fn kill_job(
        &mut self,
        now: Now,
        id: JobId,
        why: Why,
        reason: String,
        grace_ms: u64,
        out: &mut Vec<Effect>,
    ) {
        let Some(job) = self.head.as_mut().and_then(|head| head.jobs.get_mut(&id)) else { return };
        let wanted = now.mono + Duration::from_millis(grace_ms) + LAST_WORDS;
        match &mut job.life {
            Life::Running { .. } => job.life = Life::Ending { why, until: wanted },
            Life::Ending { until, .. } if *until > wanted => *until = wanted,
            // Those that it has spawned may not know yet how soon they are to go.
            Life::Outlived { why: before, until } => (*before, *until) = (before.or(Some(why)), None),
            Life::Ending { .. } | Life::Queued { .. } | Life::Ended(_) => return,
        }
        let kept = job.kept_kill(&reason, grace_ms);
        let killing = job_event::Killing { reason: reason.clone(), grace_ms };
        out.push(log(now, id, job_event::Body::Killing(killing)));
        if let (Some(head), Some(kill)) = (&mut self.head, kept) {
            head.keep(What::Kill(kill));
        }
        self.pass_kill(wire::Kill { job: id, grace_ms, reason }, out);
        self.kill_spawned(now, id, grace_ms, out);
    }

    pub(crate) fn on_output(&mut self, now: Now, output: wire::Output, out: &mut Vec<Effect>) {
        let (id, node) = (output.job, output.node);
        let Some(job) = self.head.as_mut().and_then(|head| head.jobs.get_mut(&id)) else { return };
        let Some(inbox) = job.output.get_mut(&node) else { return };
        let bytes = output.records.iter().map(|record| record.data.len() as u64).sum();
        let fresh = inbox.accept(output.offset, bytes);
        let offset = inbox.received();
        let root = job.spawned.as_ref().map(|spawned| spawned.root);
        if fresh {
            let records = output.records;
            if let Some(root) = root {
                let records = records.iter().map(|record| wire::Record { job: id, ..record.clone() }).collect();
                out.push(log(now, root, job_event::Body::Output(job_event::Output { records })));
            }
            out.push(log(now, id, job_event::Body::Output(job_event::Output { records })));
        }
        let ack = wire::OutputAck { job: id, node, offset };
        self.to_node(id, node, Down { body: Some(down::Body::OutputAck(ack)) }, out);
    }

    /// A job that has ended is remembered until enough later ones have.
    pub(crate) fn retire(&mut self, id: JobId, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        head.alive.remove(&id);
        head.epoch_is_over(id);
        head.blobs.job_is_over(id, out);
        head.ended.push_back(id);
        if let Some(req) = head.jobs.get_mut(&id).and_then(|job| job.stdin.settle(true)) {
            out.push(Effect::Answer { req, answer: Answer::Stopped });
        }
        while head.ended.len() > self.tuning.jobs_kept {
            if let Some(old) = head.ended.pop_front() {
                head.jobs.remove(&old);
                out.push(Effect::DropLog(old));
            }
        }
    }

    /// Every node has counted its ranks out.
    pub(crate) fn on_job_over(&mut self, now: Now, id: JobId, exits: Vec<RankExit>, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let Some(job) = head.jobs.get_mut(&id) else { return };
        for exit in exits {
            job.take_exit(now, &exit, |_| false);
        }
        head.names.forget(id);
        head.questions.forget(id);
        head.try_queue = true;
        if let Some(job) = head.jobs.get(&id) {
            let why_not = job.cause().map(sentences::exit);
            self.answer_spawn(now, id, why_not.map_or(Ok(()), Err), out);
        }
        self.end_or_outlive(now, id, out);
    }

    /// What is due by time, and what became possible.
    pub(crate) fn settle_head(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let grace = self.tuning.reattach_grace;
        let lost: Vec<NodeId> = head
            .nodes
            .iter()
            .filter(|(_, node)| node.away.is_some_and(|since| since + grace <= now.mono))
            .map(|(id, _)| *id)
            .collect();
        let timed_out: Vec<(JobId, u64)> = head
            .alive()
            .filter(|job| match job.life {
                Life::Running { until } | Life::Outlived { until, .. } => until.is_some_and(|until| until <= now.mono),
                Life::Queued { .. } | Life::Ending { .. } | Life::Ended(_) => false,
            })
            .map(|job| (job.id, job.grace_ms))
            .collect();
        let silent: Vec<JobId> = head
            .alive()
            .filter(|job| matches!(job.life, Life::Ending { until, .. } if until <= now.mono))
            .map(|job| job.id)
            .collect();
        if !lost.is_empty() {
            self.nodes_are_lost(now, &lost, |node| sentences::node_unreachable(node, grace), out);
        }
        for (id, grace_ms) in timed_out {
            self.kill_job(now, id, Why::TimedOut, "its time is over".into(), grace_ms, out);
        }
        for id in silent {
            let nodes = self.relays.get(&id).map(|relay| relay.map.nodes().to_vec()).unwrap_or_default();
            self.give_up_nodes(now, id, &nodes, &sentences::kill_unconfirmed(), out);
        }
        self.settle_lobby(now, out);
        if let Some(head) = &mut self.head {
            let jobs = &head.jobs;
            head.blobs.settle(now.mono, |id| jobs.get(&id).map_or(0, |job| job.map.size()), out);
        }
        self.advance_relays(now, out);
        if self.head.as_ref().is_some_and(|head| head.try_queue) {
            self.run_queue(now, out);
        }
        self.answer_waiting(now, out);
    }

    fn answer_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(head) = &mut self.head else { return };
        let ready: Vec<u64> = head
            .probes
            .iter()
            .filter(|(_, probe)| probe.missing == 0 || probe.deadline <= now.mono)
            .map(|(number, _)| *number)
            .collect();
        for number in ready {
            let Some(Probe { req, .. }) = head.probes.remove(&number) else { continue };
            let in_use = head.in_use();
            let info = |node: &Node| NodeInfo {
                state: if node.away.is_some() { NodeState::Away } else { NodeState::Up }.into(),
                slots_in_use: in_use.get(&node.info.node).copied().unwrap_or(0),
                ..node.info.clone()
            };
            out.push(Effect::Answer { req, answer: Answer::Nodes(head.nodes.values().map(info).collect()) });
        }
        for id in &head.alive {
            if let Some(req) = head.jobs.get_mut(id).and_then(|job| job.stdin.settle(false)) {
                out.push(Effect::Answer { req, answer: Answer::Stopped });
            }
        }
    }
}

/// The name of one of these nodes, for sentences.
pub(crate) fn name_among(nodes: &BTreeMap<NodeId, Node>, node: NodeId) -> String {
    nodes.get(&node).map_or_else(|| format!("node {node}"), |node| node.info.name.clone())
}

/// Why a job waits, in one line.
pub(crate) fn waiting(refusal: &place::Refusal) -> String {
    refusal.to_string().lines().next().unwrap_or_default().to_owned()
}
