//! Threads that start processes, each with its own table of file descriptors.
//!
//! ```text
//! step's thread                    crew thread (own table: a dozen descriptors)
//!   start(order) ──────────────────▶ makes pipes and socket, posix_spawn, closes the child's ends
//!   next() ◀── pid + step's ends ─── SCM_RIGHTS, and closes its copies
//! ```
//!
//! A new process copies its parent's table and closes the close-on-exec descriptors one by one. The step's table has three
//! descriptors per rank, so starting n ranks from it would cost n². From a separate table, each start costs the same. Most of a
//! start is the kernel's work, so two threads start nearly twice as many.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::SigSet;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};
use nix::unistd::Pid;

/// The number of threads. Two are faster than one on two or more cores; more threads are not faster.
const THREADS: usize = 2;
/// Longer reasons are truncated.
const TEXT_BYTES_MAX: usize = 4096;
/// The part of a reply before its text: the order's key, the pid, the port.
const HEAD_BYTES: usize = 8 + 4 + 2;
/// The most descriptors of one process's pipes and sockets that the step keeps.
const ENDS_MAX: usize = 8;

/// Starts one process, or returns an error sentence.
pub(crate) type Order = Box<dyn FnOnce() -> Result<Process, String> + Send>;

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// The step's ends of its pipes and sockets.
    pub(crate) ends: Vec<OwnedFd>,
    /// A remark on how it was started; usually empty.
    pub(crate) remark: String,
    /// The port on which it listens for other ranks of its job; 0: none.
    pub(crate) port: u16,
}

/// One thread of the crew.
#[derive(Debug)]
struct Member {
    orders: mpsc::Sender<(u64, Order)>,
    replies: OwnedFd,
    /// The keys of its unanswered orders.
    waiting: Vec<u64>,
}

/// The threads; they end when the crew is dropped.
#[derive(Debug)]
pub(crate) struct Crew {
    members: Vec<Member>,
}

/// The result of an order.
pub(crate) type Started = (u64, Result<Process, String>);

impl Crew {
    /// Creates the threads. Must be called while the process has few descriptors, because the threads begin with copies of them.
    pub(crate) fn new() -> std::io::Result<Crew> {
        let members = (0..THREADS).map(|_| Member::new()).collect::<std::io::Result<_>>()?;
        Ok(Crew { members })
    }

    /// Sends an order to a thread; [`Crew::next`] returns the result under the same key.
    pub(crate) fn start(&mut self, key: u64, order: Order) {
        let member = self.members.iter_mut().min_by_key(|member| member.waiting.len()).expect("there are members");
        member.waiting.push(key);
        // If the thread has ended, its closed socket reports that.
        let _ = member.orders.send((key, order));
    }

    /// Waits for the next result; None if no order is in progress.
    pub(crate) fn next(&mut self) -> Option<Started> {
        loop {
            let at: Vec<usize> = (0..self.members.len()).filter(|i| !self.members[*i].waiting.is_empty()).collect();
            if at.is_empty() {
                return None;
            }
            let replies = |i: &usize| PollFd::new(self.members[*i].replies.as_fd(), PollFlags::POLLIN);
            let mut polled: Vec<PollFd<'_>> = at.iter().map(replies).collect();
            match poll(&mut polled, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Some((self.members[at[0]].give_up()?, Err(gone(errno)))),
            }
            let Some(ready) = polled.iter().position(|fd| fd.any().unwrap_or(false)) else { continue };
            let member = &mut self.members[at[ready]];
            match member.reply() {
                Ok(Some(started)) => return Some(started),
                Ok(None) => {}
                Err(errno) => return Some((member.give_up()?, Err(gone(errno)))),
            }
        }
    }
}

