//! When queued jobs start: priorities, dependencies, arrays and backfill, with nodes that are lost and heads that are restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rsd_core::rsd::{Answer, Call, Caller, JobChange};
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{
    Dependency, Inventory, JobInfo, JobSpec, JobState, ListJobsRequest, Resource, RetryOn, WhyReply, dependency::Kind,
    job_event,
};

use crate::checks::{Seed, on, seeds, spec};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World, submission};

fn world(seed: u64, nodes: usize, slots: u32) -> World {
    let mut world = World::new(seed, nodes, slots, Tuning { arity: 2, ..Tuning::default() });
    world.checks_journal = true;
    world
}

/// A program whose ranks sleep so long, and exit with this code.
fn sleeper(world: &mut World, time: Duration, code: i32) -> usize {
    world.program(move |_, _, _| vec![Op::Sleep(time), Op::Exit(code)])
}

fn after(kind: Kind, of: impl ToString) -> Dependency {
    Dependency { kind: kind.into(), of: of.to_string(), ..Dependency::default() }
}

fn refused(world: &mut World, spec: JobSpec) -> String {
    let req = world.call(0, submission(spec));
    match world.answered(req) {
        Some(Answer::Refused(refused)) => format!("{} {}", refused.exit_code, refused.text),
        other => panic!("it was answered with {other:?}"),
    }
}

fn why(world: &mut World, job: JobId) -> WhyReply {
    let req = world.call(0, Call::Why { job, index: None });
    match world.answered(req) {
        Some(Answer::Why(reply)) => *reply,
        other => panic!("why {job}: {other:?}"),
    }
}

fn reasons(world: &mut World, job: JobId) -> String {
    why(world, job).reasons.into_iter().map(|reason| format!("{}\n", reason.text)).collect()
}

fn element(world: &mut World, job: JobId, index: u32) -> JobInfo {
    let req = world.call(0, Call::GetElement { job, index });
    match world.answered(req) {
        Some(Answer::Job(info)) => *info,
        other => panic!("element {index} of {job}: {other:?}"),
    }
}

fn change(world: &mut World, job: JobId, elements: &str, change: JobChange) -> Result<JobInfo, String> {
    let req = world.call(0, Call::ChangeJob { job, elements: elements.into(), change });
    match world.answered(req) {
        Some(Answer::Job(info)) => Ok(*info),
        Some(Answer::Refused(refused)) => Err(refused.text),
        other => panic!("changing {job}: {other:?}"),
    }
}

fn restart_head(world: &mut World, within: Duration, times: usize) {
    for _ in 0..times {
        let (at, away) = (world.rng.within(within), world.rng.within(Duration::from_millis(60)));
        world.after(at, Event::Fault(Fault::Restart(0, away)));
    }
}

const TENTH: Duration = Duration::from_millis(100);

#[test]
fn jobs_start_by_priority_and_then_in_order_of_submission() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 2, 2);
        let program = sleeper(&mut world, TENTH, 0);
        let blocker = world.submit(spec(program, 4));
        let of = |priority| JobSpec { priority, ..spec(program, 4) };
        let jobs: Vec<JobId> = [0, -5, 7, 0, 7].into_iter().map(|priority| world.submit(of(priority))).collect();
        assert!(
            reasons(&mut world, jobs[1]).contains("4 jobs are before it in the queue: "),
            "{}",
            reasons(&mut world, jobs[1])
        );
        change(&mut world, jobs[3], "", JobChange::Priority(9)).unwrap();
        change(&mut world, jobs[0], "", JobChange::Hold(true)).unwrap();
        restart_head(&mut world, TENTH, 2);
        world.run();
        assert_eq!(world.job(jobs[0]).state(), JobState::Queued);
        assert!(reasons(&mut world, jobs[0]).starts_with("it is held\n"));
        change(&mut world, jobs[0], "", JobChange::Hold(false)).unwrap();
        world.run();
        let started: Vec<u64> =
            [blocker, jobs[3], jobs[2], jobs[4], jobs[1], jobs[0]].map(|job| world.job(job).started_ms).into();
        assert!(started.is_sorted(), "{started:?}");
        jobs.iter().for_each(|job| world.assert_done(*job));
        assert!(change(&mut world, jobs[0], "", JobChange::Priority(1)).unwrap_err().contains("has ended"));
        world.assert_at_rest();
    }
}

