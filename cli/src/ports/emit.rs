//! The rules of `rsctl ports` for firewalls.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use rsd_proto::v1::NodeInfo;

use super::{Ports, Purpose, Rule, few, hosts, numeric};

const NFTABLES_HEAD: &str = "\
# Made by rsctl ports. Load it on every node: nft -f FILE
# It accepts what the DVM needs, and drops other machines' new connections to the ports of daemons below the head and of ranks. It opens
# nothing that another table drops: there, add the same rules. The head's port stays open to all: it admits only certificates of
# the DVM and join tokens.
";

/// Returns a ruleset that `nft -f` loads on every node. Loading it again replaces it.
pub(super) fn nftables(rules: &[Rule<'_>]) -> String {
    let mut all: Vec<&NodeInfo> = rules.iter().flat_map(|rule| rule.to.iter().chain(&rule.from)).copied().collect();
    all.sort_by_key(|node| node.node);
    all.dedup_by_key(|node| node.node);
    let (nodes4, nodes6) = numeric(&all);
    let mut text = NFTABLES_HEAD.to_owned();
    for host in all.iter().flat_map(|node| hosts(node)).filter(|host| host.parse::<std::net::IpAddr>().is_err()) {
        let _ = writeln!(text, "# Missing here, because it is a name: {host}");
    }
    text.push_str("table inet rsd\ndelete table inet rsd\ntable inet rsd {\n");
    text.push_str(&set("nodes4", "ipv4_addr", &nodes4));
    text.push_str(&set("nodes6", "ipv6_addr", &nodes6));
    text.push_str(
        "  chain input {\n    type filter hook input priority filter; policy accept;\n    ct state established,related accept\n    \
         iif \"lo\" accept\n",
    );
    for rule in rules {
        let hidden: Vec<String> =
            rule.from.iter().filter(|node| is_hidden(node)).map(|node| node.name.clone()).collect();
        let ports = match rule.ports {
            Ports::One(_) | Ports::Range(..) => rule.ports.text(),
            // Nothing says which of these ports are those of ranks, so none can be dropped.
            Ports::Any => "1024-65535".into(),
        };
        let (to4, to6) = numeric(&rule.to);
        for (family, source, to) in [("ip", "nodes4", words(&to4)), ("ip6", "nodes6", words(&to6))] {
            if to.is_empty() {
                continue;
            }
            let to = format!("{family} daddr {{ {} }} tcp dport {ports}", to.join(", "));
            let from_nodes = format!("    {to} {family} saddr @{source} accept comment \"{}\"\n", rule.purpose.text());
            match (rule.purpose, rule.ports) {
                (Purpose::Head, _) => {
                    let _ = writeln!(text, "    {to} accept comment \"{}\"", rule.purpose.text());
                }
                (Purpose::Link | Purpose::Ranks, Ports::Any) => text.push_str(&from_nodes),
                (Purpose::Link | Purpose::Ranks, Ports::One(_) | Ports::Range(..)) if hidden.is_empty() => {
                    text.push_str(&from_nodes);
                    let _ = writeln!(text, "    {to} drop");
                }
                (Purpose::Link | Purpose::Ranks, Ports::One(_) | Ports::Range(..)) => {
                    text.push_str(&from_nodes);
                    let _ = writeln!(
                        text,
                        "    # Nothing is dropped at {to}: the address from which these nodes connect is unknown: {}",
                        few(&hidden)
                    );
                }
            }
        }
    }
    text.push_str("  }\n}\n");
    text
}

/// Whether the connections of a node may come from an address that it does not have: that of a router. Such a node cannot be connected to,
/// or has no numeric address.
fn is_hidden(node: &NodeInfo) -> bool {
    let (v4, v6) = numeric(&[node]);
    node.reached.as_deref() == Some("") || (v4.is_empty() && v6.is_empty())
}

fn words<T: Display>(addresses: &BTreeSet<T>) -> Vec<String> {
    addresses.iter().map(T::to_string).collect()
}

fn set<T: Display>(name: &str, kind: &str, addresses: &BTreeSet<T>) -> String {
    let elements = match addresses.is_empty() {
        true => String::new(),
        false => format!("    elements = {{ {} }}\n", words(addresses).join(", ")),
    };
    format!("  set {name} {{\n    type {kind}\n{elements}  }}\n")
}

/// Returns a NetworkPolicy for pods with the label `app: rsd`, and the port entries of their containers.
pub(super) fn k8s(rules: &[Rule<'_>]) -> String {
    let mut text = "\
# Made by rsctl ports. The pods of the DVM have the label app: rsd; change it here if yours have another one.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: rsd
spec:
  podSelector:
    matchLabels:
      app: rsd
  policyTypes:
    - Ingress
  ingress:
    - from:
        - podSelector:
            matchLabels:
              app: rsd
"
    .to_owned();
    let mut seen: Vec<Ports> = Vec::new();
    for rule in rules {
        if !seen.contains(&rule.ports) {
            seen.push(rule.ports);
        }
    }
    // A rule without ports admits all: the kernel chooses those of the ranks.
    if !seen.is_empty() && !seen.contains(&Ports::Any) {
        text.push_str("      ports:\n");
        for ports in &seen {
            let (port, end) = match ports {
                Ports::One(port) => (port, None),
                Ports::Range(first, last) => (first, Some(last)),
                Ports::Any => continue,
            };
            let _ = writeln!(text, "        - protocol: TCP\n          port: {port}");
            if let Some(end) = end {
                let _ = writeln!(text, "          endPort: {end}");
            }
        }
    }
    text.push_str("---\n# For the containers of these pods.\n");
    let mut daemons: Vec<u16> = Vec::new();
    for ports in &seen {
        if let Ports::One(port) = ports {
            daemons.push(*port);
        }
    }
    if daemons.is_empty() {
        text.push_str("ports: []\n");
    } else {
        text.push_str("ports:\n");
    }
    for port in daemons {
        let _ = writeln!(text, "  - name: rsd-{port}\n    containerPort: {port}\n    protocol: TCP");
    }
    text
}
