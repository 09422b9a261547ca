//! Restarts of the head: the state of groups, and what their members have published and put, must survive.

use std::time::Duration;

use bytes::Bytes;
use rsd_core::rsd::{Answer, Call, Entry, GroupCall, Input, KvCall, KvOp};
use rsd_proto::v1::{GroupInfo, GroupJoin, GroupRules, JobState, KvEntry, KvScope, kv_scope};

use crate::checks::{Seed, seeds, spec};
use crate::groups::{actors, assert_ended_well, assert_one_world, call, crowd, world};
use crate::members::lost_daemon;
use crate::names::{in_mpi, lookup, names, not, publish};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};

/// Returns a program with fences, values and names; each must be done exactly once.
fn busy_program(world: &mut World) -> usize {
    world.program(|rank, size, rng| {
        let mut script = vec![Op::Mapping];
        for round in 0..5 {
            let (name, port) = (format!("name-{rank}"), format!("port-{rank}-{round}"));
            let next = (rank + 1) % size;
            script.extend([publish(&name, &port), not(publish(&name, "another")), Op::Fence]);
            script.extend([lookup(&format!("name-{next}"), &format!("port-{next}-{round}")), Op::Fence]);
            script.extend([Op::Unpublish(name.clone()), not(Op::Unpublish(name.clone()))]);
            for _ in 0..10 {
                script.extend([publish(&name, &port), Op::Unpublish(name.clone())]);
            }
            script.push(Op::Sleep(rng.within(Duration::from_millis(100))));
            script.extend(ranks::rounds(rank, size, round..round + 1, rng));
        }
        in_mpi(script)
    })
}

#[test]
fn epochs_survive_restarts_of_any_daemons() {
    let mut lived_on = 0;
    for seed in seeds(80) {
        let _seed = Seed(seed);
        let nodes = [1, 2, 9][seed as usize % 3];
        let mut world = world(seed, nodes);
        world.group_program = busy_program(&mut world);
        let size = 1 + world.rng.below(20) as u32;
        let processes = crowd(&mut world, nodes, size);
        if seed % 2 == 0 {
            // In the epoch, not in the lobby.
            world.run_while(|world| !processes.iter().all(|id| world.processes[id].go().is_some()));
        }
        let within = Duration::from_millis(if seed % 2 == 0 { 300 } else { 6_000 });
        let mut faults = vec![Fault::Restart(0, Duration::from_millis(30)); 6];
        faults.extend([Fault::CutAnyLink, Fault::CutAnyStep, Fault::CutAnyStep]);
        faults.push(Fault::Restart(world.rng.index(nodes), Duration::from_millis(200)));
        for fault in faults {
            let at = world.rng.within(within);
            world.after(at, Event::Fault(fault));
        }
        world.run();
        // A process that had no token yet when its daemon ended must join again; until then the others wait for it.
        if processes.iter().all(|id| world.processes[id].go().is_some()) {
            lived_on += 1;
            let job = assert_one_world(&world, &processes, 1);
            assert!(
                (0..size).all(|rank| world.records[&(job, rank)].finished),
                "all ranks have finished their scripts"
            );
        } else {
            assert!(processes.iter().any(|id| world.processes[id].answers == [lost_daemon()]));
        }
        assert_eq!(names(&mut world), Vec::<String>::new());
        world.assert_at_rest();
    }
    assert!(lived_on >= 60, "{lived_on} of 80");
}

fn groups(world: &mut World) -> Vec<GroupInfo> {
    match call(world, GroupCall::List) {
        Answer::Groups(groups) => groups,
        other => panic!("{other:?}"),
    }
}

fn kv(world: &mut World, job: u64, op: KvOp) -> Answer {
    let scope = KvScope { of: Some(kv_scope::Of::Job(job)), rank: Some(1) };
    let req = world.call(0, Call::Kv(KvCall { scope, op }));
    world.answered(req).expect("the head answers at once")
}

fn values(world: &mut World, job: u64) -> Vec<KvEntry> {
    match kv(world, job, KvOp::List) {
        Answer::Entries(entries) => entries,
        other => panic!("{other:?}"),
    }
}

