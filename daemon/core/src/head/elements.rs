//! The elements of an array: their indexes, what has become of each, and what an element is as a job. [`super::array`] starts and ends them.

use bytes::Bytes;
use rsd_proto::indexes::{Indexes, PLACEHOLDER};
use rsd_proto::v1::{ArrayElement, ArrayInfo, EnvVar, JobInfo, JobSpec, JobState, KeptArray, RankExit};

use super::rank_set::RankSet;
use crate::attempts::number;
use crate::calls::{Refused, exit};
use crate::{JobId, sentences};

/// The most bytes of a list of indexes in an answer.
const LIST_BYTES_MAX: usize = 4 << 10;

/// The elements of an array, by position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) indexes: Indexes,
    started: RankSet,
    pub(super) held: RankSet,
    done: RankSet,
    pub(super) failed: RankSet,
    pub(super) cancelled: RankSet,
    timed_out: RankSet,
    /// Of the element that failed first, and its position.
    pub(super) cause: Option<(u32, RankExit)>,
    pub(super) started_ms: u64,
    /// Whether no more elements are to start.
    pub(super) ending: bool,
}

impl Array {
    /// Returns the array that a specification describes, if it does.
    pub(super) fn of(spec: &JobSpec) -> Option<Array> {
        let indexes = spec.array.parse().ok().filter(|_| !spec.array.is_empty())?;
        Some(Array { indexes, ..Array::default() })
    }

    fn all(&self) -> RankSet {
        RankSet::run(0, self.indexes.len() - 1)
    }

    fn over(&self) -> RankSet {
        let mut over = self.done.clone();
        [&self.failed, &self.cancelled, &self.timed_out].into_iter().for_each(|set| over.extend(set));
        over
    }

    pub(super) fn running(&self) -> RankSet {
        self.started.without(&self.over())
    }

    /// Returns the elements that have not started and may, held or not.
    pub(super) fn waiting(&self) -> RankSet {
        self.all().without(&self.started).without(&self.cancelled).without(&self.failed)
    }

    /// Returns the element that starts next; None: all have started or are held, or as many run as may.
    pub(super) fn next(&self) -> Option<u32> {
        if self.ending || self.is_full() {
            return None;
        }
        // Elements start in order, so nearly always the first one after those that have started.
        self.waiting().without(&self.held).first()
    }

    /// Returns whether as many elements run as may.
    pub(super) fn is_full(&self) -> bool {
        self.indexes.limit > 0 && self.running().len() >= u64::from(self.indexes.limit)
    }

    pub(super) fn has_started(&self) -> bool {
        !self.started.is_empty()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over().len() == u64::from(self.indexes.len())
    }

    /// Returns whether an element may still be started, now or later.
    pub(super) fn has_waiting(&self) -> bool {
        !self.ending && !self.waiting().is_empty()
    }

    /// Returns how many elements that may start come before this one.
    pub(super) fn queued_before(&self, position: u32) -> u64 {
        match position.checked_sub(1) {
            Some(last) => self.waiting().without(&self.held).common(&RankSet::run(0, last)).len(),
            None => 0,
        }
    }

    /// Records that an element has been started.
    pub(super) fn start(&mut self, position: u32, at_ms: u64) {
        self.started.insert(position, position);
        if self.started_ms == 0 {
            self.started_ms = at_ms;
        }
    }

    /// Records how an element has ended.
    pub(super) fn end(&mut self, position: u32, state: JobState, cause: Option<&RankExit>) {
        let set = match state {
            JobState::Done => &mut self.done,
            JobState::Cancelled => &mut self.cancelled,
            JobState::TimedOut => &mut self.timed_out,
            JobState::Failed | JobState::Unknown | JobState::Queued | JobState::Running | JobState::Ending => {
                &mut self.failed
            }
        };
        set.insert(position, position);
        if let (JobState::Failed, Some(cause), None) = (state, cause, &self.cause) {
            self.cause = Some((position, cause.clone()));
        }
    }

    /// Returns in which state an element is.
    pub(super) fn state(&self, position: u32) -> JobState {
        let is = |set: &RankSet| set.contains(position);
        match () {
            () if is(&self.done) => JobState::Done,
            () if is(&self.failed) => JobState::Failed,
            () if is(&self.cancelled) => JobState::Cancelled,
            () if is(&self.timed_out) => JobState::TimedOut,
            () if is(&self.started) => JobState::Running,
            () => JobState::Queued,
        }
    }

    pub(super) fn is_held(&self, position: u32) -> bool {
        self.held.contains(position)
    }

    /// Returns how the array ends.
    pub(super) fn verdict(&self) -> JobState {
        match () {
            () if !self.failed.is_empty() => JobState::Failed,
            () if !self.timed_out.is_empty() => JobState::TimedOut,
            () if !self.cancelled.is_empty() => JobState::Cancelled,
            () => JobState::Done,
        }
    }

