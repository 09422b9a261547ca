//! Options of `run` and `submit` about when a job starts, and the commands that change it.

use clap::Args;
use rsd_proto::called;
use rsd_proto::indexes::Indexes;
use rsd_proto::resources;
use rsd_proto::v1::{Dependency, Resource, RetryOn, dependency::Kind};

pub(crate) const QUEUE: &str = "Queue";

/// When a job starts.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Queueing {
    /// Submit one job for each index: `1-100`, `0-9:3`, `1,4,7-9`; at most 8 at the same time: `1-100%8`. `{index}` in arguments and paths is the index, as is RSD_ARRAY_INDEX
    #[arg(long, value_name = "INDEXES[%N]", value_parser = indexes, help_heading = QUEUE)]
    pub(crate) array: Option<String>,
    /// Start only when other jobs have succeeded (`ok:12`), failed (`fail:12`), ended (`any:12`) or started (`start:12`); 12 may be an array, `12[3]`, a name, or a label `key=value`
    #[arg(long, value_name = "WHAT:JOB,…", value_parser = dependency, value_delimiter = ',', help_heading = QUEUE)]
    pub(crate) after: Vec<Dependency>,
    /// What happens when --after can never be fulfilled: the job ends (exit code 243), or is held
    #[arg(long, value_name = "end|hold", default_value = "end", help_heading = QUEUE)]
    pub(crate) after_never: Never,
    /// Place in the queue: jobs of higher priority come first. Below 0, later than others; above 0, only for the DVM's owner or root
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, help_heading = QUEUE)]
    pub(crate) priority: i32,
    /// Start the job again when it has failed, at most so often; it keeps its number, and RSD_ATTEMPT counts from 1
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000), help_heading = QUEUE)]
    pub(crate) retry: u32,
    /// Only after these failures: `node-loss`, `failure` (of a rank), exit codes such as `75` or `1-9` [default: any]
    #[arg(long, value_name = "FAILURE,…", requires = "retry", value_parser = failures, help_heading = QUEUE)]
    pub(crate) retry_on: Option<RetryOn>,
    /// Reserve so much of its node's memory for each rank, for example `4GiB`
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = QUEUE)]
    pub(crate) mem_per_rank: Option<u64>,
    /// Reserve what users have declared: of a node's resources for each rank, of the DVM's for the job. `gpu:2` is --gpus-per-rank 2
    #[arg(long, value_name = "NAME[:N],…", value_delimiter = ',', value_parser = resource, help_heading = QUEUE)]
    pub(crate) resource: Vec<Resource>,
}

fn size(text: &str) -> Result<u64, String> {
    match rsd_config::size::parse(text) {
        Ok(0) => Err("expected a size from 1 byte".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

fn resource(text: &str) -> Result<Resource, String> {
    match text.split_once([':', '=']) {
        Some((resources::MEMORY, amount)) => {
            size(amount).map(|amount| Resource { name: resources::MEMORY.into(), amount })
        }
        Some(_) | None => resources::parse(text).map(|(name, amount)| Resource { name, amount }),
    }
}

/// What happens when a dependency can never be fulfilled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Never {
    #[default]
    End,
    Hold,
}

/// Parses `node-loss,75`.
fn failures(text: &str) -> Result<RetryOn, String> {
    const FORMS: &str = "expected node-loss, failure, or exit codes from 1 to 255, such as `75` or `1-9`";
    let mut on = RetryOn::default();
    for word in text.split(',') {
        match word {
            "node-loss" => on.node_loss = true,
            "failure" => on.failure = true,
            codes => {
                let (first, last) = codes.split_once('-').unwrap_or((codes, codes));
                let (first, last): (u32, u32) = (first.parse().map_err(|_| FORMS)?, last.parse().map_err(|_| FORMS)?);
                if first == 0 || last > 255 || last < first {
                    return Err(FORMS.to_owned());
                }
                on.codes.extend(first..=last);
            }
        }
    }
    on.codes.sort_unstable();
    on.codes.dedup();
    Ok(on)
}

fn indexes(text: &str) -> Result<String, String> {
    text.parse::<Indexes>().map(|indexes| indexes.to_string())
}

/// Parses `ok:12`.
fn dependency(text: &str) -> Result<Dependency, String> {
    const FORMS: &str = "expected ok:JOB, any:JOB, fail:JOB or start:JOB, where JOB is a number, `12[3]`, a name, or a label `key=value`";
    let (kind, of) = text.split_once(':').ok_or(FORMS)?;
    let kind = match kind {
        "ok" => Kind::Ok,
        "any" => Kind::Any,
        "fail" => Kind::Fail,
        "start" => Kind::Start,
        "afterok" | "afterany" | "afternotok" | "after" => {
            return Err(format!("`{kind}` is another scheduler's word: write ok, any, fail or start"));
        }
        _ => return Err(FORMS.to_owned()),
    };
    let job = match of.strip_suffix(']').and_then(|of| of.split_once('[')) {
        Some((job, index)) if index.parse::<u32>().is_ok() => job,
        Some(_) => return Err(format!("`{of}`: the index must be a number, as in 12[3]")),
        None => of,
    };
    let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
    match () {
        () if is_number || job == "last" => {}
        () if job.contains('=') => drop(called::label(job)?),
        () if job.is_empty() => return Err(FORMS.to_owned()),
        () => called::check_name(job)?,
    }
    Ok(Dependency { kind: kind.into(), of: of.to_owned(), ..Dependency::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named_or_are_exit_codes() {
        let on = failures("node-loss,75,1-3").unwrap();
        assert_eq!((on.node_loss, on.failure, on.codes), (true, false, vec![1, 2, 3, 75]));
        for text in ["", "node", "0", "256", "3-1", "a-b", "75,"] {
            assert!(failures(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dependencies_name_jobs_as_users_do() {
        for text in ["ok:12", "any:last", "fail:12[3]", "start:train", "ok:project=x"] {
            assert_eq!(dependency(text).unwrap().of, text.split_once(':').unwrap().1);
        }
        for text in ["12", "ok", "ok:", "afterok:12", "ok:12[a]", "ok:1x", "maybe:1", "ok:=x"] {
            assert!(dependency(text).is_err(), "{text}");
        }
    }
}
