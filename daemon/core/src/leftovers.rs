//! How a step ends the processes that its ranks left running: TERM for each process when it is first seen, and KILL for all when
//! the grace has passed, until none is left. A process that starts its successor and ends is looked for after each end, so it is caught
//! sooner or later; processes that the kernel cannot end are left after a time.
//!
//! A step is the subreaper of all processes that its ranks started: when a process ends, its children become the step's children.
//! So each look may find new processes, and the sweep is complete only when a look finds none. The state machine decides about
//! one look at a time. The step's process looks (at once, after every SIGCHLD, and at [`Leftovers::next_deadline`]) and sends the
//! signals.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Now;

/// The usual time between TERM and KILL.
pub const GRACE: Duration = Duration::from_millis(500);
/// The interval between looks. A killed process may take time to end, and its children are visible only after that.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long processes are killed that do not end, or start others.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process id.
pub type Pid = i32;

/// The result of a look: the children that the step's process has not reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// These children exist.
    Children(Vec<Pid>),
    /// No children exist.
    Childless,
    /// The kernel does not report children.
    Unknown,
}

/// An action that follows from a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send TERM, and CONT, because a stopped process handles TERM only when it continues.
    Term(Pid),
    /// Send KILL.
    Kill(Pid),
    /// These children remain: stop looking.
    GiveUp(Vec<Pid>),
    /// No children are left, or none can be found: stop looking.
    Finish,
}

/// The sweep of one step.
#[derive(Debug)]
pub struct Leftovers {
    kill_at: Duration,
    /// When to look again even if no child has ended.
    look_at: Duration,
    termed: BTreeSet<Pid>,
}

impl Leftovers {
    /// Returns a sweep that begins now, with `grace` between TERM and KILL.
    pub fn new(now: Now, grace: Duration) -> Leftovers {
        let kill_at = now.mono + grace;
        Leftovers { kill_at, look_at: kill_at, termed: BTreeSet::new() }
    }

    /// Forgets reaped children: the kernel may give their ids to other processes.
    pub fn collected(&mut self, ended: impl IntoIterator<Item = Pid>) {
        for pid in ended {
            self.termed.remove(&pid);
        }
    }

    /// Handles one look and appends the actions.
    pub fn handle(&mut self, now: Now, look: Look, out: &mut Vec<Action>) {
        let children = match look {
            Look::Children(children) => children,
            Look::Childless | Look::Unknown => return out.push(Action::Finish),
        };
        if self.kill_at + PATIENCE <= now.mono {
            out.push(Action::GiveUp(children));
        } else if self.kill_at <= now.mono {
            self.look_at = now.mono + LOOK_AGAIN;
            out.extend(children.into_iter().map(Action::Kill));
        } else {
            out.extend(children.into_iter().filter(|pid| self.termed.insert(*pid)).map(Action::Term));
        }
    }

    /// Returns the time of the next look at the latest.
    pub fn next_deadline(&self) -> Duration {
        self.look_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(leftovers: &mut Leftovers, at_ms: u64, look: Look) -> Vec<Action> {
        let mut out = Vec::new();
        leftovers.handle(Now { mono: Duration::from_millis(at_ms), unix_ms: 0 }, look, &mut out);
        out
    }

    fn begin() -> Leftovers {
        Leftovers::new(Now { mono: Duration::from_millis(1000), unix_ms: 0 }, Duration::from_millis(500))
    }

    #[test]
    fn each_process_gets_one_term_and_after_the_grace_a_kill() {
        let mut leftovers = begin();
        let children = || Look::Children(vec![7, 8]);
        assert_eq!(look(&mut leftovers, 1000, children()), [Action::Term(7), Action::Term(8)]);
        assert_eq!(look(&mut leftovers, 1400, children()), []);
        assert_eq!(leftovers.next_deadline(), Duration::from_millis(1500));
        assert_eq!(look(&mut leftovers, 1500, children()), [Action::Kill(7), Action::Kill(8)]);
        assert_eq!(leftovers.next_deadline(), Duration::from_millis(1550), "a process may take time to end");
        assert_eq!(look(&mut leftovers, 1550, children()), [Action::Kill(7), Action::Kill(8)]);
    }

    #[test]
    fn processes_that_cannot_be_ended_are_left_after_a_time() {
        let mut leftovers = begin();
        assert_eq!(look(&mut leftovers, 11_499, Look::Children(vec![7])), [Action::Kill(7)]);
        assert_eq!(look(&mut leftovers, 11_500, Look::Children(vec![7, 8])), [Action::GiveUp(vec![7, 8])]);
    }

    #[test]
    fn an_orphan_that_appears_late_gets_its_own_term() {
        let mut leftovers = begin();
        look(&mut leftovers, 1000, Look::Children(vec![7]));
        leftovers.collected([7]);
        assert_eq!(look(&mut leftovers, 1100, Look::Children(vec![9])), [Action::Term(9)]);
        assert_eq!(
            look(&mut leftovers, 1600, Look::Children(vec![10])),
            [Action::Kill(10)],
            "all processes share one grace"
        );
    }

    #[test]
    fn a_process_that_reuses_a_reaped_id_gets_its_own_term() {
        let mut leftovers = begin();
        look(&mut leftovers, 1000, Look::Children(vec![7]));
        leftovers.collected([7]);
        assert_eq!(look(&mut leftovers, 1100, Look::Children(vec![7])), [Action::Term(7)]);
    }

    #[test]
    fn the_sweep_ends_when_no_child_is_left_or_children_cannot_be_listed() {
        assert_eq!(look(&mut begin(), 1000, Look::Childless), [Action::Finish]);
        assert_eq!(look(&mut begin(), 1000, Look::Unknown), [Action::Finish]);
        // Children exist, but the list is empty: a thread ended while the kernel listed them.
        assert_eq!(look(&mut begin(), 1000, Look::Children(Vec::new())), []);
    }
}
