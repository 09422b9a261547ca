//! Processes that have initialised Open MPI without a launcher, and are attached to rsd afterwards.

use std::time::Duration;

use rsd_proto::join::client::{NotJoined, ask};
use rsd_proto::join::{Go, Join, SOCKET};
use rsd_tests::{Call, Dvm, Mpi, Options, built, client, eventually, python};

use crate::sorted;

/// A process that no launcher starts, on a node. Between daemons of one machine, Open MPI must be told to use loopback.
fn process(dvm: &Dvm, at: usize, program: &[&str]) -> Call {
    let call = dvm.call(program[0]).args(&program[1..]).dir(dvm.scratch());
    let call = call.env("PYTHONPATH", client("python")).env("RSD_DVM", dvm.state_dir(at));
    call.env("OMPI_MCA_btl_tcp_if_include", "lo").env("OMPI_MCA_pml", "ob1")
}

/// The program that attaches itself, in Python and in C.
fn programs(mpi: Mpi) -> [Vec<String>; 2] {
    let interpreter = mpi.python().expect("it brings mpi4py").display().to_string();
    let [_, script] = python("attached.py");
    [vec![interpreter, script], vec![compiled_for(mpi)]]
}

fn compiled_for(mpi: Mpi) -> String {
    mpi.program_with("attached.c", &[&format!("-I{}", client("include").display()), "-Wall", "-Werror"])
}

fn words<'a>(program: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    program.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

/// Waits until no job runs.
pub(crate) fn until_idle(dvm: &Dvm) {
    eventually("all jobs have ended", Duration::from_secs(20), || {
        dvm.json("ps")["jobs"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
}

#[test]
fn processes_that_run_already_connect_to_each_other_and_to_a_job() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 4, args: Vec::new() });
        let [script, compiled] = programs(Mpi::OpenMpi5);
        for (accepts, connects) in [(&script, &compiled), (&compiled, &script)] {
            let accepting = process(&dvm, 0, &words(accepts, &["accept"])).start();
            accepting.until_stdout(|text| text.contains("published").then_some(()));
            assert_eq!(dvm.json("ps")["jobs"][0]["command"], "singleton", "{nodes} nodes");
            let connecting = process(&dvm, nodes - 1, &words(connects, &["connect"])).end().ok();
            assert_eq!(connecting, "2 together\n", "{nodes} nodes, {connects:?}");
            assert_eq!(accepting.end().ok(), "published\n2 together\n", "{nodes} nodes, {accepts:?}");
        }
        // A server that runs already, and a job of two ranks.
        let accepting = process(&dvm, 0, &words(&script, &["accept"])).start();
        accepting.until_stdout(|text| text.contains("published").then_some(()));
        let [_, doors] = python("doors.py");
        let job = dvm.rsctl(["run", "-n", "2", "--map-by", "node", &script[0], &doors, "connect"]);
        let job = job.env("OMPI_MCA_btl_tcp_if_include", "lo").env("OMPI_MCA_pml", "ob1");
        assert_eq!(job.ok(), "3 together\n3 together\n", "{nodes} nodes");
        assert_eq!(accepting.end().ok(), "published\n3 together\n", "{nodes} nodes");
        until_idle(&dvm);
        assert!(dvm.json("ps -a")["jobs"].as_array().is_some_and(|jobs| jobs.iter().all(|job| job["exit_code"] == 0)));
    }
}

