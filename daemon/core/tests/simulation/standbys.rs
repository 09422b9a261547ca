//! Heads on other machines: a standby takes over, whatever was going on, and no node obeys an earlier head then.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call, StandbyCall};
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobState, NodeState};

use crate::checks::{Seed, on, replicated_max, seeds, spec, with_stdin};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, MachineId, World};

fn deep(seed: u64, nodes: usize) -> World {
    let mut world = World::new(
        seed,
        nodes,
        3,
        Tuning { arity: 2, output_window: 400, replicated_max: replicated_max(seed), ..Tuning::default() },
    );
    world.checks_journal = true;
    world.stand_by(1);
    world
}

/// Returns a program with fences, output and standard input.
fn busy_program(world: &mut World) -> usize {
    world.program(|rank, size, rng| {
        let mut script = vec![Op::Init];
        for round in 0..4 {
            script.extend(ranks::rounds(rank, size, round..round + 1, rng));
            script.extend(ranks::output(rank, 2, rng));
            script.push(Op::Sleep(rng.within(Duration::from_millis(60))));
        }
        if rank == 0 {
            script.push(Op::ReadStdin);
        }
        script.extend([Op::Finalize, Op::Exit(0)]);
        script
    })
}

fn names(world: &World, machines: impl IntoIterator<Item = MachineId>) -> Vec<String> {
    machines.into_iter().map(|machine| format!("+id{}", world.node(machine))).collect()
}

/// Submits jobs on these machines, with standard input.
fn submit(world: &mut World, program: usize, machines: std::ops::Range<usize>) -> Vec<JobId> {
    let hosts = names(world, machines);
    let sizes = [2 * hosts.len() as u32, 3];
    let mut jobs = Vec::new();
    for n in sizes {
        let job = world.submit(on(&hosts, with_stdin(0, spec(program, n.min(3 * hosts.len() as u32)))));
        let chunks = (0..10).map(|number| format!("chunk {number} of {job}\n").repeat(100 + 97 * number));
        world.feed_stdin(job, chunks.map(Bytes::from).collect());
        jobs.push(job);
    }
    jobs
}

/// Asserts that every node obeys the present head, and that none has ever gone back to an earlier one.
fn assert_one_head(world: &mut World, nodes: std::ops::Range<usize>) {
    let epoch = world.epoch(world.head);
    for machine in nodes.clone() {
        assert_eq!(world.epoch(machine), epoch, "machine {machine}");
        let obeyed = &world.machines[machine].obeyed;
        assert!(obeyed.is_sorted(), "machine {machine} has gone back: {obeyed:?}");
    }
    let up = world.nodes().iter().filter(|node| node.state() == NodeState::Up && node.node != 0).count();
    assert_eq!(up, nodes.len(), "all nodes have found the head");
}

#[test]
fn jobs_go_on_under_a_head_on_another_machine() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let nodes = [3, 5, 9][seed as usize % 3];
        let mut world = deep(seed, nodes);
        let program = busy_program(&mut world);
        let jobs = submit(&mut world, program, 1..nodes);
        // The head's machine is lost between any two decisions.
        let lost_at = world.rng.within(Duration::from_millis(300));
        world.run_for(lost_at);
        let copy = world.copy(1);
        world.after(Duration::ZERO, Event::Fault(if seed % 2 == 0 { Fault::Lose(0) } else { Fault::PowerOff(0) }));
        let later = world.rng.within(Duration::from_secs(3));
        world.run_for(later);
        world.promote(copy);
        world.run();
        for job in &jobs {
            world.assert_done(*job);
            let fed: String =
                (0..10).map(|number| format!("chunk {number} of {job}\n").repeat(100 + 97 * number)).collect();
            assert!(world.records[&(*job, 0)].stdin == fed.as_bytes(), "rank 0 of job {job} read what was sent");
        }
        assert_one_head(&mut world, 1..nodes);
        let next = world.submit(spec(program, 2));
        assert!(next > 1000, "no number of the head before is used again");
        world.run();
        world.assert_done(next);
    }
}

