//! Long messages over several networks at once.

use rsd_tests::Mpi;
use rsd_tests::hosts::{Cluster, Plan};

/// Two hosts that two networks of these speeds connect, in megabits a second.
fn two_networks(speeds: [u32; 2]) -> Option<Cluster> {
    let network = Plan::of(&["a", "b"]).also_connected(&["a", "b"]).start()?;
    let cluster = Cluster::on(network, &["a", "b"], 1, "");
    for host in ["a", "b"] {
        for (at, speed) in speeds.iter().enumerate() {
            let limit = format!("tc qdisc add dev eth{at} root tbf rate {speed}mbit burst 128kb latency 50ms");
            cluster.host(host).sh(&limit).ok();
        }
    }
    Some(cluster)
}

/// How many milliseconds a message takes over these interfaces; also what the processes say at the end.
fn took(cluster: &Cluster, interfaces: &str, bytes: &str, count: &str) -> (f64, String) {
    let chosen = format!("RSD_MPI_INTERFACE={interfaces}");
    let run = ["run", "-n", "2", "--map-by", "node", "-x", &chosen, "-x", "RSD_MPI_VERBOSE=transports"];
    let ended = cluster.rsctl(run).args([&Mpi::Ours.program("rails.c"), bytes, count]).end();
    let (out, said) = (ended.out(), ended.err());
    assert!(out.ends_with(" ms, 0 wrong\n"), "{out}{said}");
    println!("{interfaces}: {out}");
    let ms = out.split(' ').next().and_then(|ms| ms.parse().ok());
    (ms.unwrap_or_else(|| panic!("{out}")), said)
}

#[test]
fn a_long_message_over_two_equal_networks_takes_little_more_than_half_the_time() {
    let Some(cluster) = two_networks([200, 200]) else { return };
    let (one, said) = took(&cluster, "eth0", "16777216", "3");
    assert!(!said.contains(" and "), "{said}");
    let (both, said) = took(&cluster, "eth0,eth1", "16777216", "3");
    assert!(said.contains(" and 10.77.1."), "{said}");
    assert!(both <= 0.65 * one, "{both} ms over both, {one} over one");
}

#[test]
fn a_slow_network_beside_a_fast_one_does_no_harm() {
    let Some(cluster) = two_networks([200, 10]) else { return };
    let (one, _) = took(&cluster, "eth0", "16777216", "3");
    let (both, said) = took(&cluster, "eth0,eth1", "16777216", "3");
    assert!(said.contains(" and 10.77.1."), "{said}");
    assert!(both <= 1.1 * one, "{both} ms over both, {one} over one");
}

#[test]
fn a_list_of_interfaces_with_a_mistake_is_an_error_that_names_it() {
    let Some(cluster) = two_networks([1_000, 1_000]) else { return };
    let program = Mpi::Ours.program("rails.c");
    for (list, why) in [
        ("eth0,ib7", "RSD_MPI_INTERFACE=eth0,ib7: ib7: no such interface or address on this node (available: "),
        ("eth0,eth0", "RSD_MPI_INTERFACE=eth0,eth0: eth0 is named twice: name each interface once"),
        ("eth0,,eth1", "RSD_MPI_INTERFACE=eth0,,eth1: a name is missing"),
    ] {
        let chosen = format!("RSD_MPI_INTERFACE={list}");
        let run = ["run", "-n", "2", "--map-by", "node", "-x", &chosen, &program, "1", "1"];
        let said = cluster.rsctl(run).end().err();
        assert!(said.contains(why), "{said}");
    }
}
