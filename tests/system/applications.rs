//! Applications as Debian builds them, with Open MPI: `rsctl run` takes the place of `mpirun` in their manuals.

use rsd_tests::Dvm;

/// NetPIPE sends messages of many sizes between two ranks and checks each byte.
#[test]
fn netpipe_passes_its_integrity_check_on_one_node_and_on_two() {
    for nodes in [1, 2] {
        let dvm = Dvm::start(nodes);
        let program = ["NPopenmpi", "-i", "-n", "20", "-u", "100000", "-p", "0", "-o", "np.out"];
        let ended = dvm.rsctl(["run", "-n", "2", "--map-by", "node"]).args(program).end();
        let passed = ended.err().matches("Integrity check passed").count();
        assert!(passed > 20, "{nodes} nodes: {ended}");
        assert!(!ended.err().contains("failed"), "{nodes} nodes: {ended}");
        ended.ok();
    }
}
