//! The lobby: running processes wait here, in named groups, until their group is complete. Only the head has a lobby.
//!
//! The lobby keeps the waiting members and their deadlines, decides what to send them, and finds complete groups. `groups` makes
//! an epoch, which is a job, of a complete group. The daemon of a member's node keeps the member's connection (`node/members`). A
//! token identifies a place: a repeated request with the same token gets the same place.
//!
//! The first join creates a group of the requested size if no user has created it. Such a group is forgotten when its last member
//! leaves; if it has had an epoch, its numbers are remembered for a while, so that the next forming is epoch 2. A join without a
//! name is complete by itself and belongs to no group that can be listed or joined.
//!
//! Cost: an input looks at the places of the groups that it changes; a tick looks at the groups whose deadline has passed.

mod group;
pub(super) mod refusal;
mod waits;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use rsd_proto::join;
use rsd_proto::v1::{self as wire, GroupError, GroupJoin, GroupWait, JobState, kept};

use crate::calls::{Refused, exit};
use crate::timers::Timers;
use crate::{JobId, NodeId};

pub(super) use group::{Complete, Group, Seat};

/// The default wait for members if neither the member nor its group sets a timeout.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// A group with enough members for an epoch, but fewer than its maximum, begins the epoch after this time without another join.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a created group is kept while it is empty.
const TTL: Duration = Duration::from_secs(3600);
/// How long the head remembers a group that was not created after its last epoch, and a group that was closed.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How long a member keeps its place while its daemon is unreachable.
const AWAY: Duration = Duration::from_secs(5);
/// The shortest time between two messages to a member about the number of members.
const NEWS: Duration = Duration::from_secs(1);
/// The most members of a group.
const SIZE_MAX: u32 = 1 << 16;
/// The most groups of a user, and the most members that wait in them.
const GROUPS_MAX: usize = 4096;
const SEATS_MAX: usize = 1 << 17;

/// The groups of each user; in a DVM that serves one user, they are user 0's.
#[derive(Debug, Default)]
pub(super) struct Lobbies(BTreeMap<u32, Lobby>);

impl Lobbies {
    /// Returns the lobby of a user.
    pub(super) fn of(&mut self, user: u32) -> &mut Lobby {
        self.0.entry(user).or_default()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Lobby> {
        self.0.values_mut()
    }

    /// Returns the users that `may_see` accepts, with their lobbies.
    pub(super) fn seen(&self, may_see: impl Fn(u32) -> bool) -> impl Iterator<Item = (u32, &Lobby)> {
        self.0.iter().map(|(user, lobby)| (*user, lobby)).filter(move |(user, _)| may_see(*user))
    }

    /// Returns the user whose lobby must be settled first, and the latest time for that. Cost: looks at every user with groups.
    pub(super) fn next_due(&self) -> Option<(Duration, u32)> {
        self.0.iter().filter_map(|(user, lobby)| Some((lobby.next_deadline()?, *user))).min()
    }

    /// Returns the latest time at which a lobby must be settled.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.next_due().map(|(at, _)| at)
    }

    /// Forgets the lobbies without groups and members.
    pub(super) fn forget_empty(&mut self) {
        self.0.retain(|_, lobby| !lobby.is_empty());
    }

    /// Returns the records of the groups that have changed since the last call.
    pub(super) fn take_touched(&mut self) -> Vec<kept::What> {
        self.0.iter_mut().flat_map(|(user, lobby)| lobby.take_touched(*user)).collect()
    }

    /// Returns the records of all groups.
    pub(super) fn kept(&self) -> impl Iterator<Item = wire::GroupInfo> {
        self.0.values().flat_map(Lobby::kept)
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.0.values().flat_map(Lobby::leftovers)
    }
}

/// All groups of a user.
#[derive(Debug, Default)]
pub(super) struct Lobby {
    groups: BTreeMap<String, Group>,
    /// The groups of waiting members, by token.
    waiting: HashMap<String, String>,
    /// Members without a group; their epochs begin at once.
    alone: Vec<Seat>,
    /// The running epochs, and the jobs of their members by token.
    epochs: HashMap<JobId, Entered>,
    entered: HashMap<String, JobId>,
    /// Groups whose state must be checked again.
    changed: BTreeSet<String>,
    /// Groups whose record has changed.
    touched: BTreeSet<String>,
    /// When each group must be checked again.
    timers: Timers<String>,
}

/// A running epoch.
#[derive(Debug)]
struct Entered {
    /// Empty for a member without a group.
    group: String,
    epoch: u64,
    tokens: Vec<String>,
}

