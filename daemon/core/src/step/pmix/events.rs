//! What clients are told without having asked at that moment: that a rank was lost, and what other processes report.
//!
//! A client that asks for events later is told of the latest ones then: nothing orders its request and the event.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use rsd_proto::pmix::{Codec, Event, Info, Proc, Range, Reader, Reply, Status, Value, Writer, keys, rank};
use rsd_proto::v1::{self as wire, name_call};

use super::pending::Asked;
use super::{Awaited, Client, Effect, Local, Step, To};
use crate::NodeId;

/// The codec of events between steps.
const BETWEEN: Codec = Codec::V41;

/// The events that a client has asked for.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// How many times it has asked for all.
    all: u32,
    codes: Vec<i32>,
    /// The kept events of which it was told.
    told: BTreeSet<u64>,
}

/// The most codes of a client.
const CODES_MAX: usize = 4096;
/// How many events are kept for clients that ask for them later.
const KEPT_MAX: usize = 128;

/// The latest events.
#[derive(Debug, Default)]
pub(super) struct Events {
    kept: VecDeque<Kept>,
    /// The number of the last one.
    last: u64,
    /// The ranks here whose loss was told.
    lost: BTreeSet<Local>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    event: Event,
    /// For whom; None: all processes of this node.
    to: Option<Vec<Proc>>,
    /// Whether only clients that have asked for just this event are told.
    named: bool,
    /// The client that has reported it.
    from: Option<Client>,
}

impl Wanted {
    pub(super) fn add(&mut self, codes: &[i32]) {
        if codes.is_empty() {
            self.all += 1;
        }
        let room = CODES_MAX.saturating_sub(self.codes.len());
        self.codes.extend(codes.iter().take(room));
    }

    pub(super) fn remove(&mut self, codes: &[i32]) {
        if codes.is_empty() {
            self.all = self.all.saturating_sub(1);
        }
        for code in codes {
            if let Some(at) = self.codes.iter().position(|wanted| wanted == code) {
                self.codes.swap_remove(at);
            }
        }
    }

    fn has(&self, status: Status) -> bool {
        self.all > 0 || self.has_named(status)
    }

    /// Returns whether the client has asked for just this event.
    fn has_named(&self, status: Status) -> bool {
        self.codes.contains(&status.0)
    }
}

impl Step {
    /// Handles an event that a client reports.
    pub(super) fn on_pmix_notify(
        &mut self,
        local: Local,
        to: To,
        status: i32,
        range: u8,
        infos: Vec<Info>,
        out: &mut Vec<Effect>,
    ) {
        self.send_pmix(to, &Reply::Done(Status::SUCCESS), out);
        let event = Event { status: Status(status), source: self.proc_of(local), infos };
        let own = self.launch.namespace.clone();
        let custom = Info::find(&event.infos, keys::EVENT_CUSTOM_RANGE).and_then(|value| value.as_procs());
        let receivers = match (Range::of(range), custom) {
            (Range::Process, _) => return,
            // What is meant for the resource manager ends here.
            (Range::Manager, _) => return,
            (Range::Local, _) => return self.deliver(&event, None, Some(to.client), out),
            (Range::Custom, Some(procs)) => procs,
            (Range::Custom | Range::Undefined | Range::Namespace, _) => vec![Proc::new(&own, rank::WILDCARD)],
            (Range::Session | Range::Global, _) => Vec::new(),
        };
        self.deliver(&event, Some(&receivers), Some(to.client), out);
        let only_here = self.map.nodes().len() == 1 && !receivers.is_empty();
        if only_here && receivers.iter().all(|proc| proc.namespace == own) {
            return;
        }
        let mut writer = Writer::new(BETWEEN);
        writer.one(&event.source);
        writer.sized_list(&event.infos);
        let mut sorted = receivers;
        sorted.sort_unstable();
        let participants = sorted.chunk_by(|a, b| a.namespace == b.namespace).map(|of_job| {
            let whole = of_job.iter().any(|proc| proc.rank == rank::WILDCARD);
            let ranks =
                of_job.iter().filter(|_| !whole).map(|proc| wire::RankRun { first: proc.rank, last: proc.rank });
            wire::Participants { namespace: of_job[0].namespace.clone(), ranks: ranks.collect() }
        });
        let event = wire::Event {
            namespace: own,
            rank: self.ranks[local].rank,
            status,
            to: participants.collect(),
            data: writer.finish().into(),
        };
        let ticket = self.pmix.ticket(Awaited::Head(Asked::Event));
        self.ask_head_for(ticket, name_call::Op::Event(event), out);
    }

