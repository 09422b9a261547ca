//! A daemon: a [`Node`] of the tree and, on one daemon of the DVM, the [`Head`] that owns jobs and placement.
//!
//! Node and head are two state machines with private fields, joined only by messages ([`crate::between`]): the head is the parent
//! of the node at the root. [`Rsd`] carries their messages back and forth until neither has any left, and passes their effects to
//! the shell.

use std::time::Duration;

use rsd_proto::v1 as wire;

pub use crate::calls::{
    Answer, Call, Caller, Entry, GroupCall, JobChange, KvCall, KvOp, PmiOp, Refused, StandbyCall, TokenCall,
};
pub use crate::contract::{Approach, Effect, Input, KnownStep, LinkId, Logged, MemberId, Memory, ReqId, Start};
pub use crate::head::{KeptJobs, jobs_of};

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
    /// Returns a daemon without children and without a parent.
    pub fn new(now: Now, mut start: Start, tuning: Tuning) -> Rsd {
        let is_head = start.head_addr.is_none();
        let head = is_head.then(|| Head::new(now, &mut start, tuning));
        Rsd { node: Node::new(now, start, tuning), head }
    }

    /// Handles one input and appends its effects, in the order in which they must be performed: first what must survive a
    /// restart, then launches, then the others in the order of the decisions.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        let first = out.len();
        let (mut from_node, mut from_head) = (Outputs::default(), Outputs::default());
        let restores = matches!(input, Input::Kept { .. });
        match input {
            Input::Call { req, caller, call } => self.on_call(now, req, caller, call, &mut from_node, &mut from_head),
            Input::CallerGone { req } => self.head.iter_mut().for_each(|head| head.on_caller_gone(req)),
            Input::Kept { records, logs } => {
                if let Some(head) = &mut self.head {
                    head.on_kept(now, records, logs, &mut from_head);
                }
            }
            Input::LogWritten { log, events, lost_bytes } => {
                if let Some(head) = &mut self.head {
                    head.on_log_written(log, events, lost_bytes, &mut from_head);
                }
            }
            Input::Hello { link, hello, uid } => self.node.on_hello(now, link, hello, uid, &mut from_node),
            Input::Up { link, up } => self.node.on_up(now, link, up, &mut from_node),
            Input::LinkClosed { link } => self.node.on_link_closed(link, &mut from_node),
            Input::Welcome(welcome) => self.node.on_welcome(welcome, &mut from_node),
            Input::Redirected(redirect) => self.node.on_redirected(redirect, &mut from_node),
            Input::Down(down) => self.node.on_down(now, down, &mut from_node),
            Input::ParentLost => self.node.on_parent_lost(now, &mut from_node),
            Input::StepLost { job, why } => self.node.on_step_lost(job, why, &mut from_node),
            Input::Load { probe, load } => self.node.on_load(probe, load),
            Input::Join { member, join } => self.node.on_join(now, member, *join, &mut from_node),
            Input::MemberGone { member } => self.node.on_member_gone(member, &mut from_node),
            Input::PortOpened { listen } => self.node.on_port_opened(listen, &mut from_node),
            Input::ReachedAt(ip) => self.node.on_reached_at(ip, &mut from_node),
            Input::Tick => {}
        }
        self.head.iter_mut().for_each(|head| head.restores(restores));
        self.settle(now, from_node, from_head, out);
        // A launch comes first, so that the job's log and answers are written while its ranks start.
        out[first..].sort_by_key(|effect| !matches!(effect, Effect::StartStep(_)));
        // What must survive a restart is written before any other effect of this input is performed.
        if let Some(head) = &mut self.head {
            head.note_logged(&out[first..]);
        }
        if let Some(effect) = self.head.as_mut().and_then(Head::take_kept) {
            out.insert(first, effect);
        }
    }

    fn on_call(
        &mut self,
        now: Now,
        req: ReqId,
        caller: Caller,
        call: Call,
        from_node: &mut Outputs<Report>,
        from_head: &mut Outputs<Order>,
    ) {
        match (call, &mut self.head) {
            (Call::Shutdown { .. }, _) if !caller.is_admin => {
                let text = "only root stops a daemon that serves all users";
                from_node.refuse(req, Refused::new(exit::NOT_PERMITTED, text));
            }
            (Call::Status, head) => {
                let mut status = self.node.status();
                if let Some(head) = head {
                    head.complete_status(&mut status);
                }
                from_node.answer(req, Answer::Status(Box::new(status)));
            }
            (Call::Metrics, head) => {
                let mut families = self.node.metrics();
                families.extend(head.iter().flat_map(|head| head.metrics(caller)));
                from_node.answer(req, Answer::Metrics(families));
            }
            (Call::Pmi { job, rank, namespace, op }, _) => {
                self.node.on_pmi_request(req, caller, (job, rank), &namespace, op, from_node);
            }
            (call, Some(head)) => head.on_call(now, req, caller, call, from_head),
            (Call::Shutdown { force }, None) => self.node.on_shutdown(now, req, force, from_node),
            (_, None) => from_node.refuse(req, Refused::new(exit::USAGE, "only the head of the DVM answers this")),
        }
    }

    /// Carries messages until neither state machine has any, then does what is due, until nothing is left to do.
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
                        Output::Effect(effect) => {
                            self.head.iter_mut().for_each(|head| head.observe(now, &effect));
                            out.push(effect);
                        }
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

    /// Returns the latest time at which [`Input::Tick`] must be passed.
    pub fn next_deadline(&self) -> Option<Duration> {
        let head = self.head.as_ref().and_then(Head::next_deadline);
        head.into_iter().chain(self.node.next_deadline()).min()
    }

    /// Returns the first message to a parent.
    pub fn hello(&mut self, approach: Approach) -> wire::Hello {
        self.node.hello(approach)
    }

    /// Returns the daemon's node id; the head has id 0.
    pub fn node(&self) -> NodeId {
        self.node.id()
    }

    /// Returns the number of the last event ([`Call::Events`]); 0: this daemon is not the head.
    pub fn last_event(&self) -> u64 {
        self.head.as_ref().map_or(0, Head::last_event)
    }

    /// Returns the links of the connected steps.
    pub fn step_links(&self) -> Vec<LinkId> {
        self.node.step_links()
    }

    /// Returns how many jobs have ranks on this node.
    pub fn jobs_here(&self) -> u32 {
        self.node.status().jobs
    }

    /// Returns whether this daemon is the head.
    pub fn is_head(&self) -> bool {
        self.head.is_some()
    }

    /// Returns the shortest records that describe the head's present state; empty on other daemons.
    pub fn kept(&self) -> Vec<wire::Kept> {
        self.head.as_ref().map(Head::kept).unwrap_or_default()
    }

    /// Describes the entries that are still kept for jobs, for tests; empty when all jobs are over.
    #[doc(hidden)]
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = self.node.leftovers();
        left.extend(self.head.iter().flat_map(Head::leftovers));
        left
    }
}
