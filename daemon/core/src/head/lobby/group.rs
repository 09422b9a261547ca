//! One group: its rules, the members that wait in it, and when it is complete.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_proto::v1::{self as wire, GroupJoin, GroupWait};

use super::{AWAY, Due, NEWS, REMEMBERED, SETTLE, State, TIMEOUT, TIMEOUT_MAX, TTL, refusal};
use crate::calls::Refused;
use crate::{JobId, NodeId};

/// How many waiting pids an error lists.
const LISTED: usize = 128;

/// A group.
#[derive(Debug)]
pub(in crate::head) struct Group {
    pub(in crate::head) name: String,
    pub(in crate::head) owner: u32,
    /// The minimum and maximum number of members.
    pub(in crate::head) size: (u32, u32),
    /// The first process that requested this size: its pid and node. None: the group was created.
    pub(in crate::head) sized_by: Option<(u32, NodeId)>,
    /// Whether a join has ever requested a size.
    was_sized: bool,
    created: bool,
    /// Whether no member has joined since a restart.
    is_restored: bool,
    mode: u32,
    ttl: Duration,
    timeout: Duration,
    settle: Duration,
    pub(in crate::head) closed: Option<Duration>,
    pub(in crate::head) epoch: u64,
    /// The waiting members, in order of arrival.
    pub(in crate::head) seats: Vec<Seat>,
    pub(in crate::head) live: BTreeMap<u64, (JobId, u32)>,
    /// The most recently ended epoch.
    pub(in crate::head) last: Option<wire::EndedEpoch>,
    last_arrival: Duration,
    /// Since when the group has had no members.
    empty: Option<Duration>,
    /// The number of members last sent to the members, and when.
    notified: (u32, Duration),
}

/// A waiting member.
#[derive(Debug)]
pub(in crate::head) struct Seat {
    pub(in crate::head) join: GroupJoin,
    pub(in crate::head) since: Duration,
    pub(in crate::head) deadline: Duration,
    /// Since when the member's daemon is unreachable.
    pub(in crate::head) away: Option<Duration>,
    notified: bool,
}

/// A complete group.
#[derive(Debug)]
pub(in crate::head) struct Complete {
    pub(in crate::head) group: String,
    pub(in crate::head) epoch: u64,
    /// The members, in rank order.
    pub(in crate::head) seats: Vec<Seat>,
}

impl Seat {
    /// Returns a member without a group, whose epoch begins at once.
    pub(in crate::head) fn alone(now: Duration, join: GroupJoin) -> Seat {
        let pmi_id = positive(join.pmi_id);
        Seat { join: GroupJoin { pmi_id, ..join }, since: now, deadline: now + TIMEOUT, away: None, notified: true }
    }

    /// Handles a repeated request of the member's daemon, which may have restarted and use another number for the member.
    pub(in crate::head) fn reconnect(&mut self, join: GroupJoin) {
        self.notified &= (self.join.node, self.join.member) == (join.node, join.member);
        (self.join.node, self.join.member, self.away) = (join.node, join.member, None);
    }

    fn send(&self, state: State) -> Due {
        Due::Send { node: self.join.node, member: self.join.member, token: self.join.token.clone(), state }
    }

    pub(in crate::head) fn refuse(&self, refused: Refused) -> Due {
        self.send(State::Refused(wire::GroupError { code: u32::from(refused.exit_code), text: refused.text }))
    }
}

