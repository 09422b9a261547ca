//! Arrays of jobs, as users name and see them: `7` is the whole array, `7[3]` its element with index 3, `7[1-5]` several.

use rsd_proto::indexes::Indexes;
use rsd_proto::v1::{ArrayInfo, JobInfo, JobSelector, JobState, ListJobsRequest};

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::print::{self, Align};
use crate::selectors::Selector;

/// How many failed elements a report lists.
const FAILED_SHOWN: usize = 12;

/// Returns a job as users name it.
pub(crate) fn called(info: &JobInfo) -> String {
    match (&info.array, &info.element) {
        (Some(array), _) => format!("{}[{}]", info.job, short(&array.elements)),
        (None, Some(element)) => format!("{}[{}]", element.array, element.index),
        (None, None) => info.job.to_string(),
    }
}

fn short(elements: &str) -> String {
    const SHOWN: usize = 24;
    match elements.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &elements[..end]),
        None => elements.to_owned(),
    }
}

/// Returns how many elements are in which state: `88 done, 1 failed, 8 running, 3 queued`.
pub(crate) fn counts(array: &ArrayInfo) -> String {
    let counts = [
        (array.done, "done"),
        (array.failed, "failed"),
        (array.timed_out, "timed-out"),
        (array.cancelled, "cancelled"),
        (array.running, "running"),
        (array.queued, "queued"),
        (array.held, "held"),
    ];
    let shown = counts.into_iter().filter(|(count, _)| *count > 0);
    shown.map(|(count, state)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

/// Returns what is said about an array or an element when a job is shown.
pub(crate) fn fields(info: &JobInfo) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if let Some(array) = &info.array {
        let limit = if array.limit > 0 { format!(", at most {} at the same time", array.limit) } else { String::new() };
        fields.push(("array", format!("{} elements: {}{limit}", array.size, array.elements)));
        fields.push(("elements", counts(array)));
        for (name, which) in [
            ("running", &array.which_running),
            ("failed", &array.which_failed),
            ("waiting", &array.which_queued),
            ("held", &array.which_held),
        ] {
            if !which.is_empty() {
                fields.push((name, which.clone()));
            }
        }
    }
    if let Some(element) = &info.element {
        fields.push(("element", format!("index {} of array {}", element.index, element.array)));
    }
    fields
}

/// Returns the jobs that a selector names: one, or several elements of an array.
pub(crate) async fn jobs(client: &mut Client, selector: Selector) -> Result<Vec<JobInfo>, Failure> {
    let Some(elements) = &selector.elements else { return Ok(vec![dvm::job(client, selector).await?]) };
    let chosen: Indexes = elements.parse().map_err(Failure::usage)?;
    let whole = dvm::job(client, Selector { elements: None, ..selector.clone() }).await?;
    let mut found = Vec::new();
    for index in (0..chosen.len()).filter_map(|nth| chosen.at(nth)) {
        found.push(element(client, whole.job, index).await?);
    }
    Ok(found)
}

/// Returns an element of an array.
pub(crate) async fn element(client: &mut Client, array: u64, index: u32) -> Result<JobInfo, Failure> {
    let wanted = JobSelector { job: array, index: Some(index), ..JobSelector::default() };
    dvm::answer(&format!("asking for job {array}[{index}]"), client.get_job(wanted)).await
}

/// Returns the elements of an array that have started and are remembered, by index.
pub(crate) async fn elements(client: &mut Client, array: u64) -> Result<Vec<JobInfo>, Failure> {
    let mut found: Vec<JobInfo> = Vec::new();
    loop {
        let after = found.last().map_or(0, |job| job.job);
        let request = ListJobsRequest { all: true, array, after, ..ListJobsRequest::default() };
        let reply = dvm::answer("listing the elements of the array", client.list_jobs(request)).await?;
        let more = reply.more && !reply.jobs.is_empty();
        found.extend(reply.jobs);
        if !more {
            return Ok(found);
        }
    }
}

/// Returns the table of an array's failed elements, for a report.
pub(crate) fn failed_table(elements: &[JobInfo], describe: impl Fn(&JobInfo) -> String) -> String {
    let failed: Vec<&JobInfo> =
        elements.iter().filter(|info| matches!(info.state(), JobState::Failed | JobState::TimedOut)).collect();
    if failed.is_empty() {
        return String::new();
    }
    let row = |info: &&JobInfo| {
        let index = info.element.map_or_else(String::new, |element| element.index.to_string());
        [index, json::state(info.state()).to_owned(), info.exit_code.to_string(), describe(info)]
    };
    let rows: Vec<_> = failed.iter().take(FAILED_SHOWN).map(row).collect();
    let columns = [("INDEX", Align::Right), ("STATE", Align::Left), ("EXIT", Align::Right), ("WHY", Align::Left)];
    let mut text = print::table(columns, &rows);
    if failed.len() > FAILED_SHOWN {
        text.push_str(&format!("… and {} more: rsctl ps -a --expand --state failed\n", failed.len() - FAILED_SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::ArrayElement;

    use super::*;

    #[test]
    fn arrays_and_elements_have_names() {
        let array = ArrayInfo { elements: "1-100".into(), done: 88, failed: 1, queued: 11, ..ArrayInfo::default() };
        assert_eq!(counts(&array), "88 done, 1 failed, 11 queued");
        assert_eq!(called(&JobInfo { job: 7, array: Some(array), ..JobInfo::default() }), "7[1-100]");
        let element = Some(ArrayElement { array: 7, index: 3, count: 100 });
        assert_eq!(called(&JobInfo { job: 10, element, ..JobInfo::default() }), "7[3]");
    }
}
