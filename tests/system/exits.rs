//! How jobs end: exit codes, the first cause, and that nothing is left behind.

use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Dvm, Mpi, Running, eventually, processes};

use crate::MPIS;
use crate::groups::member;

/// A way to end, the job's exit code, and the reported cause.
const ENDS: [(&str, i32, &str); 6] = [
    ("abort", 7, "called MPI_Abort with code 7"),
    ("segv", 128 + 11, "was killed by SIGSEGV"),
    ("exit3", 3, "exited with code 3"),
    ("exit0", 1, "exited with code 0"),
    ("finalize5", 5, "exited with code 5"),
    ("noinit", 1, "exited with code 0"),
];

#[test]
fn a_failed_rank_ends_the_job_on_one_node() {
    bad_ends(1, Mpi::Debian, 1);
    bad_ends(1, Mpi::Wheel, 0);
}

#[test]
fn a_failed_rank_ends_the_job_on_four_nodes() {
    bad_ends(4, Mpi::Debian, 3);
    bad_ends(4, Mpi::Wheel, 2);
}

fn bad_ends(nodes: usize, mpi: Mpi, rank: usize) {
    let dvm = Dvm::start(nodes);
    let program = mpi.program("ends.c");
    let node = rank * nodes / 4;
    for (how, code, told) in ENDS {
        let job = dvm.rsctl(["run", "-n", "4", "--map-by", "node", &program, how, &rank.to_string()]).end();
        let story = job.to_string();
        let said = job.fails(code);
        let cause = format!("failed: rank {rank} on node{node} {told}");
        assert!(said.contains(&cause), "{how}, {mpi:?}: {cause:?} is not in\n{story}");
        assert_eq!(said.matches("failed: rank").count(), 1, "the first cause is reported once\n{story}");
        // The last lines of the rank are shown once, as output, and not again with the cause.
        let words = if how == "noinit" { "leaves without MPI".to_owned() } else { format!("ends by {how}") };
        assert_eq!(said.matches(&words).count(), 1, "{story}");
    }
}

#[test]
fn messages_of_the_mpi_library_name_the_job_by_the_number_that_rsctl_shows() {
    let dvm = Dvm::start(1);
    let program = Mpi::Ours.program("ends.c");
    dvm.ctl("run -n 1 true").ok();
    let ended = dvm.rsctl(["run", "-n", "2", &program, "mistake", "1"]).end();
    assert!(ended.err().contains("MPI error on rank 1 of job 2: MPI_Send: "), "{ended}");
    // Members of a group outlive each other, so the library reports the death of one to the other.
    let start =
        |rank: u32| member(&dvm, 0, &format!("actors --size 2 --rank {rank}"), &[&program, "exit3", "1"]).start();
    let members = [start(0), start(1)];
    let [ended, _] = members.map(Running::end);
    assert!(ended.err().contains("MPI error on rank 0 of job 3: "), "{ended}");
    assert!(ended.err().contains("rank 1 of job 3"), "{ended}");
    // Without a launcher there is no job number.
    let alone = dvm.call(&program).args(["mistake"]).env("RSD_MPI_SINGLETON", "alone").end();
    assert!(alone.err().contains("MPI error on rank 0: MPI_Send: "), "{alone}");
}

#[test]
fn ranks_killed_because_of_a_failure_are_counted() {
    let dvm = Dvm::start(2);
    for mpi in MPIS {
        let said = dvm.rsctl(["run", "-n", "8", &mpi.program("ends.c"), "segv", "5"]).fails(139);
        assert!(said.contains("rank 5 on node1 was killed by SIGSEGV"), "{said}");
        assert!(said.contains("7 other ranks were ended because of it"), "{said}");
    }
}

#[test]
fn programs_without_mpi_may_exit_independently() {
    let dvm = Dvm::start(2);
    let script = "sleep 0.$RSD_RANK; echo $RSD_RANK; exit $((RSD_RANK % 2 * RSD_RANK))";
    let job = dvm.rsctl(["run", "-n", "4", "sh", "-c", script]).end();
    assert_eq!(crate::sorted(&job.out()), ["0", "1", "2", "3"], "the failure of one rank does not affect the others");
    let said = job.fails(1);
    assert!(said.contains("rank 1 on node0 exited with code 1"), "{said}");
    assert!(said.contains("also failed: rank 3"), "{said}");
}

#[test]
fn the_exit_code_for_a_killed_rank_is_128_plus_the_signal() {
    let dvm = Dvm::start(1);
    let said = dvm.rsctl(["run", "-n", "1", "sh", "-c", "kill -USR1 $$"]).fails(128 + 10);
    assert!(said.contains("SIGUSR1"), "{said}");
}

