//! The tree of daemons: how it heals when inner daemons die, stop or fall silent, and what becomes of daemons that join in circles.

use std::time::Duration;

use rsd_core::Tuning;
use rsd_core::rsd::{Answer, Call};
use rsd_proto::v1::change_node_request::Change;
use rsd_proto::v1::{ChangeNodeRequest, Label, LabelNode, NodeInfo, RemoveNode};

use crate::checks::{Seed, on, replicated_max, seeds, spec};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, MachineId, World};

/// A DVM of arity 2.
fn deep(seed: u64, nodes: usize) -> World {
    World::new(
        seed,
        nodes,
        3,
        Tuning { arity: 2, output_window: 400, replicated_max: replicated_max(seed), ..Tuning::default() },
    )
}

/// A program with fences and output that takes some seconds.
fn long_program(world: &mut World) -> usize {
    world.program(|rank, size, rng| {
        let mut script = vec![Op::Init];
        for round in 0..8 {
            script.extend(ranks::rounds(rank, size, round..round + 1, rng));
            script.extend(ranks::output(rank, 2, rng));
            script.push(Op::Sleep(rng.within(Duration::from_millis(900))));
        }
        script.extend([Op::Finalize, Op::Exit(0)]);
        script
    })
}

/// Returns a random daemon with children, other than the head.
fn inner(world: &mut World) -> MachineId {
    let parents: Vec<u32> = world.nodes().iter().map(|node| node.parent).filter(|parent| *parent != 0).collect();
    let inner = world.rng.pick(&parents).expect("the tree has inner nodes");
    world.machine(inner)
}

/// Returns the names of all nodes but one.
fn all_but(world: &mut World, machine: MachineId) -> Vec<String> {
    let node = world.node(machine);
    world.nodes().into_iter().filter(|info| info.node != node).map(|info| info.name).collect()
}

/// Asserts that the tree has about the head's arity, and that every parent is a node. A daemon may take an orphan in while the head
/// is sending it another child.
fn assert_is_tree(world: &mut World) {
    let nodes = world.nodes();
    for parent in &nodes {
        let children = nodes.iter().filter(|node| node.node != 0 && node.parent == parent.node).count();
        assert!(children <= 4, "{} has {children} children", parent.name);
    }
    for node in &nodes {
        assert!(nodes.iter().any(|parent| parent.node == node.parent), "{} hangs below a lost node", node.name);
    }
}

#[test]
fn children_of_a_machine_without_power_find_another_parent_within_seconds() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 12);
        let dead = inner(&mut world);
        let hosts = all_but(&mut world, dead);
        let program = long_program(&mut world);
        let job = world.submit(on(&hosts, spec(program, hosts.len() as u32)));
        let at = world.rng.within(Duration::from_secs(1));
        world.after(at, Event::Fault(Fault::PowerOff(dead)));
        world.run_for(at + Duration::from_secs(11));
        // Its neighbours have noticed the silence of ten seconds, and no grace is over.
        world.run_for(Duration::from_secs(5));
        let away: Vec<_> = world.nodes().into_iter().filter(|node| node.state == 1).map(|node| node.name).collect();
        assert_eq!(away.len(), 1, "only the dead node is away: {away:?}");
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 11);
        assert_is_tree(&mut world);
    }
}

#[test]
fn the_tree_heals_after_many_deaths() {
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 20);
        let mut dead = Vec::new();
        for _ in 0..6 {
            let victim = 1 + world.rng.index(19);
            let at = world.rng.within(Duration::from_secs(20));
            let fault = if world.rng.chance(2) { Fault::Lose(victim) } else { Fault::PowerOff(victim) };
            world.after(at, Event::Fault(fault));
            if !dead.contains(&victim) {
                dead.push(victim);
            }
        }
        let program = long_program(&mut world);
        let hosts: Vec<String> = world
            .nodes()
            .into_iter()
            .filter(|info| !dead.iter().any(|machine| world.node(*machine) == info.node))
            .map(|info| info.name)
            .collect();
        let job = world.submit(on(&hosts, spec(program, hosts.len() as u32)));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 20 - dead.len());
        assert_is_tree(&mut world);
    }
}

