//! The state of a process's waits ([`super::wait`]).
//!
//! A rank polls for a while before it yields its core. How long it should poll depends on which other processes need the core. MPI may know
//! of none, and there is one nevertheless: several daemons run on one machine, or containers share it. So each yield is an observation. If it
//! returned at once, the core was free, and longer polling has no cost. If another process ran and gave the core back soon, that process waits
//! as this one does, and the core should go from one to the other without polling. If it ran for long, it computes: a yield to it costs more
//! than polling.

use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use super::resting::Resting;
use super::spread::Spread;

/// How calls of this process wait.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The time to poll without yielding.
    pub(super) spin: Duration,
    /// The longest that [`Waiting::observe`] lets it become; zero if it does not change.
    most: Duration,
    /// Consecutive yields that returned at once.
    alone: u32,
    /// Consecutive waits whose yields all returned at once.
    quiet: u32,
    /// How often a yield has given the core to a process that computes.
    long_turns: u32,
    /// The user has set it.
    pub(super) is_set: bool,
    /// The time to yield between polls after that.
    pub(super) yield_for: Duration,
    /// Whether a thread sleeps on the descriptors.
    pub(super) has_sleeper: bool,
    /// How many threads make progress while they wait, without those that sleep; the background thread counts while it serves.
    pub(super) awake: u32,
    /// How many cores this process may use.
    pub(super) cores: u32,
    /// The losses and farewells of peers that the sleeping threads know of.
    pub(super) partings: u64,
    /// How many requests had ended when it was last found out whose waits had ended.
    pub(super) reported: u64,
    /// Whether the other ranks of this node belong to the session of this process.
    pub(super) shares_session: bool,
    /// How often a thread has slept.
    pub(super) sleeps: u64,
    /// Where this process begins, if it shares its core.
    pub(super) spread: Option<Box<Spread>>,
    /// The number by which it goes there when it turns out that it shares its core: its rank, if no other rank is on its node as far as MPI
    /// knows.
    pub(super) number: Option<usize>,
}

impl Waiting {
    /// Chooses by the user's setting, or by whether ranks share cores.
    pub(super) fn choose(&mut self, spin: Option<Duration>, oversubscribed: bool) {
        self.is_set = spin.is_some();
        self.most = if oversubscribed || self.is_set { Duration::ZERO } else { SPIN };
        self.spin = spin.unwrap_or(self.most.min(FIRST));
    }

    /// The launcher says that ranks of the job share cores, perhaps those of this process: a few yields suffice to show it.
    pub(super) fn expect_sharing(&mut self) {
        if !self.is_set {
            self.spin = self.spin.min(4 * LEAST);
        }
    }

    /// Called by the first thread, before the program may bind others.
    pub(super) fn count_cores(&mut self) {
        let allowed = sched_getaffinity(Pid::from_raw(0));
        let count = |allowed: CpuSet| (0..CpuSet::count()).filter(|core| allowed.is_set(*core) == Ok(true)).count();
        // Of more cores than the set has room for, there are enough.
        self.cores = allowed.ok().and_then(|allowed| u32::try_from(count(allowed)).ok()).unwrap_or(u32::MAX);
    }

    /// Called after a yield that took this long.
    pub(super) fn observe(&mut self, took: Duration) {
        let is_long = took >= LONG_TURN;
        self.long_turns = self.long_turns.saturating_add(u32::from(is_long));
        if is_long && self.long_turns == TOO_MANY {
            (self.spread, self.number) = (None, None);
        }
        if self.most.is_zero() {
            return;
        }
        (self.alone, self.quiet) = if took < TURN { (self.alone + 1, self.quiet) } else { (0, 0) };
        if is_long {
            self.spin = self.spin.max(FIRST);
        } else if self.alone == MANY {
            self.poll_longer();
        } else if took >= TURN {
            self.spin = Some(self.spin / 2).filter(|half| *half >= LEAST).unwrap_or_default();
            if self.spin.is_zero() {
                // Most likely the ranks of several nodes are on one machine.
                self.spread = self.spread.take().or_else(|| self.number.take().and_then(Spread::new).map(Box::new));
            }
        }
    }

