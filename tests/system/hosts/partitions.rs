//! Networks that fail for a while, and hosts that fail for ever.

use std::time::Duration;

use rsd_tests::Mpi;
use rsd_tests::hosts::{Cable, Cluster, Plan};

/// Prints a line in every tenth of a second, fifty times.
const LINES: [&str; 3] = ["sh", "-c", "for i in $(seq 50); do echo line $i; sleep 0.1; done"];

#[test]
fn a_partition_of_five_seconds_loses_nothing() {
    let Some(cluster) = Cluster::start(&["head", "a", "b"]) else { return };
    let job = cluster.rsctl(["run", "-n", "3", "--map-by", "node"]).args(LINES).start();
    job.until_stdout(|out| (out.lines().count() > 10).then_some(()));
    cluster.network.cut("b");
    std::thread::sleep(Duration::from_secs(5));
    cluster.network.mend("b");
    let said = job.end().ok();
    let count = |line: usize| said.lines().filter(|said| *said == format!("line {line}")).count();
    assert!((1..=50).all(|line| count(line) == 3), "{said}");
    cluster.until_up(3);
}

#[test]
fn jobs_run_over_a_slow_cable_that_loses_packets() {
    let cable = Cable { delay: Duration::from_millis(15), loss_per_mille: 10, kbit_per_s: 100_000 };
    let plan = Plan::of(&["head", "a", "b"]).cable("a", cable).cable("b", cable);
    let Some(network) = plan.start() else { return };
    let cluster = Cluster::on(network, &["head", "a", "b"], 4, "");
    for mpi in [Mpi::Wheel, Mpi::Ours] {
        let run = ["run", "-n", "6", "--map-by", "node", &mpi.program("large.c"), "300000"];
        assert_eq!(cluster.rsctl(run).ok(), "300000 bytes right on 6 ranks\n", "{mpi:?}");
    }
    let lines = cluster.ctl("run -n 1 --host b seq 20000").ok();
    assert_eq!(lines.lines().count(), 20_000);
}
