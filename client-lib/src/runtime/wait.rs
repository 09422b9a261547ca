//! How a call waits: it polls while it has a core of its own, then yields the core, then sleeps until something arrives.
//!
//! With several threads in the library, one of the waiting threads sleeps on the transports' descriptors. The others sleep until
//! a thread finds that their wait has ended ([`super::resting`]), or until the last one that is awake leaves and one of them takes its place.

use std::time::{Duration, Instant};

use super::resting::{Alarm, Moment};
use super::waiting::{TURN, Waiting};
use super::{Guard, State};

type Condition<'a> = super::resting::Condition<'a, State>;

/// After this many yields that did not give the core to another process, a process sleeps, unless yields reach all ranks of its node: the
/// scheduler may count each rank as a session of its own, between which a yield has no effect (autogroups, under launchers that
/// call `setsid` for each rank). Where yields do reach all, no other process needs this core, and waking it up from its idleness takes long.
const IN_VAIN: u32 = 16;

/// The longest sleep: the transports' deadlines are checked this often.
const SLEEP: Duration = Duration::from_millis(500);

/// A wait that has lasted so long makes connections to the ranks on other nodes that it waits for: otherwise it would not notice that
/// they are unreachable.
const FAR: Duration = Duration::from_secs(5);

/// Most waits of a rank with a core of its own end within this many polls, for which nothing is set up.
const POLLS: u32 = 16;

