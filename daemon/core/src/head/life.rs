//! The life of a job: one table of states, events and transitions. Nothing else changes a job's state.
//!
//! ```text
//!             Launched              Killed                RanksEnded
//!   Queued ────────────▶ Running ───────────▶ Ending ───────────────────┐
//!     │                     │                    │ RanksEnded           │
//!     │ Killed, Unplaceable │ RanksEnded         ▼ (its family lives)   ▼
//!     │                     ├───────────────▶ Outlived ─────────────▶ Ended
//!     │                     │ (family lives)        FamilyEnded         ▲
//!     └─────────────────────┴───────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1::{self as wire, JobSpec, JobState};

use crate::NodeId;
use crate::outbox::Inbox;
use crate::place;

/// The state of a job, with the data that exists only in that state.
#[derive(Debug)]
pub(super) enum Life {
    /// The job waits for its placement.
    Queued(Box<Pending>),
    /// The ranks have been launched. `until`: the job's time limit.
    Running { active: Box<Active>, until: Option<Duration> },
    /// The ranks have been ordered to end. Nodes that have not reported by `until` are given up.
    Ending { active: Box<Active>, why: Why, until: Duration, kill: wire::Kill },
    /// The job's own ranks have ended; jobs that they spawned have not. `until`: the job's time limit.
    Outlived { why: Option<Why>, until: Option<Duration>, active: Box<Active> },
    /// The job has ended.
    Ended(JobState),
}

/// The data of a queued job.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) spec: JobSpec,
    /// The placement request of the specification, parsed once.
    pub(super) wanted: place::Request,
    /// 32 random bytes for its ranks.
    pub(super) secret: Bytes,
    /// The initial contents of the KVS.
    pub(super) preput: Vec<wire::Kv>,
    /// Why the job waits, in one line.
    pub(super) reason: String,
}

/// The data of a job whose ranks may be running.
#[derive(Debug)]
pub(super) struct Active {
    /// The launch, kept for nodes that missed it.
    pub(super) launch: wire::Launch,
    /// How much output of each node has arrived.
    pub(super) output: BTreeMap<NodeId, Inbox>,
    /// How much output of each node is in the file of the job's own log, and in that of its family's root.
    pub(super) logged: BTreeMap<NodeId, [u64; 2]>,
    /// For an epoch: the members' tokens, by rank.
    pub(super) members: Vec<String>,
    pub(super) held: Held,
}

/// The resources that a job holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// How many slots of which nodes.
    pub(super) slots: Vec<(NodeId, u32)>,
    /// Whether the threads of its ranks are theirs alone. GPUs always are.
    pub(super) exclusive: bool,
    /// What each rank holds of its node's stocks, and the job of the DVM's.
    pub(super) needs: Vec<(String, u64)>,
}

/// Why a job is being ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Failed,
    Cancelled,
    TimedOut,
}

/// An event in a job's life.
#[derive(Debug)]
pub(super) enum Event {
    /// The job has been placed, and its launch is sent.
    Launched { active: Box<Active>, until: Option<Duration> },
    /// The job can never be placed.
    Unplaceable,
    /// The job must end. Nodes have until `until` to report that its ranks have ended.
    Killed { why: Why, until: Duration, kill: wire::Kill },
    /// All ranks have ended. `failed`: an exit fails the job.
    RanksEnded { family_lives: bool, failed: bool },
    /// The last element of an array has ended; an array has no ranks, and stays queued until then.
    ArrayEnded { state: JobState },
    /// The last job that its ranks spawned has ended. `failed`: this job or one of those has failed.
    FamilyEnded { failed: bool },
}

