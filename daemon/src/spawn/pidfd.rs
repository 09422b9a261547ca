//! Watches and signals a process that is not a child of this process: its descriptor becomes readable when the process ends. The
//! descriptor stands for that process only, even if another process reuses the number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
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

/// A process that is signalled, and no other, even if its pid is reused.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this pid now. Fails with `NotFound` if there is none.
    pub(crate) fn open(pid: Pid) -> io::Result<PidFd> {
        Ok(PidFd(open(pid)?))
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let no_details = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and without details the kernel reads no memory of ours.
        let done =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal as i32, no_details, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
    field(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, 22)
}

/// Returns whether the process that began at `started` (0: unknown) has ended or is exiting. A process closes its files while it exits,
/// some time before its descriptor reports the end: from then on, every thread has the kernel's flag for this.
pub(crate) fn is_exiting(pid: Pid, started: u64) -> bool {
    const PF_EXITING: u64 = 4;
    if started != 0 && start_time(pid) != Some(started) {
        return true;
    }
    let threads = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    threads.flatten().all(|thread| match std::fs::read_to_string(thread.path().join("stat")) {
        Ok(stat) => field(&stat, 9).is_some_and(|flags| flags & PF_EXITING != 0),
        Err(error) => error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::NotFound,
    })
}

/// Returns a field of a `stat` file by its number in proc(5), 4 or more.
fn field(stat: &str, number: usize) -> Option<u64> {
    // The program's name, in parentheses, may contain any character.
    stat.rsplit_once(") ")?.1.split(' ').nth(number.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_killed_process_is_exiting_before_it_is_reaped_and_a_running_one_is_not() {
        let this = Pid::this();
        assert!(!is_exiting(this, start_time(this).expect("this process runs")));
        assert!(is_exiting(this, 1), "another process had this number");
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
        let started = start_time(pid).expect("it runs");
        assert!(!is_exiting(pid, started) && !is_exiting(pid, 0));
        child.kill().expect("it is our child");
        // It stays a zombie until it is reaped.
        while !is_exiting(pid, started) {
            std::thread::yield_now();
        }
        assert!(is_exiting(pid, 0));
        child.wait().expect("it is our child");
        assert!(is_exiting(pid, started) && is_exiting(pid, 0));
    }

    #[test]
    fn the_flag_of_an_exiting_thread_is_in_the_ninth_field() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194308 0 0 0 0 0 0 0 0 20 0 1 0 812 0";
        assert_eq!((field(stat, 9), field(stat, 22)), (Some(4_194_308), Some(812)));
    }
}
