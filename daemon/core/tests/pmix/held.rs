//! Gets of what other nodes have put before a fence whose result is held by a daemon; those of PMI-1 too, whose server is the same step.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use rsd_core::step::Input;
use rsd_proto::pmix::{Codec, Info, Reply, Request, Scope, Status, Value, keys};
use rsd_proto::v1::{self as wire, Kv, KvBatch, NodePut, down, name_call, up};

use crate::bench::{Node, job};
use crate::values::{commit, get, value};

fn fence(collects: bool) -> Request {
    let infos = vec![Info::new(keys::COLLECT_DATA, Value::Bool(collects))];
    Request::Fence { procs: vec![], infos }
}

/// Completes the fence that all nodes have sent up; its result is held. Returns the contributions.
#[track_caller]
fn complete_held(nodes: &mut [Node]) -> Vec<NodePut> {
    let mut puts = Vec::new();
    let mut last = 0;
    for node in nodes.iter_mut() {
        let Some(up::Body::FenceUp(fence)) = node.up.pop_back() else { panic!("the node has entered the fence") };
        assert!(fence.can_fetch && fence.batches.len() == fence.batch_nodes.len());
        last = fence.epoch;
        let batches = fence.batch_nodes.into_iter().zip(fence.batches);
        puts.extend(batches.map(|(node, batch)| NodePut { node, epoch: last, batch }));
    }
    for node in nodes {
        node.up.clear();
        node.down(down::Body::FenceDown(wire::FenceDown { job: 7, epoch: last, batches: vec![], is_held: true }));
    }
    puts
}

fn wanted(node: &mut Node) -> Vec<wire::GetHeld> {
    let ups = std::mem::take(&mut node.up).into_iter();
    ups.filter_map(|body| if let up::Body::GetHeld(get) = body { Some(get) } else { None }).collect()
}

fn answer(node: &mut Node, get: &wire::GetHeld, puts: Vec<NodePut>, next: Option<u32>) {
    let wire::GetHeld { job, held, key, from, .. } = get.clone();
    node.down(down::Body::Held(wire::Held { job, held, key, from, puts, next }));
}

fn line(node: &mut Node, local: usize, line: &str) {
    node.input(Input::Pmi(local, Bytes::from(format!("cmd={line}\n"))));
}

/// The lines that a rank has got since the last time.
fn lines(node: &mut Node, local: usize) -> Vec<String> {
    let start = format!("PmiSend({local}, b\"cmd=");
    let found = std::mem::take(&mut node.others).into_iter();
    found.filter_map(|effect| Some(effect.strip_prefix(&start)?.trim_end_matches("\\n\")").to_owned())).collect()
}

fn put(node: u32, epoch: u64, entries: &[(String, &str)]) -> NodePut {
    let kv = |(key, value): &(String, &str)| Kv { key: key.clone().into(), value: value.to_string().into() };
    let batch = KvBatch { entries: entries.iter().map(kv).collect() };
    NodePut { node, epoch, batch: batch.encode_to_vec().into() }
}

/// Two nodes with so many ranks each, which have passed a held fence over PMI-1 with nothing of their own.
fn held(ranks: u32) -> Node {
    let mut nodes = job(&[ranks, 1]);
    for (node, ranks) in nodes.iter_mut().zip([ranks, 1]) {
        for local in 0..ranks as usize {
            line(node, local, "init pmi_version=1 pmi_subversion=1");
            line(node, local, "barrier_in");
        }
    }
    complete_held(&mut nodes);
    let mut node = nodes.remove(0);
    node.others.clear();
    node
}

