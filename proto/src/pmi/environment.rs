//! What other launchers, and an outer job of ours, leave in the environment of a process.
//!
//! A rank that inherits them talks to the wrong process manager, or refuses to start: MPICH 5 fails its MPI_Init when it
//! sees `PMIX_RANK` without a PMI, and one that sees `PMI_FD` of an outer job speaks into that job's socket. So they are
//! dropped on the way to every rank; what a rank needs of them is then set anew.

/// Whether a variable of this name belongs to a launcher and must not reach a rank by inheritance.
pub fn is_launcher_variable(name: &[u8]) -> bool {
    NAMES.iter().any(|other| other.as_bytes() == name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Families of variables, by how their names begin.
pub const PREFIXES: [&str; 6] = ["PMI_", "PMIX_", "HYDI_", "OMPI_", "MPISPAWN_", "MV2_COMM_WORLD_"];

/// Single variables.
pub const NAMES: [&str; 18] = [
    "MPIRUN_RSH_LAUNCH",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "PRTE_LAUNCHED",
    "RSD_CPUS",
    "RSD_DVM",
    "RSD_GPUS",
    "RSD_JOB",
    "RSD_LISTEN_FD",
    "RSD_LOCAL_RANK",
    "RSD_LOCAL_SIZE",
    "RSD_NODE",
    "RSD_NODE_ADDRESS",
    "RSD_NODE_NAME",
    "RSD_PMI_NAMESPACE",
    "RSD_RANK",
    "RSD_SIZE",
    "RSD_SOCKET",
];

#[cfg(test)]
mod tests {
    use super::is_launcher_variable;

    #[test]
    fn variables_of_launchers_are_known_and_a_users_own_are_not() {
        for name in ["PMI_FD", "PMI_TOTALVIEW", "PMIX_RANK", "PRTE_LAUNCHED", "HYDI_CONTROL_FD", "OMPI_COMM_WORLD_RANK"]
        {
            assert!(is_launcher_variable(name.as_bytes()), "{name}");
        }
        for name in
            ["MPIRUN_RSH_LAUNCH", "MPISPAWN_ID", "MV2_COMM_WORLD_SIZE", "MPI_LOCALRANKID", "RSD_JOB", "RSD_NODE"]
        {
            assert!(is_launcher_variable(name.as_bytes()), "{name}");
        }
        for name in [
            "PATH",
            "PMI",
            "PMIFOO",
            "MPIR_CVAR_CH4_NETMOD",
            "UCX_TLS",
            "I_MPI_SPAWN",
            "RSD_LOG",
            "RSD_RUNTIME_DIR",
            "",
        ] {
            assert!(!is_launcher_variable(name.as_bytes()), "{name}");
        }
        assert!(!is_launcher_variable(b"\xff\xfe"));
    }
}
