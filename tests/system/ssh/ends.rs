//! `rsctl up` that is interrupted or killed, and `rsctl down` where something does not answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rsd_tests::{Dvm, Hosts, Running, built, eventually, write_program};
use serde_json::Value;

use super::{fails, nothing};

/// An rsd on a host that waits in `rsd start` until it may go on.
struct Held {
    rsd: PathBuf,
    begun: PathBuf,
    gate: PathBuf,
}

impl Held {
    fn new(dvm: &Dvm) -> Held {
        let [rsd, begun, gate] = ["rsd", "begun", "gate"].map(|name| dvm.scratch().join(name));
        let (own, begun_at, gate_at) = (built::rsd().display(), begun.display(), gate.display());
        let wait = format!("until [ -e {gate_at} ]; do sleep 0.02; done; [ -s {gate_at} ] && exit 9");
        write_program(&rsd, format!("#!/bin/sh\ncase $1 in start) : >{begun_at}; {wait};; esac\nexec {own} \"$@\"\n"));
        Held { rsd, begun, gate }
    }

    /// Starts `rsctl up` and returns when `rsd start` has begun.
    fn up(&self, hosts: &Hosts, dvm: &Dvm, words: &str) -> Running {
        for file in [&self.begun, &self.gate] {
            let _ = fs::remove_file(file);
        }
        let up = hosts.ctl(dvm, &format!("up {words} --remote-rsd {}", self.rsd.display())).start();
        eventually("rsd start has begun", Duration::from_secs(30), || self.begun.exists().then_some(()));
        up
    }

    /// Lets it go on.
    fn open(&self) {
        fs::write(&self.gate, "").expect("the directory is writable");
    }

    /// Ends it.
    fn end(&self) {
        let new = self.gate.with_extension("new");
        fs::write(&new, "end").and_then(|()| fs::rename(new, &self.gate)).expect("the directory is writable");
        eventually("rsd start has ended", Duration::from_secs(30), || (!runs(&self.rsd)).then_some(()));
    }
}

/// The terminal's Ctrl-C, which reaches the whole process group.
fn ctrl_c(call: &Running) {
    killpg(call.pid(), Signal::SIGINT).expect("it runs");
}

fn record(hosts: &Hosts) -> PathBuf {
    hosts.home().join(".local/state/rsd/up/default.json")
}

#[test]
fn an_interrupt_stops_the_head_and_nodes_that_are_being_started() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let held = Held::new(&dvm);
    for (words, said) in [
        ("--host a", "interrupted: what was started has been stopped again"),
        ("--host a --head a", "interrupted: no node was started"),
    ] {
        let up = held.up(&hosts, &dvm, words);
        ctrl_c(&up);
        up.until_stderr(|err| err.contains("interrupted: stopping").then_some(()));
        held.open();
        let told = up.end().fails(130);
        assert!(told.contains(said), "{words}: {told}");
        assert!(!a.runs_a_daemon(), "{words}");
        dvm.ctl("nodes").fails(241);
        assert!(!record(&hosts).exists() && !record(&hosts).with_file_name("a.json").exists(), "{words}");
    }
    // A second interrupt does not wait, and `down` then looks again.
    let up = held.up(&hosts, &dvm, "--host a");
    ctrl_c(&up);
    up.until_stderr(|err| err.contains("interrupted: stopping").then_some(()));
    ctrl_c(&up);
    let told = up.end().fails(130);
    assert!(told.contains("a may still start a daemon") && record(&hosts).exists(), "{told}");
    dvm.ctl("nodes").fails(241);
    held.end();
    hosts.ctl(&dvm, "down").ok();
    assert!(!record(&hosts).exists());
}

/// Whether a process runs this script.
fn runs(script: &Path) -> bool {
    let script = script.display().to_string();
    let lines = fs::read_dir("/proc").into_iter().flatten().flatten();
    lines.filter_map(|process| fs::read(process.path().join("cmdline")).ok()).any(|line| {
        let line = String::from_utf8_lossy(&line).into_owned();
        line.starts_with("/bin/sh") && line.contains(&script)
    })
}

#[test]
fn a_head_that_is_not_ready_in_time_is_stopped() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let (rsd, gate) = (dvm.scratch().join("rsd"), dvm.scratch().join("gate"));
    let (own, shown) = (built::rsd().display(), gate.display());
    // The daemon runs, and the command does not end.
    let wait = format!("[ $1 != start ] || until [ -e {shown} ]; do sleep 0.02; done");
    write_program(&rsd, format!("#!/bin/sh\n{own} \"$@\" || exit\n{wait}\n"));
    let told = fails(&hosts, &dvm, &format!("up --host a --head a --timeout 8s --remote-rsd {}", rsd.display()));
    assert!(told.contains("no answer within 8 s: starting rsd"), "{told}");
    assert!(told.contains("the head did not become ready; no node was started"), "{told}");
    assert!(!a.runs_a_daemon());
    fs::write(&gate, "").expect("the directory is writable");
    eventually("the command has ended", Duration::from_secs(30), || (!runs(&rsd)).then_some(()));
}

