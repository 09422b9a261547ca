//! `report`: one screen about a job: who ran what where and when, what it has used, and how it ended.

use std::collections::BTreeMap;

use rsd_proto::v1::rank_exit::How;
use rsd_proto::v1::{Attempt, JobInfo, JobState, RankExit};

use crate::dvm::Client;
use crate::exit::Failure;
use crate::placement::NodeRanks;
use crate::print::{self, Align, out, visible};
use crate::selectors::Selector;
use crate::{array, json, placement, signals, usage, verdict, when};

/// How many nodes are listed.
const NODES_SHOWN: usize = 12;

pub(crate) async fn report(mut client: Client, selector: Selector, as_json: bool) -> Result<u8, Failure> {
    let found = array::jobs(&mut client, selector).await?;
    if as_json && found.len() > 1 {
        let jobs: Vec<_> = found.iter().map(json::job_with_bindings).collect();
        out(&(json::document(serde_json::json!({ "jobs": jobs })) + "\n"))?;
        return Ok(0);
    }
    for (nth, info) in found.iter().enumerate() {
        if as_json {
            out(&(json::document(json::job_with_bindings(info)) + "\n"))?;
            continue;
        }
        let between = if nth > 0 { "\n" } else { "" };
        let mut shown = format!("{between}{}", text(info, when::now_ms(), when::shown));
        if info.array.is_some() {
            let elements = array::elements(&mut client, info.job).await?;
            let why =
                |info: &JobInfo| info.cause.as_ref().map_or_else(String::new, |cause| verdict::describe(cause, info));
            let failed = array::failed_table(&elements, |info| visible(&why(info)).into_owned());
            if !failed.is_empty() {
                shown.push_str(&format!("\n{failed}"));
            }
        }
        out(&shown)?;
    }
    Ok(0)
}

/// Returns the report. `shown` returns a point in time as people read it.
fn text(info: &JobInfo, now_ms: u64, shown: impl Fn(u64) -> String) -> String {
    let mut fields = headline(info);
    fields.extend(times(info, now_ms, shown));
    fields.extend(places(info));
    fields.extend(usage::fields(info));
    fields.push(("output", output(info)));
    let mut text: String = fields.iter().map(|(name, value)| format!("{name:<10} {}\n", visible(value))).collect();
    let by_node = usage::by_node(info, Some(NODES_SHOWN));
    if !by_node.is_empty() {
        text.push_str(&format!("\n{by_node}"));
    }
    if let Some(verdict) = verdict::verdict(info, |_, _| false) {
        text.push_str(&format!("\n{}\n", visible(&verdict)));
    }
    let attempts = attempts(info);
    if !attempts.is_empty() {
        text.push_str(&format!("\n{attempts}"));
    }
    followed(info).iter().for_each(|line| text.push_str(&format!("  {}\n", visible(line))));
    text
}

/// Returns which job it is, whose, and how it has ended.
fn headline(info: &JobInfo) -> Vec<(&'static str, String)> {
    let name = if info.name.is_empty() { String::new() } else { format!(" ({})", info.name) };
    let code = if info.ended_ms > 0 { format!(", exit code {}", info.exit_code) } else { String::new() };
    let mut fields = vec![
        ("job", format!("{}{name}", array::called(info))),
        ("state", format!("{}{code}", json::state(info.state()))),
        ("command", info.command.clone()),
    ];
    fields.extend(called(info));
    fields.extend(array::fields(info));
    fields.extend(queued(info));
    if info.parent > 0 {
        fields.push(("spawned by", format!("job {}", info.parent)));
    }
    if info.state() == JobState::Queued && !info.queued_reason.is_empty() {
        fields.push(("queued", info.queued_reason.clone()));
    }
    fields
}

/// Returns the table of the attempts that have failed.
pub(crate) fn attempts(info: &JobInfo) -> String {
    const SHOWN: usize = 10;
    let row = |ended: &Attempt| {
        let why = ended.cause.as_ref().map_or_else(String::new, |cause| {
            let text = verdict::describe(cause, &JobInfo::default());
            text.replacen(&format!(" on node {}", cause.node), &format!(" on {}", ended.node_name), 1)
        });
        let lasted = print::duration(ended.ended_ms.saturating_sub(ended.started_ms));
        [(ended.attempt + 1).to_string(), lasted, visible(&why).into_owned()]
    };
    if info.attempts.is_empty() {
        return String::new();
    }
    let from = info.attempts.len().saturating_sub(SHOWN);
    let columns = [("ATTEMPT", Align::Right), ("ELAPSED", Align::Right), ("WHY IT FAILED", Align::Left)];
    let earlier = if from > 0 { format!("… {from} earlier attempts\n") } else { String::new() };
    print::table(columns, &info.attempts[from..].iter().map(row).collect::<Vec<_>>()) + &earlier
}

