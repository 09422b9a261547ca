//! Communicators that lose members (ULFM): revoked ones, and what their survivors agree on.
//!
//! **Revocation** is told by notes: a member that revokes a communicator, or hears that it is revoked, tells the members at distances
//! of 1, 2, 4 … on both sides in the ring of those that it believes alive, and again when more of them die. As all agree in the end on
//! which members live, and the ring connects these, all are told. Cost: 2 log2 n notes per member.
//!
//! **Agreements** ([`super::agreement`]) of a communicator are numbered by the calls, which all members make in the same order, and run
//! one after the other. A shrink agrees on which members live and, with that, on a context number: all propose one, and if these differ,
//! all try the largest, and agree again on whether all have got it.
//!
//! Notes name a communicator by its context number alone. So a number that has been used like this is never used again by this
//! process: a late note cannot meet another communicator. The last result of each communicator is kept until the library is closed,
//! also if the communicator is freed, because others may still ask for it.
//!
//! A process that has finalized takes no part: here it counts as dead.

mod wire;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::agreement::{Agreement, Out, Place, Value};
use super::comm::Comms;
use super::context::{Contexts, LIMIT};
use super::group::Group;
use super::parties::{Born, Parties};
use super::partitioned;
use super::requests::RecoveryId;
use crate::abi::CommHandle;
use crate::engine::{Engine, Note, Peer, Transport};
use crate::error::{MpiError, MpiResult};
use wire::Letter;

/// The state of recoveries.
#[derive(Debug, Default)]
pub struct Recovery {
    /// By the first context of their communicator.
    circles: BTreeMap<u32, Circle>,
    revoked: BTreeMap<u32, Revoked>,
    /// Notes about communicators that are not made here yet.
    early: Vec<Note>,
    /// Communicators that were made, and peers that have departed, when these were last checked.
    births: u64,
    departures: u64,
    results: BTreeMap<RecoveryId, Recovered>,
    forgotten: BTreeSet<RecoveryId>,
    count: u64,
}

/// The result of a call.
#[derive(Debug)]
pub enum Recovered {
    /// What the members have agreed on, and the error if a failure is not acknowledged by all.
    Agreed(i32, MpiResult),
    /// A communicator of the survivors; `None` if it was promised, or if one side of an intercommunicator has no survivors.
    Shrunk(MpiResult<Option<Born>>),
}

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The bitwise AND of all members' flags.
    Agree(i32),
    /// A communicator of the survivors, which may have been promised to the user.
    Shrink(Option<CommHandle>),
}

/// A revoked communicator.
#[derive(Debug)]
struct Revoked {
    members: Arc<[Peer]>,
    me: Place,
    told: BTreeSet<Peer>,
}

/// The agreements of a communicator.
#[derive(Debug)]
struct Circle {
    parties: Parties,
    members: Arc<[Peer]>,
    me: Place,
    /// The number of the next call.
    next: u32,
    /// The calls that are not over; the first one is in progress.
    calls: VecDeque<Call>,
    /// The agreements in progress, and the last one that was decided.
    agreements: BTreeMap<Key, Agreement>,
    /// The last one that was decided.
    last: Option<Key>,
}

/// The number of a call, and the round: a shrink may need several agreements.
type Key = (u32, u32);

#[derive(Debug)]
struct Call {
    id: RecoveryId,
    key: Key,
    ask: Ask,
    acknowledged: BTreeSet<Place>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Calls before it are in progress.
    Waiting,
    /// The flags are being agreed on.
    Flags,
    /// This number was proposed.
    Proposed(u32),
    /// This number is being tried; whether it is reserved here.
    Tried(u32, bool),
}

impl Recovery {
    /// Whether there is something to do since the last call of [`Recovery::heed`].
    #[inline]
    pub fn has_work<T: Transport>(&self, engine: &Engine<T>, comms: &Comms) -> bool {
        engine.has_news() || (!self.early.is_empty() && self.births != comms.births())
    }

    /// Handles notes that have arrived and peers that have departed.
    #[cold]
    pub fn heed<T: Transport>(&mut self, engine: &mut Engine<T>, comms: &mut Comms) {
        self.births = comms.births();
        let mut notes = std::mem::take(&mut self.early);
        notes.append(&mut engine.take_notes());
        for note in notes {
            self.on_note(note, engine, comms);
        }
        if self.departures != engine.departures() {
            self.departures = engine.departures();
            self.revoked.iter_mut().for_each(|(context, revoked)| revoked.tell(*context, engine));
            let contexts: Vec<u32> = self.circles.keys().copied().collect();
            for context in contexts {
                if let Some(circle) = self.circles.get_mut(&context) {
                    circle.review(context, engine);
                }
                self.settle(context, engine, comms);
            }
        }
    }

