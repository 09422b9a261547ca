//! What the MPI library reads from its environment, as one table: the library parses by it, `rsctl mpi settings` prints it.

/// One variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// `RSD_MPI_…`.
    pub name: &'static str,
    /// What may be said.
    pub values: &'static str,
    /// What holds if nothing is said.
    pub default: &'static str,
    /// What it does, as one sentence.
    pub meaning: &'static str,
}

/// The setting that names the interface where ranks listen: launchers that make the sockets look at it, too.
pub const INTERFACE: &str = "RSD_MPI_INTERFACE";

/// All variables, in the order of their names.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "RSD_MPI_CC",
        values: "a command",
        default: "cc",
        meaning: "the compiler that mpicc runs; programs that run pass it over",
    },
    Setting {
        name: "RSD_MPI_CMA",
        values: "auto | off",
        default: "auto",
        meaning: "whether long messages are copied straight from the sender's memory (process_vm_readv) where a test at first contact shows that this works",
    },
    Setting {
        name: "RSD_MPI_CONNECT_S",
        values: "seconds, at least 1",
        default: "30",
        meaning: "how long to wait for the first contact with another process of the job before it is taken for dead",
    },
    Setting {
        name: "RSD_MPI_CXX",
        values: "a command",
        default: "c++",
        meaning: "the compiler that mpicxx runs; programs that run pass it over",
    },
    Setting {
        name: INTERFACE,
        values: "an address of this machine or the name of a network interface",
        default: "the interface that the launcher advertises, or else the way to the process manager",
        meaning: "where processes on other nodes connect to; under rsd to be set when the job is submitted (rsctl run -x), and ranks then exchange their addresses in MPI_Init",
    },
    Setting {
        name: "RSD_MPI_SHM",
        values: "on | off",
        default: "on",
        meaning: "whether processes on one node talk through shared memory; off: through TCP",
    },
    Setting {
        name: "RSD_MPI_SINGLETON",
        values: "allow | refuse",
        default: "refuse",
        meaning: "what to do when no process manager answers, but a launcher of several processes has left its mark in the environment: run as a world of one, or fail with a reason",
    },
    Setting {
        name: "RSD_MPI_SPIN_US",
        values: "microseconds",
        default: "1000 where each process of the node has a core, 0 where not",
        meaning: "how long a waiting call polls before it gives its core away",
    },
    Setting {
        name: "RSD_MPI_VERBOSE",
        values: "off | transports",
        default: "off",
        meaning: "transports: each process says at MPI_Finalize, on stderr, which way it has used to each peer, and why",
    },
];

/// The setting of a name.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_sorted_and_found_by_name() {
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
        for known in SETTINGS {
            assert_eq!(setting(known.name), Some(known));
            assert!(known.name.starts_with("RSD_MPI_"), "{}", known.name);
        }
        assert_eq!(setting("RSD_MPI_NONE"), None);
    }
}