/// Returns what decides when a job starts.
pub(crate) fn queued(info: &JobInfo) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if info.priority != 0 {
        fields.push(("priority", info.priority.to_string()));
    }
    let memory = (info.memory_per_rank > 0).then(|| format!("memory {} per rank", print::bytes(info.memory_per_rank)));
    let others = info.resources.iter().map(|resource| format!("{}:{}", resource.name, resource.amount));
    let reserved: Vec<String> = memory.into_iter().chain(others).collect();
    if !reserved.is_empty() {
        fields.push(("reserved", reserved.join(", ")));
    }
    if info.retries > 0 {
        fields.push(("attempt", format!("{} of {}", info.attempt + 1, info.retries + 1)));
    }
    if !info.after.is_empty() {
        let words = info.after.iter().map(json::after_words).map(|(kind, job)| format!("{kind}:{job}"));
        fields.push(("after", words.collect::<Vec<_>>().join(" ")));
    }
    fields
}

/// Returns a job's labels, its user, and where it was submitted.
pub(crate) fn called(info: &JobInfo) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if !info.labels.is_empty() {
        let labels: Vec<String> = info.labels.iter().map(|label| format!("{}={}", label.key, label.value)).collect();
        fields.push(("labels", labels.join(" ")));
    }
    let submitter = info.submitter.clone().unwrap_or_default();
    let user = info.owner.as_ref().map_or(submitter.user, |owner| owner.name.clone());
    if !user.is_empty() {
        fields.push(("user", user));
    }
    if !submitter.dir.is_empty() {
        let host = if submitter.host.is_empty() { String::new() } else { format!("{}:", submitter.host) };
        fields.push(("from", format!("{host}{}", String::from_utf8_lossy(&submitter.dir))));
    }
    fields
}

fn times(info: &JobInfo, now_ms: u64, shown: impl Fn(u64) -> String) -> Vec<(&'static str, String)> {
    let mut fields = vec![("submitted", shown(info.submitted_ms))];
    if info.started_ms > 0 {
        let waited = print::duration(info.started_ms.saturating_sub(info.submitted_ms));
        fields.push(("started", format!("{}, after {waited} in the queue", shown(info.started_ms))));
    }
    if info.ended_ms > 0 {
        fields.push(("ended", shown(info.ended_ms)));
    }
    if info.started_ms > 0 {
        let end = if info.ended_ms > 0 { info.ended_ms } else { now_ms };
        fields.push(("elapsed", print::duration(end.saturating_sub(info.started_ms))));
    }
    fields
}

/// Returns where the ranks are: runs of nodes with equally many ranks.
fn places(info: &JobInfo) -> Vec<(&'static str, String)> {
    let nodes = placement::by_node(&info.map.clone().unwrap_or_default(), &info.node_names);
    if nodes.is_empty() {
        return Vec::new();
    }
    let count = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let ranks = count(info.ranks as usize, "rank");
    let mut runs: Vec<(&[NodeRanks], u32)> = Vec::new();
    let mut rest = &nodes[..];
    while let Some(first) = rest.first() {
        let len = rest.iter().take_while(|node| node.count() == first.count()).count();
        let (run, behind) = rest.split_at(len);
        runs.push((run, first.count()));
        rest = behind;
    }
    const RUNS_SHOWN: usize = 6;
    let run = |(nodes, each): &(&[NodeRanks], u32)| match nodes {
        [one] => format!("{} on {}", each, one.name),
        [first, .., last] => format!("{each} on each of {}..{} ({} nodes)", first.name, last.name, nodes.len()),
        [] => String::new(),
    };
    let mut texts: Vec<String> = runs.iter().take(RUNS_SHOWN).map(run).collect();
    if runs.len() > RUNS_SHOWN {
        texts.push("…".to_owned());
    }
    vec![("ranks", format!("{ranks} on {}: {}", count(nodes.len(), "node"), texts.join(", ")))]
}

fn output(info: &JobInfo) -> String {
    let kept = match info.output_bytes {
        0 => "none".to_owned(),
        bytes => print::bytes(bytes),
    };
    match info.lost_bytes {
        0 => kept,
        lost => format!("{kept}; {} are not in the log", print::bytes(lost)),
    }
}

