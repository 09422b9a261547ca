//! A network that is cut in two while a standby takes over: no node obeys two heads, and with etcd no two heads decide.

use std::path::Path;
use std::time::Duration;

use rsd_proto::transport::exit;
use rsd_tests::etcd::{Guard, serving};
use rsd_tests::hosts::{Cluster, Host, Network, Plan};
use rsd_tests::{Certificates, Running, eventually};
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(60);
/// Losses are noticed within seconds, and no node is given up.
const QUICK: &str = "[link]\nsilence = \"2s\"\nreattach_grace = \"2m\"\n[standby]\npatience = \"1s\"\n";
/// The file for which the ranks on a host wait.
const GATE: &str = "/tmp/gate";

fn rsctl(host: &Host, line: &str) -> rsd_tests::Call {
    host.call("rsctl").args(line.split_whitespace()).deadline(WITHIN)
}

/// What `rsctl head show` says on a host.
fn head_at(host: &Host) -> Option<Value> {
    let shown = rsctl(host, "head show --json").end();
    serde_json::from_slice(&shown.stdout).ok()
}

/// Waits until all these hosts obey the head with this epoch; returns its name.
#[track_caller]
fn until_epoch(cluster: &Cluster, hosts: &[&str], epoch: u64) -> String {
    let names = hosts.iter().map(|host| {
        eventually(&format!("{host} obeys the head with epoch {epoch}"), WITHIN, || {
            let head = head_at(cluster.host(host))?;
            (head["epoch"] == epoch).then(|| head["name"].as_str().map(str::to_owned))?
        })
    });
    let mut names: Vec<String> = names.collect();
    names.dedup();
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

/// Submits a job to a host, from there, that goes on when the host has the gate; returns who reads its output.
fn gated(cluster: &Cluster, name: &str) -> Running {
    let script = format!("echo begun; until [ -e {GATE} ]; do sleep 0.05; done; echo went on");
    let job = rsctl(cluster.host(name), &format!("submit -n 1 --host {name} sh -c")).args([script]).ok();
    let job = rsctl(cluster.host(name), &format!("logs -f {job}")).deadline(3 * WITHIN).start();
    job.until_stdout(|out| out.contains("begun").then_some(()));
    job
}

#[track_caller]
fn goes_on(cluster: &Cluster, name: &str, job: Running) {
    cluster.host(name).sh(&format!("touch {GATE}")).ok();
    assert_eq!(job.end().ok(), "begun\nwent on\n", "the job on {name}");
}

fn stop(cluster: &Cluster, at: &str) {
    cluster.host(at).call("rsd").args(["stop", "--force", "--dvm", &format!("{at}-head")]).ok();
}

#[track_caller]
fn has_given_way(cluster: &Cluster) {
    eventually("the head before has given way", WITHIN, || {
        cluster.log("head").contains("another daemon is the head of this DVM now").then_some(())
    });
}

#[test]
fn of_two_heads_in_a_divided_network_each_node_obeys_one_and_the_earlier_gives_way() {
    let Some(network) = Plan::of(&["head", "a", "b", "c"]).start() else { return };
    let mut cluster = Cluster::on(network, &["head", "a", "b"], 4, QUICK);
    cluster.join("c", &["--standby", "0.0.0.0:7817"]);
    cluster.ctl("head allow c").ok();
    eventually("the standby is in step", WITHIN, || {
        (cluster.json("head show")["standbys"][0]["state"] == "in step").then_some(())
    });
    let jobs = ["a", "b", "c"].map(|host| (host, gated(&cluster, host)));

    let apart = ["b", "c"];
    cluster.network.divide(&apart);
    // From a node that is neither the head nor the standby.
    let promoted = rsctl(cluster.host("b"), "head promote c").ok();
    assert!(promoted.contains("the machine of c is the head now (epoch 1)"), "{promoted}");
    assert_eq!(until_epoch(&cluster, &apart, 1), "c-head");
    // Both heads decide, each about nodes that obey it.
    assert_eq!(rsctl(cluster.host("b"), "run -n 1 --host b hostname").ok(), "b\n");
    assert_eq!(cluster.ctl("run -n 1 --host a hostname").deadline(WITHIN).ok(), "a\n");
    assert_eq!(until_epoch(&cluster, &["head", "a"], 0), "head");
    let in_between = cluster.ctl("submit -n 1 --host a sleep 987").ok();
    let runs = || cluster.host("a").processes().iter().any(|line| line.starts_with("sleep 987"));
    eventually("the job of the earlier head runs", WITHIN, || runs().then_some(()));
    for (at, up) in [("head", ["head", "a"].as_slice()), ("b", ["c-head", "b", "c"].as_slice())] {
        eventually("each head has the nodes of its side", WITHIN, || {
            let shown: Value = serde_json::from_str(&rsctl(cluster.host(at), "nodes --json").ok()).ok()?;
            let nodes = shown["nodes"].as_array()?.iter().filter(|node| node["state"] == "up");
            nodes.map(|node| node["name"].as_str()).eq(up.iter().map(|name| Some(*name))).then_some(())
        });
    }

    cluster.network.unite(&apart);
    has_given_way(&cluster);
    assert_eq!(until_epoch(&cluster, &["a", "b", "c"], 1), "c-head");
    eventually("what the earlier head has started in between ends", WITHIN, || (!runs()).then_some(()));
    for (host, job) in jobs {
        goes_on(&cluster, host, job);
    }
    let said = rsctl(cluster.host("c"), &format!("job show {in_between}")).fails(exit::NO_SUCH_JOB.into());
    assert!(said.contains("no job"), "{said}");
    let events = rsctl(cluster.host("a"), "events").ok();
    assert!(events.contains("c-head is the head now, in place of head (epoch 1"), "{events}");
    stop(&cluster, "c");
}

/// Starts an etcd on a host, and writes the certificates for it below /run/etcd on all hosts; returns its address too.
pub(super) fn judge(network: &Network, at: &str) -> (Running, String) {
    let judge = network.host(at);
    let (address, dir) = (judge.address().to_string(), Path::new("/run/etcd"));
    let certificates = Certificates::new(&[&address]);
    for host in network.hosts() {
        host.sh("mkdir -p /run/etcd").ok();
        for (name, text) in certificates.files() {
            host.sh(&format!("cat >/run/etcd/{name}")).stdin(text).ok();
        }
    }
    let url = format!("https://{}", judge.at(2379));
    let etcd = serving(judge.call("etcd"), Guard::Certificates, dir, (&url, &url, "http://127.0.0.1:2380"));
    let etcd = etcd.deadline(Duration::from_secs(600)).start();
    eventually("etcd listens", WITHIN, || {
        let connect = format!("exec 3<>/dev/tcp/{address}/2379");
        judge.call("bash").args(["-c", &connect]).end().status.success().then_some(())
    });
    (etcd, url)
}

/// A DVM of `head` and its standbys `b` and `c`, with its lease in an etcd on `judge`, which ends with the second value.
fn with_judge() -> Option<(Cluster, Running)> {
    let network: Network = Plan::of(&["head", "b", "c", "judge"]).start()?;
    let (etcd, url) = judge(&network, "judge");
    let settings = format!(
        "{QUICK}[head]\netcd = [\"{url}\"]\nlease = \"4s\"\netcd_authority = \"/run/etcd/authority.pem\"\n\
         etcd_certificate = \"/run/etcd/client.pem\"\netcd_key = \"/run/etcd/client-key.pem\"\n",
    );
    let mut cluster = Cluster::on(network, &["head"], 4, &settings);
    for standby in ["b", "c"] {
        cluster.join(standby, &["--standby", "0.0.0.0:7817"]);
        cluster.ctl(&format!("head allow {standby}")).ok();
    }
    eventually("both standbys may take over", WITHIN, || {
        let lease = cluster.json("head show")["lease"].clone();
        let count = lease["candidates"].as_array().map_or(0, Vec::len);
        (lease["state"] == "held" && count == 2).then_some(())
    });
    Some((cluster, etcd))
}

/// The head of the side without etcd decides nothing any more; one of `may_win` takes over.
fn a_minority_decides_nothing(divide: impl Fn(&Network), unite: impl Fn(&Network), may_win: &[&str]) {
    let Some((cluster, etcd)) = with_judge() else { return };
    let jobs = ["b", "c"].map(|host| (host, gated(&cluster, host)));
    divide(&cluster.network);
    eventually("the head has lost its lease", WITHIN, || {
        (head_at(cluster.head())?["lease"]["state"] == "waiting").then_some(())
    });
    let futile = cluster.ctl("run --reconnect 0 -n 1 --host head touch /tmp/touched").deadline(2 * WITHIN).start();
    let winner = eventually("a standby has taken over", WITHIN, || {
        may_win.iter().copied().find(|host| cluster.log(host).contains("the head of this DVM runs here"))
    });
    let name = format!("{winner}-head");
    assert_eq!(until_epoch(&cluster, &[winner], 1), name);
    assert_eq!(rsctl(cluster.host(winner), &format!("run -n 1 --host {winner} hostname")).ok(), format!("{winner}\n"));
    let shown = head_at(cluster.head()).expect("the earlier head answers");
    assert_eq!((&shown["epoch"], &shown["lease"]["state"]), (&0.into(), &"waiting".into()), "{shown}");

    unite(&cluster.network);
    has_given_way(&cluster);
    assert!(!futile.end().status.success(), "no head has run it");
    assert!(!cluster.head().file("/tmp/touched").exists(), "the earlier head has started a rank beside the later one");
    assert_eq!(until_epoch(&cluster, &["b", "c"], 1), name);
    for (host, job) in jobs {
        goes_on(&cluster, host, job);
    }
    let events = rsctl(cluster.host("b"), "events --json").ok();
    assert_eq!(events.matches("\"head_started\"").count(), 2, "{events}");
    stop(&cluster, winner);
    drop(etcd);
}

#[test]
fn a_head_that_is_cut_off_decides_nothing_and_a_standby_takes_over() {
    a_minority_decides_nothing(|network| network.cut("head"), |network| network.mend("head"), &["b", "c"]);
}

#[test]
fn a_head_with_half_of_its_nodes_but_without_etcd_decides_nothing() {
    let apart = ["c", "judge"];
    a_minority_decides_nothing(|network| network.divide(&apart), |network| network.unite(&apart), &["c"]);
}
