//! The head's journal: what outlives the head. Jobs that have not ended, with their launches, kills, published names and values; jobs that
//! have ended; groups with their rules and numbers; nodes, and what users have said about them; join tokens; the latest events.
//!
//! The head emits a record of each decision, in order ([`Effect::Keep`]). The shell appends the records to a file, and passes all of
//! them to the next daemon as its first input. The records of one input are written in one append, before any other of its effects is
//! performed: whoever hears of a decision can rely on it. [`Head::kept`] returns the shortest equivalent records.
//!
//! What ranks do is not a decision, and is not recorded here: their output and exits are in the jobs' logs, and steps keep them until
//! the log has them ([`super::written`]). A head that starts reads both, repeats the launches, and the steps repeat the rest. Stopping
//! the DVM leaves only the records of ended jobs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;
use rsd_proto::v1::{
    self as wire, GroupEpoch, GroupInfo, JobInfo, Kept, KeptData, KeptEpoch, KeptJob, KeptKill, KeptNode, KeptToken,
    KeptValue, NameResult, NodeInfo, PublishedName, down, job_event, kept, kept_job,
};

use super::elements::PastArray;
use super::job::Job;
use super::job::kept::Logs;
use super::life::{Life, Why};
use super::marks::Marks;
use super::questions::CallId;
use super::spawned::{Asked, Birth};
use super::stopping::Records;
use super::{Due, Head};
use crate::attempts::{attempt, failure_of, id_of, number};
use crate::between::{Loss, Order, Outputs};
use crate::contract::{Effect, HEAD, Logged};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, sentences};

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
    jobs: BTreeMap<JobId, KeptJob>,
    ended: BTreeMap<JobId, JobInfo>,
    nodes_in: BTreeMap<NodeId, NodeInfo>,
    epoch: wire::HeadEpoch,
    standbys: BTreeMap<NodeId, wire::KeptStandby>,
    arrays: BTreeMap<JobId, PastArray>,
    events: Vec<wire::KeptEvent>,
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
            kept::What::EpochOver(job) => self.job_is_over(job),
            kept::What::Job(job) => {
                if let Some(element) = &job.element {
                    self.arrays.entry(element.array).or_default().started(job.job, element, started_ms(&job));
                }
                if let Some(before) = attempt(job.job).checked_sub(1) {
                    self.job_is_over(id_of(number(job.job), before));
                }
                self.jobs.insert(job.job, job);
            }
            kept::What::Array(array) => self.arrays.entry(array.job).or_default().take(array),
            kept::What::Ended(info) => {
                self.job_is_over(id_of(info.job, info.attempt));
                if let Some(element) = &info.element {
                    self.arrays.entry(element.array).or_default().ended(&info, element);
                }
                self.ended.insert(info.job, info);
            }
            kept::What::JobGone(job) => drop(self.ended.remove(&job)),
            kept::What::NodeIn(node) => drop(self.nodes_in.insert(node.node, node)),
            kept::What::NodeOut(node) => drop(self.nodes_in.remove(&node)),
            kept::What::HeadEpoch(epoch) => self.epoch = epoch,
            kept::What::Standby(standby) => drop(self.standbys.insert(standby.node, standby)),
            kept::What::StandbyGone(node) => drop(self.standbys.remove(&node)),
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
            kept::What::Event(event) => self.events.push(event),
        }
    }

    /// Forgets what is kept for a job alone.
    fn job_is_over(&mut self, job: JobId) {
        self.epochs.remove(&job);
        self.jobs.remove(&job);
        self.arrays.remove(&job);
        self.kills.remove(&job);
        self.names.retain(|_, name| name.job != job);
        self.answers.retain(|(of, ..), _| *of != job);
        self.values.retain(|(of, _), _| *of != job);
        self.data.retain(|(of, ..), _| *of != job);
    }
}

/// The jobs that kept records tell of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptJobs {
    /// Those that had not ended.
    pub alive: BTreeSet<JobId>,
    /// Those that had, and are remembered.
    pub ended: BTreeSet<JobId>,
    /// Those of them that ended without ranks: their ends were recorded at once, so their logs may lack them.
    pub ended_unplaced: BTreeSet<JobId>,
}

