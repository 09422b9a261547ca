//! The head's part of a daemon: it owns the jobs. It knows the nodes, places jobs, keeps the queue and decides how jobs end.
//!
//! - [`life`]: a job's states, as one table. [`job`], [`ends`], [`used`]: a job, the exits of its ranks, and what they have used.
//!   [`jobs`]: all jobs.
//! - [`nodes`], [`ledger`], [`offers`]: the nodes, the resources that jobs hold, and placement. [`queue`]: jobs waiting for
//!   placement; [`holding`]: at the wish of their users; [`after`]: for other jobs. [`scheduling`]: which of them starts. [`why`]: why not.
//! - [`mod@array`]: many jobs of one submission, and their [`elements`]. [`retry`]: what has failed starts again; their numbers are in `attempts`.
//!   [`resources`]: memory and what users declare.
//! - [`launching`]: from a submission to its launch. [`ending`]: from a failure, a kill or the last rank to the verdict.
//! - [`family`]: jobs that ranks spawn. [`groups`], [`lobby`]: running processes, and the groups that they join.
//! - [`output`]: the output of ranks, on its way to the logs. [`written`]: what waits until it is there.
//! - [`names`], [`questions`], [`values`], [`stdin`], [`probes`]: requests of ranks, steps and clients. [`answers`]: dispatch of
//!   clients' calls.
//! - [`requests`]: requests of steps for processes of other nodes and jobs: [`meetings`], [`fetches`], [`published`], [`events`];
//!   [`watched`]: ended ranks. [`rank_set`]: sets of ranks.
//! - [`knocks`], [`places`]: where a joining daemon gets its place in the tree. [`waits`], [`blocked`]: what the DVM waits for. [`tokens`]: join tokens.
//!   [`marks`]: drained and labelled nodes. [`owner`]: whose a job is, and what a user may have.
//! - [`called`], [`listing`]: how users name and find jobs. [`history`]: which ended jobs are remembered.
//! - [`stopping`]: the end of the DVM. [`journal`]: what outlives the head. [`standbys`]: nodes that may become the head, and which head this is.
//! - [`feed`]: what clients that watch the DVM are told; [`tally`]: its metrics.
//!
//! Cost: an input looks only at the jobs and nodes that it concerns. Two operations look at every node: placing a job, and listing the
//! nodes.

mod after;
mod answers;
mod array;
mod blocked;
mod called;
mod elements;
mod ending;
mod ends;
mod events;
mod family;
mod feed;
mod fetches;
mod groups;
mod history;
mod holding;
mod job;
mod jobs;
mod journal;
mod knocks;
mod launching;
mod ledger;
mod life;
mod listing;
mod lobby;
mod maintenance;
mod marks;
mod meetings;
mod names;
mod nodes;
mod offers;
mod output;
mod owner;
mod places;
mod probes;
mod published;
mod questions;
mod queue;
mod rank_set;
mod requests;
mod resources;
mod retry;
mod scheduling;
mod spawned;
mod standbys;
mod stdin;
mod stopping;
mod tally;
mod tokens;
mod used;
mod values;
mod waits;
mod watched;
mod why;
mod written;

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_proto::v1::{self as wire, NodeEvent, NodeInfo, down, job_event, kept, up};

use crate::between::{Loss, Order, Outputs, Report};
use crate::calls::Answer;
use crate::contract::{Effect, HEAD, Memory, Start};
use crate::timers::Timers;
use crate::{JobId, NodeId, Now, Tuning, sentences};

pub use journal::{KeptJobs, jobs_of};

use after::Afters;
use events::Events;
use feed::Feed;
use fetches::Fetches;
use jobs::Jobs;
use knocks::Knocks;
use ledger::Ledger;
use lobby::Lobbies;
use meetings::Meetings;
use names::NamesOfUsers;
use nodes::Nodes;
use probes::Probes;
use published::Published;
use questions::Questions;
use queue::Queue;
use standbys::Standbys;
use stdin::Fed;
use tally::Tally;
use tokens::Tokens;
use values::Values;
use waits::Waits;
use watched::Watched;
use written::Unwritten;

/// A head that is started one millisecond later begins with a number that is larger by two to this power.
const NUMBERS_PER_MS_BITS: u32 = 20;

