//! The unix sockets over which processes connect and pass descriptors.
//!
//! A process listens under a name in the abstract namespace that follows from its own name, so no exchange of addresses is
//! needed. The kernel identifies the process at the other end; processes of other users are refused. The connection stays
//! open: its end is the end of the peer.
//!
//! Any process can bind any abstract name. Other users cannot guess the names of a job of rsd. The names of other launchers' jobs may be
//! guessed, so each process has [`TURNS`] names: it listens under the first that is free, and callers pass over sockets of other
//! users.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    UnixCredentials, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg, socket, sockopt,
};

use super::hello::{FULL, Hello};
use crate::transport::name::ProcessName;

/// How many names a process may listen under.
const TURNS: u8 = 16;

/// The turn of the name by which a process says that it shares no memory. It answers no calls.
const OFF: u8 = u8::MAX;

/// The address at which a process listens, unless another process has taken it.
pub(super) fn address_of(name: ProcessName) -> String {
    format!("rsd-mpi-{}", name.socket(0))
}

fn address(name: ProcessName, turn: u8) -> nix::Result<UnixAddr> {
    UnixAddr::new_abstract(format!("rsd-mpi-{}", name.socket(turn)).as_bytes())
}

fn new_socket() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
}

/// Whether this process cannot open another file.
pub(super) fn is_exhausted() -> bool {
    matches!(new_socket(), Err(Errno::EMFILE | Errno::ENFILE))
}

/// Starts to listen.
pub(super) fn listen_as(name: ProcessName) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    for turn in 0..TURNS {
        match bind(socket.as_raw_fd(), &address(name, turn)?) {
            Ok(()) => {
                listen(&socket, Backlog::MAXALLOWABLE)?;
                return Ok(socket);
            }
            // An own process with this name is not passed over: callers could not tell the two apart.
            Err(Errno::EADDRINUSE) if !is_ours(name, turn) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let text =
        format!("other users' processes have taken all {TURNS} names of its socket (the first: @{})", address_of(name));
    Err(io::Error::new(io::ErrorKind::AddrInUse, text))
}

/// As long as the returned socket is open, those that share memory and call this process find [`NoAnswer::Off`].
pub(in crate::transport) fn decline_as(name: ProcessName) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    bind(socket.as_raw_fd(), &address(name, OFF)?)?;
    listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(socket)
}

/// Whether a process of this user listens under this name.
fn is_ours(name: ProcessName, turn: u8) -> bool {
    call_turn(name, turn).is_ok_and(|socket| process_behind(&socket).is_ok())
}

/// Why a call has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// No process listens under any of the names.
    Nobody,
    /// The process shares no memory.
    Off,
    /// Only processes of other users listen.
    Foreign(String),
    /// Another error.
    Failed(Errno),
}

/// Connects, and returns the pid of the process that listens, as [`process_behind`] does. Fails if it cannot connect at once.
pub(super) fn call(name: ProcessName) -> Result<(OwnedFd, i32), NoAnswer> {
    let mut failed = NoAnswer::Nobody;
    for turn in 0..TURNS {
        match call_turn(name, turn) {
            Ok(socket) => match process_behind(&socket) {
                Ok(pid) => return Ok((socket, pid)),
                // The process may listen under its next name.
                Err(why) => failed = NoAnswer::Foreign(why),
            },
            Err(Errno::ECONNREFUSED) => {}
            Err(errno) => failed = NoAnswer::Failed(errno),
        }
    }
    match failed {
        NoAnswer::Nobody | NoAnswer::Foreign(_) if is_ours(name, OFF) => Err(NoAnswer::Off),
        _ => Err(failed),
    }
}

fn call_turn(name: ProcessName, turn: u8) -> nix::Result<OwnedFd> {
    let socket = new_socket()?;
    connect(socket.as_raw_fd(), &address(name, turn)?)?;
    Ok(socket)
}

/// Accepts the next caller; fails if there is none, or if this process cannot open more files.
#[expect(unsafe_code, reason = "a descriptor that the kernel has just made")]
pub(super) fn answer(listener: &OwnedFd) -> nix::Result<OwnedFd> {
    let fd = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK)?;
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Refuses the next caller, because this process cannot open more files. `spare` gives up its place for a moment. Returns whether there
/// was a caller.
pub(super) fn refuse(listener: &OwnedFd, spare: &mut Option<OwnedFd>) -> bool {
    drop(spare.take());
    let caller = answer(listener).ok();
    let refused = caller.is_some();
    if let Some(caller) = caller {
        // If it fails, the caller sees the connection closed.
        let _ = nix::unistd::write(&caller, FULL);
    }
    *spare = listener.try_clone().ok();
    refused
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
        assert_eq!(call(name).unwrap_err(), NoAnswer::Nobody);
        let listener = listen_as(name).unwrap();
        assert!(listen_as(name).is_err());
        let (caller, pid) = call(name).unwrap();
        // The first caller was the attempt to listen twice.
        let answered = std::iter::from_fn(|| answer(&listener).ok()).last().unwrap();
        assert_eq!(pid, std::process::id() as i32);
        assert!(matches!(receive(&answered), Received::Nothing));
        nix::unistd::write(&caller, b"x").unwrap();
        assert!(matches!(receive(&answered), Received::Packet(packet, fds) if packet == b"x" && fds.is_empty()));
        set_nonblocking(&caller).unwrap();
        assert!(nix::unistd::read(caller.as_fd(), &mut [0]).is_err());
        drop(caller);
        assert!(matches!(receive(&answered), Received::End));
    }

    #[test]
    fn a_process_that_shares_no_memory_says_so_as_long_as_it_lives() {
        let name = ProcessName::new(b"shares nothing", std::process::id());
        let declines = decline_as(name).unwrap();
        assert_eq!(call(name).unwrap_err(), NoAnswer::Off);
        drop(declines);
        assert_eq!(call(name).unwrap_err(), NoAnswer::Nobody);
    }

    /// Binds the abstract names that it is given as another user, and listens, until its standard input is closed.
    const SQUATTER: &str = "
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
held = []
for name in sys.argv[1:]:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.bind('\\0' + name)
    if len(held) != 1:
        one.listen(9)
    held.append(one)
print('bound', flush=True)
sys.stdin.read()
";

    #[test]
    fn names_that_another_user_has_taken_are_passed_over() {
        use std::io::{BufRead, BufReader};
        use std::process::{Command, Stdio};
        if !nix::unistd::geteuid().is_root() {
            println!("left out: only root can start a process of another user");
            return;
        }
        let name = ProcessName::new(b"squatted", std::process::id());
        let squat = |turns: std::ops::Range<u8>| {
            let mut command = Command::new("python3");
            command.args(["-c", SQUATTER]).args(turns.map(|turn| format!("rsd-mpi-{}", name.socket(turn))));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "bound\n");
            child
        };
        // The second of these names is bound, but no process listens.
        let mut first = squat(0..3);
        let NoAnswer::Foreign(why) = call(name).unwrap_err() else { panic!("a squatter was taken for no process") };
        assert!(why.contains("belongs to user 65534"), "{why}");
        let listener = listen_as(name).unwrap();
        assert_eq!(call(name).unwrap().1, std::process::id() as i32);
        assert!(listen_as(name).is_err(), "this user's own process has the name");
        drop(listener);
        let mut rest = squat(3..TURNS);
        assert!(listen_as(name).unwrap_err().to_string().contains("all 16 names"));
        for child in [&mut first, &mut rest] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
