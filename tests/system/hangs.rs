//! Steps that hang, clients that are lost while they submit, and processes that start others while they are ended.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_proto::transport::{Target, dial, dvm_client};
use rsd_proto::v1::{App, JobSpec};
use rsd_tests::{Dvm, eventually, processes};

const WITHIN: Duration = Duration::from_secs(40);

/// The process ids of the steps below a daemon, without the spare one.
fn steps(dvm: &Dvm, at: usize) -> Vec<i32> {
    children(dvm.pid(at)).into_iter().filter(|pid| !children(*pid).is_empty()).collect()
}

/// The children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

#[test]
fn ranks_of_a_step_that_hangs_are_killed_with_their_job() {
    let dvm = Dvm::start(2);
    let marker = format!("rsd-hangs-{}", std::process::id());
    let script = format!("echo up; : {marker}; while :; do sleep 0.1; done");
    let job = dvm.submit(["-n", "8", "sh", "-c", &script]);
    eventually("all ranks run", WITHIN, || (dvm.rsctl(["logs", &job]).ok().matches("up").count() == 8).then_some(()));
    // As in a system call on a file server that does not answer.
    let hung = steps(&dvm, 1);
    assert_eq!(hung.len(), 1, "{hung:?}");
    kill(Pid::from_raw(hung[0]), Signal::SIGSTOP).expect("it is a process of this user");
    dvm.rsctl(["cancel", &job]).ok();
    eventually("no rank is left", WITHIN, || processes::mentioning(&marker).is_empty().then_some(()));
    dvm.rsctl(["wait", &job]).fails(130);
    assert!(dvm.log(1).contains("a step does not answer and is killed"), "{}", dvm.log(1));
    assert_eq!(dvm.ctl("run -n 8 echo hi").ok(), "hi\n".repeat(8), "the nodes are as before");
}

#[test]
fn a_client_that_is_lost_while_it_submits_leaves_no_attached_job() {
    let dvm = Dvm::start(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be created");
    let target = Target::Unix(dvm.runtime_dir(0).join("rsd.sock"));
    runtime.block_on(async {
        for patience in (0..60).map(|at| Duration::from_micros(at * 50)) {
            let channel = dial(&target, WITHIN).await.expect("the daemon listens");
            let apps =
                vec![App { argv: vec!["sleep".into(), "1000".into()], n: Some(1), wdir: "/".into(), ..App::default() }];
            let spec = JobSpec { apps, attached: true, oversubscribe: true, ..JobSpec::default() };
            // The request is sent, and the client ends before or after it has the answer.
            let _ = tokio::time::timeout(patience, dvm_client(channel).submit(spec)).await;
        }
    });
    drop(runtime);
    eventually("no job is left", WITHIN, || dvm.json("ps")["jobs"].as_array().is_some_and(Vec::is_empty).then_some(()));
}

#[test]
fn processes_that_start_others_while_their_job_is_ended_are_caught() {
    let dvm = Dvm::start(1);
    let marker = format!("rsd-chain-{}", std::process::id());
    // Each process starts its successor and ends.
    let chain = format!(": {marker}; sleep 0.01; sh -c \"$CHAIN\" & exit");
    let script = "for i in 1 2 3 4; do sh -c \"$CHAIN\" & done; echo up; exec sleep 1000";
    for killed_step in [false, true] {
        let variable = format!("CHAIN={chain}");
        let job = dvm.submit(["-n", "2", "-x", &variable, "setsid", "-w", "sh", "-c", script]);
        eventually("both ranks run", WITHIN, || {
            (dvm.rsctl(["logs", &job]).ok().matches("up").count() == 2).then_some(())
        });
        match killed_step {
            true => steps(&dvm, 0).into_iter().for_each(|pid| {
                kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is a process of this user");
            }),
            false => drop(dvm.rsctl(["cancel", &job]).ok()),
        }
        let began = Instant::now();
        eventually("no process is left", WITHIN, || processes::mentioning(&marker).is_empty().then_some(()));
        assert!(began.elapsed() < WITHIN);
        assert_ne!(dvm.rsctl(["wait", &job]).end().status.code(), Some(0));
    }
}
