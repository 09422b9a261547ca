//! Daemons that stop and restart while jobs run.

use std::time::Duration;

use rsd_tests::{Dvm, Mpi, Options, Running, built, eventually};

use crate::MPIS;
use crate::groups::member;

#[test]
fn a_leaf_is_killed_and_restarted_during_compute() {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 2, args: Vec::new() });
    for (at, mpi) in MPIS.into_iter().enumerate() {
        let gate = dvm.scratch().join(format!("gate{at}"));
        let job = dvm.rsctl(["run", "-n", "6", &mpi.program("gated.c")]).args([&gate]).start();
        job.until_stdout(|out| out.contains("computing").then_some(()));
        dvm.kill(2);
        dvm.restart(2);
        assert!(job.runs());
        dvm.file(&format!("gate{at}"), "");
        let printed = job.end().ok();
        let expected: Vec<String> =
            ["computing".to_owned()].into_iter().chain((0..6).map(|rank| format!("rank {rank}: right"))).collect();
        assert_eq!(crate::sorted(&printed), expected, "{mpi:?}");
    }
    let nodes = dvm.json("nodes");
    let states: Vec<_> = nodes["nodes"].as_array().into_iter().flatten().map(|node| &node["state"]).collect();
    assert_eq!(states, ["up", "up", "up"], "the node keeps its id");
}

#[test]
fn a_leaf_is_killed_and_restarted_during_a_fence() {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 2, args: Vec::new() });
    for (at, mpi) in MPIS.into_iter().enumerate() {
        let gate = dvm.scratch().join(format!("gate{at}"));
        let job = dvm.rsctl(["run", "-n", "6", &mpi.program("late_init.c")]).args([&gate]).start();
        job.until_stdout(|out| (out.matches("entering").count() == 5).then_some(()));
        dvm.kill(1);
        dvm.restart(1);
        dvm.file(&format!("gate{at}"), "");
        assert!(job.end().ok().contains("6 ranks met"), "{mpi:?}");
    }
}

#[test]
fn a_fence_completes_when_the_leaf_returns_after_all_ranks_have_entered() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args: Vec::new() });
    for (at, mpi) in MPIS.into_iter().enumerate() {
        let gate = dvm.scratch().join(format!("gate{at}"));
        let job = dvm.rsctl(["run", "-n", "4", &mpi.program("late_init.c")]).args([&gate]).start();
        job.until_stdout(|out| (out.matches("entering").count() == 3).then_some(()));
        dvm.kill(1);
        dvm.file(&format!("gate{at}"), "");
        eventually("the head marks node1 as away", Duration::from_secs(20), || {
            let nodes = dvm.json("nodes");
            (nodes["nodes"][1]["state"] == "away").then_some(())
        });
        dvm.restart(1);
        assert!(job.end().ok().contains("4 ranks met"), "{mpi:?}");
    }
}

#[test]
fn output_and_exit_codes_from_the_time_without_a_daemon_are_kept() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 1, args: Vec::new() });
    let gate = dvm.scratch().join("gate");
    let wait = format!("while ! test -e {}; do sleep 0.02; done", gate.display());
    let done = dvm.scratch().join("done");
    let script = format!("echo up; {wait}; seq 1 20000; touch {}$RSD_RANK; exit $((RSD_RANK * 4))", done.display());
    let job = dvm.rsctl(["run", "-n", "2", "-l", "sh", "-c", &script]).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    dvm.kill(1);
    dvm.file("gate", "");
    eventually("rank 1 has filled its pipe or exited", Duration::from_secs(20), || {
        dvm.scratch().join("done0").exists().then_some(())
    });
    dvm.restart(1);
    let job = job.end();
    let printed = job.out();
    for rank in 0..2 {
        let label = format!("[{rank}] ");
        let numbers: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix(&label)).skip(1).collect();
        let wrong = (1..=20_000).zip(&numbers).find(|(expected, line)| line.parse() != Ok(*expected));
        assert_eq!(wrong, None, "unexpected line of rank {rank}");
        assert_eq!(numbers.len(), 20_000, "lines of rank {rank}");
    }
    job.fails(4);
}

