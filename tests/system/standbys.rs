//! A standby takes over from the head: jobs, clients and nodes go on, and the head before is not obeyed any more.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_proto::transport::exit;
use rsd_tests::{Call, Dvm, Mpi, Options, built, eventually};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A DVM of node0, the head, of node1 and node2, and of node3, which stands by.
fn with_standby() -> Dvm {
    let mut dvm = Dvm::start_with(Options { nodes: 3, slots: 6, args: Vec::new() });
    let listen = dvm.listen();
    dvm.add(&["--join", &listen, "--standby", "127.0.0.1:0"].map(str::to_owned));
    dvm.ctl("head allow node3").ok();
    until_in_step(&dvm);
    dvm
}

fn until_in_step(dvm: &Dvm) {
    eventually("the standby is in step", PATIENCE, || {
        let shown: Value = dvm.json("head show");
        (shown["standbys"][0]["state"] == "in step").then_some(())
    });
}

fn promote(dvm: &Dvm, options: &str) -> Call {
    dvm.ctl(&format!("--dvm node3 head promote {options}")).deadline(PATIENCE)
}

/// Stops the DVM whose head is on the machine of node3.
fn stop(dvm: &Dvm) {
    dvm.call(built::rsd()).args(["stop", "--force", "--dvm", "node3-head"]).ok();
}

fn until_up(dvm: &Dvm, count: usize) {
    eventually("the nodes have found the new head", PATIENCE, || {
        let nodes: Value = serde_json::from_str(&dvm.ctl("--dvm node1 nodes --json").ok()).ok()?;
        let nodes = nodes["nodes"].as_array()?;
        (nodes.len() == count && nodes.iter().all(|node| node["state"] == "up")).then_some(())
    });
}

#[test]
fn jobs_go_on_under_a_standby_that_is_promoted_and_the_head_before_is_refused() {
    let mut dvm = with_standby();
    let gate = dvm.scratch().join("gate");
    let jobs = [Mpi::Debian, Mpi::Wheel, Mpi::Ours].map(|mpi| {
        let run = ["run", "--host", "node1:2,node2:2", "-n", "4", &mpi.program("gated.c")];
        let job = dvm.rsctl(run).args([&gate]).deadline(PATIENCE).start();
        job.until_stdout(|out| out.contains("computing").then_some(()));
        job
    });
    let script = "echo $PPID; echo $$; exec sleep 1000";
    let on_head = dvm.rsctl(["run", "--host", "node0", "-n", "1", "sh", "-c", script]).deadline(PATIENCE).start();
    let pids = on_head.until_stdout(|out| (out.lines().count() == 2).then(|| out.to_owned()));
    let before = dvm.ctl("events").ok();
    let follow = dvm.ctl("--dvm node1 events --follow").deadline(PATIENCE).start();
    follow.until_stdout(|out| (out.len() >= before.len()).then_some(()));
    dvm.kill(0);
    // From a node that is neither the head nor the standby.
    let said = dvm.ctl("--dvm node1 head promote node2").deadline(PATIENCE).fails(240);
    assert!(said.contains("node2 does not stand by for the head: standbys: node3"), "{said}");
    let promoted = dvm.ctl("--dvm node1 head promote node3").deadline(PATIENCE).ok();
    assert!(promoted.contains("the machine of node3 is the head now (epoch 1)"), "{promoted}");
    // Those who watch hear of it, and lose nothing of what was before.
    let line = "node3-head is the head now, in place of node0 (epoch 1, rsd";
    let seen = follow.until_stdout(|out| out.contains(line).then(|| out.to_owned()));
    assert!(seen.starts_with(&before), "{seen}\n{before}");
    follow.signal(Signal::SIGTERM);
    follow.end();
    assert!(dvm.ctl("--dvm node2 events").ok().starts_with(&before));
    dvm.file("gate", "");
    for job in jobs {
        let printed = job.end().ok();
        let expected: Vec<String> =
            ["computing".to_owned()].into_iter().chain((0..4).map(|rank| format!("rank {rank}: right"))).collect();
        assert_eq!(crate::sorted(&printed), expected);
    }
    let said = on_head.end().fails(242);
    assert!(said.contains("another machine has become the head"), "{said}");
    until_up(&dvm, 4);
    let shown = dvm.ctl("--dvm node1 head show").ok();
    assert!(shown.contains("node3-head") && shown.contains("epoch 1"), "{shown}");
    assert_eq!(dvm.ctl("--dvm node2 run -n 3 echo hello").ok(), "hello\n".repeat(3));
    // The first job of the new head has a number that the head before cannot have given.
    assert!(dvm.json("--dvm node1 ps -a")["jobs"].as_array().is_some_and(|jobs| jobs.len() == 5));

    // The machine of the head before is back: its daemon finds out that it is none any more.
    let listen = dvm.state_dir(0);
    let back = dvm.call(built::rsd()).args(["start", "--foreground", "--name", "node0", "--listen", "127.0.0.1:0"]);
    let said = back.args(["--state-dir"]).args([&listen]).deadline(PATIENCE).fails(249);
    assert!(said.contains("another machine is the head now (epoch 1)"), "{said}");
    stop(&dvm);
    // Its step waits for a daemon, for as long as the settings say, and would then end the rank.
    for pid in pids.lines().filter_map(|line| line.parse().ok()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // the rank may have ended with its step
    }
}

