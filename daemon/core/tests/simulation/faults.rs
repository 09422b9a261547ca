//! Faults while jobs run: of links, daemons, steps, nodes and the head.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call};
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobSpec, JobState, rank_exit::How};

use crate::checks::{Seed, on, replicated_max, seeds, spec, with_stdin};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World, submission};

/// Returns a DVM that is deep enough for every role, with windows small enough to fill. In half of the runs, all results of fences are held.
fn deep(seed: u64, nodes: usize) -> World {
    let replicated_max = replicated_max(seed);
    World::new(seed, nodes, 3, Tuning { arity: 2, output_window: 400, replicated_max, ..Tuning::default() })
}

/// Returns a program that uses everything that a cut could damage: fences, output and standard input.
fn busy_program(world: &mut World) -> usize {
    world.program(|rank, size, rng| {
        let mut script = vec![Op::Init];
        for round in 0..4 {
            script.extend(ranks::rounds(rank, size, round..round + 1, rng));
            script.extend(ranks::output(rank, 2, rng));
        }
        if rank == 0 {
            script.push(Op::ReadStdin);
        }
        script.extend([Op::Finalize, Op::Exit(0)]);
        script
    })
}

/// Submits jobs on many and on few nodes, with standard input for each.
fn submit_busy_jobs(world: &mut World, nodes: usize) -> Vec<JobId> {
    let program = busy_program(world);
    let mut jobs = Vec::new();
    for n in [2 * nodes as u32, 4, 1] {
        let mut spec = with_stdin(0, spec(program, n));
        spec.map_by = if world.rng.chance(2) { "node" } else { "slot" }.into();
        let job = world.submit(spec);
        let chunks = (0..10).map(|number| Bytes::from(format!("chunk {number} of {job}\n").repeat(2000))).collect();
        world.feed_stdin(job, chunks);
        jobs.push(job);
    }
    jobs
}

fn assert_busy_jobs_done(world: &mut World, jobs: &[JobId]) {
    for job in jobs {
        world.assert_done(*job);
        let fed: String = (0..10).map(|number| format!("chunk {number} of {job}\n").repeat(2000)).collect();
        assert!(world.records[&(*job, 0)].stdin == fed.as_bytes(), "rank 0 of job {job} read what was sent");
    }
}

/// Schedules each fault at a random moment of the next `within`.
fn plan(world: &mut World, within: Duration, faults: impl IntoIterator<Item = Fault>) {
    for fault in faults {
        let at = world.rng.within(within);
        world.after(at, Event::Fault(fault));
    }
}

#[test]
fn what_ranks_wrote_last_arrives_whole_however_long_nobody_takes_it() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 3);
        let program = world.program(|rank, _, rng| {
            let mut script = ranks::output(rank, 40, rng);
            script.push(Op::Exit(0));
            script
        });
        let job = world.submit(JobSpec { map_by: "node".into(), ..spec(program, 6) });
        for node in 1..3 {
            let away = Duration::from_secs(2) + world.rng.within(Duration::from_secs(8));
            plan(&mut world, Duration::from_millis(60), [Fault::Restart(node, away)]);
        }
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn cut_links_are_not_noticed_by_jobs() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let jobs = submit_busy_jobs(&mut world, 9);
        let cuts = (0..12).map(|number| if number % 2 == 0 { Fault::CutAnyLink } else { Fault::CutAnyStep });
        plan(&mut world, Duration::from_millis(300), cuts);
        world.run();
        assert_busy_jobs_done(&mut world, &jobs);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 9);
    }
}

#[test]
fn a_link_whose_ends_notice_the_cut_late_does_no_harm() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        world.notice = Duration::from_secs(30);
        let jobs = submit_busy_jobs(&mut world, 9);
        plan(&mut world, Duration::from_millis(300), [Fault::CutAnyLink, Fault::CutAnyStep, Fault::CutAnyLink]);
        world.run();
        assert_busy_jobs_done(&mut world, &jobs);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 9);
    }
}

