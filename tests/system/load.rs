//! Many jobs do not make the daemons grow.

use rsd_tests::{Dvm, Options, built, processes};

/// Open files and memory of every daemon.
fn taken(dvm: &Dvm, nodes: usize) -> Vec<(usize, u64)> {
    (0..nodes)
        .map(|node| {
            let pid = dvm.pid(node);
            let files = processes::open_files(pid).expect("the daemon runs");
            let (now, _) = processes::memory_bytes(pid).expect("the daemon runs");
            (files, now)
        })
        .collect()
}

#[test]
fn two_hundred_jobs_in_a_row_leave_nothing_behind() {
    let dvm = Dvm::start(2);
    let run = |count: usize| (0..count).for_each(|_| drop(dvm.ctl("run -n 2 --map-by node true").ok()));
    run(50);
    let before = taken(&dvm, 2);
    run(150);
    for (node, (before, after)) in before.iter().zip(taken(&dvm, 2)).enumerate() {
        // A few connections may be closing, or the spare step process starting; a leak would be 150.
        assert!(after.0 <= before.0 + 10, "node{node} has {} files open, not {}", after.0, before.0);
        let grown = after.1.saturating_sub(before.1);
        // The head remembers a few hundred bytes of each ended job.
        assert!(grown < 4 << 20, "node{node} has grown by {} KiB", grown >> 10);
    }
    assert_eq!(dvm.json("ps -a")["jobs"].as_array().map(Vec::len), Some(200));
}

#[test]
fn twenty_jobs_at_once_do_not_mix() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 32, args: Vec::new() });
    let jobs: Vec<_> = (0..20)
        .map(|job| {
            let script = format!("for i in 1 2 3 4 5; do echo job {job}; done; exit {job}");
            (job, dvm.rsctl(["run", "-n", "3", "sh", "-c", &script]).start())
        })
        .collect();
    for (job, running) in jobs {
        let ended = running.end();
        assert_eq!(ended.out(), format!("job {job}\n").repeat(15));
        assert_eq!(ended.status.code(), Some(job));
    }
}

#[test]
fn twenty_mpi_jobs_at_once_queue_and_all_succeed() {
    let dvm = Dvm::start(2);
    let program = rsd_tests::Mpi::Debian.program("ring.c");
    let jobs: Vec<_> = (0..20).map(|_| dvm.rsctl(["run", "-n", "3", &program]).start()).collect();
    for job in jobs {
        assert_eq!(job.end().ok(), "token 9\n");
    }
}

#[test]
fn sixteen_daemons_form_a_dvm() {
    let dvm = Dvm::start_with(Options { nodes: 16, slots: 1, args: Vec::new() });
    let printed = dvm.ctl("run -n 16 printenv RSD_NODE_NAME").ok();
    let mut expected: Vec<String> = (0..16).map(|node| format!("node{node}")).collect();
    expected.sort_unstable();
    assert_eq!(crate::sorted(&printed), expected);
}

#[test]
fn forty_eight_daemons_launch_fence_and_end_jobs_on_all_nodes() {
    let dvm = Dvm::start_with(Options { nodes: 48, slots: 4, args: Vec::new() });
    let printed = dvm.ctl("run -n 192 printenv RSD_NODE_NAME").ok();
    let mut count = std::collections::BTreeMap::<&str, usize>::new();
    printed.lines().for_each(|name| *count.entry(name).or_default() += 1);
    assert!(count.len() == 48 && count.values().all(|ranks| *ranks == 4), "{count:?}");
    // Each rank checks what another one has put.
    let told = dvm.rsctl(["run", "-n", "192", &built::fence().display().to_string(), "5"]).start().end().ok();
    assert!(told.contains("\"ranks\":192"), "{told}");
    // Steps in reserve are there in addition; none of it grows with the number of daemons.
    for node in [1, 47] {
        let (bytes, _) = processes::memory_bytes(dvm.pid(node)).expect("the daemon runs");
        assert!(bytes < 64 << 20, "node{node} has {bytes} bytes");
    }
}