#[test]
fn the_last_lines_of_a_submitted_job_are_reported_with_its_cause() {
    let dvm = Dvm::start(1);
    let job = dvm.submit(["-n", "1", "sh", "-c", "echo out of luck >&2; exit 4"]);
    let said = dvm.rsctl(["wait", &job]).fails(4);
    assert!(said.contains("rank 0 on node0 exited with code 4"), "{said}");
    assert!(said.contains("| out of luck"), "{said}");
}

#[test]
fn a_job_is_killed_at_its_timeout() {
    let dvm = Dvm::start(2);
    let said = dvm.rsctl(["run", "-n", "2", "--timeout", "300ms", "--kill-grace", "1s", "sleep", "1000"]).fails(124);
    assert!(said.contains("timed out (--timeout)"), "{said}");
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed_after_the_grace() {
    let dvm = Dvm::start(1);
    let stubborn = "trap '' TERM; echo up; while :; do sleep 1000; done";
    let job = dvm.rsctl(["run", "-n", "2", "--kill-grace", "200ms", "sh", "-c", stubborn]).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    dvm.ctl("cancel last").ok();
    assert!(job.end().fails(130).contains("cancelled"));
}

#[test]
fn a_rank_that_handles_sigterm_can_clean_up() {
    let dvm = Dvm::start(1);
    let tidy = "trap 'echo tidied; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let job = dvm.rsctl(["run", "-n", "1", "sh", "-c", tidy]).start();
    job.until_stdout(|out| out.contains("up").then_some(()));
    dvm.ctl("cancel last").ok();
    let job = job.end();
    assert_eq!(job.out(), "up\ntidied\n");
    job.fails(130);
}

#[test]
fn ctrl_c_cancels_a_job_and_a_second_one_kills_it() {
    let dvm = Dvm::start(1);
    let stubborn = "trap '' TERM; echo up; while :; do sleep 1000; done";
    let job = dvm.rsctl(["run", "-n", "1", "--kill-grace", "1000s", "sh", "-c", stubborn]).start();
    job.until_stdout(|out| out.contains("up").then_some(()));
    job.signal(Signal::SIGINT);
    job.until_stderr(|err| err.contains("cancelling job 1").then_some(()));
    job.signal(Signal::SIGINT);
    assert!(job.end().fails(130).contains("killing job 1"));
}

#[test]
fn a_lost_client_cancels_its_run() {
    let dvm = Dvm::start(2);
    let job = dvm.rsctl(["run", "-n", "8", "sh", "-c", "echo up; sleep 1000"]).start();
    job.until_stdout(|out| (out.matches("up").count() == 8).then_some(()));
    job.signal(Signal::SIGKILL);
    drop(job);
    eventually("the job is cancelled", Duration::from_secs(20), || {
        (dvm.json("job show last")["state"] == "cancelled").then_some(())
    });
}

#[test]
fn a_lost_client_does_not_affect_its_submitted_jobs() {
    let dvm = Dvm::start(1);
    let gate = dvm.scratch().join("gate");
    let script = format!("while ! test -e {}; do sleep 0.02; done; echo through", gate.display());
    let job = dvm.submit(["-n", "1", "sh", "-c", &script]);
    // `submit` has exited long ago.
    assert_eq!(dvm.json("job show last")["state"], "running");
    dvm.file("gate", "");
    dvm.rsctl(["wait", &job]).ok();
    assert_eq!(dvm.rsctl(["logs", &job]).ok(), "through\n");
}

#[test]
fn children_in_their_own_sessions_end_with_the_job() {
    let dvm = Dvm::start(2);
    let mark = format!("hidden-{}", dvm.scratch().display());
    let script = format!("HIDDEN={mark} setsid sh -c 'echo hidden; exec sleep 1000' & sleep 0.2; echo seen");
    let job = dvm.rsctl(["run", "-n", "4", "sh", "-c", &script]).end();
    assert_eq!(crate::sorted(&job.ok()), ["hidden"; 4].into_iter().chain(["seen"; 4]).collect::<Vec<_>>());
    assert_eq!(processes::mentioning(&mark), []);
}

#[test]
fn an_aborted_job_leaves_no_shared_memory() {
    let dvm = Dvm::start(2);
    for how in ["abort", "segv", "exit3"] {
        dvm.rsctl(["run", "-n", "8", &Mpi::Wheel.program("ends.c"), how]).end();
    }
    let names = dvm.namespaces();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| !name.is_empty()), "{names:?}");
    // Dropping the DVM checks that their segments are gone.
}
