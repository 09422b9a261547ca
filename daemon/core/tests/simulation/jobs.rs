//! Jobs on a DVM without faults, apart from failures of the jobs themselves.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call};
use rsd_core::step::Stream;
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobSpec, JobState, Soft, Triplet, job_event, rank_exit::How};

use crate::checks::{Seed, on, seeds, spec, with_stdin};
use crate::ranks::{self, Op};
use crate::rng::Rng;
use crate::world::{World, submission};

fn small(rng_seed: u64) -> World {
    World::new(rng_seed, 5, 4, Tuning { arity: 2, output_window: 600, ..Tuning::default() })
}

/// Returns when a job was placed, as an index into the order of all jobs' placements.
fn placed_at(world: &World, job: JobId) -> Option<u64> {
    let placed = |event: &&rsd_proto::v1::JobEvent| matches!(event.body, Some(job_event::Body::Placed(_)));
    world.logs[&job].iter().find(placed).map(|event| event.at_ms)
}

#[test]
fn many_jobs_share_the_nodes_in_order_of_submission() {
    for seed in seeds(8) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init];
            script.extend(ranks::rounds(rank, size, 0..1, rng));
            script.extend(ranks::output(rank, 5, rng));
            script.extend(ranks::rounds(rank, size, 1..3, rng));
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let mut jobs = Vec::new();
        for _ in 0..12 {
            let n = 1 + world.rng.below(20) as u32;
            let mut spec = spec(program, n);
            spec.map_by = if world.rng.chance(2) { "node" } else { "slot" }.into();
            jobs.push(world.submit(spec));
            let pause = world.rng.within(Duration::from_millis(30));
            world.run_for(pause);
        }
        world.run();
        for job in &jobs {
            world.assert_done(*job);
        }
        let placed: Vec<_> = jobs.iter().map(|job| placed_at(&world, *job)).collect();
        assert!(placed.is_sorted(), "jobs overtake each other: {placed:?}");
        world.assert_at_rest();
    }
}

#[test]
fn only_a_job_that_needs_no_free_slot_overtakes_a_queued_job() {
    for seed in seeds(25) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(1)), Op::Exit(0)]);
        let half = world.submit(spec(program, 10));
        let whole = world.submit(spec(program, 20));
        let one = world.submit(spec(program, 1));
        let eager = world.submit(JobSpec { oversubscribe: true, ..spec(program, 30) });
        assert_eq!(world.job(whole).state(), JobState::Queued);
        assert!(!world.job(one).queued_reason.is_empty());
        world.run();
        for job in [half, whole, one, eager] {
            world.assert_done(job);
        }
        let [half, whole, one, eager] = [half, whole, one, eager].map(|job| placed_at(&world, job));
        assert!(half == eager && half < whole && whole < one, "{half:?} {eager:?} {whole:?} {one:?}");
        world.assert_at_rest();
    }
}

#[test]
fn a_job_that_can_never_fit_is_refused() {
    let mut world = small(0);
    let req = world.call(0, submission(spec(0, 21)));
    let answer = world.answered(req);
    assert!(matches!(&answer, Some(Answer::Refused(refused)) if refused.exit_code == 243), "{answer:?}");
    world.run();
    world.assert_at_rest();
}

#[test]
fn a_job_that_accepts_fewer_ranks_starts_with_the_most_that_fit() {
    for seed in seeds(8) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(1)), Op::Exit(0)]);
        let soft = |n: u32, first: i64, stride: i64| {
            let mut spec = spec(program, n);
            spec.apps[0].soft = Some(Soft { triplets: vec![Triplet { first, last: n.into(), stride }] });
            spec
        };
        let [all, most, one] = [soft(8, 1, 1), soft(30, 5, 3), soft(4, 1, 3)].map(|spec| world.submit(spec));
        assert_eq!([all, most, one].map(|job| world.job(job).ranks), [8, 11, 1]);
        // Nothing acceptable fits now: it waits for the number that it requests.
        let waits = world.submit(soft(12, 2, 10));
        assert_eq!(world.job(waits).state(), JobState::Queued);
        // Nothing acceptable will ever fit.
        let req = world.call(0, submission(soft(30, 21, 1)));
        let answer = world.answered(req);
        assert!(matches!(&answer, Some(Answer::Refused(refused)) if refused.exit_code == 243), "{answer:?}");
        world.run();
        for job in [all, most, one, waits] {
            world.assert_done(job);
        }
        assert_eq!(world.job(waits).ranks, 12);
        world.assert_at_rest();
    }
}

