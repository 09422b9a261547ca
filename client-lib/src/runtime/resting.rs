//! The threads that sleep while others make progress.
//!
//! A thread that falls asleep lends its condition to the others. A thread that makes progress calls these conditions, and wakes those threads
//! whose waits have ended. So a message wakes only the thread that waits for it.

#![expect(unsafe_code, reason = "the conditions of threads that sleep are called from others, with the lock held")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::lock::{futex_wait, futex_wake};
use crate::transport::Bell;

/// Whether a wait has ended, in this state.
pub(super) type Condition<'a, S> = dyn FnMut(&mut S, Moment) -> bool + 'a;

/// When the condition of a wait is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Regularly.
    Look,
    /// Before a sleep: the process that causes the event must be notified first, so that at least one of the two notices the
    /// other. If the wait has ended, the thread does not sleep.
    Sleep,
    /// After the sleep, in any case.
    Awake,
}

/// The sleeping threads.
pub(super) struct Resting<S: 'static> {
    threads: Vec<Thread<S>>,
    /// Those that are to be woken as soon as the lock is released: they would have to wait for it.
    woken: Vec<Alarm>,
    number: u64,
}

struct Thread<S: 'static> {
    number: u64,
    condition: *mut Condition<'static, S>,
    is_over: bool,
    alarm: Alarm,
}

// SAFETY: a condition lies on the stack of a thread that sleeps until it is taken from this list, which only happens with the lock held. It is
// called only while the lock is held, so by one thread at a time, and refers to nothing that belongs to a thread but its stack.
unsafe impl<S> Send for Resting<S> {}

/// What wakes a thread.
#[derive(Clone)]
pub(super) enum Alarm {
    /// A word that changes from 0 to 1.
    Word(Arc<AtomicU32>),
    /// It sleeps on the transports' descriptors.
    Bell(Bell),
}

impl Alarm {
    /// For a thread that sleeps by [`Alarm::sleep`].
    pub(super) fn word() -> Self {
        Self::Word(Arc::default())
    }

    /// Sleeps until it goes off, at most this long.
    pub(super) fn sleep(&self, limit: Duration) {
        if let Self::Word(word) = self {
            futex_wait(word, 0, Some(limit));
        }
    }

    fn ring(&self) {
        match self {
            Self::Word(word) => futex_wake(word, 1),
            Self::Bell(bell) => bell.ring(),
        }
    }
}

impl<S> Resting<S> {
    /// Adds a thread that is about to sleep until `alarm` goes off; returns its number.
    ///
    /// # Safety
    ///
    /// Until [`Resting::remove`], the condition must stay where it is, and the thread must not use it.
    pub(super) unsafe fn add(&mut self, condition: *mut Condition<'_, S>, alarm: Alarm) -> u64 {
        // SAFETY: only the lifetime changes.
        let condition = unsafe { std::mem::transmute::<*mut Condition<'_, S>, *mut Condition<'static, S>>(condition) };
        self.number += 1;
        self.threads.push(Thread { number: self.number, condition, is_over: false, alarm });
        self.number
    }

    /// Removes a thread; returns whether its wait has ended.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let place = self.threads.iter().position(|thread| thread.number == number);
        place.is_some_and(|place| self.threads.swap_remove(place).is_over)
    }

    /// Whether no thread sleeps.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Whether the wait of a thread has ended that has not run since then.
    pub(super) fn has_over(&self) -> bool {
        self.threads.iter().any(|thread| thread.is_over)
    }

    /// Whether threads are to be woken.
    #[inline]
    pub(super) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Calls the conditions of the threads; those whose wait has ended are to be woken.
    pub(super) fn look(&mut self, state: &mut S) {
        for thread in self.threads.iter_mut().filter(|thread| !thread.is_over) {
            // SAFETY: see `Resting`; the lock is held, because the state is borrowed.
            thread.is_over = unsafe { (*thread.condition)(state, Moment::Look) };
            if thread.is_over {
                self.woken.push(thread.rouse());
            }
        }
    }

    /// Wakes all threads, so that they look for themselves.
    pub(super) fn wake_all(&mut self) {
        let others = self.threads.iter().filter(|thread| !thread.is_over);
        self.woken.extend(others.map(Thread::rouse));
    }

    /// Passes on which threads are to be woken.
    pub(super) fn leave_woken(&mut self, to: &mut Self) {
        to.woken.append(&mut self.woken);
    }

    /// Wakes one thread, so that it makes progress for the others, unless one is awake already because its wait has ended: that one will
    /// see to it when it leaves.
    pub(super) fn wake_one(&mut self) {
        if !self.has_over()
            && let Some(thread) = self.threads.first()
        {
            self.woken.push(thread.rouse());
        }
    }

    /// Wakes the thread that sleeps on the descriptors, so that it looks at what has changed.
    pub(super) fn wake_sleeper(&mut self) {
        let sleeper = self.threads.iter().find(|thread| matches!(thread.alarm, Alarm::Bell(_)));
        self.woken.extend(sleeper.map(Thread::rouse));
    }

    /// The threads to wake once the lock is released.
    pub(super) fn take_woken(&mut self) -> Woken {
        Woken(std::mem::take(&mut self.woken))
    }
}

