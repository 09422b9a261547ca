//! The daemons of `deploy/kubernetes/rsd.yaml`, with its arguments and settings, on hosts in place of pods.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rsd_tests::hosts::{Network, Plan};
use rsd_tests::{Call, Running, eventually};
use serde_json::Value;

use super::standbys::judge;

const WITHIN: Duration = Duration::from_secs(60);
/// Where a host has what pods have in /etc/rsd, which hosts share with this machine.
const ETC: &str = "/run/rsd";
const STANDBYS: [&str; 3] = ["rsd-standby-0", "rsd-standby-1", "rsd-standby-2"];

fn manifest() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/rsd.yaml");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The arguments of a pod, `SET-N`: in the manifest, each list of arguments is in the style of JSON.
fn args(pod: &str) -> Vec<String> {
    let manifest = manifest();
    let (set, _) = pod.rsplit_once('-').expect("a pod has a number");
    let of_set =
        manifest.split("\n---\n").find(|one| one.contains(&format!("kind: StatefulSet\nmetadata:\n  name: {set}\n")));
    let (_, list) = of_set.and_then(|one| one.split_once("args: ")).unwrap_or_else(|| panic!("{set} has no arguments"));
    let list = &list[..=list.find(']').expect("a list ends")];
    let words: Vec<String> = serde_json::from_str(list).unwrap_or_else(|error| panic!("{error}: {list}"));
    words.iter().map(|word| word.replace("$(POD_NAME)", pod).replace("/etc/rsd", ETC)).collect()
}

/// The settings in the manifest, with another etcd and a shorter lease.
fn settings(etcd: &str) -> String {
    let manifest = manifest();
    let (_, block) = manifest.split_once("rsd.toml: |\n").expect("the manifest has settings");
    let lines = block.lines().map_while(|line| line.strip_prefix("    ")).map(|line| match line {
        "[head]" => "[head]\nlease = \"4s\"\n".to_owned(),
        line if line.starts_with("etcd = ") => format!("etcd = [\"{etcd}\"]\n"),
        line => line.replace("/etc/rsd", ETC) + "\n",
    });
    lines.collect::<String>() + "[link]\nsilence = \"2s\"\n[standby]\npatience = \"1s\"\n"
}

/// A command in a pod, as `kubectl exec` runs it.
fn exec(network: &Network, pod: &str, line: &str) -> Call {
    let (program, line) = line.split_once(' ').unwrap_or((line, ""));
    let call = network.host(pod).call_as("alice", program).args(line.split_whitespace()).deadline(WITHIN);
    call.env("RSD_DVM", "/var/lib/rsd/daemon").env("RSD_CONFIG", format!("{ETC}/rsd.toml"))
}

#[track_caller]
fn start(network: &Network, pod: &str) -> Running {
    let daemon = exec(network, pod, "rsd").args(args(pod)).deadline(10 * WITHIN).start();
    daemon.until_stdout(|out| out.contains("ready").then_some(()));
    daemon
}

/// Mounts the volumes of a pod. The user of the pod owns none of them, and its group may write.
fn mount(network: &Network, pod: &str, settings: &str) {
    let script = format!(
        "mkdir -p /var/lib/rsd {ETC}/etcd; chown 0:4001 /var/lib/rsd; chmod 2775 /var/lib/rsd; cat >{ETC}/rsd.toml
         cp /run/etcd/authority.pem {ETC}/etcd/ca.crt; cp /run/etcd/client.pem {ETC}/etcd/tls.crt
         cp /run/etcd/client-key.pem {ETC}/etcd/tls.key; chmod -R a+rX /run/etcd {ETC}"
    );
    network.host(pod).sh(&script).stdin(settings).ok();
}

fn give_token(network: &Network, pod: &str, token: &str) {
    network
        .host(pod)
        .sh(&format!("cat >{ETC}/token; chown 0:4001 {ETC}/token; chmod 440 {ETC}/token"))
        .stdin(token)
        .ok();
}

fn head_at(network: &Network, pod: &str) -> Option<Value> {
    serde_json::from_slice(&exec(network, pod, "rsctl head show --json").end().stdout).ok()
}

#[test]
fn a_standby_of_the_manifest_becomes_the_head_and_later_pods_find_it_by_the_services_name() {
    let pods = [&["rsd-head-0"], &STANDBYS[..], &["rsd-node-0", "rsd-node-1"]].concat();
    let Some(mut network) = Plan::of(&[&pods[..], &["judge"]].concat()).start() else { return };
    let (etcd, url) = judge(&network, "judge");
    // What the services are for: POD.rsd, and rsd for all pods in which the head may run.
    let names: String =
        pods[..4].iter().map(|pod| format!("{0} {pod}.rsd\n{0} rsd\n", network.host(pod).address())).collect();
    for pod in &pods {
        network.host(pod).sh("cat >>/etc/hosts").stdin(names.as_str()).ok();
        mount(&network, pod, &settings(&url));
    }

    let mut daemons = vec![start(&network, "rsd-head-0")];
    let token = exec(&network, "rsd-head-0", "rsd token new --quiet --ttl 1h").ok();
    for pod in STANDBYS.into_iter().chain(["rsd-node-0"]) {
        give_token(&network, pod, &token);
        daemons.push(start(&network, pod));
    }
    for standby in STANDBYS {
        exec(&network, "rsd-head-0", &format!("rsctl head allow {standby}")).ok();
    }
    eventually("all standbys may take over", WITHIN, || {
        let lease = head_at(&network, "rsd-head-0")?["lease"].clone();
        (lease["state"] == "held" && lease["candidates"].as_array()?.len() == STANDBYS.len()).then_some(())
    });
    assert_eq!(exec(&network, "rsd-node-0", "rsctl run -n 2 hostname").ok(), "rsd-node-0\n".repeat(2));

    network.power_off("rsd-head-0");
    daemons.remove(0);
    let head = eventually("a standby is the head", WITHIN, || {
        let shown = head_at(&network, "rsd-node-0")?;
        (shown["epoch"] == 1).then(|| shown["name"].as_str().map(str::to_owned))?
    });
    let at = STANDBYS.into_iter().find(|pod| head == format!("{pod}-head")).unwrap_or_else(|| panic!("{head}"));
    let token = exec(&network, at, &format!("rsd token new --quiet --dvm {head}")).ok();
    give_token(&network, "rsd-node-1", &token);
    daemons.push(start(&network, "rsd-node-1"));
    eventually("all pods but the first head's are nodes of the new head", WITHIN, || {
        let shown = exec(&network, "rsd-node-0", "rsctl nodes --json").end();
        let shown: Value = serde_json::from_slice(&shown.stdout).ok()?;
        let up = shown["nodes"].as_array()?.iter().filter(|node| node["state"] == "up").count();
        (up == 1 + STANDBYS.len() + 2).then_some(())
    });
    let both = exec(&network, "rsd-node-0", "rsctl run -n 2 --map-by node hostname").ok();
    assert_eq!(crate::sorted(&both), ["rsd-node-0", "rsd-node-1"]);
    exec(&network, at, &format!("rsd stop --force --dvm {head}")).ok();
    for daemon in daemons {
        assert!(daemon.gone(), "the daemons stop with the DVM");
    }
    drop(etcd);
}
