//! The output of `--json`: one schema for lists, single jobs and events. A change that breaks readers raises [`SCHEMA`].

use bytes::Bytes;
use rsd_core::place::cpuset::CpuSet;
use rsd_proto::exits;
use rsd_proto::transport::exit;
use rsd_proto::v1::dependency::Kind;
use rsd_proto::v1::job_event::Body;
use rsd_proto::v1::rank_exit::How;
use rsd_proto::v1::{
    ArrayInfo, Attempt, Dependency, Gpu, JobEvent, JobInfo, JobState, NodeInfo, NodeState, RankBinding, RankExit,
    Record, Resource, Stream,
};
use serde_json::{Map, Value, json};

use crate::exit::Failure;
use crate::{placement, usage};

/// `schema_version` of every document.
pub(crate) const SCHEMA: u32 = 1;

/// The most failed ranks of a job that are listed.
pub(crate) const EXITS_MAX: usize = 100_000;

/// Returns a document: `fields` with the schema's version.
pub(crate) fn document(fields: Value) -> String {
    let mut document = Map::from_iter([("schema_version".to_owned(), SCHEMA.into())]);
    if let Value::Object(fields) = fields {
        document.extend(fields);
    }
    Value::Object(document).to_string()
}

/// Returns an error. Its `code` is a stable word ([`exit::name`]); the rest is for people.
pub(crate) fn error(failure: &Failure) -> String {
    let Failure { code, text: message, hint } = failure;
    let error = json!({ "code": exit::name(*code), "exit_code": code, "message": message, "hint": text(hint) });
    document(json!({ "error": error }))
}

pub(crate) fn job(info: &JobInfo) -> Value {
    let map = info.map.clone().unwrap_or_default();
    let placement: Vec<Value> = placement::by_node(&map, &info.node_names)
        .iter()
        .map(|node| json!({ "node": node.node, "name": node.name, "ranks": node.ranges }))
        .collect();
    let ended = info.ended_ms > 0;
    json!({
        "job": info.job,
        "state": state(info.state()),
        "command": info.command,
        "ranks": info.ranks,
        "placement": placement,
        "submitted_ms": info.submitted_ms,
        "started_ms": some(info.started_ms),
        "ended_ms": some(info.ended_ms),
        "exit_code": ended.then_some(info.exit_code),
        "lost_bytes": info.lost_bytes,
        "cause": info.cause.as_ref().map(rank_exit),
        "exits": exits::singly(&info.exits, info.map.as_ref()).take(EXITS_MAX).map(|exit| rank_exit(&exit)).collect::<Vec<_>>(),
        "queued_reason": text(&info.queued_reason),
        "parent": (info.parent > 0).then_some(info.parent),
        "user": info.owner.as_ref().map(|owner| &owner.name),
        "name": text(&info.name),
        "labels": info.labels.iter().map(|label| (label.key.clone(), label.value.clone().into())).collect::<Map<_, _>>(),
        "submitter": info.submitter.as_ref().map(|it| json!({
            "user": text(&it.user),
            "host": text(&it.host),
            "dir": String::from_utf8_lossy(&it.dir),
        })),
        "usage": usage::json(info),
        "output_bytes": info.output_bytes,
        "priority": info.priority,
        "held": info.held,
        "array": info.array.as_ref().map(elements),
        "element": info.element.map(|it| json!({ "array": it.array, "index": it.index })),
        "memory_per_rank": (info.memory_per_rank > 0).then_some(info.memory_per_rank),
        "resources": amounts(&info.resources),
        "attempt": info.attempt + 1,
        "attempts_max": info.retries + 1,
        "attempts": info.attempts.iter().map(attempt).collect::<Vec<_>>(),
        "after": info.after.iter().map(after).collect::<Vec<_>>(),
    })
}

fn attempt(ended: &Attempt) -> Value {
    json!({
        "attempt": ended.attempt + 1,
        "started_ms": ended.started_ms,
        "ended_ms": ended.ended_ms,
        "node": text(&ended.node_name),
        "cause": ended.cause.as_ref().map(rank_exit),
    })
}

fn after(need: &Dependency) -> Value {
    let (kind, _) = after_words(need);
    json!({ "kind": kind, "job": need.job, "array": (need.array > 0).then_some(need.array), "index": need.index })
}

