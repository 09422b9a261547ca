//! What goes through the head: values of other nodes and jobs, published values, events, spawned jobs.

use rsd_core::step::{Input, Status as Exit};
use rsd_proto::pmix::{App, Codec, Info, Kept, Proc, Query, Reply, Request, Scope, Status, Value, keys, rank};
use rsd_proto::v1::{self as wire, down, name_call, up};

use crate::bench::{JOB, Node, job};
use crate::values::{commit, get, value, value_in};

pub(crate) fn other_job() -> wire::JobDescription {
    let mut map = rsd_core::taskmap::TaskMapBuilder::default();
    map.push(1, 1);
    map.push(2, 2);
    wire::JobDescription {
        map: Some((&map.build().expect("three ranks")).into()),
        node_names: vec!["a".into(), "b".into()],
        app_sizes: vec![3],
        universe_size: 4,
    }
}

fn fetched(node: &mut Node) -> wire::Fetched {
    let found = node.up.iter().position(|body| matches!(body, up::Body::Fetched(_))).expect("an answer to the head");
    match node.up.remove(found) {
        Some(up::Body::Fetched(fetched)) => fetched,
        _ => unreachable!("just found"),
    }
}

#[test]
fn a_value_of_another_node_is_fetched_from_its_step() {
    let mut nodes = job(&[1, 1]);
    let asking = nodes[0].connect(0, Codec::V3);
    let wanted = get(1, "k", vec![]);
    nodes[0].ask(asking, 1, &wanted);
    let call = nodes[0].name_call();
    let Some(name_call::Op::FetchData(fetch)) = call.op.clone() else { panic!("not a fetch") };
    assert_eq!((&fetch.namespace[..], fetch.rank, &fetch.what[..]), (JOB, 1, &b"k"[..]));

    let putting = nodes[1].connect(1, Codec::V41);
    let request = wire::Fetch { job: 7, node: 2, number: 3, rank: 1, what: fetch.what, immediate: false };
    nodes[1].down(down::Body::Fetch(request.clone()));
    nodes[1].down(down::Body::Fetch(request));
    assert!(!nodes[1].up.iter().any(|body| matches!(body, up::Body::Fetched(_))), "not committed yet");
    nodes[1].call(putting, &commit(Codec::V41, Scope::Global, "k", Value::text("v")));
    let answer = fetched(&mut nodes[1]);
    assert_eq!((answer.number, answer.status), (3, 0));

    nodes[0].answer_call(&call, wire::NameResult { ok: true, data: answer.data, ..Default::default() });
    assert_eq!(value(Codec::V3, nodes[0].answer(asking, 1, &wanted), "k"), Some(Value::text("v")));
}

#[test]
fn a_fetch_of_what_never_comes_is_answered() {
    let mut node = job(&[1, 1]).remove(1);
    let fetch = |number, immediate| {
        down::Body::Fetch(wire::Fetch { job: 7, node: 2, number, rank: 1, what: "k".into(), immediate })
    };
    node.down(fetch(1, true));
    assert_eq!(fetched(&mut node).status, -46);
    node.down(fetch(2, false));
    node.input(Input::Exited(0, Exit::Exited(0)));
    assert_eq!(fetched(&mut node).status, -46);
}

#[test]
fn another_job_is_described_before_its_values() {
    let mut node = job(&[1]).remove(0);
    let client = node.connect(0, Codec::V41);
    let of_job = Request::Get {
        proc: Proc::new("rsd-dvm.other", rank::WILDCARD),
        infos: vec![],
        key: Some(keys::JOB_SIZE.into()),
    };
    node.ask(client, 1, &of_job);
    let call = node.name_call();
    assert_eq!(call.op, Some(name_call::Op::Describe("rsd-dvm.other".into())));
    node.answer_call(&call, wire::NameResult { ok: true, description: Some(other_job()), ..Default::default() });
    let Some(Reply::Kept(kept)) = node.answer(client, 1, &of_job) else { panic!("nothing kept") };
    let [Kept { proc, values }] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!(*proc, Proc::new("rsd-dvm.other", rank::WILDCARD));
    assert_eq!(value_in(Codec::V41, values, keys::JOB_SIZE), Some(Value::Uint32(3)));
    assert!(value_in(Codec::V41, values, keys::PROC_DATA).is_some());

    // The description is known now.
    let of_rank = Request::Get { proc: Proc::new("rsd-dvm.other", 2), infos: vec![], key: Some("k".into()) };
    node.ask(client, 2, &of_rank);
    let call = node.name_call();
    assert!(matches!(&call.op, Some(name_call::Op::FetchData(_))));
    node.answer_call(&call, wire::NameResult { status: -46, ..Default::default() });
    assert_eq!(node.answer(client, 2, &of_rank), Some(Reply::Done(Status::NOT_FOUND)));
}

