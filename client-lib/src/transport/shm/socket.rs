//! The unix sockets over which processes connect and pass descriptors.
//!
//! A process listens under a name in the abstract namespace that follows from its own name, so no exchange of addresses is
//! needed. The kernel identifies the process at the other end; processes of other users are refused. The connection stays
//! open: its end is the end of the peer.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg, socket, sockopt,
};

use super::hello::Hello;
use crate::transport::name::ProcessName;

/// The address at which a process listens.
pub(super) fn address_of(name: ProcessName) -> String {
    let world: String = name.world.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("rsd-mpi-{world}-{}", name.rank)
}

fn address(name: ProcessName) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(address_of(name).as_bytes())
}

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// Starts to listen.
pub(super) fn listen_as(name: ProcessName) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    bind(socket.as_raw_fd(), &address(name)?)?;
    listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(socket)
}

/// Connects; fails if it cannot do so at once.
pub(super) fn call(name: ProcessName) -> nix::Result<OwnedFd> {
    let socket = new_socket()?;
    connect(socket.as_raw_fd(), &address(name)?)?;
    Ok(socket)
}

/// Accepts the next caller; `None` if there is none.
#[expect(unsafe_code, reason = "a descriptor that the kernel has just made")]
pub(super) fn answer(listener: &OwnedFd) -> Option<OwnedFd> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK).ok()?;
    // SAFETY: a new descriptor that nothing else owns.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The pid of the process at the other end, if that process belongs to this user or to root; 0 if it is in a pid
/// namespace that is not visible from here.
pub(super) fn process_behind(socket: &OwnedFd) -> Result<i32, String> {
    let credentials: UnixCredentials = getsockopt(socket, sockopt::PeerCredentials)
        .map_err(|errno| format!("cannot get its credentials: {}", errno.desc()))?;
    let (theirs, ours) = (credentials.uid(), nix::unistd::geteuid().as_raw());
    if theirs != ours && theirs != 0 {
        return Err(format!("it belongs to user {theirs}, this process to user {ours}"));
    }
    Ok(credentials.pid())
}

/// Sends a packet with this process's segment and doorbell.
pub(super) fn send_hello(
    socket: &OwnedFd,
    hello: &Hello,
    segment: BorrowedFd<'_>,
    bell: BorrowedFd<'_>,
) -> nix::Result<()> {
    let fds = [segment.as_raw_fd(), bell.as_raw_fd()];
    let packet = hello.encode();
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let pieces = [IoSlice::new(&packet)];
    sendmsg::<()>(socket.as_raw_fd(), &pieces, &[ControlMessage::ScmRights(&fds)], flags, None)?;
    Ok(())
}

/// The result of reading a socket.
#[derive(Debug)]
pub(super) enum Received {
    /// Nothing yet.
    Nothing,
    /// A packet and the descriptors that accompanied it.
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// The other end is closed.
    End,
}

/// Receives what has arrived.
#[expect(unsafe_code, reason = "descriptors that the kernel has just made")]
pub(super) fn receive(socket: &OwnedFd) -> Received {
    let mut packet = vec![0; 2 * Hello::LEN];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 2]);
    let mut pieces = [IoSliceMut::new(&mut packet)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let (len, fds) = match recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut space), flags) {
        Ok(message) => {
            let rights = message.cmsgs().into_iter().flatten().filter_map(|message| match message {
                ControlMessageOwned::ScmRights(fds) => Some(fds),
                _ => None,
            });
            // SAFETY: the kernel has made them for this process; nothing else owns them.
            let fds = rights.flatten().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect::<Vec<_>>();
            (message.bytes, fds)
        }
        Err(Errno::EAGAIN | Errno::EINTR) => return Received::Nothing,
        Err(_) => return Received::End,
    };
    if len == 0 {
        return Received::End;
    }
    packet.truncate(len);
    Received::Packet(packet, fds)
}

/// Ensures that ringing a doorbell never blocks.
pub(super) fn set_nonblocking(fd: &OwnedFd) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// A descriptor that becomes readable when a process ends; `None` if the kernel does not provide one.
#[expect(unsafe_code, reason = "there is no safe wrapper")]
pub(super) fn process_fd(pid: i32) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    // SAFETY: takes numbers, touches no memory, and returns a new descriptor or -1.
    let fd = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: just made; nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn connecting_fails_until_a_process_listens_and_a_name_can_be_used_once() {
        let name = ProcessName::new(b"socket test", std::process::id());
        assert_eq!(call(name).unwrap_err(), Errno::ECONNREFUSED);
        let listener = listen_as(name).unwrap();
        assert!(listen_as(name).is_err());
        assert!(answer(&listener).is_none());
        let caller = call(name).unwrap();
        let answered = answer(&listener).unwrap();
        assert_eq!(process_behind(&caller), Ok(std::process::id() as i32));
        assert!(matches!(receive(&answered), Received::Nothing));
        nix::unistd::write(&caller, b"x").unwrap();
        assert!(matches!(receive(&answered), Received::Packet(packet, fds) if packet == b"x" && fds.is_empty()));
        set_nonblocking(&caller).unwrap();
        assert!(nix::unistd::read(caller.as_fd(), &mut [0]).is_err());
        drop(caller);
        assert!(matches!(receive(&answered), Received::End));
    }
}
