//! Chooses the addresses of this node that others connect to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

/// Where a process listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The address of the socket.
    pub(super) listen: IpAddr,
    /// The address for others, if it is another one: a router translates it.
    pub(super) announce: Option<IpAddr>,
    /// If the user has named several interfaces: all of them, the one that it listens at first.
    pub(super) rails: Vec<Interface>,
}

/// Returns the addresses of the interfaces, or the addresses of this machine, that the user has named, separated by commas; otherwise
/// the one that the launcher advertises; otherwise the first address of an interface that is up and not the loopback; otherwise the
/// loopback address.
pub(super) fn of(wish: Option<&str>, advertised: Option<IpAddr>) -> io::Result<Place> {
    let interfaces = interfaces()?;
    let at = |listen| Place { listen, announce: None, rails: Vec::new() };
    match (wish, advertised) {
        (Some(wish), _) => chosen(wish, &interfaces),
        (None, Some(advertised)) => Ok(place_of(advertised, &interfaces)),
        (None, None) => Ok(at(first(&interfaces))),
    }
}

fn place_of(advertised: IpAddr, interfaces: &[Interface]) -> Place {
    match interfaces.iter().any(|it| it.address == advertised) {
        true => Place { listen: advertised, announce: None, rails: Vec::new() },
        false => Place { listen: everywhere(advertised), announce: Some(advertised), rails: Vec::new() },
    }
}

/// The address of all interfaces, of the same family.
pub(super) fn everywhere(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// An address of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name of the interface.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix, in bits.
    pub prefix: u8,
    /// Whether only processes of this machine reach it.
    pub loopback: bool,
}

impl Interface {
    /// Whether an address belongs to this interface's network.
    pub(super) fn reaches(&self, other: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let differ = bits(self.address) ^ bits(other);
        self.address.is_ipv4() == other.is_ipv4() && differ.leading_zeros() >= self.prefix.into()
    }
}

fn interfaces() -> io::Result<Vec<Interface>> {
    let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let entries = getifaddrs()?.filter(|entry| entry.flags.contains(up));
    Ok(entries
        .filter_map(|entry| {
            let address = ip(entry.address.as_ref()?)?;
            // The prefix is as long as the mask has ones.
            let prefix = match entry.netmask.as_ref().and_then(ip) {
                Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
                Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
                None => 128,
            } as u8;
            let loopback = entry.flags.contains(InterfaceFlags::IFF_LOOPBACK);
            Some(Interface { name: entry.interface_name, address, prefix, loopback })
        })
        .collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
    v4.or_else(|| address.as_sockaddr_in6().filter(|it| it.scope_id() == 0).map(|it| IpAddr::V6(it.ip())))
}

/// The most interfaces that a list may name.
pub(super) const INTERFACES_MAX: usize = 8;

/// The place of a process whose user has named one interface or several.
fn chosen(wish: &str, interfaces: &[Interface]) -> io::Result<Place> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, format!("RSD_MPI_INTERFACE={wish}: {why}"));
    let mut rails: Vec<Interface> = Vec::new();
    for name in wish.split(',') {
        if name.is_empty() {
            return Err(invalid("a name is missing: separate names by single commas, as in eth1,eth2".into()));
        }
        let next = choose(name, interfaces).ok_or_else(|| {
            let there = interfaces.iter().map(|it| format!("{} ({})", it.name, it.address));
            let there = there.collect::<Vec<_>>().join(", ");
            let which = if name == wish { String::new() } else { format!("{name}: ") };
            invalid(format!("{which}no such interface or address on this node (available: {there})"))
        })?;
        if rails.iter().any(|rail| rail.address == next.address) {
            return Err(invalid(format!("{name} is named twice: name each interface once")));
        }
        rails.push(next);
    }
    if rails.len() > INTERFACES_MAX {
        return Err(invalid(format!("{} interfaces are named: name at most {INTERFACES_MAX}", rails.len())));
    }
    let listen = rails[0].address;
    if rails.len() == 1 {
        rails.clear();
    }
    Ok(Place { listen, announce: None, rails })
}

