//! Clients of PMIx without MPI: `programs/pmix_client.c` over Debian's libpmix, which asks for more than any MPI does.

use std::time::Duration;

use rsd_tests::{Call, Dvm, Options, Running, eventually, pkg_config, plain_with};

use crate::groups::{all_ok, member};
use crate::sorted;

/// `rsctl run` of the client on four ranks, which go to the nodes in turn.
fn client(dvm: &Dvm, words: &[&str]) -> Call {
    dvm.rsctl(["run", "-n", "4", "--map-by", "node", &program()]).args(words)
}

fn program() -> String {
    let flags = pkg_config("pmix");
    plain_with("pmix_client.c", &flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Lets the client check itself, on one node and on two.
#[track_caller]
fn pass(names: &[&str]) {
    for nodes in [1, 2] {
        let dvm = Dvm::start(nodes);
        for name in names {
            assert_eq!(client(&dvm, &[name]).ok(), format!("{name} right on 4\n"), "{nodes} nodes");
        }
    }
}

#[test]
fn values_reach_all_ranks_by_a_fence_or_when_they_are_asked_for() {
    pass(&["values", "modex", "late"]);
}

#[test]
fn names_are_published_once_waited_for_and_removed() {
    pass(&["names"]);
}

#[test]
fn groups_have_context_numbers_of_their_own() {
    pass(&["groups"]);
}

#[test]
fn a_rank_notifies_the_others() {
    pass(&["events"]);
}

#[test]
fn the_namespaces_can_be_queried() {
    pass(&["query"]);
}

#[test]
fn ranks_of_other_nodes_are_signalled() {
    pass(&["control"]);
}

#[test]
fn a_rank_asks_about_another_job_and_ends_it() {
    let dvm = Dvm::start_with(Options { nodes: 2, slots: 8, args: Vec::new() });
    let script = "echo $RSD_PMI_NAMESPACE; exec sleep 1000";
    let other = dvm.submit(["-n", "3", "--map-by", "node", "sh", "-c", script]);
    let namespace = eventually("its namespace", Duration::from_secs(20), || {
        let printed = dvm.rsctl(["logs", &format!("{other}.0")]).ok();
        printed.ends_with('\n').then(|| printed.trim().to_owned())
    });
    assert_eq!(client(&dvm, &["ask", &namespace]).ok(), "ask right on 4\n");
    let ended = dvm.rsctl(["wait", &other]).end();
    assert_eq!(ended.status.code(), Some(130), "{ended}");
}

#[test]
fn every_rank_knows_its_place_and_its_peers() {
    for nodes in [1, 2, 4] {
        let dvm = Dvm::start(nodes);
        let per_node = 4 / nodes;
        let mut expected: Vec<String> =
            (0..4).map(|rank| format!("rank {rank} of 4, local {} of {per_node}", rank / nodes)).collect();
        expected.insert(0, "places right on 4".to_owned());
        assert_eq!(sorted(&client(&dvm, &["places"]).ok()), expected, "{nodes} nodes");
    }
}

#[test]
fn two_jobs_connect_and_read_each_others_values() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 8 / nodes as u32, args: Vec::new() });
        let jobs = [["meet", "here", "there"], ["meet", "there", "here"]].map(|words| client(&dvm, &words).start());
        for job in jobs {
            assert_eq!(job.end().ok(), "meet right on 4\n", "{nodes} nodes");
        }
    }
}

#[test]
fn spawned_processes_and_their_parent_read_each_others_values() {
    for nodes in [1, 2] {
        let dvm = Dvm::start_with(Options { nodes, slots: 16 / nodes as u32, args: Vec::new() });
        assert_eq!(client(&dvm, &["spawn"]).ok(), "spawn right on 4\n", "{nodes} nodes");
    }
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    for nodes in [1, 2] {
        let dvm = Dvm::start(nodes);
        let said = client(&dvm, &["abort"]).fails(7);
        assert!(said.contains("rank 1 on node") && said.contains("code 7"), "{said}");
        assert!(said.contains("out of luck"), "{said}");
    }
}

#[test]
fn members_of_a_group_read_each_others_values() {
    let dvm = Dvm::start(2);
    let program = program();
    for name in ["values", "late", "groups"] {
        let start = |at: usize| member(&dvm, at % 2, &format!("{name} --size 4"), &[&program, name]).start();
        assert_eq!(all_ok((0..4).map(start).collect()), [format!("{name} right on 4")]);
    }
}

