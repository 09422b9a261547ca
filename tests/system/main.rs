//! System tests: the built programs, as a user meets them.
//!
//! Every test has daemons of its own; what it leaves behind fails it ([`rsd_tests::Dvm`]).

mod daemons;
mod examples;
mod exits;
mod frameworks;
mod groups;
mod jobs;
mod joining;
mod kv;
mod launch;
mod library;
mod listening;
mod load;
mod manual;
mod mpi;
mod newcomers;
mod output;
mod placement;
mod plan;
mod pmi;
mod ports;
mod restart;
mod slurm;
mod spawn;
mod strangers;
mod surface;
mod topics;
mod wrong_uses;

/// Both MPICHs: the old PMI dialect and the new one.
const MPIS: [rsd_tests::Mpi; 2] = [rsd_tests::Mpi::Debian, rsd_tests::Mpi::Wheel];

/// Lines in an order that does not depend on who was faster.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
