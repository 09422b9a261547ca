//! What several processes request together: fences of some ranks, connections of jobs, groups.
//!
//! A collective is known by its kind, its members, and how many collectives of that kind the same members have entered before. The ranks
//! of this node gather here; then, if there are other members, the head is asked for the rendezvous of all (`Meet`), whose answer has what
//! each node has contributed. Fences of the whole job are the engine's.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use rsd_proto::pmix::{Codec, Info, Proc, Reader, Reply, Status, Writer, keys, rank};
use rsd_proto::ranges;
use rsd_proto::v1::{self as wire, name_call};

use super::pending::{Asked, Group, Then, ms};
use super::{Awaited, Blocked, Effect, Local, Step, To, until};
use crate::Now;

/// The codec of what the nodes of a collective tell each other.
const BETWEEN: Codec = Codec::V41;

/// What the members do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Fence,
    Connect,
    Disconnect,
    /// Found the group with this name.
    Found(String),
    /// Dissolve it.
    Dissolve(String),
}

impl Kind {
    /// Returns the part of the rendezvous' key that says what it is.
    fn name(&self) -> String {
        match self {
            Kind::Fence => "fence".into(),
            Kind::Connect => "connect".into(),
            Kind::Disconnect => "disconnect".into(),
            Kind::Found(group) => format!("found/{group}"),
            Kind::Dissolve(group) => format!("dissolve/{group}"),
        }
    }
}

/// The open collectives and the groups.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    open: BTreeMap<u64, Collective>,
    /// The number of the next.
    next: u64,
    /// How many collectives of a kind some members have entered, by [`of_members`]: programs that found groups without end have many.
    entered: HashMap<u128, u64>,
    groups: BTreeMap<String, Group>,
}

#[derive(Debug)]
struct Collective {
    kind: Kind,
    /// As [`Step::members`] returns them.
    members: Vec<Proc>,
    count: u64,
    arrived: Vec<Arrived>,
    /// When the first has arrived.
    since: Duration,
    until: Option<Duration>,
    timeout_ms: Option<u64>,
    /// Whether all ranks of this node have arrived, and the head was asked.
    is_asked: bool,
}

/// A rank that has arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) to: To,
    pub(super) local: Local,
    pub(super) infos: Vec<Info>,
}

impl Collectives {
    pub(super) fn len(&self) -> usize {
        self.open.values().map(|collective| collective.arrived.len()).sum()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.open.values().filter_map(|collective| collective.until).min()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    pub(super) fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    pub(super) fn members_of(&self, group: &str) -> Option<&[Proc]> {
        self.groups.get(group).map(|group| &group.members[..])
    }
}

impl Step {
    pub(super) fn on_group_destruct(&mut self, now: Now, local: Local, to: To, group: String, out: &mut Vec<Effect>) {
        let Some(members) = self.pmix.collectives.members_of(&group).map(<[Proc]>::to_vec) else {
            return self.send_pmix(to, &Reply::Done(Status::NOT_FOUND), out);
        };
        let arrived = Arrived { to, local, infos: Vec::new() };
        self.enter_collective(now, Kind::Dissolve(group), members, arrived, out);
    }

    /// Handles that a rank enters a collective of these processes; empty: its job.
    pub(super) fn enter_collective(
        &mut self,
        now: Now,
        kind: Kind,
        procs: Vec<Proc>,
        arrived: Arrived,
        out: &mut Vec<Effect>,
    ) {
        let members = self.members(procs);
        let here = self.members_here(&members);
        if !here.contains(&arrived.local) {
            return self.send_pmix(arrived.to, &Reply::Done(Status::BAD_PARAM), out);
        }
        let is_open = |collective: &Collective| {
            collective.kind == kind
                && collective.members == members
                && !collective.is_asked
                && collective.arrived.iter().all(|other| other.local != arrived.local)
        };
        let found = self.pmix.collectives.open.iter().find(|(_, collective)| is_open(collective));
        let number = match found {
            Some((number, _)) => *number,
            None => {
                let collectives = &mut self.pmix.collectives;
                let entered = collectives.entered.entry(of_members(&kind, &members)).or_default();
                let count = std::mem::replace(entered, *entered + 1);
                let number = collectives.next;
                collectives.next += 1;
                let collective = Collective {
                    kind,
                    members,
                    count,
                    arrived: Vec::new(),
                    since: now.mono,
                    until: None,
                    timeout_ms: None,
                    is_asked: false,
                };
                collectives.open.insert(number, collective);
                number
            }
        };
        let Some(collective) = self.pmix.collectives.open.get_mut(&number) else { return };
        let limit = until(now, &arrived.infos);
        collective.until = collective.until.into_iter().chain(limit).min();
        collective.timeout_ms = collective.timeout_ms.into_iter().chain(ms(&arrived.infos)).min();
        collective.arrived.push(arrived);
        let has_arrived = |local: &Local| {
            let open = &self.pmix.collectives.open;
            open.get(&number).is_some_and(|it| it.arrived.iter().any(|arrived| arrived.local == *local))
        };
        // One that has arrived before it ended counts.
        let mut lost = here.iter().filter(|local| self.ranks[**local].phase.is_over());
        if let Some(dead) = lost.find(|local| !has_arrived(local)) {
            return self.fail_collectives_of(*dead, out);
        }
        self.check_collective(number, &here, out);
    }

