//! The numbers of jobs and of their attempts, and what logs say about attempts. `head::retry` starts jobs again.

use rsd_proto::v1::{Attempt, JobEvent, job_event};

use crate::JobId;

/// Where the number of the attempt begins in an id. Ids stay below 2^53, which programs that read JSON as floating-point numbers need.
const ATTEMPT_SHIFT: u32 = 42;

/// The most attempts of a job, besides the first.
pub(crate) const RETRIES_MAX: u32 = 1000;

/// Returns the number of a job, by which users know it.
pub fn number(id: JobId) -> JobId {
    id & ((1 << ATTEMPT_SHIFT) - 1)
}

/// Returns which attempt an id means, from 0.
pub(crate) fn attempt(id: JobId) -> u32 {
    u32::try_from(id >> ATTEMPT_SHIFT).unwrap_or(u32::MAX)
}

/// Returns the id of an attempt of a job.
pub(crate) fn id_of(number: JobId, attempt: u32) -> JobId {
    number | (JobId::from(attempt) << ATTEMPT_SHIFT)
}

/// A job that has failed, and starts again as soon as its log has that.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) ended: Attempt,
    /// Whether it was cancelled in the meantime.
    pub(crate) cancelled: Option<String>,
}

/// Returns the events of a log that are about one attempt.
pub(crate) fn events_of(events: &[JobEvent], attempt: u32) -> &[JobEvent] {
    let next = |event: &JobEvent| match &event.body {
        Some(job_event::Body::Requeued(requeued)) => Some(requeued.next),
        Some(_) | None => None,
    };
    let begin = events.iter().rposition(|event| next(event) == Some(attempt)).map_or(0, |at| at + 1);
    let rest = &events[begin..];
    let end = rest.iter().position(|event| next(event).is_some_and(|next| next > attempt)).unwrap_or(rest.len());
    &rest[..end]
}

/// Returns the failure of an attempt, if a log has it: the job starts again.
pub(crate) fn failure_of(events: &[JobEvent], attempt: u32) -> Option<Attempt> {
    events.iter().find_map(|event| match &event.body {
        Some(job_event::Body::Requeued(requeued)) if requeued.next > attempt => requeued.ended.clone(),
        Some(_) | None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_number_and_an_attempt() {
        for (number_, attempt_) in [(1, 0), (12, 1), ((1 << ATTEMPT_SHIFT) - 1, RETRIES_MAX)] {
            let id = id_of(number_, attempt_);
            assert_eq!((number(id), attempt(id)), (number_, attempt_));
            assert!(id < 1 << 53);
        }
    }

    #[test]
    fn a_log_is_divided_into_attempts() {
        let event = |body| JobEvent { body: Some(body), ..JobEvent::default() };
        let requeued = |next| {
            let ended = Some(Attempt { attempt: next - 1, ..Attempt::default() });
            event(job_event::Body::Requeued(job_event::Requeued { next, ended, ..Default::default() }))
        };
        let told = |text: &str| event(job_event::Body::Notice(text.into()));
        let events = [told("a"), requeued(1), told("b"), told("c"), requeued(2)];
        assert_eq!(events_of(&events, 0), &events[..1]);
        assert_eq!(events_of(&events, 1), &events[2..4]);
        assert_eq!(events_of(&events, 2), &[]);
        assert_eq!(failure_of(&events, 1).map(|ended| ended.attempt), Some(1));
        assert!(failure_of(&events, 2).is_none() && failure_of(&events[..1], 0).is_none());
    }
}