impl Guard<'_> {
    /// Waits until `done` returns a result, and advances everything until then; other threads get the lock in between.
    #[inline]
    pub fn wait<T>(&mut self, mut done: impl FnMut(&mut State) -> Option<T>) -> T {
        self.wait_as(|state, moment| match moment {
            Moment::Look | Moment::Sleep => done(state),
            Moment::Awake => None,
        })
    }

    /// As [`Guard::wait`], for an event that may never happen: `last` is called before each sleep and can end the wait.
    #[inline]
    pub fn wait_or<T>(
        &mut self,
        mut done: impl FnMut(&mut State) -> Option<T>,
        mut last: impl FnMut(&mut State) -> Option<T>,
    ) -> T {
        self.wait_as(|state, moment| match moment {
            Moment::Look => done(state),
            Moment::Sleep => last(state),
            Moment::Awake => None,
        })
    }

    /// As [`Guard::wait`], for an event from outside the transports: `done` is called for every sleep.
    #[inline]
    pub fn wait_as<T>(&mut self, mut done: impl FnMut(&mut State, Moment) -> Option<T>) -> T {
        // The process that a rank waits for may need the core that they share.
        let polls = if self.spins() { POLLS } else { 0 };
        for _ in 0..polls {
            if let Some(result) = done(self, Moment::Look) {
                return result;
            }
            self.step();
        }
        let mut result = None;
        self.wait_long(&mut |state, moment| {
            // After a sleep it must be asked too, but the first result is the one that counts.
            let found = done(state, moment);
            result = result.take().or(found);
            result.is_some()
        });
        result.unwrap_or_else(|| unreachable!("a wait ends with its result"))
    }

    /// Waits until `done` says so. Compiled once: it is most of a wait's code, and none of a short wait's time.
    #[cold]
    #[inline(never)]
    fn wait_long(&mut self, done: &mut Condition<'_>) {
        let mut idle = Idle::default();
        // Whether all yields of this wait have returned at once, if there were any.
        let mut in_vain = None;
        self.waiting.awake += 1;
        loop {
            if done(self, Moment::Look) {
                if in_vain == Some(true) {
                    self.waiting.ended_elsewhere();
                }
                break;
            }
            if !self.resting.is_empty() {
                look_for_all(self);
                if self.resting.has_woken() {
                    // They may have to run on this core.
                    self.unlocked(std::thread::yield_now);
                    continue;
                }
            }
            if self.step() {
                idle = Idle::default();
                self.let_others_in();
                continue;
            }
            match idle.next(&self.waiting) {
                // Other threads of this process need the core.
                Pause::Spin if self.waiting.lacks_cores(&self.resting) => self.unlocked(std::thread::yield_now),
                Pause::Spin => {
                    std::hint::spin_loop();
                    self.let_others_in();
                }
                Pause::Yield => {
                    self.waiting.keep_apart();
                    self.unlocked(std::thread::yield_now);
                    if let Some(took) = idle.yielded() {
                        self.waiting.observe(took);
                        in_vain = Some(took < TURN && in_vain != Some(false));
                    }
                }
                Pause::Sleep => {
                    // Meanwhile, others may have run on this core.
                    in_vain = Some(false);
                    if idle.is_long() {
                        self.seek_awaited(idle.elapsed >= FAR);
                    }
                    if self.sleep(done) {
                        break;
                    }
                }
            }
        }
        self.waiting.awake -= 1;
        self.hand_over();
    }

    /// Called by a thread that will not make progress any more: if it was the last one, one of those that sleep takes its place.
    pub(super) fn hand_over(&mut self) {
        if self.waiting.awake == 0 && !self.waiting.has_sleeper {
            self.resting.wake_one();
        }
    }

    /// Whether waits begin with polling alone now, because this process seems to have a core of its own.
    #[inline]
    pub fn spins(&self) -> bool {
        !self.waiting.spin.is_zero()
    }

    /// Whether this process has a core of its own, as far as is known. In contrast to [`Guard::spins`], this does not change
    /// with what other processes do.
    pub fn has_core(&self) -> bool {
        !self.waiting.always_yields()
    }

    /// Advances all operations in progress; returns whether any moved.
    #[inline]
    pub fn step(&mut self) -> bool {
        let moved = self.progress();
        match self.collectives.next_call() {
            None => moved,
            Some((id, call)) => {
                // It may take long, and this thread makes no progress meanwhile.
                let counted = self.waiting.awake.min(1);
                self.waiting.awake -= counted;
                self.hand_over();
                self.unlocked(|| call.perform());
                self.waiting.awake += counted;
                self.collectives.called(id);
                self.movements += 1;
                true
            }
        }
    }

    /// Runs a closure without the lock.
    pub fn unlocked<T>(&mut self, body: impl FnOnce() -> T) -> T {
        self.release();
        let result = body();
        self.runtime.lock.acquire();
        result
    }

    /// Releases the lock, and wakes the threads whose waits have ended.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.resting.is_empty() {
            return self.runtime.lock.release();
        }
        self.wake_finished();
        if self.waiting.has_sleeper && self.engine.transport_mut().is_outdated() {
            self.resting.wake_sleeper();
        }
        let woken = self.resting.take_woken();
        self.runtime.lock.release();
        woken.ring();
    }

    #[inline]
    pub(super) fn let_others_in(&mut self) {
        if self.runtime.lock.is_wanted() {
            self.unlocked(std::thread::yield_now);
        }
    }

    /// Finds the sleeping threads whose waits have ended, if requests have ended since the last look.
    #[inline]
    pub(super) fn wake_finished(&mut self) {
        if self.resting.is_empty() {
            return;
        }
        loop {
            let finished = self.engine.finished() + self.outboxes.ended();
            if self.waiting.reported == finished {
                return;
            }
            self.waiting.reported = finished;
            look_for_all(self);
        }
    }

    /// Something that a sleeping thread may wait for has changed, but no request has ended.
    pub fn wake_others(&mut self) {
        self.movements += 1;
        look_for_all(self);
        self.resting.wake_sleeper();
    }

    /// Sleeps, unless the last check returns the result.
    pub(super) fn sleep(&mut self, done: &mut Condition<'_>) -> bool {
        let announced = self.outboxes.announce_sleep();
        let state = &mut **self;
        if !announced.is_empty() && state.outboxes.progress(&state.engine) {
            self.outboxes.awake(announced);
            self.unlocked(std::thread::yield_now);
            return false;
        }
        let there = self.sleep_announced(done);
        self.outboxes.awake(announced);
        there
    }

    fn sleep_announced(&mut self, done: &mut Condition<'_>) -> bool {
        if self.engine.must_poll() {
            self.unlocked(std::thread::yield_now);
            return false;
        }
        let limit = self.ports.sleep_limit(SLEEP);
        if self.has_core() && self.engine.transport().shares_cores() {
            self.waiting.share_cores();
        }
        self.waiting.shares_session = self.engine.transport().shares_session();
        if self.waiting.has_sleeper {
            let there = done(self, Moment::Sleep);
            let alarm = Alarm::word();
            let over = !there && !self.engine.must_poll() && self.asleep(done, &alarm, || alarm.sleep(limit));
            let awake = done(self, Moment::Awake);
            return there || over || awake;
        }
        if self.comms.names.has_foreign() {
            self.reach_awaited();
        }
        let Some(sleep) = self.engine.transport_mut().prepare_sleep(limit) else {
            // Something is arriving that is not complete yet: its sender may wait for this core.
            self.unlocked(std::thread::yield_now);
            return false;
        };
        let there = done(self, Moment::Sleep);
        let over = !there && !self.engine.must_poll() && {
            self.waiting.has_sleeper = true;
            let over = self.asleep(done, &Alarm::Bell(sleep.bell()), || sleep.sleep());
            self.waiting.has_sleeper = false;
            over
        };
        self.engine.transport_mut().wake();
        if self.engine.transport_mut().was_told() {
            self.hear_losses();
        }
        let awake = done(self, Moment::Awake);
        there || over || awake
    }

    /// Sleeps by `body`, without the lock, until the alarm goes off; returns whether another thread has found that the wait has ended.
    #[expect(unsafe_code, reason = "the condition is lent to other threads")]
    fn asleep(&mut self, done: &mut Condition<'_>, alarm: &Alarm, body: impl FnOnce()) -> bool {
        // SAFETY: this thread does not use the condition before it removes it.
        let number = unsafe { self.resting.add(done, alarm.clone()) };
        self.waiting.awake -= 1;
        self.unlocked(body);
        self.waiting.awake += 1;
        self.waiting.slept();
        self.resting.remove(number)
    }
}

