//! Jobs that continue without the nodes that they lose.

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobInfo, JobSpec, JobState, OnNodeLoss, OnRankLoss, job_event};

use crate::checks::{Seed, on, seeds, spec};
use crate::ranks::Op;
use crate::world::{Event, Fault, World};

fn deep(seed: u64) -> World {
    World::new(seed, 9, 3, Tuning { arity: 2, ..Tuning::default() })
}

fn surviving(spec: JobSpec) -> JobSpec {
    JobSpec { on_node_loss: OnNodeLoss::Continue.into(), ..spec }
}

/// Submits a job on all slots. A rank sleeps for up to `sleep` between two fences.
fn submit(world: &mut World, sleep: Duration) -> JobId {
    let program = world.program(move |_, _, rng| {
        vec![Op::Init, Op::Fence, Op::Sleep(rng.within(sleep)), Op::Fence, Op::Fence, Op::Finalize, Op::Exit(0)]
    });
    world.submit(surviving(spec(program, 27)))
}

/// Asserts that the job has lost exactly the ranks on this machine, and that all others have finished.
fn assert_survived(world: &mut World, job: JobId, machine: usize) -> JobInfo {
    let info = world.assert_ended(job, JobState::Done, 0);
    let node = world.node(machine);
    let lost: BTreeSet<u32> = info.exits.iter().flat_map(rsd_proto::exits::ranks).collect();
    assert_eq!(lost.len(), 3, "{:?}", info.exits);
    assert!(info.exits.iter().all(|exit| exit.node == node && !exit.fatal && exit.code == 242), "{:?}", info.exits);
    assert_eq!(info.cause, None);
    for rank in 0..27 {
        assert_eq!(world.records[&(job, rank)].finished, !lost.contains(&rank), "rank {rank}");
    }
    let notices = world.logs[&job].iter().filter_map(|event| match &event.body {
        Some(job_event::Body::Notice(text)) if text.contains("lost") => Some(text),
        _ => None,
    });
    let notices: Vec<&String> = notices.collect();
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.contains("are lost (its node n") && notice.contains("the other ranks continue"), "{notice}");
    info
}

#[test]
fn the_other_ranks_pass_their_fences_without_a_lost_node() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        // The loss is noticed while ranks compute, or while they wait in a fence.
        let sleep = Duration::from_secs(if seed % 2 == 0 { 200 } else { 1 });
        let job = submit(&mut world, sleep);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Finalize, Op::Exit(0)]);
        let untouched = world.submit(JobSpec { oversubscribe: true, ..on(&["n0".into()], spec(program, 2)) });
        world.run_for(Duration::from_millis(500));
        let lost = 1 + world.rng.index(8);
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(lost)));
        world.run();
        assert_survived(&mut world, job, lost);
        world.assert_done(untouched);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 8);
    }
}

#[test]
fn the_head_restarts_after_a_node_was_lost() {
    for seed in seeds(120) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        world.checks_journal = true;
        let grace = Tuning::default().reattach_grace;
        // The fences are due soon after the restart, or have been waiting.
        let program = world.program(move |rank, _, _| {
            let work = if rank % 2 == 0 { Duration::from_secs(1) } else { grace + Duration::from_secs(2) };
            vec![Op::Init, Op::Fence, Op::Sleep(work), Op::Fence, Op::Fence, Op::Finalize, Op::Exit(0)]
        });
        let job = world.submit(surviving(spec(program, 27)));
        world.run_for(Duration::from_millis(500));
        let lost = 1 + world.rng.index(8);
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(lost)));
        // Around the moment at which the job continues, or later.
        let late = if seed % 2 == 0 { Duration::from_micros(100 * seed) } else { Duration::from_millis(10 * seed) };
        world.after(grace + late, Event::Fault(Fault::Restart(0, Duration::from_millis(40))));
        world.run();
        let info = assert_survived(&mut world, job, lost);
        let took = Duration::from_millis(info.ended_ms - info.started_ms);
        let known = Duration::from_secs(5);
        assert!(seed % 2 == 0 || took < grace + known, "it waits for the lost node again: {took:?}");
        world.assert_at_rest();
    }
}

#[test]
fn a_lost_node_that_returns_has_no_ranks_of_the_job_any_more() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let job = submit(&mut world, Duration::from_secs(400));
        world.run_for(Duration::from_millis(500));
        let cut_off = 1 + world.rng.index(8);
        world.after(Duration::ZERO, Event::Fault(Fault::Isolate(cut_off, Duration::from_secs(100))));
        world.run_for(Duration::from_secs(130));
        assert_eq!(world.nodes_up(), 9, "the node has reconnected");
        world.run();
        assert_survived(&mut world, job, cut_off);
        world.assert_at_rest();
    }
}

#[test]
fn a_job_whose_last_node_is_lost_has_failed() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let job = world.submit(surviving(on(&["n3".into(), "n4".into()], spec(program, 6))));
        world.run_for(Duration::from_millis(500));
        for machine in [3, 4] {
            world.after(Duration::from_secs(machine as u64), Event::Fault(Fault::Lose(machine)));
        }
        world.run();
        world.assert_ended(job, JobState::Failed, 242);
        world.assert_at_rest();
    }
}

