//! What a rank's environment says of its place in the job; and what other launchers, and an outer job of ours, leave in the
//! environment of a process.
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
pub const NAMES: [&str; 21] = [
    "MPIRUN_RSH_LAUNCH",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "PRTE_LAUNCHED",
    "RSD_CPUS",
    "RSD_DVM",
    "RSD_EPOCH",
    "RSD_EXPORTED",
    "RSD_GPUS",
    "RSD_GROUP",
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

/// Where a rank is in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The job's number.
    pub job: u64,
    /// Which of its ranks.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Which of its node's ranks.
    pub local_rank: u32,
    /// How many are on its node.
    pub local_size: u32,
    /// Which of the job's nodes.
    pub node_index: u32,
    /// That node's name.
    pub node_name: &'a str,
    /// The job's PMI name.
    pub namespace: &'a str,
    /// Where it listens for ranks on other nodes; empty: not known.
    pub node_address: &'a str,
}

impl Place<'_> {
    /// The variables that say so, to MPI libraries and scripts: for ranks that are started and for members of a group alike.
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
    fn no_variable_of_a_place_reaches_a_rank_by_inheritance() {
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