#[test]
fn a_daemon_finds_its_dvm_again_when_the_daemon_that_it_named_is_gone() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 7);
        let (named, joiner) = (inner(&mut world), world.add_machine());
        world.join_at(joiner, named);
        world.run();
        assert_eq!(world.nodes_up(), 8);
        world.after(Duration::ZERO, Event::Fault(Fault::PowerOff(named)));
        world.after(Duration::from_secs(1), Event::Fault(Fault::Restart(joiner, Duration::from_secs(1))));
        world.run();
        assert_eq!(world.nodes_up(), 7, "it knows the head, which it has never been told");
        world.assert_at_rest();
    }
}

#[test]
fn daemons_that_join_themselves_or_each_other_give_up() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 6);
        let restart = |world: &mut World, machine, joins| {
            world.kill_daemon(machine);
            world.forget_ancestors(machine);
            world.join_at(machine, joins);
        };
        let circle = 1 + seed as usize % 3;
        for machine in 1..=circle {
            restart(&mut world, machine, 1 + machine % circle);
        }
        world.run_for(Duration::from_secs(20));
        let said = world.given_up.clone();
        // If the other one has just given up, nothing answers at its address.
        assert!(said.iter().any(|why| why.contains("is this daemon itself")), "the start ends: {said:?}");
        // Each attempt of a service manager costs a few connections.
        assert!(world.dials < 400, "{} attempts in 20 s", world.dials);
        world.join_at(1, 0);
        world.run();
        assert_eq!(world.nodes_up(), 6, "they join as soon as one of them names the head");
    }
}

#[test]
fn a_daemon_that_stops_hands_its_children_over_and_no_other_job_notices() {
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 12);
        let stopped = inner(&mut world);
        let hosts = all_but(&mut world, stopped);
        let program = long_program(&mut world);
        let job = world.submit(on(&hosts, spec(program, 2 * hosts.len() as u32)));
        let pause = world.rng.within(Duration::from_secs(2));
        world.run_for(pause);
        let start = world.now;
        world.call(stopped, Call::Shutdown { force: false });
        world.run_while(|world| world.machines[stopped].daemon.is_some());
        assert!(world.now < start + Duration::from_secs(1), "it stops at once: {:?}", world.now - start);
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(world.nodes().len(), 11);
        assert_is_tree(&mut world);
    }
}

#[test]
fn a_step_without_a_way_to_the_head_says_why_it_ends_its_ranks() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 6);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let job = world.submit(spec(program, 18));
        world.run_for(Duration::from_secs(1));
        let cut_off = inner(&mut world);
        world.after(Duration::ZERO, Event::Fault(Fault::Isolate(cut_off, Duration::from_secs(500))));
        let start = world.now;
        world.run_while(|world| !world.machines[cut_off].steps.is_empty());
        // Silence and grace, and then the grace of the kill.
        assert!((70..75).contains(&(world.now - start).as_secs()), "{:?}", world.now - start);
        assert!(world.warnings.iter().any(|why| why.contains("cut off from its DVM for 70 s")), "{:?}", world.warnings);
        world.assert_ended(job, rsd_proto::v1::JobState::Failed, 242);
        world.run();
        world.assert_at_rest();
        assert_eq!(world.nodes_up(), 6);
    }
}