#[test]
fn other_jobs_are_listed_and_described_for_queries() {
    let mut node = job(&[1]).remove(0);
    let client = node.connect(0, Codec::V41);
    let query = |key: &str, job: Option<&str>| Query {
        keys: vec![key.into()],
        qualifiers: job.map(|job| Info::new(keys::NAMESPACE, Value::text(job))).into_iter().collect(),
    };
    let queries = vec![
        query(keys::QUERY_NAMESPACES, None),
        query(keys::JOB_SIZE, Some("rsd-dvm.other")),
        query(keys::QUERY_PROC_TABLE, Some("rsd-dvm.other")),
        query(keys::JOB_SIZE, Some("none")),
        query(keys::JOB_SIZE, None),
    ];
    let request = Request::Query(queries);
    node.ask(client, 1, &request);
    let call = node.name_call();
    assert_eq!(call.op, Some(name_call::Op::Namespaces(wire::Namespaces { rank: 0 })));
    let listed = format!("{JOB},rsd-dvm.other");
    node.answer_call(&call, wire::NameResult { ok: true, data: listed.clone().into(), ..Default::default() });
    for _ in 0..2 {
        let call = node.name_call();
        let result = match call.op {
            Some(name_call::Op::Describe(ref job)) if job == "rsd-dvm.other" => {
                wire::NameResult { ok: true, description: Some(other_job()), ..Default::default() }
            }
            _ => wire::NameResult { status: -46, ..Default::default() },
        };
        assert_eq!(node.answer(client, 1, &request), None, "one is still unknown");
        node.answer_call(&call, result);
    }
    let Some(Reply::Infos(status, infos)) = node.answer(client, 1, &request) else { panic!("no answer") };
    assert_eq!(status, Status::PARTIAL_SUCCESS);
    let of = |at: usize| (infos[at].key.clone(), infos[at].value.clone());
    assert_eq!(infos.len(), 4);
    assert_eq!(of(0), (keys::QUERY_NAMESPACES.into(), Value::text(listed)));
    assert_eq!(of(1), (keys::JOB_SIZE.into(), Value::Uint32(3)));
    assert!(format!("{:?}", infos[2].value).matches("rsd-dvm.other").count() >= 3, "{:?}", infos[2].value);
    assert_eq!(of(3), (keys::JOB_SIZE.into(), Value::Uint32(1)));
}

#[test]
fn processes_elsewhere_are_signalled_and_ended_by_the_head() {
    let mut node = job(&[1, 1]).remove(0);
    let client = node.connect(0, Codec::V41);
    let control =
        |job: &str, rank, info| Request::JobControl { targets: vec![Proc::new(job, rank)], infos: vec![info] };
    let signal = || Info::new(keys::JOB_CONTROL_SIGNAL, Value::Int(12));
    let end = || Info::new(keys::JOB_CONTROL_TERMINATE, Value::Bool(true));
    let of = |job: &str, what, ranks: Vec<wire::RankRun>| wire::Control {
        namespace: job.into(),
        what: Some(what),
        ranks,
        rank: 0,
    };
    let one = vec![wire::RankRun { first: 1, last: 1 }];
    for (tag, request, expected) in [
        (1, control(JOB, 1, signal()), of(JOB, wire::control::What::Signal(12), one)),
        (2, control(JOB, rank::WILDCARD, signal()), of(JOB, wire::control::What::Signal(12), vec![])),
        (3, control("other", rank::WILDCARD, end()), of("other", wire::control::What::End(true), vec![])),
    ] {
        node.ask(client, tag, &request);
        let call = node.name_call();
        assert_eq!(call.op, Some(name_call::Op::Control(expected)));
        assert_eq!(node.answer(client, tag, &request), None, "the head has not answered");
        node.answer_call(&call, wire::NameResult { ok: true, ..Default::default() });
        assert_eq!(node.answer(client, tag, &request), Some(Reply::Infos(Status::SUCCESS, vec![])));
    }
    let one_of_two =
        Request::JobControl { targets: vec![Proc::new(JOB, 0), Proc::new("other", 0)], infos: vec![signal()] };
    assert_eq!(node.call(client, &one_of_two), Reply::Done(Status::NOT_SUPPORTED));
}

