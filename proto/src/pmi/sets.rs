//! The keys by which a rank gets its process sets from rsd: its job, its group, and the names of the nodes.
//!
//! Only rsd's server answers these keys, and ranks cannot put keys that begin with `PMI_`. Nodes are numbered
//! as in `PMI_process_mapping`. Their names come as a comma-separated list that starts at the node in the key and ends where the
//! value is full.

/// The key of the job's number.
pub const JOB_KEY: &str = "PMI_rsd_job";
/// The key of the name of the group whose members the ranks are; absent if rsd launched the ranks.
pub const GROUP_KEY: &str = "PMI_rsd_group";

const NODES: &str = "PMI_rsd_nodes_";
/// The limit for a list, which clients of old servers can read too. A list has at least one name, whatever its length.
const LIST_BYTES_MAX: usize = 960;

/// Returns the key of the names of the nodes from `first` on.
pub fn nodes_key(first: usize) -> String {
    format!("{NODES}{first}")
}

/// Returns the node from which a key requests names; `None` for any other key.
pub fn first_node(key: &[u8]) -> Option<usize> {
    str::from_utf8(key).ok()?.strip_prefix(NODES)?.parse().ok()
}

/// Returns the value of [`nodes_key`]: the names that fit. `None` if node `first` does not exist.
pub fn list(names: &[String], first: usize) -> Option<String> {
    let (one, others) = names.get(first..)?.split_first()?;
    let mut list = one.clone();
    for name in others {
        if list.len() + 1 + name.len() > LIST_BYTES_MAX {
            break;
        }
        list.push(',');
        list.push_str(name);
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_bounded_length_give_all_names() {
        let names: Vec<String> = (0..1000).map(|number| format!("node{number}.of.some.cluster")).collect();
        let mut found: Vec<String> = Vec::new();
        while let Some(list) = first_node(nodes_key(found.len()).as_bytes()).and_then(|first| list(&names, first)) {
            assert!(list.len() <= LIST_BYTES_MAX);
            found.extend(list.split(',').map(str::to_owned));
        }
        assert_eq!(found, names);
        assert_eq!(list(&["x".repeat(2000)], 0).map(|list| list.len()), Some(2000));
        assert_eq!((list(&[], 0), list(&names, 5000)), (None, None));
    }

    #[test]
    fn other_keys_request_no_nodes() {
        for key in [&b"PMI_rsd_nodes_"[..], b"PMI_rsd_nodes_-1", b"PMI_rsd_job", b"PMI_rsd_nodes_\xff"] {
            assert_eq!(first_node(key), None);
        }
    }
}