#[test]
fn a_daemon_that_is_restarted_without_jobs_is_the_same_node() {
    let mut dvm = Dvm::start(2);
    dvm.kill(1);
    dvm.restart(1);
    assert_eq!(dvm.ctl("run -n 8 echo hello").ok(), "hello\n".repeat(8));
    assert_eq!(dvm.json("nodes")["nodes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_killed_head_gives_clients_a_clear_error() {
    let mut dvm = Dvm::start(1);
    let job = dvm.rsctl(["run", "--reconnect", "0", "-n", "2", "sh", "-c", "echo up; exec sleep 1000"]).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    dvm.kill(0);
    let said = job.end().fails(242);
    assert!(said.contains("lost the daemon while job 1 ran"), "{said}");
    let said = dvm.ctl("ps").fails(241);
    assert!(said.contains("rsd start"), "{said}");
    // The job has lost its client, which does not come back.
    dvm.restart(0);
    dvm.ctl("wait 1").fails(130);
}

#[test]
fn a_job_whose_client_is_gone_ends_after_a_restart_of_the_head() {
    let mut dvm = Dvm::start(1);
    let job = dvm.rsctl(["run", "--reconnect", "1s", "-n", "2", "sh", "-c", "echo up; exec sleep 1000"]).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    dvm.kill(0);
    job.signal(nix::sys::signal::Signal::SIGKILL);
    dvm.restart(0);
    dvm.ctl("wait 1").fails(130);
    let events = dvm.ctl("events").ok();
    assert!(events.contains("job 1 is being ended: the client that ran it has lost its connection"), "{events}");
}

/// Runs a job on node0 through the daemon of node1, and waits until it runs.
fn run_through_node1(dvm: &Dvm, reconnect: &str, script: &str) -> Running {
    let run = ["--dvm", "node1", "run", "--host", "node0", "-n", "2", "--reconnect", reconnect, "sh", "-c", script];
    let job = dvm.rsctl(run).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    job
}

#[test]
fn a_job_goes_on_when_the_daemon_between_its_client_and_the_head_is_restarted() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args: Vec::new() });
    let gate = dvm.scratch().join("gate");
    let script =
        format!("echo up; seq 1000; while ! test -e {}; do sleep 0.02; done; seq 1000; exit 7", gate.display());
    let job = run_through_node1(&dvm, "1m", &script);
    // Twice: a client that has come back is as good as the first one.
    for _ in 0..2 {
        dvm.kill(1);
        let times = job.stderr().matches("the daemon is back").count();
        dvm.restart(1);
        job.until_stderr(|said| (said.matches("the daemon is back").count() > times).then_some(()));
    }
    dvm.file("gate", "");
    let ended = job.end();
    let count: u64 = ended.out().lines().filter_map(|line| line.parse::<u64>().ok()).sum();
    assert_eq!(count, 4 * (1..=1000).sum::<u64>(), "each line once from each rank\n{ended}");
    ended.fails(7);
}

#[test]
fn a_job_ends_when_its_client_dies_or_the_daemon_between_does_not_return() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args: Vec::new() });
    let job = run_through_node1(&dvm, "5m", "echo up; exec sleep 1000");
    job.signal(nix::sys::signal::Signal::SIGKILL);
    dvm.ctl("wait 1").deadline(Duration::from_secs(20)).fails(130);
    let events = dvm.ctl("events").ok();
    assert!(events.contains("job 1 is being ended: the client that ran it has disconnected"), "{events}");

    // Also one that has come back.
    let job = run_through_node1(&dvm, "5m", "echo up; exec sleep 1000");
    dvm.kill(1);
    dvm.restart(1);
    job.until_stderr(|said| said.contains("the daemon is back").then_some(()));
    job.signal(nix::sys::signal::Signal::SIGKILL);
    dvm.ctl("wait 2").deadline(Duration::from_secs(20)).fails(130);

    let job = run_through_node1(&dvm, "2s", "echo up; exec sleep 1000");
    dvm.kill(1);
    dvm.ctl("wait 3").deadline(Duration::from_secs(20)).fails(130);
    let events = dvm.ctl("events").ok();
    assert!(events.contains("job 3 is being ended: the client that ran it has lost its connection"), "{events}");
    job.end().fails(242);
    dvm.restart(1);
}

#[test]
fn a_daemon_that_stops_with_keep_jobs_continues_them_at_its_next_start() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args: Vec::new() });
    let gate = dvm.scratch().join("gate");
    let wait = format!("echo up; while ! test -e {}; do sleep 0.02; done; echo done", gate.display());
    let job = dvm.rsctl(["run", "-n", "4", "sh", "-c", &wait]).start();
    job.until_stdout(|out| (out.matches("up").count() == 4).then_some(()));
    for node in [1, 0] {
        let stop = dvm.call(built::rsd()).args(["stop", "--keep-jobs", "--dvm"]).args([dvm.state_dir(node)]);
        let stopped = stop.ok();
        assert!(stopped.contains("its jobs wait for its next start"), "{stopped}");
        dvm.restart(node);
    }
    dvm.file("gate", "");
    let job = job.end();
    assert_eq!(job.out().matches("done").count(), 4);
    job.ok();
}

#[test]
fn no_job_number_is_used_twice() {
    let mut dvm = Dvm::start(1);
    let submit = |dvm: &Dvm| {
        let job: u64 = dvm.submit(["-n", "1", "true"]).parse().expect("a number");
        dvm.ctl("wait last").ok();
        job
    };
    assert_eq!((submit(&dvm), submit(&dvm)), (1, 2));
    dvm.terminate(0);
    dvm.restart(0);
    assert_eq!(submit(&dvm), 3);
    // A killed head may have used any of the numbers that it had reserved.
    dvm.kill(0);
    dvm.restart(0);
    assert!(submit(&dvm) > 3);
}

