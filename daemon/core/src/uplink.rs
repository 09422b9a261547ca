//! The uplink: connects a daemon to its parent, and reconnects when the connection is lost.
//!
//! The state machine decides which address to dial, how long an attempt may take, how long to wait before the next attempt, when
//! to ask another daemon above, and when a daemon that has never been in the DVM gives up. It opens no connection itself: the
//! daemon's shell and the simulation perform its [`Action`]s and report the results.
//!
//! ```text
//!            Welcomed                     Lost
//! Dialing ───────────────▶ Attached ───────────────▶ Waiting ──(pause)──▶ Dialing
//!    │ Redirected: Dialing again, or Waiting if redirects follow each other
//!    │ Failed, or the deadline: Dialing the next peer, or Waiting, or Over
//! ```
//!
//! A daemon knows the daemons above it, which its parent names ([`rsd_proto::v1::Ancestors`]). When it loses its parent, it tries
//! the parent again for about a second, because that may be restarting, and then each daemon above it ([`peers`]), and where standbys
//! will be the head. If the parent's machine does not answer at all, it asks the next one at once.
//!
//! A head that takes over has a higher *epoch* than all before it. A daemon stays with no parent whose head has a lower epoch than the
//! highest that this daemon has heard of.

mod backoff;
mod peers;

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_proto::v1::{Ancestor, Down, Redirect, Welcome, down};

pub use backoff::Backoff;
use backoff::Jitter;
use peers::{Peer, Peers, Role};

use crate::contract::HEAD;
use crate::rsd::Approach;
use crate::{NodeId, Now, rsd};

/// How often a lost parent that refuses connections is dialled before the daemons above it: it may be restarting.
const PARENT_TRIES: u32 = 6;
/// The head redirects once. After more redirects in a row the daemons disagree, and faster retries do not help.
const REDIRECTS_AT_ONCE: usize = 3;
/// The most redirects in a row; more are a failure.
const REDIRECTS_MAX: usize = 8;
/// A connection that is lost earlier counts as a failed attempt.
const STABLE: Duration = Duration::from_secs(5);
/// The deadline of an attempt in the first round after a loss: a machine that is there answers within milliseconds.
const FIRST_ROUND: Duration = Duration::from_secs(2);

/// The configured limits.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long one attempt may take, from dialling to the parent's first message. A daemon that has not joined a DVM within this
    /// time after its start gives up at the next failure.
    pub dial_deadline: Duration,
    /// The longest pause between two attempts.
    pub retry_max: Duration,
}

/// An event of the uplink.
#[derive(Debug)]
pub enum Input {
    /// The attempt succeeded: the peer is now the parent.
    Welcomed(Welcome),
    /// The peer names another parent.
    Redirected(Redirect),
    /// The attempt failed.
    #[expect(missing_docs, reason = "a sentence, and its kind")]
    Failed { why: String, kind: Failure },
    /// A message from the parent.
    Down(Down),
    /// The connection to the parent is lost. `silent`: the parent has stopped answering, and its machine may have lost power.
    #[expect(missing_docs, reason = "described above")]
    Lost { silent: bool },
    /// There is a head with this epoch.
    Epoch(u64),
    /// Time has passed.
    Tick,
}

/// What a failed attempt says about the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The daemon there may be restarting.
    Passing,
    /// The machine there does not answer.
    Silent,
    /// Every attempt there would fail in the same way.
    Hopeless,
}

/// An action that the uplink requests of the shell.
#[derive(Debug)]
pub enum Action {
    /// Drop the connection to the parent, if any, and dial this daemon.
    Dial(Dial),
    /// Drop the attempt in progress.
    Abandon,
    /// Drop the connection to the parent.
    Leave,
    /// Pass this to the daemon's state machine.
    Deliver(rsd::Input),
    /// Report that the daemon could not join its DVM, and why. No action follows.
    GiveUp(String),
}

/// What a daemon knew before it was restarted.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The daemons above it.
    pub above: Vec<Ancestor>,
    /// Where standbys will be the head.
    pub standbys: Vec<Ancestor>,
    /// The highest epoch of a head that it has heard of.
    pub epoch: u64,
}

/// An attempt.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Its addresses, best first.
    pub addresses: Vec<String>,
    /// The node that must answer there; None: any node of the DVM.
    pub node: Option<NodeId>,
    /// How long the attempt may take.
    pub deadline: Duration,
    /// For the hello.
    pub approach: Approach,
}

/// The state machine of the connection to the parent.
#[derive(Debug)]
pub struct Uplink {
    limits: Limits,
    started: Duration,
    peers: Peers,
    /// The daemon that is dialled, or attached to.
    peer: Peer,
    /// The highest epoch of a head that this daemon has heard of, and that of the parent's head.
    epoch: u64,
    parents_epoch: u64,
    /// Whether the daemon has had a parent since it was started.
    has_joined: bool,
    /// Whether this is the first round after a loss, or after the start of a daemon that knows other daemons.
    first_round: bool,
    backoff: Backoff,
    jitter: Jitter,
    /// How often the lost parent has failed.
    tries: u32,
    unreachable: BTreeSet<NodeId>,
    /// The addresses of the redirects in a row, and the peer that sent the last of them.
    trail: Vec<String>,
    redirector: Option<Peer>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Dialing { deadline: Duration },
    Attached { since: Duration },
    Waiting { until: Duration },
    Over,
}

