//! The port at which the ranks of a job with `--export` meet: found free on this machine, and reserved until the ranks run.
//!
//! Until rank 0 listens, another process could take it. So it is a port that the kernel never assigns by itself (outside
//! `ip_local_port_range`), and no other step on this machine takes it while this one runs: each step holds a name in the abstract
//! namespace of unix sockets, which has the same scope as the ports, and which disappears with its process.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, socket};
use rsd_config::ports::PortRange;

/// Lower ports belong to well-known services.
const LOWEST: u16 = 10_000;

/// A reserved port.
#[derive(Debug)]
pub(super) struct KeptPort {
    number: u16,
    /// Bound sockets that do not listen: no other process can bind the port.
    bound: Vec<std::os::fd::OwnedFd>,
    _name: UnixListener,
}

/// Why no port was found.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPort {
    /// A system call failed.
    #[error("cannot find a free port: {0}")]
    Io(#[from] io::Error),
    /// Every port is in use.
    #[error("no free port on this node, from {LOWEST} up")]
    None,
    /// Every port of the range is in use.
    #[error("no port from {0} is free (network.port_range, --port-range): end other jobs, or choose a larger range")]
    InRange(PortRange),
}

impl KeptPort {
    /// Finds and reserves a free port, of the range if there is one.
    pub(super) fn find(range: PortRange) -> Result<KeptPort, NoPort> {
        let candidates = match range {
            PortRange::Any => {
                candidates(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default())
            }
            PortRange::From { .. } => range.from(0).collect(),
        };
        let none = if range == PortRange::Any { NoPort::None } else { NoPort::InRange(range) };
        let seed = crate::random::random::<4>().map_err(io::Error::other)?;
        let first = u32::from_ne_bytes(seed) as usize % candidates.len().max(1);
        let ports = candidates.iter().cycle().skip(first).take(candidates.len());
        ports.copied().find_map(|number| KeptPort::take(number).transpose()).unwrap_or(Err(none))
    }

    /// Takes this port, unless it is in use.
    fn take(number: u16) -> Result<Option<KeptPort>, NoPort> {
        let name = UnixAddr::from_abstract_name(format!("rsd-port-{number}"))?;
        let Some(name) = free(UnixListener::bind_addr(&name))? else { return Ok(None) };
        // Without SO_REUSEADDR, so that any other socket on the port makes this fail, listening or not.
        let any: [SocketAddr; 2] = [(Ipv4Addr::UNSPECIFIED, number).into(), (Ipv6Addr::UNSPECIFIED, number).into()];
        let mut bound = Vec::new();
        for address in any {
            match bind_alone(address) {
                Ok(socket) => bound.push(socket),
                Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
                // For example on a machine without IPv6.
                Err(_) if address.is_ipv6() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(KeptPort { number, bound, _name: name }))
    }

    /// Returns the port's number.
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// Frees the port, so that a rank can listen on it.
    pub(super) fn let_go(&mut self) {
        self.bound.clear();
    }
}

fn free<T>(taken: io::Result<T>) -> io::Result<Option<T>> {
    match taken {
        Ok(taken) => Ok(Some(taken)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error),
    }
}

fn bind_alone(address: SocketAddr) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::AsRawFd;
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let made = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if address.is_ipv6() {
        // IPv4 has its own socket.
        nix::sys::socket::setsockopt(&made, nix::sys::socket::sockopt::Ipv6V6Only, &true)?;
    }
    bind(made.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(made)
}

/// Ports that the kernel does not assign by itself; all ports, if it may assign each of them.
fn candidates(local_port_range: &str) -> Vec<u16> {
    let mut ends = local_port_range.split_whitespace().filter_map(|end| end.parse::<u16>().ok());
    let handed_out: RangeInclusive<u16> = match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => first..=last,
        (_, _) => 32_768..=60_999,
    };
    let outside: Vec<u16> = (LOWEST..=u16::MAX).filter(|port| !handed_out.contains(port)).collect();
    if outside.is_empty() { (LOWEST..=u16::MAX).collect() } else { outside }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn candidates_are_the_ports_that_the_kernel_does_not_assign() {
        let ports = candidates("32768\t60999\n");
        assert!(ports.contains(&10_000) && ports.contains(&61_000));
        assert!(!ports.contains(&32_768) && !ports.contains(&60_999) && !ports.contains(&9_999));
        assert_eq!(candidates("1024 65535").len(), 65_535 - 9_999);
        assert_eq!(candidates(""), ports);
    }

    #[test]
    fn a_reserved_port_is_refused_to_others_until_it_is_released() {
        let mut kept = KeptPort::find(PortRange::Any).unwrap();
        let number = kept.number();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_err());
        assert!(matches!(KeptPort::take(number), Ok(None)));
        kept.let_go();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert!(matches!(KeptPort::take(number), Ok(None)), "the step holds its name");
        drop(kept);
        assert!(matches!(KeptPort::take(number), Ok(None)), "a process listens on it");
        let range = PortRange::From { first: number, last: number };
        let error = KeptPort::find(range).unwrap_err().to_string();
        assert!(error.starts_with(&format!("no port from {number}-{number} is free")), "{error}");
        drop(listener);
        assert_eq!(KeptPort::find(range).unwrap().number(), number);
    }
}