#[test]
fn output_is_complete_when_a_standby_takes_over_in_the_middle_of_it() {
    let mut dvm = with_standby();
    let script =
        "i=0; while [ $i -lt 40 ]; do seq $((i * 1000 + 1)) $((i * 1000 + 1000)); i=$((i + 1)); sleep 0.05; done";
    let job = dvm.rsctl(["run", "--host", "node1", "-n", "1", "sh", "-c", script]).deadline(PATIENCE).start();
    job.until_stdout(|out| out.contains("\n5000\n").then_some(()));
    dvm.kill(0);
    promote(&dvm, "node3").ok();
    let printed = job.end().ok();
    let wrong = (1..=40_000).zip(printed.lines()).find(|(expected, line)| line.parse() != Ok(*expected));
    assert_eq!((wrong, printed.lines().count()), (None, 40_000));
    let logged = dvm.ctl("--dvm node2 logs 1").ok();
    assert_eq!(logged.lines().count(), 40_000, "the log has what the client has seen");
    stop(&dvm);
}

#[test]
fn a_user_on_another_machine_names_the_head_and_where_the_next_one_will_be() {
    let dvm = with_standby();
    let next = dvm.json("head show")["standbys"][0]["addresses"][0].as_str().map(str::to_owned);
    let list = format!("{},{}", dvm.listen(), next.expect("the standby has told where it will listen"));
    let desk = dvm.scratch().join("desk");
    let rsctl = |words: &[&str]| {
        let call = dvm.call(built::rsctl()).env("RSD_RUNTIME_DIR", &desk).env("RSD_STATE_DIR", desk.join("state"));
        call.env("XDG_CONFIG_HOME", &desk).args(words).deadline(PATIENCE)
    };
    let token = dvm.call(built::rsd()).args(["token", "new", "--quiet", "--dvm", "node0"]).ok();
    let said = rsctl(&["--dvm", &list, "ps"]).fails(245);
    assert_eq!(said.matches("you have not logged in there").count(), 2, "{said}");
    let said = rsctl(&["login", "node0", "--token", token.trim()]).fails(240);
    assert!(said.contains("expected HOST:PORT"), "{said}");
    rsctl(&["login", &list, "--token", token.trim()]).ok();
    let gate = dvm.scratch().join("gate");
    let wait = format!("echo up; until [ -e {} ]; do sleep 0.05; done; echo done", gate.display());
    let job = rsctl(&["--dvm", &list, "run", "-n", "1", "--host", "node1", "sh", "-c", &wait]).start();
    job.until_stdout(|out| out.contains("up").then_some(()));
    let pid = Pid::from_raw(dvm.pid(0));
    kill(pid, Signal::SIGKILL).expect("the head runs");
    let said = rsctl(&["--dvm", &list, "ps"]).fails(exit::UNREACHABLE.into());
    assert_eq!(said.matches("cannot reach the daemon at").count(), 2, "{said}");
    promote(&dvm, "").ok();
    dvm.file("gate", "");
    assert_eq!(job.end().ok(), "up\ndone\n");
    assert_eq!(rsctl(&["--dvm", &list, "run", "-n", "1", "--host", "node2", "echo", "hello"]).ok(), "hello\n");
    stop(&dvm);
}

