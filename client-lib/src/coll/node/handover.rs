//! Sets up the shared memory: the first member listens at a unix socket, whose name it sends to the others, and passes
//! two descriptors to each member that connects: the memory's and the bell's.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// The member that passes the descriptors.
#[derive(Debug)]
pub struct Host {
    listener: OwnedFd,
    memory: OwnedFd,
    bell: OwnedFd,
}

/// The descriptors that a guest received.
#[derive(Debug)]
pub struct Guest {
    /// The memory.
    pub memory: OwnedFd,
    /// An eventfd.
    pub bell: OwnedFd,
}

/// How long a guest waits for the host.
const PATIENCE_SECONDS: i64 = 10;

impl Host {
    /// Listens at an abstract address that is not in use.
    pub fn new(name: &str, memory: OwnedFd, bell: OwnedFd) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(listener.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        listen(&listener, Backlog::MAXALLOWABLE)?;
        Ok(Self { listener, memory, bell })
    }

    /// Readable when a guest has connected.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Passes both descriptors to all guests that have connected and belong to this user.
    #[expect(unsafe_code, reason = "descriptors that the kernel has just made")]
    pub fn serve(&self) {
        while let Ok(fd) = accept4(self.listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
            // SAFETY: a new descriptor that nothing else owns.
            let guest = unsafe { OwnedFd::from_raw_fd(fd) };
            if is_of_this_user(&guest) {
                let fds = [self.memory.as_raw_fd(), self.bell.as_raw_fd()];
                let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
                // A guest that has disconnected will report that it has no memory.
                let _ = sendmsg::<()>(fd, &[IoSlice::new(b"!")], &[ControlMessage::ScmRights(&fds)], flags, None);
            }
        }
    }
}

impl Guest {
    /// Connects to the host at this address and receives the descriptors.
    #[expect(unsafe_code, reason = "descriptors that the kernel has just made")]
    pub fn ask(name: &str) -> io::Result<Self> {
        let host = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&host, sockopt::ReceiveTimeout, &TimeVal::seconds(PATIENCE_SECONDS))?;
        connect(host.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        if !is_of_this_user(&host) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut byte = [0];
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; 2]);
        let mut pieces = [IoSliceMut::new(&mut byte)];
        let message = recvmsg::<()>(host.as_raw_fd(), &mut pieces, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let rights = message.cmsgs()?.filter_map(|message| match message {
            ControlMessageOwned::ScmRights(fds) => Some(fds),
            _ => None,
        });
        // SAFETY: the kernel has made them for this process; nothing else owns them.
        let mut fds = rights.flatten().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        match (fds.next(), fds.next()) {
            (Some(memory), Some(bell)) => Ok(Self { memory, bell }),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Whether the peer belongs to this user. An abstract address has no owner in the file system, but the kernel tells the
/// peer's credentials.
fn is_of_this_user(socket: &OwnedFd) -> bool {
    let credentials: nix::Result<UnixCredentials> = getsockopt(socket, sockopt::PeerCredentials);
    credentials.is_ok_and(|other| other.uid() == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_guest_receives_both_descriptors_and_no_other_address_gives_any() {
        let name = format!("rsd-mpi-meeting-test-{}", std::process::id());
        assert!(Guest::ask(&name).is_err());
        let (memory, bell) = (std::fs::File::open("/dev/zero").unwrap(), std::fs::File::open("/dev/null").unwrap());
        let host = Host::new(&name, memory.into(), bell.into()).unwrap();
        assert!(Host::new(&name, host.memory.try_clone().unwrap(), host.bell.try_clone().unwrap()).is_err());
        let asking = std::thread::spawn(move || Guest::ask(&name));
        let mut waiting = [nix::poll::PollFd::new(host.fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut waiting, nix::poll::PollTimeout::NONE).unwrap();
        host.serve();
        let guest = asking.join().unwrap().unwrap();
        let mut byte = [7];
        assert_eq!(nix::unistd::read(&guest.memory, &mut byte), Ok(1));
        assert_eq!(nix::unistd::read(&guest.bell, &mut byte), Ok(0));
    }
}
