//! Fences, groups and connections.

use std::time::Duration;

use rsd_core::step::{Input, Status as Exit};
use rsd_proto::pmix::{Codec, Founded, Info, Proc, Reply, Request, Scope, Status, Value, keys, rank};
use rsd_proto::v1::{self as wire, name_call, up};

use crate::bench::{JOB, Node, complete_fence, job, met};
use crate::values::{commit, get, value};

const DONE: Option<Reply> = Some(Reply::Done(Status::SUCCESS));

fn fence(ranks: &[u32], collect: bool) -> Request {
    let procs = ranks.iter().map(|rank| Proc::new(JOB, *rank)).collect();
    let infos = collect.then(|| Info::new(keys::COLLECT_DATA, Value::Bool(true)));
    Request::Fence { procs, infos: infos.into_iter().collect() }
}

#[test]
fn the_whole_job_may_be_named_in_three_ways() {
    for ranks in [&[][..], &[rank::WILDCARD], &[1, 0]] {
        let mut node = job(&[2]).remove(0);
        let clients = [node.connect(0, Codec::V3), node.connect(1, Codec::V41)];
        let request = fence(ranks, true);
        node.ask(clients[0], 1, &request);
        assert_eq!(node.answer(clients[0], 1, &request), None);
        node.ask(clients[1], 1, &request);
        for client in clients {
            assert_eq!(node.answer(client, 1, &request), DONE, "{ranks:?}");
        }
    }
}

#[test]
fn a_fence_of_several_nodes_takes_the_values_there() {
    let mut nodes = job(&[1, 1]);
    let clients = [nodes[0].connect(0, Codec::V3), nodes[1].connect(1, Codec::V41)];
    for (at, codec) in [(0, Codec::V3), (1, Codec::V41)] {
        nodes[at].call(clients[at], &commit(codec, Scope::Global, "k", Value::Uint32(10 + at as u32)));
        nodes[at].ask(clients[at], 1, &fence(&[rank::WILDCARD], true));
    }
    complete_fence(&mut nodes);
    for (at, codec) in [(0, Codec::V3), (1, Codec::V41)] {
        assert_eq!(nodes[at].answer(clients[at], 1, &fence(&[], true)), DONE);
        let other = 1 - at as u32;
        let reply = nodes[at].call(clients[at], &get(other, "k", vec![]));
        assert_eq!(value(codec, Some(reply), "k"), Some(Value::Uint32(10 + other)));
    }
    // Without changes, the next fence carries nothing again.
    for (node, client) in nodes.iter_mut().zip(clients) {
        node.ask(client, 2, &fence(&[], true));
        let sent = node.up.iter().find_map(|body| match body {
            up::Body::FenceUp(fence) => Some(fence.batches.len()),
            _ => None,
        });
        assert_eq!(sent, Some(0));
    }
}

#[test]
fn a_rank_may_request_several_fences_before_the_first_completes() {
    let mut node = job(&[2]).remove(0);
    let clients = [node.connect(0, Codec::V41), node.connect(1, Codec::V41)];
    let request = fence(&[], false);
    node.ask(clients[0], 1, &request);
    node.ask(clients[0], 2, &request);
    node.ask(clients[1], 1, &request);
    assert_eq!(node.answer(clients[0], 1, &request), DONE);
    assert_eq!(node.answer(clients[0], 2, &request), None);
    node.ask(clients[1], 2, &request);
    assert_eq!(node.answer(clients[0], 2, &request), DONE);
}

#[test]
fn a_fence_ends_in_time() {
    let mut node = job(&[2]).remove(0);
    let client = node.connect(0, Codec::V41);
    let infos = vec![Info::new(keys::TIMEOUT, Value::Int(2))];
    let whole = Request::Fence { procs: vec![], infos: infos.clone() };
    node.ask(client, 1, &whole);
    node.pass(Duration::from_secs(3));
    assert_eq!(node.answer(client, 1, &whole), Some(Reply::Done(Status::TIMEOUT)));
    let mut node = job(&[3]).remove(0);
    let client = node.connect(0, Codec::V41);
    let some = Request::Fence { procs: vec![Proc::new(JOB, 0), Proc::new(JOB, 2)], infos };
    node.ask(client, 1, &some);
    node.pass(Duration::from_secs(3));
    assert_eq!(node.answer(client, 1, &some), Some(Reply::Done(Status::TIMEOUT)));
}