/// Returns the word for a dependency, and the job.
pub(crate) fn after_words(need: &Dependency) -> (&'static str, String) {
    let kind = match need.kind() {
        Kind::Any => "any",
        Kind::Ok => "ok",
        Kind::Fail => "fail",
        Kind::Start => "start",
    };
    let job = need.index.map_or_else(|| need.job.to_string(), |index| format!("{}[{index}]", need.array));
    (kind, job)
}

/// Returns a job with the bindings of its ranks (hardware threads by logical index on the node, empty for unbound ranks) and with what
/// the ranks of each node have used.
pub(crate) fn job_with_bindings(info: &JobInfo) -> Value {
    let bound = |(rank, binding): (u32, &RankBinding)| {
        json!({
            "rank": rank,
            "pus": placement::threads(binding).iter().collect::<Vec<u32>>(),
            "gpus": binding.gpus,
            "reason": binding.reason,
        })
    };
    let nodes = placement::by_node(&info.map.clone().unwrap_or_default(), &info.node_names);
    let mut value = job(info);
    for (at, (node, binding)) in nodes.iter().zip(placement::bindings(info)).enumerate() {
        let ranks = node.ranges.iter().flat_map(|(first, last)| *first..=*last);
        value["placement"][at]["bindings"] = ranks.zip(&binding.ranks).map(bound).collect();
    }
    let used = info.usage.iter().flat_map(|usage| &usage.nodes).take(nodes.len());
    used.enumerate().for_each(|(at, used)| value["placement"][at]["usage"] = usage::of_node(used));
    value
}

pub(crate) fn node(info: &NodeInfo) -> Value {
    let inventory = info.inventory.clone().unwrap_or_default();
    json!({
        "node": info.node,
        "name": info.name,
        "state": node_state(info.state()),
        "drained": info.drained,
        "labels": info.labels.iter().map(|label| (label.key.clone(), label.value.clone().into())).collect::<serde_json::Map<_, _>>(),
        "parent": info.parent,
        "listen": text(&info.listen),
        "addresses": inventory.addresses.iter().map(|address| json!({
            "host": address.host,
            "interface": text(&address.interface),
        })).collect::<Vec<_>>(),
        "reached": info.reached,
        "hostname": inventory.hostname,
        "slots": inventory.slots,
        "slots_reason": inventory.slots_reason,
        "slots_in_use": info.slots_in_use,
        "cores": inventory.cores,
        "hwthreads": inventory.hwthreads,
        "memory_bytes": inventory.memory_bytes,
        "memory_reserved": info.memory_reserved,
        "resources": amounts(&inventory.resources),
        "reserved": amounts(&info.reserved_resources),
        "gpus": (0..).zip(&inventory.gpus).map(|(at, it)| with_use(gpu(it), info.gpus_in_use.contains(&at))).collect::<Vec<_>>(),
        "load": info.load.map(|load| json!({
            "load1": load.load1,
            "memory_used_bytes": load.memory_used_bytes,
            "daemon_rss_bytes": load.daemon_rss_bytes,
            "steps": load.steps,
        })),
        "pid": info.pid,
        "version": info.version,
        "joined_ms": info.joined_ms,
    })
}

/// Returns a GPU. `near` has the hardware threads nearest to it; empty: all are equally near, or it is not known.
pub(crate) fn gpu(gpu: &Gpu) -> Value {
    json!({
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "pci": gpu.pci,
        "memory_bytes": gpu.memory_bytes,
        "near": ranges(&placement::set(&gpu.near)),
    })
}

fn with_use(mut gpu: Value, in_use: bool) -> Value {
    gpu["in_use"] = in_use.into();
    gpu
}

/// Returns inclusive ranges.
pub(crate) fn ranges(set: &CpuSet) -> Value {
    set.ranges().into_iter().map(|range| json!([range.start, range.end - 1])).collect()
}

fn amounts(resources: &[Resource]) -> Map<String, Value> {
    resources.iter().map(|resource| (resource.name.clone(), resource.amount.into())).collect()
}

