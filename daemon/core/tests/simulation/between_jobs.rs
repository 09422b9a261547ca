//! Collectives, data and events of processes of several nodes and jobs, under all kinds of faults.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use rsd_core::{JobId, Tuning, status};
use rsd_proto::v1::{
    DataRange, Event as Told, FetchData, JobSpec, JobState, Kv, LookupData, Meet, Met, NameResult, OnNodeLoss,
    Participants, Persistence, PublishData, RankRun, UnpublishData, name_call,
};

use crate::checks::{Seed, on, seeds, spec};
use crate::groups::{assert_one_world, crowd, world as group_world};
use crate::names::in_mpi;
use crate::ranks::{Check, Op};
use crate::rng::Rng;
use crate::world::{Event, Fault, World};

fn ask(op: name_call::Op, check: impl Fn(&NameResult) -> bool + 'static) -> Op {
    Op::Ask(Box::new(op), Check(Rc::new(check)))
}

/// The namespace that the simulation gives to a submitted job.
fn namespace(job: JobId) -> String {
    format!("rsd-d0.{}-{job}", "07".repeat(12))
}

fn all_of(jobs: &[JobId]) -> Vec<Participants> {
    jobs.iter().map(|job| Participants { namespace: namespace(*job), ranks: Vec::new() }).collect()
}

/// This rank enters a collective.
fn meet(rank: u32, key: &str, members: Vec<Participants>, timeout_ms: Option<u32>) -> name_call::Op {
    let (key, data) = (key.to_owned().into(), format!("data of {rank}").into());
    name_call::Op::Meet(Meet { key, members, arrived: vec![RankRun { first: rank, last: rank }], data, timeout_ms })
}

/// Returns whether an answer has one contribution of each rank of these jobs, in order.
fn is_from_all(result: &NameResult, jobs: &[(String, u32)]) -> bool {
    let Ok(met) = Met::decode(result.data.clone()) else { return false };
    let told = met.contributions.into_iter().map(|it| (it.namespace, it.ranks, it.data));
    let expected = jobs.iter().flat_map(|(namespace, size)| {
        (0..*size).map(move |rank| {
            (namespace.clone(), vec![RankRun { first: rank, last: rank }], format!("data of {rank}").into())
        })
    });
    result.ok && result.status == 0 && told.eq(expected)
}

fn fails_with(status: i32, part: &'static str) -> impl Fn(&NameResult) -> bool {
    move |result| !result.ok && result.status == status && result.why.contains(part)
}

fn fetch(job: JobId, rank: u32, what: &str, immediate: bool, timeout_ms: Option<u32>) -> name_call::Op {
    let what = what.to_owned().into();
    name_call::Op::FetchData(FetchData { namespace: namespace(job), rank, what, immediate, timeout_ms })
}

fn publish(rank: u32, key: &str, value: &str, persistence: Persistence) -> name_call::Op {
    let entries = vec![Kv { key: key.to_owned().into(), value: value.to_owned().into() }];
    let (range, persistence) = (DataRange::Session.into(), persistence.into());
    name_call::Op::PublishData(PublishData { rank, entries, range, persistence })
}

fn find(rank: u32, key: &str, wait: Option<u32>, timeout_ms: Option<u32>) -> name_call::Op {
    let keys = vec![key.to_owned().into()];
    name_call::Op::LookupData(LookupData { rank, keys, range: DataRange::Session.into(), wait, timeout_ms })
}

fn is_found(value: &str) -> impl Fn(&NameResult) -> bool + 'static {
    let value = Bytes::from(value.to_owned());
    move |result| result.status == 0 && result.found.len() == 1 && result.found[0].value == value
}

fn is_ok(result: &NameResult) -> bool {
    result.ok && result.status == 0
}

fn pause(rng: &mut Rng, ms: u64) -> Op {
    Op::Sleep(rng.within(Duration::from_millis(ms)))
}

/// Cuts links and restarts daemons, except the head, within this time.
fn trouble(world: &mut World, nodes: usize, within: Duration) {
    let mut faults = vec![Fault::CutAnyLink; 6];
    faults.extend([Fault::CutAnyStep; 8]);
    for _ in 0..4 {
        faults.push(Fault::Restart(1 + world.rng.index(nodes - 1), world.rng.within(Duration::from_millis(200))));
    }
    for fault in faults {
        let at = world.rng.within(within);
        world.after(at, Event::Fault(fault));
    }
}

