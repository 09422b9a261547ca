//! Restarts of the head while jobs run, are queued, spawn others and end: what the journal and the logs have is enough to go on.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::Call;
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobSpec, JobState, job_event};

use crate::checks::{Seed, on, replicated_max, seeds, spec, with_stdin};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};

fn deep(seed: u64, nodes: usize) -> World {
    let mut world = World::new(
        seed,
        nodes,
        3,
        Tuning { arity: 2, output_window: 400, replicated_max: replicated_max(seed), ..Tuning::default() },
    );
    world.checks_journal = true;
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

fn input(job: JobId) -> impl Iterator<Item = String> {
    (0..10).map(move |number| format!("chunk {number} of {job}\n").repeat(200 + 397 * number))
}

fn restart_head(world: &mut World, within: Duration, times: usize) {
    for _ in 0..times {
        let (at, away) = (world.rng.within(within), world.rng.within(Duration::from_millis(60)));
        world.after(at, Event::Fault(Fault::Restart(0, away)));
    }
}

/// Asserts that every event of a job's life is in its log once.
fn assert_told_once(world: &World, job: JobId) {
    let count = |is: fn(&job_event::Body) -> bool| {
        let bodies = world.logs[&job].iter().filter_map(|event| event.body.as_ref());
        bodies.filter(|body| is(body)).count()
    };
    assert_eq!(count(|body| matches!(body, job_event::Body::Submitted(_))), 1, "job {job}");
    assert_eq!(count(|body| matches!(body, job_event::Body::Ended(_))), 1, "job {job}");
    assert!(count(|body| matches!(body, job_event::Body::Placed(_))) <= 1, "job {job}");
    assert!(count(|body| matches!(body, job_event::Body::Killing(_))) <= 1, "job {job}");
    let mut failed: Vec<(u64, u32, bool)> = Vec::new();
    for event in &world.logs[&job] {
        if let Some(job_event::Body::RankExit(exit)) = &event.body {
            let this = (exit.job, exit.rank, exit.fatal);
            assert!(!failed.contains(&this), "the exit {exit:?} of job {job} is logged twice");
            failed.push(this);
        }
    }
}

#[test]
fn jobs_survive_restarts_of_the_head() {
    for seed in seeds(90) {
        let _seed = Seed(seed);
        let nodes = [1, 2, 9][seed as usize % 3];
        let mut world = deep(seed, nodes);
        let program = busy_program(&mut world);
        let mut jobs = Vec::new();
        for n in [2 * nodes as u32, 4, 1, 3 * nodes as u32] {
            let spec = with_stdin(0, spec(program, n.min(3 * nodes as u32)));
            let job = world.submit(spec);
            world.feed_stdin(job, input(job).map(Bytes::from).collect());
            jobs.push(job);
        }
        restart_head(&mut world, Duration::from_millis(500), 5);
        let machine = world.rng.index(nodes);
        for fault in [Fault::CutAnyLink, Fault::CutAnyStep, Fault::Restart(machine, Duration::from_millis(100))] {
            let at = world.rng.within(Duration::from_millis(500));
            world.after(at, Event::Fault(fault));
        }
        world.run();
        for job in jobs {
            world.assert_done(job);
            assert_told_once(&world, job);
            let fed: String = input(job).collect();
            let read = &world.records[&(job, 0)].stdin;
            assert!(read == fed.as_bytes(), "rank 0 of job {job} read {} of {} bytes", read.len(), fed.len());
        }
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), nodes);
    }
}

/// Restarts the head at each moment of a short job.
#[test]
fn the_head_may_restart_at_any_moment_of_a_job() {
    for seed in seeds(160) {
        let _seed = Seed(seed);
        let mut world = World::new(7, 3, 1, Tuning { arity: 2, ..Tuning::default() });
        world.checks_journal = true;
        let program = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init];
            script.extend([Op::Put(format!("k{rank}"), format!("v{rank}")), Op::Fence]);
            script.extend((0..size).map(|other| Op::Get(format!("k{other}"), format!("v{other}"))));
            script.extend(ranks::output(rank, 2, rng));
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let failing = world.program(|rank, _, _| match rank {
            1 => vec![Op::Init, Op::Exit(7)],
            _ => vec![Op::Init, Op::Hang],
        });
        let (first, second) = (world.submit(spec(program, 3)), world.submit(spec(failing, 3)));
        world.after(Duration::from_micros(100 * seed), Event::Fault(Fault::Restart(0, Duration::from_millis(30))));
        world.run();
        world.assert_done(first);
        let info = world.assert_ended(second, JobState::Failed, 7);
        assert_eq!(info.cause.map(|cause| (cause.rank, cause.code)), Some((1, 7)));
        [first, second].iter().for_each(|job| assert_told_once(&world, *job));
        world.assert_at_rest();
    }
}

#[test]
fn the_queue_keeps_its_order_and_jobs_their_deadlines() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 3);
        let program = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(10)), Op::Exit(0)]);
        let limited = JobSpec { timeout_ms: 4_000, ..spec(program, 9) };
        let first = world.submit(limited);
        let begun = world.now;
        let others: Vec<JobId> = (0..3).map(|_| world.submit(spec(program, 9))).collect();
        restart_head(&mut world, Duration::from_secs(30), 6);
        world.run();
        let info = world.assert_ended(first, JobState::TimedOut, 124);
        let took = Duration::from_millis(info.ended_ms - info.submitted_ms);
        assert!(
            took < Duration::from_secs(4) + Duration::from_millis(2_400),
            "it ended after {took:?}, from {begun:?}"
        );
        let starts: Vec<u64> = others.iter().map(|job| world.job(*job).started_ms).collect();
        assert!(starts.is_sorted(), "they start in order: {starts:?}");
        for job in others {
            world.assert_done(job);
            assert_told_once(&world, job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn jobs_that_have_ended_are_remembered() {
    let mut world = deep(3, 3);
    let program = world.program(|rank, _, _| vec![Op::Exit(if rank == 1 { 5 } else { 0 })]);
    let (failed, done) = (world.submit(spec(program, 3)), world.submit(spec(program, 1)));
    let cancelled = world.submit(on(&["n1".into()], JobSpec { apps: spec(program, 3).apps, ..spec(program, 3) }));
    world.call(0, Call::Cancel { job: cancelled, grace_ms: Some(0) });
    world.run();
    let before: Vec<_> = [failed, done, cancelled].map(|job| world.job(job)).into();
    for _ in 0..2 {
        world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::from_millis(20))));
        world.run();
        let now: Vec<_> = [failed, done, cancelled].map(|job| world.job(job)).into();
        assert_eq!(now, before);
    }
    // A stopped DVM leaves what its jobs were.
    world.call(0, Call::Shutdown { force: true });
    world.run();
    world.after(Duration::ZERO, Event::Restart(0));
    world.run();
    assert_eq!(world.job(failed), before[0]);
    let next = world.submit(spec(program, 1));
    assert!(next > cancelled, "numbers are not used again");
    world.run();
    world.assert_done(next);
}
