//! Jobs that wait because their users want it: held until they are released, behind others by priority, or in the queue only for so long.

use std::time::Duration;

use super::job::Job;
use super::life::Life;
use super::{Due, Head};
use crate::between::{Order, Outputs};
use crate::calls::{Caller, Refused, exit};
use crate::{JobId, Now};

/// Why a held job waits.
pub(super) const HELD: &str = "it is held: rsctl release starts it";

/// The largest priority, and the smallest below 0.
const PRIORITY_MAX: i32 = 1_000_000;

impl Head {
    /// Begins a queued job's wait: for slots, unless it is held, and for its deadline. To be called after a restart, too.
    pub(super) fn begin_waiting(&mut self, now: Now, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let (submitted_ms, _) = job.lifetime();
        let Some(pending) = job.pending_mut() else { return };
        let is_held = pending.spec.hold;
        if pending.spec.queue_deadline_ms > 0 {
            let waited_ms = now.unix_ms.saturating_sub(submitted_ms);
            let left = Duration::from_millis(pending.spec.queue_deadline_ms.saturating_sub(waited_ms));
            if let Some(at) = now.mono.checked_add(left) {
                self.timers.set(Due::Job(id), at);
            }
        }
        if !self.begin_after(id) && !is_held {
            self.enqueue(id);
        }
    }

    /// Fails a job that has waited for its placement as long as its user allows.
    pub(super) fn on_waited_enough(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.array.as_ref().is_some_and(|array| array.has_started()) {
            return; // the deadline is for the first element
        }
        let Some(pending) = job.pending_mut() else { return };
        let waited = Duration::from_millis(pending.spec.queue_deadline_ms);
        let why =
            format!("it was not placed within {waited:?} (--queue-deadline); it waited because: {}", pending.reason);
        self.fail_unplaced(now, id, why, out);
    }

    /// Lets a held job start when there is room.
    pub(super) fn release(&mut self, id: JobId) -> Result<(), Refused> {
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let number = job.number();
        let has_held = job.array.as_ref().is_some_and(|array| array.info(false).held > 0);
        let refused = |text: String| Err(Refused::new(exit::USAGE, text));
        match job.life() {
            Life::Queued(pending) if pending.spec.hold || has_held => {}
            Life::Queued(_) => {
                return refused(format!("job {number} is not held: rsctl why {number} says why it waits"));
            }
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } => {
                return refused(format!("job {number} is not held: it has been started"));
            }
            Life::Ended(_) => return refused(format!("job {number} has ended")),
        }
        let Some(pending) = job.pending_mut() else { return Ok(()) };
        pending.spec.hold = false;
        self.release_all(id);
        self.go_on_waiting(id);
        self.keep_job(id);
        Ok(())
    }

    /// Holds a queued job, or what has not started of an array.
    pub(super) fn hold(&mut self, id: JobId) -> Result<(), Refused> {
        self.check_queued(id, "can be held")?;
        self.queue.remove(id);
        if let Some(pending) = self.jobs.get_mut(id).and_then(Job::pending_mut) {
            pending.spec.hold = true;
            pending.reason = HELD.to_owned();
        }
        self.queue.try_again = true;
        self.keep_job(id);
        Ok(())
    }

    /// Changes the priority of a queued job.
    pub(super) fn set_priority(&mut self, caller: Caller, id: JobId, priority: i32) -> Result<(), Refused> {
        self.check_priority(caller, priority)?;
        self.check_queued(id, "can change its priority")?;
        if let Some(job) = self.jobs.get_mut(id) {
            job.set_priority(priority);
        }
        if self.queue.contains(id) {
            self.enqueue(id);
        }
        self.keep_job(id);
        Ok(())
    }

    fn check_queued(&self, id: JobId, may: &str) -> Result<(), Refused> {
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        let number = job.number();
        let why = match job.life() {
            Life::Queued(_) => return Ok(()),
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } => "it has been started",
            Life::Ended(_) => "it has ended",
        };
        Err(Refused::new(exit::USAGE, format!("only a queued job {may}; job {number}: {why}")))
    }

    /// Refuses a priority that the caller may not ask for. Above 0, a job would overtake those of others.
    pub(super) fn check_priority(&self, caller: Caller, priority: i32) -> Result<(), Refused> {
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority) {
            let text = format!("priority {priority}: the range is -{PRIORITY_MAX} to {PRIORITY_MAX}");
            return Err(Refused::new(exit::USAGE, text));
        }
        match priority <= 0 || caller.is_admin {
            true => Ok(()),
            false => {
                let text = format!(
                    "priority {priority}: only root may raise the priority of jobs above 0 in a DVM that serves all users; you may lower \
                     it, so that your other jobs come first"
                );
                Err(Refused::new(exit::NOT_PERMITTED, text))
            }
        }
    }
}