/// Returns the jobs that these records tell of. Their logs are kept; others are not.
pub fn jobs_of(records: &[Kept]) -> KeptJobs {
    let mut jobs = KeptJobs::default();
    for record in records {
        match &record.what {
            Some(kept::What::Epoch(epoch)) => {
                jobs.alive.extend(epoch.launch.as_ref().map(|launch| launch.job));
            }
            Some(kept::What::EpochOver(job)) => drop(jobs.alive.remove(job)),
            Some(kept::What::Job(job)) => drop(jobs.alive.insert(number(job.job))),
            Some(kept::What::Ended(info)) => {
                jobs.alive.remove(&info.job);
                jobs.ended.insert(info.job);
                if info.ranks == 0 {
                    jobs.ended_unplaced.insert(info.job);
                }
            }
            Some(kept::What::JobGone(job)) => {
                jobs.ended.remove(job);
                jobs.ended_unplaced.remove(job);
            }
            Some(_) | None => {}
        }
    }
    jobs
}

impl Head {
    /// Returns whether what belongs to this job is kept.
    pub(super) fn outlives_head(&self, job: JobId) -> bool {
        self.jobs.is_alive(job)
    }

    /// Adds a record.
    pub(super) fn keep(&mut self, what: kept::What) {
        self.changes.push(Kept { what: Some(what) });
    }

    /// Adds the record of a job's present state.
    pub(super) fn keep_job(&mut self, id: JobId) {
        if let Some(kept) = self.jobs.get(id).filter(|job| !job.joined).and_then(Job::kept_job) {
            self.keep(kept::What::Job(kept));
        }
    }

    /// Adds the record of a node that has connected.
    pub(super) fn keep_node(&mut self, info: &NodeInfo) {
        if info.node != HEAD {
            self.keep(kept::What::NodeIn(shortened(info)));
        }
    }

    /// Returns the records that must be written before the other effects of an input are performed.
    pub(crate) fn take_kept(&mut self) -> Option<Effect> {
        self.changes.extend(self.lobbies.take_touched().into_iter().map(|what| Kept { what: Some(what) }));
        self.changes.extend(self.feed.take_unsaved().map(|event| Kept { what: Some(kept::What::Event(event)) }));
        let mut changes = std::mem::take(&mut self.changes);
        match self.stopping.records {
            Records::AllKept => {}
            Records::StopBegun => {
                self.stopping.records = Records::Forgotten;
                return Some(Effect::ForgetKept);
            }
            Records::Forgotten => {
                changes.retain(|kept| {
                    let stays = |what: &kept::What| {
                        matches!(what, kept::What::Ended(_) | kept::What::JobGone(_))
                            || matches!(what, kept::What::Standby(_) | kept::What::StandbyGone(_))
                            || matches!(what, kept::What::Event(_))
                    };
                    kept.what.as_ref().is_some_and(stays)
                });
            }
        }
        (!changes.is_empty()).then_some(Effect::Keep(changes))
    }

