//! Options of `ps`: which jobs are listed.

use clap::Args;
use rsd_proto::called;
use rsd_proto::v1::{JobState, LabelWish, ListJobsRequest};

use crate::when;

/// `ps`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = HELP)]
pub(crate) struct Ps {
    /// Include jobs that have ended
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Also list the elements of arrays that have started, each in a line
    #[arg(long)]
    pub(crate) expand: bool,
    /// Only jobs in these states: queued, running, ending, done, failed, cancelled, timed-out
    #[arg(long, value_name = "STATE,…", value_delimiter = ',', value_parser = state)]
    pub(crate) state: Vec<JobState>,
    /// Only jobs of this user, by name or uid
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Only jobs whose name matches: `*` stands for any characters, `?` for one
    #[arg(id = "job_pattern", long = "name", value_name = "PATTERN", value_parser = pattern)]
    pub(crate) name: Option<String>,
    /// Only jobs that were still there at this time: `2h` ago, `14:00`, `2026-11-23`, `2026-11-23 14:00`
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<u64>,
    /// Only jobs that were submitted before this time
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<u64>,
    /// Only jobs with this label
    #[arg(id = "label_wish", long = "label", value_name = "KEY[=VALUE]", value_parser = label)]
    pub(crate) labels: Vec<LabelWish>,
    /// Only the newest jobs, so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
}

const HELP: &str = "\
Examples:
  rsctl ps                                     jobs that have not ended
  rsctl ps -a --since 2h                       jobs of the last two hours
  rsctl ps --state failed --limit 20           the last 20 jobs that failed
  rsctl ps -a --name 'relax*' --label project=x

--since, --until, --limit and states of ended jobs imply -a. Times are local.";

impl Ps {
    /// Whether ended jobs are listed.
    pub(crate) fn lists_ended(&self) -> bool {
        let has_ended = |state: &JobState| match state {
            JobState::Done | JobState::Failed | JobState::Cancelled | JobState::TimedOut => true,
            JobState::Queued | JobState::Running | JobState::Ending | JobState::Unknown => false,
        };
        let is_past = self.since.is_some() || self.until.is_some() || self.limit.is_some();
        self.all || is_past || self.state.iter().any(has_ended)
    }

    /// Whether not all of them are listed.
    pub(crate) fn filters(&self) -> bool {
        let wanted = self.request();
        wanted != ListJobsRequest { all: wanted.all, expand: wanted.expand, ..ListJobsRequest::default() }
    }

    /// Returns the request, from the first job on.
    pub(crate) fn request(&self) -> ListJobsRequest {
        ListJobsRequest {
            all: self.lists_ended(),
            after: 0,
            states: self.state.iter().map(|state| (*state).into()).collect(),
            user: self.user.clone().unwrap_or_default(),
            name: self.name.clone().unwrap_or_default(),
            since_ms: self.since.unwrap_or(0),
            until_ms: self.until.unwrap_or(0),
            labels: self.labels.clone(),
            limit: self.limit.unwrap_or(0),
            expand: self.expand,
            array: 0,
        }
    }
}

fn state(text: &str) -> Result<JobState, String> {
    const STATES: [JobState; 7] = [
        JobState::Queued,
        JobState::Running,
        JobState::Ending,
        JobState::Done,
        JobState::Failed,
        JobState::Cancelled,
        JobState::TimedOut,
    ];
    let names = STATES.map(rsd_core::sentences::state);
    let found = STATES.into_iter().zip(names).find(|(_, name)| *name == text).map(|(state, _)| state);
    found.ok_or_else(|| format!("the states are {}", names.join(", ")))
}

fn pattern(text: &str) -> Result<String, String> {
    match (1..=called::NAME_BYTES_MAX).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(format!("a pattern has 1 to {} characters", called::NAME_BYTES_MAX)),
    }
}

fn label(text: &str) -> Result<LabelWish, String> {
    match text.split_once('=') {
        Some(_) => called::label(text).map(|(key, value)| LabelWish { key, value: Some(value) }),
        None => called::check_label(text, "any").map(|()| LabelWish { key: text.to_owned(), value: None }),
    }
}
