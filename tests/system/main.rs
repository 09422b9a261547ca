//! System tests: run the built programs as a user does.
//!
//! Every test starts its own daemons and fails if it leaves anything behind ([`rsd_tests::Dvm`]).

mod alone;
mod applications;
mod attached;
mod checked;
mod daemons;
mod deleted;
mod descriptors;
mod devices;
mod earlier;
mod examples;
mod exits;
mod frameworks;
mod groups;
mod hangs;
mod held;
mod hosts;
mod jobs;
mod joining;
mod kills;
mod kv;
mod launch;
mod library;
mod listening;
mod load;
mod maintenance;
mod manual;
mod matrix;
mod mpi;
mod mpiexec;
mod newcomers;
mod openmpi;
mod output;
mod placement;
mod places;
mod plan;
mod pmi;
mod pmi2;
mod pmix;
mod ports;
mod queueing;
mod restart;
mod services;
mod slurm;
mod spawn;
mod ssh;
mod standbys;
mod strangers;
mod surface;
mod survivors;
mod takeover;
mod tls;
mod topics;
mod tree;
mod unreachable;
mod upgrade;
mod usage;
mod users;
mod waits;
mod watching;
mod wrong_uses;

/// Both MPICHs: the one with the old PMI dialect and the one with the new.
const MPIS: [rsd_tests::Mpi; 2] = [rsd_tests::Mpi::Debian, rsd_tests::Mpi::Wheel];

/// The lines of a text, sorted, because their order depends on timing.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
