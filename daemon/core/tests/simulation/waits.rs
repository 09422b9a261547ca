//! Who is asked what a job waits for, and what the answers say.

use std::time::Duration;

use rsd_core::rsd::{Answer, Call, Entry, KvCall, KvOp};
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{KvScope, RankState, Wait, kv_scope::Of, wait::What};

use crate::checks::{Seed, seeds, spec};
use crate::ranks::Op;
use crate::world::{Event, Fault, World};

const ASKED: Duration = Duration::from_secs(2);

/// Returns a program in which this rank enters the second fence half a minute after all others.
fn late(world: &mut World, late: u32) -> usize {
    world.program(move |rank, _, _| {
        let pause = if rank == late { vec![Op::Sleep(Duration::from_secs(30))] } else { Vec::new() };
        [vec![Op::Init, Op::Fence], pause, vec![Op::Fence, Op::Finalize, Op::Exit(0)]].concat()
    })
}

fn waits(world: &mut World, job: Option<JobId>) -> Vec<Wait> {
    let req = world.call(0, Call::ListWaits(job));
    world.run_for(ASKED);
    match world.answered(req) {
        Some(Answer::Waits(waits)) => waits,
        other => panic!("{other:?}"),
    }
}

fn only(waits: Vec<Wait>) -> Wait {
    let [wait] = waits.try_into().unwrap_or_else(|waits| panic!("expected one wait: {waits:?}"));
    wait
}

#[test]
fn a_fence_names_the_missing_rank_and_asking_costs_two_messages_for_each_node() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let nodes = 3 + seed as usize;
        let mut world = World::new(seed, nodes, 2, Tuning { arity: 2, ..Tuning::default() });
        let size = 2 * nodes as u32;
        let program = late(&mut world, size - 1);
        let job = world.submit(spec(program, size));
        world.run_for(Duration::from_secs(5));
        world.traffic.clear();
        let wait = only(waits(&mut world, Some(job)));
        assert_eq!((wait.job, wait.have, wait.want, &wait.what), (job, size - 1, size, &Some(What::Fence(2))));
        let [missing] = &wait.missing[..] else { panic!("{wait:?}") };
        assert_eq!((missing.rank, missing.pid, missing.state()), (size - 1, 1000 + size - 1, RankState::Running));
        let info = world.job(job);
        let placed = info.map.expect("the job is placed");
        assert_eq!((Some(&missing.node), &wait.node_ids[..]), (placed.nodes.last(), &[missing.node][..]));
        assert_eq!(Some(&wait.node_names[0]), info.node_names.last());
        assert!((3000..5000).contains(&wait.waiting_ms), "{wait:?}");
        assert_eq!((world.count("wait probe"), world.count("waits")), (nodes - 1, nodes - 1));
        assert_eq!(only(waits(&mut world, None)).what, Some(What::Fence(2)));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_computing_job_waits_for_nothing() {
    let mut world = World::new(1, 3, 2, Tuning::default());
    let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Sleep(Duration::from_secs(30)), Op::Exit(0)]);
    let job = world.submit(spec(program, 6));
    world.run_for(Duration::from_secs(5));
    assert_eq!(waits(&mut world, Some(job)), []);
    assert_eq!(waits(&mut world, None), []);
}

#[test]
fn nodes_that_do_not_answer_are_named_with_their_ranks() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 7, 1, Tuning { arity: 2, ..Tuning::default() });
        let program = late(&mut world, 0);
        let job = world.submit(spec(program, 7));
        world.run_for(Duration::from_secs(5));
        // Its links are cut, and nobody notices yet.
        world.notice = Duration::from_secs(20);
        world.after(Duration::ZERO, Event::Fault(Fault::Isolate(6, Duration::from_secs(25))));
        world.run_for(Duration::from_millis(1));
        let found = waits(&mut world, Some(job));
        let fence = &found[0];
        let silent: Vec<&str> = fence.silent.iter().map(|node| node.name.as_str()).collect();
        let missing: Vec<u32> = fence.missing.iter().map(|rank| rank.rank).collect();
        assert!(silent.contains(&"n6"), "{found:?}");
        assert_eq!((fence.have, missing), (6 - silent.len() as u32, vec![0]), "{found:?}");
        assert!(fence.silent.iter().all(|node| node.ranks.len() == 2), "{found:?}");
        assert!(found[1..].iter().any(|wait| wait.what == Some(What::Node("n6".into()))), "{found:?}");
    }
}