    /// Called after a wait in which yields returned at once: what it waited for came from another core, meanwhile.
    pub(super) fn ended_elsewhere(&mut self) {
        if self.most.is_zero() {
            return;
        }
        self.quiet += 1;
        if self.quiet == QUIET {
            self.poll_longer();
        }
    }

    fn poll_longer(&mut self) {
        (self.alone, self.quiet) = (0, 0);
        self.spin = (self.spin * 2).max(LEAST).min(self.most);
    }

    /// Whether every wait begins with a yield, whatever yields show.
    pub(super) fn always_yields(&self) -> bool {
        self.spin.is_zero() && self.most.is_zero()
    }

    /// Whether yields give the core to the processes that this one waits for, as far as it knows.
    pub(super) fn yields_reach(&self) -> bool {
        self.shares_session || (self.spin.is_zero() && !self.most.is_zero())
    }

    /// Whether threads of this process that are in the library have no core: more are awake than there are cores, or the wait of one has ended that
    /// has not noticed it yet.
    pub(super) fn lacks_cores<S>(&self, resting: &Resting<S>) -> bool {
        self.awake > self.cores || resting.has_over()
    }

    /// Called before a yield.
    #[inline]
    pub(super) fn keep_apart(&mut self) {
        if let Some(spread) = &mut self.spread {
            spread.keep();
        }
    }

    /// Called after a sleep.
    pub(super) fn slept(&mut self) {
        self.sleeps += 1;
        if let Some(spread) = &self.spread {
            spread.go_back();
        }
    }

    /// It has turned out that ranks share cores.
    pub(super) fn share_cores(&mut self) {
        self.most = Duration::ZERO;
        if !self.is_set {
            self.spin = Duration::ZERO;
        }
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            spin: Duration::ZERO,
            most: Duration::ZERO,
            alone: 0,
            quiet: 0,
            long_turns: 0,
            is_set: false,
            yield_for: YIELD,
            has_sleeper: false,
            awake: 0,
            cores: 1,
            partings: 0,
            reported: 0,
            shares_session: false,
            sleeps: 0,
            spread: None,
            number: None,
        }
    }
}

/// The polling time of a rank with a core of its own: waking up costs some microseconds, and work between messages
/// rarely takes a millisecond.
const SPIN: Duration = Duration::from_millis(1);

/// The polling time at first: ranks that share cores without knowing it would lose a whole `SPIN` to each other at every turn.
const FIRST: Duration = Duration::from_micros(200);

/// Less than this does not count as polling.
const LEAST: Duration = Duration::from_micros(5);

/// A process that gets the core by a yield keeps it longer than this.
pub(super) const TURN: Duration = Duration::from_micros(2);

/// One that keeps it longer than this computes: it gives the core back only when the kernel takes it, at the next tick at the earliest. Yields
/// to it cost more than they gain.
const LONG_TURN: Duration = Duration::from_micros(900);

/// After so many of them, this process stays where the kernel puts it. Some are usual while a job starts.
const TOO_MANY: u32 = 16;

/// So many yields in vain, one after the other, double the polling time.
const MANY: u32 = 256;

/// So many waits that ended although yields were in vain, one after the other, double it too: after a daemon or another program has needed the core
/// for some moments, short waits would yield hundreds of times before their number showed that it is free.
const QUIET: u32 = 8;

