//! `rsctl up` and `rsctl down` over real ssh servers.

mod ends;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rsd_tests::{Call, Dvm, Hosts, Options, SshHost, built, eventually, write_program};
use serde_json::Value;

/// A directory for daemons, none of which runs yet.
fn nothing() -> Dvm {
    Dvm::start_with(Options { nodes: 0, slots: 1, args: Vec::new() })
}

/// The verdicts of a table in JSON, by host.
fn verdicts(text: &str) -> Vec<(String, String)> {
    let table: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = table["hosts"].as_array().expect("a table has hosts");
    rows.iter().map(|row| (text(&row["host"]), text(&row["verdict"]))).collect()
}

fn rows(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(host, verdict)| ((*host).to_owned(), (*verdict).to_owned())).collect()
}

/// Starts the hosts' daemons, which fails; returns what the table and the message say.
#[track_caller]
fn fails(hosts: &Hosts, dvm: &Dvm, line: &str) -> String {
    let ended = hosts.ctl(dvm, line).end();
    assert_eq!(ended.status.code(), Some(242), "{ended}");
    format!("{}{}", ended.out(), ended.err())
}

#[test]
fn up_starts_the_head_here_and_nodes_over_ssh_and_down_stops_them() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let (a, b) = (hosts.host("a"), hosts.host("b"));
    let list = dvm.file("hosts", "a slots=1\nb:3\n");
    let told = hosts.ctl(&dvm, &format!("up --hostfile {list} --json")).ok();
    assert_eq!(verdicts(&told), rows(&[("here", "ready"), ("a", "ready"), ("b", "ready")]));
    // The head takes no ranks, because the list does not name this machine.
    assert_eq!(hosts.ctl(&dvm, "run -n 4 -l --host a,b echo hello").ok().matches("hello").count(), 4);
    let nodes = dvm.json("nodes");
    let nodes = nodes["nodes"].as_array().expect("there are nodes");
    let mut slots: Vec<_> = nodes.iter().filter_map(|node| node["slots"].as_u64()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 3], "{nodes:?}");
    let record = hosts.home().join(".local/state/rsd/up/default.json");
    let mode = |path: &std::path::Path| fs::metadata(path).expect("up has written it").permissions().mode() & 0o777;
    assert_eq!((mode(&record), mode(record.parent().expect("it is in a folder"))), (0o600, 0o700));

    // Again: nothing is started twice.
    let told = hosts.ctl(&dvm, &format!("up --hostfile {list} --json")).ok();
    assert_eq!(verdicts(&told), rows(&[("here", "already up"), ("a", "already up"), ("b", "already up")]));

    let job = dvm.submit(["--host", "a", "sleep", "1000"]);
    let refused = hosts.ctl(&dvm, "down").fails(245);
    assert!(refused.contains("--force"), "{refused}");
    assert!(a.runs_a_daemon() && b.runs_a_daemon(), "job {job} keeps the DVM up");
    let told = hosts.ctl(&dvm, "down --force --json").ok();
    assert_eq!(verdicts(&told), rows(&[("here", "stopped"), ("a", "stopped"), ("b", "stopped")]));
    assert!(!a.runs_a_daemon() && !b.runs_a_daemon() && !record.exists());
    let told = hosts.ctl(&dvm, "down").fails(241);
    assert!(told.contains("rsctl up has started no DVM from here"), "{told}");
}

#[test]
fn if_a_host_fails_nothing_stays_except_with_allow_missing() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    hosts.host_with("bare", "/usr/bin:/bin", "");
    let told = fails(&hosts, &dvm, "up --host a,bare");
    assert!(told.contains("bare  node  failed"), "{told}");
    assert!(told.contains("rsd is not there") && told.contains("--push") && told.contains("--remote-rsd"), "{told}");
    assert!(told.contains("a     node  stopped again") && told.contains("--allow-missing"), "{told}");
    assert!(!a.runs_a_daemon());
    dvm.ctl("nodes").fails(241);
    assert!(!hosts.home().join(".local/state/rsd/up/default.json").exists());

    let told = hosts.ctl(&dvm, "up --host a,bare --allow-missing --json").ok();
    assert_eq!(verdicts(&told), rows(&[("here", "ready"), ("a", "ready"), ("bare", "failed")]));
    assert_eq!(hosts.ctl(&dvm, "run -n 1 --host a echo hello").ok(), "hello\n");
    // A host that has failed may be added later, here with the path of rsd.
    let rsd = built::rsd().display();
    let told = hosts.ctl(&dvm, &format!("up --host bare --remote-rsd {rsd} --json")).ok();
    assert_eq!(verdicts(&told), rows(&[("here", "already up"), ("bare", "ready")]));
    // An earlier DVM survives hosts that cannot be added, and is still known to `down`.
    hosts.configure("Host absent\n  HostName 127.0.0.1\n  Port 1\n");
    fails(&hosts, &dvm, "up --host absent");
    assert!(a.runs_a_daemon());
    hosts.ctl(&dvm, "down").ok();
    assert!(!a.runs_a_daemon());
    dvm.ctl("nodes").fails(241);
}

