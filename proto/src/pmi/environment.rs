//! The environment variables that describe a rank's place in its job, and the variables of other launchers and outer rsd jobs in
//! the environment of a process.
//!
//! A rank that inherits the latter connects to the wrong process manager or does not start: MPICH 5 fails in MPI_Init when it
//! sees `PMIX_RANK` without a PMI, and a rank that sees the `PMI_FD` of an outer job writes into that job's socket. So no rank
//! inherits them; the step then sets the variables that a rank needs. The parameters of Open MPI and of PMIx (`OMPI_MCA_…`,
//! `PMIX_MCA_…`) are the user's, but for those by which a launcher speaks to its ranks.

/// Returns whether a variable with this name describes the running job of a launcher, so that a rank must not inherit it. What users
/// set for their libraries (`OMPI_MCA_btl`, `PMIX_MCA_…`, `I_MPI_FABRICS`, `UCX_TLS`) is theirs, and ranks inherit it.
pub fn is_launcher_variable(name: &[u8]) -> bool {
    let starts = |prefix: &&str| name.starts_with(prefix.as_bytes());
    NAMES.iter().any(|other| other.as_bytes() == name) || (PREFIXES.iter().any(starts) && !OF_USERS.iter().any(starts))
}

/// Prefixes of the names of launcher variables: those that Hydra, Intel MPI's Hydra, Open MPI 4 and 5 (PRRTE, PMIx), MVAPICH2 and
/// Slurm's PMI set for ranks.
pub const PREFIXES: [&str; 11] = [
    "HYDI_",
    "HYDRA_BSTRAP_",
    "I_MPI_INFO_",
    "MPISPAWN_",
    "MV2_COMM_WORLD_",
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_ess_",
    "OMPI_WORLD_",
    "PMIX_",
    "PMI_",
];

/// Prefixes of names that begin as launcher variables do but that users set.
pub const OF_USERS: [&str; 5] = ["PMIX_DEBUG", "PMIX_INSTALL_PREFIX", "PMIX_MCA_", "PMIX_PREFIX", "PMIX_VERBOSE"];

/// Names of further launcher variables.
pub const NAMES: [&str; 58] = [
    "I_MPI_HYDRA_UUID",
    "I_MPI_PIN_INFO",
    "I_MPI_PIN_MAPPING",
    "MPIRUN_RSH_LAUNCH",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "OMPI_LIBDIR_LOC",
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_cpu_type",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_oversubscribe",
    "OMPI_MCA_num_procs",
    "OMPI_MCA_orte_app_num",
    "OMPI_MCA_orte_bound_at_launch",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_jobfam_session_dir",
    "OMPI_MCA_orte_launch",
    "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_num_nodes",
    "OMPI_MCA_orte_precondition_transports",
    "OMPI_MCA_orte_top_session_dir",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    "OMPI_NUM_APP_CTX",
    "OMPI_PARENT_PORT",
    "OMPI_TOOL_NAME",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_VERSION",
    "PRTE_LAUNCHED",
    "PRTE_SHARED_FS",
    "RSD_ARRAY_COUNT",
    "RSD_ARRAY_INDEX",
    "RSD_ARRAY_JOB",
    "RSD_ATTEMPT",
    "RSD_CPUS",
    "RSD_CROWDED",
    "RSD_DIAL_OUT",
    "RSD_DVM",
    "RSD_EPOCH",
    "RSD_EXPORTED",
    "RSD_GPUS",
    "RSD_GROUP",
    "RSD_JOB",
    "RSD_JOB_NAME",
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

/// A rank's place in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The job's number.
    pub job: u64,
    /// The rank.
    pub rank: u32,
    /// The number of ranks of the job.
    pub size: u32,
    /// The local rank.
    pub local_rank: u32,
    /// The number of ranks on its node.
    pub local_size: u32,
    /// The index of its node among the job's nodes.
    pub node_index: u32,
    /// The node's name.
    pub node_name: &'a str,
    /// The job's PMI name.
    pub namespace: &'a str,
    /// The address at which the node listens for ranks of other nodes; empty if unknown.
    pub node_address: &'a str,
}

