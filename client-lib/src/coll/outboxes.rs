//! A process's outboxes: its non-blocking collectives in progress over the memory of its node.

use super::choice::Call;
use super::node::{Begun, Outbox, Shared};
use super::operands::Operands;
use super::running::Members;
use crate::engine::{Engine, Transport};
use crate::error::{MpiError, MpiResult};
use crate::op::Reduction;

/// Identifies an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxId {
    slot: u32,
    serial: u64,
}

/// Identifies an operation of an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostedId {
    outbox: OutboxId,
    number: u64,
}

/// What has become of an operation when it was started.
#[derive(Debug)]
pub enum Posted {
    /// It is over.
    Over(MpiResult),
    /// It goes on.
    Pending(PostedId),
}

/// All outboxes of the process.
#[derive(Debug, Default)]
pub struct Outboxes {
    slots: Vec<Option<Entry>>,
    serial: u64,
    /// How many operations are in progress.
    pending: usize,
    /// How many have ended.
    ended: u64,
    /// The alarms that have been looked at.
    heard: u64,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    outbox: Outbox,
    members: Members,
    /// Its communicator has been freed: this goes with the last operation.
    left: Option<Option<Box<Shared>>>,
}

impl Outboxes {
    /// Adds the outbox of a communicator with these members.
    pub fn add(&mut self, outbox: Outbox, members: Members) -> OutboxId {
        self.serial += 1;
        let entry = Entry { serial: self.serial, outbox, members, left: None };
        let slot = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(entry);
        OutboxId { slot: slot as u32, serial: self.serial }
    }

    /// Removes the outbox of a freed communicator once its operations are over; until then, `shared` wakes this process up.
    pub fn leave(&mut self, id: OutboxId, shared: Option<Box<Shared>>) {
        if let Some(entry) = self.entry(id) {
            entry.left = Some(shared);
            self.remove_left(id.slot as usize);
        }
    }

    fn remove_left(&mut self, slot: usize) {
        self.slots[slot].take_if(|entry| entry.left.is_some() && entry.outbox.is_empty());
    }

    /// Whether a call can be posted: see [`Outbox::fits`].
    pub fn fits(&self, id: OutboxId, call: Call, reduction: Option<&Reduction>, is_dense: bool) -> bool {
        self.get(id).is_some_and(|entry| entry.outbox.fits(call, reduction, is_dense))
    }

    /// Starts a call: see [`Outbox::start`].
    pub fn start(
        &mut self,
        id: OutboxId,
        call: Call,
        operands: &mut Operands,
        reduction: &mut Option<Reduction>,
        fault: Option<MpiError>,
    ) -> Option<Posted> {
        let outbox = &mut self.entry(id)?.outbox;
        match outbox.start(call, operands, reduction, fault) {
            Begun::Over(result) => Some(Posted::Over(result)),
            Begun::Pending(number) => {
                self.pending += 1;
                Some(Posted::Pending(PostedId { outbox: id, number }))
            }
        }
    }

    /// Whether no operation is in progress.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pending == 0
    }

    /// Continues all operations; returns whether any has ended.
    #[inline]
    pub fn progress<T: Transport>(&mut self, engine: &Engine<T>) -> bool {
        self.pending > 0 && self.advance(engine)
    }

    fn advance<T: Transport>(&mut self, engine: &Engine<T>) -> bool {
        if self.heard != engine.alarms() {
            self.heard = engine.alarms();
            self.hear(engine);
        }
        let (mut ended, mut pending) = (0, 0);
        for slot in 0..self.slots.len() {
            let Some(entry) = &mut self.slots[slot] else { continue };
            if entry.outbox.pending() > 0 {
                ended += entry.outbox.poll();
                pending += entry.outbox.pending();
                self.remove_left(slot);
            }
        }
        self.pending = pending;
        self.ended += ended as u64;
        ended > 0
    }

    /// Nothing comes from a member that has died, and those to which a communicator is revoked may have left.
    #[cold]
    fn hear<T: Transport>(&mut self, engine: &Engine<T>) {
        for Entry { outbox, members, .. } in self.slots.iter().flatten() {
            if engine.is_revoked(members.context) {
                outbox.revoke();
            } else if let Some(lost) = members.peers.iter().position(|peer| engine.is_lost(*peer)) {
                outbox.declare_broken(lost as u32);
            }
        }
    }

    /// Called before a sleep, after which [`Outboxes::progress`] must be called once more; returns what to pass to [`Outboxes::awake`].
    pub fn announce_sleep(&mut self) -> Vec<OutboxId> {
        if self.pending == 0 {
            return Vec::new();
        }
        let sleeps = |(slot, entry): (usize, &mut Option<Entry>)| {
            let entry = entry.as_mut().filter(|entry| entry.outbox.pending() > 0)?;
            entry.outbox.announce_sleep(true);
            Some(OutboxId { slot: slot as u32, serial: entry.serial })
        };
        self.slots.iter_mut().enumerate().filter_map(sleeps).collect()
    }

    /// Called after a sleep.
    pub fn awake(&mut self, announced: Vec<OutboxId>) {
        for id in announced {
            if let Some(entry) = self.entry(id) {
                entry.outbox.announce_sleep(false);
            }
        }
    }

    /// How many operations have ended.
    #[inline]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The result of an operation, once it is over.
    pub fn take(&mut self, id: PostedId) -> Option<MpiResult> {
        let result = self.entry(id.outbox)?.outbox.take(id.number)?;
        self.remove_left(id.outbox.slot as usize);
        Some(result)
    }

    /// Whether [`Outboxes::take`] would return a result.
    pub fn is_over(&self, id: PostedId) -> bool {
        self.get(id.outbox).is_some_and(|entry| entry.outbox.is_over(id.number))
    }

    /// Declares that the result will not be asked for; the operation goes on.
    pub fn forget(&mut self, id: PostedId) {
        if let Some(entry) = self.entry(id.outbox) {
            entry.outbox.forget(id.number);
            self.remove_left(id.outbox.slot as usize);
        }
    }

    fn get(&self, id: OutboxId) -> Option<&Entry> {
        self.slots.get(id.slot as usize)?.as_ref().filter(|entry| entry.serial == id.serial)
    }

    fn entry(&mut self, id: OutboxId) -> Option<&mut Entry> {
        self.slots.get_mut(id.slot as usize)?.as_mut().filter(|entry| entry.serial == id.serial)
    }
}
