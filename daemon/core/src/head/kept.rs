//! What a head knows again after a restart: groups with their rules and numbers, the epochs that live, and what those have
//! published and put. Their processes are nobody's children and go on; jobs whose ranks rsd has started end with their head.
//!
//! The head says what has changed, in the order in which it changes ([`Effect::Keep`]); the shell appends that to a file, and gives
//! it all back to the next daemon as its first input ([`crate::rsd::Input::Kept`]). What follows from one input is written at once, and
//! before anybody has an answer that a restart could forget. [`Rsd::kept`] says the same in short. A DVM that is stopped keeps
//! nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{
    self as wire, GroupEpoch, GroupInfo, JobState, Kept, KeptEpoch, KeptKill, KeptValue, NameResult, PublishedName,
    kept,
};

use crate::head::job::{Job, Why};
use crate::head::{HEAD, Head};
use crate::rsd::{Effect, Rsd};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now};

/// All that was kept, by what it is about.
#[derive(Debug, Default)]
struct Past {
    groups: BTreeMap<String, GroupInfo>,
    epochs: BTreeMap<JobId, KeptEpoch>,
    kills: BTreeMap<JobId, KeptKill>,
    names: BTreeMap<Bytes, PublishedName>,
    answers: BTreeMap<(JobId, NodeId, u64), NameResult>,
    values: BTreeMap<(JobId, Bytes), KeptValue>,
}

impl Past {
    fn of(records: Vec<Kept>) -> Past {
        let mut past = Past::default();
        records.into_iter().filter_map(|record| record.what).for_each(|what| past.take(what));
        past
    }

    fn take(&mut self, what: kept::What) {
        match what {
            kept::What::Group(group) => {
                let name = group.rules.as_ref().map(|rules| rules.name.clone()).unwrap_or_default();
                self.groups.insert(name, group);
            }
            kept::What::GroupGone(name) => drop(self.groups.remove(&name)),
            kept::What::Epoch(epoch) => {
                let job = epoch.launch.as_ref().map_or(0, |launch| launch.job);
                self.epochs.insert(job, epoch);
            }
            kept::What::EpochOver(job) => {
                self.epochs.remove(&job);
                self.kills.remove(&job);
                self.names.retain(|_, name| name.job != job);
                self.answers.retain(|(of, ..), _| *of != job);
                self.values.retain(|(of, _), _| *of != job);
            }
            kept::What::Kill(kill) => drop(self.kills.insert(kill.job, kill)),
            kept::What::Name(name) => drop(self.names.insert(name.name.clone(), name)),
            kept::What::NameGone(name) => drop(self.names.remove(&name)),
            kept::What::Answer(answer) => drop(self.answers.insert((answer.job, answer.node, answer.call), answer)),
            kept::What::Value(value) => drop(self.values.insert((value.job, value.key.clone()), value)),
            kept::What::ValueGone(value) => drop(self.values.remove(&(value.job, value.key))),
        }
    }
}

impl Head {
    /// Whether this job lives on when its head does not.
    pub(crate) fn outlives_us(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| !job.members.is_empty())
    }

    /// To be known after a restart.
    pub(crate) fn keep(&mut self, what: kept::What) {
        self.changes.push(Kept { what: Some(what) });
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Kept> {
        self.changes.extend(self.lobby.take_touched().map(|what| Kept { what: Some(what) }));
        std::mem::take(&mut self.changes)
    }
}