fn choose(name: &str, interfaces: &[Interface]) -> Option<Interface> {
    let by_address = name.parse::<IpAddr>().ok();
    // An interface's IPv4 address is listed before its IPv6 ones.
    let found = interfaces.iter().find(|it| it.name == name || Some(it.address) == by_address).cloned();
    // A machine has all addresses of its loopback's network.
    let looped = || interfaces.iter().find(|it| it.loopback && by_address.is_some_and(|wish| it.reaches(wish)));
    found.or_else(|| Some(Interface { address: by_address?, ..looped()?.clone() }))
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
        let prefix = if name == "lo" { 8 } else { 24 };
        Interface { name: name.into(), address: address.parse().unwrap(), prefix, loopback: name == "lo" }
    }

    #[test]
    fn an_interface_is_found_by_name_or_address() {
        let there = [interface("lo", "127.0.0.1"), interface("eth0", "fd00::7"), interface("eth1", "10.0.0.7")];
        assert_eq!(choose("eth1", &there).unwrap(), there[2]);
        assert_eq!(choose("fd00::7", &there).unwrap(), there[1]);
        assert_eq!(choose("127.0.0.3", &there).unwrap().address, IpAddr::from([127, 0, 0, 3]));
        assert_eq!(choose("10.0.0.8", &there), None);
        assert_eq!(chosen("eth1", &there).unwrap().rails, []);
        assert_eq!(first(&there), there[2].address);
        assert_eq!(first(&there[..2]), there[1].address);
        assert_eq!(first(&there[..1]), IpAddr::V4(Ipv4Addr::LOCALHOST));
        let text = chosen("ib0", &there).unwrap_err().to_string();
        assert!(text.starts_with("RSD_MPI_INTERFACE=ib0: no such interface"), "{text}");
        assert!(text.ends_with("(available: lo (127.0.0.1), eth0 (fd00::7), eth1 (10.0.0.7))"), "{text}");
    }

    #[test]
    fn several_interfaces_are_named_once_each() {
        let there = [interface("lo", "127.0.0.1"), interface("eth1", "10.0.1.7"), interface("eth2", "10.0.2.7")];
        let place = chosen("eth2,10.0.1.7", &there).unwrap();
        assert_eq!((place.listen, place.rails), (there[2].address, vec![there[2].clone(), there[1].clone()]));
        let nine = (1..10).map(|at| format!("127.0.0.{at}")).collect::<Vec<_>>().join(",");
        for (wish, why) in [
            ("eth1,", "a name is missing: separate names by single commas, as in eth1,eth2"),
            ("eth1,,eth2", "a name is missing: separate names by single commas, as in eth1,eth2"),
            ("eth1,10.0.1.7", "10.0.1.7 is named twice: name each interface once"),
            (&nine, "9 interfaces are named: name at most 8"),
        ] {
            assert_eq!(chosen(wish, &there).unwrap_err().to_string(), format!("RSD_MPI_INTERFACE={wish}: {why}"));
        }
        let text = chosen("eth1,ib0", &there).unwrap_err().to_string();
        let why = "ib0: no such interface or address on this node (available: lo (127.0.0.1), ";
        assert!(text.starts_with(&format!("RSD_MPI_INTERFACE=eth1,ib0: {why}")), "{text}");
    }

    #[test]
    fn an_interface_reaches_the_addresses_of_its_network() {
        let eth = interface("eth1", "10.0.1.7");
        assert!(eth.reaches([10, 0, 1, 200].into()) && !eth.reaches([10, 0, 2, 7].into()));
        assert!(!eth.reaches("::ffff:10.0.1.7".parse().unwrap()));
        let six = Interface { prefix: 64, ..interface("eth1", "fd00::7") };
        assert!(six.reaches("fd00::9:1".parse().unwrap()) && !six.reaches("fd00:0:0:1::7".parse().unwrap()));
    }

    #[test]
    fn this_machine_has_a_loopback() {
        let loopback = Place { listen: Ipv4Addr::LOCALHOST.into(), announce: None, rails: Vec::new() };
        assert_eq!(of(Some("lo"), None).unwrap(), loopback);
        assert_eq!(of(None, Some(Ipv4Addr::LOCALHOST.into())).unwrap(), loopback);
    }

    #[test]
    fn an_address_that_a_router_translates_is_announced_and_not_bound() {
        let there = [interface("eth0", "10.0.0.7")];
        let outside: IpAddr = "203.0.113.9".parse().unwrap();
        let expected = Place { listen: Ipv4Addr::UNSPECIFIED.into(), announce: Some(outside), rails: Vec::new() };
        assert_eq!(place_of(outside, &there), expected);
    }
}
