//! Named groups: processes of many nodes join in any order, while others leave, links are cut and daemons restart.

use std::collections::BTreeSet;
use std::time::Duration;

use rsd_core::Tuning;
use rsd_core::rsd::{Answer, Call, GroupCall};
use rsd_proto::join::Go;
use rsd_proto::pmi::mapping::AT_ONCE_KEY;
use rsd_proto::v1::{GroupInfo, GroupJoin, GroupRules, JobState};

use crate::checks::{Seed, seeds};
use crate::members::lost_daemon;
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};

pub(crate) fn world(seed: u64, nodes: usize) -> World {
    let mut world = World::new(seed, nodes, 4, Tuning { arity: 3, ..Tuning::default() });
    world.group_program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
    world
}

/// Returns a join with a timeout that is long enough for every delay that a fault may cause.
pub(crate) fn actors(size: u32) -> GroupJoin {
    GroupJoin { group: "actors".into(), size: Some(size), timeout_ms: Some(120_000), uid: 1000, ..GroupJoin::default() }
}

/// Starts this many processes on random machines, over five seconds.
pub(crate) fn crowd(world: &mut World, nodes: usize, size: u32) -> Vec<u64> {
    let join = |world: &mut World| {
        let (machine, after) = (world.rng.index(nodes), world.rng.within(Duration::from_secs(5)));
        world.process(machine, after, actors(size))
    };
    (0..size).map(|_| join(world)).collect()
}

pub(crate) fn call(world: &mut World, call: GroupCall) -> Answer {
    let req = world.call(0, Call::Group(call));
    world.answered(req).expect("the head answers at once")
}

fn show(world: &mut World) -> GroupInfo {
    match call(world, GroupCall::Get("actors".into())) {
        Answer::Group(info) => *info,
        other => panic!("{other:?}"),
    }
}

/// Asserts that all processes are in one epoch, numbered by node and then by arrival or request; returns its job.
pub(crate) fn assert_one_world(world: &World, processes: &[u64], epoch: u64) -> u64 {
    let went = |id: &u64| {
        let process = &world.processes[id];
        (process.go().unwrap_or_else(|| panic!("process {id}: {:?}", process.answers)).clone(), process.machine)
    };
    let gone: Vec<(Go, usize)> = processes.iter().map(went).collect();
    let (first, _) = &gone[0];
    let ranks: BTreeSet<u32> = gone.iter().map(|(go, _)| go.rank).collect();
    assert_eq!(ranks.len(), processes.len(), "every process has its own rank");
    assert_eq!(ranks.last(), Some(&(processes.len() as u32 - 1)));
    for (go, machine) in &gone {
        assert_eq!((go.job, go.size, go.epoch), (first.job, processes.len() as u32, epoch));
        let here: Vec<&Go> = gone.iter().filter(|(_, at)| at == machine).map(|(go, _)| go).collect();
        assert_eq!(go.local_size as usize, here.len());
        let before = here.iter().filter(|other| other.rank < go.rank).count();
        assert_eq!(go.local_rank as usize, before);
        assert!(here.iter().all(|other| other.rank == go.rank || other.pmi_id != go.pmi_id), "{here:?}");
    }
    first.job
}

pub(crate) fn assert_ended_well(world: &mut World, job: u64) {
    let info = world.assert_ended(job, JobState::Done, 0);
    for rank in 0..info.ranks {
        assert!(world.records[&(job, rank)].finished, "rank {rank} of job {job} has not finished");
    }
}

#[test]
fn processes_of_any_nodes_in_any_order_form_one_epoch() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let nodes = [1, 2, 5, 16, 64][seed as usize % 5];
        let mut world = world(seed, nodes);
        let size = 1 + world.rng.below(40) as u32;
        let processes = crowd(&mut world, nodes, size);
        world.run();
        let job = assert_one_world(&world, &processes, 1);
        assert_ended_well(&mut world, job);
        world.assert_at_rest();
    }
}

