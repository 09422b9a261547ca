//! The lobby: processes that run already and wait, in named groups, until as many are there as their group wants. Only the head
//! has one.
//!
//! Pure bookkeeping: who waits, since when, what to tell whom, and which group is complete. What a complete group becomes (an
//! epoch, which is a job) is `groups`'s; who keeps a member while it waits is the daemon of its node (`members`). A place is known
//! by its token: the same token again is the same place, so repeats do no harm.
//!
//! A group that nobody created is made by the first join, of the size that it says, and is forgotten when nobody is left in it;
//! once it has had an epoch its numbers are remembered for a while, so that a group that forms again is epoch 2. A join without a
//! name is complete by itself, and belongs to no group that anybody could list or join.
//!
//! Cost: a join looks at its group's places; what is due by time is looked for only when something has changed or is due.

mod group;
mod refusal;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use rsd_proto::join;
use rsd_proto::v1::{self as wire, GroupError, GroupJoin, GroupWait, JobState, kept};

use crate::calls::{Refused, exit};
use crate::{JobId, NodeId};

pub(crate) use group::{Complete, Group, Seat};

/// A member that does not say how long it waits, in a group that does not either.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Nobody waits longer.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// With enough members for an epoch, but not all: how long nobody may have come.
const SETTLE: Duration = Duration::from_secs(2);
/// A created group with nobody in it.
const TTL: Duration = Duration::from_secs(3600);
/// A group that was not created, after its last epoch; and one that was closed.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A member whose daemon is out of reach keeps its place for so long.
const AWAY: Duration = Duration::from_secs(5);
/// Members are told of others at most so often.
const NEWS: Duration = Duration::from_secs(1);
/// Members of a group.
const SIZE_MAX: u32 = 1 << 16;
/// Groups that a DVM may have, and members that may wait in them.
const GROUPS_MAX: usize = 4096;
const SEATS_MAX: usize = 1 << 17;

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Lobby {
    groups: BTreeMap<String, Group>,
    /// Places that are waited in: their groups.
    waiting: HashMap<String, String>,
    /// Places that want no company, until their epochs begin: at once.
    alone: Vec<Seat>,
    /// Places in epochs that live: their jobs.
    entered: HashMap<String, JobId>,
    changed: bool,
    /// Groups of which something is to be known after a restart, and has changed.
    touched: BTreeSet<String>,
    /// When something is due, as of the last time that was looked for.
    wake: Option<Duration>,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Due {
    /// Tell a member.
    Tell { node: NodeId, member: u64, token: String, state: State },
    /// A group is complete.
    Begin(Complete),
}

/// What a member is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    Wait(GroupWait),
    No(GroupError),
}

impl From<State> for wire::group_state::State {
    fn from(state: State) -> Self {
        match state {
            State::Wait(wait) => wire::group_state::State::Wait(wait),
            State::No(error) => wire::group_state::State::Error(error),
        }
    }
}

impl Lobby {
    /// A process wants a place, or says again that it has one. `name_of` names nodes, for refusals.
    pub(crate) fn join(
        &mut self,
        now: Duration,
        join: GroupJoin,
        name_of: impl Fn(NodeId) -> String,
    ) -> Result<(), Refused> {
        self.changed = true;
        if self.entered.contains_key(&join.token) {
            return Ok(()); // its daemon has the launch, or will have
        }
        if let Some(name) = self.waiting.get(&join.token) {
            let known = self.groups.get_mut(name).filter(|_| *name == join.group);
            let seat = known.and_then(|group| group.seats.iter_mut().find(|seat| seat.join.token == join.token));
            return match seat {
                Some(seat) if seat.join.uid == join.uid => {
                    seat.is_back(join);
                    Ok(())
                }
                Some(_) | None => Err(refusal::not_its_place(&join)),
            };
        }
        if join.group.is_empty() {
            if !self.alone.iter().any(|seat| seat.join.token == join.token) {
                self.alone.push(Seat::alone(now, join));
            }
            return Ok(());
        }
        let wanted = refusal::check(&join)?;
        if self.waiting.len() >= SEATS_MAX {
            return Err(refusal::full("members wait", SEATS_MAX));
        }
        if !self.groups.contains_key(&join.group) {
            let Some(size) = wanted else { return Err(refusal::unknown(&join.group, true)) };
            if self.groups.len() >= GROUPS_MAX {
                return Err(refusal::full("groups are there", GROUPS_MAX));
            }
            self.groups.insert(join.group.clone(), Group::new(join.group.clone(), join.uid, size, now));
        }
        let Some(group) = self.groups.get_mut(&join.group) else { return Ok(()) };
        let (token, name) = (join.token.clone(), join.group.clone());
        let before = (group.size, group.said_by);
        let replaced = group.take(now, join, wanted, name_of)?;
        if (group.size, group.said_by) != before {
            self.touched.insert(name.clone());
        }
        replaced.into_iter().for_each(|token| drop(self.waiting.remove(&token)));
        self.waiting.insert(token, name);
        Ok(())
    }

