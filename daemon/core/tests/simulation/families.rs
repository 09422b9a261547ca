//! Jobs that ranks spawn: their start, end and failure together with their families, under all kinds of faults.

use std::time::Duration;

use rsd_core::rsd::Call;
use rsd_core::step::Stream;
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobSpec, JobState, job_event};

use crate::checks::{Seed, on, replicated_max, seeds, spec};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};

const PORT: &str = "PARENT_ROOT_PORT_NAME";

fn world(seed: u64, nodes: usize, slots: u32) -> World {
    World::new(
        seed,
        nodes,
        slots,
        Tuning { arity: 2, output_window: 600, replicated_max: replicated_max(seed), ..Tuning::default() },
    )
}

fn spawn(program: usize, n: u32) -> Op {
    Op::Spawn { programs: vec![(program, n)], info: Vec::new(), errors: 0 }
}

fn with(op: Op, key: &str, value: &str) -> Op {
    match op {
        Op::Spawn { programs, mut info, errors } => {
            info.push((key.into(), value.into()));
            Op::Spawn { programs, info, errors }
        }
        other => other,
    }
}

fn not(op: Op) -> Op {
    Op::Not(Box::new(op))
}

/// Returns a program in which rank 0 performs `what` between two fences of all ranks.
fn root(world: &mut World, what: Vec<Op>) -> usize {
    world.program(move |rank, _, _| {
        let mut script = vec![Op::Init, Op::Fence];
        script.extend(if rank == 0 { what.clone() } else { Vec::new() });
        script.extend([Op::Fence, Op::Finalize, Op::Exit(0)]);
        script
    })
}

/// Returns an MPI program that looks up its parent's port, and writes.
fn child(world: &mut World) -> usize {
    world.program(|rank, size, rng| {
        let mut script = vec![Op::Init, Op::Get(PORT.into(), "port$7".into())];
        script.extend(ranks::rounds(rank, size, 0..2, rng));
        script.extend(ranks::output(rank, 3, rng));
        script.extend([Op::Finalize, Op::Exit(0)]);
        script
    })
}

fn notices(world: &World, job: JobId) -> Vec<String> {
    let notice = |event: &rsd_proto::v1::JobEvent| match &event.body {
        Some(job_event::Body::Notice(text)) => Some(text.clone()),
        _ => None,
    };
    world.logs[&job].iter().filter_map(notice).collect()
}

#[test]
fn a_spawned_job_has_its_own_number_and_its_output_is_in_the_roots_log() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 5, 4);
        let child = child(&mut world);
        let programs = vec![(child, 5), (child, 2)];
        let program = root(&mut world, vec![Op::Spawn { programs, info: Vec::new(), errors: 0 }]);
        let job = world.submit(spec(program, 6));
        world.run();
        world.assert_done(job);
        let info = world.job(job + 1);
        assert_eq!((info.parent, info.ranks), (job, 7));
        world.assert_done(job + 1);
        for rank in 0..7 {
            let record = &world.records[&(job + 1, rank)];
            assert!(record.env.contains(&"PMI_SPAWNED=1".to_owned()), "{:?}", record.env);
            let of_root = world.logs[&job].iter().filter_map(|event| match &event.body {
                Some(job_event::Body::Output(output)) => Some(&output.records),
                _ => None,
            });
            let told = of_root.flatten().filter(|it| (it.job, it.rank, it.stream()) == (job + 1, rank, Stream::Stdout));
            let told: Vec<u8> = told.flat_map(|record| record.data.to_vec()).collect();
            assert_eq!(told, record.written[0], "rank {rank}");
        }
        assert!(!world.records[&(job, 0)].env.iter().any(|var| var.starts_with("PMI_SPAWNED")));
        world.assert_at_rest();
    }
}