#[test]
fn only_an_admin_raises_priorities() {
    let mut world = world(1, 1, 1);
    let program = sleeper(&mut world, TENTH, 0);
    let pid = world.machines[0].daemon.unwrap();
    let user = Caller { uid: 1001, is_admin: false };
    for (priority, accepted) in [(1, false), (0, true), (-1, true), (i32::MIN, false)] {
        let req = world.id();
        let call = submission(JobSpec { priority, ..spec(program, 1) });
        world.handle(pid, rsd_core::rsd::Input::Call { req, caller: user, call });
        let answer = world.answered(req);
        assert_eq!(matches!(answer, Some(Answer::Submitted(_))), accepted, "{priority}: {answer:?}");
    }
    world.run();
    world.assert_at_rest();
}

#[test]
fn jobs_wait_for_others_also_over_restarts_of_the_head() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3, 4);
        let (good, bad) = (sleeper(&mut world, TENTH, 0), sleeper(&mut world, TENTH, 3));
        let first = world.submit(JobSpec { name: "first".into(), ..spec(good, 2) });
        let fails = world.submit(spec(bad, 2));
        let mut wants = |needs: &[Dependency]| world.submit(JobSpec { after: needs.to_vec(), ..spec(good, 1) });
        let ok = wants(&[after(Kind::Ok, first)]);
        let both = wants(&[after(Kind::Ok, "first"), after(Kind::Any, fails)]);
        let on_failure = wants(&[after(Kind::Fail, fails)]);
        let never = wants(&[after(Kind::Ok, fails)]);
        let then = wants(&[after(Kind::Ok, never)]);
        let start = wants(&[after(Kind::Start, ok)]);
        let last = wants(&[after(Kind::Any, then), after(Kind::Ok, start)]);
        let held = world.submit(JobSpec { after: vec![after(Kind::Ok, fails)], after_holds: true, ..spec(good, 1) });
        assert!(
            reasons(&mut world, both).contains(&format!("it waits for job {first} to succeed; that job is running"))
        );
        restart_head(&mut world, 4 * TENTH, 3);
        world.run();
        for job in [first, ok, both, on_failure, start, last] {
            world.assert_done(job);
        }
        let info = world.assert_ended(never, JobState::Failed, 243);
        let why = format!("{:?}", info.cause.unwrap().how);
        assert!(why.contains(&format!("it waits for job {fails} to succeed, and it has failed")), "{why}");
        world.assert_ended(then, JobState::Failed, 243);
        let (a, b) = (world.job(first), world.job(ok));
        assert!(b.started_ms >= a.ended_ms, "{} {}", b.started_ms, a.ended_ms);
        assert!(world.job(held).held && world.job(held).queued_reason.contains("and it has failed"));
        change(&mut world, held, "", JobChange::Hold(false)).unwrap();
        world.run();
        world.assert_done(held);
        world.assert_at_rest();
    }
}