#[test]
fn a_fence_of_some_ranks_waits_for_these_alone_and_fails_when_one_ends() {
    let mut node = job(&[3]).remove(0);
    let clients = [0, 1, 2].map(|rank| node.connect(rank, Codec::V41));
    let request = fence(&[2, 0], false);
    node.ask(clients[0], 1, &request);
    assert_eq!(node.answer(clients[0], 1, &request), None);
    node.ask(clients[2], 1, &request);
    assert_eq!(node.answer(clients[0], 1, &request), DONE);
    assert_eq!(node.answer(clients[2], 1, &request), DONE);
    assert_eq!(node.call(clients[1], &request), Reply::Done(Status::BAD_PARAM), "it is no member");

    node.ask(clients[0], 2, &request);
    node.input(Input::Exited(2, Exit::Exited(0)));
    assert_eq!(node.answer(clients[0], 2, &request), Some(Reply::Done(Status::LOST_CONNECTION)));
    assert_eq!(node.call(clients[0], &request), Reply::Done(Status::LOST_CONNECTION));
}

/// It has said what it had to say. One that has not fails the collective, also if it is not the first that has ended.
#[test]
fn a_rank_that_ends_after_it_has_arrived_counts() {
    let lost = Some(Reply::Done(Status::LOST_CONNECTION));
    for absent_ends in [false, true] {
        let mut node = job(&[4]).remove(0);
        let clients = [0, 1, 2, 3].map(|rank| node.connect(rank, Codec::V41));
        let request = fence(&[0, 1, 2], false);
        node.ask(clients[0], 1, &request);
        node.input(Input::Exited(0, Exit::Exited(0)));
        if absent_ends {
            node.input(Input::Exited(2, Exit::Exited(0)));
            assert_eq!(node.call(clients[1], &request), lost.clone().expect("an answer"));
            continue;
        }
        node.ask(clients[1], 1, &request);
        assert_eq!(node.answer(clients[1], 1, &request), None);
        node.ask(clients[2], 1, &request);
        assert_eq!(node.answer(clients[1], 1, &request), DONE);
        assert_eq!(node.answer(clients[2], 1, &request), DONE);
    }
    // Two have ended: the first had arrived, the second had not.
    let mut node = job(&[4]).remove(0);
    let clients = [0, 1, 2, 3].map(|rank| node.connect(rank, Codec::V41));
    let request = fence(&[0, 1, 2, 3], false);
    let some = fence(&[0, 1, 2], false);
    node.ask(clients[0], 1, &some);
    node.ask(clients[0], 2, &request);
    node.input(Input::Exited(0, Exit::Exited(0)));
    node.input(Input::Exited(1, Exit::Exited(0)));
    node.ask(clients[2], 1, &some);
    assert_eq!(node.answer(clients[2], 1, &some), lost);
}

#[test]
fn the_longest_timeout_that_there_is_ends_nothing() {
    let mut node = job(&[3]).remove(0);
    let client = node.connect(0, Codec::V41);
    let infos = vec![Info::new(keys::TIMEOUT, Value::Int64(i64::MAX))];
    let some = Request::Fence { procs: vec![Proc::new(JOB, 0), Proc::new(JOB, 2)], infos };
    node.ask(client, 1, &some);
    node.pass(Duration::from_secs(1 << 30));
    assert_eq!(node.answer(client, 1, &some), None);
}

#[test]
fn members_of_several_nodes_meet_through_the_head() {
    let mut nodes = job(&[2, 2]);
    let request = fence(&[0, 1, 3], false);
    let client = nodes[0].connect(0, Codec::V41);
    nodes[0].ask(client, 1, &request);
    assert!(!nodes[0].up.iter().any(|body| matches!(body, up::Body::NameCall(_))), "rank 1 is still missing");
    let other = nodes[0].connect(1, Codec::V41);
    nodes[0].ask(other, 1, &request);
    let call = nodes[0].name_call();
    let Some(name_call::Op::Meet(meet)) = &call.op else { panic!("not a rendezvous") };
    let run = |first, last| wire::RankRun { first, last };
    assert_eq!(meet.members, [wire::Participants { namespace: JOB.into(), ranks: vec![run(0, 1), run(3, 3)] }]);
    assert_eq!((&meet.arrived[..], &meet.key[..]), (&[run(0, 1)][..], &b"pmix/fence/0"[..]));
    nodes[0].answer_call(&call, wire::NameResult { ok: true, data: met(vec![]), ..Default::default() });
    assert_eq!(nodes[0].answer(client, 1, &request), DONE);
    assert_eq!(nodes[0].answer(other, 1, &request), DONE);

    // The next one of the same members has the next number.
    nodes[0].ask(client, 2, &request);
    nodes[0].ask(other, 2, &request);
    let call = nodes[0].name_call();
    assert!(matches!(&call.op, Some(name_call::Op::Meet(meet)) if meet.key == b"pmix/fence/1"[..]));
    nodes[0].answer_call(&call, wire::NameResult { status: -61, ..Default::default() });
    assert_eq!(nodes[0].answer(client, 2, &request), Some(Reply::Done(Status::LOST_CONNECTION)));
}

