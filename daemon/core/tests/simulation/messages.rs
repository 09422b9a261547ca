//! The messages between daemons that a job costs: N - 1 to launch on N nodes, 2(N - 1) per fence, N - 1 for the exits, none per
//! rank. A job of several nodes also sends N - 1 messages with the addresses of its ranks, and one question and one answer over
//! each link below which a rank asks for an address.

use std::time::Duration;

use rsd_core::Tuning;
use rsd_proto::v1::{EnvVar, JobSpec};

use crate::checks::{Seed, on, seeds, spec};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};

fn arity(arity: usize) -> Tuning {
    Tuning { arity, ..Tuning::default() }
}

#[test]
fn a_job_on_every_node_costs_what_the_tree_costs() {
    for (seed, nodes, width, slots, fences) in [
        (1, 1, 32, 4, 2),
        (2, 2, 32, 4, 3),
        (3, 3, 2, 4, 3),
        (4, 31, 2, 3, 2),
        (5, 40, 3, 2, 2),
        (6, 33, 32, 4, 2),
        (7, 34, 32, 4, 2),
        (8, 100, 32, 4, 2),
        (9, 70, 2, 1, 2),
    ] {
        let _seed = Seed(seed);
        let mut world = World::new(seed, nodes, slots, arity(width));
        let program = world.program(move |rank, size, rng| ranks::mpi(rank, size, fences, rng));
        for map_by in ["slot", "node"] {
            world.traffic.clear();
            let mut spec = spec(program, nodes as u32 * slots);
            spec.map_by = map_by.into();
            let job = world.submit(spec);
            world.run();
            world.assert_done(job);
            world.assert_at_rest();
            assert_costs(&world, nodes, fences as usize);
        }
    }
}

#[test]
fn a_job_on_a_thousand_nodes_costs_what_the_tree_costs() {
    let _seed = Seed(1);
    let nodes = 1024;
    let mut world = World::new(1, nodes, 1, arity(32));
    world.traffic.clear();
    let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 1, rng));
    let job = world.submit(spec(program, nodes as u32));
    world.run();
    world.assert_done(job);
    world.assert_at_rest();
    assert_costs(&world, nodes, 1);
}

#[test]
fn an_export_costs_one_more_fence() {
    for (seed, nodes, fences) in [(1, 1, 2), (2, 2, 0), (3, 31, 2)] {
        let _seed = Seed(seed);
        let mut world = World::new(seed, nodes, 2, arity(2));
        world.traffic.clear();
        let program = world.program(move |rank, size, rng| ranks::mpi(rank, size, fences, rng));
        let job = world.submit(JobSpec { export: "torch".into(), ..spec(program, nodes as u32 * 2) });
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_costs(&world, nodes, fences as usize + 1);
    }
}

#[test]
fn a_launch_is_repeated_only_for_nodes_that_have_missed_it() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let nodes = 31;
        let mut world = World::new(seed, nodes, 2, arity(5));
        let program = world.program(|_, _, _| {
            vec![Op::Init, Op::Fence, Op::Sleep(Duration::from_secs(20)), Op::Finalize, Op::Exit(0)]
        });
        let job = world.submit(spec(program, nodes as u32 * 2));
        world.run_for(Duration::from_secs(5));
        world.traffic.clear();
        // The head, whose nodes all have the launch, and an inner daemon, whose step brings it.
        for restarted in [0, 1] {
            world.after(Duration::ZERO, Event::Fault(Fault::Restart(restarted, Duration::from_millis(100))));
            world.run_for(Duration::from_secs(5));
        }
        assert_eq!((world.count("launch"), world.count("missed")), (0, 0));
        assert!((nodes - 1..3 * nodes).contains(&world.count("check")), "{}", world.count("check"));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

#[test]
fn a_restarted_head_gets_the_result_of_the_last_fence_over_one_link() {
    for seed in seeds(10) {
        let _seed = Seed(seed);
        let nodes = 31;
        let mut world = World::new(seed, nodes, 2, arity(5));
        let program = world.program(|rank, _, _| {
            let put = |value: &str| Op::Put(format!("key-{rank}"), value.into());
            let pause = Op::Sleep(Duration::from_secs(20));
            vec![Op::Init, put("1"), Op::Fence, pause, put("2"), Op::Fence, Op::Finalize, Op::Exit(0)]
        });
        let job = world.submit(spec(program, nodes as u32 * 2));
        world.run_for(Duration::from_secs(5));
        world.traffic.clear();
        world.after(Duration::ZERO, Event::Fault(Fault::Restart(0, Duration::from_millis(100))));
        world.run_for(Duration::from_secs(5));
        assert_eq!(["want result", "fence up"].map(|kind| world.count(kind)), [1, 1], "{:?}", world.traffic);
        // A child whose offer came after the result.
        assert!(world.count("fence down") < 5, "{:?}", world.traffic);
        assert!(world.count("passed") >= 5, "each child of the head offers it");
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
    }
}

