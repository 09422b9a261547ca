//! Programs of other users and of hosts that have not joined: they neither get in nor keep others out.

use std::time::{Duration, Instant};

use rsd_tests::hosts::{Cluster, Plan};
use rsd_tests::{Mpi, Running, eventually};

use crate::sorted;

const WITHIN: Duration = Duration::from_secs(30);

/// Opens COUNT connections to HOST PORT, sends TEXT on each, prints `open`, and holds them until its standard input ends.
const FLOOD: &str = r#"
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
host, port, count, text = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
held = []
for _ in range(count):
    one = socket.create_connection((host, port), 10)
    if text:
        one.sendall(text)
    held.append(one)
print("open", flush=True)
sys.stdin.read()
"#;

#[test]
fn idle_and_wrong_connections_from_another_host_keep_nobody_out() {
    let Some(network) = Plan::of(&["head", "a", "stranger"]).start() else { return };
    let cluster = Cluster::on(network, &["head", "a"], 4, "");
    let stranger = cluster.host("stranger");
    let floods: Vec<_> = [("1500", ""), ("300", "GET / HTTP/1.1\r\n\r\n"), ("300", "\x16\x03\x01 no handshake")]
        .map(|(count, text)| {
            let args = ["-c", FLOOD, "head", "7817", count, text];
            stranger.call("python3").args(args).stdin_open().start()
        })
        .into();
    floods.iter().for_each(|flood| flood.until_stdout(|out| out.contains("open").then_some(())));
    assert_eq!(cluster.ctl("run -n 8 echo hello").deadline(WITHIN).ok(), "hello\n".repeat(8));
    // A node still finds its way in.
    let mut cluster = cluster;
    cluster.kill("a");
    cluster.join("a", &[]);
    cluster.until_up(2);
    assert_eq!(cluster.ctl("run -n 8 echo hello").deadline(WITHIN).ok(), "hello\n".repeat(8));
}

/// Starts a head of another DVM on a host, where a dead head was, and waits until the node has met it and turned away.
fn rogue_head(cluster: &Cluster, host: &str) -> Running {
    let rsd = ["start", "--foreground", "--slots", "1", "--listen", "0.0.0.0:7817"];
    let rogue = cluster.host(host).call_as("alice", "rsd").args(rsd).deadline(WITHIN).start();
    rogue.until_stderr(|log| log.contains("received fatal alert: UnknownCA").then_some(()));
    let nodes = cluster.host(host).call_as("alice", "rsctl").args(["nodes", "--json"]).ok();
    let nodes: serde_json::Value = serde_json::from_str(&nodes).expect("rsctl prints JSON");
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(1), "{nodes}");
    rogue
}

/// The head starts again and has its node again.
fn restart_head(cluster: &mut Cluster) {
    cluster.start_daemon("head", &["--listen", "0.0.0.0:7817"]);
    cluster.until_up(2);
    assert_eq!(cluster.ctl("run -n 8 echo hello").ok(), "hello\n".repeat(8));
}

#[test]
fn another_user_on_the_port_of_a_dead_head_is_not_trusted() {
    let Some(mut cluster) = Cluster::start(&["head", "a"]) else { return };
    cluster.kill("head");
    let rogue = rogue_head(&cluster, "head");
    assert!(cluster.log("a").contains("does not belong to this DVM"), "{}", cluster.log("a"));
    drop(rogue);
    restart_head(&mut cluster);
}

#[test]
fn a_host_that_takes_the_address_of_the_head_is_not_trusted() {
    let Some(network) = Plan::of(&["head", "a", "stranger"]).start() else { return };
    let mut cluster = Cluster::on(network, &["head", "a"], 4, "");
    cluster.kill("head");
    cluster.network.cut("head");
    let addresses = |verb: &str| {
        let commands = cluster.head().addresses().iter().map(|address| {
            let bits = if address.is_ipv6() { "64 nodad" } else { "24" };
            let bits = if verb == "del" { bits.trim_end_matches(" nodad") } else { bits };
            format!("ip address {verb} {address}/{bits} dev eth0; ")
        });
        cluster.host("stranger").sh(&commands.collect::<String>()).ok();
        // The node has stored the head's hardware address.
        cluster.host("a").sh("ip neighbour flush all").ok();
    };
    addresses("add");
    drop(rogue_head(&cluster, "stranger"));
    addresses("del");
    cluster.network.mend("head");
    restart_head(&mut cluster);
}

