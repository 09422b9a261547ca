//! Every MPI over four hosts with a network between them: each has its own host name, shared memory and addresses.

use rsd_tests::Mpi;
use rsd_tests::hosts::Cluster;

use super::table::Cell;
use super::{ROWS, attempted, finish, with};
use crate::sorted;

/// The column's name.
pub(super) const COLUMN: &str = "4 hosts";
const NAMES: [&str; 4] = ["head", "a", "b", "c"];

#[test]
fn every_mpi_runs_over_four_hosts() {
    let Some(cluster) = Cluster::start(&NAMES) else { return };
    let attempt = |mpi| attempted(mpi, COLUMN, |settings| run(&cluster, mpi, settings));
    finish(ROWS.map(|(mpi, _)| Cell { mpi, column: COLUMN, result: attempt(mpi) }).into());
}

/// Eight ranks, two on each host: each knows its place, and all send to each other.
fn run(cluster: &Cluster, mpi: Mpi, settings: &[(&str, &str)]) {
    let run = |program: &str, words: &[&str]| {
        let call = cluster.rsctl(["run", "--map-by", "ppr:2:node", &mpi.program(program)]).args(words);
        with(call, mpi, settings).ok()
    };
    let place = |rank: usize| format!("rank {rank} of 8 on {}, local {} of 2", NAMES[rank / 2], rank % 2);
    let mut expected: Vec<String> = (0..8).map(place).collect();
    expected.sort_unstable();
    assert_eq!(sorted(&run("hello.c", &[])), expected);
    assert_eq!(run("ring.c", &["5"]), "token 40\n");
    assert_eq!(run("collectives.c", &[]), "collectives right on 8 ranks\n");
    assert_eq!(run("large.c", &["2000000"]), "2000000 bytes right on 8 ranks\n");
}
