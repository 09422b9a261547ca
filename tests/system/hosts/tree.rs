//! Many daemons: a tree of several levels, whose daemons dial each other's real addresses.

use std::fmt::Write;
use std::time::Duration;

use rsd_tests::hosts::{Cluster, Plan};
use rsd_tests::{Mpi, Running};

const HOSTS: [&str; 7] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6"];
/// Daemons on each host.
const EACH: usize = 10;
/// For many daemons that start at the same time.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn seventy_daemons_with_at_most_four_children_each_serve_one_job() {
    let Some(network) = Plan::of(&HOSTS).start() else { return };
    let cluster = Cluster::on(network, &HOSTS, 1, "[tree]\narity = 4\n");
    let token = cluster.token(&["--uses", "100"]);
    let starting: Vec<Running> = HOSTS
        .iter()
        .map(|name| {
            let more = (1..EACH).fold(String::new(), |mut script, at| {
                let join = format!("--join h0:7817 --token {token}");
                writeln!(script, "rsd start --name {name}-{at} --slots 1 {join} &")
                    .expect("a string can be written to");
                script
            });
            cluster.host(name).sh(&format!("{more}wait")).deadline(PATIENCE).start()
        })
        .collect();
    starting.into_iter().for_each(|host| drop(host.end().ok()));
    cluster.until_up(HOSTS.len() * EACH);

    // Most daemons are children of others than the head.
    let links = cluster.head().sh("ss -Htn state established '( sport = :7817 )'").ok();
    let children = links.lines().count();
    assert!((1..=4).contains(&children), "{links}");

    let n = (HOSTS.len() * EACH).to_string();
    let hello = cluster.rsctl(["run", "-n", &n, "--map-by", "node", &Mpi::Ours.program("hello.c")]);
    let said = hello.deadline(PATIENCE).ok();
    for rank in 0..HOSTS.len() * EACH {
        assert!(said.contains(&format!("rank {rank} of {n} on ")), "{said}");
    }
}
