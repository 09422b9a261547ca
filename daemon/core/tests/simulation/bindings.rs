//! The cpus, memory and GPUs of ranks: as planned, exclusive where requested, and free again afterwards.

use std::time::Duration;

use rsd_core::place::topology::{Kind, Topology};
use rsd_core::rsd::{Answer, Call};
use rsd_core::step::MemoryBinding;
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{
    self as wire, Inventory, JobSpec, JobState, Plan, PlanRefusal, PlanRequest, job_event, plan_reply::Outcome,
};

use crate::checks::{Seed, on, seeds, spec};
use crate::ranks::{self, Op};
use crate::rng::Rng;
use crate::world::{Event, Fault, World};

/// Returns a machine of this shape with a slot per core. The kernel counts its threads backwards, so that mixed-up numbers show.
fn machine(counts: &[(Kind, u32)]) -> Inventory {
    let regular = Topology::regular(counts).expect("a machine");
    let mut topology = wire::Topology::from(&regular);
    topology.threads.reverse();
    let slots = regular.objects(Kind::Core).len() as u32;
    Inventory { slots, slots_reason: format!("{slots} cores"), topology: Some(topology), ..Inventory::default() }
}

fn server() -> Inventory {
    machine(&[(Kind::Package, 2), (Kind::Numa, 1), (Kind::L3, 2), (Kind::Core, 2), (Kind::Thread, 2)])
}

fn laptop() -> Inventory {
    machine(&[(Kind::Package, 1), (Kind::Core, 4)])
}

fn any_machine(rng: &mut Rng) -> Inventory {
    let mut inventory = match rng.below(3) {
        0 => server(),
        1 => laptop(),
        _ => machine(&[(Kind::Core, 3), (Kind::Thread, 2)]),
    };
    if rng.chance(3) {
        let threads = inventory.topology.as_ref().map_or(0, |topology| topology.threads.len() as u32);
        inventory.usable = vec![wire::Range { first: 1, count: threads - 2 }];
    }
    if rng.chance(2) {
        let gpu = |index| wire::Gpu { index, uuid: format!("GPU-{index}"), ..wire::Gpu::default() };
        inventory.gpus = (0..4).map(gpu).collect();
    }
    inventory
}

fn bound(spec: JobSpec, bind_to: &str) -> JobSpec {
    JobSpec { bind_to: bind_to.into(), ..spec }
}

fn ask(world: &mut World, spec: &JobSpec, idle: bool) -> Result<Plan, PlanRefusal> {
    let request = PlanRequest { spec: Some(spec.clone()), idle, topology: String::new() };
    let req = world.call(0, Call::Plan(Box::new(request)));
    match world.answered(req) {
        Some(Answer::Plan(reply)) => match reply.outcome {
            Some(Outcome::Plan(plan)) => Ok(plan),
            Some(Outcome::Refused(refused)) => Err(refused),
            None => panic!("an empty plan"),
        },
        other => panic!("plan: {other:?}"),
    }
}

/// Returns the kernel's cpus of a job's ranks.
fn cpus(world: &World, job: JobId, ranks: u32) -> Vec<Vec<u32>> {
    (0..ranks).map(|rank| world.records[&(job, rank)].bound.cpus.clone()).collect()
}

fn notices(world: &World, job: JobId) -> Vec<String> {
    let events = world.logs.get(&job).into_iter().flatten();
    let notice = |event: &wire::JobEvent| match &event.body {
        Some(job_event::Body::Notice(text)) => Some(text.clone()),
        _ => None,
    };
    events.filter_map(notice).collect()
}

/// Asserts that every rank has what the plan says, in the kernel's numbers.
fn assert_as_planned(world: &mut World, job: JobId, plan: &Plan) {
    let info = world.job(job);
    assert_eq!((&info.map, &info.bindings), (&plan.map, &plan.bindings), "job {job}");
    let map =
        rsd_core::taskmap::TaskMap::try_from(plan.map.clone().expect("a plan has a map")).expect("the map is valid");
    for (node, id) in plan.nodes.iter().zip(map.nodes()) {
        let topology = Topology::try_from(&plan.topologies[node.topology as usize]).expect("the topology is valid");
        let binding = &plan.bindings[node.binding as usize];
        for (rank, binding) in map.ranks_on(*id).zip(&binding.ranks) {
            let threads = rsd_core::plan::cpu_set(&binding.threads, topology.threads());
            let record = &world.records[&(job, rank)];
            assert_eq!(record.bound.cpus, topology.os_threads(&threads), "rank {rank} of job {job}");
            let told = |name: &str| record.env.iter().find_map(|var| var.strip_prefix(name)).map(str::to_owned);
            assert_eq!(told("RSD_CPUS=").is_some(), !threads.is_empty());
            let gpus = binding.gpus.iter().map(|place| node.gpus[*place as usize].index.to_string());
            let gpus: Vec<String> = gpus.collect();
            assert_eq!(told("RSD_GPUS=").unwrap_or_default(), gpus.join(","));
        }
    }
}