#[test]
fn values_are_published_looked_up_and_withdrawn_at_the_head() {
    let mut node = job(&[1]).remove(0);
    let client = node.connect(0, Codec::V3);
    let publish = Request::Publish {
        infos: vec![
            Info::new(keys::PERSISTENCE, Value::Persistence(1)),
            Info::new("svc", Value::ByteObject(vec![0, 9])),
        ],
    };
    node.ask(client, 1, &publish);
    let call = node.name_call();
    let Some(name_call::Op::PublishData(data)) = call.op.clone() else { panic!("not published") };
    assert_eq!((data.entries.len(), data.persistence, data.range), (1, 1, 4));
    node.answer_call(&call, wire::NameResult { ok: true, ..Default::default() });
    assert_eq!(node.answer(client, 1, &publish), Some(Reply::Done(Status::SUCCESS)));

    let lookup = Request::Lookup { keys: vec!["svc".into()], infos: vec![Info::new(keys::WAIT, Value::Int(0))] };
    node.ask(client, 2, &lookup);
    let call = node.name_call();
    assert!(matches!(&call.op, Some(name_call::Op::LookupData(data)) if data.wait == Some(0)));
    let found = wire::Found { key: "svc".into(), value: data.entries[0].value.clone(), namespace: "x".into(), rank: 4 };
    node.answer_call(&call, wire::NameResult { ok: true, found: vec![found], ..Default::default() });
    let Some(Reply::Found(Status::SUCCESS, found)) = node.answer(client, 2, &lookup) else { panic!("not found") };
    assert_eq!((found[0].proc.clone(), found[0].value.clone()), (Proc::new("x", 4), Value::ByteObject(vec![0, 9])));
    let nothing = Request::Publish { infos: vec![Info::new(keys::RANGE, Value::Range(3))] };
    assert_eq!(node.call(client, &nothing), Reply::Done(Status::BAD_PARAM));
}

#[test]
fn events_reach_the_clients_that_ask_for_them() {
    let mut nodes = job(&[2, 1]);
    let clients = [nodes[0].connect(0, Codec::V3), nodes[0].connect(1, Codec::V41)];
    let register = Request::RegisterEvents { codes: vec![-100], infos: vec![] };
    for client in clients {
        assert_eq!(nodes[0].call(client, &register), Reply::Done(Status::SUCCESS));
    }
    let notify = |status, range| Request::Notify { status, range, infos: vec![Info::new("k", Value::Int(1))] };
    assert_eq!(nodes[0].call(clients[0], &notify(-100, 3)), Reply::Done(Status::SUCCESS));
    assert!(nodes[0].events(clients[0]).is_empty(), "not to the client that reports it");
    let events = nodes[0].events(clients[1]);
    assert_eq!((events[0].status, &events[0].source), (Status(-100), &Proc::new(JOB, 0)));

    let call = nodes[0].name_call();
    let Some(name_call::Op::Event(event)) = call.op else { panic!("no event for the other node") };
    let event = wire::Event { namespace: JOB.into(), ..event };
    let there = nodes[1].connect(2, Codec::V41);
    nodes[1].call(there, &Request::RegisterEvents { codes: vec![], infos: vec![] });
    nodes[1].down(down::Body::Notify(wire::Notify {
        job: 7,
        nodes: vec![2],
        number: 1,
        previous: 0,
        event: Some(event.clone()),
    }));
    assert_eq!(nodes[1].events(there)[0].infos, [Info::new("k", Value::Int(1))]);
    nodes[0].down(down::Body::Notify(wire::Notify {
        job: 7,
        nodes: vec![1],
        number: 1,
        previous: 0,
        event: Some(event),
    }));
    assert!(nodes[0].events(clients[1]).is_empty(), "it was told already");

    nodes[0].call(clients[0], &notify(-101, 3));
    assert!(nodes[0].events(clients[1]).is_empty(), "not asked for");
    nodes[0].call(clients[1], &notify(-100, 7));
    assert!(nodes[0].events(clients[0]).is_empty(), "meant for the reporting process alone");
}