    /// Returns the state that users see while it has not ended.
    pub(super) fn alive_state(&self) -> JobState {
        match () {
            () if self.ending => JobState::Ending,
            () if self.has_started() => JobState::Running,
            () => JobState::Queued,
        }
    }

    /// Describes the elements. `held`: whether the whole array is.
    pub(super) fn info(&self, held: bool) -> ArrayInfo {
        let (waiting, running) = (self.waiting(), self.running());
        let held = if held { waiting.clone() } else { waiting.common(&self.held) };
        let queued = waiting.without(&held);
        let count = |set: &RankSet| u32::try_from(set.len()).unwrap_or(u32::MAX);
        let list = |set: &RankSet| {
            let mut text = self.indexes.text_of(set.runs().take(LIST_BYTES_MAX / 2));
            sentences::cut(&mut text, LIST_BYTES_MAX);
            text
        };
        ArrayInfo {
            elements: self.indexes.list(),
            limit: self.indexes.limit,
            size: self.indexes.len(),
            queued: count(&queued),
            held: count(&held),
            running: count(&running),
            done: count(&self.done),
            failed: count(&self.failed),
            cancelled: count(&self.cancelled),
            timed_out: count(&self.timed_out),
            which_queued: list(&queued),
            which_held: list(&held),
            which_running: list(&running),
            which_failed: list(&self.failed),
        }
    }

    /// Returns the record of its elements.
    pub(super) fn kept(&self, job: JobId) -> KeptArray {
        let runs = |set: &RankSet| set.runs().flat_map(|(first, last)| [first, last]).collect();
        KeptArray {
            job,
            started: runs(&self.started),
            held: runs(&self.held),
            done: runs(&self.done),
            failed: runs(&self.failed),
            cancelled: runs(&self.cancelled),
            timed_out: runs(&self.timed_out),
            cause: self.cause.as_ref().map(|(_, cause)| cause.clone()),
            cause_index: self.cause.as_ref().map_or(0, |(position, _)| *position),
            started_ms: self.started_ms,
            ending: self.ending,
        }
    }

    /// Takes in a record of its elements.
    fn restore(&mut self, kept: &KeptArray) {
        let all = self.all();
        let set = |runs: &[u32]| {
            let mut set = RankSet::default();
            let pairs = runs.chunks_exact(2).filter(|run| run[0] <= run[1]);
            pairs.for_each(|run| set.insert(run[0], run[1]));
            set.common(&all)
        };
        (self.started, self.held, self.done) = (set(&kept.started), set(&kept.held), set(&kept.done));
        (self.failed, self.cancelled, self.timed_out) = (set(&kept.failed), set(&kept.cancelled), set(&kept.timed_out));
        self.cause = kept.cause.clone().map(|cause| (kept.cause_index, cause));
        (self.started_ms, self.ending) = (kept.started_ms, kept.ending);
    }
}

/// What the records of an earlier head say about the elements of an array, in their order.
#[derive(Debug, Default)]
pub(super) struct PastArray {
    base: Option<KeptArray>,
    /// Positions, and when they were started or how they have ended.
    since: Vec<(u32, Past)>,
}

#[derive(Debug)]
enum Past {
    Started(u64),
    Ended(JobState, Option<Box<RankExit>>),
}

impl PastArray {
    /// Takes in a record of all elements.
    pub(super) fn take(&mut self, kept: KeptArray) {
        *self = PastArray { base: Some(kept), since: Vec::new() };
    }

    pub(super) fn started(&mut self, job: JobId, element: &ArrayElement, at_ms: u64) {
        self.since.extend(position_of(job, element).map(|position| (position, Past::Started(at_ms))));
    }

    pub(super) fn ended(&mut self, info: &JobInfo, element: &ArrayElement) {
        let past = Past::Ended(info.state(), info.cause.clone().map(Box::new));
        self.since.extend(position_of(info.job, element).map(|position| (position, past)));
    }

    /// Brings an array to the state that the records tell of.
    pub(super) fn apply(self, array: &mut Array) {
        self.base.iter().for_each(|base| array.restore(base));
        let size = array.indexes.len();
        for (position, past) in self.since.into_iter().filter(|(position, _)| *position < size) {
            match past {
                Past::Started(at_ms) => array.start(position, at_ms),
                Past::Ended(state, cause) => array.end(position, state, cause.as_deref()),
            }
        }
    }
}

/// Returns the position of an element by its number.
fn position_of(job: JobId, element: &ArrayElement) -> Option<u32> {
    let job = number(job);
    u32::try_from(job.checked_sub(element.array)?.checked_sub(1)?).ok()
}

