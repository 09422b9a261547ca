//! User errors have a helpful message and their own exit code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use rsd_proto::transport::exit_code;
use rsd_proto::v1::StatusRequest;
use rsd_tests::{Call, Dvm, Mpi, Options, built, copy_program, eventually};

/// Checks that the message contains each of the words.
#[track_caller]
fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in\n{said}");
    }
}

#[test]
fn programs_that_cannot_run_are_reported() {
    let dvm = Dvm::start(2);
    let here = dvm.scratch().display().to_string();
    dvm.file("text", "no program");
    let run = |program: &str| dvm.rsctl(["run", "-n", "1", program]).fails(247);
    says(&run("./missing"), &["rank 0 on node0", "program ./missing: not found", &here]);
    says(&run("no-such-program"), &["program no-such-program: not found", "PATH"]);
    says(&run("./text"), &["rank 0 on node0", "text: ", "not executable"]);
    says(&run(&here), &["is a directory"]);
    let said = dvm.rsctl(["run", "-n", "1", "--wdir", "/no/such/place", "true"]).fails(247);
    says(&said, &["rank 0 on node0", "working directory /no/such/place: not found"]);
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let dvm = Dvm::start(1);
    let file = dvm.file("file", "");
    let said = dvm.rsctl(["run", "-n", "1", "--output", &file, "true"]).fails(247);
    says(&said, &["rank 0 on node0", "output directory", &file]);
}

#[test]
fn an_unknown_host_is_refused_with_the_nodes() {
    let dvm = Dvm::start(2);
    let said = dvm.ctl("run -n 1 --host node7 true").fails(243);
    says(&said, &["no node named node7 in this DVM (nodes: node0, node1)"]);
    dvm.file("hosts", "node0\nelsewhere slots=2\n");
    let said = dvm.ctl("run -n 1 --hostfile hosts true").fails(243);
    says(&said, &["hostfile hosts:2: no node named elsewhere in this DVM (nodes: node0, node1)"]);
}

#[test]
fn more_ranks_than_slots_are_refused() {
    let dvm = Dvm::start(2);
    let said = dvm.ctl("run -n 9 true").fails(243);
    let expected = "\
rsctl: 9 ranks requested, 8 slots free on 2 nodes
  node0  4 slots (--slots)   0 in use
  node1  4 slots (--slots)   0 in use
fix one of:  -n 8   |  --oversubscribe (=> node0: 0-4, node1: 5-8)  |  rsd start --slots 5
";
    assert_eq!(said, expected);
    // Of many nodes, only a few are shown.
    let dvm = Dvm::start_with(Options { nodes: 10, slots: 1, args: Vec::new() });
    let said = dvm.ctl("run -n 99 true").fails(243);
    assert!(said.lines().count() <= 10, "{said}");
    says(&said, &["… and ", "more nodes"]);
}

#[test]
fn impossible_counts_are_refused() {
    let dvm = Dvm::start(1);
    for (n, word) in
        [("0", "at least one rank"), ("-3", "at least one rank"), ("99999999", "at most"), ("many", "number")]
    {
        says(&dvm.rsctl(["run", "-n", n, "true"]).fails(240), &[word]);
    }
    dvm.ctl("run -n 2").fails(240);
}

#[test]
fn a_mistake_in_a_host_file_names_its_line() {
    let dvm = Dvm::start(1);
    let said = |text: &str| {
        dvm.file("hosts", text);
        dvm.ctl("run -n 1 --hostfile hosts true").fails(240)
    };
    says(&said("node0 slots=2\nnode0 solts=2\n"), &["hosts:2:7", "node0 solts=2", "slots=N"]);
    says(&said("node0 slots=2\nnode0 slots=2\n"), &["hosts:2:1", "already on line 1", "list it on one line"]);
    says(&said("node0 slots=two\n"), &["hosts:1:", "slots=two"]);
    says(&said("node[1-0]\n"), &["hosts:1:6", "write 0-1"]);
    says(&said("/* nothing\n"), &["hosts:1:1", "unterminated comment"]);
    says(&said("# nothing\n"), &["hosts", "no host"]);
    says(&dvm.ctl("run -n 1 --hostfile nowhere true").fails(240), &["nowhere"]);
    says(&dvm.ctl("run -n 1 --host node0:x true").fails(240), &["node0:x"]);
    dvm.file("hosts", "node0 slots=2\n");
    says(&dvm.ctl("run -n 1 --hostfile hosts --host node9 true").fails(240), &["`node9` is not in hosts"]);
    says(&dvm.ctl("run -n 1 --host +n5 true").fails(243), &["no node +n5", "the DVM has 1 node"]);
    says(&dvm.ctl("run -n 1 --host +e:2 true").fails(243), &["+e:2", "1 of 1 nodes is idle"]);
}