#[test]
fn an_epoch_survives_the_death_of_its_head_and_the_next_epoch_has_the_next_number() {
    let mut dvm = Dvm::start(2);
    for (at, mpi) in MPIS.into_iter().enumerate() {
        let gate = dvm.scratch().join(format!("gate{at}")).display().to_string();
        let program = mpi.program("late_init.c");
        let start = |number: usize| member(&dvm, number % 2, "actors --size 4", &[&program, &gate]).start();
        let members: Vec<Running> = (0..4).map(start).collect();
        let entering = || members.iter().filter(|member| member.stdout().contains("entering")).count() == 3;
        eventually("all but rank 0 are in MPI_Init", Duration::from_secs(20), || entering().then_some(()));
        dvm.kill(0);
        dvm.restart(0);
        dvm.file(&format!("gate{at}"), "");
        let said: Vec<String> = members.into_iter().map(|member| member.end().ok()).collect();
        assert!(said.iter().any(|said| said.contains("4 ranks met")), "{mpi:?}: {said:?}");
        eventually("the epoch has ended", Duration::from_secs(20), || {
            let group = dvm.json("group show actors");
            let last = &group["last"];
            (group["epoch"] == at + 2 && last["epoch"] == at + 1 && last["state"] == "done").then_some(())
        });
    }
}

#[test]
fn a_head_that_is_restarted_knows_names_values_and_groups_with_their_rules() {
    let mut dvm = Dvm::start(1);
    let names = Mpi::Ours.program("names.c");
    let holder = member(&dvm, 0, "server --size 1", &[&names, "hold", "ocean", "1"]).start();
    holder.until_stdout(|out| out.contains("published").then_some(()));
    dvm.ctl("kv put id --group server --value 0123").ok();
    dvm.ctl("group create shut --size 2").ok();
    dvm.ctl("group close shut").ok();
    let told = |dvm: &Dvm| {
        let questions = ["name ls", "group show server", "group show shut", "kv ls --group server"];
        questions.map(|words| dvm.json(words))
    };
    let before = told(&dvm);
    dvm.terminate(0);
    dvm.restart(0);
    assert_eq!(told(&dvm), before);
    assert_eq!(dvm.ctl("kv get id --group server").ok(), "0123");
    let refused = member(&dvm, 0, "shut", &["true"]).end().fails(243);
    assert!(refused.contains("group shut is closed"), "{refused}");
    dvm.call(&names).args(["connect", "ocean", "1"]).ok();
    assert_eq!(holder.end().ok(), "published\nnames ok on 1\n");

    // Stopping a DVM removes its groups.
    dvm.ctl("group create kept --size 2").ok();
    dvm.call(built::rsd()).args(["stop"]).ok();
    dvm.restart(0);
    assert_eq!(dvm.json("group ls")["groups"], serde_json::json!([]));

    // A new DVM does not read the file that another DVM has left.
    dvm.ctl("group create left --size 2").ok();
    dvm.kill(0);
    std::fs::remove_file(dvm.state_dir(0).join("identity.json")).expect("the file exists");
    dvm.restart(0);
    assert_eq!(dvm.json("group ls")["groups"], serde_json::json!([]));
}

/// Its end is recorded at once, so a head that is killed then may not have written it to the log.
#[test]
fn the_log_of_a_job_that_never_started_has_its_end_after_a_kill_of_the_head() {
    let mut dvm = Dvm::start(1);
    let [partial, lost, array]: [String; 3] = ["-n 1 --hold true", "-n 1 --hold true", "-n 1 --hold --array 1-3 true"]
        .map(|words| dvm.submit(words.split_whitespace()));
    let log = |dvm: &Dvm, job: &str| dvm.state_dir(0).join("jobs").join(format!("{job}.log"));
    for job in [&partial, &lost, &array] {
        dvm.ctl(&format!("cancel {job}")).ok();
        eventually("the log is written", Duration::from_secs(10), || log(&dvm, job).exists().then_some(()));
    }
    for job in [&partial, &lost] {
        assert_eq!(dvm.ctl(&format!("logs -f {job}")).ok(), "", "the end is in the log");
    }
    dvm.kill(0);
    // As if the thread that writes logs had not come to them: one has only its first event, the others have nothing.
    let file = std::fs::OpenOptions::new().write(true).open(log(&dvm, &partial)).expect("the log is there");
    let first = std::fs::read(log(&dvm, &partial)).expect("the log is there")[0];
    file.set_len(1 + u64::from(first)).expect("the file is ours");
    std::fs::remove_file(log(&dvm, &lost)).expect("the log is there");
    std::fs::remove_file(log(&dvm, &array)).expect("the log is there");
    for _ in 0..2 {
        dvm.restart(0);
        for job in [&partial, &lost] {
            let ended = dvm.ctl(&format!("logs -f {job}")).deadline(Duration::from_secs(20)).end();
            assert_eq!(ended.ok(), "", "{job}");
        }
        for job in [&partial, &lost, &array] {
            let ended = dvm.ctl(&format!("wait {job}")).deadline(Duration::from_secs(20)).end();
            assert_eq!(ended.status.code(), Some(130), "wait {job}: {ended}");
            let report = dvm.ctl(&format!("report {job}")).ok();
            assert!(report.contains("cancelled"), "{report}");
        }
        dvm.kill(0);
    }
    dvm.restart(0);
    assert_eq!(dvm.ctl("run -n 1 echo on").ok(), "on\n");
}
