//! Addresses: which ones a node advertises, and at which ones another node dials it.
//!
//! A node advertises addresses at which other machines may reach it. Loopback addresses are not among them: two nodes use loopback
//! only if both report the same machine (`Inventory.machine`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rsd_proto::v1::{Ancestor, Inventory, NodeAddress, NodeInfo};

/// The beginnings of the names of interfaces between this machine's own virtual machines and containers. Other machines do not
/// reach their addresses, and several machines have the same ones.
const INNER_INTERFACES: [&str; 16] = [
    "docker",
    "virbr",
    "veth",
    "cni",
    "br-",
    "flannel",
    "cali",
    "tunl",
    "kube",
    "podman",
    "lxcbr",
    "lxdbr",
    "vmnet",
    "vboxnet",
    "nodelocaldns",
    "dummy",
];

/// An address of a network interface of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAddress {
    /// The interface.
    pub interface: String,
    /// Its address.
    pub ip: IpAddr,
    /// Whether the interface is up and has a carrier.
    pub is_up: bool,
}

/// What the user has said about the addresses of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The addresses to advertise, best first; empty: those of the interfaces.
    pub advertise: Vec<String>,
    /// The interfaces whose addresses to advertise, best first; empty: all that lead to other machines.
    pub interfaces: Vec<String>,
    /// The address that the daemon listens on, unless that means all addresses.
    pub listen: Option<IpAddr>,
    /// The source address of the way to the other nodes, by the routing table.
    pub route: Option<IpAddr>,
}

/// A wish that cannot be fulfilled. The text follows the name of the option.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidWish {
    /// No such interface.
    #[error("no interface has this name and an address; interfaces with addresses: {present}")]
    UnknownInterface {
        /// The interfaces that have addresses, separated by commas.
        present: String,
    },
    /// The interface has only link-local addresses.
    #[error(
        "this interface has no address that other machines can use (loopback and IPv6 link-local addresses do not count)"
    )]
    NoAddress,
    /// Not a host.
    #[error("expected an IP address or a host name, without a port")]
    NotAHost,
    /// Loopback, unspecified or multicast.
    #[error("this is not the address of one machine (loopback, unspecified or multicast)")]
    Own,
    /// A link-local address.
    #[error("a link-local address is valid on one link only: advertise another address of this node")]
    LinkLocal,
}

/// Returns an address that the user wants to advertise, in the form in which it is sent.
///
/// # Errors
/// When it is not an address that other machines can use.
pub fn advertisable(word: &str) -> Result<String, InvalidWish> {
    let word = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word);
    match word.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() => Err(InvalidWish::Own),
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => Err(InvalidWish::LinkLocal),
        Ok(ip) => Ok(ip.to_string()),
        Err(_) if word.eq_ignore_ascii_case("localhost") => Err(InvalidWish::Own),
        Err(_) => {
            let is_label = |label: &str| {
                let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                !label.is_empty() && label.len() < 64 && label.bytes().all(letters)
            };
            let name = word.strip_suffix('.').unwrap_or(word);
            // A name of digits and dots is a mistyped address.
            let is_name =
                name.len() < 254 && name.split('.').all(is_label) && name.contains(|c: char| c.is_ascii_alphabetic());
            if is_name { Ok(name.to_owned()) } else { Err(InvalidWish::NotAHost) }
        }
    }
}

