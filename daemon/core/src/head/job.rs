//! One job's life on the head: queued, running, ending, ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, JobInfo, JobSpec, JobState, RankExit, job_event};

use rsd_proto::library::INTERFACE;

use crate::calls::exit;
use crate::head::bound::Bound;
use crate::head::family::Spawned;
use crate::head::stdin::StdinFeed;
use crate::outbox::Inbox;
use crate::place::Placement;
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now, sentences};

/// Notices of steps that are passed on; they mostly say the same.
const NOTICES_MAX: usize = 8;

/// A job as the head keeps it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    /// Until it is launched.
    pub(crate) spec: Option<JobSpec>,
    /// While it runs: for nodes that missed it.
    pub(crate) launch: Option<wire::Launch>,
    /// Until it is launched.
    secret: Bytes,
    pub(crate) grace_ms: u64,
    pub(crate) life: Life,
    command: String,
    pub(crate) namespace: String,
    submitted_ms: u64,
    started_ms: u64,
    ended_ms: u64,
    pub(crate) map: TaskMap,
    node_names: Vec<String>,
    /// Ranks on each node: the slots in use.
    pub(crate) used: Vec<(NodeId, u32)>,
    pub(crate) bound: Bound,
    /// Nodes whose step has said something.
    noticed: BTreeSet<(NodeId, String)>,
    cause: Option<RankExit>,
    /// When that was, as far as is known: microseconds of our clock, which may have begun later.
    caused_at_us: i128,
    /// Nodes that were out of reach then.
    unheard: Vec<NodeId>,
    exits: BTreeMap<u32, RankExit>,
    exit_code: u32,
    /// How far each node's output has come.
    pub(crate) output: BTreeMap<NodeId, Inbox>,
    pub(crate) stdin: StdinFeed,
    /// A group's epoch: its ranks ran already.
    pub(crate) joined: bool,
    /// Of a group's epoch: the members' tokens, by rank.
    pub(crate) members: Vec<String>,
    /// A rank has spawned it.
    pub(crate) spawned: Option<Spawned>,
    /// Of one that is over: who had spawned it.
    pub(crate) parent: JobId,
    /// Refused spawns that its log tells of.
    pub(crate) refusals: usize,
    /// Until it is launched: what is in its store from the start.
    pub(crate) preput: Vec<wire::Kv>,
}

/// Where a job is, and what only counts there.
#[derive(Debug)]
pub(crate) enum Life {
    Queued {
        reason: String,
    },
    Running {
        /// Its time-out.
        until: Option<Duration>,
    },
    Ending {
        why: Why,
        /// After this the nodes that still say nothing are given up.
        until: Duration,
    },
    /// Its own ranks have ended, jobs that they have spawned have not.
    Outlived {
        why: Option<Why>,
        /// Its time-out.
        until: Option<Duration>,
    },
    Ended(JobState),
}

/// Why a job is being ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Failed,
    Cancelled,
    TimedOut,
}

impl Job {
    pub(crate) fn new(
        now: Now,
        id: JobId,
        spec: JobSpec,
        secret: Bytes,
        namespace: String,
        reason: String,
        grace_ms: u64,
    ) -> Job {
        Job {
            id,
            grace_ms: spec.kill_grace_ms.unwrap_or(grace_ms),
            life: Life::Queued { reason },
            command: command_line(&spec),
            namespace,
            submitted_ms: now.unix_ms,
            started_ms: 0,
            ended_ms: 0,
            map: TaskMap::default(),
            node_names: Vec::new(),
            used: Vec::new(),
            bound: Bound::default(),
            noticed: BTreeSet::new(),
            cause: None,
            caused_at_us: 0,
            unheard: Vec::new(),
            exits: BTreeMap::new(),
            exit_code: 0,
            output: BTreeMap::new(),
            stdin: StdinFeed::default(),
            joined: false,
            members: Vec::new(),
            spawned: None,
            parent: 0,
            refusals: 0,
            preput: Vec::new(),
            spec: Some(spec),
            launch: None,
            secret,
        }
    }

    pub(crate) fn submitted(&self) -> job_event::Body {
        job_event::Body::Submitted(job_event::Submitted { job: self.id, command: self.command.clone() })
    }