impl Life {
    /// Returns the state that follows, or `Err` with the same state if the event changes nothing.
    pub(super) fn next(self, event: Event) -> Result<Life, Life> {
        match (self, event) {
            (Life::Queued(_), Event::Launched { active, until }) => Ok(Life::Running { active, until }),
            (Life::Queued(_), Event::Unplaceable) => Ok(Life::Ended(JobState::Failed)),
            (Life::Queued(_), Event::Killed { why, .. }) => Ok(Life::Ended(verdict(Some(why), true))),
            (Life::Queued(_), Event::ArrayEnded { state }) => Ok(Life::Ended(state)),
            (queued @ Life::Queued(_), Event::RanksEnded { .. } | Event::FamilyEnded { .. }) => Err(queued),

            (Life::Running { active, .. }, Event::Killed { why, until, kill }) => {
                Ok(Life::Ending { active, why, until, kill })
            }
            (Life::Running { until, active }, Event::RanksEnded { family_lives: true, .. }) => {
                Ok(Life::Outlived { why: None, until, active })
            }
            (Life::Running { .. }, Event::RanksEnded { family_lives: false, failed }) => {
                Ok(Life::Ended(verdict(None, failed)))
            }
            (
                running @ Life::Running { .. },
                Event::Launched { .. } | Event::Unplaceable | Event::ArrayEnded { .. } | Event::FamilyEnded { .. },
            ) => Err(running),

            // A later kill can only shorten the grace.
            (Life::Ending { active, why, until: before, .. }, Event::Killed { until, kill, .. }) if until < before => {
                Ok(Life::Ending { active, why, until, kill })
            }
            (Life::Ending { why, active, .. }, Event::RanksEnded { family_lives: true, .. }) => {
                Ok(Life::Outlived { why: Some(why), until: None, active })
            }
            (Life::Ending { why, .. }, Event::RanksEnded { family_lives: false, failed }) => {
                Ok(Life::Ended(verdict(Some(why), failed)))
            }
            (
                ending @ Life::Ending { .. },
                Event::Launched { .. }
                | Event::Unplaceable
                | Event::Killed { .. }
                | Event::ArrayEnded { .. }
                | Event::FamilyEnded { .. },
            ) => Err(ending),

            // The spawned jobs may not have received the new deadline yet.
            (Life::Outlived { why: before, active, .. }, Event::Killed { why, .. }) => {
                Ok(Life::Outlived { why: before.or(Some(why)), until: None, active })
            }
            (Life::Outlived { why, .. }, Event::FamilyEnded { failed }) => Ok(Life::Ended(verdict(why, failed))),
            (
                outlived @ Life::Outlived { .. },
                Event::Launched { .. } | Event::Unplaceable | Event::ArrayEnded { .. } | Event::RanksEnded { .. },
            ) => Err(outlived),

            (
                ended @ Life::Ended(_),
                Event::Launched { .. }
                | Event::Unplaceable
                | Event::Killed { .. }
                | Event::ArrayEnded { .. }
                | Event::RanksEnded { .. }
                | Event::FamilyEnded { .. },
            ) => Err(ended),
        }
    }

    /// Returns the time at which the state must be left at the latest.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Life::Running { until, .. } | Life::Outlived { until, .. } => *until,
            Life::Ending { until, .. } => Some(*until),
            Life::Queued(_) | Life::Ended(_) => None,
        }
    }

    /// Returns the data that exists while ranks may be running.
    pub(super) fn active(&self) -> Option<&Active> {
        match self {
            Life::Running { active, .. } | Life::Ending { active, .. } => Some(active),
            Life::Queued(_) | Life::Outlived { .. } | Life::Ended(_) => None,
        }
    }

    pub(super) fn active_mut(&mut self) -> Option<&mut Active> {
        match self {
            Life::Running { active, .. } | Life::Ending { active, .. } => Some(active),
            Life::Queued(_) | Life::Outlived { .. } | Life::Ended(_) => None,
        }
    }

    /// Returns the state that users see.
    pub(super) fn state(&self) -> JobState {
        match self {
            Life::Queued(_) => JobState::Queued,
            Life::Running { .. } | Life::Outlived { why: None, .. } => JobState::Running,
            Life::Ending { .. } | Life::Outlived { why: Some(_), .. } => JobState::Ending,
            Life::Ended(state) => *state,
        }
    }
}