/// Returns the addresses that a node advertises, best first: those that the user names, or else the one that it listens on, the one
/// on the way to the other nodes, and those of its interfaces, IPv4 before IPv6.
///
/// # Errors
/// The first wish that cannot be fulfilled.
pub fn advertised(own: &[OwnAddress], wishes: &Wishes) -> Result<Vec<NodeAddress>, (String, InvalidWish)> {
    if !wishes.advertise.is_empty() {
        let host = |word: &String| advertisable(word).map_err(|error| (format!("--advertise {word}"), error));
        let hosts = wishes.advertise.iter().map(host).collect::<Result<Vec<String>, _>>()?;
        return Ok(without_repeats(hosts.into_iter().map(|host| {
            let interface = own.iter().find(|own| own.ip.to_string() == host).map(|own| own.interface.clone());
            NodeAddress { host, interface: interface.unwrap_or_default() }
        })));
    }
    let mut found = Vec::new();
    for name in &wishes.interfaces {
        let of_it = |own: &&OwnAddress| own.interface == *name;
        let option = || format!("--interface {name}");
        if !own.iter().any(|own| of_it(&own)) {
            return Err((option(), InvalidWish::UnknownInterface { present: names(own) }));
        }
        let before = found.len();
        found.extend(by_family(
            own.iter().filter(of_it).filter(|own| !is_of_one_link_v6(own.ip) && !own.ip.is_loopback()),
        ));
        if found.len() == before {
            return Err((option(), InvalidWish::NoAddress));
        }
    }
    let is_inner = |own: &OwnAddress| INNER_INTERFACES.iter().any(|begin| own.interface.starts_with(begin));
    let leads_out = |own: &&OwnAddress| own.is_up && !is_inner(own) && !is_of_one_link(own.ip) && !own.ip.is_loopback();
    if wishes.interfaces.is_empty() {
        let mut interfaces: Vec<&str> = Vec::new();
        for own in own {
            if !interfaces.contains(&own.interface.as_str()) {
                interfaces.push(&own.interface);
            }
        }
        for interface in interfaces {
            found.extend(by_family(own.iter().filter(leads_out).filter(|own| own.interface == interface)));
        }
        // The user has chosen the first of these, and the routing table the second, whatever the interface is called.
        let is_first = |own: &&OwnAddress| Some(own.ip) == wishes.listen;
        // The kernel reports a new link with a delay, and routes over it at once.
        let is_second = |own: &&OwnAddress| Some(own.ip) == wishes.route && !is_inner(own) && !is_of_one_link(own.ip);
        let chosen = own.iter().filter(is_first).chain(own.iter().filter(is_second));
        let mut chosen: Vec<&OwnAddress> = chosen.filter(|own| !own.ip.is_loopback()).collect();
        chosen.append(&mut found);
        found = chosen;
    }
    Ok(without_repeats(
        found.into_iter().map(|own| NodeAddress { host: own.ip.to_string(), interface: own.interface.clone() }),
    ))
}

fn names(own: &[OwnAddress]) -> String {
    let mut names: Vec<&str> = own.iter().map(|own| own.interface.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn by_family<'a>(own: impl Iterator<Item = &'a OwnAddress>) -> Vec<&'a OwnAddress> {
    let mut own: Vec<&OwnAddress> = own.collect();
    own.sort_by_key(|own| own.ip.is_ipv6());
    own
}

fn is_of_one_link(ip: IpAddr) -> bool {
    is_of_one_link_v6(ip) || matches!(ip, IpAddr::V4(ip) if ip.is_link_local())
}

fn is_of_one_link_v6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn without_repeats(addresses: impl Iterator<Item = NodeAddress>) -> Vec<NodeAddress> {
    let mut kept: Vec<NodeAddress> = Vec::new();
    for address in addresses {
        if !kept.iter().any(|known| known.host == address.host) {
            kept.push(address);
        }
    }
    kept
}