fn deep(seed: u64) -> World {
    World::new(seed, 7, 4, Tuning { arity: 2, ..Tuning::default() })
}

/// Two jobs enter collectives with each other and alone, while links are cut and daemons restart.
#[test]
fn processes_of_two_jobs_meet_and_get_what_all_contribute() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let (first, second) = (1, 2);
        let both = move || vec![(namespace(first), 9), (namespace(second), 5)];
        let program = move |job: JobId, size: u32| {
            move |rank: u32, _: u32, rng: &mut Rng| {
                let mut script = Vec::new();
                for round in 0..5 {
                    let members = all_of(&[first, second]);
                    script.push(pause(rng, 60));
                    script.push(ask(meet(rank, &format!("connect {round}"), members, None), move |it| {
                        is_from_all(it, &both())
                    }));
                    let alone = ask(meet(rank, &format!("fence {round}"), all_of(&[job]), Some(600_000)), move |it| {
                        is_from_all(it, &[(namespace(job), size)])
                    });
                    script.push(alone);
                }
                in_mpi(script)
            }
        };
        let programs = [world.program(program(first, 9)), world.program(program(second, 5))];
        let jobs = [world.submit(spec(programs[0], 9)), world.submit(spec(programs[1], 5))];
        assert_eq!(jobs, [first, second]);
        trouble(&mut world, 7, Duration::from_millis(300));
        world.run();
        for job in jobs {
            assert_eq!(world.job(job).namespace, namespace(job));
            world.assert_done(job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn what_a_process_commits_is_fetched_by_others_wherever_they_are() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let (owners, askers) = (1, 2);
        let owner = world.program(move |rank, _, rng| {
            let mut script = vec![pause(rng, 200), Op::Commit("key".into(), format!("value of {rank}")), Op::Fence];
            script.push(ask(meet(rank, "end", all_of(&[owners, askers]), None), is_ok));
            in_mpi(script)
        });
        let asker = world.program(move |rank, _, rng| {
            let mut script = Vec::new();
            for _ in 0..4 {
                let of = rng.below(10) as u32;
                let value = Bytes::from(format!("value of {of}"));
                script.push(pause(rng, 60));
                let at_once = value.clone();
                script.push(ask(fetch(owners, of, "key", true, None), move |it| {
                    it.data == at_once || it.status == status::NOT_FOUND
                }));
                script
                    .push(ask(fetch(owners, of, "key", false, Some(600_000)), move |it| is_ok(it) && it.data == value));
                script
                    .push(ask(fetch(owners, 10, "key", false, None), fails_with(status::NOT_FOUND, "has no rank 10")));
            }
            // Nobody commits this; whoever waits for it learns that the process has ended.
            let never = ask(fetch(owners, rank, "another", false, None), |it| {
                [status::NOT_FOUND, status::LOST_CONNECTION].contains(&it.status)
            });
            script.extend([ask(meet(rank, "end", all_of(&[owners, askers]), None), is_ok), never]);
            in_mpi(script)
        });
        let jobs = [world.submit(spec(owner, 10)), world.submit(spec(asker, 6))];
        trouble(&mut world, 7, Duration::from_millis(300));
        world.run();
        for job in jobs {
            world.assert_done(job);
        }
        world.assert_at_rest();
    }
}