impl Uplink {
    /// Returns an uplink to the DVM at `join`; it dials with the first [`Input::Tick`]. `known`: what the daemon knew before its
    /// restart. `seed`: any number, different on each daemon.
    pub fn new(now: Now, join: String, known: Known, limits: Limits, seed: u64) -> Uplink {
        let Known { above, standbys, epoch } = known;
        let first_round = !above.is_empty();
        let mut peers = Peers::new(join, above, standbys);
        Uplink {
            peer: peers.next().expect("the address that the user gave"),
            peers,
            epoch,
            parents_epoch: epoch,
            started: now.mono,
            has_joined: false,
            first_round,
            backoff: Backoff::up_to(limits.retry_max),
            jitter: Jitter::new(seed),
            limits,
            tries: 0,
            unreachable: BTreeSet::new(),
            trail: Vec::new(),
            redirector: None,
            state: State::Waiting { until: now.mono },
        }
    }

    /// Returns the addresses of the daemon that the uplink dials or is attached to, for messages.
    pub fn address(&self) -> String {
        self.peer.name()
    }

    /// Handles one input and appends the actions, in the order in which they must be performed.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Action>) {
        match (self.state, input) {
            (State::Dialing { .. }, Input::Welcomed(welcome)) if welcome.epoch < self.epoch => {
                out.extend([Action::Deliver(rsd::Input::ParentLost), Action::Leave]);
                let why = "the daemon there obeys an earlier head, in whose place another one is now";
                self.failed(now, why, Failure::Passing, out);
            }
            (State::Dialing { .. }, Input::Welcomed(welcome)) => {
                self.parents_epoch = welcome.epoch;
                self.state = State::Attached { since: now.mono };
                self.has_joined = true;
                self.peer.node = Some(welcome.parent);
                self.trail.clear();
                out.push(Action::Deliver(rsd::Input::Welcome(welcome)));
            }
            (State::Dialing { .. }, Input::Redirected(redirect)) => self.follow(now, redirect, Role::Redirected, out),
            (State::Dialing { .. }, Input::Failed { why, kind }) => self.failed(now, &why, kind, out),
            (State::Dialing { deadline }, Input::Tick) if deadline <= now.mono => {
                out.push(Action::Abandon);
                let why = format!("no answer within {:?}", self.deadline());
                self.failed(now, &why, Failure::Silent, out);
            }
            (State::Attached { .. }, Input::Down(Down { body: Some(down::Body::Redirect(redirect)) })) => {
                self.on_leaving(now, redirect, out);
            }
            (State::Attached { .. }, Input::Down(down)) => {
                if let Some(down::Body::Ancestors(ancestors)) = &down.body {
                    let epoch = ancestors.epoch.as_ref().map_or(0, |epoch| epoch.number);
                    if epoch < self.epoch {
                        return self.leave_parent(now, out);
                    }
                    (self.epoch, self.parents_epoch) = (epoch, epoch);
                    self.peers.set_above(&ancestors.above, &ancestors.standbys);
                }
                out.push(Action::Deliver(rsd::Input::Down(down)));
            }
            (State::Attached { since }, Input::Lost { silent }) => {
                out.push(Action::Deliver(rsd::Input::ParentLost));
                self.on_lost(now, since, silent, out);
            }
            (State::Waiting { until }, Input::Tick) if until <= now.mono => self.dial(now, out),
            (state, Input::Epoch(epoch)) => {
                self.epoch = self.epoch.max(epoch);
                if matches!(state, State::Attached { .. }) && self.parents_epoch < self.epoch {
                    self.leave_parent(now, out);
                }
            }
            // Results of an abandoned attempt, and early ticks.
            (State::Dialing { .. } | State::Attached { .. } | State::Waiting { .. } | State::Over, _) => {}
        }
    }

    /// Returns when [`Input::Tick`] must be passed.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.state {
            State::Dialing { deadline } => Some(deadline),
            State::Waiting { until } => Some(until),
            State::Attached { .. } | State::Over => None,
        }
    }

    fn deadline(&self) -> Duration {
        let first_round = if self.first_round { FIRST_ROUND } else { Duration::MAX };
        self.limits.dial_deadline.min(first_round)
    }

    fn dial(&mut self, now: Now, out: &mut Vec<Action>) {
        let deadline = self.deadline();
        self.state = State::Dialing { deadline: now.mono + deadline };
        let approach = Approach {
            redirected: matches!(self.peer.role, Role::Parent | Role::Redirected),
            orphan: self.peer.role == Role::Ancestor,
            unreachable: self.unreachable.iter().copied().collect(),
        };
        let (addresses, node) = (self.peer.addresses.clone(), self.peer.node);
        out.push(Action::Dial(Dial { addresses, node, deadline, approach }));
    }

    fn wait(&mut self, now: Now) {
        self.state = State::Waiting { until: now.mono + self.jitter.of(self.backoff.pause()) };
    }

    fn on_lost(&mut self, now: Now, since: Duration, silent: bool, out: &mut Vec<Action>) {
        self.unreachable.clear();
        if now.mono.saturating_sub(since) >= STABLE {
            self.backoff.reset();
            self.tries = 0;
        } else {
            self.tries += 1;
        }
        self.leave();
        self.peer.role = Role::Parent;
        self.peers.parent = Some(self.peer.clone());
        self.peers.begin_round();
        self.peers.next(); // the parent, which is still `self.peer`
        if silent {
            self.unreachable.extend(self.peer.node.filter(|node| *node != HEAD));
        }
        if silent || self.tries >= PARENT_TRIES { self.try_next(now, out) } else { self.wait(now) }
    }

    /// Leaves a parent that obeys an earlier head.
    fn leave_parent(&mut self, now: Now, out: &mut Vec<Action>) {
        out.extend([Action::Deliver(rsd::Input::ParentLost), Action::Leave]);
        // The parent may find the later head itself.
        self.tries = PARENT_TRIES;
        self.on_lost(now, now.mono, false, out);
    }

    fn leave(&mut self) {
        self.first_round = true;
        self.trail.clear();
        self.redirector = None;
    }

    /// Handles that the parent is about to stop and names another parent.
    fn on_leaving(&mut self, now: Now, redirect: Redirect, out: &mut Vec<Action>) {
        out.push(Action::Deliver(rsd::Input::ParentLost));
        self.unreachable = self.peer.node.into_iter().collect();
        self.leave();
        self.peers.parent = None;
        self.peers.begin_round();
        // The new parent may have no room.
        self.follow(now, redirect, Role::Ancestor, out);
        self.redirector = None;
    }

    /// Dials the daemon that a redirect names, in this role unless it is the head.
    fn follow(&mut self, now: Now, redirect: Redirect, role: Role, out: &mut Vec<Action>) {
        let addresses = redirect.parent_addrs.clone();
        self.trail.push(addresses.join(" or "));
        let node = Some(redirect.parent).filter(|parent| *parent != HEAD);
        if node.is_none() {
            self.peers.set_head(&addresses);
        }
        out.push(Action::Deliver(rsd::Input::Redirected(redirect)));
        if self.trail.len() > REDIRECTS_MAX {
            let why = format!("redirected {} times in a row: {}", self.trail.len(), self.trail.join(", "));
            self.trail.clear();
            self.redirector = None;
            return self.failed(now, &why, Failure::Passing, out);
        }
        // The daemon at the head's address may be another daemon, which knows the head.
        let role = if node.is_some() { role } else { Role::Head };
        self.redirector = Some(std::mem::replace(&mut self.peer, Peer { addresses, node, role }));
        if self.trail.len() > REDIRECTS_AT_ONCE { self.wait(now) } else { self.dial(now, out) }
    }

    fn failed(&mut self, now: Now, why: &str, kind: Failure, out: &mut Vec<Action>) {
        let is_late = now.mono.saturating_sub(self.started) >= self.limits.dial_deadline;
        // Another node than expected may have the address now.
        let hopeless = kind == Failure::Hopeless && self.peer.node.is_none();
        // A daemon that redirects is asked again after each failure, so the round of a redirected daemon has no end.
        let round_is_over = self.peers.is_exhausted() || self.peer.role == Role::Redirected;
        if !self.has_joined && (hopeless || is_late && round_is_over) {
            self.state = State::Over;
            return out.push(Action::GiveUp(self.cannot_join(why)));
        }
        self.unreachable.extend(self.peer.node.filter(|node| *node != HEAD));
        if self.peer.role == Role::Parent && kind == Failure::Passing {
            self.tries += 1;
            if self.tries < PARENT_TRIES {
                return self.wait(now);
            }
        }
        if let Some(redirector) = self.redirector.take().filter(|_| self.peer.role == Role::Redirected) {
            // It sends this daemon elsewhere, now that this one is unreachable.
            self.peers.again(redirector);
        }
        self.try_next(now, out);
    }

    fn cannot_join(&self, why: &str) -> String {
        let redirected = self.trail.last().filter(|last| **last == self.peer.name());
        let redirected = redirected.map(|last| format!("redirected to {last}: ")).unwrap_or_default();
        format!("cannot join the DVM at {}: {redirected}{why}", self.peers.join())
    }

    /// Dials the next peer of the round, or waits and begins another round.
    fn try_next(&mut self, now: Now, out: &mut Vec<Action>) {
        if let Some(next) = self.peers.next() {
            self.peer = next;
            return self.dial(now, out);
        }
        self.first_round = false;
        self.trail.clear();
        self.peers.begin_round();
        if let Some(next) = self.peers.next() {
            self.peer = next;
        }
        self.wait(now);
    }
}

#[cfg(test)]
mod tests;
