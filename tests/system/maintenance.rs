//! `rsctl node`: nodes that are drained, resumed, removed and labelled, and the words that select nodes.

use std::time::Duration;

use rsd_tests::{Dvm, eventually};
use serde_json::json;

#[test]
fn a_drained_node_runs_no_new_ranks_until_it_is_resumed() {
    let mut dvm = Dvm::start(3);
    let gate = dvm.scratch().join("gate");
    let wait = format!("while ! test -e {}; do sleep 0.02; done", gate.display());
    let running = dvm.rsctl(["run", "--host", "node1:2", "sh", "-c", &format!("echo up; {wait}; echo done")]).start();
    running.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    assert_eq!(dvm.ctl("node drain node1").ok(), "node1: drained, 2 ranks are still running there\n");
    let late = dvm.ctl("node drain node1 --wait --timeout 300ms").fails(124);
    assert!(late.contains("node1 still runs 2 ranks; it stays drained"), "{late}");
    assert!(dvm.ctl("nodes").ok().contains("up, drained"));
    assert_eq!(dvm.ctl("waits").ok(), "drain of node node1: 2 ranks of job 1 still run there\n");

    // It survives restarts of the node and of the head; the job goes on over the first.
    dvm.kill(1);
    dvm.restart(1);
    let waiting = dvm.ctl("node drain node1 --wait").start();
    dvm.file("gate", "");
    assert_eq!(running.end().ok().matches("done").count(), 2);
    assert_eq!(waiting.end().ok(), "node1: drained\n");
    dvm.terminate(0);
    dvm.restart(0);
    eventually("all nodes are back", Duration::from_secs(20), || {
        (dvm.json("nodes")["nodes"].as_array().map(Vec::len) == Some(3)).then_some(())
    });
    assert_eq!(dvm.ctl("run -n 8 echo here").ok(), "here\n".repeat(8));
    let all = dvm.submit(["-n", "12", "echo", "everywhere"]);
    let shown = dvm.json(&format!("job show {all}"));
    assert_eq!(shown["state"], "queued", "{shown}");
    assert_eq!(dvm.ctl("node resume node1").ok(), "node1: resumed\n");
    dvm.ctl(&format!("wait {all}")).ok();
}

#[test]
fn a_node_that_is_gone_is_removed_at_once_and_a_connected_one_on_request() {
    let mut dvm = Dvm::start(3);
    let job = dvm.rsctl(["run", "--host", "node1:1,node2:1", "sh", "-c", "echo up; exec sleep 1000"]).start();
    job.until_stdout(|out| (out.matches("up").count() == 2).then_some(()));
    let said = dvm.ctl("node remove node1").fails(240);
    assert!(said.contains("node1 is connected: rsctl node remove node1 --stop"), "{said}");
    let said = dvm.ctl("node remove node1 --stop").fails(240);
    assert!(said.contains("node1 runs ranks of job 1"), "{said}");
    let said = dvm.ctl("node remove node0 --stop").fails(240);
    assert!(said.contains("node0 is the head"), "{said}");
    dvm.kill(1);
    eventually("node1 is away", Duration::from_secs(20), || {
        (dvm.json("nodes")["nodes"][1]["state"] == "away").then_some(())
    });
    dvm.ctl("node remove node1").ok();
    let said = job.end().fails(242);
    assert!(said.contains("its node node1 was unreachable and has been removed"), "{said}");
    dvm.ctl("node remove node2 --stop").ok();
    eventually("node2 has left", Duration::from_secs(20), || {
        (dvm.json("nodes")["nodes"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    // The daemon that was only killed comes back as the same node, and ends what it finds.
    dvm.restart(1);
    assert_eq!(dvm.ctl("run --host node1:2 echo back").ok(), "back\nback\n");
}

#[test]
fn nodes_are_selected_by_label_id_address_and_host_name() {
    let dvm = Dvm::start(3);
    assert_eq!(dvm.ctl("node label node1 gpu=h200 zone=a").ok(), "node1: gpu=h200 zone=a\n");
    dvm.ctl("node label +id2 gpu=h200").ok();
    assert_eq!(dvm.ctl("node label node1 zone-").ok(), "node1: gpu=h200\n");
    assert_eq!(dvm.json("nodes")["nodes"][2]["labels"], json!({ "gpu": "h200" }));
    let names = |hosts: &str| {
        let job = dvm.submit(["--host", hosts, "true"]);
        dvm.ctl(&format!("wait {job}")).ok();
        let shown = dvm.ctl(&format!("job show {job}")).ok();
        ["node0", "node1", "node2"].into_iter().filter(|name| shown.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(names("+gpu=h200"), ["node1", "node2"]);
    assert_eq!(names("+gpu=h200:1").len(), 1);
    assert_eq!(names("+gpu=h200,^node2"), ["node1"]);
    assert_eq!(names("+id2:1"), ["node2"]);
    let file = dvm.file("hosts", "+gpu=h200\n");
    assert_eq!(dvm.ctl(&format!("run --hostfile {file} echo here")).ok(), "here\n".repeat(8));
    let said = dvm.ctl("run --host +gpu=b200 true").fails(243);
    assert!(said.contains("has the label +gpu=b200"), "{said}");
    for (label, wrong) in [("gpu", "KEY=VALUE sets a label"), ("gpu=a=b", "invalid label")] {
        let said = dvm.ctl(&format!("node label node1 {label}")).fails(240);
        assert!(said.contains(wrong), "{said}");
    }

    // All three are on this machine: its host name means any of them.
    let host = nix::unistd::gethostname().expect("a machine has a name").into_string().expect("in ASCII");
    let said = dvm.rsctl(["node", "drain", &host]).fails(240);
    assert!(said.contains("names 3 nodes: node0 (+id0), node1 (+id1), node2 (+id2)"), "{said}");
    let alone = Dvm::start(1);
    assert_eq!(alone.rsctl(["run", "--host", &format!("{host}:1"), "echo", "here"]).ok(), "here\n");
    let said = dvm.ctl("node drain nosuch").fails(240);
    assert!(said.contains("no node named nosuch"), "{said}");
}
