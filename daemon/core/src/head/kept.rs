//! The state that a head keeps across a restart: groups with their rules and numbers, running epochs, the names and values
//! that these have published and put, join tokens, and what users have said about nodes. The processes of an epoch are not children of rsd and keep running; jobs whose ranks rsd
//! has started end with their head.
//!
//! The head emits a record of each change, in order ([`Effect::Keep`]). The shell appends the records to a file, and passes all of
//! them to the next daemon as its first input. The records of one input are written in one append, before any client or member gets
//! an answer that depends on them. [`Head::kept`] returns the shortest equivalent records. Stopping the DVM deletes the file.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{
    self as wire, GroupEpoch, GroupInfo, JobState, Kept, KeptData, KeptEpoch, KeptKill, KeptNode, KeptToken, KeptValue,
    NameResult, PublishedName, kept,
};

use super::life::Why;
use super::marks::Marks;
use super::{Due, Head, Stopping};
use crate::between::{Order, Outputs};
use crate::contract::{Effect, HEAD};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now};

/// All kept records, by subject.
#[derive(Debug, Default)]
struct Past {
    /// By user (0 in a DVM that serves one user) and name.
    groups: BTreeMap<(u32, String), GroupInfo>,
    epochs: BTreeMap<JobId, KeptEpoch>,
    kills: BTreeMap<JobId, KeptKill>,
    names: BTreeMap<(JobId, Bytes), PublishedName>,
    answers: BTreeMap<(JobId, NodeId, u64), NameResult>,
    values: BTreeMap<(JobId, Bytes), KeptValue>,
    /// By job, rank, range and key.
    data: BTreeMap<(JobId, u32, i32, Bytes), KeptData>,
    tokens: BTreeMap<u64, KeptToken>,
    nodes: BTreeMap<NodeId, KeptNode>,
}

impl Past {
    fn of(records: Vec<Kept>, realm: impl Fn(u32) -> u32) -> Past {
        let mut past = Past::default();
        records.into_iter().filter_map(|record| record.what).for_each(|what| past.take(what, &realm));
        past
    }

    fn take(&mut self, what: kept::What, realm: impl Fn(u32) -> u32) {
        match what {
            kept::What::Group(group) => {
                let name = group.rules.as_ref().map(|rules| rules.name.clone()).unwrap_or_default();
                self.groups.insert((realm(group.owner_uid), name), group);
            }
            kept::What::GroupGone(gone) => drop(self.groups.remove(&(realm(gone.owner_uid), gone.name))),
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
                self.data.retain(|(of, ..), _| *of != job);
            }
            kept::What::Kill(kill) => drop(self.kills.insert(kill.job, kill)),
            kept::What::Name(name) => drop(self.names.insert((name.job, name.name.clone()), name)),
            kept::What::NameGone(gone) => drop(self.names.remove(&(gone.job, gone.name))),
            kept::What::Answer(answer) => drop(self.answers.insert((answer.job, answer.node, answer.call), answer)),
            kept::What::Value(value) => drop(self.values.insert((value.job, value.key.clone()), value)),
            kept::What::Token(token) => drop(self.tokens.insert(token.info.map_or(0, |info| info.id), token)),
            kept::What::Node(node) => drop(self.nodes.insert(node.node, node)),
            kept::What::TokenGone(id) => drop(self.tokens.remove(&id)),
            kept::What::Data(data) => {
                let key = data.entry.as_ref().map(|entry| entry.key.clone()).unwrap_or_default();
                self.data.insert((data.job, data.rank, data.range, key), data);
            }
            kept::What::DataGone(gone) => drop(self.data.remove(&(gone.job, gone.rank, gone.range, gone.key))),
            kept::What::ValueGone(value) => drop(self.values.remove(&(value.job, value.key))),
        }
    }
}

/// The jobs that kept records tell of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptJobs {
    /// Those that had not ended.
    pub alive: BTreeSet<JobId>,
    /// Those that had, and are remembered.
    pub ended: BTreeSet<JobId>,
}

/// Returns the jobs that these records tell of. Their logs are needed; others are not.
pub fn jobs_of(records: &[Kept]) -> KeptJobs {
    let mut jobs = KeptJobs::default();
    for record in records {
        match &record.what {
            Some(kept::What::Epoch(epoch)) => {
                jobs.alive.extend(epoch.launch.as_ref().map(|launch| launch.job));
            }
            Some(kept::What::EpochOver(job)) => drop(jobs.alive.remove(job)),
            Some(_) | None => {}
        }
    }
    jobs
}