    /// Handles an event that came through the head. The step of its source has delivered it to its own clients already.
    pub(in super::super) fn on_pmix_event(&mut self, event: wire::Event, out: &mut Vec<Effect>) {
        let is_ours = event.namespace == self.launch.namespace && self.ranks.iter().any(|rank| rank.rank == event.rank);
        let Some((source, infos)) = decode(&event.data).filter(|_| !is_ours) else { return };
        let mine = event.to.iter().filter(|to| to.namespace == self.launch.namespace);
        let receivers: Vec<Proc> = mine
            .flat_map(|to| match to.ranks.is_empty() {
                true => vec![Proc::new(&to.namespace, rank::WILDCARD)],
                false => {
                    let here = self.ranks.iter().map(|rank| rank.rank);
                    let named = here.filter(|rank| to.ranks.iter().any(|run| (run.first..=run.last).contains(rank)));
                    named.map(|rank| Proc::new(&to.namespace, rank)).collect()
                }
            })
            .collect();
        let all = event.to.is_empty();
        let event = Event { status: Status(event.status), source, infos };
        self.deliver(&event, (!all).then_some(&receivers[..]), None, out);
    }

    /// Tells the clients of this node that a rank has ended without finalize.
    pub(in super::super) fn tell_lost(&mut self, local: Local, out: &mut Vec<Effect>) {
        // Members that are cut off because the epoch has ended are not lost.
        let is_cut_off = self.has_members() && self.ending.is_killing();
        if !self.ranks[local].pmi.is_active() || is_cut_off || !self.pmix.events.lost.insert(local) {
            return;
        }
        let source = self.proc_of(local);
        self.tell_lost_proc(source.clone(), out);
        // Launched ranks end with this one, or hear of it from the head. Members go on until their epoch has ended.
        if self.has_members() && self.map.nodes().len() > 1 {
            let mut writer = Writer::new(BETWEEN);
            writer.one(&source);
            writer.sized_list(&[Info::new(keys::EVENT_AFFECTED_PROC, Value::Proc(source.clone()))]);
            let to = wire::Participants { namespace: source.namespace.clone(), ranks: Vec::new() };
            let event = wire::Event {
                namespace: source.namespace,
                rank: source.rank,
                status: Status::LOST_CONNECTION.0,
                to: vec![to],
                data: writer.finish().into(),
            };
            let ticket = self.pmix.ticket(Awaited::Head(Asked::Event));
            self.ask_head_for(ticket, name_call::Op::Event(event), out);
        }
    }

    /// Tells the clients of this node that the ranks of another node are lost, in a job that continues without it.
    pub(in super::super) fn tell_lost_node(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        let lost: Vec<u32> = self.map.ranks_on(node).filter(|_| !self.pmix.clients.is_empty()).collect();
        for rank in lost {
            self.tell_lost_proc(Proc::new(&self.launch.namespace, rank), out);
        }
    }

    /// Tells the clients of this node that a rank of another node is lost, in a job that continues without it.
    pub(in super::super) fn tell_lost_peer(&mut self, rank: u32, out: &mut Vec<Effect>) {
        if !self.pmix.clients.is_empty() {
            self.tell_lost_proc(Proc::new(&self.launch.namespace, rank), out);
        }
    }

