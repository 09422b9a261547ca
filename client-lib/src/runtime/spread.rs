//! Where the ranks of a node begin if they share cores.
//!
//! A job's ranks start within a millisecond, while launcher and daemon run too, and then sleep and wake each other up until they are
//! connected. The kernel often puts one rank more on a core than on the others meanwhile, and then leaves it there for some tenths of a
//! second, because ranks that yield look busy everywhere: three on one core and one on the other take twice as long for a message as two
//! on each. So for a short time, a rank that waits moves back to a core that follows from its number on the node. It is never bound, and
//! later the kernel moves it as before, except that a rank that has slept returns: the kernel wakes it where its waker runs.
//!
//! A rank that meets a process that computes stays where the kernel puts it.

use std::thread::ThreadId;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// How long the ranks are kept apart: their first messages connect them.
const BEGINNING: Duration = Duration::from_millis(100);

/// A rank looks where it is once in so many yields.
const TURNS: u32 = 32;

/// The core at which a thread begins.
#[derive(Debug)]
pub(super) struct Spread {
    thread: ThreadId,
    /// The end of the beginning; `None` after it.
    until: Option<Instant>,
    core: usize,
    one: CpuSet,
    allowed: CpuSet,
    turns: u32,
}

impl Spread {
    /// Chooses a core for the calling thread, among those that it may use, and moves it there. Threads with consecutive `local` numbers get
    /// different ones. `None` if it is bound to one core.
    pub(super) fn new(local: usize) -> Option<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let core = choose(&allowed, local)?;
        let mut one = CpuSet::new();
        one.set(core).ok()?;
        let (thread, until) = (std::thread::current().id(), Some(Instant::now() + BEGINNING));
        let spread = Self { thread, until, core, one, allowed, turns: 0 };
        spread.go();
        Some(spread)
    }

    /// Called before a yield: in the beginning, moves the thread back now and then.
    #[inline]
    pub(super) fn keep(&mut self) {
        let Some(until) = self.until else { return };
        self.turns += 1;
        if self.turns.is_multiple_of(TURNS) {
            self.go_back();
            self.until = Some(until).filter(|until| Instant::now() < *until);
        }
    }

    /// Moves the thread back if it is on another core.
    pub(super) fn go_back(&self) {
        if sched_getcpu() != Ok(self.core) && std::thread::current().id() == self.thread {
            self.go();
        }
    }

    fn go(&self) {
        let thread = Pid::from_raw(0);
        // The program may have bound the thread meanwhile.
        if sched_getaffinity(thread) == Ok(self.allowed) && sched_setaffinity(thread, &self.one).is_ok() {
            // If this fails, the cpuset of the process has just changed, and the kernel has set the thread's cores.
            let _ = sched_setaffinity(thread, &self.allowed);
        }
    }
}

fn choose(allowed: &CpuSet, local: usize) -> Option<usize> {
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| allowed.is_set(*core) == Ok(true)).collect();
    if cores.len() < 2 { None } else { Some(cores[local % cores.len()]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core).unwrap());
        set
    }

    #[test]
    fn ranks_go_to_the_allowed_cores_in_turn() {
        let allowed = set(&[1, 4, 9]);
        assert_eq!([0, 1, 2, 3, 4].map(|local| choose(&allowed, local)), [1, 4, 9, 1, 4].map(Some));
        assert_eq!(choose(&set(&[3]), 1), None);
        assert_eq!(choose(&set(&[]), 0), None);
    }

    #[test]
    fn a_thread_may_use_the_same_cores_afterwards_and_is_left_alone_when_the_program_binds_it() {
        let cores = || sched_getaffinity(Pid::from_raw(0)).unwrap();
        let before = cores();
        for mut spread in (0..4).filter_map(Spread::new) {
            assert_eq!(cores(), before);
            (0..=TURNS).for_each(|_| spread.keep());
            assert_eq!(cores(), before);
            spread.until = Some(Instant::now());
            (0..=TURNS).for_each(|_| spread.keep());
            assert!(spread.until.is_none(), "the beginning is over");
            sched_setaffinity(Pid::from_raw(0), &spread.one).unwrap();
            spread.go();
            assert_eq!(cores(), spread.one);
            sched_setaffinity(Pid::from_raw(0), &before).unwrap();
        }
    }
}