/// The head's state.
#[derive(Debug)]
pub(crate) struct Head {
    dvm: String,
    tuning: Tuning,
    memory: Memory,
    /// The jobs that had a step on the head's node before a restart.
    own_steps: BTreeSet<JobId>,
    /// Whether the DVM serves all users.
    serves_all: bool,
    nodes: Nodes,
    knocks: Knocks,
    ledger: Ledger,
    jobs: Jobs,
    queue: Queue,
    afters: Afters,
    /// Elements of arrays whose ends have been recorded, and whose arrays do not know it yet.
    elements_ended: Vec<wire::JobInfo>,
    /// Jobs whose logs have a failure after which they start again.
    again: Vec<JobId>,
    names: NamesOfUsers,
    questions: Questions,
    meetings: Meetings,
    fetches: Fetches,
    published: Published,
    events: Events,
    watched: Watched,
    /// The last number of a fetch or an event; those of an earlier head are smaller.
    last_number: u64,
    probes: Probes,
    waits: Waits,
    lobbies: Lobbies,
    values: Values,
    tokens: Tokens,
    unwritten: Unwritten,
    /// The nodes that an earlier head knew, and that have not connected to this one.
    returning: BTreeSet<NodeId>,
    /// Calls that spawn jobs and wait for these nodes.
    late_spawns: Vec<wire::SpawnCall>,
    timers: Timers<Due>,
    /// When a job of a user, by uid, is too old to be remembered. This wakes no head that is idle.
    ages: Timers<u32>,
    feed: Feed,
    tally: Tally,
    /// Which head this is.
    epoch: wire::HeadEpoch,
    standbys: Standbys,
    /// Records that must be written, in order.
    changes: Vec<wire::Kept>,
    stopping: stopping::Stopping,
}

/// A deadline of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A node whose link is cut counts as lost.
    Node(NodeId),
    /// A job's time limit has passed, or its nodes have not confirmed the kill.
    Job(JobId),
    /// A node has not opened a port.
    Open(NodeId),
    /// A probe of the nodes' loads ends.
    Probe(u64),
    /// The client of a job has lost its connection, or the head was started, and it has not come back.
    Owner(JobId),
    /// A stop of the DVM waits no longer for nodes that are away.
    Stop,
}

/// What nodes get that may have missed a launch.
#[derive(Debug, Clone, Copy)]
enum Repeat {
    Launch,
    /// Only the question, because a launch is large and most of them have it.
    Check,
}

impl Head {
    /// Returns a head whose own node is the only node. Sets the node's id and time.
    pub(crate) fn new(now: Now, start: &mut Start, tuning: Tuning) -> Head {
        (start.me.node, start.me.joined_ms) = (HEAD, now.unix_ms);
        Head {
            dvm: start.dvm.clone(),
            tuning,
            memory: start.memory,
            own_steps: start.steps.iter().map(|step| step.job).collect(),
            serves_all: start.serves_all,
            nodes: Nodes::new(start.me.clone(), tuning.arity),
            knocks: Knocks::default(),
            ledger: Ledger::of(&start.resources),
            jobs: Jobs::default(),
            queue: Queue::default(),
            afters: Afters::default(),
            elements_ended: Vec::new(),
            again: Vec::new(),
            names: NamesOfUsers::default(),
            questions: Questions::default(),
            meetings: Meetings::default(),
            fetches: Fetches::default(),
            published: Published::default(),
            events: Events::default(),
            watched: Watched::default(),
            last_number: now.unix_ms << NUMBERS_PER_MS_BITS,
            probes: Probes::default(),
            waits: Waits::default(),
            lobbies: Lobbies::default(),
            values: Values::default(),
            tokens: Tokens::default(),
            unwritten: Unwritten::default(),
            returning: BTreeSet::new(),
            late_spawns: Vec::new(),
            timers: Timers::default(),
            ages: Timers::default(),
            feed: Feed::new(now, &start.me, start.memory.next_node),
            tally: Tally::default(),
            epoch: wire::HeadEpoch::default(),
            standbys: Standbys::default(),
            changes: Vec::new(),
            stopping: stopping::Stopping::default(),
        }
    }

