//! `rsctl waits`, and what `run` and `attach` report of it: what the DVM or a job waits for, and what is missing.

mod text;

use std::time::Duration;

use rsd_proto::v1::{RankState, RankWaiting, RanksOfJob, SilentNode, Wait, WaitsRequest, wait::What};
use serde_json::{Value, json};

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::print::{out, say, visible};
use crate::selectors::Selector;

/// A wait is reported when it has lasted this long.
const LONG: Duration = Duration::from_secs(5);
/// The longest pause between two requests of `run`; they become rarer while nothing waits.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// `waits`.
pub(crate) async fn waits(mut client: Client, job: Option<Selector>, as_json: bool) -> Result<u8, Failure> {
    let job = match job {
        Some(selector) => Some(dvm::job(&mut client, selector).await?.job),
        None => None,
    };
    let waits = dvm::answer("asking what waits", client.list_waits(WaitsRequest { job })).await?.waits;
    if as_json {
        let waits: Vec<_> = waits.iter().map(described).collect();
        out(&(json::document(json!({ "waits": waits })) + "\n"))?;
    } else if waits.is_empty() {
        say("nothing waits");
    } else {
        out(&waits.iter().map(|wait| format!("{}\n", visible(&line(wait)))).collect::<String>())?;
    }
    Ok(0)
}

/// Prints what a job waits for when that has lasted a few seconds, and again when it changes. `told` has been printed already. Never
/// ends.
pub(crate) async fn watch(mut client: Client, job: u64, told: Vec<String>) {
    let mut reported = told;
    let mut pause = LONG;
    loop {
        tokio::time::sleep(pause).await;
        // A failure does not matter here: the stream of events reports it.
        let Ok(reply) = dvm::answer("asking what waits", client.list_waits(WaitsRequest { job: Some(job) })).await
        else {
            continue;
        };
        let long = reply.waits.iter().filter(|wait| is_long(wait));
        let texts: Vec<String> = long.map(text::text).collect();
        texts.iter().filter(|text| !reported.contains(text)).for_each(|text| say(text));
        pause = match reply.waits.is_empty() {
            true => (pause * 2).min(PAUSE_MAX),
            false => LONG,
        };
        reported = texts;
    }
}

/// Returns whether `run` reports a wait: a program that uses `rsctl kv` knows best how long it waits, and a job that is being ended
/// says so itself.
fn is_long(wait: &Wait) -> bool {
    let concerns = match &wait.what {
        Some(What::Queue(_) | What::Launch(_) | What::Fence(_) | What::Node(_)) => true,
        Some(What::End(_) | What::Group(_) | What::KvFence(_) | What::KvGet(_) | What::Drain(_)) => false,
        // A process may wait for another one as long as it takes.
        Some(What::Collective(_) | What::Value(_) | What::Lookup(_)) => false,
        Some(What::Shutdown(_) | What::Stop(_)) | None => false,
    };
    concerns && Duration::from_millis(wait.waiting_ms) >= LONG
}

/// Returns a wait as a line.
pub(crate) fn line(wait: &Wait) -> String {
    format!("{}{}", text::text(wait), text::times(wait))
}

/// Returns a wait as JSON.
pub(crate) fn described(wait: &Wait) -> Value {
    let (kind, name) = match &wait.what {
        Some(What::Queue(_)) => ("queue", Value::Null),
        Some(What::Launch(_)) => ("launch", Value::Null),
        Some(What::Fence(number)) => ("fence", json!(number)),
        Some(What::End(_)) => ("end", Value::Null),
        Some(What::Group(name)) => ("group", json!(name)),
        Some(What::KvFence(name)) => ("kv-fence", json!(name)),
        Some(What::KvGet(key)) => ("kv-get", json!(String::from_utf8_lossy(key))),
        Some(What::Node(name)) => ("node", json!(name)),
        Some(What::Drain(name)) => ("drain", json!(name)),
        Some(What::Shutdown(_)) => ("shutdown", Value::Null),
        Some(What::Stop(name)) => ("stop", json!(name)),
        Some(What::Collective(name)) => ("collective", json!(name)),
        Some(What::Value(key)) => ("value", json!(key)),
        Some(What::Lookup(keys)) => ("lookup", json!(keys)),
        None => ("unknown", Value::Null),
    };
    let reason = match &wait.what {
        Some(What::Queue(reason)) => Some(reason.as_str()),
        _ => None,
    };
    let counted = wait.want > 0;
    let missing = |rank: &RankWaiting| {
        json!({
            "rank": rank.rank,
            "node": text::node_name(wait, rank.node),
            "pid": (rank.pid > 0).then_some(rank.pid),
            "state": state(rank.state()),
        })
    };
    let silent = |node: &SilentNode| {
        let ranges: Vec<&[u32]> = node.ranks.chunks(2).collect();
        json!({ "node": node.name, "ranks": ranges, "away": node.away })
    };
    let of_job = |other: &RanksOfJob| json!({ "job": other.job, "ranks": other.ranks.chunks(2).collect::<Vec<_>>() });
    json!({
        "kind": kind,
        "job": (wait.job > 0).then_some(wait.job),
        "name": name,
        "have": counted.then_some(wait.have),
        "want": counted.then_some(wait.want),
        "missing": wait.missing.iter().map(missing).collect::<Vec<_>>(),
        "silent": wait.silent.iter().map(silent).collect::<Vec<_>>(),
        "jobs": wait.jobs,
        "nodes": wait.nodes,
        "others": wait.others.iter().map(of_job).collect::<Vec<_>>(),
        "reason": reason,
        "waiting_ms": wait.waiting_ms,
        "left_ms": wait.left_ms,
        "text": text::text(wait),
    })
}

fn state(state: RankState) -> Option<&'static str> {
    match state {
        RankState::Unknown => None,
        RankState::Starting => Some("starting"),
        RankState::Running => Some("running"),
        RankState::Ended => Some("ended"),
    }
}
