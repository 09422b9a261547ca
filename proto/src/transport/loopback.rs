//! The owner of the other end of a loopback TCP connection, for a step's PMI port: MPI libraries dial it without TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// The type of a request to the kernel's `sock_diag`, and of its answer (linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// The sizes of the messages' parts: `nlmsghdr`, and `inet_diag_req_v2` (linux/inet_diag.h).
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
/// Where an `inet_diag_msg` has the socket's uid and inode.
const UID_AT: usize = HEADER_BYTES + 64;
const INODE_AT: usize = HEADER_BYTES + 68;
const NLMSG_ERROR: u16 = 2;

/// Returns the uid of the peer: the owner of the socket with local address `peer` and remote address `local`. `None`, which counts as
/// another user: the peer has closed its socket, or the kernel does not say.
///
/// The kernel is asked for this one socket. Its table `/proc/net/tcp` is read only where it cannot be asked: reading it takes the
/// longer the more sockets the machine has, which any user can make many.
pub fn loopback_peer_uid(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    match ask(peer, local) {
        Ok(owner) => owner,
        Err(_) => {
            let owner = |table: &str, peer, local| {
                find_uid(&std::fs::read_to_string(table).ok()?, &hex_address(peer), &hex_address(local))
            };
            let of_v4 = peer.is_ipv4().then(|| owner("/proc/net/tcp", peer, local)).flatten();
            // A client may reach an IPv4 port through an IPv6 socket (`::ffff:127.0.0.1`), as gRPC's do.
            of_v4.or_else(|| owner("/proc/net/tcp6", mapped(peer), mapped(local)))
        }
    }
}

/// Returns the address as an IPv6 socket has it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Asks the kernel for the owner of a socket; None: it has no such socket, or its process has closed it.
fn ask(source: SocketAddr, destination: SocketAddr) -> io::Result<Option<u32>> {
    match exchange(source, destination)? {
        Answer::Owner { uid, inode } => Ok((inode != 0).then_some(uid)),
        Answer::Error(errno) if errno == libc::ENOENT && *CAN_LOOK_UP => Ok(None),
        Answer::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Whether the kernel can look up TCP sockets. Without that part, it answers as if there were no such socket.
static CAN_LOOK_UP: LazyLock<bool> = LazyLock::new(|| {
    let own_socket = || -> io::Result<Answer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        exchange(client.local_addr()?, client.peer_addr()?)
    };
    matches!(own_socket(), Ok(Answer::Owner { .. }))
});

/// The kernel's answer about a socket.
enum Answer {
    /// Its owner. A socket that its process has closed has the inode 0, and uid 0 is not its owner.
    Owner { uid: u32, inode: u32 },
    /// An error number.
    Error(i32),
}

fn exchange(source: SocketAddr, destination: SocketAddr) -> io::Result<Answer> {
    let netlink =
        socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    // The kernel answers during the send; the timeout only excludes that a lost answer blocks.
    setsockopt(&netlink, sockopt::ReceiveTimeout, &TimeVal::new(1, 0))?;
    sendto(netlink.as_raw_fd(), &request(source, destination), &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 512];
    let length = recv(netlink.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let answer = &answer[..length];
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let word = |at: usize| {
        let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(broken)
    };
    match answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes) {
        Some(SOCK_DIAG_BY_FAMILY) => Ok(Answer::Owner { uid: word(UID_AT)?, inode: word(INODE_AT)? }),
        Some(NLMSG_ERROR) => Ok(Answer::Error(word(HEADER_BYTES)?.cast_signed().saturating_neg())),
        Some(_) | None => Err(broken()),
    }
}

/// Returns the message that asks for one TCP socket: a `nlmsghdr` and an `inet_diag_req_v2`.
fn request(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    let length = u32::try_from(HEADER_BYTES + REQUEST_BYTES).expect("it is small");
    let family = if source.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    message.extend(length.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    // NLM_F_REQUEST; the sequence number and the port stay 0.
    message.extend(1_u16.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([u8::try_from(family).expect("it is small"), 6, 0, 0]); // 6: TCP
    message.extend(u32::MAX.to_ne_bytes()); // in any state
    message.extend(source.port().to_be_bytes());
    message.extend(destination.port().to_be_bytes());
    message.extend(address_bytes(source.ip()));
    message.extend(address_bytes(destination.ip()));
    message.extend([0; 4]); // on any interface
    message.extend([0xff; 8]); // without a cookie
    message
}

fn address_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Finds a uid in the kernel's table, which has lines `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode …`. A
/// socket without an inode has been closed by its process, and its uid is not the owner's.
fn find_uid(table: &str, local: &str, remote: &str) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let matches = words.next()? == local && words.next()? == remote;
        let uid = words.nth(4).filter(|_| matches)?.parse().ok()?;
        (words.nth(1)? != "0").then_some(uid)
    })
}

/// Returns an address as the kernel prints it: 32-bit words of the address in host order, then the port.
fn hex_address(address: SocketAddr) -> String {
    let words = |octets: &[u8]| {
        let word = |w: &[u8]| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]);
        octets.chunks_exact(4).map(|w| format!("{:08X}", word(w))).collect::<String>()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_the_kernel_prints_them() {
        // The kernel prints 127.0.0.1:8080 as 0100007F:1F90 on little-endian machines.
        let expected = if cfg!(target_endian = "little") { "0100007F:1F90" } else { "7F000001:1F90" };
        assert_eq!(hex_address("127.0.0.1:8080".parse().unwrap()), expected);
    }

    #[test]
    fn the_peer_of_a_loopback_connection_is_known_by_uid_until_it_closes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        let (own, local) = (nix::unistd::geteuid().as_raw(), server.local_addr().unwrap());
        assert_eq!(loopback_peer_uid(local, peer), Some(own));
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        assert_eq!(find_uid(&table, &hex_address(peer), &hex_address(local)), Some(own));
        drop(client);
        assert_eq!(loopback_peer_uid(local, peer), None, "a closed socket is nobody's");
    }

    #[test]
    fn the_owner_of_an_ipv6_socket_that_has_reached_an_ipv4_port_is_known() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Ok(_client) = std::net::TcpStream::connect(format!("[::ffff:127.0.0.1]:{port}")) else {
            return eprintln!("skipped: no IPv6 on this machine");
        };
        let (server, peer) = listener.accept().unwrap();
        let (own, local) = (nix::unistd::geteuid().as_raw(), server.local_addr().unwrap());
        assert!(peer.is_ipv4());
        assert_eq!(loopback_peer_uid(local, peer), Some(own));
        let table = std::fs::read_to_string("/proc/net/tcp6").unwrap();
        assert_eq!(find_uid(&table, &hex_address(mapped(peer)), &hex_address(mapped(local))), Some(own));
    }

    #[test]
    fn a_socket_that_is_not_in_the_table_has_no_owner() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
                     0: 0100007F:1F90 0100007F:A0B1 01 00000000:00000000 00:00000000 00000000  1000        0 7 1\n\
                     1: 0100007F:1F90 0100007F:A0B3 01 00000000:00000000 00:00000000 00000000     0        0 0 1\n";
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B1"), Some(1000));
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B2"), None);
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B3"), None, "its process has closed it");
    }
}