/// Returns an event of a job; `event` has its kind.
pub(crate) fn event(event: &JobEvent) -> Value {
    let (kind, fields) = match &event.body {
        Some(Body::Submitted(it)) => ("submitted", json!({ "job": it.job, "command": it.command })),
        Some(Body::Queued(it)) => ("queued", json!({ "reason": it.reason })),
        Some(Body::Placed(it)) => {
            let info = JobInfo { map: it.map.clone(), node_names: it.node_names.clone(), ..JobInfo::default() };
            ("placed", json!({ "placement": job(&info)["placement"] }))
        }
        Some(Body::Output(it)) => ("output", json!({ "records": it.records.iter().map(record).collect::<Vec<_>>() })),
        Some(Body::RankExit(it)) => ("rank_exit", rank_exit(it)),
        Some(Body::Killing(it)) => ("killing", json!({ "reason": it.reason, "grace_ms": it.grace_ms })),
        Some(Body::Ended(it)) => ("ended", job(it)),
        Some(Body::Notice(it)) => ("notice", json!({ "text": it })),
        Some(Body::Requeued(it)) => {
            let cause = it.cause.as_ref().map(rank_exit);
            (
                "requeued",
                json!({ "next_attempt": it.next + 1, "attempts": it.attempts, "cause": cause, "reason": it.reason }),
            )
        }
        Some(Body::Gap(it)) => ("gap", json!({ "lost_bytes": it.bytes })),
        None => ("unknown", json!({})),
    };
    let mut all = Map::from_iter([("event".to_owned(), kind.into()), ("at_ms".to_owned(), event.at_ms.into())]);
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    Value::Object(all)
}

/// Returns a piece of output: `data` if it is UTF-8, else `data_base64`.
pub(crate) fn record(record: &Record) -> Value {
    let stream = match record.stream() {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let mut value = json!({ "rank": record.rank, "stream": stream, "more": record.more });
    if record.job > 0 {
        value["job"] = record.job.into();
    }
    if record.lost_bytes > 0 {
        value["lost_bytes"] = record.lost_bytes.into();
    }
    bytes_into(&mut value, "data", &record.data);
    value
}

fn rank_exit(exit: &RankExit) -> Value {
    let (how, detail) = match &exit.how {
        Some(How::Exited(code)) => ("exited", json!(code)),
        Some(How::Signaled(signal)) => ("signaled", json!(signal)),
        Some(How::Aborted(code)) => ("aborted", json!(code)),
        Some(How::Failed(why)) => ("failed", json!(why)),
        None => ("unknown", Value::Null),
    };
    let mut value = json!({
        "rank": exit.rank,
        "node": exit.node,
        "how": how,
        "detail": detail,
        "secondary": exit.secondary,
        "fatal": exit.fatal,
        "code": exit.code,
        "note": text(&exit.note),
    });
    if exit.more > 0 {
        value["last_rank"] = (*exits::ranks(exit).end()).into();
    }
    if exit.job > 0 {
        value["job"] = exit.job.into();
    }
    if exit.lost {
        value["lost"] = true.into();
    }
    bytes_into(&mut value, "stderr_tail", &exit.stderr_tail);
    value
}

/// Returns the name of a job's state, also used in tables.
pub(crate) fn state(state: JobState) -> &'static str {
    rsd_core::sentences::state(state)
}

/// Returns the name of a node's state, also used in tables.
pub(crate) fn node_state(state: NodeState) -> &'static str {
    match state {
        NodeState::Up => "up",
        NodeState::Away => "away",
    }
}

fn some(ms: u64) -> Option<u64> {
    (ms > 0).then_some(ms)
}

fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn bytes_into(value: &mut Value, key: &str, data: &Bytes) {
    match std::str::from_utf8(data) {
        Ok(text) => value[key] = text.into(),
        Err(_) => value[format!("{key}_base64")] = base64(data).into(),
    }
}

