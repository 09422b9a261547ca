//! The non-blocking and persistent collective operations under way in this process.

use crate::error::MpiResult;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CollectiveId {
    slot: u32,
    generation: u32,
}

/// Those that were started, or can be.
#[derive(Debug, Default)]
pub struct Collectives {
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    outcome: Option<MpiResult>,
}

impl Collectives {
    /// The outcome of an operation that is over, which is then forgotten unless it is persistent.
    pub fn take(&mut self, id: CollectiveId) -> Option<MpiResult> {
        let slot = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
        slot.outcome.take()
    }

    /// Whether [`Collectives::take`] would give something.
    pub fn is_over(&self, id: CollectiveId) -> bool {
        let slot = self.slots.get(id.slot as usize).filter(|slot| slot.generation == id.generation);
        slot.is_some_and(|slot| slot.outcome.is_some())
    }

    /// The operation goes on, but its outcome will not be asked for.
    pub fn forget(&mut self, id: CollectiveId) {
        if let Some(slot) = self.slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation) {
            slot.generation += 1;
        }
    }
}