#[test]
fn unknown_changed_and_revoked_host_keys_are_refused_with_what_to_do() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let public = fs::read_to_string(a.dir.join("host_key.pub")).expect("the host has a key");
    let fingerprint = Call::new("ssh-keygen").args(["-lf"]).args([a.dir.join("host_key.pub")]).ok();
    let fingerprint = fingerprint.split(' ').nth(1).expect("ssh-keygen prints it");

    hosts.know(&a, "");
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(told.contains("its host key is unknown: ED25519") && told.contains(fingerprint), "{told}");
    assert!(told.contains("--accept-new-host-keys"), "{told}");
    assert_eq!(fs::read_to_string(hosts.ssh("known_hosts")).unwrap(), "", "nothing is accepted silently");

    hosts.key("other", "ed25519", "");
    let other = fs::read_to_string(hosts.ssh("other.pub")).expect("the key was made");
    hosts.know(&a, &other);
    for flag in ["", " --accept-new-host-keys"] {
        let told = fails(&hosts, &dvm, &format!("up --host a{flag}"));
        assert!(told.contains("HOST KEY CHANGED") && told.contains("known_hosts:1"), "{told}");
        assert!(told.contains(fingerprint) && told.contains("ssh-keygen -R '[127.0.0.1]:"), "{told}");
    }
    hosts.know(&a, &public);
    let known = fs::read_to_string(hosts.ssh("known_hosts")).unwrap();
    fs::write(hosts.ssh("known_hosts"), format!("{known}@revoked * {public}")).expect("the home is writable");
    let told = fails(&hosts, &dvm, "up --host a --accept-new-host-keys");
    assert!(told.contains("revoked by") && told.contains("known_hosts:2"), "{told}");

    fs::write(hosts.ssh("known_hosts"), "").expect("the home is writable");
    hosts.ctl(&dvm, "up --host a --accept-new-host-keys").ok();
    hosts.ctl(&dvm, "down").ok();
    assert_eq!(fs::read_to_string(hosts.ssh("known_hosts")).unwrap().lines().count(), 1, "it is known now");
}

#[test]
fn keys_come_from_files_the_agent_and_locked_files() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let authorize = |name: &str| fs::copy(hosts.ssh(&format!("{name}.pub")), a.dir.join("authorized_keys")).unwrap();
    for (name, kind) in [("id_rsa", "rsa"), ("id_ecdsa", "ecdsa")] {
        hosts.key(name, kind, "");
        authorize(name);
        hosts.ctl(&dvm, "up --host a").ok();
        hosts.ctl(&dvm, "down").ok();
    }

    hosts.key("wrong", "ed25519", "");
    authorize("wrong");
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(told.contains("is not admitted: tried") && told.contains("id_ed25519 (ED25519)"), "{told}");
    fs::set_permissions(hosts.ssh("id_ed25519"), fs::Permissions::from_mode(0o644)).expect("it is the user's");
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(told.contains("other users can read it, so it is not used: chmod 600"), "{told}");

    let locked = hosts.key("locked", "ed25519", "a secret");
    authorize("locked");
    hosts.configure("Host *\n  IdentitiesOnly yes\n  IdentityFile ~/.ssh/locked\n");
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(told.contains(&format!("ssh-add {}", locked.display())), "{told}");

    // On a terminal, rsctl asks.
    let line = format!("exec {} up --host a", built::rsctl().display());
    let mut asked = hosts.call(&dvm, "script").args(["-qec", &line, "/dev/null"]).stdin_open().start();
    asked.until_stdout(|out| out.contains("passphrase for ").then_some(()));
    asked.write(b"wrong\r");
    asked.until_stdout(|out| out.contains("wrong passphrase; passphrase for ").then_some(()));
    asked.write(b"a secret\r");
    let out = asked.end().ok();
    assert!(out.contains("a     node  ready") && !out.contains("a secret"), "{out}");
    hosts.ctl(&dvm, "down --force").fails(242);

    // The agent has the key unlocked.
    let socket = dvm.scratch().join("agent");
    let agent = Call::new("ssh-agent").args(["-D", "-a"]).args([&socket]).start();
    eventually("the agent listens", Duration::from_secs(10), || socket.exists().then_some(()));
    let add = dvm.scratch().join("add");
    write_program(&add, "#!/bin/sh\necho a secret\n");
    let call = Call::new("ssh-add").args([&locked]).env("SSH_AUTH_SOCK", &socket);
    call.env("SSH_ASKPASS", add).env("SSH_ASKPASS_REQUIRE", "force").ok();
    hosts.ctl(&dvm, "down").env("SSH_AUTH_SOCK", &socket).ok();
    assert!(!a.runs_a_daemon());
    drop(agent);
}

