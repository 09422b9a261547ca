//! Placement of ranks, and their environment.

use std::collections::BTreeMap;

use rsd_tests::{Dvm, Options};

use crate::sorted;

/// The ranks of each node, from the output of a job whose ranks print `NODE RANK`.
fn placed(printed: &str) -> BTreeMap<String, Vec<u32>> {
    let mut nodes = BTreeMap::<String, Vec<u32>>::new();
    for line in printed.lines() {
        let (node, rank) = line.split_once(' ').expect("a node and a rank");
        nodes.entry(node.to_owned()).or_default().push(rank.parse().expect("a rank"));
    }
    nodes.values_mut().for_each(|ranks| ranks.sort_unstable());
    nodes
}

fn nodes<const N: usize>(expected: [(&str, &[u32]); N]) -> BTreeMap<String, Vec<u32>> {
    expected.into_iter().map(|(node, ranks)| (node.to_owned(), ranks.to_vec())).collect()
}

const WHERE: [&str; 3] = ["sh", "-c", "echo $RSD_NODE_NAME $RSD_RANK"];

#[test]
fn ranks_fill_nodes_in_order_or_take_turns() {
    let dvm = Dvm::start(2);
    let run = |options: &str| placed(&dvm.rsctl(["run"]).args(options.split_whitespace()).args(WHERE).ok());
    assert_eq!(run(""), nodes([("node0", &[0, 1, 2, 3]), ("node1", &[4, 5, 6, 7])]));
    assert_eq!(run("-n 5"), nodes([("node0", &[0, 1, 2, 3]), ("node1", &[4])]));
    assert_eq!(run("-n 5 --map-by node"), nodes([("node0", &[0, 2, 4]), ("node1", &[1, 3])]));
    assert_eq!(run("--host node1"), nodes([("node1", &[0, 1, 2, 3])]));
    let labelled = dvm.rsctl(["run", "-n", "2", "--host", "node0:1,node1:1", "-l", "echo", "arg"]).ok();
    assert_eq!(sorted(&labelled), ["[0] arg", "[1] arg"]);
    assert_eq!(run("--host node1:1,node0:2"), nodes([("node1", &[0]), ("node0", &[1, 2])]));
    assert_eq!(run("--host node0,node1,node0"), nodes([("node0", &[0, 1]), ("node1", &[2, 3, 4, 5])]));
    assert_eq!(run("-n 10 --oversubscribe"), nodes([("node0", &[0, 1, 2, 3, 4]), ("node1", &[5, 6, 7, 8, 9])]));
    assert_eq!(
        run("-n 10 --map-by node:oversubscribe"),
        nodes([("node0", &[0, 2, 4, 6, 8]), ("node1", &[1, 3, 5, 7, 9])])
    );
}

#[test]
fn eight_ranks_on_two_hosts_with_two_slots_are_refused_with_fixes_that_work() {
    let dvm = Dvm::start(2);
    let hosts = "# two of each\nnode0 slots=2 max_slots=20\nnode1 slots=2 max_slots=20\n";
    dvm.file("hosts", hosts);
    let said = dvm.rsctl(["run", "--hostfile", "./hosts", "-n", "8"]).args(WHERE).fails(243);
    assert_eq!(
        said,
        "\
rsctl: 8 ranks requested, 4 slots free on 2 nodes
  node0  2 slots (hostfile ./hosts:2)   0 in use
  node1  2 slots (hostfile ./hosts:3)   0 in use
fix one of:  -n 4   |  --oversubscribe (=> node0: 0-3, node1: 4-7)  |  slots=4 in ./hosts
"
    );
    let run = |options: &str| {
        let options = options.split_whitespace();
        placed(&dvm.rsctl(["run", "--hostfile", "./hosts"]).args(options).args(WHERE).ok())
    };
    assert_eq!(run("-n 8 --oversubscribe"), nodes([("node0", &[0, 1, 2, 3]), ("node1", &[4, 5, 6, 7])]));
    assert_eq!(run("-n 8 --oversubscribe --map-by node"), nodes([("node0", &[0, 2, 4, 6]), ("node1", &[1, 3, 5, 7])]));
    assert_eq!(run("-n 4"), nodes([("node0", &[0, 1]), ("node1", &[2, 3])]));
    dvm.file("hosts", hosts.replace('2', "4").replace("40", "4"));
    assert_eq!(run("-n 8"), nodes([("node0", &[0, 1, 2, 3]), ("node1", &[4, 5, 6, 7])]), "the suggested fix works");
}

#[test]
fn ranks_beyond_max_slots_go_to_other_nodes() {
    let dvm = Dvm::start(2);
    dvm.file("hosts", "node0 slots=2 max_slots=3\nnode1:2\n");
    let run = |n: &str| dvm.rsctl(["run", "--hostfile", "hosts", "--oversubscribe", "-n", n]).args(WHERE);
    assert_eq!(placed(&run("8").ok()), nodes([("node0", &[0, 1, 2]), ("node1", &[3, 4, 5, 6, 7])]));
    dvm.file("hosts", "node0 slots=2 max_slots=3\nnode1 max_slots=3\n");
    let said = run("8").fails(243);
    assert!(said.contains("8 ranks requested") && said.contains("at most 3 ranks (hostfile hosts:1)"), "{said}");
    assert!(said.contains("-n 6"), "{said}");
}

