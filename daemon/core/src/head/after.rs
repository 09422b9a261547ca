//! Dependencies between jobs: a job that waits for others is not in the queue until each has done what it waits for. A dependency names
//! jobs that exist when it is submitted, so there are no cycles, and each is resolved once, to numbers. A dependency that is fulfilled is
//! removed from the job's record; one that can never be fulfilled fails the job, or holds it if its user wants that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rsd_proto::called;
use rsd_proto::v1::{Dependency, JobInfo, JobState, dependency::Kind};

use super::job::Job;
use super::life::Life;
use super::{Head, array, holding};
use crate::between::{Order, Outputs};
use crate::calls::{Caller, Refused, exit};
use crate::{JobId, Now, sentences};

/// The most jobs for which one job waits.
const NEEDS_MAX: usize = 1000;
/// The most bytes of a name in a refusal.
const WORD_BYTES_MAX: usize = 200;

/// Who waits for whom.
#[derive(Debug, Default)]
pub(super) struct Afters {
    /// By number: the jobs that wait for it.
    waiters: BTreeMap<JobId, BTreeSet<JobId>>,
    /// The numbers of jobs that have started or ended, and whose waiters do not know it yet.
    news: VecDeque<JobId>,
}

impl Afters {
    pub(super) fn is_waited_for(&self, number: JobId) -> bool {
        self.waiters.contains_key(&number)
    }

    fn forget(&mut self, waiter: JobId, needs: &[Dependency]) {
        for need in needs {
            if let Some(waiters) = self.waiters.get_mut(&need.job) {
                waiters.remove(&waiter);
                if waiters.is_empty() {
                    self.waiters.remove(&need.job);
                }
            }
        }
    }

    pub(super) fn leftovers(&self) -> impl Iterator<Item = String> + '_ {
        self.waiters.iter().map(|(job, waiters)| format!("jobs that wait for job {job}: {waiters:?}"))
    }
}

/// How a dependency stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Open,
    Met,
    /// It can never be fulfilled, because the job has ended in this state; None: the job is not remembered.
    Never(Option<JobState>),
}

impl Head {
    /// Returns the dependencies of a submission by number, without those that are fulfilled. Fails if one can never be, unless the job is
    /// to be held then.
    pub(super) fn resolve_after(
        &self,
        caller: Caller,
        wanted: &[Dependency],
        may_be_held: bool,
    ) -> Result<Vec<Dependency>, Refused> {
        let mut needs: Vec<Dependency> = Vec::new();
        for wish in wanted {
            if Kind::try_from(wish.kind).is_err() {
                return Err(Refused::new(exit::USAGE, "a kind of dependency that this head does not know"));
            }
            for named in self.named_by(caller, &wish.of)? {
                let need = Dependency { kind: wish.kind, ..named };
                match self.standing(&need) {
                    Standing::Met => {}
                    Standing::Never(state) if !may_be_held => {
                        let text = format!("the job could never start: {}", never(&need, state));
                        return Err(Refused::new(exit::NOT_PLACED, text));
                    }
                    Standing::Open | Standing::Never(_) => needs.push(need),
                }
            }
        }
        needs.sort_by_key(|need| (need.job, need.kind));
        needs.dedup();
        match needs.len() <= NEEDS_MAX {
            true => Ok(needs),
            false => {
                let text =
                    format!("it would wait for {} jobs; the most is {NEEDS_MAX}: wait for an array", needs.len());
                Err(Refused::new(exit::USAGE, text))
            }
        }
    }

    /// Returns the jobs that a word of a dependency names, and the index of an element.
    fn named_by(&self, caller: Caller, word: &str) -> Result<Vec<Dependency>, Refused> {
        let no = |text: String| Err(Refused::new(exit::NO_SUCH_JOB, text));
        let (job, index) = match word.strip_suffix(']').and_then(|word| word.split_once('[')) {
            Some((job, index)) => match index.parse() {
                Ok(index) => (job, Some(index)),
                Err(_) => {
                    let text = format!("--after: `{}`: the index must be a number, as in 12[3]", cut(word));
                    return Err(Refused::new(exit::USAGE, text));
                }
            },
            None => (word, None),
        };
        let ids: Vec<JobId> = if job == "last" || job.bytes().all(|byte| byte.is_ascii_digit()) && !job.is_empty() {
            let number = if job == "last" { Some(0) } else { job.parse().ok().filter(|number| *number > 0) };
            match number.and_then(|number| self.find(caller, number)) {
                Some(id) => vec![crate::attempts::number(id)],
                None => return no(format!("--after: no job {} (rsctl ps -a lists all remembered jobs)", cut(job))),
            }
        } else {
            self.called(caller, job)?
        };
        let of_element = |id: JobId| match index {
            None => Ok(Dependency { job: id, ..Dependency::default() }),
            Some(_) => self.element(id, index.unwrap_or_default()).map(|info| Dependency {
                job: info.job,
                index,
                array: id,
                ..Dependency::default()
            }),
        };
        ids.into_iter().map(of_element).collect()
    }