/// Returns how the ranks ended that failed because of the first failure: each kind, and how many.
fn followed(info: &JobInfo) -> Vec<String> {
    let kind = |exit: &RankExit| match &exit.how {
        Some(How::Exited(code)) => format!("exited with code {code}"),
        Some(How::Signaled(signal)) => format!("killed by {}", signals::describe(*signal)),
        Some(How::Aborted(code)) => format!("called MPI_Abort with code {code}"),
        Some(How::Failed(why)) => why.clone(),
        None => "ended in an unknown way".to_owned(),
    };
    let mut kinds: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for exit in info.exits.iter().filter(|exit| exit.secondary) {
        kinds.entry(kind(exit)).or_default().extend(rsd_proto::exits::ranks(exit));
    }
    let mut kinds: Vec<(String, Vec<u32>)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    let line = |(kind, ranks): &(String, Vec<u32>)| {
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        let which = placement::ranges(&rsd_proto::ranges::of(ranks.iter().copied()));
        let which = print::shortened(&which, 60).into_owned();
        format!("{} {word} {kind}: {which}", ranks.len())
    };
    kinds.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{Block, JobUsage, Label, Submitter, TaskMap, Usage, User};

    use super::*;

    fn ended() -> JobInfo {
        let used = |user_us| Usage {
            ranks: 2,
            user_us,
            system_us: 100_000,
            peak_bytes: 50 << 20,
            peak_rank: 1,
            known: true,
            ..Usage::default()
        };
        let usage = JobUsage {
            total: Some(Usage { ranks: 5, ..used(6_000_000) }),
            unknown: Vec::new(),
            nodes: vec![used(2_000_000), used(3_000_000), used(1_000_000)],
        };
        let exit =
            |rank, how, secondary| RankExit { rank, node: rank / 2, how: Some(how), secondary, ..RankExit::default() };
        let first = exit(3, How::Aborted(7), false);
        let killed = |rank| exit(rank, How::Signaled(15), true);
        JobInfo {
            job: 7,
            name: "train".into(),
            labels: vec![Label { key: "project".into(), value: "x".into() }],
            submitter: Some(Submitter { user: "ann".into(), host: "login1".into(), dir: "/home/ann".into() }),
            owner: Some(User { uid: 7, name: "anna".into() }),
            state: JobState::Failed.into(),
            command: "./ring 10".into(),
            ranks: 5,
            map: Some(TaskMap {
                nodes: vec![0, 1, 2],
                blocks: vec![
                    Block { first_node: 0, nodes: 2, ranks_per_node: 2 },
                    Block { first_node: 2, nodes: 1, ranks_per_node: 1 },
                ],
            }),
            node_names: vec!["n0".into(), "n1".into(), "n2".into()],
            submitted_ms: 1_000,
            started_ms: 2_000,
            ended_ms: 4_000,
            exit_code: 7,
            cause: Some(first.clone()),
            exits: vec![killed(0), killed(1), first, killed(4), exit(2, How::Exited(1), true)],
            usage: Some(usage),
            output_bytes: 2048,
            lost_bytes: 1024,
            ..JobInfo::default()
        }
    }

    #[test]
    fn a_report_is_one_screen() {
        assert_eq!(
            text(&ended(), 9_000, |ms| format!("at {ms}")),
            "\
job        7 (train)
state      failed, exit code 7
command    ./ring 10
labels     project=x
user       anna
from       login1:/home/ann
submitted  at 1000
started    at 2000, after 1.0s in the queue
ended      at 4000
elapsed    2.0s
ranks      5 ranks on 3 nodes: 2 on each of n0..n1 (2 nodes), 1 on n2
cpu time   6.0s user, 0.1s system; 61% of 2.0s on 5 ranks
memory     50.0 MiB at most in one process (rank 1 on n0)
faults     0 minor, 0 major
switches   0 voluntary, 0 involuntary
output     2.0 KiB; 1.0 KiB are not in the log

NODE  RANKS  USER  SYSTEM   LARGEST  RANK  MINOR FAULTS  MAJOR FAULTS
n0        2  2.0s    0.1s  50.0 MiB     1             0             0
n1        2  3.0s    0.1s  50.0 MiB     1             0             0
n2        1  1.0s    0.1s  50.0 MiB     1             0             0

job 7 failed: rank 3 on n1 called MPI_Abort with code 7
4 other ranks were ended because of it
  3 ranks killed by SIGTERM (signal 15): 0-1,4
  1 rank exited with code 1: 2
"
        );
    }

    #[test]
    fn a_queued_job_says_why_it_waits() {
        let info = JobInfo {
            job: 8,
            state: JobState::Queued.into(),
            command: "./a".into(),
            submitted_ms: 1_000,
            queued_reason: "2 slots are free".into(),
            ..JobInfo::default()
        };
        let shown = text(&info, 9_000, |ms| format!("at {ms}"));
        assert_eq!(
            shown,
            "job        8\nstate      queued\ncommand    ./a\nqueued     2 slots are free\nsubmitted  at 1000\noutput     none\n"
        );
    }
}
