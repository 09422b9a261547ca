//! The messages between the head and its node. Neither imports the other: [`Rsd`](crate::Rsd) carries the messages.
//!
//! For its node, the head is a parent as any other node's parent. So most of these messages are those of a link, and a node
//! handles them in the same way wherever they come from. The others exist only at the root of the tree.

use std::collections::VecDeque;

use rsd_proto::v1::{self as wire, Down, JobEvent, NodeInfo, RankExit, Usage, down, job_event, up};

use crate::calls::{Answer, Refused};
use crate::contract::{Effect, LinkId, ReqId};
use crate::{JobId, NodeId, Now};

/// A message of the head's node to the head.
#[derive(Debug)]
pub(crate) enum Report {
    /// A message that any node sends to its parent.
    Up(up::Body),
    /// A daemon has connected: the first of `nodes`, with the nodes below it. It could not reach the `unreachable` ones. Answered by
    /// [`Order::Admit`] or [`Order::Redirect`].
    Knock { link: LinkId, nodes: Vec<NodeInfo>, has_room: bool, unreachable: Vec<NodeId> },
    /// The stream of a daemon that is not a child was closed: it no longer waits for the answer to its [`Report::Knock`].
    Withdrawn { link: LinkId },
    /// The node of `rank` has ended, and the job's other nodes wait in a fence.
    Stuck { job: JobId, rank: u32, fence: u64 },
    /// All nodes of a job have ended or are lost.
    Over { job: JobId, exits: Vec<RankExit>, usage: Vec<(NodeId, Usage)> },
    /// These nodes had not reported the end of a job's ranks and never will: the reply to [`Order::GiveUp`].
    GivenUp { job: JobId, nodes: Vec<NodeId>, why: String },
}

/// A message of the head to its node.
#[derive(Debug)]
pub(crate) enum Order {
    /// A message that a parent sends to any node.
    Down(down::Body),
    /// Send this again, but only towards nodes that may have missed it.
    Repeat { nodes: Vec<NodeId>, body: down::Body },
    /// A launch of which the part of this node was on another machine, and is over.
    LaunchElsewhere(wire::Launch),
    /// Which head this is, and its standbys, as the heads that they will be.
    Reign { epoch: wire::HeadEpoch, standbys: Vec<NodeInfo> },
    /// Count these nodes as ended in a job.
    GiveUp { job: JobId, nodes: Vec<NodeId>, why: String, loss: Loss },
    /// Accept a daemon as a child; the first of `nodes` now has its id and name.
    Admit { link: LinkId, nodes: Vec<NodeInfo> },
    /// Send a daemon to another parent.
    Redirect { link: LinkId, redirect: wire::Redirect },
    /// Stop this daemon once its jobs are over, and answer the request then.
    Stop { req: ReqId, unreached: Vec<String> },
}

/// What it means for a job that some of its nodes count as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The job ends.
    Ends,
    /// The ranks on the other nodes continue, and their fences complete without these nodes.
    Continues,
}

/// An output of a state machine: an effect, or a message of type `M` to the other state machine.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "both are moved once, from one list to another; a box would cost an allocation each"
)]
pub(crate) enum Output<M> {
    Effect(Effect),
    Message(M),
}

/// Outputs, in order.
#[derive(Debug)]
pub(crate) struct Outputs<M>(VecDeque<Output<M>>);

impl<M> Default for Outputs<M> {
    fn default() -> Outputs<M> {
        Outputs(VecDeque::new())
    }
}

impl<M> Outputs<M> {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.0.push_back(Output::Effect(effect));
    }

    pub(crate) fn extend(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.0.extend(effects.into_iter().map(Output::Effect));
    }

    pub(crate) fn send_message(&mut self, message: M) {
        self.0.push_back(Output::Message(message));
    }

    pub(crate) fn pop(&mut self) -> Option<Output<M>> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn answer(&mut self, req: ReqId, answer: Answer) {
        self.push(Effect::Answer { req, answer });
    }

    pub(crate) fn refuse(&mut self, req: ReqId, refused: Refused) {
        self.answer(req, Answer::Refused(refused));
    }
}

impl Outputs<Report> {
    pub(crate) fn send(&mut self, link: LinkId, body: down::Body) {
        self.push(Effect::Down { link, down: Down { body: Some(body) } });
    }
}

impl Outputs<Order> {
    pub(crate) fn order(&mut self, body: down::Body) {
        self.send_message(Order::Down(body));
    }

    pub(crate) fn log(&mut self, now: Now, job: JobId, body: job_event::Body) {
        let event = JobEvent { at_ms: now.unix_ms, body: Some(body), ..JobEvent::default() };
        // All attempts of a job have one log.
        self.push(Effect::Log { job: crate::attempts::number(job), event: Box::new(event) });
    }
}
