//! What the MPI library reads from its environment, as one table: the library parses by it, `rsctl mpi settings` prints it.

/// One variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// `RSD_MPI_…`, or `RSD_JOIN…` for joining a group.
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
        name: "RSD_JOIN",
        values: "a group's name (1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit)",
        default: "none",
        meaning: "the group that a process without a launcher joins in MPI_Init, which waits until as many are there as it wants; its daemon is found by RSD_DVM, or is the only one here",
    },
    Setting {
        name: "RSD_JOIN_EXPORT",
        values: "one or several of torch, nccl and nvshmem, with commas between",
        default: "none",
        meaning: "read by rsd_join.h, not by MPI_Init, which changes no environment: other threads may be reading it; without rsd_join.h, join by rsctl group exec --export or rsd_join.py",
    },
    Setting {
        name: "RSD_JOIN_MAX",
        values: "a number of processes",
        default: "as the group was created",
        meaning: "with RSD_JOIN_MIN: how many members the group has at most",
    },
    Setting {
        name: "RSD_JOIN_MIN",
        values: "a number of processes",
        default: "as the group was created",
        meaning: "instead of RSD_JOIN_SIZE: how many members the group has at least; it begins when nobody has come for a while",
    },
    Setting {
        name: "RSD_JOIN_RANK",
        values: "a rank",
        default: "by node, then by arrival",
        meaning: "the rank that this process wishes to be in the group",
    },
    Setting {
        name: "RSD_JOIN_SIZE",
        values: "a number of processes",
        default: "as the group was created",
        meaning: "how many members the group has",
    },
    Setting {
        name: "RSD_JOIN_TIMEOUT",
        values: "a duration: 250ms, 5s, 2m, or seconds alone",
        default: "the group's own, 60s",
        meaning: "how long MPI_Init waits for the group before it fails and names who is missing",
    },
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
        values: "allow | alone | refuse",
        default: "refuse",
        meaning: "what a process without a process manager does: refuse: it runs as a world of one, unless a launcher of several processes has left its mark in the environment; allow: it does so in any case. Either way it asks the daemon that runs here for what only a process manager can do (spawning, names); alone: it does not",
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
            assert!(known.name.starts_with("RSD_MPI_") || known.name.starts_with("RSD_JOIN"), "{}", known.name);
        }
        assert_eq!(setting("RSD_MPI_NONE"), None);
    }
}