/// The time that a rank that shares its core polls and yields before it sleeps: waking a sleeper costs more than a turn
/// of the scheduler, unless many ranks wait for a distant event.
const YIELD: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    fn chosen(spin: Option<Duration>, oversubscribed: bool) -> Waiting {
        let mut waiting = Waiting::default();
        waiting.choose(spin, oversubscribed);
        waiting
    }

    fn observed(mut waiting: Waiting, yields: &[(u32, Duration)]) -> Duration {
        for (times, took) in yields {
            (0..*times).for_each(|_| waiting.observe(*took));
        }
        waiting.spin
    }

    #[test]
    fn a_core_that_others_give_back_soon_is_yielded_at_once() {
        assert_eq!(observed(chosen(None, false), &[(6, us(202))]), Duration::ZERO);
        assert_eq!(observed(chosen(None, false), &[(1, us(3))]), FIRST / 2);
    }

    #[test]
    fn a_core_that_nobody_wants_is_polled_on_for_longer_and_longer() {
        assert_eq!(observed(chosen(None, false), &[(MANY * 10, us(0))]), SPIN);
        assert_eq!(observed(chosen(None, false), &[(10, us(5)), (MANY, us(0))]), LEAST);
        assert_eq!(observed(chosen(None, false), &[(10, us(5)), (MANY * 20, us(1))]), SPIN);
        // The yields in vain must be consecutive.
        let mixed = [(MANY - 1, us(0)), (1, us(5))];
        assert_eq!(observed(chosen(None, false), &[mixed; 9].concat()), Duration::ZERO);
    }

    #[test]
    fn one_that_computes_is_no_reason_to_yield() {
        assert_eq!(observed(chosen(None, false), &[(100, us(4000))]), FIRST);
        assert_eq!(observed(chosen(None, false), &[(6, us(5)), (1, us(4000))]), FIRST);
    }

    #[test]
    fn a_few_waits_that_end_on_their_own_show_that_the_core_is_free() {
        let waits = |mut waiting: Waiting, number: u32| {
            for _ in 0..number {
                waiting.observe(us(1));
                waiting.ended_elsewhere();
            }
            waiting
        };
        let mut disturbed = chosen(None, false);
        (0..6).for_each(|_| disturbed.observe(us(50)));
        assert_eq!(disturbed.spin, Duration::ZERO);
        let disturbed = waits(disturbed, QUIET - 1);
        assert_eq!(disturbed.spin, Duration::ZERO);
        let mut found = waits(disturbed, 1);
        assert_eq!(found.spin, LEAST);
        // The waits must be consecutive.
        for _ in 0..10 {
            found = waits(found, QUIET - 1);
            found.observe(us(50));
        }
        assert_eq!(found.spin, Duration::ZERO);
        assert_eq!(waits(found, QUIET * 20).spin, SPIN);
        // What is known, and what the user has set, does not change.
        assert_eq!(waits(chosen(None, true), QUIET * 20).spin, Duration::ZERO);
        assert_eq!(waits(chosen(Some(us(77)), false), QUIET * 20).spin, us(77));
    }

    #[test]
    fn ranks_that_are_known_to_share_cores_and_users_who_set_the_time_are_obeyed() {
        assert_eq!(observed(chosen(None, true), &[(MANY * 20, us(0))]), Duration::ZERO);
        let mut found = chosen(None, false);
        found.share_cores();
        assert_eq!(observed(found, &[(MANY * 20, us(0))]), Duration::ZERO);
        for yields in [(MANY * 20, us(0)), (20, us(5))] {
            assert_eq!(observed(chosen(Some(us(77)), false), &[yields]), us(77));
        }
    }

    #[test]
    fn ranks_that_the_launcher_expects_to_share_cores_poll_for_a_short_time_until_yields_show_what_is_true() {
        let expecting = |spin| {
            let mut waiting = chosen(spin, false);
            waiting.expect_sharing();
            waiting
        };
        assert_eq!(observed(expecting(None), &[]), 4 * LEAST);
        assert_eq!(observed(expecting(None), &[(3, us(5))]), Duration::ZERO);
        assert_eq!(observed(expecting(None), &[(MANY, us(0))]), 8 * LEAST);
        assert_eq!(observed(expecting(None), &[(MANY * 20, us(0))]), SPIN);
        assert_eq!(observed(expecting(Some(us(77))), &[(10, us(5))]), us(77));
    }
}