    /// Asks the head once all members of this node have arrived, or completes a collective that has no others.
    fn check_collective(&mut self, number: u64, here: &[Local], out: &mut Vec<Effect>) {
        let Some(collective) = self.pmix.collectives.open.get_mut(&number) else { return };
        if !here.iter().all(|local| collective.arrived.iter().any(|arrived| arrived.local == *local)) {
            return;
        }
        collective.is_asked = true;
        let infos = collective.arrived.iter().map(|arrived| (arrived.local, group_infos(&arrived.infos)));
        let infos: Vec<(Local, Vec<Info>)> = infos.collect();
        let (key, timeout_ms) =
            (format!("pmix/{}/{}", collective.kind.name(), collective.count), collective.timeout_ms);
        let told: Vec<(Proc, Vec<Info>)> =
            infos.into_iter().map(|(local, infos)| (self.proc_of(local), infos)).collect();
        let Some(collective) = self.pmix.collectives.open.get(&number) else { return };
        if self.are_here(&collective.members) {
            return self.complete_collective(number, told, out);
        }
        let arrived =
            ranges::of(self.sorted_ranks(here)).into_iter().map(|(first, last)| wire::RankRun { first, last });
        let meet = wire::Meet {
            key: key.into(),
            members: participants(&collective.members),
            arrived: arrived.collect(),
            data: encode_told(&told),
            timeout_ms: timeout_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
        };
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Meet(number)));
        self.ask_head_for(ticket, name_call::Op::Meet(meet), out);
    }

    fn sorted_ranks(&self, here: &[Local]) -> Vec<u32> {
        let mut ranks: Vec<u32> = here.iter().map(|local| self.ranks[*local].rank).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Handles the head's answer to a rendezvous.
    pub(super) fn on_met(&mut self, number: u64, result: wire::NameResult, out: &mut Vec<Effect>) {
        let status = Status(result.status);
        if !status.is_success() {
            return self.fail_collective(number, status, out);
        }
        let Ok(met) = wire::Met::decode(result.data) else {
            return self.fail_collective(number, Status::ERROR, out);
        };
        let mut told = Vec::new();
        for contribution in met.contributions {
            match decode_told(&contribution.data) {
                Some(of_node) => told.extend(of_node),
                None => return self.fail_collective(number, Status::ERROR, out),
            }
        }
        self.complete_collective(number, told, out);
    }

    fn complete_collective(&mut self, number: u64, told: Vec<(Proc, Vec<Info>)>, out: &mut Vec<Effect>) {
        let Some(Collective { kind, members, count, arrived, .. }) = self.pmix.collectives.open.remove(&number) else {
            return;
        };
        let others = other_namespaces(&members, &self.launch.namespace);
        match kind {
            Kind::Fence | Kind::Disconnect => {
                for arrived in arrived {
                    self.send_pmix(arrived.to, &Reply::Done(Status::SUCCESS), out);
                }
            }
            Kind::Connect => {
                for arrived in arrived {
                    self.with_jobs(arrived.to, others.clone(), Then::Connected, out);
                }
            }
            Kind::Found(name) => {
                let number = group_number(&name, &members, count);
                let infos = told.into_iter().filter(|(_, infos)| !infos.is_empty()).collect();
                let group = Group { number, members: members.clone(), infos };
                self.pmix.collectives.groups.insert(name, group);
                for arrived in arrived {
                    let then = Then::Founded { members: members.clone(), number };
                    self.with_jobs(arrived.to, others.clone(), then, out);
                }
            }
            Kind::Dissolve(name) => {
                self.pmix.collectives.groups.remove(&name);
                for arrived in arrived {
                    self.send_pmix(arrived.to, &Reply::Done(Status::SUCCESS), out);
                }
            }
        }
    }

    fn fail_collective(&mut self, number: u64, status: Status, out: &mut Vec<Effect>) {
        let Some(collective) = self.pmix.collectives.open.remove(&number) else { return };
        for arrived in collective.arrived {
            self.send_pmix(arrived.to, &Reply::Done(status), out);
        }
    }

    /// Fails the collectives that wait for a rank that has ended.
    pub(super) fn fail_collectives_of(&mut self, local: Local, out: &mut Vec<Effect>) {
        let waits = |collective: &Collective| {
            !collective.is_asked
                && collective.arrived.iter().all(|arrived| arrived.local != local)
                && self.members_here(&collective.members).contains(&local)
        };
        let open = &self.pmix.collectives.open;
        let failed: Vec<u64> = open.iter().filter(|(_, it)| waits(it)).map(|(number, _)| *number).collect();
        for number in failed {
            self.fail_collective(number, Status::LOST_CONNECTION, out);
        }
    }

    pub(super) fn settle_collectives(&mut self, now: Now, out: &mut Vec<Effect>) {
        // The head watches the time of what it was asked for.
        let late = |it: &Collective| !it.is_asked && it.until.is_some_and(|until| until <= now.mono);
        let open = &mut self.pmix.collectives.open;
        let failed: Vec<u64> = open.iter().filter(|(_, it)| late(it)).map(|(number, _)| *number).collect();
        for collective in open.values_mut().filter(|collective| collective.is_asked) {
            collective.until = None;
        }
        for number in failed {
            self.fail_collective(number, Status::TIMEOUT, out);
        }
    }

    /// Returns the collectives that wait for ranks of this node. Those that wait for others are known to the head.
    pub(super) fn blocked_collectives(&self) -> impl Iterator<Item = Blocked> + '_ {
        self.pmix.collectives.open.values().filter(|it| !it.is_asked).map(|it| {
            let is_missing = |local: &Local| it.arrived.iter().all(|arrived| arrived.local != *local);
            Blocked {
                collective: it.kind.name(),
                value: None,
                since: it.since,
                inside: u32::try_from(it.arrived.len()).unwrap_or(u32::MAX),
                missing: self.members_here(&it.members).into_iter().filter(is_missing).collect(),
            }
        })
    }

    /// Returns the members in a form that is the same for all of them: sorted, each once, and a whole job as one entry.
    fn members(&self, procs: Vec<Proc>) -> Vec<Proc> {
        let own = &self.launch.namespace;
        let mut members: Vec<Proc> = procs
            .into_iter()
            .map(|proc| match proc.rank {
                rank::LOCAL_PEERS | rank::LOCAL_NODE | rank::UNDEFINED => Proc { rank: rank::WILDCARD, ..proc },
                _ => proc,
            })
            .collect();
        if members.is_empty() {
            members.push(Proc::new(own, rank::WILDCARD));
        }
        members.sort_unstable();
        members.dedup();
        let whole: Vec<String> =
            members.iter().filter(|proc| proc.rank == rank::WILDCARD).map(|proc| proc.namespace.clone()).collect();
        members.retain(|proc| proc.rank == rank::WILDCARD || !whole.contains(&proc.namespace));
        members
    }

    /// Returns the members that are ranks of this node.
    fn members_here(&self, members: &[Proc]) -> Vec<Local> {
        let own = |proc: &&Proc| proc.namespace == self.launch.namespace;
        if members.iter().filter(own).any(|proc| proc.rank == rank::WILDCARD) {
            return (0..self.ranks.len()).collect();
        }
        let ranks: Vec<u32> = members.iter().filter(own).map(|proc| proc.rank).collect();
        let here = self.ranks.iter().enumerate().filter(|(_, rank)| ranks.binary_search(&rank.rank).is_ok());
        here.map(|(local, _)| local).collect()
    }

    /// Returns whether all members are ranks of this node.
    fn are_here(&self, members: &[Proc]) -> bool {
        members.iter().all(|proc| {
            proc.namespace == self.launch.namespace
                && match proc.rank {
                    rank::WILDCARD => self.map.nodes().len() == 1,
                    rank => self.map.node_of(rank) == Some(self.node),
                }
        })
    }
}