/// Each value is for one reader; after it was read, the key is free.
#[test]
fn published_data_is_read_once_while_daemons_restart() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let writer = world.program(|rank, _, rng| {
            let mut script = Vec::new();
            for round in 0..6 {
                let (there, back) = (format!("there-{rank}"), format!("back-{rank}"));
                let value = format!("{rank}.{round}");
                script.push(ask(publish(rank, &there, &value, Persistence::FirstRead), is_ok));
                script.push(ask(find(rank, &back, Some(0), None), is_found(&value)));
                script.push(ask(find(rank, &back, None, None), fails_with(status::NOT_FOUND, "no process")));
                script.push(pause(rng, 40));
            }
            // What a job has published ends with the job.
            script.push(ask(meet(rank, "end", all_of(&[1, 2]), None), is_ok));
            in_mpi(script)
        });
        let reader = world.program(|rank, _, rng| {
            let mut script = Vec::new();
            for round in 0..6 {
                let (there, back) = (format!("there-{rank}"), format!("back-{rank}"));
                let value = format!("{rank}.{round}");
                script.push(pause(rng, 40));
                script.push(ask(find(rank, &there, Some(1), Some(600_000)), is_found(&value)));
                script.push(ask(find(rank, &there, Some(1), Some(1)), fails_with(status::TIMEOUT, "timed out")));
                script.push(ask(publish(rank, &back, &value, Persistence::FirstRead), is_ok));
            }
            // What a job has published ends with the job.
            script.push(ask(meet(rank, "end", all_of(&[1, 2]), None), is_ok));
            in_mpi(script)
        });
        let jobs = [world.submit(spec(writer, 7)), world.submit(spec(reader, 7))];
        trouble(&mut world, 7, Duration::from_millis(400));
        world.run();
        for job in jobs {
            world.assert_done(job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn published_data_ends_with_its_process_or_job_or_when_it_is_unpublished() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let second = Duration::from_secs(1);
        let writer = world.program(move |rank, _, _| {
            if rank == 1 {
                let brief = ask(publish(1, "brief", "x", Persistence::Process), is_ok);
                return in_mpi(vec![brief, Op::Sleep(2 * second)]);
            }
            let taken = fails_with(status::DUPLICATE_KEY, "already published");
            let keys = vec!["short".into()];
            let unpublish = UnpublishData { rank: 0, keys, range: DataRange::Session.into() };
            in_mpi(vec![
                ask(publish(0, "long", "x", Persistence::Indefinite), is_ok),
                ask(publish(0, "long", "y", Persistence::App), taken),
                ask(publish(0, "short", "x", Persistence::Session), is_ok),
                Op::Sleep(2 * second),
                ask(name_call::Op::UnpublishData(unpublish), is_ok),
                Op::Sleep(4 * second),
            ])
        });
        let reader = world.program(move |_, _, _| {
            let there = |key: &str| ask(find(0, key, None, None), is_found("x"));
            let gone = |key: &str| ask(find(0, key, None, None), fails_with(status::NOT_FOUND, ""));
            let mut script =
                vec![Op::Sleep(second), there("brief"), there("long"), there("short"), Op::Sleep(3 * second)];
            script.extend([gone("brief"), there("long"), gone("short"), Op::Sleep(4 * second), gone("long")]);
            in_mpi(script)
        });
        let writer = world.submit(on(&["n3".into(), "n4".into()], spec(writer, 2)));
        let reader = world.submit(on(&["n2".into()], spec(reader, 1)));
        world.run();
        for job in [writer, reader] {
            world.assert_done(job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_process_that_ends_before_it_arrives_fails_the_collective_for_all() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let both = || all_of(&[1, 2]);
        let lost = || fails_with(status::LOST_CONNECTION, "ended");
        // Rank 3 ends well and without the others; some arrive before, some after that.
        let leaver = world.program(move |rank, _, rng| match rank {
            3 => in_mpi(vec![pause(rng, 100)]),
            _ => in_mpi(vec![pause(rng, 200), ask(meet(rank, "connect", both(), None), lost())]),
        });
        let other = world.program(move |rank, _, rng| {
            in_mpi(vec![pause(rng, 200), ask(meet(rank, "connect", both(), Some(600_000)), lost())])
        });
        let jobs = [world.submit(spec(leaver, 6)), world.submit(spec(other, 6))];
        if seed % 2 == 0 {
            trouble(&mut world, 7, Duration::from_millis(200));
        }
        world.run();
        for job in jobs {
            world.assert_done(job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_job_that_ends_fails_the_collective_and_the_fetches_of_others() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let dies = world.program(|rank, _, rng| match rank {
            2 => vec![Op::Init, pause(rng, 100), Op::Abort(9)],
            _ => in_mpi(vec![pause(rng, 150), ask(meet(rank, "connect", all_of(&[1, 2]), None), |_| true)]),
        });
        let waits = world.program(|rank, _, rng| {
            let is_lost = |it: &NameResult| it.status == status::LOST_CONNECTION;
            let fetched = ask(fetch(1, 2, "key", false, None), |it| {
                [status::LOST_CONNECTION, status::NOT_FOUND].contains(&it.status)
            });
            in_mpi(vec![pause(rng, 150), ask(meet(rank, "connect", all_of(&[1, 2]), None), is_lost), fetched])
        });
        let jobs = [world.submit(spec(dies, 5)), world.submit(spec(waits, 5))];
        world.run();
        world.assert_ended(jobs[0], JobState::Failed, 9);
        world.assert_done(jobs[1]);
        world.assert_at_rest();
    }
}

#[test]
fn the_processes_of_a_lost_node_fail_collectives_and_fetches_of_a_job_that_continues() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let long = Duration::from_secs(100);
        let lost_node = 1 + world.rng.index(6);
        let program = world.program(move |rank, _, rng| {
            let is_lost = |it: &NameResult| it.status == status::LOST_CONNECTION;
            // One rank of each node does not arrive before its node may be lost.
            let first = match rank % 4 == 0 || rng.chance(2) {
                true => Op::Sleep(2 * long),
                false => Op::Mapping,
            };
            let others = |key: &str| ask(meet(rank, key, all_of(&[1]), None), is_lost);
            in_mpi(vec![first, others("before or after"), Op::Sleep(3 * long), others("after")])
        });
        let job = world.submit(JobSpec { on_node_loss: OnNodeLoss::Continue.into(), ..spec(program, 28) });
        let asker = world.program(move |_, _, rng| {
            let fetches = (0..28).map(|rank| {
                ask(fetch(1, rank, "key", true, None), |it| {
                    [status::LOST_CONNECTION, status::NOT_FOUND].contains(&it.status)
                })
            });
            in_mpi(std::iter::once(pause(rng, 1000)).chain(fetches).collect())
        });
        let untouched = world.submit(JobSpec { oversubscribe: true, ..on(&["n0".into()], spec(asker, 3)) });
        world.run_for(Duration::from_millis(500));
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(lost_node)));
        world.run();
        let info = world.assert_ended(job, JobState::Done, 0);
        assert_eq!(rsd_proto::exits::count(&info.exits), 4, "{:?}", info.exits);
        world.assert_done(untouched);
        world.assert_at_rest();
    }
}

