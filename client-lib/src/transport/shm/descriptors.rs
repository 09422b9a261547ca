//! Room for the descriptors of peers: each connected peer takes three (its socket, its doorbell, its process).
//!
//! The usual soft limit of 1,024 open files is there for programs that use `select`, which cannot handle higher numbers. With many
//! ranks on a node it is too low. Then the limit is raised by what the peers need, as far as the hard limit allows, and their
//! descriptors get numbers from the former limit on: the program still gets the low numbers, and as many of them as before.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The descriptors of one peer.
const PER_PEER: u64 = 3;
/// Descriptors that are left to the program, and to connections in progress, before the limit is raised.
const RESERVED: u64 = 256;

/// Where the descriptors of peers are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Room {
    /// The lowest number for them, if the limit was raised for them.
    from: Option<RawFd>,
}

impl Room {
    /// Raises the limit if that is necessary for this many peers.
    pub(super) fn for_peers(peers: usize) -> Room {
        let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Room::default() };
        let Some(wanted) = raised(soft, hard, peers as u64) else { return Room::default() };
        match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
            Ok(()) => Room { from: RawFd::try_from(soft).ok() },
            Err(_) => Room::default(),
        }
    }

    /// Moves a descriptor of a peer out of the program's way.
    pub(super) fn settle(self, fd: OwnedFd) -> OwnedFd {
        match self.from {
            Some(from) => duplicate(fd.as_fd(), from).unwrap_or(fd),
            None => fd,
        }
    }
}

/// Returns the limit to set, if it must be raised.
fn raised(soft: u64, hard: u64, peers: u64) -> Option<u64> {
    let needed = PER_PEER * peers;
    let wanted = soft.saturating_add(needed).min(hard);
    (needed + RESERVED > soft && wanted > soft).then_some(wanted)
}

#[expect(unsafe_code, reason = "a descriptor that the kernel has just made")]
fn duplicate(fd: BorrowedFd<'_>, from: RawFd) -> Option<OwnedFd> {
    let new = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(from)).ok()?;
    // SAFETY: just made; nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(new) })
}

/// Says what a system call has failed with; for the limit on open files, what to do about it.
pub(super) fn describe(errno: Errno, peers: usize) -> String {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    match errno {
        Errno::EMFILE => format!(
            "this process has reached its limit of {limit} open files; {peers} ranks on a node need up to {} for each other: raise the \
             hard limit (ulimit -Hn) where the job is submitted",
            PER_PEER * peers as u64
        ),
        errno => errno.desc().to_owned(),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_limit_is_raised_by_what_the_peers_need_and_only_if_they_need_it() {
        assert_eq!(raised(1024, 4096, 255), None);
        assert_eq!(raised(1024, 4096, 257), Some(1024 + 771));
        assert_eq!(raised(1024, 1100, 400), Some(1100), "as far as the hard limit allows");
        assert_eq!(raised(1024, 1024, 400), None);
        assert_eq!(raised(u64::MAX, u64::MAX, 400), None);
    }

    #[test]
    fn descriptors_of_peers_are_above_those_of_the_program() {
        let fd = || std::fs::File::open("/dev/null").unwrap().into();
        let moved = Room { from: Some(300) }.settle(fd());
        assert!(moved.as_raw_fd() >= 300);
        let low: OwnedFd = fd();
        let number = low.as_raw_fd();
        assert_eq!(Room::default().settle(low).as_raw_fd(), number);
        let text = describe(Errno::EMFILE, 400);
        assert!(text.contains("open files") && text.contains("1200") && text.contains("ulimit -Hn"), "{text}");
        assert_eq!(describe(Errno::ECONNREFUSED, 1), "Connection refused");
    }
}