#[test]
fn jobs_survive_restarts_of_daemons() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let jobs = submit_busy_jobs(&mut world, 9);
        let restarts: Vec<Fault> = (0..4)
            .map(|_| Fault::Restart(1 + world.rng.index(8), world.rng.within(Duration::from_millis(400))))
            .collect();
        plan(&mut world, Duration::from_millis(400), restarts);
        world.run();
        assert_busy_jobs_done(&mut world, &jobs);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 9);
    }
}

/// Restarts a daemon at each moment of a short job.
#[test]
fn a_daemon_may_restart_at_any_moment_of_a_job() {
    for seed in seeds(120) {
        let _seed = Seed(seed);
        let mut world = World::new(7, 4, 1, Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|rank, size, _| {
            let mut script = vec![Op::Init];
            script.extend([Op::Put(format!("k{rank}"), format!("v{rank}")), Op::Fence]);
            script.extend((0..size).map(|other| Op::Get(format!("k{other}"), format!("v{other}"))));
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(spec(program, 4));
        let machine = 1 + (seed % 3) as usize;
        let at = Duration::from_micros(150 * (seed / 3));
        world.after(at, Event::Fault(Fault::Restart(machine, Duration::from_millis(30))));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_dead_step_fails_only_its_own_job() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 6);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let other = world.program(|rank, size, rng| ranks::mpi(rank, size, 3, rng));
        let job = world.submit(on(&["n4".into(), "n5".into()], spec(program, 4)));
        let other = world.submit(on(&["n0".into(), "n1".into(), "n2".into()], spec(other, 6)));
        plan(&mut world, Duration::from_millis(30), [Fault::CutAnyLink]);
        world.run_while(|world| world.machines[4].steps.is_empty());
        plan(&mut world, Duration::from_millis(30), [Fault::KillStep(4)]);
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 242);
        let cause = info.cause.expect("a failed job has a cause");
        assert!(matches!(&cause.how, Some(How::Failed(why)) if why.contains("step")), "{cause:?}");
        world.assert_done(other);
        world.assert_at_rest();
    }
}

#[test]
fn a_lost_node_fails_its_jobs_after_the_grace_and_is_named() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let jobs = [Op::Fence, Op::Hang].map(|last| {
            let program = world.program(move |rank, size, rng| {
                let mut script = vec![Op::Init];
                script.extend(ranks::rounds(rank, size, 0..2, rng));
                script.extend(ranks::output(rank, 3, rng));
                script.extend([Op::Sleep(Duration::from_secs(1)), last.clone(), Op::Hang]);
                script
            });
            world.submit(spec(program, 9))
        });
        let lost = 1 + world.rng.index(8);
        plan(&mut world, Duration::from_millis(200), [Fault::Lose(lost)]);
        let start = world.now;
        world.run();
        assert!(world.now < start + Duration::from_secs(120), "it took until {:?}", world.now);
        for job in jobs {
            if world.job(job).map.is_some_and(|map| map.nodes.contains(&world.node(lost))) {
                let info = world.assert_ended(job, JobState::Failed, 242);
                let cause = info.cause.expect("a failed job has a cause");
                let named = matches!(&cause.how, Some(How::Failed(why)) if why.contains(&format!("n{lost} ")));
                assert!(named, "{cause:?}");
                world.assert_output_true(job);
            } else {
                world.call(0, Call::Cancel { job, grace_ms: None });
                world.run();
            }
        }
        world.assert_at_rest();
        assert_eq!(world.nodes().len(), 8, "the lost node is not listed");
        let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
        let after = world.submit(spec(program, 24));
        world.run();
        world.assert_done(after);
        world.assert_at_rest();
    }
}