fn restart_head(world: &mut World) {
    world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::from_millis(100))));
    world.run_for(Duration::from_secs(1));
}

fn create(world: &mut World, name: &str, max: u32) {
    let rules = GroupRules {
        name: name.into(),
        min: 2,
        max,
        ttl_ms: Some(100_000),
        timeout_ms: Some(5_000),
        mode: Some(0o666),
        ..GroupRules::default()
    };
    assert!(matches!(call(world, GroupCall::Create(rules)), Answer::Group(_)));
}

/// A participant that is gone does not let others pass its fence, and one that was only disconnected asks again.
#[test]
fn who_is_gone_waits_for_no_value_and_in_no_fence() {
    let mut world = world(1, 2);
    let program = world.program(|_, _, _| vec![Op::Hang]);
    let job = world.submit(spec(program, 2));
    world.run_for(Duration::from_secs(1));
    let day = Duration::from_secs(24 * 3600);
    let ask = |world: &mut World, op: KvOp| {
        let scope = KvScope { of: Some(kv_scope::Of::Job(job)), rank: None };
        world.call(0, Call::Kv(KvCall { scope, op }))
    };
    let enter = |world: &mut World, who: &str, attempt: u64| {
        let entry = Entry { name: "f".into(), participants: 2, who: who.into(), attempt, timeout: day };
        ask(world, KvOp::Fence(entry))
    };
    let leave = |world: &mut World, req| {
        let head = world.machines[0].daemon.expect("it runs");
        world.handle(head, Input::CallerGone { req });
    };
    let first = enter(&mut world, "a", 1);
    let get = ask(&mut world, KvOp::Get { key: Bytes::from_static(b"k"), timeout: day });
    leave(&mut world, first);
    leave(&mut world, get);
    leave(&mut world, 987_654);
    let other = enter(&mut world, "b", 1);
    assert!(world.answered(other).is_none(), "a is gone");
    // Another process takes its place; one that has lost its connection asks again.
    let again = enter(&mut world, "a", 2);
    assert!(matches!((world.answered(again), world.answered(other)), (Some(Answer::Stopped), Some(Answer::Stopped))));
    assert!(matches!(
        kv(&mut world, job, KvOp::Put { key: Bytes::from_static(b"k"), value: Bytes::new() }),
        Answer::Stopped
    ));
    assert!(world.answered(get).is_none() && world.answered(first).is_none());
}