/// Gives the calling thread its own table, with only the standard streams and this descriptor.
fn own_table(socket: RawFd) -> Result<OwnedFd, Errno> {
    // A signal handler that ran in this thread would find none of its descriptors.
    SigSet::all().thread_block()?;
    unshare(CloneFlags::CLONE_FILES)?;
    let close = |first: RawFd, last: libc::c_uint| {
        if first.unsigned_abs() <= last {
            // SAFETY: this closes only this table's copies, which no other code uses; the originals are in the other table.
            // Kernels before 5.9 leave them open, which costs only time.
            unsafe { libc::syscall(libc::SYS_close_range, first.unsigned_abs(), last, 0 as libc::c_uint) };
        }
    };
    close(3, socket.unsigned_abs() - 1);
    close(socket + 1, libc::c_uint::MAX);
    // SAFETY: the number is open in this table; the existing handle belongs to the other table.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

impl Member {
    fn new() -> std::io::Result<Member> {
        let (replies, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let (orders, inbox) = mpsc::channel::<(u64, Order)>();
        let (own, is_own) = mpsc::channel();
        let number = theirs.as_raw_fd();
        std::thread::Builder::new().name("crew".into()).stack_size(256 << 10).spawn(move || {
            let socket = own_table(number);
            let _ = own.send(socket.as_ref().err().copied()); // the creating thread waits for it
            let Ok(socket) = socket else { return };
            while let Ok((key, order)) = inbox.recv() {
                if reply(&socket, key, order()).is_err() {
                    return;
                }
            }
        })?;
        if let Some(errno) = is_own.recv().map_err(std::io::Error::other)? {
            return Err(errno.into());
        }
        // The thread has its own copy, which closes when the thread ends.
        drop(theirs);
        Ok(Member { orders, replies, waiting: Vec::new() })
    }

    fn give_up(&mut self) -> Option<u64> {
        self.waiting.pop()
    }

    fn reply(&mut self) -> Result<Option<Started>, Errno> {
        let mut bytes = [0; HEAD_BYTES + TEXT_BYTES_MAX];
        let mut space = nix::cmsg_space!([RawFd; ENDS_MAX]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(self.replies.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Err(Errno::EINTR) => return Ok(None),
            other => other?,
        };
        let length = message.bytes;
        let mut ends = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                // SAFETY: the kernel has just made these descriptors for us.
                ends.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        let Some((head, text)) = bytes[..length].split_at_checked(HEAD_BYTES) else { return Err(Errno::EPIPE) };
        let key = u64::from_ne_bytes(head[..8].try_into().expect("eight bytes"));
        let pid = i32::from_ne_bytes(head[8..12].try_into().expect("four bytes"));
        let port = u16::from_ne_bytes([head[12], head[13]]);
        self.waiting.retain(|waiting| *waiting != key);
        let text = String::from_utf8_lossy(text).into_owned();
        let how = match pid {
            1.. => Ok(Process { pid: Pid::from_raw(pid), ends, remark: text, port }),
            ..1 => Err(text),
        };
        Ok(Some((key, how)))
    }
}

fn gone(errno: Errno) -> String {
    format!("the thread that starts ranks has ended: {}", errno.desc())
}

fn reply(socket: &OwnedFd, key: u64, how: Result<Process, String>) -> Result<(), Errno> {
    let (pid, ends, text, port) = match how {
        Ok(Process { pid, ends, remark, port }) => (pid.as_raw(), ends, remark, port),
        Err(text) => (0, Vec::new(), text, 0),
    };
    let text = &text.as_bytes()[..text.len().min(TEXT_BYTES_MAX)];
    let head = [&key.to_ne_bytes()[..], &pid.to_ne_bytes(), &port.to_ne_bytes()].concat();
    let fds: Vec<RawFd> = ends.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    loop {
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(&head), IoSlice::new(text)],
            rights,
            MsgFlags::empty(),
            None,
        ) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io::Read;

    use nix::unistd::pipe2;

    use super::*;

    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").expect("our own").count()
    }

    /// Returns an order that "starts" process `pid`, with the end of a pipe that contains `text`.
    fn order(pid: i32, text: &'static str) -> Order {
        Box::new(move || {
            let (read, write) = pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| e.to_string())?;
            nix::unistd::write(&write, text.as_bytes()).map_err(|e| e.to_string())?;
            Ok(Process { pid: Pid::from_raw(pid), ends: vec![read], remark: format!("{text}, too"), port: pid as u16 })
        })
    }

    #[test]
    fn every_order_is_answered_once_with_its_own_ends() {
        let mut crew = Crew::new().expect("threads");
        let before = open_files();
        for key in 0..100 {
            crew.start(key, order(1000 + key as i32, if key.is_multiple_of(2) { "even" } else { "odd" }));
        }
        let mut answers = HashMap::new();
        while let Some((key, how)) = crew.next() {
            let Process { pid, mut ends, remark, port } = how.expect("it works");
            let mut text = String::new();
            File::from(ends.pop().expect("an end")).read_to_string(&mut text).expect("a pipe");
            assert_eq!(remark, format!("{text}, too"));
            assert_eq!(i32::from(port), pid.as_raw());
            assert_eq!(answers.insert(key, (pid.as_raw(), text)), None);
        }
        let expected = |key: u64| (1000 + key as i32, if key.is_multiple_of(2) { "even" } else { "odd" }.to_owned());
        assert_eq!(answers, (0..100).map(|key| (key, expected(key))).collect());
        // Other tests of this process open files too.
        assert!(open_files() < before + 50);
    }

    #[test]
    fn a_reason_is_returned_and_truncated_if_it_is_long() {
        let mut crew = Crew::new().expect("threads");
        crew.start(7, Box::new(|| Err("no such program".into())));
        assert!(matches!(crew.next(), Some((7, Err(text))) if text == "no such program"));
        crew.start(8, Box::new(|| Err("x".repeat(2 * TEXT_BYTES_MAX))));
        assert!(matches!(crew.next(), Some((8, Err(text))) if text.len() == TEXT_BYTES_MAX));
        assert!(crew.next().is_none());
    }

    #[test]
    fn a_thread_that_dies_answers_for_all_its_orders() {
        let mut crew = Crew::new().expect("threads");
        (0..4).for_each(|key| crew.start(key, Box::new(|| panic!("on purpose"))));
        let mut failed: Vec<u64> = std::iter::from_fn(|| crew.next())
            .map(|(key, how)| {
                assert!(how.expect_err("it died").starts_with("the thread that starts ranks has ended"));
                key
            })
            .collect();
        failed.sort_unstable();
        assert_eq!(failed, [0, 1, 2, 3]);
    }
}