impl Rsd {
    /// What a head would have to know after a restart now, as short as it can be said. Nothing on other daemons.
    pub fn kept(&self) -> Vec<Kept> {
        let Some(head) = &self.head else { return Vec::new() };
        let groups = head.lobby.kept().map(kept::What::Group);
        let alive: Vec<&Job> = head.alive().filter(|job| head.outlives_us(job.id)).collect();
        let epochs = alive.iter().filter_map(|job| job.kept()).map(kept::What::Epoch);
        let kills = alive.iter().filter_map(|job| {
            let kill = self.relays.get(&job.id)?.kill.as_ref()?;
            Some(kept::What::Kill(job.kept_kill(&kill.reason, kill.grace_ms)?))
        });
        let names = head.names.list().into_iter().filter(|name| head.outlives_us(name.job)).map(kept::What::Name);
        let answers = head.questions.names_answered().filter(|answer| head.outlives_us(answer.job));
        let values = alive.iter().flat_map(|job| head.blobs.kept(job.id)).map(kept::What::Value);
        let all = groups.chain(epochs).chain(kills).chain(names).chain(answers.map(kept::What::Answer)).chain(values);
        all.map(|what| Kept { what: Some(what) }).collect()
    }

    /// What the head before us has kept.
    pub(crate) fn on_kept(&mut self, now: Now, records: Vec<Kept>, out: &mut Vec<Effect>) {
        let mut past = Past::of(records);
        let Some(head) = &mut self.head else { return };
        for group in past.groups.into_values() {
            head.lobby.restore(now.mono, group);
        }
        for epoch in past.epochs.into_values() {
            // What a file of another version says may make no sense: then the epoch is forgotten, and its steps sent away.
            if let Some(job) = self.restore_epoch(now, epoch, out)
                && let Some(kill) = past.kills.remove(&job)
            {
                self.restore_kill(now, kill, out);
            }
        }
        let Some(head) = &mut self.head else { return };
        for name in past.names.into_values().filter(|name| head.is_alive(name.job)).collect::<Vec<_>>() {
            head.names.publish(name.name, name.port, name.job, name.uid);
        }
        for answer in past.answers.into_values().filter(|answer| head.is_alive(answer.job)).collect::<Vec<_>>() {
            head.questions.restore(answer);
        }
        for value in past.values.into_values().filter(|value| head.is_alive(value.job)).collect::<Vec<_>>() {
            head.blobs.restore(value);
        }
    }

    fn restore_kill(&mut self, now: Now, kill: KeptKill, out: &mut Vec<Effect>) {
        let why = match kill.state() {
            JobState::Cancelled => Why::Cancelled,
            JobState::TimedOut => Why::TimedOut,
            _ => Why::Failed,
        };
        let job = self.head.as_mut().and_then(|head| head.job_mut(kill.job));
        if let (Some(job), Some(cause)) = (job, &kill.cause) {
            job.take_exit(now, cause, |_| false);
        }
        self.kill_job(now, kill.job, why, kill.reason, kill.grace_ms, out);
    }

    fn restore_epoch(&mut self, now: Now, kept: KeptEpoch, out: &mut Vec<Effect>) -> Option<JobId> {
        let launch = kept.launch?;
        let map = TaskMap::try_from(launch.map.clone()?).ok()?;
        let epoch = GroupEpoch::decode(&*launch.group).ok()?;
        let fits = epoch.members.len() == map.size() as usize && epoch.node_names.len() == map.nodes().len();
        let step_is_lost = map.count_on(HEAD) > 0 && !self.steps.contains_key(&launch.job);
        if !fits || step_is_lost {
            return None;
        }
        let began = Now { unix_ms: kept.submitted_ms, ..now };
        let head = self.head.as_mut()?;
        head.memory.next_job = head.memory.next_job.max(launch.job + 1);
        for (node, name) in map.nodes().iter().zip(&epoch.node_names).filter(|(node, _)| **node != HEAD) {
            // It has its grace to come back, as after a cut.
            let info = wire::NodeInfo { node: *node, name: name.clone(), joined_ms: now.unix_ms, ..Default::default() };
            head.nodes.entry(*node).or_insert_with(|| head.alike.node(info, Some(now.mono)));
        }
        head.lobby.restore_epoch(launch.job, &epoch);
        let launch = self.insert_epoch(began, launch.job, epoch, map, Some(launch), out)?;
        let job = launch.job;
        self.on_launch(now, launch, out);
        Some(job)
    }
}