/// Refuses an array that cannot be one.
pub(super) fn check(spec: &JobSpec) -> Result<Option<Array>, Refused> {
    let usage = |text: String| Err(Refused::new(exit::USAGE, text));
    if spec.array.is_empty() {
        return Ok(None);
    }
    let indexes: Indexes = match spec.array.parse() {
        Ok(indexes) => indexes,
        Err(why) => return usage(format!("--array {}: {why}", sentences::short(&spec.array))),
    };
    if spec.attached {
        return usage(
            "an array has no client that follows it: use rsctl submit --array, then rsctl wait and rsctl logs".into(),
        );
    }
    if !spec.output_dir.is_empty() && !contains(&spec.output_dir, PLACEHOLDER.as_bytes()) && indexes.len() > 1 {
        return usage(format!(
            "--output {}: all elements of the array would write the same files; put {PLACEHOLDER} into the directory's name",
            String::from_utf8_lossy(&spec.output_dir)
        ));
    }
    Ok(Some(Array { indexes, ..Array::default() }))
}

/// Returns the specification of an element.
pub(super) fn element_spec(spec: &JobSpec, element: ArrayElement) -> JobSpec {
    let mut own = spec.clone();
    let index = element.index.to_string();
    let fill = |text: &mut Bytes| {
        if contains(text, PLACEHOLDER.as_bytes()) {
            *text = filled(text, index.as_bytes());
        }
    };
    for app in &mut own.apps {
        app.argv.iter_mut().for_each(fill);
        fill(&mut app.wdir);
    }
    fill(&mut own.output_dir);
    (own.array, own.after, own.token) = (String::new(), Vec::new(), Bytes::new());
    own.queue_deadline_ms = 0;
    for (name, value) in [
        ("RSD_ARRAY_INDEX", index),
        ("RSD_ARRAY_JOB", element.array.to_string()),
        ("RSD_ARRAY_COUNT", element.count.to_string()),
    ] {
        set_variable(&mut own, name, value);
    }
    own.element = Some(element);
    own
}

/// Sets a variable for all ranks of a job.
pub(super) fn set_variable(spec: &mut JobSpec, name: &str, value: String) {
    let is_other = |var: &EnvVar| var.name != *name.as_bytes();
    spec.env.retain(is_other);
    spec.apps.iter_mut().for_each(|app| app.env.retain(is_other));
    let var = EnvVar { name: Bytes::copy_from_slice(name.as_bytes()), value: value.into() };
    spec.apps.iter_mut().for_each(|app| app.env.push(var.clone()));
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

fn filled(text: &[u8], index: &[u8]) -> Bytes {
    let word = PLACEHOLDER.as_bytes();
    let (mut own, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some(at) = rest.windows(word.len()).position(|part| part == word) {
        own.extend_from_slice(&rest[..at]);
        own.extend_from_slice(index);
        rest = &rest[at + word.len()..];
    }
    own.extend_from_slice(rest);
    own.into()
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1 as wire;

    use super::*;

    fn array(text: &str) -> Array {
        Array::of(&JobSpec { array: text.into(), ..JobSpec::default() }).expect("it is valid")
    }

    #[test]
    fn elements_start_in_order_and_no_more_than_may_run() {
        let mut own = array("10-40:10%2");
        assert_eq!(own.next(), Some(0));
        own.start(0, 1);
        own.start(1, 2);
        assert_eq!((own.next(), own.is_full(), own.started_ms), (None, true, 1));
        own.end(0, JobState::Failed, None);
        own.held.insert(2, 2);
        assert_eq!(own.next(), Some(3));
        own.start(3, 3);
        own.end(1, JobState::Done, None);
        own.end(3, JobState::Done, None);
        assert_eq!((own.next(), own.is_over(), own.has_waiting()), (None, false, true));
        own.cancelled.insert(2, 2);
        assert_eq!((own.is_over(), own.verdict()), (true, JobState::Failed));
        let info = own.info(false);
        assert_eq!((info.done, info.failed, info.cancelled, &*info.which_failed), (2, 1, 1, "10"));
        let mut again = array("10-40:10%2");
        again.restore(&own.kept(7));
        assert_eq!(again, own);
    }

    #[test]
    fn the_index_stands_in_arguments_and_paths() {
        let app = wire::App {
            argv: vec![Bytes::from_static(b"./a"), Bytes::from_static(b"{index}-{index}{x}")],
            wdir: Bytes::from_static(b"/d/{index}"),
            ..wire::App::default()
        };
        let spec = JobSpec { apps: vec![app], array: "7".into(), ..JobSpec::default() };
        let own = element_spec(&spec, ArrayElement { array: 3, index: 7, count: 1 });
        assert_eq!((&own.apps[0].argv[1][..], &own.apps[0].wdir[..]), (&b"7-7{x}"[..], &b"/d/7"[..]));
        let env: Vec<&[u8]> = own.apps[0].env.iter().map(|var| &var.value[..]).collect();
        assert_eq!(env, [b"7", b"3", b"1"]);
    }
}
