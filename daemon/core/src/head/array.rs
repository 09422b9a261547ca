//! Arrays: many jobs of one submission, which differ by their index. An array is a job of its own that has no ranks: it stays in the queue
//! until its last element has started, and ends when the last one has ended.
//!
//! An element becomes a job only when it starts, so that one that waits costs nothing: a queued array has one specification, and a few runs
//! of positions. Its number is reserved with the array: `array + 1 + position`. So no element starts twice, whatever is repeated. Elements
//! start in order, and at most as many run as the array's limit says.
//!
//! What has become of the elements is kept by their own records, of their launches and of their ends; [`KeptArray`](rsd_proto::v1::KeptArray) is written only
//! when a user changes something, and when the journal is compacted.

use rsd_proto::indexes::Indexes;
use rsd_proto::v1::{ArrayElement, JobInfo, JobState, RankExit, kept, rank_exit};

use super::elements::element_spec;
use super::job::Job;
use super::life::{Event, Life, Pending, Why};
use super::rank_set::RankSet;
use super::{Due, Head};
use crate::between::{Order, Outputs};
use crate::calls::{Refused, exit};
use crate::place::Placement;
use crate::{JobId, Now};

impl Head {
    /// Starts the next element of an array at this place.
    pub(super) fn start_element(&mut self, now: Now, id: JobId, placement: Placement, out: &mut Outputs<Order>) {
        let Some(array) = self.jobs.get_mut(id) else { return };
        let (owner, namespace) = (array.owner().cloned(), array.namespace.clone());
        let Some(own) = array.array.as_mut() else { return };
        let Some((position, index)) = own.next().and_then(|at| Some((at, own.indexes.at(at)?))) else { return };
        own.start(position, now.unix_ms);
        let element = ArrayElement { array: id, index, count: own.indexes.len() };
        let Life::Queued(pending) = array.life() else { return };
        let spec = element_spec(&pending.spec, element);
        let (wanted, secret, reason) = (pending.wanted.clone(), pending.secret.clone(), String::new());
        let pending = Pending { spec, wanted, secret, preput: Vec::new(), reason };
        let number = id + 1 + u64::from(position);
        // As that of the array, with the element's number.
        let base = namespace.strip_suffix(&id.to_string()).unwrap_or(&namespace);
        let grace_ms = array.grace_ms;
        let job = Job::new(now, number, owner, pending, format!("{base}{number}"), grace_ms);
        out.log(now, number, job.submitted());
        self.jobs.insert(job);
        self.start_job(now, number, placement, out);
        self.note_start(id);
    }

    /// Takes in how an element has ended. To be called when its end is recorded.
    pub(super) fn element_has_ended(&mut self, now: Now, info: &JobInfo, out: &mut Outputs<Order>) {
        let Some(element) = info.element else { return };
        let Some(array) = self.jobs.get_mut(element.array).filter(|array| !array.is_over()) else { return };
        let Some(own) = array.array.as_mut() else { return };
        let Some(position) = own.indexes.position(element.index) else { return };
        own.end(position, info.state(), info.cause.as_ref());
        self.queue.try_again |= own.indexes.limit > 0;
        self.settle_array(now, element.array, out);
    }

    /// Ends an array whose last element has ended.
    pub(super) fn settle_array(&mut self, now: Now, id: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get_mut(id).filter(|job| !job.is_over()) else { return };
        let Some(own) = job.array.as_ref() else { return };
        if !own.has_waiting() {
            self.queue.remove(id);
        }
        if !own.is_over() {
            return;
        }
        let (state, cause) = (own.verdict(), own.cause.clone());
        if let Some((position, cause)) = cause.filter(|_| state == JobState::Failed) {
            job.ends.take_cause(id + 1 + u64::from(position), &cause);
        }
        self.advance(id, Event::ArrayEnded { state });
        self.timers.cancel(&Due::Job(id));
        self.conclude(now, id, out);
    }

    /// Ends an array: elements that have not started never do, those that run are killed.
    pub(super) fn kill_array(
        &mut self,
        now: Now,
        id: JobId,
        why: Why,
        (reason, grace_ms): (String, Option<u64>),
        out: &mut Outputs<Order>,
    ) {
        let Some(own) = self.jobs.get_mut(id).and_then(|job| job.array.as_mut()) else { return };
        let waiting = own.waiting();
        own.cancelled.extend(&waiting);
        own.ending = true;
        let running = own.running();
        self.keep_array(id);
        self.kill_elements(now, id, &running, why, (&reason, grace_ms), out);
        self.settle_array(now, id, out);
    }

    /// Fails the elements of an array that have not started: they can never be placed.
    pub(super) fn fail_waiting(&mut self, now: Now, id: JobId, why: String, out: &mut Outputs<Order>) {
        let Some(own) = self.jobs.get_mut(id).and_then(|job| job.array.as_mut()) else { return };
        let waiting = own.waiting();
        own.failed.extend(&waiting);
        let how = Some(rank_exit::How::Failed(why));
        let cause = RankExit { how, code: u32::from(exit::NOT_PLACED), fatal: true, ..RankExit::default() };
        if let (None, Some(first)) = (&own.cause, waiting.first()) {
            own.cause = Some((first, cause));
        }
        self.keep_array(id);
        self.settle_array(now, id, out);
    }