/// A result of [`Lobby::settle`].
#[derive(Debug)]
pub(super) enum Due {
    /// Send the state to a member.
    Send { node: NodeId, member: u64, token: String, state: State },
    /// Begin an epoch of a complete group.
    Begin(Complete),
}

/// The state of a waiting member.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Wait(GroupWait),
    Refused(GroupError),
}

impl From<State> for wire::group_state::State {
    fn from(state: State) -> Self {
        match state {
            State::Wait(wait) => wire::group_state::State::Wait(wait),
            State::Refused(error) => wire::group_state::State::Error(error),
        }
    }
}

impl Lobby {
    /// Handles a request for a place, or a repeated one. `name_of` returns the names of nodes, for refusals.
    pub(super) fn join(
        &mut self,
        now: Duration,
        join: GroupJoin,
        name_of: impl Fn(NodeId) -> String,
    ) -> Result<(), Refused> {
        if self.entered.contains_key(&join.token) {
            return Ok(()); // its daemon has received the launch, or will receive it
        }
        if let Some(name) = self.waiting.get(&join.token) {
            let known = self.groups.get_mut(name).filter(|_| *name == join.group);
            let seat = known.and_then(|group| group.seats.iter_mut().find(|seat| seat.join.token == join.token));
            return match seat {
                Some(seat) if seat.join.uid == join.uid => {
                    self.changed.insert(join.group.clone());
                    seat.reconnect(join);
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
            return Err(refusal::full("waiting members", SEATS_MAX));
        }
        if !self.groups.contains_key(&join.group) {
            let Some(size) = wanted else { return Err(refusal::unknown(&join.group, true)) };
            if self.groups.len() >= GROUPS_MAX {
                return Err(refusal::full("groups", GROUPS_MAX));
            }
            self.groups.insert(join.group.clone(), Group::new(join.group.clone(), join.uid, size, now));
        }
        self.changed.insert(join.group.clone());
        let Some(group) = self.groups.get_mut(&join.group) else { return Ok(()) };
        let (token, name) = (join.token.clone(), join.group.clone());
        let before = (group.size, group.sized_by);
        let replaced = group.take(now, join, wanted, name_of)?;
        if (group.size, group.sized_by) != before {
            self.touched.insert(name.clone());
        }
        replaced.into_iter().for_each(|token| drop(self.waiting.remove(&token)));
        self.waiting.insert(token, name);
        Ok(())
    }

    /// Removes a member. Returns the job in which it has a rank, if its epoch has begun.
    pub(super) fn leave(&mut self, token: &str) -> Option<JobId> {
        if let Some(name) = self.waiting.remove(token)
            && let Some(group) = self.groups.get_mut(&name)
        {
            group.seats.retain(|seat| seat.join.token != token);
            self.changed.insert(name);
        }
        self.alone.retain(|seat| seat.join.token != token);
        self.entered.get(token).copied()
    }

    /// Marks the members on these nodes as unreachable: they keep their places for a while. Cost: looks at every place.
    pub(super) fn nodes_are_away(&mut self, now: Duration, nodes: &[NodeId]) {
        for seat in self.seats_on(nodes) {
            seat.away.get_or_insert(now);
        }
    }

    /// Gives up the places of members on these nodes, which are lost.
    pub(super) fn nodes_are_lost(&mut self, nodes: &[NodeId]) {
        for seat in self.seats_on(nodes) {
            seat.away = Some(Duration::ZERO);
        }
    }

    fn seats_on<'a>(&'a mut self, nodes: &'a [NodeId]) -> impl Iterator<Item = &'a mut Seat> {
        let is_on_them = |seat: &Seat| nodes.contains(&seat.join.node);
        let groups = self.groups.iter_mut().filter(move |(_, group)| group.seats.iter().any(is_on_them));
        let seats = groups.flat_map(|(name, group)| {
            self.changed.insert(name.clone());
            &mut group.seats
        });
        seats.filter(move |seat| is_on_them(seat))
    }

    /// Records that an epoch has begun, as this job.
    pub(super) fn began(&mut self, complete: &Complete, job: JobId) {
        self.changed.insert(complete.group.clone());
        let tokens = complete.seats.iter().map(|seat| seat.join.token.clone()).collect();
        self.epochs.insert(job, Entered { group: complete.group.clone(), epoch: complete.epoch, tokens });
        for seat in &complete.seats {
            self.waiting.remove(&seat.join.token);
            self.entered.insert(seat.join.token.clone(), job);
        }
        if let Some(group) = self.groups.get_mut(&complete.group) {
            group.live.insert(complete.epoch, (job, complete.seats.len() as u32));
            self.touched.insert(complete.group.clone());
        }
    }

    /// Records that a job has ended. If it was an epoch, returns its group and number.
    pub(super) fn over(&mut self, job: JobId, state: JobState, cause: Option<String>) -> Option<(String, u64)> {
        let Entered { group: name, epoch, tokens } = self.epochs.remove(&job)?;
        let over = (name.clone(), epoch);
        for token in tokens {
            if self.entered.get(&token) == Some(&job) {
                self.entered.remove(&token);
            }
        }
        if let Some(group) = self.groups.get_mut(&name)
            && group.live.remove(&epoch).is_some()
        {
            let cause = cause.unwrap_or_default();
            group.last = Some(wire::EndedEpoch { epoch, job, state: state.into(), cause });
            self.changed.insert(name.clone());
            self.touched.insert(name);
        }
        Some(over)
    }

    // --- restarts ---

    /// Returns the records of the groups that have changed since the last call.
    fn take_touched(&mut self, user: u32) -> impl Iterator<Item = kept::What> {
        std::mem::take(&mut self.touched).into_iter().map(move |name| match self.groups.get(&name) {
            Some(group) => kept::What::Group(group.kept()),
            None => kept::What::GroupGone(wire::KeptGroupGone { name, owner_uid: user }),
        })
    }

    /// Returns the records of all groups.
    fn kept(&self) -> impl Iterator<Item = wire::GroupInfo> {
        self.groups.values().filter(|group| group.is_to_be_kept()).map(Group::kept)
    }

    /// Restores a group after a restart. Its times begin anew.
    pub(super) fn restore(&mut self, now: Duration, info: wire::GroupInfo) {
        let Some(rules) = info.rules.clone().filter(|rules| join::check_name(&rules.name).is_ok()) else { return };
        self.changed.insert(rules.name.clone());
        self.groups.insert(rules.name.clone(), Group::restored(now, &rules, info));
    }

    /// Restores an epoch that was running before a restart.
    pub(super) fn restore_epoch(&mut self, job: JobId, epoch: &wire::GroupEpoch) {
        self.changed.insert(epoch.name.clone());
        let tokens = epoch.members.iter().map(|member| member.token.clone()).collect();
        self.epochs.insert(job, Entered { group: epoch.name.clone(), epoch: epoch.epoch, tokens });
        self.entered.extend(epoch.members.iter().map(|member| (member.token.clone(), job)));
        if let Some(group) = self.groups.get_mut(&epoch.name) {
            group.epoch = group.epoch.max(epoch.epoch + 1);
            group.live.insert(epoch.epoch, (job, epoch.members.len() as u32));
        }
    }

    // --- clients' requests ---

    pub(super) fn create(&mut self, now: Duration, rules: &wire::GroupRules, uid: u32) -> Result<(), Refused> {
        if let Err(error) = join::check_name(&rules.name) {
            return Err(Refused { exit_code: exit::USAGE, text: error.to_string() });
        }
        let size = refusal::sizes(&rules.name, None, Some(rules.min), Some(rules.max))?;
        let full = self.groups.len() >= GROUPS_MAX;
        match self.groups.get_mut(&rules.name) {
            Some(group) if group.can_be_created() => group.recreate(size, uid),
            Some(_) => return Err(refusal::exists(&rules.name)),
            None if full => return Err(refusal::full("groups", GROUPS_MAX)),
            None => {
                let group = Group::new(rules.name.clone(), uid, size.unwrap_or((1, 1)), now);
                self.groups.insert(rules.name.clone(), group);
            }
        }
        if let Some(group) = self.groups.get_mut(&rules.name) {
            group.set_rules(rules);
        }
        self.changed.insert(rules.name.clone());
        self.touched.insert(rules.name.clone());
        Ok(())
    }

    pub(super) fn close(&mut self, now: Duration, name: &str, due: &mut Vec<Due>) -> Result<(), Refused> {
        let group = self.groups.get_mut(name).ok_or_else(|| refusal::unknown(name, false))?;
        self.changed.insert(name.to_owned());
        group.closed.get_or_insert(now);
        self.touched.insert(name.to_owned());
        for seat in std::mem::take(&mut group.seats) {
            self.waiting.remove(&seat.join.token);
            due.push(seat.refuse(refusal::closed(name)));
        }
        Ok(())
    }

    pub(super) fn kick(
        &mut self,
        name: &str,
        pid: u32,
        node: Option<NodeId>,
        due: &mut Vec<Due>,
    ) -> Result<(), Refused> {
        let group = self.groups.get_mut(name).ok_or_else(|| refusal::unknown(name, false))?;
        let meant = |seat: &Seat| seat.join.pid == pid && node.is_none_or(|node| node == seat.join.node);
        if group.seats.iter().filter(|seat| meant(seat)).count() > 1 {
            return Err(refusal::several(name, pid));
        }
        let Some(at) = group.seats.iter().position(meant) else {
            return Err(refusal::not_waiting(name, pid, group.live.values().map(|(job, _)| *job)));
        };
        self.changed.insert(name.to_owned());
        let seat = group.seats.remove(at);
        self.waiting.remove(&seat.join.token);
        due.push(seat.refuse(refusal::kicked(name)));
        Ok(())
    }

    pub(super) fn info(
        &self,
        now: Duration,
        name: &str,
        name_of: impl Fn(NodeId) -> String,
    ) -> Result<wire::GroupInfo, Refused> {
        let group = self.groups.get(name).ok_or_else(|| refusal::unknown(name, false))?;
        Ok(group.info(now, name_of))
    }

    pub(super) fn list(&self, now: Duration, name_of: impl Fn(NodeId) -> String) -> Vec<wire::GroupInfo> {
        self.groups.values().map(|group| group.info(now, &name_of)).collect()
    }

    /// Returns the job of a group's newest running epoch.
    pub(super) fn live(&self, name: &str) -> Result<JobId, Refused> {
        let group = self.groups.get(name).ok_or_else(|| refusal::unknown(name, false))?;
        let newest = group.live.last_key_value().map(|(_, (job, _))| *job);
        newest.ok_or_else(|| refusal::no_epoch(name))
    }

    // --- time ---

    /// Returns whether there is nothing in it.
    fn is_empty(&self) -> bool {
        let no_members = self.waiting.is_empty() && self.alone.is_empty() && self.epochs.is_empty();
        no_members && self.groups.is_empty() && self.touched.is_empty()
    }

    /// Returns whether the user has this group.
    pub(super) fn has(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// Returns the latest time at which [`Lobby::settle`] must be called.
    fn next_deadline(&self) -> Option<Duration> {
        if self.changed.is_empty() && self.alone.is_empty() { self.timers.next() } else { Some(Duration::ZERO) }
    }

    /// Returns everything that is due at `now`, and the epochs that can begin.
    pub(super) fn settle(&mut self, now: Duration, name_of: impl Fn(NodeId) -> String) -> Vec<Due> {
        let alone = std::mem::take(&mut self.alone).into_iter();
        let begin = |seat| Due::Begin(Complete { group: String::new(), epoch: 1, seats: vec![seat] });
        let mut due: Vec<Due> = alone.map(begin).collect();
        while let Some(name) = self.timers.pop_due(now) {
            self.changed.insert(name);
        }
        for name in std::mem::take(&mut self.changed) {
            self.settle_group(now, name, &name_of, &mut due);
        }
        due
    }

    fn settle_group(&mut self, now: Duration, name: String, name_of: impl Fn(NodeId) -> String, due: &mut Vec<Due>) {
        let Some(group) = self.groups.get_mut(&name) else { return self.timers.cancel(&name) };
        for seat in group.expired(now) {
            self.waiting.remove(&seat.join.token);
        }
        while let Some(complete) = group.complete(now) {
            due.push(Due::Begin(complete));
        }
        let late = group.late(now);
        if !late.is_empty() {
            let (have, here) = (group.seats.len(), group.waiting_text(now, &name_of));
            for seat in group.remove(&late) {
                self.waiting.remove(&seat.join.token);
                let waited = now.saturating_sub(seat.since);
                due.push(seat.refuse(refusal::timed_out(&group.name, (have, group.size.0), waited, &here)));
            }
        }
        group.send_counts(now, due);
        let wake = group.next_deadline(now);
        if !group.is_forgotten(now) {
            return self.timers.put(name, wake);
        }
        self.timers.cancel(&name);
        if self.groups.remove(&name).is_some_and(|group| group.is_to_be_kept()) {
            self.touched.insert(name);
        }
    }

    /// Describes the entries that are still kept, for tests.
    fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let seats = self.waiting.iter().map(|(token, group)| format!("place {token} of group {group}"));
        seats.chain(self.entered.iter().map(|(token, job)| format!("place {token} of job {job}")))
    }
}