#[test]
fn an_event_reaches_every_process_that_it_is_for_once() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = deep(seed);
        let program = |job: JobId, to: &'static [JobId]| {
            move |rank: u32, _: u32, rng: &mut Rng| {
                let event = |round| {
                    let data = format!("{job}.{rank}.{round}").into();
                    let event = Told { namespace: String::new(), rank, status: -7, to: all_of(to), data };
                    ask(name_call::Op::Event(event), is_ok)
                };
                // Every process of job 1 gets the events of both jobs, those of job 2 only their own.
                let count = if job == 1 { 2 * (9 + 5) } else { 2 * 5 };
                let script = vec![pause(rng, 100), event(0), pause(rng, 100), event(1), Op::Events(count)];
                in_mpi(script)
            }
        };
        let programs = [world.program(program(1, &[1])), world.program(program(2, &[2, 1]))];
        let jobs = [world.submit(spec(programs[0], 9)), world.submit(spec(programs[1], 5))];
        trouble(&mut world, 7, Duration::from_millis(250));
        world.run();
        for job in jobs {
            world.assert_done(job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn another_job_is_described_and_unknown_ones_are_refused() {
    let mut world = deep(3);
    let asker = world.program(|_, _, _| {
        let described = |result: &NameResult| {
            let description = result.description.as_ref().expect("it is found");
            let names: Vec<&str> = description.node_names.iter().map(String::as_str).collect();
            let map = description.map.as_ref().expect("it has a map");
            (names, &description.app_sizes[..], map.blocks[0].ranks_per_node) == (vec!["n3", "n4"], &[8], 4)
        };
        let unknown = || fails_with(status::NOT_FOUND, "no job has the namespace");
        let early = fails_with(status::BAD_PARAM, "has no rank 8");
        let members = |last| vec![Participants { namespace: namespace(1), ranks: vec![RankRun { first: 0, last }] }];
        in_mpi(vec![
            Op::Sleep(Duration::from_secs(1)),
            ask(name_call::Op::Describe(namespace(1)), described),
            ask(name_call::Op::Describe(namespace(7)), unknown()),
            ask(name_call::Op::Describe("x".repeat(100_000)), unknown()),
            ask(meet(0, "key", all_of(&[2, 7]), None), unknown()),
            ask(meet(0, "key", members(8), None), early),
            ask(meet(0, "key", all_of(&[1]), None), fails_with(status::BAD_PARAM, "not members")),
            ask(meet(1, "key", all_of(&[2]), None), fails_with(status::BAD_PARAM, "job 2 has no rank 1")),
            ask(meet(0, "", all_of(&[2]), None), fails_with(status::BAD_PARAM, "1 to 1024 bytes")),
            ask(meet(0, "key", Vec::new(), None), fails_with(status::BAD_PARAM, "1 to 1024 jobs")),
            ask(
                meet(0, "key", all_of(&[1, 2]), Some(2_500)),
                fails_with(status::TIMEOUT, "timed out after 3 s: 1 of 9"),
            ),
            ask(publish(1, "key", "", Persistence::App), fails_with(status::BAD_PARAM, "has not all of these ranks")),
        ])
    });
    let described = world.program(|_, _, _| in_mpi(vec![Op::Sleep(Duration::from_secs(9))]));
    let first = world.submit(on(&["n3".into(), "n4".into()], spec(described, 8)));
    let second = world.submit(on(&["n1".into(), "n2".into()], spec(asker, 1)));
    let idle = world.submit(on(&["n1".into()], spec(described, 1)));
    world.run();
    for job in [first, second, idle] {
        world.assert_done(job);
    }
    world.assert_at_rest();
}

/// What members of a group have asked, published and contributed survives restarts of the head.
#[test]
fn the_requests_of_a_group_survive_restarts_of_the_head() {
    let mut lived_on = 0;
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut world = group_world(seed, 5);
        let size = 2 + world.rng.below(9) as u32;
        world.group_program = world.program(move |rank, size, rng| {
            let own = || vec![Participants { namespace: "rsd-d0-1".into(), ranks: Vec::new() }];
            let mut script = Vec::new();
            for round in 0..5 {
                let next = (rank + 1) % size;
                let key = |of: u32| format!("key-{of}-{round}");
                script.push(pause(rng, 80));
                script.push(ask(publish(rank, &key(rank), "x", Persistence::FirstRead), is_ok));
                script.push(ask(find(rank, &key(next), Some(0), None), is_found("x")));
                script.push(ask(publish(rank, &format!("long-{rank}-{round}"), "y", Persistence::App), is_ok));
                script.push(ask(meet(rank, &format!("fence {round}"), own(), None), move |it| {
                    is_from_all(it, &[("rsd-d0-1".to_owned(), size)])
                }));
                script.push(ask(find(rank, &key(next), None, None), fails_with(status::NOT_FOUND, "")));
                script.push(ask(find(rank, &format!("long-{next}-{round}"), None, None), is_found("y")));
            }
            in_mpi(script)
        });
        let processes = crowd(&mut world, 5, size);
        world.run_while(|world| !processes.iter().all(|id| world.processes[id].go().is_some()));
        let mut faults = vec![Fault::Restart(0, Duration::from_millis(30)); 6];
        faults.extend([Fault::CutAnyLink, Fault::CutAnyStep, Fault::CutAnyStep]);
        faults.push(Fault::Restart(1 + world.rng.index(4), Duration::from_millis(200)));
        for fault in faults {
            let at = world.rng.within(Duration::from_millis(600));
            world.after(at, Event::Fault(fault));
        }
        world.run();
        let job = assert_one_world(&world, &processes, 1);
        lived_on += u32::from((0..size).all(|rank| world.records[&(job, rank)].finished));
        world.assert_at_rest();
    }
    assert_eq!(lived_on, seeds(60).count() as u32);
}
