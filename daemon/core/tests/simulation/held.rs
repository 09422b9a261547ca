//! Results of fences that are held by one daemon, from which steps fetch what their ranks get.

use std::time::Duration;

use rsd_core::rsd::Call;
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobSpec, JobState, OnNodeLoss};

use crate::checks::{Seed, seeds, spec};
use crate::ranks::Op;
use crate::world::{Event, Fault, World};

const NODES: usize = 9;
/// The largest result that goes to all nodes: less than what a rank puts in a large round, and more than all of a small round.
const REPLICATED_MAX: u64 = 150;

fn deep(seed: u64, slots: u32, replicated_max: u64) -> World {
    World::new(seed, NODES, slots, Tuning { arity: 2, replicated_max, ..Tuning::default() })
}

fn value(rank: u32, round: u32) -> String {
    format!("value-{rank}-{round}-{}", "x".repeat(120))
}

/// What the ranks put in one round. In a large round, each rank puts its own key anew and a key that only this round has; one rank overwrites a
/// key of another. In a small round, one rank overwrites two keys.
fn puts(rank: u32, size: u32, round: u32) -> Vec<Op> {
    let mut script = Vec::new();
    if round % 3 == 2 {
        if rank == round % size {
            script.extend([(0, "s"), (1, "t")].map(|(of, end)| Op::Put(format!("k{of}"), format!("{round}{end}"))));
        }
        return script;
    }
    script.push(Op::Put(format!("r{round}-{rank}"), value(rank, round)));
    if rank != 2 || round == 0 {
        script.push(Op::Put(format!("k{rank}"), value(rank, round)));
    }
    if rank == 3 && round > 0 {
        script.push(Op::Put("k2".into(), value(2, round)));
    }
    script
}

/// Returns a get of a key with the value that it must have after this round.
fn get(of: u32, round: u32) -> Op {
    let value = match (round % 3, of) {
        (2, 0) => format!("{round}s"),
        (2, 1) => format!("{round}t"),
        (2, _) => value(of, round - 1),
        _ => value(of, round),
    };
    Op::Get(format!("k{of}"), value)
}

/// Returns the gets of a round, in any order: what ranks have put last, what they have put in earlier rounds, and absent keys.
fn gets(rank: u32, size: u32, round: u32, rng: &mut crate::rng::Rng) -> Vec<Op> {
    // Not all, so that later rounds get what no rank of the node has got before.
    let mut gets: Vec<Op> = (0..size).filter(|_| rng.chance(2)).map(|of| get(of, round)).collect();
    let past = |earlier: u32, of: u32| Op::Get(format!("r{earlier}-{of}"), value(of, earlier));
    gets.extend((0..=round).filter(|earlier| earlier % 3 != 2).map(|earlier| past(earlier, (rank + 5 + round) % size)));
    gets.push(Op::Not(Box::new(Op::Get(format!("none-{round}"), String::new()))));
    for at in 0..gets.len() {
        let other = rng.index(gets.len());
        gets.swap(at, other);
    }
    gets
}

/// Rounds of puts, a fence and gets. `apart`: with another fence before the next round, which ranks on one node need, because they see each
/// other's puts at once.
fn program(world: &mut World, rounds: u32, apart: bool, pause: Duration) -> usize {
    world.program(move |rank, size, rng| {
        let mut script = vec![Op::Init];
        for round in 0..rounds {
            script.extend(puts(rank, size, round));
            script.push(Op::Fence);
            if rng.chance(2) {
                script.push(Op::Sleep(rng.within(pause)));
            }
            script.extend(gets(rank, size, round, rng));
            if apart {
                script.push(Op::Fence);
            }
        }
        script.extend([Op::Finalize, Op::Exit(0)]);
        script
    })
}

fn submit(world: &mut World, slots: u32, pause: Duration) -> JobId {
    let program = program(world, 5, slots > 1, pause);
    let spec = JobSpec { map_by: "node".into(), ..spec(program, NODES as u32 * slots) };
    world.submit(spec)
}

#[test]
fn every_rank_gets_the_last_value_of_every_key() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let slots = 1 + (seed % 3) as u32;
        // Held: large results, all, none.
        let mut world = deep(seed, slots, [REPLICATED_MAX, 0, u64::MAX][(seed / 3 % 3) as usize]);
        let job = submit(&mut world, slots, Duration::from_millis(5));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(world.count("get held") > 0, world.tuning.replicated_max != u64::MAX);
        assert_eq!(world.count("collect"), 0, "the daemon that has turned the fence around holds its result");
    }
}

#[test]
fn a_held_result_outlives_the_daemons_that_hold_it() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let slots = 1 + (seed % 3) as u32;
        let mut world = deep(seed, slots, if seed.is_multiple_of(4) { 0 } else { REPLICATED_MAX });
        world.mixes_dialects = seed.is_multiple_of(2);
        let job = submit(&mut world, slots, Duration::from_millis(100));
        let away = |world: &mut World| world.rng.within(Duration::from_millis(100));
        for number in 0..8 {
            let fault = match number % 4 {
                0 => Fault::Restart(0, away(&mut world)),
                1 => Fault::Restart(1 + world.rng.index(NODES - 1), away(&mut world)),
                2 => Fault::CutAnyLink,
                _ => Fault::CutAnyStep,
            };
            let at = world.rng.within(Duration::from_millis(600));
            world.after(at, Event::Fault(fault));
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_head_that_was_killed_between_fence_and_gets_collects_what_was_put() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 2, 0);
        let program = world.program(|rank, size, _| {
            let mut script = vec![Op::Init, Op::Put(format!("k{rank}"), value(rank, 0)), Op::Fence];
            script.push(Op::Sleep(Duration::from_secs(5)));
            script.extend((0..size).map(|of| get(of, 0)));
            script.extend([Op::Fence, Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(spec(program, 2 * NODES as u32));
        world.run_for(Duration::from_secs(2));
        world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::from_millis(100))));
        world.run_for(Duration::from_secs(2));
        world.traffic.clear();
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        let edges = NODES - 1;
        assert_eq!((world.count("collect"), world.count("nodes put")), (edges, edges), "once for all gets");
    }
}

