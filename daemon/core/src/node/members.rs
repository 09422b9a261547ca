//! Members of groups on this node, as their daemon keeps them: processes that wait until the head refuses them or the launch of
//! their epoch arrives, and running epochs, for members whose connection was cut before they got the answer.
//!
//! A daemon keeps no members across a restart. They reconnect with their tokens, and find either the epoch, which has begun in
//! the meantime (its launch is on disk, and its step sends its port when it reconnects), or the place that the head has kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use rsd_proto::frameworks;
use rsd_proto::join::{self, Event, Go};
use rsd_proto::v1::{self as wire, GroupEpoch, GroupJoin, group_state};

use crate::addresses::interface_of;
use crate::calls::{Refused, exit};
use crate::contract::MemberId;
use crate::taskmap::TaskMap;
use crate::timers::Timers;
use crate::{JobId, NodeId, Now};

/// How long a member waits while the head does not answer.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// Added to the head's own timeout, so that the head answers first.
const HEAD_MARGIN: Duration = Duration::from_secs(10);

/// The members on this node.
#[derive(Debug, Default)]
pub(super) struct Members {
    waiting: BTreeMap<MemberId, GroupJoin>,
    by_token: BTreeSet<(String, MemberId)>,
    epochs: BTreeMap<JobId, Here>,
    /// The ranks of members in these epochs, by token.
    places: HashMap<String, (JobId, u32)>,
    /// Members that may now get their last message.
    changed: BTreeSet<MemberId>,
    /// When the head must have answered.
    timers: Timers<MemberId>,
}

/// An epoch with members on this node.
#[derive(Debug)]
struct Here {
    epoch: GroupEpoch,
    map: TaskMap,
    /// The port at which its step serves PMI, after the step has reported it.
    pmi_port: Option<u16>,
    /// The address and port at which rank 0 must listen, after the step has reported them; for epochs with `--export`.
    master: Option<(String, u16)>,
}

/// The result for a waiting member.
#[derive(Debug)]
pub(super) enum Settled {
    /// Its epoch has begun.
    Go(MemberId, Box<Go>),
    /// The head has not answered.
    Silent(MemberId, Box<GroupJoin>),
}

impl Members {
    pub(super) fn join(&mut self, now: Now, member: MemberId, join: GroupJoin) {
        self.by_token.insert((join.token.clone(), member));
        self.waiting.insert(member, join);
        self.timers.set(member, now.mono + HEAD_DEADLINE);
        self.changed.insert(member);
    }

    /// Forgets a waiting member.
    pub(super) fn remove(&mut self, member: MemberId) -> Option<GroupJoin> {
        let join = self.waiting.remove(&member)?;
        self.by_token.remove(&(join.token.clone(), member));
        self.timers.cancel(&member);
        self.changed.remove(&member);
        Some(join)
    }

    /// Handles the head's message for a waiting member.
    pub(super) fn on_state(&mut self, now: Now, state: wire::GroupState) -> Option<(MemberId, Event)> {
        let wire::GroupState { member, token, state, .. } = state;
        self.waiting.get(&member).filter(|join| join.token == token)?;
        match state? {
            group_state::State::Wait(wait) => {
                let answer_at = now.mono.saturating_add(Duration::from_millis(wait.left_ms)) + HEAD_MARGIN;
                self.timers.set(member, answer_at);
                let wait = join::Wait { token, have: wait.have, want: wait.want, epoch: wait.epoch };
                Some((member, Event::Wait(wait)))
            }
            group_state::State::Error(error) => {
                self.remove(member);
                let exit_code = u8::try_from(error.code).unwrap_or(exit::NOT_PLACED);
                Some((member, refusal(Refused::new(exit_code, error.text))))
            }
        }
    }

    /// Records an epoch that has members on this node.
    pub(super) fn epoch_begun(&mut self, job: JobId, map: &TaskMap, group: &[u8]) {
        use prost::Message;
        let Ok(epoch) = GroupEpoch::decode(group) else { return };
        if self.epochs.contains_key(&job) {
            return;
        }
        let places = epoch.members.iter().zip(0..).map(|(member, rank)| (member.token.clone(), (job, rank)));
        self.places.extend(places);
        self.epochs.insert(job, Here { epoch, map: map.clone(), pmi_port: None, master: None });
        self.changed_in(job);
    }

    /// Forgets an epoch. Returns the members that did not get its `go`: they wait for the next epoch.
    pub(super) fn epoch_over(&mut self, job: JobId) -> Vec<GroupJoin> {
        let missed = self.waiting_in(job).filter_map(|member| self.waiting.get(&member).cloned()).collect();
        if let Some(here) = self.epochs.remove(&job) {
            for member in here.epoch.members {
                if self.places.get(&member.token).is_some_and(|(of, _)| *of == job) {
                    self.places.remove(&member.token);
                }
            }
        }
        missed
    }

    /// Records the port at which the job's step serves PMI.
    pub(super) fn on_pmi_port(&mut self, job: JobId, port: u32) {
        if let (Some(here), Ok(port @ 1..)) = (self.epochs.get_mut(&job), u16::try_from(port)) {
            here.pmi_port = Some(port);
            self.changed_in(job);
        }
    }

