//! Runs over the engine: the messages of a communicator's collectives, and this process's non-blocking and persistent
//! operations in progress.

use std::sync::Arc;

use super::choice::Call;
use super::layout::Layout;
use super::run::{Courier, Progress, Run, Sent, UserCall};
use super::schedule::{Here, Schedule};
use crate::engine::{Engine, Envelope, Mode, Outcome, Peer, RequestId, Source, Started, TagMatch, Transport};
use crate::error::MpiResult;
use crate::memory::Buffer;

/// The processes of an operation.
#[derive(Debug, Clone)]
pub struct Members {
    /// The context of the communicator's collectives.
    pub context: u32,
    /// This process's rank, and the number of ranks.
    pub here: Here,
    /// `peers[rank]`.
    pub peers: Arc<[Peer]>,
}

/// Carries the messages of a communicator's collectives over the engine.
pub struct Messages<'a, T> {
    engine: &'a mut Engine<T>,
    members: &'a Members,
}

impl<'a, T: Transport> Messages<'a, T> {
    /// A carrier among these members.
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
        sent(self.engine.start_send(envelope, self.members.peers[to as usize], Mode::Standard, buffer))
    }

    #[inline]
    fn recv(&mut self, from: u32, tag: i32, buffer: Buffer) -> Sent<RequestId> {
        sent(self.engine.recv(self.members.context, Source::Rank(from), TagMatch::Value(tag), buffer))
    }

    #[cold]
    fn take_word(&mut self, from: u32, tag: i32) -> bool {
        let (context, from, tag) = (self.members.context, Source::Rank(from), TagMatch::Value(tag));
        let is_there = matches!(self.engine.probe(context, from, tag), Ok(Some(_)));
        // The message has arrived, so the receive completes at once.
        is_there && matches!(self.engine.recv(context, from, tag, Buffer::EMPTY), Started::Over(_))
    }

    fn is_revoked(&self) -> bool {
        self.engine.is_revoked(self.members.context)
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

/// Identifies an operation in progress, or a persistent one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CollectiveId {
    slot: u32,
    generation: u32,
}

/// The operations that are in progress, and the persistent ones.
#[derive(Debug, Default)]
pub struct Collectives {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots of the operations in progress.
    active: Vec<u32>,
    /// User functions to call, and their slots.
    calls: Vec<(u32, UserCall)>,
    #[expect(clippy::vec_box, reason = "a run is large, and moves from here to an operation and back")]
    spare: Vec<Box<Run<RequestId>>>,
    schedules: Schedules,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    run: Box<Run<RequestId>>,
    members: Members,
    stage: Stage,
    persistent: bool,
    /// The outcome will not be asked for.
    forgotten: bool,
}

#[derive(Debug)]
enum Stage {
    /// A persistent operation that is not started.
    Idle,
    /// The operation waits for messages.
    Active,
    /// The operation waits for a user function.
    Calling,
    Over(MpiResult),
}

impl Collectives {
    /// Returns a free run to prepare; give it back with [`Collectives::keep`].
    pub fn spare(&mut self) -> Box<Run<RequestId>> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back a run that is over.
    pub fn keep(&mut self, mut run: Box<Run<RequestId>>) {
        run.clear();
        if self.spare.len() < 4 {
            self.spare.push(run);
        }
    }

    /// Returns the schedule of a call; recent calls have theirs cached.
    pub fn schedule(&mut self, call: Call, here: Here, layout: &Layout) -> Arc<Schedule> {
        self.schedules.get(call, here, layout)
    }

    /// Adds an operation that is ready to start; [`Collectives::start`] starts it.
    pub fn add(&mut self, run: Box<Run<RequestId>>, members: Members, persistent: bool) -> CollectiveId {
        let entry = Entry { run, members, stage: Stage::Idle, persistent, forgotten: false };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: None });
            (self.slots.len() - 1) as u32
        });
        let place = &mut self.slots[slot as usize];
        place.entry = Some(entry);
        CollectiveId { slot, generation: place.generation }
    }

    /// Starts an operation that is not in progress.
    pub fn start<T: Transport>(&mut self, id: CollectiveId, engine: &mut Engine<T>) {
        let Some(entry) = self.entry(id).filter(|entry| matches!(entry.stage, Stage::Idle)) else { return };
        entry.run.restart();
        entry.stage = Stage::Active;
        self.active.push(id.slot);
        self.advance_one(self.active.len() - 1, engine);
    }

    /// Advances all operations in progress; returns whether any of them ended or needs a user function.
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

    /// Returns whether the operation is no longer active: then another one has taken its index.
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

    /// Returns a user function that an operation waits for. Call it with nothing locked, then call
    /// [`Collectives::called`].
    #[inline]
    pub fn next_call(&mut self) -> Option<(CollectiveId, UserCall)> {
        if self.calls.is_empty() {
            return None;
        }
        let (slot, call) = self.calls.remove(0);
        Some((CollectiveId { slot, generation: self.slots[slot as usize].generation }, call))
    }

    /// Continues an operation whose user function has returned.
    pub fn called(&mut self, id: CollectiveId) {
        if let Some(entry) = self.slots[id.slot as usize].entry.as_mut().filter(|it| matches!(it.stage, Stage::Calling))
        {
            entry.stage = Stage::Active;
            self.active.push(id.slot);
        }
    }

    /// Returns the outcome of an operation that is over; removes the operation unless it is persistent.
    pub fn take(&mut self, id: CollectiveId) -> Option<MpiResult> {
        let entry = self.entry(id).filter(|entry| matches!(entry.stage, Stage::Over(_)))?;
        let Stage::Over(result) = std::mem::replace(&mut entry.stage, Stage::Idle) else { return None };
        if !entry.persistent {
            self.remove(id.slot);
        }
        Some(result)
    }

    /// Whether [`Collectives::take`] would return an outcome.
    pub fn is_over(&self, id: CollectiveId) -> bool {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.and_then(|slot| slot.entry.as_ref()).is_some_and(|entry| matches!(entry.stage, Stage::Over(_)))
    }

    /// Declares that the outcome will not be asked for; an operation in progress continues.
    pub fn forget(&mut self, id: CollectiveId) {
        let Some(entry) = self.entry(id) else { return };
        match entry.stage {
            Stage::Idle | Stage::Over(_) => self.remove(id.slot),
            Stage::Active | Stage::Calling => entry.forgotten = true,
        }
    }

    /// How many operations are in progress.
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

/// The schedules of recent calls: most programs make few different calls, many times.
#[derive(Debug, Default)]
struct Schedules {
    recent: Vec<Recent>,
    next: usize,
}

#[derive(Debug)]
struct Recent {
    call: Call,
    here: Here,
    layout: Layout,
    schedule: Arc<Schedule>,
}

/// The number of calls whose schedules are cached, and the most steps of a cached schedule.
const RECENT: usize = 16;
const STEPS: usize = 1024;

impl Schedules {
    fn get(&mut self, call: Call, here: Here, layout: &Layout) -> Arc<Schedule> {
        let is_same = |it: &&Recent| it.call == call && it.here == here && it.layout == *layout;
        if let Some(recent) = self.recent.iter().find(is_same) {
            return Arc::clone(&recent.schedule);
        }
        let schedule = Arc::new(call.schedule(here, layout));
        if schedule.actions().len() <= STEPS {
            let entry = Recent { call, here, layout: layout.clone(), schedule: Arc::clone(&schedule) };
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
