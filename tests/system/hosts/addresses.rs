//! Which addresses nodes advertise, and at which ones daemons and ranks really meet.

use std::collections::BTreeSet;

use rsd_tests::hosts::{Cluster, Family, Host, Network, Plan};
use rsd_tests::{Mpi, python};
use serde_json::Value;

use crate::sorted;

const NAMES: [&str; 3] = ["head", "a", "b"];

/// A bridge with a container on it, as docker makes it, on every host with the same address; and an interface that leads nowhere.
const CONTAINERS: &str = "
    ip link add docker0 type bridge
    ip link add veth7 type veth peer name veth8
    ip link set veth7 master docker0
    ip address add 172.17.0.1/16 dev docker0
    for name in docker0 veth7 veth8; do ip link set $name up; done
    ip link add lan9 type veth peer name away9
    ip address add 192.168.99.1/24 dev lan9
    ip link set lan9 up
    ip link set away9 up";

/// A DVM on hosts, of which each has interfaces that do not lead to the others.
fn with_containers(family: Family) -> Option<Network> {
    let network = Plan::of(&NAMES).only(family).start()?;
    for name in NAMES {
        network.host(name).sh(CONTAINERS).ok();
    }
    Some(network)
}

/// What the head knows of a node.
fn node(cluster: &Cluster, name: &str) -> Value {
    let nodes = cluster.json("nodes");
    let found = nodes["nodes"].as_array().and_then(|nodes| nodes.iter().find(|node| node["name"] == name).cloned());
    found.unwrap_or_else(|| panic!("no node {name} in {nodes}"))
}

/// The addresses that a node advertises.
fn advertised(cluster: &Cluster, name: &str) -> Vec<String> {
    let node = node(cluster, name);
    let addresses = node["addresses"].as_array().expect("a list").iter();
    addresses.map(|address| address["host"].as_str().expect("a text").to_owned()).collect()
}

/// The TCP ports on which a host's daemon listens.
fn listening(host: &Host) -> Vec<String> {
    let sockets = host.sh("ss -Htlnp | grep '\"rsd\"' || true").ok();
    sockets.lines().filter_map(|line| line.split_whitespace().nth(3)).map(str::to_owned).collect()
}

/// Two ranks on different hosts exchange messages of rsd's MPI library.
fn exchange(cluster: &Cluster, hosts: &str) -> String {
    let program = Mpi::Ours.program("large.c");
    cluster.rsctl(["run", "-n", "2", "--host", hosts, &program, "100000"]).ok()
}

const EXCHANGED: &str = "100000 bytes right on 2 ranks\n";

#[test]
fn interfaces_of_containers_are_not_advertised() {
    let Some(network) = with_containers(Family::Both) else { return };
    let cluster = Cluster::on(network, &NAMES, 4, "");
    for name in NAMES {
        let own: BTreeSet<String> = cluster.host(name).addresses().iter().map(ToString::to_string).collect();
        let all = advertised(&cluster, name);
        // The first is that of the family that the resolver prefers for the head's name.
        assert_eq!(all.iter().take(2).cloned().collect::<BTreeSet<_>>(), own, "{name}: {all:?}");
        assert!(!all.iter().any(|host| host.starts_with("172.17.")), "{name}: {all:?}");
    }
    assert_eq!(exchange(&cluster, "a:1,b:1"), EXCHANGED);
    let [interpreter, meet] = python("meet.py");
    let run = ["run", "-n", "2", "--host", "a:1,b:1", "--export", "torch", &interpreter, &meet];
    let said = cluster.rsctl(run).ok();
    let met = sorted(&said);
    assert!(met.iter().all(|line| line.ends_with("eth0")), "{met:?}");
}

#[test]
fn the_address_that_the_head_reaches_is_used() {
    let Some(network) = with_containers(Family::V6) else { return };
    let mut cluster = Cluster::on(network, &["head"], 4, "");
    // The first interface leads nowhere, and is the same address on every host.
    for name in ["a", "b"] {
        cluster.join(name, &["--interface", "lan9", "--interface", "eth0"]);
        let own = cluster.host(name).address().to_string();
        assert_eq!(advertised(&cluster, name), ["192.168.99.1".to_owned(), own.clone()]);
        assert_eq!(node(&cluster, name)["reached"], own.as_str());
        assert!(cluster.said(name).contains(&format!(", reachable at {own}, ")), "{}", cluster.said(name));
    }
    assert_eq!(exchange(&cluster, "a:1,b:1"), EXCHANGED);
}

