//! Values under numbers that are reused.

/// The slot of a value, and the generation of its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) slot: u32,
    generation: u32,
}

impl Id {
    /// The id for the wire: 24 bits of slot, 8 of generation.
    #[inline]
    pub(super) fn number(self) -> u32 {
        self.slot | (self.generation << SLOT_BITS)
    }
}

const SLOT_BITS: u32 = 24;

/// Values `T`; adding, finding and removing cost a few instructions, and memory grows only beyond the previous maximum.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Where the next value will be; `None` if there are already 2^24.
    #[inline]
    pub(super) fn vacant(&mut self) -> Option<Id> {
        let slot = match self.free.last() {
            Some(slot) => *slot,
            None => self.grow()?,
        };
        Some(Id { slot, generation: self.slots[slot as usize].generation })
    }

    /// Adds a value; `None` if there are already 2^24.
    #[inline]
    pub(super) fn add(&mut self, value: T) -> Option<Id> {
        let id = self.vacant()?;
        self.fill(id, value);
        Some(id)
    }

    /// Puts a value where [`Slab::vacant`] has just reported room.
    #[inline]
    pub(super) fn fill(&mut self, id: Id, value: T) {
        self.free.pop();
        self.slots[id.slot as usize].value = Some(value);
    }

    /// Adds a free slot.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        let slot = self.slots.len();
        if slot >= 1 << SLOT_BITS {
            return None;
        }
        self.slots.push(Slot { generation: 0, value: None });
        self.free.push(slot as u32);
        Some(slot as u32)
    }

    /// The value in this slot.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> Option<(Id, &T)> {
        let entry = self.slots.get(slot as usize)?;
        entry.value.as_ref().map(|value| (Id { slot, generation: entry.generation }, value))
    }

    /// As [`Slab::at`].
    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<(Id, &mut T)> {
        let entry = self.slots.get_mut(slot as usize)?;
        entry.value.as_mut().map(|value| (Id { slot, generation: entry.generation }, value))
    }

    #[inline]
    pub(super) fn get(&self, id: Id) -> Option<&T> {
        let entry = self.slots.get(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    /// The id for a number that a peer sent, if it is valid.
    #[inline]
    pub(super) fn find(&self, number: u32) -> Option<Id> {
        let slot = number & ((1 << SLOT_BITS) - 1);
        let entry = self.slots.get(slot as usize)?;
        let id = Id { slot, generation: entry.generation };
        if id.number() == number && entry.value.is_some() { Some(id) } else { None }
    }

    #[inline]
    pub(super) fn remove(&mut self, id: Id) -> Option<T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(value)
    }

    /// Drops the value in place.
    #[inline]
    pub(super) fn discard(&mut self, id: Id) {
        let Some(entry) = self.slots.get_mut(id.slot as usize) else { return };
        if entry.generation == id.generation && entry.value.is_some() {
            entry.value = None;
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(id.slot);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let id = Id { slot: slot as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (id, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_invalid_once_its_value_is_removed() {
        let mut slab = Slab::default();
        let a = slab.add("a").unwrap();
        let b = slab.add("b").unwrap();
        assert_eq!((slab.find(a.number()), slab.find(b.number())), (Some(a), Some(b)));
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!((slab.find(a.number()), slab.get(a)), (None, None));
        assert_eq!(slab.remove(a), None);
        let c = slab.add("c").unwrap();
        assert_eq!((c.slot, slab.find(a.number()), slab.find(c.number())), (a.slot, None, Some(c)));
        assert_eq!((slab.find(u32::MAX), slab.find(7), slab.len()), (None, None, 2));
        assert_eq!(slab.iter().map(|(_, value)| *value).collect::<Vec<_>>(), ["c", "b"]);
    }
}
