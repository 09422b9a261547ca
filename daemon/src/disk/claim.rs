//! A name in the kernel that one daemon holds for its state directory. It outlives the directory: after the directory
//! and the lock file in it have been deleted, a second daemon still finds the name taken.
//!
//! The name is the address of an abstract unix socket, so it is free as soon as its daemon has ended. Such addresses are open to
//! every user: a socket of another user does not count, and the lock file then protects alone.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr, sockopt::PeerCredentials};
use nix::unistd::geteuid;

/// The name, held until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// None: a process of another user holds the address.
    socket: Option<UnixListener>,
}

/// The process that holds the name, by its pid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldBy(pub(crate) i32);

impl Claim {
    /// Takes the name of a state directory, given by its canonical path. Waits up to `timeout` for a daemon that is being ended.
    pub(crate) fn take(state_dir: &Path, timeout: Duration) -> io::Result<Result<Claim, HeldBy>> {
        let name = name(state_dir)?;
        let address = SocketAddr::from_abstract_name(&name)?;
        let deadline = Instant::now() + timeout;
        loop {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => {
                    socket.set_nonblocking(true)?;
                    return Ok(Ok(Claim { socket: Some(socket) }));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
            match holder(&name) {
                Holder::Own(pid) if Instant::now() >= deadline => return Ok(Err(HeldBy(pid))),
                Holder::Own(_) | Holder::Gone => sleep(Duration::from_millis(5)),
                Holder::Other => return Ok(Ok(Claim { socket: None })),
            }
        }
    }

    /// Drops the connections of daemons that found the name taken.
    pub(crate) fn drop_callers(&self) {
        while self.socket.as_ref().is_some_and(|socket| socket.accept().is_ok()) {}
    }
}

enum Holder {
    /// A process of this user.
    Own(i32),
    /// A process of another user, or one that cannot be asked.
    Other,
    Gone,
}

fn holder(name: &str) -> Holder {
    let ask = || -> nix::Result<(u32, i32)> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket: OwnedFd = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        socket::connect(socket.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        let peer = socket::getsockopt(&socket, PeerCredentials)?;
        Ok((peer.uid(), peer.pid()))
    };
    match ask() {
        Ok((uid, pid)) if uid == geteuid().as_raw() => Holder::Own(pid),
        Err(nix::Error::ECONNREFUSED) => Holder::Gone,
        Ok(_) | Err(_) => Holder::Other,
    }
}

/// The user, the mount namespace, and the path, which together name a directory before and after it is deleted and created again.
fn name(state_dir: &Path) -> io::Result<String> {
    let mounts = std::fs::metadata("/proc/self/ns/mnt")?.ino();
    let mut path = DefaultHasher::new();
    path.write(state_dir.as_os_str().as_bytes());
    Ok(format!("rsd/{}/{mounts:x}/{:016x}", geteuid(), path.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_until_its_claim_is_dropped_even_without_its_directory() {
        let path = std::env::temp_dir().join(format!("rsd-claim-{}-{}", std::process::id(), "x".repeat(100)));
        std::fs::create_dir(&path).unwrap();
        let claim = Claim::take(&path, Duration::ZERO).unwrap().unwrap();
        std::fs::remove_dir(&path).unwrap();
        for _ in 0..1000 {
            let refused = Claim::take(&path, Duration::ZERO).unwrap().unwrap_err();
            assert_eq!(refused, HeldBy(i32::try_from(std::process::id()).unwrap()));
            claim.drop_callers();
        }
        drop(claim);
        assert!(Claim::take(&path, Duration::ZERO).unwrap().is_ok());
    }
}