#[test]
fn what_cannot_be_waited_for_is_refused_at_once() {
    let mut world = world(1, 1, 2);
    let bad = sleeper(&mut world, TENTH, 3);
    let failed = world.submit(spec(bad, 1));
    world.run();
    let mut text = |of: &str, kind| refused(&mut world, JobSpec { after: vec![after(kind, of)], ..spec(bad, 1) });
    assert!(
        text("1", Kind::Ok)
            .starts_with("243 the job could never start: it waits for job 1 to succeed, and it has failed")
    );
    assert!(text("99", Kind::Any).starts_with("246 --after: no job 99"));
    assert!(text("1[3]", Kind::Any).starts_with("240 job 1 is not an array"));
    assert!(text("nobody", Kind::Any).contains("no job of yours is named nobody"));
    assert!(text("a=b", Kind::Any).contains("no job of yours has the label a=b"));
    assert!(text("", Kind::Any).starts_with("240 "));
    let fine = world.submit(JobSpec { after: vec![after(Kind::Fail, failed)], ..spec(bad, 1) });
    world.run();
    world.assert_ended(fine, JobState::Failed, 3);
    world.assert_at_rest();
}

/// The elements of an array, with the times from their placement to their end.
fn spans(world: &mut World, array: JobId, count: u32) -> BTreeMap<u32, (u64, u64)> {
    (0..count)
        .map(|position| {
            let job = array + 1 + u64::from(position);
            let at = |is: fn(&job_event::Body) -> bool| {
                let mut found = world.logs[&job].iter().filter(|event| event.body.as_ref().is_some_and(is));
                let first = found.next().map(|event| event.at_ms);
                assert!(found.next().is_none(), "job {job} was placed or ended twice");
                first
            };
            let placed = at(|body| matches!(body, job_event::Body::Placed(_))).expect("it was placed");
            let ended = at(|body| matches!(body, job_event::Body::Ended(_))).expect("it has ended");
            (position, (placed, ended))
        })
        .collect()
}

#[test]
fn the_elements_of_an_array_run_once_in_order_and_not_too_many() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3, 4);
        let program = world.program(|_, _, rng| vec![Op::Sleep(rng.within(TENTH)), Op::Exit(i32::from(rng.chance(5)))]);
        let limit = 1 + world.rng.below(4) as u32;
        let array = world.submit(JobSpec { array: format!("10-48:2%{limit}"), ..spec(program, 2) });
        let next = world.submit(JobSpec { after: vec![after(Kind::Any, array)], ..spec(program, 1) });
        let of_one =
            world.submit(JobSpec { after: vec![after(Kind::Any, format!("{array}[12]"))], ..spec(program, 1) });
        restart_head(&mut world, Duration::from_secs(1), 4);
        world.run();
        let spans = spans(&mut world, array, 20);
        let placed: Vec<u64> = spans.values().map(|(placed, _)| *placed).collect();
        assert!(placed.is_sorted(), "they start in order: {placed:?}");
        for (at, _) in spans.values() {
            let running = spans.values().filter(|(placed, ended)| placed <= at && at < ended).count();
            assert!(running <= limit as usize, "{running} of {limit} run at {at}: {spans:?}");
        }
        let info = world.job(array);
        let own = info.array.clone().unwrap();
        assert_eq!((own.done + own.failed, own.running, own.queued, own.size), (20, 0, 0, 20), "{own:?}");
        let state = if own.failed > 0 { JobState::Failed } else { JobState::Done };
        assert_eq!((info.state(), info.exit_code), (state, own.failed.min(1)));
        let ended = spans.values().map(|(_, ended)| *ended).max().unwrap();
        assert!(world.job(next).started_ms >= ended);
        assert!(world.job(of_one).started_ms >= spans[&1].1);
        assert_eq!(element(&mut world, array, 14).job, array + 3);
        assert!(world.submit(spec(program, 1)) > array + 20, "numbers are not used again");
        world.run();
        world.assert_at_rest();
    }
}

