//! Descriptions, commits and gets on one node.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::step::{Input, Status as Exit};
use rsd_proto::pmix::{
    Codec, Commit, DataType, Entry, Hello, Info, KVal, Kept, Proc, ProcInfo, Query, Reply, Request, Role, Scope,
    Status, Value, keys, rank,
};

use crate::bench::{JOB, Node, job};

pub(crate) fn commit(codec: Codec, scope: Scope, key: &str, value: Value) -> Request {
    let entries = vec![Entry::new(codec, &KVal::new(key, value))];
    Request::Commit(vec![Commit { scope, entries }])
}

pub(crate) fn get(rank: u32, key: &str, infos: Vec<Info>) -> Request {
    Request::Get { proc: Proc::new(JOB, rank), infos, key: Some(key.into()) }
}

/// Returns the value of a key in an answer.
pub(crate) fn value_in(codec: Codec, values: &Bytes, key: &str) -> Option<Value> {
    let entries = Entry::split(codec, values).expect("the values decode");
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.decode(codec).expect("it decodes").value)
}

pub(crate) fn value(codec: Codec, reply: Option<Reply>, key: &str) -> Option<Value> {
    let Some(Reply::Kept(kept)) = reply else { return None };
    let [Kept { values, .. }] = &kept[..] else { return None };
    value_in(codec, values, key)
}

const DONE: Reply = Reply::Done(Status::SUCCESS);
const NOT_FOUND: Reply = Reply::Done(Status::NOT_FOUND);

fn only(ranks: &[u32]) -> Node {
    job(ranks).remove(0)
}

#[test]
fn ranks_find_the_server_in_their_environment() {
    let node = only(&[2]);
    let env = &node.started[1].env;
    for expected in [
        "PMIX_RANK=1",
        "PMIX_NAMESPACE=rsd-dvm.0123456789",
        "PMIX_SERVER_URI41=rsd.0;tcp4://127.0.0.1:4711",
        "OMPI_COMM_WORLD_LOCAL_RANK=1",
        "OMPI_ARGV=-x",
        "MPIR_CVAR_PMI_VERSION=1",
    ] {
        assert!(env.iter().any(|var| var == expected), "{expected}: {env:?}");
    }
}

#[test]
fn a_client_is_told_about_its_job() {
    let mut node = only(&[2, 1]);
    for codec in [Codec::V3, Codec::V41] {
        let client = node.connect(0, codec);
        let Reply::JobInfo(namespace, told) = node.call(client, &Request::JobInfo) else { panic!("not a description") };
        assert_eq!(namespace, JOB);
        for (key, value) in [
            (keys::JOB_SIZE, Value::Uint32(3)),
            (keys::UNIVERSE_SIZE, Value::Uint32(8)),
            (keys::LOCAL_SIZE, Value::Uint32(2)),
            (keys::LOCAL_PEERS, Value::text("0,1")),
            (keys::NODE_LIST, Value::text("node1,node2")),
            (keys::NSDIR, Value::text("/tmp/job")),
            (keys::APP_ARGV, Value::text("./program -x")),
        ] {
            assert_eq!(value_in(codec, &told, key), Some(value), "{key}");
        }
        assert_eq!(value_in(codec, &told, keys::NODE_OVERSUBSCRIBED), None, "Open MPI takes its presence for true");
        let entries = Entry::split(codec, &told).unwrap();
        let blocks: Vec<_> = entries.iter().filter(|entry| entry.key == keys::PROC_BLOB).collect();
        assert_eq!(blocks.len(), 3);
        let Value::ByteObject(block) = blocks[2].decode(codec).unwrap().value else { panic!("not a block") };
        let mut reader = rsd_proto::pmix::Reader::new(codec, &block);
        assert_eq!(reader.one_uint32(), Ok(2));
        let values = Bytes::copy_from_slice(reader.rest());
        assert_eq!(value_in(codec, &values, keys::HOSTNAME), Some(Value::text("node2")));
        assert_eq!(value_in(codec, &values, keys::LOCAL_RANK), Some(Value::Uint16(0)));
    }
}

#[test]
fn only_ranks_of_this_step_are_accepted() {
    let mut node = only(&[2, 1]);
    let hello = |namespace: &str, rank| Hello {
        role: Role::Client,
        proc: Proc::new(namespace, rank),
        version: "5".into(),
        codec: Codec::V3,
    };
    for (namespace, rank) in [("other", 0), (JOB, 2), (JOB, 9), (JOB, rank::WILDCARD), ("", 0)] {
        let client = node.connect_as(hello(namespace, rank));
        assert_eq!(node.closed.pop(), Some(client), "{namespace} {rank}");
    }
}

#[test]
fn a_value_is_awaited_until_its_rank_commits_it() {
    let mut node = only(&[2]);
    let (asking, putting) = (node.connect(0, Codec::V3), node.connect(1, Codec::V41));
    let wanted = get(1, "k", vec![]);
    node.ask(asking, 5, &wanted);
    assert_eq!(node.answer(asking, 5, &wanted), None);
    node.pass(Duration::from_secs(60));
    assert_eq!(node.answer(asking, 5, &wanted), None, "before the first commit there is no limit");
    assert_eq!(node.call(putting, &commit(Codec::V41, Scope::Global, "k", Value::Int(-7))), DONE);
    let reply = node.answer(asking, 5, &wanted);
    assert_eq!(value(Codec::V3, reply, "k"), Some(Value::Int(-7)), "in the codec of the client that asks");
}

