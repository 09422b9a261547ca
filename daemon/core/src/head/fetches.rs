//! What processes have committed, on its way to processes on other nodes and of other jobs (`FetchData`).
//!
//! The head asks the step that has the process, once for all that want the same, and repeats the request when that step has
//! reconnected. It keeps no answer. A request stays open after all that asked have given up, because the step still answers it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use rsd_proto::v1 as wire;

use super::questions::CallId;
use crate::contract::rounded;
use crate::status::{Failure, OUT_OF_RESOURCE, TIMEOUT};
use crate::timers::Timers;
use crate::{JobId, NodeId};

/// The most requests to one step that are open.
const OPEN_MAX: usize = 1 << 12;

/// All open requests.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    open: BTreeMap<u64, Open>,
    by_wanted: BTreeMap<Wanted, u64>,
    of_step: BTreeMap<(JobId, NodeId), BTreeSet<u64>>,
    asking: BTreeMap<CallId, u64>,
    timers: Timers<CallId>,
}

/// What is wanted of which process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    pub(super) job: JobId,
    pub(super) rank: u32,
    pub(super) what: Bytes,
    pub(super) immediate: bool,
}

#[derive(Debug)]
struct Open {
    wanted: Wanted,
    node: NodeId,
    /// The calls that wait, and since when.
    askers: BTreeMap<CallId, Duration>,
}

impl Fetches {
    /// Takes in a call for what a process on this node has committed. Returns the request to send to its step, unless the same has been
    /// sent. `number`: a number for a new request.
    pub(super) fn ask(
        &mut self,
        now: Duration,
        call: CallId,
        wanted: Wanted,
        node: NodeId,
        timeout: Option<Duration>,
        number: impl FnOnce() -> u64,
    ) -> Result<Option<wire::Fetch>, Failure> {
        let known = self.by_wanted.get(&wanted).copied();
        let number = match known {
            Some(number) => number,
            None => {
                self.make_room(wanted.job, node)?;
                let number = number();
                self.by_wanted.insert(wanted.clone(), number);
                self.of_step.entry((wanted.job, node)).or_default().insert(number);
                self.open.insert(number, Open { wanted, node, askers: BTreeMap::new() });
                number
            }
        };
        self.asking.insert(call, number);
        self.timers.put(call, timeout.map(|timeout| now.saturating_add(timeout)));
        let Some(open) = self.open.get_mut(&number) else { return Ok(None) };
        open.askers.insert(call, now);
        Ok(known.is_none().then(|| open.message(number)))
    }

    /// If the step has too many requests, forgets one for which no call waits any more.
    fn make_room(&mut self, job: JobId, node: NodeId) -> Result<(), Failure> {
        let Some(numbers) = self.of_step.get(&(job, node)).filter(|numbers| numbers.len() >= OPEN_MAX) else {
            return Ok(());
        };
        let is_idle = |number: &&u64| self.open.get(number).is_none_or(|open| open.askers.is_empty());
        let Some(idle) = numbers.iter().find(is_idle).copied() else {
            let why = format!("{OPEN_MAX} different requests wait for what processes of job {job} on one node commit");
            return Err(Failure::new(OUT_OF_RESOURCE, why));
        };
        self.close(idle);
        Ok(())
    }

    /// Takes in the answer of a step. Returns the calls that it answers.
    pub(super) fn answered(&mut self, fetched: &wire::Fetched) -> Vec<CallId> {
        let open = self.open.get(&fetched.number);
        match open.is_some_and(|open| (open.wanted.job, open.node) == (fetched.job, fetched.node)) {
            true => self.close(fetched.number),
            false => Vec::new(),
        }
    }

    /// Returns the open requests to a step.
    pub(super) fn to_step(&self, job: JobId, node: NodeId) -> Vec<wire::Fetch> {
        let numbers = self.of_step.get(&(job, node)).into_iter().flatten();
        numbers.filter_map(|number| self.open.get(number).map(|open| open.message(*number))).collect()
    }

    /// Handles the end of a step: it answers no request, and none of its calls waits any more. Returns the calls of others that get no
    /// answer.
    pub(super) fn step_is_over(&mut self, job: JobId, node: NodeId) -> Vec<CallId> {
        let first = CallId { job, node, number: 0 };
        let own: Vec<CallId> =
            self.asking.range(first..=CallId { number: u64::MAX, ..first }).map(|(call, _)| *call).collect();
        own.into_iter().for_each(|call| self.forget(call));
        let open = self.of_step.get(&(job, node)).cloned().unwrap_or_default();
        open.into_iter().flat_map(|number| self.close(number)).collect()
    }

    /// Removes a call.
    fn forget(&mut self, call: CallId) {
        self.timers.cancel(&call);
        let number = self.asking.remove(&call);
        if let Some(open) = number.and_then(|number| self.open.get_mut(&number)) {
            open.askers.remove(&call);
        }
    }