    /// The rank of a member of an epoch.
    pub(crate) fn rank_of_member(&self, token: &str) -> Option<u32> {
        self.members.iter().position(|member| member == token).and_then(|rank| u32::try_from(rank).ok())
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.life, Life::Ended(_))
    }

    /// Whether it has been launched, and some of its ranks may still run.
    pub(crate) fn has_ranks(&self) -> bool {
        matches!(self.life, Life::Running { .. } | Life::Ending { .. })
    }

    /// Its own ranks are gone; it goes on for those of its family.
    pub(crate) fn outlive(&mut self) {
        let (why, until) = match &self.life {
            Life::Ending { why, .. } => (Some(*why), None),
            Life::Running { until } => (None, *until),
            Life::Queued { .. } | Life::Outlived { .. } | Life::Ended(_) => return,
        };
        self.life = Life::Outlived { why, until };
        self.launch = None;
        self.members.clear();
        self.output.clear();
        self.used.clear();
        self.bound = Bound::default();
    }

    /// It has its place: the launch to send, and the event to log.
    pub(crate) fn start(
        &mut self,
        now: Now,
        placement: Placement,
        node_names: Vec<String>,
        universe_size: u32,
        nodes_can_listen: bool,
    ) -> (wire::Launch, job_event::Body) {
        use prost::Message;
        let spec = self.spec.take();
        let timeout_ms = spec.as_ref().map_or(0, |spec| spec.timeout_ms);
        let bound = Bound::new(&placement, spec.as_ref());
        let Placement { map, app_sizes, used, .. } = placement;
        let listens = nodes_can_listen && map.nodes().len() > 1 && !spec.as_ref().is_some_and(chooses_interface);
        let secret = std::mem::take(&mut self.secret);
        let until = (timeout_ms > 0).then(|| now.mono + Duration::from_millis(timeout_ms));
        self.life = Life::Running { until };
        self.started_ms = now.unix_ms;
        self.output = map.nodes().iter().map(|node| (*node, Inbox::default())).collect();
        let body = wire::LaunchBody {
            namespace: self.namespace.clone(),
            spec,
            app_sizes,
            node_names: node_names.clone(),
            universe_size,
            bindings: bound.bindings.clone(),
            binding_runs: bound.runs.clone(),
            bindings_required: bound.required,
            secret: if listens { secret } else { Bytes::new() },
            spawned: self.spawned.is_some(),
            preput: std::mem::take(&mut self.preput),
        };
        let launch = wire::Launch {
            job: self.id,
            map: Some((&map).into()),
            body: body.encode_to_vec().into(),
            group: Bytes::new(),
        };
        let placed = job_event::Placed { map: Some((&map).into()), node_names: node_names.clone() };
        (self.map, self.used, self.bound, self.node_names) = (map, used, bound, node_names);
        self.launch = Some(launch.clone());
        (launch, job_event::Body::Placed(placed))
    }

    /// What is to be known of an epoch that runs.
    pub(crate) fn kept(&self) -> Option<wire::KeptEpoch> {
        self.launch.clone().map(|launch| wire::KeptEpoch { launch: Some(launch), submitted_ms: self.submitted_ms })
    }

    /// What is to be known of an epoch that is being ended.
    pub(crate) fn kept_kill(&self, reason: &str, grace_ms: u64) -> Option<wire::KeptKill> {
        let Life::Ending { why, .. } = &self.life else { return None };
        let state = match why {
            Why::Failed => JobState::Failed,
            Why::Cancelled => JobState::Cancelled,
            Why::TimedOut => JobState::TimedOut,
        };
        let (job, reason, cause) = (self.id, reason.to_owned(), self.cause.clone());
        (!self.members.is_empty()).then(|| wire::KeptKill { job, state: state.into(), reason, grace_ms, cause })
    }

    /// What went wrong first.
    pub(crate) fn cause(&self) -> Option<&RankExit> {
        self.cause.as_ref()
    }

    /// Takes in how a rank ended; `is_away` tells which nodes are out of reach. True if this is news. News that had to wait for a
    /// daemon may come after what followed from it.
    pub(crate) fn take_exit(&mut self, now: Now, exit: &RankExit, is_away: impl Fn(NodeId) -> bool) -> bool {
        let at_us = now.mono.as_micros() as i128 - i128::from(exit.ago_us);
        let was_held = exit.ago_us > 0 && at_us < self.caused_at_us;
        let before = self.exits.get(&exit.rank);
        if before.is_some_and(|before| before.fatal || !exit.fatal) {
            // No news but for its time, which the end of all ranks of its node does not tell.
            if was_held && exit.fatal && !exit.secondary {
                (self.cause, self.caused_at_us) = (Some(exit.clone()), at_us);
            }
            return false;
        }
        if !exit.secondary && self.cause.as_ref().is_none_or(|cause| was_held || cause.rank == exit.rank) {
            (self.cause, self.caused_at_us) = (Some(exit.clone()), at_us);
            let others = self.map.nodes().iter().copied().filter(|node| *node != exit.node);
            self.unheard = others.filter(|node| is_away(*node)).collect();
        }
        self.exits.insert(exit.rank, exit.clone());
        true
    }

    /// What went wrong first may have gone wrong in a job that it has spawned.
    pub(crate) fn take_cause(&mut self, of: JobId, cause: &RankExit) {
        let cause = || RankExit { job: if cause.job == 0 { of } else { cause.job }, ..cause.clone() };
        self.cause.get_or_insert_with(cause);
    }

    /// Everyone is gone: the verdict.
    pub(crate) fn end(&mut self, now: Now, state: Option<JobState>) -> job_event::Body {
        let why = match &self.life {
            Life::Ending { why, .. } => Some(*why),
            Life::Outlived { why, .. } => *why,
            Life::Queued { .. } | Life::Running { .. } | Life::Ended(_) => None,
        };
        let (state, code) = match (state, why, &self.cause) {
            (Some(state), ..) => (state, u32::from(exit::CANCELLED)),
            (None, Some(Why::Cancelled), _) => (JobState::Cancelled, u32::from(exit::CANCELLED)),
            (None, Some(Why::TimedOut), _) => (JobState::TimedOut, u32::from(exit::TIMED_OUT)),
            (None, _, Some(cause)) => (JobState::Failed, cause.code),
            (None, _, None) => (JobState::Done, 0),
        };
        self.say_what_is_not_known();
        self.life = Life::Ended(state);
        self.exit_code = code;
        self.ended_ms = now.unix_ms;
        (self.spec, self.launch) = (None, None);
        self.members.clear();
        self.output.clear();
        job_event::Body::Ended(self.info())
    }

    /// A node that was out of reach when something went wrong, and was given up since, may have had something to say before.
    fn say_what_is_not_known(&mut self) {
        let is_lost = |node: &NodeId| {
            self.exits.values().any(|exit| exit.node == *node && exit.code == u32::from(exit::NODE_LOST))
        };
        let names: Vec<&str> =
            self.unheard.iter().filter(|node| is_lost(node)).map(|node| self.node_name(*node)).collect();
        if names.is_empty() {
            return;
        }
        let text = sentences::may_have_failed_earlier(&names);
        if let Some(cause) = &mut self.cause {
            cause.note = sentences::noted(&cause.note, &text);
        }
    }

    /// It never ran and never will.
    pub(crate) fn fail_queued(&mut self, now: Now, why: String) -> job_event::Body {
        let how = Some(wire::rank_exit::How::Failed(why));
        self.cause = Some(RankExit { how, code: u32::from(exit::NOT_PLACED), fatal: true, ..Default::default() });
        self.end(now, None)
    }

    pub(crate) fn info(&self) -> JobInfo {
        let (state, queued_reason) = match &self.life {
            Life::Queued { reason } => (JobState::Queued, reason.clone()),
            Life::Running { .. } | Life::Outlived { why: None, .. } => (JobState::Running, String::new()),
            Life::Ending { .. } | Life::Outlived { why: Some(_), .. } => (JobState::Ending, String::new()),
            Life::Ended(state) => (*state, String::new()),
        };
        JobInfo {
            job: self.id,
            state: state.into(),
            command: self.command.clone(),
            ranks: self.map.size(),
            map: Some((&self.map).into()),
            node_names: self.node_names.clone(),
            submitted_ms: self.submitted_ms,
            started_ms: self.started_ms,
            ended_ms: self.ended_ms,
            exit_code: self.exit_code,
            cause: self.cause.clone(),
            exits: self.exits.values().cloned().collect(),
            queued_reason,
            namespace: self.namespace.clone(),
            parent: self.spawned.as_ref().map_or(self.parent, |spawned| spawned.parent),
            joined: self.joined,
            ..Default::default()
        }
    }

    /// With what is too much for lists and logs.
    pub(crate) fn info_in_full(&self) -> JobInfo {
        let Bound { bindings, runs, .. } = &self.bound;
        JobInfo { bindings: bindings.clone(), binding_runs: runs.clone(), ..self.info() }
    }

    /// Takes in what a node's step has to say: the sentence, if it is news and there are not too many of them.
    pub(crate) fn take_notice(&mut self, notice: &wire::Notice) -> Option<String> {
        let fits = self.noticed.len() < NOTICES_MAX && self.map.count_on(notice.node) > 0 && !self.is_over();
        let news = fits && self.noticed.insert((notice.node, notice.text.clone()));
        news.then(|| format!("{}: {}", self.node_name(notice.node), notice.text))
    }

    /// The node's name, for sentences.
    pub(crate) fn node_name(&self, node: NodeId) -> &str {
        let index = self.map.nodes().iter().position(|other| *other == node);
        index.and_then(|index| self.node_names.get(index)).map_or("?", String::as_str)
    }
}

