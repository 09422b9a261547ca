//! What an MPI cannot do under any launcher, and what it needs to be told.

use rsd_tests::Mpi;

/// What is expected of a cell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// It works as it is.
    Works,
    /// It works with these environment variables of the MPI itself.
    Needs { settings: &'static [(&'static str, &'static str)], why: &'static str },
    /// The MPI cannot do it.
    Cannot {
        why: &'static str,
        /// The attempt fails with these words. `None` if the attempt would take long or succeeds by chance.
        told: Option<&'static str>,
    },
}

const OFI: Rule = Rule::Needs {
    settings: &[("MPIR_CVAR_CH4_NETMOD", "ofi")],
    why: "with MPIR_CVAR_CH4_NETMOD=ofi: the addresses of its UCX module do not fit into a port's name",
};
const SPAWN_ON: Rule =
    Rule::Needs { settings: &[("I_MPI_SPAWN", "on")], why: "with I_MPI_SPAWN=on, as under its own launcher" };
const NO_MPI_4: Rule = Rule::Cannot {
    why: "it implements MPI 3.1, which has no sessions",
    told: Some("unknown type name ‘MPI_Session’"),
};
const TCP: Rule = Rule::Needs {
    settings: &[("OMPI_MCA_btl", "tcp,self")],
    why: "with OMPI_MCA_btl=tcp,self: it names its shared memory after the host, which both daemons have in common",
};
const NO_MPI4PY: Rule = Rule::Cannot { why: "no mpi4py is built for it here", told: Some("has no mpi4py") };

/// Cells that are not [`Rule::Works`].
pub(super) const EXCEPTIONS: [(Mpi, &str, Rule); 13] = [
    (Mpi::Debian, "mpi4py", NO_MPI4PY),
    (
        Mpi::Debian,
        "spawn",
        Rule::Cannot { why: "its UCX module has no dynamic processes", told: Some("Error in spawn call") },
    ),
    (
        Mpi::Debian,
        "connect",
        Rule::Cannot { why: "its UCX module has no ports", told: Some("not supported with ucx netmod") },
    ),
    (
        Mpi::Debian,
        "4 hosts",
        Rule::Cannot { why: "it may hang in MPI_Finalize over several hosts, under its own launcher too", told: None },
    ),
    (Mpi::Wheel, "spawn", OFI),
    (Mpi::Wheel, "connect", OFI),
    (Mpi::Intel, "spawn", SPAWN_ON),
    (Mpi::Intel, "connect", SPAWN_ON),
    (Mpi::OpenMpiDebian, "mpi4py", NO_MPI4PY),
    (Mpi::OpenMpiDebian, "session", NO_MPI_4),
    (Mpi::OpenMpiDebian, "group", TCP),
    (Mpi::OpenMpi4, "session", NO_MPI_4),
    (Mpi::OpenMpi4, "group", TCP),
];

/// The rule for a cell.
pub(super) fn rule(mpi: Mpi, column: &str) -> Rule {
    let found = EXCEPTIONS.iter().find(|(of, name, _)| *of == mpi && *name == column);
    found.map_or(Rule::Works, |(_, _, rule)| *rule)
}