    /// Handles a report of the node at the root.
    pub(crate) fn on_report(&mut self, now: Now, report: Report, out: &mut Outputs<Order>) {
        match report {
            Report::Up(body) => self.on_up(now, body, out),
            Report::Knock { link, nodes, has_room, unreachable } => {
                self.on_knock(now, link, nodes, has_room, unreachable, out)
            }
            Report::Withdrawn { link } => self.on_withdrawn(link),
            Report::Stuck { job, rank, fence } => self.on_stuck(now, job, rank, fence, out),
            Report::Over { job, exits, usage } => self.on_over(now, job, &exits, &usage, out),
            Report::GivenUp { job, nodes, why } => self.on_given_up(now, job, &nodes, &why, out),
        }
    }

    fn on_up(&mut self, now: Now, body: up::Body, out: &mut Outputs<Order>) {
        match body {
            up::Body::NodesUp(nodes) => self.on_nodes_up(now, nodes.nodes, out),
            up::Body::NodesAway(nodes) => self.on_nodes_away(now, &nodes.nodes),
            up::Body::NodesGone(nodes) => {
                self.lose_nodes(&nodes.nodes, NodeEvent::Left, sentences::node_stopped, out);
            }
            up::Body::RankFailed(wire::RankFailed { job, exit, others }) => {
                exit.into_iter().chain(others).for_each(|exit| self.on_rank_failed(now, job, exit, out));
            }
            up::Body::Output(output) => self.on_output(now, output, out),
            up::Body::StdinAck(ack) => self.on_stdin_ack(&ack, out),
            up::Body::Notice(notice) => self.on_notice(now, &notice, out),
            up::Body::GroupJoin(join) => self.on_group_join(now, join, out),
            up::Body::GroupLeave(leave) => self.on_group_leave(now, &leave, out),
            up::Body::Load(report) => self.on_load(report, out),
            up::Body::Waits(report) => self.on_wait_report(now, report, out),
            up::Body::NameCall(call) => self.on_name_call(now, call, out),
            up::Body::Fetched(fetched) => self.on_fetched(&fetched, out),
            up::Body::RanksEnded(ended) => self.on_ranks_ended(&ended, out),
            up::Body::Resume(resume) => self.on_step_resumed(&resume, out),
            up::Body::SpawnCall(call) => self.on_spawn_call(now, call, out),
            up::Body::Missed(missed) => self.on_missed(&missed, out),
            up::Body::Begun(begun) => self.on_begun(now, begun.job, out),
            // The root's relay has handled these, or they are never sent to the head.
            up::Body::FenceUp(_)
            | up::Body::Passed(_)
            | up::Body::GetHeld(_)
            | up::Body::NodesPut(_)
            | up::Body::Located(_)
            | up::Body::Locate(_)
            | up::Body::Done(_)
            | up::Body::PmiResult(_)
            | up::Body::Master(_)
            | up::Body::Part(_)
            | up::Body::Pong(_)
            | up::Body::Hello(_) => {}
        }
    }

    /// Does everything that is due at `now` or has become possible.
    pub(crate) fn settle(&mut self, now: Now, out: &mut Outputs<Order>) {
        while let Some(due) = self.timers.pop_due(now.mono) {
            match due {
                Due::Node(node) => {
                    let grace = self.tuning.reattach_grace;
                    self.lose_nodes(&[node], NodeEvent::Lost, |name| sentences::node_unreachable(name, grace), out);
                }
                Due::Stop => {} // settled below
                Due::Open(node) => self.on_not_opened(now, node, out),
                Due::Job(job) => self.on_job_due(now, job, out),
                Due::Owner(job) => self.cancel(now, job, None, sentences::OWNER_IS_GONE, out),
                Due::Probe(probe) => {
                    let req = self.probes.end(probe);
                    self.answer_nodes(req, out);
                }
            }
        }
        self.settle_history(now, out);
        self.settle_lobby(now, out);
        let (jobs, mut answers) = (&self.jobs, Vec::new());
        self.values.settle(now.mono, |id| jobs.get(id).map_or(0, |job| job.map.size()), &mut answers);
        answers.into_iter().for_each(|(req, answer)| out.answer(req, answer));
        self.settle_requests(now, out);
        self.settle_again(now, out);
        self.settle_ends(now, out);
        while std::mem::take(&mut self.queue.try_again) {
            self.begin_late_spawns(now, out);
            self.run_queue(now, out);
            self.settle_ends(now, out);
        }
        self.settle_stop(now, out);
        self.feed.settle(now);
    }

