//! Jobs in the records that outlive the head.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prost::Message;
use rsd_proto::v1::{
    self as wire, JobInfo, JobState, KeptJob, KeptLaunch, KeptOutlived, KeptQueued, KeptSpawned, job_event, kept_job,
    kept_spawned,
};

use super::super::called::Called;
use super::super::ends::Ends;
use super::super::life::{Active, Held, Life, Pending, Why};
use super::super::spawned::{Asked, Birth, Spawned};
use super::super::stdin::{self, StdinFeed};
use super::super::used::Used;
use super::told::command_line;
use super::{Job, spec_bytes};
use crate::attempts;
use crate::contract::Logged;
use crate::outbox::Inbox;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, plan};

impl Job {
    /// Returns the record of a job that was submitted or spawned and has not ended.
    pub(in super::super) fn kept_job(&self) -> Option<KeptJob> {
        let launched = |active: &Active| KeptLaunch {
            launch: Some(active.launch.clone()),
            started_ms: self.started_ms,
            nodes: active.held.slots.iter().map(|(node, _)| *node).collect(),
            slots: active.held.slots.iter().map(|(_, slots)| *slots).collect(),
            exclusive: active.held.exclusive,
            lost: self.lost_nodes_told().collect(),
        };
        let state = match &self.life {
            Life::Queued(pending) => kept_job::State::Queued(KeptQueued {
                spec: Some(pending.spec.clone()),
                secret: pending.secret.clone(),
                preput: pending.preput.clone(),
                reason: pending.reason.clone(),
            }),
            Life::Running { active, .. } | Life::Ending { active, .. } => kept_job::State::Launched(launched(active)),
            Life::Outlived { why, active, .. } => kept_job::State::Outlived(KeptOutlived {
                launched: Some(launched(active)),
                info: Some(self.info_in_full()),
                why: why.map_or(JobState::Unknown, JobState::from).into(),
            }),
            Life::Ended(_) => return Some(self.last_kept.as_ref()?.0.clone()),
        };
        Some(KeptJob {
            job: self.id,
            owner: self.owner.clone(),
            namespace: self.namespace.clone(),
            grace_ms: self.grace_ms,
            submitted_ms: self.submitted_ms,
            state: Some(state),
            spawned: self.spawned.as_ref().map(Spawned::kept),
            attempts: self.attempts.clone(),
            element: self.element,
        })
    }

    /// Restores a job from its record and what its log has. None: the record does not describe a job.
    pub(in super::super) fn restore(now: Now, kept: KeptJob, logs: &Logs) -> Option<Job> {
        let KeptJob { job: id, owner, namespace, grace_ms, submitted_ms, state, spawned, attempts, .. } = kept;
        let began = Now { unix_ms: submitted_ms, ..now };
        let spawned = spawned.map(Spawned::restore);
        let mut job = match state? {
            kept_job::State::Queued(KeptQueued { spec, secret, preput, reason }) => {
                let spec = spec?;
                let wanted = plan::request(&spec).ok()?;
                Job::new(began, id, owner, Pending { spec, wanted, secret, preput, reason }, namespace, grace_ms)
            }
            kept_job::State::Launched(launched) => {
                let at = (id, owner, namespace, grace_ms);
                let (mut job, active, until) = Job::launched((now, began), at, launched, spawned.as_ref(), logs)?;
                job.life = Life::Running { active, until };
                job
            }
            kept_job::State::Outlived(KeptOutlived { launched, info, why }) => {
                let at = (id, owner, namespace, grace_ms);
                let (mut job, active, until) = Job::launched((now, began), at, launched?, spawned.as_ref(), logs)?;
                let why = Why::of(JobState::try_from(why).unwrap_or_default());
                job.life = Life::Outlived { why, until: until.filter(|_| why.is_none()), active };
                let info = info?;
                (job.ends, job.used, job.lost_bytes) = (Ends::restore(&info), Used::restore(&info), info.lost_bytes);
                job
            }
        };
        (job.spawned, job.attempts) = (spawned, attempts);
        job.recall(now, logs.get(&job.number()));
        Some(job)
    }

