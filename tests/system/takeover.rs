//! Standbys take over by themselves, with a lease in etcd.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rsd_tests::etcd::Guard;
use rsd_tests::{Call, Dvm, Etcd, Mpi, Options, built, eventually};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(4);

/// Writes settings with which a DVM has its lease in this etcd; returns the file's path.
fn settings(name: &str, servers: &str, more: &str) -> String {
    let path = std::env::temp_dir().join(format!("rsd-takeover-{}-{name}.toml", std::process::id()));
    let text = format!(
        "[head]\netcd = [\"{servers}\"]\nlease = \"{}s\"\n{more}\n[standby]\npatience = \"1s\"\n[link]\nsilence = \"3s\"\n",
        LEASE.as_secs()
    );
    std::fs::write(&path, text).expect("the directory of temporary files is writable");
    path.display().to_string()
}

/// A DVM of node0, the head, of node1 and node2, and of standbys, all in step.
fn with_standbys(settings: &str, count: usize) -> Dvm {
    let mut dvm = Dvm::start_in(Options { nodes: 3, slots: 6, args: Vec::new() }, &[("RSD_CONFIG", settings)]);
    let listen = dvm.listen();
    for at in 0..count {
        dvm.add(&["--join", &listen, "--standby", "127.0.0.1:0"].map(str::to_owned));
        dvm.ctl(&format!("head allow node{}", 3 + at)).ok();
    }
    until(&dvm, "node0", "the standbys may take over", |lease| {
        let is_bounded = lease["left_ms"].as_u64().is_some_and(|left| left > 0);
        let candidates = lease["candidates"].as_array().map(Vec::len);
        lease["state"] == "held" && candidates == Some(count) && is_bounded == (count > 0)
    });
    dvm
}

fn lease(dvm: &Dvm, at: &str) -> Option<Value> {
    let shown = dvm.ctl(&format!("--dvm {at} head show --json")).deadline(Duration::from_secs(20)).end();
    serde_json::from_slice(&shown.stdout).ok().map(|shown: Value| shown["lease"].clone())
}

fn until(dvm: &Dvm, at: &str, what: &str, is: impl Fn(&Value) -> bool) {
    eventually(what, PATIENCE, || lease(dvm, at).filter(|lease| is(lease)).map(drop));
}

/// Waits until a head with this epoch answers at node1, with so many nodes up.
fn until_head(dvm: &Dvm, epoch: u64, up: usize) -> String {
    eventually("the nodes have found the new head", PATIENCE, || {
        let shown = dvm.ctl("--dvm node1 head show --json").deadline(PATIENCE).end();
        let head: Value = serde_json::from_slice(&shown.stdout).ok()?;
        let shown = dvm.ctl("--dvm node1 nodes --json").deadline(PATIENCE).end();
        let nodes: Value = serde_json::from_slice(&shown.stdout).ok()?;
        let count = nodes["nodes"].as_array()?.iter().filter(|node| node["state"] == "up").count();
        (head["epoch"] == epoch && count == up).then(|| head["name"].as_str().map(str::to_owned))?
    })
}

/// Ends the steps that a killed head has left, as the loss of its machine does.
fn end_steps_of(dvm: &Dvm, at: usize) {
    let marker = format!("{}/", dvm.state_dir(at).display());
    for (pid, _) in rsd_tests::processes::mentioning(&marker) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may have ended
    }
}

/// Stops the DVM with this head.
fn stop(dvm: &Dvm, head: &str) {
    dvm.call(built::rsd()).args(["stop", "--force", "--dvm", head]).ok();
}

fn gated(dvm: &Dvm, mpi: Mpi, gate: &std::path::Path) -> rsd_tests::Running {
    let run = ["run", "--host", "node1:2,node2:2", "-n", "4", &mpi.program("gated.c")];
    let job = dvm.rsctl(run).args([gate]).deadline(2 * PATIENCE).start();
    job.until_stdout(|out| out.contains("computing").then_some(()));
    job
}

fn is_complete(printed: &str) {
    let ranks = (0..4).map(|rank| format!("rank {rank}: right"));
    let expected: Vec<String> = ["computing".to_owned()].into_iter().chain(ranks).collect();
    assert_eq!(crate::sorted(printed), expected);
}