#[test]
fn a_spawn_costs_a_request_an_answer_and_one_report_per_node_more_than_a_job() {
    let _seed = Seed(1);
    let mut world = world(1, 15, 2);
    let child = world.program(|rank, size, rng| ranks::mpi(rank, size, 1, rng));
    let program = world.program(move |_, _, _| vec![Op::Init, spawn(child, 29), Op::Finalize, Op::Exit(0)]);
    let nodes = world.nodes();
    let parent = |node: u32| nodes.iter().find(|it| it.node == node).map_or(0, |it| it.parent);
    let leaf = nodes.iter().max_by_key(|it| it.node).expect("there are nodes").clone();
    let way = std::iter::successors(Some(leaf.node), |node| Some(parent(*node))).position(|node| node == 0);
    world.traffic.clear();
    let job = world.submit(on(&[leaf.name], spec(program, 1)));
    world.run();
    world.assert_done(job);
    world.assert_done(job + 1);
    let way = way.expect("every node is below the head");
    assert_eq!(["spawn call", "spawn result"].map(|kind| world.count(kind)), [way, way]);
    assert_eq!(world.count("begun"), 14, "one from each node except the head's");
    world.assert_at_rest();
}

#[test]
fn a_spawn_that_does_not_fit_is_refused_and_not_queued() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3, 2);
        let child = child(&mut world);
        let none = world.program(|_, _, _| Vec::new());
        let several = Op::Spawn { programs: vec![(child, 1), (none, 1)], info: Vec::new(), errors: 0 };
        let free_again = Op::Sleep(Duration::from_secs(5));
        let what = vec![
            not(spawn(child, 5)),
            not(spawn(child, 0)),
            spawn(child, 4),
            Op::Await("done".into()),
            not(spawn(none, 2)),
            free_again,
            not(several),
        ];
        let program = root(&mut world, what);
        let job = world.submit(spec(program, 2));
        world.run();
        world.assert_done(job);
        let told: Vec<_> = notices(&world, job).into_iter().filter(|text| text.contains("spawn")).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("rank 0 could not spawn: 5 ranks requested"), "{told:?}");
        assert!(told[3].contains("unknown program"), "{told:?}");
        world.assert_at_rest();
    }
}

#[test]
fn a_spawn_that_accepts_fewer_ranks_gets_the_free_slots() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3, 2);
        let child = child(&mut world);
        let soft =
            |asked, errors| with(Op::Spawn { programs: vec![(child, asked)], info: Vec::new(), errors }, "soft", "7");
        let program = root(&mut world, vec![soft(6, 2), Op::Await("done".into()), soft(3, 0)]);
        let job = world.submit(spec(program, 2));
        world.run();
        world.assert_done(job);
        assert_eq!([1, 2].map(|of| world.job(job + of).ranks), [4, 3]);
        world.assert_at_rest();
    }
}

#[test]
fn the_root_ends_after_the_last_job_of_its_family() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3, 4);
        let last =
            world.program(|_, _, _| vec![Op::Init, Op::Sleep(Duration::from_secs(9)), Op::Finalize, Op::Exit(0)]);
        let middle = world.program(move |_, _, _| vec![Op::Init, spawn(last, 2), Op::Finalize, Op::Exit(0)]);
        let program = root(&mut world, vec![spawn(middle, 1)]);
        let job = world.submit(spec(program, 4));
        world.run_for(Duration::from_secs(4));
        assert_eq!(
            [0, 1, 2].map(|of| world.job(job + of).state()),
            [JobState::Running, JobState::Done, JobState::Running]
        );
        assert_eq!(world.nodes().iter().map(|node| node.slots_in_use).sum::<u32>(), 2, "only the last job has slots");
        world.run();
        for job in [job, job + 1, job + 2] {
            world.assert_done(job);
        }
        assert_eq!(world.job(job + 2).parent, job + 1);
        world.assert_at_rest();
    }
}

