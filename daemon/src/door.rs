//! The queue into the daemon's [loop](crate::shell): the type of its events, and its sending end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rsd_core::rsd::{Answer, Approach, Call, Caller, Input, LinkId, MemberId, Refused, ReqId};
use rsd_core::{JobId, NodeId};
use rsd_proto::join;
use rsd_proto::v1::{FollowDown, GroupJoin, HeadEpoch, Hello, Up};
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use crate::downs::Downs;
use crate::upgrade::Successor;

/// An event for the daemon's loop.
#[derive(Debug)]
pub(crate) enum Event {
    Input(Input),
    /// A child or a step has connected; `down` sends to it.
    Link {
        link: LinkId,
        down: Downs,
    },
    /// The parent has accepted the connection; this sends to it.
    Parent(mpsc::UnboundedSender<Up>),
    /// The uplink has connected and needs its first message.
    HelloWanted {
        approach: Approach,
        hello: oneshot::Sender<Hello>,
    },
    Call {
        req: ReqId,
        caller: Caller,
        call: Call,
        answer: oneshot::Sender<Answer>,
        /// When the request was made.
        at: Instant,
    },
    /// The client of this request has gone before it was answered.
    CallerGone(ReqId),
    /// A process requests a place in a group; `client` gets the answers.
    Join {
        member: MemberId,
        join: Box<GroupJoin>,
        client: mpsc::UnboundedSender<join::Event>,
    },
    /// Somebody waits until what is in the journal is on the disk.
    Sync(oneshot::Sender<bool>),
    /// The state directory was deleted and exists again, empty.
    DirectoryCreated,
    /// Exit at once; steps keep running.
    Terminate,
    /// Another program takes this daemon's place; steps keep running.
    Upgrade(Successor),
    /// A standby of this head has connected: it has these logs. `id` gets the number of its connection.
    Follow {
        node: NodeId,
        to: mpsc::UnboundedSender<Result<FollowDown, Status>>,
        logs: HashMap<JobId, u64>,
        id: oneshot::Sender<u64>,
    },
    /// Standbys have confirmed what waited for them.
    Copied,
    /// A standby is to become the head: decide nothing more. Without `force`, that is refused while jobs run here.
    Freeze {
        force: bool,
        frozen: oneshot::Sender<Result<(), String>>,
    },
    /// It does not become the head after all.
    Thaw,
    /// The standby has everything: exit.
    HandedOver {
        node: NodeId,
    },
    /// There is a later head: exit.
    StepDown(HeadEpoch),
}

/// The sending end of the queue.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    events: mpsc::UnboundedSender<Event>,
    next_link: Arc<AtomicU64>,
    last_event: Arc<watch::Sender<u64>>,
}

impl Door {
    pub(crate) fn new() -> (Door, mpsc::UnboundedReceiver<Event>) {
        let (events, inbox) = mpsc::unbounded_channel();
        let last_event = Arc::new(watch::channel(0).0);
        (Door { events, next_link: Arc::new(AtomicU64::new(1)), last_event }, inbox)
    }

    /// Adds an event. Events after the end of the loop are dropped.
    pub(crate) fn send(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Waits until the head's decisions so far are on its disk. A failure is logged where it occurs.
    pub(crate) async fn sync(&self) {
        let (waits, told) = oneshot::channel();
        self.send(Event::Sync(waits));
        let _ = told.await; // a daemon that is stopping does not answer
    }

    /// Returns an unused number for a link, a member of a group, or a request.
    pub(crate) fn new_link(&self) -> LinkId {
        self.next_link.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the clients that follow the DVM the number of its last event.
    pub(crate) fn tell_last_event(&self, number: u64) {
        self.last_event.send_if_modified(|last| std::mem::replace(last, number) != number);
    }

    /// Returns the number of the last event, as it changes.
    pub(crate) fn last_event(&self) -> watch::Receiver<u64> {
        self.last_event.subscribe()
    }

    /// Sends a request to the state machine. A daemon that is stopping refuses.
    pub(crate) async fn call(&self, caller: Caller, call: Call) -> Answer {
        let (answer, reply) = oneshot::channel();
        let req = self.new_link();
        self.send(Event::Call { req, caller, call, answer, at: Instant::now() });
        let mut waits = Waits { door: self, req, is_answered: false };
        let answer = reply.await;
        waits.is_answered = true;
        let gone =
            || Refused { exit_code: rsd_proto::transport::exit::UNREACHABLE, text: "the daemon is stopping".into() };
        answer.unwrap_or_else(|_| Answer::Refused(gone()))
    }
}

/// A client that waits for an answer. It is dropped early if the client disconnects.
struct Waits<'a> {
    door: &'a Door,
    req: ReqId,
    is_answered: bool,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.door.send(Event::CallerGone(self.req));
        }
    }
}