    /// Records where rank 0 must listen, as the job's step reports it.
    pub(super) fn on_master(&mut self, master: wire::Master) {
        if let (Some(here), Ok(port @ 1..)) = (self.epochs.get_mut(&master.job), u16::try_from(master.port)) {
            here.master = Some((master.address, port));
            self.changed_in(master.job);
        }
    }

    fn changed_in(&mut self, job: JobId) {
        let members: Vec<MemberId> = self.waiting_in(job).collect();
        self.changed.extend(members);
    }

    /// Returns the members that still wait although their epoch, this job, has begun.
    fn waiting_in(&self, job: JobId) -> impl Iterator<Item = MemberId> + '_ {
        let members = self.epochs.get(&job).into_iter().flat_map(|here| &here.epoch.members);
        members.flat_map(|member| {
            let from = (member.token.clone(), MemberId::MIN)..=(member.token.clone(), MemberId::MAX);
            self.by_token.range(from).map(|(_, member)| *member)
        })
    }

    /// Returns the requests of all waiting members.
    pub(super) fn joins(&self) -> impl Iterator<Item = &GroupJoin> {
        self.waiting.values()
    }

    /// Returns the results for members whose epoch has begun and for members that the head has not answered in time.
    pub(super) fn settle(&mut self, now: Now, node: NodeId, about: &wire::Inventory) -> Vec<Settled> {
        let mut settled = Vec::new();
        for member in std::mem::take(&mut self.changed) {
            let go = self.waiting.get(&member).and_then(|join| self.go(node, join, about));
            if let Some(go) = go {
                self.remove(member);
                settled.push(Settled::Go(member, Box::new(go)));
            }
        }
        while let Some(member) = self.timers.pop_due(now.mono) {
            settled.extend(self.remove(member).map(|join| Settled::Silent(member, Box::new(join))));
        }
        settled
    }

    /// Returns whether the members of this job are in this namespace.
    pub(super) fn are_of(&self, job: JobId, namespace: &str) -> bool {
        self.epochs.get(&job).is_some_and(|here| here.epoch.namespace == namespace)
    }

    /// Returns the last message for a member, if its epoch has begun and everything in the message is known.
    fn go(&self, node: NodeId, join: &GroupJoin, about: &wire::Inventory) -> Option<Go> {
        let (job, rank) = *self.places.get(&join.token)?;
        let here = self.epochs.get(&job)?;
        // A token is a secret of its user.
        here.epoch.members.get(rank as usize).filter(|member| member.uid == join.uid)?;
        let node_index = here.map.position(node)?;
        if !here.epoch.export.is_empty() && here.master.is_none() {
            return None;
        }
        let mut go = Go {
            rank,
            size: here.map.size(),
            local_rank: here.map.local_rank(rank)?,
            local_size: here.map.count_on(node),
            epoch: here.epoch.epoch,
            pmi_port: format!("127.0.0.1:{}", here.pmi_port?),
            pmi_id: here.epoch.members.get(rank as usize)?.pmi_id,
            job,
            namespace: here.epoch.namespace.clone(),
            node: here.epoch.node_names.get(node_index).cloned().unwrap_or_default(),
            nodes: here.map.nodes().len() as u32,
            node_index: node_index as u32,
            address: here.epoch.node_addresses.get(node_index).cloned().unwrap_or_default(),
            env: String::new(),
        };
        if let (Some((address, port)), Ok(wanted)) = (&here.master, frameworks::parse(&join.export)) {
            let interface = interface_of(about, &go.address);
            let meeting = frameworks::Meeting { address, port: *port, interface, nodes: go.nodes };
            // The member itself skips the variables that it has set.
            let variables = frameworks::variables(&wanted, &go.place(), &meeting, |_| false);
            let ours = variables.into_iter().filter(|(name, _)| *name != frameworks::EXPORTED);
            go.env = ours.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("\n");
        }
        Some(go)
    }

    /// Removes all waiting members, because the daemon ends.
    pub(super) fn dismiss(&mut self) -> impl Iterator<Item = MemberId> {
        std::mem::take(self).waiting.into_keys()
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        if self.changed.is_empty() { self.timers.next() } else { Some(Duration::ZERO) }
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let waiting = self.waiting.values().map(|join| format!("member {}", join.token));
        let epochs = self.epochs.keys().map(|job| format!("epoch of job {job}"));
        waiting.chain(epochs).chain(self.places.keys().map(|token| format!("place {token}")))
    }
}

/// Returns the last message for a member that is refused.
pub(super) fn refusal(refused: Refused) -> Event {
    Event::Error { code: refused.exit_code, text: refused.text }
}

pub(super) fn stopping() -> Event {
    refusal(Refused::new(exit::NODE_LOST, "the daemon of this node is stopping"))
}

pub(super) fn head_is_silent() -> Event {
    let text = "the head of the DVM does not answer: rsd status shows whether this node's daemon is connected";
    refusal(Refused::new(exit::NODE_LOST, text))
}