    fn tell_lost_proc(&mut self, source: Proc, out: &mut Vec<Effect>) {
        let infos = vec![Info::new(keys::EVENT_AFFECTED_PROC, Value::Proc(source.clone()))];
        let lost = Event { status: Status::LOST_CONNECTION, source: source.clone(), infos: infos.clone() };
        self.deliver(&lost, None, None, out);
        // What fault-tolerant MPI asks for by name. It takes the other for the loss of its server, and aborts.
        let aborted = Event { status: Status::PROC_ABORTED, source, infos };
        self.deliver_named(&aborted, out);
    }

    /// Tells the clients that have asked for an event, of these processes; None: all of this node. Keeps it for later ones.
    fn deliver(&mut self, event: &Event, to: Option<&[Proc]>, from: Option<Client>, out: &mut Vec<Effect>) {
        self.keep_event(event, to, from, false, out);
    }

    /// Tells the clients that have asked for just this event.
    fn deliver_named(&mut self, event: &Event, out: &mut Vec<Effect>) {
        self.keep_event(event, None, None, true, out);
    }

    fn keep_event(
        &mut self,
        event: &Event,
        to: Option<&[Proc]>,
        from: Option<Client>,
        named: bool,
        out: &mut Vec<Effect>,
    ) {
        let events = &mut self.pmix.events;
        events.last += 1;
        let (number, event, to) = (events.last, event.clone(), to.map(<[Proc]>::to_vec));
        let is_kept = !Info::is_set(&event.infos, keys::EVENT_DO_NOT_CACHE);
        events.kept.push_back(Kept { number, event, to, named, from });
        for client in self.pmix.clients.keys().copied().collect::<Vec<_>>() {
            self.tell_events(client, out);
        }
        let events = &mut self.pmix.events;
        if !is_kept {
            events.kept.pop_back();
        }
        if events.kept.len() > KEPT_MAX {
            events.kept.pop_front();
        }
    }

    /// Tells a client of the kept events that it has asked for and does not know.
    pub(super) fn tell_events(&mut self, client: Client, out: &mut Vec<Effect>) {
        let Some(peer) = self.pmix.clients.get_mut(&client) else { return };
        let oldest = self.pmix.events.kept.front().map_or(0, |kept| kept.number);
        peer.wanted.told = peer.wanted.told.split_off(&oldest);
        let (namespace, rank) = (&self.launch.namespace, self.ranks[peer.local].rank);
        let is_it = |proc: &Proc| proc.namespace == *namespace && [rank::WILDCARD, rank].contains(&proc.rank);
        for kept in &self.pmix.events.kept {
            let is_meant = kept.to.as_ref().is_none_or(|to| to.is_empty() || to.iter().any(is_it));
            let is_wanted = match (kept.named, kept.event.status) {
                (true, status) => peer.wanted.has_named(status),
                (false, Status::LOST_CONNECTION) if peer.wanted.has_named(Status::PROC_ABORTED) => false,
                (false, status) => peer.wanted.has(status),
            };
            if is_meant && is_wanted && kept.from != Some(client) && peer.wanted.told.insert(kept.number) {
                out.push(Effect::PmixSend(client, message(&kept.event, peer.codec)));
            }
        }
    }
}

fn message(event: &Event, codec: Codec) -> Bytes {
    rsd_proto::pmix::Message { tag: 0, payload: event.encode(codec).into() }.encode().into()
}

fn decode(data: &Bytes) -> Option<(Proc, Vec<Info>)> {
    let mut reader = Reader::new(BETWEEN, data);
    Some((reader.one().ok()?, reader.sized_list().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_events_that_it_has_asked_for() {
        let mut wanted = Wanted::default();
        assert!(!wanted.has(Status(-61)));
        wanted.add(&[-7]);
        assert!(wanted.has(Status(-7)) && !wanted.has(Status(-61)));
        wanted.add(&[]);
        assert!(wanted.has(Status(-61)) && !wanted.has_named(Status(-61)));
        wanted.remove(&[]);
        wanted.remove(&[-7]);
        assert!(!wanted.has(Status(-7)));
    }
}
