//! Requests of steps that the head must perform only once. A step keeps a request until it is answered, and repeats it after a
//! cut link, perhaps through another daemon. The head keeps each answer until the step confirms it, and repeats it for a repeated
//! request.

use std::collections::BTreeMap;

use rsd_proto::v1::{self as wire, down};

use crate::{JobId, NodeId};

/// The most requests of a step of which the head keeps the answers. A step confirms them in order, so it has more only while one request
/// takes very long, or if it is a user's own program.
const OPEN_MAX: usize = 1 << 16;

/// All requests, by step.
#[derive(Debug, Default)]
pub(super) struct Questions(BTreeMap<(JobId, NodeId), OfStep>);

/// The requests of one step.
#[derive(Debug, Default)]
struct OfStep {
    /// All requests with a smaller number are confirmed.
    open_from: u64,
    /// The answers by number; None: in progress.
    known: BTreeMap<u64, Option<down::Body>>,
}

/// The state of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Question {
    /// The request is new: perform it, and answer with [`Questions::answer`].
    New,
    /// The request is a repeat; the step may have missed this answer.
    Answered(down::Body),
    /// The request is a repeat, and is in progress or confirmed.
    Settled,
}

impl Questions {
    /// Takes in a request of a step, which has the answers of all requests before `open_from`.
    pub(super) fn ask(&mut self, job: JobId, node: NodeId, call: u64, open_from: u64) -> Question {
        let step = self.0.entry((job, node)).or_default();
        if open_from > step.open_from {
            step.open_from = open_from;
            step.known = step.known.split_off(&open_from);
        }
        if call < step.open_from {
            return Question::Settled;
        }
        match step.known.get(&call) {
            Some(Some(answer)) => Question::Answered(answer.clone()),
            Some(None) => Question::Settled,
            None if step.known.len() >= OPEN_MAX => Question::Settled,
            None => {
                step.known.insert(call, None);
                Question::New
            }
        }
    }

    /// Keeps the answer to a new request.
    pub(super) fn answer(&mut self, job: JobId, node: NodeId, call: u64, answer: down::Body) {
        if let Some(kept) = self.0.get_mut(&(job, node)).and_then(|step| step.known.get_mut(&call)) {
            *kept = Some(answer);
        }
    }

    /// Restores an answer that was given before a restart and is unconfirmed.
    pub(super) fn restore(&mut self, answer: wire::NameResult) {
        let step = self.0.entry((answer.job, answer.node)).or_default();
        step.known.insert(answer.call, Some(down::Body::NameResult(answer)));
    }

    /// Returns the unconfirmed answers about names.
    pub(super) fn names_answered(&self) -> impl Iterator<Item = wire::NameResult> {
        self.0.values().flat_map(|step| step.known.values()).filter_map(|answer| match answer {
            Some(down::Body::NameResult(answer)) => Some(answer.clone()),
            Some(_) | None => None,
        })
    }

    /// Forgets a job that has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        for _ in self.0.extract_if((job, NodeId::MIN)..=(job, NodeId::MAX), |_, _| true) {}
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> {
        self.0.keys().map(|(job, node)| format!("requests of job {job} on node {node}"))
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::Resync;

    use super::*;

    const ANSWER: down::Body = down::Body::Resync(Resync {});

    #[test]
    fn a_request_is_performed_once_and_answered_until_the_step_confirms() {
        let mut questions = Questions::default();
        assert_eq!(questions.ask(1, 7, 0, 0), Question::New);
        assert_eq!(questions.ask(1, 7, 0, 0), Question::Settled, "the request is in progress");
        assert_eq!(questions.ask(1, 7, 1, 0), Question::New, "another rank of the node asks");
        questions.answer(1, 7, 0, ANSWER);
        assert_eq!(questions.ask(1, 7, 0, 0), Question::Answered(ANSWER));
        assert_eq!(questions.ask(1, 7, 2, 1), Question::New, "the step has the first answer");
        assert_eq!(questions.ask(1, 7, 0, 0), Question::Settled, "a repeat that arrives late");
        assert_eq!(questions.ask(1, 8, 0, 0), Question::New, "the numbers of another node are independent");
        questions.forget(1);
        assert_eq!(questions.leftovers().count(), 0);
    }

    #[test]
    fn the_unconfirmed_requests_of_a_step_are_bounded() {
        let mut questions = Questions::default();
        for call in 0..OPEN_MAX as u64 {
            assert_eq!(questions.ask(1, 7, call, 0), Question::New);
        }
        assert_eq!(questions.ask(1, 7, OPEN_MAX as u64, 0), Question::Settled);
        assert_eq!(questions.ask(1, 8, 0, 0), Question::New, "another node's step");
        assert_eq!(questions.ask(1, 7, OPEN_MAX as u64, 9), Question::New, "the first ones are confirmed");
    }

    #[test]
    fn an_answer_to_no_request_is_not_kept() {
        let mut questions = Questions::default();
        questions.answer(1, 7, 0, ANSWER);
        assert_eq!(questions.ask(1, 7, 0, 0), Question::New);
    }
}