#[test]
fn ranks_are_assigned_by_node_unless_they_are_requested() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4);
        let wish = GroupJoin { rank: Some(2), ..actors(9) };
        let wished = world.process(3, Duration::from_millis(5), wish);
        let mut processes: Vec<u64> = Vec::new();
        for machine in [2, 0, 1, 2, 0, 1, 0, 2] {
            let after = world.rng.within(Duration::from_secs(1));
            processes.push(world.process(machine, after, actors(9)));
        }
        world.run();
        let go = world.processes[&wished].go().expect("the member got go").clone();
        assert_eq!((go.rank, go.local_rank, go.local_size, go.nodes), (2, 0, 1, 4));
        let mut by_rank: Vec<(u32, u32)> = Vec::new();
        for id in &processes {
            let process = &world.processes[id];
            let machine = process.machine;
            by_rank.push((process.go().expect("the member got go").rank, world.node(machine)));
        }
        by_rank.sort_unstable();
        assert!(by_rank.is_sorted_by_key(|(_, node)| *node), "{by_rank:?}");
        processes.push(wished);
        let job = assert_one_world(&world, &processes, 1);
        assert_ended_well(&mut world, job);
        world.assert_at_rest();
    }
}

#[test]
fn cuts_and_restarts_of_leaf_daemons_do_not_cost_members_their_places() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = world(seed, 8);
        let processes = crowd(&mut world, 8, 24);
        for number in 0..10 {
            let at = world.rng.within(Duration::from_secs(6));
            let machine = 1 + world.rng.index(7);
            let fault = match number % 3 {
                0 => Fault::CutAnyLink,
                1 => Fault::Restart(machine, Duration::from_millis(300)),
                _ => Fault::CutAnyStep,
            };
            world.after(at, Event::Fault(fault));
        }
        world.run();
        let lost = processes.iter().filter(|id| world.processes[*id].go().is_none()).count();
        // Only a process that had no answer yet when its daemon died must join again.
        let unheard = |id: &u64| world.processes[id].answers == [lost_daemon()];
        assert!(lost == 0 || processes.iter().any(unheard), "{lost} did not go");
        if lost == 0 {
            let job = assert_one_world(&world, &processes, 1);
            assert_ended_well(&mut world, job);
        }
        world.assert_at_rest();
    }
}

#[test]
fn every_process_gets_exactly_one_answer_under_any_faults() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = world(seed, 6);
        let size = 10;
        let mut processes = Vec::new();
        for _ in 0..35 {
            let (machine, after) = (world.rng.index(6), world.rng.within(Duration::from_secs(20)));
            let rank = world.rng.chance(6).then(|| world.rng.below(12) as u32);
            let size = if world.rng.chance(10) { size + 1 } else { size };
            processes.push(world.process(machine, after, GroupJoin { rank, timeout_ms: Some(15_000), ..actors(size) }));
        }
        for _ in 0..8 {
            let (at, which) = (world.rng.within(Duration::from_secs(20)), world.rng.index(processes.len()));
            let end = world.now + at;
            let id = processes[which];
            world.at(end, Event::End(id));
        }
        for number in 0..6 {
            let (at, machine) = (world.rng.within(Duration::from_secs(20)), 1 + world.rng.index(5));
            let fault = match number % 4 {
                0 => Fault::Restart(machine, Duration::from_secs(7)),
                1 => Fault::Lose(machine),
                2 => Fault::KillStep(machine),
                _ => Fault::Isolate(machine, Duration::from_secs(3)),
            };
            world.after(at, Event::Fault(fault));
        }
        world.run();
        for (id, process) in &world.processes {
            let answers = process.answers.len();
            assert!(answers == 1 || (answers == 0 && process.dead), "{id}: {:?}", process.answers);
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_join_without_a_name_forms_a_job_of_one_and_no_group() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 5);
        let alone = GroupJoin { group: String::new(), size: None, ..actors(1) };
        let join = |at: usize| (at % 5, Duration::from_millis(at as u64), alone.clone());
        let processes: Vec<u64> =
            (0..10).map(join).map(|(machine, after, join)| world.process(machine, after, join)).collect();
        if seed % 2 == 0 {
            world.after(Duration::from_millis(7), Event::Fault(Fault::Restart(3, Duration::from_millis(300))));
        }
        world.run();
        let mut jobs = BTreeSet::new();
        for id in processes {
            match world.processes[&id].go() {
                Some(_) => drop(jobs.insert(assert_one_world(&world, &[id], 1))),
                // It had no token to reconnect with, because it waits for no other member.
                None => assert_eq!((seed % 2, world.processes[&id].machine), (0, 3)),
            }
        }
        assert!(jobs.len() >= 8, "each process has its own job: {jobs:?}");
        assert!(matches!(call(&mut world, GroupCall::List), Answer::Groups(groups) if groups.is_empty()));
        world.run();
        world.assert_at_rest();
    }
}

