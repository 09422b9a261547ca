//! How ranks on several nodes find each other with rsd's MPI library: without a fence, through sockets that the step has made.

use std::time::Duration;

use rsd_tests::{Dvm, Mpi, Options, Running, eventually};

fn begun() -> String {
    Mpi::Ours.program("mpi/begun.c")
}

fn dvm(nodes: usize) -> Dvm {
    Dvm::start_with(Options { nodes, slots: 2, args: Vec::new() })
}

/// Starts two ranks on each of the nodes. Rank `late` starts late; `gate` is the prefix of the gate files.
fn start(dvm: &Dvm, nodes: usize, late: i32, gate: &str) -> Running {
    let gate = dvm.scratch().join(gate).display().to_string();
    dvm.rsctl(["run", "-n", &(2 * nodes).to_string(), &begun(), &late.to_string(), &gate]).start()
}

fn until_initialised(job: &Running, ranks: usize) {
    job.until_stdout(|out| (out.matches("initialised").count() == ranks).then_some(()));
}

fn passes(job: Running, ranks: usize) {
    let printed = job.end().ok();
    assert!(printed.contains(&format!("begun ok on {ranks}\n")), "{printed}");
}

#[test]
fn mpi_init_does_not_wait_for_a_rank_that_has_not_started() {
    for nodes in [2, 4] {
        let dvm = dvm(nodes);
        for late in [0, 2 * nodes as i32 - 1] {
            let gate = format!("gate{late}");
            let job = start(&dvm, nodes, late, &gate);
            until_initialised(&job, 2 * nodes - 1);
            // All other ranks communicate with the late one before it has started.
            dvm.file(&format!("{gate}.talk"), "");
            dvm.file(&format!("{gate}.init"), "");
            passes(job, 2 * nodes);
        }
    }
}

#[test]
fn ranks_find_each_other_after_a_leaf_was_killed_and_restarted() {
    let mut dvm = dvm(3);
    for killed in [1, 2] {
        let gate = format!("gate{killed}");
        let job = start(&dvm, 3, -1, &gate);
        until_initialised(&job, 6);
        dvm.kill(killed);
        dvm.restart(killed);
        dvm.file(&format!("{gate}.talk"), "");
        passes(job, 6);
    }
}

#[test]
fn a_request_to_an_unreachable_daemon_is_answered_after_it_reconnects() {
    let mut dvm = dvm(2);
    let job = start(&dvm, 2, -1, "gate");
    until_initialised(&job, 4);
    dvm.kill(1);
    dvm.file("gate.talk", "");
    eventually("the head marks node1 as away", Duration::from_secs(20), || {
        let nodes = dvm.json("nodes");
        (nodes["nodes"][1]["state"] == "away").then_some(())
    });
    assert!(job.runs());
    dvm.restart(1);
    passes(job, 4);
}

#[test]
fn ranks_that_choose_their_interface_exchange_addresses_themselves() {
    let dvm = dvm(2);
    let gate = dvm.file("gate", "");
    for which in ["init", "talk"] {
        dvm.file(&format!("gate.{which}"), "");
    }
    let line = ["run", "-n", "4", "-x", "RSD_MPI_INTERFACE=lo", &begun(), "-1", &gate];
    assert!(dvm.rsctl(line).ok().contains("begun ok on 4\n"));
    // A rank that sets the variable itself is too late: the sockets exist already.
    let script = format!("RSD_MPI_INTERFACE=lo exec {} -1 {gate}", begun());
    let said = dvm.rsctl(["run", "-n", "4", "sh", "-c", &script]).end().err();
    assert!(said.contains("use rsctl run -x RSD_MPI_INTERFACE=lo"), "{said}");
}

#[test]
fn a_rank_whose_listening_socket_was_closed_reports_it() {
    let dvm = dvm(2);
    let script = format!("exec 4>&-; exec {} -1 none", begun());
    let ended = dvm.rsctl(["run", "-n", "4", "sh", "-c", &script]).end();
    let said = ended.err();
    assert!(
        !ended.status.success() && said.contains("use descriptor 4 from RSD_LISTEN_FD as a listening socket"),
        "{ended}"
    );
}

#[test]
fn a_rank_that_has_ended_before_it_was_contacted_is_unreachable() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 1, args: Vec::new() });
    let line = ["run", "-n", "1", &Mpi::Ours.program("ring.c"), ":", "-n", "1", "true"];
    let ended = dvm.rsctl(line).end();
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.err().contains("rank 1 (127.0.0.1:"), "{ended}");
}