#[test]
fn a_restarted_head_has_its_groups_epochs_names_and_values() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        create(&mut world, "created", 4);
        create(&mut world, "closed", 2);
        call(&mut world, GroupCall::Close("closed".into()));
        let first = crowd(&mut world, 3, 5);
        world.run_for(Duration::from_secs(8));
        let job = assert_one_world(&world, &first, 1);
        assert_ended_well(&mut world, job);
        world.group_program = world.program(|rank, _, _| {
            let say = if rank == 0 { publish("ocean", "tcp://here") } else { Op::Mapping };
            vec![Op::Init, say, Op::Fence, Op::Hang]
        });
        let second = crowd(&mut world, 3, 5);
        world.run_for(Duration::from_secs(8));
        let job = assert_one_world(&world, &second, 2);
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (key, value) in [("id", "0123"), ("gone", "4")] {
            assert!(matches!(kv(&mut world, job, KvOp::Put { key: bytes(key), value: bytes(value) }), Answer::Stopped));
        }
        assert!(matches!(kv(&mut world, job, KvOp::Delete { key: bytes("gone") }), Answer::Stopped));

        let before = (groups(&mut world), names(&mut world), values(&mut world, job));
        assert_eq!(before.0.iter().map(|group| group.epochs.len()).collect::<Vec<_>>(), [1, 0, 0]);
        assert_eq!((before.1.len(), before.2.len()), (1, 1));
        for _ in 0..2 {
            restart_head(&mut world);
            assert_eq!((groups(&mut world), names(&mut world), values(&mut world, job)), before);
        }
        let get = KvOp::Get { key: bytes("id"), timeout: Duration::ZERO };
        assert!(matches!(kv(&mut world, job, get), Answer::Value(value) if value == "0123"));

        // Epoch numbers continue, the end of the epoch is reported, and the rules still apply.
        world.end_process(second[3]);
        world.run_for(Duration::from_secs(30));
        let rank = world.processes[&second[3]].go().expect("it was a member").rank;
        let info = world.assert_ended(job, JobState::Failed, 1);
        assert_eq!(info.cause.expect("a cause").rank, rank);
        assert_eq!(names(&mut world), Vec::<String>::new());
        world.group_program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
        restart_head(&mut world);
        assert_eq!(groups(&mut world)[0].last.as_ref().map(|last| (last.epoch, last.job)), Some((2, job)));
        let of = |group: &str, size| GroupJoin { group: group.into(), size, ..actors(0) };
        let late = world.process(1, Duration::ZERO, of("closed", None));
        let unfit = world.process(2, Duration::ZERO, of("created", Some(9)));
        let alone = world.process(2, Duration::ZERO, GroupJoin { timeout_ms: None, ..of("created", None) });
        let third = crowd(&mut world, 3, 5);
        world.run();
        let job = assert_one_world(&world, &third, 3);
        assert_ended_well(&mut world, job);
        for (process, wanted) in [(late, "is closed"), (unfit, "has 2 to 4"), (alone, "1 of 2 members have joined")] {
            let (_, text) = world.processes[&process].refusal();
            assert!(text.contains(wanted), "{text}");
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_stopped_dvm_keeps_no_state() {
    let mut world = world(1, 2);
    create(&mut world, "created", 4);
    world.call(0, Call::Shutdown { force: true });
    world.run();
    assert!(world.machines[0].daemon.is_none());
    world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::ZERO)));
    world.run();
    assert_eq!(groups(&mut world), []);

    // The same if the daemon dies while an epoch is being ended.
    world.group_program = world.program(|_, _, _| vec![Op::Init, Op::Mapping, Op::Hang]);
    crowd(&mut world, 1, 3);
    world.run_for(Duration::from_secs(8));
    assert_eq!(groups(&mut world)[0].epochs.len(), 1);
    world.call(0, Call::Shutdown { force: true });
    restart_head(&mut world);
    assert_eq!(groups(&mut world), []);
    world.run();
}

#[test]
fn a_kill_continues_after_the_head_restarts() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        world.group_program = world.program(|_, _, _| vec![Op::Init, Op::Mapping, Op::Hang]);
        let members = crowd(&mut world, 3, 6);
        world.run_for(Duration::from_secs(7));
        let job = assert_one_world(&world, &members, 1);
        let away = seed % 2 == 0;
        if away {
            // This daemon does not get the kill until the next head sends it.
            world.after(Duration::ZERO, Event::Fault(Fault::Restart(1, Duration::from_secs(3))));
            world.run_for(Duration::from_millis(10));
        }
        world.call(0, Call::Cancel { job, grace_ms: Some(4_000) });
        for _ in 0..2 {
            restart_head(&mut world);
        }
        let told = groups(&mut world);
        assert_eq!(told[0].epochs.len(), 1, "the epoch has not ended yet: {told:?}");
        world.run_for(Duration::from_secs(30));
        let last = groups(&mut world)[0].last.clone().expect("the epoch has ended");
        assert_eq!((last.epoch, last.job, last.state()), (1, job, JobState::Cancelled));
        world.run();
        world.assert_at_rest();
    }
}

#[test]
fn members_without_a_size_may_reconnect_before_the_member_that_set_it() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        let sized = world.process(0, Duration::ZERO, actors(4));
        world.run_for(Duration::from_millis(500));
        let unsized_ = GroupJoin { size: None, ..actors(0) };
        let join = |world: &mut World, at| world.process(at, Duration::ZERO, unsized_.clone());
        let mut members = vec![sized, join(&mut world, 1), join(&mut world, 2)];
        world.run_for(Duration::from_secs(1));
        for _ in 0..3 {
            restart_head(&mut world);
        }
        members.push(join(&mut world, 1));
        world.run();
        let job = assert_one_world(&world, &members, 1);
        assert_ended_well(&mut world, job);
        world.assert_at_rest();
    }
}