    /// Takes notice of an effect that this head has emitted, for the clients that watch the DVM.
    pub(crate) fn observe(&mut self, now: Now, effect: &Effect) {
        self.tally.observe(now, effect, self.feed.restores());
        let (nodes, jobs) = (&self.nodes, &self.jobs);
        let alive = |job| jobs.get(jobs.current(job)?).filter(|job| !job.is_over()).map(|job| job.owner().cloned());
        self.feed.observe(effect, alive, |node| nodes.name(node));
    }

    /// Notes whether the present input is what an earlier head has left.
    pub(crate) fn restores(&mut self, restores: bool) {
        self.feed.restoring(restores);
    }

    /// Returns the number of the last event.
    pub(crate) fn last_event(&self) -> u64 {
        self.feed.last()
    }

    /// Returns the latest time at which [`Head::settle`] must be called.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let next = [self.timers.next(), self.lobbies.next_deadline(), self.values.next_deadline()];
        let requests = [self.meetings.next_deadline(), self.fetches.next_deadline(), self.published.next_deadline()];
        next.into_iter().chain(requests).flatten().min()
    }

    /// Describes the entries that are still kept, for tests.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let (names, questions) = (self.names.leftovers(), self.questions.leftovers());
        let (lobby, values) = (self.lobbies.leftovers(), self.values.leftovers());
        let waiting = self.probes.leftovers().chain(self.waits.leftovers()).chain(self.knocks.leftovers());
        let jobs = self.jobs.leftovers().chain(self.queue.leftovers()).chain(self.afters.leftovers()).chain(waiting);
        let among = self.meetings.leftovers().chain(self.fetches.leftovers()).chain(self.published.leftovers());
        let among = among.chain(self.events.leftovers()).chain(self.watched.leftovers());
        let among = among.chain(self.unwritten.leftovers()).chain(self.feed.leftovers());
        jobs.chain(among)
            .chain(names)
            .chain(questions)
            .chain(lobby)
            .chain(values)
            .chain(self.ledger.leftovers())
            .collect()
    }

    // --- nodes ---

    fn on_nodes_up(&mut self, now: Now, nodes: Vec<NodeInfo>, out: &mut Outputs<Order>) {
        let mut back = Vec::new();
        for mut info in nodes {
            if info.node >= self.memory.next_node {
                continue; // the head has given this id to no node
            }
            if let Some(known) = self.nodes.get(info.node) {
                info.joined_ms = known.info.joined_ms;
                info.name = known.info.name.clone();
            } else {
                info.name = self.nodes.free_name(&info);
                info.joined_ms = now.unix_ms;
            }
            back.push(info.node);
            self.feed.node_is_up(info.node, &info.name);
            self.timers.cancel(&Due::Node(info.node));
            self.returning.remove(&info.node);
            self.keep_node(&info);
            self.nodes.insert(info, false);
        }
        self.queue.try_again = true;
        out.push(Effect::Remember(self.memory));
        self.relaunch(&back, out);
        self.have_places(&back);
        back.iter().for_each(|node| self.on_reported(now, *node, out));
    }

    /// Handles that a node has missed the launch of a job, see [`Head::relaunch`].
    fn on_missed(&mut self, missed: &wire::Missed, out: &mut Outputs<Order>) {
        self.repeat(&[missed.job], &[missed.node], Repeat::Launch, out);
    }

    /// Asks nodes that have (re)connected whether they have missed launches, and repeats kills; other nodes ignore the repeat.
    fn relaunch(&mut self, nodes: &[NodeId], out: &mut Outputs<Order>) {
        let jobs: Vec<JobId> = self.jobs.on_nodes(nodes).into_iter().collect();
        self.repeat(&jobs, nodes, Repeat::Check, out);
    }

    fn repeat(&mut self, jobs: &[JobId], nodes: &[NodeId], what: Repeat, out: &mut Outputs<Order>) {
        for id in jobs.iter().copied() {
            let Some(job) = self.jobs.get(id) else { continue };
            let Some(active) = job.life().active() else { continue };
            // Lost nodes that return are too late for a job that has continued without them.
            let (late, nodes): (Vec<NodeId>, Vec<NodeId>) = nodes.iter().partition(|node| job.has_lost(**node));
            if !late.is_empty() {
                let reason = sentences::returned_late();
                let kill = wire::Kill { job: id, grace_ms: job.grace_ms, reason, nodes: late.clone() };
                out.send_message(Order::Repeat { nodes: late, body: down::Body::Kill(kill) });
            }
            let body = match what {
                Repeat::Launch => down::Body::Launch(active.launch.clone()),
                Repeat::Check => down::Body::Check(wire::Check { job: id }),
            };
            out.send_message(Order::Repeat { nodes: nodes.clone(), body });
            for lost in job.losses() {
                out.send_message(Order::Repeat { nodes: nodes.clone(), body: down::Body::NodesLost(lost) });
            }
            if let Some(kill) = job.kill() {
                out.send_message(Order::Repeat { nodes: nodes.clone(), body: down::Body::Kill(kill.clone()) });
            }
            nodes.iter().for_each(|node| self.ask_again(id, *node, 0, out));
        }
    }

    fn on_nodes_away(&mut self, now: Now, nodes: &[NodeId]) {
        self.lobbies.all().for_each(|lobby| lobby.nodes_are_away(now.mono, nodes));
        for node in nodes {
            if self.nodes.set_away(*node) {
                self.feed.node_is_away(*node, &self.nodes.name(*node));
                self.timers.set(Due::Node(*node), now.mono + self.tuning.reattach_grace);
            }
        }
    }

    /// Handles that these nodes are lost, or have left: their jobs fail.
    fn lose_nodes(
        &mut self,
        nodes: &[NodeId],
        change: NodeEvent,
        why: impl Fn(&str) -> String,
        out: &mut Outputs<Order>,
    ) {
        for node in nodes {
            self.timers.cancel(&Due::Node(*node));
            self.returning.remove(node);
            let Some(name) = self.nodes.remove(*node) else { continue };
            self.keep(kept::What::NodeOut(*node));
            self.feed.node_is_gone(*node, &name, change, why(&name));
            for job in self.jobs.on_nodes(&[*node]) {
                let loss = self.jobs.get(job).map_or(Loss::Ends, |job| job.loss_of(*node));
                out.send_message(Order::GiveUp { job, nodes: vec![*node], why: why(&name), loss });
            }
        }
        self.lobbies.all().for_each(|lobby| lobby.nodes_are_lost(nodes));
        self.opener_is_lost(nodes);
        self.queue.try_again = true;
    }

    fn on_load(&mut self, report: wire::LoadReport, out: &mut Outputs<Order>) {
        for wire::LoadOfNode { node, load } in report.loads {
            self.nodes.set_load(node, load);
        }
        self.timers.cancel(&Due::Probe(report.probe));
        let req = self.probes.end(report.probe);
        self.answer_nodes(req, out);
    }

    fn answer_nodes(&self, req: Option<u64>, out: &mut Outputs<Order>) {
        if let Some(req) = req {
            let infos = self.nodes.infos(|node| self.ledger.in_use(node));
            let infos = infos.into_iter().map(|info| self.ledger.shown(info)).collect();
            out.answer(req, Answer::Nodes(infos));
        }
    }

    // --- messages of steps ---

    /// Handles a step's notice, which is repeated after a cut link.
    fn on_notice(&mut self, now: Now, notice: &wire::Notice, out: &mut Outputs<Order>) {
        if let Some(text) = self.jobs.get_mut(notice.job).and_then(|job| job.take_notice(notice)) {
            out.log(now, notice.job, job_event::Body::Notice(text));
        }
    }

    fn on_stdin_ack(&mut self, ack: &wire::StdinAck, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(ack.job) else { return };
        for stdin in job.stdin.on_ack(ack) {
            out.order(down::Body::Stdin(stdin));
        }
        self.settle_stdin(ack.job, out);
    }

    /// Answers the client that sends a job's input, if the answer is due.
    fn settle_stdin(&mut self, job: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(job) else { return };
        let no_ranks = matches!(job.life(), life::Life::Outlived { .. } | life::Life::Ended(_));
        if let Some(Fed { req, delivered, closed }) = job.stdin.settle(no_ranks) {
            out.answer(req, Answer::Fed { delivered, closed });
        }
    }
}