#[test]
fn what_is_not_there_is_not_found_at_once_or_in_time() {
    let mut node = only(&[2]);
    let (asking, putting) = (node.connect(0, Codec::V41), node.connect(1, Codec::V41));
    assert_eq!(node.call(asking, &get(1, "k", vec![Info::new(keys::IMMEDIATE, Value::Bool(true))])), NOT_FOUND);
    assert_eq!(node.call(asking, &get(7, "k", vec![])), NOT_FOUND, "no such rank");
    let own = get(rank::WILDCARD, "pmix.hwlocxml2", vec![]);
    assert_eq!(node.call(asking, &own), NOT_FOUND, "the client has the description already");

    let timed = get(1, "k", vec![Info::new(keys::TIMEOUT, Value::Int(3))]);
    node.ask(asking, 5, &timed);
    node.pass(Duration::from_secs(2));
    assert_eq!(node.answer(asking, 5, &timed), None);
    node.pass(Duration::from_secs(2));
    assert_eq!(node.answer(asking, 5, &timed), Some(Reply::Done(Status::TIMEOUT)));

    node.call(putting, &commit(Codec::V41, Scope::Local, "other", Value::Bool(true)));
    assert_eq!(node.call(asking, &get(1, "pmix.locstr", vec![])), NOT_FOUND, "reserved keys do not come later");
    let late = get(1, "k", vec![]);
    node.ask(asking, 6, &late);
    node.pass(Duration::from_secs(3));
    assert_eq!(node.answer(asking, 6, &late), Some(NOT_FOUND), "it has committed, but not this");
    node.call(putting, &commit(Codec::V41, Scope::Remote, "far", Value::Bool(true)));
    assert_eq!(node.call(asking, &get(1, "far", vec![])), NOT_FOUND, "it was put for other nodes");
}

#[test]
fn a_rank_that_ends_keeps_nobody_waiting() {
    let mut node = only(&[2]);
    let asking = node.connect(0, Codec::V41);
    let wanted = get(1, "k", vec![]);
    node.ask(asking, 5, &wanted);
    node.input(Input::Exited(1, Exit::Exited(0)));
    assert_eq!(node.answer(asking, 5, &wanted), Some(NOT_FOUND));
}

#[test]
fn the_last_commit_of_a_key_counts() {
    let mut node = only(&[1]);
    let client = node.connect(0, Codec::V41);
    node.call(client, &commit(Codec::V41, Scope::Local, "k", Value::Int(1)));
    node.call(client, &commit(Codec::V41, Scope::Local, "k", Value::Int(2)));
    let reply = node.call(client, &get(0, "k", vec![]));
    assert_eq!(value(Codec::V41, Some(reply), "k"), Some(Value::Int(2)));
}

#[test]
fn what_would_be_too_much_is_not_kept() {
    let mut node = only(&[1]);
    let client = node.connect(0, Codec::V41);
    let piece = Value::ByteObject(vec![7; 8 << 20]);
    let put = |node: &mut Node, key: &str| node.call(client, &commit(Codec::V41, Scope::Local, key, piece.clone()));
    for number in 0..63 {
        assert_eq!(put(&mut node, &format!("k{number}")), DONE);
    }
    for _ in 0..2 {
        assert_eq!(put(&mut node, "f"), Reply::Done(Status::OUT_OF_RESOURCE));
        let now = vec![Info::new(keys::IMMEDIATE, Value::Bool(true))];
        assert_eq!(node.call(client, &get(0, "f", now)), NOT_FOUND);
    }
    assert_eq!(put(&mut node, "k0"), DONE, "in the place of the one before");
    assert_eq!(node.call(client, &commit(Codec::V41, Scope::Local, "short", Value::Int(1))), DONE);
}

#[test]
fn a_client_that_breaks_the_protocol_loses_only_its_connection() {
    let mut node = only(&[2]);
    let (bad, good) = (node.connect(0, Codec::V41), node.connect(1, Codec::V41));
    let mut message = rsd_proto::pmix::Message::header(1, 3).to_vec();
    message.extend(b"\xff\xff\xff");
    node.input(Input::Pmix(bad, message.into()));
    assert_eq!(node.closed, [bad]);
    assert_eq!(node.call(good, &commit(Codec::V41, Scope::Local, "k", Value::Int(1))), DONE);
    // Its rank may connect again.
    let again = node.connect(0, Codec::V3);
    assert!(matches!(node.call(again, &Request::JobInfo), Reply::JobInfo(..)));
    assert_eq!(node.call(again, &Request::Unknown(99)), Reply::Done(Status::NOT_SUPPORTED));
}