/// Returns what a member tells a group about itself.
fn group_infos(infos: &[Info]) -> Vec<Info> {
    infos
        .iter()
        .filter(|info| info.key == keys::GROUP_INFO)
        .flat_map(|info| info.value.as_infos().into_iter().flatten().cloned())
        .collect()
}

fn encode_told(told: &[(Proc, Vec<Info>)]) -> Bytes {
    let mut writer = Writer::new(BETWEEN);
    for (proc, infos) in told {
        writer.one(proc);
        writer.sized_list(infos);
    }
    writer.finish().into()
}

fn decode_told(data: &Bytes) -> Option<Vec<(Proc, Vec<Info>)>> {
    let mut reader = Reader::new(BETWEEN, data);
    let mut told = Vec::new();
    while !reader.is_empty() {
        told.push((reader.one().ok()?, reader.sized_list().ok()?));
    }
    Some(told)
}

/// Returns the members by job; they are sorted.
fn participants(members: &[Proc]) -> Vec<wire::Participants> {
    members
        .chunk_by(|a, b| a.namespace == b.namespace)
        .map(|of_job| {
            let ranks = of_job.iter().map(|proc| proc.rank).filter(|rank| *rank != rank::WILDCARD);
            let runs = ranges::of(ranks).into_iter().map(|(first, last)| wire::RankRun { first, last });
            wire::Participants { namespace: of_job[0].namespace.clone(), ranks: runs.collect() }
        })
        .collect()
}