#[test]
fn a_value_of_another_node_is_fetched_and_what_is_not_among_them_is_requested_of_its_step() {
    let mut nodes = job(&[1, 1]);
    let clients = [(0, Codec::V3), (1, Codec::V41)].map(|(at, codec)| nodes[at].connect(at as u32, codec));
    for (at, codec) in [(0, Codec::V3), (1, Codec::V41)] {
        let own = Value::Uint32(10 + at as u32);
        nodes[at].call(clients[at], &commit(codec, Scope::Global, "k", own));
        nodes[at].ask(clients[at], 1, &fence(true));
    }
    let puts = complete_held(&mut nodes);
    let (node, client) = (&mut nodes[0], clients[0]);
    for tag in [2, 3] {
        node.ask(client, tag, &get(1, "k", vec![]));
    }
    let asked = wanted(node);
    assert_eq!(asked.len(), 1, "both wait for one answer");
    answer(node, &asked[0], vec![puts[1].clone()], None);
    for tag in [2, 3] {
        let reply = node.answer(client, tag, &get(1, "k", vec![]));
        assert_eq!(value(Codec::V3, reply, "k"), Some(Value::Uint32(11)));
    }
    let reply = node.call(client, &get(1, "k", vec![]));
    assert_eq!(value(Codec::V3, Some(reply), "k"), Some(Value::Uint32(11)), "it is kept");
    node.ask(client, 4, &get(1, "later", vec![]));
    let Some(name_call::Op::FetchData(fetch)) = node.name_call().op else { panic!("not a fetch") };
    assert_eq!((fetch.rank, &fetch.what[..]), (1, &b"later"[..]));
}

#[test]
fn a_get_that_nobody_answers_is_repeated_and_ends() {
    let mut node = held(1);
    let client = node.connect(0, Codec::V41);
    let within = |seconds| get(1, "k", vec![Info::new(keys::TIMEOUT, Value::Int(seconds))]);
    node.ask(client, 1, &within(15));
    node.ask(client, 2, &get(1, "k", vec![]));
    assert_eq!(wanted(&mut node).len(), 1);
    node.pass(Duration::from_secs(14));
    assert_eq!(wanted(&mut node).len(), 1, "it is repeated");
    node.input(Input::LinkDown);
    node.input(Input::LinkUp);
    assert_eq!(wanted(&mut node).len(), 1, "the link is new");
    node.pass(Duration::from_secs(2));
    assert_eq!(node.answer(client, 1, &within(15)), Some(Reply::Done(Status::TIMEOUT)));
    assert_eq!(node.answer(client, 2, &within(15)), None);
    node.pass(Duration::from_secs(200));
    assert_eq!(node.answer(client, 2, &within(15)), Some(Reply::Done(Status::TIMEOUT)));
    assert_eq!(node.step.next_deadline(), None);
}

#[test]
fn a_rank_of_pmi_1_gets_a_value_none_or_a_refusal() {
    let mut node = held(1);
    line(&mut node, 0, "get kvsname=x key=k1");
    let asked = wanted(&mut node);
    answer(&mut node, &asked[0], vec![put(2, 1, &[("k1".into(), "v1"), ("k2".into(), "v2")])], None);
    answer(&mut node, &asked[0], vec![put(2, 1, &[("k1".into(), "v1")])], None);
    assert_eq!(lines(&mut node, 0), ["get_result rc=0 value=v1"], "once");
    line(&mut node, 0, "get kvsname=x key=k2");
    assert!(lines(&mut node, 0)[0].ends_with("value=v2"), "it was read ahead");
    line(&mut node, 0, "get kvsname=x key=none");
    let asked = wanted(&mut node);
    answer(&mut node, &asked[0], vec![], None);
    assert!(lines(&mut node, 0)[0].starts_with("get_result rc=1"));
    line(&mut node, 0, "get kvsname=x key=none");
    assert!(lines(&mut node, 0)[0].starts_with("get_result rc=1") && wanted(&mut node).is_empty());
    line(&mut node, 0, "get kvsname=x key=late");
    node.pass(Duration::from_secs(200));
    assert!(lines(&mut node, 0).iter().any(|line| line.starts_with("get_result rc=1")));
}

#[test]
fn an_answer_that_lacks_a_later_result_is_requested_again() {
    let mut nodes = job(&[1, 1]);
    let client = nodes[0].connect(0, Codec::V41);
    for fences in 1..=2 {
        for node in &mut nodes {
            if fences == 1 {
                line(node, 0, "init pmi_version=1 pmi_subversion=1");
            }
            line(node, 0, "barrier_in");
        }
        if fences == 1 {
            complete_held(&mut nodes);
        }
    }
    // While the rank is in the second fence, its PMIx client gets something.
    nodes[0].ask(client, 1, &get(1, "k", vec![]));
    let enters = nodes[0].up.iter().position(|body| matches!(body, up::Body::FenceUp(_))).expect("it is in the fence");
    let fence = nodes[0].up.remove(enters).expect("just found");
    let asked = wanted(&mut nodes[0]);
    nodes[0].up.push_back(fence);
    complete_held(&mut nodes);
    let node = &mut nodes[0];
    answer(node, &asked[0], vec![], None);
    let again = wanted(node);
    assert_eq!((asked[0].held, again.len(), again[0].held), (1, 1, 2));
}