    /// Returns the shortest records that describe the head's present state.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        let ended = self.jobs.all().filter(|job| job.end_is_kept).map(|job| kept::What::Ended(job.info_in_full()));
        // Nodes obey no earlier head than this one, also when the DVM has been stopped.
        let epoch = Some(self.epoch.clone()).filter(|epoch| epoch.number > 0).map(kept::What::HeadEpoch);
        let reign = epoch.into_iter().chain(self.standbys.kept().map(kept::What::Standby));
        let ended =
            reign.chain(self.feed.kept().map(kept::What::Event)).chain(ended).map(|what| Kept { what: Some(what) });
        if self.is_stopping() {
            return ended.collect();
        }
        let groups = self.lobbies.kept().map(kept::What::Group);
        let nodes = self.nodes.all().filter(|node| node.info.node != HEAD);
        let nodes = nodes.map(|node| kept::What::NodeIn(shortened(&node.info)));
        // The end of a job is not recorded before its log has it.
        let alive = || self.jobs.all().filter(|job| !job.end_is_kept);
        let epochs = alive().filter(|job| job.joined).filter_map(Job::kept).map(kept::What::Epoch);
        let jobs = alive().filter(|job| !job.joined).filter_map(Job::kept_job).map(kept::What::Job);
        let arrays = alive().filter_map(|job| Some(kept::What::Array(job.array.as_ref()?.kept(job.id))));
        let kills = alive().filter_map(Job::kept_kill).map(kept::What::Kill);
        let names =
            self.names.list(|_| true).into_iter().filter(|name| self.outlives_head(name.job)).map(kept::What::Name);
        let answers = self.questions.names_answered().filter(|answer| self.outlives_head(answer.job));
        let values = alive().flat_map(|job| self.values.kept(job.id)).map(kept::What::Value);
        let all = groups.chain(nodes).chain(epochs).chain(jobs).chain(arrays).chain(kills).chain(names);
        let all = all.chain(answers.map(kept::What::Answer)).chain(values);
        let all = all
            .chain(self.kept_data())
            .chain(self.tokens.kept().cloned().map(kept::What::Token))
            .chain(self.nodes.kept().map(kept::What::Node));
        ended.chain(all.map(|what| Kept { what: Some(what) })).collect()
    }

    /// Restores the state from the records of the previous head, the logs of the jobs that had not ended, and those that lack the end of a
    /// job that had.
    pub(crate) fn on_kept(&mut self, now: Now, records: Vec<Kept>, logs: Vec<Logged>, out: &mut Outputs<Order>) {
        let mut past = Past::of(records, |uid| self.realm(uid));
        let logs: Logs = logs.into_iter().map(|logged| (logged.job, logged)).collect();
        self.feed.restore(past.events, past.epoch.number);
        // Before the launches: it decides what is started here.
        self.restore_reign(past.epoch, past.standbys.into_values().collect(), out);
        for ((realm, _), group) in past.groups {
            self.lobbies.of(realm).restore(now.mono, group);
        }
        past.nodes_in.into_values().for_each(|info| self.expect_node(now, info));
        for info in past.ended.into_values() {
            self.memory.next_job = self.memory.next_job.max(info.job + 1);
            let Some(job) = Job::ended(info) else { continue };
            for (unix_ms, body) in logs.get(&job.id).map(|log| job.missing_end(log)).unwrap_or_default() {
                out.log(Now { unix_ms, ..now }, job.id, body);
            }
            self.jobs.insert_ended(job);
        }
        // Of a family, the root comes first.
        let mut alive: BTreeMap<JobId, Alive> =
            past.epochs.into_iter().map(|(id, epoch)| (id, Alive::Epoch(Box::new(epoch)))).collect();
        alive.extend(past.jobs.into_iter().map(|(id, job)| (id, Alive::Job(Box::new(job)))));
        let mut over = Vec::new();
        for (id, kept) in alive {
            self.memory.next_job = self.memory.next_job.max(number(id) + 1);
            if let Some(info) = logs.get(&number(id)).and_then(ended) {
                // The log has the job's end, and the journal has not.
                over.push(info.clone());
                continue;
            }
            // A file of another version may be invalid: the job is then forgotten, and its steps are released.
            let restored = match kept {
                Alive::Epoch(epoch) => self.restore_epoch(now, *epoch, logs.get(&id), out),
                Alive::Job(job) => self.restore_job(now, *job, past.arrays.remove(&id), &logs, out),
            };
            if let Some(job) = restored
                && let Some(kill) = past.kills.remove(&job)
            {
                self.restore_kill(now, kill, out);
            }
        }
        for info in over {
            self.note_end(&info);
            self.keep(kept::What::Ended(info.clone()));
            Job::ended(info).into_iter().for_each(|job| self.jobs.insert_ended(job));
        }
        // The end of a family's last other job may be recorded, and that of its root not.
        let alone = |job: &&Job| matches!(job.life(), Life::Outlived { .. }) && !self.jobs.has_family(job.id);
        for root in self.jobs.alive().filter(alone).map(|job| job.id).collect::<Vec<_>>() {
            self.end_outlived(now, root, out);
        }
        for name in past.names.into_values().filter(|name| self.jobs.is_alive(name.job)) {
            let realm = self.realm_of_job(name.job);
            self.names.of(realm).publish(name.name, name.port, name.job, name.uid);
        }
        for answer in past.answers.into_values() {
            if self.awaits_answers(answer.job) {
                self.questions.restore(self.realm_of_job(answer.job), answer);
            }
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
        for uid in self.jobs.users() {
            self.forget_old(now, uid, out);
        }
        self.queue.try_again = true;
    }

    /// Adds a node that an earlier head knew. It has the usual grace to reconnect, as after a cut link.
    fn expect_node(&mut self, now: Now, info: NodeInfo) {
        let node = info.node;
        if node == HEAD || self.nodes.get(node).is_some() {
            return;
        }
        self.memory.next_node = self.memory.next_node.max(node.saturating_add(1));
        self.nodes.insert(info, true);
        self.returning.insert(node);
        self.timers.set(Due::Node(node), now.mono + self.tuning.reattach_grace);
    }

    /// Adds the nodes of a job that are unknown, which a file of an earlier version does not list.
    fn expect_nodes_of<'a>(&mut self, now: Now, nodes: impl Iterator<Item = (NodeId, &'a String)>) {
        for (node, name) in nodes {
            let info = NodeInfo { node, name: name.clone(), joined_ms: now.unix_ms, ..Default::default() };
            self.expect_node(now, info);
        }
    }

    /// Returns whether steps of this job may repeat requests.
    fn awaits_answers(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(Job::has_ranks)
    }

    fn restore_job(
        &mut self,
        now: Now,
        kept: KeptJob,
        array: Option<PastArray>,
        logs: &Logs,
        out: &mut Outputs<Order>,
    ) -> Option<JobId> {
        let mut job = Job::restore(now, kept, logs)?;
        if let Some(own) = &mut job.array {
            // The numbers of its elements are never used again, started or not.
            self.memory.next_job = self.memory.next_job.max(job.id + 1 + u64::from(own.indexes.len()));
            array.into_iter().for_each(|past| past.apply(own));
        }
        let (id, realm) = (job.id, self.realm(job.owner_uid()));
        let log = logs.get(&number(id));
        if let Some(failure) = log.and_then(|log| failure_of(&log.events, attempt(id))) {
            self.restore_again(job, failure);
            return None;
        }
        for body in job.missing_events(log) {
            out.log(now, id, body);
        }
        if let Some(spawned) = job.spawned.as_ref().filter(|spawned| self.awaits_answers(spawned.parent)) {
            let Asked { node, call, started, .. } = spawned.asked.clone();
            let (parent, namespace) = (spawned.parent, job.namespace.clone());
            let answer = wire::SpawnResult { job: parent, node, call, namespace, started, ..Default::default() };
            match spawned.birth {
                Birth::Awaited => self.questions.restore_spawn(realm, CallId { job: parent, node, number: call }, None),
                Birth::Confirmed => {
                    self.questions.restore_spawn(realm, CallId { job: parent, node, number: call }, Some(answer));
                }
                Birth::Refused => {} // a repeat of the call is performed again
            }
        }
        let launch = job.life().active().map(|active| active.launch.clone());
        if launch.is_some() {
            let names = || job.map.nodes().iter().copied().zip(job.node_names());
            self.expect_nodes_of(now, names().filter(|(node, _)| !job.has_lost(*node)));
        }
        if let Some(held) = job.held() {
            self.ledger.restore(id, &job.map, held);
        }
        let is_queued = matches!(job.life(), Life::Queued(_));
        if let Some(patience) = job.awaits_owner {
            self.timers.set(Due::Owner(id), now.mono + patience);
        }
        self.jobs.insert(job);
        match (is_queued, launch) {
            (true, _) => self.begin_waiting(now, id),
            (false, Some(launch)) => {
                self.has_started(id);
                let is_left_behind = self.jobs.get(id).is_some_and(|job| self.is_left_behind(id, &job.map));
                match is_left_behind {
                    true => out.send_message(Order::LaunchElsewhere(launch)),
                    // A step of this node that is not running was never started.
                    false => out.order(down::Body::Launch(launch)),
                }
                let losses: Vec<_> = self.jobs.get(id).into_iter().flat_map(Job::losses).collect();
                for wire::NodesLost { job, nodes, why, .. } in losses {
                    out.send_message(Order::GiveUp { job, nodes, why, loss: Loss::Continues });
                }
                if is_left_behind {
                    self.lose_left_behind(id, out);
                }
            }
            (false, None) => {
                let deadline = self.jobs.get(id).and_then(|job| job.life().deadline());
                self.timers.put(Due::Job(id), deadline);
            }
        }
        Some(id)
    }

    /// The ranks of a job on the machine of the head before this one are lost.
    fn lose_left_behind(&mut self, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(id).filter(|job| !job.has_lost(HEAD)) else { return };
        let (loss, why) = (job.loss_of(HEAD), sentences::head_moved().to_owned());
        out.send_message(Order::GiveUp { job: id, nodes: vec![HEAD], why, loss });
    }

    fn restore_kill(&mut self, now: Now, kill: KeptKill, out: &mut Outputs<Order>) {
        let why = Why::of(kill.state()).unwrap_or(Why::Failed);
        if let (Some(job), Some(cause)) = (self.jobs.get_mut(kill.job), &kill.cause) {
            job.take_exit(now, cause, |_| false);
        }
        self.kill(now, kill.job, why, kill.reason, kill.grace_ms, out);
    }

    fn restore_epoch(
        &mut self,
        now: Now,
        kept: KeptEpoch,
        logged: Option<&Logged>,
        out: &mut Outputs<Order>,
    ) -> Option<JobId> {
        let launch = kept.launch?;
        let map = TaskMap::try_from(launch.map.clone()?).ok()?;
        let epoch = GroupEpoch::decode(&*launch.group).ok()?;
        let job = launch.job;
        let fits = epoch.members.len() == map.size() as usize && epoch.node_names.len() == map.nodes().len();
        // The members of a lost step cannot be told to connect to another one.
        let step_is_lost = map.count_on(HEAD) > 0 && !self.own_steps.contains(&job);
        if !fits || step_is_lost {
            return None;
        }
        let began = Now { unix_ms: kept.submitted_ms, ..now };
        self.expect_nodes_of(now, map.nodes().iter().copied().zip(&epoch.node_names));
        let owner = launch.owner.clone().filter(|_| self.serves_all);
        let realm = owner.as_ref().map_or(0, |owner| owner.uid);
        self.lobbies.of(realm).restore_epoch(job, &epoch);
        self.start_epoch(began, job, owner, epoch, map, Some((launch, logged)), out);
        Some(job)
    }
}

/// A job that had not ended.
enum Alive {
    Epoch(Box<KeptEpoch>),
    Job(Box<KeptJob>),
}

/// Returns when the ranks of a job were started; 0: never.
fn started_ms(job: &KeptJob) -> u64 {
    match &job.state {
        Some(kept_job::State::Launched(launched)) => launched.started_ms,
        Some(kept_job::State::Outlived(outlived)) => {
            outlived.launched.as_ref().map_or(0, |launched| launched.started_ms)
        }
        Some(kept_job::State::Queued(_)) | None => 0,
    }
}

/// Returns how a job ended, if its log says so.
fn ended(logged: &Logged) -> Option<&JobInfo> {
    logged.events.iter().rev().find_map(|event| match &event.body {
        Some(job_event::Body::Ended(info)) => Some(info),
        Some(_) | None => None,
    })
}

/// Returns a node's description without what it reports when it reconnects.
pub(super) fn shortened(info: &NodeInfo) -> NodeInfo {
    let inventory = info.inventory.as_ref().map(|inventory| wire::Inventory { topology: None, ..inventory.clone() });
    NodeInfo { inventory, load: None, ..info.clone() }
}
