//! Members of groups on this node, as their daemon keeps them: who waits, until the head refuses it or the epoch's launch
//! comes; and the epochs that have begun here, for those whose connection was cut before they heard of it.
//!
//! A daemon remembers nothing of its members over a restart. They come again with their tokens, and find the epoch that has begun
//! meanwhile (its launch is on disk, its step tells its port when it comes back) or the place that the head has kept.

use std::collections::BTreeMap;
use std::time::Duration;

use rsd_proto::frameworks;
use rsd_proto::join::{self, Event, Go};
use rsd_proto::v1::{self as wire, Down, GroupEpoch, GroupJoin, GroupState, Up, down, group_state, up};

use crate::calls::{Refused, exit};
use crate::rsd::{Effect, MemberId, Rsd};
use crate::taskmap::TaskMap;
use crate::{JobId, NodeId, Now};

/// How long a head that does not answer is waited for.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// Beyond what the head said: it answers first.
const HEAD_MARGIN: Duration = Duration::from_secs(10);

/// What a daemon knows of its node's members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    waiting: BTreeMap<MemberId, Waiting>,
    epochs: BTreeMap<JobId, Here>,
    changed: bool,
}

#[derive(Debug)]
struct Waiting {
    join: GroupJoin,
    /// The head should have answered by then.
    deadline: Duration,
}

/// An epoch with members on this node.
#[derive(Debug)]
struct Here {
    epoch: GroupEpoch,
    map: TaskMap,
    /// Where its step serves PMI, once it has said so.
    pmi_port: Option<u16>,
    /// Where rank 0 is to listen, once its step has said so; for epochs that export.
    master: Option<(String, u16)>,
}

impl Members {
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        match self.changed {
            true => Some(Duration::ZERO),
            false => self.waiting.values().map(|waiting| waiting.deadline).min(),
        }
    }

    pub(crate) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let waiting = self.waiting.values().map(|waiting| format!("member {}", waiting.join.token));
        waiting.chain(self.epochs.keys().map(|job| format!("epoch of job {job}")))
    }

    /// The job's step serves PMI at this port.
    pub(crate) fn on_pmi_port(&mut self, job: JobId, port: u32) {
        if let (Some(here), Ok(port @ 1..)) = (self.epochs.get_mut(&job), u16::try_from(port)) {
            here.pmi_port = Some(port);
            self.changed = true;
        }
    }

    /// The job's step knows where rank 0 is to listen.
    pub(crate) fn on_master(&mut self, master: wire::Master) {
        if let (Some(here), Ok(port @ 1..)) = (self.epochs.get_mut(&master.job), u16::try_from(master.port)) {
            here.master = Some((master.address, port));
            self.changed = true;
        }
    }

    /// What a waiting member is to be told, if its epoch has begun and all is known.
    fn go(&self, node: NodeId, token: &str, export: &str, about: &wire::Inventory) -> Option<Go> {
        let (job, here, rank) = self.epochs.iter().find_map(|(job, here)| {
            let mut members = here.epoch.members.iter();
            Some((job, here, u32::try_from(members.position(|member| member.token == token)?).ok()?))
        })?;
        let node_index = here.map.nodes().iter().position(|id| *id == node)?;
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
            job: *job,
            namespace: here.epoch.namespace.clone(),
            node: here.epoch.node_names.get(node_index).cloned().unwrap_or_default(),
            nodes: here.map.nodes().len() as u32,
            node_index: node_index as u32,
            address: about.address.clone(),
            env: String::new(),
        };
        if let (Some((address, port)), Ok(wanted)) = (&here.master, frameworks::parse(export)) {
            let interface = about.interface.as_str();
            let meeting = frameworks::Meeting { address, port: *port, interface, nodes: go.nodes };
            // What it has set itself is known to it alone.
            let variables = frameworks::variables(&wanted, &go.place(), &meeting, |_| false);
            let ours = variables.into_iter().filter(|(name, _)| *name != frameworks::EXPORTED);
            go.env = ours.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("\n");
        }
        Some(go)
    }
}

impl Rsd {
    /// A process of this node wants a place; `join` lacks what only we know.
    pub(crate) fn on_join(&mut self, now: Now, member: MemberId, mut join: GroupJoin, out: &mut Vec<Effect>) {
        (join.node, join.member) = (self.me.node, member);
        if self.stopping.is_some() {
            return refuse(member, stopping(), out);
        }
        let deadline = now.mono + HEAD_DEADLINE;
        self.members.waiting.insert(member, Waiting { join: join.clone(), deadline });
        self.members.changed = true;
        self.say_join(now, join, out);
    }

    fn say_join(&mut self, now: Now, join: GroupJoin, out: &mut Vec<Effect>) {
        match self.head {
            Some(_) => self.on_group_join(now, join, out),
            None => self.pass_up(Up { body: Some(up::Body::GroupJoin(join)) }, out),
        }
    }

