//! What the other tests rely on: hosts that are apart, and networks that can be cut.

use rsd_tests::hosts::{Host, Plan};

/// Runs a command on another host over ssh, with this many seconds for the connection and the server's greeting; `from` may log in there. What it
/// says names each step, in case one takes long.
fn ssh_within(seconds: u32, from: &Host, to: &str, command: &str) -> rsd_tests::Call {
    let limit = format!("ConnectTimeout={seconds}");
    let options = ["-v", "-o", "StrictHostKeyChecking=accept-new", "-o", &limit, "-o", "BatchMode=yes"];
    from.call("ssh").args(options).args([to, command])
}

/// As [`ssh_within`], where it must succeed: a busy machine may take some seconds to start the server's process.
fn ssh(from: &Host, to: &str, command: &str) -> rsd_tests::Call {
    ssh_within(50, from, to, command)
}

#[test]
fn hosts_are_apart_and_only_the_network_connects_them() {
    let Some(mut network) = Plan::of(&["a", "b"]).behind("gate", &["inside"]).start() else { return };
    let key = network
        .host("inside")
        .sh("mkdir -m 700 .ssh; ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; cat .ssh/id_ed25519.pub")
        .ok();
    for name in ["a", "b"] {
        let host = network.host(name);
        host.sshd();
        host.sh("mkdir -m 700 .ssh; cat >.ssh/authorized_keys").stdin(key.clone()).ok();
    }
    let inside = network.host("inside");

    // A host behind another dials out with that one's address, and nobody dials it.
    let told = ssh(inside, "a", "hostname; echo $SSH_CLIENT").ok();
    let from_gate = |address| told.starts_with(&format!("a\n{address} "));
    assert!(network.host("gate").addresses().iter().any(from_gate), "{told}");
    assert!(network.host("a").call("getent").args(["hosts", "inside"]).end().out().is_empty());
    let dial = format!("exec 3<>/dev/tcp/{}/22", inside.address());
    assert!(network.host("a").call("bash").args(["-c", &dial]).end().err().contains("Network is unreachable"));

    // Neither files nor processes nor names are shared.
    network
        .host("a")
        .sh("echo a >/tmp/file; echo a >/var/lib/file; echo a >/dev/shm/file; sleep 1000 >/dev/null 2>&1 &")
        .ok();
    let found =
        network.host("b").sh("cat /tmp/file /var/lib/file /dev/shm/file 2>/dev/null; hostname; cat /etc/hostname");
    assert_eq!(found.end().out(), "b\nb\n");
    assert_eq!(network.host("a").processes(), ["sleep 1000 "]);
    assert!(network.host("b").processes().is_empty());
    let boot = |name: &str| network.host(name).call("cat").args(["/proc/sys/kernel/random/boot_id"]).ok();
    assert_ne!(boot("a"), boot("b"));
    assert_eq!(
        network.host("a").call_as("alice", "sh").args(["-c", "id -u; pwd; command -v rsd"]).ok(),
        "4001\n/var/lib/home/alice\n/run/bin/rsd\n"
    );

    // A firewall and a cut drop packets silently.
    network.host("a").firewall(&[]);
    assert!(ssh_within(2, inside, "a", "true").fails(255).contains("timed out"));
    network.cut("b");
    assert!(ssh_within(2, inside, "b", "true").fails(255).contains("timed out"));
    network.mend("b");
    ssh(inside, "b", "true").ok();
    // The host in between finds its neighbours again, also over IPv6, which ssh tries first.
    network.host("gate").call("ip").args(["neighbour", "flush", "all"]).ok();
    let told = ssh(inside, "b", "echo $SSH_CLIENT").ok();
    assert!(told.contains(':'), "{told}");
    let sleeping = network.host("b").call("sleep").args(["1000"]).start();
    network.power_off("b");
    assert!(sleeping.gone());
}