#[test]
fn a_rank_that_closes_its_connection_without_finalize_is_killed_and_one_with_finalize_is_not() {
    let mut node = only(&[2]);
    let (rude, polite) = (node.connect(0, Codec::V41), node.connect(1, Codec::V41));
    assert_eq!(node.call(polite, &Request::Finalize), DONE);
    node.input(Input::PmixClosed(polite));
    node.input(Input::PmixClosed(rude));
    node.pass(Duration::from_secs(10));
    let killed: Vec<_> = node.others.iter().filter(|other| other.starts_with("Signal")).collect();
    assert_eq!(killed, ["Signal(0, 9)"]);
}

#[test]
fn an_abort_is_answered_and_ends_the_rank() {
    let mut node = only(&[2]);
    let client = node.connect(1, Codec::V3);
    assert_eq!(node.call(client, &Request::Abort { status: 7, message: None, procs: vec![] }), DONE);
    node.pass(Duration::from_secs(1));
    assert!(node.others.iter().any(|other| other == "Signal(1, 9)"), "{:?}", node.others);
}

#[test]
fn files_of_a_rank_are_removed_when_it_ends_and_those_of_the_job_after_the_last() {
    let mut node = only(&[2]);
    let client = node.connect(0, Codec::V41);
    let own = Request::JobControl {
        targets: vec![Proc::new(JOB, 0)],
        infos: vec![Info::new(keys::REGISTER_CLEANUP, Value::text("/dev/shm/a,/dev/shm/b"))],
    };
    let all = Request::JobControl {
        targets: vec![],
        infos: vec![
            Info::new(keys::REGISTER_CLEANUP_DIR, Value::text("/tmp/dir")),
            Info::new(keys::CLEANUP_RECURSIVE, Value::Bool(true)),
        ],
    };
    for request in [&own, &all] {
        assert_eq!(node.call(client, request), Reply::Infos(Status::SUCCESS, vec![]));
    }
    let root =
        Request::JobControl { targets: vec![], infos: vec![Info::new(keys::REGISTER_CLEANUP_DIR, Value::text("//"))] };
    assert_eq!(node.call(client, &root), Reply::Infos(Status::BAD_PARAM, vec![]));
    let removed =
        |node: &Node| node.others.iter().filter(|other| other.starts_with("Remove")).cloned().collect::<Vec<_>>();
    assert!(removed(&node).is_empty());
    node.input(Input::Exited(0, Exit::Exited(0)));
    assert_eq!(removed(&node).len(), 1);
    assert_eq!(removed(&node)[0].matches("what: File").count(), 2);
    node.input(Input::Exited(1, Exit::Exited(0)));
    assert!(removed(&node)[1].contains("what: Tree"), "{:?}", removed(&node));
}

#[test]
fn questions_are_answered_as_far_as_the_step_knows() {
    let mut node = only(&[1, 1]);
    let client = node.connect(0, Codec::V41);
    let query = |keys: &[&str]| {
        Request::Query(vec![Query {
            keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(),
            qualifiers: vec![],
        }])
    };
    let Reply::Infos(Status::SUCCESS, infos) = node.call(client, &query(&[keys::QUERY_PROC_TABLE, keys::JOB_SIZE]))
    else {
        panic!("no answer")
    };
    assert_eq!(Info::find(&infos, keys::JOB_SIZE), Some(&Value::Uint32(2)));
    let Some(Value::DataArray(table)) = Info::find(&infos, keys::QUERY_PROC_TABLE) else { panic!("no table") };
    assert_eq!(table.kind(), DataType::ProcInfo);
    let Value::ProcInfo(row) = &table.items()[0] else { panic!("not a process") };
    let ProcInfo { hostname, executable, pid, .. } = &**row;
    assert_eq!((hostname.as_deref(), executable.as_deref(), *pid), (Some(&b"node1"[..]), Some(&b"./program"[..]), 100));
    let partly = node.call(client, &query(&[keys::JOB_SIZE, "pmix.no.such"]));
    assert!(matches!(partly, Reply::Infos(Status::PARTIAL_SUCCESS, infos) if infos.len() == 1));

    let peers = Request::ResolvePeers { node: Some(b"node2".to_vec()), namespace: JOB.into() };
    assert_eq!(node.call(client, &peers), Reply::Procs(vec![Proc::new(JOB, 1)]));
    let nodes = Request::ResolveNodes { namespace: String::new() };
    assert_eq!(node.call(client, &nodes), Reply::Text(Some(b"node1,node2".to_vec())));
}

#[test]
fn what_a_client_logs_is_output_of_its_rank() {
    let mut node = only(&[1]);
    let client = node.connect(0, Codec::V41);
    let log = |key: &str| Request::Log { infos: vec![Info::new(key, Value::text("help"))], directives: vec![] };
    assert_eq!(node.call(client, &log(keys::LOG_STDERR)), DONE);
    let output = node.up.iter().find_map(|body| match body {
        rsd_proto::v1::up::Body::Output(output) => Some(output.records[0].data.clone()),
        _ => None,
    });
    assert_eq!(output.as_deref(), Some(&b"help\n"[..]));
    assert_eq!(node.call(client, &log(keys::LOG_SYSLOG)), Reply::Done(Status::NOT_SUPPORTED));
}
