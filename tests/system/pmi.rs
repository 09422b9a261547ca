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