#[test]
fn ranks_on_the_lost_machine_of_the_head_end_their_job_and_are_not_started_again() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 4);
        let program =
            world.program(|_, _, _| vec![Op::Init, Op::Sleep(Duration::from_secs(20)), Op::Finalize, Op::Exit(0)]);
        let hosts = names(&world, [0, 2]);
        let job = world.submit(on(&hosts, spec(program, 6)));
        let lost_at = world.rng.within(Duration::from_millis(200));
        world.run_for(lost_at);
        let copy = world.copy(1);
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(0)));
        world.run_for(Duration::from_millis(10));
        let head = world.promote(copy);
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 242);
        assert!(format!("{:?}", info.cause).contains("another machine has become the head"), "{info:?}");
        assert!(world.machines[head].steps.is_empty(), "no rank is started where the head is now");
        assert_one_head(&mut world, 1..4);
    }
}

#[test]
fn of_two_heads_in_a_partition_only_the_later_one_is_obeyed_when_it_heals() {
    let mut both = 0;
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let nodes = [4, 6, 9][seed as usize % 3];
        let mut world = deep(seed, nodes);
        let program = busy_program(&mut world);
        let jobs = submit(&mut world, program, 1..nodes);
        let (first, lost_at) = (2 + world.rng.index(nodes - 2), world.rng.within(Duration::from_millis(200)));
        world.run_for(lost_at);
        // The machines from `first` on stay with the head, which goes on alone.
        let copy = world.copy(1);
        let with_standby: Vec<MachineId> = (1..first).collect();
        world.separate(&with_standby);
        let later = world.rng.within(Duration::from_secs(2));
        world.run_for(later);
        let head = world.promote(copy);
        let apart = world.rng.within(Duration::from_secs(20));
        world.run_for(apart);
        if world.is_served(0) && world.is_served(head) {
            both += 1;
            for machine in first..nodes {
                assert_eq!(world.epoch(machine), 0, "machine {machine} has heard of no other head");
            }
        }
        for machine in 1..first {
            assert!(world.epoch(machine) <= 1);
        }
        world.join_again();
        if world.stepped_down.is_empty() {
            // As its shell does when it asks at the places of its standbys.
            world.kill_daemon(0);
            world.stepped_down.push(0);
        }
        world.run();
        assert_eq!(world.stepped_down, [0], "the head before gives way");
        assert_one_head(&mut world, 1..nodes);
        for job in jobs {
            let info = world.job(job);
            assert!(matches!(info.state(), JobState::Done | JobState::Failed), "job {job}: {info:?}");
        }
    }
    assert!(both > 30, "there were two heads at once in {both} of 60");
}

#[test]
fn an_earlier_head_that_comes_back_is_not_obeyed_and_gives_way() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 4);
        let copy = world.copy(1);
        world.kill_daemon(0);
        world.promote(copy);
        world.run_for(Duration::from_secs(5));
        assert_one_head(&mut world, 1..4);
        // It starts from its own journal, and a node is told to join it.
        world.after(Duration::ZERO, Event::Restart(0));
        world.run_for(Duration::from_millis(50));
        world.kill_daemon(3);
        world.join_at(3, 0);
        world.run();
        assert_eq!(world.stepped_down, [0]);
        assert_one_head(&mut world, 1..4);
    }
}

#[test]
fn only_a_node_that_was_allowed_stands_by() {
    let mut world = World::new(1, 3, 1, Tuning::default());
    let (one, two) = (world.node(1), world.node(2));
    let call = |world: &mut World, call| {
        let req = world.call(0, Call::Standby(call));
        world.answered(req).expect("the head answers at once")
    };
    let stands_by = |node| StandbyCall::StandsBy { node, listen: "0.0.0.0:7100".into(), daemon_listen: String::new() };
    let refused = |answer| matches!(answer, Answer::Refused(refused) if refused.text.contains("rsctl head allow"));
    assert!(refused(call(&mut world, stands_by(one))));
    call(&mut world, StandbyCall::Allow { node: format!("+id{one}"), forbid: false });
    assert!(refused(call(&mut world, stands_by(two))));
    assert!(matches!(call(&mut world, stands_by(one)), Answer::Standbys(standbys) if standbys.len() == 1));
    assert!(matches!(call(&mut world, StandbyCall::Allow { node: "+id0".into(), forbid: false }), Answer::Refused(_)));
    // The permission outlives the head.
    world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::from_millis(10))));
    world.run();
    assert!(matches!(call(&mut world, stands_by(one)), Answer::Standbys(_)));
    call(&mut world, StandbyCall::Allow { node: format!("+id{one}"), forbid: true });
    assert!(refused(call(&mut world, stands_by(one))));
}
