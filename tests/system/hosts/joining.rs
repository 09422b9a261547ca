//! Daemons join over a network, and jobs run on all hosts.

use rsd_tests::hosts::Cluster;

use crate::sorted;

#[test]
fn three_hosts_join_with_tokens_and_run_a_job() {
    let Some(cluster) = Cluster::start(&["head", "a", "b"]) else { return };
    cluster.until_up(3);
    let names = cluster.ctl("run -n 3 --map-by node hostname").ok();
    assert_eq!(sorted(&names), ["a", "b", "head"]);
    // Shared memory, temporary files and process numbers are those of one host.
    cluster.ctl("run -n 1 --host a touch /tmp/mine /dev/shm/mine").ok();
    let here = cluster.rsctl([
        "run",
        "-n",
        "3",
        "--map-by",
        "node",
        "sh",
        "-c",
        "cat /etc/hostname; ls /tmp/mine /dev/shm/mine 2>&-",
    ]);
    let here = here.end().out();
    assert_eq!(sorted(&here), ["/dev/shm/mine", "/tmp/mine", "a", "b", "head"]);
}