#[test]
fn a_member_that_dies_while_it_waits_frees_its_place() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        let mortal = world.process(1, Duration::ZERO, actors(4));
        world.run_for(Duration::from_secs(1));
        assert_eq!(show(&mut world).waiting.len(), 1);
        world.end_process(mortal);
        let others = crowd(&mut world, 3, 4);
        world.run();
        let job = assert_one_world(&world, &others, 1);
        assert_ended_well(&mut world, job);
        world.assert_at_rest();
    }
}

#[test]
fn after_a_failed_epoch_the_next_members_form_epoch_two() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 4);
        world.group_program = world.program(|rank, size, rng| {
            let mut script = vec![Op::Init, Op::Mapping];
            script.extend(ranks::rounds(rank, size, 0..1, rng));
            // Rank 1 never enters the last fence, in which the others wait.
            script.extend(if rank == 1 { vec![Op::Hang] } else { vec![Op::Fence, Op::Finalize, Op::Exit(0)] });
            script
        });
        let first = crowd(&mut world, 4, 6);
        world.run_for(Duration::from_secs(10));
        let job = assert_one_world(&world, &first, 1);
        let mortal = *first.iter().find(|id| world.processes[*id].go().is_some_and(|go| go.rank == 1)).expect("rank 1");
        world.end_process(mortal);
        world.group_program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
        let second = crowd(&mut world, 4, 6);
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 1);
        assert_eq!(info.cause.expect("a cause").rank, 1);
        let again = assert_one_world(&world, &second, 2);
        assert_ended_well(&mut world, again);
        world.assert_at_rest();
    }
}

/// The other members must learn of the death of a member in the fence, or before they ask for its address.
#[test]
fn a_death_between_init_and_the_first_fence_fails_the_other_members_at_once() {
    let mut told = 0;
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let nodes = 1 + seed as usize % 3;
        let mut world = world(seed, nodes);
        let asks_first = seed % 2 == 0;
        world.group_program = world.program(move |rank, _, _| match rank {
            1 => vec![Op::Init, Op::Hang],
            _ if asks_first => vec![Op::Init, Op::Mapping, Op::Hang],
            _ => vec![Op::Init, Op::Fence, Op::Hang],
        });
        let processes = crowd(&mut world, nodes, 6);
        world.run_while(|world| processes.iter().any(|id| world.processes[id].go().is_none()));
        world.run_for(Duration::from_secs(1));
        let go = |world: &World, id: &u64| world.processes[id].go().expect("all members got go").clone();
        let job = go(&world, &processes[0]).job;
        let dead = *processes.iter().find(|id| go(&world, id).rank == 1).expect("rank 1");
        let machine = world.processes[&dead].machine;
        let waits = |world: &World, id: &u64| {
            *id != dead && (!asks_first || world.processes[id].machine == machine) && world.member_lives(*id)
        };
        let waiting: Vec<u64> = processes.iter().copied().filter(|id| waits(&world, id)).collect();
        world.end_process(dead);
        world.run_for(Duration::from_secs(1));
        let left = waiting.iter().filter(|id| world.member_lives(**id)).count();
        assert_eq!(left, 0, "of {}", waiting.len());
        told += waiting.len();
        // The others may be waiting in shared memory.
        processes.iter().for_each(|id| world.end_process(*id));
        world.run_for(Duration::from_secs(10));
        let last = show(&mut world).last.expect("the epoch has ended");
        assert_eq!((last.epoch, last.job, last.state()), (1, job, JobState::Failed));
        assert!(last.cause.starts_with("rank 1: its process"), "{}", last.cause);
        world.run();
        let info = world.assert_ended(job, JobState::Failed, 1);
        let cause = info.cause.expect("a cause");
        assert!(
            cause.rank == 1 && format!("{:?}", cause.how).contains("ended without MPI_Finalize"),
            "{:?}",
            cause.how
        );
        world.assert_at_rest();
    }
    assert!(told > 0);
}