#[test]
fn a_get_during_a_loss_of_the_network_is_answered_afterwards() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 1, 0);
        let job = submit(&mut world, 1, Duration::from_secs(3));
        for _ in 0..2 {
            let (cut_off, at) = (1 + world.rng.index(NODES - 1), world.rng.within(Duration::from_secs(6)));
            let time = Duration::from_secs(5) + world.rng.within(Duration::from_secs(20));
            world.after(at, Event::Fault(Fault::Isolate(cut_off, time)));
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), NODES);
    }
}

/// The node of rank 1 is lost. What it has put may be gone, and no get waits for it longer than the head does.
#[test]
fn a_job_that_continues_gets_what_the_other_nodes_have_put() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 1, 0);
        let program = world.program(|rank, size, _| {
            let mut script = vec![Op::Init, Op::Put(format!("k{rank}"), value(rank, 0)), Op::Fence];
            script.push(Op::Sleep(Duration::from_secs(1)));
            if rank != 1 {
                script.extend((0..size).map(|of| match of {
                    1 => Op::Try(Box::new(get(of, 0))),
                    of => get(of, 0),
                }));
            }
            script.extend([Op::Fence, Op::Finalize, Op::Exit(0)]);
            script
        });
        let spec = JobSpec { map_by: "node".into(), on_node_loss: OnNodeLoss::Continue.into(), ..spec(program, 9) };
        let job = world.submit(spec);
        world.run_for(Duration::from_millis(500));
        let node = world.job(job).map.expect("it is placed").nodes[1];
        let lost = world.machine(node);
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(lost)));
        if seed.is_multiple_of(2) {
            world.after(Duration::from_millis(100), Event::Fault(Fault::Restart(0, Duration::from_millis(100))));
        }
        let start = world.now;
        world.run();
        assert!(world.now < start + Duration::from_secs(150), "it took until {:?}", world.now);
        world.assert_ended(job, JobState::Done, 0);
        for rank in (0..9).filter(|rank| *rank != 1) {
            assert!(world.records[&(job, rank)].finished, "rank {rank}");
        }
        world.assert_at_rest();
    }
}

/// Rank 1 has ended, and its node is away when the new head collects.
#[test]
fn what_ended_ranks_have_put_is_collected_too() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 1, 0);
        let program = world.program(|rank, size, _| {
            let mut script = vec![Op::Init, Op::Put(format!("k{rank}"), value(rank, 0)), Op::Fence];
            if rank != 1 {
                script.push(Op::Sleep(Duration::from_secs(2)));
                script.extend((0..size).map(|of| get(of, 0)));
            }
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(JobSpec { map_by: "node".into(), ..spec(program, NODES as u32) });
        world.run_for(Duration::from_secs(1));
        let node = world.job(job).map.expect("it is placed").nodes[1];
        let away = Fault::Restart(world.machine(node), Duration::from_secs(4));
        for fault in [away, Fault::Restart(0, Duration::from_millis(100))] {
            world.after(Duration::ZERO, Event::Fault(fault));
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_ring_whose_values_are_held_is_complete() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 2, 0);
        let program = world.program(|rank, size, _| {
            let ring = |round: u32| Op::Ring {
                value: format!("{round} of {rank}"),
                left: format!("{round} of {}", (rank + size - 1) % size),
                right: format!("{round} of {}", (rank + 1) % size),
            };
            vec![Op::Init, ring(0), ring(1), Op::Fence, ring(2), Op::Finalize, Op::Exit(0)]
        });
        let job = world.submit(JobSpec { map_by: "node".into(), ..spec(program, 2 * NODES as u32) });
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert!(world.count("get held") > 0);
    }
}

#[test]
fn gets_of_one_key_on_all_nodes_cost_two_messages_for_each_link() {
    let _seed = Seed(1);
    for arity in [2, 5, 32] {
        let nodes = 63;
        let mut world = World::new(1, nodes, 2, Tuning { arity, replicated_max: 0, ..Tuning::default() });
        let program = world.program(|rank, _, _| {
            let mut script = vec![Op::Init, Op::Put(format!("k{rank}"), value(rank, 0)), Op::Fence];
            script.extend([get(0, 0), get(0, 0), Op::Not(Box::new(Op::Get("none".into(), String::new())))]);
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        world.traffic.clear();
        let job = world.submit(spec(program, 2 * nodes as u32));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        // One key, and an absent one; the node of rank 0 has its own.
        assert!((nodes - 1..=2 * (nodes - 1)).contains(&world.count("get held")), "{}", world.count("get held"));
        assert_eq!(world.count("held"), world.count("get held"));
    }
}

#[test]
fn a_job_may_be_cancelled_while_its_ranks_wait_for_keys() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 2, 0);
        let job = submit(&mut world, 2, Duration::from_millis(20));
        let pause = world.rng.within(Duration::from_millis(120));
        world.run_for(pause);
        world.call(0, Call::Cancel { job, grace_ms: None });
        world.run();
        world.assert_at_rest();
    }
}
