//! Starting, finding, querying and stopping daemons.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rsd_tests::{Dvm, Options, built, state_dir};
use serde_json::json;

#[test]
fn without_arguments_a_daemon_is_a_dvm_of_one_node() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let ready = dvm.call(built::rsd()).args(["start"]).ok();
    assert!(ready.starts_with("rsd: ready: ") && ready.lines().count() == 1, "{ready}");
    assert_eq!(dvm.ctl("run -n 1 echo hello").ok(), "hello\n");
    assert_eq!(dvm.json("nodes")["nodes"].as_array().map(Vec::len), Some(1));
    dvm.call(built::rsd()).args(["stop"]).ok();
    dvm.ctl("ps").fails(241);
}

#[test]
fn a_daemon_reports_its_status() {
    let dvm = Dvm::start(2);
    let status: serde_json::Value =
        serde_json::from_str(&dvm.call(built::rsd()).args(["status", "--json"]).ok()).expect("status prints JSON");
    assert_eq!((&status["name"], &status["head"], &status["nodes"]), (&json!("node0"), &json!(true), &json!(2)));
    assert_eq!(status["slots"], 8);
    assert_eq!(status["pid"], dvm.pid(0));
    let joined = dvm.call(built::rsd()).args(["status", "--dvm", "node1"]).ok();
    assert!(joined.contains("node 1 of DVM"), "{joined}");
    let socket = fs::metadata(dvm.runtime_dir(0).join("rsd.sock")).expect("a daemon has a socket");
    // Root's daemon serves all users.
    let mode = if nix::unistd::geteuid().is_root() { 0o666 } else { 0o600 };
    assert_eq!(socket.permissions().mode() & 0o777, mode);
}

#[test]
fn nodes_are_listed_with_slots_load_and_memory() {
    let dvm = Dvm::start(3);
    let nodes = dvm.json("nodes");
    let nodes = nodes["nodes"].as_array().expect("a list");
    let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str()).collect();
    assert_eq!(names, [Some("node0"), Some("node1"), Some("node2")]);
    for node in nodes {
        assert_eq!((&node["state"], &node["slots"], &node["slots_in_use"]), (&json!("up"), &json!(4), &json!(0)));
        assert_eq!(node["slots_reason"], "--slots");
        assert!(node["cores"].as_u64() > Some(0) && node["memory_bytes"].as_u64() > Some(1 << 20), "{node}");
        assert!(node["load"]["daemon_rss_bytes"].as_u64() > Some(0), "{node}");
    }
    let table = dvm.ctl("nodes").ok();
    assert_eq!(table.lines().count(), 4, "{table}");
}

#[test]
fn any_daemon_of_the_dvm_answers_requests() {
    let dvm = Dvm::start(3);
    let state_dir = dvm.state_dir(2).display().to_string();
    for name in ["node0", "node2", &state_dir] {
        assert_eq!(dvm.rsctl(["--dvm", name, "run", "-n", "1", "echo", "hello"]).ok(), "hello\n");
        assert_eq!(dvm.ctl("ps -a").env("RSD_DVM", name).end().status.code(), Some(0));
    }
    assert_eq!(dvm.json("ps -a")["jobs"].as_array().map(Vec::len), Some(3), "all jobs are in one DVM");
}

#[test]
fn a_second_daemon_in_one_state_directory_is_refused() {
    let dvm = Dvm::start(1);
    let said = dvm.call(built::rsd()).args(["start", "--name", "node0"]).fails(249);
    assert!(said.contains("the daemon node0 (pid ") && said.contains("already runs in "), "{said}");
    assert_eq!(dvm.ctl("run -n 1 echo hello").ok(), "hello\n", "the first daemon is unaffected");
}

#[test]
fn a_daemon_with_jobs_is_stopped_only_by_force() {
    let dvm = Dvm::start(2);
    let job = dvm.rsctl(["run", "-n", "8", "sh", "-c", "echo up; exec sleep 1000"]).start();
    job.until_stdout(|out| (out.matches("up").count() == 8).then_some(()));
    let said = dvm.call(built::rsd()).args(["stop"]).end();
    assert!(!said.status.success() && said.err().contains("rsd stop --force"), "{said}");
    dvm.call(built::rsd()).args(["stop", "--force"]).ok();
    assert_ne!(job.end().status.code(), Some(0));
}

/// The others look for the head at this moment.
#[test]
fn a_head_that_has_just_been_restarted_stops_every_daemon() {
    let mut dvm = Dvm::start(3);
    for node in 0..3 {
        dvm.kill(0);
        dvm.restart(0);
        if node == 2 {
            break;
        }
        dvm.ctl(&format!("run -n 1 --host node{node} true")).ok();
    }
    let said = dvm.call(built::rsd()).args(["stop", "--dvm", "node0"]).end();
    assert_eq!((said.status.code(), said.err()), (Some(0), String::new()), "{said}");
    assert_eq!(dvm.stop(), Vec::<String>::new(), "they have stopped");
}

#[test]
fn a_stop_names_the_daemons_that_it_did_not_reach() {
    let mut dvm = Dvm::start(3);
    dvm.kill(1);
    let said = dvm.call(built::rsd()).args(["stop", "--dvm", "node0"]).end();
    assert_eq!(said.status.code(), Some(0), "{said}");
    assert_eq!(
        said.err(),
        "rsd: cannot reach node1: it does not know of the stop; run `rsd stop` on its machine\n",
        "{said}"
    );
}

#[test]
fn a_run_without_a_daemon_starts_a_private_one() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let job = dvm.rsctl(["run", "-n", "1", "sh", "-c", "cat; exit 5"]).stdin("from here\n").end();
    assert_eq!(job.out(), "from here\n");
    let said = job.fails(5);
    assert!(said.starts_with("rsctl: no daemon is running here; starting a private one for this job"), "{said}");
    let said = dvm.ctl("submit -n 1 true").fails(241);
    assert!(said.contains("rsd start"), "{said}");
}

#[test]
fn a_private_daemon_ends_with_its_run() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let job = dvm.rsctl(["run", "-n", "1", "sh", "-c", "echo up; exec sleep 1000"]).start();
    job.until_stdout(|out| out.contains("up").then_some(()));
    job.signal(nix::sys::signal::Signal::SIGKILL);
    job.end();
    // Dropping the DVM checks that the daemon and the rank are gone.
}

#[test]
fn the_log_is_text_or_json() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    dvm.call(built::rsd()).args(["start", "--name", "a", "--log", "debug", "--log-format", "json"]).ok();
    dvm.call(built::rsd()).args(["stop"]).ok();
    let log = fs::read_to_string(state_dir(&dvm.scratch().join(".."), "a").join("rsd.log"))
        .expect("a daemon in the background has a log");
    let lines: Vec<&str> = log.lines().collect();
    assert!(!lines.is_empty());
    for line in lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn a_service_manager_is_notified_when_the_daemon_is_ready() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let path = dvm.scratch().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("the scratch directory is writable");
    let daemon = dvm.call(built::rsd()).args(["start", "--foreground"]).env("NOTIFY_SOCKET", &path).start();
    let mut buffer = [0; 256];
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a socket has a timeout");
    let got = socket.recv(&mut buffer).expect("the daemon reports that it is ready");
    assert_eq!(&buffer[..got], b"READY=1");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let got = socket.recv(&mut buffer).expect("the daemon reports that it stops");
    assert_eq!(&buffer[..got], b"STOPPING=1");
    daemon.end().ok();
}
