//! The commands about the queue: `why`, `hold`, `release`, `priority`.

use rsd_proto::v1::{ChangeJobRequest, JobInfo, JobSelector, JobState, WhyReply, change_job_request::Change};
use serde_json::{Value, json};

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::print::{self, out, visible};
use crate::selectors::{Selector, Which};
use crate::{array, json, when};

/// `why`.
pub(crate) async fn why(mut client: Client, selector: Selector, as_json: bool) -> Result<u8, Failure> {
    let doing = format!("asking why job {selector} waits");
    let index = selector.index().map_err(Failure::usage)?;
    let wanted = match &selector.job {
        Which::Last => JobSelector { index, ..JobSelector::default() },
        Which::Number(job) => JobSelector { job: *job, index, ..JobSelector::default() },
        Which::Named(name) => JobSelector { name: name.clone(), index, ..JobSelector::default() },
    };
    let reply = dvm::answer(&doing, client.why(wanted)).await?;
    match as_json {
        true => out(&(json::document(described(&reply)) + "\n"))?,
        false => out(&text(&reply, when::now_ms(), when::shown))?,
    }
    Ok(0)
}

fn described(reply: &WhyReply) -> Value {
    json!({
        "job": json::job(&reply.job.clone().unwrap_or_default()),
        "reasons": reply.reasons.iter().map(|reason| json!({ "text": reason.text, "frees": reason.frees })).collect::<Vec<_>>(),
        "earliest_ms": reply.earliest_ms,
        "earliest_because": (!reply.earliest_because.is_empty()).then_some(&reply.earliest_because),
    })
}

/// Returns the answer for people.
fn text(reply: &WhyReply, now_ms: u64, shown: impl Fn(u64) -> String) -> String {
    let info = reply.job.clone().unwrap_or_default();
    let called = array::called(&info);
    if reply.reasons.is_empty() {
        return format!("job {called} does not wait: {}\n", state(&info, now_ms));
    }
    let since = print::duration(now_ms.saturating_sub(info.submitted_ms));
    let mut text = format!("job {called} has waited for {since}:\n");
    for reason in &reply.reasons {
        text.push_str(&format!("  {}\n", visible(&reason.text)));
        reason.frees.iter().for_each(|frees| text.push_str(&format!("    freed by: {}\n", visible(frees))));
    }
    let because = visible(&reply.earliest_because).into_owned();
    match reply.earliest_ms {
        Some(at) if at <= now_ms => text.push_str("it can start now\n"),
        Some(at) => {
            let left = print::duration(at - now_ms);
            text.push_str(&format!("expected start: {}, in {left}, {because}\n", shown(at)));
        }
        None if because.is_empty() => {}
        None => text.push_str(&format!("expected start: {because}\n")),
    }
    text
}

fn state(info: &JobInfo, now_ms: u64) -> String {
    match info.state() {
        JobState::Running | JobState::Ending if info.started_ms > 0 => {
            let since = print::duration(now_ms.saturating_sub(info.started_ms));
            format!("it was started {since} ago, and is {}", json::state(info.state()))
        }
        other => format!("it is {}", json::state(other)),
    }
}

/// `hold`, `release` and `priority`.
pub(crate) async fn change(
    mut client: Client,
    selectors: Vec<Selector>,
    change: Change,
    as_json: bool,
) -> Result<u8, Failure> {
    let doing = match change {
        Change::Hold(true) => "holding",
        Change::Hold(false) => "releasing",
        Change::Priority(_) => "changing the priority of",
    };
    let mut jobs = Vec::new();
    for selector in selectors {
        let elements = selector.elements.clone().unwrap_or_default();
        let whole = Selector { elements: None, ..selector };
        let job = dvm::job(&mut client, whole).await?.job;
        let request = ChangeJobRequest { job, elements, change: Some(change) };
        jobs.push(dvm::answer(&format!("{doing} job {job}"), client.change_job(request)).await?);
    }
    if as_json {
        let jobs: Vec<_> = jobs.iter().map(json::job).collect();
        out(&(json::document(json!({ "jobs": jobs })) + "\n"))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::WhyReason;

    use super::*;

    #[test]
    fn an_answer_says_why_what_frees_it_and_when() {
        let job = JobInfo { job: 7, state: JobState::Queued.into(), submitted_ms: 1_000, ..JobInfo::default() };
        let reason = |text: &str, frees: &[&str]| WhyReason {
            text: text.into(),
            frees: frees.iter().map(|text| (*text).into()).collect(),
        };
        let reply = WhyReply {
            job: Some(job.clone()),
            reasons: vec![reason(
                "4 ranks requested, 0 slots free on 1 node",
                &["the end of job 6, in 30s at the latest"],
            )],
            earliest_ms: Some(32_000),
            earliest_because: "when job 6 reaches its time limit".into(),
        };
        assert_eq!(
            text(&reply, 2_000, |at| format!("<{at}>")),
            "\
job 7 has waited for 1.0s:
  4 ranks requested, 0 slots free on 1 node
    freed by: the end of job 6, in 30s at the latest
expected start: <32000>, in 30s, when job 6 reaches its time limit
"
        );
        let done = JobInfo { state: JobState::Done.into(), ..job };
        let reply = WhyReply { job: Some(done), ..WhyReply::default() };
        assert_eq!(text(&reply, 2_000, |_| String::new()), "job 7 does not wait: it is done\n");
    }
}