#[test]
fn a_node_that_advertises_a_wrong_address_says_so_and_serves() {
    let Some(network) = with_containers(Family::V4) else { return };
    let mut cluster = Cluster::on(network, &["head"], 4, "");
    cluster.join("a", &["--interface", "lan9"]);
    let said = cluster.said("a");
    assert!(said.contains("not reachable from the head (tried 192.168.99.1)"), "{said}");
    assert_eq!(node(&cluster, "a")["reached"], "");
    let done = cluster.ctl("run -n 2 --host head:1,a:1 hostname").end();
    assert_eq!(sorted(&done.out()), ["a", "head"]);
    assert!(done.err().contains("node a is not reachable from the head"), "{}", done.err());
    let token = cluster.token(&["--uses", "1"]);
    for (option, word, why) in [
        ("--interface", "ib0", "--interface ib0: no interface has this name"),
        ("--advertise", "127.0.0.1", "this is not the address of one machine"),
    ] {
        let start = ["start", "--join", "head:7817", "--token", &token, option, word];
        let refused = cluster.host("b").call("rsd").args(start).end();
        assert!(refused.err().contains(why), "{}", refused.err());
    }
    // The mistakes have not used up the token.
    cluster.start_daemon("b", &["--join", "head:7817", "--token", &token]);
    cluster.until_up(3);
}