#[test]
fn a_node_whose_link_is_cut_is_named_with_the_time_that_it_has_left() {
    let mut world = World::new(1, 3, 1, Tuning::default());
    let program = late(&mut world, 0);
    let job = world.submit(spec(program, 3));
    world.run_for(Duration::from_secs(5));
    world.after(Duration::ZERO, Event::Fault(Fault::Isolate(2, Duration::from_secs(25))));
    world.run_for(Duration::from_secs(1));
    let found = waits(&mut world, Some(job));
    let [fence, node] = &found[..] else { panic!("{found:?}") };
    assert!(fence.silent.len() == 1 && fence.silent[0].away, "{found:?}");
    assert_eq!(node.what, Some(What::Node("n2".into())));
    assert!(node.left_ms.is_some_and(|left| (56_000..60_000).contains(&left)), "{node:?}");
    world.run();
    world.assert_done(job);
    world.assert_at_rest();
}

#[test]
fn a_launch_names_the_ranks_that_are_starting() {
    let mut world = World::new(1, 2, 2, Tuning::default());
    let program = world.program(|_, _, _| vec![Op::Init, Op::Finalize, Op::Exit(0)]);
    let job = world.submit(spec(program, 4));
    let req = world.call(0, Call::ListWaits(None));
    world.run();
    let Some(Answer::Waits(found)) = world.answered(req) else { panic!("no answer") };
    let wait = only(found);
    assert_eq!((wait.job, wait.have, wait.want, wait.what), (job, 0, 4, Some(What::Launch(true))));
    assert!(wait.missing.iter().all(|rank| rank.state() == RankState::Starting), "{:?}", wait.missing);
    world.assert_done(job);
    world.assert_at_rest();
}

#[test]
fn queued_jobs_ends_and_values_are_waits_too() {
    let mut world = World::new(1, 2, 1, Tuning::default());
    let program = late(&mut world, 0);
    let stubborn = world.program(|_, _, _| vec![Op::Init, Op::Hang]);
    let first = world.submit(spec(program, 2));
    let second = world.submit(spec(stubborn, 2));
    world.run_for(Duration::from_secs(1));
    let scope = KvScope { of: Some(Of::Job(first)), rank: Some(1) };
    let timeout = Duration::from_secs(20);
    let get = KvOp::Get { key: "id".into(), timeout };
    let fence = KvOp::Fence(Entry { name: "f".into(), participants: 0, who: String::new(), attempt: 1, timeout });
    for op in [get, fence] {
        world.call(0, Call::Kv(KvCall { scope: scope.clone(), op }));
    }
    let found = waits(&mut world, None);
    let what: Vec<_> = found.iter().map(|wait| (wait.job, wait.what.clone().unwrap())).collect();
    let reason = "2 ranks requested, 0 slots free on 2 nodes".to_owned();
    let expected = [
        (first, What::Fence(2)),
        (first, What::KvFence("f".into())),
        (first, What::KvGet("id".into())),
        (second, What::Queue(reason)),
    ];
    assert_eq!(what, expected);
    assert_eq!(found[1].missing.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0]);
    assert!(found[1].left_ms.is_some_and(|left| (15_000..20_000).contains(&left)), "{found:?}");
    assert_eq!(waits(&mut world, Some(second)).len(), 1);

    world.run_while(|world| !world.records.contains_key(&(second, 1)));
    world.run_for(Duration::from_secs(1));
    world.call(0, Call::Cancel { job: second, grace_ms: Some(60_000) });
    let end = only(waits(&mut world, Some(second)));
    // A rank may end at once.
    assert_eq!((end.have + end.missing.len() as u32, end.want, end.what), (2, 2, Some(What::End(true))));
}

#[test]
fn an_unknown_job_is_refused() {
    let mut world = World::new(1, 1, 1, Tuning::default());
    let req = world.call(0, Call::ListWaits(Some(9)));
    assert!(matches!(world.answered(req), Some(Answer::Refused(refused)) if refused.exit_code == 246));
}