    /// Returns the jobs with this name or label that have not ended; if there is none, the one that was submitted last.
    fn called(&self, caller: Caller, word: &str) -> Result<Vec<JobId>, Refused> {
        let label = match word.split_once('=') {
            Some(_) => Some(called::label(word).map_err(|why| Refused::new(exit::USAGE, format!("--after: {why}")))?),
            None => {
                called::check_name(word).map_err(|why| Refused::new(exit::USAGE, format!("--after: {why}")))?;
                None
            }
        };
        let is_called = |job: &&Job| {
            job.element.is_none()
                && match &label {
                    Some((key, value)) => job.called.has_label(key, Some(value)),
                    None => job.called.name == word,
                }
        };
        let found: Vec<&Job> = self.jobs.of(self.realm(caller.uid)).filter(is_called).collect();
        let alive: Vec<JobId> = found.iter().filter(|job| !job.is_over()).map(|job| job.number()).collect();
        let last = found.iter().map(|job| job.number()).max();
        match (alive.is_empty(), last) {
            (false, _) => Ok(alive),
            (true, Some(last)) => Ok(vec![last]),
            (true, None) => {
                let what = if label.is_some() { "has the label" } else { "is named" };
                let text =
                    format!("--after: no job of yours {what} {} (rsctl ps -a lists all remembered jobs)", cut(word));
                Err(Refused::new(exit::NO_SUCH_JOB, text))
            }
        }
    }

    /// Returns how a dependency stands.
    pub(super) fn standing(&self, need: &Dependency) -> Standing {
        let current = self.jobs.current(need.job).and_then(|id| self.jobs.get(id));
        let (state, has_started) = match (current, need.index) {
            (Some(job), _) => (job.state(), job.has_started()),
            (None, Some(index)) => match array::past_state(&self.jobs, need.array, index) {
                Some(state) => (state, state != JobState::Queued),
                None => return Standing::Never(None),
            },
            (None, None) => return Standing::Never(None),
        };
        // The end of an element counts when it is recorded, as its array's.
        match (state, need.kind()) {
            (JobState::Unknown | JobState::Queued | JobState::Running | JobState::Ending, Kind::Start)
                if has_started =>
            {
                Standing::Met
            }
            (JobState::Unknown | JobState::Queued | JobState::Running | JobState::Ending, _) => Standing::Open,
            (JobState::Done, Kind::Any | Kind::Ok | Kind::Start) => Standing::Met,
            (JobState::Failed | JobState::Cancelled | JobState::TimedOut, Kind::Any | Kind::Fail | Kind::Start) => {
                Standing::Met
            }
            (JobState::Done, Kind::Fail) | (JobState::Failed | JobState::Cancelled | JobState::TimedOut, Kind::Ok) => {
                Standing::Never(Some(state))
            }
        }
    }

    /// Begins to wait for other jobs. Returns false if the job waits for none.
    pub(super) fn begin_after(&mut self, id: JobId) -> bool {
        let Some(Life::Queued(pending)) = self.jobs.get(id).map(Job::life) else { return false };
        for need in &pending.spec.after {
            self.afters.waiters.entry(need.job).or_default().insert(id);
        }
        let waits = !pending.spec.after.is_empty();
        if waits {
            // What has happened in the meantime is news, too: after a restart, for example.
            let needs: Vec<JobId> = pending.spec.after.iter().map(|need| need.job).collect();
            self.afters.news.extend(needs);
        }
        waits
    }

    /// Stops to wait for other jobs: the job has ended.
    pub(super) fn end_after(&mut self, id: JobId) {
        if let Some(needs) = self.jobs.get(id).map(|job| job.needs.clone()) {
            self.afters.forget(id, &needs);
        }
    }

    /// Notes that a job has started, or that its end is recorded.
    pub(super) fn note_start(&mut self, id: JobId) {
        let number = crate::attempts::number(id);
        if self.afters.is_waited_for(number) {
            self.afters.news.push_back(number);
        }
    }

    /// Notes that the end of a job is recorded.
    pub(super) fn note_end(&mut self, info: &JobInfo) {
        if info.element.is_some() {
            self.elements_ended.push(JobInfo { exits: Vec::new(), bindings: Vec::new(), ..info.clone() });
        }
        self.note_start(info.job);
    }