    fn close(&mut self, number: u64) -> Vec<CallId> {
        let Some(open) = self.open.remove(&number) else { return Vec::new() };
        let step = (open.wanted.job, open.node);
        self.by_wanted.remove(&open.wanted);
        if let Some(numbers) = self.of_step.get_mut(&step) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_step.remove(&step);
            }
        }
        let calls: Vec<CallId> = open.askers.into_keys().collect();
        for call in &calls {
            self.asking.remove(call);
            self.timers.cancel(call);
        }
        calls
    }

    /// Returns what processes of a job want of others: how many requests, and since when.
    pub(super) fn of(&self, job: JobId) -> impl Iterator<Item = (&Wanted, NodeId, u32, Duration)> {
        self.open.values().filter_map(move |open| {
            let here = || open.askers.iter().filter(|(call, _)| call.job == job).map(|(_, since)| *since);
            let since = here().min()?;
            Some((&open.wanted, open.node, u32::try_from(here().count()).unwrap_or(u32::MAX), since))
        })
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Returns the calls whose time limit has passed.
    pub(super) fn settle(&mut self, now: Duration) -> Vec<(CallId, Failure)> {
        let mut late = Vec::new();
        while let Some(call) = self.timers.pop_due(now) {
            let open = self.asking.get(&call).and_then(|number| self.open.get(number));
            if let Some(Open { wanted, askers, .. }) = open {
                let waited = askers.get(&call).map_or(Duration::ZERO, |since| now.saturating_sub(*since));
                let why = format!(
                    "timed out after {}: rank {} of job {} has not committed it",
                    rounded(waited),
                    wanted.rank,
                    wanted.job
                );
                late.push((call, Failure::new(TIMEOUT, why)));
            }
            self.forget(call);
        }
        late
    }

    /// Describes the entries that are still kept, for tests.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        let steps = self.of_step.keys().map(|(job, node)| format!("fetches from job {job} on node {node}"));
        steps.chain(self.asking.keys().map(|call| format!("fetches of job {}", call.job)))
    }
}

impl Open {
    fn message(&self, number: u64) -> wire::Fetch {
        let Wanted { job, rank, what, immediate } = self.wanted.clone();
        wire::Fetch { job, node: self.node, number, rank, what, immediate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(job: JobId, number: u64) -> CallId {
        CallId { job, node: 3, number }
    }

    fn wanted(rank: u32) -> Wanted {
        Wanted { job: 7, rank, what: "key".into(), immediate: false }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fetched(number: u64) -> wire::Fetched {
        wire::Fetched { job: 7, node: 4, number, ..Default::default() }
    }

    #[test]
    fn several_that_want_the_same_share_one_request() {
        let mut fetches = Fetches::default();
        let sent = fetches.ask(at(0), call(1, 1), wanted(5), 4, None, || 70).unwrap().unwrap();
        assert_eq!((sent.job, sent.node, sent.number, sent.rank, &sent.what[..]), (7, 4, 70, 5, &b"key"[..]));
        assert_eq!(fetches.ask(at(0), call(2, 1), wanted(5), 4, None, || panic!("it is known")), Ok(None));
        let other = Wanted { immediate: true, ..wanted(5) };
        assert!(fetches.ask(at(0), call(2, 2), other, 4, None, || 71).unwrap().is_some());
        assert_eq!(fetches.to_step(7, 4).len(), 2);
        assert_eq!(fetches.answered(&wire::Fetched { node: 5, ..fetched(70) }), [], "the step of another node");
        assert_eq!(fetches.answered(&fetched(70)), [call(1, 1), call(2, 1)]);
        assert_eq!(fetches.answered(&fetched(70)), [], "a repeat");
        assert_eq!(fetches.answered(&fetched(71)), [call(2, 2)]);
        assert_eq!(fetches.leftovers().count(), 0);
    }

    #[test]
    fn a_call_times_out_and_the_others_wait_on() {
        let mut fetches = Fetches::default();
        fetches.ask(at(0), call(1, 1), wanted(5), 4, Some(at(2)), || 70).unwrap();
        fetches.ask(at(1), call(1, 2), wanted(5), 4, None, || 71).unwrap();
        assert_eq!((fetches.next_deadline(), fetches.settle(at(1))), (Some(at(2)), vec![]));
        let late = fetches.settle(at(2));
        assert_eq!(late[0].0, call(1, 1));
        assert_eq!(
            (late[0].1.status, &late[0].1.why[..]),
            (TIMEOUT, "timed out after 2 s: rank 5 of job 7 has not committed it")
        );
        assert_eq!(fetches.step_is_over(7, 4), [call(1, 2)]);
        assert_eq!((fetches.leftovers().count(), fetches.next_deadline()), (0, None));
    }

    #[test]
    fn the_calls_of_a_step_that_is_over_are_forgotten() {
        let mut fetches = Fetches::default();
        fetches.ask(at(0), call(1, 1), wanted(5), 4, Some(at(9)), || 70).unwrap();
        assert_eq!(fetches.step_is_over(1, 3), [], "no other call waits for its answers");
        assert_eq!(fetches.next_deadline(), None);
        assert_eq!(fetches.answered(&fetched(70)), []);
        assert_eq!(fetches.leftovers().count(), 0);
    }

    #[test]
    fn the_requests_to_a_step_are_bounded() {
        let mut fetches = Fetches::default();
        let ask = |fetches: &mut Fetches, rank: u32, timeout| {
            fetches.ask(at(0), call(1, rank.into()), wanted(rank), 4, timeout, || rank.into())
        };
        for rank in 0..OPEN_MAX as u32 {
            ask(&mut fetches, rank, Some(at(u64::from(rank.min(1)) + 1))).unwrap();
        }
        let next = OPEN_MAX as u32;
        assert_eq!(ask(&mut fetches, next, None).unwrap_err().status, OUT_OF_RESOURCE);
        assert_eq!(fetches.settle(at(1)).len(), 1);
        assert!(ask(&mut fetches, next, None).unwrap().is_some(), "no call waits for one of them any more");
        assert_eq!(fetches.to_step(7, 4).len(), OPEN_MAX);
    }
}