impl Group {
    /// Lists the waiting members and the number or ranks of the missing ones:
    /// `here: a: pids 11 12 (waiting 60 s); b: pid 7 (waiting 2 s); missing: 2`.
    pub(in crate::head) fn waiting_text(&self, now: Duration, name_of: impl Fn(NodeId) -> String) -> String {
        let (have, want) = (self.seats.len(), self.size.0 as usize);
        let mut here: BTreeMap<NodeId, BTreeMap<Reverse<u64>, Vec<String>>> = BTreeMap::new();
        for seat in self.seats.iter().take(LISTED) {
            let seconds = now.saturating_sub(seat.since).as_secs();
            let away = if seat.away.is_some() { " (its daemon is unreachable)" } else { "" };
            let pids = here.entry(seat.join.node).or_default().entry(Reverse(seconds)).or_default();
            pids.push(format!("{}{away}", seat.join.pid));
        }
        let at_once = |(Reverse(seconds), pids): (&Reverse<u64>, &Vec<String>)| {
            let word = if pids.len() == 1 { "pid" } else { "pids" };
            format!("{word} {} (waiting {seconds} s)", pids.join(" "))
        };
        let on_node = |(node, times): (&NodeId, &BTreeMap<_, _>)| {
            format!("{}: {}", name_of(*node), times.iter().map(at_once).collect::<Vec<_>>().join(", "))
        };
        let nodes: Vec<String> = here.iter().map(on_node).collect();
        let more = if have > LISTED { format!(" and {} more", have - LISTED) } else { String::new() };
        let wishes: BTreeSet<u32> = self.seats.iter().filter_map(|seat| seat.join.rank).collect();
        let ranks = match wishes.len() == have {
            true => (0..self.size.0)
                .filter(|rank| !wishes.contains(rank))
                .take(LISTED)
                .map(|rank| rank.to_string())
                .collect(),
            false => Vec::new(),
        };
        let which = match &ranks[..] {
            [] => String::new(),
            [rank] => format!(" (rank {rank})"),
            ranks => format!(" (ranks {})", ranks.join(" ")),
        };
        format!("here: {}{more}; missing: {}{which}", nodes.join("; "), want.saturating_sub(have))
    }

    pub(in crate::head) fn new(name: String, owner: u32, size: (u32, u32), now: Duration) -> Group {
        Group {
            name,
            owner,
            size,
            sized_by: None,
            was_sized: false,
            created: false,
            is_restored: false,
            mode: 0o600,
            ttl: TTL,
            timeout: TIMEOUT,
            settle: SETTLE,
            closed: None,
            epoch: 1,
            seats: Vec::new(),
            live: BTreeMap::new(),
            last: None,
            last_arrival: now,
            empty: None,
            notified: (0, now),
        }
    }

    /// Returns the group after a restart, without its members.
    pub(in crate::head) fn restored(now: Duration, rules: &wire::GroupRules, info: wire::GroupInfo) -> Group {
        let mut group = Group::new(rules.name.clone(), info.owner_uid, (rules.min, rules.max), now);
        group.set_rules(rules);
        group.created = info.created;
        group.closed = info.closed.then_some(now);
        group.epoch = info.epoch;
        group.last = info.last;
        (group.was_sized, group.is_restored) = (true, true);
        group
    }

    /// Returns whether the group must be kept across a restart: it has its own rules or numbers, or its members may return
    /// without a size.
    pub(in crate::head) fn is_to_be_kept(&self) -> bool {
        self.created || self.closed.is_some() || self.epoch > 1 || self.was_sized
    }

    /// Returns whether a client may create this group: no member waits, and it was closed or never created.
    pub(in crate::head) fn can_be_created(&self) -> bool {
        self.seats.is_empty() && (self.closed.is_some() || !self.created)
    }

    pub(in crate::head) fn recreate(&mut self, size: Option<(u32, u32)>, owner: u32) {
        (self.closed, self.empty, self.owner) = (None, None, owner);
        self.size = size.unwrap_or(self.size);
    }

    pub(in crate::head) fn set_rules(&mut self, rules: &wire::GroupRules) {
        let or = |ms: Option<u64>, default: Duration| ms.map_or(default, Duration::from_millis).min(TIMEOUT_MAX);
        (self.created, self.sized_by, self.mode) = (true, None, rules.mode.unwrap_or(0o600));
        self.ttl = or(rules.ttl_ms, TTL);
        self.timeout = or(rules.timeout_ms, TIMEOUT);
        self.settle = or(rules.settle_ms, SETTLE);
    }

