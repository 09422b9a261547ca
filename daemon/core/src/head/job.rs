//! A job as the head keeps it: its specification, its nodes and the exits of its ranks. Its state is in [`Life`].

pub(super) mod kept;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use prost::Message;
use rsd_proto::library::INTERFACE;
use rsd_proto::v1::{self as wire, JobInfo, JobSpec, JobState, OnNodeLoss, OnRankLoss, RankExit, job_event};

use super::called::Called;
use super::elements::Array;
use super::ends::{Ends, ranks_lost};
use super::life::{Active, Event, Held, Life, Pending};
use super::spawned::Spawned;
use super::stdin::StdinFeed;
use super::used::Used;
use crate::attempts::Again;
use crate::between::Loss;
use crate::calls::exit;
use crate::outbox::Inbox;
use crate::place::Placement;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, plan, sentences};
use told::command_line;

/// How many notices of steps a job's log reports; most of them have the same text.
const NOTICES_MAX: usize = 8;
/// How many failed ranks clients are shown, so that their messages stay below the limit of gRPC.
const EXITS_SHOWN: usize = 100_000;
/// How much of its command line a job shows, and how much of a step's notice, in bytes. Both remain after the job has ended.
const SHOWN_BYTES: usize = 16 << 10;

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    /// As whom it runs; None in a DVM that serves one user.
    owner: Option<wire::User>,
    pub(super) grace_ms: u64,
    life: Life,
    /// The bytes of its specification, which the head keeps until it has ended.
    pub(super) spec_bytes: u64,
    command: String,
    pub(super) called: Called,
    pub(super) namespace: String,
    submitted_ms: u64,
    started_ms: u64,
    ended_ms: u64,
    pub(super) map: TaskMap,
    /// Whether the job continues when it loses nodes.
    continues: bool,
    /// What the death of a rank does to the job, and to those that it spawns.
    on_rank_loss: OnRankLoss,
    /// The nodes that it has lost and without which it continues, with the reasons.
    lost: BTreeMap<NodeId, String>,
    node_names: Vec<String>,
    /// How many ranks run each program.
    app_sizes: Vec<u32>,
    universe_size: u32,
    /// The cpus and GPUs of its ranks: each distinct binding of a node's ranks, and the nodes that have it.
    bindings: Vec<wire::NodeBinding>,
    binding_runs: Vec<wire::BindingRun>,
    /// The notices of steps, by node.
    noticed: BTreeSet<(NodeId, String)>,
    pub(super) ends: Ends,
    pub(super) used: Used,
    exit_code: u32,
    pub(super) stdin: StdinFeed,
    /// Whether the job is an epoch of a group.
    pub(super) joined: bool,
    /// Set if a rank has spawned the job.
    pub(super) spawned: Option<Spawned>,
    /// How many refused spawns its log reports.
    pub(super) refusals: usize,
    /// Of an array: its elements.
    pub(super) array: Option<Box<Array>>,
    /// Of an element of an array.
    pub(super) element: Option<wire::ArrayElement>,
    pub(super) priority: i32,
    /// What it waits for, as in its specification.
    pub(super) needs: Vec<wire::Dependency>,
    timeout_ms: u64,
    memory_per_rank: u64,
    resources: Vec<wire::Resource>,
    retries: u32,
    /// What its ranks share, if it may be started again.
    secret: bytes::Bytes,
    /// The attempts that have failed.
    pub(super) attempts: Vec<wire::Attempt>,
    /// Set between a failure and the next attempt.
    pub(super) again: Option<Box<Again>>,
    /// As JobSpec.token.
    pub(super) token: bytes::Bytes,
    /// If the job ends with its client: how long it waits for the client after a restart of the head, or the loss of the daemon between.
    pub(super) awaits_owner: Option<Duration>,
    /// The notices that its log had when the head started, and whether it had a kill.
    told: kept::Told,
    told_killing: bool,
    /// How many bytes of its output are in no log.
    pub(super) lost_bytes: u64,
    /// Whether its end is recorded; until then, its last records before that.
    pub(super) end_is_kept: bool,
    last_kept: Option<Box<(wire::KeptJob, Option<wire::KeptKill>)>>,
    /// As it was when it ended under an earlier head.
    past: Option<Box<JobInfo>>,
}