#[test]
fn hosts_behind_a_jump_host_share_one_connection_to_it() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let jump = hosts.host_with("jump", "/usr/bin:/bin", "");
    let behind = ["a", "b"].map(|name| {
        let rsd = built::rsd().parent().expect("a program is in a folder").display().to_string();
        hosts.host_with(name, &format!("{rsd}:/usr/bin:/bin"), "  ProxyJump jump\n")
    });
    let told = hosts.ctl(&dvm, "up --host a,b --head-address 127.0.0.1 --json").ok();
    assert_eq!(verdicts(&told), rows(&[("here", "ready"), ("a", "ready"), ("b", "ready")]));
    assert_eq!((jump.connections(), behind[0].connections()), (1, 1));
    hosts.ctl(&dvm, "down").ok();

    hosts.configure("Host far\n  HostName 127.0.0.1\n  Port 1\n  ProxyJump jump\n");
    let told = fails(&hosts, &dvm, "up --host far");
    assert!(told.contains("jump host jump cannot connect to 127.0.0.1:1"), "{told}");
    hosts.know(&jump, "");
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(told.contains("jump host jump: its host key is unknown"), "{told}");
}

#[test]
fn a_host_that_says_nothing_costs_its_deadline_and_one_that_is_not_there_nothing() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let silent = TcpListener::bind("127.0.0.1:0").expect("the loopback interface exists");
    let port = silent.local_addr().expect("it is bound").port();
    hosts.configure(&format!(
        "Host silent\n  HostName 127.0.0.1\n  Port {port}\nHost absent\n  HostName 127.0.0.1\n  Port 1\n"
    ));
    let began = Instant::now();
    let told = fails(&hosts, &dvm, "up --host silent,absent,no-such-host.invalid --connect-timeout 1s");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(told.contains("silent: no answer within 1 s: the ssh handshake"), "{told}");
    assert!(told.contains("absent: cannot connect to 127.0.0.1:1: connection refused"), "{told}");
    // A resolver that does not answer is as slow as the silent host.
    let named = ["cannot resolve", "no answer within 1 s: resolving"].map(|why| format!("no-such-host.invalid: {why}"));
    assert!(named.iter().any(|text| told.contains(text)), "{told}");
}

#[test]
fn what_start_up_files_print_and_what_a_daemon_prints_when_it_fails() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    fs::write(a.dir.join(".bashrc"), "echo welcome; printf 'no end of line'; echo warning >&2\n")
        .expect("it is writable");
    hosts.ctl(&dvm, "up --host a").ok();
    hosts.ctl(&dvm, "down").ok();
    let folder = a.dir.join("bin");
    fs::create_dir(&folder).expect("it is writable");
    write_program(
        folder.join("rsd"),
        "#!/bin/sh\ncase $1 in start) echo one >&2; echo 'rsd: disk is full' >&2; exit 9;; --version) echo rsd 9;; esac\n",
    );
    let told = fails(&hosts, &dvm, &format!("up --host a --remote-rsd {}/rsd", folder.display()));
    assert!(told.contains("a: rsd start failed (exit code 9)") && told.contains("  rsd: disk is full"), "{told}");
    assert!(!told.contains("warning"), "{told}");
    fs::write(a.dir.join(".bashrc"), "echo closed for today; exit 3\n").expect("it is writable");
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(
        told.contains("the account's shell ended before it ran anything") && told.contains("closed for today"),
        "{told}"
    );
}

#[test]
fn the_token_is_neither_in_arguments_nor_in_the_environment() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    let (seen, rsd) = (dvm.scratch().join("seen"), built::rsd().display().to_string());
    let wrapper = dvm.scratch().join("rsd");
    let script = format!(
        "#!/bin/sh\n{{ echo \"$@\"; env; cat /proc/$PPID/cmdline; }} >>{}\nexec {rsd} \"$@\"\n",
        seen.display()
    );
    write_program(&wrapper, script);
    hosts.ctl(&dvm, &format!("up --host a --remote-rsd {}", wrapper.display())).ok();
    let seen = fs::read_to_string(seen).expect("the wrapper has run");
    assert!(seen.contains("--token-file") && !seen.contains("rsd1-"), "{seen}");
    let tokens = hosts.call(&dvm, rsd).args(["token", "list"]).ok();
    assert!(
        !tokens.contains("0/1        valid") && tokens.contains("revoked"),
        "its token admits nobody else: {tokens}"
    );
    hosts.ctl(&dvm, "down").ok();
    assert!(!a.runs_a_daemon());
}