fn assert_costs(world: &World, nodes: usize, fences: usize) {
    let edges = nodes - 1;
    let kinds = ["launch", "located", "fence up", "fence down", "done", "release"];
    let counts = kinds.map(|kind| world.count(kind));
    assert_eq!(counts, [edges, edges, fences * edges, fences * edges, edges, edges], "{kinds:?} on {nodes} nodes");
    let (asked, answered) = (world.count("locate"), world.count("locations"));
    assert!(asked == answered && asked <= edges, "{asked} questions and {answered} answers on {nodes} nodes");
    let total = counts.iter().sum::<usize>() + asked + answered;
    assert_eq!(total, world.traffic.len(), "nothing else is sent: {:?}", world.traffic);
}

#[test]
fn a_question_for_addresses_and_its_answer_use_each_link_once() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 23, 2, arity(2));
        let nodes = world.nodes();
        let parent = |node: u32| nodes.iter().find(|it| it.node == node).map_or(0, |it| it.parent);
        let depth =
            |node: u32| std::iter::successors(Some(node), |node| Some(parent(*node))).position(|node| node == 0);
        let asking = world.rng.pick(&(0..46).collect::<Vec<u32>>()).expect("46 ranks");
        world.traffic.clear();
        // Both ranks of one node ask for the addresses of all ranks, twice.
        let program = world.program(move |rank, size, _| {
            let mut script = vec![Op::Init];
            if rank / 2 == asking / 2 {
                script.extend((0..2 * size).map(|other| Op::Locate(other % size)));
            }
            script.extend([Op::Finalize, Op::Exit(0)]);
            script
        });
        let job = world.submit(spec(program, 46));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        let map = world.job(job).map.expect("it ran");
        let node = map.nodes[asking as usize / 2];
        let way = depth(node).expect("every node is below the head");
        let counts = ["located", "locate", "locations"].map(|kind| world.count(kind));
        assert_eq!(counts, [22, way, way], "node {node} asked");
    }
}

#[test]
fn addresses_are_not_sent_if_ranks_choose_them_or_share_a_node() {
    let _seed = Seed(1);
    let mut world = World::new(1, 5, 4, arity(2));
    let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
    let chosen = EnvVar { name: "RSD_MPI_INTERFACE".into(), value: "eth1".into() };
    let alone = on(&["n3".into()], spec(program, 4));
    for job in [JobSpec { env: vec![chosen], ..spec(program, 20) }, alone] {
        world.traffic.clear();
        let job = world.submit(job);
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        assert_eq!(["located", "locate", "locations"].map(|kind| world.count(kind)), [0; 3]);
    }
}

#[test]
fn a_job_within_a_subtree_fences_within_it() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 23, 2, arity(2));
        let nodes = world.nodes();
        // An inner node that has children, and its children.
        let parents: Vec<u32> = nodes.iter().filter(|n| n.node != 0).map(|n| n.parent).filter(|p| *p != 0).collect();
        let top = world.rng.pick(&parents).expect("23 nodes of arity 2 have inner nodes");
        let members: Vec<_> = nodes.iter().filter(|n| n.node != 0 && (n.node == top || n.parent == top)).collect();
        let hosts: Vec<String> = members.iter().map(|node| node.name.clone()).collect();
        let ids: Vec<u32> = members.iter().map(|node| node.node).collect();
        world.traffic.clear();
        let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 3, rng));
        let job = world.submit(on(&hosts, spec(program, 2 * hosts.len() as u32)));
        world.run();
        world.assert_done(job);
        world.assert_at_rest();
        let machines: Vec<usize> = ids.into_iter().map(|id| world.machine(id)).collect();
        let fences: Vec<_> = world.traffic.iter().filter(|(kind, ..)| kind.starts_with("fence")).collect();
        assert_eq!(fences.len(), 3 * 2 * (machines.len() - 1));
        assert_eq!(
            world.count("located"),
            machines.len() - 1,
            "the job's topmost daemon has all addresses and sends none further up"
        );
        assert!(fences.iter().all(|(_, from, to)| machines.contains(from) && machines.contains(to)), "{fences:?}");
    }
}