#[test]
fn ranks_know_their_rank_size_and_job() {
    let dvm = Dvm::start(2);
    let script = "echo $RSD_RANK/$RSD_SIZE $RSD_LOCAL_RANK/$RSD_LOCAL_SIZE $RSD_NODE $RSD_NODE_NAME $RSD_JOB \
                  $PMI_RANK/$PMI_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS";
    let printed = dvm.rsctl(["run", "-n", "6", "sh", "-c", script]).ok();
    let expected: Vec<String> = (0..6)
        .map(|rank| {
            let (node, local, here) = if rank < 4 { (0, rank, 4) } else { (1, rank - 4, 2) };
            format!("{rank}/6 {local}/{here} {node} node{node} 1 {rank}/6 {local}/{here}")
        })
        .collect();
    assert_eq!(sorted(&printed), expected);
}

#[test]
fn ranks_lead_sessions_if_they_have_processors_of_their_own_and_otherwise_share_one() {
    let dvm = Dvm::start(1);
    let processors = std::thread::available_parallelism().unwrap().get();
    for (ranks, own) in [(1, true), (processors, true), (2 * processors + 1, false)] {
        let ranks = ranks.to_string();
        let run =
            ["run", "--oversubscribe", "--bind-to", "none", "-n", &ranks, "sh", "-c", "ps -o pid=,pgid=,sid= -p $$"];
        let printed = dvm.rsctl(run).ok();
        assert_eq!(printed.lines().count().to_string(), ranks, "{printed}");
        let mut sessions = Vec::new();
        for line in printed.lines() {
            let numbers: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(numbers[0], numbers[1], "pid, process group and session: {line}");
            assert_eq!(numbers[0] == numbers[2], own, "pid, process group and session: {line}");
            sessions.push(numbers[2]);
        }
        assert!(own || sessions.iter().all(|session| *session == sessions[0]), "{printed}");
    }
}

#[test]
fn ranks_know_whether_the_nodes_of_one_machine_have_more_of_them_than_it_has_processors() {
    let dvm = Dvm::start(2);
    let processors = std::thread::available_parallelism().unwrap().get();
    for ranks in [2, processors.max(2), processors + 1] {
        let (crowded, other) = if ranks > processors { ("1", "RSD_CROWDED=0") } else { ("0", "RSD_CROWDED=1") };
        // What a user says for some ranks does not count: all must agree.
        let run = ["run", "--oversubscribe", "--map-by", "node", "-n", "1", "-x", other, "printenv", "RSD_CROWDED"];
        let printed = dvm.rsctl(run).args([":", "-n", &(ranks - 1).to_string(), "printenv", "RSD_CROWDED"]).ok();
        assert_eq!(printed.lines().collect::<Vec<_>>(), vec![crowded; ranks], "{ranks} ranks");
    }
}

#[test]
fn ranks_inherit_the_environment_without_other_launchers_variables() {
    let dvm = Dvm::start(2);
    let file = dvm.file("env", "# settings\nFROM_FILE=file\nOVER=file\n");
    let script =
        "echo $MINE,$FROM_FILE,$OVER,$SET,${PMI_PORT-none},${OMPI_COMM_WORLD_RANK-none},${HYDI_CONTROL_FD-none}";
    let printed = dvm
        .rsctl(["run", "-n", "2", "--map-by", "node", "--env-file", &file])
        .args(["-x", "OVER=option", "-x", "SET=a b=c", "sh", "-c", script])
        .env("MINE", "mine")
        .env("PMI_PORT", "127.0.0.1:1")
        .env("OMPI_COMM_WORLD_RANK", "5")
        .env("HYDI_CONTROL_FD", "7")
        .ok();
    // rsd sets Open MPI's variables itself.
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["mine,file,option,a b=c,none,0,none", "mine,file,option,a b=c,none,1,none"]);
    // A launcher's variable that is named explicitly is passed.
    let named = dvm.rsctl(["run", "-n", "1", "-x", "HYDI_X", "sh", "-c", "echo $HYDI_X"]).env("HYDI_X", "7").ok();
    assert_eq!(named, "7\n");
}

#[test]
fn ranks_start_in_the_users_or_the_given_directory() {
    let dvm = Dvm::start(2);
    let here = dvm.scratch().display().to_string();
    assert_eq!(dvm.rsctl(["run", "-n", "2", "--map-by", "node", "pwd"]).ok(), format!("{here}\n{here}\n"));
    assert_eq!(dvm.rsctl(["run", "-n", "1", "--wdir", "/usr/bin", "pwd"]).ok(), "/usr/bin\n");
    dvm.file("tool", "#!/bin/sh\necho tool in $(pwd)\n");
    dvm.call("chmod").args(["+x"]).args([dvm.scratch().join("tool")]).ok();
    assert_eq!(dvm.rsctl(["run", "-n", "1", "./tool"]).ok(), format!("tool in {here}\n"));
    // A path is resolved in the working directory of the rank.
    let above = dvm.scratch().join("..").display().to_string();
    assert!(dvm.rsctl(["run", "-n", "1", "--wdir", &above, "scratch/tool"]).ok().starts_with("tool in "));
}

#[test]
fn a_thousand_ranks_start_and_end() {
    let dvm = Dvm::start_with(Options { nodes: 4, slots: 250, args: Vec::new() });
    let printed = dvm.rsctl(["run", "-n", "1000", "sh", "-c", "echo $RSD_RANK"]).ok();
    let mut ranks: Vec<u32> = printed.lines().map(|line| line.parse().expect("a rank")).collect();
    ranks.sort_unstable();
    assert!(ranks.into_iter().eq(0..1000), "every rank prints its number once");
}