#[test]
fn elements_are_held_released_and_cancelled() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 1, 2);
        let program = sleeper(&mut world, TENTH, 0);
        let array = world.submit(JobSpec { array: "1-10".into(), ..spec(program, 1) });
        world.run_for(TENTH / 2);
        change(&mut world, array, "3-5", JobChange::Hold(true)).unwrap();
        assert!(change(&mut world, array, "1", JobChange::Hold(true)).unwrap_err().contains("have started"));
        assert!(change(&mut world, array, "11", JobChange::Hold(true)).unwrap_err().contains("has no element 11"));
        let req = world.call(0, Call::CancelElements { job: array, grace_ms: None, elements: "1,5-7".into() });
        assert!(matches!(world.answered(req), Some(Answer::Job(_))));
        restart_head(&mut world, TENTH, 2);
        world.run();
        let own = world.job(array).array.unwrap();
        assert_eq!((own.done, own.cancelled, own.held), (4, 4, 2), "{own:?}");
        assert_eq!(
            (element(&mut world, array, 3).state(), element(&mut world, array, 6).state()),
            (JobState::Queued, JobState::Cancelled)
        );
        assert!(why(&mut world, array).reasons.len() <= 2);
        change(&mut world, array, "3", JobChange::Hold(false)).unwrap();
        world.run();
        assert_eq!(element(&mut world, array, 3).state(), JobState::Done);
        world.call(0, Call::Cancel { job: array, grace_ms: None });
        world.run();
        let own = world.assert_ended(array, JobState::Cancelled, 130).array.unwrap();
        assert_eq!((own.done, own.cancelled, own.held, own.queued), (5, 5, 0, 0), "{own:?}");
        world.assert_at_rest();
    }
}

#[test]
fn a_large_array_costs_what_runs() {
    let mut world = World::new(1, 1, 2, Tuning::default());
    let program = sleeper(&mut world, TENTH, 0);
    let env = (0..200).map(|n| rsd_proto::v1::EnvVar { name: format!("V{n}").into(), value: vec![b'x'; 100].into() });
    let spec = JobSpec { env: env.collect(), array: "1-10000%2".into(), ..spec(program, 1) };
    let array = world.submit(spec);
    world.run_for(TENTH / 2);
    let kept: usize = world.core(0).unwrap().kept().iter().map(prost::Message::encoded_len).sum();
    assert!(kept < 200_000, "{kept} bytes are kept for the array and two elements");
    let own = world.job(array).array.unwrap();
    assert_eq!((own.running, own.queued, &*own.which_queued), (2, 9998, "3-10000"));
    let listed = |world: &mut World, expand| {
        let req = world.call(0, Call::ListJobs(Box::new(ListJobsRequest { expand, ..ListJobsRequest::default() })));
        match world.answered(req) {
            Some(Answer::Jobs(jobs)) => jobs.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((listed(&mut world, false), listed(&mut world, true)), (1, 3));
    world.call(0, Call::Cancel { job: array, grace_ms: Some(0) });
    world.run();
    let own = world.assert_ended(array, JobState::Cancelled, 130).array.unwrap();
    assert_eq!(own.cancelled, 10_000);
    world.assert_at_rest();
}

/// How often each attempt of a job was placed, by its log.
fn attempts(world: &World, job: JobId) -> Vec<usize> {
    let mut placed = vec![0];
    for event in &world.logs[&job] {
        match &event.body {
            Some(job_event::Body::Requeued(requeued)) => {
                assert_eq!(requeued.next as usize, placed.len(), "job {job}");
                placed.push(0);
            }
            Some(job_event::Body::Placed(_)) => *placed.last_mut().expect("it begins with one attempt") += 1,
            _ => {}
        }
    }
    placed
}

#[test]
fn a_job_that_fails_starts_again_with_its_number() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3, 2);
        let program = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init];
            script.extend(ranks::output(rank, 3, rng));
            script.extend(ranks::rounds(rank, size, 0..2, rng));
            script.push(Op::Sleep(rng.within(TENTH)));
            script.extend([Op::Finalize, Op::Exit(if rank == 1 { 7 } else { 0 })]);
            script
        });
        let job = world.submit(JobSpec { retries: 2, token: vec![7; 16].into(), ..spec(program, 4) });
        let codes = JobSpec {
            retry_on: Some(RetryOn { codes: vec![8], ..RetryOn::default() }),
            retries: 2,
            ..spec(program, 2)
        };
        let other = world.submit(codes);
        let next = world.submit(JobSpec { after: vec![after(Kind::Fail, job)], ..spec(program, 1) });
        restart_head(&mut world, Duration::from_secs(1), 4);
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 7);
        assert_eq!((info.job, info.attempt, info.attempts.len()), (job, 2, 2));
        let causes = |info: &JobInfo| {
            info.attempts.iter().map(|it| it.cause.as_ref().map(|cause| cause.code)).collect::<Vec<_>>()
        };
        assert_eq!(causes(&info), [Some(7), Some(7)]);
        assert_eq!(attempts(&world, job), [1, 1, 1]);
        assert_eq!(world.assert_ended(other, JobState::Failed, 7).attempt, 0);
        world.assert_done(next);
        assert!(world.job(next).started_ms >= info.ended_ms);
        // The token still means this job, and it is the same after a restart.
        let again = world.submit(JobSpec { retries: 2, token: vec![7; 16].into(), ..spec(program, 4) });
        assert_eq!(again, job);
        world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, TENTH)));
        world.run();
        assert_eq!(world.job(job), info);
        assert_eq!(world.job(0).job, next);
        world.assert_at_rest();
    }
}