#[test]
fn a_node_that_is_not_ready_in_time_is_looked_for_by_down() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let held = Held::new(&dvm);
    let b = hosts.host_with("b", &format!("{}:/usr/bin:/bin", dvm.scratch().display()), "");
    let up = hosts.ctl(&dvm, "up --host a,b --allow-missing --timeout 8s").end();
    let told = up.err();
    assert!(up.out().contains("no answer within 8 s: starting rsd"), "{up}");
    assert!(told.contains("b may still start a daemon: repeat rsctl down later") && up.status.success(), "{up}");
    let recorded = fs::read_to_string(record(&hosts)).expect("there is a record");
    let recorded: Value = serde_json::from_str(&recorded).expect("the record is JSON");
    let names: Vec<&str> =
        recorded["nodes"].as_array().unwrap().iter().filter_map(|it| it["host"]["name"].as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    held.end();
    // It comes later.
    let status: Value = serde_json::from_str(&dvm.call(built::rsd()).args(["status", "--json"]).ok()).unwrap();
    let port = status["listen"].as_str().and_then(|at| at.rsplit_once(':')).expect("the head listens").1;
    let token = dvm.call(built::rsd()).args(["token", "new", "--quiet"]).ok();
    let join = ["start", "--join", &format!("127.0.0.1:{port}"), "--token-file", &dvm.file("token", token)];
    b.call(built::rsd()).args(join).ok();
    assert!(b.runs_a_daemon());
    hosts.ctl(&dvm, "down").ok();
    assert!(!a.runs_a_daemon() && !b.runs_a_daemon() && !record(&hosts).exists());
}

#[test]
fn down_finds_what_a_killed_up_has_started_and_keeps_what_it_cannot_ask() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    // Only the record knows where rsd is.
    let a = hosts.host_with("a", "/usr/bin:/bin", "");
    let held = Held::new(&dvm);
    let up = held.up(&hosts, &dvm, "--host a");
    up.signal(Signal::SIGKILL);
    up.gone();
    held.open();
    eventually("the node is up", Duration::from_secs(30), || a.runs_a_daemon().then_some(()));

    let moved = held.rsd.with_file_name("moved");
    fs::rename(&held.rsd, &moved).expect("the directory is writable");
    let ended = hosts.ctl(&dvm, "down").end();
    assert!(ended.out().contains("there is no rsd"), "{ended}");
    ended.fails(242);
    assert!(record(&hosts).exists(), "nothing says that the daemon has ended");
    fs::rename(&moved, &held.rsd).expect("the directory is writable");
    hosts.ctl(&dvm, "down").ok();
    assert!(!a.runs_a_daemon() && !record(&hosts).exists());
}

#[test]
fn down_stops_the_nodes_of_a_head_that_does_not_answer() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    hosts.ctl(&dvm, "up --host a").ok();
    let status: Value = serde_json::from_str(&dvm.call(built::rsd()).args(["status", "--json"]).ok()).unwrap();
    let head = Pid::from_raw(status["pid"].as_i64().and_then(|pid| pid.try_into().ok()).expect("it has a pid"));
    kill(head, Signal::SIGSTOP).expect("it is this user's");
    let ended = hosts.ctl(&dvm, "down").end();
    kill(head, Signal::SIGCONT).expect("it is this user's");
    assert!(ended.out().contains("a     node  stopped"), "{ended}");
    ended.fails(242);
    assert!(!a.runs_a_daemon());
    hosts.ctl(&dvm, "down").ok();
    dvm.ctl("nodes").fails(241);
}

#[test]
fn hosts_that_via_ssh_cannot_serve_are_refused() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let told = hosts.ctl(&dvm, "up --host n[1-33] --via-ssh").fails(240);
    assert!(told.contains("33 hosts are named, and it serves at most 32"), "{told}");
    dvm.ctl("nodes").fails(241);
}

#[test]
fn connections_are_held_also_if_nobody_reads_their_report() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let holder = record(&hosts).with_extension("holder");
    fs::create_dir_all(holder.parent().expect("it is in a folder")).expect("the home is writable");
    let order = serde_json::json!({
        "name": "default", "to": "127.0.0.1:1", "hosts": [{ "name": "a", "user": null, "port": null }], "ssh_config": null,
        "accept_new_host_keys": false, "parallel": 1, "connect_timeout_ms": 10_000,
    });
    let call = hosts.call(&dvm, "sh").args([
        "-c".as_ref(),
        "\"$0\" hold-connections | true".as_ref(),
        built::rsctl().as_os_str(),
    ]);
    let call = call.stdin(order.to_string()).start();
    let pid = || fs::read_to_string(&holder).ok()?.parse::<i32>().ok();
    // It does so when it has reported all hosts.
    eventually("it has left its standard output", Duration::from_secs(30), || {
        let stdout = fs::read_link(format!("/proc/{}/fd/1", pid()?)).ok()?;
        (stdout == Path::new("/dev/null")).then_some(())
    });
    assert_eq!(a.connections(), 1);
    kill(Pid::from_raw(pid().expect("it has written its number")), Signal::SIGTERM).expect("it runs");
    assert!(call.gone(), "{}", call.stderr());
}