/// Each row: what rank 7 of 20 does before, between or after the others' fences, and how the job ends.
#[test]
fn the_first_cause_decides_how_a_job_ends() {
    type Deed = fn() -> Vec<Op>;
    let deeds: [(&str, Deed, JobState, u32); 12] = [
        ("abort", || vec![Op::Init, Op::Fence, Op::Abort(7)], JobState::Failed, 7),
        ("abort with 0", || vec![Op::Init, Op::Abort(0)], JobState::Failed, 1),
        ("abort with 256", || vec![Op::Init, Op::Abort(256)], JobState::Failed, 1),
        ("segfault in between", || vec![Op::Init, Op::Fence, Op::Die(11)], JobState::Failed, 139),
        ("exit in between", || vec![Op::Init, Op::Fence, Op::Exit(3)], JobState::Failed, 3),
        ("exit with 0 in between", || vec![Op::Init, Op::Fence, Op::Exit(0)], JobState::Failed, 1),
        ("exit before init", || vec![Op::Sleep(Duration::from_millis(9)), Op::Exit(4)], JobState::Failed, 4),
        ("exit with 0 before init", || vec![Op::Exit(0)], JobState::Failed, 1),
        ("death before init", || vec![Op::Die(9)], JobState::Failed, 137),
        ("finalize first", || vec![Op::Init, Op::Finalize, Op::Exit(0)], JobState::Failed, 1),
        ("no such program", Vec::new, JobState::Failed, 247),
        (
            "exit after finalize",
            || vec![Op::Init, Op::Fence, Op::Fence, Op::Finalize, Op::Exit(5)],
            JobState::Failed,
            5,
        ),
    ];
    for (what, deed, state, code) in deeds {
        for seed in seeds(8) {
            let _seed = Seed(seed);
            let mut world = small(seed);
            let program = world.program(move |rank, _, rng| match rank {
                7 => deed(),
                _ => vec![
                    Op::Init,
                    Op::Fence,
                    Op::Sleep(rng.within(Duration::from_millis(20))),
                    Op::Write(Stream::Stderr, b"still here\n".to_vec()),
                    Op::Fence,
                    Op::Finalize,
                    Op::Exit(0),
                ],
            });
            let mut spec = spec(program, 20);
            spec.map_by = if seed % 2 == 0 { "node" } else { "slot" }.into();
            let job = world.submit(spec);
            world.run();
            let info = world.assert_ended(job, state, code);
            let cause = info.cause.as_ref().map(|cause| (cause.rank, cause.secondary));
            assert_eq!(cause, Some((7, false)), "{what}: {info:?}");
            assert!(info.exits.iter().all(|exit| exit.rank == 7 || exit.secondary), "{what}: {info:?}");
            world.assert_output_whole(job);
            world.assert_at_rest();
        }
    }
}

#[test]
fn a_node_that_ends_while_others_wait_for_it_ends_the_job() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|rank, _, _| match rank {
            8..12 => vec![Op::Write(Stream::Stdout, b"not MPI\n".to_vec()), Op::Exit(0)],
            _ => vec![Op::Init, Op::Fence, Op::Finalize, Op::Exit(0)],
        });
        let job = world.submit(spec(program, 20));
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 1);
        assert_eq!(info.cause.map(|cause| cause.rank), Some(8));
        world.assert_output_whole(job);
        world.assert_at_rest();
    }
}

#[test]
fn programs_without_pmi_may_exit_with_any_code() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|rank, _, rng| {
            let pause = Op::Sleep(rng.within(Duration::from_millis(50)));
            vec![pause, Op::Exit(if rank == 3 { 9 } else { 0 })]
        });
        let job = world.submit(spec(program, 12));
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 9);
        let exits: Vec<_> = info.exits.iter().map(|exit| (exit.rank, exit.how.clone(), exit.fatal)).collect();
        assert_eq!(exits, [(3, Some(How::Exited(9)), false)], "the other ranks were not ended");
        world.assert_at_rest();
    }
}