    /// Adds a member; `wanted` is the size that it requests. Returns the tokens of its earlier places, which it loses.
    pub(in crate::head) fn take(
        &mut self,
        now: Duration,
        join: GroupJoin,
        wanted: Option<(u32, u32)>,
        name_of: impl Fn(NodeId) -> String,
    ) -> Result<Vec<String>, Refused> {
        if self.closed.is_some() {
            return Err(refusal::closed(&self.name));
        }
        let is_free = self.seats.is_empty() && self.live.is_empty() && !self.created;
        if is_free {
            self.owner = join.uid;
        }
        let may = join.uid == self.owner || join.uid == 0 || self.mode & 0o006 == 0o006;
        if !may {
            return Err(refusal::other_owner(&self.name, self.owner, join.uid));
        }
        match wanted {
            Some(size) if self.seats.is_empty() && !self.created => {
                (self.size, self.sized_by, self.was_sized) = (size, Some((join.pid, join.node)), true);
            }
            Some(size) if size != self.size => {
                return Err(refusal::other_size(&self.name, self.size, self.sized_by, size, name_of));
            }
            Some(_) | None => {}
        }
        if let Some(rank) = join.rank {
            if rank >= self.size.0 {
                return Err(refusal::no_such_rank(&self.name, rank, self.size));
            }
            if let Some(other) = self.seats.iter().find(|seat| seat.join.rank == Some(rank)) {
                return Err(refusal::rank_taken(&self.name, rank, &other.join, name_of));
            }
        }
        let is_same = |seat: &Seat| {
            let (a, b) = (&seat.join, &join);
            b.pid != 0 && (a.node, a.pid, a.started) == (b.node, b.pid, b.started)
        };
        if let Some(twin) = self.seats.iter().find(|seat| is_same(seat) && seat.away.is_none()) {
            return Err(refusal::already_waits(&self.name, &twin.join));
        }
        let lost: Vec<String> = self.seats.extract_if(.., |seat| is_same(seat)).map(|seat| seat.join.token).collect();
        let wait = join.timeout_ms.map_or(self.timeout, Duration::from_millis).min(TIMEOUT_MAX);
        let unique = |id: u32| !self.seats.iter().any(|seat| seat.join.node == join.node && seat.join.pmi_id == id);
        let first = positive(join.pmi_id);
        let pmi_id = (first..=i32::MAX as u32).chain(1..first).find(|id| unique(*id)).unwrap_or(first);
        let join = GroupJoin { pmi_id, ..join };
        self.seats.push(Seat { join, since: now, deadline: now + wait, away: None, notified: false });
        (self.last_arrival, self.empty, self.is_restored) = (now, None, false);
        Ok(lost)
    }

    /// Removes and returns the members whose daemon has been unreachable for too long.
    pub(in crate::head) fn expired(&mut self, now: Duration) -> Vec<Seat> {
        self.seats.extract_if(.., |seat| seat.away.is_some_and(|since| since + AWAY <= now)).collect()
    }

    /// Removes and returns the members of the next epoch, if there are enough.
    pub(in crate::head) fn complete(&mut self, now: Duration) -> Option<Complete> {
        let (min, max) = (self.size.0 as usize, self.size.1 as usize);
        let present = self.present();
        let settled = self.last_arrival + self.settle <= now && present == self.seats.len();
        if present < min || (present < max && !settled) {
            return None;
        }
        let mut taken = 0;
        let seats = self.seats.extract_if(.., |seat| {
            let enters = seat.away.is_none() && taken < max;
            taken += usize::from(enters);
            enters
        });
        let seats = in_rank_order(seats.collect());
        let epoch = self.epoch;
        self.epoch += 1;
        self.notified.0 = 0;
        Some(Complete { group: self.name.clone(), epoch, seats })
    }

    fn present(&self) -> usize {
        self.seats.iter().filter(|seat| seat.away.is_none()).count()
    }

    /// Returns the tokens of the members whose timeout has passed.
    pub(in crate::head) fn late(&self, now: Duration) -> Vec<String> {
        let late = self.seats.iter().filter(|seat| seat.deadline <= now);
        late.map(|seat| seat.join.token.clone()).collect()
    }

    pub(in crate::head) fn remove(&mut self, tokens: &[String]) -> Vec<Seat> {
        self.seats.extract_if(.., |seat| tokens.contains(&seat.join.token)).collect()
    }