#[test]
fn a_standby_takes_over_by_itself_when_the_head_is_lost() {
    let etcd = Etcd::start();
    let mut dvm = with_standbys(&settings("lost", &etcd.url(), ""), 2);
    let gate = dvm.scratch().join("gate");
    let jobs = [Mpi::Wheel, Mpi::Ours].map(|mpi| gated(&dvm, mpi, &gate));
    let script = "i=0; while [ $i -lt 100 ]; do seq $((i * 100 + 1)) $((i * 100 + 100)); i=$((i + 1)); sleep 0.1; done";
    let talker = dvm.rsctl(["run", "--host", "node2", "-n", "1", "sh", "-c", script]).deadline(2 * PATIENCE).start();
    talker.until_stdout(|out| out.contains("\n500\n").then_some(()));
    dvm.kill(0);
    end_steps_of(&dvm, 0);
    std::fs::remove_dir_all(dvm.state_dir(0)).expect("the head's directory is there");
    let lost = Instant::now();
    let by_whom = eventually("a standby has taken over", PATIENCE, || {
        (3..5).find(|at| dvm.log(*at).contains("the head of this DVM runs here"))
    });
    let took = lost.elapsed();
    assert!(took < 3 * LEASE, "it took {took:?}");
    eprintln!("node{by_whom} was the head {took:?} after the loss");
    let head = until_head(&dvm, 1, 5);
    assert_eq!(head, format!("node{by_whom}-head"));
    dvm.file("gate", "");
    jobs.into_iter().for_each(|job| is_complete(&job.end().ok()));
    let printed = talker.end().ok();
    let wrong = (1..=10_000).zip(printed.lines()).find(|(expected, line)| line.parse() != Ok(*expected));
    assert_eq!((wrong, printed.lines().count()), (None, 10_000));
    assert_eq!(dvm.ctl("--dvm node2 run --host node1 -n 3 echo hello").ok(), "hello\n".repeat(3));

    // The other standby follows the new head, and takes its place when that is lost, too.
    let other = 7 - by_whom;
    until(&dvm, "node1", "the other standby may take over", |lease| {
        lease["candidates"].as_array().is_some_and(|nodes| nodes.len() == 1)
    });
    let pid = std::fs::read(dvm.runtime_base().join(&head).join("daemon.json")).expect("the head has a record");
    let record: Value = serde_json::from_slice(&pid).expect("daemon.json is JSON");
    dvm.kill(by_whom);
    let pid = record["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the head runs");
    let head = until_head(&dvm, 2, 4);
    assert_eq!(head, format!("node{other}-head"));
    assert_eq!(dvm.ctl("--dvm node2 run --host node1 -n 2 echo hello").deadline(PATIENCE).ok(), "hello\n".repeat(2));
    stop(&dvm, &head);
}

#[test]
fn a_head_that_was_stopped_for_longer_than_its_lease_gives_way() {
    let etcd = Etcd::start();
    let dvm = with_standbys(&settings("stopped", &etcd.url(), ""), 1);
    let gate = dvm.scratch().join("gate");
    let jobs = [Mpi::Debian, Mpi::Ours].map(|mpi| gated(&dvm, mpi, &gate));
    dvm.signal(0, Signal::SIGSTOP);
    let head = until_head(&dvm, 1, 4);
    dvm.signal(0, Signal::SIGCONT);
    eventually("the head before exits", PATIENCE, || {
        dvm.log(0).contains("another daemon is the head of this DVM now").then_some(())
    });
    assert_eq!(until_head(&dvm, 1, 4), head, "the nodes obey the new head");
    dvm.file("gate", "");
    jobs.into_iter().for_each(|job| is_complete(&job.end().ok()));
    stop(&dvm, &head);
}

#[test]
fn the_cluster_goes_on_while_etcd_is_away() {
    let mut etcd = Etcd::start();
    let dvm = with_standbys(&settings("away", &etcd.url(), ""), 1);
    etcd.end();
    until(&dvm, "node0", "the standby confirms the head", |lease| lease["state"] == "confirmed");
    let shown = dvm.ctl("head show").ok();
    assert!(shown.contains("the head goes on, because its standbys confirm it (http://127.0.0.1"), "{shown}");
    assert_eq!(dvm.ctl("run --host node1 -n 2 echo hello").ok(), "hello\n".repeat(2));

    // Without etcd and without the standby, the head decides nothing: the standby may be about to take over.
    dvm.signal(3, Signal::SIGSTOP);
    eventually("the head says that it has no lease", PATIENCE, || {
        dvm.log(0).contains("decides nothing until it has").then_some(())
    });
    let job = dvm.rsctl(["run", "--host", "node1", "-n", "1", "echo", "later"]).deadline(2 * PATIENCE).start();
    std::thread::sleep(LEASE);
    assert!(job.runs() && job.stdout().is_empty(), "{}", job.stdout());
    etcd.begin();
    assert_eq!(job.end().ok(), "later\n");
    dvm.signal(3, Signal::SIGCONT);
    until(&dvm, "node0", "the standby may take over again", |lease| {
        lease["state"] == "held" && lease["candidates"].as_array().is_some_and(|nodes| nodes.len() == 1)
    });
    assert!(!dvm.log(3).contains("takes its place"), "{}", dvm.log(3));
}