/// Threads to wake.
#[must_use]
pub(super) struct Woken(Vec<Alarm>);

impl Woken {
    /// Wakes them; without the lock.
    pub(super) fn ring(self) {
        self.0.iter().for_each(Alarm::ring);
    }
}

impl<S> Thread<S> {
    fn rouse(&self) -> Alarm {
        if let Alarm::Word(word) = &self.alarm {
            word.store(1, Ordering::Release);
        }
        self.alarm.clone()
    }
}

impl<S> Default for Resting<S> {
    fn default() -> Self {
        Self { threads: Vec::new(), woken: Vec::new(), number: 0 }
    }
}

impl<S> std::fmt::Debug for Resting<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resting").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn word(alarm: &Alarm) -> u32 {
        match alarm {
            Alarm::Word(word) => word.load(Ordering::Acquire),
            Alarm::Bell(_) => unreachable!("only words are used here"),
        }
    }

    /// Adds a thread for each condition.
    fn rest<'a>(resting: &mut Resting<u64>, conditions: &'a mut [Box<Condition<'static, u64>>]) -> Vec<(u64, Alarm)> {
        conditions
            .iter_mut()
            .map(|condition| {
                let alarm = Alarm::word();
                let pointer: *mut Condition<'a, u64> = condition.as_mut();
                // SAFETY: the conditions outlive the test, and are used through the list only.
                (unsafe { resting.add(pointer, alarm.clone()) }, alarm)
            })
            .collect()
    }

    /// A wait until the state is at least this.
    fn until(end: u64) -> Box<Condition<'static, u64>> {
        Box::new(move |state, _| *state >= end)
    }

    #[test]
    fn a_thread_whose_wait_has_ended_is_woken_and_no_other_one() {
        let (mut resting, mut state) = (Resting::default(), 0);
        let mut conditions = [until(2), until(1), until(3)];
        let threads = rest(&mut resting, &mut conditions);
        let words = || threads.iter().map(|(_, alarm)| word(alarm)).collect::<Vec<_>>();
        resting.look(&mut state);
        assert_eq!((words(), resting.has_woken()), (vec![0, 0, 0], false));
        state = 1;
        resting.look(&mut state);
        assert_eq!((words(), resting.has_over()), (vec![0, 1, 0], true));
        // It is not woken twice.
        assert_eq!(resting.take_woken().0.len(), 1);
        resting.look(&mut state);
        assert!(!resting.has_woken());
        assert!(resting.remove(threads[1].0) && !resting.remove(threads[0].0));
        state = 3;
        resting.look(&mut state);
        assert_eq!((words(), resting.remove(threads[2].0)), (vec![0, 1, 1], true));
        assert!(resting.is_empty());
    }

    #[test]
    fn if_nobody_makes_progress_one_thread_is_woken_unless_one_is_about_to_leave() {
        let mut resting = Resting::default();
        let mut conditions = [until(9), until(1)];
        let threads = rest(&mut resting, &mut conditions);
        resting.wake_one();
        assert_eq!((word(&threads[0].1), word(&threads[1].1)), (1, 0));
        // It has found nothing, and goes on: its wait has not ended.
        assert!(!resting.remove(threads[0].0));
        resting.look(&mut 1);
        resting.take_woken().ring();
        resting.wake_one();
        assert!(!resting.has_woken());
    }
}
