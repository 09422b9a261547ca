//! Process management over gRPC, for programs without PMI.

use rsd_tests::Dvm;

use crate::sorted;

const RANK: &str = env!("CARGO_BIN_EXE_grpc-rank");

#[test]
fn ranks_that_speak_grpc_put_fence_and_get() {
    for nodes in [1, 4] {
        let dvm = Dvm::start(nodes);
        let printed = dvm.rsctl(["run", "-n", "4", "--map-by", "node", RANK]).ok();
        let local = 4 / nodes;
        let expected: Vec<String> = (0..4)
            .map(|rank| format!("rank {rank} of 4 on node{}, local {} of {local}", rank % nodes, rank / nodes))
            .collect();
        assert_eq!(sorted(&printed), expected, "on {nodes} nodes");
    }
}

#[test]
fn a_request_in_another_jobs_name_is_refused() {
    let dvm = Dvm::start(1);
    let printed = dvm.rsctl(["run", "-n", "1", RANK, "alone"]).ok();
    assert!(printed.contains("RSD_PMI_NAMESPACE"), "{printed}");
}

#[test]
fn a_fence_of_more_than_a_message_may_have_completes() {
    // 90 MiB; a gRPC message has at most 64.
    let dvm = Dvm::start(3);
    let printed = dvm.rsctl(["run", "-n", "3", "--map-by", "node", RANK, "large", "30"]).ok();
    assert_eq!(printed, "30 values of 3 ranks\n".repeat(3));
}

#[test]
fn what_ranks_put_is_bounded_and_the_limit_is_named() {
    let dvm = Dvm::start(4);
    let printed = dvm.rsctl(["run", "-n", "4", "--map-by", "node", RANK, "full"]).ok();
    let expected = "after 127: too much was put before one fence: the ranks of one node may put 134217728 bytes of keys and values\n";
    assert_eq!(printed, expected.repeat(4));
}