#[test]
fn a_standby_that_lacks_something_never_takes_over() {
    let etcd = Etcd::start();
    let mut dvm = with_standbys(&settings("lacks", &etcd.url(), ""), 1);
    dvm.signal(3, Signal::SIGSTOP);
    // The head goes on alone once etcd has noted that the standby may not take over.
    assert_eq!(dvm.ctl("run --host node1 -n 2 echo hello").deadline(PATIENCE).ok(), "hello\n".repeat(2));
    let shown = lease(&dvm, "node0").expect("the head answers");
    assert_eq!(shown["candidates"], serde_json::json!([]));
    dvm.kill(0);
    dvm.signal(3, Signal::SIGCONT);
    eventually("the standby does not take over", PATIENCE, || {
        dvm.log(3).contains("the head did not count on this standby any more").then_some(())
    });
    std::thread::sleep(LEASE);
    let said = dvm.ctl("--dvm node3 head promote").deadline(PATIENCE).fails(240);
    assert!(said.contains("did not count on this standby any more"), "{said}");
    dvm.restart(0);
    until(&dvm, "node0", "the head has its lease again", |lease| lease["state"] == "held");
    assert_eq!(lease(&dvm, "node0").map(|_| dvm.json("head show")["epoch"].clone()), Some(Value::from(0)));
    assert_eq!(dvm.ctl("run --host node1 -n 1 echo hello").deadline(PATIENCE).ok(), "hello\n");
}

#[test]
fn a_command_takes_over_through_etcd_too() {
    let etcd = Etcd::start();
    let mut dvm = with_standbys(&settings("command", &etcd.url(), ""), 1);
    let said = dvm.ctl("--dvm node3 head promote").deadline(PATIENCE).fails(240);
    assert!(said.contains("the head answers"), "{said}");
    dvm.ctl("--dvm node3 head promote --switch").deadline(PATIENCE).ok();
    let head = until_head(&dvm, 1, 4);
    assert_eq!(head, "node3-head");
    let listen = dvm.state_dir(0);
    let back = dvm.call(built::rsd()).args(["start", "--foreground", "--name", "node0", "--listen", "127.0.0.1:0"]);
    let back = back.env("RSD_CONFIG", settings("command", &etcd.url(), "")).args(["--state-dir"]).args([&listen]);
    let said = back.deadline(PATIENCE).fails(249);
    assert!(said.contains("another machine is the head now (epoch 1)"), "{said}");
    stop(&dvm, &head);
    let _ = &mut dvm;
}

#[test]
fn wrong_settings_of_etcd_are_named() {
    let etcd = Etcd::start();
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() });
    let start = |name: &str, servers: &str, more: &str| -> Call {
        let call = dvm.call(built::rsd()).env("RSD_CONFIG", settings(name, servers, more));
        call.args(["start", "--foreground", "--name", name, "--listen", "127.0.0.1:0"]).deadline(PATIENCE)
    };
    let password = dvm.file("password", "secret\n");
    let user = format!("etcd_user = \"rsd\"\netcd_password_file = \"{password}\"");
    let said = start("user", &etcd.url(), &user).fails(240);
    assert!(said.contains("refuses: authentication is not enabled"), "{said}");
    let said = start("plain", "http://10.1.2.3:2379", "").fails(240);
    assert!(said.contains("without TLS, anyone on the network decides who is the head"), "{said}");
    let said = start("tls", "https://10.1.2.3:2379", "").fails(240);
    assert!(said.contains("head.etcd_authority is missing"), "{said}");
    let said = start("half", &etcd.url(), "etcd_user = \"rsd\"").fails(240);
    assert!(said.contains("head.etcd_user needs head.etcd_password_file"), "{said}");
    let said = start("pem", "https://10.1.2.3:2379", &format!("etcd_authority = \"{password}\"")).fails(240);
    assert!(said.contains("head.etcd_authority: ") && said.contains("no certificate in PEM"), "{said}");

    // A standby with another prefix finds nothing.
    let mut dvm = with_standbys(&settings("right", &etcd.url(), ""), 0);
    let listen = dvm.listen();
    let args = ["--join", &listen, "--standby", "127.0.0.1:0", "--config"].map(str::to_owned);
    let other = settings("other", &etcd.url(), "etcd_prefix = \"/elsewhere\"");
    dvm.add(&[&args[..], &[other]].concat());
    dvm.ctl("head allow node3").ok();
    until(&dvm, "node0", "the standby is in step", |lease| lease["candidates"] == serde_json::json!([3]));
    dvm.kill(0);
    eventually("the standby says what is wrong", PATIENCE, || {
        dvm.log(3).contains("etcd has nothing about this DVM under /elsewhere/").then_some(())
    });
    dvm.restart(0);
}

