//! Ranks that speak PMI-2 beside ranks that speak PMI-1, and what only PMI-2 has: the ring of all ranks, and values that the ranks of a
//! node store for each other.

use std::time::Duration;

use rsd_core::Tuning;

use crate::checks::{Seed, seeds, spec};
use crate::names::{in_mpi, lookup, not, publish};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};
use crate::{groups, names};

fn world(seed: u64) -> World {
    World::new(seed, 5, 4, Tuning { arity: 2, ..Tuning::default() })
}

#[test]
fn each_rank_of_a_ring_gets_its_neighbours_values() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed);
        let program = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init];
            for round in 0..3 {
                let value = |rank: u32| format!("{round};{rank}");
                if rng.chance(4) {
                    script.push(Op::Sleep(rng.within(Duration::from_millis(20))));
                }
                let (left, right) = (value((rank + size - 1) % size), value((rank + 1) % size));
                script.push(Op::Ring { value: value(rank), left, right });
                script.extend(ranks::rounds(rank, size, round..round + 1, rng));
            }
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let mut jobs = Vec::new();
        for map_by in ["slot", "node"] {
            let n = 1 + world.rng.below(20) as u32;
            let mut spec = spec(program, n);
            spec.map_by = map_by.into();
            jobs.push(world.submit(spec));
        }
        world.run();
        jobs.iter().for_each(|job| world.assert_done(*job));
        world.assert_at_rest();
    }
}

#[test]
fn a_rank_waits_until_another_one_of_its_node_stores_a_value() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed);
        let program = world.program(|rank, _, rng| {
            let stored = |key: &str| Op::GetOnNode(key.into(), Some("value".into()));
            let mut script = vec![Op::Init, Op::Sleep(rng.within(Duration::from_millis(20)))];
            match rank {
                0 => script.extend([Op::PutOnNode("first".into(), "value".into()), stored("second")]),
                1 => script.extend([stored("first"), Op::PutOnNode("second".into(), "value".into())]),
                _ => script.extend([stored("second"), stored("first")]),
            }
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(spec(program, 4));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_rank_learns_that_no_rank_is_left_that_could_store_a_value() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed);
        let program = world.program(|rank, _, rng| {
            let mut script = vec![Op::Init, Op::Sleep(rng.within(Duration::from_millis(20)))];
            if rank > 0 {
                script.push(Op::GetOnNode("never".into(), None));
            }
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(spec(program, 4));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn ranks_of_both_dialects_share_a_job_while_daemons_restart() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 9, 4, Tuning { arity: 2, ..Tuning::default() });
        world.mixes_dialects = true;
        let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 3, rng));
        let job = world.submit(spec(program, 36));
        for _ in 0..3 {
            let (node, at) = (1 + world.rng.index(8), world.rng.within(Duration::from_secs(1)));
            let pause = world.rng.within(Duration::from_secs(1));
            world.after(at, Event::Fault(Fault::Restart(node, pause)));
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn names_and_spawns_work_in_both_dialects() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed);
        world.mixes_dialects = true;
        let child = world.program(|rank, size, rng| ranks::mpi(rank, size, 1, rng));
        let program = world.program(move |rank, _, _| {
            let spawn = |n| Op::Spawn { programs: vec![(child, n)], info: Vec::new(), errors: 0 };
            let port = |rank: u32| format!("tcp://port:{rank}");
            let (own, other) = (format!("name-{rank}"), format!("name-{}", rank ^ 1));
            in_mpi(vec![
                publish(&own, &port(rank)),
                not(publish(&own, "another")),
                Op::Fence,
                lookup(&other, &port(rank ^ 1)),
                Op::Fence,
                Op::Unpublish(own.clone()),
                not(Op::Unpublish(own)),
                not(spawn(1000)),
                spawn(3),
                Op::Await("done".into()),
                Op::Fence,
            ])
        });
        let job = world.submit(spec(program, 2));
        world.run();
        world.assert_done(job);
        assert_eq!(names::names(&mut world), Vec::<String>::new());
        world.assert_at_rest();
    }
}

#[test]
fn members_of_both_dialects_are_one_world() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = groups::world(seed, 4);
        world.mixes_dialects = true;
        let processes = groups::crowd(&mut world, 4, 10);
        world.run();
        let job = groups::assert_one_world(&world, &processes, 1);
        world.assert_done(job);
        world.assert_at_rest();
    }
}
