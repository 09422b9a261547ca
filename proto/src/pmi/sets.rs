//! What a rank is told of the sets of processes that it belongs to: its job, its group, and which node has which name.
//!
//! Our server answers these keys itself, and no other server has them: ranks cannot put keys that begin with `PMI_`. Nodes are
//! numbered as in `PMI_process_mapping`; their names come as a list with commas, as many as fit a value, from the one on that the
//! key asks for.

/// The key of the job's number.
pub const JOB_KEY: &str = "PMI_rsd_job";
/// The key of the name of the group whose members the ranks are; there is none where rsd has started them.
pub const GROUP_KEY: &str = "PMI_rsd_group";

const NODES: &str = "PMI_rsd_nodes_";
/// A list is no longer than this, which old servers' clients can read; one name always fits.
const LIST_BYTES_MAX: usize = 960;

/// The key of the names of nodes from this one on.
pub fn nodes_key(first: usize) -> String {
    format!("{NODES}{first}")
}

/// From which node on a key asks for names; none if it is another key.
pub fn first_node(key: &[u8]) -> Option<usize> {
    str::from_utf8(key).ok()?.strip_prefix(NODES)?.parse().ok()
}

/// The value of [`nodes_key`]: as many names as fit. None if there is no such node.
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
    fn all_names_arrive_in_lists_of_bounded_length() {
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
    fn other_keys_ask_for_no_nodes() {
        for key in [&b"PMI_rsd_nodes_"[..], b"PMI_rsd_nodes_-1", b"PMI_rsd_job", b"PMI_rsd_nodes_\xff"] {
            assert_eq!(first_node(key), None);
        }
    }
}
