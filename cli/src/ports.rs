//! `rsctl ports`: which connections a DVM needs between its machines, as a table or for a firewall.
//!
//! Nodes of one machine connect over loopback and appear in no rule.

mod emit;

use std::collections::BTreeSet;

use rsd_proto::v1::{ListNodesRequest, NodeInfo};
use serde_json::{Value, json};

use crate::dvm::{self, Client};
use crate::exit::Failure;
use crate::json;
use crate::options::ports::Form;
use crate::print::{Align, out, say, table};

/// TCP connections that must be possible.
#[derive(Debug, Clone)]
struct Rule<'a> {
    /// The nodes that listen; several for ranks, which run anywhere.
    to: Vec<&'a NodeInfo>,
    ports: Ports,
    /// The nodes that connect.
    from: Vec<&'a NodeInfo>,
    purpose: Purpose,
}

/// The ports of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ports {
    One(u16),
    /// Both ends included.
    Range(u16, u16),
    /// The kernel chooses them.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The head's port: daemons join and renew certificates there, and users on other machines call it.
    Head,
    /// The port of an inner node of the tree.
    Link,
    /// Listening sockets of ranks.
    Ranks,
}

impl Purpose {
    fn text(self) -> &'static str {
        match self {
            Purpose::Head => "daemons that join or reconnect, and rsctl on other machines",
            Purpose::Link => "daemons below it in the tree",
            Purpose::Ranks => "MPI and other programs between ranks",
        }
    }
}

impl Ports {
    fn text(self) -> String {
        match self {
            Ports::One(port) => port.to_string(),
            Ports::Range(first, last) => format!("{first}-{last}"),
            Ports::Any => "any".into(),
        }
    }
}

/// Performs `rsctl ports`.
pub(crate) async fn ports(mut client: Client, form: Option<Form>, as_json: bool) -> Result<u8, Failure> {
    let nodes = dvm::answer("listing the nodes", client.list_nodes(ListNodesRequest { load: false })).await?.nodes;
    let rules = rules(&nodes);
    match (form, as_json) {
        (Some(Form::Nftables), _) => out(&emit::nftables(&rules))?,
        (Some(Form::K8s), _) => out(&emit::k8s(&rules))?,
        (None, true) => {
            let rules: Vec<Value> = rules.iter().map(to_json).collect();
            out(&(json::document(json!({ "rules": rules })) + "\n"))?;
        }
        (None, false) => {
            let is_any = rules.iter().any(|rule| rule.ports == Ports::Any);
            out(&to_table(&rules))?;
            if rules.is_empty() {
                say("all nodes are on one machine and use loopback: no port needs to be open");
            } else if is_any {
                say("ranks listen on ports that the kernel chooses: set network.port_range to restrict them");
            }
        }
    }
    Ok(0)
}

fn rules(nodes: &[NodeInfo]) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    for to in nodes {
        let Some(port) = port_of(to) else { continue };
        let is_head = to.node == to.parent;
        let is_child = |from: &NodeInfo| is_head || from.parent == to.node;
        let from: Vec<&NodeInfo> = nodes.iter().filter(|from| is_child(from) && !is_same_machine(from, to)).collect();
        if !from.is_empty() {
            let purpose = if is_head { Purpose::Head } else { Purpose::Link };
            rules.push(Rule { to: vec![to], ports: Ports::One(port), from, purpose });
        }
    }
    let mut by_ports: Vec<(Ports, Vec<&NodeInfo>)> = Vec::new();
    for to in nodes.iter().filter(|to| nodes.iter().any(|from| !is_same_machine(from, to))) {
        let ports = rank_ports(to);
        match by_ports.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, group)) => group.push(to),
            None => by_ports.push((ports, vec![to])),
        }
    }
    for (ports, to) in by_ports {
        let from = nodes.iter().filter(|from| to.iter().any(|to| !is_same_machine(from, to))).collect();
        rules.push(Rule { to, ports, from, purpose: Purpose::Ranks });
    }
    rules
}

fn is_same_machine(a: &NodeInfo, b: &NodeInfo) -> bool {
    let machine =
        |node: &NodeInfo| node.inventory.as_ref().map(|inventory| inventory.machine.clone()).unwrap_or_default();
    a.node == b.node || (!machine(a).is_empty() && machine(a) == machine(b))
}

/// Returns the port at which other machines reach a daemon; None if it listens on loopback or not at all.
fn port_of(node: &NodeInfo) -> Option<u16> {
    let at: std::net::SocketAddr = node.listen.parse().ok()?;
    (!at.ip().is_loopback()).then_some(at.port())
}

fn rank_ports(node: &NodeInfo) -> Ports {
    let range = node.inventory.as_ref().map(|inventory| inventory.port_range.as_str()).unwrap_or_default();
    match range.parse() {
        Ok(rsd_config::ports::PortRange::From { first, last }) => Ports::Range(first, last),
        Ok(rsd_config::ports::PortRange::Any) | Err(_) => Ports::Any,
    }
}

/// Returns where other machines reach a node, best first.
fn hosts(node: &NodeInfo) -> Vec<&str> {
    let reached = node.reached.as_deref().filter(|host| !host.is_empty() && !is_loopback(host));
    let all = node.inventory.iter().flat_map(|inventory| &inventory.addresses).map(|address| address.host.as_str());
    let mut hosts: Vec<&str> = Vec::new();
    for host in reached.into_iter().chain(all) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

fn is_loopback(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn to_table(rules: &[Rule<'_>]) -> String {
    if rules.is_empty() {
        return String::new();
    }
    let columns = [
        ("TO", Align::Left),
        ("ADDRESSES", Align::Left),
        ("TCP PORT", Align::Left),
        ("FROM", Align::Left),
        ("FOR", Align::Left),
    ];
    let rows: Vec<[String; 5]> = rules.iter().map(row).collect();
    table(columns, &rows)
}

fn row(rule: &Rule<'_>) -> [String; 5] {
    let addresses: Vec<String> = rule.to.iter().map(|node| hosts(node).join(", ")).collect();
    [names(&rule.to), few(&addresses), rule.ports.text(), names(&rule.from), rule.purpose.text().to_owned()]
}

fn names(nodes: &[&NodeInfo]) -> String {
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    few(&names)
}

/// The first of many, and how many more there are.
fn few(words: &[String]) -> String {
    const SHOWN: usize = 4;
    let rest = words.len().saturating_sub(SHOWN);
    let shown = words[..words.len() - rest].join(", ");
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

fn to_json(rule: &Rule<'_>) -> Value {
    let names = |nodes: &[&NodeInfo]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    json!({
        "to": rule.to.iter().map(|node| json!({ "node": node.name, "addresses": hosts(node) })).collect::<Vec<_>>(),
        "tcp_ports": rule.ports.text(),
        "from": names(&rule.from),
        "for": rule.purpose.text(),
    })
}

/// Returns the numeric addresses of nodes, without repeats, IPv4 and IPv6.
fn numeric(nodes: &[&NodeInfo]) -> (BTreeSet<std::net::Ipv4Addr>, BTreeSet<std::net::Ipv6Addr>) {
    let all = || nodes.iter().flat_map(|node| hosts(node));
    (all().filter_map(|host| host.parse().ok()).collect(), all().filter_map(|host| host.parse().ok()).collect())
}

#[cfg(test)]
mod tests;
