//! Programs with and without MPI over hosts. Nothing but the network connects the ranks of different hosts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rsd_tests::hosts::{Cluster, Family, Plan};
use rsd_tests::{Call, Mpi, intel, python};

use crate::groups::all_ok;
use crate::sorted;

const NAMES: [&str; 4] = ["head", "a", "b", "c"];
/// What each host sends and receives at least.
const BYTES: u64 = 4_000_000;

/// The MPIs: name, the one to compile with, and the folder of the library that replaces this one's. Debian's MPICH 4.0.2 is not among
/// them: over several machines, it hangs in MPI_Finalize under its own launcher, too.
fn mpis() -> [(&'static str, Mpi, Option<PathBuf>); 3] {
    let (_, intel) = intel();
    [("MPICH 5", Mpi::Wheel, None), ("Intel MPI", Mpi::Wheel, Some(intel)), ("ours", Mpi::Ours, None)]
}

fn with(call: Call, library: Option<&Path>) -> Call {
    match library {
        Some(library) => call.env("LD_LIBRARY_PATH", library),
        None => call,
    }
}

/// Runs the demo's program on eight ranks, then one in which each host sends `BYTES` to the next; both with every MPI.
fn compute(cluster: &Cluster) {
    for (name, mpi, library) in mpis() {
        let pi = cluster.rsctl(["run", "-n", "8", "--map-by", "node", &mpi.program("pi.c")]);
        let said = with(pi, library.as_deref()).ok();
        assert!(said.contains("pi is 3.14159265"), "{name}: {said}");
        for host in NAMES {
            let ranks = said.lines().filter(|line| line.ends_with(&format!("on {host}"))).count();
            assert_eq!(ranks, 2, "{name}: {said}");
        }
        let received = || NAMES.map(|name| cluster.host(name).received_bytes());
        let before = received();
        let large = ["run", "-n", "4", "--map-by", "node", &mpi.program("large.c"), &BYTES.to_string()];
        let said = with(cluster.rsctl(large), library.as_deref()).ok();
        assert_eq!(said, format!("{BYTES} bytes right on 4 ranks\n"), "{name}");
        let grown = received().iter().zip(before).all(|(after, before)| after - before > BYTES);
        assert!(grown, "{name}: {before:?} {:?}", received());
    }
}

#[test]
fn pi_is_computed_over_four_hosts_with_every_mpi() {
    let Some(cluster) = Cluster::start(&NAMES) else { return };
    compute(&cluster);
}

#[test]
fn pi_is_computed_over_four_hosts_that_have_only_ipv6() {
    let Some(network) = Plan::of(&NAMES).only(Family::V6).start() else { return };
    compute(&Cluster::on(network, &NAMES, 4, ""));
}

/// The output of `meet.py`: ranks that found each other, and the interface that each was told to use.
fn met(interface: &str) -> Vec<String> {
    (0..6)
        .map(|rank| format!("rank {rank} of 6, local {} of 2, node {} of 3, {interface}", rank % 2, rank / 2))
        .collect()
}

#[test]
fn torch_meets_at_an_address_that_every_host_reaches() {
    for family in [Family::V4, Family::V6] {
        let Some(network) = Plan::of(&NAMES).only(family).start() else { return };
        let cluster = Cluster::on(network, &NAMES, 4, "");
        let [interpreter, meet] = python("meet.py");
        let run = ["run", "-n", "6", "--host", "a:2,b:2,c:2", "--export", "torch", &interpreter, &meet];
        assert_eq!(sorted(&cluster.rsctl(run).ok()), met("eth0"), "{family:?}");

        // Members of a group, too.
        let member = |host: &str| {
            let exec = ["group", "exec", "trainers", "--size", "6", "--export", "torch", "--", &interpreter, &meet];
            cluster.host(host).call("rsctl").args(exec).start()
        };
        let members = ["a", "a", "b", "b", "c", "c"].map(member);
        assert_eq!(all_ok(members.into()), met("eth0"), "{family:?}");
    }
}

#[test]
fn processes_of_several_hosts_form_a_group_with_every_mpi() {
    let Some(cluster) = Cluster::start(&NAMES) else { return };
    for (at, (name, mpi, library)) in mpis().into_iter().enumerate() {
        let program = mpi.program("large.c");
        let member = |host: &str| {
            let exec = ["group", "exec", &format!("actors{at}"), "--size", "8", "--", &program, "1000000"];
            with(cluster.host(host).call("rsctl").args(exec), library.as_deref()).start()
        };
        let members = NAMES.iter().flat_map(|host| [member(host), member(host)]).collect();
        assert_eq!(all_ok(members), ["1000000 bytes right on 8 ranks"], "{name}");
    }
}

#[test]
fn ranks_use_the_network_that_the_user_chose() {
    // The head is not on the second network.
    let Some(network) = Plan::of(&["head", "a", "b"]).also_connected(&["a", "b"]).start() else { return };
    let mut cluster = Cluster::on(network, &["head"], 4, "");
    ["a", "b"].iter().for_each(|host| cluster.join(host, &["--interface", "eth1"]));
    let say = "echo $MASTER_ADDR $NCCL_SOCKET_IFNAME";
    let said = cluster.rsctl(["run", "-n", "2", "--host", "a:1,b:1", "--export", "torch,nccl", "sh", "-c", say]).ok();
    // With =, NCCL takes the interface of exactly this name.
    let right = |line: &str| ["10.77.1.2 =eth1", "fd77:0:0:1::2 =eth1"].contains(&line);
    assert!(said.lines().count() == 2 && said.lines().all(right), "{said}");
    let before = cluster.host("a").received_bytes_on("eth1");
    let run = ["run", "-n", "2", "--host", "a:1,b:1", &Mpi::Ours.program("large.c"), "1000000"];
    assert_eq!(cluster.rsctl(run).ok(), "1000000 bytes right on 2 ranks\n");
    assert!(cluster.host("a").received_bytes_on("eth1") - before > 1_000_000);
}

/// Runs `first.c` with our MPI, rank i on hosts[i], with these words after the program.
fn run_first(cluster: &Cluster, hosts: &[&str], connect_s: u32, words: &[&str]) -> Call {
    let list = hosts.iter().map(|host| format!("{host}:1")).collect::<Vec<_>>().join(",");
    let limit = format!("RSD_MPI_CONNECT_S={connect_s}");
    let run = ["run", "-n", &hosts.len().to_string(), "--host", &list, "-x", &limit, &Mpi::Ours.program("first.c")];
    cluster.rsctl(run).args(words).deadline(Duration::from_secs(120))
}

#[test]
fn hosts_behind_a_router_exchange_messages_with_all_others_whichever_rank_sends_first() {
    let Some(network) = Plan::of(&["head", "a"]).behind("gate", &["w1", "w2"]).start() else { return };
    let cluster = Cluster::on(network, &["head", "a", "w1", "w2"], 4, "");
    cluster.until_up(4);
    assert_eq!(sorted(&cluster.ctl("run -n 4 --map-by node hostname").ok()), ["a", "head", "w1", "w2"]);
    for hosts in [&["head", "w1"][..], &["w1", "head"], &["head", "a", "w1", "w2"], &["w2", "a", "w1", "head"]] {
        for first in 0..hosts.len() {
            let ended = run_first(&cluster, hosts, 30, &[&first.to_string()]).end();
            assert!(ended.err().contains("not reachable from the head"), "{ended}");
            assert_eq!(ended.ok(), format!("all {} ranks answered {first}\n", hosts.len()), "{hosts:?}");
        }
    }
    // The two behind the router can dial each other.
    assert_eq!(run_first(&cluster, &["w1", "w2"], 30, &["1"]).ok(), "all 2 ranks answered 1\n");
    // No rank is given up because it computes for longer than a connection may take, before or after it has called MPI_Init.
    for (hosts, first) in [(["head", "w1"], "0"), (["w1", "head"], "1")] {
        let said = run_first(&cluster, &hosts, 1, &[first, "3"]).ok();
        assert_eq!(said, format!("all 2 ranks answered {first}\n"));
    }
    for program in [Mpi::Ours.program("large.c"), Mpi::Ours.program("collectives.c")] {
        cluster.rsctl(["run", "-n", "8", "--map-by", "node", &program, "1000000"]).ok();
    }
    // Members of a group, which open their sockets themselves.
    let program = Mpi::Ours.program("first.c");
    let member = |host: &str, rank: &str| {
        let exec = ["group", "exec", "actors", "--size", "3", "--rank", rank, "--", &program, "0"];
        cluster.host(host).call("rsctl").args(exec).start()
    };
    let members = vec![member("head", "0"), member("w1", "1"), member("a", "2")];
    assert_eq!(all_ok(members), ["all 3 ranks answered 0"]);
}

#[test]
fn hosts_behind_two_routers_reach_those_of_neither_and_are_named_where_they_cannot_dial_each_other() {
    let network = Plan::of(&["head"]).behind("gate", &["w"]).behind("fence", &["v"]).start();
    let Some(network) = network else { return };
    let cluster = Cluster::on(network, &["head", "w", "v"], 4, "");
    cluster.until_up(3);
    for hosts in [["head", "w"], ["v", "head"]] {
        assert_eq!(run_first(&cluster, &hosts, 30, &["0"]).ok(), "all 2 ranks answered 0\n");
    }
    for first in ["0", "1"] {
        let ended = run_first(&cluster, &["w", "v"], 2, &[first]).end();
        let said = ended.err();
        assert!(said.contains("nodes w, v are not reachable from the head"), "{said}");
        let (lost, host) = if first == "0" { (1, "v") } else { (0, "w") };
        let told = said.lines().find(|line| line.contains(&format!("MPI error on rank {first} of job")));
        let names = cluster.host(host).addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        let begin = format!("process {lost} is lost: rank {lost} (");
        let names_it = |told: &str| told.contains(&begin) && names.iter().any(|at| told.contains(at));
        assert!(told.is_some_and(|told| names_it(told) && told.contains("it is unreachable: ")), "{ended}");
    }
}

#[test]
fn a_firewall_that_drops_keeps_no_host_from_joining_and_is_named_by_mpi() {
    let Some(network) = Plan::of(&["head", "a", "b"]).start() else { return };
    ["a", "b"].iter().for_each(|name| network.host(name).firewall(&[]));
    let cluster = Cluster::on(network, &["head", "a", "b"], 4, "");
    assert_eq!(sorted(&cluster.ctl("run -n 3 --map-by node hostname").ok()), ["a", "b", "head"]);
    let program = Mpi::Ours.program("large.c");
    // The library waits thirty seconds for an answer.
    let run =
        cluster.rsctl(["run", "-n", "2", "--host", "a:1,b:1", &program, "1000"]).deadline(Duration::from_secs(120));
    let told = run.end();
    assert!(!told.status.success() && told.err().contains(": it is unreachable: no answer within 30s"), "{told}");
}
