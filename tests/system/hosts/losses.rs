//! Hosts and networks that fail for longer than the settings allow.

use std::time::Duration;

use rsd_tests::hosts::{Cluster, Plan};
use rsd_tests::{Running, eventually};

const WITHIN: Duration = Duration::from_secs(60);
/// Losses are noticed within seconds.
const QUICK: &str = "[link]\nsilence = \"2s\"\nreattach_grace = \"2s\"\n";

fn cluster(names: &[&str], settings: &str) -> Option<Cluster> {
    Some(Cluster::on(Plan::of(names).start()?, names, 4, &format!("{QUICK}{settings}")))
}

/// Starts a job with one long rank on each of these hosts, and waits until they run.
fn long_job(cluster: &Cluster, hosts: &[&str]) -> Running {
    let list = hosts.iter().map(|host| format!("{host}:1")).collect::<Vec<_>>().join(",");
    let run = ["run", "-n", &hosts.len().to_string(), "--host", &list, "sh", "-c", "echo begun; exec sleep 600"];
    let job = cluster.rsctl(run).deadline(WITHIN).start();
    job.until_stdout(|out| (out.lines().count() == hosts.len()).then_some(()));
    job
}

fn ranks(cluster: &Cluster, host: &str) -> usize {
    cluster.host(host).processes().iter().filter(|line| line.starts_with("sleep 600")).count()
}

/// The job fails with a sentence that names node and rank; its other ranks are ended.
#[track_caller]
fn ends_because_of(job: Running, host: &str, rank: usize) {
    let ended = job.end();
    let said = ended.err();
    let sentence = format!("failed: rank {rank} on {host}: its node {host} was unreachable for 2 s");
    assert!(!ended.status.success() && said.lines().any(|line| line.ends_with(&sentence)), "{said}");
}

#[test]
fn a_partition_longer_than_the_grace_ends_the_jobs_there_on_both_sides() {
    let Some(cluster) = cluster(&["head", "a", "b"], "") else { return };
    let (job, other) = (long_job(&cluster, &["a", "b"]), long_job(&cluster, &["head", "a"]));
    cluster.network.cut("b");
    ends_because_of(job, "b", 1);
    eventually("the ranks of the lost host are ended by its step", WITHIN, || {
        (ranks(&cluster, "b") == 0).then_some(())
    });
    assert!(cluster.log("b").contains("has been cut off from its DVM for"), "{}", cluster.log("b"));
    eventually("only the other job has a rank on a", WITHIN, || (ranks(&cluster, "a") == 1).then_some(()));
    assert!(other.runs(), "{}", other.stderr());
    cluster.network.mend("b");
    cluster.until_up(3);
    assert_eq!(cluster.ctl("run -n 1 --host b hostname").ok(), "b\n");
    drop(other);
}

#[test]
fn the_death_of_a_leaf_host_ends_its_jobs_and_no_others() {
    let Some(mut cluster) = cluster(&["head", "a", "b"], "") else { return };
    let (job, other) = (long_job(&cluster, &["a", "b"]), long_job(&cluster, &["head", "a"]));
    cluster.power_off("b");
    ends_because_of(job, "b", 1);
    assert!(other.runs(), "{}", other.stderr());
    assert_eq!(cluster.ctl("run -n 2 --host head:1,a:1 echo hello").ok(), "hello\n".repeat(2));
}

#[test]
fn the_death_of_an_inner_host_disturbs_no_job_of_the_hosts_below_it() {
    // A chain: b is below a.
    let Some(mut cluster) = cluster(&["head", "a", "b"], "[tree]\narity = 1\n") else { return };
    let lines = "for i in $(seq 100); do echo line $i; sleep 0.1; done";
    let below = cluster.rsctl(["run", "-n", "1", "--host", "b", "sh", "-c", lines]).deadline(WITHIN).start();
    below.until_stdout(|out| (out.lines().count() > 5).then_some(()));
    let there = long_job(&cluster, &["a"]);
    cluster.power_off("a");
    ends_because_of(there, "a", 0);
    let said = below.end().ok();
    assert_eq!(said, (1..=100).map(|line| format!("line {line}\n")).collect::<String>());
    assert_eq!(cluster.ctl("run -n 1 --host b hostname").ok(), "b\n");
}

#[test]
fn the_death_of_the_heads_host_ends_the_ranks_of_the_others() {
    let Some(mut cluster) = cluster(&["head", "a", "b"], "") else { return };
    let job = long_job(&cluster, &["a", "b"]);
    cluster.power_off("head");
    for host in ["a", "b"] {
        eventually("the ranks are ended", WITHIN, || (ranks(&cluster, host) == 0).then_some(()));
        assert!(cluster.log(host).contains("has been cut off from its DVM for"), "{}", cluster.log(host));
    }
    drop(job);
}