#[test]
fn a_job_starts_again_when_it_has_lost_a_node() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 4, 2, Tuning { arity: 2, ..Tuning::default() });
        let program = sleeper(&mut world, 20 * TENTH, 0);
        let on_loss = RetryOn { node_loss: true, ..RetryOn::default() };
        let wanted = JobSpec { retries: 1, retry_on: Some(on_loss), ..on(&["^n0".to_owned()], spec(program, 4)) };
        let job = world.submit(wanted);
        world.run_for(TENTH);
        let node = world.job(job).map.unwrap().nodes[0];
        let lost = world.machine(node);
        let fault = if world.rng.chance(2) { Fault::Lose(lost) } else { Fault::PowerOff(lost) };
        world.after(TENTH, Event::Fault(fault));
        if world.rng.chance(2) {
            restart_head(&mut world, Duration::from_secs(3), 2);
        }
        world.run();
        let info = world.job(job);
        assert_eq!((info.state(), info.attempt, info.attempts.len()), (JobState::Done, 1, 1), "{info:?}");
        assert!(!info.map.unwrap().nodes.contains(&world.node(lost)));
        assert_eq!(info.attempts[0].cause.as_ref().map(|cause| cause.code), Some(242));
        // The node returns with what it knows of the first attempt.
        world.after(Duration::ZERO, Event::Reconnect(lost));
        world.after(Duration::ZERO, Event::Restart(lost));
        world.run();
        assert_eq!(world.job(job).state(), JobState::Done);
        world.assert_at_rest();
    }
}

#[test]
fn elements_start_again_and_a_cancel_ends_all_attempts() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 2, 2);
        let program = world.program(|_, _, rng| vec![Op::Sleep(rng.within(TENTH)), Op::Exit(i32::from(rng.chance(2)))]);
        let array = world.submit(JobSpec { array: "1-12%3".into(), retries: 3, ..spec(program, 1) });
        let failing = sleeper(&mut world, TENTH / 20, 1);
        let job = world.submit(JobSpec { retries: 1000, ..spec(failing, 1) });
        restart_head(&mut world, Duration::from_secs(1), 3);
        world.run_for(6 * TENTH);
        while world.core(0).is_none() {
            world.run_for(TENTH);
        }
        world.call(0, Call::Cancel { job, grace_ms: None });
        world.run();
        let info = world.assert_ended(job, JobState::Cancelled, 130);
        assert!(info.attempt > 1, "{info:?}");
        let own = world.job(array).array.unwrap();
        assert_eq!((own.done + own.failed, own.running), (12, 0), "{own:?}");
        for position in 0..12 {
            let info = element(&mut world, array, position + 1);
            assert_eq!(info.job, array + 1 + u64::from(position));
            assert!(info.state() == JobState::Done || info.attempt == 3, "{info:?}");
        }
        world.assert_at_rest();
    }
}

