//! What a DVM does, phase by phase.

use std::time::Duration;

use rsd_core::JobId;
use rsd_core::rsd::{Answer, Call};
use rsd_proto::v1::{App, JobSpec, JobState, OnNodeLoss};

use crate::dvm::{Dvm, RANKS};
use crate::meter::Cost;

/// The phases, in the order of a run.
pub(crate) const PHASES: [&str; 15] = [
    "formation",
    "launch",
    "fence, 0 bytes",
    "fence, 100 bytes a rank",
    "gets of 8 keys by each rank",
    "gets of rank 0's key",
    "loads of all nodes",
    "restart of the head",
    "one get after it",
    "gets of all keys by one node",
    "exit",
    "a job of one rank",
    "cancel",
    "loss of a node",
    "loss, the job continues",
];

/// What each rank puts before the second fence.
const BYTES_PUT: usize = 100;
/// The fence before which it does.
const PUT_BEFORE: u64 = 2;

/// The costs of all phases with so many nodes.
pub(crate) fn run(nodes: usize) -> Vec<Cost> {
    let mut dvm = Dvm::new();
    let mut costs = Vec::new();
    let mut phase = |dvm: &mut Dvm, act: &mut dyn FnMut(&mut Dvm)| {
        let began = std::time::Instant::now();
        dvm.begin();
        act(dvm);
        let cost = dvm.end();
        eprintln!("{nodes} nodes: {} took {:?}", PHASES[costs.len()], began.elapsed());
        costs.push(cost);
    };
    phase(&mut dvm, &mut |dvm| {
        while dvm.len() < nodes {
            dvm.join();
        }
    });
    let mut job = 0;
    phase(&mut dvm, &mut |dvm| job = launch(dvm, nodes, OnNodeLoss::End));
    for (fence, bytes) in [(1, 0), (PUT_BEFORE, BYTES_PUT)] {
        phase(&mut dvm, &mut |dvm| {
            dvm.steps(job, |leaf| leaf.fence(bytes));
            assert!(
                dvm.leaves.values().all(|leaf| leaf.fences_passed() == fence),
                "every step has passed fence {fence}"
            );
        });
    }
    phase(&mut dvm, &mut |dvm| get(dvm, job, |_| true, &|rank| eight_others(rank, nodes as u32)));
    phase(&mut dvm, &mut |dvm| get(dvm, job, |_| true, &|_| vec![0]));
    phase(&mut dvm, &mut |dvm| {
        let req = dvm.call(Call::ListNodes { load: true });
        let Some(Answer::Nodes(known)) = dvm.answers.remove(&req) else { panic!("the loads are not known") };
        assert!(known.len() == nodes && known.iter().all(|node| node.load.is_some()));
    });
    phase(&mut dvm, &mut Dvm::restart_head);
    // One that the node of a model does not know.
    let unknown = nodes as u32 / 2 * RANKS;
    phase(&mut dvm, &mut |dvm| get(dvm, job, |index| index + 2 == nodes, &|_| vec![unknown]));
    // The last node has a real step, whose ranks get as MPICH does in MPI_Init: each its part.
    let is_last = |index| index + 1 == nodes;
    let part = nodes as u32;
    phase(&mut dvm, &mut |dvm| {
        get(dvm, job, is_last, &|rank| (rank % RANKS * part..(rank % RANKS + 1) * part).collect());
    });
    phase(&mut dvm, &mut |dvm| {
        dvm.steps(job, crate::leaf::Leaf::exit);
        assert_eq!(state(dvm, job), JobState::Done);
    });
    phase(&mut dvm, &mut |dvm| {
        let job = submit(dvm, 1, OnNodeLoss::End);
        dvm.steps(job, crate::leaf::Leaf::exit);
        assert_eq!(state(dvm, job), JobState::Done);
    });
    let cancelled = launch(&mut dvm, nodes, OnNodeLoss::End);
    phase(&mut dvm, &mut |dvm| {
        dvm.call(Call::Cancel { job: cancelled, grace_ms: None });
        assert_eq!(state(dvm, cancelled), JobState::Cancelled);
    });
    let job = launch(&mut dvm, nodes, OnNodeLoss::End);
    phase(&mut dvm, &mut |dvm| {
        lose_last(dvm, 2);
        assert_eq!(state(dvm, job), JobState::Failed);
    });
    let job = launch(&mut dvm, nodes - 1, OnNodeLoss::Continue);
    phase(&mut dvm, &mut |dvm| {
        lose_last(dvm, 3);
        assert_eq!(state(dvm, job), JobState::Running);
    });
    costs
}

/// All ranks of some nodes get what others have put.
fn get(dvm: &mut Dvm, job: JobId, is_on: impl Fn(usize) -> bool, others: &dyn Fn(u32) -> Vec<u32>) {
    let mut index = 0;
    dvm.steps(job, |leaf| {
        index += 1;
        if is_on(index - 1) { leaf.get(PUT_BEFORE, others) } else { Vec::new() }
    });
    assert!(dvm.leaves.values().all(|leaf| leaf.gets_left() == 0), "every get has its value");
}

/// The neighbours of a rank, as in a program whose domain is a grid: some on its own node, the others on six nodes.
fn eight_others(rank: u32, nodes: u32) -> Vec<u32> {
    let size = nodes * RANKS;
    let distances = [1, RANKS, 10 * RANKS, nodes / 3 * RANKS];
    distances.into_iter().flat_map(|distance| [(rank + distance) % size, (rank + size - distance) % size]).collect()
}

fn launch(dvm: &mut Dvm, nodes: usize, loss: OnNodeLoss) -> JobId {
    let job = submit(dvm, nodes as u32 * RANKS, loss);
    assert_eq!(dvm.leaves.keys().filter(|(_, of)| *of == job).count(), nodes);
    job
}

fn submit(dvm: &mut Dvm, ranks: u32, loss: OnNodeLoss) -> JobId {
    let apps = vec![App { argv: vec!["a.out".into()], n: Some(ranks), ..App::default() }];
    let spec = Box::new(JobSpec { apps, on_node_loss: loss.into(), ..JobSpec::default() });
    let req = dvm.call(Call::Submit { spec, random: vec![7; 44].into(), user: String::new() });
    let Some(Answer::Submitted(job)) = dvm.answers.remove(&req) else { panic!("the job was refused") };
    assert_eq!(state(dvm, job), JobState::Running);
    job
}

/// Loses a leaf of the tree, the last but so many, and waits for its grace.
fn lose_last(dvm: &mut Dvm, but: usize) {
    dvm.lose(dvm.len() - but);
    dvm.wait(Duration::from_secs(61));
}

fn state(dvm: &mut Dvm, job: JobId) -> JobState {
    let req = dvm.call(Call::GetJob(job));
    let Some(Answer::Job(info)) = dvm.answers.remove(&req) else { panic!("job {job} is unknown") };
    info.state()
}
