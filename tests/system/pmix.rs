//! Clients of PMIx without MPI: `programs/pmix.c` over Debian's libpmix, which asks for more than any MPI does.

use rsd_tests::{Call, Dvm, Options, pkg_config, plain_with};

use crate::sorted;

/// `rsctl run` of the client on four ranks, which go to the nodes in turn.
fn client(dvm: &Dvm, words: &[&str]) -> Call {
    dvm.rsctl(["run", "-n", "4", "--map-by", "node", &program()]).args(words)
}

fn program() -> String {
    let flags = pkg_config("pmix");
    plain_with("pmix.c", &flags.iter().map(String::as_str).collect::<Vec<_>>())
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
        let dvm = Dvm::start(nodes);
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
fn the_death_of_a_rank_is_an_event_for_the_others_and_ends_the_job() {
    let dvm = Dvm::start(1);
    let ended = client(&dvm, &["lost"]).end();
    assert_eq!(sorted(&ended.out()), ["told of 1"; 3], "{ended}");
    assert!(ended.fails(3).contains("rank 1 on node0 exited with code 3"));
}