    fn kill_elements(
        &mut self,
        now: Now,
        id: JobId,
        which: &RankSet,
        why: Why,
        (reason, grace_ms): (&str, Option<u64>),
        out: &mut Outputs<Order>,
    ) {
        for position in which.runs().flat_map(|(first, last)| first..=last) {
            let Some(element) = self.jobs.current(id + 1 + u64::from(position)) else { continue };
            let grace_ms = grace_ms.or_else(|| Some(self.jobs.get(element)?.grace_ms)).unwrap_or_default();
            self.kill(now, element, why, reason.to_owned(), grace_ms, out);
        }
    }

    /// Records the state of an array's elements.
    fn keep_array(&mut self, id: JobId) {
        if let Some(array) = self.jobs.get(id).and_then(|job| job.array.as_ref()) {
            let kept = array.kept(id);
            self.keep(kept::What::Array(kept));
        }
    }

    /// Returns the positions of these indexes of an array.
    fn chosen(&self, id: JobId, elements: &str) -> Result<RankSet, Refused> {
        let usage = |text: String| Err(Refused::new(exit::USAGE, text));
        let Some(own) = self.jobs.get(id).and_then(|job| job.array.as_ref()) else {
            return usage(format!("job {id} is not an array: it has no elements"));
        };
        let chosen: Indexes = match elements.parse() {
            Ok(chosen) => chosen,
            Err(why) => return usage(why),
        };
        let mut set = RankSet::default();
        match own.indexes.positions(&chosen) {
            Ok(positions) => positions.into_iter().for_each(|at| set.insert(at, at)),
            Err(index) => {
                let all = own.indexes.list();
                let text = format!("array {id} has no element {index}: its indexes are {all}");
                return Err(Refused::new(exit::NO_SUCH_JOB, text));
            }
        }
        Ok(set)
    }

    /// Cancels elements of an array.
    pub(super) fn cancel_elements(
        &mut self,
        now: Now,
        id: JobId,
        elements: &str,
        grace_ms: Option<u64>,
        out: &mut Outputs<Order>,
    ) -> Result<(), Refused> {
        let chosen = self.chosen(id, elements)?;
        let Some(own) = self.jobs.get_mut(id).and_then(|job| job.array.as_mut()) else { return Ok(()) };
        let waiting = own.waiting().common(&chosen);
        own.cancelled.extend(&waiting);
        let running = own.running().common(&chosen);
        if !waiting.is_empty() {
            self.keep_array(id);
        }
        self.kill_elements(now, id, &running, Why::Cancelled, ("cancelled", grace_ms), out);
        self.queue.try_again = true;
        self.settle_array(now, id, out);
        Ok(())
    }

    /// Holds elements of an array that have not started, or releases them.
    pub(super) fn hold_elements(&mut self, id: JobId, elements: &str, hold: bool) -> Result<(), Refused> {
        let chosen = self.chosen(id, elements)?;
        let Some(own) = self.jobs.get_mut(id).and_then(|job| job.array.as_mut()) else { return Ok(()) };
        let waiting = own.waiting().common(&chosen);
        if waiting.is_empty() {
            return Err(Refused::new(
                exit::USAGE,
                format!("none of these elements of array {id} waits: they have started"),
            ));
        }
        match hold {
            true => own.held.extend(&waiting),
            false => own.held = own.held.without(&waiting),
        }
        self.queue.try_again = true;
        self.keep_array(id);
        Ok(())
    }

    /// Releases all elements of an array.
    pub(super) fn release_all(&mut self, id: JobId) {
        let Some(own) = self.jobs.get_mut(id).and_then(|job| job.array.as_mut()) else { return };
        if !own.held.is_empty() {
            own.held = RankSet::default();
            self.keep_array(id);
        }
    }

    /// Describes an element, whether it has started or not.
    pub(super) fn element(&self, id: JobId, index: u32) -> Result<JobInfo, Refused> {
        let Some(job) = self.jobs.get(id) else { return Err(super::answers::no_such_job(id)) };
        let Some(indexes) = job.indexes() else {
            return Err(Refused::new(exit::USAGE, format!("job {id} is not an array: it has no element {index}")));
        };
        let Some(position) = indexes.position(index) else {
            let all = indexes.list();
            let text = format!("array {id} has no element {index}: its indexes are {all}");
            return Err(Refused::new(exit::NO_SUCH_JOB, text));
        };
        let number = id + 1 + u64::from(position);
        if let Some(element) = self.jobs.current(number).and_then(|element| self.jobs.get(element)) {
            return Ok(element.info_in_full());
        }
        let array = job.info();
        let (state, held) = match &job.array {
            Some(own) => (own.state(position), own.is_held(position) || array.held),
            None => (JobState::Unknown, false),
        };
        Ok(JobInfo {
            job: number,
            state: state.into(),
            element: Some(ArrayElement { array: id, index, count: indexes.len() }),
            array: None,
            held: held && state == JobState::Queued,
            started_ms: 0,
            ended_ms: if matches!(state, JobState::Queued | JobState::Running) { 0 } else { array.submitted_ms },
            cause: None,
            exits: Vec::new(),
            ..array
        })
    }
}

impl Job {
    /// Returns the indexes of an array, also of one that has ended under an earlier head.
    fn indexes(&self) -> Option<Indexes> {
        match &self.array {
            Some(own) => Some(own.indexes.clone()),
            None => self.info().array?.elements.parse().ok(),
        }
    }
}

/// Returns how an element that is no job any more has ended, from its array.
pub(super) fn past_state(jobs: &super::jobs::Jobs, array: JobId, index: u32) -> Option<JobState> {
    let own = jobs.get(array)?.array.as_ref()?;
    Some(own.state(own.indexes.position(index)?))
}