#[test]
fn a_mistake_in_a_rank_file_names_its_line() {
    let dvm = Dvm::start(1);
    let said = |text: &str, code: u8| {
        dvm.file("ranks", text);
        dvm.ctl("run --rankfile ranks true").fails(code.into())
    };
    says(&said("rank 0=node0 slot=x\n", 240), &["ranks:1:19", "rank N=HOST slot=CPUS"]);
    says(&said("rank 0=node0\nrank 0=node0\n", 240), &["ranks:2:6", "already on line 1"]);
    says(&said("rank 1=node0\n", 243), &["no rank 1", "ranks:1"]);
    says(&dvm.ctl("run --map-by rankfile true").fails(240), &["--rankfile FILE"]);
}

#[test]
fn options_of_other_launchers_are_answered_with_the_right_ones() {
    let dvm = Dvm::start(1);
    says(&dvm.ctl("run -ppn 1 true").fails(240), &["--map-by ppr:1:node"]);
    says(&dvm.ctl("run -N 1 true").fails(240), &["--map-by ppr:1:node", "--host +e:1"]);
    says(&dvm.ctl("run --bind-to core:2 true").fails(240), &["--map-by slot:pe=2"]);
    for same in ["-npernode 1", "-map-by socket -np 1", "--cpu-bind=none -n 1", "-H node0:1 -bynode"] {
        dvm.ctl(&format!("run {same} true")).ok();
    }
}

#[test]
fn a_mistake_in_an_environment_file_names_its_line() {
    let dvm = Dvm::start(1);
    dvm.file("env", "GOOD=1\nno assignment\n");
    says(&dvm.ctl("run -n 1 --env-file env true").fails(240), &["env:2", "NAME=VALUE"]);
    says(&dvm.ctl("run -n 1 -x NOT_SET_ANYWHERE true").fails(240), &["NOT_SET_ANYWHERE", "not set"]);
}

#[test]
fn unknown_options_are_refused() {
    let dvm = Dvm::start(1);
    says(&dvm.ctl("run --no-such-option true").fails(240), &["--no-such-option"]);
    says(&dvm.ctl("no-such-command").fails(240), &["no-such-command"]);
    says(&dvm.ctl("run -n 1 --map-by cores true").fails(240), &["did you mean `core`?", "slot, node"]);
    says(&dvm.ctl("run -n 1 --rank-by socket true").fails(240), &["span", "fill"]);
    says(&dvm.ctl("run -n 1 --compat openmpi4 true").fails(240), &["openmpi5"]);
}

#[test]
fn unknown_jobs_and_ranks_are_refused() {
    let dvm = Dvm::start(1);
    says(&dvm.ctl("job show last").fails(246), &["no job"]);
    dvm.ctl("run -n 1 true").ok();
    for line in ["job show 7", "wait 7", "logs 7", "cancel 7", "signal 7 TERM", "attach 7"] {
        says(&dvm.ctl(line).fails(246), &["no job 7"]);
    }
    says(&dvm.ctl("logs 1.5").fails(246), &["no rank 5"]);
    dvm.ctl("signal 1 TERM").fails(246);
    dvm.ctl("signal 1 NOSUCH").fails(240);
}

#[test]
fn a_missing_daemon_is_reported() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    for line in ["submit -n 1 true", "ps", "nodes", "wait last", "job show 1"] {
        says(&dvm.ctl(line).fails(241), &["no daemon is running", "rsd start"]);
    }
    says(&dvm.ctl("--dvm nosuch ps").fails(241), &["--dvm nosuch"]);
    says(&dvm.ctl("ps").env("RSD_DVM", "nosuch").fails(241), &["RSD_DVM=nosuch"]);
}

#[test]
fn a_dead_daemon_counts_as_missing() {
    let mut dvm = Dvm::start(1);
    dvm.kill(0);
    says(&dvm.ctl("ps").fails(241), &["no daemon is running", "rsd start"]);
    dvm.restart(0);
}