/// Six members on three nodes wait for each other. The member with rank 1, which is not on the head's node, dies while its daemon
/// is down; a second later rank 0 gives up, on another node. Returns the job and the node of rank 1.
fn an_unreported_death(world: &mut World, down: Duration) -> (u64, u32) {
    world.group_program = world.program(|_, _, _| vec![Op::Init, Op::Mapping, Op::Hang]);
    let wish = |rank: u32| GroupJoin { rank: Some(rank), ..actors(6) };
    let processes: Vec<u64> = [0, 1, 1, 2, 2, 0]
        .into_iter()
        .zip(0..)
        .map(|(at, rank)| world.process(at, Duration::ZERO, wish(rank)))
        .collect();
    world.run_while(|world| processes.iter().any(|id| !world.member_lives(*id)));
    let job = world.processes[&processes[0]].go().expect("all members got go").job;
    let node = world.node(1);
    world.after(Duration::ZERO, Event::Fault(Fault::Restart(1, down)));
    world.run_for(Duration::from_secs(2));
    world.end_process(processes[1]);
    world.run_for(Duration::from_secs(1));
    world.end_process(processes[0]);
    world.run();
    (job, node)
}

#[test]
fn a_death_that_is_reported_late_becomes_the_cause() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        let (job, node) = an_unreported_death(&mut world, Duration::from_secs(6));
        let info = world.assert_ended(job, JobState::Failed, 1);
        let cause = info.cause.expect("a cause");
        assert_eq!((cause.rank, cause.node, &cause.note[..]), (1, node, ""), "{cause:?}");
        world.assert_at_rest();
    }
}

#[test]
fn a_failure_that_may_have_an_earlier_unknown_cause_says_so() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        let (job, _) = an_unreported_death(&mut world, Duration::from_secs(50));
        let cause = world.assert_ended(job, JobState::Failed, 1).cause.expect("a cause");
        assert_eq!(cause.rank, 0, "{cause:?}");
        assert_eq!(cause.note, "node n1 was unreachable; a rank there may have failed earlier");
    }
}

/// Members with rsd's library can pass without a fence if all members share a node; members with other libraries cannot.
/// A client may have seen the members end before the daemons know of it.
#[test]
fn a_stop_without_force_waits_a_moment_for_a_group_that_ends() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = world(seed, 3);
        world.group_program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let members: Vec<u64> = (0..3).map(|machine| world.process(machine, Duration::ZERO, actors(3))).collect();
        world.run_for(Duration::from_secs(5));
        assert_one_world(&world, &members, 1);
        let stopped = world.rng.index(3);

        let refused = world.call(stopped, Call::Shutdown { force: false });
        world.run_for(Duration::from_millis(1500));
        let answer = world.answered(refused).expect("it is refused, because the members go on");
        assert!(!matches!(answer, Answer::Stopping { .. }), "{answer:?}");

        let stop = world.call(stopped, Call::Shutdown { force: false });
        let pause = world.rng.within(Duration::from_millis(400));
        world.run_for(pause);
        assert!(world.answered(stop).is_none(), "the members may be ending");
        members.iter().for_each(|id| world.end_process(*id));
        world.run();
        let answer = world.answered(stop);
        assert!(matches!(answer, Some(Answer::Stopping { .. })), "{answer:?}");
        let left = (0..3).filter(|id| world.machines[*id].daemon.is_some()).count();
        assert_eq!(left, if stopped == 0 { 0 } else { 2 });
    }
}

