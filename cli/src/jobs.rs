//! The commands that show or end jobs. Each calls the daemon and prints the answer as a table or JSON.

use std::time::Duration;

use nix::unistd::geteuid;
use rsd_proto::exits;
use rsd_proto::transport::exit;
use rsd_proto::v1::{
    CancelRequest, JobInfo, JobSelector, JobState, ListJobsRequest, LogsRequest, NodeBinding, RankBinding,
    SignalRequest, Stream,
};
use serde_json::json;

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::options::Ps;
use crate::options::jobs::{Logs, OutputStream};
use crate::output::{Output, Style};
use crate::placement::NodeRanks;
use crate::print::{self, Align, out, say, table, visible};
use crate::reconnect::Contact;
use crate::selectors::Selector;
use crate::{array, json, placement, report, run, usage, verdict, when};

/// `ps`.
pub(crate) async fn ps(mut client: Client, wanted: &Ps, as_json: bool) -> Result<u8, Failure> {
    if let (Some(since), Some(until)) = (wanted.since, wanted.until)
        && since >= until
    {
        return Err(Failure::usage("--since is not before --until: no job can match"));
    }
    let mut jobs: Vec<JobInfo> = Vec::new();
    loop {
        let after = jobs.last().map_or(0, |job| job.job);
        let request = ListJobsRequest { after, ..wanted.request() };
        let reply = dvm::answer("listing the jobs", client.list_jobs(request)).await?;
        // A reply without jobs cannot be continued.
        let more = reply.more && !reply.jobs.is_empty();
        jobs.extend(reply.jobs);
        if !more {
            break;
        }
    }
    if as_json {
        let jobs: Vec<_> = jobs.iter().map(json::job).collect();
        out(&(json::document(json!({ "jobs": jobs })) + "\n"))?;
    } else if jobs.is_empty() {
        say(match (wanted.lists_ended(), wanted.filters()) {
            (true, false) => "no jobs",
            (false, false) => "no running jobs (ended jobs: rsctl ps -a)",
            (true, true) => "no such jobs",
            (false, true) => "no such running jobs (ended jobs: -a)",
        });
    } else {
        out(&jobs_table(&jobs, when::now_ms(), print::width(), geteuid().as_raw()))?;
    }
    Ok(0)
}

/// Returns one row per job; with the jobs' users, if a job is another user's than `own_uid`, and with their names, if one has a name.
fn jobs_table(jobs: &[JobInfo], now_ms: u64, width: Option<usize>, own_uid: u32) -> String {
    let is_others = |info: &JobInfo| info.owner.as_ref().is_some_and(|owner| owner.uid != own_uid);
    let attempts = jobs.iter().any(|info| info.retries > 0);
    let arrays = jobs.iter().any(|info| info.array.is_some());
    let (users, names) = (jobs.iter().any(is_others), jobs.iter().any(|info| !info.name.is_empty()));
    let columns = [
        (true, "JOB", Align::Right),
        (users, "USER", Align::Left),
        (names, "NAME", Align::Left),
        (true, "STATE", Align::Left),
        (attempts, "ATTEMPT", Align::Right),
        (true, "RANKS", Align::Right),
        (true, "NODES", Align::Left),
        (true, "AGE", Align::Right),
        (true, "ELAPSED", Align::Right),
        (true, "EXIT", Align::Right),
        (arrays, "ELEMENTS", Align::Left),
        (true, "COMMAND", Align::Left),
    ];
    let row = |info: &JobInfo| {
        let cells = [
            array::called(info),
            info.owner.as_ref().map_or_else(dash, |owner| owner.name.clone()),
            if info.name.is_empty() { dash() } else { info.name.clone() },
            json::state(info.state()).to_owned(),
            if info.retries > 0 { format!("{}/{}", info.attempt + 1, info.retries + 1) } else { dash() },
            if info.ranks > 0 { info.ranks.to_string() } else { dash() },
            few(&info.node_names),
            print::duration(now_ms.saturating_sub(info.submitted_ms)),
            elapsed_ms(info, now_ms).map_or_else(dash, print::duration),
            if info.ended_ms > 0 { info.exit_code.to_string() } else { dash() },
            info.array.as_ref().map_or_else(dash, array::counts),
            info.command.clone(),
        ];
        let shown = cells.into_iter().zip(columns).filter(|(_, (is_shown, ..))| *is_shown);
        shown.map(|(cell, _)| cell).collect::<Vec<String>>()
    };
    let shown: Vec<_> =
        columns.iter().filter(|(is_shown, ..)| *is_shown).map(|(_, title, align)| (*title, *align)).collect();
    print::columns_within(width, &shown, &jobs.iter().map(row).collect::<Vec<_>>())
}