fn other_namespaces(members: &[Proc], own: &str) -> Vec<String> {
    let mut names: Vec<String> =
        members.iter().map(|proc| proc.namespace.clone()).filter(|namespace| namespace != own).collect();
    names.dedup();
    names
}

/// Returns the number of a group: the same for all its members, and different for every founding. FNV-1a over what identifies it; 0 and
/// the highest bits are left free, because clients use them.
fn group_number(name: &str, members: &[Proc], count: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    add(name.as_bytes());
    add(&count.to_le_bytes());
    for member in members {
        add(member.namespace.as_bytes());
        add(&member.rank.to_le_bytes());
    }
    (hash >> 16).max(1)
}

/// Returns what tells the collectives of one kind and of these members from all others.
fn of_members(kind: &Kind, members: &[Proc]) -> u128 {
    let half = |number: u8| {
        let mut hasher = DefaultHasher::new();
        (number, kind, members).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

#[cfg(test)]
mod tests {
    use rsd_proto::pmix::Value;

    use super::*;

    #[test]
    fn what_nodes_tell_each_other_survives() {
        let infos = vec![Info::new("pmix.grp.lclid", Value::Size(7))];
        let told = vec![(Proc::new("a", 0), infos), (Proc::new("a", 1), Vec::new())];
        assert_eq!(decode_told(&encode_told(&told)), Some(told));
        assert_eq!(decode_told(&Bytes::from_static(b"\x02\xff")), None);
    }

    #[test]
    fn participants_are_runs_of_ranks_by_job() {
        let members = [("a", 1), ("a", 2), ("a", 4), ("b", rank::WILDCARD)].map(|(job, rank)| Proc::new(job, rank));
        let run = |first, last| wire::RankRun { first, last };
        assert_eq!(
            participants(&members),
            [
                wire::Participants { namespace: "a".into(), ranks: vec![run(1, 2), run(4, 4)] },
                wire::Participants { namespace: "b".into(), ranks: vec![] }
            ]
        );
        assert_eq!(other_namespaces(&members, "a"), ["b"]);
    }

    #[test]
    fn collectives_are_told_apart_by_their_kind_and_members() {
        let members = [Proc::new("a", 0), Proc::new("a", 1)];
        let known = of_members(&Kind::Fence, &members);
        assert_eq!(known, of_members(&Kind::Fence, &members));
        for (kind, members) in [
            (Kind::Fence, &members[..1]),
            (Kind::Connect, &members),
            (Kind::Found("g".into()), &members),
            (Kind::Dissolve("g".into()), &members),
        ] {
            assert_ne!(of_members(&kind, members), known);
        }
        assert_ne!(of_members(&Kind::Found("g".into()), &members), of_members(&Kind::Dissolve("g".into()), &members));
    }

    #[test]
    fn every_founding_of_a_group_has_a_number_of_its_own() {
        let members = [Proc::new("a", 0), Proc::new("a", 1)];
        let number = group_number("g", &members, 0);
        assert_eq!(number, group_number("g", &members, 0));
        assert!(number != group_number("g", &members, 1) && number != group_number("g", &members[..1], 0));
        assert!(number >> 48 == 0 && number != 0);
    }
}