#[test]
fn a_head_that_runs_hands_over_only_on_request() {
    let dvm = with_standby();
    let said = promote(&dvm, "").fails(240);
    assert!(said.contains("the head answers"), "{said}");
    let job = dvm.submit(["--host", "node1", "-n", "2", "sh", "-c", "sleep 4; echo done"]);
    let on_head = dvm.submit(["--host", "node0", "-n", "1", "sleep", "1000"]);
    let said = promote(&dvm, "--switch").fails(240);
    assert!(said.contains("1 job has ranks on the head's node"), "{said}");
    dvm.ctl(&format!("cancel {on_head}")).ok();
    dvm.ctl(&format!("wait {on_head}")).fails(130);
    eventually("no step runs on the head's node", PATIENCE, || {
        let status = dvm.call(built::rsd()).args(["status", "--json", "--dvm", "node0"]).ok();
        let status: Value = serde_json::from_str(&status).ok()?;
        (status["jobs"] == 0).then_some(())
    });
    // The head itself may be asked: it answers, and ends.
    let said = dvm.ctl("--dvm node0 head promote node1 --switch").deadline(PATIENCE).fails(240);
    assert!(said.contains("node1 does not stand by for the head: standbys: node3"), "{said}");
    let promoted = dvm.ctl("--dvm node0 head promote node3 --switch").deadline(PATIENCE).ok();
    assert!(promoted.contains("the machine of node3 is the head now (epoch 1)"), "{promoted}");
    until_up(&dvm, 4);
    dvm.ctl(&format!("--dvm node1 wait {job}")).deadline(PATIENCE).ok();
    assert_eq!(dvm.ctl(&format!("--dvm node1 logs {job}")).ok(), "done\n".repeat(2));
    assert!(dvm.log(0).contains("has handed over to node 3"), "{}", dvm.log(0));
    stop(&dvm);
}

#[test]
fn only_a_node_that_the_heads_administrator_has_named_gets_the_key() {
    let mut dvm = Dvm::start_with(Options { nodes: 2, slots: 1, args: Vec::new() });
    let listen = dvm.listen();
    dvm.add(&["--join", &listen, "--standby", "127.0.0.1:0"].map(str::to_owned));
    eventually("the standby is refused", PATIENCE, || {
        dvm.log(2).contains("may not stand by for the head").then_some(())
    });
    let key = dvm.state_dir(2).join("standby/authority");
    assert!(!key.exists(), "a node that was not named has no key");
    let said = dvm.ctl("--dvm node2 head allow node2").fails(245);
    assert!(said.contains("only the head itself may be asked"), "{said}");
    let said = dvm.ctl("--dvm node2 head promote").fails(240);
    assert!(said.contains("no complete copy") && said.contains("may not stand by"), "{said}");
    let said = dvm.ctl("--dvm node1 head promote").fails(240);
    assert!(said.contains("does not stand by") && said.contains("this DVM has no standby"), "{said}");
    let said = dvm.ctl("head promote node2").fails(240);
    assert!(said.contains("this daemon is the head, and answers"), "{said}");
    dvm.ctl("head allow node2").ok();
    until_in_step(&dvm);
    let mode = std::fs::metadata(&key).map(|meta| std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777);
    assert_eq!(mode.ok(), Some(0o600));
    let shown = dvm.ctl("--dvm node1 head show").ok();
    assert!(shown.contains("node2    in step"), "{shown}");
    let shown = dvm.ctl("head forbid node2").ok();
    assert!(shown.contains("no standbys"), "{shown}");
}

#[test]
fn a_head_goes_on_without_a_standby_that_is_stopped() {
    let mut dvm = with_standby();
    dvm.signal(3, Signal::SIGSTOP);
    // The first decision waits for the standby, as long as the settings say.
    assert_eq!(dvm.ctl("run --host node1 -n 2 echo hello").deadline(PATIENCE).ok(), "hello\n".repeat(2));
    assert_eq!(dvm.json("head show")["standbys"][0]["state"], "late");
    dvm.signal(3, Signal::SIGCONT);
    until_in_step(&dvm);
    // The head is killed and started again: the standby follows it.
    dvm.kill(0);
    dvm.restart(0);
    until_in_step(&dvm);
    assert_eq!(dvm.ctl("run --host node1 -n 1 echo hello").ok(), "hello\n");
}