impl Head {
    /// Returns whether this job survives a restart of the head.
    pub(super) fn outlives_head(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|job| !job.members().is_empty())
    }

    /// Adds a record.
    pub(super) fn keep(&mut self, what: kept::What) {
        self.changes.push(Kept { what: Some(what) });
    }

    /// Returns the records that must be written before the other effects of an input are performed.
    pub(crate) fn take_kept(&mut self) -> Option<Effect> {
        self.changes.extend(self.lobbies.take_touched().into_iter().map(|what| Kept { what: Some(what) }));
        let changes = std::mem::take(&mut self.changes);
        match self.stopping {
            Stopping::No => (!changes.is_empty()).then_some(Effect::Keep(changes)),
            Stopping::Begun => {
                self.stopping = Stopping::Forgotten;
                Some(Effect::ForgetKept)
            }
            Stopping::Forgotten => None,
        }
    }

    /// Returns the shortest records that describe the head's present state.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let groups = self.lobbies.kept().map(kept::What::Group);
        let alive = || self.jobs.alive().filter(|job| !job.members().is_empty());
        let epochs = alive().filter_map(|job| job.kept()).map(kept::What::Epoch);
        let kills = alive().filter_map(|job| job.kept_kill()).map(kept::What::Kill);
        let names =
            self.names.list(|_| true).into_iter().filter(|name| self.outlives_head(name.job)).map(kept::What::Name);
        let answers = self.questions.names_answered().filter(|answer| self.outlives_head(answer.job));
        let values = alive().flat_map(|job| self.values.kept(job.id)).map(kept::What::Value);
        let all = groups.chain(epochs).chain(kills).chain(names).chain(answers.map(kept::What::Answer)).chain(values);
        let all = all
            .chain(self.kept_data())
            .chain(self.tokens.kept().cloned().map(kept::What::Token))
            .chain(self.nodes.kept().map(kept::What::Node));
        all.map(|what| Kept { what: Some(what) }).collect()
    }

    /// Restores the state from the records of the previous head.
    pub(crate) fn on_kept(&mut self, now: Now, records: Vec<Kept>, out: &mut Outputs<Order>) {
        let mut past = Past::of(records, |uid| self.realm(uid));
        for ((realm, _), group) in past.groups {
            self.lobbies.of(realm).restore(now.mono, group);
        }
        for epoch in past.epochs.into_values() {
            // A file of another version may be invalid: the epoch is then forgotten, and its steps are released.
            if let Some(job) = self.restore_epoch(now, epoch, out)
                && let Some(kill) = past.kills.remove(&job)
            {
                self.restore_kill(now, kill, out);
            }
        }
        for name in past.names.into_values().filter(|name| self.jobs.is_alive(name.job)) {
            let realm = self.realm_of_job(name.job);
            self.names.of(realm).publish(name.name, name.port, name.job, name.uid);
        }
        for answer in past.answers.into_values().filter(|answer| self.jobs.is_alive(answer.job)) {
            self.questions.restore(self.realm_of_job(answer.job), answer);
        }
        for value in past.values.into_values().filter(|value| self.jobs.is_alive(value.job)) {
            self.values.restore(value);
        }
        past.data.into_values().for_each(|data| self.restore_data(data, out));
        for node in past.nodes.into_values() {
            self.nodes.mark(node.node, Marks::of(node));
        }
        for token in past.tokens.into_values() {
            self.restore_token(now, token);
        }
    }

    fn restore_kill(&mut self, now: Now, kill: KeptKill, out: &mut Outputs<Order>) {
        let why = match kill.state() {
            JobState::Cancelled => Why::Cancelled,
            JobState::TimedOut => Why::TimedOut,
            JobState::Unknown
            | JobState::Queued
            | JobState::Running
            | JobState::Ending
            | JobState::Done
            | JobState::Failed => Why::Failed,
        };
        if let (Some(job), Some(cause)) = (self.jobs.get_mut(kill.job), &kill.cause) {
            job.take_exit(now, cause, |_| false);
        }
        self.kill(now, kill.job, why, kill.reason, kill.grace_ms, out);
    }

    fn restore_epoch(&mut self, now: Now, kept: KeptEpoch, out: &mut Outputs<Order>) -> Option<JobId> {
        let launch = kept.launch?;
        let map = TaskMap::try_from(launch.map.clone()?).ok()?;
        let epoch = GroupEpoch::decode(&*launch.group).ok()?;
        let job = launch.job;
        let fits = epoch.members.len() == map.size() as usize && epoch.node_names.len() == map.nodes().len();
        let step_is_lost = map.count_on(HEAD) > 0 && !self.own_steps.contains(&job);
        if !fits || step_is_lost {
            return None;
        }
        let began = Now { unix_ms: kept.submitted_ms, ..now };
        self.memory.next_job = self.memory.next_job.max(job + 1);
        for (node, name) in map.nodes().iter().zip(&epoch.node_names).filter(|(node, _)| **node != HEAD) {
            if self.nodes.get(*node).is_none() {
                // The node has the usual grace to reconnect, as after a cut link.
                let (node, name) = (*node, name.clone());
                let info = wire::NodeInfo { node, name, joined_ms: now.unix_ms, ..Default::default() };
                self.nodes.insert(info, true);
                self.timers.set(Due::Node(node), now.mono + self.tuning.reattach_grace);
            }
        }
        let owner = launch.owner.clone().filter(|_| self.serves_all);
        let realm = owner.as_ref().map_or(0, |owner| owner.uid);
        self.lobbies.of(realm).restore_epoch(job, &epoch);
        self.start_epoch(began, job, owner, epoch, map, Some(launch), out);
        Some(job)
    }
}