/// The parameters of a job's start, apart from its placement.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) node_names: Vec<String>,
    pub(super) universe_size: u32,
    /// See `LaunchBody.node_addresses`.
    pub(super) node_addresses: Vec<String>,
    /// See `LaunchBody.dial_out`.
    pub(super) dial_out: Vec<NodeId>,
    /// See `LaunchBody.crowded`.
    pub(super) crowded: bool,
}

impl Job {
    pub(super) fn new(
        now: Now,
        id: JobId,
        owner: Option<wire::User>,
        pending: Pending,
        namespace: String,
        grace_ms: u64,
    ) -> Job {
        let continues = pending.spec.on_node_loss() == OnNodeLoss::Continue;
        let on_rank_loss = pending.spec.on_rank_loss();
        Job {
            id,
            owner,
            grace_ms: pending.spec.kill_grace_ms.unwrap_or(grace_ms),
            spec_bytes: spec_bytes(&pending.spec, &pending.preput),
            command: command_line(&pending.spec),
            array: Array::of(&pending.spec).map(Box::new),
            element: pending.spec.element,
            priority: pending.spec.priority,
            needs: pending.spec.after.clone(),
            timeout_ms: pending.spec.timeout_ms,
            memory_per_rank: pending.spec.memory_per_rank,
            resources: pending.spec.resources.clone(),
            retries: pending.spec.retries,
            secret: bytes::Bytes::new(),
            attempts: Vec::new(),
            again: None,
            token: pending.spec.token.clone(),
            awaits_owner: pending.spec.attached.then(|| Duration::from_millis(pending.spec.reconnect_ms)),
            called: Called::of(&pending.spec),
            life: Life::Queued(Box::new(pending)),
            namespace,
            submitted_ms: now.unix_ms,
            started_ms: 0,
            ended_ms: 0,
            map: TaskMap::default(),
            continues,
            on_rank_loss,
            lost: BTreeMap::new(),
            node_names: Vec::new(),
            app_sizes: Vec::new(),
            universe_size: 0,
            bindings: Vec::new(),
            binding_runs: Vec::new(),
            noticed: BTreeSet::new(),
            ends: Ends::default(),
            used: Used::default(),
            exit_code: 0,
            stdin: StdinFeed::default(),
            joined: false,
            spawned: None,
            refusals: 0,
            told: kept::Told::new(),
            told_killing: false,
            lost_bytes: 0,
            end_is_kept: false,
            last_kept: None,
            past: None,
        }
    }

    pub(super) fn owner(&self) -> Option<&wire::User> {
        self.owner.as_ref()
    }

    /// Returns the owner's uid; 0 in a DVM that serves one user.
    pub(super) fn owner_uid(&self) -> u32 {
        self.owner.as_ref().map_or(0, |owner| owner.uid)
    }

    // --- its state ---

    pub(super) fn node_names(&self) -> &[String] {
        &self.node_names
    }

    pub(super) fn life(&self) -> &Life {
        &self.life
    }

    /// Changes the state as the event requires. Returns false if the event changes nothing.
    pub(super) fn apply(&mut self, event: Event) -> bool {
        let last = matches!(event, Event::RanksEnded { family_lives: false, .. } | Event::FamilyEnded { .. })
            .then(|| Some(Box::new((self.kept_job()?, self.kept_kill()))));
        let life = std::mem::replace(&mut self.life, Life::Ended(JobState::Unknown));
        match life.next(event) {
            Ok(next) => {
                self.last_kept = last.flatten();
                self.life = next;
                true
            }
            Err(same) => {
                self.life = same;
                false
            }
        }
    }

