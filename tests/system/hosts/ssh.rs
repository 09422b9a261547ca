//! `rsctl up` from one host to others, as an ordinary user.

use std::time::Duration;

use rsd_tests::Call;
use rsd_tests::hosts::{Host, Network, Plan};

use crate::sorted;

/// Gives alice on the desk a key that the other hosts know, and makes their keys known to her.
fn acquaint(network: &Network, names: &[&str]) {
    let desk = network.host("desk");
    let script = "mkdir -m 700 .ssh && ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519 && cat .ssh/id_ed25519.pub";
    let public = desk.call_as("alice", "sh").args(["-c", script]).ok();
    let mut known = String::new();
    for name in names {
        let host = network.host(name);
        known.push_str(&format!("{name} {}\n", host.sshd()));
        let admit = "mkdir -m 700 .ssh && cat >.ssh/authorized_keys";
        host.call_as("alice", "sh").args(["-c", admit]).stdin(public.as_bytes()).ok();
    }
    desk.call_as("alice", "sh").args(["-c", "cat >.ssh/known_hosts"]).stdin(known).ok();
}

fn ctl(desk: &Host, line: &str) -> Call {
    desk.call_as("alice", "rsctl").args(line.split_whitespace()).deadline(Duration::from_secs(120))
}

#[test]
fn hosts_are_started_and_stopped_over_ssh_by_an_ordinary_user() {
    let Some(network) = Plan::of(&["desk", "a", "b"]).start() else { return };
    acquaint(&network, &["a", "b"]);
    let desk = network.host("desk");
    let table = ctl(desk, "up --host a:2,b:2").ok();
    assert!(table.contains("a     node  ready") && table.contains("b     node  ready"), "{table}");
    assert_eq!(sorted(&ctl(desk, "run -n 4 --host a,b hostname").ok()), ["a", "a", "b", "b"]);
    ctl(desk, "down").ok();
    for host in network.hosts() {
        let left: Vec<_> = host.processes().into_iter().filter(|line| line.contains("rsd")).collect();
        assert!(left.is_empty(), "{}: {left:?}", host.name());
    }
}

#[test]
fn links_stay_inside_ssh_where_only_ssh_passes() {
    let Some(network) = Plan::of(&["desk", "a"]).start() else { return };
    acquaint(&network, &["a"]);
    let desk = network.host("desk");
    desk.firewall(&[]);
    network.host("a").firewall(&[22]);
    let told = ctl(desk, "up --host a:2 --listen 0.0.0.0:7817").fails(242);
    assert!(told.contains("1 of 1 host failed"), "{told}");
    ctl(desk, "up --host a:2 --via-ssh").ok();
    assert_eq!(ctl(desk, "run -n 2 --host a hostname").ok(), "a\na\n");
    ctl(desk, "down").ok();
}
