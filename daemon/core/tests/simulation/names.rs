//! Names that ranks publish for their own and other jobs, under all kinds of faults.

use std::time::Duration;

use rsd_core::Tuning;
use rsd_core::rsd::{Answer, Call};
use rsd_proto::v1::GroupJoin;

use crate::checks::{Seed, on, seeds, spec};
use crate::ranks::Op;
use crate::world::{Event, Fault, World};

pub(crate) fn publish(name: &str, port: &str) -> Op {
    Op::Publish(name.into(), port.into())
}

pub(crate) fn lookup(name: &str, port: &str) -> Op {
    Op::Lookup(name.into(), port.into())
}

pub(crate) fn not(op: Op) -> Op {
    Op::Not(Box::new(op))
}

pub(crate) fn in_mpi(mut script: Vec<Op>) -> Vec<Op> {
    script.insert(0, Op::Init);
    script.extend([Op::Finalize, Op::Exit(0)]);
    script
}

pub(crate) fn names(world: &mut World) -> Vec<String> {
    let req = world.call(0, Call::ListNames);
    match world.answered(req) {
        Some(Answer::Names(names)) => {
            names.into_iter().map(|name| format!("{} {}", name.job, String::from_utf8_lossy(&name.name))).collect()
        }
        other => panic!("names: {other:?}"),
    }
}

#[test]
fn published_names_are_found_by_other_nodes_and_forgotten_with_the_job() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 5, 4, Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|rank, _, _| {
            let say = if rank == 19 { publish("ocean", "tcp://n4:17") } else { Op::Mapping };
            in_mpi(vec![say, Op::Fence, lookup("ocean", "tcp://n4:17"), Op::Fence])
        });
        for _ in 0..2 {
            let job = world.submit(spec(program, 20));
            world.run();
            world.assert_done(job);
            assert_eq!(names(&mut world), Vec::<String>::new());
            world.assert_at_rest();
        }
    }
}

#[test]
fn a_name_belongs_to_one_job_until_it_is_unpublished() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 4, 2, Tuning { arity: 2, ..Tuning::default() });
        let owner = world.program(|_, _, _| {
            let taken = [publish("ocean", "a"), not(publish("ocean", "a")), not(publish("ocean", "b"))];
            let waits = Op::Sleep(Duration::from_secs(3));
            let given_back =
                [Op::Unpublish("ocean".into()), not(Op::Unpublish("ocean".into())), not(lookup("ocean", ""))];
            in_mpi(
                taken.into_iter().chain([waits]).chain(given_back).chain([Op::Sleep(Duration::from_secs(3))]).collect(),
            )
        });
        let other = world.program(|_, _, _| {
            let meanwhile = [lookup("ocean", "a"), not(publish("ocean", "c"))];
            let after = [publish("ocean", "c"), lookup("ocean", "c")];
            in_mpi(meanwhile.into_iter().chain([Op::Sleep(Duration::from_secs(3))]).chain(after).collect())
        });
        let owner = world.submit(on(&["n3".into()], spec(owner, 1)));
        world.run_for(Duration::from_secs(1));
        assert_eq!(names(&mut world), [format!("{owner} ocean")]);
        let other = world.submit(on(&["n2".into()], spec(other, 1)));
        world.run();
        world.assert_done(owner);
        world.assert_done(other);
        world.assert_at_rest();
    }
}

#[test]
fn a_request_costs_one_message_up_and_one_down_over_each_link() {
    let _seed = Seed(1);
    let mut world = World::new(1, 23, 1, Tuning { arity: 2, ..Tuning::default() });
    let nodes = world.nodes();
    let parent = |node: u32| nodes.iter().find(|it| it.node == node).map_or(0, |it| it.parent);
    let program = world.program(|_, _, _| in_mpi(vec![publish("ocean", "a"), lookup("ocean", "a")]));
    for node in &nodes {
        let way = std::iter::successors(Some(node.node), |node| Some(parent(*node))).position(|node| node == 0);
        let way = way.expect("every node is below the head");
        world.traffic.clear();
        let job = world.submit(on(std::slice::from_ref(&node.name), spec(program, 1)));
        world.run();
        world.assert_done(job);
        assert_eq!(["name call", "name result"].map(|kind| world.count(kind)), [2 * way; 2], "{}", node.name);
    }
    world.assert_at_rest();
}

/// Each rank publishes a name, which must exist exactly once however often requests are repeated.
#[test]
fn requests_are_performed_once_while_daemons_restart() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 7, 2, Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|rank, _, rng| {
            let mut script = Vec::new();
            for round in 0..6 {
                let (name, port) = (format!("name-{rank}"), format!("port-{round}"));
                script.extend([
                    publish(&name, &port),
                    not(publish(&name, "another")),
                    lookup(&name, &port),
                    Op::Sleep(rng.within(Duration::from_millis(40))),
                    Op::Unpublish(name.clone()),
                    not(Op::Unpublish(name.clone())),
                    not(lookup(&name, "")),
                ]);
            }
            in_mpi(script)
        });
        let job = world.submit(spec(program, 14));
        let mut faults = vec![Fault::CutAnyLink; 6];
        faults.extend([Fault::CutAnyStep; 6]);
        faults.extend(
            (0..4).map(|_| Fault::Restart(1 + world.rng.index(6), world.rng.within(Duration::from_millis(200)))),
        );
        for fault in faults {
            let at = world.rng.within(Duration::from_millis(250));
            world.after(at, Event::Fault(fault));
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_rank_that_dies_during_a_request_leaves_nothing() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 4, 2, Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|rank, _, rng| match rank {
            3 => vec![Op::Init, Op::Sleep(rng.within(Duration::from_millis(2))), Op::Abort(9)],
            _ => vec![Op::Init, publish(&format!("name-{rank}"), "a"), Op::Hang],
        });
        let job = world.submit(spec(program, 8));
        world.run();
        world.assert_ended(job, rsd_proto::v1::JobState::Failed, 9);
        world.assert_at_rest();
    }
}

#[test]
fn ranks_may_unpublish_only_names_of_the_same_user() {
    for (uid, is_same) in [(1000, true), (1001, false)] {
        let mut world = World::new(7, 3, 4, Tuning::default());
        world.group_program =
            world.program(|_, _, _| in_mpi(vec![publish("ocean", "tcp://n1:17"), Op::Sleep(Duration::from_secs(60))]));
        let join = GroupJoin { group: "actors".into(), size: Some(1), uid, ..GroupJoin::default() };
        let member = world.process(1, Duration::ZERO, join);
        let unpublish = Op::Unpublish("ocean".into());
        let program = world.program(move |_, _, _| {
            let unpublish = if is_same { unpublish.clone() } else { not(unpublish.clone()) };
            in_mpi(vec![Op::Sleep(Duration::from_secs(30)), lookup("ocean", "tcp://n1:17"), unpublish])
        });
        let job = world.submit(spec(program, 1));
        world.run();
        world.assert_done(job);
        let go = world.processes[&member].go().expect("the member is a job by itself");
        world.assert_done(go.job);
        world.assert_at_rest();
    }
}
