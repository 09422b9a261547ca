//! First-in-first-out lists by key, found by hash. This module does not interpret the keys.

use super::Key;

/// No entry, no list.
pub(super) const NONE: u32 = u32::MAX;

/// First-in-first-out lists of `V` by key, linked through vectors:
///
/// ```text
/// buckets[hash] → list {key, next} → list …      (another key with the same hash)
///                   ↓ head
///                 entry ⇄ entry ⇄ entry           (tail)
/// ```
#[derive(Debug)]
pub(super) struct Lists<V> {
    /// A power of two in number, and at least as many as lists.
    buckets: Vec<u32>,
    lists: Vec<List>,
    entries: Vec<Entry<V>>,
    /// The first of the unused lists, linked by `next`.
    free_list: u32,
    free_entry: u32,
    used: usize,
    /// The list of the last insertion: the same key often follows.
    recent: u32,
}

#[derive(Debug, Clone, Copy)]
struct List {
    key: Key,
    head: u32,
    tail: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry<V> {
    list: u32,
    next: u32,
    previous: u32,
    value: V,
}

impl<V> Default for Lists<V> {
    fn default() -> Self {
        let (lists, entries) = (Vec::new(), Vec::new());
        Self { buckets: vec![NONE; 16], lists, entries, free_list: NONE, free_entry: NONE, used: 0, recent: NONE }
    }
}

impl<V: Copy> Lists<V> {
    #[inline]
    pub(super) fn push(&mut self, key: Key, value: V) -> u32 {
        let list = match self.find(key) {
            Some(list) => list,
            None => self.open(key),
        };
        self.recent = list;
        let tail = self.lists[list as usize].tail;
        let entry = Entry { list, next: NONE, previous: tail, value };
        let at = self.free_entry;
        let at = if at == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            self.free_entry = self.entries[at as usize].next;
            self.entries[at as usize] = entry;
            at
        };
        if tail == NONE {
            self.lists[list as usize].head = at;
        } else {
            self.entries[tail as usize].next = at;
        }
        self.lists[list as usize].tail = at;
        at
    }

    #[inline]
    pub(super) fn first(&self, key: Key) -> Option<u32> {
        self.find(key).map(|list| self.lists[list as usize].head)
    }

    #[inline]
    pub(super) fn value(&self, entry: u32) -> &V {
        &self.entries[entry as usize].value
    }

    #[inline]
    pub(super) fn key(&self, entry: u32) -> Key {
        self.lists[self.entries[entry as usize].list as usize].key
    }

    #[inline]
    pub(super) fn remove(&mut self, entry: u32) {
        let Entry { list, next, previous, .. } = self.entries[entry as usize];
        match previous {
            NONE => self.lists[list as usize].head = next,
            _ => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[list as usize].tail = previous,
            _ => self.entries[next as usize].previous = previous,
        }
        self.entries[entry as usize].next = self.free_entry;
        self.free_entry = entry;
        if next == NONE && previous == NONE {
            self.close(list);
        }
    }

    /// Removes the first entry of a list.
    #[inline]
    pub(super) fn pop(&mut self, list: u32) -> V {
        let head = self.lists[list as usize].head;
        let Entry { next, value, .. } = self.entries[head as usize];
        self.entries[head as usize].next = self.free_entry;
        self.free_entry = head;
        if next == NONE {
            self.close(list);
        } else {
            self.lists[list as usize].head = next;
            self.entries[next as usize].previous = NONE;
        }
        value
    }

    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        if let Some(list) = self.lists.get(self.recent as usize)
            && list.key == key
        {
            return Some(self.recent);
        }
        self.find_by_hash(key)
    }

    #[inline(never)]
    fn find_by_hash(&self, key: Key) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let list = &self.lists[at as usize];
            if list.key == key {
                return Some(at);
            }
            at = list.next;
        }
        None
    }

    #[inline]
    fn bucket(&self, key: Key) -> usize {
        key.hash() as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn open(&mut self, key: Key) -> u32 {
        if self.used == self.buckets.len() {
            self.widen();
        }
        let bucket = self.bucket(key);
        let list = List { key, head: NONE, tail: NONE, next: self.buckets[bucket] };
        let at = self.free_list;
        let at = if at == NONE {
            self.lists.push(list);
            (self.lists.len() - 1) as u32
        } else {
            self.free_list = self.lists[at as usize].next;
            self.lists[at as usize] = list;
            at
        };
        self.buckets[bucket] = at;
        self.used += 1;
        at
    }

    /// Removes an empty list: keys come and go, as with tags that count messages.
    #[inline]
    fn close(&mut self, list: u32) {
        let List { key, next, .. } = self.lists[list as usize];
        if self.recent == list {
            self.recent = NONE;
        }
        let bucket = self.bucket(key);
        let mut at = self.buckets[bucket];
        if at == list {
            self.buckets[bucket] = next;
        } else {
            while self.lists[at as usize].next != list {
                at = self.lists[at as usize].next;
            }
            self.lists[at as usize].next = next;
        }
        self.lists[list as usize].next = self.free_list;
        self.free_list = list;
        self.used -= 1;
    }

    /// Doubles the buckets; called when all lists are in use.
    #[cold]
    fn widen(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; old.len() * 2];
        for mut at in old {
            while at != NONE {
                let List { key, next, .. } = self.lists[at as usize];
                let bucket = self.bucket(key);
                self.lists[at as usize].next = self.buckets[bucket];
                self.buckets[bucket] = at;
                at = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Source, TagMatch};

    #[test]
    fn lists_are_found_in_a_few_steps_however_many_there_are() {
        let mut lists = Lists::default();
        let (contexts, ranks, tags) = (0..8_u32, 0..100_u32, 0..100_i32);
        for context in contexts {
            for rank in ranks.clone() {
                for tag in tags.clone() {
                    let (source, tag) = (Source::Rank(rank), TagMatch::Value(tag));
                    lists.push(Key::of(context, source, tag), ());
                    lists.push(Key::of(context, source, tag), ());
                }
            }
        }
        let steps = |bucket: &u32| {
            let next = |at: &u32| Some(lists.lists[*at as usize].next).filter(|at| *at != NONE);
            std::iter::successors(Some(*bucket).filter(|at| *at != NONE), next).count()
        };
        assert!(lists.buckets.iter().map(steps).max() <= Some(8));
    }

    #[test]
    fn entries_and_lists_are_reused() {
        let mut lists = Lists::default();
        for round in 0..1000 {
            let entries = [0, 1, 2].map(|tag| lists.push(Key::of(round, Source::Any, TagMatch::Value(tag)), tag));
            for entry in entries {
                lists.remove(entry);
            }
        }
        assert_eq!((lists.lists.len(), lists.entries.len(), lists.buckets.len(), lists.used), (3, 3, 16, 0));
    }
}