#[test]
fn children_of_a_lost_node_find_another_parent() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 12);
        let nodes = world.nodes();
        let parents: Vec<u32> = nodes.iter().map(|node| node.parent).filter(|parent| *parent != 0).collect();
        let inner = world.rng.pick(&parents).expect("12 nodes of arity 2 have inner nodes");
        let lost = world.machine(inner);
        let hosts: Vec<String> = nodes.iter().filter(|node| node.node != inner).map(|node| node.name.clone()).collect();
        let program = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init];
            for round in 0..6 {
                script.extend(ranks::rounds(rank, size, round..round + 1, rng));
                script.extend(ranks::output(rank, 2, rng));
                script.push(Op::Sleep(rng.within(Duration::from_millis(600))));
            }
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        // One job runs on all other nodes, one only below the lost node.
        let below: Vec<String> = nodes.iter().filter(|node| node.parent == inner).map(|n| n.name.clone()).collect();
        let jobs = [
            world.submit(on(&hosts, spec(program, 2 * hosts.len() as u32))),
            world.submit(on(&below, spec(program, below.len() as u32))),
        ];
        plan(&mut world, Duration::from_millis(1500), [Fault::Lose(lost)]);
        world.run();
        for job in jobs {
            world.assert_done(job);
        }
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 11);
    }
}

#[test]
fn a_node_without_a_network_reconnects_in_time_or_too_late() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let late = seed % 2 == 0;
        let program = world.program(move |rank, size, rng| {
            let mut script = vec![Op::Init];
            script.extend(ranks::rounds(rank, size, 0..2, rng));
            script.push(Op::Sleep(Duration::from_secs(if late { 500 } else { 2 })));
            script.extend(ranks::rounds(rank, size, 2..4, rng));
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(spec(program, 27));
        let time = Duration::from_secs(if late { 100 } else { 40 });
        let cut_off = 1 + world.rng.index(8);
        plan(&mut world, Duration::from_millis(2500), [Fault::Isolate(cut_off, time)]);
        world.run();
        if late {
            world.assert_ended(job, JobState::Failed, 242);
        } else {
            world.assert_done(job);
        }
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 9, "the node has reconnected");
    }
}

#[test]
fn a_kill_reaches_nodes_that_were_unreachable() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let failing = world.program(|rank, _, rng| {
            let end = if rank == 13 { Op::Abort(9) } else { Op::Hang };
            vec![Op::Init, Op::Sleep(rng.within(Duration::from_millis(50))), Op::Fence, end]
        });
        let cancelled = world.submit(spec(program, 9));
        let failed = world.submit(spec(failing, 18));
        let timed = world.submit(JobSpec { timeout_ms: 50, oversubscribe: true, ..spec(program, 18) });
        let restarts: Vec<Fault> = (0..3)
            .map(|_| Fault::Restart(1 + world.rng.index(8), world.rng.within(Duration::from_millis(300))))
            .collect();
        plan(&mut world, Duration::from_millis(100), restarts);
        plan(&mut world, Duration::from_millis(100), [Fault::CutAnyLink; 6]);
        plan(&mut world, Duration::from_millis(100), [Fault::CutAnyStep; 4]);
        let pause = world.rng.within(Duration::from_millis(60));
        world.run_for(pause);
        world.call(0, Call::Cancel { job: cancelled, grace_ms: None });
        let start = world.now;
        world.run();
        world.assert_ended(cancelled, JobState::Cancelled, 130);
        world.assert_ended(failed, JobState::Failed, 9);
        world.assert_ended(timed, JobState::TimedOut, 124);
        world.assert_at_rest();
        assert!(world.now < start + Duration::from_secs(15), "no node had to be given up: {:?}", world.now);
    }
}

#[test]
fn a_step_without_a_daemon_ends_its_ranks_at_the_deadline() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 4);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let job = world.submit(spec(program, 12));
        world.run_for(Duration::from_millis(50));
        world.kill_daemon(2);
        let orphaned = |world: &World| !world.machines[2].steps.is_empty();
        world.run_while(orphaned);
        world.assert_ended(job, JobState::Failed, 242);
        let expected = world.tuning.orphan_deadline.as_secs();
        assert!((expected..expected + 10).contains(&world.now.as_secs()), "{:?}", world.now);
        world.run();
        world.assert_at_rest();
    }
}

