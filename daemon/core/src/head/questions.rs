//! Requests of steps that the head must perform only once. A step keeps a request until it is answered, and repeats it after a
//! cut link, perhaps through another daemon. The head keeps each answer until the step confirms it, and repeats it for a repeated
//! request.

use std::collections::BTreeMap;

use rsd_proto::v1::{self as wire, down};

use crate::{JobId, NodeId};

/// The most requests of a step of which the head keeps the answers. A step confirms them in order, so it has more only while one request
/// takes very long, or if it is a user's own program.
const OPEN_MAX: usize = 1 << 16;

/// A request of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallId {
    pub(super) job: JobId,
    pub(super) node: NodeId,
    /// The step's number for it.
    pub(super) number: u64,
}

/// All requests, by step.
#[derive(Debug, Default)]
pub(super) struct Questions {
    steps: BTreeMap<(JobId, NodeId), OfStep>,
    /// How much memory the kept answers use, by uid; 0 in a DVM that serves one user.
    held_bytes: BTreeMap<u32, usize>,
}

/// The requests of one step.
#[derive(Debug, Default)]
struct OfStep {
    realm: u32,
    /// All requests with a smaller number are confirmed.
    open_from: u64,
    known: BTreeMap<u64, Known>,
}

/// What is known of a request.
#[derive(Debug)]
enum Known {
    InProgress,
    Answered {
        answer: Box<down::Body>,
        bytes: usize,
    },
    /// The step has the answer; a repeat that arrives late is ignored.
    Confirmed,
}

/// The state of a request.
#[derive(Debug, PartialEq)]
pub(super) enum Question {
    /// The request is new: perform it, and answer with [`Questions::answer`].
    New,
    /// The request is a repeat; the step may have missed this answer.
    Answered(Box<down::Body>),
    /// The request is a repeat, and is in progress or confirmed.
    Settled,
}

impl Questions {
    /// Takes in a request of a step of this user. The step has the answers of all requests before `open_from`, and of the `answered`
    /// ones.
    pub(super) fn ask(&mut self, realm: u32, call: CallId, open_from: u64, answered: &[u64]) -> Question {
        let step = self.steps.entry((call.job, call.node)).or_default();
        step.realm = realm;
        let mut freed = 0;
        if open_from > step.open_from {
            step.open_from = open_from;
            let rest = step.known.split_off(&open_from);
            freed += std::mem::replace(&mut step.known, rest).into_values().map(|known| known.bytes()).sum::<usize>();
        }
        for number in answered {
            if let Some(known) = step.known.get_mut(number).filter(|known| matches!(known, Known::Answered { .. })) {
                freed += std::mem::replace(known, Known::Confirmed).bytes();
            }
        }
        if step.known.len() >= OPEN_MAX {
            // While one request takes very long, the others are confirmed one by one. A repeat of such an old one does not arrive.
            step.known.retain(|_, known| !matches!(known, Known::Confirmed));
        }
        let question = match step.known.get(&call.number) {
            _ if call.number < step.open_from => Question::Settled,
            Some(Known::Answered { answer, .. }) => Question::Answered(answer.clone()),
            Some(Known::InProgress | Known::Confirmed) => Question::Settled,
            None if step.known.len() >= OPEN_MAX => Question::Settled,
            None => {
                step.known.insert(call.number, Known::InProgress);
                Question::New
            }
        };
        self.release(realm, freed);
        question
    }

    /// Keeps the answer to a new request. `bytes`: how much memory the answer uses that no other answer shares.
    pub(super) fn answer(&mut self, call: CallId, answer: down::Body, bytes: usize) {
        let Some(step) = self.steps.get_mut(&(call.job, call.node)) else { return };
        if let Some(known @ Known::InProgress) = step.known.get_mut(&call.number) {
            *known = Known::Answered { answer: Box::new(answer), bytes };
            *self.held_bytes.entry(step.realm).or_default() += bytes;
        }
    }

    /// Forgets a request that was answered and may be performed again.
    pub(super) fn forget_call(&mut self, call: CallId) {
        if let Some(step) = self.steps.get_mut(&(call.job, call.node)) {
            step.known.remove(&call.number);
        }
    }

    /// Restores an answer that was given before a restart and is unconfirmed.
    pub(super) fn restore(&mut self, realm: u32, answer: wire::NameResult) {
        let call = CallId { job: answer.job, node: answer.node, number: answer.call };
        let bytes = answer.data.len();
        let step = self.steps.entry((call.job, call.node)).or_default();
        step.realm = realm;
        step.known.insert(call.number, Known::InProgress);
        self.answer(call, down::Body::NameResult(answer), bytes);
    }

    /// Restores a call that spawned a job: its answer, or None if it has none yet.
    pub(super) fn restore_spawn(&mut self, realm: u32, call: CallId, answer: Option<wire::SpawnResult>) {
        let step = self.steps.entry((call.job, call.node)).or_default();
        step.realm = realm;
        step.known.insert(call.number, Known::InProgress);
        if let Some(answer) = answer {
            self.answer(call, down::Body::SpawnResult(answer), 0);
        }
    }

    /// Returns the unconfirmed answers to name calls.
    pub(super) fn names_answered(&self) -> impl Iterator<Item = wire::NameResult> {
        self.steps.values().flat_map(|step| step.known.values()).filter_map(|known| {
            let Known::Answered { answer, .. } = known else { return None };
            if let down::Body::NameResult(answer) = &**answer { Some(answer.clone()) } else { None }
        })
    }