fn found(group: &str, ranks: &[u32], local: u64) -> Request {
    let about = Value::infos(vec![Info::new(keys::GROUP_LOCAL_ID, Value::Size(local))]);
    Request::GroupConstruct {
        group: group.into(),
        procs: ranks.iter().map(|rank| Proc::new(JOB, *rank)).collect(),
        infos: vec![Info::new(keys::GROUP_INFO, about)],
    }
}

fn number_of(node: &mut Node, client: u64, tag: u32, request: &Request) -> u64 {
    match node.answer(client, tag, request) {
        Some(Reply::Group(Founded { number, members, .. })) => {
            assert_eq!(members, [Proc::new(JOB, 0), Proc::new(JOB, 1)]);
            number
        }
        other => panic!("no group: {other:?}"),
    }
}

#[test]
fn a_group_has_a_number_and_tells_what_its_members_said() {
    let mut node = job(&[2]).remove(0);
    let clients = [node.connect(0, Codec::V41), node.connect(1, Codec::V3)];
    let mut numbers = Vec::new();
    for round in 0..2 {
        for (rank, client) in clients.iter().enumerate() {
            node.ask(*client, 1, &found("g", &[0, 1], 40 + rank as u64));
        }
        let request = found("g", &[0, 1], 0);
        let number = number_of(&mut node, clients[0], 1, &request);
        assert_eq!(number, number_of(&mut node, clients[1], 1, &request));
        numbers.push(number);
        let Reply::Kept(kept) = node.call(clients[0], &get(1, keys::GROUP_LOCAL_ID, vec![])) else {
            panic!("nothing kept")
        };
        let entries = rsd_proto::pmix::Entry::split(Codec::V41, &kept[0].values).unwrap();
        let Value::DataArray(pair) = entries[0].decode(Codec::V41).unwrap().value else { panic!("no pair") };
        let qualifier = Info { key: keys::GROUP_CONTEXT.into(), flags: Info::QUALIFIER, value: Value::Size(number) };
        assert_eq!(entries[0].key, keys::QUALIFIED_VALUE);
        assert_eq!(pair.items()[0], Value::Info(Box::new(Info::new(keys::GROUP_LOCAL_ID, Value::Size(41)))));
        assert_eq!(pair.items()[1], Value::Info(Box::new(qualifier)));

        let dissolve = Request::GroupDestruct { group: "g".into() };
        node.ask(clients[0], 2, &dissolve);
        assert_eq!(node.answer(clients[0], 2, &dissolve), None, "round {round}");
        node.ask(clients[1], 2, &dissolve);
        assert_eq!(node.answer(clients[0], 2, &dissolve), DONE);
        assert_eq!(node.call(clients[0], &dissolve), Reply::Done(Status::NOT_FOUND));
    }
    assert_ne!(numbers[0], numbers[1]);
}

#[test]
fn connected_jobs_are_told_about_each_other() {
    let mut node = job(&[1]).remove(0);
    let client = node.connect(0, Codec::V41);
    let procs = vec![Proc::new(JOB, rank::WILDCARD), Proc::new("rsd-dvm.other", rank::WILDCARD)];
    let request = Request::Connect { procs, infos: vec![] };
    node.ask(client, 1, &request);
    let call = node.name_call();
    assert!(matches!(&call.op, Some(name_call::Op::Meet(meet)) if meet.members.len() == 2));
    node.answer_call(&call, wire::NameResult { ok: true, data: met(vec![]), ..Default::default() });
    let call = node.name_call();
    assert_eq!(call.op, Some(name_call::Op::Describe("rsd-dvm.other".into())));
    node.answer_call(
        &call,
        wire::NameResult { ok: true, description: Some(crate::elsewhere::other_job()), ..Default::default() },
    );
    let Some(Reply::Connected(jobs)) = node.answer(client, 1, &request) else { panic!("not connected") };
    assert_eq!(jobs[0].0, "rsd-dvm.other");
    assert_eq!(crate::values::value_in(Codec::V41, &jobs[0].1, keys::JOB_SIZE), Some(Value::Uint32(3)));
}
