//! Runs over the engine: the messages of a communicator's collectives, and the non-blocking and persistent operations that
//! are under way in this process.

use std::sync::Arc;

use super::choice::Call;
use super::run::{Courier, Progress, Run, Sent, UserCall};
use super::schedule::{Here, Schedule};
use crate::engine::{Engine, Envelope, Mode, Outcome, Peer, RequestId, Source, Started, TagMatch, Transport};
use crate::error::MpiResult;
use crate::memory::Buffer;

/// Among whom an operation runs.
#[derive(Debug, Clone)]
pub struct Members {
    /// The context of the communicator's collectives.
    pub context: u32,
    /// Who this process is.
    pub here: Here,
    /// `peers[rank]`.
    pub peers: Arc<[Peer]>,
}

/// Carries messages of a communicator's collectives over the engine.
pub struct Messages<'a, T> {
    engine: &'a mut Engine<T>,
    members: &'a Members,
}

impl<'a, T: Transport> Messages<'a, T> {
    /// Among these members.
    #[inline]
    pub fn new(engine: &'a mut Engine<T>, members: &'a Members) -> Self {
        Self { engine, members }
    }
}

impl<T: Transport> Courier for Messages<'_, T> {
    type Id = RequestId;

    #[inline]
    fn send(&mut self, to: u32, tag: i32, buffer: Buffer) -> Sent<RequestId> {
        let envelope = Envelope { context: self.members.context, rank: self.members.here.rank, tag };
        sent(self.engine.send(envelope, self.members.peers[to as usize], Mode::Standard, buffer))
    }

    #[inline]
    fn recv(&mut self, from: u32, tag: i32, buffer: Buffer) -> Sent<RequestId> {
        sent(self.engine.recv(self.members.context, Source::Rank(from), TagMatch::Value(tag), buffer))
    }

    #[cold]
    fn take_word(&mut self, from: u32, tag: i32) -> bool {
        let (context, from, tag) = (self.members.context, Source::Rank(from), TagMatch::Value(tag));
        let is_there = matches!(self.engine.probe(context, from, tag), Ok(Some(_)));
        // Then it is over at once.
        is_there && matches!(self.engine.recv(context, from, tag, Buffer::EMPTY), Started::Over(_))
    }

    #[inline]
    fn take(&mut self, id: RequestId) -> Option<MpiResult<u64>> {
        self.engine.take(id).map(bytes)
    }
}

#[inline]
fn sent(started: Started) -> Sent<RequestId> {
    match started {
        Started::Over(outcome) => Sent::Over(bytes(outcome)),
        Started::Pending(id) => Sent::Pending(id),
    }
}

#[inline]
fn bytes(outcome: Outcome) -> MpiResult<u64> {
    outcome.error.map_or(Ok(outcome.bytes), |error| Err(*error))
}

/// One of the operations under way, or a persistent one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CollectiveId {
    slot: u32,
    generation: u32,
}

/// Those that were started, or can be.
#[derive(Debug, Default)]
pub struct Collectives {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots of those under way.
    active: Vec<u32>,
    /// User functions to be called, and for which slots.
    calls: Vec<(u32, UserCall)>,
    spare: Vec<Run<RequestId>>,
    schedules: Schedules,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    run: Run<RequestId>,
    members: Members,
    stage: Stage,
    persistent: bool,
    /// Nobody will ask for the outcome.
    forgotten: bool,
}

#[derive(Debug)]
enum Stage {
    /// A persistent one that is not started.
    Idle,
    /// It waits for messages.
    Active,
    /// It waits for a function of the user's.
    Calling,
    Over(MpiResult),
}

impl Collectives {
    /// A run that is free to be prepared; to be given back by [`Collectives::keep`].
    pub fn spare(&mut self) -> Run<RequestId> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back a run that is over.
    pub fn keep(&mut self, mut run: Run<RequestId>) {
        run.clear();
        if self.spare.len() < 4 {
            self.spare.push(run);
        }
    }

    /// The schedule of a call, made at most once if it is made often.
    pub fn schedule(&mut self, call: Call, here: Here) -> Arc<Schedule> {
        self.schedules.get(call, here)
    }

    /// Adds an operation that is ready to begin; [`Collectives::start`] starts it.
    pub fn add(&mut self, run: Run<RequestId>, members: Members, persistent: bool) -> CollectiveId {
        let entry = Entry { run, members, stage: Stage::Idle, persistent, forgotten: false };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.entry = Some(entry);
        CollectiveId { slot, generation: place.generation }
    }