/// Forwards connections from port 7817 of this host's loopback to another host, as `ssh -L` does.
const TUNNEL: &str = r#"
import socket, sys, threading
def pass_on(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
door = socket.create_server(("127.0.0.1", 7817))
print("open", flush=True)
while True:
    near = door.accept()[0]
    far = socket.create_connection((sys.argv[1], 7817))
    for ends in ((near, far), (far, near)):
        threading.Thread(target=pass_on, args=ends, daemon=True).start()
"#;

#[test]
fn a_node_that_joined_through_a_tunnel_does_not_advertise_loopback() {
    let Some(network) = Plan::of(&NAMES).start() else { return };
    let mut cluster = Cluster::on(network, &["head", "b"], 4, "tree.arity = 1\n");
    let tunnel = cluster.host("a").call("python3").args(["-c", TUNNEL, "head"]).start();
    tunnel.until_stdout(|out| out.contains("open").then_some(()));
    let token = cluster.token(&[]);
    cluster.start_daemon("a", &["--join", "127.0.0.1:7817", "--token", &token]);
    cluster.until_up(3);
    let own: Vec<String> = cluster.host("a").addresses().iter().map(ToString::to_string).collect();
    assert_eq!(advertised(&cluster, "a"), own);
    let [interpreter, meet] = python("meet.py");
    let run = ["run", "-n", "2", "--host", "a:1,b:1", "--export", "torch", &interpreter, &meet];
    assert_eq!(sorted(&cluster.rsctl(run).ok()).len(), 2);
    assert_eq!(exchange(&cluster, "a:1,b:1"), EXCHANGED);
    // Only the address that leads there was given to the daemon below it.
    assert_eq!(node(&cluster, "a")["reached"], own[0].as_str());
    // Its process must not be left on the host.
    drop(tunnel);
    drop(cluster);
}

#[test]
fn a_daemon_listens_only_while_it_joins_or_has_children() {
    for family in [Family::V4, Family::V6] {
        let Some(network) = Plan::of(&["head", "a", "b", "c"]).only(family).start() else { return };
        let cluster = Cluster::on(
            network,
            &["head", "a", "b", "c"],
            4,
            "tree.arity = 1\n[network]\nport_range = \"7100-7110\"\n",
        );
        cluster.until_up(4);
        // Each node is the child of the one before.
        for (name, parent) in [("a", 0), ("b", 1), ("c", 2)] {
            assert_eq!(node(&cluster, name)["parent"], parent, "{name}");
        }
        for name in ["a", "b"] {
            let ports = listening(cluster.host(name));
            assert!(ports.len() == 1 && ports[0].contains(":71"), "{name}: {ports:?}");
        }
        assert_eq!(listening(cluster.host("c")), [""; 0]);
        assert_eq!(sorted(&cluster.ctl("run -n 4 --map-by node hostname").ok()), ["a", "b", "c", "head"]);
    }
}

#[test]
fn a_node_behind_a_router_is_no_parent() {
    let Some(network) = Plan::of(&["head", "b"]).behind("gate", &["w1", "w2"]).start() else { return };
    let mut cluster = Cluster::on(network, &["head"], 4, "tree.arity = 1\n");
    cluster.join("w1", &[]);
    let said = cluster.said("w1");
    let tried = said.split_once("not reachable from the head (tried ").expect("its head cannot reach it").1;
    assert!(tried.split_once(')').is_some_and(|(tried, _)| tried.contains("10.77.1.")), "{said}");
    // The head has its one child, and no other node can be a parent.
    for (name, parent) in [("b", 0), ("w2", 2)] {
        cluster.join(name, &[]);
        assert_eq!(node(&cluster, name)["parent"], parent, "{name}");
    }
    cluster.until_up(4);
    let done = cluster.ctl("run -n 4 --map-by node hostname").end();
    assert_eq!(sorted(&done.out()), ["b", "head", "w1", "w2"]);
    assert!(done.err().contains("nodes w1, w2 are not reachable from the head"), "{}", done.err());
    assert_eq!(exchange(&cluster, "w1:1,w2:1"), EXCHANGED, "behind the router, they reach each other");
}

#[test]
fn ports_come_from_the_range_until_it_is_used_up() {
    let Some(network) = Plan::of(&NAMES).start() else { return };
    let cluster = Cluster::on(network, &NAMES, 8, "[network]\nport_range = \"7100-7102\"\n");
    // A rank may run before the port of the other is open, and must not end before the other has looked.
    let look = "for i in $(seq 200); do n=$(ss -Htln | grep -c ':710'); [ $n = 2 ] && break; sleep 0.02; done; echo $n; sleep 2";
    let seen = cluster.rsctl(["run", "-n", "4", "--host", "a:2,b:2", "--label", "sh", "-c", look]).ok();
    assert!(seen.lines().all(|line| line.ends_with(" 2")), "{seen}");
    let refused = cluster.rsctl(["run", "-n", "8", "--host", "a:4,b:4", "sleep", "5"]).end();
    assert!(
        refused.err().contains("no port from 7100-7102 is free (network.port_range, --port-range)"),
        "{}",
        refused.err()
    );
    assert_eq!(exchange(&cluster, "a:1,b:1"), EXCHANGED);
}

#[test]
fn the_rules_of_rsctl_ports_let_a_dvm_work() {
    let Some(network) = Plan::of(&["head", "a", "b", "stranger"]).start() else { return };
    let settings = "tree.arity = 1\n[network]\nport_range = \"7100-7110\"\n";
    let cluster = Cluster::on(network, &NAMES, 4, settings);
    let rules = cluster.ctl("ports --emit nftables").ok();
    for name in NAMES {
        cluster.host(name).call("nft").args(["-c", "-f", "-"]).stdin(rules.as_str()).ok();
        // Loading them twice replaces them.
        (0..2).for_each(|_| cluster.host(name).nft(&rules));
    }
    assert_eq!(exchange(&cluster, "a:1,b:1"), EXCHANGED);
    let serve = ["run", "-n", "1", "--host", "a:1", "python3", "-c", SERVE];
    let serving = cluster.rsctl(serve).start();
    let port = serving.until_stdout(|out| out.strip_suffix('\n').map(str::to_owned));
    let dial = |from: &str| cluster.host(from).call("python3").args(["-c", DIAL, "a", &port]).ok();
    assert_eq!((dial("b").trim(), dial("stranger").trim()), ("connected", "timed out"));
    let table = cluster.ctl("ports").ok();
    assert!(table.contains("7100-7110") && table.contains("7817"), "{table}");
}

/// Listens on a free port of the range: the daemons and the ranks have some of them.
const SERVE: &str = "
import socket
for port in range(7100, 7111):
    try:
        server = socket.create_server(('0.0.0.0', port))
        break
    except OSError:
        pass
print(port, flush=True)
server.accept()
";
const DIAL: &str = "
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2); print('connected')
except OSError as error:
    print(error)
";
