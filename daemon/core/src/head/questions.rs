//! What steps ask the head is done once. A step keeps its question until it is answered and asks again after a cut, over a
//! way that may be another one: the head keeps each answer until the step says that it has it, and gives the same again.

use std::collections::{BTreeMap, HashMap};

use rsd_proto::v1::{self as wire, down};

use crate::{JobId, NodeId};

/// All that has been asked, by step.
#[derive(Debug, Default)]
pub(crate) struct Questions(HashMap<(JobId, NodeId), OfStep>);

/// One step's.
#[derive(Debug, Default)]
struct OfStep {
    /// Those before this number are settled.
    open_from: u64,
    /// The answers; none: it takes its time.
    known: BTreeMap<u64, Option<down::Body>>,
}

/// What a question is.
#[derive(Debug, PartialEq)]
pub(crate) enum Question {
    /// To be done now, and answered by [`Questions::answer`].
    New,
    /// A repeat, whose answer the step may have missed.
    Answered(down::Body),
    /// A repeat that is being worked on, or whose answer has arrived.
    Settled,
}

impl Questions {
    /// A step has asked. All before `open_from` it knows the answer of.
    pub(crate) fn ask(&mut self, job: JobId, node: NodeId, call: u64, open_from: u64) -> Question {
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
            None => {
                step.known.insert(call, None);
                Question::New
            }
        }
    }

    /// Keeps the answer to a question that was new.
    pub(crate) fn answer(&mut self, job: JobId, node: NodeId, call: u64, answer: down::Body) {
        if let Some(kept) = self.0.get_mut(&(job, node)).and_then(|step| step.known.get_mut(&call)) {
            *kept = Some(answer);
        }
    }

    /// An answer that was given before a restart, and perhaps not heard.
    pub(crate) fn restore(&mut self, answer: wire::NameResult) {
        let step = self.0.entry((answer.job, answer.node)).or_default();
        step.known.insert(answer.call, Some(down::Body::NameResult(answer)));
    }

    /// What was answered about names, and may not have been heard.
    pub(crate) fn names_answered(&self) -> impl Iterator<Item = wire::NameResult> {
        self.0.values().flat_map(|step| step.known.values()).filter_map(|answer| match answer {
            Some(down::Body::NameResult(answer)) => Some(answer.clone()),
            Some(_) | None => None,
        })
    }

    /// The job is over.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.0.retain(|(of, _), _| *of != job);
    }

    /// See [`crate::rsd::Rsd::leftovers`].
    pub(crate) fn leftovers(&self) -> impl Iterator<Item = String> {
        self.0.keys().map(|(job, node)| format!("what job {job} has asked on node {node}"))
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::Resync;

    use super::*;

    const ANSWER: down::Body = down::Body::Resync(Resync {});

    #[test]
    fn a_question_is_done_once_and_answered_until_the_step_has_the_answer() {
        let mut questions = Questions::default();
        assert_eq!(questions.ask(1, 7, 0, 0), Question::New);
        assert_eq!(questions.ask(1, 7, 0, 0), Question::Settled, "it is being worked on");
        assert_eq!(questions.ask(1, 7, 1, 0), Question::New, "another rank of the node asks");
        questions.answer(1, 7, 0, ANSWER);
        assert_eq!(questions.ask(1, 7, 0, 0), Question::Answered(ANSWER));
        assert_eq!(questions.ask(1, 7, 2, 1), Question::New, "the step has the first answer");
        assert_eq!(questions.ask(1, 7, 0, 0), Question::Settled, "a repeat that took the long way");
        assert_eq!(questions.ask(1, 8, 0, 0), Question::New, "another node counts for itself");
        questions.forget(1);
        assert_eq!(questions.leftovers().count(), 0);
    }

    #[test]
    fn an_answer_that_nobody_waits_for_is_not_kept() {
        let mut questions = Questions::default();
        questions.answer(1, 7, 0, ANSWER);
        assert_eq!(questions.ask(1, 7, 0, 0), Question::New);
    }
}