    /// Returns how many bytes of memory the kept answers of a user's steps use.
    pub(super) fn held_bytes(&self, realm: u32) -> usize {
        self.held_bytes.get(&realm).copied().unwrap_or(0)
    }

    /// Forgets a job that has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        let steps = self.steps.extract_if((job, NodeId::MIN)..=(job, NodeId::MAX), |_, _| true);
        let freed: Vec<(u32, usize)> =
            steps.map(|(_, step)| (step.realm, step.known.into_values().map(|known| known.bytes()).sum())).collect();
        freed.into_iter().for_each(|(realm, bytes)| self.release(realm, bytes));
    }

    fn release(&mut self, realm: u32, bytes: usize) {
        if let Some(held) = self.held_bytes.get_mut(&realm) {
            *held -= bytes;
            if *held == 0 {
                self.held_bytes.remove(&realm);
            }
        }
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> {
        let held = self.held_bytes.iter().map(|(user, bytes)| format!("{bytes} B of answers for user {user}"));
        self.steps.keys().map(|(job, node)| format!("requests of job {job} on node {node}")).chain(held)
    }
}

impl Known {
    fn bytes(&self) -> usize {
        match self {
            Known::Answered { bytes, .. } => *bytes,
            Known::InProgress | Known::Confirmed => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::Resync;

    use super::*;

    const ANSWER: down::Body = down::Body::Resync(Resync {});

    fn call(node: NodeId, number: u64) -> CallId {
        CallId { job: 1, node, number }
    }

    #[test]
    fn a_request_is_performed_once_and_answered_until_the_step_confirms() {
        let mut questions = Questions::default();
        let ask = |questions: &mut Questions, node, number, from| questions.ask(0, call(node, number), from, &[]);
        assert_eq!(ask(&mut questions, 7, 0, 0), Question::New);
        assert_eq!(ask(&mut questions, 7, 0, 0), Question::Settled, "the request is in progress");
        assert_eq!(ask(&mut questions, 7, 1, 0), Question::New, "another rank of the node asks");
        questions.answer(call(7, 0), ANSWER, 0);
        assert_eq!(ask(&mut questions, 7, 0, 0), Question::Answered(Box::new(ANSWER)));
        assert_eq!(ask(&mut questions, 7, 2, 1), Question::New, "the step has the first answer");
        assert_eq!(ask(&mut questions, 7, 0, 0), Question::Settled, "a repeat that arrives late");
        assert_eq!(ask(&mut questions, 8, 0, 0), Question::New, "the numbers of another node are independent");
        questions.forget(1);
        assert_eq!(questions.leftovers().count(), 0);
    }

    #[test]
    fn answers_are_released_as_the_step_confirms_them_in_any_order() {
        let mut questions = Questions::default();
        for number in 0..4 {
            assert_eq!(questions.ask(5, call(7, number), 0, &[]), Question::New);
        }
        for number in 1..4 {
            questions.answer(call(7, number), ANSWER, 100);
        }
        assert_eq!(questions.held_bytes(5), 300, "the first one is still in progress");
        assert_eq!(questions.ask(5, call(7, 4), 0, &[2, 3, 99, 0]), Question::New);
        assert_eq!(questions.held_bytes(5), 100);
        assert_eq!(questions.ask(5, call(7, 2), 0, &[]), Question::Settled, "a repeat that arrives late");
        questions.answer(call(7, 0), ANSWER, 7);
        questions.answer(call(7, 0), ANSWER, 7);
        assert_eq!(questions.held_bytes(5), 107, "an answer counts once");
        assert_eq!(questions.ask(5, call(7, 5), 1, &[]), Question::New);
        assert_eq!(questions.held_bytes(5), 100);
        questions.forget(1);
        assert_eq!(questions.leftovers().collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn the_unconfirmed_requests_of_a_step_are_bounded() {
        let mut questions = Questions::default();
        for number in 0..OPEN_MAX as u64 {
            assert_eq!(questions.ask(0, call(7, number), 0, &[]), Question::New);
        }
        let next = OPEN_MAX as u64;
        assert_eq!(questions.ask(0, call(7, next), 0, &[]), Question::Settled);
        assert_eq!(questions.ask(0, call(8, next), 0, &[]), Question::New, "another node's step");
        questions.answer(call(7, 5), ANSWER, 0);
        assert_eq!(questions.ask(0, call(7, next), 0, &[5]), Question::New, "one of them is confirmed");
        assert_eq!(questions.ask(0, call(7, next + 1), 0, &[]), Question::Settled);
        assert_eq!(questions.ask(0, call(7, next + 1), 9, &[]), Question::New, "the first ones are confirmed");
    }

    #[test]
    fn an_answer_to_no_request_is_not_kept() {
        let mut questions = Questions::default();
        questions.answer(call(7, 0), ANSWER, 1);
        assert_eq!(questions.ask(0, call(7, 0), 0, &[]), Question::New);
        questions.answer(call(7, 0), ANSWER, 0);
        questions.forget_call(call(7, 0));
        assert_eq!(questions.ask(0, call(7, 0), 0, &[]), Question::New, "it may be performed again");
    }
}
