use rsd_proto::v1::{Inventory, NodeAddress};

use super::*;

/// A node: number, parent, machine, where it listens, its addresses.
fn node(node: u32, parent: u32, machine: &str, listen: &str, hosts: &[&str]) -> NodeInfo {
    let addresses = hosts.iter().map(|host| NodeAddress { host: (*host).into(), interface: "eth0".into() }).collect();
    let inventory =
        Inventory { addresses, machine: machine.into(), port_range: "7000-7100".into(), ..Inventory::default() };
    let (name, listen, inventory) = (format!("node{node}"), listen.into(), Some(inventory));
    NodeInfo { node, parent, name, listen, inventory, ..NodeInfo::default() }
}

/// A head and an inner node, each with a child, on three machines: nodes 0 and 1 share one.
fn tree() -> [NodeInfo; 4] {
    [
        node(0, 0, "A", "[::]:7817", &["10.0.0.1", "fd00::1"]),
        node(1, 0, "A", "", &["10.0.0.1", "fd00::1"]),
        node(2, 0, "B", "0.0.0.0:7001", &["10.0.0.2"]),
        node(3, 2, "C", "", &["10.0.0.3", "node3.example.org"]),
    ]
}

fn lines(nodes: &[NodeInfo]) -> Vec<[String; 4]> {
    let all = rules(nodes);
    all.iter().map(row).map(|[to, addresses, ports, from, _]| [to, addresses, ports, from]).collect()
}

#[test]
fn the_tree_and_the_ranks_need_ports_between_machines_only() {
    let expected = [
        ["node0", "10.0.0.1, fd00::1", "7817", "node2, node3"],
        ["node2", "10.0.0.2", "7001", "node3"],
        [
            "node0, node1, node2, node3",
            "10.0.0.1, fd00::1, 10.0.0.1, fd00::1, 10.0.0.2, 10.0.0.3, node3.example.org",
            "7000-7100",
            "node0, node1, node2, node3",
        ],
    ];
    assert_eq!(lines(&tree()), expected);
}

#[test]
fn a_dvm_on_one_machine_needs_no_port() {
    let [head, same, ..] = tree();
    assert_eq!(lines(&[head, same]), [[""; 4]; 0]);
    // A node that does not say where it is may be anywhere.
    let unknown = [0, 1].map(|id| node(id, 0, "", "10.0.0.1:7817", &["10.0.0.1"]));
    assert_eq!(lines(&unknown).len(), 2);
}

#[test]
fn the_ruleset_accepts_nodes_and_drops_others() {
    let nodes = tree();
    let text = emit::nftables(&rules(&nodes));
    for line in [
        "    elements = { 10.0.0.1, 10.0.0.2, 10.0.0.3 }",
        "    elements = { fd00::1 }",
        "# Missing here, because it is a name: node3.example.org",
        "    ip daddr { 10.0.0.2 } tcp dport 7001 ip saddr @nodes4 accept comment \"daemons below it in the tree\"",
        "    ip daddr { 10.0.0.2 } tcp dport 7001 drop",
        "    ip6 daddr { fd00::1 } tcp dport 7000-7100 drop",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(!text.contains("7817 drop"), "{text}");
}

#[test]
fn nothing_is_dropped_where_a_node_comes_from_an_unknown_address() {
    let mut nodes = tree();
    // Behind a router that translates addresses: nobody can connect to it.
    nodes[3].reached = Some(String::new());
    let text = emit::nftables(&rules(&nodes));
    assert!(!text.contains(" drop\n"), "{text}");
    let note = "    # Nothing is dropped at ip daddr { 10.0.0.2 } tcp dport 7001: the address from which these nodes connect is unknown: node3";
    assert!(text.lines().any(|line| line == note), "{text}");
    assert!(text.contains("tcp dport 7001 ip saddr @nodes4 accept"), "the others are accepted: {text}");
    nodes[3].reached = None;
    nodes[3].inventory.as_mut().unwrap().addresses.retain(|address| address.host == "node3.example.org");
    assert!(!emit::nftables(&rules(&nodes)).contains(" drop\n"), "a name is no address");
}

#[test]
fn connections_that_exist_are_not_cut() {
    let nodes = tree();
    let text = emit::nftables(&rules(&nodes));
    let first = text.lines().skip_while(|line| !line.contains("policy accept")).nth(1);
    assert_eq!(first, Some("    ct state established,related accept"));
}

#[test]
fn nothing_is_dropped_where_the_kernel_the_kernel_chooses_the_ports() {
    let mut nodes = tree();
    nodes.iter_mut().for_each(|node| node.inventory.as_mut().unwrap().port_range.clear());
    let nftables = emit::nftables(&rules(&nodes));
    assert!(nftables.contains("tcp dport 1024-65535 ip saddr @nodes4 accept"), "{nftables}");
    assert!(!nftables.contains("1024-65535 drop"), "{nftables}");
    let k8s = emit::k8s(&rules(&nodes));
    assert!(!k8s.contains("endPort") && k8s.contains("containerPort: 7817"), "{k8s}");
}

#[test]
fn the_policy_lists_each_port_once() {
    let nodes = tree();
    let text = emit::k8s(&rules(&nodes));
    assert_eq!(text.matches("port: 7817").count(), 1, "{text}");
    assert!(text.contains("          port: 7000\n          endPort: 7100\n"), "{text}");
    assert_eq!(text.matches("containerPort:").count(), 2, "{text}");
}