#[test]
fn members_with_different_mpi_libraries_are_refused() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let (nodes, size) = ([1, 2, 4][seed as usize % 3], 8);
        let mut world = world(seed, nodes);
        // The first rank that uses the other library; may be beyond the last rank.
        let (border, ours_first) = (1 + world.rng.below(u64::from(size)) as u32, world.rng.chance(2));
        world.group_program = world.program(move |rank, _, _| {
            let end = [Op::Fence, Op::Finalize, Op::Exit(0)];
            let (question, end) = match ((rank < border) == ours_first, nodes) {
                (true, 1) => (Op::Try(Box::new(Op::Get(AT_ONCE_KEY.into(), String::new()))), &end[1..]),
                (true, _) => (Op::Try(Box::new(Op::Get(AT_ONCE_KEY.into(), String::new()))), &end[..]),
                (false, _) => (Op::Mapping, &end[..]),
            };
            [Op::Init, question].into_iter().chain(end.iter().cloned()).collect()
        });
        let processes = crowd(&mut world, nodes, size);
        world.run_while(|world| processes.iter().any(|id| world.processes[id].go().is_none()));
        let job = world.processes[&processes[0]].go().expect("the member got go").job;
        world.run_for(Duration::from_secs(10));
        assert!(processes.iter().all(|id| !world.member_lives(*id)));
        world.run();
        if border == size {
            assert_ended_well(&mut world, job);
            world.assert_at_rest();
            continue;
        }
        let info = world.assert_ended(job, JobState::Failed, 1);
        let cause = info.cause.expect("a cause");
        let how = format!("{:?}", cause.how);
        assert!(how.contains("all members of a group must use the same MPI library"), "{how}");
        let is_ours = (cause.rank < border) == ours_first;
        let named = if is_ours { "uses rsd's MPI library, but rank" } else { "uses another MPI library than rank" };
        assert!(how.contains(named), "{how}");
        world.assert_at_rest();
    }
}

#[test]
fn a_member_that_never_connects_is_named_and_ends_the_epoch() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = world(seed, 2);
        let processes = crowd(&mut world, 2, 4);
        let lazy = processes[0];
        // The member keeps running and does not call MPI_Init.
        world.processes.get_mut(&lazy).expect("the process exists").lazy = true;
        world.run_while(|world| world.processes[&lazy].go().is_none());
        let rank = world.processes[&lazy].go().expect("the member got go").rank;
        world.run();
        let job = world.processes[&lazy].go().expect("the member got go").job;
        let info = world.assert_ended(job, JobState::Failed, 247);
        let cause = info.cause.expect("a cause");
        assert_eq!(cause.rank, rank);
        assert!(format!("{:?}", cause.how).contains("within 60 s after the group was complete"), "{:?}", cause.how);
        world.assert_at_rest();
    }
}

#[test]
fn a_timeout_names_the_waiting_members_and_the_number_of_missing_ones() {
    let mut world = world(1, 2);
    let wishes = [0, 1, 3].map(|rank| {
        let join = GroupJoin { rank: Some(rank), timeout_ms: Some(10_000), ..actors(5) };
        world.process(rank as usize % 2, Duration::from_secs(u64::from(rank)), join)
    });
    world.run();
    let [a, b, c] = wishes;
    let (code, text) = world.processes[&a].refusal();
    let wanted = format!(
        "group actors timed out after 10 s: 3 of 5 members have joined; here: n0: pid {a} (waiting 10 s); n1: pid {b} (waiting 8 s), pid {c} \
         (waiting 6 s); missing: 2 (ranks 2 4)"
    );
    assert_eq!((code, text), (124, &wanted[..]));
    let (_, text) = world.processes[&c].refusal();
    assert!(text.contains("1 of 5") && text.ends_with("missing: 4 (ranks 0 1 2 4)"), "{text}");
    world.assert_at_rest();
}

#[test]
fn another_size_a_taken_rank_and_another_user_are_refused() {
    let mut world = world(1, 2);
    let first = world.process(0, Duration::ZERO, GroupJoin { rank: Some(3), ..actors(4) });
    let at = Duration::from_secs(1);
    let other_size = world.process(1, at, actors(5));
    let clash = world.process(1, at, GroupJoin { rank: Some(3), ..actors(4) });
    let beyond = world.process(1, at, GroupJoin { rank: Some(4), ..actors(4) });
    let stranger = world.process(1, at, GroupJoin { uid: 1001, ..actors(4) });
    let unknown = world.process(1, at, GroupJoin { group: "critics".into(), size: None, ..actors(4) });
    world.run_for(Duration::from_secs(5));
    let said = |world: &World, id: u64| {
        let (code, text) = world.processes[&id].refusal();
        (code, text.to_owned())
    };
    let expected =
        format!("group actors has 4 members (requested first by pid {first} on n0); this process requests 5 members");
    assert_eq!(said(&world, other_size), (243, expected));
    assert_eq!(said(&world, clash), (243, format!("rank 3 of group actors is taken by pid {first} on n0")));
    assert!(said(&world, beyond).1.contains("rank 4 is out of range, use 0 to 3"));
    let (code, text) = said(&world, stranger);
    assert!(code == 245 && text.contains("belongs to uid 1000, this process to uid 1001"), "{text}");
    assert!(said(&world, unknown).1.contains("gives no size to create it"));
    assert!(world.processes[&first].answers.is_empty(), "the first member still waits");
    world.end_process(first);
    world.run();
    world.assert_at_rest();
}

