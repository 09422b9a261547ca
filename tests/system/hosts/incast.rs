//! Many hosts that send to one at the same time, behind a port whose buffer holds less than they send.

use std::time::Duration;

use rsd_tests::Mpi;
use rsd_tests::hosts::{Cluster, Plan};

const HOSTS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A receiver, `a`, and six senders; the receiver's port carries 200 Mbit/s and holds 256 KB.
fn many_to_one() -> Option<Cluster> {
    let network = Plan::of(&HOSTS).start()?;
    network.narrow("a", 200, 256_000);
    Some(Cluster::on(network, &HOSTS, 1, ""))
}

fn incast(arguments: [&str; 3]) -> Vec<String> {
    let run = ["run", "-n", "7", "--map-by", "node", &Mpi::Ours.program("incast.c")];
    run.iter().chain(&arguments).map(|word| (*word).to_owned()).collect()
}

#[test]
fn messages_of_many_hosts_to_one_arrive_complete() {
    let Some(cluster) = many_to_one() else { return };
    for (bytes, rounds) in [("20000", "20"), ("65536", "20"), ("150000", "10"), ("1048576", "3")] {
        assert_eq!(cluster.rsctl(incast([bytes, rounds, "0"])).ok(), "0 wrong\n", "{bytes} bytes");
    }
}

#[test]
fn hosts_that_stop_after_their_announcement_do_not_stop_the_messages_of_others() {
    let Some(cluster) = many_to_one() else { return };
    let job = cluster.rsctl(incast(["1048576", "2", "4"])).start();
    job.until_stdout(|out| out.contains("others\n").then_some(()));
    // One may stop only now.
    while !job.gone_within(Duration::from_millis(500)) {
        cluster.ctl("signal last CONT").end();
    }
    assert_eq!(job.end().ok(), "others\n0 wrong\n");
}