impl Place<'_> {
    /// Returns the variables that describe the place to MPI libraries and scripts, for launched ranks and members of a group
    /// alike.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let [rank, size] = [self.rank, self.size].map(|number| number.to_string());
        let [local_rank, local_size] = [self.local_rank, self.local_size].map(|number| number.to_string());
        let mut variables = vec![
            ("PMI_RANK", rank.clone()),
            ("PMI_SIZE", size.clone()),
            ("PMI_HOSTNAME", self.node_name.to_owned()),
            ("MPI_LOCALRANKID", local_rank.clone()),
            ("MPI_LOCALNRANKS", local_size.clone()),
            ("MV2_COMM_WORLD_RANK", rank.clone()),
            ("MV2_COMM_WORLD_SIZE", size.clone()),
            ("MV2_COMM_WORLD_LOCAL_RANK", local_rank.clone()),
            ("MV2_COMM_WORLD_LOCAL_SIZE", local_size.clone()),
            ("RSD_JOB", self.job.to_string()),
            ("RSD_RANK", rank),
            ("RSD_SIZE", size),
            ("RSD_LOCAL_RANK", local_rank),
            ("RSD_LOCAL_SIZE", local_size),
            ("RSD_NODE", self.node_index.to_string()),
            ("RSD_NODE_NAME", self.node_name.to_owned()),
            ("RSD_PMI_NAMESPACE", self.namespace.to_owned()),
        ];
        if !self.node_address.is_empty() {
            variables.push(("RSD_NODE_ADDRESS", self.node_address.to_owned()));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, is_launcher_variable};

    #[test]
    fn no_variable_of_a_place_is_inherited() {
        let place = Place {
            job: 7,
            rank: 3,
            size: 16,
            local_rank: 1,
            local_size: 8,
            node_index: 0,
            node_name: "a",
            namespace: "rsd-0123-7",
            node_address: "10.0.0.1",
        };
        let variables = place.variables();
        assert!(variables.iter().all(|(name, _)| is_launcher_variable(name.as_bytes())), "{variables:?}");
        assert!(
            variables.contains(&("PMI_RANK", "3".to_owned()))
                && variables.contains(&("RSD_LOCAL_SIZE", "8".to_owned()))
        );
    }

    #[test]
    fn launcher_variables_are_recognised_and_user_variables_are_not() {
        for name in ["PMI_FD", "PMI_TOTALVIEW", "PMIX_RANK", "PRTE_LAUNCHED", "HYDI_CONTROL_FD", "OMPI_COMM_WORLD_RANK"]
        {
            assert!(is_launcher_variable(name.as_bytes()), "{name}");
        }
        for name in
            ["MPIRUN_RSH_LAUNCH", "MPISPAWN_ID", "MV2_COMM_WORLD_SIZE", "MPI_LOCALRANKID", "RSD_JOB", "RSD_NODE"]
        {
            assert!(is_launcher_variable(name.as_bytes()), "{name}");
        }
        // What ranks of Open MPI 4.1 and 5.0 and of Intel MPI find in their environment.
        for name in [
            "OMPI_UNIVERSE_SIZE",
            "OMPI_MCA_ess",
            "OMPI_MCA_ess_base_vpid",
            "OMPI_MCA_orte_hnp_uri",
            "OMPI_MCA_orte_ess_num_procs",
            "OMPI_WORLD_SIZE",
            "PMIX_NAMESPACE",
            "PMIX_SERVER_URI41",
            "PRTE_SHARED_FS",
            "HYDRA_BSTRAP_PGID",
            "I_MPI_INFO_NP",
            "I_MPI_HYDRA_UUID",
        ] {
            assert!(is_launcher_variable(name.as_bytes()), "{name}");
        }
        for name in [
            "OMPI_ALLOW_RUN_AS_ROOT",
            "OMPI_CC",
            "OMPI_MCA_btl",
            "OMPI_MCA_schizo",
            "PMIX_MCA_gds",
            "PATH",
            "PMI",
            "PMIFOO",
            "MPIR_CVAR_CH4_NETMOD",
            "UCX_TLS",
            "I_MPI_SPAWN",
            "I_MPI_FABRICS",
            "OMPI_MCA_btl",
            "OMPI_MCA_orte_base_help_aggregate",
            "OMPI_ALLOW_RUN_AS_ROOT",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
            "OMPI_CC",
            "PMIX_MCA_gds",
            "PMIX_INSTALL_PREFIX",
            "PRTE_MCA_rmaps_default_mapping_policy",
            "FI_PROVIDER",
            "HYDRA_TOPO_DEBUG",
            "RSD_LOG",
            "RSD_RUNTIME_DIR",
            "",
        ] {
            assert!(!is_launcher_variable(name.as_bytes()), "{name}");
        }
        assert!(!is_launcher_variable(b"\xff\xfe"));
    }
}