#[test]
fn clients_are_told_that_a_rank_was_lost() {
    let mut node = job(&[2]).remove(0);
    let (watching, dying) = (node.connect(0, Codec::V41), node.connect(1, Codec::V41));
    node.call(watching, &Request::RegisterEvents { codes: vec![], infos: vec![] });
    node.input(Input::PmixClosed(dying));
    node.input(Input::Exited(1, Exit::Signaled(9)));
    let mut events = node.events(watching);
    // It is told once, and of what it asks for later then.
    node.call(watching, &Request::RegisterEvents { codes: vec![-7], infos: vec![] });
    events.extend(node.events(watching));
    let statuses: Vec<Status> = events.iter().map(|event| event.status).collect();
    assert_eq!(statuses, [Status::LOST_CONNECTION, Status::PROC_ABORTED]);
    assert_eq!(Info::find(&events[0].infos, keys::EVENT_AFFECTED_PROC), Some(&Value::Proc(Proc::new(JOB, 1))));
}

#[test]
fn a_spawned_job_is_described_to_its_spawner_and_knows_it() {
    let mut node = job(&[1]).remove(0);
    let client = node.connect(0, Codec::V41);
    let app =
        App { command: Some(b"./child".to_vec()), argv: vec![b"./child".to_vec()], processes: 2, ..App::default() };
    let spawn = Request::Spawn { infos: vec![], apps: vec![app.clone(), app] };
    node.ask(client, 1, &spawn);
    let described = node.others.iter().find(|other| other.starts_with("Describe")).expect("completed by the process");
    assert_eq!(described.matches("SpawnSegment").count(), 2, "{described}");
    let wish = rsd_core::step::SpawnWish {
        spec: wire::JobSpec { apps: vec![wire::App { n: Some(2), ..Default::default() }], ..Default::default() },
        soft: vec![],
        preput: vec![],
        apart: false,
        random: Default::default(),
    };
    node.input(Input::Described(0, Box::new(Ok(wish))));
    let call = node.up.iter().find_map(|body| match body {
        up::Body::SpawnCall(call) => Some(call.clone()),
        _ => None,
    });
    let (job_number, at, call) = call.map(|call| (call.job, call.node, call.call)).expect("asked of the head");
    let result = wire::SpawnResult {
        job: job_number,
        node: at,
        call,
        namespace: "rsd-dvm.other".into(),
        started: vec![2],
        ..Default::default()
    };
    node.down(down::Body::SpawnResult(result));
    let call = node.name_call();
    node.answer_call(&call, wire::NameResult { ok: true, description: Some(other_job()), ..Default::default() });
    let Some(Reply::Spawned(namespace, told)) = node.answer(client, 1, &spawn) else { panic!("not spawned") };
    assert_eq!(namespace, "rsd-dvm.other");
    assert_eq!(value_in(Codec::V41, &told, keys::JOB_SIZE), Some(Value::Uint32(3)));

    let preput = wire::Kv { key: "PMI_x/parent".into(), value: format!("{JOB} 0").into() };
    let mut child = crate::bench::job_with(&[1], |body| {
        (body.spawned, body.preput) = (true, vec![preput.clone()]);
    })
    .remove(0);
    let client = child.connect(0, Codec::V41);
    let Reply::JobInfo(_, told) = child.call(client, &Request::JobInfo) else { panic!("no description") };
    assert_eq!(value_in(Codec::V41, &told, keys::PARENT), Some(Value::Proc(Proc::new(JOB, 0))));
}