    /// Returns a job that has been launched, without its state.
    fn launched(
        (now, began): (Now, Now),
        (id, owner, namespace, grace_ms): (JobId, Option<wire::User>, String, u64),
        kept: KeptLaunch,
        spawned: Option<&Spawned>,
        logs: &Logs,
    ) -> Option<(Job, Box<Active>, Option<Duration>)> {
        let launch = kept.launch?;
        let map = TaskMap::try_from(launch.map.clone()?).ok()?;
        let body = wire::LaunchBody::decode(launch.body.clone()).ok()?;
        let spec = body.spec?;
        let wanted = plan::request(&spec).ok()?;
        let left = spec.timeout_ms.saturating_sub(now.unix_ms.saturating_sub(kept.started_ms));
        let until = (spec.timeout_ms > 0).then(|| now.mono + Duration::from_millis(left));
        let bytes = spec_bytes(&spec, &body.preput);
        let (readers, command) = (stdin::reading_nodes(&spec, &map), command_line(&spec));
        let needs = wanted.needs.clone();
        let pending = Pending { spec, wanted, secret: bytes::Bytes::new(), preput: Vec::new(), reason: String::new() };
        let mut job = Job::new(began, id, owner, pending, namespace, grace_ms);
        (job.spec_bytes, job.command) = (bytes, command);
        job.started_ms = kept.started_ms;
        (job.app_sizes, job.universe_size) = (body.app_sizes, body.universe_size);
        (job.bindings, job.binding_runs, job.node_names) = (body.bindings, body.binding_runs, body.node_names);
        job.stdin = StdinFeed::restored(readers);
        let root = spawned.map(|spawned| logs.get(&attempts::number(spawned.root)).map(|log| &log.output));
        let of_own = if attempts::attempt(id) == 0 { 0 } else { id };
        let logged: BTreeMap<NodeId, [u64; 2]> = map
            .nodes()
            .iter()
            .map(|node| {
                let log = logs.get(&attempts::number(id));
                let own = log.and_then(|log| log.output.get(&(of_own, *node))).copied().unwrap_or(0);
                let of_root =
                    root.map_or(own, |output| output.and_then(|output| output.get(&(id, *node))).copied().unwrap_or(0));
                (*node, [own, of_root])
            })
            .collect();
        let output = logged.iter().map(|(node, [own, root])| (*node, Inbox::at(*own.min(root)))).collect();
        let held = Held { slots: kept.nodes.into_iter().zip(kept.slots).collect(), exclusive: kept.exclusive, needs };
        job.map = map;
        for lost in kept.lost {
            job.lost.extend(lost.nodes.iter().map(|node| (*node, lost.why.clone())));
        }
        Some((job, Box::new(Active { launch, output, logged, members: Vec::new(), held }), until))
    }

    /// Takes in what the job's log says has happened, so that it is not logged again.
    pub(in super::super) fn recall(&mut self, now: Now, logged: Option<&Logged>) {
        let attempt = attempts::attempt(self.id);
        for event in logged.iter().flat_map(|log| attempts::events_of(&log.events, attempt)) {
            let ago_us = i128::from(now.unix_ms.saturating_sub(event.at_ms)) * 1000;
            match &event.body {
                Some(job_event::Body::RankExit(exit)) => {
                    self.ends.take(now.mono.as_micros() as i128 - ago_us, exit, &self.map, |_| false);
                }
                Some(job_event::Body::Notice(text)) => drop(self.told.insert(text.clone())),
                Some(job_event::Body::Killing(_)) => self.told_killing = true,
                Some(
                    job_event::Body::Submitted(_)
                    | job_event::Body::Queued(_)
                    | job_event::Body::Placed(_)
                    | job_event::Body::Output(_)
                    | job_event::Body::Gap(_)
                    | job_event::Body::Requeued(_)
                    | job_event::Body::Ended(_),
                )
                | None => {}
            }
        }
    }

    /// Records that the job's end is recorded. Returns false if it was already.
    pub(in super::super) fn keep_end(&mut self) -> bool {
        self.last_kept = None;
        !std::mem::replace(&mut self.end_is_kept, true)
    }

