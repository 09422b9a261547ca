//! Pipes and sockets between this process and a child. Our end never blocks, the child's end blocks as programs expect, and a
//! process inherits neither except through [`Command`](super::Command).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, getsockname, listen, socket,
};
use nix::unistd::pipe2;

/// Makes a pipe that the child writes: `(ours, the child's)`.
pub(crate) fn output_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

/// Makes a pipe that the child reads: `(ours, the child's)`.
pub(crate) fn input_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((write, read))
}

/// Makes a stream in both directions: `(ours, the child's)`.
pub(crate) fn socket_pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((ours, theirs.into()))
}

/// Makes a TCP socket that listens at this address, and returns the port that the system has chosen. Only the child uses the
/// socket; peers that connect before it accepts wait in the kernel.
pub(crate) fn listening_socket(at: IpAddr) -> Result<(OwnedFd, u16), Errno> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let listener = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(listener.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(at, 0)))?;
    // All ranks of a job may dial one at the same time.
    listen(&listener, Backlog::MAXCONN)?;
    let bound: SockaddrStorage = getsockname(listener.as_raw_fd())?;
    let v4 = bound.as_sockaddr_in().map(|at| at.port());
    let port = v4.or_else(|| bound.as_sockaddr_in6().map(|at| at.port()));
    Ok((listener, port.ok_or(Errno::EAFNOSUPPORT)?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_listening_socket_takes_connections_before_accept_is_called() {
        let at = IpAddr::from([127, 0, 0, 1]);
        let (listener, port) = listening_socket(at).expect("a loopback address");
        assert!(TcpStream::connect((at, port)).is_ok());
        drop(listener);
        assert!(TcpStream::connect((at, port)).is_err());
    }
}