/// Returns the answer to a change of a node.
fn change(world: &mut World, node: &str, change: Change) -> Result<NodeInfo, String> {
    let request = ChangeNodeRequest { node: node.into(), change: Some(change) };
    let req = world.call(0, Call::ChangeNode(Box::new(request)));
    match world.answered(req) {
        Some(Answer::Nodes(nodes)) => Ok(nodes[0].clone()),
        Some(Answer::Refused(refused)) => Err(refused.text),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drained_node_gets_no_ranks_until_it_is_resumed_whoever_restarts() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 6);
        let program = world.program(|rank, size, rng| {
            let mut script = ranks::mpi(rank, size, 2, rng);
            script.insert(2, Op::Sleep(Duration::from_secs(5)));
            script
        });
        let running = world.submit(spec(program, 18));
        world.run_for(Duration::from_secs(1));
        assert!(change(&mut world, "n3", Change::Drain(true)).unwrap().drained);
        world.run();
        world.assert_done(running);
        for machine in [3, 0] {
            world.after(Duration::ZERO, Event::Fault(Fault::Restart(machine, Duration::from_millis(50))));
            world.run();
        }
        let (all, there) = (world.submit(spec(program, 15)), world.submit(on(&["n3".into()], spec(program, 1))));
        world.run();
        world.assert_done(all);
        assert!(!world.job(all).node_names.contains(&"n3".to_owned()));
        assert_eq!(world.job(there).state(), rsd_proto::v1::JobState::Queued);
        assert!(!change(&mut world, "n3", Change::Drain(false)).unwrap().drained);
        world.run();
        world.assert_done(there);
        world.assert_at_rest();
    }
}

#[test]
fn nodes_are_removed_when_they_are_gone_or_stopped_on_request() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = deep(seed, 8);
        let program = world.program(|_, _, _| vec![Op::Init, Op::Fence, Op::Hang]);
        let lost = world.submit(on(&["n3".into(), "n4".into()], spec(program, 2)));
        let remove = |stop, force| Change::Remove(RemoveNode { stop, force });
        world.run_for(Duration::from_secs(1));
        assert!(change(&mut world, "n3", remove(false, false)).unwrap_err().contains("--stop"));
        assert!(change(&mut world, "n3", remove(true, false)).unwrap_err().contains("runs ranks of job"));
        assert!(change(&mut world, "n0", remove(true, true)).unwrap_err().contains("is the head"));
        world.after(Duration::ZERO, Event::Fault(Fault::Lose(3)));
        world.run_for(Duration::from_secs(3));
        change(&mut world, "n3", remove(false, false)).unwrap();
        world.run_for(Duration::from_secs(3));
        assert_eq!(world.nodes().len(), 7);
        let info = world.assert_ended(lost, rsd_proto::v1::JobState::Failed, 242);
        assert!(format!("{:?}", info.cause).contains("has been removed"), "{:?}", info.cause);
        let idle = world.submit(spec(program, 1));
        world.run_for(Duration::from_secs(1));
        change(&mut world, "n5", remove(true, true)).unwrap();
        world.run_for(Duration::from_secs(20));
        assert_eq!(world.nodes().len(), 6);
        world.call(0, Call::Cancel { job: idle, grace_ms: Some(0) });
        world.run();
        world.assert_at_rest();
    }
}

#[test]
fn nodes_are_selected_by_label_id_and_address() {
    let mut world = deep(1, 5);
    let set = |key: &str, value: &str| {
        Change::Label(LabelNode { set: vec![Label { key: key.into(), value: value.into() }], delete: Vec::new() })
    };
    for node in ["n1", "n3", "n4"] {
        assert_eq!(change(&mut world, node, set("gpu", "h200")).unwrap().labels.len(), 1);
    }
    let refused = change(&mut world, "n1", set("gpu", "a b")).unwrap_err();
    assert!(refused.contains("invalid label"), "{refused}");
    let program = world.program(|_, _, _| vec![Op::Exit(0)]);
    let mut used = |hosts: &str, n| {
        let job = world.submit(on(&[hosts.into()], spec(program, n)));
        world.run();
        let mut names = world.job(job).node_names;
        names.sort();
        names
    };
    assert_eq!(used("+gpu=h200", 9), ["n1", "n3", "n4"]);
    assert_eq!(used("+gpu=h200:2", 6).len(), 2);
    assert_eq!(used("10.0.0.2", 1), ["n2"], "by address");
    let id = world.node(4);
    let job = world.submit(on(&[format!("+id{id}")], spec(program, 1)));
    world.run();
    assert_eq!(world.job(job).node_names, ["n4"]);
}