#[test]
fn a_daemon_that_is_stopped_notifies_the_head() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let job = world.submit(spec(program, 27));
        let pause = world.rng.within(Duration::from_millis(50));
        world.run_for(pause);
        let stopped = 1 + world.rng.index(8);
        world.call(stopped, Call::Shutdown { force: true });
        let start = world.now;
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 242);
        let how = info.cause.and_then(|cause| cause.how);
        assert!(matches!(&how, Some(How::Failed(why)) if why.contains("stop")), "{how:?}");
        world.assert_at_rest();
        assert_eq!(world.nodes().len(), 8);
        assert!(world.now < start + Duration::from_secs(15), "the head does not wait for it: {:?}", world.now);
    }
}

#[test]
fn the_head_stops_every_daemon_below_it() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        world.submit(spec(program, 27));
        let pause = world.rng.within(Duration::from_millis(50));
        world.run_for(pause);
        world.call(0, Call::Shutdown { force: true });
        world.run();
        let left: Vec<usize> = (0..9).filter(|id| world.machines[*id].daemon.is_some()).collect();
        assert_eq!(left, Vec::<usize>::new(), "all daemons have stopped");
        assert!(world.steps.is_empty());
    }
}

/// The daemons that look for the head at the moment are told too.
#[test]
fn a_new_head_stops_every_daemon_of_the_one_before() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        world.submit(spec(program, 27));
        let pause = world.rng.within(Duration::from_millis(500));
        world.run_for(pause);
        world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::from_millis(100))));
        let pause = Duration::from_millis(101) + world.rng.within(Duration::from_millis(500));
        world.run_for(pause);
        let req = world.call(0, Call::Shutdown { force: true });
        world.run();
        let left: Vec<usize> = (0..9).filter(|id| world.machines[*id].daemon.is_some()).collect();
        assert_eq!(left, Vec::<usize>::new(), "all daemons have stopped");
        assert!(world.steps.is_empty());
        let answer = world.answered(req);
        assert!(matches!(&answer, Some(Answer::Stopping { unreached }) if unreached.is_empty()), "{answer:?}");
    }
}

#[test]
fn a_stop_names_the_nodes_that_it_does_not_reach() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 9);
        let machine = 1 + world.rng.index(8);
        let unreached = world.machines[machine].name.clone();
        world.after(Duration::ZERO, Event::Fault(Fault::Isolate(machine, Duration::from_secs(300))));
        world.run_for(Duration::from_secs(25));
        let (req, start) = (world.call(0, Call::Shutdown { force: true }), world.now);
        world.run_for(Duration::from_millis(2900));
        assert!(world.machines[0].daemon.is_some(), "the node may return");
        world.run_for(Duration::from_secs(6));
        let answer = world.answered(req);
        let named = |names: &[String]| *names == [unreached.clone()];
        assert!(matches!(&answer, Some(Answer::Stopping { unreached }) if named(unreached)), "{answer:?}");
        assert!(world.machines[0].daemon.is_none(), "{:?}", world.now - start);
        assert!(world.machines[machine].daemon.is_some(), "nobody has told it");
    }
}

#[test]
fn jobs_survive_several_faults_at_once() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 12);
        let mut jobs = submit_busy_jobs(&mut world, 12);
        jobs.extend(submit_busy_jobs(&mut world, 6));
        let mut faults = vec![Fault::CutAnyLink; 8];
        faults.extend([Fault::CutAnyStep; 8]);
        for _ in 0..5 {
            let machine = 1 + world.rng.index(11);
            faults.push(Fault::Restart(machine, world.rng.within(Duration::from_millis(3000))));
        }
        for _ in 0..2 {
            let machine = 1 + world.rng.index(11);
            faults.push(Fault::Isolate(machine, world.rng.within(Duration::from_secs(20))));
        }
        plan(&mut world, Duration::from_millis(1500), faults);
        world.run();
        assert_busy_jobs_done(&mut world, &jobs);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 12);
    }
}