    pub(super) fn pending_mut(&mut self) -> Option<&mut Pending> {
        match &mut self.life {
            Life::Queued(pending) => Some(pending),
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } | Life::Ended(_) => None,
        }
    }

    /// Returns the number by which users know it.
    pub(super) fn number(&self) -> JobId {
        crate::attempts::number(self.id)
    }

    pub(super) fn is_element_of(&self, array: JobId) -> bool {
        self.element.is_some_and(|element| element.array == array)
    }

    /// Returns the state that users see.
    pub(super) fn state(&self) -> JobState {
        match (&self.life, &self.array) {
            (Life::Ended(_), _) if self.again.is_some() => JobState::Queued,
            (Life::Queued(_), Some(array)) => array.alive_state(),
            (life, _) => life.state(),
        }
    }

    /// Returns whether it, or an element of it, has been started.
    pub(super) fn has_started(&self) -> bool {
        self.map.size() > 0 || self.array.as_ref().is_some_and(|array| array.has_started())
    }

    /// Changes what a queued job waits for.
    pub(super) fn set_needs(&mut self, needs: Vec<wire::Dependency>) -> Option<&mut Pending> {
        let Life::Queued(pending) = &mut self.life else { return None };
        pending.spec.after.clone_from(&needs);
        self.needs = needs;
        Some(pending)
    }

    /// Changes the priority of a queued job.
    pub(super) fn set_priority(&mut self, priority: i32) {
        if let Life::Queued(pending) = &mut self.life {
            pending.spec.priority = priority;
            self.priority = priority;
        }
    }

    /// Returns the resources that a launched job holds.
    pub(super) fn held(&self) -> Option<(&Held, &[wire::NodeBinding], &[wire::BindingRun])> {
        Some((&self.life.active()?.held, &self.bindings, &self.binding_runs))
    }

    /// Returns whether a kill must be logged: not, if the log had it when the head started.
    pub(super) fn logs_killing(&mut self) -> bool {
        !std::mem::take(&mut self.told_killing)
    }

    pub(super) fn active_mut(&mut self) -> Option<&mut Active> {
        self.life.active_mut()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.life, Life::Ended(_)) && self.again.is_none()
    }

    pub(super) fn started_at(&self) -> u64 {
        self.started_ms
    }

    /// Returns the specification with which a job was launched that has ended.
    pub(super) fn last_spec(&self) -> Option<JobSpec> {
        launched_body(&self.last_kept.as_ref()?.0)?.spec
    }

    /// Takes the specification with which it was launched, and its secret.
    pub(super) fn take_launched(&mut self) -> Option<(JobSpec, bytes::Bytes)> {
        let body = launched_body(&self.last_kept.take()?.0)?;
        // A job of one node is launched without a secret; after a restart of the head, that is all that is known.
        let secret = if self.secret.is_empty() { body.secret } else { self.secret.clone() };
        Some((body.spec?, secret))
    }

    /// Ends a running job, as its log says: it starts again.
    pub(super) fn end_attempt(&mut self, again: Again) {
        self.last_kept = self.kept_job().map(|kept| Box::new((kept, self.kept_kill())));
        self.life = Life::Ended(JobState::Failed);
        self.again = Some(Box::new(again));
    }

    /// Returns whether the job has been launched and some of its ranks may still run.
    pub(super) fn has_ranks(&self) -> bool {
        self.life.active().is_some()
    }

    /// Returns the members' tokens by rank, for a running epoch.
    pub(super) fn members(&self) -> &[String] {
        self.life.active().map_or(&[], |active| &active.members)
    }

    /// Returns the rank of a member of an epoch.
    pub(super) fn rank_of_member(&self, token: &str) -> Option<u32> {
        self.members().iter().position(|member| member == token).and_then(|rank| u32::try_from(rank).ok())
    }

    /// Returns the last kill, while the job is being killed.
    pub(super) fn kill(&self) -> Option<&wire::Kill> {
        match &self.life {
            Life::Ending { kill, .. } => Some(kill),
            Life::Queued(_) | Life::Running { .. } | Life::Outlived { .. } | Life::Ended(_) => None,
        }
    }

    /// Returns when it was submitted and when it has ended, in milliseconds since the epoch.
    pub(super) fn lifetime(&self) -> (u64, Option<u64>) {
        (self.submitted_ms, self.is_over().then_some(self.ended_ms))
    }

    /// Returns when it has ended; 0 if it has not.
    pub(super) fn ended_at(&self) -> u64 {
        self.ended_ms
    }

    // --- its events ---

    pub(super) fn submitted(&self) -> job_event::Body {
        let (job, command, owner) = (self.number(), self.command.clone(), self.owner.clone());
        job_event::Body::Submitted(job_event::Submitted { job, command, owner })
    }

    /// Moves a queued job to `Running`. Returns the launch to send and the event to log; None if the job is not queued.
    pub(super) fn start(
        &mut self,
        now: Now,
        placement: Placement,
        around: Surroundings,
    ) -> Option<(wire::Launch, job_event::Body)> {
        let pending = self.pending_mut()?;
        let spec = std::mem::take(&mut pending.spec);
        let kept_secret = if spec.retries > 0 { pending.secret.clone() } else { bytes::Bytes::new() };
        let (secret, preput) = (std::mem::take(&mut pending.secret), std::mem::take(&mut pending.preput));
        let bindings_required = plan::is_binding_required(&pending.wanted.policy);
        let needs = std::mem::take(&mut pending.wanted.needs);
        (self.bindings, self.binding_runs) = plan::bindings(&placement);
        let Placement { map, app_sizes, used, exclusive, .. } = placement;
        let Surroundings { node_names, universe_size, node_addresses, dial_out, crowded } = around;
        let universe_size = spec.universe_size.unwrap_or(universe_size);
        // A step listens at an address only.
        let listens = node_addresses.iter().all(|address| address.parse::<IpAddr>().is_ok());
        let listens = listens && map.nodes().len() > 1 && !chooses_interface(&spec);
        let until = (spec.timeout_ms > 0).then(|| now.mono + Duration::from_millis(spec.timeout_ms));
        let body = wire::LaunchBody {
            namespace: self.namespace.clone(),
            spec: Some(spec),
            app_sizes,
            node_names: node_names.clone(),
            universe_size,
            bindings: self.bindings.clone(),
            binding_runs: self.binding_runs.clone(),
            bindings_required,
            node_addresses,
            dial_out,
            crowded,
            secret: if listens { secret } else { bytes::Bytes::new() },
            spawned: self.spawned.is_some(),
            spawner_namespace: self.spawned.as_ref().map_or_else(String::new, |it| it.parent_namespace.clone()),
            preput,
        };
        let launch = wire::Launch {
            job: self.id,
            map: Some((&map).into()),
            body: body.encode_to_vec().into(),
            group: bytes::Bytes::new(),
            owner: self.owner.clone(),
            format: 0,
        };
        let placed = job_event::Placed { map: Some((&map).into()), node_names: node_names.clone() };
        (self.started_ms, self.secret) = (now.unix_ms, kept_secret);
        (self.app_sizes, self.universe_size) = (body.app_sizes, body.universe_size);
        let output = map.nodes().iter().map(|node| (*node, Inbox::default())).collect();
        (self.map, self.node_names) = (map, node_names);
        let held = Held { slots: used, exclusive, needs };
        let (members, logged) = (Vec::new(), BTreeMap::new());
        let active = Box::new(Active { launch: launch.clone(), output, logged, members, held });
        self.apply(Event::Launched { active, until });
        Some((launch, job_event::Body::Placed(placed)))
    }

    /// Whether a log of before a restart has this notice.
    pub(super) fn has_told(&self, text: &str) -> bool {
        self.told.contains(text)
    }

    /// Takes in a step's notice. Returns it if it is new and within the limit.
    pub(super) fn take_notice(&mut self, notice: &wire::Notice) -> Option<String> {
        let mut notice = wire::Notice { text: notice.text.clone(), ..*notice };
        sentences::cut(&mut notice.text, SHOWN_BYTES);
        let fits = self.noticed.len() < NOTICES_MAX && self.map.count_on(notice.node) > 0 && !self.is_over();
        let news = fits && self.noticed.insert((notice.node, notice.text.clone()));
        let text = format!("{}: {}", self.node_name(notice.node), notice.text);
        (news && !self.told.contains(&text)).then_some(text)
    }

    /// Takes in the exit of a rank, or of a run of ranks; `is_away` returns whether a node is unreachable. Returns the parts that are new.
    pub(super) fn take_exit(&mut self, now: Now, exit: &RankExit, is_away: impl Fn(NodeId) -> bool) -> Vec<RankExit> {
        self.ends.take(now.mono.as_micros() as i128, exit, &self.map, is_away)
    }

    /// Takes in what the nodes have reported, when the job's ranks have ended and their streams are still known.
    pub(super) fn take_usage(&mut self, reports: &[(NodeId, wire::Usage)]) {
        let output_bytes = self.output_bytes();
        self.used = match self.joined {
            true => Used::of_members(output_bytes),
            false => Used::new(&self.map, reports, output_bytes),
        };
    }

    /// Returns how much output of its ranks the head has received.
    pub(super) fn output_bytes(&self) -> u64 {
        match self.life.active() {
            Some(active) => active.output.values().map(Inbox::received).sum(),
            None => self.used.output_bytes,
        }
    }

    /// Returns the first failure, which may be that of a job that this job spawned.
    pub(super) fn cause(&self) -> Option<&RankExit> {
        self.ends.cause()
    }

    /// Fails a job that was never placed.
    pub(super) fn fail_unplaced(&mut self, why: String) {
        self.ends.fail_unplaced(why);
        self.apply(Event::Unplaceable);
    }

    /// Ends the job: sets its end time and exit code, and returns the event to log.
    pub(super) fn finish(&mut self, now: Now) -> job_event::Body {
        self.ends.note_unheard(&self.map, |node| node_name(&self.map, &self.node_names, node));
        self.exit_code = match self.life.state() {
            JobState::Cancelled => u32::from(exit::CANCELLED),
            JobState::TimedOut => u32::from(exit::TIMED_OUT),
            JobState::Failed => self.cause().map_or(0, |cause| cause.code),
            JobState::Done | JobState::Unknown | JobState::Queued | JobState::Running | JobState::Ending => 0,
        };
        self.ended_ms = now.unix_ms;
        job_event::Body::Ended(self.info())
    }

    // --- lost nodes ---

    /// Returns what the loss of this node does to the job: it never continues without any node.
    pub(super) fn loss_of(&self, node: NodeId) -> Loss {
        let is_left = |other: &NodeId| *other != node && !self.lost.contains_key(other);
        match self.continues && self.map.nodes().iter().any(is_left) {
            true => Loss::Continues,
            false => Loss::Ends,
        }
    }

    pub(super) fn on_node_loss(&self) -> OnNodeLoss {
        if self.continues { OnNodeLoss::Continue } else { OnNodeLoss::End }
    }

    /// Records the loss of nodes. Returns whether the job continues without them.
    pub(super) fn lose_nodes(&mut self, nodes: &[NodeId], why: &str) -> bool {
        for node in nodes {
            if self.loss_of(*node) == Loss::Ends {
                return false;
            }
            self.lost.insert(*node, why.to_owned());
        }
        true
    }

    /// Returns whether the job has continued without this node.
    pub(super) fn has_lost(&self, node: NodeId) -> bool {
        self.lost.contains_key(&node)
    }

    /// Returns the nodes without which the job continues.
    pub(super) fn lost_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.lost.keys().copied()
    }

    /// Returns the number of ranks on lost nodes.
    pub(super) fn lost_ranks(&self) -> u32 {
        self.lost.keys().map(|node| self.map.count_on(*node)).sum()
    }

    /// Returns the messages that tell steps of the lost nodes and ranks.
    pub(super) fn losses(&self) -> impl Iterator<Item = wire::NodesLost> + '_ {
        let ranks = self.ends.all().filter(|exit| exit.lost).map(|exit| ranks_lost(self.id, exit));
        self.lost_nodes_told().chain(ranks)
    }

    /// Returns the messages that tell steps of the lost nodes.
    pub(super) fn lost_nodes_told(&self) -> impl Iterator<Item = wire::NodesLost> + '_ {
        let told = |(node, why): (&NodeId, &String)| (vec![*node], why.clone());
        let told = self.lost.iter().map(told);
        told.map(|(nodes, why)| wire::NodesLost { job: self.id, nodes, why, ranks: Vec::new() })
    }

    /// Handles that all ranks have ended: a job that has continued until none was left has failed after all.
    pub(super) fn settle_losses(&mut self) {
        self.ends.settle(self.map.size());
    }

    pub(super) fn on_rank_loss(&self) -> OnRankLoss {
        self.on_rank_loss
    }

    /// Returns the record of a running epoch.
    pub(super) fn kept(&self) -> Option<wire::KeptEpoch> {
        let launch = self.life.active()?.launch.clone();
        Some(wire::KeptEpoch { launch: Some(launch), submitted_ms: self.submitted_ms })
    }

    /// Returns the record of a job that is being killed.
    pub(super) fn kept_kill(&self) -> Option<wire::KeptKill> {
        let Life::Ending { why, kill, .. } = &self.life else { return self.last_kept.as_ref()?.1.clone() };
        let cause = self.cause().map(|cause| RankExit { ago_us: 0, ..cause.clone() });
        let state = JobState::from(*why);
        let (reason, grace_ms) = (kill.reason.clone(), kill.grace_ms);
        Some(wire::KeptKill { job: self.id, state: state.into(), reason, grace_ms, cause })
    }

    /// Returns the node's name, for messages.
    pub(super) fn node_name(&self, node: NodeId) -> &str {
        node_name(&self.map, &self.node_names, node)
    }
}