#[test]
fn a_job_ends_when_it_is_cancelled_or_its_time_limit_passes() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|rank, _, _| match rank % 3 {
            0 => vec![Op::Init, Op::Fence, Op::Hang],
            1 => vec![Op::Init, Op::Fence, Op::Fence, Op::Hang],
            _ => vec![Op::Init, Op::Fence, Op::Sleep(Duration::from_secs(100)), Op::Exit(0)],
        });
        let timed = world.submit(JobSpec { timeout_ms: 800, ..spec(program, 10) });
        let cancelled = world.submit(spec(program, 10));
        let waiting = world.submit(spec(program, 20));
        let pause = world.rng.within(Duration::from_millis(20));
        world.run_for(pause);
        for job in [cancelled, waiting] {
            world.call(0, Call::Cancel { job, grace_ms: None });
        }
        world.run();
        world.assert_ended(timed, JobState::TimedOut, 124);
        world.assert_ended(cancelled, JobState::Cancelled, 130);
        world.assert_ended(waiting, JobState::Cancelled, 130);
        world.assert_at_rest();
    }
}

#[test]
fn the_grace_of_a_second_cancel_applies() {
    let mut world = small(3);
    // A rank that ignores TERM, which depends on the seed, would run until the first grace has passed.
    let program = world.program(|_, _, _| vec![Op::Hang]);
    let job = world.submit(JobSpec { kill_grace_ms: Some(1_000_000), ..spec(program, 20) });
    world.run_for(Duration::from_millis(100));
    world.call(0, Call::Cancel { job, grace_ms: None });
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.job(job).state(), JobState::Ending, "some ranks ignore TERM");
    world.call(0, Call::Cancel { job, grace_ms: Some(0) });
    world.run_for(Duration::from_millis(200));
    world.assert_ended(job, JobState::Cancelled, 130);
    world.run();
    world.assert_at_rest();
}

fn chunks(bytes: usize, rng: &mut Rng) -> (Vec<Bytes>, Vec<u8>) {
    let all: Vec<u8> = (0..bytes).map(|at| (at * 31 % 251) as u8).collect();
    let mut chunks = Vec::new();
    let mut rest = &all[..];
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at((1 + rng.index(32 << 10)).min(rest.len()));
        chunks.push(Bytes::copy_from_slice(chunk));
        rest = behind;
    }
    chunks.push(Bytes::new());
    (chunks, all)
}

#[test]
fn standard_input_arrives_whole_at_the_rank_that_reads_it() {
    for (seed, bytes) in [0, 1, 65_535, 65_536, 65_537, 1_000_000].into_iter().enumerate() {
        let _seed = Seed(seed as u64);
        let mut world = small(seed as u64);
        let program = world.program(|rank, _, _| match rank {
            0 => vec![Op::ReadStdin, Op::Exit(0)],
            _ => vec![Op::Exit(0)],
        });
        let job = world.submit(with_stdin(0, on(&["n3".into(), "n2".into()], spec(program, 6))));
        let (chunks, all) = chunks(bytes, &mut world.rng);
        world.feed_stdin(job, chunks);
        world.run();
        world.assert_done(job);
        assert_eq!(world.records[&(job, 0)].stdin, all);
        world.assert_at_rest();
    }
}

#[test]
fn unread_standard_input_delays_nothing() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|_, _, rng| vec![Op::Sleep(rng.within(Duration::from_millis(3))), Op::Exit(0)]);
        let job = world.submit(with_stdin(0, spec(program, 6)));
        let (chunks, _) = chunks(1_000_000, &mut world.rng);
        world.feed_stdin(job, chunks);
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn ranks_of_both_dialects_enter_one_fence() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = small(seed);
        let program = world.program(|rank, _, _| match rank % 2 {
            0 => vec![Op::Init, Op::Fence, Op::Fence, Op::Finalize, Op::Exit(0)],
            _ => vec![Op::CallFence, Op::CallFence, Op::Exit(0)],
        });
        let job = world.submit(spec(program, 20));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn the_loads_of_all_nodes_are_measured_in_one_round() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 20, 1, Tuning { arity: 3, ..Tuning::default() });
        let req = world.call(0, Call::ListNodes { load: true });
        world.run();
        let Some(Answer::Nodes(nodes)) = world.answered(req) else { panic!("no answer") };
        assert!(nodes.iter().all(|node| node.load.is_some()) && nodes.len() == 20, "{nodes:?}");
        world.assert_at_rest();
    }
}

#[test]
fn the_oldest_ended_jobs_are_forgotten_with_their_logs() {
    let mut world = World::new(1, 2, 2, Tuning { jobs_kept: 3, ..Tuning::default() });
    let program = world.program(|_, _, _| vec![Op::Exit(0)]);
    // One runs after the other.
    let jobs: Vec<JobId> = (0..8).map(|_| world.submit(spec(program, 4))).collect();
    world.run();
    assert_eq!(world.logs.keys().copied().collect::<Vec<_>>(), jobs[5..]);
    world.assert_at_rest();
}