/// Some ranks enter by PMI-1 and some over gRPC. A gRPC answer is lost with its daemon: the rank asks again, without knowing
/// whether it has passed the fence.
#[test]
fn a_repeated_fence_request_over_grpc_counts_once() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 6);
        let program = world.program(|rank, _, rng| {
            let fence = if rank % 2 == 0 { Op::Fence } else { Op::CallFence };
            let mut script = if rank % 2 == 0 { vec![Op::Init] } else { Vec::new() };
            for _ in 0..8 {
                script.extend([Op::Sleep(rng.within(Duration::from_millis(300))), fence.clone()]);
            }
            script.extend((rank % 2 == 0).then_some(Op::Finalize));
            script.push(Op::Exit(0));
            script
        });
        let job = world.submit(spec(program, 18));
        let mut faults = vec![Fault::CutAnyStep; 6];
        faults.extend([Fault::CutAnyLink; 4]);
        for machine in 1..6 {
            faults.push(Fault::Restart(machine, world.rng.within(Duration::from_millis(400))));
        }
        plan(&mut world, Duration::from_secs(2), faults);
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

/// Runs jobs of every kind under every kind of fault: each job ends in some way, and nothing is left of it.
#[test]
fn every_job_ends_and_leaves_nothing_under_any_faults() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 12);
        world.notice = world.rng.pick(&[1, 100, 5_000, 30_000]).map_or(world.notice, Duration::from_millis);
        let busy = busy_program(&mut world);
        let aborting = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init];
            script.extend(ranks::rounds(rank, size, 0..2, rng));
            script.extend(ranks::output(rank, 4, rng));
            script.push(if rank == size / 2 { Op::Abort(9) } else { Op::Fence });
            script.extend([Op::Fence, Op::Finalize, Op::Exit(0)]);
            script
        });
        let hanging = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let plain = world.program(|rank, _, rng| {
            let mut script = ranks::output(rank, 9, rng);
            script.push(Op::Exit(rng.below(3) as i32));
            script
        });
        let calling = world.program(|rank, _, _| match rank % 2 {
            0 => vec![Op::Init, Op::Fence, Op::Fence, Op::Finalize, Op::Exit(0)],
            _ => vec![Op::CallFence, Op::CallFence, Op::Exit(0)],
        });
        let head_restarts = seed % 4 == 0;
        world.checks_journal = head_restarts;
        let mut faults = vec![Fault::CutAnyLink; 6];
        faults.extend([Fault::CutAnyStep; 6]);
        for _ in 0..3 {
            let machine = if head_restarts { world.rng.index(12) } else { 1 + world.rng.index(11) };
            faults.push(Fault::Restart(machine, world.rng.within(Duration::from_secs(2))));
            faults.push(Fault::KillStep(world.rng.index(12)));
            faults.push(Fault::Isolate(1 + world.rng.index(11), world.rng.within(Duration::from_secs(100))));
        }
        faults.push(Fault::Lose(1 + world.rng.index(11)));
        plan(&mut world, Duration::from_secs(2), faults);
        for _ in 0..10 {
            let program = world.rng.pick(&[busy, aborting, hanging, plain, calling]).expect("five");
            let n = 1 + world.rng.below(24) as u32;
            if world.machines[0].daemon.is_some() {
                // A head that has just restarted knows few nodes yet and may refuse the job.
                let spec = JobSpec { timeout_ms: 20_000, ..spec(program, n) };
                world.call(0, submission(spec));
                if world.rng.chance(4) {
                    world.call(0, Call::Cancel { job: 0, grace_ms: Some(100) });
                }
            }
            let pause = world.rng.within(Duration::from_millis(400));
            world.run_for(pause);
        }
        world.run();
        world.assert_at_rest();
        for job in world.logs.keys().copied().collect::<Vec<_>>() {
            world.assert_output_true(job);
        }
        let alive = world.machines.iter().filter(|machine| machine.daemon.is_some()).count();
        assert_eq!(world.nodes_up(), alive);
        let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
        let after = world.submit(spec(program, 3 * alive as u32));
        world.run();
        world.assert_done(after);
        world.assert_at_rest();
    }
}
