//! Support for frameworks other than MPI: their variables, and a port where their ranks meet.

use rsd_tests::{Call, Dvm, built, client, python};

use crate::sorted;

/// Returns the command that runs `meet.py`, with a Python that has torch if one is installed.
fn meet() -> [String; 2] {
    python("meet.py")
}

fn lines(nodes: usize, per_node: usize, interface: &str) -> Vec<String> {
    let size = nodes * per_node;
    let line = |rank: usize| {
        let (node, local) = (rank / per_node, rank % per_node);
        format!("rank {rank} of {size}, local {local} of {per_node}, node {node} of {nodes}, {interface}")
    };
    (0..size).map(line).collect()
}

#[test]
fn ranks_of_a_framework_meet_on_one_node_and_on_two() {
    for (nodes, interface) in [(1, "-"), (2, "lo")] {
        let dvm = Dvm::start(nodes);
        let n = (2 * nodes).to_string();
        let options = ["-n", &n, "--map-by", "ppr:2:node", "--export", "torch"];
        let printed = dvm.rsctl(["run"]).args(options).args(meet()).ok();
        assert_eq!(sorted(&printed), lines(nodes, 2, interface));
        dvm.rsctl(["submit"]).args(options).args(meet()).ok();
        dvm.rsctl(["wait", "last"]).ok();
        assert_eq!(sorted(&dvm.rsctl(["logs", "last"]).ok()), lines(nodes, 2, interface));
    }
}

#[test]
fn members_of_a_group_meet_without_mpi_and_their_epoch_succeeds() {
    let dvm = Dvm::start(2);
    let member = |at: usize| {
        let call = dvm.rsctl(["--dvm"]).args([dvm.state_dir(at % 2)]).args(["group", "exec", "actors", "--size", "4"]);
        call.args(["--export", "torch,nccl", "--"]).args(meet()).start()
    };
    let members: Vec<_> = (0..4).map(member).collect();
    let texts: Vec<String> = members.into_iter().map(|member| member.end().ok()).collect();
    assert_eq!(sorted(&texts.concat()), lines(2, 2, "lo"));
    dvm.rsctl(["wait", "last"]).ok();
}

#[test]
fn a_process_that_joins_by_itself_gets_the_variables_and_a_second_place_replaces_them() {
    let dvm = Dvm::start(1);
    let [python, _] = meet();
    let text = r#"
import os, rsd_join
os.environ["NCCL_SOCKET_IFNAME"] = "mine"
ports = []
for epoch in (1, 2):
    place = rsd_join.join("actors", size=1, export="torch,nccl")
    assert place.epoch == epoch and os.environ["RANK"] == "0", os.environ
    assert os.environ["NCCL_SOCKET_IFNAME"] == "mine"
    assert "MASTER_PORT" in os.environ["RSD_EXPORTED"].split(",")
    ports.append(os.environ["MASTER_PORT"])
assert ports[0] != ports[1], ports
"#;
    let call = dvm.call(&python).env("PYTHONPATH", client("python")).env("RSD_DVM", dvm.state_dir(0));
    call.args(["-c", text]).ok();
}

fn env_of(call: Call) -> Vec<String> {
    call.ok().lines().map(str::to_owned).collect()
}

#[test]
fn a_variable_that_the_user_has_set_overrides_one_of_an_outer_job() {
    let dvm = Dvm::start(1);
    let show = ["sh", "-c", "echo $MASTER_PORT $RANK $WORLD_SIZE $NVSHMEM_BOOTSTRAP $RSD_EXPORTED"];
    let run = |options: &[&str]| dvm.rsctl(["run", "-n", "1", "--export", "torch,nvshmem"]).args(options).args(show);
    let own = env_of(run(&[]).env("MASTER_PORT", "29500").env("RANK", "7").env("NVSHMEM_BOOTSTRAP", "MPI"));
    assert!(own[0].starts_with("29500 0 1 MPI RANK,"), "{own:?}");
    assert!(!own[0].contains("MASTER_PORT"), "{own:?}");
    let explicit = env_of(run(&["-x", "RANK=5"]));
    assert!(explicit[0].contains(" 5 1 PMI "), "{explicit:?}");
    let outer = env_of(run(&[]).env("MASTER_PORT", "29500").env("RSD_EXPORTED", "MASTER_PORT"));
    assert!(!outer[0].starts_with("29500 "), "{outer:?}");
    let plain = env_of(dvm.rsctl(["run", "-n", "1"]).args(show).env("MASTER_PORT", "29500").env_remove("RANK"));
    assert!(plain[0].starts_with("29500"), "{plain:?}");
    assert!(!plain[0].contains("MASTER_PORT"), "{plain:?}");
}

#[test]
fn an_unknown_framework_is_refused_with_the_known_ones() {
    let dvm = Dvm::start(1);
    for words in [
        &["run", "-n", "1", "--export", "jax", "true"][..],
        &["group", "exec", "a", "--size", "1", "--export", "jax", "--", "true"],
    ] {
        let refused = dvm.rsctl(words).fails(240);
        assert!(refused.contains("use torch, nccl or nvshmem"), "{refused}");
    }
    let late = dvm.rsctl(["run", "-n", "1", "--export", "torch", "no-such-program"]).fails(247);
    assert!(late.contains("no-such-program"), "{late}");
}

#[test]
fn a_job_that_is_cancelled_while_its_ranks_wait_to_meet_ends() {
    let dvm = Dvm::start(2);
    let rsctl = built::rsctl().display().to_string();
    for _ in 0..5 {
        let job = dvm.rsctl(["submit", "-n", "2", "--map-by", "node", "--export", "torch", "sleep", "600"]).ok();
        dvm.call(&rsctl).args(["cancel", job.trim()]).ok();
        dvm.rsctl(["wait", job.trim()]).end().fails(130);
    }
}
