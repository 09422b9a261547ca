//! The owner of the other end of a loopback TCP connection, for a step's PMI port: MPI libraries dial it without TLS.

use std::net::{IpAddr, SocketAddr};

/// Returns the uid of the peer by `/proc/net/tcp`: the owner of the socket with local address `peer` and remote address `local`.
/// `None` if the table does not have it, which counts as another user.
pub fn loopback_peer_uid(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let table = if peer.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let text = std::fs::read_to_string(table).ok()?;
    find_uid(&text, &hex_address(peer), &hex_address(local))
}

/// Finds a uid in the kernel's table, which has lines `sl local_address rem_address st tx:rx tr:when retrnsmt uid …`.
fn find_uid(table: &str, local: &str, remote: &str) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let matches = words.next()? == local && words.next()? == remote;
        if matches { words.nth(4)?.parse().ok() } else { None }
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
    fn the_peer_of_a_loopback_connection_is_known_by_uid() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(loopback_peer_uid(server.local_addr().unwrap(), peer), Some(nix::unistd::geteuid().as_raw()));
    }

    #[test]
    fn a_socket_that_is_not_in_the_table_has_no_owner() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n\
                     0: 0100007F:1F90 0100007F:A0B1 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n";
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B1"), Some(1000));
        assert_eq!(find_uid(table, "0100007F:1F90", "0100007F:A0B2"), None);
    }
}