    /// Starts an operation that is not under way.
    pub fn start<T: Transport>(&mut self, id: CollectiveId, engine: &mut Engine<T>) {
        let Some(entry) = self.entry(id).filter(|entry| matches!(entry.stage, Stage::Idle)) else { return };
        entry.run.restart();
        entry.stage = Stage::Active;
        self.active.push(id.slot);
        self.advance_one(self.active.len() - 1, engine);
    }

    /// Gets on with all that are under way; whether anything came to its end, or to a function of the user's.
    #[inline]
    pub fn advance<T: Transport>(&mut self, engine: &mut Engine<T>) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.active.len() {
            if self.advance_one(index, engine) {
                moved = true;
            } else {
                index += 1;
            }
        }
        moved
    }

    /// Whether it is active no more: another one has taken its index.
    fn advance_one<T: Transport>(&mut self, index: usize, engine: &mut Engine<T>) -> bool {
        let slot = self.active[index];
        let Some(entry) = &mut self.slots[slot as usize].entry else { return false };
        match entry.run.advance(&mut Messages::new(engine, &entry.members)) {
            Progress::Pending => return false,
            Progress::Call(call) => {
                entry.stage = Stage::Calling;
                self.calls.push((slot, call));
            }
            Progress::Done(result) => {
                entry.stage = Stage::Over(result);
                if entry.forgotten {
                    self.remove(slot);
                }
            }
        }
        self.active.swap_remove(index);
        true
    }

    /// A function of the user's that an operation waits for. It is to be called with nothing locked, and then
    /// [`Collectives::called`].
    #[inline]
    pub fn next_call(&mut self) -> Option<(CollectiveId, UserCall)> {
        if self.calls.is_empty() {
            return None;
        }
        let (slot, call) = self.calls.remove(0);
        Some((CollectiveId { slot, generation: self.slots[slot as usize].generation }, call))
    }

    /// The function has returned: the operation goes on.
    pub fn called(&mut self, id: CollectiveId) {
        if let Some(entry) = self.slots[id.slot as usize].entry.as_mut().filter(|it| matches!(it.stage, Stage::Calling))
        {
            entry.stage = Stage::Active;
            self.active.push(id.slot);
        }
    }

    /// The outcome of an operation that is over, which is then forgotten unless it is persistent.
    pub fn take(&mut self, id: CollectiveId) -> Option<MpiResult> {
        let entry = self.entry(id).filter(|entry| matches!(entry.stage, Stage::Over(_)))?;
        let Stage::Over(result) = std::mem::replace(&mut entry.stage, Stage::Idle) else { return None };
        if !entry.persistent {
            self.remove(id.slot);
        }
        Some(result)
    }

    /// Whether [`Collectives::take`] would give something.
    pub fn is_over(&self, id: CollectiveId) -> bool {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.entry.as_ref()).is_some_and(|entry| matches!(entry.stage, Stage::Over(_)))
    }

    /// The operation goes on if it is under way, but its outcome will not be asked for.
    pub fn forget(&mut self, id: CollectiveId) {
        let Some(entry) = self.entry(id) else { return };
        match entry.stage {
            Stage::Idle | Stage::Over(_) => self.remove(id.slot),
            Stage::Active | Stage::Calling => entry.forgotten = true,
        }
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.active.len() + self.calls.len()
    }

    fn entry(&mut self, id: CollectiveId) -> Option<&mut Entry> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?.entry.as_mut()
    }

    fn remove(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        let entry = place.entry.take();
        self.free.push(slot);
        if let Some(entry) = entry {
            self.keep(entry.run);
        }
    }
}

/// The schedules of the last calls: most programs make few different ones, many times.
#[derive(Debug, Default)]
struct Schedules {
    recent: Vec<(Here, Call, Arc<Schedule>)>,
    next: usize,
}

/// So many calls are remembered, with schedules of up to so many steps.
const RECENT: usize = 16;
const STEPS: usize = 1024;

impl Schedules {
    fn get(&mut self, call: Call, here: Here) -> Arc<Schedule> {
        if let Some((_, _, schedule)) = self.recent.iter().find(|it| it.1 == call && it.0 == here) {
            return Arc::clone(schedule);
        }
        let schedule = Arc::new(call.schedule(here));
        if schedule.steps().len() <= STEPS {
            let entry = (here, call, Arc::clone(&schedule));
            if self.recent.len() < RECENT {
                self.recent.push(entry);
            } else {
                self.recent[self.next] = entry;
                self.next = (self.next + 1) % RECENT;
            }
        }
        schedule
    }
}
