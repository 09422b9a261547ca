//! Ranks whose peers cannot be reached, as behind a firewall that drops packets: every wait ends with an error that names the address.

use std::time::Duration;

use rsd_tests::{Dvm, Ended, Mpi, Options};

/// Runs three ranks on three nodes between which no connection can be made.
fn run(dvm: &Dvm, mode: &str) -> Ended {
    let firewall = Mpi::Ours.program_with("no_route.c", &["-shared", "-fPIC"]);
    let variables = [format!("LD_PRELOAD={firewall}"), "RSD_MPI_CONNECT_S=2".to_owned()];
    let call = dvm.rsctl(["run", "-n", "3", "-x", &variables[0], "-x", &variables[1]]);
    let ended =
        call.args([Mpi::Ours.program("mpi/unreachable.c").as_str(), mode]).deadline(Duration::from_secs(60)).end();
    assert!(!ended.status.success(), "{mode}: {ended}");
    assert!(ended.err().contains("): it is unreachable: no answer within 2s"), "{ended}");
    ended
}

#[test]
fn sends_receives_and_barriers_fail_and_name_the_address() {
    let dvm = Dvm::start_with(Options { nodes: 3, slots: 1, args: Vec::new() });
    let sending = run(&dvm, "send");
    assert!(sending.out().contains("sent\n"), "a short message is stored: {sending}");
    assert!(sending.err().contains("MPI error on rank 0 of job 1: MPI_Finalize: "), "{sending}");
    assert!(!sending.out().contains("rank 0 has finalized"), "{sending}");
    let receiving = run(&dvm, "receive");
    assert!(receiving.err().contains("MPI error on rank 1 of job 2: MPI_Recv: "), "{receiving}");
    let barrier = run(&dvm, "barrier");
    assert!(barrier.err().contains("MPI_Barrier: "), "{barrier}");
}