fn node_name<'a>(map: &TaskMap, names: &'a [String], node: NodeId) -> &'a str {
    let index = map.position(node);
    index.and_then(|index| names.get(index)).map_or("?", String::as_str)
}

/// Returns whether the user chooses the interface over which ranks are reached: then ranks open their sockets themselves.
fn chooses_interface(spec: &JobSpec) -> bool {
    let apps = spec.apps.iter().flat_map(|app| &app.env);
    apps.chain(&spec.env).any(|var| var.name == *INTERFACE.as_bytes())
}

/// Returns the bytes of a specification and of the initial contents of the KVS.
pub(super) fn spec_bytes(spec: &JobSpec, preput: &[wire::Kv]) -> u64 {
    let preput: usize = preput.iter().map(Message::encoded_len).sum();
    (spec.encoded_len() + preput) as u64
}

/// Returns with what a job was launched.
fn launched_body(kept: &wire::KeptJob) -> Option<wire::LaunchBody> {
    use wire::kept_job::State;
    let launched = match kept.state.as_ref()? {
        State::Launched(launched) => launched,
        State::Outlived(outlived) => outlived.launched.as_ref()?,
        State::Queued(_) => return None,
    };
    wire::LaunchBody::decode(launched.launch.as_ref()?.body.clone()).ok()
}
