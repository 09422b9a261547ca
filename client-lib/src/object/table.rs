//! The objects of one class, by handle.

use std::marker::PhantomData;

use crate::abi::handle::{Handle, Place, SLOTS};

/// Objects `T` behind handles `H`. Finding, adding and removing take a few instructions each; a slot is reused under
/// another generation.
#[derive(Debug)]
pub struct Table<H, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    class: PhantomData<H>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<H: Handle, T> Default for Table<H, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), class: PhantomData }
    }
}

impl<H: Handle, T> Table<H, T> {
    /// Adds an object; `None` if the table is full, with two million of them.
    #[inline]
    pub fn add(&mut self, value: T) -> Option<H> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            // The last slot stays free, for handles of objects outside the table.
            None if self.slots.len() < SLOTS as usize - 1 => {
                self.slots.push(Slot { generation: 0, value: None });
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        let entry = &mut self.slots[slot as usize];
        entry.value = Some(value);
        Some(H::made(Place { slot, generation: entry.generation }))
    }

    /// Whether [`Table::add`] would succeed.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < SLOTS as usize - 1
    }

    /// The object, unless the handle is not one of this table or its object has been removed.
    #[inline]
    pub fn get(&self, handle: H) -> Option<&T> {
        let place = handle.place()?;
        let slot = self.slots.get(place.slot as usize)?;
        if slot.generation == place.generation { slot.value.as_ref() } else { None }
    }

    /// As [`Table::get`].
    #[inline]
    pub fn get_mut(&mut self, handle: H) -> Option<&mut T> {
        let place = handle.place()?;
        let slot = self.slots.get_mut(place.slot as usize)?;
        if slot.generation == place.generation { slot.value.as_mut() } else { None }
    }

    /// Removes the object and returns it; its handle is invalid from now on.
    pub fn take(&mut self, handle: H) -> Option<T> {
        let place = handle.place()?;
        let slot = self.slots.get_mut(place.slot as usize)?;
        if slot.generation != place.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = place.next_generation();
        self.free.push(place.slot);
        Some(value)
    }

    /// Drops the object in place; its handle is invalid from now on.
    #[inline]
    pub fn discard(&mut self, handle: H) {
        let Some(place) = handle.place() else { return };
        let Some(slot) = self.slots.get_mut(place.slot as usize) else { return };
        if slot.generation == place.generation && slot.value.is_some() {
            slot.value = None;
            slot.generation = place.next_generation();
            self.free.push(place.slot);
        }
    }

    /// All objects.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let place = Place { slot: slot as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (H::made(place), value))
        })
    }
}

/// Objects of any class, by the bits of their handles.
pub trait Objects {
    /// The handle that the next object will get.
    fn next(&self) -> usize;

    /// Whether this handle has an object.
    fn has(&self, handle: usize) -> bool;

    /// The handles of all objects.
    fn all(&self) -> Vec<usize>;
}

impl<H: Handle, T> Objects for Table<H, T> {
    fn next(&self) -> usize {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(slot as usize).map_or(0, |slot| slot.generation);
        H::made(Place { slot, generation }).bits()
    }

    fn has(&self, handle: usize) -> bool {
        self.get(H::from_bits(handle)).is_some()
    }

    fn all(&self) -> Vec<usize> {
        self.iter().map(|(handle, _)| handle.bits()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::CommHandle;

    #[test]
    fn a_handle_is_invalid_once_its_object_is_removed() {
        let mut table = Table::<CommHandle, &str>::default();
        let next = table.next();
        let a = table.add("a").unwrap();
        assert!(next == a.bits() && table.has(next) && !table.has(table.next()));
        let b = table.add("b").unwrap();
        assert_eq!((table.get(a), table.get(b), table.len()), (Some(&"a"), Some(&"b"), 2));
        assert_eq!(table.take(a), Some("a"));
        assert_eq!((table.get(a), table.len()), (None, 1));
        assert_eq!(table.take(a), None);
        let next = table.next();
        let c = table.add("c").unwrap();
        assert_eq!((next, table.all()), (c.bits(), vec![c.bits(), b.bits()]));
        assert_eq!((c.place().unwrap().slot, c == a), (a.place().unwrap().slot, false));
        assert_eq!((table.get(a), table.get(c)), (None, Some(&"c")));
        assert_eq!(table.get(CommHandle::NULL), None);
        assert_eq!(table.iter().map(|(_, value)| *value).collect::<Vec<_>>(), ["c", "b"]);
        table.discard(a);
        assert_eq!((table.get(c), table.len()), (Some(&"c"), 2));
        table.discard(c);
        assert_eq!((table.take(c), table.len()), (None, 1));
    }
}