#[test]
fn jobs_run_as_planned() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut rng = Rng::new(seed + 77);
        let inventories = (0..5).map(|_| any_machine(&mut rng)).collect();
        let mut world = World::of(seed, inventories, Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|_, _, rng| vec![Op::Sleep(rng.within(Duration::from_millis(5))), Op::Exit(0)]);
        let mut planned = 0;
        for _ in 0..8 {
            let pick = |rng: &mut Rng, of: &[&str]| rng.pick(of).expect("a choice").to_owned();
            let spec = JobSpec {
                map_by: pick(&mut rng, &["", "slot", "node", "core", "package", "slot:pe=2", "ppr:1:package"]),
                bind_to: pick(&mut rng, &["", "", "core", "hwthread", "package", "none", "core:overload-allowed"]),
                mem_bind: pick(&mut rng, &["", "local", "interleave"]),
                gpus_per_rank: if rng.chance(4) { 1 } else { 0 },
                ..spec(program, 1 + rng.below(10) as u32)
            };
            let Ok(plan) = ask(&mut world, &spec, false) else { continue };
            planned += 1;
            let job = world.submit(spec);
            if rng.chance(2) {
                world.run();
            } else {
                // All ranks are started before the next job is planned.
                let ranks = world.job(job).ranks;
                world.run_while(|world| (0..ranks).any(|rank| !world.records.contains_key(&(job, rank))));
            }
            assert_as_planned(&mut world, job, &plan);
        }
        assert!(planned > 0);
        world.run();
        world.assert_at_rest();
        // When no job is left, nothing is held.
        let all = ask(&mut world, &spec(program, 1), false).expect("the DVM is idle");
        assert!(all.nodes.iter().all(|node| node.taken.is_empty() && node.in_use == 0), "{:?}", all.nodes);
    }
}

#[test]
fn requested_cpus_are_exclusive_until_the_job_ends() {
    let mut world = World::of(1, vec![Inventory { slots: 8, ..laptop() }], Tuning::default());
    let sleep = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(10)), Op::Exit(0)]);
    let longer = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(20)), Op::Exit(0)]);
    let first = world.submit(bound(spec(sleep, 2), "core"));
    let second = world.submit(bound(spec(longer, 1), "core"));
    world.run_for(Duration::from_secs(1));
    assert_eq!(cpus(&world, first, 2), [[3], [2]]);
    assert_eq!(cpus(&world, second, 1), [[1]]);
    let refused = ask(&mut world, &bound(spec(sleep, 2), "core"), false).expect_err("only one core is left");
    assert!(refused.text.contains("2 ranks, 1 free core"), "{}", refused.text);
    assert_eq!(ask(&mut world, &bound(spec(sleep, 2), "core"), true).map(|plan| plan.app_sizes), Ok(vec![2]));

    let third = world.submit(bound(spec(sleep, 2), "core"));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.job(third).state(), JobState::Queued);
    world.run();
    assert_eq!(cpus(&world, third, 2), [[3], [2]], "the cpus of the first job");
    world.assert_at_rest();
}

#[test]
fn default_cpus_are_not_exclusive() {
    let mut world = World::of(2, vec![laptop()], Tuning::default());
    let sleep = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(10)), Op::Exit(0)]);
    let default = world.submit(spec(sleep, 2));
    let asked = world.submit(bound(spec(sleep, 2), "core"));
    world.run_for(Duration::from_secs(1));
    assert_eq!(cpus(&world, default, 2).concat().len(), 4, "each rank has its share of the node");
    assert_eq!(cpus(&world, asked, 2).concat().len(), 2);
    assert_eq!(world.job(asked).state(), JobState::Running);
    world.run();
    world.assert_at_rest();
}

#[test]
fn each_node_binds_by_its_own_topology() {
    let mut world = World::of(3, vec![server(), laptop()], Tuning::default());
    let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
    let job = world.submit(JobSpec { mem_bind: "local".into(), ..bound(spec(program, 12), "core") });
    world.run();
    world.assert_done(job);
    let cpus = cpus(&world, job, 12);
    assert_eq!((&cpus[0], &cpus[7], &cpus[8], &cpus[11]), (&vec![14, 15], &vec![0, 1], &vec![3], &vec![0]));
    let memory = |rank| world.records[&(job, rank)].bound.memory.clone();
    assert_eq!((memory(0), memory(7)), (Some(MemoryBinding::Only(vec![0])), Some(MemoryBinding::Only(vec![1]))));
    assert_eq!(memory(8), None, "a laptop has one kind of memory");
}

