//! The limit on open files in ranks that use rsd's MPI library: each pair of ranks on a node takes descriptors.

use std::time::Duration;

use rsd_tests::{Dvm, Mpi, Options};

const RANKS: u32 = 40;

fn run(dvm: &Dvm, limit: &str) -> rsd_tests::Call {
    let program = Mpi::Ours.program("mpi/everybody.c");
    let script = format!("{limit}; exec {program}");
    dvm.rsctl(["run", "-n", &RANKS.to_string(), "sh", "-c", &script]).deadline(Duration::from_secs(120))
}

#[test]
fn many_ranks_of_a_node_are_connected_above_the_soft_limit() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: RANKS, args: Vec::new() });
    let printed = run(&dvm, "ulimit -Sn 100; ulimit -Hn 1024").ok();
    assert!(printed.starts_with("everybody"), "{printed}");
}

#[test]
fn a_hard_limit_that_is_too_low_is_named() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: RANKS, args: Vec::new() });
    let ended = run(&dvm, "ulimit -n 100").end();
    assert!(!ended.status.success());
    let said = ended.err();
    assert!(said.contains("open files") || said.contains("cannot open more files"), "{said}");
    assert!(said.contains("ulimit -Hn"), "{said}");
}