    /// Tells arrays which of their elements have ended, and waiting jobs what those have done for which they wait.
    pub(super) fn settle_ends(&mut self, now: Now, out: &mut Outputs<Order>) {
        while !self.elements_ended.is_empty() || !self.afters.news.is_empty() {
            for info in std::mem::take(&mut self.elements_ended) {
                self.element_has_ended(now, &info, out);
            }
            self.settle_after(now, out);
        }
    }

    /// Tells jobs what has happened to those for which they wait.
    fn settle_after(&mut self, now: Now, out: &mut Outputs<Order>) {
        while let Some(number) = self.afters.news.pop_front() {
            for waiter in self.afters.waiters.get(&number).cloned().unwrap_or_default() {
                self.look_again(now, waiter, number, out);
            }
        }
    }

    fn look_again(&mut self, now: Now, waiter: JobId, number: JobId, out: &mut Outputs<Order>) {
        let Some(job) = self.jobs.get(waiter) else { return };
        let needs = job.needs.clone();
        let (about, mut left): (Vec<Dependency>, Vec<Dependency>) =
            needs.iter().cloned().partition(|need| need.job == number);
        let mut impossible = None;
        for need in about.iter().cloned() {
            match self.standing(&need) {
                Standing::Met => {}
                Standing::Open => left.push(need),
                Standing::Never(state) => impossible = Some(never(&need, state)),
            }
        }
        if left.len() == needs.len() && impossible.is_none() {
            return;
        }
        left.sort_by_key(|need| (need.job, need.kind));
        self.afters.forget(waiter, &about);
        for need in &left {
            self.afters.waiters.entry(need.job).or_default().insert(waiter);
        }
        let Some(pending) = self.jobs.get_mut(waiter).and_then(|job| job.set_needs(left)) else { return };
        if let Some(why) = impossible {
            if !pending.spec.after_holds {
                return self.fail_unplaced(now, waiter, format!("it could never start: {why}"), out);
            }
            pending.spec.hold = true;
            pending.reason = format!("it is held: {why}; rsctl release starts it all the same");
        }
        self.go_on_waiting(waiter);
        self.keep_job(waiter);
    }

    /// Puts a job into the queue, unless it is held or waits for other jobs.
    pub(super) fn go_on_waiting(&mut self, id: JobId) {
        let Some(pending) = self.jobs.get_mut(id).and_then(Job::pending_mut) else { return };
        match (pending.spec.after.first(), pending.spec.hold) {
            (_, true) if pending.reason.starts_with("it is held") => {}
            (_, true) => pending.reason = holding::HELD.to_owned(),
            (Some(need), false) => pending.reason = waits_for(need, pending.spec.after.len()),
            (None, false) => {
                pending.reason = "it may start as soon as there is room".to_owned();
                self.enqueue(id);
            }
        }
    }

    /// Puts a job into the queue.
    pub(super) fn enqueue(&mut self, id: JobId) {
        let Some(Life::Queued(pending)) = self.jobs.get(id).map(Job::life) else { return };
        let priority = pending.spec.priority;
        self.queue.push(id, priority);
        self.queue.try_again = true;
    }
}

/// Returns why a job waits that waits for others.
pub(super) fn waits_for(first: &Dependency, count: usize) -> String {
    let others = match count.saturating_sub(1) {
        0 => String::new(),
        1 => " and 1 more dependency".to_owned(),
        others => format!(" and {others} more dependencies"),
    };
    format!("it waits for {} {}{others}", named(first), wish(first.kind()))
}

/// Returns `job 12[3]`.
pub(super) fn named(need: &Dependency) -> String {
    match need.index {
        None => format!("job {}", need.job),
        Some(index) => format!("job {}[{index}]", need.array),
    }
}

/// Returns what a job waits for another one to do.
pub(super) fn wish(kind: Kind) -> &'static str {
    match kind {
        Kind::Any => "to end",
        Kind::Ok => "to succeed",
        Kind::Fail => "to fail",
        Kind::Start => "to start",
    }
}

/// Returns why a dependency can never be fulfilled.
fn never(need: &Dependency, state: Option<JobState>) -> String {
    let why = match state {
        None => "it is not remembered any more".to_owned(),
        Some(JobState::Done) => "it has succeeded".to_owned(),
        Some(JobState::TimedOut) => "it has timed out".to_owned(),
        Some(JobState::Cancelled) => "it was cancelled".to_owned(),
        Some(
            state @ (JobState::Unknown | JobState::Queued | JobState::Running | JobState::Ending | JobState::Failed),
        ) => {
            format!("it has {}", sentences::state(state))
        }
    };
    format!("it waits for {} {}, and {why}", named(need), wish(need.kind()))
}

fn cut(word: &str) -> String {
    let mut word = word.to_owned();
    sentences::cut(&mut word, WORD_BYTES_MAX);
    word
}
