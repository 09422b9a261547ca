//! `rsctl waits`, and what `run` reports: which ranks and nodes are missing.

use std::time::Duration;

use nix::sys::signal::Signal;
use rsd_tests::{Dvm, Mpi, Options, built, eventually};
use serde_json::Value;

/// Returns the only wait of the DVM as soon as it is of this kind and this many have arrived.
fn wait_of_kind(dvm: &Dvm, kind: &str, have: Option<u32>) -> Value {
    eventually(&format!("a wait of kind {kind}"), Duration::from_secs(20), || {
        let waits = dvm.json("waits")["waits"].clone();
        (waits.as_array()?.len() == 1 && waits[0]["kind"] == kind && waits[0]["have"] == Value::from(have))
            .then(|| waits[0].clone())
    })
}

#[test]
fn a_fence_names_the_rank_that_is_missing_and_run_reports_it_once() {
    let dvm = Dvm::start_with(Options { nodes: 3, slots: 2, args: Vec::new() });
    for at in ["waits", "--dvm node1 waits"] {
        assert_eq!(dvm.ctl(at).end().err(), "rsctl: nothing waits\n");
    }
    let gate = dvm.scratch().join("gate");
    let program = Mpi::Debian.program("late_init.c");
    let job = dvm.rsctl(["run", "-n", "6", "--map-by", "node", &program]).args([&gate]).start();
    job.until_stdout(|out| (out.matches("entering").count() == 5).then_some(()));
    let wait = wait_of_kind(&dvm, "fence", Some(5));
    let missing = &wait["missing"][0];
    let pid = missing["pid"].as_i64().expect("the pid of rank 0 is known");
    assert!(rsd_tests::processes::lives(pid.try_into().unwrap()));
    let text = format!("fence {} of job 1: 5 of 6 in, missing rank 0 (node0, pid {pid})", wait["name"]);
    assert_eq!(wait["text"], text);
    assert_eq!(
        (&wait["job"], &wait["have"], &wait["want"], &wait["left_ms"]),
        (&1.into(), &5.into(), &6.into(), &Value::Null)
    );
    assert_eq!((&missing["node"], &missing["state"]), (&"node0".into(), &"running".into()));
    let printed = dvm.ctl("waits last").ok();
    assert!(printed.starts_with(&format!("{text}; for ")), "{printed}");

    let said = job.until_stderr(|err| (err.contains("missing") && err.ends_with('\n')).then(|| err.to_owned()));
    assert_eq!(said, format!("rsctl: {text}\n"));
    std::thread::sleep(Duration::from_secs(6));
    dvm.file("gate", "");
    let job = job.end();
    assert_eq!(job.err(), format!("rsctl: {text}\n"), "it is reported once");
    assert!(job.ok().contains("6 ranks met"));
}

#[test]
fn a_stopped_daemon_is_named_with_its_ranks() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 2, args: Vec::new() });
    let gate = dvm.scratch().join("gate");
    let program = Mpi::Debian.program("late_init.c");
    let job = dvm.rsctl(["run", "--quiet", "-n", "4", &program]).args([&gate]).start();
    job.until_stdout(|out| (out.matches("entering").count() == 3).then_some(()));
    wait_of_kind(&dvm, "fence", Some(3));
    dvm.signal(1, Signal::SIGSTOP);
    let waits = dvm.json("waits");
    dvm.signal(1, Signal::SIGCONT);
    let texts: Vec<&str> = waits["waits"].as_array().unwrap().iter().filter_map(|wait| wait["text"].as_str()).collect();
    assert!(texts[0].contains("1 of 4 in, missing ranks 2-3 (node1, does not answer), 0 (node0, pid "), "{texts:?}");
    assert_eq!(texts[1..], ["node node1: its daemon does not answer"]);
    dvm.file("gate", "");
    assert_eq!(job.end().err(), "", "--quiet");
}

#[test]
fn a_shutdown_names_the_jobs_and_nodes_that_it_waits_for() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 1, args: Vec::new() });
    let job = dvm.rsctl(["run", "-n", "2", "sh", "-c", "echo begun; exec sleep 600"]).start();
    job.until_stdout(|out| (out.lines().count() == 2).then_some(()));
    // It cannot end its rank.
    dvm.signal(1, Signal::SIGSTOP);
    let stop = dvm.call(built::rsd()).args(["stop", "--force", "--dvm", "node0"]).start();
    let wait = eventually("the shutdown waits for node1 only", Duration::from_secs(20), || {
        let waits = dvm.json("waits")["waits"].clone();
        let wait = waits.as_array()?.iter().find(|wait| wait["kind"] == "shutdown")?.clone();
        (wait["nodes"] == serde_json::json!(["node1"])).then_some(wait)
    });
    assert_eq!(wait["text"], "shutdown: job 1 has not ended on node1");
    assert_eq!((&wait["jobs"], &wait["want"], &wait["job"]), (&serde_json::json!([1]), &1.into(), &Value::Null));
    let (waiting, left) = (wait["waiting_ms"].as_u64().unwrap(), wait["left_ms"].as_u64().unwrap());
    assert!((4990..=5000).contains(&(waiting + left)) && left > 0, "{wait}");
    dvm.signal(1, Signal::SIGCONT);
    stop.end().ok();
    job.end();
}

#[test]
fn a_queued_job_and_a_group_say_what_they_wait_for() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 1, args: Vec::new() });
    let job = dvm.ctl("submit -n 1 sleep 600").ok();
    dvm.ctl("submit -n 1 true").ok();
    let queued = wait_of_kind(&dvm, "queue", None);
    assert_eq!(
        (&queued["job"], &queued["text"]),
        (&2.into(), &"job 2 is queued: 1 rank requested, 0 slots free on 1 node".into())
    );
    dvm.ctl(&format!("cancel {}", job.trim())).ok();
    dvm.ctl("wait 2").ok();
    let member = dvm.ctl("group exec actors --size 3 --rank 1 -- true").start();
    let group = wait_of_kind(&dvm, "group", Some(1));
    assert_eq!(group["text"], "group actors: 1 of 3 members, missing ranks 0, 2");
    assert!(group["left_ms"].as_u64().is_some_and(|left| left <= 60_000), "{group}");
    member.signal(Signal::SIGTERM);
    member.end();
    assert!(dvm.ctl("waits 99").fails(246).contains("99"));
}