    /// A member has gone. Returns the job that it had a rank in, if its epoch has begun.
    pub(crate) fn leave(&mut self, token: &str) -> Option<JobId> {
        self.changed = true;
        if let Some(name) = self.waiting.remove(token)
            && let Some(group) = self.groups.get_mut(&name)
        {
            group.seats.retain(|seat| seat.join.token != token);
        }
        self.alone.retain(|seat| seat.join.token != token);
        self.entered.get(token).copied()
    }

    /// The links to these nodes are cut. Who waits there has its place a while longer.
    pub(crate) fn nodes_are_away(&mut self, now: Duration, nodes: &[NodeId]) {
        for seat in self.seats_on(nodes) {
            seat.away.get_or_insert(now);
        }
    }

    /// These nodes are gone for good.
    pub(crate) fn nodes_are_lost(&mut self, nodes: &[NodeId]) {
        for seat in self.seats_on(nodes) {
            seat.away = Some(Duration::ZERO);
        }
    }

    fn seats_on<'a>(&'a mut self, nodes: &'a [NodeId]) -> impl Iterator<Item = &'a mut Seat> {
        self.changed = true;
        let seats = self.groups.values_mut().flat_map(|group| &mut group.seats);
        seats.filter(|seat| nodes.contains(&seat.join.node))
    }

    /// An epoch has begun, as this job.
    pub(crate) fn began(&mut self, complete: &Complete, job: JobId) {
        self.changed = true;
        for seat in &complete.seats {
            self.waiting.remove(&seat.join.token);
            self.entered.insert(seat.join.token.clone(), job);
        }
        if let Some(group) = self.groups.get_mut(&complete.group) {
            group.live.insert(complete.epoch, (job, complete.seats.len() as u32));
            self.touched.insert(complete.group.clone());
        }
    }

    /// A job is over, which may have been an epoch: whether it was.
    pub(crate) fn over(&mut self, job: JobId, state: JobState, cause: Option<String>) -> bool {
        for (name, group) in &mut self.groups {
            for (epoch, _) in group.live.extract_if(.., |_, (id, _)| *id == job) {
                let cause = cause.clone().unwrap_or_default();
                group.last = Some(wire::EndedEpoch { epoch, job, state: state.into(), cause });
                self.changed = true;
                self.touched.insert(name.clone());
            }
        }
        let before = self.entered.len();
        self.entered.retain(|_, id| *id != job);
        self.entered.len() < before
    }

    // --- restarts ---

    /// What is to be known of the groups that have changed since this was asked.
    pub(crate) fn take_touched(&mut self) -> impl Iterator<Item = kept::What> {
        std::mem::take(&mut self.touched).into_iter().map(|name| match self.groups.get(&name) {
            Some(group) => kept::What::Group(group.kept()),
            None => kept::What::GroupGone(name),
        })
    }

    /// What is to be known of all groups.
    pub(crate) fn kept(&self) -> impl Iterator<Item = wire::GroupInfo> {
        self.groups.values().filter(|group| group.is_to_be_kept()).map(Group::kept)
    }

    /// A group as it was before a restart. Its times begin anew.
    pub(crate) fn restore(&mut self, now: Duration, info: wire::GroupInfo) {
        let Some(rules) = info.rules.clone().filter(|rules| join::check_name(&rules.name).is_ok()) else { return };
        self.changed = true;
        self.groups.insert(rules.name.clone(), Group::restored(now, &rules, info));
    }

    /// An epoch that lives on.
    pub(crate) fn restore_epoch(&mut self, job: JobId, epoch: &wire::GroupEpoch) {
        self.changed = true;
        self.entered.extend(epoch.members.iter().map(|member| (member.token.clone(), job)));
        if let Some(group) = self.groups.get_mut(&epoch.name) {
            group.epoch = group.epoch.max(epoch.epoch + 1);
            group.live.insert(epoch.epoch, (job, epoch.members.len() as u32));
        }
    }

    // --- what clients ask ---

    pub(crate) fn create(&mut self, now: Duration, rules: &wire::GroupRules, uid: u32) -> Result<(), Refused> {
        self.changed = true;
        if let Err(error) = join::check_name(&rules.name) {
            return Err(Refused { exit_code: exit::USAGE, text: error.to_string() });
        }
        let size = refusal::sizes(&rules.name, None, Some(rules.min), Some(rules.max))?;
        let full = self.groups.len() >= GROUPS_MAX;
        match self.groups.get_mut(&rules.name) {
            Some(group) if group.may_be_made_anew() => group.make_anew(size, uid),
            Some(_) => return Err(refusal::exists(&rules.name)),
            None if full => return Err(refusal::full("groups are there", GROUPS_MAX)),
            None => {
                let group = Group::new(rules.name.clone(), uid, size.unwrap_or((1, 1)), now);
                self.groups.insert(rules.name.clone(), group);
            }
        }
        if let Some(group) = self.groups.get_mut(&rules.name) {
            group.set_rules(rules);
        }
        self.touched.insert(rules.name.clone());
        Ok(())
    }

