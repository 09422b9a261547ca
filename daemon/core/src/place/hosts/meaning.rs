//! Resolves the entries of a host list, including nodes by index, idle nodes and exclusions.

use std::collections::HashSet;

use super::super::{Host, NodeOffer};
use super::Names;
use crate::NodeId;

/// The meaning of an entry, parsed from the text that a job carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Meaning<'a> {
    /// A node, by name.
    Named(&'a str),
    /// `+n2`: the node at this index, from 0.
    Nth(usize),
    /// `+e`, `+e:2`: nodes that run no other job and that the list does not name; the count, or all.
    Idle(Option<u32>),
    /// `+id2`: the node with this id.
    Id(NodeId),
    /// `+gpu=h200`, `+gpu=h200:2`: nodes with this label; the count, or all.
    Labelled {
        /// The label's key.
        key: &'a str,
        /// Its value.
        value: &'a str,
        /// How many nodes; None: all.
        count: Option<u32>,
    },
    /// `^name`: excludes a node. A list of only such entries means all other nodes. An unknown name is not a mistake.
    Excluded(&'a str),
}

impl Meaning<'_> {
    /// Parses an entry's text. Text that is not in any other form is a name.
    pub(in super::super) fn of(text: &str) -> Meaning<'_> {
        let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
        if let Some(name) = text.strip_prefix('^') {
            return Meaning::Excluded(name);
        }
        if let Some((key, rest)) = text.strip_prefix('+').and_then(|label| label.split_once('=')) {
            let (value, count) = rest.split_once(':').map_or((rest, None), |(value, count)| (value, number(count)));
            return Meaning::Labelled { key, value, count };
        }
        if let Some(id) = text.strip_prefix("+id").and_then(number) {
            return Meaning::Id(id);
        }
        match (text.strip_prefix("+n").and_then(number), text.strip_prefix("+e")) {
            (Some(place), _) => Meaning::Nth(place as usize),
            (None, Some("")) => Meaning::Idle(None),
            (None, Some(rest)) => match rest.strip_prefix(':').and_then(number) {
                Some(count) => Meaning::Idle(Some(count)),
                None => Meaning::Named(text),
            },
            (None, None) => Meaning::Named(text),
        }
    }
}

/// Returns the nodes of a list, in its order, each with the entry that names it. Fails with the first entry that names an unknown
/// node, or more idle nodes than there are.
pub(in super::super) fn entries<'a>(
    nodes: &[NodeOffer],
    hosts: &'a [Host],
    head: NodeId,
) -> Result<Vec<(usize, &'a Host)>, Host> {
    let names = Names::new(nodes, head);
    let find = |host: &Host| match Meaning::of(&host.name) {
        Meaning::Named(name) => names.find(name).map(Some).ok_or_else(|| host.clone()),
        Meaning::Nth(place) if place < nodes.len() => Ok(Some(place)),
        Meaning::Nth(_) => Err(host.clone()),
        Meaning::Id(id) => nodes.iter().position(|node| node.id == id).map(Some).ok_or_else(|| host.clone()),
        Meaning::Idle(_) | Meaning::Labelled { .. } | Meaning::Excluded(_) => Ok(None),
    };
    let found: Vec<Option<usize>> = hosts.iter().map(find).collect::<Result<_, _>>()?;
    let mut claimed: HashSet<usize> = found.iter().copied().flatten().collect();
    let excluded: HashSet<usize> = hosts.iter().filter_map(excluded_name).filter_map(|name| names.find(name)).collect();
    if hosts.iter().all(|host| excluded_name(host).is_some()) {
        let all = hosts.first().map(|host| (0..nodes.len()).map(move |node| (node, host)));
        return Ok(all.into_iter().flatten().filter(|(node, _)| !excluded.contains(node)).collect());
    }
    let mut entries = Vec::with_capacity(hosts.len());
    for (host, found) in hosts.iter().zip(found) {
        if let Some(node) = found {
            entries.push((node, host));
        }
        if let Meaning::Labelled { key, value, count } = Meaning::of(&host.name) {
            let fits = |node: &usize| {
                let has_it = nodes[*node].labels.iter().any(|(k, v)| k == key && v == value);
                has_it && !excluded.contains(node) && (count.is_none() || !claimed.contains(node))
            };
            let wanted = count.map_or(usize::MAX, |count| count as usize);
            let labelled: Vec<usize> = (0..nodes.len()).filter(fits).take(wanted).collect();
            if labelled.len() < count.map_or(1, |count| count as usize) {
                return Err(host.clone());
            }
            claimed.extend(&labelled);
            entries.extend(labelled.into_iter().map(|node| (node, host)));
        }
        if let Meaning::Idle(count) = Meaning::of(&host.name) {
            let free = |node: &usize| nodes[*node].in_use == 0 && !claimed.contains(node) && !excluded.contains(node);
            let wanted = count.map_or(usize::MAX, |count| count as usize);
            let idle: Vec<usize> = (0..nodes.len()).filter(free).take(wanted).collect();
            if idle.len() < count.map_or(1, |count| count as usize) {
                return Err(host.clone());
            }
            claimed.extend(&idle);
            entries.extend(idle.into_iter().map(|node| (node, host)));
        }
    }
    entries.retain(|(node, _)| !excluded.contains(node));
    Ok(entries)
}