#[test]
fn with_two_dvms_one_must_be_chosen() {
    let mut dvm = Dvm::start(1);
    // The second daemon is a head too, in the same runtime directory.
    dvm.add(&[]);
    let said = dvm.ctl("ps").fails(241);
    says(&said, &["2 DVMs are running here", "--dvm node0", "--dvm node1"]);
    dvm.ctl("--dvm node1 ps").ok();
    let said = dvm.call(built::rsd()).args(["status"]).fails(241);
    says(&said, &["node0", "node1"]);
    dvm.call(built::rsd()).args(["stop", "--dvm", "node1"]).ok();
    dvm.ctl("ps").ok();
}

#[test]
fn an_unresponsive_daemon_is_reported() {
    let dvm = Dvm::start(2);
    let since = Instant::now();
    dvm.signal(0, Signal::SIGSTOP);
    let asked = dvm.ctl("ps").start();
    let through_another = dvm.ctl("--dvm node1 ps").start();
    let (said, other) = (asked.end(), through_another.end());
    dvm.signal(0, Signal::SIGCONT);
    says(&said.fails(242), &["did not answer within"]);
    other.fails(242);
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    // The other daemon has given the link up, and comes back.
    dvm.ctl("run -n 1 --host node1 true").ok();
}

#[test]
fn an_unreachable_head_is_reported() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    // A port that was free a moment before.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.expect("the loopback interface exists").to_string();
    let said = dvm.call(built::rsd()).args(["start", "--join", &address]).fails(242);
    says(&said, &[&address]);
}

#[test]
fn a_client_of_another_version_is_refused() {
    let dvm = Dvm::start(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be created");
    let refusal = runtime.block_on(async {
        let target = rsd_proto::transport::Target::Unix(dvm.runtime_dir(0).join("rsd.sock"));
        let channel = rsd_proto::transport::dial(&target, Duration::from_secs(10)).await.expect("the daemon runs");
        let mut client = rsd_proto::services::dvm_client::DvmClient::new(channel);
        let mut request = tonic::Request::new(StatusRequest {});
        request.metadata_mut().insert("rsd-protocol", tonic::metadata::MetadataValue::from_static("99"));
        request.metadata_mut().insert("rsd-version", tonic::metadata::MetadataValue::from_static("9.9.9"));
        client.get_status(request).await.expect_err("another protocol is refused")
    });
    says(refusal.message(), &["9.9.9", rsd_proto::VERSION]);
    assert_eq!(exit_code(&refusal), Some(244));
    eventually("the daemon has logged the refusal", Duration::from_secs(20), || {
        dvm.log(0).contains("the caller is version 9.9.9 (protocol 99)").then_some(())
    });
}

#[test]
fn another_users_daemon_is_refused() {
    if !Uid::effective().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 4, args: vec!["--single-user".to_owned()] });
    // The other user can neither enter the DVM's directories nor, if they are open, connect to its socket.
    let open = std::path::PathBuf::from(format!("{}-open", dvm.scratch().display()).replace("/scratch", ""));
    fs::create_dir(&open).expect("/tmp is writable");
    let rsctl = open.join("rsctl");
    copy_program(built::rsctl(), &rsctl);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("the directory belongs to this user");
    let socket_dir = dvm.runtime_dir(0);
    let ask = || {
        Call::new(&rsctl).dir("/").env("RSD_RUNTIME_DIR", &open).args(["ps", "--dvm"]).args([&socket_dir]).user(65_534)
    };
    let closed = ask().end();
    for path in [socket_dir.as_path(), socket_dir.parent().expect("the directory is below /tmp")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the directory belongs to this user");
    }
    let opened = ask().end();
    fs::remove_dir_all(&open).expect("the directory belongs to this user");
    closed.fails(245);
    says(&opened.fails(245), &["uid 0"]);
}

#[test]
fn a_process_of_a_larger_launch_does_not_run_alone_with_the_library_of_rsd() {
    let hello = Mpi::Ours.program("hello.c");
    for (variables, said) in [
        (&[("PMI_RANK", "1"), ("PMI_SIZE", "4")][..], "PMI_SIZE=4 indicates 4 processes"),
        (&[("PMIX_RANK", "1")], "this looks like a launcher that speaks PMIx alone"),
    ] {
        let call = |more: &[(&str, &str)]| {
            let all = variables.iter().chain(more);
            all.fold(Call::new(&hello), |call, (name, value)| call.env(name, value)).end()
        };
        let refused = call(&[]);
        assert!(!refused.status.success() && refused.err().contains(said), "{refused}");
        call(&[("RSD_MPI_SINGLETON", "allow")]).ok();
    }
}