/// Returns a host and a port as users and programs write them: an IPv6 address in brackets.
pub fn host_port(host: &str, port: u16) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Returns the addresses, `HOST:PORT`, at which a program on `machine` dials the daemon of this node, best first; none, if it does not
/// listen or cannot be reached from there.
pub fn dialable(node: &NodeInfo, machine: &str) -> Vec<String> {
    let Ok(at) = node.listen.parse::<SocketAddr>() else { return Vec::new() };
    let at = SocketAddr::new(at.ip().to_canonical(), at.port());
    let Some(inventory) = &node.inventory else { return Vec::new() };
    let mut hosts: Vec<String> = Vec::new();
    if is_here(inventory, machine) {
        hosts.push(if at.ip().is_unspecified() { Ipv4Addr::LOCALHOST.to_string() } else { at.ip().to_string() });
    } else if is_out_of_reach(node) {
        return Vec::new();
    }
    hosts.extend(node.reached.iter().filter(|host| is_usable_elsewhere(host)).cloned());
    // A socket that listens at one address has this address; a router may translate those that no interface has.
    let leads_there = |address: &&NodeAddress| {
        at.ip().is_unspecified() || address.interface.is_empty() || address.host == at.ip().to_string()
    };
    hosts.extend(inventory.addresses.iter().filter(leads_there).map(|address| address.host.clone()));
    let mut known: Vec<String> = Vec::new();
    for host in hosts {
        let address = host_port(&host, at.port());
        if !known.contains(&address) {
            known.push(address);
        }
    }
    known
}

/// Returns where a program on `machine` dials a standby: `addresses` once it is the head, `daemon` until then. `head`: what it will be as
/// the head.
pub fn of_standby(head: &NodeInfo, machine: &str) -> Ancestor {
    let daemon = NodeInfo { listen: head.daemon_listen.clone(), ..head.clone() };
    let (addresses, daemon) = (dialable(head, machine), dialable(&daemon, machine));
    Ancestor { node: head.node, addresses, name: head.name.clone(), daemon }
}

/// Returns whether a daemon on `machine` may become a child of this node, which listens or would open a port for it.
pub(crate) fn may_be_parent_of(node: &NodeInfo, machine: &str) -> bool {
    if !node.listen.is_empty() {
        return !dialable(node, machine).is_empty();
    }
    let here = node.inventory.as_ref().is_some_and(|inventory| is_here(inventory, machine));
    node.may_listen && (here || node.reached.as_deref().is_some_and(is_usable_elsewhere))
}

/// Returns the address at which programs on other machines reach programs of this node; empty if none is known.
pub(crate) fn outward(node: &NodeInfo) -> &str {
    let reached = node.reached.as_deref().filter(|host| is_usable_elsewhere(host));
    let first =
        || node.inventory.as_ref().and_then(|inventory| inventory.addresses.first()).map(|first| first.host.as_str());
    reached.or_else(first).unwrap_or_default()
}

/// Returns whether connections back to the node have failed.
pub(crate) fn is_out_of_reach(node: &NodeInfo) -> bool {
    node.reached.as_deref() == Some("")
}

/// Returns the interface that has this address; if none has it, that of the first address that has one. Empty: unknown.
pub(crate) fn interface_of<'a>(inventory: &'a Inventory, host: &str) -> &'a str {
    if host.is_empty() {
        return ""; // the ranks of one node need no interface
    }
    if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
        return "lo";
    }
    let of_host = inventory.addresses.iter().find(|address| address.host == host && !address.interface.is_empty());
    let first = || inventory.addresses.iter().find(|address| !address.interface.is_empty());
    of_host.or_else(first).map_or("", |address| &address.interface)
}

/// Returns the machine of a node; empty: unknown.
pub(crate) fn machine_of(node: &NodeInfo) -> &str {
    node.inventory.as_ref().map_or("", |inventory| &inventory.machine)
}

/// Returns the boot of the kernel that a node runs under, the same for all containers of a machine; empty: unknown.
pub(crate) fn booted(node: &NodeInfo) -> &str {
    let machine = machine_of(node);
    machine.split_once('/').map_or(machine, |(boot, _)| boot)
}

/// Returns whether `HOST:PORT` has a loopback address or its name.
pub(crate) fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns whether a node with this inventory shares its loopback with programs on `machine`.
pub(crate) fn is_here(inventory: &Inventory, machine: &str) -> bool {
    !machine.is_empty() && inventory.machine == machine
}

fn is_usable_elsewhere(host: &str) -> bool {
    !host.is_empty() && !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests;