/// Returns `n0,n1,n2`, or `n0,n1,+10` for many names.
fn few(names: &[String]) -> String {
    match names {
        [] => dash(),
        [first, second, rest @ ..] if rest.len() > 1 => format!("{first},{second},+{}", rest.len()),
        names => names.join(","),
    }
}

fn dash() -> String {
    "-".to_owned()
}

fn elapsed_ms(info: &JobInfo, now_ms: u64) -> Option<u64> {
    let end = if info.ended_ms > 0 { info.ended_ms } else { now_ms };
    (info.started_ms > 0).then(|| end.saturating_sub(info.started_ms))
}

/// `job show`.
pub(crate) async fn show(mut client: Client, selector: Selector, as_json: bool) -> Result<u8, Failure> {
    let info = dvm::job(&mut client, selector).await?;
    match as_json {
        true => out(&(json::document(json::job_with_bindings(&info)) + "\n"))?,
        false => out(&description(&info, when::now_ms()))?,
    }
    Ok(0)
}

fn description(info: &JobInfo, now_ms: u64) -> String {
    let ago = |ms: u64| format!("{} ago", print::duration(now_ms.saturating_sub(ms)));
    let nodes = info.node_names.len();
    let mut fields = vec![("job", array::called(info))];
    if !info.name.is_empty() {
        fields.push(("name", info.name.clone()));
    }
    fields.push(("state", json::state(info.state()).to_owned()));
    fields.push(("command", info.command.clone()));
    fields.push(("submitted", ago(info.submitted_ms)));
    fields.extend(report::called(info));
    fields.extend(array::fields(info));
    fields.extend(report::queued(info));
    if info.parent > 0 {
        fields.push(("spawned by", format!("job {}", info.parent)));
    }
    if !info.queued_reason.is_empty() && info.state() == JobState::Queued {
        fields.push(("queued", info.queued_reason.clone()));
    }
    if info.started_ms > 0 {
        fields.push(("started", ago(info.started_ms)));
    }
    if info.ended_ms > 0 {
        fields.push(("ended", ago(info.ended_ms)));
    }
    if let Some(elapsed) = elapsed_ms(info, now_ms) {
        fields.push(("elapsed", print::duration(elapsed)));
    }
    if info.ended_ms > 0 {
        fields.push(("exit code", info.exit_code.to_string()));
    }
    if info.lost_bytes > 0 {
        fields.push(("not kept", format!("{} of its output", print::bytes(info.lost_bytes))));
    }
    if info.ranks > 0 {
        fields.push(("ranks", format!("{} on {nodes} {}", info.ranks, if nodes == 1 { "node" } else { "nodes" })));
    }
    fields.extend(usage::fields(info));
    let mut text: String = fields.iter().map(|(name, value)| format!("{name:<10} {}\n", visible(value))).collect();

    let map = info.map.clone().unwrap_or_default();
    let placed = placement::by_node(&map, &info.node_names);
    if !placed.is_empty() {
        text.push('\n');
        text.push_str(&placed_table(info, &placed));
    }
    let attempts = report::attempts(info);
    if !attempts.is_empty() {
        text.push_str(&format!("\n{attempts}"));
    }
    let by_node = usage::by_node(info, None);
    if !by_node.is_empty() {
        text.push('\n');
        text.push_str(&by_node);
    }
    if let Some(verdict) = verdict::verdict(info, |_, _| false) {
        text.push_str(&format!("\n{}\n", visible(&verdict)));
    }
    let own = exits::singly(&info.exits, info.map.as_ref()).filter(|exit| !exit.secondary);
    let own: Vec<_> = own.take(json::EXITS_MAX).collect();
    if own.len() > 1 {
        text.push('\n');
        own.iter().for_each(|exit| text.push_str(&format!("{}\n", visible(&verdict::describe(exit, info)))));
    }
    text
}