/// Encodes bytes as in RFC 4648, with padding.
fn base64(data: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(data.len().div_ceil(3) * 4);
    for group in data.chunks(3) {
        let word = (0..3).fold(0_usize, |word, at| word << 8 | usize::from(group.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = char::from(ALPHABET[word >> (18 - 6 * at) & 63]);
            text.push(if at <= group.len() { digit } else { '=' });
        }
    }
    text
}

/// Returns the array in JSON.
fn elements(array: &ArrayInfo) -> Value {
    json!({
        "elements": array.elements,
        "limit": (array.limit > 0).then_some(array.limit),
        "size": array.size,
        "queued": array.queued,
        "held": array.held,
        "running": array.running,
        "done": array.done,
        "failed": array.failed,
        "cancelled": array.cancelled,
        "timed_out": array.timed_out,
        "which_queued": array.which_queued,
        "which_held": array.which_held,
        "which_running": array.which_running,
        "which_failed": array.which_failed,
    })
}

#[cfg(test)]
mod tests {
    use rsd_proto::v1::{BindingRun, Block, Inventory, NodeBinding, Range, TaskMap};

    use super::*;

    #[test]
    fn base64_follows_the_rfc() {
        let vectors =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in vectors {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn an_error_has_a_stable_code_and_its_exit_code() {
        let none = Failure::new(241, "no daemon is running here").hint("rsd start");
        let read: Value = serde_json::from_str(&error(&none)).unwrap();
        let expected =
            json!({"code": "no-daemon", "exit_code": 241, "message": "no daemon is running here", "hint": "rsd start"});
        assert_eq!(read, json!({"schema_version": 1, "error": expected}));
        let read: Value = serde_json::from_str(&error(&Failure::new(99, "x"))).unwrap();
        assert_eq!((&read["error"]["code"], &read["error"]["hint"]), (&json!("internal"), &Value::Null));
    }

    #[test]
    fn output_is_text_if_it_is_utf8() {
        let data = |data: &'static [u8]| record(&Record { rank: 1, stream: 1, data: data.into(), ..Record::default() });
        assert_eq!(data("hé\n".as_bytes()), json!({"rank": 1, "stream": "stderr", "more": false, "data": "hé\n"}));
        assert_eq!(data(b"\xff")["data_base64"], "/w==");
        assert_eq!(data(b"\xff").get("data"), None);
    }

    #[test]
    fn job_show_includes_bindings() {
        let range = |first| RankBinding {
            threads: vec![Range { first, count: 2 }],
            gpus: vec![first],
            reason: "slot 1 of 1".into(),
        };
        let info = JobInfo {
            map: Some(TaskMap {
                nodes: vec![0, 4],
                blocks: vec![Block { first_node: 0, nodes: 2, ranks_per_node: 1 }],
            }),
            bindings: vec![NodeBinding { ranks: vec![range(2)] }],
            binding_runs: vec![BindingRun { nodes: 2, binding: 0 }],
            ..JobInfo::default()
        };
        let placement = &job_with_bindings(&info)["placement"];
        let bound = |rank: u32| json!([{"rank": rank, "pus": [2, 3], "gpus": [2], "reason": "slot 1 of 1"}]);
        assert_eq!((&placement[0]["bindings"], &placement[1]["bindings"]), (&bound(0), &bound(1)));
        assert_eq!(job(&info)["placement"][0].get("bindings"), None);
    }

    #[test]
    fn a_node_lists_its_gpus_and_which_are_in_use() {
        let gpu = |index, near| Gpu {
            index,
            uuid: format!("GPU-{index}"),
            name: "T".into(),
            pci: "0000:3b:00.0".into(),
            memory_bytes: 1 << 30,
            near,
        };
        let gpus = vec![gpu(0, vec![Range { first: 4, count: 4 }]), gpu(2, vec![])];
        let inventory = Some(Inventory { gpus, ..Inventory::default() });
        let node = node(&NodeInfo { inventory, gpus_in_use: vec![1], ..NodeInfo::default() });
        assert_eq!(
            node["gpus"],
            json!([
                {"index": 0, "uuid": "GPU-0", "name": "T", "pci": "0000:3b:00.0", "memory_bytes": 1 << 30,
                 "near": [[4, 7]], "in_use": false},
                {"index": 2, "uuid": "GPU-2", "name": "T", "pci": "0000:3b:00.0", "memory_bytes": 1 << 30,
                 "near": [], "in_use": true},
            ])
        );
    }

    #[test]
    fn every_line_carries_the_schema_and_the_kind() {
        let ended = JobInfo {
            job: 7,
            state: JobState::Failed.into(),
            ranks: 2,
            map: Some(TaskMap { nodes: vec![4], blocks: vec![Block { first_node: 0, nodes: 1, ranks_per_node: 2 }] }),
            node_names: vec!["n1".into()],
            ended_ms: 5,
            exit_code: 3,
            ..JobInfo::default()
        };
        let line = document(event(&JobEvent { at_ms: 5, body: Some(Body::Ended(ended)), ..JobEvent::default() }));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["schema_version"], &read["event"]), (&json!(1), &json!("ended")));
        assert_eq!(read["placement"], json!([{"node": 4, "name": "n1", "ranks": [[0, 1]]}]));
        assert_eq!((&read["exit_code"], &read["started_ms"]), (&json!(3), &Value::Null));
    }
}