#[test]
fn memory_and_declared_resources_are_never_exceeded() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let resources = vec![Resource { name: "fpga".into(), amount: 3 }];
        let inventory = Inventory { slots: 4, memory_bytes: 8 << 30, resources, ..Inventory::default() };
        let mut world = World::of(seed, vec![inventory; 3], Tuning { arity: 2, ..Tuning::default() });
        world.checks_journal = true;
        let program = world.program(|_, _, rng| vec![Op::Sleep(rng.within(TENTH)), Op::Exit(0)]);
        let mut jobs: Vec<(JobId, u64, u64)> = Vec::new();
        for _ in 0..15 {
            let (memory, fpgas) = (world.rng.below(5) << 30, world.rng.below(3));
            // A node has room for one rank with two of them.
            let n = 1 + world.rng.below(3) as u32;
            let resources = (fpgas > 0).then(|| Resource { name: "fpga".into(), amount: fpgas });
            let wanted =
                JobSpec { memory_per_rank: memory, resources: resources.into_iter().collect(), ..spec(program, n) };
            jobs.push((world.submit(wanted), memory, fpgas));
        }
        restart_head(&mut world, Duration::from_secs(1), 3);
        world.run();
        let infos: Vec<(JobInfo, u64, u64)> =
            jobs.iter().map(|(job, memory, fpgas)| (world.job(*job), *memory, *fpgas)).collect();
        for at in infos.iter().map(|(info, ..)| info.started_ms) {
            let running = infos.iter().filter(|(info, ..)| info.started_ms <= at && at < info.ended_ms);
            let (mut memory, mut fpgas) = (BTreeMap::new(), BTreeMap::new());
            for (info, each, each_fpga) in running {
                let map = info.map.clone().unwrap();
                for block in &map.blocks {
                    for node in block.first_node..block.first_node + block.nodes {
                        let node = map.nodes[node as usize];
                        *memory.entry(node).or_insert(0) += each * u64::from(block.ranks_per_node);
                        *fpgas.entry(node).or_insert(0) += each_fpga * u64::from(block.ranks_per_node);
                    }
                }
            }
            assert!(
                memory.values().all(|held| *held <= 8 << 30) && fpgas.values().all(|held| *held <= 3),
                "{memory:?} {fpgas:?}"
            );
        }
        jobs.iter().for_each(|(job, ..)| world.assert_done(*job));
        let never = JobSpec { memory_per_rank: 9 << 30, ..spec(program, 1) };
        let text = refused(&mut world, never);
        assert!(text.starts_with("243 1 rank requested with 9.0 GiB of memory each, room for 0 on 3 nodes"), "{text}");
        let never = JobSpec { resources: vec![Resource { name: "licence".into(), amount: 1 }], ..spec(program, 1) };
        let text = refused(&mut world, never);
        assert!(
            text.contains("licence:1 each") && text.contains("no licence") && text.contains("rsd start --resource"),
            "{text}"
        );
        world.assert_at_rest();
    }
}

/// Returns the first job of the queue.
fn first_queued(world: &mut World) -> Option<JobInfo> {
    let req = world.call(0, Call::ListJobs(Box::default()));
    let Some(Answer::Jobs(jobs)) = world.answered(req) else { panic!("no list of jobs") };
    let waiting =
        jobs.into_iter().filter(|job| job.state() == JobState::Queued && job.queued_reason.contains("requested"));
    waiting.min_by_key(|job| (-job.priority, job.job))
}