#[test]
fn strangers_at_the_ports_of_ranks_change_nothing() {
    let Some(network) = Plan::of(&["head", "a", "b", "stranger"]).start() else { return };
    let cluster = Cluster::on(network, &["head", "a", "b"], 4, "");
    // The ranks' ports are open before their programs start, which wait here until the stranger has connected.
    let gated = "while ! test -e /tmp/gate; do sleep 0.05; done; exec $0 1000000";
    let run = ["run", "-n", "4", "--host", "a:2,b:2", "sh", "-c", gated, &Mpi::Ours.program("large.c")];
    let job = cluster.rsctl(run).start();
    let ports = |host: &str| {
        eventually("both ranks of a host listen", WITHIN, || {
            let listening = cluster.host(host).sh("ss -Hltnp | grep '\"sh\"'").end().out();
            let places = listening.lines().filter_map(|line| line.split_whitespace().nth(3)?.rsplit_once(':'));
            let ports: Vec<String> = places.map(|(_, port)| port.to_owned()).collect();
            (ports.len() == 2).then_some(ports)
        })
    };
    let mut floods = Vec::new();
    for (host, port) in ["a", "b"].into_iter().flat_map(|host| ports(host).into_iter().map(move |port| (host, port))) {
        for (count, text) in [("100", ""), ("50", "GET / HTTP/1.1\r\n\r\n"), ("50", &"x".repeat(1000))] {
            let flood = cluster.host("stranger").call("python3").args(["-c", FLOOD, host, &port, count, text]);
            floods.push(flood.stdin_open().start());
        }
    }
    floods.iter().for_each(|flood| flood.until_stdout(|out| out.contains("open").then_some(())));
    ["a", "b"].iter().for_each(|host| drop(cluster.host(host).sh("touch /tmp/gate").ok()));
    assert_eq!(job.end().ok(), "1000000 bytes right on 4 ranks\n");
}

#[test]
fn a_host_without_a_token_gets_nothing_and_a_desk_with_a_login_runs_jobs() {
    let Some(network) = Plan::of(&["head", "a", "desk"]).start() else { return };
    let cluster = Cluster::on(network, &["head", "a"], 4, "");
    let desk = cluster.host("desk");
    let began = Instant::now();
    let refused = |program: &str, line: &str, reason: &str| {
        let said = desk.call(program).args(line.split_whitespace()).fails(245);
        assert!(said.contains(reason), "{line}: {said}");
    };
    refused("rsd", "start --foreground --join head:7817", "no token");
    refused("rsctl", "--dvm head:7817 nodes", "you have not logged in there");
    refused("rsctl", "--dvm head:7817 run -n 1 true", "you have not logged in there");
    desk.call("rsd").args(["start", "--slots", "1", "--listen", "0.0.0.0:7817"]).ok();
    let foreign = desk.call("rsd").args(["token", "new", "--quiet"]).ok().trim().to_owned();
    refused("rsd", &format!("start --name x --join head:7817 --token {foreign}"), "the token is of another DVM");
    refused("rsctl", &format!("login head:7817 --token {foreign}"), "the token is of another DVM");
    desk.call("rsd").args(["stop"]).ok();
    // Each is refused at once, not after a deadline.
    assert!(began.elapsed() < WITHIN, "{:?}", began.elapsed());
    // What is no rsd hears no answer in its own language.
    for url in ["http://head:7817/", "https://head:7817/"] {
        const ASK: &str = "import ssl, sys, urllib.request as it\nit.urlopen(sys.argv[1], timeout=10, \
            context=ssl._create_unverified_context())";
        let said = desk.call("python3").args(["-c", ASK, url]).end();
        assert!(!said.status.success(), "{url}: {said}");
    }
    let nodes = cluster.json("nodes");
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(2), "{nodes}");
    assert_eq!(cluster.json("ps -a")["jobs"].as_array().map(Vec::len), Some(0));

    let token = cluster.token(&["--uses", "1"]);
    desk.call("rsctl").args(["login", "head:7817", "--token-file", "-"]).stdin(token).ok();
    let run = ["--dvm", "head:7817", "run", "-n", "2", "--map-by", "node", "hostname"];
    assert_eq!(sorted(&desk.call("rsctl").args(run).ok()), ["a", "head"]);
    // The login is this user's.
    let alice = desk.call_as("alice", "rsctl").args(run).fails(245);
    assert!(alice.contains("you have not logged in there"), "{alice}");
}