fn excluded_name(host: &Host) -> Option<&str> {
    match Meaning::of(&host.name) {
        Meaning::Excluded(name) => Some(name),
        Meaning::Named(_) | Meaning::Nth(_) | Meaning::Id(_) | Meaning::Labelled { .. } | Meaning::Idle(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::place::cpuset::CpuSet;
    use crate::place::policy::{MapBy, Policy};
    use crate::place::topology::{Kind, Topology};
    use crate::place::{App, Placement, RankPlace, Refusal, Request, place};

    /// Nodes with 2 slots each; `node0` is the head. `true`: another job holds a slot of the node.
    fn nodes(busy: &[bool]) -> Vec<NodeOffer> {
        let topology = Arc::new(Topology::regular(&[(Kind::Core, 2)]).unwrap());
        let node = |(id, busy): (usize, &bool)| NodeOffer {
            id: id as NodeId,
            name: format!("node{id}"),
            slots: 2,
            slots_reason: "2 cores".into(),
            in_use: u32::from(*busy),
            usable: topology.all(),
            topology: topology.clone(),
            taken: CpuSet::EMPTY,
            gpus: Arc::new([]),
            gpus_taken: CpuSet::EMPTY,
            aliases: Arc::default(),
            stocks: Vec::new(),
            labels: Arc::default(),
        };
        busy.iter().enumerate().map(node).collect()
    }

    fn request(hosts: &str, n: Option<u32>, map_by: &str) -> Request {
        let host = |word: &str| {
            let (name, slots) = word.split_once('=').map_or((word, None), |(name, slots)| (name, slots.parse().ok()));
            Host { name: name.into(), slots, max_slots: None, source: "--host".into() }
        };
        let policy = Policy { map_by: map_by.parse::<MapBy>().unwrap(), ..Policy::default() };
        let hosts = hosts.split_whitespace().map(host).collect();
        Request { apps: vec![App { n, hosts }], policy, oversubscribe: false, rankfile: Vec::new(), needs: Vec::new() }
    }

    fn used(placed: Result<Placement, Refusal>) -> String {
        match placed {
            Ok(placement) => {
                placement.used.iter().map(|(id, count)| format!("{id}:{count}")).collect::<Vec<_>>().join(" ")
            }
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn every_form_of_entry_is_parsed() {
        let vectors = [
            ("node0", Meaning::Named("node0")),
            ("+n12", Meaning::Nth(12)),
            ("+e", Meaning::Idle(None)),
            ("+e:3", Meaning::Idle(Some(3))),
            ("^node0", Meaning::Excluded("node0")),
            ("+n", Meaning::Named("+n")),
            ("+nx", Meaning::Named("+nx")),
            ("+n99999999999", Meaning::Named("+n99999999999")),
            ("+e:", Meaning::Named("+e:")),
            ("+e3", Meaning::Named("+e3")),
            ("", Meaning::Named("")),
        ];
        for (text, meaning) in vectors {
            assert_eq!(Meaning::of(text), meaning, "{text:?}");
        }
    }

    #[test]
    fn entries_name_nodes_by_index_idleness_and_exclusion() {
        let some_busy = nodes(&[false, true, false, false]);
        let vectors = [
            ("+n2 +n0", "2:2 0:2"),
            ("+n3=1", "3:1"),
            ("+n0 node0", "0:2"),
            ("+n0 +n0 +n0", "0:2"),
            ("+e", "0:2 2:2 3:2"),
            ("+e:2", "0:2 2:2"),
            ("+e:1=1", "0:1"),
            ("node1 +e:1 +e:1", "1:1 0:2 2:2"),
            ("node2 +e", "2:2 0:2 3:2"),
            ("+e node2", "0:2 3:2 2:2"),
            ("^node0", "1:1 2:2 3:2"),
            ("^node0 ^NODE3", "1:1 2:2"),
            ("^unknown", "0:2 1:1 2:2 3:2"),
            ("node3 node0 ^node3", "0:2"),
            ("+e ^node0", "2:2 3:2"),
            ("+e:1 ^node0", "2:2"),
            ("+n9", "no node +n9 (--host): the DVM has 4 nodes, from +n0; see: rsctl nodes"),
            ("+nine", "no node named +nine in this DVM (nodes: node0, node1, node2, node3)"),
        ];
        for (hosts, expected) in vectors {
            assert_eq!(used(place(&some_busy, &request(hosts, None, "slot"), 0)), expected, "{hosts}");
        }
    }

    #[test]
    fn a_job_may_queue_for_idle_nodes_if_the_dvm_has_enough_nodes() {
        let some_busy = nodes(&[false, true, true]);
        let refused = |hosts: &str| place(&some_busy, &request(hosts, None, "slot"), 0).unwrap_err();
        let waits = refused("+e:3");
        assert_eq!((waits.to_string().as_str(), waits.fits_when_idle()), ("+e:3 (--host): 1 of 3 nodes is idle", true));
        let never = refused("+e:4");
        assert_eq!(
            never.to_string(),
            "+e:4 (--host): 1 of 3 nodes is idle; use at most +e:1, less the idle nodes that the list names"
        );
        assert!(!never.fits_when_idle());
        assert!(refused("node0 +e").fits_when_idle());
        let all_busy = nodes(&[true, true]);
        let refused = place(&all_busy, &request("+e:3", None, "slot"), 0).unwrap_err();
        assert_eq!(refused.to_string(), "+e:3 (--host): 0 of 2 nodes are idle; omit it, or name nodes");
    }

    #[test]
    fn seq_and_rankfile_accept_nodes_by_index() {
        let idle = nodes(&[false; 3]);
        assert_eq!(used(place(&idle, &request("+n2 node0 +n2", None, "seq"), 0)), "2:2 0:1");
        let mut listed = request("", None, "rankfile");
        let place_of = |rank, host: &str| RankPlace {
            rank,
            host: host.into(),
            cpus: String::new(),
            source: format!("rankfile r:{}", rank + 1),
        };
        listed.rankfile = vec![place_of(0, "+n1"), place_of(1, "node0")];
        assert_eq!(used(place(&idle, &listed, 0)), "1:1 0:1");
        for several in ["+e", "^node0"] {
            listed.rankfile[1].host = several.into();
            let text = used(place(&idle, &listed, 0));
            assert_eq!(text, "each line of a rankfile needs one host: a name, or +n2 for the third node", "{several}");
        }
    }
}