/// With jobs that use up their time limits, the forecast for the first job is when it would start without backfill. With jobs that end
/// earlier, it is what the first job is promised.
#[test]
fn the_first_job_starts_no_later_than_without_backfill() {
    let mut overtaken = 0;
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world =
            World::new(seed, 3, 4, Tuning { arity: 2, kill_grace: Duration::from_millis(50), ..Tuning::default() });
        let exact = world.rng.chance(2);
        let program = match exact {
            true => world.program(|_, _, _| vec![Op::Hang]),
            false => world.program(|_, _, rng| vec![Op::Sleep(rng.within(Duration::from_secs(30))), Op::Exit(0)]),
        };
        let mut jobs = Vec::new();
        for _ in 0..14 {
            let n = 1 + world.rng.below(12) as u32;
            let limit = Duration::from_secs(2 + world.rng.below(28));
            let unlimited = !exact && world.rng.chance(8);
            let timeout_ms = if unlimited { 0 } else { limit.as_millis() as u64 };
            let priority = if world.rng.chance(5) { 1 } else { 0 };
            let hosts: Vec<String> = if world.rng.chance(5) { vec!["n1".into()] } else { Vec::new() };
            let n = if hosts.is_empty() { n } else { n.min(4) };
            jobs.push(world.submit(on(&hosts, JobSpec { timeout_ms, priority, ..spec(program, n) })));
        }
        // Until it was started: what the first job was promised, at first and at last.
        let mut promised: BTreeMap<JobId, (u64, u64)> = BTreeMap::new();
        for _ in 0..4000 {
            world.run_for(Duration::from_millis(100));
            let Some(first) = first_queued(&mut world) else { break };
            if let Some(at) = why(&mut world, first.job).earliest_ms {
                let of_job = promised.entry(first.job).or_insert((at, at));
                of_job.1 = of_job.1.max(at);
            }
        }
        world.run();
        let infos: Vec<JobInfo> = jobs.iter().map(|job| world.job(*job)).collect();
        // How much longer than their limits jobs took to end.
        let over = |info: &JobInfo| match info.timeout_ms {
            0 => 0,
            limit => info.ended_ms.saturating_sub(info.started_ms + limit),
        };
        let slack = infos.iter().map(over).max().unwrap_or(0) + 300;
        assert!(slack < 2_500, "a job took {slack} ms longer than its limit");
        for info in &infos {
            if let Some((at, last)) = promised.get(&info.job) {
                assert!(*last <= at + slack, "job {} was promised {at}, and later {last}; {slack}", info.job);
                assert!(
                    info.started_ms <= at + slack,
                    "job {} started at {}, promised was {at}",
                    info.job,
                    info.started_ms
                );
            }
        }
        let later = |a: &JobInfo, b: &JobInfo| a.job < b.job && a.priority >= b.priority && a.started_ms > b.started_ms;
        overtaken += infos.iter().flat_map(|a| infos.iter().map(move |b| (a, b))).filter(|(a, b)| later(a, b)).count();
        // Slots are never exceeded.
        for at in infos.iter().map(|info| info.started_ms) {
            let used: u32 =
                infos.iter().filter(|job| job.started_ms <= at && at < job.ended_ms).map(|job| job.ranks).sum();
            assert!(used <= 12, "{used} slots are used at {at}");
        }
        world.assert_at_rest();
    }
    assert!(overtaken > 40, "backfill took place {overtaken} times");
}

