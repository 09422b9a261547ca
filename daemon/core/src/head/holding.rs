//! Jobs that wait because their users want it: held until they are released, or in the queue only for so long.

use std::time::Duration;

use super::life::Life;
use super::{Due, Head};
use crate::between::{Order, Outputs};
use crate::calls::{Refused, exit};
use crate::{JobId, Now};

/// Why a held job waits.
pub(super) const HELD: &str = "it is held: rsctl release starts it";

impl Head {
    /// Begins a queued job's wait: for slots, unless it is held, and for its deadline. To be called after a restart, too.
    pub(super) fn begin_waiting(&mut self, now: Now, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let (submitted_ms, _) = job.lifetime();
        let Some(pending) = job.pending_mut() else { return };
        if !pending.spec.hold {
            self.queue.push(id, pending.spec.oversubscribe);
        }
        if pending.spec.queue_deadline_ms > 0 {
            let waited_ms = now.unix_ms.saturating_sub(submitted_ms);
            let left = Duration::from_millis(pending.spec.queue_deadline_ms.saturating_sub(waited_ms));
            if let Some(at) = now.mono.checked_add(left) {
                self.timers.set(Due::Job(id), at);
            }
        }
    }

    /// Fails a job that has waited for its placement as long as its user allows.
    pub(super) fn on_waited_enough(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(pending) = self.jobs.get_mut(id).and_then(super::job::Job::pending_mut) else { return };
        let waited = Duration::from_millis(pending.spec.queue_deadline_ms);
        let why =
            format!("it was not placed within {waited:?} (--queue-deadline); it waited because: {}", pending.reason);
        self.fail_unplaced(now, id, why, out);
    }

    /// Lets a held job start when there is room.
    pub(super) fn release(&mut self, id: JobId) -> Result<(), Refused> {
        let Some(job) = self.jobs.get_mut(id) else { return Ok(()) };
        let refused = |text: String| Err(Refused::new(exit::USAGE, text));
        match job.life() {
            Life::Queued(pending) if pending.spec.hold => {}
            Life::Queued(_) => return refused(format!("job {id} is not held: it waits for room")),
            Life::Running { .. } | Life::Ending { .. } | Life::Outlived { .. } => {
                return refused(format!("job {id} is not held: it has been started"));
            }
            Life::Ended(_) => return refused(format!("job {id} has ended")),
        }
        let Some(pending) = job.pending_mut() else { return Ok(()) };
        pending.spec.hold = false;
        pending.reason = "it was released a moment ago".to_owned();
        self.queue.push(id, pending.spec.oversubscribe);
        self.queue.try_again = true;
        self.keep_job(id);
        Ok(())
    }
}
