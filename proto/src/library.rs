//! The environment variables of the MPI library, as one table: the library parses them by it, and `rsctl mpi settings` prints it.

/// One variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// `RSD_MPI_…`, or `RSD_JOIN…` for joining a group.
    pub name: &'static str,
    /// The accepted values.
    pub values: &'static str,
    /// The default.
    pub default: &'static str,
    /// What it does, in one sentence.
    pub meaning: &'static str,
}

/// The setting that names the interface, or the interfaces, on which ranks listen. Launchers that open the ranks' sockets read it too.
pub const INTERFACE: &str = "RSD_MPI_INTERFACE";

/// All variables, by name.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "RSD_JOIN",
        values: "a group's name (1 to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit)",
        default: "none",
        meaning: "the group that a process without a launcher joins in MPI_Init, which waits until all members have joined; \
                  RSD_DVM names the daemon if several are running here",
    },
    Setting {
        name: "RSD_JOIN_EXPORT",
        values: "one or more of torch, nccl and nvshmem, separated by commas",
        default: "none",
        meaning: "the frameworks whose variables rsd_join.h sets; MPI_Init ignores it, because other threads may read the \
                  environment at that time; without rsd_join.h, use rsctl group exec --export or rsd_join.py",
    },
    Setting {
        name: "RSD_JOIN_MAX",
        values: "a number of processes",
        default: "as the group was created",
        meaning: "with RSD_JOIN_MIN: the most members of the group",
    },
    Setting {
        name: "RSD_JOIN_MIN",
        values: "a number of processes",
        default: "as the group was created",
        meaning: "instead of RSD_JOIN_SIZE: the fewest members of the group; it begins when no further member joins for a while",
    },
    Setting {
        name: "RSD_JOIN_RANK",
        values: "a rank",
        default: "by node, then by arrival",
        meaning: "the rank that this process requests in the group",
    },
    Setting {
        name: "RSD_JOIN_SIZE",
        values: "a number of processes",
        default: "as the group was created",
        meaning: "how many members the group has",
    },
    Setting {
        name: "RSD_JOIN_TIMEOUT",
        values: "a duration: 250ms, 5s, 1m30s; a bare number is seconds",
        default: "the group's own, 60s",
        meaning: "how long MPI_Init waits for the group before it fails and names the missing members",
    },
    Setting {
        name: "RSD_MPI_CC",
        values: "a command",
        default: "cc",
        meaning: "the compiler that mpicc runs; running programs ignore it",
    },
    Setting {
        name: "RSD_MPI_CHECK",
        values: "0 | 1",
        default: "0",
        meaning: "1: the library checks the program, for its developers: receives of other datatypes than were sent and collective \
                  calls that do not match are errors, and what is left at MPI_Finalize is reported on stderr; set it for all \
                  processes",
    },
    Setting {
        name: "RSD_MPI_CMA",
        values: "auto | off",
        default: "auto",
        meaning: "whether long messages are copied directly from the sender's memory (process_vm_readv), if a test at first \
                  contact shows that this works",
    },
    Setting {
        name: "RSD_MPI_CONNECT_S",
        values: "seconds, at least 1",
        default: "30",
        meaning: "how long to wait for the first contact with another process of the job before it counts as dead",
    },
    Setting {
        name: "RSD_MPI_CUDA",
        values: "auto | on | off",
        default: "auto",
        meaning: "whether buffers may lie in the memory of a CUDA device; auto: if this machine has the files of NVIDIA's driver; off: \
                  the library treats every address as memory of the host",
    },
    Setting {
        name: "RSD_MPI_CUDA_IPC",
        values: "auto | off",
        default: "auto",
        meaning: "whether the device copies messages between two processes of a node that both lie in device memory; off: they go \
                  through memory of the host",
    },
    Setting {
        name: "RSD_MPI_CXX",
        values: "a command",
        default: "c++",
        meaning: "the compiler that mpicxx runs; running programs ignore it",
    },
    Setting {
        name: INTERFACE,
        values: "an address of this machine or the name of a network interface, or several separated by commas",
        default: "the interface that the launcher advertises, else the one that reaches the process manager",
        meaning: "the address on which this process accepts connections from other nodes; of several, the first; long messages then go \
                  over all of them at once; under rsd, set it at submission (rsctl run -x); ranks then exchange their addresses in \
                  MPI_Init",
    },
    Setting {
        name: "RSD_MPI_PROGRESS",
        values: "none | thread",
        default: "none",
        meaning: "thread: a thread of the library continues long messages, one-sided operations of other nodes and non-blocking \
                  collectives while the program computes",
    },
    Setting {
        name: "RSD_MPI_SHM",
        values: "on | off",
        default: "on",
        meaning: "whether processes on one node use shared memory; off: they use TCP. The same for all processes of a node",
    },
    Setting {
        name: "RSD_MPI_SINGLETON",
        values: "allow | alone | refuse",
        default: "refuse",
        meaning: "what a process without a process manager does: refuse: it runs as a world of one, unless the environment shows \
                  that a launcher started several processes; allow: it always runs as a world of one; alone: the same, but without \
                  asking the local daemon for spawning and names, as the other two do",
    },
    Setting {
        name: "RSD_MPI_SPIN_US",
        values: "microseconds",
        default: "up to 1000 if each process of the node has a core, else 0",
        meaning: "how long a waiting call polls before it yields its core; by default, it polls for a shorter time or not at all while \
                  other processes take the yielded core and give it back soon",
    },
    Setting {
        name: "RSD_MPI_VERBOSE",
        values: "off | transports",
        default: "off",
        meaning: "transports: each process reports on stderr, at MPI_Finalize, which transport it used for each peer, and why",
    },
];

/// Finds a setting by name.
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
