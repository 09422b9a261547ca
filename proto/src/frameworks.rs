//! The variables that frameworks without MPI read, so that they run under rsd without their own launcher: the words of
//! `--export`, and the variables of each.
//!
//! - torch: the variables that `torchrun` sets and `init_method="env://"` reads. Rank 0 listens on `MASTER_PORT`, a free port of
//!   its node.
//! - nccl: the interface for its sockets.
//! - nvshmem: PMI-1 as its bootstrap, and the interface that it uses with a unique id instead.
//!
//! Names and values follow the frameworks' documentation. A variable that the user has set is kept.

use crate::pmi::environment::Place;

/// The variable that lists the exported variables of a process. Inherited values of these variables were not chosen by the user.
pub const EXPORTED: &str = "RSD_EXPORTED";
/// The key under which the steps of a job exchange where rank 0 must listen: `address port`.
pub const MASTER_KEY: &str = "PMI_rsd_master";

/// One word of `--export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Framework {
    /// PyTorch, with gloo.
    Torch,
    /// NCCL.
    Nccl,
    /// NVSHMEM.
    Nvshmem,
}

/// All frameworks by name.
const ALL: [(&str, Framework); 3] =
    [("torch", Framework::Torch), ("nccl", Framework::Nccl), ("nvshmem", Framework::Nvshmem)];

/// An unknown framework.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown framework {0:?}: use torch, nccl or nvshmem, or several separated by commas")]
pub struct Unknown(String);

/// Parses `torch,nccl` into frameworks in the order of [`Framework`], each once. An empty text is an empty list.
pub fn parse(list: &str) -> Result<Vec<Framework>, Unknown> {
    let words = list.split(',').filter(|_| !list.is_empty());
    let known = |word: &str| ALL.iter().find(|(name, _)| *name == word.trim()).map(|(_, framework)| *framework);
    let mut found = words
        .map(|word| known(word).ok_or_else(|| Unknown(word.chars().take(40).collect())))
        .collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Returns the list that [`parse`] reads.
pub fn list(frameworks: &[Framework]) -> String {
    let names = ALL.iter().filter(|(_, framework)| frameworks.contains(framework)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(",")
}

/// The address and port at which the ranks of a job meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meeting<'a> {
    /// The address of rank 0's node.
    pub address: &'a str,
    /// A free port on that node.
    pub port: u16,
    /// The interface by which this node reaches the others; empty: unknown.
    pub interface: &'a str,
    /// How many nodes there are.
    pub nodes: u32,
}

/// Returns whether a variable describes a single rank. If all ranks of a job inherit it, the user did not choose it.
pub fn is_of_one_rank(name: &[u8]) -> bool {
    OF_ONE_RANK.iter().any(|known| known.as_bytes() == name)
}

const OF_ONE_RANK: [&str; 9] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "NODE_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
];

/// Returns the variables of these frameworks for one rank, except those that the user has set. The last variable lists the others.
pub fn variables(
    frameworks: &[Framework],
    place: &Place<'_>,
    meeting: &Meeting<'_>,
    is_set: impl Fn(&str) -> bool,
) -> Vec<(&'static str, String)> {
    let mut variables = Vec::new();
    for framework in frameworks {
        match framework {
            Framework::Torch => {
                let numbers = [
                    place.rank,
                    place.local_rank,
                    place.size,
                    place.local_size,
                    place.node_index,
                    meeting.nodes,
                    place.node_index,
                    place.rank,
                    place.size,
                ];
                variables.extend(OF_ONE_RANK.into_iter().zip(numbers.map(|number| number.to_string())));
                variables.push(("MASTER_ADDR", meeting.address.to_owned()));
                variables.push(("MASTER_PORT", meeting.port.to_string()));
                variables.push(("GLOO_SOCKET_IFNAME", meeting.interface.to_owned()));
            }
            // Without the `=`, the name would be a prefix that may match several interfaces.
            Framework::Nccl => variables.push(("NCCL_SOCKET_IFNAME", exactly(meeting.interface))),
            Framework::Nvshmem => {
                variables.push(("NVSHMEM_BOOTSTRAP", "PMI".to_owned()));
                variables.push(("NVSHMEM_BOOTSTRAP_PMI", "PMI".to_owned()));
                variables.push(("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", exactly(meeting.interface)));
            }
        }
    }
    variables.retain(|(name, value)| !value.is_empty() && !is_set(name));
    if !frameworks.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
        variables.push((EXPORTED, names.join(",")));
    }
    variables
}

fn exactly(interface: &str) -> String {
    if interface.is_empty() { String::new() } else { format!("={interface}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'static> = Place {
        job: 7,
        rank: 3,
        size: 16,
        local_rank: 1,
        local_size: 8,
        node_index: 1,
        node_name: "b",
        namespace: "rsd-0123-7",
        node_address: "10.0.0.2",
    };

    #[test]
    fn frameworks_are_parsed_in_any_order_and_unknown_ones_are_refused() {
        let all = parse("nvshmem,torch, nccl,torch").unwrap();
        assert_eq!(all, [Framework::Torch, Framework::Nccl, Framework::Nvshmem]);
        assert_eq!((list(&all), parse("").unwrap()), ("torch,nccl,nvshmem".to_owned(), Vec::new()));
        for wrong in ["pytorch", "torch,", ",", "Torch"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("use torch, nccl or nvshmem"), "{wrong}");
        }
    }

    #[test]
    fn a_rank_gets_the_variables_that_its_framework_reads() {
        let meeting = Meeting { address: "10.0.0.1", port: 23_456, interface: "eth0", nodes: 2 };
        let all = parse("torch,nccl,nvshmem").unwrap();
        let told = variables(&all, &PLACE, &meeting, |_| false);
        for pair in [
            ("RANK", "3"),
            ("LOCAL_RANK", "1"),
            ("WORLD_SIZE", "16"),
            ("LOCAL_WORLD_SIZE", "8"),
            ("NODE_RANK", "1"),
            ("GROUP_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "23456"),
            ("GLOO_SOCKET_IFNAME", "eth0"),
            ("NCCL_SOCKET_IFNAME", "=eth0"),
            ("NVSHMEM_BOOTSTRAP", "PMI"),
        ] {
            assert!(told.contains(&(pair.0, pair.1.to_owned())), "{pair:?}: {told:?}");
        }
        assert!(OF_ONE_RANK.iter().all(|name| is_of_one_rank(name.as_bytes())) && !is_of_one_rank(b"MASTER_ADDR"));
    }

    #[test]
    fn variables_that_the_user_has_set_or_that_are_unknown_are_omitted() {
        let meeting = Meeting { address: "127.0.0.1", port: 23_456, interface: "", nodes: 1 };
        let told = variables(&[Framework::Torch, Framework::Nccl], &PLACE, &meeting, |name| name == "MASTER_PORT");
        let names: Vec<_> = told.iter().map(|(name, _)| *name).collect();
        for none in ["MASTER_PORT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"] {
            assert!(!names.contains(&none), "{names:?}");
        }
        assert_eq!(told.last().unwrap(), &(EXPORTED, names[..names.len() - 1].join(",")));
        assert_eq!(variables(&[], &PLACE, &meeting, |_| false), []);
    }
}