/// Returns the table of the job's ranks by node, with the hardware threads of each rank if any rank is bound.
fn placed_table(info: &JobInfo, placed: &[NodeRanks]) -> String {
    let cells = |node: &NodeRanks| [node.name.clone(), node.count().to_string(), placement::ranges(&node.ranges)];
    let columns = [("NODE", Align::Left), ("RANKS", Align::Right), ("WHICH", Align::Left)];
    let bound: Vec<String> = placement::bindings(info).map(threads_of_each).collect();
    if bound.iter().all(String::is_empty) {
        return table(columns, &placed.iter().map(cells).collect::<Vec<_>>());
    }
    let [node, ranks, which] = columns;
    let rows = placed.iter().zip(bound.into_iter().chain(std::iter::repeat(String::new())));
    let rows = rows.map(|(place, bound)| {
        let [node, ranks, which] = cells(place);
        [node, ranks, which, bound]
    });
    table([node, ranks, which, ("HARDWARE THREADS OF EACH", Align::Left)], &rows.collect::<Vec<_>>())
}

/// Returns `0-1 2-3 any 6-7 ..`; empty if no rank is bound.
fn threads_of_each(binding: &NodeBinding) -> String {
    const SHOWN: usize = 8;
    if binding.ranks.iter().all(|rank| rank.threads.is_empty()) {
        return String::new();
    }
    let one = |rank: &RankBinding| match rank.threads.is_empty() {
        true => "any".to_owned(),
        false => placement::list(&placement::threads(rank)),
    };
    let mut texts: Vec<String> = binding.ranks.iter().take(SHOWN).map(one).collect();
    if binding.ranks.len() > SHOWN {
        texts.push("..".to_owned());
    }
    texts.join(" ")
}

/// `wait`: returns the code of the first job that failed, in the order in which the user named them.
pub(crate) async fn wait(mut contact: Contact<'_>, selectors: &[Selector], as_json: bool) -> Result<u8, Failure> {
    let mut ended = Vec::new();
    for selector in selectors.iter().cloned() {
        // Checks within the deadline that each job exists, and resolves `last` before another job is submitted.
        ended.extend(array::jobs(&mut contact.client, selector).await?);
    }
    for info in ended.iter_mut().filter(|info| info.ended_ms == 0) {
        let job = info.job;
        if info.element.is_some() {
            *info = started(&mut contact, info).await?;
            if info.ended_ms > 0 {
                continue;
            }
        }
        // Without a deadline; the connection's keep-alive detects a daemon that is gone.
        let wait = async |client: &mut Client| {
            client
                .wait(JobSelector { job, ..JobSelector::default() })
                .await
                .map_err(|status| run::broken_off(job, &status))
        };
        *info = contact.keep(wait).await?.into_inner();
    }
    if as_json {
        let jobs: Vec<_> = ended.iter().map(json::job).collect();
        out(&(json::document(json!({ "jobs": jobs })) + "\n"))?;
    } else {
        ended.iter().filter_map(|info| verdict::verdict(info, |_, _| false)).for_each(|text| say(&text));
    }
    Ok(ended.iter().map(run::exit_code).find(|&code| code != 0).unwrap_or(0))
}

/// Waits until an element of an array has started, or never will.
async fn started(contact: &mut Contact<'_>, info: &JobInfo) -> Result<JobInfo, Failure> {
    const PAUSE: Duration = Duration::from_millis(500);
    let mut info = info.clone();
    while let Some(element) = info.element.filter(|_| info.started_ms == 0 && info.ended_ms == 0) {
        tokio::time::sleep(PAUSE).await;
        let wanted = JobSelector { job: element.array, index: Some(element.index), ..JobSelector::default() };
        let doing = format!("asking for job {}", array::called(&info));
        info =
            contact.keep(async |client: &mut Client| dvm::answer(&doing, client.get_job(wanted.clone())).await).await?;
    }
    Ok(info)
}