#[test]
fn push_copies_programs_that_are_missing_broken_or_older() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host_with("a", "/usr/bin:/bin", "");
    let rsd = a.dir.join(".local/bin/rsd");
    hosts.ctl(&dvm, "up --host a --push").ok();
    let own = fs::read(built::rsd()).expect("rsd is built");
    assert!(fs::read(&rsd).expect("rsd was copied") == own, "it is the same file");
    assert_eq!(fs::metadata(&rsd).unwrap().permissions().mode() & 0o777, 0o755);
    let before = fs::metadata(&rsd).unwrap().modified().unwrap();
    hosts.ctl(&dvm, "down").ok();

    // The same: not copied again. Truncated, and older: replaced. Newer: left alone.
    hosts.ctl(&dvm, "up --host a --push").ok();
    assert_eq!(fs::metadata(&rsd).unwrap().modified().unwrap(), before);
    hosts.ctl(&dvm, "down").ok();
    let script = |version: &str| format!("#!/bin/sh\n[ $1 = --version ] && echo rsd {version}\nexit 0\n").into_bytes();
    for old in [own[..own.len() / 2].to_vec(), script("0.0.1")] {
        write_program(&rsd, old);
        hosts.ctl(&dvm, "up --host a --push").ok();
        assert!(fs::read(&rsd).expect("rsd was copied") == own);
        hosts.ctl(&dvm, "down").ok();
    }
    write_program(&rsd, script("99.0.0"));
    fails(&hosts, &dvm, "up --host a --push");
    assert_eq!(fs::read(&rsd).unwrap(), script("99.0.0"));
    let names: Vec<_> = fs::read_dir(rsd.parent().unwrap()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "no scratch file is left: {names:?}");
}

#[test]
fn the_head_may_run_on_a_host() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let (a, b) = (hosts.host("a"), hosts.host("b"));
    let told = hosts.ctl(&dvm, "up --host a:1,b:1 --head a --listen 127.0.0.1:0 --json").ok();
    assert_eq!(verdicts(&told), rows(&[("a", "ready"), ("b", "ready")]));
    let run = |host: &SshHost| host.call(built::rsctl()).args(["run", "-n", "2", "echo", "hello"]).ok();
    assert_eq!((run(&a), run(&b)), ("hello\nhello\n".to_owned(), "hello\nhello\n".to_owned()));
    hosts.ctl(&dvm, "down --dvm a").ok();
    assert!(!a.runs_a_daemon() && !b.runs_a_daemon());
}

#[test]
fn a_daemon_of_another_dvm_is_left_alone() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let a = hosts.host("a");
    a.call(built::rsd()).args(["start", "--name", "a"]).ok();
    let told = fails(&hosts, &dvm, "up --host a");
    assert!(told.contains("a daemon a runs there") && told.contains("rsd stop --dvm a"), "{told}");
    assert!(a.runs_a_daemon());
    a.call(built::rsd()).args(["stop"]).ok();
}

#[test]
fn links_may_stay_inside_ssh() {
    let dvm = nothing();
    let hosts = Hosts::new(&dvm);
    let (a, b) = (hosts.host("a"), hosts.host("b"));
    let told = hosts.ctl(&dvm, "up --host a:1,b:1 --via-ssh --json").ok();
    assert_eq!(verdicts(&told), rows(&[("here", "ready"), ("a", "ready"), ("b", "ready")]));
    let status: Value = serde_json::from_str(&dvm.call(built::rsd()).args(["status", "--json"]).ok()).unwrap();
    let listen = status["listen"].as_str().expect("the head listens").to_owned();
    assert!(listen.starts_with("127.0.0.1:"), "{listen}");
    let parent: Value = serde_json::from_str(&a.call(built::rsd()).args(["status", "--json"]).ok()).unwrap();
    assert_ne!(parent["parent"].as_str(), Some(listen.as_str()), "a dials its own end of the tunnel");
    assert_eq!(hosts.ctl(&dvm, "run -n 2 --host a,b echo hello").ok(), "hello\nhello\n");

    let told = hosts.ctl(&dvm, "up --host b --via-ssh").fails(249);
    assert!(told.contains("already has hosts with --via-ssh"), "{told}");

    // A connection that is lost is made again, and the node comes back through the same port.
    let before = a.connections();
    a.cut();
    eventually("the connection is made again", Duration::from_secs(40), || (a.connections() > before).then_some(()));
    eventually("a is connected again", Duration::from_secs(40), || {
        let status = a.call(built::rsd()).args(["status", "--json"]).ok();
        status.contains("\"connected\":true").then_some(())
    });
    assert_eq!(hosts.ctl(&dvm, "run -n 2 --host a,b echo hello").ok(), "hello\nhello\n");
    hosts.ctl(&dvm, "down").ok();
    assert!(!a.runs_a_daemon() && !b.runs_a_daemon());
    assert!(!hosts.home().join(".local/state/rsd/up/default.holder").exists());
}