/// Restarts the head around each moment of a family's end: done, failed, and cancelled.
#[test]
fn a_family_ends_although_the_head_restarts() {
    for seed in seeds(180) {
        let _seed = Seed(seed);
        let mut world = world(7, 3, 4);
        world.checks_journal = true;
        let (fails, cancelled) = (seed % 3 == 1, seed % 3 == 2);
        let last = world.program(move |rank, _, _| {
            let end = if fails && rank == 1 { Op::Die(11) } else { Op::Finalize };
            vec![Op::Init, Op::Fence, Op::Sleep(Duration::from_secs(2)), end, Op::Exit(0)]
        });
        let program = root(&mut world, vec![spawn(last, 2)]);
        let job = world.submit(spec(program, 4));
        let spread = Duration::from_micros(400 * (seed / 3));
        let at = if cancelled { Duration::from_millis(990) + spread } else { Duration::from_millis(1995) + spread };
        world.after(at, Event::Fault(Fault::Restart(0, Duration::from_millis(40))));
        if cancelled {
            world.run_for(Duration::from_secs(1));
            if world.machines[0].daemon.is_none() {
                world.run_for(Duration::from_secs(1));
            }
            world.call(0, Call::Cancel { job, grace_ms: Some(50) });
        }
        world.run();
        let (state, code) = match (fails, cancelled) {
            (true, _) => (JobState::Failed, 139),
            (_, true) => (JobState::Cancelled, 130),
            (false, false) => (JobState::Done, 0),
        };
        let info = world.assert_ended(job, state, code);
        assert_eq!(fails, info.cause.is_some_and(|cause| (cause.job, cause.rank) == (job + 1, 1)));
        world.assert_at_rest();
    }
}

#[test]
fn a_family_is_ended_with_its_root() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4, 4);
        let last = world.program(|_, _, _| vec![Op::Init, Op::Hang]);
        let middle = world.program(move |_, _, _| vec![Op::Init, spawn(last, 3), Op::Finalize, Op::Exit(0)]);
        let stays = seed % 2 == 0;
        let mut what = vec![spawn(middle, 1), spawn(last, 2)];
        what.extend(stays.then_some(Op::Hang));
        let program = root(&mut world, what);
        let timeout_ms = if seed % 3 == 0 { 3000 } else { 0 };
        let job = world.submit(JobSpec { timeout_ms, ..spec(program, 4) });
        world.run_for(Duration::from_secs(2));
        if timeout_ms == 0 {
            world.call(0, Call::Cancel { job, grace_ms: None });
        }
        world.run();
        let (state, code) = if timeout_ms == 0 { (JobState::Cancelled, 130) } else { (JobState::TimedOut, 124) };
        world.assert_ended(job, state, code);
        for of_family in [job + 2, job + 3] {
            world.assert_ended(of_family, JobState::Cancelled, 130);
        }
        world.assert_at_rest();
        assert!(world.now < Duration::from_secs(20), "no node had to be given up: {:?}", world.now);
    }
}

#[test]
fn a_spawned_job_that_fails_ends_its_family_unless_it_was_spawned_apart() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4, 4);
        let failing = world.program(|rank, _, rng| {
            let end = if rank == 1 { Op::Die(11) } else { Op::Hang };
            vec![Op::Init, Op::Fence, Op::Sleep(rng.within(Duration::from_millis(50))), end]
        });
        let apart = seed % 2 == 0;
        let what = match apart {
            true => vec![with(spawn(failing, 3), "rsd_apart", "true"), Op::Await("failed: rank 1 was killed".into())],
            false => vec![spawn(failing, 3), Op::Hang],
        };
        let program = root(&mut world, what);
        let job = world.submit(spec(program, 4));
        world.run();
        world.assert_ended(job + 1, JobState::Failed, 139);
        if apart {
            world.assert_done(job);
        } else {
            let cause = world.assert_ended(job, JobState::Failed, 139).cause.expect("a failed job has a cause");
            assert_eq!((cause.job, cause.rank), (job + 1, 1));
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_program_that_exits_with_an_error_fails_its_family_but_ends_no_other_job() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4, 4);
        let bad = world.program(|_, _, _| vec![Op::Init, Op::Finalize, Op::Exit(3)]);
        let program = root(&mut world, vec![spawn(bad, 2), Op::Sleep(Duration::from_secs(1))]);
        let job = world.submit(spec(program, 4));
        world.run();
        world.assert_ended(job, JobState::Failed, 3);
        assert!((0..4).all(|rank| world.records[&(job, rank)].finished));
        world.assert_at_rest();
    }
}