/// The settings of an etcd with TLS.
fn tls(etcd: &Etcd, authority: &str) -> String {
    format!("etcd_authority = \"{}\"\n", etcd.file(authority))
}

fn tls_with_certificate(etcd: &Etcd) -> String {
    let (own, key) = (etcd.file("client.pem"), etcd.file("client-key.pem"));
    format!("{}etcd_certificate = \"{own}\"\netcd_key = \"{key}\"", tls(etcd, "authority.pem"))
}

#[test]
fn etcd_may_demand_certificates_and_must_have_one_of_its_authority() {
    let etcd = Etcd::guarded(Guard::Certificates);
    let mut dvm = with_standbys(&settings("certified", &etcd.url(), &tls_with_certificate(&etcd)), 1);
    let at = dvm.scratch();
    let start = |name: &str, more: &str| {
        let call = dvm.call(built::rsd()).env("RSD_CONFIG", settings(name, &etcd.url(), more)).deadline(PATIENCE);
        let dir = at.join(name).display().to_string();
        call.args(["start", "--foreground", "--name", name, "--listen", "127.0.0.1:0", "--state-dir", &dir]).start()
    };
    // A head that is not let in, or that does not trust the server, decides nothing and says why.
    for (name, more, why) in [
        ("unknown", tls(&etcd, "authority.pem"), "ertificate"),
        ("distrustful", tls(&etcd, "client.pem"), "ertificate"),
    ] {
        let daemon = start(name, &more);
        let said = daemon.until_stderr(|said| said.contains("has no lease in etcd").then(|| said.to_owned()));
        assert!(said.contains(why), "{name}: {said}");
        daemon.signal(Signal::SIGTERM);
        daemon.gone();
    }
    dvm.kill(0);
    end_steps_of(&dvm, 0);
    let head = until_head(&dvm, 1, 4);
    assert_eq!(head, "node3-head");
    until(&dvm, "node1", "no standby may take over, so the head may act without end", |lease| {
        lease["state"] == "held" && lease["candidates"] == serde_json::json!([]) && lease["left_ms"].is_null()
    });
    assert_eq!(dvm.ctl("--dvm node1 run -n 2 --host node1 echo hello").deadline(PATIENCE).ok(), "hello\n".repeat(2));
    stop(&dvm, &head);
}

#[test]
fn etcd_may_have_users_whose_logins_end_with_a_restart() {
    let mut etcd = Etcd::guarded(Guard::Tls);
    for line in [
        "user add root:secret",
        "user grant-role root root",
        "role add rsd",
        "role grant-permission rsd readwrite --prefix /rsd/",
        "user add rsd:hush",
        "user grant-role rsd rsd",
        "auth enable",
    ] {
        etcd.ctl(line).ok();
    }
    let at = std::env::temp_dir();
    let user = |name: &str, password: &str| {
        let file = at.join(format!("rsd-takeover-{}-{name}-password", std::process::id()));
        std::fs::write(&file, format!("{password}\n")).expect("the directory of temporary files is writable");
        let file = file.display();
        format!("{}etcd_user = \"{name}\"\netcd_password_file = \"{file}\"", tls(&etcd, "authority.pem"))
    };
    let right = settings("user-right", &etcd.url(), &user("rsd", "hush"));
    let mut dvm = with_standbys(&right, 1);
    let start = |name: &str, more: &str| {
        let call = dvm.call(built::rsd()).env("RSD_CONFIG", settings(name, &etcd.url(), more));
        call.args(["start", "--foreground", "--name", name, "--listen", "127.0.0.1:0"]).deadline(PATIENCE)
    };
    let said = start("user-wrong", &user("rsd2", "hush")).fails(240);
    assert!(said.contains("authentication failed, invalid user ID or password"), "{said}");
    let said = start("user-none", &tls(&etcd, "authority.pem")).fails(240);
    assert!(said.contains("user name is empty"), "{said}");

    // A server that is started again knows no logins of before.
    etcd.end();
    until(&dvm, "node0", "the head misses etcd", |lease| lease["why"] != "");
    etcd.begin();
    let held =
        |lease: &Value| lease["state"] == "held" && lease["why"] == "" && lease["candidates"] == serde_json::json!([3]);
    until(&dvm, "node0", "the head renews its lease with a new login", held);
    dvm.kill(0);
    end_steps_of(&dvm, 0);
    let head = until_head(&dvm, 1, 4);
    assert_eq!(head, "node3-head");
    stop(&dvm, &head);
}