#[test]
fn members_with_export_get_an_address_and_need_no_mpi() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 4, 4, Tuning { arity: 2, ..Tuning::default() });
        world.group_program = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(100)), Op::Exit(0)]);
        let exporting = GroupJoin { export: "torch".into(), ..actors(7) };
        let mut processes: Vec<u64> =
            (0..6).map(|at| world.process(at % 4, Duration::from_secs(at as u64), exporting.clone())).collect();
        // One member exports nothing and gets no address.
        processes.push(world.process(3, Duration::ZERO, actors(7)));
        world.run_while(|world| processes.iter().any(|id| world.processes[id].go().is_none()));
        for (at, id) in processes.iter().enumerate() {
            let go = world.processes[id].go().expect("all members are present");
            let master = go.env.lines().find(|line| line.starts_with("MASTER_PORT="));
            assert_eq!(master, (at < 6).then_some("MASTER_PORT=23456"), "{}", go.env);
        }
        let job = world.processes[&processes[0]].go().expect("all members are present").job;
        world.run();
        world.assert_ended(job, JobState::Done, 0);
    }
}

#[test]
fn a_group_with_a_minimum_begins_when_no_further_member_joins() {
    let mut world = world(1, 2);
    let rules = GroupRules { name: "actors".into(), min: 2, max: 5, settle_ms: Some(3000), ..GroupRules::default() };
    assert!(matches!(call(&mut world, GroupCall::Create(rules)), Answer::Group(_)));
    let sizeless = GroupJoin { size: None, ..actors(0) };
    let processes =
        [0, 2, 4].map(|second| world.process(second as usize % 2, Duration::from_secs(second), sizeless.clone()));
    let begun = world.now;
    world.run_while(|world| world.processes[&processes[2]].go().is_none());
    let took = world.now - begun;
    assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(8), "{took:?}");
    world.run_for(Duration::from_secs(5));
    let job = assert_one_world(&world, &processes, 1);
    assert_ended_well(&mut world, job);
    assert!(matches!(call(&mut world, GroupCall::Close("actors".into())), Answer::Group(_)));
    world.run();
    world.assert_at_rest();
}

#[test]
fn a_kicked_member_and_a_member_of_a_closed_group_get_the_reason() {
    let mut world = world(1, 2);
    let kicked = world.process(0, Duration::ZERO, actors(3));
    let waits = world.process(1, Duration::ZERO, actors(3));
    world.run_for(Duration::from_secs(1));
    let pid = u32::try_from(kicked).expect("small");
    let kick = |pid, node: &str| GroupCall::Kick { name: "actors".into(), pid, node: node.into() };
    assert!(matches!(call(&mut world, kick(99_999, "")), Answer::Refused(_)));
    assert!(matches!(call(&mut world, kick(pid, "n1")), Answer::Refused(_)));
    assert!(matches!(call(&mut world, kick(pid, "n0")), Answer::Group(_)));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.processes[&kicked].refusal(), (130, "removed from group actors by rsctl group kick"));
    assert!(matches!(call(&mut world, GroupCall::Close("actors".into())), Answer::Group(_)));
    let late = world.process(1, Duration::from_secs(1), actors(3));
    world.run_for(Duration::from_secs(2));
    for id in [waits, late] {
        let (code, text) = world.processes[&id].refusal();
        assert!(code == 243 && text.contains("rsctl group create actors --size N reopens it"), "{text}");
    }
    world.run();
    assert!(matches!(call(&mut world, GroupCall::Get("actors".into())), Answer::Refused(_)), "the group is forgotten");
    world.assert_at_rest();
}