#[test]
fn a_gpu_belongs_to_one_rank_and_is_named_by_uuid_on_request() {
    let gpu = |index: u32| wire::Gpu { index, uuid: format!("GPU-{index}"), ..wire::Gpu::default() };
    let inventory = Inventory { gpus: (0..3).map(gpu).collect(), ..laptop() };
    let mut world = World::of(4, vec![inventory], Tuning::default());
    let sleep = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(1)), Op::Exit(0)]);
    let with = |n, gpus_visible| JobSpec { gpus_per_rank: 1, gpus_visible, ..spec(sleep, n) };
    let (first, second) = (world.submit(with(2, true)), world.submit(with(1, false)));
    let third = world.submit(with(1, false));
    world.run_for(Duration::from_millis(500));
    assert_eq!(world.job(third).state(), JobState::Queued, "only three GPUs exist");
    let told = |world: &World, job: JobId, rank: u32, name: &str| {
        world.records[&(job, rank)].env.iter().find_map(|var| var.strip_prefix(name)).map(str::to_owned)
    };
    let visible = [0, 1].map(|rank| told(&world, first, rank, "CUDA_VISIBLE_DEVICES="));
    assert_eq!(visible, [Some("GPU-0".to_owned()), Some("GPU-1".to_owned())]);
    assert_eq!(told(&world, second, 0, "CUDA_VISIBLE_DEVICES="), None);
    assert_eq!(told(&world, second, 0, "RSD_GPUS="), Some("2".to_owned()));
    assert_eq!(world.nodes()[0].gpus_in_use, [0, 1, 2]);
    world.run();
    assert_eq!(world.nodes()[0].gpus_in_use, [0; 0]);
    let given = told(&world, third, 0, "RSD_GPUS=");
    assert!(["0", "2"].contains(&given.as_deref().unwrap_or("none")), "that of the job that ended first: {given:?}");
    world.assert_at_rest();
}

#[test]
fn with_another_machines_topology_ranks_run_unbound_with_one_notice() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let imagined = Inventory { imagined: true, ..server() };
        let mut world = World::of(seed, vec![imagined; 3], Tuning { arity: 2, ..Tuning::default() });
        let program = world.program(|rank, size, rng| ranks::mpi(rank, size, 2, rng));
        for _ in 0..3 {
            let at = world.rng.within(Duration::from_millis(10));
            world.after(at, Event::Fault(Fault::CutAnyStep));
        }
        let job = world.submit(on(&["n2".into(), "n1".into()], bound(spec(program, 16), "core")));
        world.run();
        world.assert_done(job);
        assert!(cpus(&world, job, 16).concat().is_empty());
        let mut said = notices(&world, job);
        said.sort();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("n1: the ranks are not bound") && said[1].starts_with("n2: "), "{said:?}");
        world.assert_at_rest();
    }
}

#[test]
fn ranks_that_cannot_be_bound_run_unbound_unless_the_binding_was_requested() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::of(seed, vec![laptop(), laptop()], Tuning::default());
        world.machines[1].refuses_binding = true;
        let program = world.program(|_, _, rng| vec![Op::Sleep(rng.within(Duration::from_millis(5))), Op::Exit(0)]);
        for _ in 0..2 {
            let at = world.rng.within(Duration::from_millis(10));
            world.after(at, Event::Fault(Fault::CutAnyStep));
        }
        let default = world.submit(spec(program, 8));
        world.run();
        world.assert_done(default);
        let refuses = rsd_core::taskmap::TaskMap::try_from(world.job(default).map.expect("it was placed"));
        let node = world.node(1);
        let ranks: Vec<u32> = refuses.expect("the map is valid").ranks_on(node).collect();
        let (first, last) = (ranks[0], ranks[3]);
        assert_eq!(notices(&world, default), [format!("n1: ranks {first}-{last} run unbound: its cpuset has changed")]);
        let asked = world.submit(bound(spec(program, 8), "core"));
        world.run();
        let info = world.assert_ended(asked, JobState::Failed, 247);
        let how = info.cause.and_then(|cause| cause.how);
        assert_eq!(how, Some(wire::rank_exit::How::Failed("its cpuset has changed".into())));
        world.assert_at_rest();
    }
}

#[test]
fn a_daemon_plans_on_its_own_nodes_only() {
    let mut world = World::of(5, vec![laptop()], Tuning::default());
    let program = world.program(|_, _, _| vec![Op::Exit(0)]);
    for (request, expected) in [
        (PlanRequest { spec: Some(spec(program, 1)), topology: "pu:2".into(), idle: true }, "rsctl plan --topology"),
        (PlanRequest::default(), "has no job to plan"),
        (PlanRequest { spec: Some(JobSpec::default()), ..PlanRequest::default() }, "has no program"),
    ] {
        let req = world.call(0, Call::Plan(Box::new(request)));
        let Some(Answer::Refused(refused)) = world.answered(req) else { panic!("{expected}: not refused") };
        assert!(refused.text.contains(expected), "{}", refused.text);
    }
    let wrong = JobSpec { map_by: "nood".into(), ..spec(program, 1) };
    assert!(ask(&mut world, &wrong, false).is_err_and(|refused| refused.text.contains("nood")));
}
