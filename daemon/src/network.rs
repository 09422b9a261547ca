//! What this machine's network looks like to its daemon: interfaces, the way to other nodes, free ports, and which daemons share
//! its loopback.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr, TcpCongestion};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, getsockname, getsockopt, listen as listen_on,
    setsockopt, socket,
};
use rsd_config::ports::PortRange;
use rsd_core::addresses::OwnAddress;
use rsd_proto::pacing;

use crate::random::random;

/// Returns the addresses of all interfaces, in the kernel's order.
pub(crate) fn own_addresses() -> io::Result<Vec<OwnAddress>> {
    let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let own = getifaddrs()?.filter_map(|entry| {
        let address = entry.address.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|own| IpAddr::V4(own.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|own| IpAddr::V6(own.ip())))?;
        Some(OwnAddress { interface: entry.interface_name, ip, is_up: entry.flags.contains(up) })
    });
    Ok(own.collect())
}

/// Returns the address from which this machine's programs reach `to`, `HOST:PORT`; None if it has no way there. Nothing is sent.
pub(crate) fn way_to(to: &str) -> Option<IpAddr> {
    to.to_socket_addrs().ok()?.find_map(|to| {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// Returns the address from which this machine's programs reach the internet: addresses reserved for documentation stand for it.
pub(crate) fn way_out() -> Option<IpAddr> {
    way_to("192.0.2.1:9").or_else(|| way_to("[2001:db8::1]:9"))
}

/// Whether an address is one of this machine.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the identity that all programs have in common that reach each other over loopback: the boot of the kernel, and the network
/// namespace. Containers with a network of their own have different ones. Empty if the kernel does not tell.
///
/// Virtual machines that were resumed from one snapshot have the same. So a daemon that says to be on its parent's machine must also
/// connect from an address of that machine ([`is_own`]).
pub(crate) fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::metadata("/proc/self/ns/net");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{}/{:x}", boot.trim(), namespace.ino()),
        (_, _) => String::new(),
    }
}

/// Opens a listening socket on a free port: one that the kernel chooses, or one of the range.
///
/// # Errors
/// Those of `open`, and [`io::ErrorKind::AddrInUse`] with a sentence if no port of the range is free.
pub(crate) fn in_range<T>(range: PortRange, mut open: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
    if range == PortRange::Any {
        return open(0);
    }
    // Starting at random, several processes rarely try the same ports.
    let start = random::<2>().map_or(0, u16::from_ne_bytes);
    for port in range.from(usize::from(start)) {
        match open(port) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            opened => return opened,
        }
    }
    let why = format!(
        "no port from {range} is free (network.port_range, --port-range): end other jobs, or choose a larger range"
    );
    Err(io::Error::new(io::ErrorKind::AddrInUse, why))
}

/// Makes a socket on which a rank listens for other ranks of its job; returns the port. Only the rank uses the socket; peers that
/// connect before it accepts wait in the kernel. If the address is none of this machine, because a router translates it, the socket
/// listens at all addresses.
pub(crate) fn rank_listener(at: IpAddr, ports: PortRange) -> io::Result<(OwnedFd, u16)> {
    in_range(ports, |port| match listening_socket(SocketAddr::new(at, port)) {
        Err(Errno::EADDRNOTAVAIL) => {
            let any: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            listening_socket(SocketAddr::new(any, port)).map_err(io::Error::from)
        }
        made => made.map_err(io::Error::from),
    })
}

fn listening_socket(at: SocketAddr) -> Result<(OwnedFd, u16), Errno> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let listener = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if at.port() != 0 {
        // Connections of an earlier job may still be in TIME_WAIT on this port.
        setsockopt(&listener, ReuseAddr, &true)?;
    }
    bind(listener.as_raw_fd(), &SockaddrStorage::from(at))?;
    if getsockopt(&listener, TcpCongestion).is_ok_and(|control| pacing::paces(&control)) {
        // If this fails, only time is lost.
        let _ = setsockopt(&listener, TcpCongestion, &OsString::from(pacing::UNPACED));
    }
    // All ranks of a job may dial one at the same time.
    listen_on(&listener, Backlog::MAXCONN)?;
    let bound: SockaddrStorage = getsockname(listener.as_raw_fd())?;
    let v4 = bound.as_sockaddr_in().map(|at| at.port());
    let port = v4.or_else(|| bound.as_sockaddr_in6().map(|at| at.port()));
    Ok((listener, port.ok_or(Errno::EAFNOSUPPORT)?))
}

/// Opens a TCP socket for daemons. An IPv6 wildcard also accepts IPv4.
pub(crate) fn listen(at: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let socket = if at.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    if at.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        setsockopt(&socket, Ipv6V6Only, &false)?;
    }
    socket.bind(at)?;
    socket.listen(1024)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_that_comes_before_its_rank_is_not_paced() {
        let (listener, port) = rank_listener(Ipv4Addr::LOCALHOST.into(), PortRange::Any).unwrap();
        let listener = TcpListener::from(listener);
        let early = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let default = getsockopt(&early, TcpCongestion).unwrap();
        let control = getsockopt(&listener.accept().unwrap().0, TcpCongestion).unwrap();
        assert_eq!(control, if pacing::paces(&default) { pacing::UNPACED.into() } else { default });
    }

    #[test]
    fn this_machine_has_a_loopback_and_an_identity() {
        let own = own_addresses().expect("interfaces can be listed");
        let lo = own.iter().find(|own| own.ip == IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("loopback has its address");
        assert!(lo.is_up && is_own(lo.ip) && !is_own("192.0.2.7".parse().unwrap()));
        assert_eq!(way_to("127.0.0.1:9"), Some(lo.ip));
        assert!(machine().len() > 36 && machine() == machine());
    }

    #[test]
    fn a_rank_listener_takes_connections_before_accept_is_called() {
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (listener, port) = rank_listener(at, PortRange::Any).expect("a loopback address");
        assert!(TcpStream::connect((at, port)).is_ok());
        drop(listener);
        assert!(TcpStream::connect((at, port)).is_err());
    }

    #[test]
    fn ranks_of_one_node_get_different_ports_of_the_range_until_it_is_used_up() {
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let free = TcpListener::bind((at, 0)).unwrap().local_addr().unwrap().port();
        let range = PortRange::From { first: free, last: free };
        let first = rank_listener(at, range).expect("the port was free a moment ago");
        assert_eq!(first.1, free);
        let error = rank_listener(at, range).unwrap_err().to_string();
        assert!(error.contains("is free (network.port_range"), "{error}");
    }

    #[test]
    fn an_address_that_a_router_translates_is_listened_for_everywhere() {
        let (_listener, port) = rank_listener("192.0.2.7".parse().unwrap(), PortRange::Any).expect("all addresses");
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    }

    #[test]
    fn a_range_without_a_free_port_is_an_error_that_says_so() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let range = PortRange::From { first: port, last: port };
        let open = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let error = in_range(range, open).unwrap_err();
        assert!(error.to_string().starts_with(&format!("no port from {port}-{port} is free")), "{error}");
        drop(taken);
        assert_eq!(in_range(range, open).unwrap().local_addr().unwrap().port(), port);
        assert_ne!(in_range(PortRange::Any, open).unwrap().local_addr().unwrap().port(), 0);
    }
}
