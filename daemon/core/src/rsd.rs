//! A daemon: a [`Node`] of the tree and, on one of them, the [`Head`] that owns jobs and placement.
//!
//! Two state machines with fields of their own, joined only by messages ([`crate::between`]): the head is the parent of the node at
//! the root. [`Rsd`] carries their messages to and fro until neither has anything to say, and hands their effects to the shell.

use std::time::Duration;

use rsd_proto::v1 as wire;

pub use crate::calls::{Answer, Call, Entry, GroupCall, KvCall, KvOp, PmiOp, Refused};
pub use crate::contract::{Effect, Input, KnownStep, LinkId, MemberId, Memory, ReqId, Start};

use crate::between::{Order, Output, Outputs, Report};
use crate::calls::exit;
use crate::head::Head;
use crate::node::Node;
use crate::{NodeId, Now, Tuning};

/// One daemon.
#[derive(Debug)]
pub struct Rsd {
    node: Node,
    head: Option<Head>,
}

impl Rsd {
    /// A daemon that has no children and no parent yet.
    pub fn new(now: Now, mut start: Start, tuning: Tuning) -> Rsd {
        let is_head = start.head_addr.is_none();
        let head = is_head.then(|| Head::new(now, &mut start, tuning));
        Rsd { node: Node::new(start, tuning), head }
    }

    /// Takes one input and appends its effects, in the order in which they are to be performed: what must survive a restart, then
    /// launches, then the rest as it was decided.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        let first = out.len();
        let (mut from_node, mut from_head) = (Outputs::default(), Outputs::default());
        match input {
            Input::Call { req, call } => self.on_call(now, req, call, &mut from_node, &mut from_head),
            Input::Kept(records) => {
                if let Some(head) = &mut self.head {
                    head.on_kept(now, records, &mut from_head);
                }
            }
            Input::Hello { link, hello } => self.node.on_hello(link, hello, &mut from_node),
            Input::Up { link, up } => self.node.on_up(link, up, &mut from_node),
            Input::LinkClosed { link } => self.node.on_link_closed(link, &mut from_node),
            Input::Welcome(welcome) => self.node.on_welcome(welcome, &mut from_node),
            Input::Redirected(redirect) => self.node.on_redirected(redirect, &mut from_node),
            Input::Down(down) => self.node.on_down(now, down, &mut from_node),
            Input::ParentLost => self.node.on_parent_lost(),
            Input::StepLost { job, why } => self.node.on_step_lost(job, why, &mut from_node),
            Input::Load { probe, load } => self.node.on_load(probe, load, &mut from_node),
            Input::Join { member, join } => self.node.on_join(now, member, *join, &mut from_node),
            Input::MemberGone { member } => self.node.on_member_gone(member, &mut from_node),
            Input::Tick => {}
        }
        self.settle(now, from_node, from_head, out);
        // A launch goes first: what is written down about it is written while its ranks start.
        out[first..].sort_by_key(|effect| !matches!(effect, Effect::StartStep(_)));
        // What must survive a restart is written before any other effect of this input is performed.
        if let Some(effect) = self.head.as_mut().and_then(Head::take_kept) {
            out.insert(first, effect);
        }
    }

    fn on_call(
        &mut self,
        now: Now,
        req: ReqId,
        call: Call,
        from_node: &mut Outputs<Report>,
        from_head: &mut Outputs<Order>,
    ) {
        match (call, &mut self.head) {
            (Call::Status, head) => {
                let mut status = self.node.status();
                if let Some(head) = head {
                    head.complete_status(&mut status);
                }
                from_node.answer(req, Answer::Status(Box::new(status)));
            }
            (Call::Pmi { job, rank, namespace, op }, _) => {
                self.node.on_pmi_request(req, job, rank, &namespace, op, from_node);
            }
            (call, Some(head)) => head.on_call(now, req, call, from_head),
            (Call::Shutdown { force }, None) => self.node.on_shutdown(now, req, force, from_node),
            (_, None) => from_node.refuse(req, Refused::new(exit::USAGE, "only the head of the DVM answers this")),
        }
    }

    /// Carries messages until both are silent, then does what became possible or is due, until nothing is.
    fn settle(
        &mut self,
        now: Now,
        mut from_node: Outputs<Report>,
        mut from_head: Outputs<Order>,
        out: &mut Vec<Effect>,
    ) {
        loop {
            while !(from_node.is_empty() && from_head.is_empty()) {
                while let Some(output) = from_head.pop() {
                    match output {
                        Output::Effect(effect) => out.push(effect),
                        Output::Message(order) => self.node.on_order(now, order, &mut from_node),
                    }
                }
                while let Some(output) = from_node.pop() {
                    match (output, &mut self.head) {
                        (Output::Effect(effect), _) => out.push(effect),
                        (Output::Message(report), Some(head)) => head.on_report(now, report, &mut from_head),
                        (Output::Message(_), None) => {} // only the root of the tree reports
                    }
                }
            }
            self.node.settle(now, &mut from_node);
            if let Some(head) = self.head.as_mut().filter(|_| from_node.is_empty()) {
                head.settle(now, &mut from_head);
            }
            if from_node.is_empty() && from_head.is_empty() {
                break;
            }
        }
        self.node.leave_if_stopped(now, &mut from_node);
        while let Some(Output::Effect(effect)) = from_node.pop() {
            out.push(effect);
        }
    }

    /// The latest time at which [`Input::Tick`] is wanted.
    pub fn next_deadline(&self) -> Option<Duration> {
        let head = self.head.as_ref().and_then(Head::next_deadline);
        head.into_iter().chain(self.node.next_deadline()).min()
    }

    /// The first message to a parent.
    pub fn hello(&mut self, redirected: bool) -> wire::Hello {
        self.node.hello(redirected)
    }

    /// Its node id, the head's being 0.
    pub fn node(&self) -> NodeId {
        self.node.id()
    }

    /// Whether it is the head.
    pub fn is_head(&self) -> bool {
        self.head.is_some()
    }

    /// What a head would have to know after a restart now, as short as it can be said. Nothing on other daemons.
    pub fn kept(&self) -> Vec<wire::Kept> {
        self.head.as_ref().map(Head::kept).unwrap_or_default()
    }

    /// What it still keeps for jobs, one word or two each; nothing when all are over.
    #[doc(hidden)]
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = self.node.leftovers();
        left.extend(self.head.iter().flat_map(Head::leftovers));
        left
    }
}