    pub(crate) fn close(&mut self, now: Duration, name: &str, due: &mut Vec<Due>) -> Result<(), Refused> {
        self.changed = true;
        let group = self.groups.get_mut(name).ok_or_else(|| refusal::unknown(name, false))?;
        group.closed.get_or_insert(now);
        self.touched.insert(name.to_owned());
        for seat in std::mem::take(&mut group.seats) {
            self.waiting.remove(&seat.join.token);
            due.push(seat.refuse(refusal::closed(name)));
        }
        Ok(())
    }

    pub(crate) fn kick(
        &mut self,
        name: &str,
        pid: u32,
        node: Option<NodeId>,
        due: &mut Vec<Due>,
    ) -> Result<(), Refused> {
        self.changed = true;
        let group = self.groups.get_mut(name).ok_or_else(|| refusal::unknown(name, false))?;
        let meant = |seat: &Seat| seat.join.pid == pid && node.is_none_or(|node| node == seat.join.node);
        if group.seats.iter().filter(|seat| meant(seat)).count() > 1 {
            return Err(refusal::several(name, pid));
        }
        let Some(at) = group.seats.iter().position(meant) else {
            return Err(refusal::nobody(name, pid, group.live.values().map(|(job, _)| *job)));
        };
        let seat = group.seats.remove(at);
        self.waiting.remove(&seat.join.token);
        due.push(seat.refuse(refusal::kicked(name)));
        Ok(())
    }

    pub(crate) fn info(
        &self,
        now: Duration,
        name: &str,
        name_of: impl Fn(NodeId) -> String,
    ) -> Result<wire::GroupInfo, Refused> {
        let group = self.groups.get(name).ok_or_else(|| refusal::unknown(name, false))?;
        Ok(group.info(now, name_of))
    }

    pub(crate) fn list(&self, now: Duration, name_of: impl Fn(NodeId) -> String) -> Vec<wire::GroupInfo> {
        self.groups.values().map(|group| group.info(now, &name_of)).collect()
    }

    /// The job of a group's newest epoch that lives.
    pub(crate) fn live(&self, name: &str) -> Result<JobId, Refused> {
        let group = self.groups.get(name).ok_or_else(|| refusal::unknown(name, false))?;
        let newest = group.live.last_key_value().map(|(_, (job, _))| *job);
        newest.ok_or_else(|| refusal::no_epoch(name))
    }

    // --- time ---

    /// When [`Lobby::settle`] is wanted at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        if self.changed { Some(Duration::ZERO) } else { self.wake }
    }

    /// What is due, and what became possible.
    pub(crate) fn settle(&mut self, now: Duration, name_of: impl Fn(NodeId) -> String) -> Vec<Due> {
        let mut due = Vec::new();
        if self.next_deadline().is_none_or(|at| at > now) {
            return due;
        }
        let alone = std::mem::take(&mut self.alone).into_iter();
        due.extend(alone.map(|seat| Due::Begin(Complete { group: String::new(), epoch: 1, seats: vec![seat] })));
        for group in self.groups.values_mut() {
            for seat in group.expired(now) {
                self.waiting.remove(&seat.join.token);
            }
            while let Some(complete) = group.complete(now) {
                due.push(Due::Begin(complete));
            }
            let late = group.late(now);
            if !late.is_empty() {
                let (have, here) = (group.seats.len(), refusal::here(group, now, &name_of));
                for seat in group.remove(&late) {
                    self.waiting.remove(&seat.join.token);
                    let waited = in_seconds(now.saturating_sub(seat.since));
                    due.push(seat.refuse(refusal::timed_out(group, have, waited, &here)));
                }
            }
            group.tell(now, &mut due);
        }
        for (name, group) in self.groups.extract_if(.., |_, group| group.is_forgotten(now)) {
            if group.is_to_be_kept() {
                self.touched.insert(name);
            }
        }
        self.wake = self.groups.values().filter_map(|group| group.next_deadline(now)).min();
        self.changed = false;
        due
    }

    /// What it still keeps, one word or two each.
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let seats = self.waiting.iter().map(|(token, group)| format!("place {token} of group {group}"));
        seats.chain(self.entered.iter().map(|(token, job)| format!("place {token} of job {job}")))
    }
}

/// To the nearest: a client that says how long it still waits has spent a part of its time before it could ask.
pub(crate) fn in_seconds(time: Duration) -> u64 {
    (time + Duration::from_millis(500)).as_secs()
}