/// Finds the sleeping threads whose wait has ended.
fn look_for_all(state: &mut State) {
    // A condition may start what ends another wait, but cannot add a thread.
    let mut resting = std::mem::take(&mut state.resting);
    resting.look(state);
    // A wait whose peer is gone may end only before a sleep: the threads must look for themselves.
    let partings = state.engine.partings();
    if std::mem::replace(&mut state.waiting.partings, partings) != partings {
        resting.wake_all();
    }
    state.resting.leave_woken(&mut resting);
    state.resting = resting;
}

/// How long nothing has moved, in one wait.
#[derive(Debug, Default)]
struct Idle {
    since: Option<Instant>,
    polls: u32,
    elapsed: Duration,
    /// Consecutive yields that returned at once.
    in_vain: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Pause {
    Spin,
    Yield,
    Sleep,
}

impl Idle {
    /// Whether a whole sleep has passed without movement.
    fn is_long(&self) -> bool {
        self.elapsed >= SLEEP
    }

    fn next(&mut self, waiting: &Waiting) -> Pause {
        self.polls += 1;
        if self.polls == 1 && waiting.always_yields() {
            // Most waits end with this turn, without reading the clock.
            return Pause::Yield;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        // Reading the clock costs as much as some polls.
        if self.polls.is_multiple_of(32) || self.elapsed >= waiting.spin {
            self.elapsed = since.elapsed();
        }
        if self.elapsed < waiting.spin {
            Pause::Spin
        } else if self.elapsed < waiting.spin + waiting.yield_for && (waiting.yields_reach() || self.in_vain < IN_VAIN)
        {
            Pause::Yield
        } else {
            Pause::Sleep
        }
    }

    /// Called after a yield. Returns how long it took; `None` if the clock was not read before it.
    fn yielded(&mut self) -> Option<Duration> {
        let before = std::mem::replace(&mut self.elapsed, self.since?.elapsed());
        let took = self.elapsed - before;
        self.in_vain = if took < TURN { self.in_vain + 1 } else { 0 };
        Some(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_polls_then_yields_then_sleeps() {
        let mut waiting = Waiting::default();
        waiting.choose(Some(Duration::from_micros(300)), false);
        let mut idle = Idle::default();
        let mut seen = Vec::new();
        while seen.last() != Some(&Pause::Sleep) {
            let pause = idle.next(&waiting);
            if seen.last() != Some(&pause) {
                seen.push(pause);
            }
        }
        assert_eq!(seen, [Pause::Spin, Pause::Yield, Pause::Sleep]);
        assert!(idle.elapsed >= waiting.spin);
        assert!(idle.in_vain == IN_VAIN || idle.elapsed >= waiting.spin + waiting.yield_for);
    }

    #[test]
    fn a_process_that_shares_its_core_does_not_spin() {
        assert_eq!(Idle::default().next(&Waiting::default()), Pause::Yield);
    }
}