    /// Revokes a communicator here, and tells the other members.
    pub fn revoke<T: Transport>(&mut self, context: u32, engine: &mut Engine<T>, comms: &mut Comms) {
        let Some(parties) = comms.parties_of(context) else { return };
        if self.revoked.contains_key(&context) {
            return;
        }
        let mut revoked =
            Revoked { members: Arc::clone(parties.all()), me: parties.place(), told: BTreeSet::default() };
        comms.hold(context);
        comms.mark_revoked(context);
        for context in [context, context + 1, partitioned::context_of(context + 1)] {
            engine.revoke(context);
        }
        revoked.tell(context, engine);
        self.revoked.insert(context, revoked);
    }

    /// Starts a call of all members; `acknowledged` are the members whose failure this process has acknowledged.
    pub fn begin<T: Transport>(
        &mut self,
        ask: Ask,
        context: u32,
        acknowledged: &[Peer],
        engine: &mut Engine<T>,
        comms: &mut Comms,
    ) -> MpiResult<RecoveryId> {
        let id = RecoveryId(self.count);
        let Some(circle) = self.circle(context, comms) else {
            return Err(MpiError::comm("the communicator is not made yet"));
        };
        let places = (0..).zip(circle.members.iter());
        let acknowledged =
            places.filter(|(_, peer)| acknowledged.contains(peer)).map(|(place, _)| place as Place).collect();
        let key = (circle.next, 0);
        circle.next = circle.next.wrapping_add(1);
        circle.calls.push_back(Call { id, key, ask, acknowledged, stage: Stage::Waiting });
        self.count += 1;
        self.settle(context, engine, comms);
        Ok(id)
    }

    /// Whether a call is over.
    pub fn is_over(&self, id: RecoveryId) -> bool {
        self.results.contains_key(&id)
    }

    /// The result of a call that is over.
    pub fn take(&mut self, id: RecoveryId) -> Option<Recovered> {
        self.results.remove(&id)
    }

    /// Declares that the result of a call will not be asked for.
    pub fn forget(&mut self, id: RecoveryId) {
        if self.results.remove(&id).is_none() {
            self.forgotten.insert(id);
        }
    }

    /// The peers that calls in progress wait for.
    pub fn awaited(&self) -> Vec<Peer> {
        let in_progress = self.circles.values().filter_map(|circle| {
            let agreement = circle.agreements.get(&circle.calls.front()?.key)?;
            Some(agreement.awaited().into_iter().map(|place| circle.members[place as usize]))
        });
        in_progress.flatten().collect()
    }

    /// The agreements of a communicator; `None` if it is not made yet.
    fn circle(&mut self, context: u32, comms: &mut Comms) -> Option<&mut Circle> {
        if let Entry::Vacant(place) = self.circles.entry(context) {
            let parties = comms.parties_of(context)?.clone();
            let (members, me) = (Arc::clone(parties.all()), parties.place());
            let (next, calls, agreements, last) = Default::default();
            comms.hold(context);
            place.insert(Circle { parties, members, me, next, calls, agreements, last });
        }
        self.circles.get_mut(&context)
    }

    fn on_note<T: Transport>(&mut self, note: Note, engine: &mut Engine<T>, comms: &mut Comms) {
        let Note { from, context, number, ref bytes } = note;
        let of_circle = self.circles.get(&context).map(|circle| &circle.members);
        let known = of_circle.or_else(|| Some(&self.revoked.get(&context)?.members));
        let Some(members) = known.or_else(|| comms.parties_of(context).map(Parties::all)) else {
            self.early.push(note);
            return;
        };
        let size = members.len() as u32;
        let Some(place) = members.iter().position(|peer| *peer == from) else { return };
        match Letter::decode(bytes, size) {
            Some(Letter::Revoke) => self.revoke(context, engine, comms),
            Some(Letter::Said { round, said }) => {
                let Some(circle) = self.circle(context, comms) else { return };
                let key = (number, round);
                if circle.last.is_none_or(|last| last <= key) {
                    let out = circle.agreement(key, engine).on_said(place as Place, said);
                    circle.send(context, key, out, engine);
                    self.settle(context, engine, comms);
                }
            }
            // Not of this library.
            None => {}
        }
    }