    /// A member's connection is closed: it has gone, or has heard the end of it.
    pub(crate) fn on_member_gone(&mut self, now: Now, member: MemberId, out: &mut Vec<Effect>) {
        if let Some(Waiting { join, .. }) = self.members.waiting.remove(&member) {
            self.say_leave(now, join.token, out);
        }
    }

    fn say_leave(&mut self, now: Now, token: String, out: &mut Vec<Effect>) {
        let leave = wire::GroupLeave { node: self.me.node, token };
        match self.head {
            Some(_) => self.on_group_leave(now, leave, out),
            None => self.pass_up(Up { body: Some(up::Body::GroupLeave(leave)) }, out),
        }
    }

    /// The head has something for a member here or below.
    pub(crate) fn on_group_state(&mut self, now: Now, state: GroupState, out: &mut Vec<Effect>) {
        if state.node != self.me.node {
            if let Some(link) = self.via.get(&state.node) {
                out.push(Effect::Down { link: *link, down: Down { body: Some(down::Body::GroupState(state)) } });
            }
            return;
        }
        let GroupState { member, token, state, .. } = state;
        let Some(waiting) = self.members.waiting.get_mut(&member).filter(|waiting| waiting.join.token == token) else {
            return;
        };
        match state {
            Some(group_state::State::Wait(wait)) => {
                waiting.deadline = now.mono.saturating_add(Duration::from_millis(wait.left_ms)) + HEAD_MARGIN;
                let event = Event::Wait(join::Wait { token, have: wait.have, want: wait.want, epoch: wait.epoch });
                out.push(Effect::Member { member, event });
            }
            Some(group_state::State::Error(error)) => {
                self.members.waiting.remove(&member);
                let exit_code = u8::try_from(error.code).unwrap_or(exit::NOT_PLACED);
                refuse(member, Refused { exit_code, text: error.text }, out);
            }
            None => {}
        }
    }

    /// An epoch has members here.
    pub(crate) fn epoch_is_here(&mut self, job: JobId, map: &TaskMap, group: &[u8]) {
        use prost::Message;
        if let Ok(epoch) = GroupEpoch::decode(group)
            && map.count_on(self.me.node) > 0
        {
            self.members.epochs.entry(job).or_insert_with(|| Here {
                epoch,
                map: map.clone(),
                pmi_port: None,
                master: None,
            });
            self.members.changed = true;
        }
    }

    /// An epoch is over. Who has not heard of it yet is a member of the next one.
    pub(crate) fn epoch_is_over(&mut self, now: Now, job: JobId, out: &mut Vec<Effect>) {
        let Some(Here { epoch, .. }) = self.members.epochs.remove(&job) else { return };
        let in_it = |join: &GroupJoin| epoch.members.iter().any(|member| member.token == join.token);
        let waiting = self.members.waiting.values().map(|waiting| &waiting.join);
        let missed: Vec<GroupJoin> = waiting.filter(|join| in_it(join)).cloned().collect();
        for join in missed {
            self.say_join(now, join, out);
        }
    }

    /// The way up is new: says again who waits.
    pub(crate) fn resend_members(&self, out: &mut Vec<Effect>) {
        if self.head.is_none() {
            for waiting in self.members.waiting.values() {
                let join = GroupJoin { node: self.me.node, ..waiting.join.clone() };
                self.pass_up(Up { body: Some(up::Body::GroupJoin(join)) }, out);
            }
        }
    }

    /// Members whose epoch has begun, and those whom the head has forgotten.
    pub(crate) fn settle_members(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.members.next_deadline().is_none_or(|at| at > now.mono) {
            return;
        }
        self.members.changed = false;
        let about = self.me.inventory.clone().unwrap_or_default();
        let waiting: Vec<(MemberId, String, String, Duration)> = (self.members.waiting.iter())
            .map(|(id, is)| (*id, is.join.token.clone(), is.join.export.clone(), is.deadline))
            .collect();
        for (member, token, export, deadline) in waiting {
            if let Some(go) = self.members.go(self.me.node, &token, &export, &about) {
                self.members.waiting.remove(&member);
                out.push(Effect::Member { member, event: Event::Go(Box::new(go)) });
            } else if deadline <= now.mono {
                self.members.waiting.remove(&member);
                self.say_leave(now, token, out);
                refuse(member, silent_head(), out);
            }
        }
    }

    /// The daemon ends.
    pub(crate) fn dismiss_members(&mut self, out: &mut Vec<Effect>) {
        for member in std::mem::take(&mut self.members.waiting).into_keys() {
            refuse(member, stopping(), out);
        }
    }
}

fn refuse(member: MemberId, refused: Refused, out: &mut Vec<Effect>) {
    let event = Event::Error { code: refused.exit_code, text: refused.text };
    out.push(Effect::Member { member, event });
}

fn stopping() -> Refused {
    Refused { exit_code: exit::NODE_LOST, text: "the daemon of this node is stopping".into() }
}

fn silent_head() -> Refused {
    let text = "the head of the DVM does not answer: rsd status tells whether this node's daemon is connected";
    Refused { exit_code: exit::NODE_LOST, text: text.into() }
}
