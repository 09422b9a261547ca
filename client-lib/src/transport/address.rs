//! Chooses the address of this node that others connect to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// Where a process listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The address of the socket.
    pub(super) listen: IpAddr,
    /// The address for others, if it is another one: a router translates it.
    pub(super) announce: Option<IpAddr>,
}

/// Returns the address of the interface, or the address of this machine, that the user has named; otherwise the one
/// that the launcher advertises; otherwise the first address of an interface that is up and not the loopback; otherwise
/// the loopback address.
pub(super) fn of(wish: Option<&str>, advertised: Option<IpAddr>) -> io::Result<Place> {
    let interfaces = interfaces()?;
    let at = |listen| Place { listen, announce: None };
    match (wish, advertised) {
        (Some(wish), _) => choose(wish, &interfaces).map(at),
        (None, Some(advertised)) => Ok(place_of(advertised, &interfaces)),
        (None, None) => Ok(at(first(&interfaces))),
    }
}

fn place_of(advertised: IpAddr, interfaces: &[Interface]) -> Place {
    match interfaces.iter().any(|it| it.address == advertised) {
        true => Place { listen: advertised, announce: None },
        false => Place { listen: everywhere(advertised), announce: Some(advertised) },
    }
}

/// The address of all interfaces, of the same family.
pub(super) fn everywhere(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

#[derive(Debug)]
struct Interface {
    name: String,
    address: IpAddr,
    loopback: bool,
}

fn interfaces() -> io::Result<Vec<Interface>> {
    let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let entries = getifaddrs()?.filter(|entry| entry.flags.contains(up));
    Ok(entries
        .filter_map(|entry| {
            let address = entry.address.as_ref()?;
            let v4 = address.as_sockaddr_in().map(|it| SocketAddr::from(std::net::SocketAddrV4::from(*it)).ip());
            let v6 = address.as_sockaddr_in6().filter(|it| it.scope_id() == 0).map(|it| IpAddr::V6(it.ip()));
            let loopback = entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
            Some(Interface { name: entry.interface_name, address: v4.or(v6)?, loopback })
        })
        .collect())
}

fn choose(wish: &str, interfaces: &[Interface]) -> io::Result<IpAddr> {
    let by_address = wish.parse::<IpAddr>().ok();
    let mut matching = interfaces.iter().filter(|it| it.name == wish || Some(it.address) == by_address);
    // An interface's IPv4 address is listed before its IPv6 ones.
    matching.next().map(|it| it.address).ok_or_else(|| {
        let there = interfaces.iter().map(|it| format!("{} ({})", it.name, it.address)).collect::<Vec<_>>().join(", ");
        let text = format!("RSD_MPI_INTERFACE={wish}: no such interface or address on this node (available: {there})");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

fn first(interfaces: &[Interface]) -> IpAddr {
    let outward = || interfaces.iter().filter(|it| !it.loopback);
    let found = outward().find(|it| it.address.is_ipv4()).or_else(|| outward().next());
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |it| it.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface { name: name.into(), address: address.parse().unwrap(), loopback: name == "lo" }
    }

    #[test]
    fn an_interface_is_found_by_name_or_address() {
        let there = [interface("lo", "127.0.0.1"), interface("eth0", "fd00::7"), interface("eth1", "10.0.0.7")];
        assert_eq!(choose("eth1", &there).unwrap(), there[2].address);
        assert_eq!(choose("fd00::7", &there).unwrap(), there[1].address);
        assert_eq!(first(&there), there[2].address);
        assert_eq!(first(&there[..2]), there[1].address);
        assert_eq!(first(&there[..1]), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let text = choose("ib0", &there).unwrap_err().to_string();
        assert!(text.ends_with("(available: lo (127.0.0.1), eth0 (fd00::7), eth1 (10.0.0.7))"), "{text}");
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let loopback = Place { listen: Ipv4Addr::LOCALHOST.into(), announce: None };
        assert_eq!(of(Some("lo"), None).unwrap(), loopback);
        assert_eq!(of(None, Some(Ipv4Addr::LOCALHOST.into())).unwrap(), loopback);
    }

    #[test]
    fn an_address_that_a_router_translates_is_announced_and_not_bound() {
        let there = [interface("eth0", "10.0.0.7")];
        let outside: IpAddr = "203.0.113.9".parse().unwrap();
        let expected = Place { listen: Ipv4Addr::UNSPECIFIED.into(), announce: Some(outside) };
        assert_eq!(place_of(outside, &there), expected);
    }
}