#[test]
fn a_spawned_program_that_never_calls_mpi_fails_because_its_spawner_waits() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4, 4);
        let silent = world.program(|rank, _, rng| match rank {
            1 => vec![Op::Sleep(rng.within(Duration::from_millis(300))), Op::Exit(0)],
            _ => vec![Op::Init, Op::Hang],
        });
        let program =
            root(&mut world, vec![Op::Try(Box::new(spawn(silent, 3))), Op::Sleep(Duration::from_secs(1)), Op::Exit(7)]);
        let job = world.submit(spec(program, 4));
        world.run();
        world.assert_ended(job + 1, JobState::Failed, 1);
        let info = world.job(job);
        // The spawner gets an error or, if it had been answered already, is killed.
        assert!(info.state() == JobState::Failed && [1, 7].contains(&info.exit_code), "{info:?}");
        world.assert_at_rest();
    }
}

/// Restarts a daemon at each moment of a spawn.
#[test]
fn a_daemon_may_restart_at_any_moment_of_a_spawn() {
    for seed in seeds(120) {
        let _seed = Seed(seed);
        let mut world = World::new(7, 4, 8, Tuning { arity: 2, ..Tuning::default() });
        let child = child(&mut world);
        let program = root(&mut world, vec![spawn(child, 7), Op::Await("done".into()), spawn(child, 7)]);
        let job = world.submit(spec(program, 10));
        let machine = 1 + (seed % 3) as usize;
        let at = Duration::from_micros(250 * (seed / 3));
        world.after(at, Event::Fault(Fault::Restart(machine, Duration::from_millis(30))));
        world.run();
        for job in [job, job + 1, job + 2] {
            world.assert_done(job);
        }
        world.assert_at_rest();
        assert!(!world.logs.contains_key(&(job + 3)), "only one job was spawned");
    }
}

#[test]
fn a_spawner_may_die_at_any_moment_of_its_spawn() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4, 4);
        let child = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let program = world.program(move |rank, _, rng| match rank {
            0 => vec![Op::Init, Op::Fence, Op::Try(Box::new(spawn(child, 8))), Op::Hang],
            1 => vec![Op::Init, Op::Fence, Op::Sleep(rng.within(Duration::from_millis(4))), Op::Die(9)],
            _ => vec![Op::Init, Op::Fence, Op::Hang],
        });
        let job = world.submit(spec(program, 4));
        world.run();
        world.assert_ended(job, JobState::Failed, 137);
        world.assert_at_rest();
        assert!(world.now < Duration::from_secs(20), "no node had to be given up: {:?}", world.now);
    }
}

#[test]
fn families_end_and_leave_nothing_under_any_faults() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        // Three nodes have slots for everything: the others may be away when a rank spawns.
        let mut world = world(seed, 9, 16);
        let try_if = |tries: bool, op| if tries { Op::Try(Box::new(op)) } else { op };
        let child = child(&mut world);
        let middle = world.program(move |rank, _, rng| {
            let what = if rank == 0 { try_if(seed % 2 == 0, spawn(child, 3)) } else { Op::Mapping };
            vec![
                Op::Init,
                Op::Sleep(rng.within(Duration::from_millis(100))),
                what,
                Op::Fence,
                Op::Finalize,
                Op::Exit(0),
            ]
        });
        let program = root(
            &mut world,
            [spawn(middle, 2), with(spawn(child, 3), "rsd_apart", "true"), spawn(middle, 2)]
                .map(|op| try_if(seed % 2 == 0, op))
                .to_vec(),
        );
        let jobs: Vec<JobId> = (0..2).map(|_| world.submit(spec(program, 6))).collect();
        let mut faults = vec![Fault::CutAnyLink; 6];
        faults.extend([Fault::CutAnyStep; 6]);
        faults.extend(
            (0..4).map(|_| Fault::Restart(1 + world.rng.index(8), world.rng.within(Duration::from_millis(400)))),
        );
        if seed % 2 == 0 {
            faults.push(Fault::KillStep(world.rng.index(9)));
            faults.push(Fault::Lose(1 + world.rng.index(8)));
        }
        for fault in faults {
            let at = world.rng.within(Duration::from_millis(400));
            world.after(at, Event::Fault(fault));
        }
        world.run();
        world.assert_at_rest();
        if seed % 2 == 1 {
            jobs.into_iter().for_each(|job| world.assert_done(job));
        }
    }
}