#[test]
fn what_cannot_be_attached_gets_the_reason() {
    let dvm = Dvm::start(1);
    let [script, compiled] = programs(Mpi::OpenMpi5);
    // Before MPI_Init.
    let early = process(&dvm, 0, &words(&compiled, &[])).end().fails(1);
    assert!(early.contains("refused 240: MPI is not initialised, so there is nothing to attach"), "{early}");
    let early = process(&dvm, 0, &[&script[0], "-c", "import rsd_join; rsd_join.attach()"]).end().fails(1);
    assert!(early.contains("JoinError: MPI is not initialised, so there is nothing to attach"), "{early}");
    // Without a daemon.
    for program in [&script, &compiled] {
        let lost = process(&dvm, 0, &words(program, &["accept"])).env("RSD_DVM", "nosuch").end().fails(1);
        assert!(lost.contains("no such daemon is running") && lost.contains("rsd start"), "{lost}");
    }
    // With a launcher.
    let launched = process(&dvm, 0, &[&built::rsctl().display().to_string(), "run", "-n", "1", &compiled[0], "accept"]);
    let launched = launched.end().fails(1);
    assert!(launched.contains("refused 240: this process has a process manager already"), "{launched}");
    // Open MPI 4.1.
    let interpreter = Mpi::OpenMpi4.python().expect("it brings mpi4py").display().to_string();
    for program in [vec![interpreter, script[1].clone()], vec![compiled_for(Mpi::OpenMpiDebian)]] {
        let old = process(&dvm, 0, &words(&program, &["accept"])).env("OMPI_MCA_ess_singleton_isolated", "1");
        let old = old.end().fails(1);
        assert!(old.contains("cannot attach Open MPI v4.1.") && old.contains("join before"), "{old}");
    }
    // MPICH.
    let [interpreter, script] = python("attached.py");
    for program in [vec![interpreter, script], vec![compiled_for(Mpi::Debian)]] {
        let other = process(&dvm, 0, &words(&program, &["accept"])).end().fails(1);
        assert!(other.contains("cannot attach MPICH Version: ") && other.contains("only Open MPI 5"), "{other}");
    }
}

#[test]
fn an_attached_process_that_ends_without_finalize_ends_its_job_and_nothing_else() {
    let dvm = Dvm::start(1);
    let [script, _] = programs(Mpi::OpenMpi5);
    let other = process(&dvm, 0, &words(&script, &["accept"])).start();
    other.until_stdout(|text| text.contains("published").then_some(()));
    let ends = "from mpi4py import MPI, rc; import os, rsd_join; print(rsd_join.attach().job, flush=True); os._exit(3)";
    let ended = process(&dvm, 0, &[&script[0], "-c", ends]).end();
    assert_eq!(ended.status.code(), Some(3), "{ended}");
    let job: u64 = ended.out().trim().parse().expect("it prints its job");
    let waited = dvm.rsctl(["wait", &job.to_string()]).end();
    assert_ne!(waited.status.code(), Some(0), "{waited}");
    let left = dvm.json("ps");
    assert_eq!(left["jobs"].as_array().map(Vec::len), Some(1), "{left}");
    let connecting = process(&dvm, 0, &words(&script, &["connect"])).end().ok();
    assert_eq!(connecting, "2 together\n");
    assert_eq!(sorted(&other.end().ok()), ["2 together", "published"]);
}

#[test]
fn two_processes_of_one_name_are_not_attached_at_a_time() {
    let dvm = Dvm::start(1);
    let socket = dvm.runtime_dir(0).join(SOCKET);
    let attach = |name: &str| -> Result<Go, NotJoined> {
        ask(&socket, Join { namespace: Some(name.to_owned()), ..Join::default() }, |_| ())
    };
    let first = attach("singleton.a.17").expect("the name is free");
    assert_eq!((first.namespace.as_str(), first.node.as_str(), first.size), ("singleton.a.17", "a", 1));
    let refused = attach("singleton.a.17").expect_err("the name is taken").to_string();
    assert!(refused.contains("is attached already, as job 1: "), "{refused}");
    attach("singleton.a.18").expect("the name is free");
    let refused = attach("rsd-a-1").expect_err("it is the name of a job").to_string();
    assert!(refused.contains("which calls itself singleton.HOST.PID"), "{refused}");
    dvm.rsctl(["cancel", "1"]).end();
    eventually("the first has ended", Duration::from_secs(20), || {
        (dvm.json("ps")["jobs"].as_array()?.len() == 1).then_some(())
    });
    let again = attach("singleton.a.17").expect("the name is free again");
    assert!(again.job > first.job);
}