/// Whether ranks are to be reached by another way than the nodes: then they listen by themselves.
fn chooses_interface(spec: &JobSpec) -> bool {
    let apps = spec.apps.iter().flat_map(|app| &app.env);
    apps.chain(&spec.env).any(|var| var.name == *INTERFACE.as_bytes())
}

fn command_line(spec: &JobSpec) -> String {
    let app = |app: &wire::App| {
        let words = app.argv.iter().map(|word| {
            let word = String::from_utf8_lossy(word);
            let plain =
                !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b));
            if plain { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    spec.apps.iter().map(app).collect::<Vec<_>>().join(" : ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ends_that_were_held_back_the_earliest_is_the_cause_by_a_clock_that_has_just_begun_too() {
        let now = Now { mono: Duration::from_secs(1), unix_ms: 0 };
        let spec = JobSpec::default();
        let mut job = Job::new(now, 7, spec, Bytes::new(), "n".into(), String::new(), 0);
        let mut take = |rank, ago_s: u64| {
            let exit = RankExit { rank, fatal: true, ago_us: ago_s * 1_000_000, ..RankExit::default() };
            assert!(job.take_exit(now, &exit, |_| false), "rank {rank}");
            job.cause().map(|cause| cause.rank)
        };
        assert_eq!(take(0, 3), Some(0));
        assert_eq!(take(3, 5), Some(3), "it was before");
        assert_eq!(take(4, 4), Some(3));
        assert_eq!(take(5, 0), Some(3), "it was not held back");
    }

    #[test]
    fn the_cause_is_what_happened_first_also_when_that_is_told_twice_and_late() {
        let at = |seconds| Now { mono: Duration::from_secs(seconds), unix_ms: 0 };
        let died = |rank, ago: u64| RankExit { rank, fatal: true, ago_us: ago * 1_000_000, ..Default::default() };
        let mut job = Job::new(at(0), 1, JobSpec::default(), Bytes::new(), "job".into(), String::new(), 0);
        let mut take = |now, exit: &RankExit| {
            let is_news = job.take_exit(at(now), exit, |_| false);
            (is_news, job.cause().map(|cause| cause.rank))
        };
        assert_eq!(take(10, &died(0, 0)), (true, Some(0)));
        // By the end of its whole node, which tells no times; then by itself.
        assert_eq!(take(11, &died(1, 0)), (true, Some(0)));
        assert_eq!(take(12, &died(1, 5)), (false, Some(1)), "it was at 7");
        assert_eq!(take(13, &died(0, 3)), (false, Some(1)), "that was at 10");
        assert_eq!(take(14, &RankExit { secondary: true, ..died(2, 13) }), (true, Some(1)), "it was ended");
    }
}
