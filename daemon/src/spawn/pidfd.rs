//! Watches a process that is not a child of this process: its descriptor becomes readable when the process ends. The descriptor
//! stands for that process only, even if another process reuses the number.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches exactly one process, even if its pid is reused.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches `pid`, if that is the process that began at `started` (see [`start_time`]; 0: unknown). Fails with `NotFound` if
    /// it has ended.
    pub(crate) fn new(pid: Pid, started: u64) -> io::Result<Watched> {
        let fd = open(pid)?;
        // From here on, the descriptor reports the end of this process even if its number is reused.
        if started != 0 && start_time(pid) != Some(started) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // SAFETY: the descriptor is owned, always the same, and open until the registration is dropped with it.
        Ok(Watched(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?))
    }

    /// Waits until the process has ended.
    pub(crate) async fn end(&self) {
        // An error of the reactor is permanent, so retrying does not help.
        let _ = self.0.readable().await;
    }
}

fn open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers, and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor, close-on-exec, and no other code knows it.
        Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        Ok(_) | Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Err(io::ErrorKind::NotFound.into()),
            error => Err(error),
        },
    }
}

/// Returns when a process began, in the kernel's ticks since boot. Pid and start time together identify a process.
pub(crate) fn start_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may contain any character.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}
