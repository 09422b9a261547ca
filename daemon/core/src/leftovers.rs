//! How a step ends what its ranks left running: TERM for each process when it is first seen, KILL for all when the grace is over,
//! until none is left.
//!
//! A step is the subreaper of all that its ranks started: whenever a process ends, its children become the step's. So each look
//! may find new processes, and no list of them is complete before it is empty. The machine decides about one look at a time;
//! the step's process looks (at once, after every SIGCHLD, and at [`Leftovers::next_deadline`]) and sends the signals.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Now;

/// The usual time between TERM and KILL.
pub const GRACE: Duration = Duration::from_millis(500);
/// A process may not end at once by KILL, and its children are seen only when it has: look again so often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A process id.
pub type Pid = i32;

/// What the step's process sees: every child that it has not collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// These children are there.
    Children(Vec<Pid>),
    /// There is none.
    Childless,
    /// The kernel does not tell.
    Unknown,
}

/// What is to be done about a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send TERM, and let a stopped process continue: it hears TERM only then.
    Term(Pid),
    /// Send KILL.
    Kill(Pid),
    /// Nothing is left, or nothing can be found: stop looking.
    Finish,
}

/// The sweep of one step.
#[derive(Debug)]
pub struct Leftovers {
    kill_at: Duration,
    /// When to look again although no child has ended.
    look_at: Duration,
    termed: BTreeSet<Pid>,
}

impl Leftovers {
    /// A sweep that begins now, with `grace` between TERM and KILL.
    pub fn new(now: Now, grace: Duration) -> Leftovers {
        let kill_at = now.mono + grace;
        Leftovers { kill_at, look_at: kill_at, termed: BTreeSet::new() }
    }

    /// These children were collected: the kernel may give their ids to other processes.
    pub fn collected(&mut self, ended: impl IntoIterator<Item = Pid>) {
        for pid in ended {
            self.termed.remove(&pid);
        }
    }

    /// Takes one look and appends what is to be done about it.
    pub fn handle(&mut self, now: Now, look: Look, out: &mut Vec<Action>) {
        let children = match look {
            Look::Children(children) => children,
            Look::Childless | Look::Unknown => return out.push(Action::Finish),
        };
        if self.kill_at <= now.mono {
            self.look_at = now.mono + LOOK_AGAIN;
            out.extend(children.into_iter().map(Action::Kill));
        } else {
            out.extend(children.into_iter().filter(|pid| self.termed.insert(*pid)).map(Action::Term));
        }
    }

    /// When to look again at the latest.
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
    fn an_orphan_that_appears_late_is_told_as_well() {
        let mut leftovers = begin();
        look(&mut leftovers, 1000, Look::Children(vec![7]));
        leftovers.collected([7]);
        assert_eq!(look(&mut leftovers, 1100, Look::Children(vec![9])), [Action::Term(9)]);
        assert_eq!(
            look(&mut leftovers, 1600, Look::Children(vec![10])),
            [Action::Kill(10)],
            "the grace is one for all"
        );
    }

    #[test]
    fn a_process_with_the_id_of_a_collected_one_is_told_as_well() {
        let mut leftovers = begin();
        look(&mut leftovers, 1000, Look::Children(vec![7]));
        leftovers.collected([7]);
        assert_eq!(look(&mut leftovers, 1100, Look::Children(vec![7])), [Action::Term(7)]);
    }

    #[test]
    fn the_sweep_is_over_when_no_child_is_left_or_the_kernel_does_not_tell() {
        assert_eq!(look(&mut begin(), 1000, Look::Childless), [Action::Finish]);
        assert_eq!(look(&mut begin(), 1000, Look::Unknown), [Action::Finish]);
        // Others run, but have no id yet: a thread that ended while it was looked at.
        assert_eq!(look(&mut begin(), 1000, Look::Children(Vec::new())), []);
    }
}
