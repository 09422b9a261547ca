//! Deadlines by key. Each state machine keeps all its deadlines in one such table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A table of deadlines, at most one per key. Every operation costs O(log n).
#[derive(Debug)]
pub(crate) struct Timers<K> {
    by_key: BTreeMap<K, Duration>,
    by_time: BTreeSet<(Duration, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Timers<K> {
        Timers { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets the deadline of a key, or removes it.
    pub(crate) fn put(&mut self, key: K, at: Option<Duration>) {
        match at {
            Some(at) => self.set(key, at),
            None => self.cancel(&key),
        }
    }

    /// Sets the deadline of a key, replacing an earlier one.
    pub(crate) fn set(&mut self, key: K, at: Duration) {
        self.cancel(&key);
        self.by_key.insert(key.clone(), at);
        self.by_time.insert((at, key));
    }

    /// Removes the deadline of a key.
    pub(crate) fn cancel(&mut self, key: &K) {
        if let Some((key, at)) = self.by_key.remove_entry(key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// Removes and returns the key with the earliest deadline, if that has passed.
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// Returns the deadline of a key.
    pub(crate) fn at(&self, key: &K) -> Option<Duration> {
        self.by_key.get(key).copied()
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn deadlines_are_popped_in_order_and_only_when_they_have_passed() {
        let mut timers = Timers::default();
        for (key, seconds) in [("late", 9), ("early", 1), ("middle", 5)] {
            timers.set(key, at(seconds));
        }
        assert_eq!((timers.next(), timers.pop_due(at(0))), (Some(at(1)), None));
        assert_eq!(std::iter::from_fn(|| timers.pop_due(at(5))).collect::<Vec<_>>(), ["early", "middle"]);
        assert_eq!(timers.next(), Some(at(9)));
    }

    #[test]
    fn a_key_has_one_deadline_which_can_be_moved_and_cancelled() {
        let mut timers = Timers::default();
        timers.set(7, at(1));
        timers.set(7, at(3));
        assert_eq!((timers.pop_due(at(2)), timers.next()), (None, Some(at(3))));
        timers.put(7, None);
        assert_eq!((timers.pop_due(at(9)), timers.next()), (None, None));
    }
}