#[test]
fn the_death_of_a_member_is_an_event_for_the_others() {
    let dvm = Dvm::start(2);
    let program = program();
    let start = |at: usize| member(&dvm, at % 2, "actors --size 4", &[&program, "lost"]).start();
    let members: Vec<Running> = (0..4).map(start).collect();
    let ends = members.into_iter().map(Running::end).map(|end| (end.status.code(), end.out()));
    let ends: Vec<(Option<i32>, String)> = ends.collect();
    let told = ends.iter().filter(|end| **end == (Some(0), "told of 1\n".to_owned())).count();
    let died = ends.iter().filter(|end| end.0 == Some(3)).count();
    assert_eq!((told, died), (3, 1), "{ends:?}");
    assert!(dvm.ctl("wait last").fails(1).contains("ended without MPI_Finalize"));
}

#[test]
fn waits_name_who_waits_for_whom_in_pmix() {
    for nodes in [1, 2] {
        let dvm = Dvm::start(nodes);
        let gate = dvm.scratch().join("gate");
        let job = client(&dvm, &["blocked"]).args([&gate]).start();
        let waits = eventually("three ranks wait for rank 1", Duration::from_secs(30), || {
            let waits = dvm.json("waits")["waits"].as_array()?.clone();
            // While ranks start, the launch is a wait, too.
            let has = |kind: &&str| waits.iter().any(|wait| wait["kind"] == **kind);
            (waits.len() == 3 && ["collective", "value", "lookup"].iter().all(has)).then_some(waits)
        });
        let of_kind = |kind: &str| waits.iter().find(|wait| wait["kind"] == kind).expect("there is one of each kind");
        for (kind, name) in [("collective", "fence of some processes"), ("value", "late"), ("lookup", "the door")] {
            assert_eq!((&of_kind(kind)["name"], &of_kind(kind)["job"]), (&name.into(), &1.into()), "{nodes} nodes");
        }
        let (fence, value) = (of_kind("collective"), of_kind("value"));
        assert_eq!((&fence["have"], &fence["want"], &fence["missing"][0]["rank"]), (&1.into(), &2.into(), &1.into()));
        assert_eq!((&value["want"], &value["missing"][0]["rank"]), (&1.into(), &1.into()));
        assert_eq!(value["missing"][0]["node"], format!("node{}", nodes - 1));
        let printed = dvm.ctl("waits 1").ok();
        for part in [
            "fence of some processes in job 1: 1 of 2 in, missing rank 1 (node",
            "value \"late\" of rank 1 (node",
            ": 1 request of job 1 waits until it is committed",
            "published data \"the door\": a process of job 1 waits for it",
        ] {
            assert!(printed.contains(part), "{part:?} is not in {printed}");
        }
        dvm.file("gate", "");
        assert_eq!(job.end().ok(), "blocked right on 4\n", "{nodes} nodes");
        assert_eq!(dvm.ctl("waits").end().err(), "rsctl: nothing waits\n");
    }
}

#[test]
fn waits_name_the_job_that_another_one_waits_for() {
    let dvm = Dvm::start_with(Options { nodes: 1, slots: 8, args: Vec::new() });
    let sleeping = dvm.rsctl(["run", "-n", "2", "sh", "-c", "echo $PMIX_NAMESPACE; exec tail -f /dev/null"]).start();
    let namespace = sleeping.until_stdout(|out| out.lines().next().map(str::to_owned));
    let connecting = dvm.rsctl(["run", "-n", "2", &program(), "connect", &namespace]).start();
    // Until both of its ranks have called, it waits for its own.
    eventually("the second job waits for the first", Duration::from_secs(30), || {
        let waits = dvm.json("waits last")["waits"].clone();
        let wait = waits.as_array()?.iter().find(|wait| wait["kind"] == "collective")?.clone();
        (wait["text"] == "connect in job 2: 2 of 4 in, missing ranks 0-1 of job 1").then_some(())
    });
    // It fails when the first job ends.
    dvm.rsctl(["cancel", "1"]).end();
    sleeping.end();
    assert_ne!(connecting.end().status.code(), Some(0));
}