    /// Sends the number of members: to a new member at once, to the others at most once a second.
    pub(in crate::head) fn send_counts(&mut self, now: Duration, due: &mut Vec<Due>) {
        let (have, want, epoch) = (self.present() as u32, self.size.1, self.epoch);
        let news = have != self.notified.0 && self.notified.1 + NEWS <= now;
        for seat in self.seats.iter_mut().filter(|seat| news || !seat.notified) {
            seat.notified = true;
            let left_ms = u64::try_from(seat.deadline.saturating_sub(now).as_millis()).unwrap_or(u64::MAX);
            due.push(seat.send(State::Wait(GroupWait { have, want, epoch, left_ms })));
        }
        if news {
            self.notified = (have, now);
        }
        if self.seats.is_empty() && self.live.is_empty() {
            self.empty.get_or_insert(now);
        } else {
            self.empty = None;
        }
    }

    fn forgotten_at(&self) -> Option<Duration> {
        let had_epochs = self.epoch > 1;
        self.empty.map(|since| match (self.closed, self.created) {
            (Some(_), _) => since + REMEMBERED,
            (None, true) => since + self.ttl,
            (None, false) if had_epochs => since + REMEMBERED,
            (None, false) if self.is_restored => since + AWAY,
            (None, false) => since,
        })
    }

    pub(in crate::head) fn is_forgotten(&self, now: Duration) -> bool {
        self.forgotten_at().is_some_and(|at| at <= now)
    }

    pub(in crate::head) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let seats = self.seats.iter().flat_map(|seat| [Some(seat.deadline), seat.away.map(|since| since + AWAY)]);
        let present = self.present();
        let enough = present >= self.size.0 as usize && present == self.seats.len() && present > 0;
        let settled = enough.then_some(self.last_arrival + self.settle);
        let news = (present as u32 != self.notified.0 && present > 0).then_some((self.notified.1 + NEWS).max(now));
        seats.chain([settled, news, self.forgotten_at()]).flatten().min()
    }

    pub(in crate::head) fn info(&self, now: Duration, name_of: impl Fn(NodeId) -> String) -> wire::GroupInfo {
        let waiting = self.seats.iter().map(|seat| wire::WaitingMember {
            node: seat.join.node,
            node_name: name_of(seat.join.node),
            pid: seat.join.pid,
            uid: seat.join.uid,
            rank: seat.join.rank,
            waiting_ms: in_ms(now.saturating_sub(seat.since)),
            away: seat.away.is_some(),
        });
        let live =
            self.live.iter().map(|(epoch, (job, size))| wire::LiveEpoch { epoch: *epoch, job: *job, size: *size });
        wire::GroupInfo { waiting: waiting.collect(), epochs: live.collect(), ..self.kept() }
    }

    /// Returns the group's record for the next head.
    pub(in crate::head) fn kept(&self) -> wire::GroupInfo {
        wire::GroupInfo {
            rules: Some(wire::GroupRules {
                name: self.name.clone(),
                min: self.size.0,
                max: self.size.1,
                ttl_ms: self.created.then(|| in_ms(self.ttl)),
                timeout_ms: Some(in_ms(self.timeout)),
                settle_ms: Some(in_ms(self.settle)),
                mode: Some(self.mode),
            }),
            owner_uid: self.owner,
            created: self.created,
            closed: self.closed.is_some(),
            epoch: self.epoch,
            last: self.last.clone(),
            ..Default::default()
        }
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Makes a `PMI_ID` positive: some MPI libraries read it as a signed number.
fn positive(pmi_id: u32) -> u32 {
    (pmi_id & (i32::MAX as u32)).max(1)
}

/// Orders members by rank. Requested ranks are granted; the other members fill the remaining ranks by node, then by arrival.
/// Cost: n log n.
fn in_rank_order(seats: Vec<Seat>) -> Vec<Seat> {
    let (wishes, mut others): (Vec<Seat>, Vec<Seat>) = seats.into_iter().partition(|seat| seat.join.rank.is_some());
    // The sort is stable, so members of a node stay in order of arrival.
    others.sort_by_key(|seat| seat.join.node);
    let size = wishes.len() + others.len();
    let mut wishes: BTreeMap<u32, Seat> = wishes.into_iter().filter_map(|seat| Some((seat.join.rank?, seat))).collect();
    let mut others = others.into_iter();
    (0..size as u32).filter_map(|rank| wishes.remove(&rank).or_else(|| others.next())).collect()
}
