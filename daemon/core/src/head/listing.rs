//! How users find jobs: by name, and by the filters of `rsctl ps`.

use rsd_proto::called;
use rsd_proto::v1::{JobInfo, JobState, ListJobsRequest};

use super::Head;
use super::job::Job;
use crate::calls::{Caller, Refused, exit};
use crate::{JobId, sentences};

/// How many jobs of one name a refusal lists.
const LISTED: usize = 8;

impl Head {
    /// Returns the jobs that a caller may see and wants, oldest first.
    pub(super) fn list_jobs(&self, caller: Caller, wanted: &ListJobsRequest) -> Result<Vec<JobInfo>, Refused> {
        let filter = Filter::new(wanted)?;
        let is_shown = |job: &Job| match (&job.element, wanted.array) {
            (None, array) => array == 0,
            (Some(element), 0) => wanted.expand && element.array > 0,
            (Some(element), array) => element.array == array,
        };
        let is_listed = |job: &&Job| is_shown(job) && self.may_see(caller, job.id) && filter.takes(job);
        let mut found: Vec<&Job> = match wanted.all {
            true => self.jobs.all().filter(is_listed).collect(),
            false => self.jobs.alive().filter(is_listed).collect(),
        };
        found.sort_by_key(|job| job.number());
        if wanted.limit > 0 {
            found.drain(..found.len().saturating_sub(wanted.limit as usize));
        }
        Ok(found.into_iter().filter(|job| job.number() > wanted.after).map(Job::info).collect())
    }

    /// Returns the job of this name that a caller means: the only one that has not ended, else the only one that has; of the caller's
    /// own jobs if one has the name, else of all that the caller may see.
    pub(super) fn find_named(&self, caller: Caller, name: &str) -> Result<JobId, Refused> {
        called::check_name(name).map_err(|why| Refused::new(exit::USAGE, why))?;
        let mut found: Vec<&Job> = self.jobs.of(self.realm(caller.uid)).filter(|job| is_named(job, name)).collect();
        if found.is_empty() {
            let seen = |job: &&Job| is_named(job, name) && self.may_see(caller, job.id);
            found = self.jobs.all().filter(seen).collect();
        }
        if found.iter().any(|job| !job.is_over()) {
            found.retain(|job| !job.is_over());
        }
        match &found[..] {
            [] => {
                let text = format!("no job is named {name} (rsctl ps -a lists all remembered jobs)");
                Err(Refused::new(exit::NO_SUCH_JOB, text))
            }
            [job] => Ok(job.number()),
            [.., newest] => {
                let left = found.len().saturating_sub(LISTED);
                let listed: Vec<String> = found.iter().skip(left).map(|job| with_state(job)).collect();
                let more = if left > 0 { format!("{left} older ones, ") } else { String::new() };
                let (count, newest) = (found.len(), newest.number());
                let text = format!(
                    "{count} jobs are named {name}: {more}{}; use a number: the newest is {newest}",
                    listed.join(", ")
                );
                Err(Refused::new(exit::USAGE, text))
            }
        }
    }
}

/// The elements of an array have the name of the array, which is found by it.
fn is_named(job: &Job, name: &str) -> bool {
    job.called.name == name && job.element.is_none()
}

/// Returns `7 (running)`.
fn with_state(job: &Job) -> String {
    format!("{} ({})", job.number(), sentences::state(job.state()))
}

/// The filters of a list of jobs.
struct Filter<'a> {
    states: Vec<JobState>,
    uid: Option<u32>,
    wanted: &'a ListJobsRequest,
}

impl Filter<'_> {
    fn new(wanted: &ListJobsRequest) -> Result<Filter<'_>, Refused> {
        let usage = |text: String| Err(Refused::new(exit::USAGE, text));
        let states: Result<Vec<JobState>, _> = wanted.states.iter().map(|state| JobState::try_from(*state)).collect();
        let Ok(states) = states else { return usage("a state that this head does not know".to_owned()) };
        if wanted.name.len() > called::NAME_BYTES_MAX {
            return usage(format!("a pattern for names has at most {} bytes", called::NAME_BYTES_MAX));
        }
        if wanted.labels.len() > called::LABELS_MAX {
            return usage(format!("{} labels: a job has at most {}", wanted.labels.len(), called::LABELS_MAX));
        }
        Ok(Filter { states, uid: wanted.user.parse().ok(), wanted })
    }

    fn takes(&self, job: &Job) -> bool {
        let wanted = self.wanted;
        let (submitted_ms, ended_ms) = job.lifetime();
        (self.states.is_empty() || self.states.contains(&job.state()))
            && (wanted.user.is_empty() || self.is_of_user(job))
            && (wanted.name.is_empty() || called::matches(&wanted.name, &job.called.name))
            && (wanted.since_ms == 0 || ended_ms.is_none_or(|ended_ms| ended_ms >= wanted.since_ms))
            && (wanted.until_ms == 0 || submitted_ms < wanted.until_ms)
            && wanted.labels.iter().all(|label| job.called.has_label(&label.key, label.value.as_deref()))
    }

    /// In a DVM that serves one user, jobs have no owner, and clients say who has submitted them.
    fn is_of_user(&self, job: &Job) -> bool {
        match (job.owner(), &job.called.submitter) {
            (Some(owner), _) => owner.name == self.wanted.user || Some(owner.uid) == self.uid,
            (None, Some(submitter)) => submitter.user == self.wanted.user,
            (None, None) => false,
        }
    }
}