    /// Returns a job that has ended, as its record says.
    pub(in super::super) fn ended(info: JobInfo) -> Option<Job> {
        let map = match info.ranks {
            0 => TaskMap::default(), // it was never placed
            _ => TaskMap::try_from(info.map.clone()?).ok()?,
        };
        let wanted = plan::request(&wire::JobSpec::default()).ok()?;
        let (spec, reason) = (wire::JobSpec::default(), String::new());
        let pending = Pending { spec, wanted, secret: bytes::Bytes::new(), preput: Vec::new(), reason };
        let now = Now { mono: Duration::ZERO, unix_ms: info.submitted_ms };
        let mut job = Job::new(now, info.job, info.owner.clone(), pending, info.namespace.clone(), 0);
        job.life = Life::Ended(info.state());
        (job.map, job.node_names, job.joined) = (map, info.node_names.clone(), info.joined);
        job.ends = Ends::restore(&info);
        job.spec_bytes = 0;
        job.end_is_kept = true;
        job.token = info.token.clone();
        job.called = Called { name: info.name.clone(), labels: info.labels.clone(), submitter: info.submitter.clone() };
        (job.retries, job.attempts) = (info.retries, info.attempts.clone());
        (job.priority, job.element, job.needs) = (info.priority, info.element, info.after.clone());
        job.used = Used::restore(&info);
        job.ended_ms = info.ended_ms;
        job.past = Some(Box::new(info));
        Some(job)
    }

    /// Returns the events that the log of an ended job lacks, and their times: the end was recorded before the log had it.
    pub(in super::super) fn missing_end(&self, logged: &Logged) -> Vec<(u64, job_event::Body)> {
        let has =
            |is: fn(&job_event::Body) -> bool| logged.events.iter().filter_map(|event| event.body.as_ref()).any(is);
        let mut missing = Vec::new();
        if !has(|body| matches!(body, job_event::Body::Submitted(_))) {
            missing.push((self.submitted_ms, self.submitted()));
        }
        if !has(|body| matches!(body, job_event::Body::Ended(_))) {
            missing.push((self.ended_ms, job_event::Body::Ended(self.info())));
        }
        missing
    }

    /// Returns the events that a log must have and this one has not.
    pub(in super::super) fn missing_events(&self, logged: Option<&Logged>) -> Vec<job_event::Body> {
        let attempt = attempts::attempt(self.id);
        let events = || logged.iter().flat_map(|log| attempts::events_of(&log.events, attempt));
        let has = |is: fn(&job_event::Body) -> bool| events().filter_map(|event| event.body.as_ref()).any(is);
        let mut missing = Vec::new();
        if attempt == 0 && !has(|body| matches!(body, job_event::Body::Submitted(_))) {
            missing.push(self.submitted());
        }
        let placed = matches!(self.life, Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. });
        if placed && !has(|body| matches!(body, job_event::Body::Placed(_))) {
            let (map, node_names) = (Some((&self.map).into()), self.node_names.clone());
            missing.push(job_event::Body::Placed(job_event::Placed { map, node_names }));
        }
        if let Life::Queued(pending) = &self.life
            && attempt == 0
            && !has(|body| matches!(body, job_event::Body::Queued(_)))
        {
            missing.push(job_event::Body::Queued(job_event::Queued { reason: pending.reason.clone() }));
        }
        missing
    }
}

impl Spawned {
    fn kept(&self) -> KeptSpawned {
        let Asked { node, call, rank, started } = self.asked.clone();
        let birth = match self.birth {
            Birth::Awaited => kept_spawned::Birth::Awaited,
            Birth::Confirmed => kept_spawned::Birth::Confirmed,
            Birth::Refused => kept_spawned::Birth::Refused,
        };
        KeptSpawned {
            parent: self.parent,
            parent_namespace: self.parent_namespace.clone(),
            root: self.root,
            apart: self.apart,
            node,
            call,
            rank,
            started,
            birth: birth.into(),
        }
    }

    fn restore(kept: KeptSpawned) -> Spawned {
        let birth = match kept.birth() {
            kept_spawned::Birth::Awaited => Birth::Awaited,
            kept_spawned::Birth::Confirmed => Birth::Confirmed,
            kept_spawned::Birth::Refused => Birth::Refused,
        };
        let KeptSpawned { parent, parent_namespace, root, apart, node, call, rank, started, .. } = kept;
        Spawned { parent, parent_namespace, root, birth, apart, asked: Asked { node, call, rank, started } }
    }
}

/// The notices that a log already has.
pub(super) type Told = BTreeSet<String>;
/// What the logs of jobs have.
pub(in super::super) type Logs = BTreeMap<JobId, Logged>;