#[test]
fn a_job_without_a_limit_passes_only_where_it_cannot_delay_the_first() {
    let mut world = world(1, 2, 2);
    let program = sleeper(&mut world, TENTH, 0);
    let on_node = |host: &str, spec| on(&[host.to_owned()], spec);
    let forever = world.program(|_, _, _| vec![Op::Hang]);
    let running = world.submit(on_node("n0", spec(forever, 1)));
    let first = world.submit(on_node("n0", spec(program, 2)));
    let anywhere = world.submit(on_node("n0", spec(program, 1)));
    let elsewhere = world.submit(on_node("n1", spec(program, 1)));
    world.run_for(2 * TENTH);
    assert_eq!(world.job(first).state(), JobState::Queued);
    assert_eq!(world.job(anywhere).state(), JobState::Queued);
    world.assert_done(elsewhere);
    let text = reasons(&mut world, anywhere);
    assert!(text.contains(&format!("1 job is before it in the queue: {first}; with a time limit")), "{text}");
    let reply = why(&mut world, first);
    assert!(
        reply.earliest_ms.is_none() && reply.earliest_because.starts_with("unknown: jobs without a time limit"),
        "{reply:?}"
    );
    assert_eq!(reply.reasons[0].frees, [format!("the end of job {running}, which has no time limit")]);
    world.call(0, Call::Cancel { job: running, grace_ms: Some(0) });
    world.run();
    world.assert_done(first);
    world.assert_done(anywhere);
    world.assert_at_rest();
}

#[test]
fn anything_may_happen_to_a_queue() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let nodes = 4;
        // No check of the journal: a head that replays it looks at the queue at another time, and the forecast depends on the time.
        let mut world = World::new(seed, nodes, 3, Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|_, _, rng| {
            vec![Op::Sleep(rng.within(Duration::from_millis(400))), Op::Exit(i32::from(rng.chance(6)))]
        });
        let mut jobs: Vec<JobId> = Vec::new();
        for _ in 0..20 {
            let mut wanted = spec(program, 1 + world.rng.below(5) as u32);
            wanted.priority = world.rng.below(5) as i32 - 2;
            if world.rng.chance(2) {
                wanted.timeout_ms = 500 + world.rng.below(2_000);
            }
            if world.rng.chance(3) {
                wanted.array = format!("1-{}%{}", 1 + world.rng.below(8), 1 + world.rng.below(3));
            }
            let kinds = [Kind::Any, Kind::Ok, Kind::Fail, Kind::Start];
            if let Some(other) = world.rng.pick(&jobs).filter(|_| world.rng.chance(2)) {
                let kind = world.rng.pick(&kinds).unwrap();
                wanted.after = vec![after(kind, other)];
                wanted.after_holds = world.rng.chance(4);
            }
            let req = world.call(0, submission(wanted));
            if let Some(Answer::Submitted(job)) = world.answered(req) {
                jobs.push(job);
            }
            match world.rng.below(12) {
                0 => restart_head(&mut world, Duration::from_millis(50), 1),
                1 => {
                    let node = 1 + world.rng.index(nodes - 1);
                    world.after(TENTH, Event::Fault(Fault::Restart(node, TENTH)));
                }
                2 => {
                    world.after(TENTH, Event::Fault(Fault::Lose(nodes - 1)));
                }
                3 => {
                    let job = world.rng.pick(&jobs);
                    if let Some(job) = job {
                        world.call(0, Call::Cancel { job, grace_ms: None });
                    }
                }
                _ => {}
            }
            let pause = world.rng.within(Duration::from_millis(150));
            world.run_for(pause);
            while world.core(0).is_none() {
                world.run_for(Duration::from_millis(10));
            }
        }
        world.run();
        let held: BTreeSet<JobId> = jobs.iter().copied().filter(|job| world.job(*job).ended_ms == 0).collect();
        for job in &held {
            let info = world.job(*job);
            assert!(info.held || !info.after.is_empty(), "job {job} waits for nothing: {}", info.queued_reason);
            assert!(!why(&mut world, *job).reasons.is_empty(), "{info:?}");
        }
        for job in held {
            world.call(0, Call::Cancel { job, grace_ms: None });
        }
        world.run();
        for job in &jobs {
            let info = world.job(*job);
            assert!(info.ended_ms > 0, "{info:?}");
            if let Some(own) = info.array {
                assert_eq!(own.done + own.failed + own.cancelled + own.timed_out, own.size, "{own:?}");
            }
        }
        world.assert_at_rest();
    }
}
