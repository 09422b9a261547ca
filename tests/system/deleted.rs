//! Somebody deletes the state directory of a daemon that runs.

use std::fs;
use std::time::Duration;

use rsd_tests::{Dvm, Options, built, eventually};

use crate::MPIS;

const SOON: Duration = Duration::from_secs(20);

/// Waits until a daemon has created its directory again and answers in it.
fn answers(dvm: &Dvm, at: usize) {
    let state_dir = dvm.state_dir(at);
    eventually("the daemon answers again", SOON, || {
        let status = dvm.call(built::rsd()).args(["status", "--json", "--dvm"]).args([&state_dir]).end();
        status.status.success().then_some(())
    });
}

#[test]
fn no_second_daemon_starts_and_no_job_is_lost_when_state_directories_are_deleted() {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 2, args: Vec::new() });
    for (at, mpi) in MPIS.into_iter().enumerate() {
        let ended = dvm.submit(["-n", "1", "echo", "short"]);
        dvm.rsctl(["wait", &ended]).ok();
        let gate = dvm.scratch().join(format!("gate{at}"));
        let job = dvm.rsctl(["run", "-n", "6", &mpi.program("gated.c")]).args([&gate]).start();
        job.until_stdout(|out| out.contains("computing").then_some(()));

        for node in 0..3 {
            fs::remove_dir_all(dvm.state_dir(node)).unwrap();
            let second = dvm.call(built::rsd()).args(["start", "--name", &format!("node{node}")]);
            let said = second.fails(249);
            assert!(said.contains(&format!("(pid {})", dvm.pid(node))), "{said}");
        }
        (0..3).for_each(|node| answers(&dvm, node));
        let lost = dvm.rsctl(["logs", &ended]).fails(248);
        assert!(lost.contains("the rest of the job's output is lost: cannot read "), "{lost}");

        // The step has created its file again: the next daemon of this node finds the step.
        let step = dvm.state_dir(1).join("steps");
        eventually("the step's file is back", SOON, || fs::read_dir(&step).ok()?.next().map(drop));
        dvm.kill(1);
        dvm.restart(1);
        assert!(job.runs());
        dvm.file(&format!("gate{at}"), "");
        let printed = job.end().ok();
        let expected: Vec<String> =
            ["computing".to_owned()].into_iter().chain((0..6).map(|rank| format!("rank {rank}: right"))).collect();
        assert_eq!(crate::sorted(&printed), expected, "{mpi:?}");
        eventually("no step's file is left", SOON, || fs::read_dir(&step).unwrap().next().is_none().then_some(()));
    }
}

#[test]
fn what_a_job_prints_is_kept_when_its_head_loses_the_directory_meanwhile() {
    let dvm = Dvm::start(1);
    let gate = dvm.scratch().join("gate");
    let script = format!("echo before; while ! test -e {}; do sleep 0.02; done; seq 1 20000; exit 3", gate.display());
    let job = dvm.submit(["-n", "2", "sh", "-c", &script]);
    let follower = dvm.rsctl(["logs", "-f", &job]).start();
    follower.until_stdout(|out| (out.matches("before").count() == 2).then_some(()));
    fs::remove_dir_all(dvm.state_dir(0)).unwrap();
    answers(&dvm, 0);
    dvm.file("gate", "");
    let lines = 2 * (1 + 20000);
    assert_eq!(follower.end().out().lines().count(), lines);
    dvm.rsctl(["wait", &job]).fails(3);
    assert_eq!(dvm.rsctl(["logs", &job]).end().out().lines().count(), lines);
    // The next job has a log and a launch in the new directory.
    assert_eq!(dvm.ctl("run -n 1 echo next").ok(), "next\n");
}

#[test]
fn deleted_directories_of_a_daemon_with_its_state_elsewhere_are_created_again() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let (runtime, elsewhere) = (dvm.scratch().join("run"), dvm.scratch().join("state"));
    let rsd = |words: &[&str]| dvm.call(built::rsd()).env("RSD_RUNTIME_DIR", &runtime).args(words);
    let state = elsewhere.display().to_string();
    rsd(&["start", "--name", "far", "--state-dir", &state]).ok();
    fs::remove_dir_all(&runtime).unwrap();
    eventually("the sockets are back", SOON, || rsd(&["status", "--dvm", "far"]).end().status.success().then_some(()));
    rsd(&["status", "--dvm", &state]).ok();
    fs::remove_dir_all(&elsewhere).unwrap();
    eventually("the directory is back, and the daemon has said so", SOON, || {
        let is_back = rsd(&["status", "--dvm", &state]).end().status.success();
        let log = fs::read_to_string(elsewhere.join("rsd.log")).ok()?;
        (is_back && log.contains("the state directory was deleted; created it again")).then_some(())
    });
    rsd(&["stop", "--dvm", "far"]).ok();
    assert!(!runtime.join("far").exists());
}