    /// Continues the calls on a communicator.
    fn settle<T: Transport>(&mut self, context: u32, engine: &mut Engine<T>, comms: &mut Comms) {
        while let Some(circle) = self.circles.get_mut(&context)
            && let Some(result) = circle.advance(context, engine, comms)
        {
            let Some(call) = circle.calls.pop_front() else { return };
            let result = match (call.ask, result) {
                (Ask::Shrink(Some(promised)), Recovered::Shrunk(born)) => {
                    Recovered::Shrunk(comms.keep_promise(promised, born).map(|()| None))
                }
                (Ask::Shrink(None) | Ask::Agree(_), result)
                | (Ask::Shrink(Some(_)), result @ Recovered::Agreed(..)) => result,
            };
            if !self.forgotten.remove(&call.id) {
                self.results.insert(call.id, result);
            }
        }
    }
}

impl Revoked {
    /// Tells the next members that it believes alive and has not told yet.
    fn tell<T: Transport>(&mut self, context: u32, engine: &mut Engine<T>) {
        let me = self.members[self.me as usize];
        let is_there = |peer: &Peer| *peer == me || !engine.has_gone(*peer);
        let ring: Vec<Peer> = self.members.iter().copied().filter(is_there).collect();
        let Some(at) = ring.iter().position(|peer| *peer == me) else { return };
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
        for distance in distances.take_while(|distance| *distance < ring.len()) {
            for peer in [ring[(at + distance) % ring.len()], ring[(at + ring.len() - distance) % ring.len()]] {
                if peer != me && self.told.insert(peer) {
                    engine.note(peer, context, 0, Letter::Revoke.encode(ring.len() as u32));
                }
            }
        }
    }
}

impl Circle {
    fn agreement<T: Transport>(&mut self, key: Key, engine: &Engine<T>) -> &mut Agreement {
        let (members, me) = (&self.members, self.me);
        self.agreements.entry(key).or_insert_with(|| {
            let places = (0..).zip(members.iter());
            let gone = places.filter(|(place, peer)| *place != me && engine.has_gone(**peer));
            Agreement::new(me, members.len() as u32, gone.map(|(place, _)| place).collect())
        })
    }

    fn send<T: Transport>(&self, context: u32, key: Key, out: Out, engine: &mut Engine<T>) {
        for (place, said) in out {
            let bytes = Letter::Said { round: key.1, said }.encode(self.members.len() as u32);
            engine.note(self.members[place as usize], context, key.0, bytes);
        }
    }

    /// Takes in which members have departed.
    fn review<T: Transport>(&mut self, context: u32, engine: &mut Engine<T>) {
        let places = (0..).zip(self.members.iter());
        let gone: Vec<Place> = places
            .filter(|(place, peer)| *place != self.me && engine.has_gone(**peer))
            .map(|(place, _)| place)
            .collect();
        let mut said = Vec::new();
        for (key, agreement) in &mut self.agreements {
            for place in &gone {
                said.push((*key, agreement.on_death(*place)));
            }
        }
        said.into_iter().for_each(|(key, out)| self.send(context, key, out, engine));
    }

    /// Continues the first call; returns its result if it is over.
    fn advance<T: Transport>(&mut self, context: u32, engine: &mut Engine<T>, comms: &mut Comms) -> Option<Recovered> {
        loop {
            let call = self.calls.front()?;
            let key = call.key;
            if call.stage == Stage::Waiting {
                let stage = match call.ask {
                    Ask::Agree(_) => Stage::Flags,
                    Ask::Shrink(_) => Stage::Proposed(comms.contexts.propose(0)),
                };
                self.start(context, key, stage, engine);
            }
            let value = self.agreements.get(&key)?.result()?.clone();
            self.last = Some(key);
            self.agreements.retain(|other, _| *other >= key);
            self.believe(&value, engine);
            let call = self.calls.front()?;
            match self.after(call, &value, engine, &mut comms.contexts) {
                Ok(result) => return Some(result),
                Err(stage) => self.start(context, (key.0, key.1 + 1), stage, engine),
            }
        }
    }