impl Why {
    /// Returns the reason that this final state shows.
    pub(super) fn of(state: JobState) -> Option<Why> {
        match state {
            JobState::Failed => Some(Why::Failed),
            JobState::Cancelled => Some(Why::Cancelled),
            JobState::TimedOut => Some(Why::TimedOut),
            JobState::Unknown | JobState::Queued | JobState::Running | JobState::Ending | JobState::Done => None,
        }
    }
}

impl From<Why> for JobState {
    fn from(why: Why) -> JobState {
        match why {
            Why::Failed => JobState::Failed,
            Why::Cancelled => JobState::Cancelled,
            Why::TimedOut => JobState::TimedOut,
        }
    }
}

/// Returns the state in which a job ends.
fn verdict(why: Option<Why>, failed: bool) -> JobState {
    match (why, failed) {
        (Some(why @ (Why::Cancelled | Why::TimedOut)), _) => why.into(),
        (Some(Why::Failed) | None, true) => JobState::Failed,
        (Some(Why::Failed) | None, false) => JobState::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);
    const LATER: Duration = Duration::from_secs(9);

    fn active() -> Box<Active> {
        let held = Held::default();
        let (launch, output, logged) = (wire::Launch::default(), BTreeMap::new(), BTreeMap::new());
        Box::new(Active { launch, output, logged, members: Vec::new(), held })
    }

    fn killed(why: Why, until: Duration) -> Event {
        Event::Killed { why, until, kill: wire::Kill::default() }
    }

    fn after(life: Life, event: Event) -> (bool, JobState, Option<Duration>) {
        let (moved, life) = match life.next(event) {
            Ok(life) => (true, life),
            Err(life) => (false, life),
        };
        (moved, life.state(), life.deadline())
    }

    #[test]
    fn a_later_kill_can_only_shorten_the_remaining_time() {
        let ending = |until| Life::Ending { active: active(), why: Why::Failed, until, kill: wire::Kill::default() };
        let running = Life::Running { active: active(), until: None };
        assert_eq!(after(running, killed(Why::TimedOut, LATER)), (true, JobState::Ending, Some(LATER)));
        assert_eq!(after(ending(LATER), killed(Why::Cancelled, SOON)), (true, JobState::Ending, Some(SOON)));
        assert_eq!(after(ending(SOON), killed(Why::Cancelled, LATER)), (false, JobState::Ending, Some(SOON)));
    }

    #[test]
    fn the_first_reason_to_end_decides_the_verdict() {
        let ended = |why, failed| {
            let outlived = Life::Outlived { why, until: Some(LATER), active: active() };
            after(outlived, Event::FamilyEnded { failed }).1
        };
        assert_eq!(ended(None, false), JobState::Done);
        assert_eq!(ended(None, true), JobState::Failed);
        assert_eq!(ended(Some(Why::Failed), true), JobState::Failed);
        assert_eq!(ended(Some(Why::Cancelled), true), JobState::Cancelled);
        let twice = Life::Outlived { why: Some(Why::TimedOut), until: None, active: active() }
            .next(killed(Why::Cancelled, SOON));
        assert_eq!(
            after(twice.expect("a second event is accepted"), Event::FamilyEnded { failed: false }).1,
            JobState::TimedOut
        );
    }

    #[test]
    fn an_outlived_job_keeps_its_time_limit_and_an_ended_job_never_changes() {
        let running = Life::Running { active: active(), until: Some(LATER) };
        let gone = Event::RanksEnded { family_lives: true, failed: false };
        assert_eq!(after(running, gone), (true, JobState::Running, Some(LATER)));
        let launched = Event::Launched { active: active(), until: None };
        assert_eq!(after(Life::Ended(JobState::Done), launched), (false, JobState::Done, None));
        let killed = killed(Why::Failed, SOON);
        assert_eq!(after(Life::Ended(JobState::Done), killed), (false, JobState::Done, None));
    }
}