/// `logs`.
pub(crate) async fn logs(mut contact: Contact<'_>, wanted: &Logs, as_json: bool) -> Result<u8, Failure> {
    let rank = match (wanted.job.rank, wanted.rank) {
        (Some(a), Some(b)) if a != b => {
            return Err(Failure::usage(format!("two ranks given, {a} and {b}: give one")));
        }
        (a, b) => a.or(b),
    };
    let found = array::jobs(&mut contact.client, Selector { rank, ..wanted.job.clone() }).await?;
    let mut jobs = Vec::new();
    for info in &found {
        match &info.array {
            Some(_) if wanted.follow => {
                let text = "an array has no output of its own: name an element, as in 7[3], or leave out -f";
                return Err(Failure::usage(text));
            }
            Some(_) => jobs.extend(array::elements(&mut contact.client, info.job).await?),
            None if info.element.is_some() && info.started_ms == 0 && !wanted.follow => {
                say(&format!("job {} has not started", array::called(info)));
            }
            None => jobs.push(info.clone()),
        }
    }
    for info in jobs {
        let info = if wanted.follow { started(&mut contact, &info).await? } else { info };
        let code = logs_of(&mut contact, wanted, info.job, rank, as_json).await?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

/// Prints the output of one job.
async fn logs_of(
    contact: &mut Contact<'_>,
    wanted: &Logs,
    job: u64,
    rank: Option<u32>,
    as_json: bool,
) -> Result<u8, Failure> {
    let stream = wanted.stream.map(|stream| match stream {
        OutputStream::Stdout => Stream::Stdout.into(),
        OutputStream::Stderr => Stream::Stderr.into(),
    });
    let mut request = LogsRequest { job, rank, stream, follow: wanted.follow, ..LogsRequest::default() };
    let doing = format!("reading the output of job {job}");
    // The daemon must answer within the deadline; the first record of a silent job may take longer.
    let mut records = dvm::answer(&doing, contact.client.logs(request)).await?;
    let mut output = Output::new(Style::labelled(wanted.label && !as_json));
    let mut has_any = false;
    let written = loop {
        let record = match output.when_ready(records.message()).await {
            Ok(Ok(record)) => record,
            Ok(Err(status)) => {
                let failure = Failure::of_status(&doing, &status);
                // An earlier daemon does not say where its records are.
                let known = wanted.follow && !(request.from == 0 && request.skip == 0 && has_any);
                let again = async |client: &mut Client| dvm::answer(&doing, client.logs(request)).await;
                let back = if known { contact.again(failure, again).await } else { Err(failure) };
                match back {
                    Ok(back) => records = back,
                    Err(failure) => {
                        let _ = output.finish().await; // what has come is shown
                        return Err(failure);
                    }
                }
                continue;
            }
            Err(broken) => break Err(broken),
        };
        let Some(record) = record else { break output.finish().await };
        (request.from, request.skip, has_any) = (record.position, record.index, true);
        match (record.lost_bytes, as_json) {
            (_, true) => output.line(json::document(json::record(&record))),
            (0, false) => output.write(vec![record]),
            (lost, false) => say(&verdict::missing(lost)),
        }
    };
    match written {
        Ok(()) => Ok(0),
        Err(broken) if broken.is_pipe() => Ok(print::BROKEN_PIPE),
        Err(broken) => Err(Failure::new(exit::SYSTEM, broken.to_string())),
    }
}

/// `signal`.
pub(crate) async fn signal(mut client: Client, selector: Selector, number: i32, as_json: bool) -> Result<u8, Failure> {
    let rank = selector.rank;
    let job = dvm::job(&mut client, selector).await?.job;
    let request = SignalRequest { job, rank, signal: number };
    let info = dvm::answer(&format!("signalling job {job}"), client.signal(request)).await?;
    if as_json {
        out(&(json::document(json::job(&info)) + "\n"))?;
    }
    Ok(0)
}

/// `cancel`. Does not fail for a job that has already ended.
pub(crate) async fn cancel(
    mut client: Client,
    selectors: &[Selector],
    grace: Option<Duration>,
    as_json: bool,
) -> Result<u8, Failure> {
    let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    let mut jobs = Vec::new();
    for selector in selectors.iter().cloned() {
        let elements = selector.elements.clone();
        let info = dvm::job(&mut client, Selector { elements: None, ..selector }).await?;
        if let Some(elements) = elements {
            let request = CancelRequest { job: info.job, grace_ms, elements, client_gone: false };
            let doing = format!("cancelling elements of job {}", info.job);
            jobs.push(json::job(&dvm::answer(&doing, client.cancel(request)).await?));
        } else if info.ended_ms > 0 {
            if !as_json {
                say(&format!("job {} has already ended ({})", info.job, json::state(info.state())));
            }
            jobs.push(json::job(&info));
        } else {
            jobs.push(json::job(&run::cancel(&mut client, info.job, grace_ms).await?));
        }
    }
    if as_json {
        out(&(json::document(json!({ "jobs": jobs })) + "\n"))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::rank_exit::How;
    use rsd_proto::v1::{BindingRun, Block, Range, RankExit, TaskMap, User};

    use super::*;

    fn failed() -> JobInfo {
        let exit = RankExit { rank: 3, node: 4, how: Some(How::Aborted(7)), code: 7, ..RankExit::default() };
        JobInfo {
            job: 7,
            state: JobState::Failed.into(),
            command: "./ring\n10".into(),
            ranks: 8,
            map: Some(TaskMap {
                nodes: vec![0, 4],
                blocks: vec![Block { first_node: 0, nodes: 2, ranks_per_node: 4 }],
            }),
            node_names: vec!["n0".into(), "n1".into()],
            submitted_ms: 1_000,
            started_ms: 2_000,
            ended_ms: 5_500,
            exit_code: 7,
            cause: Some(exit.clone()),
            exits: vec![exit],
            ..JobInfo::default()
        }
    }

    #[test]
    fn each_job_is_a_row() {
        let names: Vec<String> = (0..12).map(|node| format!("n{node}")).collect();
        let queued = JobInfo {
            job: 12,
            state: JobState::Queued.into(),
            submitted_ms: 61_000,
            command: "a".into(),
            ..JobInfo::default()
        };
        let running =
            JobInfo { job: 13, state: JobState::Running.into(), ranks: 12, node_names: names, ..queued.clone() };
        let text = jobs_table(&[failed(), queued, running], 62_500, None, 0);
        assert_eq!(
            text,
            "\
JOB  STATE    RANKS  NODES        AGE  ELAPSED  EXIT  COMMAND
  7  failed       8  n0,n1      1m01s     3.5s     7  ./ring 10
 12  queued       -  -           1.5s        -     -  a
 13  running     12  n0,n1,+10   1.5s        -     -  a
"
        );
    }

    #[test]
    fn jobs_of_other_users_are_listed_with_their_users() {
        let of = |uid, name: &str| JobInfo { owner: Some(User { uid, name: name.into() }), ..failed() };
        let own = jobs_table(&[of(0, "root")], 62_500, None, 0);
        assert!(!own.contains("USER"), "{own}");
        let all = jobs_table(&[of(0, "root"), of(1000, "ann")], 62_500, None, 0);
        assert!(all.starts_with("JOB  USER  STATE ") && all.contains("\n  7  ann   failed "), "{all}");
    }

    #[test]
    fn a_job_is_shown_with_its_placement_and_its_cause() {
        let mut info = failed();
        info.command = "./ring 10".into();
        assert_eq!(
            description(&info, 62_500),
            "\
job        7
state      failed
command    ./ring 10
submitted  1m01s ago
started    1m00s ago
ended      57s ago
elapsed    3.5s
exit code  7
ranks      8 on 2 nodes

NODE  RANKS  WHICH
n0        4  0-3
n1        4  4-7

job 7 failed: rank 3 on n1 called MPI_Abort with code 7
"
        );
    }

    #[test]
    fn a_job_shows_its_whole_command_without_control_characters() {
        let mut info = failed();
        info.command = format!("./ring \u{1b}[2J{}", "x".repeat(70_000));
        info.cause.as_mut().unwrap().note = "\u{9b}31m".into();
        let text = description(&info, 62_500);
        assert!(text.contains(&format!("command    ./ring ^[[2J{}\n", "x".repeat(70_000))));
        assert!(text.contains("(\\u{9b}31m)") && !text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
        let row = jobs_table(&[info], 62_500, Some(70), 0);
        assert_eq!(
            row.lines().last().unwrap(),
            "  7  failed      8  n0,n1  1m01s     3.5s     7  ./ring ^[[2Jxxxxxxxx…"
        );
    }

    #[test]
    fn bound_ranks_are_shown_with_their_threads() {
        let bound = |first| RankBinding { threads: vec![Range { first, count: 2 }], ..RankBinding::default() };
        let info = JobInfo {
            bindings: vec![
                NodeBinding { ranks: vec![bound(0), RankBinding::default(), bound(4), bound(6)] },
                NodeBinding { ranks: (0..12).map(|rank| bound(2 * rank)).collect() },
            ],
            binding_runs: vec![BindingRun { nodes: 1, binding: 0 }, BindingRun { nodes: 1, binding: 1 }],
            ..failed()
        };
        assert!(description(&info, 62_500).contains(
            "
NODE  RANKS  WHICH  HARDWARE THREADS OF EACH
n0        4  0-3    0-1 any 4-5 6-7
n1        4  4-7    0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15 ..
"
        ));
    }
}