    /// Passes this process's value for the next agreement of the first call.
    fn start<T: Transport>(&mut self, context: u32, key: Key, stage: Stage, engine: &mut Engine<T>) {
        let Some(call) = self.calls.front_mut() else { return };
        (call.key, call.stage) = (key, stage);
        let (flag, number) = match (stage, call.ask) {
            (Stage::Proposed(number), _) => (!0, number),
            (Stage::Tried(number, got), _) => (if got { !0 } else { 0 }, number),
            (Stage::Waiting | Stage::Flags, Ask::Agree(flag)) => (flag, 0),
            (Stage::Waiting | Stage::Flags, Ask::Shrink(_)) => (!0, 0),
        };
        let flags = if self.me < self.parties.size_of_first() { [flag, !0] } else { [!0, flag] };
        let (acknowledged, failed) = (call.acknowledged.clone(), BTreeSet::new());
        let value = Value { flags, largest: number, smallest: number, failed, acknowledged };
        let out = self.agreement(key, engine).start(value);
        self.send(context, key, out, engine);
    }

    /// Takes in the deaths that others know of.
    fn believe<T: Transport>(&self, value: &Value, engine: &mut Engine<T>) {
        for peer in value.failed.iter().map(|place| self.members[*place as usize]) {
            if !engine.has_gone(peer) {
                engine.declare_lost(peer, "other members of a communicator have reported its death");
            }
        }
    }

    /// What follows from a value: the call's result, or the next agreement.
    fn after<T: Transport>(
        &self,
        call: &Call,
        value: &Value,
        engine: &mut Engine<T>,
        contexts: &mut Contexts,
    ) -> Result<Recovered, Stage> {
        let is_second = self.me >= self.parties.size_of_first();
        let all = value.flags[0] & value.flags[1];
        match call.stage {
            Stage::Waiting | Stage::Flags => {
                // In an intercommunicator, each group gets what the other one has passed.
                let is_inter = self.parties.remote.is_some();
                let flag = value.flags[usize::from(is_second != is_inter)];
                let flag = if is_inter { flag } else { all };
                Ok(Recovered::Agreed(flag, if value.is_marred() { Err(self.marred(value)) } else { Ok(()) }))
            }
            Stage::Proposed(mine) if value.largest >= LIMIT => {
                contexts.release(mine);
                Ok(Recovered::Shrunk(Err(MpiError::no_mem("too many communicators (2^30)"))))
            }
            Stage::Proposed(mine) if value.largest == value.smallest => {
                Ok(Recovered::Shrunk(self.survivors(mine, value, engine, contexts)))
            }
            Stage::Proposed(mine) => {
                let got = mine == value.largest || {
                    contexts.release(mine);
                    contexts.take(value.largest)
                };
                Err(Stage::Tried(value.largest, got))
            }
            Stage::Tried(number, true) if all == !0 => {
                Ok(Recovered::Shrunk(self.survivors(number, value, engine, contexts)))
            }
            Stage::Tried(number, got) => {
                if got {
                    contexts.release(number);
                }
                // Another call proposes other numbers at the same time: the gap grows, so both will find one.
                let gap = (call.key.1 + self.members.len() as u32) % (1 << (call.key.1 / 2).min(16));
                Err(Stage::Proposed(contexts.propose((number + 1 + gap).min(LIMIT))))
            }
        }
    }

    fn marred(&self, value: &Value) -> MpiError {
        let missing = value.failed.difference(&value.acknowledged).map(|place| place.to_string());
        let missing: Vec<String> = missing.collect();
        MpiError::proc_aborted(format!("members have died, and not all have acknowledged that: {}", missing.join(", ")))
    }

    /// The communicator of the members that are not named as failed.
    fn survivors<T: Transport>(
        &self,
        number: u32,
        value: &Value,
        engine: &mut Engine<T>,
        contexts: &mut Contexts,
    ) -> MpiResult<Option<Born>> {
        if value.failed.contains(&self.me) {
            contexts.release(number);
            return Err(MpiError::proc_aborted("the other members have declared this process dead"));
        }
        let first = self.parties.size_of_first();
        let me = self.members[self.me as usize];
        let group = |places: std::ops::Range<u32>| {
            let living = places.filter(|place| !value.failed.contains(place));
            Arc::new(Group::new(living.map(|place| self.members[place as usize]).collect::<Vec<_>>(), me))
        };
        let (one, two) = (group(0..first), group(first..self.members.len() as u32));
        let parties = match &self.parties.remote {
            None => Parties::from(one),
            Some(_) if one.size() == 0 || two.size() == 0 => {
                contexts.release(number);
                return Ok(None);
            }
            Some(remote) if remote.local_first => Parties::both(one, two, true),
            Some(_) => Parties::both(two, one, false),
        };
        let context = Contexts::context_of(number);
        parties.open(engine, context);
        Ok(Some(Born { context, parties }))
    }
}

#[cfg(test)]
mod tests;