#[test]
fn few_requests_are_under_way_and_what_ranks_do_decides_how_many() {
    let mut node = held(100);
    for local in 0..100 {
        line(&mut node, local, &format!("get kvsname=x key=k{local:02}"));
    }
    // Each answer brings what one rank wants.
    let mut asked = wanted(&mut node);
    assert_eq!(asked.len(), 2);
    let (mut most, mut answers) = (0, 0);
    while let Some(get) = (!asked.is_empty()).then(|| asked.remove(0)) {
        answers += 1;
        let key = String::from_utf8(get.key.to_vec()).expect("a key of this test");
        answer(&mut node, &get, vec![put(1000 + answers, 1, &[(key, "v")])], None);
        asked.extend(wanted(&mut node));
        most = most.max(asked.len());
    }
    assert_eq!((answers, most), (100, 16));
    assert_eq!((0..100).map(|local| lines_of(&node, local)).sum::<usize>(), 100);
    // One answer brings what all want.
    let mut node = held(100);
    for local in 0..100 {
        line(&mut node, local, &format!("get kvsname=x key=k{local:02}"));
    }
    let asked = wanted(&mut node);
    let all: Vec<_> = (0..100).map(|local| (format!("k{local:02}"), "v")).collect();
    answer(&mut node, &asked[0], vec![put(2, 1, &all)], None);
    assert_eq!((wanted(&mut node).len(), (0..100).map(|local| lines_of(&node, local)).sum::<usize>()), (0, 100));
}

fn lines_of(node: &Node, local: usize) -> usize {
    let start = format!("PmiSend({local}, b\"cmd=get_result rc=0");
    node.others.iter().filter(|effect| effect.starts_with(&start)).count()
}

#[test]
fn more_is_read_ahead_the_more_was_fetched_and_what_is_known_is_named() {
    let mut node = held(1);
    let long = "x".repeat(100_000);
    let mut welcome = Vec::new();
    for at in 0..8 {
        line(&mut node, 0, &format!("get kvsname=x key=k{at}"));
        let asked = wanted(&mut node);
        welcome.push(asked[0].welcome_bytes / 1024);
        let runs: Vec<_> = asked[0].known.iter().map(|run| (run.first, run.last)).collect();
        assert_eq!(runs, if at == 0 { vec![] } else { vec![(10, 9 + at)] });
        answer(&mut node, &asked[0], vec![put(10 + at, 1, &[(format!("k{at}"), &long)])], None);
    }
    assert_eq!(welcome, [16, 24, 48, 73, 97, 122, 146, 170]);
}

#[test]
fn a_get_by_index_fetches_all_keys() {
    let mut node = held(1);
    line(&mut node, 0, "getbyidx kvsname=x idx=0");
    let first = wanted(&mut node);
    assert_eq!((first.len(), &first[0].key[..], first[0].from), (1, &b""[..], 0));
    answer(&mut node, &first[0], vec![put(1, 1, &[("b".into(), "2")])], Some(2));
    let second = wanted(&mut node);
    assert_eq!((second.len(), second[0].from), (1, 2));
    answer(&mut node, &second[0], vec![put(2, 1, &[("a".into(), "1")])], None);
    let found = lines(&mut node, 0);
    assert!(found.len() == 1 && found[0].contains("nextidx=1 key=a val=1"), "{found:?}");
    line(&mut node, 0, "getbyidx kvsname=x idx=1");
    line(&mut node, 0, "get kvsname=x key=none");
    let found = lines(&mut node, 0);
    assert!(found[0].contains("key=b val=2") && found[1].starts_with("get_result rc=1"), "{found:?}");
    assert!(wanted(&mut node).is_empty(), "all is here");
}