#[test]
fn a_rank_that_fails_after_the_loss_ends_the_job() {
    let mut world = deep(1);
    let program = world.program(|rank, _, _| match rank {
        0 => vec![Op::Init, Op::Sleep(Duration::from_secs(100)), Op::Abort(7)],
        _ => vec![Op::Init, Op::Hang],
    });
    let job = world.submit(surviving(spec(program, 27)));
    world.run_for(Duration::from_millis(500));
    world.after(Duration::ZERO, Event::Fault(Fault::Lose(5)));
    world.run();
    let info = world.assert_ended(job, JobState::Failed, 7);
    assert_eq!(info.cause.map(|cause| cause.rank), Some(0));
    world.assert_at_rest();
}

fn outliving(spec: JobSpec) -> JobSpec {
    JobSpec { on_rank_loss: OnRankLoss::Continue.into(), ..spec }
}

/// Submits a job on all slots in which `dies` says who is killed between the first and the second fence.
fn submit_mortal(world: &mut World, dies: impl Fn(u32) -> bool + 'static) -> JobId {
    let program = world.program(move |rank, _, rng| {
        let work = Op::Sleep(rng.within(Duration::from_secs(2)));
        match dies(rank) {
            true => vec![Op::Init, Op::Fence, work, Op::Die(9)],
            false => vec![Op::Init, Op::Fence, work, Op::Fence, Op::Fence, Op::Finalize, Op::Exit(0)],
        }
    });
    world.submit(outliving(spec(program, 27)))
}

/// Asserts that exactly these ranks were lost, and that all others have finished.
fn assert_outlived(world: &mut World, job: JobId, dies: impl Fn(u32) -> bool) {
    let info = world.assert_ended(job, JobState::Done, 0);
    let lost: BTreeSet<u32> = info.exits.iter().flat_map(rsd_proto::exits::ranks).collect();
    assert_eq!(lost, (0..27).filter(|rank| dies(*rank)).collect(), "{:?}", info.exits);
    assert!(info.exits.iter().all(|exit| exit.lost && !exit.fatal && exit.code == 137), "{:?}", info.exits);
    assert_eq!(info.cause, None);
    for rank in 0..27 {
        assert!(dies(rank) || world.records[&(job, rank)].finished, "rank {rank}");
    }
    let is_told = |text: &String| text.contains("the other ranks continue (--on-rank-loss continue)");
    let notices = world.logs[&job].iter().filter_map(|event| match &event.body {
        Some(job_event::Body::Notice(text)) => Some(text),
        _ => None,
    });
    assert!(notices.clone().any(is_told), "{:?}", notices.collect::<Vec<_>>());
}

#[test]
fn the_other_ranks_pass_their_fences_without_ranks_that_have_died() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        world.checks_journal = true;
        // Some of a node's ranks, all of a node's, all of a subtree's, or any.
        let dies = move |rank: u32| match seed % 4 {
            0 => rank == 26,
            1 => (3..6).contains(&rank),
            2 => rank >= 12,
            _ => (rank + seed as u32).is_multiple_of(5),
        };
        let job = submit_mortal(&mut world, dies);
        world.run();
        assert_outlived(&mut world, job, dies);
        world.assert_at_rest();
    }
}

#[test]
fn daemons_restart_while_ranks_die() {
    for seed in seeds(120) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        world.checks_journal = true;
        let dies = |rank: u32| rank >= 24 || rank == 4;
        let job = submit_mortal(&mut world, dies);
        world.run_for(Duration::from_millis(500));
        let machine = if seed % 2 == 0 { 0 } else { 1 + world.rng.index(8) };
        let when = world.rng.within(Duration::from_secs(2));
        world.after(when, Event::Fault(Fault::Restart(machine, Duration::from_millis(40))));
        world.run();
        assert_outlived(&mut world, job, dies);
        world.assert_at_rest();
    }
}

#[test]
fn a_job_whose_last_rank_has_died_has_failed() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let job = submit_mortal(&mut world, |_| true);
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 137);
        assert!(info.exits.iter().all(|exit| exit.lost), "{:?}", info.exits);
        world.assert_at_rest();
    }
}

#[test]
fn an_abort_ends_a_job_that_would_outlive_a_rank() {
    let mut world = deep(1);
    let program = world.program(|rank, _, _| match rank {
        0 => vec![Op::Init, Op::Sleep(Duration::from_secs(2)), Op::Abort(7)],
        1 => vec![Op::Init, Op::Die(9)],
        _ => vec![Op::Init, Op::Hang],
    });
    let job = world.submit(outliving(spec(program, 27)));
    world.run();
    let info = world.assert_ended(job, JobState::Failed, 7);
    assert_eq!(info.cause.map(|cause| cause.rank), Some(0));
    world.assert_at_rest();
}
